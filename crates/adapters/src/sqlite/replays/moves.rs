//! The move: from dead letters to waiting attempts.

use domain::replay::{ReplayState, Step};
use domain::time::Timestamp;
use rusqlite::Transaction;

use super::{Running, STEP_EXAMINED};
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{all, execute};

/// What one replay's step came to.
pub(super) struct Moved {
    /// Dead letters moved.
    pub(super) count: u32,
    /// Those and others that were looked at, and are not again.
    pub(super) examined: u32,
    /// There is nothing left to look at.
    pub(super) all: bool,
}

const EXAMINED: &str = "
    -- advance_replays: where the last step stopped, and on
    select a.id, coalesce(a.finished_at, a.started_at),
        (?6 is null or a.id = ?6)
            and (?7 is null or a.status is ?7) and (?8 is null or e.event_type is ?8)
    from ledger a indexed by ledger_dead
    join events e on e.id = a.event_id
    where a.destination_id = ?1 and a.dead_letter = 1 and a.replayed_at is null
        and coalesce(a.finished_at, a.started_at) >= ?2
        and coalesce(a.finished_at, a.started_at) < ?3
        and (coalesce(a.finished_at, a.started_at), a.id) > (?4, ?5)
    order by coalesce(a.finished_at, a.started_at), a.id
    limit ?9";

const MARK: &str = "
    -- advance_replays: it is replayed
    update ledger set replayed_at = ?2
    where id = ?1 and dead_letter = 1 and replayed_at is null";

const ADD: &str = "
    -- advance_replays: its next try
    insert into deliveries (
        event_id, destination_id, tenant_id, try_number, tries_before, due_at, created_at,
        replay_id, expires_at, payload_bytes, urgent
    )
    select a.event_id, a.destination_id, a.tenant_id, a.try_number + 1, a.try_number, ?2, ?2,
        ?3, ?2 + ?4 * 1000, a.payload_bytes, e.urgent
    from ledger a join events e on e.id = a.event_id
    where a.id = ?1";

const REMEMBER: &str = "
    -- advance_replays: how far it came
    update replays
    set after_at = coalesce(?2, after_at), after_id = coalesce(?3, after_id), paced_at = ?4,
        looked_at = ?6, done = done + ?5, total = max(total, done + ?5)
    where id = ?1";

const END: &str = "
    -- advance_replays: it has ended
    update replays set state = ?2, finished_at = ?3 where id = ?1";

/// Moves what the step allows, and remembers how far it came.
pub(super) fn take(
    tx: &Transaction<'_>,
    now: Timestamp,
    replay: &Running,
    step: Step,
    max_age_ms: Option<i64>,
) -> Result<Moved, Fault> {
    let mut moved = Moved {
        count: 0,
        examined: 0,
        all: false,
    };
    let mut last = None;
    if step.count > 0 {
        let examined = examined(tx, replay)?;
        moved.all = examined.len() < STEP_EXAMINED as usize;
        for (id, died, matches) in examined {
            if moved.count >= step.count {
                moved.all = false;
                break;
            }
            last = Some((died, id));
            moved.examined += 1;
            if matches && execute(tx, MARK, (id, now.as_micros()))? > 0 {
                execute(tx, ADD, (id, now.as_micros(), &replay.id, max_age_ms))?;
                moved.count += 1;
            }
        }
    }
    let (at, id) = last.unzip();
    let paced_at = step.paced_at(moved.count).as_micros();
    let remembered = (&replay.id, at, id, paced_at, moved.count, now.as_micros());
    execute(tx, REMEMBER, remembered)?;
    if moved.all {
        end(tx, now, replay, ReplayState::Completed)?;
    }
    Ok(moved)
}

type Examined = (i64, i64, bool);

fn examined(tx: &Transaction<'_>, replay: &Running) -> Result<Vec<Examined>, Fault> {
    let params = (
        replay.destination.to_string(),
        replay.died_from.unwrap_or(i64::MIN),
        replay.died_before,
        replay.after_at.unwrap_or(i64::MIN),
        replay.after_id.unwrap_or(0),
        replay.attempt.map(|attempt| attempt.0),
        replay.status,
        &replay.event_type,
        STEP_EXAMINED,
    );
    all(tx, EXAMINED, params, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })
}

/// Ends one.
pub(super) fn end(
    tx: &Transaction<'_>,
    now: Timestamp,
    replay: &Running,
    state: ReplayState,
) -> Result<(), Fault> {
    execute(tx, END, (&replay.id, state.as_str(), now.as_micros()))?;
    Ok(())
}

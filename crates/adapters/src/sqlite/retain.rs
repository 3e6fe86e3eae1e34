//! Retention: what is over and old goes, a small step at a time.
//!
//! A step holds the one writer, so it is smaller than what the caller allows:
//! what is delivered meanwhile waits for it. The pages that it frees are used
//! again by what comes; the file itself does not shrink.

use domain::retention::{Kept, Retention};
use domain::time::{Timestamp, micros};
use engine::ports::{PUT_OFF, RetainRules, Retained, Walk};
use rusqlite::Transaction;

use super::fault::Fault;
use super::lines;
use super::rows::{all, execute, first, word};

mod destinations;

/// Rows that one step looks at, at most: a few milliseconds.
const STEP: u32 = 200;

/// Bytes of payloads that one step deletes, but for the first: a page of each
/// is read for every 4 KiB.
const STEP_BYTES: i64 = 4 << 20;

const TURN: &str = "
    -- retain: the walk that has been due for longest
    select name, after_id, began_at, after_at from retention_walks
    where due_at <= ?1 order by due_at, name limit 1";

const REST: &str = "
    -- retain: how far it came, and when it goes on
    update retention_walks set after_id = ?2, began_at = ?3, due_at = ?4, after_at = ?5
    where name = ?1";

const PUT_OFF_UNTIL: &str = "
    -- retain: a step failed, so the others get their turn
    update retention_walks set due_at = ?2
    where name = (
        select name from retention_walks where due_at <= ?1 order by due_at, name limit 1
    )";

const OLDEST_ATTEMPTS: &str = "
    -- retain: the ledger from its oldest row, and what may go
    select id, created_at >= ?2,
        max(created_at, coalesce(started_at, 0), coalesce(finished_at, 0)) < ?2
        and not (dead_letter = 1 and replayed_at is null)
    from ledger where id > ?1 order by id limit ?3";

const DELETE_ATTEMPT: &str = "
    -- retain: an attempt
    delete from ledger where id = ?1";

const DEAD: &str = "
    -- retain: dead letters, those first that died first, and which no replay awaits
    select a.id, coalesce(a.finished_at, a.started_at),
        not exists (
            select 1 from replays r indexed by replays_running
            where r.state = 'running' and r.destination_id = a.destination_id
                and (r.attempt_id is null or r.attempt_id = a.id)
                and coalesce(a.finished_at, a.started_at) < r.died_before
                and (r.died_from is null or coalesce(a.finished_at, a.started_at) >= r.died_from)
        )
    from ledger a indexed by ledger_dead_by_age
    where a.dead_letter = 1 and a.replayed_at is null
        and coalesce(a.finished_at, a.started_at) < ?1
        and (coalesce(a.finished_at, a.started_at), a.id) > (?3, ?4)
    order by coalesce(a.finished_at, a.started_at), a.id limit ?2";

const END_DEAD: &str = "
    -- retain: an attempt that failed, like others
    update ledger set dead_letter = 0 where id = ?1";

const OLDEST_EVENTS: &str = "
    -- retain: events in the order in which they came, and what may go
    select e.rowid, e.created_at >= ?2, length(e.payload),
        not exists (
            select 1 from deliveries a indexed by deliveries_of_event where a.event_id = e.id
        )
        and not exists (
            select 1 from ledger a indexed by ledger_of_event
            where a.event_id = e.id and a.dead_letter = 1 and a.replayed_at is null
        )
    from events e where e.rowid > ?1 order by e.rowid limit ?3";

const DELETE_EVENT: &str = "
    -- retain: an event
    delete from events where rowid = ?1";

/// No start that is left was claimed under it, either, which is at most half a second
/// before: the audit judges them by it.
const OLDEST_HISTORY: &str = "
    -- retain: limit history, and what was superseded before the cut
    select h.id, h.in_force_from >= ?2,
        exists (
            select 1 from limit_history later indexed by limit_history_of_destination
            where later.destination_id = h.destination_id
                and later.in_force_from >= h.in_force_from
                and later.in_force_from < ?2 and later.id > h.id
                and not exists (
                    select 1 from ledger a indexed by ledger_starts
                    where a.destination_id = h.destination_id and a.folded in (0, 1)
                        and a.started_at < later.in_force_from + 500000
                        and a.started_at is not null and a.carried_by is null
                )
                and not exists (
                    select 1 from deliveries a indexed by deliveries_held
                    where a.destination_id = h.destination_id and a.state = 'started'
                        and a.started_at < later.in_force_from + 500000
                        and a.permit is not null and a.carried_by is null
                )
        )
    from limit_history h where h.id > ?1 order by h.id limit ?3";

const DELETE_HISTORY: &str = "
    -- retain: an entry of limit history
    delete from limit_history where id = ?1";

const DELETE_REPLAYS: &str = "
    -- retain: replays that are over
    delete from replays where id in (
        select id from replays indexed by replays_finished
        where finished_at is not null and finished_at < ?1 order by finished_at limit ?2
    )";

/// One step; see [`engine::ports::Retain`]. What is committed of one that fails
/// is that its walk is put off.
pub(super) fn retain(
    tx: &Transaction<'_>,
    now: Timestamp,
    rules: &RetainRules,
) -> Result<Result<Retained, Fault>, Fault> {
    tx.execute_batch(lines::SAVEPOINT)?;
    let retained = take_turn(tx, now, rules);
    if retained.is_err() {
        tx.execute_batch(lines::ROLLBACK)?;
        let until = (now + PUT_OFF).as_micros();
        execute(tx, PUT_OFF_UNTIL, (now.as_micros(), until))?;
    }
    tx.execute_batch(lines::RELEASE)?;
    Ok(retained)
}

fn take_turn(tx: &Transaction<'_>, now: Timestamp, rules: &RetainRules) -> Result<Retained, Fault> {
    let turn = first(tx, TURN, [now.as_micros()], |row| {
        let walk: Walk = word(row, 0, ("retention_walks", "name"))?;
        let began_at: i64 = row.get(2)?;
        // The very first round begins now.
        let began_at = if began_at == 0 {
            now.as_micros()
        } else {
            began_at
        };
        Ok((walk, (row.get(1)?, row.get(3)?), began_at))
    })?;
    let Some((walk, after, began_at)) = turn else {
        return Ok(Retained::default());
    };
    let limit = rules.limit.min(STEP);
    let stepped = match walk {
        Walk::Destinations => {
            let deleted_by = now - rules.deleted_for;
            destinations::step(tx, deleted_by, (after.1, after.0), limit)?
        }
        _ => step(tx, now, (walk, after), &rules.keep, limit)?,
    };
    let is_over = !stepped.more && began_at <= (now - rules.again).as_micros();
    let ((id, at), began_at) = match is_over {
        true => ((0, 0), now.as_micros()),
        false => (stepped.last.unwrap_or(after), began_at),
    };
    let due_at = match stepped.more {
        true => now.as_micros(),
        false => now.as_micros() + micros(rules.rest),
    };
    execute(tx, REST, (walk.as_str(), id, began_at, due_at, at))?;
    Ok(Retained {
        walk: Some(walk),
        examined: stepped.examined,
        removed: stepped.removed,
        more: stepped.more,
    })
}

/// What became of a step, and how far it came.
#[derive(Default)]
struct Stepped {
    examined: u32,
    removed: u32,
    /// An id, and of dead letters when it died.
    last: Option<(i64, i64)>,
    more: bool,
}

fn step(
    tx: &Transaction<'_>,
    now: Timestamp,
    (walk, (after, after_at)): (Walk, (i64, i64)),
    keep: &Retention,
    limit: u32,
) -> Result<Stepped, Fault> {
    let since = match walk {
        Walk::Events => keep.payloads,
        Walk::DeadLetters => keep.dead_letters,
        Walk::Attempts | Walk::LimitHistory | Walk::Records => keep.ledger,
        // All of it is one table; and those that are deleted have a walk elsewhere.
        Walk::Days | Walk::Destinations => Kept::Forever,
    };
    let Some(since) = since.cutoff(now).map(Timestamp::as_micros) else {
        return Ok(Stepped::default());
    };
    let from = (after, since, limit);
    match walk {
        Walk::Attempts => walk_along(tx, OLDEST_ATTEMPTS, DELETE_ATTEMPT, from),
        Walk::LimitHistory => walk_along(tx, OLDEST_HISTORY, DELETE_HISTORY, from),
        Walk::Events => events(tx, from),
        Walk::DeadLetters => {
            let ledger = keep.ledger.cutoff(now).map(Timestamp::as_micros);
            dead_letters(tx, (since, ledger), (after_at, after), limit)
        }
        Walk::Days | Walk::Destinations => Ok(Stepped::default()),
        Walk::Records => {
            let removed = execute(tx, DELETE_REPLAYS, (since, limit))?;
            let removed = u32::try_from(removed).unwrap_or(u32::MAX);
            Ok(Stepped {
                examined: removed,
                removed,
                last: None,
                more: removed >= limit,
            })
        }
    }
}

/// From the oldest row up to the first that is young.
fn walk_along(
    tx: &Transaction<'_>,
    oldest: &str,
    delete: &str,
    from: (i64, i64, u32),
) -> Result<Stepped, Fault> {
    let rows: Vec<(i64, bool, bool)> = all(tx, oldest, from, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let mut stepped = Stepped {
        more: rows.len() >= from.2 as usize,
        ..Stepped::default()
    };
    for (id, is_young, may_go) in rows {
        if is_young {
            stepped.more = false;
            break;
        }
        stepped.examined += 1;
        stepped.last = Some((id, 0));
        if may_go {
            execute(tx, delete, [id])?;
            stepped.removed += 1;
        }
    }
    Ok(stepped)
}

/// The same along events, until their payloads are many bytes.
fn events(tx: &Transaction<'_>, from: (i64, i64, u32)) -> Result<Stepped, Fault> {
    let rows: Vec<(i64, bool, i64, bool)> = all(tx, OLDEST_EVENTS, from, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    let mut stepped = Stepped {
        more: rows.len() >= from.2 as usize,
        ..Stepped::default()
    };
    let mut bytes = 0;
    for (id, is_young, length, may_go) in rows {
        if is_young {
            stepped.more = false;
            break;
        }
        if bytes >= STEP_BYTES {
            stepped.more = true;
            break;
        }
        stepped.examined += 1;
        stepped.last = Some((id, 0));
        if may_go {
            execute(tx, DELETE_EVENT, [id])?;
            stepped.removed += 1;
            bytes += length;
        }
    }
    Ok(stepped)
}

/// Those older than the ledger go; the others stay in it as attempts that
/// failed.
fn dead_letters(
    tx: &Transaction<'_>,
    (since, ledger): (i64, Option<i64>),
    (after_at, after): (i64, i64),
    limit: u32,
) -> Result<Stepped, Fault> {
    let rows: Vec<(i64, i64, bool)> = all(tx, DEAD, (since, limit, after_at, after), |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let mut stepped = Stepped {
        more: rows.len() >= limit as usize,
        last: rows.last().map(|(id, died, _)| (*id, *died)),
        ..Stepped::default()
    };
    for (id, died, may_go) in rows {
        stepped.examined += 1;
        if may_go {
            let goes = ledger.is_some_and(|ledger| died < ledger);
            execute(tx, if goes { DELETE_ATTEMPT } else { END_DEAD }, [id])?;
            stepped.removed += 1;
        }
    }
    Ok(stepped)
}

//! What is over leaves what is owed: its row of `deliveries` goes, and one of `ledger`
//! is written. Nothing else writes there but what is learned later.

use std::sync::LazyLock;
use std::time::Duration;

use domain::attempt::follow_up::FollowUp;
use domain::ids::AttemptId;
use domain::time::{Timestamp, micros};
use engine::ports::{Outcome, TOO_OLD};
use rusqlite::{Params, Transaction};

use super::fault::Fault;
use super::rows::{Held, InParts, execute, execute_in_parts, in_parts};

/// What it was made with, and when it had its last permit. The trigger that revokes permits
/// (`limit_changes_insert`) says the same.
const KEPT: &str = "id, event_id, destination_id, tenant_id, try_number, due_at, created_at,
        admitted_at, tries_before, expires_at, replay_id, payload_bytes, batch_limit, urgent";

/// Its start, but for when that was.
const STARTED: &str = "permit, worker_id, crowded, claimed_at, carried_by, batch_size";

/// The statement: it says `{kept}` and `{started}` where it means those columns.
fn moving(statement: &str) -> String {
    let text = statement.replace("{kept}", KEPT);
    text.replace("{started}", STARTED)
}

static CANCELLED: LazyLock<String> = LazyLock::new(|| {
    moving(
        "
    -- over: it was called off, and a permit that it had ends with it
    insert into ledger ({kept}, state)
    select {kept}, 'cancelled'
    from deliveries where id = ?1 and state in ('waiting', 'admitted')",
    )
});

static EXPIRED: LazyLock<String> = LazyLock::new(|| {
    moving(
        "
    -- over: it grew too old while it waited
    insert into ledger ({kept}, state, dead_letter, finished_at, error)
    select {kept}, 'expired', 1, ?2, ?3
    from deliveries where id = ?1 and state = 'waiting'",
    )
});

static UNKNOWN: LazyLock<String> = LazyLock::new(|| {
    moving(
        "
    -- over: nobody knows what became of it
    insert into ledger (
        {kept}, {started}, started_at, counted_at, folded, state, dead_letter, error
    )
    select {kept}, {started}, started_at, iif(by_response, started_at + ?2, null), coarse,
        'unknown', ?3, ?4
    from deliveries where id = ?1 and state = 'started'",
    )
});

const OUTCOME: &str = "
    -- over: its outcome
    insert into ledger (
        {kept}, {started}, folded, state, started_at, finished_at, counted_at, status, error,
        response_body, response_headers, dead_letter
    )
    select {kept}, {started}, coarse, ?2, {sent_at}, {ended_at},
        iif(by_response, {arrived_by}, null), ?6, ?7, ?8, ?9, ?10
    from deliveries where id = ?1 and state = 'started'";

/// The same by three times, as they are given or by what the row says.
fn outcome(sent_at: &str, ended_at: &str, arrived_by: &str) -> String {
    let text = OUTCOME.replace("{sent_at}", sent_at);
    let text = text.replace("{ended_at}", ended_at);
    moving(&text.replace("{arrived_by}", arrived_by))
}

static ENDED: LazyLock<String> = LazyLock::new(|| outcome("?3", "?4", "?5"));

/// What nothing follows from is not read first: nobody is woken, no coarse limit counts it,
/// and nothing is remembered of its destination. Its times are what
/// [`domain::attempt::follow_up::follow_up`] would say.
static ENDED_PLAINLY: LazyLock<String> = LazyLock::new(|| {
    let sent_at = "min(started_at, claimed_at + ?3)";
    outcome(sent_at, &format!("{sent_at} + ?4"), "claimed_at + ?5") + IF_PLAIN
});

const IF_PLAIN: &str = "
        and permit = ?11 and worker_id = ?12 and destination_id = ?13
        and coarse = 0 and crowded = 0
        and not exists (select 1 from health h where h.destination_id = deliveries.destination_id)
        and not exists (
            select 1 from smart_limits s where s.destination_id = deliveries.destination_id
        )";

const LEARNED: &str = "
    -- over: the outcome of one that was unknown until now
    update ledger
    set state = ?2, started_at = ?3, finished_at = ?4, status = ?5, error = ?6,
        response_body = ?7, response_headers = ?8, dead_letter = ?9
    where id = ?1";

pub(super) const GONE: &str = "
    -- over: it is not owed any more
    delete from deliveries where id = ?1";

/// The same of several.
static ALL_GONE: LazyLock<InParts> = LazyLock::new(|| {
    in_parts(|rows| {
        let ids = vec!["?"; rows].join(", ");
        format!(
            "
    -- over: they are not owed any more
    delete from deliveries where id in ({ids})"
        )
    })
});

/// The statements of which an outcome takes one, for the test of what they cost.
#[cfg(test)]
pub(super) fn ended() -> [&'static str; 2] {
    [&ENDED_PLAINLY, &ENDED]
}

const TALLY: &str = "
    -- over: it is a dead letter, which somebody is to hear of
    insert into dead_letter_tallies (destination_id, tenant_id)
    select destination_id, tenant_id from ledger where id = ?1";

/// Moves what is over from one table to the other, as one statement says: of what state it
/// may be, and what is written.
pub(super) struct Moves<'tx> {
    tx: &'tx Transaction<'tx>,
    written: Held<'tx>,
    gone: Held<'tx>,
}

impl<'tx> Moves<'tx> {
    /// By the outcomes of [`end`].
    pub(super) fn by_outcomes(tx: &'tx Transaction<'tx>) -> Result<Self, Fault> {
        Self::by(tx, &ENDED)
    }

    fn by(tx: &'tx Transaction<'tx>, sql: &str) -> Result<Self, Fault> {
        Ok(Self {
            tx,
            written: Held::of(tx, sql)?,
            gone: Held::of(tx, GONE)?,
        })
    }

    /// Moves one, which becomes a dead letter or not. Whether it was of that state.
    fn one(&mut self, (id, dead_letter): (i64, bool), params: impl Params) -> Result<bool, Fault> {
        let written = self.written.execute(params)? > 0;
        if written {
            self.gone.execute([id])?;
        }
        if written && dead_letter {
            execute(self.tx, TALLY, [id])?;
        }
        Ok(written)
    }
}

/// Cancels what has not started. Whether it had not.
pub(super) fn cancel(tx: &Transaction<'_>, id: AttemptId) -> Result<bool, Fault> {
    Moves::by(tx, &CANCELLED)?.one((id.0, false), [id.0])
}

/// Ends what waits and is too old.
pub(super) fn expire(tx: &Transaction<'_>, now: Timestamp, id: AttemptId) -> Result<(), Fault> {
    let expired = (id.0, now.as_micros(), TOO_OLD);
    Moves::by(tx, &EXPIRED)?.one((id.0, true), expired)?;
    Ok(())
}

/// Gives up a start. Where answers count, it counts until `longest` after it: no request
/// takes longer.
pub(super) fn give_up(
    tx: &Transaction<'_>,
    id: i64,
    (dead_letter, error): (bool, &str),
    longest: Duration,
) -> Result<(), Fault> {
    let given_up = (id, micros(longest), dead_letter, error);
    Moves::by(tx, &UNKNOWN)?.one((id, dead_letter), given_up)?;
    Ok(())
}

/// Ends by plain outcomes: each is written by itself, and at the end all of them go.
pub(super) struct PlainEnds<'tx> {
    tx: &'tx Transaction<'tx>,
    written: Held<'tx>,
    over: Vec<i64>,
}

impl<'tx> PlainEnds<'tx> {
    pub(super) fn of(tx: &'tx Transaction<'tx>) -> Result<Self, Fault> {
        Ok(Self {
            tx,
            written: Held::of(tx, &ENDED_PLAINLY)?,
            over: Vec::new(),
        })
    }

    /// Ends what this worker has under way, if nothing follows from it. Whether that was so.
    pub(super) fn end(&mut self, worker: &str, outcome: &Outcome) -> Result<bool, Fault> {
        let ended = (
            outcome.attempt.0,
            outcome.kind.state().as_str(),
            micros(outcome.sent_after),
            micros(outcome.elapsed),
            micros(outcome.arrives_within()),
            outcome.status,
            outcome.error.as_deref(),
            body(outcome),
            outcome.response_headers.as_text(),
            false,
            outcome.number.0,
            worker,
            outcome.destination.to_string(),
        );
        let written = self.written.execute(ended)? > 0;
        self.over.extend(written.then_some(outcome.attempt.0));
        Ok(written)
    }

    /// What has ended is not owed any more.
    pub(super) fn finish(self) -> Result<(), Fault> {
        execute_in_parts(self.tx, &ALL_GONE, &self.over, |id| [id])
    }
}

/// The beginning of the response, if there is any.
fn body(outcome: &Outcome) -> Option<&[u8]> {
    (!outcome.response_body.is_empty()).then_some(&outcome.response_body[..])
}

/// Ends what is under way, or completes what was unknown.
pub(super) fn end(
    moves: &mut Moves<'_>,
    outcome: &Outcome,
    next: &FollowUp,
    arrived_by: Timestamp,
) -> Result<(), Fault> {
    let id = outcome.attempt.0;
    let state = outcome.kind.state().as_str();
    let (started_at, finished_at) = (next.started_at.as_micros(), next.finished_at.as_micros());
    let body = body(outcome);
    let error = outcome.error.as_deref();
    let (status, dead_letter) = (outcome.status, next.dead_letter);
    let arrived_by = arrived_by.as_micros();
    let ended = (
        id,
        state,
        started_at,
        finished_at,
        arrived_by,
        status,
        error,
        body,
        outcome.response_headers.as_text(),
        dead_letter,
    );
    if moves.one((id, dead_letter), ended)? {
        return Ok(());
    }
    let learned = (
        id,
        state,
        started_at,
        finished_at,
        status,
        error,
        body,
        outcome.response_headers.as_text(),
        dead_letter,
    );
    execute(moves.tx, LEARNED, learned)?;
    Ok(())
}

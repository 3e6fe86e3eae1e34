//! Claiming starts, and handing permits back.

use std::time::Duration;

use bytes::Bytes;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, Epoch, EventId, WorkerId};
use domain::permit::Permit;
use domain::time::Timestamp;
use domain::trace::TraceContext;
use engine::ports::{
    ClaimAnswer, Claims, Deferral, HEARTBEAT_TIMEOUT, MAX_REQUEST_TIMEOUT, Member, Start, Target,
    Wake, Wakes,
};
use rusqlite::Transaction;

use super::fault::Fault;
use super::record::record_outcomes;
use super::rows::{execute, first, maybe_time, time, word};
use super::secrets;
use crate::lost::no_event;
use crate::stored_policy;

const DEFER: &str = "
    -- defer: no place for it
    update pacing set deferred_until = ?2 where destination_id = ?1";

const ALIVE: &str = "
    -- claim_starts: does the worker live
    select 1 from workers where id = ?1 and retired = 0 and seen_at >= ?2";

/// Only a row that is still admitted under this very number.
const ADMITTED: &str = "
    -- claim_starts: the row, if the permit is its own
    select a.event_id, a.try_number, a.epoch, a.not_before, a.deadline,
        d.epoch, d.state, d.deleted_at,
        nullif(max(coalesce(p.held_until, 0), coalesce(h.held_until, 0)), 0),
        a.tries_before, d.retry_policy
    from attempts a
    join destinations d on d.id = a.destination_id
    left join pacing p on p.destination_id = a.destination_id
    left join health h on h.destination_id = a.destination_id
    where a.id = ?1 and a.state = 'admitted' and a.permit = ?2 and a.destination_id = ?3";

const START: &str = "
    -- claim_starts: it starts
    update attempts set state = 'started', started_at = ?2, worker_id = ?3 where id = ?1";

const EVENT: &str = "
    -- claim_starts: what is sent
    select content_type, payload, trace from events where id = ?1";

const RETURN: &str = "
    -- the permit ends unused
    update attempts
    set state = iif((select deleted_at from destinations where id = destination_id) is null,
            'waiting', 'cancelled'),
        due_at = coalesce(due_at, created_at),
        permit = null, epoch = null, not_before = null, deadline = null
    where id = ?1 and state = 'admitted' and permit = ?2 and destination_id = ?3";

const TARGET: &str = "
    -- targets
    select epoch, url, batch_max_events is not null, pass_traceparent
    from destinations where id = ?1 and deleted_at is null";

/// The statements of a claim, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 4] = [ALIVE, ADMITTED, START, EVENT];

/// Claims; see [`engine::ports::Store::claim_starts`].
pub(super) fn claim_starts(
    tx: &Transaction<'_>,
    now: Timestamp,
    worker: WorkerId,
    permits: &[Permit],
) -> Result<Claims, Fault> {
    claim_with(tx, now, worker, permits, |_, _, _| Ok(Vec::new()))
}

/// The same, where each start carries what `carry` says: after it has started.
pub(super) fn claim_with(
    tx: &Transaction<'_>,
    now: Timestamp,
    worker: WorkerId,
    permits: &[Permit],
    carry: impl Fn(&Permit, &str, &Start) -> Result<Vec<Member>, Fault>,
) -> Result<Claims, Fault> {
    let (id, worker) = (worker, worker.to_string());
    let fresh = (now - HEARTBEAT_TIMEOUT).as_micros();
    let is_alive = first(tx, ALIVE, (&worker, fresh), |_| Ok(()))?.is_some();
    let (mut wakes, mut lost_wakes) = (Wakes::default(), Vec::new());
    let mut answers = Vec::with_capacity(permits.len());
    for permit in permits {
        answers.push(match Admitted::read(tx, permit)? {
            None => ClaimAnswer::Refused,
            // Nobody would start it under this number any more.
            Some(row) if !is_alive || row.is_over(now) => {
                return_permit(tx, permit)?;
                wakes.now(permit.destination);
                ClaimAnswer::Refused
            }
            Some(row) if now < row.not_before => ClaimAnswer::Early(row.not_before.since(now)),
            Some(row) => match row.start(tx, now, &worker, permit)? {
                Some(start) => {
                    let members = carry(permit, &worker, &start)?;
                    ClaimAnswer::Started(Start { members, ..start })
                }
                // Nothing to send. It has started, and ends at once.
                None => {
                    let lost = no_event(permit.attempt, permit.number, permit.destination);
                    let recorded = record_outcomes(tx, now, id, &[lost])?;
                    lost_wakes.extend(recorded.wakes);
                    ClaimAnswer::Refused
                }
            },
        });
    }
    Ok(Claims {
        now,
        answers,
        wakes: [wakes.into_vec(), lost_wakes].concat(),
        // The clock was read before.
        composed_for: Duration::ZERO,
    })
}

/// A row that is admitted under the number that was claimed.
struct Admitted {
    event: EventId,
    try_number: u32,
    epoch: Epoch,
    not_before: Timestamp,
    deadline: Timestamp,
    destination_epoch: Epoch,
    state: DestinationState,
    deleted: bool,
    held_until: Option<Timestamp>,
    tries_before: u32,
    retry_policy: Option<String>,
}

impl Admitted {
    fn read(tx: &Transaction<'_>, permit: &Permit) -> Result<Option<Self>, Fault> {
        first(tx, ADMITTED, key(permit), |row| {
            Ok(Self {
                event: word(row, 0, ("attempts", "event_id"))?,
                try_number: row.get(1)?,
                epoch: Epoch(row.get(2)?),
                not_before: time(row, 3)?,
                deadline: time(row, 4)?,
                destination_epoch: Epoch(row.get(5)?),
                state: word(row, 6, ("destinations", "state"))?,
                deleted: maybe_time(row, 7)?.is_some(),
                held_until: maybe_time(row, 8)?,
                tries_before: row.get(9)?,
                retry_policy: row.get(10)?,
            })
        })
    }

    /// Late, revoked or held.
    fn is_over(&self, now: Timestamp) -> bool {
        now > self.deadline
            || self.epoch != self.destination_epoch
            || self.state != DestinationState::Active
            || self.deleted
            || self
                .held_until
                .is_some_and(|until| until > now.max(self.not_before))
    }

    /// `None` if its event is not there.
    fn start(
        self,
        tx: &Transaction<'_>,
        now: Timestamp,
        worker: &str,
        permit: &Permit,
    ) -> Result<Option<Start>, Fault> {
        execute(tx, START, (permit.attempt.0, now.as_micros(), worker))?;
        let event = first(tx, EVENT, [self.event.to_string()], |row| {
            let trace: Option<String> = row.get(2)?;
            let payload = Bytes::from(row.get::<_, Vec<u8>>(1)?);
            Ok((row.get(0)?, payload, trace))
        })?;
        Ok(event.map(|(content_type, payload, trace)| Start {
            started_at: now,
            event: self.event,
            try_number: self.try_number,
            tries_before: self.tries_before,
            retry: stored_policy::for_start(self.retry_policy.as_deref()),
            content_type,
            payload,
            trace: trace.as_deref().and_then(TraceContext::from_stored),
            members: Vec::new(),
        }))
    }
}

fn key(permit: &Permit) -> (i64, i64, String) {
    (
        permit.attempt.0,
        permit.number.0,
        permit.destination.to_string(),
    )
}

/// Moves a row back to waiting (or cancels it, if its destination is gone) if
/// it is still admitted under this number. Whether it did.
pub(super) fn return_permit(tx: &Transaction<'_>, permit: &Permit) -> Result<bool, Fault> {
    Ok(execute(tx, RETURN, key(permit))? > 0)
}

/// Hands permits back; see [`engine::ports::Store::release_permits`].
pub(super) fn release_permits(
    tx: &Transaction<'_>,
    permits: &[Permit],
) -> Result<Vec<Wake>, Fault> {
    let mut wakes = Wakes::default();
    for permit in permits {
        if return_permit(tx, permit)? {
            wakes.now(permit.destination);
        }
    }
    Ok(wakes.into_vec())
}

/// Admits nothing for a while; see [`engine::ports::Store::defer`].
pub(super) fn defer(
    tx: &Transaction<'_>,
    now: Timestamp,
    deferrals: &[Deferral],
) -> Result<(), Fault> {
    for deferral in deferrals {
        let until = now + deferral.lasts;
        execute(
            tx,
            DEFER,
            (deferral.destination.to_string(), until.as_micros()),
        )?;
    }
    Ok(())
}

/// Reads targets; see [`engine::ports::Store::targets`].
pub(super) fn targets(
    tx: &Transaction<'_>,
    now: Timestamp,
    destinations: &[DestinationId],
) -> Result<Vec<Target>, Fault> {
    let mut targets = Vec::with_capacity(destinations.len());
    for destination in destinations {
        let target = first(tx, TARGET, [destination.to_string()], |row| {
            Ok(Target {
                destination: *destination,
                epoch: Epoch(row.get(0)?),
                url: row.get(1)?,
                timeout: MAX_REQUEST_TIMEOUT,
                batches: row.get(2)?,
                pass_traceparent: row.get(3)?,
                secrets: secrets::of_destination(tx, now, *destination)?,
            })
        })?;
        targets.extend(target);
    }
    Ok(targets)
}

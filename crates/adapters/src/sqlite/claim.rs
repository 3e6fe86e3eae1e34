//! Claiming starts, and handing permits back.

use std::time::Duration;

use bytes::Bytes;
use domain::admission::latest_start;
use domain::attempt::verdict::{self, Asked, Verdict, verdict};
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, PermitNumber, WorkerId};
use domain::permit::Permit;
use domain::time::{Timestamp, micros};
use domain::trace::TraceContext;
use engine::ports::{
    ClaimAnswer, Claims, Deferral, HEARTBEAT_TIMEOUT, MAX_REQUEST_TIMEOUT, Member, SendReport,
    Start, Target, Wake, Wakes,
};
use rusqlite::{Row, Transaction};

use super::fault::Fault;
use super::over;
use super::record::record_outcomes;
use super::rows::{Held, execute, first, maybe_time, word};
use super::secrets;
use crate::lost::no_event;
use crate::stored_policy;

const DEFER: &str = "
    -- defer: no place for it
    update pacing set deferred_until = ?2 where destination_id = ?1";

const ALIVE: &str = "
    -- claim_starts: does the worker live
    select 1 from workers where id = ?1 and retired = 0 and seen_at >= ?2";

/// With what is sent: nearly every claim starts, so that is no statement of its own.
const ROW: &str = "
    -- claim_starts: the row, if it is owed, and its event, if that is there
    select a.event_id, a.try_number, a.epoch, a.not_before, a.deadline,
        d.epoch, d.state, d.deleted_at,
        nullif(max(coalesce(p.held_until, 0), coalesce(h.held_until, 0)), 0),
        a.tries_before, d.retry_policy, a.state, a.permit, a.destination_id,
        e.content_type, e.payload, e.trace
    from deliveries a
    join destinations d on d.id = a.destination_id
    left join events e on e.id = a.event_id
    left join pacing p on p.destination_id = a.destination_id
    left join health h on h.destination_id = a.destination_id
    where a.id = ?1";

/// When it is sent is not known yet: it is counted at its latest start.
const START: &str = "
    -- claim_starts: it starts
    update deliveries set state = 'started', claimed_at = ?2, worker_id = ?3, started_at = ?4
    where id = ?1";

const SENT: &str = "
    -- report_sends: when it was sent
    update deliveries set started_at = min(started_at, claimed_at + ?5)
    where id = ?1 and permit = ?2 and worker_id = ?3 and destination_id = ?4
        and state = 'started'";

const RETURN: &str = "
    -- the permit ends unused
    update deliveries
    set state = 'waiting', due_at = coalesce(due_at, created_at),
        permit = null, epoch = null, not_before = null, deadline = null
    where id = ?1 and state = 'admitted' and permit = ?2 and destination_id = ?3";

const IS_DELETED: &str = "
    -- the permit has ended: is there anything to wait for
    select 1 from destinations where id = ?1 and deleted_at is not null";

const TARGET: &str = "
    -- targets
    select epoch, url, batch_max_events is not null, pass_traceparent, handshake <> 'none'
    from destinations where id = ?1 and deleted_at is null";

/// The statements of a claim and of what follows it, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 4] = [ALIVE, ROW, START, SENT];

/// Who claims, and when.
pub(super) struct Claimer {
    pub(super) now: Timestamp,
    /// How long it had waited for its turn when it was about to read that.
    pub(super) waited_for: Duration,
    pub(super) head_start: Duration,
    pub(super) worker: WorkerId,
}

/// Claims; see [`engine::ports::Store::claim_starts`].
pub(super) fn claim_starts(
    tx: &Transaction<'_>,
    by: &Claimer,
    permits: &[Permit],
) -> Result<Claims, Fault> {
    claim_with(tx, by, permits, |_, _, _| Ok(Vec::new()))
}

/// The same, where each start carries what `carry` says: after it has started.
pub(super) fn claim_with(
    tx: &Transaction<'_>,
    by: &Claimer,
    permits: &[Permit],
    carry: impl Fn(&Permit, &str, &Start) -> Result<Vec<Member>, Fault>,
) -> Result<Claims, Fault> {
    let (now, id, worker) = (by.now, by.worker, by.worker.to_string());
    let fresh = (now - HEARTBEAT_TIMEOUT).as_micros();
    let is_alive = first(tx, ALIVE, (&worker, fresh), |_| Ok(()))?.is_some();
    let (mut wakes, mut lost_wakes) = (Wakes::default(), Vec::new());
    let mut answers = Vec::with_capacity(permits.len());
    let asked = Asked {
        now,
        worker_lives: is_alive,
        head_start: by.head_start,
    };
    let (mut rows, mut starts) = (Held::of(tx, ROW)?, Held::of(tx, START)?);
    for permit in permits {
        let Some(row) = Claimed::read(&mut rows, permit)? else {
            answers.push(ClaimAnswer::Refused);
            continue;
        };
        answers.push(match verdict(permit, &row.row, asked) {
            Verdict::Refused => ClaimAnswer::Refused,
            Verdict::Returned => {
                return_permit(tx, permit)?;
                wakes.now(permit.destination);
                ClaimAnswer::Refused
            }
            Verdict::Early(left) => ClaimAnswer::Early(left),
            Verdict::Starts(at) => {
                match row.start(&mut starts, at, &worker, permit)? {
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
                }
            }
        });
    }
    Ok(Claims {
        now,
        answers,
        wakes: [wakes.into_vec(), lost_wakes].concat(),
        composed_for: by.waited_for,
    })
}

/// The row of an attempt that is claimed.
struct Claimed {
    row: verdict::Row,
    event: EventId,
    /// `None` if its event is not there.
    sent: Option<Sent>,
    try_number: u32,
    tries_before: u32,
    retry_policy: Option<String>,
}

impl Claimed {
    fn read(rows: &mut Held<'_>, permit: &Permit) -> Result<Option<Self>, Fault> {
        rows.first([permit.attempt.0], |row| {
            Ok(Self {
                row: verdict::Row {
                    state: word(row, 11, ("attempts", "state"))?,
                    permit: recorded(row, permit.attempt)?,
                    epoch: Epoch(row.get(5)?),
                    destination: word(row, 6, ("destinations", "state"))?,
                    is_deleted: maybe_time(row, 7)?.is_some(),
                    held_until: maybe_time(row, 8)?,
                },
                event: word(row, 0, ("attempts", "event_id"))?,
                sent: Sent::read(row)?,
                try_number: row.get(1)?,
                tries_before: row.get(9)?,
                retry_policy: row.get(10)?,
            })
        })
    }

    /// `None` if its event is not there.
    fn start(
        self,
        starts: &mut Held<'_>,
        claimed_at: Timestamp,
        worker: &str,
        permit: &Permit,
    ) -> Result<Option<Start>, Fault> {
        // Admitted under this permit, so it has one.
        let deadline = (self.row.permit).map_or(claimed_at, |own| own.deadline);
        let latest = latest_start(claimed_at, deadline).as_micros();
        starts.execute((permit.attempt.0, claimed_at.as_micros(), worker, latest))?;
        Ok(self.sent.map(|sent| Start {
            claimed_at,
            event: self.event,
            try_number: self.try_number,
            tries_before: self.tries_before,
            retry: stored_policy::for_start(self.retry_policy.as_deref()),
            content_type: sent.content_type,
            payload: sent.payload,
            trace: sent.trace,
            members: Vec::new(),
        }))
    }
}

/// What is sent of an event.
struct Sent {
    content_type: String,
    payload: Bytes,
    trace: Option<TraceContext>,
}

impl Sent {
    fn read(row: &Row<'_>) -> Result<Option<Self>, Fault> {
        let Some(content_type) = row.get::<_, Option<String>>(14)? else {
            return Ok(None);
        };
        let trace: Option<String> = row.get(16)?;
        Ok(Some(Self {
            content_type,
            payload: Bytes::from(row.get::<_, Vec<u8>>(15)?),
            trace: trace.as_deref().and_then(TraceContext::from_stored),
        }))
    }
}

/// The permit that the row has; `None` if it waits.
fn recorded(row: &Row<'_>, attempt: AttemptId) -> Result<Option<Permit>, Fault> {
    let number: Option<i64> = row.get(12)?;
    let epoch: Option<i64> = row.get(2)?;
    let times = maybe_time(row, 3)?.zip(maybe_time(row, 4)?);
    let Some(((number, epoch), (not_before, deadline))) = number.zip(epoch).zip(times) else {
        return Ok(None);
    };
    Ok(Some(Permit {
        destination: word(row, 13, ("attempts", "destination_id"))?,
        attempt,
        number: PermitNumber(number),
        epoch: Epoch(epoch),
        not_before,
        deadline,
    }))
}

/// Moves a row back to waiting (or cancels it, if its destination is gone) if
/// it is still admitted under this number. Whether it did.
pub(super) fn return_permit(tx: &Transaction<'_>, permit: &Permit) -> Result<bool, Fault> {
    let destination = permit.destination.to_string();
    give_back(tx, (permit.attempt.0, permit.number.0, &destination))
}

/// The same by what the row holds: the attempt, the number and the destination.
pub(super) fn give_back(
    tx: &Transaction<'_>,
    (id, number, destination): (i64, i64, &str),
) -> Result<bool, Fault> {
    if execute(tx, RETURN, (id, number, destination))? == 0 {
        return Ok(false);
    }
    if first(tx, IS_DELETED, [destination], |_| Ok(()))?.is_some() {
        over::cancel(tx, AttemptId(id))?;
    }
    Ok(true)
}

/// Notes sends; see [`engine::ports::Store::report_sends`].
pub(super) fn report_sends(
    tx: &Transaction<'_>,
    worker: WorkerId,
    sends: &[SendReport],
) -> Result<(), Fault> {
    let worker = worker.to_string();
    let mut note = Held::of(tx, SENT)?;
    for sent in sends {
        let (id, number) = (sent.attempt.0, sent.number.0);
        let destination = sent.destination.to_string();
        let row = (id, number, &worker, destination, micros(sent.sent_after));
        note.execute(row)?;
    }
    Ok(())
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
    let mut read = Held::of(tx, TARGET)?;
    for destination in destinations {
        let target = read.first([destination.to_string()], |row| {
            Ok(Target {
                destination: *destination,
                epoch: Epoch(row.get(0)?),
                url: row.get(1)?,
                timeout: MAX_REQUEST_TIMEOUT,
                batches: row.get(2)?,
                pass_traceparent: row.get(3)?,
                names_origin: row.get(4)?,
                identity: None,
                secrets: secrets::of_destination(tx, now, *destination)?,
            })
        })?;
        targets.extend(target);
    }
    Ok(targets)
}

//! Claiming starts, and handing permits back.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::batch::{Line, Room};
use domain::destination::DestinationState;
use domain::ids::{AttemptId, DestinationId, WorkerId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{ClaimAnswer, Claims, Deferral, Member, Start, Target, Wake, Wakes};

use super::fleet::is_alive;
use super::rows::{Attempt, Rows};
use super::secrets;

/// Claims; see [`engine::ports::Store::claim_starts`].
pub(super) fn claim_starts(
    rows: &mut Rows,
    now: Timestamp,
    worker: WorkerId,
    permits: &[Permit],
) -> Claims {
    claim_with(rows, now, worker, permits, |_, _| Vec::new())
}

/// Claims batches; see [`engine::ports::Store::claim_batches`].
pub(super) fn claim_batches(
    rows: &mut Rows,
    now: Timestamp,
    worker: WorkerId,
    permits: &[Permit],
) -> Claims {
    claim_with(rows, now, worker, permits, |rows, permit| {
        let leader = member(rows, permit.attempt);
        let carried = to_carry(rows, now, permit);
        let started = rows.ledger.get(permit.attempt).cloned();
        for (id, leader) in carried.iter().zip(started.iter().cycle()) {
            rows.ledger.change(now, *id, |row| {
                row.state = AttemptState::Started;
                row.worker = leader.worker;
                row.permit = leader.permit.map(|own| Permit {
                    attempt: *id,
                    ..own
                });
                row.started_at = leader.started_at;
                row.carried_by = Some(leader.id);
                row.coarse = false;
                row.crowded = false;
            });
        }
        if !carried.is_empty() {
            let events = u32::try_from(carried.len() + 1).ok();
            rows.ledger
                .change(now, permit.attempt, |row| row.batch_size = events);
        }
        let carried = carried.iter().filter_map(|id| member(rows, *id));
        leader.into_iter().chain(carried).collect()
    })
}

/// What a leader's batch holds beside it.
fn to_carry(rows: &Rows, now: Timestamp, permit: &Permit) -> Vec<AttemptId> {
    let destination = permit.destination;
    let rules = (rows.living(destination)).and_then(|row| row.batches.rules());
    let found = rows.ledger.get(permit.attempt).zip(rules);
    let Some(((leader, rules), indexes)) = found.zip(rows.ledger.indexes(destination)) else {
        return Vec::new();
    };
    let mut room = Room::beside(&rules, leader.batch_limit, leader.payload_bytes);
    let mut carried = Vec::new();
    let due = indexes.due.range(..=(now, AttemptId(i64::MAX)));
    let due: Vec<_> = due.map(|(_, id)| *id).collect();
    for line in Line::of(leader.due_at.is_none(), leader.batch_limit) {
        let (ids, class) = match line {
            Some(Line::Firsts) => (indexes.seen_first().collect(), None),
            Some(Line::Due) => (due.clone(), None),
            Some(Line::Class(limit)) => (due.clone(), Some(limit)),
            None => break,
        };
        let takes = |row: &&Attempt| {
            row.batch_limit == class
                && row.expires_at.is_none_or(|at| at > now)
                && !rows.held.contains(&row.id)
        };
        let next = (ids.into_iter()).filter_map(|id| rows.ledger.get(id));
        let next = next.filter(takes).take(room.events() as usize);
        let fits = next.take_while(|row| room.take(row.payload_bytes));
        carried.extend(fits.map(|row| row.id));
    }
    carried
}

fn member(rows: &Rows, attempt: AttemptId) -> Option<Member> {
    let row = rows.ledger.get(attempt)?;
    let event = rows.events.get(&row.event)?;
    Some(Member {
        attempt,
        event: row.event,
        try_number: row.try_number,
        tries_before: row.tries_before,
        event_type: event.event_type.clone(),
        content_type: event.content_type.clone(),
        payload: event.payload.clone(),
        accepted_at: event.created_at,
        trace: event.trace.clone(),
    })
}

fn claim_with(
    rows: &mut Rows,
    now: Timestamp,
    worker: WorkerId,
    permits: &[Permit],
    carry: impl Fn(&mut Rows, &Permit) -> Vec<Member>,
) -> Claims {
    let is_alive = is_alive(rows, now, worker);
    let mut wakes = Wakes::default();
    let mut claim = |permit: &Permit| {
        let Some(row) = admitted_under(rows, permit) else {
            return ClaimAnswer::Refused;
        };
        if is_held(rows, permit) {
            return ClaimAnswer::Skipped;
        }
        // What the row says: a message may say anything.
        let own = row.permit.unwrap_or(*permit);
        // Nobody would start it under this number any more.
        if !is_alive || is_over(rows, now, &own) {
            return_permit(rows, now, permit);
            wakes.now(permit.destination);
            return ClaimAnswer::Refused;
        }
        if now + rows.head_start < own.not_before {
            return ClaimAnswer::Early(own.not_before.since(now));
        }
        let started = start(rows, now, worker, permit);
        started.map_or(ClaimAnswer::Refused, |start| {
            ClaimAnswer::Started(Start {
                members: carry(rows, permit),
                ..start
            })
        })
    };
    let answers = permits.iter().map(&mut claim).collect();
    Claims {
        now,
        answers,
        wakes: wakes.into_vec(),
        composed_for: Duration::ZERO,
    }
}

/// Whether somebody else holds the row.
fn is_held(rows: &Rows, permit: &Permit) -> bool {
    rows.locked.contains(&permit.destination) || rows.held.contains(&permit.attempt)
}

/// The row, if it is still admitted under this very number.
fn admitted_under<'a>(rows: &'a Rows, permit: &Permit) -> Option<&'a Attempt> {
    rows.ledger.get(permit.attempt).filter(|row| {
        row.state == AttemptState::Admitted
            && row.destination == permit.destination
            && row.permit.is_some_and(|own| own.number == permit.number)
    })
}

/// Late, revoked or held.
fn is_over(rows: &Rows, now: Timestamp, permit: &Permit) -> bool {
    let Some(destination) = rows.living(permit.destination) else {
        return true;
    };
    let held_until = rows.held_until(permit.destination);
    now > permit.deadline
        || permit.epoch != destination.epoch
        || destination.state != DestinationState::Active
        || held_until.is_some_and(|until| until > now.max(permit.not_before))
}

fn start(rows: &mut Rows, now: Timestamp, worker: WorkerId, permit: &Permit) -> Option<Start> {
    let (event_id, try_number, tries_before) = {
        let row = rows.ledger.get(permit.attempt)?;
        (row.event, row.try_number, row.tries_before)
    };
    let retry = rows.destinations.get(&permit.destination)?.retry.clone();
    let event = rows.events.get(&event_id)?;
    let own = rows.ledger.get(permit.attempt)?.permit;
    let started_at = own.map_or(now, |own| own.not_before.max(now));
    rows.ledger.change(now, permit.attempt, |row| {
        row.state = AttemptState::Started;
        row.started_at = Some(started_at);
        row.worker = Some(worker);
    });
    Some(Start {
        started_at,
        event: event_id,
        try_number,
        tries_before,
        retry,
        content_type: event.content_type.clone(),
        payload: event.payload.clone(),
        trace: event.trace.clone(),
        members: Vec::new(),
    })
}

/// Moves a row back to waiting (or cancels it, if its destination is gone) if
/// it is still admitted under this number. Whether it did.
fn return_permit(rows: &mut Rows, now: Timestamp, permit: &Permit) -> bool {
    if admitted_under(rows, permit).is_none() {
        return false;
    }
    let is_gone = rows.living(permit.destination).is_none();
    rows.ledger
        .change(now, permit.attempt, |row| match is_gone {
            true => row.cancel(),
            false => row.wait_again(),
        });
    true
}

/// Hands permits back; see [`engine::ports::Store::release_permits`].
pub(super) fn release_permits(rows: &mut Rows, now: Timestamp, permits: &[Permit]) -> Vec<Wake> {
    let mut wakes = Wakes::default();
    for permit in permits {
        if !is_held(rows, permit) && return_permit(rows, now, permit) {
            wakes.now(permit.destination);
        }
    }
    wakes.into_vec()
}

/// Admits nothing for a while; see [`engine::ports::Store::defer`].
pub(super) fn defer(rows: &mut Rows, now: Timestamp, deferrals: &[Deferral]) {
    for deferral in deferrals {
        if let Some(row) = rows.destinations.get_mut(&deferral.destination) {
            row.pacing.deferred_until = Some(now + deferral.lasts);
        }
    }
}

/// Reads targets; see [`engine::ports::Store::targets`].
pub(super) fn targets(
    rows: &Rows,
    now: Timestamp,
    destinations: &[DestinationId],
    timeout: Duration,
) -> Vec<Target> {
    let target = |destination: &DestinationId| {
        let row = rows.living(*destination)?;
        Some(Target {
            destination: *destination,
            epoch: row.epoch,
            url: row.url.clone(),
            timeout,
            batches: row.batches.rules().is_some(),
            pass_traceparent: row.pass_traceparent,
            secrets: secrets::of_destination(rows, now, *destination),
        })
    };
    destinations.iter().filter_map(target).collect()
}

//! One scheduler run for many destinations.

use std::collections::BTreeSet;

use domain::admission::{Backlog, Decision, LOOK_AFTER_EXPIRED, Slot, Usage, admit, read_ahead};
use domain::attempt::AttemptState;
use domain::batch::{self, BatchRules, Leader, Lines, openings};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber, TenantId};
use domain::permit::Permit;
use domain::policy::Policy;
use domain::share::{Ask, Room, share_between_tenants};
use domain::time::Timestamp;
use domain::turns::in_turn;
use engine::ports::{Admitted, Given, Run, RunResult};
use uuid::Uuid;

use super::rows::{Attempt, Rows, Unflushed};
use super::usage::read_usage;

/// Decides and marks; see [`engine::ports::Store::admit`].
pub(super) fn admit_runs(rows: &mut Rows, now: Timestamp, runs: &[Run], room: &Room) -> Admitted {
    let mut seen = BTreeSet::new();
    let mut read: Vec<Read> = (runs.iter())
        .map(|run| match seen.insert(run.destination) {
            true => Candidate::read(rows, now, run),
            // Named twice, decided once: the second decision would not know of
            // the first.
            false => Read::Held,
        })
        .collect();
    let asks: Vec<Ask> = read.iter().map(Read::ask).collect();
    for (one, places) in (read.iter_mut()).zip(share_between_tenants(room, &asks)) {
        one.decide_again(places, now);
    }
    let given = Given::by_tenant(read.iter().map(|one| (one.ask().tenant, one.wants())));
    let results = read.into_iter().map(|one| match one {
        Read::Held => RunResult::Skipped,
        Read::Gone => RunResult::Gone,
        Read::Decided(candidate, decision) => candidate.carry_out(rows, now, decision),
    });
    let results = results.collect();
    Admitted {
        now,
        results,
        given,
    }
}

/// What a run finds.
enum Read {
    Held,
    Gone,
    Decided(Box<Candidate>, Decision),
}

impl Read {
    fn wants(&self) -> u32 {
        match self {
            Self::Decided(_, decision) => u32::try_from(decision.slots.len()).unwrap_or(u32::MAX),
            Self::Held | Self::Gone => 0,
        }
    }

    fn ask(&self) -> Ask {
        let (tenant, tenant_max_in_flight) = match self {
            Self::Decided(candidate, _) => (candidate.tenant, candidate.tenant_max_in_flight),
            // It asks for nothing.
            Self::Held | Self::Gone => (TenantId(Uuid::nil()), None),
        };
        Ask {
            tenant,
            wants: self.wants(),
            tenant_max_in_flight,
        }
    }

    fn decide_again(&mut self, places: u32, now: Timestamp) {
        if places < self.wants()
            && let Self::Decided(candidate, decision) = self
        {
            *decision = candidate.decide(places, now);
        }
    }
}

/// A destination that a run decides about, as the rows say.
struct Candidate {
    destination: DestinationId,
    tenant: TenantId,
    tenant_max_in_flight: Option<u32>,
    policy: Policy,
    epoch: Epoch,
    usage: Usage,
    /// What is due, in the order in which it goes.
    due: Vec<AttemptId>,
    backlog: Backlog,
    republished: Vec<Permit>,
}

impl Candidate {
    fn read(rows: &mut Rows, now: Timestamp, run: &Run) -> Read {
        let destination = run.destination;
        // Nothing is known of it, not even whether it is gone.
        let changing = (rows.living(destination)).is_some_and(|row| now < row.changing_until);
        if changing || rows.locked.contains(&destination) {
            return Read::Held;
        }
        let Some(row) = rows.living(destination) else {
            return Read::Gone;
        };
        let policy = rows.policy_of(destination, row);
        let (epoch, tenant, number) = (row.epoch, row.tenant, row.pacing.last_permit + 1);
        let batches = row.batches.rules();
        let remembered = Usage {
            meter: row.pacing.meter,
            recount: row.pacing.meter_epoch != Some(row.epoch),
            held_until: rows.held_until(destination),
            deferred_until: rows.deferred_until(destination),
            probing: rows.is_probing(destination),
            ..Usage::default()
        };
        let usage = read_usage(rows, now, destination, &policy, remembered);
        let most = read_ahead(&policy);
        let (due, backlog) = match batches {
            Some(rules) => batched(rows, now, destination, &rules, (number, most)),
            None => read_backlog(rows, now, destination, most, number),
        };
        let republished = match run.republish {
            true => (rows.ledger.permits_of(destination))
                .filter(|permit| permit.deadline > now)
                .copied()
                .collect(),
            false => Vec::new(),
        };
        let candidate = Self {
            destination,
            tenant,
            tenant_max_in_flight: rows.tenant_max_in_flight.get(&tenant).copied(),
            policy,
            epoch,
            usage,
            due,
            backlog,
            republished,
        };
        let decision = candidate.decide(u32::MAX, now);
        Read::Decided(Box::new(candidate), decision)
    }

    fn decide(&self, places: u32, now: Timestamp) -> Decision {
        admit(&self.policy, &self.usage, &self.backlog, places, now)
    }

    /// Marks the chosen attempts and remembers the look.
    fn carry_out(self, rows: &mut Rows, now: Timestamp, decision: Decision) -> RunResult {
        let next_look_at = decision.looks_help_from(&self.usage, now);
        let Some(row) = rows.destinations.get_mut(&self.destination) else {
            return RunResult::Gone;
        };
        let given = self.due.len().min(decision.slots.len());
        rows.unflushed.push(Unflushed {
            destination: self.destination,
            pacing: row.pacing,
            attempts: (self.due[..given].iter())
                .filter_map(|attempt| rows.ledger.get(*attempt).cloned())
                .collect(),
        });
        row.pacing.meter = decision.meter;
        row.pacing.meter_epoch = Some(self.epoch);
        row.pacing.next_look_at = next_look_at;
        let first_number = row.pacing.last_permit + 1;
        row.pacing.last_permit += i64::try_from(given).unwrap_or(i64::MAX);
        let mut permits = self.republished;
        let chosen = self.due.iter().zip(&decision.slots);
        for ((attempt, slot), number) in chosen.zip(first_number..) {
            // Its number is spent.
            if rows.held.contains(attempt) {
                continue;
            }
            let Slot {
                not_before,
                deadline,
            } = *slot;
            let permit = Permit {
                destination: self.destination,
                attempt: *attempt,
                number: PermitNumber(number),
                epoch: self.epoch,
                not_before,
                deadline,
            };
            rows.ledger.change(now, *attempt, |row| {
                row.state = AttemptState::Admitted;
                row.permit = Some(permit);
                row.coarse = self.policy.is_coarse();
                row.crowded = decision.crowded;
                row.admitted_at = Some(now);
            });
            permits.push(permit);
        }
        RunResult::Decided {
            permits,
            look: decision.look,
            blocked: decision.blocked,
            failing: rows.is_failing(self.destination),
        }
    }
}

/// What the watch reads of a destination: what a run does, and the starts that a
/// bucket is judged by.
pub(super) fn reading(
    rows: &mut Rows,
    now: Timestamp,
    id: DestinationId,
) -> Option<(Policy, Usage, Backlog)> {
    let row = rows.living(id)?;
    let policy = rows.policy_of(id, row);
    let (number, batches) = (row.pacing.last_permit + 1, row.batches.rules());
    let remembered = Usage {
        meter: row.pacing.meter,
        recount: true,
        held_until: rows.held_until(id),
        deferred_until: rows.deferred_until(id),
        probing: rows.is_probing(id),
        ..Usage::default()
    };
    let usage = read_usage(rows, now, id, &policy, remembered);
    let most = read_ahead(&policy);
    let (_, backlog) = match batches {
        Some(rules) => batched(rows, now, id, &rules, (number, most)),
        None => read_backlog(rows, now, id, most, number),
    };
    Some((policy, usage, backlog))
}

/// What is due and not too old, in the order in which it goes, up to `limit`.
fn read_backlog(
    rows: &Rows,
    now: Timestamp,
    destination: DestinationId,
    limit: u32,
    number: i64,
) -> (Vec<AttemptId>, Backlog) {
    let Some(indexes) = rows.ledger.indexes(destination) else {
        return (Vec::new(), Backlog::default());
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_fresh = |id: &AttemptId| {
        let row = rows.ledger.get(*id);
        row.is_some_and(|row| row.expires_at.is_none_or(|at| at > now))
    };
    let up_to_now = ..=(now, AttemptId(i64::MAX));
    let firsts: Vec<_> = indexes.seen_first().take(limit).collect();
    let others = indexes.due.range(up_to_now).map(|(_, id)| *id);
    let others: Vec<_> = others.take(limit).collect();
    let some_expired = !firsts.iter().chain(&others).all(is_fresh);
    let fresh = |ids: Vec<AttemptId>| ids.into_iter().filter(is_fresh).collect();
    let due = in_turn(fresh(firsts), fresh(others), number, limit);
    let after_now = (now, AttemptId(i64::MAX));
    let next_due = indexes.due.range(after_now..).next().map(|(at, _)| *at);
    let reaped_by = some_expired.then(|| now + LOOK_AFTER_EXPIRED);
    let backlog = Backlog {
        due: u32::try_from(due.len()).unwrap_or(u32::MAX),
        next_due: next_due.into_iter().chain(reaped_by).min(),
    };
    (due, backlog)
}

/// What opens batches that are due.
fn batched(
    rows: &Rows,
    now: Timestamp,
    destination: DestinationId,
    rules: &BatchRules,
    (number, most): (i64, u32),
) -> (Vec<AttemptId>, Backlog) {
    let Some(indexes) = rows.ledger.indexes(destination) else {
        return (Vec::new(), Backlog::default());
    };
    let limit = rules.read_ahead(most) as usize;
    let firsts: Vec<_> = indexes.seen_first().take(limit).collect();
    let others = indexes.due.range(..=(now, AttemptId(i64::MAX)));
    let others: Vec<_> = others.map(|(_, id)| *id).take(limit).collect();
    let fresh = |ids: &[AttemptId]| -> Vec<&Attempt> {
        let rows = ids.iter().filter_map(|id| rows.ledger.get(*id));
        rows.filter(|row| row.expires_at.is_none_or(|at| at > now))
            .collect()
    };
    let (cut, read) = (
        firsts.len() >= limit || others.len() >= limit,
        firsts.len() + others.len(),
    );
    let (firsts, others) = (fresh(&firsts), fresh(&others));
    let some_expired = firsts.len() + others.len() < read;
    let lines = Lines {
        firsts: firsts.iter().map(|row| in_line(row)).collect(),
        due: others.iter().map(|row| in_line(row)).collect(),
        promised: (rows.ledger.permits_of(destination))
            .filter(|permit| permit.deadline >= now)
            .filter_map(|permit| rows.ledger.get(permit.attempt))
            .map(|row| (row.due_at.is_none(), in_line(row)))
            .collect(),
        cut,
    };
    let openings = openings(rules, &lines, (number, most), now);
    let leader = |leader: &Leader| match leader {
        Leader::First(place) => firsts[*place].id,
        Leader::Due(place) => others[*place].id,
    };
    let due: Vec<_> = openings.leaders.iter().map(leader).collect();
    let after_now = (now, AttemptId(i64::MAX));
    let next_due = indexes.due.range(after_now..).next().map(|(at, _)| *at);
    let reaped_by = some_expired.then(|| now + LOOK_AFTER_EXPIRED);
    let next_due = next_due
        .into_iter()
        .chain(reaped_by)
        .chain(openings.next_due);
    let backlog = Backlog {
        due: u32::try_from(due.len()).unwrap_or(u32::MAX),
        next_due: next_due.min(),
    };
    (due, backlog)
}

fn in_line(row: &Attempt) -> batch::Waiting {
    batch::Waiting {
        since: row.waits_since(),
        bytes: row.payload_bytes,
        limit: row.batch_limit,
    }
}

/// The admissions that no later commit has flushed never were. How many rows
/// wait again.
pub(super) fn forget_unflushed(rows: &mut Rows, now: Timestamp) -> usize {
    let mut forgotten = 0;
    while let Some(before) = rows.unflushed.pop() {
        if let Some(row) = rows.destinations.get_mut(&before.destination) {
            row.pacing = before.pacing;
        }
        for attempt in before.attempts {
            forgotten += 1;
            rows.ledger
                .change(now, attempt.id, |row| *row = attempt.clone());
        }
    }
    forgotten
}

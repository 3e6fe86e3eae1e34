//! Scheduler runs: read, then decide, then mark what nobody has changed.
//!
//! Three statements, and no transaction over them: nothing is locked while we
//! think. The last one locks the destinations and writes only for those of
//! which nobody has admitted anything since the first one read, and whose
//! limits are those that it read: so it is as if reading, deciding and marking
//! had been one step. Of the limits, what else may happen in between (claims,
//! outcomes, permits that are handed back) only makes room. A hold, a breaker or
//! a slower pace that begins in between is not seen: claims ask for holds, and the
//! next run for the rest.

use std::collections::{HashMap, HashSet};

use domain::admission::{Decision, admit as decide};
use domain::ids::{AttemptId, DestinationId, PermitNumber};
use domain::permit::Permit;
use domain::share::{Ask, Room, share_between_tenants};
use domain::time::Timestamp;
use engine::ports::{Admitted, Given, Run, RunResult};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::destinations::{Found, Known, read_destinations, remember_new};
use super::failure::Failure;
use super::mark::{fold_starts, mark};
use super::usage::{self, Question, Reading, Waiting};

/// How old a first attempt has to be for the cursor to pass it. Ids are given
/// before the commit, so an attempt with a smaller id may become visible later
/// than one with a larger; by then every transaction of ours has long ended
/// (`statement_timeout`, `idle_in_transaction_session_timeout`).
const CURSOR_AGE_MICROS: i64 = 30_000_000;

/// One batch of runs.
pub(super) async fn admit(pool: &PgPool, runs: &[Run], room: &Room) -> Result<Admitted, Failure> {
    let mut connection = pool.acquire().await?;
    let ids: Vec<Uuid> = runs.iter().map(|run| run.destination.0).collect();
    let mut known = read_destinations(&mut connection, &ids).await?;
    remember_new(&mut connection, &mut known).await?;
    let mut plans = plans(&mut connection, runs, &known).await?;
    let Known { now, found, .. } = known;
    decide_all(&mut plans, room, now);
    // Before the marks: what was marked has to be published, whatever fails.
    fold_starts(&mut connection, &plans).await?;
    let marked = mark(&mut connection, &plans, now).await?;
    plans.retain(|plan| marked.destinations.contains(&plan.destination.id));

    let of_tenant = |plan: &Plan| (plan.destination.tenant, plan.given());
    let given = Given::by_tenant(plans.iter().map(of_tenant));
    let mut decided: HashMap<DestinationId, RunResult> = (plans.into_iter())
        .map(|plan| (plan.destination.id, plan.result(&marked.attempts, now)))
        .collect();
    let result = |run: &Run| match decided.remove(&run.destination) {
        Some(result) => result,
        None => gone_or_skipped(&found, run),
    };
    Ok(Admitted {
        now,
        results: runs.iter().map(result).collect(),
        given,
    })
}

fn gone_or_skipped(found: &HashMap<DestinationId, Found>, run: &Run) -> RunResult {
    match found.get(&run.destination) {
        // Somebody else's, or the same destination twice in one batch.
        Some(destination) if !destination.deleted => RunResult::Skipped,
        _ => RunResult::Gone,
    }
}

/// One destination's run in the making.
pub(super) struct Plan {
    pub(super) destination: Found,
    republish: bool,
    pub(super) reading: Reading,
    pub(super) decision: Decision,
}

/// The plans of those that are there, with nothing decided yet.
async fn plans(
    connection: &mut PgConnection,
    runs: &[Run],
    known: &Known,
) -> Result<Vec<Plan>, Failure> {
    let mut once = HashSet::new();
    let ours: Vec<(&Run, Found)> = (runs.iter())
        .filter(|run| once.insert(run.destination))
        .filter_map(|run| Some((run, known.found.get(&run.destination)?.clone())))
        .filter(|(_, destination)| !destination.deleted)
        .collect();
    let questions: Vec<Question<'_>> = (ours.iter())
        .map(|ours| Question {
            destination: ours.1.id,
            policy: &ours.1.policy,
            first_after: ours.1.first_after,
            number: ours.1.last_permit + 1,
            meter: ours.1.meter,
            recount: ours.1.recount,
            held_until: ours.1.held_until,
            probing: ours.1.probing,
            batch: ours.1.batch,
        })
        .collect();
    let asked_at = (known.now, known.horizon);
    let mut readings = usage::read(connection, &questions, asked_at).await?;
    Ok((ours.into_iter())
        .filter_map(|(run, destination)| {
            let reading = readings.remove(&destination.id)?;
            let decision = decide(
                &destination.policy,
                &reading.usage,
                &reading.backlog,
                0,
                known.now,
            );
            Some(Plan {
                destination,
                republish: run.republish,
                reading,
                decision,
            })
        })
        .collect())
}

/// Decides each for itself and, if that is more than there is room for, again
/// with its share.
fn decide_all(plans: &mut [Plan], room: &Room, now: Timestamp) {
    for plan in plans.iter_mut() {
        plan.decide(u32::MAX, now);
    }
    let asks: Vec<Ask> = plans.iter().map(Plan::ask).collect();
    for (plan, places) in (plans.iter_mut()).zip(share_between_tenants(room, &asks)) {
        if places < plan.given() {
            plan.decide(places, now);
        }
    }
}

impl Plan {
    fn decide(&mut self, places: u32, now: Timestamp) {
        let (policy, reading) = (&self.destination.policy, &self.reading);
        self.decision = decide(policy, &reading.usage, &reading.backlog, places, now);
    }

    fn ask(&self) -> Ask {
        Ask {
            tenant: self.destination.tenant,
            wants: self.given(),
            tenant_max_in_flight: self.destination.tenant_max_in_flight,
        }
    }

    pub(super) fn given(&self) -> u32 {
        u32::try_from(self.decision.slots.len()).unwrap_or(u32::MAX)
    }

    /// Who gets which slot, with the numbers after the last one given.
    pub(super) fn picks(&self) -> impl Iterator<Item = (&Waiting, Permit)> {
        let slots = self.reading.waiting.iter().zip(&self.decision.slots);
        let numbers = self.destination.last_permit + 1..;
        slots.zip(numbers).map(|((waiting, slot), number)| {
            let permit = Permit {
                destination: self.destination.id,
                attempt: waiting.attempt,
                number: PermitNumber(number),
                epoch: self.destination.epoch,
                not_before: slot.not_before,
                deadline: slot.deadline,
            };
            (waiting, permit)
        })
    }

    /// The cursor after this run if all are marked: past the first attempts that
    /// were admitted, none of them left out, as long as they are old enough. One that waits to
    /// be carried stops it; once it has started it is no first attempt that waits.
    /// Where some leader is always out, what waits for it is always in front of
    /// all that this run admits: the cursor comes up to it nevertheless, past
    /// what has started.
    pub(super) fn cursor(&self, now: Timestamp) -> i64 {
        let mut firsts: Vec<&Waiting> = self
            .reading
            .waiting
            .iter()
            .filter(|waiting| waiting.first)
            .collect();
        firsts.sort_unstable_by_key(|waiting| waiting.attempt);
        let left = self.reading.first_left;
        let picked: HashSet<AttemptId> = self.picks().map(|(one, _)| one.attempt).collect();
        let passed = firsts.into_iter().take_while(|waiting| {
            left.is_none_or(|left| waiting.attempt < left)
                && picked.contains(&waiting.attempt)
                && now.micros_since(waiting.since) > CURSOR_AGE_MICROS
        });
        let last = passed.last().map(|waiting| waiting.attempt.0);
        let first = self.reading.first_waiting;
        let up_to = first.filter(|(_, since)| now.micros_since(*since) > CURSOR_AGE_MICROS);
        let first_after = self.destination.first_after;
        last.into_iter()
            .chain(up_to.map(|(first, _)| first.0 - 1))
            .fold(first_after, i64::max)
    }

    /// What `pacing.next_look_at` says to the sweep.
    pub(super) fn next_look_at(&self, now: Timestamp) -> Option<i64> {
        let from = (self.decision).looks_help_from(&self.reading.usage, now);
        from.map(Timestamp::as_micros)
    }

    fn result(self, marked: &HashSet<AttemptId>, now: Timestamp) -> RunResult {
        let mut permits: Vec<Permit> = (self.reading.outstanding.iter().copied())
            .filter(|permit| self.republish && permit.deadline > now)
            .collect();
        let picks = self.picks().map(|(_, permit)| permit);
        permits.extend(picks.filter(|permit| marked.contains(&permit.attempt)));
        RunResult::Decided {
            permits,
            look: self.decision.look,
            blocked: self.decision.blocked,
        }
    }
}

//! Scheduler runs: lock, then read, then decide, then mark.
//!
//! The lock and the reading are two statements. In one, the reading would be
//! of the snapshot from before the lock, and two schedulers that met would
//! both admit the same free places.

use std::collections::{HashMap, HashSet};

use domain::admission::{Decision, admit as decide};
use domain::ids::{AttemptId, DestinationId, PermitNumber};
use domain::permit::Permit;
use domain::share::{Ask, Room, share_between_tenants};
use domain::time::Timestamp;
use engine::ports::{Admitted, Given, Run, RunResult};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::destinations::{Found, Known, lock, read_destinations};
use super::failure::Failure;
use super::mark::{fold_starts, mark_admitted, remember};
use super::usage::{self, Question, Reading, Waiting};

/// How old a first attempt has to be for the cursor to pass it. Ids are given
/// before the commit, so an attempt with a smaller id may become visible later
/// than one with a larger; by then every transaction of ours has long ended
/// (`statement_timeout`, `idle_in_transaction_session_timeout`).
const CURSOR_AGE_MICROS: i64 = 30_000_000;

/// An admission does not wait for the disk. A server that crashes may forget
/// it, with its permits still on their way: their rows wait again, so the claim
/// refuses them. And a claim does wait: in the order of the log its admission
/// comes first, so what has started keeps its permit, its meter and its cursor.
const BEGIN: &str = "begin; set local synchronous_commit = off";

/// One batch of runs.
pub(super) async fn admit(pool: &PgPool, runs: &[Run], room: &Room) -> Result<Admitted, Failure> {
    let ids: Vec<Uuid> = runs.iter().map(|run| run.destination.0).collect();
    let mut transaction = pool.begin_with(BEGIN).await?;
    let locked = lock(&mut transaction, &ids).await?;
    let known = read_destinations(&mut transaction, &ids).await?;
    let mut plans = plans(&mut transaction, runs, &locked, &known).await?;
    let Known { now, found, .. } = known;
    decide_all(&mut plans, room, now);
    let marked = mark_admitted(&mut transaction, &plans, now).await?;
    remember(&mut transaction, &plans, &marked, now).await?;
    fold_starts(&mut transaction, &plans).await?;
    transaction.commit().await?;

    let of_tenant = |plan: &Plan| (plan.destination.tenant, plan.given());
    let given = Given::by_tenant(plans.iter().map(of_tenant));
    let mut decided: HashMap<DestinationId, RunResult> = (plans.into_iter())
        .map(|plan| (plan.destination.id, plan.result(&marked, now)))
        .collect();
    let result = |run: &Run| match decided.remove(&run.destination) {
        Some(result) => result,
        // Somebody else's lock, or the same destination twice in one batch.
        None if locked.contains(&run.destination.0) => gone_or_skipped(&found, run),
        None if found.contains_key(&run.destination) => RunResult::Skipped,
        None => RunResult::Gone,
    };
    Ok(Admitted {
        now,
        results: runs.iter().map(result).collect(),
        given,
    })
}

fn gone_or_skipped(found: &HashMap<DestinationId, Found>, run: &Run) -> RunResult {
    match found.get(&run.destination) {
        Some(destination) if destination.deleted => RunResult::Gone,
        _ => RunResult::Skipped,
    }
}

/// One destination's run in the making.
pub(super) struct Plan {
    pub(super) destination: Found,
    republish: bool,
    pub(super) reading: Reading,
    pub(super) decision: Decision,
}

/// The plans of those that are locked and there, with nothing decided yet.
async fn plans(
    connection: &mut PgConnection,
    runs: &[Run],
    locked: &HashSet<Uuid>,
    known: &Known,
) -> Result<Vec<Plan>, Failure> {
    let mut once = HashSet::new();
    let ours: Vec<(&Run, Found)> = (runs.iter())
        .filter(|run| locked.contains(&run.destination.0) && once.insert(run.destination))
        .filter_map(|run| Some((run, known.found.get(&run.destination)?.clone())))
        .filter(|(_, destination)| !destination.deleted)
        .collect();
    let questions: Vec<Question<'_>> = (ours.iter())
        .map(|(_, destination)| Question::of(destination))
        .collect();
    let asked_at = (known.now, known.open);
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

    /// The cursor after this run: past the first attempts that were admitted,
    /// none of them left out, as long as they are old enough. One that waits to
    /// be carried stops it; once it has started it is no first attempt that waits.
    /// Where some leader is always out, what waits for it is always in front of
    /// all that this run admits: the cursor comes up to it nevertheless, past
    /// what has started.
    pub(super) fn cursor(&self, marked: &HashSet<AttemptId>, now: Timestamp) -> i64 {
        let mut firsts: Vec<&Waiting> = self
            .reading
            .waiting
            .iter()
            .filter(|waiting| waiting.first)
            .collect();
        firsts.sort_unstable_by_key(|waiting| waiting.attempt);
        let left = self.reading.first_left;
        let passed = firsts.into_iter().take_while(|waiting| {
            left.is_none_or(|left| waiting.attempt < left)
                && marked.contains(&waiting.attempt)
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
            failing: self.destination.failing,
        }
    }
}

//! Postgres's answers and rows after each batch of calls at once. Its clock is
//! the real one and contention is an answer, so no order is looked for. What
//! is checked instead, by what any store does in every order:
//!
//! - Each permit has a number of its own, but where a run publishes again; a
//!   later batch's epochs are not older; a permit starts once, within its
//!   time, and no later than its row says.
//! - Each row moves only as the state machine allows from one batch to the
//!   next, and what is written once stays; a start only comes nearer.
//! - Every accepted event has one chain of attempts: each but the last is
//!   over, and the last waits, is under way, or ended as an end may.
//! - An outcome that was not skipped is in its row.
//! - Where a permit ended unused and nobody changed the destination, somebody
//!   was told to wake it; so for each retry.
//! - No window and no pause is broken, by the judge of the domain.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use adapters::postgres::PostgresStore;
use domain::admission::latest_start;
use domain::attempt::AttemptState;
use domain::compliance::{InForce, Start, judge, judge_sends};
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, PermitNumber, WorkerId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{AttemptView, ClaimAnswer, DEFAULT_TENANT, MAX_HEAD_START, Outcome, RunResult};
use proptest::test_runner::TestCaseError;
use tokio::runtime::Builder;

use super::calls::{Answer, Call, Driver};
use super::case::{Plan, at_once, furnish, plans};
use super::known::Known;
use super::postgres;
use super::scratch::Scratch;
use super::stated::{
    Attempts, accepted, changed, ensure, has_started, is_gone, may_become, recorded_in, woken,
};
use crate::bridge::Cases;
use crate::bridge::linear::Called;

/// The most calls in one batch.
const BATCH: usize = 16;

/// Wraps a driver, to plant a fault in front of it.
pub(crate) type Wrap<'a> = &'a dyn Fn(PostgresStore) -> Arc<dyn Driver>;

/// Draws cases and checks each of their batches.
pub(crate) fn keep(
    cases: Cases,
    connections: RangeInclusive<usize>,
    wrap: Wrap<'_>,
) -> Result<(), String> {
    let threads = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    // One that all cases' are copies of stays for as long as any is there.
    let _kept = threads.block_on(Scratch::migrated(""));
    cases.run(&plans(connections, BATCH, 16), |plan| {
        let (store, _dropped) = threads.block_on(postgres(plan.connections));
        threads
            .block_on(case(&wrap(store), plan))
            .map_err(TestCaseError::fail)
    })
}

async fn case(driver: &Arc<dyn Driver>, plan: Plan) -> Result<(), String> {
    let mut known = Known::default();
    furnish(&**driver, &mut known, &plan.limits, || ()).await;
    let destinations = known.destinations.clone();
    let mut seen = Seen::default();
    for batch in plan.batches {
        let resolve = |(by, drawn)| (by, known.resolve(drawn));
        let calls = batch.calls.into_iter().map(resolve).collect();
        let called = at_once(driver, calls).await;
        for one in &called {
            known.learn(&one.call, &one.answer);
        }
        let rows = rows(&**driver, &seen.events_with(&called)).await;
        let checked = seen.check(&called, rows);
        checked.map_err(|problem| format!("{problem}\n{called:#?}"))?;
        if known.destinations.is_empty() {
            break;
        }
    }
    for destination in destinations {
        let claims = seen.claims.remove(&destination).unwrap_or_default();
        compliant(&**driver, destination, claims).await?;
    }
    Ok(())
}

/// All attempts of these events.
async fn rows(driver: &(impl Driver + ?Sized), events: &BTreeSet<EventId>) -> Attempts {
    let mut rows = Attempts::new();
    for event in events {
        // A refused event is not there.
        if let Ok((_, attempts)) = driver.catalog().event(DEFAULT_TENANT, *event).await {
            rows.extend(attempts.into_iter().map(|attempt| (attempt.id, attempt)));
        }
    }
    rows
}

async fn compliant(
    driver: &(impl Driver + ?Sized),
    destination: DestinationId,
    mut claims: Vec<Start>,
) -> Result<(), String> {
    let history = driver.catalog().limit_history(destination).await.unwrap();
    let in_force: Vec<InForce> = (history.iter())
        .map(|entry| InForce::new(entry.in_force_from, &entry.effective, entry.state))
        .collect();
    let (since, until) = (
        Timestamp::from_millis(0),
        Timestamp::from_millis(9_000_000_000_000),
    );
    let ledger = driver
        .catalog()
        .ledger(destination, since, until, None, 10_000)
        .await;
    let starts = ledger.unwrap().into_iter();
    let starts = starts.filter_map(|row| Some((row.started_at?, row.attempt)));
    claims.sort_unstable();
    let verdicts = [
        judge(&in_force, &claims),
        judge_sends(&in_force, &starts.collect::<Vec<_>>()),
    ];
    match verdicts.iter().find(|verdict| !verdict.is_kept()) {
        None => Ok(()),
        Some(verdict) => Err(format!("{destination:?}: {verdict:#?}\n{history:#?}")),
    }
}

/// What earlier batches showed.
#[derive(Default)]
struct Seen {
    events: BTreeSet<EventId>,
    rows: Attempts,
    /// How often each was given by runs that do not publish again.
    permits: BTreeMap<(DestinationId, PermitNumber), (Permit, u32)>,
    epochs: BTreeMap<DestinationId, Epoch>,
    /// Who was answered that each attempt starts.
    starts: BTreeMap<AttemptId, WorkerId>,
    /// And as of when.
    claims: BTreeMap<DestinationId, Vec<Start>>,
    deleted: BTreeSet<DestinationId>,
}

impl Seen {
    /// All events, with those of a batch.
    fn events_with(&mut self, batch: &[Called<Call, Answer>]) -> BTreeSet<EventId> {
        for one in batch {
            if let Call::Accept(events) = &one.call {
                self.events.extend(events.iter().map(|event| event.id));
            }
        }
        self.events.clone()
    }

    fn check(&mut self, batch: &[Called<Call, Answer>], rows: Attempts) -> Result<(), String> {
        let mut epochs = self.epochs.clone();
        for one in batch {
            match (&one.call, &one.answer) {
                (_, Answer::Failed(problem)) if !is_gone(&one.call) => return Err(problem.clone()),
                (Call::Accept(events), Answer::Accepted(answers)) => {
                    for (event, answer) in events.iter().zip(answers) {
                        accepted(event.id, answer, &rows)?;
                    }
                }
                (Call::Admit(runs, _), Answer::Admitted(admitted)) => {
                    for (run, result) in runs.iter().zip(&admitted.results) {
                        if let RunResult::Decided { permits, .. } = result {
                            for permit in permits {
                                self.admitted(permit, run.republish, &mut epochs)?;
                            }
                        }
                    }
                }
                (Call::Delete(id), Answer::Deleted) => {
                    self.deleted.insert(*id);
                }
                (Call::Claim(by, permits), Answer::Claims(claims)) => {
                    for (permit, answer) in permits.iter().zip(&claims.answers) {
                        let now = claims.now;
                        self.claimed(*by, now, (permit, answer), &rows)?;
                    }
                }
                (Call::Record(by, outcomes), Answer::Recorded(recorded)) => {
                    let own = |one: &&Outcome| self.starts.get(&one.attempt) == Some(by);
                    let done = |one: &&Outcome| !recorded.skipped.contains(&one.attempt);
                    for outcome in outcomes.iter().filter(own).filter(done) {
                        recorded_in(outcome, &rows)?;
                    }
                }
                _ => {}
            }
        }
        self.epochs = epochs;
        self.moved(batch, &rows)?;
        self.chains(&rows)?;
        self.rows = rows;
        Ok(())
    }

    fn admitted(
        &mut self,
        permit: &Permit,
        republished: bool,
        epochs: &mut BTreeMap<DestinationId, Epoch>,
    ) -> Result<(), String> {
        let before = self.epochs.get(&permit.destination);
        ensure(before.is_none_or(|before| *before <= permit.epoch), || {
            format!("an epoch went back: {permit:?}")
        })?;
        let latest = epochs.entry(permit.destination).or_insert(permit.epoch);
        *latest = (*latest).max(permit.epoch);
        let key = (permit.destination, permit.number);
        let (given, count) = self.permits.entry(key).or_insert((*permit, 0));
        *count += u32::from(!republished);
        ensure(given == permit && *count <= 1, || {
            format!("a number was given twice: {permit:?} and {given:?}")
        })
    }

    fn claimed(
        &mut self,
        by: WorkerId,
        now: Timestamp,
        (permit, answer): (&Permit, &ClaimAnswer),
        rows: &Attempts,
    ) -> Result<(), String> {
        let ClaimAnswer::Started(start) = answer else {
            return Ok(());
        };
        let again = self.starts.insert(permit.attempt, by);
        ensure(again.is_none(), || format!("it started twice: {permit:?}"))?;
        let at = now.max(permit.not_before);
        let in_time = at <= permit.deadline && at <= now + MAX_HEAD_START;
        ensure(in_time && start.claimed_at == at, || {
            format!("it was claimed at another time, {now:?}: {permit:?}")
        })?;
        let claims = self.claims.entry(permit.destination).or_default();
        claims.push((at, permit.attempt));
        let row = rows.get(&permit.attempt);
        let (earliest, latest) = (Some(at), Some(latest_start(at, permit.deadline)));
        let is_same = row.is_some_and(|row| {
            (earliest..=latest).contains(&row.started_at)
                && row.event == start.event
                && row.try_number == start.try_number
        });
        ensure(is_same, || format!("{permit:?} started, its row: {row:?}"))
    }

    /// What became of each row since the batch before.
    fn moved(&self, batch: &[Called<Call, Answer>], rows: &Attempts) -> Result<(), String> {
        let woken = woken(batch);
        let changed = changed(batch);
        for (id, before) in &self.rows {
            let row = rows.get(id).ok_or_else(|| format!("{before:?} is gone"))?;
            // What is not over may still be known better, and only be nearer then.
            let is_over = before.state.is_final() && before.state != AttemptState::Unknown;
            let start_stays = match before.started_at {
                None => true,
                at if is_over => row.started_at == at,
                at => row.started_at.is_some() && row.started_at <= at,
            };
            let is_same = (row.event, row.destination, row.try_number)
                == (before.event, before.destination, before.try_number)
                && start_stays;
            ensure(is_same && may_become(before.state, row.state), || {
                format!("{before:?} became {row:?}")
            })?;
            let returned =
                before.state == AttemptState::Admitted && row.state == AttemptState::Waiting;
            let told = woken.contains(&row.destination) || changed.contains(&row.destination);
            ensure(!returned || told, || format!("nobody wakes for {row:?}"))?;
        }
        for row in rows.values().filter(|row| row.try_number > 1) {
            let is_new = !self.rows.contains_key(&row.id);
            ensure(!is_new || woken.contains(&row.destination), || {
                format!("nobody wakes for the retry {row:?}")
            })?;
        }
        for row in rows.values() {
            ensure(row.started_at.is_some() == has_started(row.state), || {
                format!("its start and its state disagree: {row:?}")
            })?;
        }
        Ok(())
    }

    /// Every event at every destination has one chain of attempts.
    fn chains(&self, rows: &Attempts) -> Result<(), String> {
        let mut chains: BTreeMap<(EventId, DestinationId), Vec<&AttemptView>> = BTreeMap::new();
        for row in rows.values() {
            let chain = chains.entry((row.event, row.destination)).or_default();
            chain.push(row);
        }
        for chain in chains.values() {
            let (last, earlier) = chain.split_last().expect("no chain is empty");
            let is_one = earlier.iter().all(|row| row.state.is_final())
                && chain.is_sorted_by_key(|row| row.try_number)
                && chain[0].try_number == 1;
            // A late success cancels the retry; an owner what waits. Whoever is
            // gone gets none, and a late failure adds none.
            let ends = match last.state {
                AttemptState::Failed | AttemptState::Unknown | AttemptState::NotSent => {
                    last.dead_letter || self.deleted.contains(&last.destination)
                }
                _ => true,
            };
            ensure(is_one && ends, || format!("no chain: {chain:#?}"))?;
        }
        Ok(())
    }
}

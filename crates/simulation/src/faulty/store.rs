//! The store, which fails before or after the commit, commits late, takes its
//! time, or finds rows locked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Admitted, Claims, Fleet, Heartbeat, Mark, Outcome, ReapRules, Reaped, Recorded,
    Run, RunResult, Store, StoreError, Sweep, SweepPage, Target, Wake,
};
use tokio::time::sleep;

use crate::dice::Dice;
use crate::gate::{Fate, Gate, Site};
use crate::model::{ModelStore, Rows};
use crate::scenario::Fault;
use crate::witness::Witness;

/// One process's way to the store.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) inner: Arc<ModelStore>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) witness: Witness,
}

impl FaultyStore {
    /// Lets one statement through the gate. `statement` runs at the commit, in
    /// whatever task that is.
    async fn call<T, F>(
        &self,
        site: Site,
        statement: impl FnOnce(Self, Dice) -> F + Send,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (fate, dice) = self.gate.enter(site).await;
        let answer = match fate {
            Fate::Done => statement(self.clone(), dice).await,
            Fate::FailsBefore => Err(failed("nothing was done")),
            Fate::FailsAfter => {
                let committed = statement(self.clone(), dice).await;
                committed.and(Err(failed("the answer was lost")))
            }
            Fate::DoneLate(after) => {
                let committing = statement(self.clone(), dice);
                tokio::spawn(async move {
                    sleep(after).await;
                    committing.await.map(drop)
                });
                Err(failed("nobody knows"))
            }
        };
        if let Err(error) = &answer {
            self.line(site, format_args!("{error}"));
        }
        self.gate.leave(site).await;
        answer
    }

    fn line(&self, site: Site, what: fmt::Arguments<'_>) {
        let process = self.gate.process;
        (self.gate.around.trace).line(format_args!("{process} {site:?}: {what}"));
    }

    /// Runs a statement while somebody holds the rows of one of these
    /// destinations, if that fault strikes.
    async fn beside_a_lock<T>(
        &self,
        dice: Dice,
        destinations: &[DestinationId],
        statement: impl Future<Output = T>,
    ) -> T {
        let strikes = !destinations.is_empty()
            && self.gate.strikes(Fault::RowLocked, dice, "row locked");
        if !strikes {
            return statement.await;
        }
        let unlucky = destinations[dice.of(2).below(destinations.len() as u64) as usize];
        self.inner.lock_destination(unlucky);
        let answer = statement.await;
        self.inner.unlock_destination(unlucky);
        answer
    }

    /// What the process takes the store's clock for.
    fn seen_by_pod(&self, now: Timestamp) -> Timestamp {
        let off = self.gate.clock_off_ms();
        Timestamp::from_micros(now.as_micros() + off * 1_000)
    }
}

fn failed(how: &str) -> StoreError {
    StoreError::Unavailable(how.to_owned())
}

#[async_trait]
impl Store for FaultyStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        let events = events.to_vec();
        self.call(Site::AcceptEvents, |store, _| async move {
            let answer = store.inner.accept_events(&events).await?;
            store.line(Site::AcceptEvents, format_args!("{} events", events.len()));
            Ok(answer)
        })
        .await
    }

    async fn admit(&self, runs: &[Run], room: u32) -> Result<Admitted, StoreError> {
        let runs = runs.to_vec();
        let admitted = self.call(Site::Admit, |store, dice| async move {
            let destinations: Vec<_> = runs.iter().map(|run| run.destination).collect();
            let statement = store.inner.admit(&runs, room);
            let admitted = store.beside_a_lock(dice, &destinations, statement).await?;
            for (run, result) in runs.iter().zip(&admitted.results) {
                store.note_run(run, result);
            }
            Ok(admitted)
        });
        let mut admitted = admitted.await?;
        // A pod's clock that steps back shows the store's ahead, and freezes
        // admission. The other way would only postpone the next run.
        admitted.now = self.seen_by_pod(admitted.now).max(admitted.now);
        Ok(admitted)
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        let destinations = destinations.to_vec();
        self.call(Site::Targets, |store, _| async move {
            store.inner.targets(&destinations).await
        })
        .await
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let permits = permits.to_vec();
        let claims = self.call(Site::ClaimStarts, |store, dice| async move {
            let destinations: Vec<_> = permits.iter().map(|permit| permit.destination).collect();
            let statement = store.inner.claim_starts(worker, &permits);
            let claims = store.beside_a_lock(dice, &destinations, statement).await?;
            store.note_claims(&permits, &claims);
            Ok(claims)
        });
        let mut claims = claims.await?;
        claims.now = self.seen_by_pod(claims.now);
        Ok(claims)
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        let permits = permits.to_vec();
        self.call(Site::ReleasePermits, |store, _| async move {
            let wakes = store.inner.release_permits(&permits).await?;
            store.line(
                Site::ReleasePermits,
                format_args!("{} permits", permits.len()),
            );
            Ok(wakes)
        })
        .await
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        let outcomes = outcomes.to_vec();
        self.call(Site::RecordOutcomes, |store, dice| async move {
            let destinations: Vec<_> = outcomes.iter().map(|one| one.destination).collect();
            let statement = store.inner.record_outcomes(worker, &outcomes);
            let recorded = store.beside_a_lock(dice, &destinations, statement).await?;
            for outcome in &outcomes {
                let (attempt, kind, status) = (outcome.attempt, outcome.kind, outcome.status);
                store.line(
                    Site::RecordOutcomes,
                    format_args!("{attempt} {kind:?} {status:?}"),
                );
                if kind == domain::attempt::OutcomeKind::NotSent {
                    let counts = &store.gate.around.counts;
                    counts.note("start not sent for being late");
                }
            }
            Ok(recorded)
        })
        .await
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        let rules = *rules;
        self.call(Site::Reap, |store, _| async move {
            let reaped = store.inner.reap(&rules, limit).await?;
            store.note_reaped(&reaped);
            Ok(reaped)
        })
        .await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        let sweep = *sweep;
        self.call(Site::Sweep, |store, _| async move {
            let page = store.inner.sweep(&sweep).await?;
            if !page.wakes.is_empty() || !page.marks.is_empty() {
                let (wakes, marks) = (page.wakes.len(), page.marks.len());
                store.line(Site::Sweep, format_args!("{wakes} wakes, {marks} marks"));
            }
            Ok(page)
        })
        .await
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        let marks = marks.to_vec();
        self.call(Site::ClearMarks, |store, _| async move {
            store.inner.clear_marks(&marks).await
        })
        .await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Fleet, StoreError> {
        let heartbeat = *heartbeat;
        let fleet = self.call(Site::Heartbeat, |store, _| async move {
            store.inner.heartbeat(&heartbeat).await
        });
        let mut fleet = fleet.await?;
        fleet.now = self.seen_by_pod(fleet.now);
        Ok(fleet)
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        self.call(Site::Fleet, |store, _| async move {
            store.inner.fleet().await
        })
        .await
    }
}

impl FaultyStore {
    fn note_run(&self, run: &Run, result: &RunResult) {
        let destination = short(run.destination);
        let RunResult::Decided {
            permits,
            look,
            blocked,
        } = result
        else {
            self.line(Site::Admit, format_args!("{destination} {result:?}"));
            return;
        };
        let first = |attempt| {
            let of = |rows: &Rows| rows.attempt(attempt).map(|row| row.try_number);
            self.inner.read(of) == Some(1)
        };
        self.witness.admitted(permits, first);
        let attempts: Vec<_> = permits.iter().map(|permit| permit.attempt.0).collect();
        self.line(
            Site::Admit,
            format_args!("{destination} {attempts:?} {look:?} {blocked:?}"),
        );
    }

    fn note_claims(&self, permits: &[Permit], claims: &Claims) {
        let state = |attempt| {
            let of = |rows: &Rows| rows.attempt(attempt).map(|row| row.state);
            self.inner.read(of)
        };
        self.witness.claimed(permits, claims, state);
        for (permit, answer) in permits.iter().zip(&claims.answers) {
            let answer = match answer {
                engine::ports::ClaimAnswer::Started(_) => "started",
                engine::ports::ClaimAnswer::Early(_) => "early",
                engine::ports::ClaimAnswer::Skipped => "skipped",
                engine::ports::ClaimAnswer::Refused => "refused",
            };
            let (destination, attempt) = (short(permit.destination), permit.attempt);
            self.line(
                Site::ClaimStarts,
                format_args!("{destination} {attempt} {answer}"),
            );
        }
    }

    fn note_reaped(&self, reaped: &Reaped) {
        let counts = &self.gate.around.counts;
        counts.add("permit expired", u64::from(reaped.expired_permits));
        counts.add("start became unknown", u64::from(reaped.unknown_starts));
        counts.add("attempt cancelled", u64::from(reaped.cancelled));
        let blank = Reaped {
            wakes: reaped.wakes.clone(),
            ..Reaped::default()
        };
        if *reaped != blank {
            let (expired, unknown) = (reaped.expired_permits, reaped.unknown_starts);
            let cancelled = reaped.cancelled;
            self.line(
                Site::Reap,
                format_args!("{expired} expired, {unknown} unknown, {cancelled} cancelled"),
            );
        }
    }
}

/// The number of a destination, as the scenario has it.
pub(crate) fn short(destination: DestinationId) -> u128 {
    destination.0.as_u128()
}

/// How late a commit is at most.
pub(crate) const LATEST_COMMIT: Duration = Duration::from_secs(4);

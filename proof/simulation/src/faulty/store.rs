//! The store, which fails before or after the commit, commits late, takes its
//! time, or finds rows locked.

mod bounds;
mod notes;
mod notifier;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::attempt::OutcomeKind;
use domain::event::{Audience, NewEvent};
use domain::ids::{DestinationId, WorkerId};
use domain::margin::Spread;
use domain::permit::Permit;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Admitted, Advanced, ClaimAnswer, Claims, Deferral, Fleet, Heartbeat, Mark, NextTry,
    Outcome, ReapRules, Reaped, Recorded, Replays, Retain, RetainRules, Retained, Run, SendReport,
    Speaks, Store, StoreError, Sweep, SweepPage, Target, Wake,
};
use tokio::time::sleep;

use crate::dice::Dice;
use crate::gate::{Fate, Gate};
use crate::sabotage::Sabotage;
use crate::scenario::Fault;
use crate::site::Site;
use crate::store::SimulatedStore;
use crate::witness::Witness;
pub(crate) use bounds::pending;

/// Longer than a message takes to a worker: often the claim comes first, and
/// its flush is the admission's too.
const UNFLUSHED: Duration = Duration::from_millis(30);

/// One process's way to the store.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) inner: Arc<SimulatedStore>,
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
        let strikes =
            !destinations.is_empty() && self.gate.strikes(Fault::RowLocked, dice, "row locked");
        if !strikes {
            return statement.await;
        }
        let unlucky = destinations[dice.of(2).below(destinations.len() as u64) as usize];
        self.inner.lock_destination(unlucky);
        let answer = statement.await;
        self.inner.unlock_destination(unlucky);
        answer
    }

    /// The store crashes after this admission, if that fault strikes.
    fn forget_soon(&self, dice: Dice) {
        let weather = &self.gate.around.weather;
        if !weather.strikes(Fault::AdmissionForgotten, dice) {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            sleep(dice.of(3).up_to(UNFLUSHED)).await;
            let forgotten = store.inner.forget_unflushed();
            let counts = &store.gate.around.counts;
            counts.add("admission forgotten in a crash", forgotten as u64);
            store.line(
                Site::Admit,
                format_args!("{forgotten} forgotten in a crash"),
            );
        });
    }

    /// Whether the commit of these is held up, by that fault: it comes all the same.
    fn holds_up(&self, events: &[NewEvent], dice: Dice) -> bool {
        let weather = &self.gate.around.weather;
        if !weather.strikes(Fault::CommitHeldUp, dice) {
            return false;
        }
        let Some(unseen) = self.inner.accept_unseen(events) else {
            return false;
        };
        self.gate.around.counts.note("commit held up");
        let store = self.clone();
        tokio::spawn(async move {
            let longer = HELD_UP_FOR.end.saturating_sub(HELD_UP_FOR.start);
            sleep(HELD_UP_FOR.start + dice.of(4).up_to(longer)).await;
            let commit = async { store.inner.commit_unseen(unseen) };
            let attempts = store.noting_what_comes(commit).await;
            let line = format_args!("{} attempts committed late", attempts.len());
            store.line(Site::AcceptEvents, line);
            store.witness.committed_late(attempts);
        });
        true
    }

    /// What the process takes the store's clock for.
    fn seen_by_pod(&self, now: Timestamp) -> Timestamp {
        let off = self.gate.clock_off_ms();
        Timestamp::from_micros(now.as_micros() + off * 1_000)
    }
}

/// An answer for an event that nobody has written.
fn pretended(event: &NewEvent) -> Acceptance {
    match event.audience {
        Audience::Destination(destination) => Acceptance::Accepted(vec![destination]),
        Audience::Subscribers | Audience::SomeSubscriber => Acceptance::Accepted(Vec::new()),
    }
}

/// An outcome that says that a success was none.
fn doubt(outcome: &mut Outcome) {
    if outcome.kind == OutcomeKind::Succeeded {
        outcome.kind = OutcomeKind::Failed;
        outcome.next = NextTry::RetryAfter(Duration::from_secs(1));
    }
}

/// An outcome that says of a part that it was taken like all the others.
fn forget_part(outcome: &mut Outcome) {
    if outcome.speaks == Speaks::Apart {
        outcome.kind = OutcomeKind::Succeeded;
        (outcome.status, outcome.next) = (Some(207), NextTry::None);
    }
}

/// Which requests are claimed.
#[derive(Clone, Copy)]
enum Kind {
    Starts,
    Batches,
}

impl FaultyStore {
    async fn claim(
        &self,
        worker: WorkerId,
        permits: &[Permit],
        kind: Kind,
    ) -> Result<Claims, StoreError> {
        let permits = permits.to_vec();
        let claims = self.call(Site::ClaimStarts, |store, dice| async move {
            let destinations: Vec<_> = permits.iter().map(|permit| permit.destination).collect();
            let statement = async {
                match kind {
                    Kind::Starts => store.inner.claim_starts(worker, &permits).await,
                    Kind::Batches => store.inner.claim_batches(worker, &permits).await,
                }
            };
            let mut claims = store.beside_a_lock(dice, &destinations, statement).await?;
            if store.gate.has(Sabotage::StartsTwice) {
                store.start_again(&permits, &mut claims);
            }
            store.note_claims(&permits, &claims);
            Ok(claims)
        });
        let mut claims = claims.await?;
        // How far ahead a claim is dated is the difference of two of the store's own
        // times, which no clock of a pod's can change.
        let has_started = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
        if !claims.answers.iter().any(has_started) {
            claims.now = self.seen_by_pod(claims.now);
        }
        Ok(claims)
    }
}

/// Whether a receiver wrote what no text can hold.
fn holds_a_nul(outcome: &Outcome) -> bool {
    let escaped = br"\u0000";
    let body = &outcome.response_body;
    body.windows(escaped.len()).any(|bytes| bytes == escaped)
}

fn failed(how: &str) -> StoreError {
    StoreError::Unavailable(how.to_owned())
}

impl FaultyStore {
    async fn record(&self, worker: WorkerId, outcomes: &[Outcome]) -> Result<Recorded, StoreError> {
        if self.gate.has(Sabotage::KeepsRawWords) && outcomes.iter().any(holds_a_nul) {
            return Err(StoreError::Refused("a NUL".to_owned()));
        }
        self.inner.record_outcomes(worker, outcomes).await
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        if self.gate.has(Sabotage::ForgetsEvents) {
            return Ok(events.iter().map(pretended).collect());
        }
        let mut events = events.to_vec();
        if self.gate.has(Sabotage::ForgetsKeys) {
            events.iter_mut().for_each(|event| event.idempotency = None);
        }
        self.call(Site::AcceptEvents, |store, dice| async move {
            if store.holds_up(&events, dice) {
                return Err(failed("nobody knows"));
            }
            let accepting = store.inner.accept_events(&events);
            let answer = store.noting_what_comes(accepting).await?;
            let repeated = |answer: &&Acceptance| matches!(answer, Acceptance::Repeated { .. });
            let repeated = answer.iter().filter(repeated).count() as u64;
            (store.gate.around.counts).add("a repeated request was the same event", repeated);
            store.line(Site::AcceptEvents, format_args!("{} events", events.len()));
            Ok(answer)
        })
        .await
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        let (runs, room) = (runs.to_vec(), room.clone());
        let admitted = self.call(Site::Admit, |store, dice| async move {
            let destinations: Vec<_> = runs.iter().map(|run| run.destination).collect();
            let statement = store.inner.admit(&runs, &room);
            let admitted = store.beside_a_lock(dice, &destinations, statement).await?;
            for (run, result) in runs.iter().zip(&admitted.results) {
                store.note_run(admitted.now, run, result);
            }
            store.forget_soon(dice);
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
        self.claim(worker, permits, Kind::Starts).await
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        self.claim(worker, permits, Kind::Batches).await
    }

    fn head_start(&self) -> Duration {
        self.inner.head_start()
    }

    fn plain_outcomes_apart(&self) -> bool {
        self.inner.plain_outcomes_apart()
    }

    fn accepts_side_by_side(&self) -> bool {
        self.inner.accepts_side_by_side()
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

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        let deferrals = deferrals.to_vec();
        self.call(Site::Defer, |store, _| async move {
            store.inner.defer(&deferrals).await?;
            let counts = &store.gate.around.counts;
            counts.add("destination deferred", deferrals.len() as u64);
            store.line(
                Site::Defer,
                format_args!("{} destinations", deferrals.len()),
            );
            Ok(())
        })
        .await
    }

    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError> {
        let sends = sends.to_vec();
        self.call(Site::ReportSends, |store, _| async move {
            store.inner.report_sends(worker, &sends).await?;
            store.note_dates(sends.iter().map(|report| report.attempt));
            let counts = &store.gate.around.counts;
            counts.add("send reported before its answer", sends.len() as u64);
            store.line(Site::ReportSends, format_args!("{} sends", sends.len()));
            Ok(())
        })
        .await
    }

    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Result<(), StoreError> {
        let spreads = spreads.to_vec();
        self.call(Site::ReportSpreads, |store, _| async move {
            store.inner.report_spreads(&spreads).await?;
            let counts = &store.gate.around.counts;
            counts.add("margin measured", spreads.len() as u64);
            store.line(
                Site::ReportSpreads,
                format_args!("{} destinations", spreads.len()),
            );
            Ok(())
        })
        .await
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        let mut outcomes = outcomes.to_vec();
        if self.gate.has(Sabotage::DoubtsSuccess) {
            outcomes.iter_mut().for_each(doubt);
        }
        if self.gate.has(Sabotage::DatesAtClaim) {
            let at_claim = |outcome: &mut Outcome| outcome.sent_after = Duration::ZERO;
            outcomes.iter_mut().for_each(at_claim);
        }
        if self.gate.has(Sabotage::ForgetsParts) {
            outcomes.iter_mut().for_each(forget_part);
        }
        self.call(Site::RecordOutcomes, |store, dice| async move {
            let destinations: Vec<_> = outcomes.iter().map(|one| one.destination).collect();
            let unknown = store.unknown_among(&outcomes);
            let statement = store.record(worker, &outcomes);
            let recorded = store.beside_a_lock(dice, &destinations, statement).await;
            let refused = match &recorded {
                Err(StoreError::Refused(why)) => Some(why.as_str()),
                _ => None,
            };
            (store.witness).note(promises::what_is_recorded_can_be_stored(refused));
            let recorded = recorded?;
            let overwritten = unknown - store.unknown_among(&outcomes);
            let counts = &store.gate.around.counts;
            counts.add("outcome overwrote unknown", overwritten);
            store.note_outcomes(&outcomes);
            store.note_health(&outcomes, &recorded);
            Ok(recorded)
        })
        .await
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        if self.gate.has(Sabotage::NeverReaps) {
            return Ok(Reaped::default());
        }
        let rules = *rules;
        self.call(Site::Reap, |store, _| async move {
            let reaped = store.inner.reap(&rules, limit).await?;
            store.note_reaped(&reaped);
            Ok(reaped)
        })
        .await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        let mut sweep = *sweep;
        sweep.only_marks |= self.gate.has(Sabotage::SweepsMarksOnly);
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

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Timestamp, StoreError> {
        let heartbeat = *heartbeat;
        let now = self.call(Site::Heartbeat, |store, _| async move {
            store.inner.heartbeat(&heartbeat).await
        });
        Ok(self.seen_by_pod(now.await?))
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        self.call(
            Site::Fleet,
            |store, _| async move { store.inner.fleet().await },
        )
        .await
    }
}

#[async_trait]
impl Replays for FaultyStore {
    async fn advance_replays(&self, limit: u32) -> Result<Advanced, StoreError> {
        self.call(Site::AdvanceReplays, |store, _| async move {
            let advancing = store.inner.shipped().advance_replays(limit);
            let advanced = store.noting_what_comes(advancing).await?;
            store.note_advanced(&advanced);
            Ok(advanced)
        })
        .await
    }
}

#[async_trait]
impl Retain for FaultyStore {
    async fn retain(&self, rules: &RetainRules) -> Result<Retained, StoreError> {
        let rules = *rules;
        self.call(Site::Retain, move |store, _| async move {
            let retained = store.inner.shipped().retain(&rules).await?;
            store.note_retained(&retained);
            Ok(retained)
        })
        .await
    }
}

/// The number of a destination, as the scenario has it.
pub(crate) fn short(destination: DestinationId) -> u128 {
    destination.0.as_u128()
}

/// How long the commit of events is held up by [`Fault::CommitHeldUp`].
pub(crate) const HELD_UP_FOR: Range<Duration> = Duration::from_secs(5)..Duration::from_secs(90);

/// How late any other commit is at most.
pub(crate) const LATEST_COMMIT: Duration = Duration::from_secs(4);

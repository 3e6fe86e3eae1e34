//! The scheduler: take, admit, publish, finish.
//!
//! One run looks at a batch of due destinations. Taking pushes their jobs
//! forward, so that the next run is scheduled before this one does anything;
//! admission is one transaction of the store; permits are published in one
//! confirmed batch; finishing sets when to look next. A crash between any two
//! of them delays, and neither loses nor hurries anything:
//!
//! - after *take*: the jobs are due again when the lease ends;
//! - after *admit*: the run after the lapsed lease publishes what still has
//!   time, and the reaper takes the rest back;
//! - after *publish*: the next run finds the permits outstanding.

mod company;
mod delayed;
mod fleet;
mod looks;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::admission::{BUSY_FLOOR, Look};
use domain::ids::DestinationId;
use domain::permit::{Permit, PermitGroup};
use domain::share::Room;
use domain::time::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::ports::{
    Admitted, DeliveryQueue, Finish, NextRun, Published, Run, RunResult, Schedule, Store, Sweep,
    TakenJob,
};
use crate::store_clock::{SharedClock, Suspended};
use crate::wake::wake_freed;
use crate::warm::warm_scheduler;
use company::Company;
use delayed::Delayed;
use fleet::{Places, is_short_of_places};
use looks::Looks;

/// How the scheduler runs.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerOptions {
    /// Destinations in one run.
    pub batch: usize,
    /// How long a taken job is ours.
    pub lease: Duration,
    /// How long to wait at most before looking at the schedule again. Jobs
    /// that are known run when they are due and wakes are told, so this only
    /// bounds what a wake that was not told can cost.
    pub idle: Duration,
    /// How often the store is asked for work while the schedule is away.
    pub degraded: Duration,
    /// Outstanding permits per place of the fleet.
    pub permits_per_place: u32,
    /// How long nothing is admitted after the store's clock stepped forward:
    /// starts would leave their windows early by the step.
    pub freeze: Duration,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            batch: 128,
            lease: Duration::from_secs(1),
            idle: Duration::from_millis(250),
            degraded: Duration::from_millis(250),
            permits_per_place: 2,
            freeze: Duration::from_secs(60),
        }
    }
}

/// The first and the longest wait after a destination's row was locked or changed by
/// somebody else: its state is unknown, so it is looked at again soon.
const SKIPPED_BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Destinations whose backoff is remembered; beyond it all begin anew.
const MAX_SKIPPED: usize = 10_000;

/// The first and the longest wait after a part did not answer.
const FAILURE_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Between two pages of the search for work in the store while the schedule is
/// away: others get their turn.
const BETWEEN_PAGES: Duration = Duration::from_millis(5);

/// The loop.
pub struct Scheduler {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    queue: Arc<dyn DeliveryQueue>,
    options: SchedulerOptions,
    places: Arc<Places>,
    clock: SharedClock,
    frozen_until: Option<Instant>,
    skipped: HashMap<DestinationId, Backoff>,
    delayed: Delayed,
    company: Company,
    failures: Backoff,
    /// Where the search for work in the store goes on while the schedule is
    /// away.
    cursor: Option<DestinationId>,
}

impl Scheduler {
    /// A scheduler over these parts.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        schedule: Arc<dyn Schedule>,
        queue: Arc<dyn DeliveryQueue>,
        options: SchedulerOptions,
    ) -> Self {
        let places = Arc::new(Places::new(Arc::clone(&store), options.permits_per_place));
        Self {
            places,
            store,
            schedule,
            queue,
            options,
            clock: SharedClock::new(),
            frozen_until: None,
            skipped: HashMap::new(),
            delayed: Delayed::default(),
            company: Company::default(),
            failures: Backoff::new(FAILURE_BACKOFF.0, FAILURE_BACKOFF.1),
            cursor: None,
        }
    }

    /// The same beside `other`, a scheduler of this process over the same store:
    /// together they count the fleet once, and by `other`'s permits per place.
    #[must_use]
    pub fn beside(mut self, other: &Self) -> Self {
        self.places = Arc::clone(&other.places);
        self
    }

    /// The same, where the machine may be suspended: without counting that, its
    /// end looks like a step of the store's clock.
    #[must_use]
    pub fn counting_suspends(mut self, suspended: Suspended) -> Self {
        self.clock = SharedClock::counting(suspended);
        self
    }

    /// Runs until `shutdown`; a run that has begun is finished.
    pub async fn run(mut self, shutdown: CancellationToken) {
        warm_scheduler(self.store.as_ref()).await;
        while !shutdown.is_cancelled() {
            let pause = self.tick().await;
            if pause.is_zero() {
                // Others on this thread get their turn between two full runs.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = self.schedule.woken() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One run: take, admit, publish, finish. Returns how long to wait until
    /// the next.
    pub async fn tick(&mut self) -> Duration {
        if let Err(reason) = self.ready() {
            tracing::debug!(reason, "admission stopped");
            return self.failures.failed();
        }
        // Side by side: a wake does not wait for the count.
        let (batch, lease) = (self.options.batch, self.options.lease);
        let (taken, ()) = tokio::join!(self.schedule.take(batch, lease), self.places.count_ahead());
        let taken_at = Instant::now();
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, "schedule away: looking for work in the store");
                return self.look_in_store().await;
            }
        };
        let mut looks = Looks::after(&taken);
        if taken.jobs.is_empty() {
            return looks.pause(self.options.idle);
        }
        for job in &taken.jobs {
            metrics::histogram!("paceline_run_late_seconds").record(job.overdue);
        }
        let is_full = taken.jobs.len() >= batch;
        let (waiting, jobs) = self.in_company(taken.jobs);
        let Some((mut finishes, published)) = self.run_jobs(&jobs, taken_at).await else {
            // The leases end by themselves, and the jobs are due again.
            return self.failures.failed();
        };
        if is_full {
            finishes.iter_mut().for_each(fold_arrivals);
        }
        finishes.extend(waiting.into_iter().map(|(job, round)| Finish {
            destination: job.destination,
            token: job.token,
            next: self.waits_until(round),
        }));
        looks.finish(&finishes);
        if let Err(error) = self.schedule.finish(&finishes).await {
            tracing::warn!(%error, "jobs not finished: their leases end by themselves");
        }
        match published {
            Ok(()) => looks.pause(self.options.idle),
            Err(NotPublished) => self.failures.failed(),
        }
    }

    /// Those that wait for the next round, and until when; and the rest.
    fn in_company(&mut self, jobs: Vec<TakenJob>) -> (Vec<(TakenJob, Timestamp)>, Vec<TakenJob>) {
        let Some(now) = self.clock.now() else {
            return (Vec::new(), jobs);
        };
        let (mut waiting, mut rest) = (Vec::new(), Vec::new());
        for job in jobs {
            match self.company.round(&job, now) {
                Some(round) => waiting.push((job, round)),
                None => rest.push(job),
            }
        }
        (waiting, rest)
    }

    /// What comes meanwhile waits as well.
    fn waits_until(&self, round: Timestamp) -> NextRun {
        let delay = self.clock.until(round);
        NextRun::After {
            delay,
            floor: Some(delay),
        }
    }

    /// Admits and publishes. How the leases end, and whether the permits are on
    /// their way; `None` if the store could not say what was admitted.
    async fn run_jobs(
        &mut self,
        jobs: &[TakenJob],
        taken_at: Instant,
    ) -> Option<(Vec<Finish>, Result<(), NotPublished>)> {
        if jobs.is_empty() {
            return Some((Vec::new(), Ok(())));
        }
        let runs: Vec<_> = (jobs.iter())
            .map(|job| Run {
                destination: job.destination,
                republish: job.lapsed,
            })
            .collect();
        let known = self.places.count().await;
        let admitted = self.admit(&runs, &known.room).await?;
        let answered_at = Instant::now();
        let published = self.publish(&permits_of(&admitted)).await;
        // Publishing took a while: the next runs are due that much sooner.
        let now = admitted.now + answered_at.elapsed();
        let mut finishes = self.finishes(jobs, &admitted.results, now);
        for (finish, result) in finishes.iter_mut().zip(&admitted.results) {
            if is_short_of_places(result) {
                finish.next = self.places.look_again(finish.next, &known, taken_at);
            }
        }
        Some((finishes, published))
    }

    /// Whether permits could reach a worker: what cannot be published would
    /// only expire.
    fn ready(&mut self) -> Result<(), String> {
        if let Some(until) = self.frozen_until {
            if Instant::now() < until {
                return Err("the store's clock stepped forward".to_owned());
            }
            self.frozen_until = None;
        }
        self.queue.health().map_err(|error| error.to_string())
    }

    /// Admits the runs in one batch. `None` if the store could not say
    /// what was admitted.
    async fn admit(&mut self, runs: &[Run], room: &Room) -> Option<Admitted> {
        let before = Instant::now();
        let admitted = match self.store.admit(runs, room).await {
            Ok(admitted) => admitted,
            Err(error) => {
                tracing::warn!(%error, destinations = runs.len(), "not admitted");
                return None;
            }
        };
        self.places.note(&admitted);
        self.delayed.note(runs, &admitted);
        self.company.note(runs, &admitted.results);
        metrics::histogram!("paceline_admit_seconds").record(before.elapsed());
        if let Some(step) = self.clock.sample(before, admitted.now) {
            self.stepped(step);
        }
        Some(admitted)
    }

    fn stepped(&mut self, step: domain::clock::Step) {
        tracing::error!(?step, "the store's clock stepped");
        if let domain::clock::Step::Forward(_) = step {
            self.frozen_until = Some(Instant::now() + self.options.freeze);
        }
    }

    /// Publishes, and gives back what the queue could not be asked to take:
    /// the rows then wait at once instead of at their deadline. One that did
    /// arrive after all is refused by its number.
    async fn publish(&mut self, permits: &[Permit]) -> Result<(), NotPublished> {
        if self.frozen_until.is_some() {
            // They were planned by the very clock that cannot be trusted.
            self.hand_back(permits).await;
            return Ok(());
        }
        if permits.is_empty() {
            self.failures.succeeded();
            return Ok(());
        }
        let groups = PermitGroup::split(permits);
        metrics::counter!("paceline_permits_admitted_total").increment(permits.len() as u64);
        let before = Instant::now();
        let published = self.queue.publish(&groups).await;
        metrics::histogram!("paceline_publish_seconds").record(before.elapsed());
        match published {
            Ok(published) => {
                let lost = (published.iter())
                    .filter(|one| **one == Published::Unconfirmed)
                    .count();
                if lost > 0 {
                    tracing::warn!(groups = lost, "unconfirmed: left to their deadlines");
                }
                self.failures.succeeded();
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, permits = permits.len(), "not published: handed back");
                self.hand_back(permits).await;
                Err(NotPublished)
            }
        }
    }

    async fn hand_back(&self, permits: &[Permit]) {
        if permits.is_empty() {
            return;
        }
        match self.store.release_permits(permits).await {
            Ok(wakes) => wake_freed(self.schedule.as_ref(), &wakes).await,
            Err(error) => tracing::warn!(%error, "not handed back: left to expire"),
        }
    }

    fn finishes(
        &mut self,
        jobs: &[TakenJob],
        results: &[RunResult],
        now: Timestamp,
    ) -> Vec<Finish> {
        (jobs.iter().zip(results))
            .map(|(job, result)| Finish {
                destination: job.destination,
                token: job.token.clone(),
                next: self.next_run(job.destination, result, now),
            })
            .collect()
    }

    fn next_run(
        &mut self,
        destination: DestinationId,
        result: &RunResult,
        now: Timestamp,
    ) -> NextRun {
        let RunResult::Decided { look, .. } = result else {
            if matches!(result, RunResult::Gone) {
                self.skipped.remove(&destination);
                return NextRun::Remove;
            }
            if self.skipped.len() >= MAX_SKIPPED {
                self.skipped.clear();
            }
            let backoff = (self.skipped.entry(destination))
                .or_insert_with(|| Backoff::new(SKIPPED_BACKOFF.0, SKIPPED_BACKOFF.1));
            let delay = backoff.failed();
            return NextRun::After { delay, floor: None };
        };
        self.skipped.remove(&destination);
        match look {
            Look::Idle => NextRun::Remove,
            Look::At { at, floor } => NextRun::After {
                delay: at.since(now),
                floor: floor.map(|floor| floor.since(now)),
            },
        }
    }

    /// The schedule is away: finds destinations with due work in the store, a
    /// page at a time, and runs them without leases. The row locks are all the
    /// exclusion that the limits need.
    async fn look_in_store(&mut self) -> Duration {
        let sweep = Sweep {
            after: self.cursor,
            limit: u32::try_from(self.options.batch).unwrap_or(u32::MAX),
            overdue: Duration::ZERO,
            everything: false,
            only_marks: false,
        };
        let page = match self.store.sweep(&sweep).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "store away too");
                return self.failures.failed();
            }
        };
        self.cursor = page.next;
        let runs: Vec<_> = (page.wakes.iter())
            .filter(|wake| wake.after.is_zero())
            .map(|wake| Run {
                destination: wake.destination,
                republish: false,
            })
            .collect();
        if !runs.is_empty() {
            let known = self.places.count().await;
            let Some(admitted) = self.admit(&runs, &known.room).await else {
                return self.failures.failed();
            };
            if let Err(NotPublished) = self.publish(&permits_of(&admitted)).await {
                return self.failures.failed();
            }
        }
        // Page after page at once, then a pause before the next round.
        if self.cursor.is_some() {
            BETWEEN_PAGES
        } else {
            self.options.degraded
        }
    }
}

/// More is due than one run takes, so whoever ran is not to run again for each that arrives:
/// the others wait for that.
fn fold_arrivals(finish: &mut Finish) {
    if let NextRun::After { floor, .. } = &mut finish.next {
        *floor = floor.or(Some(BUSY_FLOOR));
    }
}

/// The queue could not be asked; the permits went back to the store.
struct NotPublished;

fn permits_of(admitted: &Admitted) -> Vec<Permit> {
    (admitted.results.iter())
        .filter_map(|result| match result {
            RunResult::Decided { permits, .. } => Some(permits),
            RunResult::Skipped | RunResult::Gone => None,
        })
        .flatten()
        .copied()
        .collect()
}

//! The sweep: whoever has due work is looked at, whatever was forgotten.
//!
//! Pokes reduce latency, scans guarantee progress. Every instance sweeps; a
//! wake that comes twice is harmless.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::DestinationId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ports::{Mark, Schedule, ScheduleError, ScheduleLife, Store, StoreError, Sweep, Wake};
use crate::wake::{lifting_floors, try_wake_all};

/// Whole sweeps begin no sooner than so many times what the last one took: they
/// visit whoever has a backlog, and a hundred thousand of these would keep the
/// store busy with nothing else. What they find is rare: a wake that was lost.
const BREATH: u32 = 20;

/// How the sweep runs.
#[derive(Debug, Clone, Copy)]
pub struct SweepOptions {
    /// Between two looks at what has changed; also how late a change of limits is
    /// noticed where nothing else wakes the destination. Each is a whole sweep,
    /// unless these take more than a twentieth of the time.
    pub every: Duration,
    /// How long past its planned look a destination may be before it is woken:
    /// longer than a lease, so that a live scheduler is not doubled.
    pub overdue: Duration,
    /// Destinations on a page.
    pub page: u32,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(400),
            overdue: Duration::from_millis(1_500),
            page: 1_000,
        }
    }
}

/// The loop.
pub struct SweepLoop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    options: SweepOptions,
}

impl SweepLoop {
    /// A sweep of this store into this schedule.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, schedule: Arc<dyn Schedule>, options: SweepOptions) -> Self {
        Self {
            store,
            schedule,
            options,
        }
    }

    /// Sweeps until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut whole_from = Instant::now();
        loop {
            let began = Instant::now();
            let swept = if began >= whole_from {
                let swept = self.sweep(true).await;
                // One that was interrupted begins anew.
                if swept.is_ok() {
                    whole_from = began + began.elapsed() * BREATH;
                }
                swept
            } else {
                self.sweep(false).await
            };
            if let Err(error) = excused(swept) {
                tracing::warn!(%error, "sweep failed, will run again");
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.pause() => {}
            }
        }
    }

    /// Until the next sweep is due or a change asks for one; many changes in a
    /// row are one sweep.
    async fn pause(&self) {
        let changed = async {
            self.store.changed().await;
            tokio::time::sleep(self.options.every / 10).await;
        };
        let _ = tokio::time::timeout(self.options.every, changed).await;
    }

    /// One whole sweep. In another life of the schedule it rebuilds every job,
    /// and says so only after every wake of the last page. A sweep in which the
    /// schedule goes away ends there: the next one begins anew.
    pub async fn tick(&self) -> Result<(), StoreError> {
        excused(self.sweep(true).await)
    }

    /// What has changed; a whole sweep in another life of the schedule.
    pub async fn look(&self) -> Result<(), StoreError> {
        excused(self.sweep(false).await)
    }

    async fn sweep(&self, whole: bool) -> Result<(), Interrupted> {
        let life = match self.schedule.life().await? {
            ScheduleLife::New(life) => Some(life),
            ScheduleLife::Same => None,
        };
        let mut after = None;
        loop {
            after = self.page(after, whole, life.is_some()).await?;
            if after.is_none() {
                break;
            }
        }
        if let Some(life) = life {
            match self.schedule.rebuilt(&life).await {
                Ok(()) => tracing::info!("jobs rebuilt from the store"),
                Err(error) => tracing::warn!(%error, "rebuild not noted, will run again"),
            }
        }
        Ok(())
    }

    async fn page(
        &self,
        after: Option<DestinationId>,
        whole: bool,
        everything: bool,
    ) -> Result<Option<DestinationId>, Interrupted> {
        let sweep = Sweep {
            after,
            limit: self.options.page,
            overdue: self.options.overdue,
            everything,
            only_marks: !(whole || everything),
        };
        let page = self.store.sweep(&sweep).await?;
        if page.late > 0 {
            metrics::counter!("paceline_late_commits_total").increment(page.late.into());
            tracing::warn!(
                destinations = page.late,
                "events were committed so late that admission had passed them: \
                it goes back to them"
            );
        }
        // What is due is past the look that was planned for it, or its job is of
        // another life. Its floor is not to be trusted either: it may count a
        // permit that ended unused and whose wake was lost, or have come back
        // with an old copy of the schedule, or be off by a step of its clock.
        // A plain wake would wait for it, up to a day.
        let due = lifting_floors(&page.wakes);
        try_wake_all(self.schedule.as_ref(), &due).await?;
        self.settle_marks(&page.marks).await?;
        Ok(page.next)
    }

    /// Wakes changed destinations, then forgets the marks: in this order, so
    /// that a crash between the two wakes once too often and never too seldom.
    async fn settle_marks(&self, marks: &[Mark]) -> Result<(), Interrupted> {
        if marks.is_empty() {
            return Ok(());
        }
        let wakes: Vec<_> = (marks.iter())
            .map(|mark| Wake::unblocked(mark.destination))
            .collect();
        try_wake_all(self.schedule.as_ref(), &wakes).await?;
        Ok(self.store.clear_marks(marks).await?)
    }
}

/// A schedule that is away is no failure.
fn excused(swept: Result<(), Interrupted>) -> Result<(), StoreError> {
    match swept {
        Err(Interrupted::Schedule(error)) => {
            tracing::debug!(%error, "schedule away, nothing to wake");
            Ok(())
        }
        Err(Interrupted::Store(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// Who did not answer in the middle of a sweep.
enum Interrupted {
    Store(StoreError),
    Schedule(ScheduleError),
}

impl From<StoreError> for Interrupted {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ScheduleError> for Interrupted {
    fn from(error: ScheduleError) -> Self {
        Self::Schedule(error)
    }
}

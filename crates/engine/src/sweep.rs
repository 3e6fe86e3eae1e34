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

/// After a page of a whole sweep nobody asks for the next one for so many times
/// what it took. A sweep visits whoever has a backlog, and a hundred thousand of
/// these would keep the store busy with nothing else. What it finds is rare: a
/// wake that was lost.
const BREATH: u32 = 50;

/// How the sweep runs.
#[derive(Debug, Clone, Copy)]
pub struct SweepOptions {
    /// Between two looks at what has changed; also how late a change of limits is
    /// noticed where nothing else wakes the destination. Each is a whole sweep,
    /// unless these take more than a fiftieth of the time: then whole sweeps
    /// take that, page by page.
    pub every: Duration,
    /// How long past its planned look a destination may be before it is woken:
    /// longer than a lease, so that a live scheduler is not doubled.
    pub overdue: Duration,
    /// Destinations on a page. Small: what starts meanwhile waits for the
    /// processor as long as a page takes.
    pub page: u32,
    /// Destinations on a page while all jobs are rebuilt, which everybody waits for.
    pub rebuild_page: u32,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(400),
            overdue: Duration::from_millis(1_500),
            page: 250,
            rebuild_page: 1_000,
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
        let mut walk = Walk::from(Instant::now());
        loop {
            if let Err(error) = excused(self.step(&mut walk).await) {
                tracing::warn!(%error, "sweep failed, will run again");
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.pause(walk.page_due.min(walk.look_due)) => {}
            }
        }
    }

    /// The next page of a whole sweep, if its time has come; else a look at what
    /// has changed.
    async fn step(&self, walk: &mut Walk) -> Result<(), Interrupted> {
        let now = Instant::now();
        let next_look = now + self.options.every;
        if now < walk.page_due {
            walk.look_due = next_look;
            return self.sweep(Asked::Marks).await;
        }
        let after = walk.after.take();
        if after.is_none() {
            // The first page has the marks, too.
            walk.look_due = next_look;
            walk.began = now;
        }
        // A sweep that is interrupted begins anew.
        walk.page_due = next_look;
        if self.rebuild().await? {
            return Ok(());
        }
        walk.after = self.page(after, Asked::Overdue).await?;
        walk.page_due = now + now.elapsed() * BREATH;
        if walk.after.is_none() {
            walk.page_due = walk.page_due.max(walk.began + self.options.every);
        }
        Ok(())
    }

    /// Until then, or until a change asks for a look; many changes in a row are
    /// one.
    async fn pause(&self, until: Instant) {
        let changed = async {
            self.store.changed().await;
            tokio::time::sleep(self.options.every / 10).await;
        };
        let _ = tokio::time::timeout_at(until, changed).await;
    }

    /// One whole sweep. In another life of the schedule it rebuilds every job,
    /// and says so only after every wake of the last page. A sweep in which the
    /// schedule goes away ends there: the next one begins anew.
    pub async fn tick(&self) -> Result<(), StoreError> {
        excused(self.sweep(Asked::Overdue).await)
    }

    /// What has changed; a whole sweep in another life of the schedule.
    pub async fn look(&self) -> Result<(), StoreError> {
        excused(self.sweep(Asked::Marks).await)
    }

    async fn sweep(&self, asked: Asked) -> Result<(), Interrupted> {
        if self.rebuild().await? {
            return Ok(());
        }
        self.pages(asked).await
    }

    /// Whether this is another life of the schedule, and all jobs were rebuilt.
    async fn rebuild(&self) -> Result<bool, Interrupted> {
        let ScheduleLife::New(life) = self.schedule.life().await? else {
            return Ok(false);
        };
        self.pages(Asked::Everything).await?;
        match self.schedule.rebuilt(&life).await {
            Ok(()) => tracing::info!("jobs rebuilt from the store"),
            Err(error) => tracing::warn!(%error, "rebuild not noted, will run again"),
        }
        Ok(true)
    }

    async fn pages(&self, asked: Asked) -> Result<(), Interrupted> {
        let mut after = None;
        loop {
            after = self.page(after, asked).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn page(
        &self,
        after: Option<DestinationId>,
        asked: Asked,
    ) -> Result<Option<DestinationId>, Interrupted> {
        let sweep = Sweep {
            after,
            limit: match asked {
                Asked::Everything => self.options.rebuild_page,
                Asked::Overdue | Asked::Marks => self.options.page,
            },
            overdue: self.options.overdue,
            everything: asked == Asked::Everything,
            only_marks: asked == Asked::Marks,
        };
        let page = self.store.sweep(&sweep).await?;
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

/// Who is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Who has work: there is no job.
    Everything,
    /// Who was not looked at when planned, and what has changed.
    Overdue,
    /// What has changed.
    Marks,
}

/// How far the loop is.
struct Walk {
    /// Its next page is after this one; a new sweep if there is none.
    after: Option<DestinationId>,
    began: Instant,
    page_due: Instant,
    look_due: Instant,
}

impl Walk {
    fn from(now: Instant) -> Self {
        Self {
            after: None,
            began: now,
            page_due: now,
            look_due: now,
        }
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

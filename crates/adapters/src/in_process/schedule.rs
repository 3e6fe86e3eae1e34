//! The schedule of the embedded size: [`Jobs`] in memory, under a lock.
//!
//! It is lost with the process, so its one life is new until the first sweep has
//! rebuilt it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::time::Timestamp;
use engine::ports::{Alarm, Finish, Schedule, ScheduleError, ScheduleLife, Taken, Wake};
use tokio::time::Instant;

use super::Jobs;

/// What the jobs are due by. It need not be the time of day.
pub type ScheduleClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Numbers the schedules of this process, so that their tokens differ.
static SCHEDULES: AtomicU64 = AtomicU64::new(0);

/// The jobs of one process.
pub struct InProcessSchedule {
    clock: ScheduleClock,
    jobs: Mutex<Jobs>,
    built: AtomicBool,
    /// Told when a wake makes something due sooner than takers know, so that an
    /// idle scheduler looks at once.
    woken: Alarm,
}

impl InProcessSchedule {
    /// An empty schedule, in a life that is new until it is rebuilt. Its time is the
    /// runtime's: where that is virtual, so is this.
    #[must_use]
    pub fn new() -> Self {
        let began = Instant::now();
        let number = SCHEDULES.fetch_add(1, Ordering::Relaxed);
        Self::on(
            Arc::new(move || Timestamp::from_micros(0) + began.elapsed()),
            format!("in-process-{number}"),
        )
    }

    /// The same on a clock of the caller's, which may be set: jobs keep the times that
    /// they are due at. Tokens begin with the name of its life.
    #[must_use]
    pub fn on(clock: ScheduleClock, life: impl Into<String>) -> Self {
        Self {
            clock,
            jobs: Mutex::new(Jobs::new(life)),
            built: AtomicBool::new(false),
            woken: Alarm::default(),
        }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs().is_empty()
    }

    /// The jobs, and a time read under their lock: read before it, a call
    /// that waited would take a job of a moment ago for one of the future.
    fn jobs_now(&self) -> (MutexGuard<'_, Jobs>, Timestamp) {
        let jobs = self.jobs();
        let now = (self.clock)();
        (jobs, now)
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        // No invariant is broken half-way through: nothing in here panics.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for InProcessSchedule {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InProcessSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("InProcessSchedule");
        debug.field("jobs", &*self.jobs()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Schedule for InProcessSchedule {
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError> {
        let (mut jobs, now) = self.jobs_now();
        Ok(jobs.take(now, max, lease))
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        let (mut jobs, now) = self.jobs_now();
        let known = jobs.first_due();
        let woken = (finishes.iter())
            .filter_map(|finish| jobs.finish(now, finish))
            .min();
        drop(jobs);
        self.woken.tell(known, woken);
        Ok(())
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        let (mut jobs, now) = self.jobs_now();
        let known = jobs.first_due();
        for wake in wakes {
            jobs.wake(now, wake);
        }
        let first = jobs.first_due();
        drop(jobs);
        self.woken.tell(known, first);
        Ok(())
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        Ok(match self.built.load(Ordering::Acquire) {
            true => ScheduleLife::Same,
            false => ScheduleLife::New(self.jobs().life().to_owned()),
        })
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        if life == self.jobs().life() {
            self.built.store(true, Ordering::Release);
        }
        Ok(())
    }

    async fn woken(&self) {
        self.woken.told().await;
    }
}

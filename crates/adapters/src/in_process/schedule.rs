//! The schedule of the embedded size: jobs in memory, by the runtime's clock.
//!
//! The same rules as on Redis, and the same contract suite. It is lost with
//! the process, so its one life is new until the first sweep has rebuilt it.
//! Time is `tokio::time::Instant`: under virtual time it is virtual. Nothing
//! is random and nothing is iterated in hash order, so a run repeats.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::ids::DestinationId;
use engine::ports::{
    Alarm, Finish, NextRun, Schedule, ScheduleError, ScheduleLife, Taken, TakenJob, Wake,
};
use tokio::time::Instant;

/// As far ahead as a job can be, so that adding to an instant cannot overflow.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Numbers the schedules of this process, so that their tokens differ.
static SCHEDULES: AtomicU64 = AtomicU64::new(0);

/// The jobs of one process.
#[derive(Debug)]
pub struct InProcessSchedule {
    /// The name of its one life.
    life: String,
    jobs: Mutex<Jobs>,
    /// Told when a wake makes something due sooner than takers know, so that an
    /// idle scheduler looks at once.
    woken: Alarm,
}

#[derive(Debug, Default)]
struct Jobs {
    by_destination: HashMap<DestinationId, Job>,
    /// The same jobs in the order in which they are due.
    by_due: BTreeSet<(Instant, DestinationId)>,
    next_token: u64,
    built: bool,
}

#[derive(Debug)]
struct Job {
    due: Instant,
    /// Until when a plain wake cannot bring it forward.
    floor: Option<Instant>,
    lease: Option<Lease>,
}

#[derive(Debug)]
struct Lease {
    token: String,
    /// What was asked for since the take.
    woken: Option<Woken>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Look,
    Clear,
}

impl InProcessSchedule {
    /// An empty schedule, in a life that is new until it is rebuilt.
    #[must_use]
    pub fn new() -> Self {
        Self::named(format!(
            "in-process-{}",
            SCHEDULES.fetch_add(1, Ordering::Relaxed)
        ))
    }

    /// The same with a given name for its life, which tokens begin with: for
    /// runs that must repeat to the letter.
    #[must_use]
    pub fn named(life: impl Into<String>) -> Self {
        Self {
            life: life.into(),
            jobs: Mutex::default(),
            woken: Alarm::default(),
        }
    }

    /// The jobs, and a time read under their lock: read before it, a call
    /// that waited would take a job of a moment ago for one of the future.
    fn jobs_now(&self) -> (MutexGuard<'_, Jobs>, Instant) {
        let jobs = self.jobs();
        (jobs, Instant::now())
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

#[async_trait]
impl Schedule for InProcessSchedule {
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError> {
        let (mut jobs, now) = self.jobs_now();
        let due: Vec<_> = jobs
            .by_due
            .iter()
            .take(max)
            .take_while(|(due, _)| *due <= now)
            .copied()
            .collect();
        let taken = due
            .into_iter()
            .filter_map(|(due, destination)| {
                let token = format!("{}-{}", self.life, jobs.next_token);
                jobs.next_token += 1;
                jobs.reschedule(destination, after(now, lease));
                let job = jobs.by_destination.get_mut(&destination)?;
                let previous = job.lease.replace(Lease {
                    token: token.clone(),
                    woken: None,
                });
                Some(TakenJob {
                    destination,
                    token,
                    lapsed: previous.is_some(),
                    overdue: now.saturating_duration_since(due),
                })
            })
            .collect();
        let next_due = jobs
            .by_due
            .first()
            .map(|(due, _)| due.saturating_duration_since(now));
        Ok(Taken {
            jobs: taken,
            next_due,
        })
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        let (mut jobs, now) = self.jobs_now();
        let known = jobs.first_due();
        let woken = (finishes.iter())
            .filter_map(|finish| jobs.finish(finish, now))
            .min();
        drop(jobs);
        self.woken.tell(known, woken);
        Ok(())
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        let (mut jobs, now) = self.jobs_now();
        let known = jobs.first_due();
        for wake in wakes {
            jobs.wake(wake, now);
        }
        let first = jobs.first_due();
        drop(jobs);
        self.woken.tell(known, first);
        Ok(())
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        Ok(if self.jobs().built {
            ScheduleLife::Same
        } else {
            ScheduleLife::New(self.life.clone())
        })
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        if life == self.life {
            self.jobs().built = true;
        }
        Ok(())
    }

    async fn woken(&self) {
        self.woken.told().await;
    }
}

impl Jobs {
    fn first_due(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Ends a lease. Returns when the job runs next if a wake under the lease
    /// decided that; all else the caller knows.
    fn finish(&mut self, finish: &Finish, now: Instant) -> Option<Instant> {
        let job = self.by_destination.get_mut(&finish.destination)?;
        let lease = (job.lease).take_if(|lease| lease.token == finish.token)?;
        let (asked, floor) = match finish.next {
            NextRun::After { delay, floor } => (
                Some(after(now, delay)),
                floor.map(|floor| after(now, floor)),
            ),
            NextRun::Remove => (None, None),
        };
        job.floor = floor.filter(|_| lease.woken != Some(Woken::Clear));
        // Woken while we looked: we may not have seen why.
        let woken = lease.woken.map(|_| job.floor.unwrap_or(now));
        match [asked, woken].into_iter().flatten().min() {
            Some(due) => self.reschedule(finish.destination, due),
            None => self.remove(finish.destination),
        }
        woken.filter(|woken| asked.is_none_or(|asked| *woken < asked))
    }

    fn wake(&mut self, wake: &Wake, now: Instant) {
        let at = after(now, wake.after);
        let Some(job) = self.by_destination.get_mut(&wake.destination) else {
            let job = Job {
                due: at,
                floor: None,
                lease: None,
            };
            self.by_due.insert((at, wake.destination));
            self.by_destination.insert(wake.destination, job);
            return;
        };
        if wake.clear_floor {
            job.floor = None;
        }
        let leased = job.lease.is_some();
        if let Some(lease) = &mut job.lease {
            // Once asked, `Clear` stays.
            if wake.clear_floor {
                lease.woken = Some(Woken::Clear);
            } else {
                lease.woken.get_or_insert(Woken::Look);
            }
        }
        let due = job.due.min(job.floor.map_or(at, |floor| floor.max(at)));
        if wake.clear_floor || !leased {
            self.reschedule(wake.destination, due);
        }
    }

    fn reschedule(&mut self, destination: DestinationId, due: Instant) {
        if let Some(job) = self.by_destination.get_mut(&destination) {
            self.by_due.remove(&(job.due, destination));
            job.due = due;
            self.by_due.insert((due, destination));
        }
    }

    fn remove(&mut self, destination: DestinationId) {
        if let Some(job) = self.by_destination.remove(&destination) {
            self.by_due.remove(&(job.due, destination));
        }
    }
}

fn after(now: Instant, delay: Duration) -> Instant {
    now + delay.min(FAR)
}

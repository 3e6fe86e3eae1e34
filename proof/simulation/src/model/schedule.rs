//! The model of the schedule: jobs by due time, on a clock of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{
    Alarm, Finish, NextRun, Schedule, ScheduleError, ScheduleLife, Taken, TakenJob, Wake,
};

use super::clock::{ClockStep, ModelClock};

/// A schedule in memory. It never fails by itself.
#[derive(Debug)]
pub struct ModelSchedule {
    name: String,
    state: Mutex<State>,
    /// Told when a wake makes something due sooner than takers know.
    woken: Alarm,
}

#[derive(Debug, Clone)]
struct State {
    clock: ModelClock,
    /// Counts its lives: each begins without jobs.
    life: u64,
    built: bool,
    /// Counts the takes of all lives.
    last_token: u64,
    jobs: Jobs,
}

#[derive(Debug, Clone, Default)]
struct Jobs {
    by_destination: BTreeMap<DestinationId, Job>,
    /// The same jobs in the order in which they are due.
    by_due: BTreeSet<(Timestamp, DestinationId)>,
}

#[derive(Debug, Clone)]
struct Job {
    due: Timestamp,
    /// Until when a plain wake cannot bring it forward.
    floor: Option<Timestamp>,
    lease: Option<Lease>,
}

#[derive(Debug, Clone)]
struct Lease {
    token: String,
    /// What was asked for since the take.
    asked: Asked,
}

/// What wakes under a lease have asked for; more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Nothing,
    Look,
    Clear,
}

impl ModelSchedule {
    /// An empty schedule, in a life that is new until it is rebuilt. Tokens
    /// begin with `name`, so that those of two schedules differ.
    #[must_use]
    pub fn new(name: impl Into<String>, base: Timestamp) -> Self {
        Self {
            name: name.into(),
            state: Mutex::new(State {
                clock: ModelClock::new(base),
                life: 1,
                built: false,
                last_token: 0,
                jobs: Jobs::default(),
            }),
            woken: Alarm::default(),
        }
    }

    /// Another schedule in the same state: what becomes of either is not seen
    /// by the other.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            name: self.name.clone(),
            state: Mutex::new(self.state().clone()),
            woken: Alarm::default(),
        }
    }

    /// Sets the schedule's clock. Jobs keep the times that they are due at.
    pub fn step_clock(&self, step: ClockStep) {
        self.state().clock.step(step);
    }

    /// Loses all jobs, and begins another life.
    pub fn wipe(&self) {
        let mut state = self.state();
        state.jobs = Jobs::default();
        state.life += 1;
        state.built = false;
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().jobs.by_destination.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`Schedule::take`], but only of the due jobs that `wanted` names: to
    /// follow a schedule that chose otherwise among jobs due at one time.
    pub fn take_only(
        &self,
        max: usize,
        lease: Duration,
        wanted: impl Fn(DestinationId) -> bool,
    ) -> Taken {
        let mut state = self.state();
        let now = state.clock.now();
        let due = state.jobs.by_due.iter().take_while(|(due, _)| *due <= now);
        let due = due.filter(|(_, destination)| wanted(*destination));
        let due: Vec<_> = due.take(max).copied().collect();
        let mut jobs = Vec::with_capacity(due.len());
        for (due, destination) in due {
            state.last_token += 1;
            let token = format!("{}-{}", state.life(&self.name), state.last_token);
            let lapsed = state.jobs.lease(destination, token.clone(), now + lease);
            jobs.push(TakenJob {
                destination,
                token,
                lapsed,
                overdue: now.since(due),
            });
        }
        let next_due = state.jobs.by_due.first().map(|(due, _)| due.since(now));
        Taken { jobs, next_due }
    }

    /// How many jobs are due now.
    #[must_use]
    pub fn due(&self) -> usize {
        let state = self.state();
        let now = state.clock.now();
        let due = state.jobs.by_due.iter().take_while(|(due, _)| *due <= now);
        due.count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn life(&self, name: &str) -> String {
        format!("{name}-{}", self.life)
    }
}

#[async_trait]
impl Schedule for ModelSchedule {
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError> {
        Ok(self.take_only(max, lease, |_| true))
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        let mut state = self.state();
        let now = state.clock.now();
        let known = state.jobs.first_due();
        let woken = (finishes.iter())
            .filter_map(|finish| state.jobs.finish(finish, now))
            .min();
        drop(state);
        self.woken.tell(known, woken);
        Ok(())
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        let mut state = self.state();
        let now = state.clock.now();
        let known = state.jobs.first_due();
        for wake in wakes {
            state.jobs.wake(wake, now);
        }
        let first = state.jobs.first_due();
        drop(state);
        self.woken.tell(known, first);
        Ok(())
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        let state = self.state();
        Ok(match state.built {
            true => ScheduleLife::Same,
            false => ScheduleLife::New(state.life(&self.name)),
        })
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        let mut state = self.state();
        state.built |= life == state.life(&self.name);
        Ok(())
    }

    async fn woken(&self) {
        self.woken.told().await;
    }
}

impl Jobs {
    /// Takes a job until `until`; whether its previous lease was lost.
    fn lease(&mut self, destination: DestinationId, token: String, until: Timestamp) -> bool {
        self.reschedule(destination, until);
        let asked = Asked::Nothing;
        let job = self.by_destination.get_mut(&destination);
        job.is_some_and(|job| job.lease.replace(Lease { token, asked }).is_some())
    }

    fn first_due(&self) -> Option<Timestamp> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Ends a lease. Returns when the job runs next if a wake under the lease
    /// decided that; all else the caller knows.
    fn finish(&mut self, finish: &Finish, now: Timestamp) -> Option<Timestamp> {
        let job = self.by_destination.get_mut(&finish.destination)?;
        let lease = (job.lease).take_if(|lease| lease.token == finish.token)?;
        let (next, floor) = match finish.next {
            NextRun::After { delay, floor } => (Some(now + delay), floor.map(|floor| now + floor)),
            NextRun::Remove => (None, None),
        };
        job.floor = floor.filter(|_| lease.asked != Asked::Clear);
        // Woken while we looked: we may not have seen why.
        let woken = (lease.asked > Asked::Nothing).then(|| job.floor.unwrap_or(now).max(now));
        match next.into_iter().chain(woken).min() {
            Some(due) => self.reschedule(finish.destination, due),
            None => self.remove(finish.destination),
        }
        woken.filter(|woken| next.is_none_or(|next| *woken < next))
    }

    fn wake(&mut self, wake: &Wake, now: Timestamp) {
        let at = now + wake.after;
        let job = self.by_destination.entry(wake.destination);
        let job = job.or_insert_with(|| Job {
            due: at,
            floor: None,
            lease: None,
        });
        if wake.clear_floor {
            job.floor = None;
        }
        let is_leased = job.lease.is_some();
        if let Some(lease) = &mut job.lease {
            lease.asked = lease.asked.max(match wake.clear_floor {
                true => Asked::Clear,
                false => Asked::Look,
            });
        }
        if wake.clear_floor || !is_leased {
            let due = job.due.min(job.floor.map_or(at, |floor| floor.max(at)));
            self.reschedule(wake.destination, due);
        }
    }

    fn reschedule(&mut self, destination: DestinationId, due: Timestamp) {
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

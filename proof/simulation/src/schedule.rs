//! The shipped schedule of the embedded size, on a clock that can be set, and what
//! strikes it: it loses all jobs, as Redis does when somebody flushes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adapters::in_process::{InProcessSchedule, ScheduleClock};
use async_trait::async_trait;
use domain::time::Timestamp;
use engine::ports::{Finish, Schedule, ScheduleError, ScheduleLife, Taken, Wake};
use tokio::sync::Notify;

use crate::model::{ClockStep, ModelClock};

/// The jobs of a world.
pub struct SimulatedSchedule {
    name: String,
    clock: Arc<Mutex<ModelClock>>,
    life: Mutex<Life>,
    /// Whoever waits for a wake waits for one in the life that there is.
    wiped: Notify,
}

struct Life {
    number: u64,
    schedule: Arc<InProcessSchedule>,
}

impl SimulatedSchedule {
    /// An empty schedule whose clock shows `base`, in a life that is new until it is
    /// rebuilt. Tokens begin with `name`, so that those of two schedules differ.
    #[must_use]
    pub fn new(name: impl Into<String>, base: Timestamp) -> Self {
        let (name, clock) = (name.into(), Arc::new(Mutex::new(ModelClock::new(base))));
        let life = Mutex::new(Life::new(1, &name, &clock));
        Self {
            name,
            clock,
            life,
            wiped: Notify::new(),
        }
    }

    /// Sets its clock. Jobs keep the times that they are due at.
    pub fn step_clock(&self, step: ClockStep) {
        locked(&self.clock).step(step);
    }

    /// Loses all jobs, and begins another life.
    pub fn wipe(&self) {
        let mut life = locked(&self.life);
        *life = Life::new(life.number + 1, &self.name, &self.clock);
        self.wiped.notify_waiters();
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.living().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.living().is_empty()
    }

    fn living(&self) -> Arc<InProcessSchedule> {
        Arc::clone(&locked(&self.life).schedule)
    }
}

impl Life {
    fn new(number: u64, name: &str, clock: &Arc<Mutex<ModelClock>>) -> Self {
        let clock = Arc::clone(clock);
        let clock: ScheduleClock = Arc::new(move || locked(&clock).now());
        Self {
            number,
            schedule: Arc::new(InProcessSchedule::on(clock, format!("{name}-{number}"))),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Schedule for SimulatedSchedule {
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError> {
        self.living().take(max, lease).await
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        self.living().finish(finishes).await
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        self.living().wake(wakes).await
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        self.living().life().await
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        self.living().rebuilt(life).await
    }

    async fn woken(&self) {
        loop {
            let living = self.living();
            tokio::select! {
                biased;
                () = living.woken() => return,
                () = self.wiped.notified() => {}
            }
        }
    }
}

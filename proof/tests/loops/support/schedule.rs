//! A schedule that hands out what a test puts in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Finish, Schedule, ScheduleError, ScheduleLife, Taken, TakenJob, Wake};

use super::script::Script;
use super::{Event, Journal, destination};

pub(crate) struct FakeSchedule {
    journal: Arc<Journal>,
    due: Arc<Mutex<VecDeque<Vec<TakenJob>>>>,
    /// What is due, unless the test answers otherwise.
    pub(crate) take: Script<(), Result<Taken, ScheduleError>>,
    pub(crate) finish: Script<(), Result<(), ScheduleError>>,
    pub(crate) wake: Script<Vec<Wake>, Result<(), ScheduleError>>,
    pub(crate) life: Script<(), Result<ScheduleLife, ScheduleError>>,
    pub(crate) rebuilt: Script<(), Result<(), ScheduleError>>,
}

impl FakeSchedule {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        let due = Arc::new(Mutex::new(VecDeque::<Vec<TakenJob>>::new()));
        let jobs = Arc::clone(&due);
        let take = move |()| {
            let jobs = jobs.lock().unwrap().pop_front().unwrap_or_default();
            let next_due = None;
            Ok(Taken { jobs, next_due })
        };
        Self {
            journal,
            due,
            take: Script::new(take),
            finish: Script::new(|()| Ok(())),
            wake: Script::new(|_| Ok(())),
            life: Script::new(|()| Ok(ScheduleLife::Same)),
            rebuilt: Script::new(|()| Ok(())),
        }
    }

    /// One more take will find these destinations due.
    pub(crate) fn due(&self, destinations: &[u128]) {
        self.push(destinations, false);
    }

    /// The same, after a lease that ended by itself.
    pub(crate) fn lapsed(&self, destinations: &[u128]) {
        self.push(destinations, true);
    }

    fn push(&self, destinations: &[u128], lapsed: bool) {
        let jobs = (destinations.iter())
            .map(|number| TakenJob {
                destination: destination(*number),
                token: format!("token of {number}"),
                lapsed,
                overdue: Duration::ZERO,
            })
            .collect();
        self.due.lock().unwrap().push_back(jobs);
    }
}

/// It is not there.
pub(crate) fn schedule_away() -> ScheduleError {
    ScheduleError("away".to_owned())
}

#[async_trait]
impl Schedule for FakeSchedule {
    async fn take(&self, _max: usize, _lease: Duration) -> Result<Taken, ScheduleError> {
        self.journal.note(Event::Take);
        self.take.ask(()).await
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        self.journal.note(Event::Finish(finishes.to_vec()));
        self.finish.ask(()).await
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        self.journal.note(Event::Wake(wakes.to_vec()));
        self.wake.ask(wakes.to_vec()).await
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        self.life.ask(()).await
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        self.journal.note(Event::Rebuilt(life.to_owned()));
        self.rebuilt.ask(()).await
    }
}

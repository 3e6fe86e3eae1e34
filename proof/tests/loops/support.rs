//! A world of fakes.

mod counted;
mod journal;
mod queue;
mod schedule;
mod script;
mod sender;
mod store;
mod warned;

use std::sync::Arc;
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::Vault;
use engine::scheduler::{Scheduler, SchedulerOptions};
use engine::worker::{Worker, WorkerOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use counted::Counted;
pub(crate) use journal::{Event, Journal};
pub(crate) use queue::FakeQueue;
pub(crate) use schedule::{FakeSchedule, schedule_away};
pub(crate) use sender::{FakeSender, answer};
pub(crate) use store::{
    FakeStore, T0, corrupt, decided, decided_failing, decided_short_of_places, member, started,
    store_away,
};
pub(crate) use warned::Warned;

/// Longer than any test.
pub(crate) const FOREVER: Duration = Duration::from_secs(1_000_000);

/// Milliseconds.
pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The destination number `number`.
pub(crate) fn destination(number: u128) -> DestinationId {
    DestinationId(Uuid::from_u128(number))
}

/// A permit of destination 1, for the attempt and under the permit number
/// `number`: its slot is now, its deadline in two seconds, both at `T0`.
pub(crate) fn permit(number: i64) -> Permit {
    permit_of(1, number)
}

/// The same for another destination.
pub(crate) fn permit_of(of: u128, number: i64) -> Permit {
    Permit {
        destination: destination(of),
        attempt: AttemptId(number),
        number: PermitNumber(number),
        epoch: Epoch(1),
        not_before: T0,
        deadline: T0 + Duration::from_secs(2),
    }
}

/// The same permit in a slot that opens so long after `T0`.
pub(crate) fn in_slot(permit: Permit, after: Duration) -> Permit {
    let not_before: Timestamp = T0 + after;
    Permit {
        not_before,
        deadline: not_before + Duration::from_secs(2),
        ..permit
    }
}

/// All the fakes, sharing one journal.
pub(crate) struct World {
    pub(crate) journal: Arc<Journal>,
    pub(crate) store: Arc<FakeStore>,
    pub(crate) schedule: Arc<FakeSchedule>,
    pub(crate) queue: Arc<FakeQueue>,
    pub(crate) sender: Arc<FakeSender>,
    pub(crate) shutdown: CancellationToken,
}

impl World {
    pub(crate) fn new() -> Self {
        let journal = Arc::new(Journal::new());
        Self {
            store: Arc::new(FakeStore::new(Arc::clone(&journal))),
            schedule: Arc::new(FakeSchedule::new(Arc::clone(&journal))),
            queue: Arc::new(FakeQueue::new(Arc::clone(&journal))),
            sender: Arc::new(FakeSender::new(Arc::clone(&journal))),
            journal,
            shutdown: CancellationToken::new(),
        }
    }

    pub(crate) fn scheduler(&self) -> Scheduler {
        let (store, schedule) = (self.store.clone(), self.schedule.clone());
        Scheduler::new(store, schedule, self.queue.clone(), scheduler_options())
    }

    /// Begins a worker with 32 places, and lets it introduce itself and
    /// subscribe.
    pub(crate) async fn worker(&self) -> JoinHandle<()> {
        let options = WorkerOptions {
            places: 32,
            ..WorkerOptions::default()
        };
        self.worker_with(options).await
    }

    /// The same with options of its own.
    pub(crate) async fn worker_with(&self, options: WorkerOptions) -> JoinHandle<()> {
        let worker = Worker::new(
            self.store.clone(),
            self.schedule.clone(),
            self.queue.clone(),
            self.sender.clone(),
            options,
        );
        let running = tokio::spawn(worker.run(self.shutdown.clone()));
        settle().await;
        running
    }

    /// The same with keys to the destinations' secrets.
    pub(crate) async fn worker_opening(&self, vault: impl Vault + 'static) -> JoinHandle<()> {
        let worker = Worker::new(
            self.store.clone(),
            self.schedule.clone(),
            self.queue.clone(),
            self.sender.clone(),
            WorkerOptions::default(),
        );
        let worker = worker.opening_with(Arc::new(vault));
        let running = tokio::spawn(worker.run(self.shutdown.clone()));
        settle().await;
        running
    }

    /// Takes the fakes' notes of all calls so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.journal.events()
    }
}

/// What a scheduler does where the test does not say.
pub(crate) fn scheduler_options() -> SchedulerOptions {
    SchedulerOptions::default()
}

/// Lets every task go as far as it can without time passing.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Lets so much time pass, and every task go as far as it can.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

//! The load client: hands events in when they are due, however the answers
//! come, over a bounded number of connections.
//!
//! It is one thread of its own, so that its CPU is told apart and nothing in it
//! needs a lock. An event that finds every connection busy waits in a bounded
//! queue; that it was late is in the report, never hidden by sending less.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::connection;
use super::requests::Way;
use super::settings::Ingest;
use super::shapes::Steps;
use crate::chaos::boottime_us;

/// Requests that wait for a connection.
const MAX_QUEUED: usize = 100_000;

/// Bulk requests at the same time; the API reads four of one tenant.
const MAX_BULKS: usize = 4;

/// How long requests under way may take after the last was sent.
const LAST_ANSWERS: Duration = Duration::from_secs(120);

/// The same, where somebody waits for the report.
const ANSWERS_AFTER_STOP: Duration = Duration::from_secs(5);

/// Where events go, and in whose name.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Such as `127.0.0.1:8080`; connections go to each in turn.
    pub(crate) addresses: Vec<String>,
    /// The destinations' ids, and the tenant of each.
    pub(crate) destinations: Vec<(Uuid, u16)>,
    /// The tenants' keys.
    pub(crate) keys: Vec<String>,
    pub(crate) payload_bytes: u32,
    pub(crate) ingest: Ingest,
    pub(crate) connections: u32,
}

/// One event that was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) destination: u32,
    /// By the shape, since the machine started.
    pub(crate) due_us: i64,
    /// When its body was made; zero if it never was.
    pub(crate) sent_us: i64,
    /// When the API said so; zero if it did not.
    pub(crate) accepted_us: i64,
}

/// Counted while it runs, for the line of progress.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) accepted: AtomicU64,
    /// Answered, but not accepted.
    pub(crate) refused: AtomicU64,
}

/// A run of events for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) way: Way,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) tenant: u16,
}

/// What the API said of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    /// With the status of the problem.
    Refused(u16),
}

/// What there is to report in the end.
pub(crate) struct Loaded {
    /// Every event that was due.
    pub(crate) sent: Vec<Sent>,
    /// Events that were refused, by the answer's status.
    pub(crate) refusals: BTreeMap<u16, u64>,
}

/// What the tasks of the client's thread share.
pub(super) struct Client {
    pub(super) target: Target,
    pub(super) tally: Arc<Tally>,
    pub(super) sent: RefCell<Vec<Sent>>,
    /// Events that were refused, by the answer's status.
    pub(super) refusals: RefCell<BTreeMap<u16, u64>>,
    /// The API reads few bulk bodies at a time.
    pub(super) bulks: Semaphore,
    jobs: RefCell<VecDeque<Job>>,
    /// There is a job, or there will be none.
    work: Notify,
    room: Notify,
    closed: Cell<bool>,
}

impl Client {
    /// One that has not dialled.
    pub(super) fn new(target: Target, tally: Arc<Tally>) -> Rc<Self> {
        Rc::new(Self {
            target,
            tally,
            sent: RefCell::default(),
            refusals: RefCell::default(),
            bulks: Semaphore::new(MAX_BULKS),
            jobs: RefCell::default(),
            work: Notify::new(),
            room: Notify::new(),
            closed: Cell::new(false),
        })
    }

    /// Dials, says when it begins and where the kernel counts for it, sends
    /// every step, and returns what became of them.
    pub(super) async fn run(
        self: Rc<Self>,
        steps: Steps,
        stop: CancellationToken,
        ready: oneshot::Sender<(PathBuf, i64)>,
    ) -> anyhow::Result<Loaded> {
        let mut connections = JoinSet::new();
        let addresses = self.target.addresses.iter().cycle();
        for address in addresses.take(self.target.connections as usize) {
            let opened = connection::open(address).await?;
            let work = connection::work(Rc::clone(&self), opened, address.clone());
            connections.spawn_local(work);
        }
        let began = (Instant::now(), boottime_us());
        let thread = std::fs::read_link("/proc/thread-self");
        let stat = std::path::Path::new("/proc").join(thread.unwrap_or_default());
        // Nobody waits for it where the run was given up already.
        let _ = ready.send((stat.join("stat"), began.1));
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.pace(steps, began) => {}
        }
        self.closed.set(true);
        self.work.notify_waiters();
        // What is not answered by then is in the report as unanswered.
        let mut answered = pin!(async { while connections.join_next().await.is_some() {} });
        tokio::select! {
            biased;
            _ = timeout(LAST_ANSWERS, &mut answered) => {}
            () = stop.cancelled() => {
                self.jobs.borrow_mut().clear();
                let _ = timeout(ANSWERS_AFTER_STOP, answered).await;
            }
        }
        Ok(Loaded {
            sent: self.sent.take(),
            refusals: self.refusals.take(),
        })
    }

    /// Queues each step when it is due.
    async fn pace(&self, mut steps: Steps, (began, began_us): (Instant, i64)) {
        let mut next = steps.next();
        while let Some(step) = next {
            sleep_until(began + Duration::from_micros(step.at_us)).await;
            let now_us = u64::try_from(boottime_us() - began_us).unwrap_or(0);
            // All that is due by now, so that one wake-up serves for many.
            let mut due: Option<Job> = None;
            while let Some(step) = next.filter(|step| step.at_us <= now_us) {
                for _ in 0..step.count {
                    let due_us = began_us + step.at_us as i64;
                    let job = self.take_in(step.destination, due_us, step.count);
                    due = match due.and_then(|before| together(before, job)) {
                        Some(both) => Some(both),
                        None => {
                            self.queue(due.replace(job)).await;
                            due
                        }
                    };
                }
                next = steps.next();
            }
            self.queue(due).await;
        }
    }

    /// Writes an event down; a job of it alone.
    fn take_in(&self, destination: u32, due_us: i64, of: u32) -> Job {
        let mut sent = self.sent.borrow_mut();
        let first = u32::try_from(sent.len()).unwrap_or(u32::MAX);
        sent.push(Sent {
            destination,
            due_us,
            sent_us: 0,
            accepted_us: 0,
        });
        let way = match self.target.ingest {
            Ingest::Auto if of > 1 => Way::Bulk,
            Ingest::Auto | Ingest::Single => Way::Single,
            Ingest::Batch => Way::Batch,
            Ingest::Bulk => Way::Bulk,
        };
        Job {
            way,
            first,
            count: 1,
            tenant: self.target.destinations[destination as usize].1,
        }
    }

    async fn queue(&self, job: Option<Job>) {
        let Some(job) = job else { return };
        while self.jobs.borrow().len() >= MAX_QUEUED {
            self.room.notified().await;
        }
        let mut jobs = self.jobs.borrow_mut();
        // What waits anyway may as well go together.
        if let Some(last) = jobs.back_mut()
            && let Some(both) = together(*last, job)
        {
            *last = both;
            return;
        }
        jobs.push_back(job);
        drop(jobs);
        self.work.notify_one();
    }

    /// The next job; `None` when there will be no more.
    pub(super) async fn job(&self) -> Option<Job> {
        loop {
            let job = self.jobs.borrow_mut().pop_front();
            if job.is_some() {
                self.room.notify_one();
                return job;
            }
            if self.closed.get() {
                return None;
            }
            self.work.notified().await;
        }
    }

    /// The API's answer to one event.
    pub(super) fn answered(&self, event: u32, answer: Answer) {
        if let Answer::Refused(status) = answer {
            self.tally.refused.fetch_add(1, Ordering::Relaxed);
            *self.refusals.borrow_mut().entry(status).or_default() += 1;
            return;
        }
        self.tally.accepted.fetch_add(1, Ordering::Relaxed);
        if let Some(sent) = self.sent.borrow_mut().get_mut(event as usize) {
            sent.accepted_us = boottime_us();
        }
    }
}

/// Both in one request, where the way allows.
fn together(before: Job, next: Job) -> Option<Job> {
    let fits = before.way == next.way
        && before.first + before.count == next.first
        && before.tenant == next.tenant
        && before.count + next.count <= before.way.most();
    fits.then_some(Job {
        count: before.count + next.count,
        ..before
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_tenant_go_together_as_far_as_the_way_allows() {
        let job = |way, first, count, tenant| Job {
            way,
            first,
            count,
            tenant,
        };
        let batch = |first, count| job(Way::Batch, first, count, 0);
        assert_eq!(
            together(batch(0, 999), batch(999, 1)),
            Some(batch(0, 1_000))
        );
        assert_eq!(together(batch(0, 1_000), batch(1_000, 1)), None);
        assert_eq!(together(batch(0, 1), job(Way::Batch, 1, 1, 1)), None);
        let single = |first| job(Way::Single, first, 1, 0);
        assert_eq!(together(single(0), single(1)), None);
        assert_eq!(together(single(0), job(Way::Bulk, 1, 1, 0)), None);
    }
}

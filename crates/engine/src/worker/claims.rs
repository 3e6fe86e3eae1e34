//! Claims of many permits in one statement.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::WorkerId;
use domain::permit::Permit;
use domain::time::Timestamp;
use metrics::{Counter, Histogram};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ports::{ClaimAnswer, MAX_BATCHES, MAX_HEAD_START, MAX_ROWS, Schedule, Store};
use crate::store_clock::SharedClock;
use crate::wake::wake_freed;
use crate::worker::identity::Identity;

/// Asks for starts. Clones share the statement.
#[derive(Clone)]
pub(super) struct Claims {
    requests: mpsc::Sender<Request>,
}

/// What is claimed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Requests of one event.
    Starts,
    /// Batches.
    Batches,
}

impl Kind {
    /// Permits in the first statement.
    const fn first(self) -> usize {
        match self {
            Self::Starts => MAX_ROWS,
            Self::Batches => FIRST_BATCHES,
        }
    }

    /// Permits in one statement.
    const fn most(self) -> usize {
        match self {
            Self::Starts => MAX_ROWS,
            Self::Batches => MAX_BATCHES,
        }
    }
}

/// Batches of the first statement: nobody knows yet how long they take.
const FIRST_BATCHES: usize = 2;

/// What claiming batches may take before fewer of them are claimed together: the
/// least that a worker may take to its first byte is twice this, and what is late
/// is not sent.
const SLOW: Duration = Duration::from_millis(50);

/// What it may take for more of them to be claimed together.
const FAST: Duration = Duration::from_millis(20);

struct Request {
    permit: Permit,
    answer: oneshot::Sender<Claimed>,
}

/// One answer, and what the delivery needs to know about its making.
pub(super) struct Claimed {
    /// What the store said.
    pub(super) answer: ClaimAnswer,
    /// Under which identity it was asked.
    pub(super) worker: WorkerId,
    /// Before the statement that reads the clock was sent: no claim is dated
    /// earlier.
    pub(super) asked_at: Instant,
    /// How far ahead of the store's clock the claim is dated.
    pub(super) ahead: Duration,
}

struct Loop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    clock: Arc<SharedClock>,
    identity: Arc<Identity>,
    requests: mpsc::Receiver<Request>,
    kind: Kind,
    /// Permits in the next statement, at most.
    most: usize,
    /// From a slot to its claim, and how many there were: looked up once.
    late: Histogram,
    starts: Counter,
}

impl Claims {
    /// Starts the loop; it ends when the last clone is dropped.
    pub(super) fn spawn(
        tasks: &mut JoinSet<()>,
        (store, schedule): (Arc<dyn Store>, Arc<dyn Schedule>),
        clock: Arc<SharedClock>,
        identity: Arc<Identity>,
        kind: Kind,
    ) -> Self {
        let (sender, requests) = mpsc::channel(MAX_ROWS);
        let back = Loop {
            store,
            schedule,
            clock,
            identity,
            requests,
            kind,
            most: kind.first(),
            late: metrics::histogram!("paceline_start_late_seconds"),
            starts: metrics::counter!("paceline_starts_total"),
        };
        tasks.spawn(back.run());
        Self { requests: sender }
    }

    /// Claims one start. `None` if the store could not be asked: then nothing
    /// may be sent, for the claim may have been committed.
    pub(super) async fn claim(&self, permit: Permit) -> Option<Claimed> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request { permit, answer }).await.ok()?;
        answered.await.ok()
    }
}

impl Loop {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.requests.recv_many(&mut batch, self.most).await > 0 {
            self.tick(std::mem::take(&mut batch)).await;
        }
    }

    /// One statement.
    async fn tick(&mut self, batch: Vec<Request>) {
        let permits: Vec<_> = batch.iter().map(|request| request.permit).collect();
        let worker = self.identity.seen().await;
        let asked_at = Instant::now();
        metrics::histogram!("paceline_claim_batch_permits").record(permits.len() as f64);
        let claimed = match self.kind {
            Kind::Starts => self.store.claim_starts(worker, &permits).await,
            Kind::Batches => self.store.claim_batches(worker, &permits).await,
        };
        self.adapt(asked_at.elapsed());
        metrics::histogram!("paceline_claim_seconds").record(asked_at.elapsed());
        match claimed {
            Ok(claims) => {
                // Composing comes before the statement that reads the clock.
                let asked_at = asked_at + claims.composed_for;
                self.note_lateness(&permits, &claims.answers);
                if let Some(step) = self.clock.sample(asked_at, claims.now) {
                    self.identity.clock_stepped(step);
                }
                for (request, answer) in batch.into_iter().zip(claims.answers) {
                    let claimed = Claimed {
                        ahead: ahead(&answer, claims.now),
                        answer,
                        worker,
                        asked_at,
                    };
                    // Nobody waits any more: the start becomes unknown.
                    let _ = request.answer.send(claimed);
                }
                wake_freed(self.schedule.as_ref(), &claims.wakes).await;
            }
            Err(error) => {
                tracing::warn!(%error, permits = permits.len(), "starts not claimed");
            }
        }
    }
}

impl Loop {
    /// By the store's clock: what a limit loses in each period.
    fn note_lateness(&self, permits: &[Permit], answers: &[ClaimAnswer]) {
        for (permit, answer) in permits.iter().zip(answers) {
            if let ClaimAnswer::Started(start) = answer {
                let late = start.claimed_at.since(permit.not_before);
                self.late.record(late);
                self.starts.increment(1);
            }
        }
    }

    /// Fewer batches together where composing them is slow.
    fn adapt(&mut self, took: Duration) {
        self.most = match self.kind {
            Kind::Starts => self.kind.most(),
            Kind::Batches if took > SLOW => (self.most / 2).max(1),
            Kind::Batches if took < FAST => (self.most * 2).min(self.kind.most()),
            Kind::Batches => self.most,
        };
    }
}

/// How far ahead a claim is dated: by the store's clock alone.
fn ahead(answer: &ClaimAnswer, now: Timestamp) -> Duration {
    match answer {
        ClaimAnswer::Started(start) => start.claimed_at.since(now).min(MAX_HEAD_START),
        ClaimAnswer::Early(_) | ClaimAnswer::Skipped | ClaimAnswer::Refused => Duration::ZERO,
    }
}

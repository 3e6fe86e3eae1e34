//! Claims of many permits in one statement.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::WorkerId;
use domain::permit::Permit;
use domain::time::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ports::{ClaimAnswer, MAX_HEAD_START, MAX_ROWS, Schedule, Store};
use crate::store_clock::SharedClock;
use crate::wake::wake_freed;
use crate::worker::identity::Identity;

/// Asks for starts. Clones share the statement.
#[derive(Clone)]
pub(super) struct Claims {
    requests: mpsc::Sender<Request>,
}

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
    /// Before the statement was sent: no start is recorded earlier.
    pub(super) asked_at: Instant,
    /// How long after its claim the recorded start is.
    pub(super) ahead: Duration,
}

struct Loop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    clock: Arc<SharedClock>,
    identity: Arc<Identity>,
    requests: mpsc::Receiver<Request>,
}

impl Claims {
    /// Starts the loop; it ends when the last clone is dropped.
    pub(super) fn spawn(
        tasks: &mut JoinSet<()>,
        (store, schedule): (Arc<dyn Store>, Arc<dyn Schedule>),
        clock: Arc<SharedClock>,
        identity: Arc<Identity>,
    ) -> Self {
        let (sender, requests) = mpsc::channel(MAX_ROWS);
        let back = Loop {
            store,
            schedule,
            clock,
            identity,
            requests,
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
        while self.requests.recv_many(&mut batch, MAX_ROWS).await > 0 {
            self.tick(std::mem::take(&mut batch)).await;
        }
    }

    /// One statement.
    async fn tick(&self, batch: Vec<Request>) {
        let permits: Vec<_> = batch.iter().map(|request| request.permit).collect();
        let worker = self.identity.current();
        let asked_at = Instant::now();
        metrics::histogram!("paceline_claim_batch_permits").record(permits.len() as f64);
        let claimed = self.store.claim_starts(worker, &permits).await;
        metrics::histogram!("paceline_claim_seconds").record(asked_at.elapsed());
        match claimed {
            Ok(claims) => {
                note_lateness(&permits, &claims.answers);
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

/// How far ahead of the claim a start is recorded: by the store's clock alone.
fn ahead(answer: &ClaimAnswer, now: Timestamp) -> Duration {
    match answer {
        ClaimAnswer::Started(start) => start.started_at.since(now).min(MAX_HEAD_START),
        ClaimAnswer::Early(_) | ClaimAnswer::Skipped | ClaimAnswer::Refused => Duration::ZERO,
    }
}

/// By the store's clock: what a limit loses in each period.
fn note_lateness(permits: &[Permit], answers: &[ClaimAnswer]) {
    for (permit, answer) in permits.iter().zip(answers) {
        if let ClaimAnswer::Started(start) = answer {
            let late = start.started_at.since(permit.not_before);
            metrics::histogram!("paceline_start_late_seconds").record(late);
        }
    }
}

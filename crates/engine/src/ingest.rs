//! Ingest: many requests, one commit.
//!
//! Requests queue in a bounded channel; the loop takes all that are there and
//! commits them together. It does not wait for company: while one batch
//! commits the next one gathers, so the batch grows with the load by itself.
//! An answer is given after the commit and never before; the wake comes after
//! the answer, because a lost wake is the sweep's to repair.

use std::sync::Arc;

use domain::event::NewEvent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::ports::{Acceptance, MAX_ROWS, Schedule, Store, StoreError, Wake};
use crate::wake::wake_all;

/// Bounds of the ingest queue.
#[derive(Debug, Clone, Copy)]
pub struct IngestOptions {
    /// Requests that may wait for a commit; the next one is refused at once
    /// rather than kept in memory.
    pub queue: usize,
    /// Payload bytes that may wait or be under commit, all requests together.
    pub queue_bytes: usize,
    /// Events in one commit, at most [`MAX_ROWS`].
    pub batch_events: usize,
    /// Payload bytes in one commit.
    pub batch_bytes: usize,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self {
            queue: 4_096,
            // Four batches: one under commit, the next one full, and room.
            queue_bytes: 64 * 1024 * 1024,
            batch_events: MAX_ROWS,
            batch_bytes: 16 * 1024 * 1024,
        }
    }
}

/// Why events were not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// Too many requests wait already. Nothing was written.
    #[error("too many requests wait to be committed")]
    Full,
    /// The store could not take them; whether it did is not known.
    #[error("{0}")]
    Unavailable(String),
    /// The process is going down. Nothing was written.
    #[error("shutting down")]
    Stopped,
}

type Answer = Result<Vec<Acceptance>, IngestError>;

struct Request {
    events: Vec<NewEvent>,
    answer: oneshot::Sender<Answer>,
    /// Its share of [`IngestOptions::queue_bytes`].
    _room: OwnedSemaphorePermit,
}

/// The front of ingest: clone it into every request handler.
#[derive(Clone)]
pub struct Ingest {
    requests: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
    queue_bytes: usize,
}

/// The back of ingest: run it once.
pub struct IngestLoop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    options: IngestOptions,
    requests: mpsc::Receiver<Request>,
    /// A request that did not fit into the batch before.
    carried: Option<Request>,
}

impl Ingest {
    /// A front and its back.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        schedule: Arc<dyn Schedule>,
        options: IngestOptions,
    ) -> (Self, IngestLoop) {
        let (sender, requests) = mpsc::channel(options.queue.max(1));
        let back = IngestLoop {
            store,
            schedule,
            options,
            requests,
            carried: None,
        };
        let queue_bytes = options.queue_bytes.min(u32::MAX as usize);
        let front = Self {
            requests: sender,
            room: Arc::new(Semaphore::new(queue_bytes.min(Semaphore::MAX_PERMITS))),
            queue_bytes,
        };
        (front, back)
    }

    /// Accepts events, all or nothing; at most [`MAX_ROWS`] at once.
    ///
    /// When it returns `Ok` every accepted event is durable. If the caller
    /// goes away meanwhile, the events may be committed all the same.
    pub async fn accept(&self, events: Vec<NewEvent>) -> Answer {
        let (answer, answered) = oneshot::channel();
        // One request larger than all the room may still go alone.
        let bytes = payload_bytes(&events).min(self.queue_bytes);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes);
        let request = Request {
            events,
            answer,
            _room: room.map_err(|_full| IngestError::Full)?,
        };
        self.requests
            .try_send(request)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => IngestError::Full,
                mpsc::error::TrySendError::Closed(_) => IngestError::Stopped,
            })?;
        // The loop answers whatever it took; without an answer it was cut off,
        // perhaps in the middle of the commit.
        let cut_off = || IngestError::Unavailable("cut off before the answer".to_owned());
        answered.await.unwrap_or_else(|_| Err(cut_off()))
    }
}

impl IngestLoop {
    /// Commits until `shutdown`, then refuses new requests and commits those
    /// that wait.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let first = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                first = self.next() => first,
            };
            match first {
                Some(first) => self.tick(first).await,
                None => return,
            }
        }
        self.requests.close();
        while let Some(request) = self.next().await {
            self.tick(request).await;
        }
    }

    async fn next(&mut self) -> Option<Request> {
        match self.carried.take() {
            Some(request) => Some(request),
            None => self.requests.recv().await,
        }
    }

    /// One commit: `first` and whatever else waits, up to the batch's bounds.
    async fn tick(&mut self, first: Request) {
        let requests = self.gather(first);
        let events: Vec<NewEvent> = (requests.iter())
            .flat_map(|request| request.events.iter().cloned())
            .collect();
        metrics::histogram!("paceline_ingest_batch_events").record(events.len() as f64);
        match self.store.accept_events(&events).await {
            Ok(acceptances) => {
                let wakes = wakes_of(&acceptances);
                answer_each(requests, acceptances);
                wake_all(self.schedule.as_ref(), &wakes).await;
            }
            Err(error) => refuse_each(requests, &error),
        }
    }

    fn gather(&mut self, first: Request) -> Vec<Request> {
        let (mut events, mut bytes) = size(&first);
        let mut requests = vec![first];
        while let Ok(request) = self.requests.try_recv() {
            let (more_events, more_bytes) = size(&request);
            events += more_events;
            bytes += more_bytes;
            if events > self.options.batch_events.min(MAX_ROWS) || bytes > self.options.batch_bytes
            {
                self.carried = Some(request);
                break;
            }
            requests.push(request);
        }
        requests
    }
}

fn size(request: &Request) -> (usize, usize) {
    (request.events.len(), payload_bytes(&request.events))
}

fn payload_bytes(events: &[NewEvent]) -> usize {
    events.iter().map(|event| event.payload.len()).sum()
}

fn wakes_of(acceptances: &[Acceptance]) -> Vec<Wake> {
    let mut destinations: Vec<_> = (acceptances.iter())
        .flat_map(Acceptance::destinations)
        .copied()
        .collect();
    destinations.sort_unstable();
    destinations.dedup();
    destinations.into_iter().map(Wake::now).collect()
}

fn answer_each(requests: Vec<Request>, acceptances: Vec<Acceptance>) {
    let mut acceptances = acceptances.into_iter();
    for request in requests {
        let own = acceptances.by_ref().take(request.events.len()).collect();
        // A caller that went away has its events all the same.
        let _ = request.answer.send(Ok(own));
    }
}

fn refuse_each(requests: Vec<Request>, error: &StoreError) {
    tracing::warn!(%error, "events not accepted");
    for request in requests {
        let refusal = IngestError::Unavailable(error.to_string());
        let _ = request.answer.send(Err(refusal));
    }
}

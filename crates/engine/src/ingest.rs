//! Ingest: many requests, one commit.
//!
//! Requests queue in a bounded channel; the loop takes all that are there and
//! commits them together. It does not wait for company: while one batch
//! commits the next one gathers, so the batch grows with the load by itself.
//! An answer is given after the commit and never before; the wake comes after
//! the answer, because a lost wake is the sweep's to repair.
//!
//! Nobody's request is in everybody's way. One whose events go to very many
//! destinations is written in parts, by turns with the commits of the others. A
//! commit that fails is tried again request by request, and refuses only those
//! that fail alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use domain::event::NewEvent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ports::{Acceptance, MAX_ROWS, Schedule, Store, StoreError, Wake};
use crate::wake::wake_all;

/// So many requests that fail alone, one after the other, and it is the store that
/// is away: the others of that commit are refused without asking.
const AWAY_AFTER: u32 = 3;

/// For so long the requests of a commit that failed are tried one by one: others
/// wait meanwhile, and callers give up after 30 s.
const ALONE_FOR: Duration = Duration::from_secs(5);

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
    /// Of the first of them, as far as it is written.
    answers: Vec<Acceptance>,
    answer: oneshot::Sender<Answer>,
    /// Its share of [`IngestOptions::queue_bytes`].
    _room: OwnedSemaphorePermit,
}

impl Request {
    /// What is not written yet.
    fn rest(&self) -> &[NewEvent] {
        self.events.get(self.answers.len()..).unwrap_or_default()
    }
}

/// What is to be committed next.
enum Next {
    /// A request, and whatever else waits.
    New(Request),
    /// The next part of one that is too large for one commit.
    Part(Request),
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
    /// Requests that did not fit into the batch before, in order.
    carried: VecDeque<Request>,
    /// Requests of which a part is written.
    begun: VecDeque<Request>,
    /// The last commit was of others: it is their turn.
    begun_is_next: bool,
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
            carried: VecDeque::new(),
            begun: VecDeque::new(),
            begun_is_next: false,
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
            answers: Vec::new(),
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
            let next = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                next = self.next() => next,
            };
            match next {
                Some(next) => self.tick(next).await,
                None => return,
            }
        }
        self.requests.close();
        while let Some(next) = self.next().await {
            self.tick(next).await;
        }
    }

    /// Requests that came first come first, but large ones have every second turn.
    async fn next(&mut self) -> Option<Next> {
        if std::mem::take(&mut self.begun_is_next)
            && let Some(begun) = self.begun.pop_front()
        {
            return Some(Next::Part(begun));
        }
        if let Some(request) = self.carried.pop_front() {
            return Some(Next::New(request));
        }
        if self.begun.is_empty() {
            return self.requests.recv().await.map(Next::New);
        }
        match self.requests.try_recv() {
            Ok(request) => Some(Next::New(request)),
            Err(_none) => self.begun.pop_front().map(Next::Part),
        }
    }

    /// One commit: a request and whatever else waits, up to the batch's bounds, or
    /// a part of one.
    async fn tick(&mut self, next: Next) {
        let requests = match next {
            Next::New(first) => {
                self.begun_is_next = true;
                self.gather(first)
            }
            // Its caller has gone: what is written is written.
            Next::Part(begun) if begun.answer.is_closed() => return,
            Next::Part(begun) => vec![begun],
        };
        let events: Vec<NewEvent> = (requests.iter())
            .flat_map(|request| request.rest().iter().cloned())
            .collect();
        metrics::histogram!("paceline_ingest_batch_events").record(events.len() as f64);
        match self.store.accept_events(&events).await {
            Ok(acceptances) => self.deal_out(requests, acceptances).await,
            Err(error) if requests.len() > 1 => self.each_alone(requests, &error).await,
            Err(error) => requests.into_iter().for_each(|one| refuse(one, &error)),
        }
    }

    fn gather(&mut self, first: Request) -> Vec<Request> {
        let (mut events, mut bytes) = size(&first);
        let mut requests = vec![first];
        while let Some(request) = self.waiting() {
            let (more_events, more_bytes) = size(&request);
            events += more_events;
            bytes += more_bytes;
            if events > self.options.batch_events.min(MAX_ROWS) || bytes > self.options.batch_bytes
            {
                self.carried.push_front(request);
                break;
            }
            requests.push(request);
        }
        requests
    }

    fn waiting(&mut self) -> Option<Request> {
        (self.carried.pop_front()).or_else(|| self.requests.try_recv().ok())
    }

    /// Answers the requests that are written, and keeps the others: the store has
    /// answered the first events, perhaps not all.
    async fn deal_out(&mut self, requests: Vec<Request>, acceptances: Vec<Acceptance>) {
        let wakes = wakes_of(&acceptances);
        let stuck = acceptances.is_empty();
        let mut acceptances = acceptances.into_iter();
        let mut untouched = VecDeque::new();
        for mut request in requests {
            let open = request.rest().len();
            request.answers.extend(acceptances.by_ref().take(open));
            if request.rest().is_empty() {
                // A caller that went away has its events all the same.
                let _ = request.answer.send(Ok(request.answers));
            } else if stuck {
                refuse(request, &no_answer());
            } else if request.answers.is_empty() {
                untouched.push_back(request);
            } else {
                self.begun.push_back(request);
            }
        }
        untouched.append(&mut self.carried);
        self.carried = untouched;
        wake_all(self.schedule.as_ref(), &wakes).await;
    }

    /// After a commit that failed: one of them may be why.
    async fn each_alone(&mut self, requests: Vec<Request>, error: &StoreError) {
        let count = requests.len();
        tracing::warn!(%error, requests = count, "events not accepted together, trying one by one");
        let until = Instant::now() + ALONE_FOR;
        let mut in_a_row = 0;
        for request in requests {
            if in_a_row >= AWAY_AFTER || Instant::now() >= until {
                refuse(request, error);
                continue;
            }
            match self.store.accept_events(request.rest()).await {
                Ok(acceptances) => {
                    in_a_row = 0;
                    self.deal_out(vec![request], acceptances).await;
                }
                Err(error) => {
                    in_a_row += 1;
                    refuse(request, &error);
                }
            }
        }
    }
}

fn size(request: &Request) -> (usize, usize) {
    let rest = request.rest();
    (rest.len(), payload_bytes(rest))
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

fn refuse(request: Request, error: &StoreError) {
    tracing::warn!(%error, "events not accepted");
    let refusal = IngestError::Unavailable(error.to_string());
    let _ = request.answer.send(Err(refusal));
}

/// A store that answers nothing is asked no more.
fn no_answer() -> StoreError {
    StoreError::Unavailable("events were left unanswered".to_owned())
}

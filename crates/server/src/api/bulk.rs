//! `POST /v1/events/bulk`: up to 50,000 events, one JSON object on each line
//! (NDJSON), answered line by line while they come in.
//!
//! At no time are more of them in memory than one commit takes, whatever the
//! body's length: the body is read on when the commit has answered. Answers
//! wait for a slow client in a buffer of `ANSWER_BYTES`, which holds those of
//! a whole body of good events: so a client may well send all before it reads.
//! A commit is made when `COMMIT_EVENTS` are there, or `COMMIT_BYTES`, or
//! when the client pauses: acceptance is event by event, and what was answered
//! is durable whatever happens to the rest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::ids::TenantId;
use domain::trace::Incoming;
use futures_util::stream;
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;
use utoipa::ToSchema;

use super::Caller;
use super::body::parse;
use super::events::{BatchResult, PostEvent};
use super::idempotency::{KeyHeader, refuse_key_of_many};
use super::problem::Problem;
use super::trace_headers::{TraceHeader, TraceHeaders};
use crate::service::{EventDraft, Service, ServiceError};

mod lines;

use lines::{Line, Lines, Stopped};

/// The most lines, and so events, in one body.
pub const MAX_BULK_EVENTS: u32 = 50_000;

/// The most events that are in memory, and in one commit.
pub const COMMIT_EVENTS: usize = 500;

/// The payload bytes after which a commit is made.
const COMMIT_BYTES: usize = 1024 * 1024;

/// How long a commit waits for the next line.
const LINGER: Duration = Duration::from_millis(20);

/// How long a whole body may take.
pub(crate) const MAX_LENGTH: Duration = Duration::from_secs(600);

/// Answers that wait for the client to read them.
const ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// How many those are: one for each commit, of which a body that pauses after each line has
/// as many as lines, and the last.
const MOST_ANSWERS: usize = MAX_BULK_EVENTS as usize + 1;

/// Bulk bodies that one process reads at a time: the memory of each is bounded,
/// and so is their sum.
const AT_ONCE: usize = 8;

/// The last of them are for tenants that have none: it takes five tenants to be
/// in the way of a sixth.
const FOR_OTHERS: usize = AT_ONCE / 2;

/// How often a commit is tried for which there was no room.
const TRIES: u32 = 50;

/// How long one commit waits because its tenant is too fast: the body is read
/// on as fast as it may be.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Places for bulk bodies; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<TenantId, usize>>>);

/// A tenant's, until it is dropped.
pub(super) struct Place {
    places: Places,
    tenant: TenantId,
}

impl Places {
    pub(super) fn take(&self, tenant: TenantId) -> Result<Place, Problem> {
        let mut taken = self.taken();
        let all: usize = taken.values().sum();
        let own = taken.get(&tenant).copied().unwrap_or_default();
        if all >= AT_ONCE {
            return Err(Problem::overloaded(format!(
                "{all} bulk bodies are on their way in; nothing was written"
            )));
        }
        if own > 0 && all >= AT_ONCE - FOR_OTHERS {
            return Err(Problem::busy(format!(
                "{own} bulk bodies of this tenant are on their way in; nothing was written"
            )));
        }
        taken.insert(tenant, own + 1);
        drop(taken);
        Ok(Place {
            places: self.clone(),
            tenant,
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Entry::Occupied(mut own) = taken.entry(self.tenant) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// What became of one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LineResult {
    /// The line's number; the first is 1. Empty lines count and are not
    /// answered.
    pub line: u32,
    /// What became of its event.
    #[serde(flatten)]
    pub result: BatchResult,
}

/// The last line of an answer. Without it the answer is cut off, and what
/// became of the lines that it does not answer is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkEnd {
    /// Events that are durable.
    pub accepted: u32,
    /// Lines that were answered with a problem.
    pub refused: u32,
    /// Whether the body was read to its end.
    pub complete: bool,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Send up to 50,000 events, one JSON object on each line (NDJSON): the same
/// objects as of `POST /v1/events`. Answered with one line for each, in order,
/// while they come in, and a last line that sums up. Each is accepted or
/// refused by itself: what is answered with an id is durable, whatever becomes
/// of the rest. To repeat a body whose answer was cut off, give each event an
/// `idempotency_key`.
#[utoipa::path(post, path = "/v1/events/bulk", operation_id = "post_events_bulk",
    tag = "events", security(("key" = ["ingest"])),
    params(TraceHeaders), request_body(content = PostEvent, content_type = "application/x-ndjson"), responses(
    (status = 200, description = "Each line answered by itself, then a BulkEnd.",
        body = LineResult, content_type = "application/x-ndjson"),
    (status = "4XX", description = "None was written.", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "None was written.", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn post_bulk(
    caller: Caller,
    KeyHeader(key): KeyHeader,
    TraceHeader(trace): TraceHeader,
    request: Request,
) -> Result<Response, Problem> {
    refuse_key_of_many(key)?;
    let (head, body) = request.into_parts();
    if !is_ndjson(&head.headers) {
        return Err(Problem::not_ndjson());
    }
    let place = caller.bulk_place()?;
    let (answers, outgoing) = mpsc::channel(MOST_ANSWERS);
    let bulk = Bulk {
        service: caller.service(),
        trace,
        answers,
        room: Arc::new(Semaphore::new(ANSWER_BYTES)),
        end: BulkEnd {
            accepted: 0,
            refused: 0,
            complete: false,
            problem: None,
        },
        _place: place,
    };
    tokio::spawn(bulk.run(Lines::new(body)).in_current_span());
    let answer = stream::unfold(outgoing, |mut outgoing: mpsc::Receiver<Answer>| async {
        let (bytes, _room) = outgoing.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), outgoing))
    });
    let content_type = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((content_type, Body::from_stream(answer)).into_response())
}

fn is_ndjson(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return true;
    };
    let essence = value.to_str().unwrap_or_default().split(';').next();
    let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
    let names = [
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
    ];
    names.contains(&essence.as_str())
}

/// Lines of an answer, and their share of its room.
type Answer = (Bytes, OwnedSemaphorePermit);

/// One line of a commit: its number, and its event or why there is none.
type Read = (u32, Result<EventDraft, Problem>);

/// One body on its way in.
struct Bulk {
    service: Service,
    trace: Incoming,
    answers: mpsc::Sender<Answer>,
    room: Arc<Semaphore>,
    end: BulkEnd,
    _place: Place,
}

/// The client is gone: nobody would read the rest.
struct Gone;

impl Bulk {
    /// To the end of the body, of the client or of the time.
    async fn run(mut self, mut lines: Lines) {
        let deadline = Instant::now() + MAX_LENGTH;
        loop {
            let (commit, more) = self.gather(&mut lines, deadline).await;
            let Ok(go_on) = self.commit(commit).await else {
                return;
            };
            match more {
                Ok(true) if go_on => {}
                Ok(true) => break,
                Ok(false) => {
                    self.end.complete = go_on;
                    break;
                }
                Err(problem) => {
                    self.end.problem = Some(problem);
                    break;
                }
            }
        }
        let Ok(mut end) = serde_json::to_vec(&self.end) else {
            return;
        };
        end.push(b'\n');
        // A client that is gone does not ask.
        let _ = self.answer(end).await;
    }

    /// The next commit's lines; whether more may follow, or why not.
    async fn gather(
        &mut self,
        lines: &mut Lines,
        deadline: Instant,
    ) -> (Vec<Read>, Result<bool, Problem>) {
        let (mut read, mut bytes) = (Vec::new(), 0);
        while read.len() < COMMIT_EVENTS && bytes < COMMIT_BYTES {
            let next = lines.next();
            let next = if read.is_empty() {
                match timeout_at(deadline, next).await {
                    Ok(next) => next,
                    Err(_) => return (read, Err(Problem::too_slow_body(MAX_LENGTH))),
                }
            } else {
                match timeout(LINGER, next).await {
                    Ok(next) => next,
                    // The client pauses: what is there is not kept waiting.
                    Err(_) => return (read, Ok(true)),
                }
            };
            let (number, line) = match next {
                Ok(Some(line)) => line,
                Ok(None) => return (read, Ok(false)),
                Err(Stopped(problem)) => return (read, Err(problem)),
            };
            if number > MAX_BULK_EVENTS {
                return (read, Err(Problem::too_many_lines(MAX_BULK_EVENTS)));
            }
            let draft = match line {
                Line::Empty => continue,
                Line::TooLong(max_bytes) => Err(Problem::too_large("line", max_bytes)),
                Line::Whole(line) => draft(&line, &self.trace),
            };
            bytes += draft.as_ref().map_or(0, |draft| draft.payload.len());
            read.push((number, draft));
        }
        (read, Ok(true))
    }

    /// Commits and answers; whether to go on.
    async fn commit(&mut self, read: Vec<Read>) -> Result<bool, Gone> {
        if read.is_empty() {
            return Ok(true);
        }
        let events: Vec<EventDraft> = (read.iter())
            .filter_map(|(_, draft)| draft.as_ref().ok().cloned())
            .collect();
        let (answers, go_on) = match self.accept(events).await {
            Ok(answers) => (answers.into_iter().map(Ok).collect(), true),
            Err(problem) => {
                let all = vec![Err(problem.clone()); read.len()];
                self.end.problem = Some(problem);
                (all, false)
            }
        };
        let mut answers: std::vec::IntoIter<Result<BatchResult, Problem>> = answers.into_iter();
        let mut text = Vec::new();
        for (line, draft) in read {
            let result = match draft {
                Err(problem) => BatchResult::Refused { problem },
                Ok(_) => match answers.next() {
                    Some(Ok(result)) => result,
                    Some(Err(problem)) => BatchResult::Refused { problem },
                    None => return Err(Gone),
                },
            };
            match &result {
                BatchResult::Accepted(_) => self.end.accepted += 1,
                BatchResult::Refused { .. } => self.end.refused += 1,
            }
            let line = LineResult { line, result };
            serde_json::to_writer(&mut text, &line).map_err(|_never| Gone)?;
            text.push(b'\n');
        }
        self.answer(text).await?;
        Ok(go_on)
    }

    /// Hands events to ingest, and waits while there is no room for them.
    async fn accept(&self, events: Vec<EventDraft>) -> Result<Vec<BatchResult>, Problem> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut tries = 0;
        let too_late = Instant::now() + MAX_WAIT;
        loop {
            tries += 1;
            let drafts = events.iter().cloned().map(Ok).collect();
            match self.service.accept_events(drafts).await {
                Ok(answers) => return Ok(answers.into_iter().map(result).collect()),
                // Nothing was written.
                Err(ServiceError::Overloaded(_)) if tries < TRIES => sleep(PAUSE).await,
                Err(ServiceError::TooFast { retry_after })
                    if Instant::now() + retry_after < too_late =>
                {
                    sleep(retry_after).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn answer(&self, text: Vec<u8>) -> Result<(), Gone> {
        let bytes = u32::try_from(text.len().min(ANSWER_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes);
        // A client that reads nothing while its answers fill the room.
        let room = timeout(MAX_LENGTH, room).await.map_err(|_late| Gone)?;
        let room = room.map_err(|_closed| Gone)?;
        let sent = self.answers.send((Bytes::from(text), room)).await;
        sent.map_err(|_closed| Gone)
    }
}

fn draft(line: &[u8], trace: &Incoming) -> Result<EventDraft, Problem> {
    Ok(parse::<PostEvent>(line)?.within(trace)?)
}

fn result(answer: Result<crate::service::AcceptedEvent, ServiceError>) -> BatchResult {
    match answer {
        Ok(event) => BatchResult::Accepted(event.into()),
        Err(error) => BatchResult::Refused {
            problem: error.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as there are for it.
    fn fill(places: &Places, tenant: u128) -> (Vec<Place>, u16) {
        let mut taken = Vec::new();
        loop {
            match places.take(TenantId(uuid::Uuid::from_u128(tenant))) {
                Ok(place) => taken.push(place),
                Err(problem) => return (taken, problem.status),
            }
        }
    }

    /// However many one of them wants.
    #[test]
    fn one_tenant_leaves_places_to_the_others() {
        let places = Places::default();
        let (ours, status) = fill(&places, 1);
        assert_eq!((ours.len(), status), (AT_ONCE - FOR_OTHERS, 429));
        let others: Vec<_> = (2..6).map(|tenant| fill(&places, tenant)).collect();
        for (theirs, _) in &others {
            assert_eq!(theirs.len(), 1);
        }
        assert_eq!(fill(&places, 6).1, 503);
        drop(ours);
        assert_eq!(fill(&places, 7).0.len(), 1, "the rest have theirs");
        drop(others);
        assert!(places.taken().is_empty(), "nobody is remembered");
        assert_eq!(fill(&places, 8).0.len(), AT_ONCE - FOR_OTHERS);
    }
}

//! `/v1/events`.
//!
//! A payload is kept as the very bytes of the request: `RawValue` hands out the
//! JSON text as it stands, spaces, order and digits included. Receivers verify
//! signatures over bytes.

use axum::Json;
use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};
use bytes::Bytes;
use domain::attempt::AttemptState;
use domain::event::Timing;
use domain::ids::DestinationId;
use domain::redaction::Shown;
use domain::trace::Incoming;
use engine::ports::{AttemptView, EventFilter, EventSummary, FoundEvent};
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::attempts::Attempt;
use super::body::{BatchBody, EventBody, parse};
use super::idempotency::{KeyHeader, one_key, refuse_key_of_many};
use super::parameters::{EventPath, EventsPage, Page, PathId};
use super::problem::Problem;
use super::trace_headers::{TraceHeader, TraceHeaders};
use super::{Caller, text};
use crate::service::{AcceptedEvent, EventDraft, Service, ServiceError, ShownPayload};

/// An event to deliver: to `destination_id`, or to every destination that
/// subscribes to `type`. With both: to that destination, with that type.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostEvent {
    /// The one destination that it is for.
    #[serde(default)]
    #[schema(value_type = Option<Uuid>)]
    pub destination_id: Option<DestinationId>,
    /// Its type.
    #[serde(default, rename = "type")]
    #[schema(example = "order.paid")]
    pub event_type: Option<String>,
    /// Refuse it, by `type`, if no destination subscribes to its type. Otherwise it
    /// is accepted, for none: that is how a mistyped type gets lost.
    #[serde(default)]
    pub strict: bool,
    /// Any JSON, at most 256 KiB: delivered byte for byte as it stands here.
    #[serde(default, deserialize_with = "raw")]
    #[schema(value_type = serde_json::Value)]
    pub payload: Option<Box<RawValue>>,
    /// Instead of `payload`: any bytes, in base64.
    #[serde(default)]
    pub payload_base64: Option<String>,
    /// The payload's media type; `application/json` if absent.
    #[serde(default)]
    pub content_type: Option<String>,
    /// The client's own name for this event, 1 to 255 bytes of visible ASCII:
    /// for 24 hours the same request with the same key is answered with the
    /// same event. As the header `Idempotency-Key`, for one event.
    #[serde(default)]
    #[schema(example = "order-4711-paid")]
    pub idempotency_key: Option<String>,
    /// It is not sent before this, at most 30 days ahead; at once if absent or past.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub deliver_at: Option<String>,
    /// What has not been admitted by then is not sent any more, and is a dead letter. Beside
    /// the destination's `max_age`, which counts from when the event is due.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Its first attempts go before those of other events: while both wait at a destination,
    /// three of four.
    #[serde(default)]
    pub urgent: bool,
}

/// Several events.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostEvents {
    /// 1 to 1,000, each answered by itself.
    #[schema(value_type = Vec<PostEvent>, min_items = 1, max_items = 1_000)]
    pub events: Vec<Box<RawValue>>,
}

/// An event that is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// Its id: every delivery carries it.
    pub id: Uuid,
    /// Where it will be delivered; empty for a type that nobody subscribes to.
    pub destinations: Vec<Uuid>,
}

/// The answers to a batch, in the order of its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswer {
    /// One per event.
    pub results: Vec<BatchResult>,
}

/// What became of one event of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchResult {
    /// Durable.
    Accepted(Accepted),
    /// Not written; by a problem of 503 it is not known.
    Refused {
        /// Why.
        problem: Problem,
    },
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The newest first.
    pub events: Vec<ListedEvent>,
    /// The `before` of the next page; `null` on the last.
    pub next: Option<Uuid>,
}

/// An event in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListedEvent {
    /// Its id.
    pub id: Uuid,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// The payload's size.
    pub payload_bytes: u32,
    /// Whether it was posted as urgent.
    pub urgent: bool,
    /// When it was accepted.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// How many attempts it has.
    pub attempts: u32,
    /// How many destinations these are for.
    pub destinations: u32,
    /// One of them; `null` if there is none.
    pub destination_id: Option<Uuid>,
    /// When the first of its attempts that wait is due, of those that wait for a time: for
    /// `deliver_at`, or for a retry. `null` where none does.
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
    /// When the first of its attempts that wait is not sent any more, by `expires_at` or the
    /// `max_age` of its destination; `null` for never.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Where the newest attempt stands; `null` if it has none.
    #[schema(schema_with = text::attempt_state_or_null)]
    pub last_state: Option<AttemptState>,
}

impl From<FoundEvent> for ListedEvent {
    fn from(event: FoundEvent) -> Self {
        Self {
            id: event.id.0,
            event_type: event.event_type,
            payload_bytes: event.payload_bytes,
            urgent: event.urgent,
            created_at: text::time(event.created_at),
            attempts: event.attempts,
            destinations: event.destinations,
            destination_id: event.destination.map(|id| id.0),
            due_at: event.due_at.map(text::time),
            expires_at: event.expires_at.map(text::time),
            last_state: event.last,
        }
    }
}

/// What an event carries: one of `payload` and `payload_base64`, as it was posted, but for
/// what the catalogue names of its type; neither where nothing of it is shown.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPayload {
    /// Its media type.
    pub content_type: String,
    /// How much of it this is.
    pub shown: HowMuch,
    /// Any JSON, byte for byte as it was posted; absent where it is none.
    #[serde(
        default,
        deserialize_with = "raw",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = serde_json::Value)]
    pub payload: Option<Box<RawValue>>,
    /// What is no JSON, or has space around it, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    pub payload_base64: Option<String>,
}

/// How much is shown of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HowMuch {
    /// All of it, byte for byte.
    All,
    /// All but what the catalogue names of its type, which is `"[redacted]"`.
    Redacted,
    /// Nothing: the catalogue names parts of its type's payloads, and it is no JSON.
    Nothing,
}

impl EventPayload {
    pub(super) fn of(payload: ShownPayload) -> Self {
        let content_type = payload.content_type;
        let (shown, bytes) = match payload.shown {
            Shown::Whole(bytes) => (HowMuch::All, bytes),
            Shown::Redacted(bytes) => (HowMuch::Redacted, bytes),
            Shown::Withheld => {
                return Self {
                    content_type,
                    shown: HowMuch::Nothing,
                    payload: None,
                    payload_base64: None,
                };
            }
        };
        let json = as_it_stands(&bytes);
        Self {
            content_type,
            shown,
            payload: json.map(ToOwned::to_owned),
            payload_base64: json.is_none().then(|| STANDARD.encode(&bytes)),
        }
    }

    /// The bytes; `None` where nothing is shown.
    pub fn bytes(&self) -> Result<Option<Vec<u8>>, DecodeError> {
        match (&self.payload, &self.payload_base64) {
            (Some(json), _) => Ok(Some(json.get().as_bytes().to_vec())),
            (None, Some(text)) => STANDARD.decode(text).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// What is said where nothing is shown.
pub const NOT_SHOWN: &str = "its payload is not shown: the catalogue hides parts of its type's \
    payloads, and this one is no JSON";

/// An event and what has become of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its id.
    pub id: Uuid,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// The payload's media type.
    pub content_type: String,
    /// The payload's size.
    pub payload_bytes: u32,
    /// Whether it was posted as urgent.
    pub urgent: bool,
    /// When it was accepted.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When the first of its attempts that wait is due, of those that wait for a time: for
    /// `deliver_at`, or for a retry. `null` where none does. Each attempt keeps its own.
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
    /// When the first of its attempts that wait is not sent any more, by `expires_at` or the
    /// `max_age` of its destination; `null` for never. Each attempt keeps its own.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// The newest 1,000, in creation order.
    pub attempts: Vec<Attempt>,
}

impl PostEvent {
    /// The event, in the trace that the request belongs to.
    pub(super) fn within(self, trace: &Incoming) -> Result<EventDraft, ServiceError> {
        let draft = self.draft()?;
        let trace = trace.clone();
        Ok(EventDraft { trace, ..draft })
    }

    fn draft(self) -> Result<EventDraft, ServiceError> {
        let (payload, payload_field) = match (self.payload, self.payload_base64) {
            (Some(json), None) => (Bytes::from(Box::<str>::from(json).into_string()), "payload"),
            (None, Some(text)) => (decoded(&text)?, "payload_base64"),
            (None, None) => return Err(ServiceError::invalid("payload", "is required")),
            (Some(_), Some(_)) => {
                let problem = "give payload or payload_base64, not both";
                return Err(ServiceError::invalid("payload_base64", problem));
            }
        };
        Ok(EventDraft {
            destination: self.destination_id,
            event_type: self.event_type,
            strict: self.strict,
            content_type: self.content_type,
            payload,
            payload_field,
            idempotency_key: self.idempotency_key,
            trace: Incoming::Absent,
            timing: Timing {
                deliver_at: text::parsed_time("deliver_at", self.deliver_at.as_deref())?,
                expires_at: text::parsed_time("expires_at", self.expires_at.as_deref())?,
                urgent: self.urgent,
            },
        })
    }
}

/// These bytes as JSON, if they are that and nothing else: a value of JSON keeps no
/// space around it.
pub fn as_it_stands(bytes: &[u8]) -> Option<&RawValue> {
    let json: Option<&RawValue> = serde_json::from_slice(bytes).ok();
    json.filter(|raw| raw.get().len() == bytes.len())
}

/// `null` is JSON too, and a payload.
fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

fn decoded(text: &str) -> Result<Bytes, ServiceError> {
    match STANDARD.decode(text) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(error) => {
            let problem = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => {
                    format!("is not base64: character {}", at + 1)
                }
                DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => {
                    "is not base64: something is missing at its end".to_owned()
                }
            };
            Err(ServiceError::invalid("payload_base64", problem))
        }
    }
}

impl From<AcceptedEvent> for Accepted {
    fn from(event: AcceptedEvent) -> Self {
        Self {
            id: event.id.0,
            destinations: event.destinations.into_iter().map(|id| id.0).collect(),
        }
    }
}

fn event_view(event: EventSummary, attempts: Vec<AttemptView>) -> Event {
    let waits = || (attempts.iter()).filter(|one| one.state == AttemptState::Waiting);
    Event {
        due_at: waits().filter_map(|one| one.due_at).min().map(text::time),
        expires_at: waits()
            .filter_map(|one| one.expires_at)
            .min()
            .map(text::time),
        id: event.id.0,
        event_type: event.event_type,
        content_type: event.content_type,
        payload_bytes: event.payload_bytes,
        urgent: event.urgent,
        created_at: text::time(event.created_at),
        attempts: attempts.into_iter().map(Attempt::from).collect(),
    }
}

/// Send an event. 202 means that it is durable and will be attempted until it
/// is delivered, exhausted or cancelled. Safe to repeat with an idempotency
/// key.
#[utoipa::path(post, path = "/v1/events", operation_id = "post_event",
    tag = "events", security(("key" = ["ingest"])),
    params(("Idempotency-Key" = Option<String>, Header,
        description = "The same as the field `idempotency_key`."), TraceHeaders),
    request_body = PostEvent, responses(
    (status = 202, description = "Durable.", body = Accepted),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn post(
    caller: Caller,
    KeyHeader(key): KeyHeader,
    TraceHeader(trace): TraceHeader,
    body: EventBody,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    caller.service().refuse_unread(1)?;
    let mut draft = parse::<PostEvent>(&body.bytes)?.within(&trace)?;
    draft.idempotency_key = one_key(draft.idempotency_key, key)?;
    let accepted = caller
        .run(|service| async move { service.accept_event(draft).await })
        .await?;
    Ok((StatusCode::ACCEPTED, Json(accepted.into())))
}

/// Send several events. Each is accepted or refused by itself, and answered in
/// its place. Each may have an `idempotency_key` of its own.
#[utoipa::path(post, path = "/v1/events/batch", operation_id = "post_events",
    tag = "events", security(("key" = ["ingest"])),
    params(TraceHeaders), request_body = PostEvents, responses(
    (status = 202, description = "Each answered by itself.", body = BatchAnswer),
    (status = "4XX", description = "None was written.", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn post_batch(
    caller: Caller,
    KeyHeader(key): KeyHeader,
    TraceHeader(trace): TraceHeader,
    BatchBody(body): BatchBody,
) -> Result<(StatusCode, Json<BatchAnswer>), Problem> {
    refuse_key_of_many(key)?;
    let bytes = body.bytes.len();
    let parsing = move |service: &Service| Ok((drafts(service, &body.bytes, &trace)?, body.room));
    let (parsed, _room) = caller.parse(bytes, parsing).await?;
    let unparsed = || ServiceError::invalid("events", "could not be read");
    let drafts = parsed
        .iter()
        .map(|draft| draft.as_ref().ok().cloned().ok_or_else(unparsed))
        .collect();
    let answers = caller
        .run(|service| async move { service.accept_events(drafts).await })
        .await?;
    let results = parsed
        .into_iter()
        .zip(answers)
        .map(|(parsed, answer)| match (parsed, answer) {
            (Err(problem), _) => BatchResult::Refused { problem },
            (Ok(_), Ok(event)) => BatchResult::Accepted(event.into()),
            (Ok(_), Err(error)) => BatchResult::Refused {
                problem: error.into(),
            },
        });
    let results = results.collect();
    Ok((StatusCode::ACCEPTED, Json(BatchAnswer { results })))
}

/// Each place holds a draft, or why there is none.
fn drafts(
    service: &Service,
    body: &[u8],
    trace: &Incoming,
) -> Result<Vec<Result<EventDraft, Problem>>, Problem> {
    let batch: PostEvents = parse(body)?;
    service.refuse_unread(batch.events.len())?;
    let draft = |event: &RawValue| Ok(parse::<PostEvent>(event.get().as_bytes())?.within(trace)?);
    Ok(batch.events.iter().map(|event| draft(event)).collect())
}

/// List events, the newest first.
///
/// A page may hold fewer than `limit`, or none, and still have a `next`: it examines
/// 2,000 events at most. What lies outside of `since` and `until` is not examined.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events",
    tag = "events", security(("key" = ["read"])),
    params(EventsPage), responses(
    (status = 200, body = EventList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<EventsPage>,
) -> Result<Json<EventList>, Problem> {
    let filter = EventFilter {
        event_type: page.event_type,
        state: page.state,
        status: text::parsed_status("status", page.status.as_deref())?,
        destination: page.destination_id,
        since: text::parsed_time("since", page.since.as_deref())?,
        until: text::parsed_time("until", page.until.as_deref())?,
        text: page.text,
    };
    let found = caller
        .run(|service| async move { service.find_events(&filter, page.before, page.limit).await })
        .await?;
    Ok(Json(EventList {
        events: found.events.into_iter().map(ListedEvent::from).collect(),
        next: found.next.map(|next| next.0),
    }))
}

/// Look at what an event carries, for as long as payloads are kept; without what the
/// catalogue of event types names.
#[utoipa::path(get, path = "/v1/events/{id}/payload", operation_id = "show_payload",
    tag = "events", security(("key" = ["read-payloads"])),
    params(("id" = Uuid, Path)), responses(
    (status = 200, body = EventPayload),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn payload(
    caller: Caller,
    PathId(id): EventPath,
) -> Result<Json<EventPayload>, Problem> {
    let found = caller
        .run(|service| async move { service.payload(id).await })
        .await?;
    Ok(Json(EventPayload::of(found)))
}

/// Look at an event and its attempts.
#[utoipa::path(get, path = "/v1/events/{id}", operation_id = "show_event",
    tag = "events", security(("key" = ["read"])),
    params(("id" = Uuid, Path)), responses(
    (status = 200, body = Event),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(caller: Caller, PathId(id): EventPath) -> Result<Json<Event>, Problem> {
    let (event, attempts) = caller
        .run(|service| async move { service.event(id).await })
        .await?;
    Ok(Json(event_view(event, attempts)))
}

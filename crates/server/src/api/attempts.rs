//! `/v1/attempts`, one of them, and `/v1/destinations/{id}/attempts`; and what an attempt
//! looks like.

use std::collections::BTreeMap;

use axum::Json;
use domain::access::Scope;
use domain::attempt::AttemptState;
use domain::ids::AttemptId;
use domain::time::Timestamp;
use engine::ports::{AttemptFilter, AttemptView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::events::EventPayload;
use super::parameters::{AttemptsPage, DestinationPath, FoundAttemptsPage, Page, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::sent::{Sees, Sent};

/// One request for one event to one destination, made or to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its id.
    pub id: i64,
    /// Which event.
    pub event_id: Uuid,
    /// To whom.
    pub destination_id: Uuid,
    /// Which try: 1 is the first.
    pub try_number: u32,
    /// Where it stands.
    #[schema(schema_with = text::attempt_state)]
    pub state: AttemptState,
    /// It failed, and its event's tries are used up.
    pub dead_letter: bool,
    /// When its event was accepted, or the try before it ended.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it is due, where that is kept: of a retry, of an event with `deliver_at`, of what
    /// is urgent or had a permit that ended unused. `null` for another first try, which is
    /// due at once.
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
    /// It is not sent from then on: its event's `expires_at`, or what its destination's
    /// `max_age` made of it when it was accepted, whichever is earlier. `null` for never.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// When it got its (last) permit.
    #[schema(format = DateTime)]
    pub admitted_at: Option<String>,
    /// When its request was sent; until that is known, the latest that it may have been.
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// When its outcome was there.
    #[schema(format = DateTime)]
    pub finished_at: Option<String>,
    /// From creation to delivery; `null` until it has succeeded.
    pub delivery_latency_ms: Option<f64>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// Why it failed.
    pub error: Option<String>,
    /// The beginning of the response body: 16 KiB where one attempt is asked for by its id,
    /// and its first 1,024 bytes everywhere else.
    pub response_body: Option<String>,
    /// Headers of the response, beside a body and where it was no success; names in lower
    /// case. What may let somebody in is `hidden`.
    pub response_headers: Option<BTreeMap<String, String>>,
    /// The replay that made it: it brought a dead letter back, or sent the event again.
    pub replay_id: Option<Uuid>,
}

/// An attempt, and its request as it was sent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ShownAttempt {
    /// The attempt, with what was answered.
    pub attempt: Attempt,
    /// Its request; `null` where it cannot have been sent, or not yet. Where its receiver was
    /// not reached, as the error says then, it is what was to be sent.
    pub request: Option<SentRequest>,
}

/// A request as it was sent, or was to be, put together from what is kept: the address and the
/// headers that the destination adds are today's.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SentRequest {
    /// Where it went; `null` once the destination is deleted.
    pub url: Option<String>,
    /// Its headers.
    pub headers: Vec<SentHeader>,
    /// A secret that has ended since may have signed beside those that the signature is of.
    pub signature_is_part: bool,
    /// It went out in one request with others; its payload was a part of the body.
    pub in_batch: bool,
    /// The size of its event's payload.
    pub payload_bytes: u32,
    /// What its event carries, for as long as that is kept and for keys with the scope
    /// `read-payloads`; without what the catalogue of event types names.
    pub payload: Option<EventPayload>,
}

/// A header of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SentHeader {
    /// Its name, in lower case.
    pub name: String,
    /// What it said; `null` where that is not said.
    pub value: Option<String>,
    /// Why it is not: `hidden` where it may let somebody in, or how it was lost.
    pub withheld: Option<String>,
}

impl From<Sent> for ShownAttempt {
    fn from(sent: Sent) -> Self {
        let was_sent = !sent.headers.is_empty();
        let headers = sent.headers.into_iter().map(|header| {
            let (value, withheld) = match header.value {
                Ok(value) => (Some(value), None),
                Err(why) => (None, Some(why.to_owned())),
            };
            SentHeader {
                name: header.name,
                value,
                withheld,
            }
        });
        let request = SentRequest {
            url: sent.destination.map(|one| one.destination.url),
            headers: headers.collect(),
            signature_is_part: sent.is_part,
            in_batch: sent.found.in_batch,
            payload_bytes: sent.found.payload_bytes,
            payload: sent.payload.map(EventPayload::of),
        };
        Self {
            attempt: sent.found.attempt.into(),
            request: was_sent.then_some(request),
        }
    }
}

/// A page of attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempts {
    /// The newest first.
    pub attempts: Vec<Attempt>,
    /// The `before` of the next page; `null` on the last.
    pub next: Option<i64>,
}

impl From<AttemptView> for Attempt {
    fn from(attempt: AttemptView) -> Self {
        let delivered_at = attempt
            .finished_at
            .filter(|_| attempt.state == AttemptState::Succeeded);
        Self {
            id: attempt.id.0,
            event_id: attempt.event.0,
            destination_id: attempt.destination.0,
            try_number: attempt.try_number,
            state: attempt.state,
            dead_letter: attempt.dead_letter,
            created_at: text::time(attempt.created_at),
            due_at: attempt.due_at.map(text::time),
            expires_at: attempt.expires_at.map(text::time),
            admitted_at: attempt.admitted_at.map(text::time),
            started_at: attempt.started_at.map(text::time),
            finished_at: attempt.finished_at.map(text::time),
            delivery_latency_ms: delivered_at.map(|at| millis(at, attempt.created_at)),
            status: attempt.status,
            error: attempt.error,
            response_headers: attempt.response_headers.by_name(),
            response_body: attempt.response_body,
            replay_id: attempt.replay.map(|replay| replay.0),
        }
    }
}

fn millis(end: Timestamp, begin: Timestamp) -> f64 {
    end.since(begin).as_micros() as f64 / 1_000.0
}

/// List a destination's attempts, the newest first.
#[utoipa::path(get, path = "/v1/destinations/{id}/attempts", operation_id = "list_attempts",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path), AttemptsPage), responses(
    (status = 200, body = Attempts),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    PathId(id): DestinationPath,
    Page(page): Page<AttemptsPage>,
) -> Result<Json<Attempts>, Problem> {
    let found = caller
        .run(|service| async move { service.attempts(id, page.before, page.limit).await })
        .await?;
    let full = found.len() >= page.limit as usize;
    let next = found.last().filter(|_| full).map(|last| last.id.0);
    let attempts = found.into_iter().map(Attempt::from).collect();
    Ok(Json(Attempts { attempts, next }))
}

/// List attempts, the newest first, of all destinations or of one.
///
/// A page may hold fewer than `limit`, or none, and still have a `next`: it reads 5,000
/// attempts at most, those of all destinations side by side.
#[utoipa::path(get, path = "/v1/attempts", operation_id = "find_attempts",
    tag = "destinations", security(("key" = ["read"])),
    params(FoundAttemptsPage), responses(
    (status = 200, body = Attempts),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn find(
    caller: Caller,
    Page(page): Page<FoundAttemptsPage>,
) -> Result<Json<Attempts>, Problem> {
    let filter = AttemptFilter {
        destination: page.destination_id,
        event_type: page.event_type,
        state: page.state,
        status: text::parsed_status("status", page.status.as_deref())?,
        text: page.text,
        since: text::parsed_time("since", page.since.as_deref())?,
        until: text::parsed_time("until", page.until.as_deref())?,
    };
    let found = caller
        .run(move |service| async move {
            service
                .find_attempts(&filter, page.before, page.limit)
                .await
        })
        .await?;
    Ok(Json(Attempts {
        attempts: found.attempts.into_iter().map(Attempt::from).collect(),
        next: found.next.map(|next| next.0),
    }))
}

/// Look at an attempt, and at its request as it was sent.
#[utoipa::path(get, path = "/v1/attempts/{id}", operation_id = "show_attempt",
    tag = "destinations", security(("key" = ["read"])),
    params(("id" = i64, Path)), responses(
    (status = 200, body = ShownAttempt),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): PathId<i64>,
) -> Result<Json<ShownAttempt>, Problem> {
    let sees = match caller.needs(Scope::ReadPayloads) {
        Ok(()) => Sees::Payload,
        Err(_) => Sees::NoPayload,
    };
    let sent = caller
        .run(move |service| async move { service.sent(AttemptId(id), sees).await })
        .await?;
    Ok(Json(sent.into()))
}

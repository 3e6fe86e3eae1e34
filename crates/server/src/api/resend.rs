//! `/v1/events/{id}/resend`, `/v1/destinations/{id}/resend` and `/v1/events/resend`: events on
//! their way again, whatever became of them; and what that would be of, before it begins.

use axum::Json;
use domain::attempt::AttemptState;
use domain::ids::DestinationId;
use engine::ports;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::parameters::{DestinationPath, EventPath, PathId};
use super::problem::Problem;
use super::replays::{BegunReplays, Replay};
use super::{Caller, text};
use crate::service::{Everywhere, ReplayPreview};

/// Where an event is to be sent again.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResendEvent {
    /// To this destination, whether or not it has been there; to all where it has been
    /// if absent.
    pub destination_id: Option<Uuid>,
    /// Which part of the destination's limit it may use: 0.5 if absent.
    pub share: Option<f64>,
}

/// Which events are to be sent again, to a destination or to all of them.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResendEvents {
    /// Accepted then or later.
    #[schema(format = DateTime)]
    pub since: String,
    /// Accepted before; until now if absent, and at the latest.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// Of this type.
    #[serde(default, rename = "type")]
    pub event_type: Option<String>,
    /// Those only of which an attempt there was answered with this HTTP status, or with one of
    /// a class: `500`, `5xx`.
    #[serde(default)]
    #[schema(pattern = "^[1-9]([0-9]{2}|xx)$")]
    pub status: Option<String>,
    /// Those only of which an attempt there ended so; with `status` the same attempt.
    #[serde(default)]
    #[schema(schema_with = text::final_state_or_null)]
    pub state: Option<AttemptState>,
    /// Those only whose ids have this in them, or the one for which it stands as a whole
    /// idempotency key.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255)]
    pub text: Option<String>,
    /// Those only of which no delivery to it has succeeded.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub only_failed: bool,
    /// Which part of the destination's limit it may use: 0.5 if absent.
    #[serde(default)]
    pub share: Option<f64>,
    /// To all destinations: the `next` of the answer before, to go on.
    #[serde(default)]
    pub after: Option<Uuid>,
}

impl ResendEvents {
    fn which(self) -> Result<ports::ResentEvents, Problem> {
        let since = text::parsed_time("since", Some(&self.since))?;
        Ok(ports::ResentEvents {
            since: since.unwrap_or_default(),
            until: text::parsed_time("until", self.until.as_deref())?,
            event_type: self.event_type,
            only_missed: self.only_failed,
            state: self.state,
            status: text::parsed_status("status", self.status.as_deref())?,
            text: self.text,
        })
    }

    /// What is not asked for in parts.
    fn whole(self) -> Result<ports::ResentEvents, Problem> {
        match self.after {
            Some(_) => Err(Problem::invalid(
                "after",
                "goes with POST /v1/events/resend",
            )),
            None => self.which(),
        }
    }
}

const fn yes() -> bool {
    true
}

/// What would be sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResendPreview {
    /// How many deliveries, counted up to about 10,000 among the first events of the time, and
    /// of all destinations to the first 100: at least so many.
    pub deliveries: u64,
    /// Whether all were counted. Otherwise there may be more, and it takes longer.
    pub is_all: bool,
    /// About how long it takes until the last of those that were counted are sent; `null`
    /// while a limit is 0.
    pub takes_seconds: Option<f64>,
    /// The destinations that get most of them first, at most 50.
    pub destinations: Vec<PreviewedResend>,
    /// How many more destinations get some.
    pub further_destinations: u64,
}

/// What would be sent to one destination again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedResend {
    /// Its id.
    pub destination_id: Uuid,
    /// For people.
    pub name: String,
    /// Where its requests go.
    pub url: String,
    /// How many of them go there.
    pub deliveries: u64,
    /// About how long they take; `null` while its limit is 0.
    pub takes_seconds: Option<f64>,
}

impl From<ReplayPreview> for ResendPreview {
    fn from(preview: ReplayPreview) -> Self {
        let each = preview.each.into_iter().map(|one| PreviewedResend {
            destination_id: one.destination.id.0,
            name: one.destination.name,
            url: one.destination.url,
            deliveries: one.count,
            takes_seconds: one.takes.map(|takes| takes.as_secs_f64()),
        });
        Self {
            deliveries: preview.count,
            is_all: preview.is_all,
            takes_seconds: preview.takes.map(|takes| takes.as_secs_f64()),
            destinations: each.collect(),
            further_destinations: preview.further as u64,
        }
    }
}

/// Send an event again, whatever became of it. Where it still waits, or is under way, it
/// is left alone.
///
/// A replay begins for each destination. Receivers see the event's id again: those that
/// deduplicate ignore what they have got.
#[utoipa::path(post, path = "/v1/events/{id}/resend", operation_id = "resend_event",
    tag = "events", security(("key" = ["manage"])),
    params(("id" = Uuid, Path)), request_body = ResendEvent, responses(
    (status = 201, description = "They have begun.", body = BegunReplays),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn event(
    caller: Caller,
    PathId(id): EventPath,
    JsonBody(body): JsonBody<ResendEvent>,
) -> Result<(StatusCode, Json<BegunReplays>), Problem> {
    let to = body.destination_id.map(DestinationId);
    let begun = caller
        .run(move |service| async move { service.resend_event(id, to, body.share).await })
        .await?;
    Ok((StatusCode::CREATED, Json(begun.into())))
}

/// Send to a destination again what it has missed, or all that was for it: what was sent
/// there, and what was for the subscribers of a type to which it subscribes now.
///
/// Begins one replay. Events whose payloads are no longer kept are `skipped`.
#[utoipa::path(post, path = "/v1/destinations/{id}/resend", operation_id = "resend_events",
    tag = "destinations", security(("key" = ["manage"])),
    params(("id" = Uuid, Path)), request_body = ResendEvents, responses(
    (status = 201, description = "It has begun.", body = Replay),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn events(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<ResendEvents>,
) -> Result<(StatusCode, Json<Replay>), Problem> {
    let share = body.share;
    let which = body.whole()?;
    let begun = caller
        .run(move |service| async move { service.resend_events(id, which, share).await })
        .await?;
    Ok((StatusCode::CREATED, Json(begun.into())))
}

/// Send to all destinations again what each of them has missed, or all that was for it.
///
/// Begins a replay for each where something matches; disabled destinations are left out. A
/// request looks at 10 destinations at most, and `next` says where to go on: also where it
/// ended early, after some seconds or with a failure, which is an error only where no replay
/// has begun. One where more events could match than were looked at has a replay that may find
/// none; one where all that matches has lost its payloads has none. Of a tenant 1,000 replays
/// run at once, at most.
#[utoipa::path(post, path = "/v1/events/resend", operation_id = "resend_everywhere",
    tag = "events", security(("key" = ["manage"])),
    request_body = ResendEvents, responses(
    (status = 201, description = "They have begun.", body = BegunReplays),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn everywhere(
    caller: Caller,
    JsonBody(body): JsonBody<ResendEvents>,
) -> Result<(StatusCode, Json<BegunReplays>), Problem> {
    let share = body.share;
    let from = Everywhere {
        after: body.after.map(DestinationId),
    };
    let which = body.which()?;
    let begun = caller
        .run(move |service| async move { service.resend_everywhere(which, from, share).await })
        .await?;
    Ok((StatusCode::CREATED, Json(begun.into())))
}

/// Say what sending events to a destination again would be of, how many deliveries and about
/// how long; sends none.
#[utoipa::path(post, path = "/v1/destinations/{id}/resend/preview",
    operation_id = "preview_resend_events", tag = "destinations",
    security(("key" = ["read"])),
    params(("id" = Uuid, Path)), request_body = ResendEvents, responses(
    (status = 200, body = ResendPreview),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn preview_events(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<ResendEvents>,
) -> Result<Json<ResendPreview>, Problem> {
    previewed(&caller, Some(id), body).await
}

/// Say what sending events to all destinations again would be of, how many deliveries and
/// about how long; sends none. Disabled destinations are left out.
#[utoipa::path(post, path = "/v1/events/resend/preview",
    operation_id = "preview_resend_everywhere", tag = "events",
    security(("key" = ["read"])),
    request_body = ResendEvents, responses(
    (status = 200, body = ResendPreview),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn preview_everywhere(
    caller: Caller,
    JsonBody(body): JsonBody<ResendEvents>,
) -> Result<Json<ResendPreview>, Problem> {
    previewed(&caller, None, body).await
}

async fn previewed(
    caller: &Caller,
    to: Option<DestinationId>,
    body: ResendEvents,
) -> Result<Json<ResendPreview>, Problem> {
    let share = body.share;
    let which = body.whole()?;
    let found = caller
        .run(move |service| async move { service.resend_preview(to, &which, share).await })
        .await?;
    Ok(Json(found.into()))
}

//! `/v1/events/{id}/resend` and `/v1/destinations/{id}/resend`: events on their way
//! again, whatever became of them.

use axum::Json;
use domain::attempt::AttemptState;
use domain::ids::DestinationId;
use engine::ports::ResentEvents;
use http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::parameters::{DestinationPath, EventPath, PathId};
use super::problem::Problem;
use super::replays::{BegunReplays, Replay};
use super::{Caller, text};

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

/// Which events are to be sent to a destination again.
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
}

const fn yes() -> bool {
    true
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
    let since = text::parsed_time("since", Some(&body.since))?;
    let which = ResentEvents {
        since: since.unwrap_or_default(),
        until: text::parsed_time("until", body.until.as_deref())?,
        event_type: body.event_type,
        only_missed: body.only_failed,
        state: body.state,
        status: text::parsed_status("status", body.status.as_deref())?,
        text: body.text,
    };
    let share = body.share;
    let begun = caller
        .run(move |service| async move { service.resend_events(id, which, share).await })
        .await?;
    Ok((StatusCode::CREATED, Json(begun.into())))
}

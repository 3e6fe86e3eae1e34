//! `/v1/replays`: dead letters on their way back into the backlog.

use axum::Json;
use domain::ids::{AttemptId, DestinationId, ReplayId};
use domain::replay::ReplayState;
use engine::ports;
use engine::ports::DeadLetterFilter;
use http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::parameters::PathId;
use super::problem::Problem;
use super::{Caller, text};
use crate::service::ReplayDraft;

/// A replay to begin: of one dead letter (`attempt_id`), or of all of a
/// destination that match now.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateReplay {
    /// One dead letter: the id of its last attempt.
    pub attempt_id: Option<i64>,
    /// The dead letters of this destination.
    pub destination_id: Option<Uuid>,
    /// Of these, events of this type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// Of these, those whose last answer had this status.
    pub status: Option<u16>,
    /// Of these, those that died at this time or later.
    #[schema(format = DateTime)]
    pub died_from: Option<String>,
    /// Of these, those that died before.
    #[schema(format = DateTime)]
    pub died_before: Option<String>,
    /// Which part of the destination's limit it may use: 0.5 if absent.
    pub share: Option<f64>,
}

/// How far a replay is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Replay {
    /// Its id.
    pub id: Uuid,
    /// Whose dead letters.
    pub destination_id: Uuid,
    /// Its part of the limit.
    pub share: f64,
    /// Whether it goes on.
    #[schema(schema_with = text::replay_state)]
    pub state: ReplayState,
    /// How many matched when it began, counted up to a million.
    pub total: u64,
    /// How many of them are back in the backlog, or further.
    pub done: u64,
    /// How many of those have no outcome yet.
    pub pending: u64,
    /// How many were delivered at their first try.
    pub succeeded: u64,
    /// How many failed at their first try: they are tried again, or are dead
    /// letters again.
    pub failed: u64,
    /// When it began.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it ended.
    #[schema(format = DateTime)]
    pub finished_at: Option<String>,
}

impl From<ports::Replay> for Replay {
    fn from(replay: ports::Replay) -> Self {
        Self {
            id: replay.id.0,
            destination_id: replay.destination.0,
            share: replay.share,
            state: replay.state,
            total: replay.total,
            done: replay.done,
            pending: replay.pending,
            succeeded: replay.succeeded,
            failed: replay.failed,
            created_at: text::time(replay.created_at),
            finished_at: replay.finished_at.map(text::time),
        }
    }
}

/// Begin a replay. Its attempts are of the same events, with the next try
/// numbers, and go out within the destination's limit.
#[utoipa::path(post, path = "/v1/replays", tag = "dead letters", security(("key" = ["manage"])),
    request_body = CreateReplay, responses(
    (status = 201, description = "It has begun.", body = Replay),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    JsonBody(body): JsonBody<CreateReplay>,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<Replay>), Problem> {
    let draft = ReplayDraft {
        attempt: body.attempt_id.map(AttemptId),
        filter: DeadLetterFilter {
            destination: body.destination_id.map(DestinationId),
            event_type: body.event_type,
            status: body.status,
            died_from: text::parsed_time("died_from", body.died_from.as_deref())?,
            died_before: text::parsed_time("died_before", body.died_before.as_deref())?,
        },
        share: body.share,
    };
    let created = caller
        .run(move |service| async move { service.create_replay(draft).await })
        .await?;
    let location = (header::LOCATION, format!("/v1/replays/{}", created.id));
    Ok((StatusCode::CREATED, [location], Json(created.into())))
}

/// Look at a replay.
#[utoipa::path(get, path = "/v1/replays/{id}", tag = "dead letters", security(("key" = ["read"])),
    params(("id" = Uuid, Path)), responses(
    (status = 200, body = Replay),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): PathId<ReplayId>,
) -> Result<Json<Replay>, Problem> {
    let found = caller
        .run(move |service| async move { service.replay(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// End a replay. What it has put back into the backlog stays there.
#[utoipa::path(post, path = "/v1/replays/{id}/cancel", tag = "dead letters",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Replay),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn cancel(
    caller: Caller,
    PathId(id): PathId<ReplayId>,
) -> Result<Json<Replay>, Problem> {
    let ended = caller
        .run(move |service| async move { service.cancel_replay(id).await })
        .await?;
    Ok(Json(ended.into()))
}

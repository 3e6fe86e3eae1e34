//! Cancelling: one attempt, or what matches of a backlog.

use axum::Json;
use domain::ids::AttemptId;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::JsonBody;
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::{CancelDraft, CancelledPart};

/// Which part of a backlog to cancel: all of it, unless something is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelBacklog {
    /// Only events of this type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// Only events that were accepted before this; now, if absent.
    #[schema(format = DateTime)]
    pub accepted_before: Option<String>,
    /// The `next` of the answer before, to go on.
    pub after: Option<String>,
}

/// What was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelledBacklog {
    /// How many attempts.
    pub cancelled: u32,
    /// What `accepted_before` was: say it again, to go on.
    #[schema(format = DateTime)]
    pub accepted_before: String,
    /// More may be left: repeat the request with this as `after`. `null` when
    /// all is done.
    pub next: Option<String>,
}

impl From<CancelledPart> for CancelledBacklog {
    fn from(part: CancelledPart) -> Self {
        Self {
            cancelled: part.cancelled,
            accepted_before: text::time(part.accepted_before),
            next: part.next.map(|next| next.to_string()),
        }
    }
}

/// Cancel what waits at a destination, in bounded steps. What has started goes
/// on; so may what gets its permit while this runs.
#[utoipa::path(post, path = "/v1/destinations/{id}/cancel", operation_id = "cancel_backlog",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), request_body = CancelBacklog, responses(
    (status = 200, body = CancelledBacklog),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn backlog(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<CancelBacklog>,
) -> Result<Json<CancelledBacklog>, Problem> {
    let accepted_before = text::parsed_time("accepted_before", body.accepted_before.as_deref())?;
    let after = match body.after.as_deref().map(str::parse).transpose() {
        Ok(after) => after,
        Err(problem) => return Err(Problem::invalid("after", problem)),
    };
    let draft = CancelDraft {
        event_type: body.event_type,
        accepted_before,
        after,
    };
    let done = caller
        .run(move |service| async move { service.cancel_backlog(id, draft).await })
        .await?;
    Ok(Json(done.into()))
}

/// Cancel one attempt that has not started; 409 if it has.
#[utoipa::path(post, path = "/v1/attempts/{id}/cancel", operation_id = "cancel_attempt",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = i64, Path)), responses(
    (status = 204, description = "Cancelled, now or before."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn attempt(
    caller: Caller,
    PathId(id): PathId<i64>,
) -> Result<StatusCode, Problem> {
    caller
        .run(move |service| async move { service.cancel_attempt(AttemptId(id)).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

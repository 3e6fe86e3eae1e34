//! `/v1/destinations/{id}/batches`: several events in one request.

use axum::Json;
use domain::batch::BatchSettings;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Caller;
use super::body::JsonBody;
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;

/// A destination's batches. A request is sent as soon as one of the three is
/// reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batches {
    /// Events in one request, at most; `null` for one event a request, without
    /// the envelope of a batch.
    #[schema(minimum = 1, maximum = 500)]
    pub max_events: Option<u32>,
    /// Bytes of their payloads, at most: 1,000,000. An event that is larger goes
    /// alone.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_bytes: Option<u32>,
    /// How long an event waits for others: 1,000. Less than `max_age_ms` of the
    /// retry rules.
    #[schema(maximum = 60_000)]
    pub max_wait_ms: Option<u32>,
}

impl From<BatchSettings> for Batches {
    fn from(settings: BatchSettings) -> Self {
        Self {
            max_events: settings.max_events,
            max_bytes: settings.max_bytes,
            max_wait_ms: settings.max_wait_ms,
        }
    }
}

/// Look at a destination's batches.
#[utoipa::path(get, path = "/v1/destinations/{id}/batches", operation_id = "show_batches",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Batches),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Batches>, Problem> {
    let batches = caller
        .run(|service| async move { service.batches(id).await })
        .await?;
    Ok(Json(batches.into()))
}

/// Set all of a destination's batches. To turn them on or off is another kind
/// of request: permits that are out are revoked.
#[utoipa::path(put, path = "/v1/destinations/{id}/batches", operation_id = "set_batches",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), request_body = Batches, responses(
    (status = 200, body = Batches),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn set(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<Batches>,
) -> Result<Json<Batches>, Problem> {
    let settings = BatchSettings {
        max_events: body.max_events,
        max_bytes: body.max_bytes,
        max_wait_ms: body.max_wait_ms,
    };
    let set = caller
        .run(move |service| async move { service.set_batches(id, settings).await })
        .await?;
    Ok(Json(set.into()))
}

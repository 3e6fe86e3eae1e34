//! `/v1/destinations/{id}/smart-delivery`.

use axum::Json;
use domain::smart::{Effective, Reason, SmartDelivery};
use engine::ports;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::body::JsonBody;
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::SmartAndHistory;

/// The effective limit of a destination, and how it came about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SmartStatus {
    /// Whether it follows how the receiver answers.
    pub enabled: bool,
    /// What is in force now.
    #[serde(flatten)]
    pub now: EffectiveLimit,
    /// What came into force, the newest first: up to 100 entries of the last
    /// seven days. Every cut, every change of the reason, and raises by a
    /// tenth or more.
    pub history: Vec<SmartEntry>,
}

/// An effective limit: at or below the configured one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EffectiveLimit {
    /// Starts per second. `null` is as configured.
    pub effective_per_second: Option<f64>,
    /// Queued and in flight. `null` is as configured.
    pub effective_max_in_flight: Option<u32>,
    /// `configured` (nothing lowers it), `refused` (the receiver answered 429, or
    /// 503 too often), `slow` (its answers took too long) or `raising`.
    #[schema(schema_with = reason)]
    pub reason: Reason,
}

/// An entry of its history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SmartEntry {
    /// From when on.
    #[schema(format = DateTime)]
    pub in_force_from: String,
    /// What.
    #[serde(flatten)]
    pub limit: EffectiveLimit,
}

/// Turns smart delivery on or off.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeSmartDelivery {
    /// Whether it follows how the receiver answers.
    pub enabled: bool,
}

fn reason() -> Object {
    text::words(Reason::ALL.map(Reason::as_str))
}

impl EffectiveLimit {
    pub(crate) fn new(effective: Effective, reason: Reason) -> Self {
        let rounded = |rate: f64| (rate * 1_000.0).round() / 1_000.0;
        Self {
            effective_per_second: effective.per_second.map(rounded),
            effective_max_in_flight: effective.max_in_flight,
            reason,
        }
    }
}

impl From<ports::SmartChange> for SmartEntry {
    fn from(change: ports::SmartChange) -> Self {
        Self {
            in_force_from: text::time(change.in_force_from),
            limit: EffectiveLimit::new(change.effective, change.reason),
        }
    }
}

impl From<SmartAndHistory> for SmartStatus {
    fn from(found: SmartAndHistory) -> Self {
        let view = found.view;
        Self {
            enabled: view.delivery == SmartDelivery::On,
            now: EffectiveLimit::new(view.effective, view.reason),
            history: found.history.into_iter().map(SmartEntry::from).collect(),
        }
    }
}

/// Look at a destination's smart delivery: the limit in force, why, and what
/// it was.
#[utoipa::path(get, path = "/v1/destinations/{id}/smart-delivery", operation_id = "show_smart_delivery",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = SmartStatus),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<SmartStatus>, Problem> {
    let found = caller
        .run(|service| async move { service.smart_delivery(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// Turn a destination's smart delivery on or off. The configured limit is in
/// force then, until its receiver's answers say otherwise.
#[utoipa::path(patch, path = "/v1/destinations/{id}/smart-delivery", operation_id = "change_smart_delivery",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), request_body = ChangeSmartDelivery,
    responses(
    (status = 200, body = SmartStatus),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<ChangeSmartDelivery>,
) -> Result<Json<SmartStatus>, Problem> {
    let to = match body.enabled {
        true => SmartDelivery::On,
        false => SmartDelivery::Off,
    };
    let found = caller
        .run(move |service| async move { service.set_smart_delivery(id, to).await })
        .await?;
    Ok(Json(found.into()))
}

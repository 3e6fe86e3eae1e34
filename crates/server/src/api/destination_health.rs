//! `/v1/destinations/{id}/health`, `…/breaker`, `…/pause` and `…/resume`.

use axum::Json;
use domain::destination::DestinationState;
use domain::health::{Breaker, DisableReason, HoldReason};
use engine::ports;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::body::JsonBody;
use super::destinations::Destination;
use super::limits::present;
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::{DestinationEdit, StateAndHealth};

/// How a destination answers, and what follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Whether it takes starts.
    #[schema(schema_with = text::destination_state)]
    pub state: DestinationState,
    /// Why we have disabled it: `gone` (it answered 410, or `webhook-delivery:
    /// disable`) or `failing` (its breaker was open for too long). `null` if we
    /// have not.
    #[schema(schema_with = disable_reason)]
    pub disabled_for: Option<DisableReason>,
    /// What stops bursts of failures.
    pub breaker: BreakerStatus,
    /// Nothing starts before its end. `null` if nothing is held.
    #[schema(value_type = Option<HoldStatus>)]
    pub hold: Option<HoldStatus>,
}

/// The breaker of a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BreakerStatus {
    /// `closed` lets everything through, `open` holds the backlog, `half_open`
    /// lets one attempt through at a time.
    #[schema(schema_with = breaker)]
    pub state: Breaker,
    /// Failures in a row, while it is closed. Requests that were under way
    /// together and failed count as one.
    pub failures: u32,
    /// When the first of them ended.
    #[schema(format = DateTime)]
    pub failing_since: Option<String>,
    /// Since when it is open.
    #[schema(format = DateTime)]
    pub opened_at: Option<String>,
    /// Probes that failed since.
    pub failed_probes: u32,
    /// So many failures in a row open it; 0 for never.
    pub opens_after_failures: u32,
    /// If they go on for so long at least, from the end of the first to the end
    /// of the last; 0 for at once.
    pub opens_after_failing_for_seconds: u64,
    /// Open for so long, the destination is disabled; 0 for at once.
    pub disable_after_seconds: u64,
}

/// A hold that is in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HoldStatus {
    /// When it began.
    #[schema(format = DateTime)]
    pub since: String,
    /// When it ends.
    #[schema(format = DateTime)]
    pub until: String,
    /// `asked` (the receiver named a time), `refused` (it answered 429 and
    /// named none) or `breaker`.
    #[schema(schema_with = hold_reason)]
    pub reason: HoldReason,
}

/// What to change of a breaker: what is absent stays, `null` sets the default.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeBreaker {
    /// So many failures in a row open it; 0 for never. By default 20.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub opens_after_failures: Option<Option<u32>>,
    /// If they go on for so long at least, from the end of the first to the end
    /// of the last; 0 for at once. By default five seconds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub opens_after_failing_for_seconds: Option<Option<u32>>,
    /// Open for so long, the destination is disabled; 0 for at once. By
    /// default five days.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub disable_after_seconds: Option<Option<u32>>,
}

fn disable_reason() -> Object {
    let reasons = [DisableReason::Gone, DisableReason::Failing];
    text::or_null(text::words(reasons.map(DisableReason::as_str)))
}

fn breaker() -> Object {
    text::words([Breaker::Closed, Breaker::Open, Breaker::HalfOpen].map(Breaker::as_str))
}

fn hold_reason() -> Object {
    let reasons = [HoldReason::Asked, HoldReason::Refused, HoldReason::Breaker];
    text::words(reasons.map(HoldReason::as_str))
}

impl From<StateAndHealth> for Health {
    fn from(found: StateAndHealth) -> Self {
        let StateAndHealth { state, view } = found;
        let (health, now) = (view.health, view.now);
        let hold = health.hold.filter(|hold| hold.until > now);
        Self {
            state,
            disabled_for: health.disabled,
            breaker: BreakerStatus {
                state: health.breaker(now),
                failures: health.failures,
                failing_since: health.failing_since.map(text::time),
                opened_at: health.opened_at.map(text::time),
                failed_probes: health.probes,
                opens_after_failures: view.settings.failures,
                opens_after_failing_for_seconds: view.settings.failing_for.as_secs(),
                disable_after_seconds: view.settings.disable_after.as_secs(),
            },
            hold: hold.map(|hold| HoldStatus {
                since: text::time(hold.since),
                until: text::time(hold.until),
                reason: hold.reason,
            }),
        }
    }
}

/// Look at a destination's health: what holds its backlog, and why.
#[utoipa::path(get, path = "/v1/destinations/{id}/health", operation_id = "show_health",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Health),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Health>, Problem> {
    let found = caller
        .run(|service| async move { service.health(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// Change a destination's breaker.
#[utoipa::path(patch, path = "/v1/destinations/{id}/breaker", operation_id = "change_breaker",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), request_body = ChangeBreaker, responses(
    (status = 200, body = Health),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change_breaker(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<ChangeBreaker>,
) -> Result<Json<Health>, Problem> {
    let change = ports::BreakerChange {
        failures: body.opens_after_failures,
        failing_for_seconds: body.opens_after_failing_for_seconds,
        disable_after_seconds: body.disable_after_seconds,
    };
    let found = caller
        .run(|service| async move { service.change_breaker(id, change).await })
        .await?;
    Ok(Json(found.into()))
}

/// Pause a destination: its backlog is held, and events are still accepted.
#[utoipa::path(post, path = "/v1/destinations/{id}/pause", operation_id = "pause_destination",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Destination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn pause(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Destination>, Problem> {
    let edit = DestinationEdit {
        state: Some(DestinationState::Paused),
        ..DestinationEdit::default()
    };
    let paused = caller
        .run(|service| async move { service.change_destination(id, edit).await })
        .await?;
    Ok(Json(paused.into()))
}

/// Resume a destination that is paused, disabled, held, or has its breaker
/// open: whatever was remembered of its failures is forgotten, and its backlog
/// drains at its limit.
#[utoipa::path(post, path = "/v1/destinations/{id}/resume", operation_id = "resume_destination",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Destination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn resume(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Destination>, Problem> {
    let resumed = caller
        .run(|service| async move { service.resume(id).await })
        .await?;
    Ok(Json(resumed.into()))
}

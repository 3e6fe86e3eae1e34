//! `/v1/limit-requests`: limits above a ceiling, asked for and decided on.

use axum::Json;
use domain::ceiling::LargerBatches;
use domain::limit::{Count, Shape};
use domain::policy::LimitSettings;
use engine::ports::{self, LimitRequestState, Wanted};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::body::JsonBody;
use super::limits::{Limits, LimitsPatch, not_null, periods, present, present_object};
use super::parameters::{DestinationPath, LimitRequestsPage, Page, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::LimitsChange;
use crate::service::ceilings::LimitRequestPage;

/// The limits that a destination shall have, as a change of those that it has: what is
/// absent stays, `null` clears.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestLimits {
    /// Starts per period; `null` clears all four, so that the tier's hold.
    #[serde(default, deserialize_with = "present_object")]
    #[schema(value_type = Option<LimitsPatch>)]
    pub limits: Option<Option<LimitsPatch>>,
    /// `true` clears the limits.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = bool)]
    pub unlimited: Option<bool>,
    /// A bucket's capacity, or how many of a window may start at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub burst: Option<Option<u32>>,
    /// How the limit spreads its starts.
    #[serde(default, deserialize_with = "present")]
    #[schema(schema_with = text::shape_or_null)]
    pub shape: Option<Option<Shape>>,
    /// Attempts queued and in flight at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub max_in_flight: Option<Option<u32>>,
    /// So many events may be in one request.
    pub batch_events: Option<u32>,
    /// So many bytes of their payloads.
    pub batch_bytes: Option<u32>,
    /// Why, at most 1,000 bytes.
    #[serde(default)]
    pub note: String,
}

/// How many destinations the tenant may have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestDestinations {
    /// With those that are there.
    pub destinations: u32,
    /// Why, at most 1,000 bytes.
    #[serde(default)]
    pub note: String,
}

/// Why it is decided so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// In words for whoever asked, at most 1,000 bytes.
    #[serde(default)]
    pub reason: String,
}

/// A request as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitRequest {
    /// Its id.
    pub id: Uuid,
    /// Whose.
    pub tenant_id: Uuid,
    /// For which destination; `null` where a number of them is asked for.
    pub destination_id: Option<Uuid>,
    /// Whether it was decided on, and how.
    #[schema(schema_with = state)]
    pub state: String,
    /// Starts per period, as they shall be; `null` where no limits are asked for.
    pub limits: Option<Limits>,
    /// No rate limit.
    pub unlimited: bool,
    /// A bucket's capacity, or how many of a window may start at once.
    pub burst: Option<u32>,
    /// How the limit spreads its starts.
    #[schema(schema_with = text::shape_or_null)]
    pub shape: Option<Shape>,
    /// Attempts queued and in flight at once.
    pub max_in_flight: Option<u32>,
    /// Until when a request counts.
    #[schema(schema_with = text::count_or_null)]
    pub count: Option<Count>,
    /// Events in one request, where more are asked for.
    pub batch_events: Option<u32>,
    /// Bytes of their payloads, where more are asked for.
    pub batch_bytes: Option<u32>,
    /// How many destinations there may be, where that is asked for.
    pub destinations: Option<u32>,
    /// Why it was asked for.
    pub note: String,
    /// When.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Why it was decided so.
    pub reason: String,
    /// When that was.
    #[schema(format = DateTime)]
    pub decided_at: Option<String>,
}

/// A page of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitRequestList {
    /// Those first that wait for a decision, and then the newest. One that is decided between
    /// two pages may be on both.
    pub limit_requests: Vec<LimitRequest>,
    /// The `before` of the next page; `null` on the last.
    pub next: Option<String>,
}

fn state() -> Object {
    text::words(LimitRequestState::ALL.map(LimitRequestState::as_str))
}

impl From<ports::LimitRequest> for LimitRequest {
    fn from(request: ports::LimitRequest) -> Self {
        let (limits, batches, destinations) = match request.wanted {
            Wanted::Limits {
                limits, batches, ..
            } => (limits, batches, None),
            Wanted::Destinations(most) => (None, LargerBatches::default(), Some(most)),
        };
        let limits = limits.map(|limits| limits.settings);
        let settings = limits.unwrap_or(LimitSettings::EXACT);
        Self {
            id: request.id,
            tenant_id: request.tenant.0,
            destination_id: request
                .wanted
                .destination()
                .map(|destination| destination.0),
            state: request.state.as_str().to_owned(),
            limits: limits.as_ref().map(Limits::of),
            unlimited: settings.unlimited,
            burst: settings.burst,
            shape: settings.shape,
            max_in_flight: settings.max_in_flight,
            count: settings.count,
            batch_events: batches.events,
            batch_bytes: batches.bytes,
            destinations,
            note: request.note,
            created_at: text::time(request.created_at),
            reason: request.reason,
            decided_at: request.decided_at.map(text::time),
        }
    }
}

impl From<LimitRequestPage> for LimitRequestList {
    fn from(page: LimitRequestPage) -> Self {
        Self {
            limit_requests: page.requests.into_iter().map(LimitRequest::from).collect(),
            next: page.next,
        }
    }
}

/// Ask for limits of a destination, or for batches, that are above the ceiling of its
/// tenant's tier. A request that is open already is replaced, but for the part of the two that
/// is not asked for.
#[utoipa::path(post, path = "/v1/destinations/{id}/limit-requests",
    operation_id = "request_limits", tag = "destinations", security(("key" = ["manage"])),
    params(("id" = Uuid, Path)), request_body = RequestLimits, responses(
    (status = 201, description = "Asked for.", body = LimitRequest),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<RequestLimits>,
) -> Result<(StatusCode, Json<LimitRequest>), Problem> {
    let change = LimitsChange {
        unlimited: body.unlimited,
        burst: body.burst,
        shape: body.shape,
        max_in_flight: body.max_in_flight,
        ..periods(body.limits)
    };
    let batches = LargerBatches {
        events: body.batch_events,
        bytes: body.batch_bytes,
    };
    let wanted = (change, batches);
    let made = caller
        .run(move |service| async move { service.request_limits(id, wanted, body.note).await })
        .await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// Ask for more destinations than the tenant's tier allows. A request that is open already is
/// replaced.
#[utoipa::path(post, path = "/v1/limit-requests", operation_id = "request_destinations",
    tag = "destinations", security(("key" = ["manage"])), request_body = RequestDestinations,
    responses(
    (status = 201, description = "Asked for.", body = LimitRequest),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create_for_tenant(
    caller: Caller,
    JsonBody(body): JsonBody<RequestDestinations>,
) -> Result<(StatusCode, Json<LimitRequest>), Problem> {
    let made = caller
        .run(move |service| async move {
            service
                .request_destinations(body.destinations, body.note)
                .await
        })
        .await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// List what the tenant has asked for.
#[utoipa::path(get, path = "/v1/limit-requests", operation_id = "list_limit_requests",
    tag = "destinations", security(("key" = ["read"])), params(LimitRequestsPage), responses(
    (status = 200, body = LimitRequestList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<LimitRequestsPage>,
) -> Result<Json<LimitRequestList>, Problem> {
    let found = caller
        .run(move |service| async move {
            service
                .limit_requests(page.before.as_deref(), page.limit)
                .await
        })
        .await?;
    Ok(Json(found.into()))
}

/// List what all tenants have asked for.
#[utoipa::path(get, path = "/v1/fleet/limit-requests", operation_id = "list_all_limit_requests",
    tag = "tenants", security(("key" = ["admin"])), params(LimitRequestsPage), responses(
    (status = 200, body = LimitRequestList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_all(
    caller: Caller,
    Page(page): Page<LimitRequestsPage>,
) -> Result<Json<LimitRequestList>, Problem> {
    let found = caller
        .run(move |service| async move {
            service
                .all_limit_requests(page.before.as_deref(), page.limit)
                .await
        })
        .await?;
    Ok(Json(found.into()))
}

/// Grant what somebody asked for: limits are in force at once, and a destination may have as
/// much, or the tenant as many destinations, from then on, whatever its tier says.
#[utoipa::path(post, path = "/v1/limit-requests/{id}/approve",
    operation_id = "approve_limit_request", tag = "tenants", security(("key" = ["admin"])),
    params(("id" = Uuid, Path)), request_body = Decide, responses(
    (status = 200, body = LimitRequest),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn approve(
    caller: Caller,
    PathId(id): PathId<Uuid>,
    JsonBody(body): JsonBody<Decide>,
) -> Result<Json<LimitRequest>, Problem> {
    decide(&caller, id, LimitRequestState::Approved, body).await
}

/// Refuse what somebody asked for: all stays as it is.
#[utoipa::path(post, path = "/v1/limit-requests/{id}/decline",
    operation_id = "decline_limit_request", tag = "tenants", security(("key" = ["admin"])),
    params(("id" = Uuid, Path)), request_body = Decide, responses(
    (status = 200, body = LimitRequest),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn decline(
    caller: Caller,
    PathId(id): PathId<Uuid>,
    JsonBody(body): JsonBody<Decide>,
) -> Result<Json<LimitRequest>, Problem> {
    decide(&caller, id, LimitRequestState::Declined, body).await
}

async fn decide(
    caller: &Caller,
    id: Uuid,
    decision: LimitRequestState,
    body: Decide,
) -> Result<Json<LimitRequest>, Problem> {
    let decided = caller
        .run(move |service| async move {
            let reason = &body.reason;
            service.decide_limit_request(id, decision, reason).await
        })
        .await?;
    Ok(Json(decided.into()))
}

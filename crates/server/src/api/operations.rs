//! `/v1/operational-destinations`, `/v1/operational-events`,
//! `/v1/destinations/{id}/alerts` and `/v1/alerts`.

use axum::Json;
use domain::access::Scope;
use domain::ids::DestinationId;
use domain::operations::{self, OperationalScope, OperationalType};
use domain::watch::Shortfall;
use engine::ports;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::openapi::schema::{ArrayBuilder, Object};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::body::JsonBody;
use super::limits::present;
use super::parameters::{DestinationPath, Page, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::operations::WantedOperations;

/// What a destination is to be told of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// `tenant`, or `installation` for the destinations of all tenants, which
    /// needs the scope `admin`.
    #[serde(default)]
    #[schema(schema_with = scope)]
    pub scope: OperationalScope,
    /// The types of operational events; none is all.
    #[serde(default)]
    #[schema(schema_with = types)]
    pub event_types: Vec<OperationalType>,
}

/// A destination that is told what operators must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationalDestination {
    /// Which.
    pub destination_id: Uuid,
    /// Of whose destinations.
    #[schema(schema_with = scope)]
    pub scope: OperationalScope,
    /// Of which types; none is all.
    #[schema(schema_with = types)]
    pub event_types: Vec<String>,
}

/// A tenant's operational destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationalDestinations {
    /// In the order of registration.
    pub operational_destinations: Vec<OperationalDestination>,
}

/// What operators must know of one destination, or of a tenant as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationalEvent {
    /// Its id: later ones have larger.
    pub id: i64,
    /// What happened.
    #[serde(rename = "type")]
    #[schema(schema_with = event_type)]
    pub event_type: String,
    /// When it came to be.
    #[schema(format = DateTime)]
    pub timestamp: String,
    /// About whom; `null` where it is the tenant as a whole.
    pub destination_id: Option<Uuid>,
    /// What people call it: its name, or its URL; empty once it is forgotten, and of a
    /// tenant as a whole.
    pub destination_name: String,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// That tenant's name; empty once the destination is forgotten, and of a tenant as
    /// a whole.
    pub tenant_name: String,
    /// What its type has to say.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
}

/// A page of operational events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationalEvents {
    /// The newest first. Of one type, fewer than were asked for, or none, where the
    /// 5,000 that one request looks through hold no more of them.
    pub operational_events: Vec<OperationalEvent>,
    /// The `before` of the next page; `null` on the last.
    pub next: Option<i64>,
}

/// Which page of operational events.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OperationalEventsPage {
    /// The `next` of the page before.
    pub before: Option<i64>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
    /// `tenant`, or `installation` for those of all tenants, which needs the
    /// scope `admin`.
    #[serde(default)]
    #[param(schema_with = scope)]
    pub scope: OperationalScope,
    /// Those of this type alone.
    #[serde(rename = "type")]
    #[param(schema_with = event_type)]
    pub event_type: Option<OperationalType>,
}

const fn default_page() -> u32 {
    100
}

/// When operators are told of a destination, and of what they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alerts {
    /// So many attempts wait; 0 for never.
    pub backlog: u32,
    /// For so long it gets less than its limit allows; 0 for never.
    pub under_delivery_seconds: u64,
    /// It fails when so many of a hundred answers are failures; 0 for never.
    pub failing_percent: u32,
    /// Its backlog has been high since then. `null` if it is not.
    #[schema(format = DateTime)]
    pub backlog_high_since: Option<String>,
    /// It gets less than its limit allows. `null` if not, or if nobody has
    /// looked since.
    #[schema(value_type = Option<UnderDelivery>)]
    pub under_delivery: Option<UnderDelivery>,
    /// It fails since then. `null` if it does not.
    #[schema(format = DateTime)]
    pub failing_since: Option<String>,
}

/// A destination with a backlog gets less than its limit allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnderDelivery {
    /// When that was seen first.
    #[schema(format = DateTime)]
    pub since: String,
    /// Why: `asked` and `refused` (the receiver wants less), `breaker`,
    /// `concurrency` (`max_in_flight` are under way), `tenant` (the tenant's
    /// are), `places` (the workers have no room), `smart` (smart delivery has
    /// lowered its limit), `unclaimed` (no worker takes what was admitted) or
    /// `unscheduled` (no scheduler admits it).
    #[schema(schema_with = shortfall)]
    pub reason: Shortfall,
    /// Operators were told.
    pub told: bool,
}

/// What to change of alerts: what is absent stays, `null` sets the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeAlerts {
    /// So many attempts wait; 0 for never. By default 10,000, at most 100,000.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub backlog: Option<Option<u32>>,
    /// For so long it gets less than its limit allows; 0 for never. By default
    /// 60, at most a day.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub under_delivery_seconds: Option<Option<u32>>,
    /// It fails when so many of a hundred answers are failures, of the last five
    /// minutes'; 0 for never. By default 50.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub failing_percent: Option<Option<u32>>,
}

/// When operators are told of a tenant as a whole, and of what they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantAlerts {
    /// When fewer of a hundred answers are successes; 0 for never.
    pub success_percent: u32,
    /// Of the answers within so many seconds.
    pub success_seconds: u64,
    /// If there are so many.
    pub success_least: u32,
    /// Too few succeed since then. `null` if enough do.
    #[schema(format = DateTime)]
    pub success_low_since: Option<String>,
    /// It has nearly as many destinations as it may have since then. `null` if not.
    #[schema(format = DateTime)]
    pub destinations_high_since: Option<String>,
    /// Its backlog is nearly so long that events are refused since then. `null` if not.
    #[schema(format = DateTime)]
    pub backlog_high_since: Option<String>,
    /// Its events are refused since then, because too many wait. `null` if not.
    #[schema(format = DateTime)]
    pub refused_since: Option<String>,
}

/// What to change of a tenant's alerts: what is absent stays, `null` sets the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTenantAlerts {
    /// When fewer of a hundred answers are successes, a 429 being none; 0 for never. By
    /// default 50, at most 100.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub success_percent: Option<Option<u32>>,
    /// Of the answers within so many seconds. By default 3,600, 300 to 86,400.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub success_seconds: Option<Option<u32>>,
    /// If there are so many. By default 20, 1 to 1,000,000.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub success_least: Option<Option<u32>>,
}

pub(super) fn scope() -> Object {
    text::words([OperationalScope::Tenant, OperationalScope::Installation].map(|one| one.as_str()))
}

fn event_type() -> Object {
    text::words(OperationalType::ALL.map(OperationalType::as_str))
}

pub(super) fn types() -> utoipa::openapi::schema::Array {
    ArrayBuilder::new().items(event_type()).build()
}

fn shortfall() -> Object {
    text::words(Shortfall::ALL.map(Shortfall::as_str))
}

impl From<operations::OperationalDestination> for OperationalDestination {
    fn from(found: operations::OperationalDestination) -> Self {
        Self {
            destination_id: found.destination.0,
            scope: found.scope,
            event_types: found.event_types,
        }
    }
}

impl OperationalEvent {
    fn of(found: operations::OperationalEvent, called: Option<&ports::Called>) -> Self {
        Self {
            destination_name: called.map_or(String::new(), |one| one.name.clone()),
            tenant_name: called.map_or(String::new(), |one| one.tenant_name.clone()),
            id: found.id,
            event_type: found.event_type,
            timestamp: text::time(found.created_at),
            destination_id: found.destination.map(|id| id.0),
            tenant_id: found.tenant.0,
            details: serde_json::from_str(&found.details).unwrap_or_default(),
        }
    }
}

impl From<ports::AlertsView> for Alerts {
    fn from(found: ports::AlertsView) -> Self {
        let under_delivery = found.watch.short.map(|short| UnderDelivery {
            since: text::time(short.since),
            reason: short.reason,
            told: short.told,
        });
        Self {
            backlog: found.settings.backlog,
            under_delivery_seconds: found.settings.under_delivery.as_secs(),
            backlog_high_since: found.watch.backlog_high_since.map(text::time),
            under_delivery,
            failing_percent: found.settings.failing_percent,
            failing_since: found.failing_since.map(text::time),
        }
    }
}

impl From<ports::TenantAlertsView> for TenantAlerts {
    fn from(found: ports::TenantAlertsView) -> Self {
        let ports::TenantAlertsView { settings, watch } = found;
        Self {
            success_percent: settings.success_percent,
            success_seconds: settings.success_within.as_secs(),
            success_least: settings.success_least,
            success_low_since: watch.success_low_since.map(text::time),
            destinations_high_since: watch.destinations_high_since.map(text::time),
            backlog_high_since: watch.backlog_high_since.map(text::time),
            refused_since: watch.refused_since.map(text::time),
        }
    }
}

/// What concerns all tenants is the administrator's.
pub(super) fn may_ask_for(caller: &Caller, scope: OperationalScope) -> Result<(), Problem> {
    match scope {
        OperationalScope::Installation => caller.needs(Scope::Admin),
        OperationalScope::Tenant => Ok(()),
    }
}

/// And so is what concerns them by now.
async fn may_change(caller: &Caller, id: DestinationId) -> Result<(), Problem> {
    let now = caller
        .run(|service| async move { service.told_of(id).await })
        .await?;
    may_ask_for(caller, now)
}

/// Make a destination an operational one: it is told what operators must know,
/// as ordinary events within its own limit. Repeating it changes what it is
/// told of.
#[utoipa::path(put, path = "/v1/operational-destinations/{id}", operation_id = "register_operational_destination",
    tag = "operations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)),
    request_body = Registration, responses(
    (status = 200, body = OperationalDestination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn register(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<Registration>,
) -> Result<Json<OperationalDestination>, Problem> {
    may_ask_for(&caller, body.scope)?;
    may_change(&caller, id).await?;
    let registration = ports::Registration {
        scope: body.scope,
        event_types: body.event_types,
    };
    let registered = caller
        .run(|service| async move { service.register_operational(id, registration).await })
        .await?;
    Ok(Json(registered.into()))
}

/// Make an operational destination an ordinary one again.
#[utoipa::path(delete, path = "/v1/operational-destinations/{id}", operation_id = "unregister_operational_destination",
    tag = "operations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), responses(
    (status = 204, description = "It is told nothing more."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn unregister(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<StatusCode, Problem> {
    may_change(&caller, id).await?;
    caller
        .run(|service| async move { service.unregister_operational(id).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the operational destinations.
#[utoipa::path(get, path = "/v1/operational-destinations", operation_id = "list_operational_destinations",
    tag = "operations",
    security(("key" = ["read"])), responses(
    (status = 200, body = OperationalDestinations),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(caller: Caller) -> Result<Json<OperationalDestinations>, Problem> {
    let found = caller
        .run(|service| async move { service.operational_destinations().await })
        .await?;
    let operational_destinations = found.into_iter().map(Into::into).collect();
    Ok(Json(OperationalDestinations {
        operational_destinations,
    }))
}

/// List what operators must know, the newest first.
#[utoipa::path(get, path = "/v1/operational-events", operation_id = "list_operational_events",
    tag = "operations",
    security(("key" = ["read"])), params(OperationalEventsPage), responses(
    (status = 200, body = OperationalEvents),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn events(
    caller: Caller,
    Page(page): Page<OperationalEventsPage>,
) -> Result<Json<OperationalEvents>, Problem> {
    let OperationalEventsPage {
        before,
        limit,
        scope,
        event_type,
    } = page;
    may_ask_for(&caller, scope)?;
    let wanted = WantedOperations {
        scope,
        event_type,
        before,
        limit,
    };
    let (found, names) = caller
        .run(move |service| async move {
            let found = service.operational_events(wanted).await?;
            let names = service.names_of(&found.events).await?;
            Ok((found, names))
        })
        .await?;
    let named = |event: operations::OperationalEvent| {
        let called = event.destination.and_then(|id| names.get(&id));
        OperationalEvent::of(event, called)
    };
    Ok(Json(OperationalEvents {
        operational_events: found.events.into_iter().map(named).collect(),
        next: found.next,
    }))
}

/// Look at a destination's alerts.
#[utoipa::path(get, path = "/v1/destinations/{id}/alerts", operation_id = "show_alerts",
    tag = "operations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Alerts),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn alerts(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Alerts>, Problem> {
    let found = caller
        .run(|service| async move { service.alerts(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// Change when operators are told of a destination.
#[utoipa::path(patch, path = "/v1/destinations/{id}/alerts", operation_id = "change_alerts",
    tag = "operations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), request_body = ChangeAlerts,
    responses((status = 200, body = Alerts),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change_alerts(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<ChangeAlerts>,
) -> Result<Json<Alerts>, Problem> {
    let change = ports::AlertsChange {
        backlog: body.backlog,
        under_delivery_seconds: body.under_delivery_seconds,
        failing_percent: body.failing_percent,
    };
    let found = caller
        .run(|service| async move { service.change_alerts(id, change).await })
        .await?;
    Ok(Json(found.into()))
}

/// Look at the alerts of the tenant as a whole.
#[utoipa::path(get, path = "/v1/alerts", operation_id = "show_tenant_alerts",
    tag = "operations",
    security(("key" = ["read"])), responses(
    (status = 200, body = TenantAlerts),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn tenant_alerts(caller: Caller) -> Result<Json<TenantAlerts>, Problem> {
    let found = caller
        .run(|service| async move { service.tenant_alerts().await })
        .await?;
    Ok(Json(found.into()))
}

/// Change when operators are told of the tenant as a whole.
#[utoipa::path(patch, path = "/v1/alerts", operation_id = "change_tenant_alerts",
    tag = "operations",
    security(("key" = ["manage"])), request_body = ChangeTenantAlerts,
    responses((status = 200, body = TenantAlerts),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change_tenant_alerts(
    caller: Caller,
    JsonBody(body): JsonBody<ChangeTenantAlerts>,
) -> Result<Json<TenantAlerts>, Problem> {
    let change = ports::TenantAlertsChange {
        success_percent: body.success_percent,
        success_seconds: body.success_seconds,
        success_least: body.success_least,
    };
    let found = caller
        .run(|service| async move { service.change_tenant_alerts(change).await })
        .await?;
    Ok(Json(found.into()))
}

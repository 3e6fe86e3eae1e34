//! `/v1/tiers`.

use axum::Json;
use axum::extract::Path;
use domain::limit::Shape;
use domain::policy::LimitSettings;
use engine::ports::{self, DEFAULT_MAX_DESTINATIONS};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::JsonBody;
use super::limits::{Limits, LimitsPatch, not_null, object, periods, present, present_object};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::LimitsChange;
use crate::service::tenancy::{CeilingChange, TierEdit};

/// A plan tier: what destinations without limits of their own inherit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Starts per period.
    pub limits: Limits,
    /// No rate limit.
    pub unlimited: bool,
    /// A bucket's capacity, or how many of a window may start at once.
    pub burst: Option<u32>,
    /// How the limit spreads its starts.
    #[schema(schema_with = text::shape_or_null)]
    pub shape: Option<Shape>,
    /// Attempts of one destination queued and in flight at once.
    pub max_in_flight: Option<u32>,
    /// Attempts of all destinations of one tenant queued and in flight at once;
    /// `null` for no bound.
    pub tenant_max_in_flight: Option<u32>,
    /// Events that one tenant may hand in a second, at each API process; `null`
    /// for what that is configured with (`PACELINE_TENANT_INGEST_PER_SECOND`, 1,000 if that
    /// is not set). An event counts for each destination that it goes to.
    pub tenant_ingest_per_second: Option<u32>,
    /// Destinations that one tenant may have, counting those that it has deleted
    /// within the last hour; `null` for no bound.
    pub tenant_max_destinations: Option<u32>,
    /// The most that its tenants set for their destinations.
    pub ceiling: Ceiling,
}

/// The most that may be set for a destination, beyond which an operator can grant it more;
/// `null` for any number. What is inherited from the tier is not compared.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// Starts per second in the long run.
    #[serde(default)]
    pub per_second: Option<f64>,
    /// How many may start at one instant: 864,000 a day are ten a second, and could all
    /// be sent in one.
    #[serde(default)]
    pub at_once: Option<u32>,
    /// Attempts queued and in flight at once.
    #[serde(default)]
    pub max_in_flight: Option<u32>,
    /// Events in one request, of those that want several in one.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 500)]
    pub batch_events: Option<u32>,
    /// Bytes of their payloads. A destination has to say how many it takes then: what says
    /// nothing takes 1,000,000.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub batch_bytes: Option<u32>,
    /// How old an event may become before it starts, in seconds. It holds as well where a
    /// destination sets no `max_age_ms`, for events that are accepted from then on. No
    /// destination is granted more.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub age_seconds: Option<u32>,
}

/// A ceiling to change: what is absent stays, `null` clears.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CeilingPatch {
    /// Starts per second in the long run.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    pub per_second: Option<Option<f64>>,
    /// How many may start at one instant.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub at_once: Option<Option<u32>>,
    /// Attempts queued and in flight at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub max_in_flight: Option<Option<u32>>,
    /// Events in one request.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 500)]
    pub batch_events: Option<Option<u32>>,
    /// Bytes of their payloads.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    pub batch_bytes: Option<Option<u32>>,
    /// How old an event may become before it starts, in seconds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 2_592_000)]
    pub age_seconds: Option<Option<u32>>,
}

impl From<domain::ceiling::Ceiling> for Ceiling {
    fn from(ceiling: domain::ceiling::Ceiling) -> Self {
        Self {
            per_second: ceiling.per_second,
            at_once: ceiling.at_once,
            max_in_flight: ceiling.max_in_flight,
            batch_events: ceiling.batch_events,
            batch_bytes: ceiling.batch_bytes,
            age_seconds: ceiling.age_seconds,
        }
    }
}

impl From<Ceiling> for domain::ceiling::Ceiling {
    fn from(ceiling: Ceiling) -> Self {
        Self {
            per_second: ceiling.per_second,
            at_once: ceiling.at_once,
            max_in_flight: ceiling.max_in_flight,
            batch_events: ceiling.batch_events,
            batch_bytes: ceiling.batch_bytes,
            age_seconds: ceiling.age_seconds,
        }
    }
}

/// What a body changes of a ceiling. `null` clears all of it.
fn ceiling(patch: Option<Option<CeilingPatch>>) -> CeilingChange {
    match patch {
        None => CeilingChange::default(),
        Some(None) => CeilingChange::NONE,
        Some(Some(patch)) => CeilingChange {
            per_second: patch.per_second,
            at_once: patch.at_once,
            max_in_flight: patch.max_in_flight,
            batch_events: patch.batch_events,
            batch_bytes: patch.batch_bytes,
            age_seconds: patch.age_seconds,
        },
    }
}

/// All tiers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierList {
    /// By name.
    pub tiers: Vec<Tier>,
}

/// What to change: what is absent stays, `null` clears.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTier {
    /// Starts per period; `null` clears all four, so that nothing limits.
    /// Setting one ends `unlimited`.
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
    /// Attempts of one destination queued and in flight at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub max_in_flight: Option<Option<u32>>,
    /// Attempts of all destinations of one tenant queued and in flight at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub tenant_max_in_flight: Option<Option<u32>>,
    /// Events that one tenant may hand in a second, at each API process.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub tenant_ingest_per_second: Option<Option<u32>>,
    /// Destinations that one tenant may have.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub tenant_max_destinations: Option<Option<u32>>,
    /// The most that its tenants set for their destinations from now on; `null` for no
    /// ceiling at all.
    #[serde(default, deserialize_with = "present_object")]
    #[schema(value_type = Option<CeilingPatch>)]
    pub ceiling: Option<Option<CeilingPatch>>,
}

/// A tier to create: what is left out does not limit, but for how many destinations
/// a tenant may have, which is 10,000.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTier {
    /// Its name.
    #[schema(example = "startup")]
    pub name: String,
    /// Starts per period.
    #[serde(default, deserialize_with = "object")]
    pub limits: Limits,
    /// No rate limit.
    #[serde(default)]
    pub unlimited: bool,
    /// A bucket's capacity, or how many of a window may start at once.
    #[serde(default)]
    pub burst: Option<u32>,
    /// How the limit spreads its starts.
    #[serde(default)]
    #[schema(schema_with = text::shape_or_null)]
    pub shape: Option<Shape>,
    /// Attempts of one destination queued and in flight at once.
    #[serde(default)]
    pub max_in_flight: Option<u32>,
    /// Attempts of all destinations of one tenant queued and in flight at once.
    #[serde(default)]
    pub tenant_max_in_flight: Option<u32>,
    /// Events that one tenant may hand in a second, at each API process.
    #[serde(default)]
    pub tenant_ingest_per_second: Option<u32>,
    /// Destinations that one tenant may have; `null` for no bound.
    #[serde(default = "default_destinations")]
    #[schema(default = 10_000)]
    pub tenant_max_destinations: Option<u32>,
    /// The most that its tenants set for their destinations.
    #[serde(default, deserialize_with = "object")]
    pub ceiling: Ceiling,
}

const fn default_destinations() -> Option<u32> {
    Some(DEFAULT_MAX_DESTINATIONS)
}

impl From<CreateTier> for ports::Tier {
    fn from(body: CreateTier) -> Self {
        Self {
            limits: LimitSettings {
                unlimited: body.unlimited,
                burst: body.burst,
                shape: body.shape,
                max_in_flight: body.max_in_flight,
                ..body.limits.settings()
            },
            tenant_max_in_flight: body.tenant_max_in_flight,
            tenant_ingest_per_second: body.tenant_ingest_per_second,
            tenant_max_destinations: body.tenant_max_destinations,
            ceiling: body.ceiling.into(),
            name: body.name,
        }
    }
}

impl From<ports::Tier> for Tier {
    fn from(tier: ports::Tier) -> Self {
        Self {
            limits: Limits::of(&tier.limits),
            unlimited: tier.limits.unlimited,
            burst: tier.limits.burst,
            shape: tier.limits.shape,
            max_in_flight: tier.limits.max_in_flight,
            tenant_max_in_flight: tier.tenant_max_in_flight,
            tenant_ingest_per_second: tier.tenant_ingest_per_second,
            tenant_max_destinations: tier.tenant_max_destinations,
            ceiling: tier.ceiling.into(),
            name: tier.name,
        }
    }
}

impl From<ChangeTier> for TierEdit {
    fn from(body: ChangeTier) -> Self {
        Self {
            limits: LimitsChange {
                unlimited: body.unlimited,
                burst: body.burst,
                shape: body.shape,
                max_in_flight: body.max_in_flight,
                ..periods(body.limits)
            },
            tenant_max_in_flight: body.tenant_max_in_flight,
            tenant_ingest_per_second: body.tenant_ingest_per_second,
            tenant_max_destinations: body.tenant_max_destinations,
            ceiling: ceiling(body.ceiling),
        }
    }
}

/// List the plan tiers.
#[utoipa::path(get, path = "/v1/tiers", operation_id = "list_tiers",
    tag = "tenants", security(("key" = ["admin"])), responses(
    (status = 200, body = TierList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(caller: Caller) -> Result<Json<TierList>, Problem> {
    let found = caller
        .administer(|tenancy| async move { tenancy.tiers().await })
        .await?;
    let tiers = found.into_iter().map(Tier::from).collect();
    Ok(Json(TierList { tiers }))
}

/// Create a plan tier.
#[utoipa::path(post, path = "/v1/tiers", operation_id = "create_tier",
    tag = "tenants", security(("key" = ["admin"])),
    request_body = CreateTier, responses(
    (status = 201, description = "Created.", body = Tier),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    JsonBody(body): JsonBody<CreateTier>,
) -> Result<(StatusCode, Json<Tier>), Problem> {
    let new = body.into();
    let created = caller
        .administer(|tenancy| async move { tenancy.create_tier(new).await })
        .await?;
    Ok((StatusCode::CREATED, Json(created.into())))
}

/// Delete a plan tier that no tenant has.
#[utoipa::path(delete, path = "/v1/tiers/{name}", operation_id = "delete_tier",
    tag = "tenants", security(("key" = ["admin"])),
    params(("name" = String, Path)), responses(
    (status = 204, description = "Deleted."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller
        .administer(|tenancy| async move { tenancy.delete_tier(&name).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Change a plan tier, for all destinations that inherit it. Lowered limits
/// are in force when this answers.
#[utoipa::path(patch, path = "/v1/tiers/{name}", operation_id = "change_tier",
    tag = "tenants", security(("key" = ["admin"])),
    params(("name" = String, Path)), request_body = ChangeTier, responses(
    (status = 200, body = Tier),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change(
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(body): JsonBody<ChangeTier>,
) -> Result<Json<Tier>, Problem> {
    let edit = body.into();
    let changed = caller
        .administer(|tenancy| async move { tenancy.change_tier(&name, edit).await })
        .await?;
    Ok(Json(changed.into()))
}

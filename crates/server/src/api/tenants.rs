//! `/v1/tenants`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use domain::external_id::ExternalId;
use domain::ids::TenantId;
use engine::ports::{self, DEFAULT_TIER, TenantChange};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::limits::{not_null, present};
use super::parameters::{OwnId, Page, PathId, TenantPath, TenantsPage, is_the_paths};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::tenancy::TenantDraft;

/// A tenant to create.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    /// What you call it in your own books: unique, and good in every path and in
    /// `Paceline-Tenant` in the place of its id.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "customer-42")]
    pub external_id: Option<ExternalId>,
    /// For people.
    #[schema(example = "Acme")]
    pub name: String,
    /// The plan tier, whose limits its destinations inherit.
    #[serde(default = "default_tier")]
    #[schema(default = "standard")]
    pub tier: String,
    /// Attempts of all its destinations queued and in flight at once; absent:
    /// the tier's.
    #[serde(default)]
    pub max_in_flight: Option<u32>,
    /// Events that it may hand in a second, at each API process; absent: the
    /// tier's.
    #[serde(default)]
    pub ingest_per_second: Option<u32>,
}

fn default_tier() -> String {
    DEFAULT_TIER.to_owned()
}

/// What to change: what is absent stays, `null` clears what can be cleared.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTenant {
    /// What you call it from now on.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub external_id: Option<ExternalId>,
    /// For people.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub name: Option<String>,
    /// Another plan tier: at once for all its destinations that inherit.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub tier: Option<String>,
    /// Attempts of all its destinations queued and in flight at once; `null`:
    /// the tier's.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub max_in_flight: Option<Option<u32>>,
    /// Events that it may hand in a second, at each API process; `null`: the
    /// tier's.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub ingest_per_second: Option<Option<u32>>,
}

/// A tenant as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its id.
    pub id: Uuid,
    /// What you call it.
    #[schema(value_type = Option<String>)]
    pub external_id: Option<ExternalId>,
    /// For people.
    pub name: String,
    /// Its plan tier.
    pub tier: String,
    /// As set for it alone.
    pub max_in_flight: Option<u32>,
    /// What holds: its own, or the tier's; `null` for no bound.
    pub effective_max_in_flight: Option<u32>,
    /// As set for it alone.
    pub ingest_per_second: Option<u32>,
    /// What holds: its own, or the tier's; `null` for what each API process is
    /// configured with (`PACELINE_TENANT_INGEST_PER_SECOND`, 1,000 if that is not set).
    pub effective_ingest_per_second: Option<u32>,
    /// How many destinations it may have: as its tier says, or as many as it was granted
    /// beyond that; `null` for no bound.
    pub effective_max_destinations: Option<u32>,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// It is being deleted, and how far that is; `null` of one that is not.
    pub deletion: Option<Deletion>,
}

/// How far the deletion of a tenant is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deletion {
    /// Since when.
    #[schema(format = DateTime)]
    pub since: String,
    /// Destinations of which something still waits or is under way. With 0, what the
    /// ledger has of it is left, and goes with its age.
    pub destinations_left: u32,
}

/// A page of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    /// In id order.
    pub tenants: Vec<Tenant>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<Uuid>,
}

impl From<ports::Tenant> for Tenant {
    fn from(tenant: ports::Tenant) -> Self {
        Self {
            id: tenant.id.0,
            external_id: tenant.external_id,
            name: tenant.name,
            tier: tenant.tier,
            max_in_flight: tenant.max_in_flight,
            effective_max_in_flight: tenant.effective_max_in_flight,
            ingest_per_second: tenant.ingest_per_second,
            effective_ingest_per_second: tenant.effective_ingest_per_second,
            effective_max_destinations: tenant.effective_max_destinations,
            created_at: text::time(tenant.created_at),
            deletion: tenant.deletion.map(|deletion| Deletion {
                since: text::time(deletion.since),
                destinations_left: deletion.destinations_left,
            }),
        }
    }
}

/// Create a tenant. It has no keys yet.
#[utoipa::path(post, path = "/v1/tenants", operation_id = "create_tenant",
    tag = "tenants", security(("key" = ["admin"])),
    request_body = CreateTenant, responses(
    (status = 201, description = "Created.", body = Tenant),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    JsonBody(body): JsonBody<CreateTenant>,
) -> Result<impl IntoResponse, Problem> {
    let draft = body.into();
    let created = caller
        .administer(|tenancy| async move { tenancy.create_tenant(draft).await })
        .await?;
    Ok(answered(created))
}

impl From<CreateTenant> for TenantDraft {
    fn from(body: CreateTenant) -> Self {
        Self {
            external_id: body.external_id,
            name: body.name,
            tier: body.tier,
            max_in_flight: body.max_in_flight,
            ingest_per_second: body.ingest_per_second,
        }
    }
}

fn answered(created: ports::Tenant) -> impl IntoResponse {
    let location = (header::LOCATION, format!("/v1/tenants/{}", created.id));
    (StatusCode::CREATED, [location], Json(Tenant::from(created)))
}

/// List tenants.
#[utoipa::path(get, path = "/v1/tenants", operation_id = "list_tenants",
    tag = "tenants", security(("key" = ["admin"])),
    params(TenantsPage), responses(
    (status = 200, body = TenantList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<TenantsPage>,
) -> Result<Json<TenantList>, Problem> {
    let found = caller
        .administer(|tenancy| async move { tenancy.tenants(page.after, page.limit).await })
        .await?;
    let full = found.len() >= page.limit as usize;
    let next = found.last().filter(|_| full).map(|last| last.id.0);
    let tenants = found.into_iter().map(Tenant::from).collect();
    Ok(Json(TenantList { tenants, next }))
}

/// Look at a tenant.
#[utoipa::path(get, path = "/v1/tenants/{id}", operation_id = "show_tenant",
    tag = "tenants", security(("key" = ["admin"])),
    params(("id" = Uuid, Path)), responses(
    (status = 200, body = Tenant),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(caller: Caller, PathId(id): TenantPath) -> Result<Json<Tenant>, Problem> {
    let id: TenantId = id;
    let found = caller
        .administer(|tenancy| async move { tenancy.tenant(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// Create the tenant that you call so, or make it into this one.
///
/// Repeating it changes nothing. A lower tier is in force when this answers.
#[utoipa::path(put, path = "/v1/tenants/{id}", operation_id = "put_tenant",
    tag = "tenants", security(("key" = ["admin"])),
    params(("id" = String, Path, description = "What you call it: its `external_id`.")),
    request_body = CreateTenant, responses(
    (status = 200, description = "It was there, and is so now.", body = Tenant),
    (status = 201, description = "Created.", body = Tenant),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(
    caller: Caller,
    OwnId(id): OwnId,
    JsonBody(body): JsonBody<CreateTenant>,
) -> Result<Response, Problem> {
    is_the_paths(&id, body.external_id.as_ref())?;
    let draft = body.into();
    let (tenant, is_new) = caller
        .administer(|tenancy| async move { tenancy.put_tenant(id, draft).await })
        .await?;
    caller.forget_tenants();
    Ok(match is_new {
        true => answered(tenant).into_response(),
        false => Json(Tenant::from(tenant)).into_response(),
    })
}

/// Delete a tenant with all that it has.
///
/// Its keys, links and sessions end at once; its destinations and their backlogs go step by
/// step, and `show_tenant` says how far that is. The ledger stays for its age, and then the
/// tenant is forgotten. Repeating it changes nothing.
#[utoipa::path(delete, path = "/v1/tenants/{id}", operation_id = "delete_tenant",
    tag = "tenants", security(("key" = ["admin"])),
    params(("id" = Uuid, Path)), responses(
    (status = 202, description = "It is being deleted.", body = Tenant),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    caller: Caller,
    PathId(id): TenantPath,
) -> Result<(StatusCode, Json<Tenant>), Problem> {
    let deleted = caller
        .administer(|tenancy| async move { tenancy.delete_tenant(id).await })
        .await?;
    caller.forget_tenants();
    Ok((StatusCode::ACCEPTED, Json(deleted.into())))
}

/// Change a tenant. A lower tier is in force when this answers.
#[utoipa::path(patch, path = "/v1/tenants/{id}", operation_id = "change_tenant",
    tag = "tenants", security(("key" = ["admin"])),
    params(("id" = Uuid, Path)), request_body = ChangeTenant, responses(
    (status = 200, body = Tenant),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change(
    caller: Caller,
    PathId(id): TenantPath,
    JsonBody(body): JsonBody<ChangeTenant>,
) -> Result<Json<Tenant>, Problem> {
    let change = TenantChange {
        external_id: body.external_id,
        name: body.name,
        tier: body.tier,
        max_in_flight: body.max_in_flight,
        ingest_per_second: body.ingest_per_second,
    };
    let changed = caller
        .administer(|tenancy| async move { tenancy.change_tenant(id, change).await })
        .await?;
    caller.forget_tenants();
    Ok(Json(changed.into()))
}

//! `/v1/tenants/{id}/links`: links to the dashboard, for customers.

use std::time::Duration;

use axum::Json;
use engine::ports;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::parameters::{LinkPath, PathId, TenantPath};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::LinkDraft;
use crate::service::links::LinkRights;

/// A link to create.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateLink {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// Whether whoever has it may add, change, try, pause and delete destinations,
    /// rotate their signing secrets, replay and resend, and set limits up to the tier's.
    /// Otherwise it only shows.
    #[serde(default)]
    pub may_change: bool,
    /// Whether it shows what events carry.
    #[serde(default)]
    pub may_read_payloads: bool,
    /// How long it is good: at least a minute, at most seven days.
    #[serde(default = "an_hour")]
    #[schema(default = 3_600, minimum = 60, maximum = 604_800)]
    pub expires_in_seconds: u64,
}

const fn an_hour() -> u64 {
    3_600
}

/// A link as it is; not what opens it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Its id.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    pub id: String,
    /// Whose pages it opens.
    pub tenant_id: Uuid,
    /// For people.
    pub name: String,
    /// Whether it does more than show.
    pub may_change: bool,
    /// Whether it shows what events carry.
    pub may_read_payloads: bool,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// From when on it is over; sooner if the key that made it is.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// A new link, with what opens it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedLink {
    /// What opens it, shown now and never again: whole where the server has a
    /// public URL, else relative to the address of the API.
    #[schema(format = "uri-reference")]
    pub url: String,
    /// All else.
    #[serde(flatten)]
    pub about: Link,
}

/// A tenant's links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkList {
    /// Those that are good, the newest first; at most 1,000.
    pub links: Vec<Link>,
}

impl From<ports::Link> for Link {
    fn from(link: ports::Link) -> Self {
        let rights = LinkRights::of(link.scopes);
        Self {
            id: link.id.to_string(),
            tenant_id: link.tenant.0,
            name: link.name,
            may_change: rights.may_change,
            may_read_payloads: rights.may_read_payloads,
            created_at: text::time(link.created_at),
            expires_at: text::time(link.expires_at),
        }
    }
}

/// Create a link that opens the tenant's pages, and no others, for whoever has
/// it. What opens it is in this answer and nowhere else. It ends with the key
/// that made it.
#[utoipa::path(post, path = "/v1/tenants/{id}/links", operation_id = "create_link",
    tag = "tenants",
    security(("key" = ["admin"])), params(("id" = Uuid, Path)),
    request_body = CreateLink, responses(
    (status = 201, description = "Created.", body = CreatedLink),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    PathId(tenant): TenantPath,
    JsonBody(body): JsonBody<CreateLink>,
) -> Result<(StatusCode, Json<CreatedLink>), Problem> {
    let rights = LinkRights {
        may_change: body.may_change,
        may_read_payloads: body.may_read_payloads,
    };
    let draft = LinkDraft {
        name: body.name,
        scopes: rights.scopes(),
        good_for: Duration::from_secs(body.expires_in_seconds),
    };
    let key = caller.key();
    let made = caller
        .administer(|tenancy| async move {
            let links = tenancy.links();
            let made = links.create(tenant, links.behind(key), draft).await?;
            let whole = links.whole(&made.path);
            Ok((whole.unwrap_or(made.path), made.link))
        })
        .await?;
    let (url, link) = made;
    let created = CreatedLink {
        url,
        about: link.into(),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// List a tenant's links that are good.
#[utoipa::path(get, path = "/v1/tenants/{id}/links", operation_id = "list_links",
    tag = "tenants",
    security(("key" = ["admin"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = LinkList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    PathId(tenant): TenantPath,
) -> Result<Json<LinkList>, Problem> {
    let found = caller
        .administer(|tenancy| async move { tenancy.links().list(tenant).await })
        .await?;
    let links = found.into_iter().map(Link::from).collect();
    Ok(Json(LinkList { links }))
}

/// Revoke a link, and end the sessions that it opened: at once, everywhere.
/// A page that is open gets no more news after 5 seconds.
#[utoipa::path(delete, path = "/v1/tenants/{id}/links/{link_id}", operation_id = "revoke_link",
    tag = "tenants",
    security(("key" = ["admin"])),
    params(("id" = Uuid, Path), ("link_id" = String, Path, pattern = "^[0-9a-f]{16}$")), responses(
    (status = 204, description = "Revoked."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke(caller: Caller, path: LinkPath) -> Result<StatusCode, Problem> {
    caller
        .administer(|tenancy| async move { tenancy.links().end(path.tenant, path.link).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

//! `/v1/tenants/{id}/keys`.

use std::time::Duration;

use axum::Json;
use domain::access::Scope;
use engine::ports;
use http::StatusCode;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::parameters::{KeyPath, PathId, TenantPath};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::tenancy::KeyDraft;

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// What it may be used for; none implies another. `admin` is for keys of
    /// the default tenant only.
    #[schema(schema_with = text::scopes)]
    pub scopes: Vec<Scope>,
    /// How long it is good for; absent: until it is revoked.
    #[serde(default)]
    #[schema(example = 7_776_000)]
    pub expires_in_seconds: Option<u64>,
}

/// A key as it is; not the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    /// Its id, the second part of its text.
    pub id: String,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// For people.
    pub name: String,
    /// What it may be used for.
    #[schema(schema_with = text::scopes)]
    pub scopes: Vec<Scope>,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// From when on it is refused.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// When it was last used, to within about two minutes.
    #[schema(format = DateTime)]
    pub last_used_at: Option<String>,
    /// When it was revoked.
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}

/// A new key, with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// The key itself: shown now and never again.
    pub key: String,
    /// All else.
    #[serde(flatten)]
    pub about: ApiKey,
}

/// A tenant's keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// The newest first, revoked and expired ones too; at most 1,000.
    pub keys: Vec<ApiKey>,
}

impl From<ports::ApiKey> for ApiKey {
    fn from(key: ports::ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            tenant_id: key.tenant.0,
            name: key.name,
            scopes: key.scopes.iter().collect(),
            created_at: text::time(key.created_at),
            expires_at: key.expires_at.map(text::time),
            last_used_at: key.last_used_at.map(text::time),
            revoked_at: key.revoked_at.map(text::time),
        }
    }
}

/// Create a key. Its text is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tenants/{id}/keys", operation_id = "create_key",
    tag = "tenants",
    security(("key" = ["admin"])), params(("id" = Uuid, Path)),
    request_body = CreateKey, responses(
    (status = 201, description = "Created.", body = CreatedKey),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    PathId(tenant): TenantPath,
    JsonBody(body): JsonBody<CreateKey>,
) -> Result<(StatusCode, Json<CreatedKey>), Problem> {
    let draft = KeyDraft {
        name: body.name,
        scopes: body.scopes,
        expires_in: body.expires_in_seconds.map(Duration::from_secs),
    };
    let (key, text) = caller
        .administer(|tenancy| async move { tenancy.create_key(tenant, draft).await })
        .await?;
    let created = CreatedKey {
        key: text.expose_secret().to_owned(),
        about: key.into(),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// List a tenant's keys.
#[utoipa::path(get, path = "/v1/tenants/{id}/keys", operation_id = "list_keys",
    tag = "tenants",
    security(("key" = ["admin"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = KeyList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    PathId(tenant): TenantPath,
) -> Result<Json<KeyList>, Problem> {
    let found = caller
        .administer(|tenancy| async move { tenancy.keys(tenant).await })
        .await?;
    let keys = found.into_iter().map(ApiKey::from).collect();
    Ok(Json(KeyList { keys }))
}

/// A key that somebody has.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferedKey {
    /// The whole key.
    pub key: String,
}

/// What a key is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownKey {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub tenant_id: Uuid,
    /// What it may be used for.
    #[schema(schema_with = text::scopes)]
    pub scopes: Vec<Scope>,
}

/// Say whose key this is, and what it is good for: of one that was found somewhere. 404
/// is for one that is not there, is revoked or has expired.
#[utoipa::path(post, path = "/v1/keys/identify", operation_id = "identify_key",
    tag = "tenants", security(("key" = ["admin"])),
    request_body = OfferedKey, responses(
    (status = 200, body = KnownKey),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn identify(
    caller: Caller,
    JsonBody(body): JsonBody<OfferedKey>,
) -> Result<Json<KnownKey>, Problem> {
    let offered = body.key;
    let (id, known) = caller
        .administer(|tenancy| async move { tenancy.identify_key(&offered).await })
        .await?;
    Ok(Json(KnownKey {
        id: id.to_string(),
        tenant_id: known.tenant.0,
        scopes: known.scopes.iter().collect(),
    }))
}

/// Revoke a key, for good: refused here at once, and by every other process
/// within 5 seconds.
#[utoipa::path(delete, path = "/v1/tenants/{id}/keys/{key_id}", operation_id = "revoke_key",
    tag = "tenants",
    security(("key" = ["admin"])),
    params(("id" = Uuid, Path), ("key_id" = String, Path, pattern = "^[0-9a-f]{16}$")), responses(
    (status = 204, description = "Revoked."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke(caller: Caller, path: KeyPath) -> Result<StatusCode, Problem> {
    caller
        .administer(|tenancy| async move { tenancy.revoke_key(path.tenant, path.key).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

//! `/v1/destinations/{id}/secrets`, and the headers of a destination.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Path};
use domain::ids::{DestinationId, SecretId};
use domain::signature::SecretKind;
use engine::ports;
use http::StatusCode;
use http::request::Parts;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::limits::not_null;
use super::named::named;
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use super::{App, Caller, text};
use crate::hidden::Hidden;
use crate::service::secrets::{DEFAULT_OVERLAP, MadeSecret, SecretDraft};

/// A secret to add. The one before it signs beside it for a while.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSecret {
    /// How a new one signs: as the one before it, if left out. Not beside
    /// `secret`, which says so itself.
    #[serde(default, deserialize_with = "kind")]
    #[schema(schema_with = text::secret_kind)]
    pub kind: Option<SecretKind>,
    /// Your own: `whsec_` and 24 to 64 random bytes in base64, or `whsk_` and
    /// an ed25519 private key. Left out, one is made.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub secret: Option<Hidden>,
    /// For how many seconds the secrets before it, of either kind, still sign: a
    /// day, if left out; 0 for a secret that has leaked; at most 7 days.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = u64, maximum = 604_800)]
    pub overlap_seconds: Option<u64>,
}

/// A secret that signs, without the secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// Its id.
    pub id: Uuid,
    /// `hmac` signs as `v1`, `ed25519` as `v1a`.
    #[schema(schema_with = text::secret_kind)]
    pub kind: SecretKind,
    /// What a receiver of `v1a` verifies by: `whpk_…`.
    pub public_key: Option<String>,
    /// When it was added.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it stops to sign; `null` for never.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// The secrets of a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Secrets {
    /// Those that sign, the newest first.
    pub secrets: Vec<Secret>,
}

/// A secret that was added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreatedSecret {
    /// What will be shown of it from now on.
    #[serde(flatten)]
    pub added: Secret,
    /// The secret itself, for the receiver. Shown here and never again; absent
    /// for your own, and for `ed25519`, of which the receiver has the public
    /// key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub secret: Option<Hidden>,
}

/// The secret that a new destination signs with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FirstSecret {
    /// Its id.
    pub id: Uuid,
    /// `hmac` signs as `v1`, `ed25519` as `v1a`.
    #[schema(schema_with = text::secret_kind)]
    pub kind: SecretKind,
    /// What a receiver of `v1a` verifies by: `whpk_…`.
    pub public_key: Option<String>,
    /// The secret itself, for the receiver. Shown here and never again; absent
    /// for your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub secret: Option<Hidden>,
}

impl From<MadeSecret> for FirstSecret {
    fn from(made: MadeSecret) -> Self {
        Self {
            id: made.id.0,
            kind: made.kind,
            public_key: made.public_key,
            secret: made.shown_once,
        }
    }
}

impl From<ports::Secret> for Secret {
    fn from(secret: ports::Secret) -> Self {
        Self {
            id: secret.id.0,
            kind: secret.kind,
            public_key: secret.public_key,
            created_at: text::time(secret.created_at),
            expires_at: secret.expires_at.map(text::time),
        }
    }
}

/// Headers by name. An object, or a problem that does not repeat what it was.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Headers(pub Vec<(String, Hidden)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Headers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of names and values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    headers.push(entry);
                }
                Ok(Headers(headers))
            }
            fn visit_str<E: Error>(self, _: &str) -> Result<Headers, E> {
                Err(E::custom("expected an object of names and values"))
            }
        }
        // Not `deserialize_map`: its refusal would repeat a text.
        deserializer.deserialize_any(Object)
    }
}

/// `hmac` or `ed25519`, or a problem that does not repeat what it was: somebody
/// may have put the secret there.
fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretKind>, D::Error> {
    let word = Hidden::deserialize(deserializer)?;
    word.expose().parse().map(Some).map_err(D::Error::custom)
}

/// List the secrets of a destination, without the secrets.
#[utoipa::path(get, path = "/v1/destinations/{id}/secrets", operation_id = "list_secrets",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Secrets),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Secrets>, Problem> {
    let found = caller
        .run(|service| async move { service.secrets(id).await })
        .await?;
    let secrets = found.into_iter().map(Secret::from).collect();
    Ok(Json(Secrets { secrets }))
}

/// Add a secret: rotate. A new one is shown in this answer and never again.
#[utoipa::path(post, path = "/v1/destinations/{id}/secrets", operation_id = "create_secret",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), request_body = CreateSecret,
    responses(
    (status = 201, description = "Added; both sign for a while.", body = CreatedSecret),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<CreateSecret>,
) -> Result<(StatusCode, Json<CreatedSecret>), Problem> {
    if body.secret.is_some() && body.kind.is_some() {
        let problem = "must be left out beside secret, which says its kind itself";
        return Err(Problem::invalid("kind", problem));
    }
    let overlap = body.overlap_seconds.map(Duration::from_secs);
    let draft = SecretDraft {
        own: body.secret,
        kind: body.kind,
    };
    let overlap = overlap.unwrap_or(DEFAULT_OVERLAP);
    let (made, added) = caller
        .run(|service| async move { service.rotate_secret(id, draft, overlap).await })
        .await?;
    let created = CreatedSecret {
        added: added.into(),
        secret: made.shown_once,
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Delete a secret: no request is signed by it any more. Not the last one.
#[utoipa::path(delete, path = "/v1/destinations/{id}/secrets/{secret}", operation_id = "delete_secret",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path), ("secret" = Uuid, Path)), responses(
    (status = 204, description = "Deleted."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    caller: Caller,
    SecretPath { id, secret }: SecretPath,
) -> Result<StatusCode, Problem> {
    caller
        .run(|service| async move { service.delete_secret(id, secret).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The `{id}` and `{secret}` of a path.
pub(super) struct SecretPath {
    id: DestinationId,
    secret: SecretId,
}

impl FromRequestParts<App> for SecretPath {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path((id, secret)) = Path::<(String, String)>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::invalid("id", error.body_text()))?;
        Ok(Self {
            id: named(("id", &id), parts, app).await?,
            secret: secret.parse().map_err(|error: domain::ids::InvalidId| {
                Problem::invalid("secret", error.to_string())
            })?,
        })
    }
}

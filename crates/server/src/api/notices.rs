//! `/v1/notice-addresses`.

use std::time::Duration;

use axum::Json;
use domain::ids::NoticeAddressId;
use domain::notices::{DEFAULT_EVERY, NoticeAddress as Registered, NoticeForm};
use domain::operations::{OperationalScope, OperationalType};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::Caller;
use super::body::JsonBody;
use super::operations::{may_ask_for, scope, types};
use super::parameters::PathId;
use super::problem::Problem;
use super::text;
use crate::hidden::Hidden;
use crate::service::notices::AddressDraft;

/// Somebody to be told what operators must know.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateNoticeAddress {
    /// `email`, or `slack` for an incoming webhook that takes `{"text": …}`.
    #[schema(schema_with = form)]
    pub form: NoticeForm,
    /// A mail address, or the URL of the webhook. Such a URL is a secret: it is
    /// never shown again.
    #[schema(value_type = String)]
    pub address: Hidden,
    /// `tenant`, or `installation` for the destinations of all tenants, which
    /// needs the scope `admin`.
    #[serde(default)]
    #[schema(schema_with = scope)]
    pub scope: OperationalScope,
    /// The types of operational events; none is all.
    #[serde(default)]
    #[schema(schema_with = types)]
    pub event_types: Vec<OperationalType>,
    /// Between two messages, 60 to 43,200: what happens meanwhile comes as one.
    #[serde(default = "every")]
    #[schema(default = 600, minimum = 60, maximum = 43_200)]
    pub every_seconds: u32,
}

/// Somebody who is told what operators must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoticeAddress {
    /// Its id.
    pub id: Uuid,
    /// How they are told.
    #[schema(schema_with = form)]
    pub form: NoticeForm,
    /// A mail address; of a webhook, where it is.
    pub address: String,
    /// Of whose destinations.
    #[schema(schema_with = scope)]
    pub scope: OperationalScope,
    /// Of which types; none is all.
    #[schema(schema_with = types)]
    pub event_types: Vec<String>,
    /// Between two messages.
    pub every_seconds: u64,
}

/// A tenant's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoticeAddresses {
    /// In the order of registration.
    pub notice_addresses: Vec<NoticeAddress>,
}

fn every() -> u32 {
    u32::try_from(DEFAULT_EVERY.as_secs()).unwrap_or(u32::MAX)
}

fn form() -> Object {
    text::words(NoticeForm::ALL.map(NoticeForm::as_str))
}

impl From<Registered> for NoticeAddress {
    fn from(found: Registered) -> Self {
        Self {
            id: found.id.0,
            form: found.form,
            address: found.shown,
            scope: found.scope,
            event_types: found.event_types,
            every_seconds: found.every.as_secs(),
        }
    }
}

/// Have somebody told what operators must know, by mail or in a chat: at once,
/// and what follows soon after in one message.
#[utoipa::path(post, path = "/v1/notice-addresses", operation_id = "create_notice_address",
    tag = "operations",
    security(("key" = ["manage"])), request_body = CreateNoticeAddress, responses(
    (status = 201, description = "Created.", body = NoticeAddress),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    JsonBody(body): JsonBody<CreateNoticeAddress>,
) -> Result<(StatusCode, Json<NoticeAddress>), Problem> {
    may_ask_for(&caller, body.scope)?;
    let draft = AddressDraft {
        form: body.form,
        address: body.address,
        scope: body.scope,
        event_types: body.event_types,
        every: Duration::from_secs(body.every_seconds.into()),
    };
    let created = caller
        .run(|service| async move { service.register_address(draft).await })
        .await?;
    Ok((StatusCode::CREATED, Json(created.into())))
}

/// Tell an address nothing more.
#[utoipa::path(delete, path = "/v1/notice-addresses/{id}", operation_id = "delete_notice_address",
    tag = "operations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), responses(
    (status = 204, description = "It is told nothing more, what waits for it included."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    caller: Caller,
    PathId(id): PathId<NoticeAddressId>,
) -> Result<StatusCode, Problem> {
    let now = caller
        .run(|service| async move { service.address_told_of(id).await })
        .await?;
    may_ask_for(&caller, now)?;
    caller
        .run(|service| async move { service.remove_address(id).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List who is told by mail or in a chat.
#[utoipa::path(get, path = "/v1/notice-addresses", operation_id = "list_notice_addresses",
    tag = "operations",
    security(("key" = ["read"])), responses(
    (status = 200, body = NoticeAddresses),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(caller: Caller) -> Result<Json<NoticeAddresses>, Problem> {
    let found = caller
        .run(|service| async move { service.addresses().await })
        .await?;
    let notice_addresses = found.into_iter().map(Into::into).collect();
    Ok(Json(NoticeAddresses { notice_addresses }))
}

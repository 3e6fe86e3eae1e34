//! `/v1/event-types`.
//!
//! A schema and an example are kept as they stand in the request, like payloads.

use axum::Json;
use axum::extract::Path;
use domain::event_types::{self, ListedEventType};
use engine::ports::{EventTypeChange, WantedEventTypes};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Caller;
use super::body::JsonBody;
use super::limits::{not_null, present};
use super::parameters::{EventTypesPage, Page};
use super::problem::Problem;
use crate::service::ServiceError;

/// A type of events, as the platform describes it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventType {
    /// What events call it.
    pub name: String,
    /// For people.
    pub description: String,
    /// A JSON schema of its payloads. Nothing is compared with it.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Box<RawValue>>,
    /// A payload of it.
    #[schema(value_type = Option<serde_json::Value>)]
    pub example: Option<Box<RawValue>>,
    /// JSON pointers to what is not shown of its payloads.
    pub redact: Vec<String>,
    /// No events of it come any more: it is offered to nobody, and its rules still hold.
    pub archived: bool,
}

/// A type of events in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventTypeLine {
    /// What events call it.
    pub name: String,
    /// For people.
    pub description: String,
    /// JSON pointers to what is not shown of its payloads.
    pub redact: Vec<String>,
    /// No events of it come any more.
    pub archived: bool,
    /// Whether it has a schema.
    pub has_schema: bool,
    /// Whether it has an example.
    pub has_example: bool,
}

/// A page of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventTypeList {
    /// By name.
    pub event_types: Vec<EventTypeLine>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<String>,
}

/// A type to describe.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEventType {
    /// What events call it: letters, digits and `. _ - : /`.
    #[schema(example = "order.paid", max_length = 128)]
    pub name: String,
    /// For people: at most 2,000 bytes.
    #[serde(default)]
    pub description: String,
    /// A JSON schema of its payloads: an object of at most 65,536 bytes.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Box<RawValue>>,
    /// A payload of it: JSON of at most 32,768 bytes.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub example: Option<Box<RawValue>>,
    /// JSON pointers to what is not shown of its payloads, at most 50; `*` is each element
    /// of an array.
    #[serde(default)]
    #[schema(example = json!(["/card/number", "/items/*/price"]), max_items = 50)]
    pub redact: Vec<String>,
    /// No events of it come any more.
    #[serde(default)]
    pub archived: bool,
}

/// What to change: what is absent stays, `null` clears.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeEventType {
    /// Another description.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub description: Option<String>,
    /// Another schema.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Option<Box<RawValue>>>,
    /// Another example.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub example: Option<Option<Box<RawValue>>>,
    /// All pointers, as they shall be from now on.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Vec<String>, max_items = 50)]
    pub redact: Option<Vec<String>>,
    /// Whether it is archived.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = bool)]
    pub archived: Option<bool>,
}

fn text(json: Option<Box<RawValue>>) -> Option<String> {
    json.map(|json| Box::<str>::from(json).into_string())
}

/// As a store has it: JSON, or a hand was in the database.
fn json(text: Option<String>) -> Result<Option<Box<RawValue>>, ServiceError> {
    let read = text.map(RawValue::from_string).transpose();
    read.map_err(|error| ServiceError::Internal(format!("the catalogue: {error}")))
}

impl TryFrom<event_types::EventType> for EventType {
    type Error = ServiceError;

    fn try_from(found: event_types::EventType) -> Result<Self, ServiceError> {
        Ok(Self {
            name: found.name,
            description: found.description,
            schema: json(found.schema)?,
            example: json(found.example)?,
            redact: found.redact,
            archived: found.archived,
        })
    }
}

impl From<ListedEventType> for EventTypeLine {
    fn from(found: ListedEventType) -> Self {
        Self {
            name: found.name,
            description: found.description,
            redact: found.redact,
            archived: found.archived,
            has_schema: found.has_schema,
            has_example: found.has_example,
        }
    }
}

impl From<CreateEventType> for event_types::EventType {
    fn from(body: CreateEventType) -> Self {
        Self {
            name: body.name,
            description: body.description,
            schema: text(body.schema),
            example: text(body.example),
            redact: body.redact,
            archived: body.archived,
        }
    }
}

impl From<ChangeEventType> for EventTypeChange {
    fn from(body: ChangeEventType) -> Self {
        Self {
            description: body.description,
            schema: body.schema.map(text),
            example: body.example.map(text),
            redact: body.redact,
            archived: body.archived,
        }
    }
}

/// List the types that the platform describes, without their schemas and examples.
#[utoipa::path(get, path = "/v1/event-types", operation_id = "list_event_types",
    tag = "event types", security(("key" = ["read"])),
    params(EventTypesPage), responses(
    (status = 200, body = EventTypeList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<EventTypesPage>,
) -> Result<Json<EventTypeList>, Problem> {
    let wanted = WantedEventTypes {
        archived: page.archived,
        after: page.after,
        limit: page.limit,
    };
    let found = caller
        .run(|service| async move { service.event_types(wanted).await })
        .await?;
    let full = found.len() >= page.limit as usize;
    let next = found.last().filter(|_| full).map(|last| last.name.clone());
    let event_types = found.into_iter().map(EventTypeLine::from).collect();
    Ok(Json(EventTypeList { event_types, next }))
}

/// Look at a type that the platform describes.
#[utoipa::path(get, path = "/v1/event-types/{name}", operation_id = "show_event_type",
    tag = "event types", security(("key" = ["read"])),
    params(("name" = String, Path)), responses(
    (status = 200, body = EventType),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<EventType>, Problem> {
    let found = caller
        .run(|service| async move { service.event_type(&name).await })
        .await?;
    Ok(Json(found.try_into()?))
}

/// Describe a type of events.
#[utoipa::path(post, path = "/v1/event-types", operation_id = "create_event_type",
    tag = "event types", security(("key" = ["admin"])),
    request_body = CreateEventType, responses(
    (status = 201, description = "Created.", body = EventType),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    JsonBody(body): JsonBody<CreateEventType>,
) -> Result<(StatusCode, Json<EventType>), Problem> {
    let new = body.into();
    let created = caller
        .administer(|tenancy| async move { tenancy.create_event_type(new).await })
        .await?;
    Ok((StatusCode::CREATED, Json(created.try_into()?)))
}

/// Change how a type is described. Pointers hold for whatever is shown from then on.
#[utoipa::path(patch, path = "/v1/event-types/{name}", operation_id = "change_event_type",
    tag = "event types", security(("key" = ["admin"])),
    params(("name" = String, Path)), request_body = ChangeEventType, responses(
    (status = 200, body = EventType),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change(
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(body): JsonBody<ChangeEventType>,
) -> Result<Json<EventType>, Problem> {
    let change = body.into();
    let changed = caller
        .administer(|tenancy| async move { tenancy.change_event_type(&name, &change).await })
        .await?;
    Ok(Json(changed.try_into()?))
}

/// Forget what is said of a type. One that has pointers is refused, since its payloads
/// would be shown whole again: archive it, or set `redact` to `[]` first.
#[utoipa::path(delete, path = "/v1/event-types/{name}", operation_id = "delete_event_type",
    tag = "event types", security(("key" = ["admin"])),
    params(("name" = String, Path)), responses(
    (status = 204, description = "Deleted."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller
        .administer(|tenancy| async move { tenancy.delete_event_type(&name).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

//! `/v1/destinations`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use domain::destination::DestinationState;
use domain::external_id::ExternalId;
use domain::handshake::Handshake;
use domain::limit::{Count, Shape};
use domain::limit_group::GroupName;
use domain::policy::LimitSettings;
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::JsonBody;
use super::credentials::{
    ClientCertificate, OAuth2, SetClientCertificate, SetOAuth2, present_hidden,
};
use super::limits::{
    Effective, Limits, LimitsPatch, not_null, object, periods, present, present_object,
};
use super::parameters::{DestinationPath, DestinationsPage, OwnId, Page, PathId, is_the_paths};
use super::problem::Problem;
use super::secrets::{FirstSecret, Headers};
use super::tiers::Ceiling;
use super::{Caller, text};
use crate::hidden::Hidden;
use crate::service::secrets::{MadeSecret, SecretDraft};
use crate::service::{Described, DestinationDraft, DestinationEdit, LimitsChange};

/// A destination to create.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateDestination {
    /// What you call it in your own books: unique among its tenant's, and good in every
    /// path in the place of its id.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "endpoint-7")]
    pub external_id: Option<ExternalId>,
    /// Where its requests go: absolute, https.
    #[schema(example = "https://example.com/hooks")]
    pub url: String,
    /// For people.
    #[serde(default)]
    pub name: String,
    /// The types of events that it subscribes to; `order.*` is all below one, `*` all. At
    /// most 100, and at most eight dots where one ends in `.*`.
    #[serde(default)]
    pub event_types: Vec<String>,
    /// Which events of these types it takes, by their payloads: JSON pointers, and what has
    /// to be found there. `null` is all.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub filter: Option<Value>,
    /// Starts per period.
    #[serde(default, deserialize_with = "object")]
    pub limits: Limits,
    /// No rate limit; `max_in_flight` still holds.
    #[serde(default)]
    pub unlimited: bool,
    /// A bucket's capacity, or how many of a window may start at once.
    #[serde(default)]
    pub burst: Option<u32>,
    /// How the limit spreads its starts.
    #[serde(default)]
    #[schema(schema_with = text::shape_or_null)]
    pub shape: Option<Shape>,
    /// Attempts queued and in flight at once.
    #[serde(default)]
    pub max_in_flight: Option<u32>,
    /// By which part every period is stretched: 0.02 makes a second 1.02 s. `null`:
    /// measured, up to a hundredth of the period.
    #[serde(default)]
    pub safety_margin: Option<f64>,
    /// The largest margin that is measured, as a part of the period. `null`: 0.01.
    #[serde(default)]
    pub margin_cap: Option<f64>,
    /// Until when a request counts: `start`, or `response`, the end of its answer. `null`:
    /// `start`.
    #[serde(default)]
    #[schema(schema_with = text::count_or_null)]
    pub count: Option<Count>,
    /// Tell the receiver which trace a request belongs to: the headers
    /// `traceparent` and `tracestate`, of events that have one.
    #[serde(default)]
    pub pass_traceparent: bool,
    /// Whether its receiver is asked before anything is sent to it: `cloud_events` by
    /// `OPTIONS`, and nothing is sent until it allows it.
    #[serde(default)]
    #[schema(schema_with = text::handshake)]
    pub handshake: Handshake,
    /// The limit group that its starts count for as well.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub limit_group: Option<GroupName>,
    /// Your own secret, `whsec_…` or `whsk_…`; left out, one is made.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub secret: Option<Hidden>,
    /// Headers to add to its requests. Answers show their names only. Of one that is
    /// there: left out, they stay; `null` or `{}` removes them.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<HashMap<String, String>>)]
    pub headers: Option<Option<Headers>>,
    /// What its connections show to be let in. Answers show no key. Of one that is there:
    /// left out, it stays; `null` removes it.
    #[serde(default, deserialize_with = "present_hidden")]
    #[schema(value_type = Option<SetClientCertificate>)]
    pub client_certificate: Option<Option<SetClientCertificate>>,
    /// How it gets the tokens by which it is let in. Answers show no secret, and no token.
    /// Not beside a header `authorization`. Of one that is there: left out, it stays;
    /// `null` removes it.
    #[serde(default, deserialize_with = "present_hidden")]
    #[schema(value_type = Option<SetOAuth2>)]
    pub oauth2: Option<Option<SetOAuth2>>,
}

/// What to change: what is absent stays, `null` clears what can be cleared.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeDestination {
    /// What you call it from now on.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub external_id: Option<ExternalId>,
    /// Where its requests go.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub url: Option<String>,
    /// For people.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    pub name: Option<String>,
    /// All types that it subscribes to from now on.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Vec<String>)]
    pub event_types: Option<Vec<String>>,
    /// Which events of its types it takes from now on; `null` for all.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    pub filter: Option<Option<Value>>,
    /// `paused` holds the backlog, `disabled` refuses events, `active` sends.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(schema_with = text::destination_state)]
    pub state: Option<DestinationState>,
    /// Starts per period; `null` clears all four, so that the tier's hold.
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
    /// Attempts queued and in flight at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub max_in_flight: Option<Option<u32>>,
    /// By which part every period is stretched; `null` to measure it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    pub safety_margin: Option<Option<f64>>,
    /// The largest margin that is measured, as a part of the period; `null` for 0.01.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    pub margin_cap: Option<Option<f64>>,
    /// Until when a request counts; `null` until its start.
    #[serde(default, deserialize_with = "present")]
    #[schema(schema_with = text::count_or_null)]
    pub count: Option<Option<Count>>,
    /// Tell the receiver which trace a request belongs to.
    #[serde(default, deserialize_with = "not_null")]
    pub pass_traceparent: Option<bool>,
    /// Whether its receiver is asked before anything is sent to it.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(schema_with = text::handshake)]
    pub handshake: Option<Handshake>,
    /// The limit group that it is in from now on; `null` for none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub limit_group: Option<Option<GroupName>>,
    /// All headers that it adds from now on; `null` or `{}` for none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<HashMap<String, String>>)]
    pub headers: Option<Option<Headers>>,
    /// What its connections show from now on; `null` for none.
    #[serde(default, deserialize_with = "present_hidden")]
    #[schema(value_type = Option<SetClientCertificate>)]
    pub client_certificate: Option<Option<SetClientCertificate>>,
    /// How it gets its tokens from now on; `null` for none.
    #[serde(default, deserialize_with = "present_hidden")]
    #[schema(value_type = Option<SetOAuth2>)]
    pub oauth2: Option<Option<SetOAuth2>>,
}

/// A destination as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destination {
    /// Its id.
    pub id: Uuid,
    /// What you call it.
    #[schema(value_type = Option<String>)]
    pub external_id: Option<ExternalId>,
    /// For people.
    pub name: String,
    /// Where its requests go.
    pub url: String,
    /// What it subscribes to.
    pub event_types: Vec<String>,
    /// Which events of these types it takes; `null` is all.
    #[schema(value_type = Option<Object>)]
    pub filter: Option<Value>,
    /// Whether it takes starts.
    #[schema(schema_with = text::destination_state)]
    pub state: DestinationState,
    /// Starts per period, as set.
    pub limits: Limits,
    /// No rate limit.
    pub unlimited: bool,
    /// As set.
    pub burst: Option<u32>,
    /// As set.
    #[schema(schema_with = text::shape_or_null)]
    pub shape: Option<Shape>,
    /// As set.
    pub max_in_flight: Option<u32>,
    /// By which part every period is stretched; `null` if it is measured.
    pub safety_margin: Option<f64>,
    /// As set.
    pub margin_cap: Option<f64>,
    /// As set.
    #[schema(schema_with = text::count_or_null)]
    pub count: Option<Count>,
    /// Whether its receiver is sent `traceparent` and `tracestate`.
    pub pass_traceparent: bool,
    /// Whether its receiver is asked before anything is sent to it.
    #[schema(schema_with = text::handshake)]
    pub handshake: Handshake,
    /// The limit group that its starts count for as well.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub limit_group: Option<GroupName>,
    /// The names of the headers that it adds.
    pub headers: Vec<String>,
    /// What its connections show.
    pub client_certificate: Option<ClientCertificate>,
    /// How it gets the tokens by which it is let in.
    pub oauth2: Option<OAuth2>,
    /// What holds: the above, or the tier's where it inherits.
    pub effective: Effective,
    /// The most that your key sets for it: where its tier has no ceiling, a tenant's own key
    /// sets what the tier gives, or what the destination was granted or has. An operator can
    /// grant it more.
    pub ceiling: Ceiling,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// A page of destinations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Destinations {
    /// In id order.
    pub destinations: Vec<Destination>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<Uuid>,
}

/// A destination that was just created, and what it signs with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreatedDestination {
    /// As it is.
    #[serde(flatten)]
    pub destination: Destination,
    /// What its requests are signed with.
    pub secret: FirstSecret,
}

impl From<Described> for Destination {
    fn from(described: Described) -> Self {
        let destination = described.destination;
        let limits = destination.limits;
        let (shown, ends_soon) = (described.shown, described.certificate_ends_soon);
        let certificate = shown.certificate;
        let oauth2 = shown.oauth2;
        Self {
            id: destination.id.0,
            external_id: destination.external_id,
            name: destination.name,
            url: destination.url,
            event_types: destination.event_types,
            filter: destination.filter.map(Value::from),
            state: destination.state,
            limits: Limits::of(&limits),
            unlimited: limits.unlimited,
            burst: limits.burst,
            shape: limits.shape,
            max_in_flight: limits.max_in_flight,
            safety_margin: limits.safety_margin,
            margin_cap: limits.margin_cap,
            count: limits.count,
            pass_traceparent: destination.pass_traceparent,
            handshake: destination.handshake,
            limit_group: destination.limit_group,
            headers: shown.header_names,
            client_certificate: certificate.map(|facts| ClientCertificate::of(facts, ends_soon)),
            oauth2: oauth2.map(|facts| OAuth2::of(facts, shown.token_trouble)),
            effective: Effective::of(&destination.effective),
            ceiling: described.most.into(),
            created_at: text::time(destination.created_at),
        }
    }
}

impl From<CreateDestination> for DestinationDraft {
    fn from(body: CreateDestination) -> Self {
        let limits = LimitSettings {
            unlimited: body.unlimited,
            burst: body.burst,
            shape: body.shape,
            max_in_flight: body.max_in_flight,
            safety_margin: body.safety_margin,
            margin_cap: body.margin_cap,
            count: body.count,
            ..body.limits.settings()
        };
        Self {
            external_id: body.external_id,
            name: body.name,
            url: body.url,
            event_types: body.event_types,
            filter: body.filter,
            limits,
            pass_traceparent: body.pass_traceparent,
            handshake: body.handshake,
            limit_group: body.limit_group,
            secret: SecretDraft {
                own: body.secret,
                kind: None,
            },
            headers: (body.headers).map(|headers| headers.unwrap_or_default().0),
            client_certificate: (body.client_certificate).map(|one| one.map(Into::into)),
            oauth2: body.oauth2.map(|one| one.map(Into::into)),
        }
    }
}

impl From<ChangeDestination> for DestinationEdit {
    fn from(body: ChangeDestination) -> Self {
        Self {
            external_id: body.external_id,
            name: body.name,
            url: body.url,
            event_types: body.event_types,
            filter: body.filter,
            state: body.state,
            limits: LimitsChange {
                unlimited: body.unlimited,
                burst: body.burst,
                shape: body.shape,
                max_in_flight: body.max_in_flight,
                safety_margin: body.safety_margin,
                margin_cap: body.margin_cap,
                count: body.count,
                ..periods(body.limits)
            },
            pass_traceparent: body.pass_traceparent,
            handshake: body.handshake,
            limit_group: body.limit_group,
            headers: (body.headers).map(|headers| headers.unwrap_or_default().0),
            client_certificate: (body.client_certificate).map(|one| one.map(Into::into)),
            oauth2: body.oauth2.map(|one| one.map(Into::into)),
        }
    }
}

/// Create a destination.
#[utoipa::path(post, path = "/v1/destinations", operation_id = "create_destination",
    tag = "destinations", security(("key" = ["manage"])),
    request_body = CreateDestination, responses(
    (status = 201, description = "Created. The secret is shown here and never again.",
        body = CreatedDestination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    JsonBody(body): JsonBody<CreateDestination>,
) -> Result<impl IntoResponse, Problem> {
    let draft = body.into();
    let (destination, made) = caller
        .run(|service| async move { service.create_destination(draft).await })
        .await?;
    Ok(created(destination.into(), made))
}

fn created(destination: Destination, made: MadeSecret) -> impl IntoResponse {
    let path = format!("/v1/destinations/{}", destination.id);
    let location = [(header::LOCATION, path)];
    let secret = made.into();
    let created = CreatedDestination {
        destination,
        secret,
    };
    (StatusCode::CREATED, location, Json(created))
}

/// List destinations.
#[utoipa::path(get, path = "/v1/destinations", operation_id = "list_destinations",
    tag = "destinations", security(("key" = ["read"])),
    params(DestinationsPage), responses(
    (status = 200, body = Destinations),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<DestinationsPage>,
) -> Result<Json<Destinations>, Problem> {
    let found = caller
        .run(|service| async move { service.destinations(page.after, page.limit).await })
        .await?;
    let full = found.len() >= page.limit as usize;
    let next = found.last().filter(|_| full);
    let next = next.map(|last| last.destination.id.0);
    let destinations = found.into_iter().map(Destination::from).collect();
    Ok(Json(Destinations { destinations, next }))
}

/// Look at a destination.
#[utoipa::path(get, path = "/v1/destinations/{id}", operation_id = "show_destination",
    tag = "destinations", security(("key" = ["read"])),
    params(("id" = Uuid, Path)), responses(
    (status = 200, body = Destination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Destination>, Problem> {
    let found = caller
        .run(|service| async move { service.destination(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// Create the destination that you call so, or make it into this one.
///
/// Repeating it changes nothing. One that is there keeps its state, its secrets, and what
/// is never shown again and not named here: headers, client certificate, OAuth2 client.
/// Everything else that is left out is as of a new one.
#[utoipa::path(put, path = "/v1/destinations/{id}", operation_id = "put_destination",
    tag = "destinations", security(("key" = ["manage"])),
    params(("id" = String, Path, description = "What you call it: its `external_id`.")),
    request_body = CreateDestination, responses(
    (status = 200, description = "It was there, and is so now.", body = Destination),
    (status = 201, description = "Created. The secret is shown here and never again.",
        body = CreatedDestination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(
    caller: Caller,
    OwnId(id): OwnId,
    JsonBody(body): JsonBody<CreateDestination>,
) -> Result<Response, Problem> {
    is_the_paths(&id, body.external_id.as_ref())?;
    let draft = body.into();
    let (destination, made) = caller
        .run(|service| async move { service.put_destination(id, draft).await })
        .await?;
    let destination = Destination::from(destination);
    Ok(match made {
        None => Json(destination).into_response(),
        Some(made) => created(destination, made).into_response(),
    })
}

/// Change a destination. A lowered limit is in force when this answers.
#[utoipa::path(patch, path = "/v1/destinations/{id}", operation_id = "change_destination",
    tag = "destinations", security(("key" = ["manage"])),
    params(("id" = Uuid, Path)), request_body = ChangeDestination, responses(
    (status = 200, body = Destination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn change(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<ChangeDestination>,
) -> Result<Json<Destination>, Problem> {
    let edit = body.into();
    let changed = caller
        .run(|service| async move { service.change_destination(id, edit).await })
        .await?;
    Ok(Json(changed.into()))
}

/// Delete a destination: nothing of it starts any more. Its ledger stays.
#[utoipa::path(delete, path = "/v1/destinations/{id}", operation_id = "delete_destination",
    tag = "destinations", security(("key" = ["manage"])),
    params(("id" = Uuid, Path)), responses(
    (status = 204, description = "Deleted."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<StatusCode, Problem> {
    caller
        .run(|service| async move { service.delete_destination(id).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

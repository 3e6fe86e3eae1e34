//! Ids in paths and pages in queries, refused by their name.

use axum::extract::{FromRequestParts, Path, Query};
use domain::access::{InvalidLinkId, KeyId, LinkId};
use domain::attempt::AttemptState;
use domain::external_id::{ExternalId, InvalidExternalId};
use domain::ids::{AttemptId, DestinationId, EventId, ReplayId, TenantId};
use http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::words;
use super::named::{Named, named};
use super::problem::Problem;
use super::{App, text};
use crate::service::ceilings::MAX_LIMIT_REQUESTS;

/// How many rows a page has if nothing is said.
const DEFAULT_PAGE: u32 = 100;

/// The `{id}` of a path.
pub struct PathId<T>(pub T);

impl<T: Named> FromRequestParts<App> for PathId<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::invalid("id", error.body_text()))?;
        named(("id", &text), parts, app).await.map(Self)
    }
}

/// The `{id}` of a path that its caller has given.
pub struct OwnId(pub ExternalId);

impl FromRequestParts<App> for OwnId {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::invalid("id", error.body_text()))?;
        let id = text.parse().map(Self);
        id.map_err(|error: InvalidExternalId| Problem::invalid("id", error.to_string()))
    }
}

/// What a body calls it beside a path that does.
pub(super) fn is_the_paths(path: &ExternalId, body: Option<&ExternalId>) -> Result<(), Problem> {
    match body.is_none_or(|body| body == path) {
        true => Ok(()),
        false => Err(Problem::invalid(
            "external_id",
            "is not that of the path: leave it out",
        )),
    }
}

/// The id of a destination, in a path.
pub type DestinationPath = PathId<DestinationId>;

/// The id of an event, in a path.
pub type EventPath = PathId<EventId>;

/// The id of a tenant, in a path.
pub type TenantPath = PathId<TenantId>;

/// A tenant's key: the `{id}` and `{key_id}` of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPath {
    /// Whose it is said to be.
    pub tenant: TenantId,
    /// Which key.
    pub key: KeyId,
}

impl FromRequestParts<App> for KeyPath {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path((tenant, key)) = Path::<(String, String)>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::invalid("id", error.body_text()))?;
        let invalid = |field: &str, problem: String| Problem::invalid(field, problem);
        Ok(Self {
            tenant: named(("id", &tenant), parts, app).await?,
            key: (key.parse()).map_err(|error: domain::access::InvalidKeyId| {
                invalid("key_id", error.to_string())
            })?,
        })
    }
}

/// A tenant's link: the `{id}` and `{link_id}` of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkPath {
    /// Whose it is said to be.
    pub tenant: TenantId,
    /// Which link.
    pub link: LinkId,
}

impl FromRequestParts<App> for LinkPath {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path((tenant, link)) = Path::<(String, String)>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::invalid("id", error.body_text()))?;
        let link = link.parse();
        Ok(Self {
            tenant: named(("id", &tenant), parts, app).await?,
            link: link
                .map_err(|error: InvalidLinkId| Problem::invalid("link_id", error.to_string()))?,
        })
    }
}

/// Which page of tenants.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TenantsPage {
    /// The `next` of the page before.
    #[param(value_type = Option<uuid::Uuid>)]
    pub after: Option<TenantId>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

/// Which page of events.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsPage {
    /// Of this type.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    pub event_type: Option<String>,
    /// With an attempt in this state.
    #[param(schema_with = text::attempt_state)]
    pub state: Option<AttemptState>,
    /// With an attempt that was answered with this HTTP status, or with one of a class:
    /// `500`, `5xx`; in `state` if that is given.
    #[param(pattern = "^[1-9]([0-9]{2}|xx)$")]
    pub status: Option<String>,
    /// With an attempt at this destination, in `state` and with `status` if they are given.
    #[param(value_type = Option<uuid::Uuid>)]
    pub destination_id: Option<DestinationId>,
    /// Accepted then or later.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Accepted before.
    #[param(format = DateTime)]
    pub until: Option<String>,
    /// A part of its id, or the whole idempotency key that stands for it.
    #[param(min_length = 1, max_length = 255)]
    pub text: Option<String>,
    /// The `next` of the page before.
    #[param(value_type = Option<uuid::Uuid>)]
    pub before: Option<EventId>,
    /// Rows on the page, 1 to 100.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 100)]
    pub limit: u32,
}

/// Which page of event types.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventTypesPage {
    /// With those that are archived.
    #[serde(default)]
    #[param(default = false)]
    pub archived: bool,
    /// The `next` of the page before.
    #[param(max_length = 128)]
    pub after: Option<String>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

/// Which page of limit groups.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LimitGroupsPage {
    /// The `next` of the page before.
    #[param(max_length = 100)]
    pub after: Option<String>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

/// Which page of requests for what is above a ceiling.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LimitRequestsPage {
    /// The `next` of the page before.
    pub before: Option<String>,
    /// Rows on the page, 1 to 200.
    #[serde(default = "most_requests")]
    #[param(default = 200, minimum = 1, maximum = 200)]
    pub limit: u32,
}

/// Whoever does not say it gets as many as before there were pages.
fn most_requests() -> u32 {
    MAX_LIMIT_REQUESTS
}

/// Which page of replays.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReplaysPage {
    /// The `next` of the page before.
    #[param(value_type = Option<uuid::Uuid>)]
    pub after: Option<ReplayId>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

/// Which page of destinations.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DestinationsPage {
    /// The `next` of the page before.
    #[param(value_type = Option<uuid::Uuid>)]
    pub after: Option<DestinationId>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

/// Which page of standings.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StandingsPage {
    /// The `next` of the page before.
    #[param(value_type = Option<uuid::Uuid>)]
    pub after: Option<DestinationId>,
    /// Rows on the page, 1 to 200.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 200)]
    pub limit: u32,
}

/// Which page of a compliance report.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CompliancePage {
    /// Starts before it are not looked at; an hour before `until` if absent.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Exclusive; half a second ago if absent, and at the latest.
    #[param(format = DateTime)]
    pub until: Option<String>,
    /// Of this destination only.
    #[param(value_type = Option<uuid::Uuid>)]
    pub destination_id: Option<DestinationId>,
    /// The `next` of the page before.
    #[param(value_type = Option<uuid::Uuid>)]
    pub after: Option<DestinationId>,
    /// Destinations on the page, 1 to 200.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 200)]
    pub limit: u32,
    /// Points of each destination's curve, up to 300: starts against the limit,
    /// latency, backlog.
    #[serde(default)]
    #[param(default = 0, maximum = 300)]
    pub points: u32,
}

/// Which attempts, and which page of them.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FoundAttemptsPage {
    /// At this destination. Must be said where a tenant has more than 1,000, with deleted
    /// ones that the ledger knows.
    #[param(value_type = Option<uuid::Uuid>)]
    pub destination_id: Option<DestinationId>,
    /// Of an event of this type, for as long as events are kept.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    pub event_type: Option<String>,
    /// In this state.
    #[param(schema_with = text::attempt_state)]
    pub state: Option<AttemptState>,
    /// Answered with this HTTP status, or with one of a class: `500`, `5xx`.
    #[param(pattern = "^[1-9]([0-9]{2}|xx)$")]
    pub status: Option<String>,
    /// A part of its event's id, or the whole idempotency key that stands for that.
    #[param(min_length = 1, max_length = 255)]
    pub text: Option<String>,
    /// Created then or later.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Created before.
    #[param(format = DateTime)]
    pub until: Option<String>,
    /// The `next` of the page before.
    #[param(value_type = Option<i64>)]
    pub before: Option<AttemptId>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

/// Which page of attempts.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AttemptsPage {
    /// The `next` of the page before.
    #[param(value_type = Option<i64>)]
    pub before: Option<AttemptId>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

fn default_page() -> u32 {
    DEFAULT_PAGE
}

/// The query of a page.
pub struct Page<T>(pub T);

impl<T: serde::de::DeserializeOwned> FromRequestParts<App> for Page<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(page)) => Ok(Self(page)),
            Err(error) => {
                let text = error.body_text();
                let text = text
                    .strip_prefix("Failed to deserialize query string: ")
                    .unwrap_or(&text);
                // `limit: invalid digit found in string` names its field.
                match text.split_once(": ") {
                    Some((field, problem)) if !field.is_empty() && !field.contains(' ') => {
                        Err(Problem::invalid(field, words::of(field, problem)))
                    }
                    _ => Err(Problem::invalid("query", text)),
                }
            }
        }
    }
}

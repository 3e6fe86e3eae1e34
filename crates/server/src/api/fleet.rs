//! `/v1/fleet`: the destinations of all tenants, for operators.

use axum::Json;
use engine::ports::{TroubleState, WantedOfAll};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::Object;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::parameters::Page;
use super::problem::Problem;
use super::standings::Standing;
use super::{Caller, text};
use crate::service::StandingOfTenant;

/// Which page of all tenants' destinations.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FleetPage {
    /// With this text in their name, URL or id, or in their tenant's name or id.
    #[serde(default)]
    pub search: String,
    /// Only those that need somebody (`attention`), or one kind of these.
    #[param(schema_with = states)]
    pub state: Option<String>,
    /// How many come before the page: the `next` of the page before.
    #[serde(default)]
    #[param(default = 0, maximum = 100_000)]
    pub skip: u32,
    /// Rows on the page, 1 to 100.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 100)]
    pub limit: u32,
}

const fn default_page() -> u32 {
    engine::ports::MAX_OF_ALL
}

fn states() -> Object {
    text::words(TroubleState::ALL.map(TroubleState::as_str))
}

/// Where one destination stands, and whose it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FleetStanding {
    /// Whose.
    pub tenant_id: Uuid,
    /// Its tenant's name.
    pub tenant_name: String,
    /// Where it stands. Its backlog is counted up to 10,000, and `oldest_since` is not
    /// looked up: an explanation of the one destination has both.
    #[serde(flatten)]
    pub standing: Standing,
}

/// A page of all tenants' destinations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fleet {
    /// Those first that harm most: with an open breaker, disabled, failing, short of
    /// their limit, held, paused; then the others.
    pub destinations: Vec<FleetStanding>,
    /// How many there are that were asked for; 0 beyond the last page.
    pub matching: u64,
    /// How many there are at all.
    pub count: u64,
    /// How many of all fail: their breaker is open, or nothing has succeeded for two
    /// seconds or longer.
    pub failing: u64,
    /// The `skip` of the next page; `null` on the last.
    pub next: Option<u32>,
}

impl From<StandingOfTenant> for FleetStanding {
    fn from(found: StandingOfTenant) -> Self {
        Self {
            tenant_id: found.standing.destination.tenant.0,
            tenant_name: found.tenant_name,
            standing: found.standing.into(),
        }
    }
}

/// The state of this name.
pub(crate) fn state(word: &str) -> Option<TroubleState> {
    let mut all = TroubleState::ALL.into_iter();
    all.find(|state| state.as_str() == word)
}

/// List the destinations of all tenants with where they stand, those first that harm
/// most.
#[utoipa::path(get, path = "/v1/fleet", operation_id = "list_fleet",
    tag = "tenants", security(("key" = ["admin"])),
    params(FleetPage), responses(
    (status = 200, body = Fleet),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<FleetPage>,
) -> Result<Json<Fleet>, Problem> {
    let wanted_state = match page.state.as_deref() {
        None => None,
        Some(word) => Some(state(word).ok_or_else(|| {
            let known = TroubleState::ALL.map(TroubleState::as_str).join(", ");
            Problem::invalid("state", format!("must be one of {known}"))
        })?),
    };
    let wanted = WantedOfAll {
        text: page.search,
        state: wanted_state,
        skip: page.skip,
        limit: page.limit,
    };
    let found = caller
        .report(async move |service, turn| service.standings_of_all(&wanted, &turn).await)
        .await?;
    Ok(Json(Fleet {
        destinations: found.page.into_iter().map(FleetStanding::from).collect(),
        matching: found.matching,
        count: found.count,
        failing: found.failing,
        next: found.next,
    }))
}

//! The first page: every destination in a line, problems first.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::{Html, Response};
use domain::ids::{DestinationId, TenantId};
use engine::ports::{CatalogError, Destination, MAX_GLANCED, Troubled};
use http::Uri;
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::standing::{self, Standing};
use super::visitor::Visitor;
use super::{Asked, Pages, live};

/// Lines on a page.
const LINES: u32 = 50;

/// Those that need somebody, at first; and where all are asked for.
const TROUBLED: u32 = 20;
const ALL_TROUBLED: u32 = MAX_GLANCED as u32;

/// How often lines are looked at again.
pub(super) const EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    search: String,
    after: String,
    /// All that need somebody.
    all: bool,
}

impl Wanted {
    fn after(&self) -> Option<DestinationId> {
        self.after.parse().ok()
    }
}

#[derive(askama::Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    search: String,
    is_first: bool,
    troubled: Vec<Standing>,
    /// Those that need somebody and are not shown.
    more_troubled: u64,
    all: bool,
    lines: Vec<Standing>,
    next: Option<DestinationId>,
    live: String,
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let tenant = visitor.tenant();
    let Looked {
        troubled,
        more_troubled,
        lines,
        next,
    } = look(&pages, tenant, &wanted).await?;
    let query = form_urlencoded(&wanted);
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Overview", "/dashboard")).await?,
        is_first: wanted.after().is_none(),
        search: wanted.search,
        troubled,
        more_troubled,
        all: wanted.all,
        lines,
        next,
        live: format!("/dashboard/live?{query}"),
    })
}

pub(super) async fn live(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
    address: Uri,
) -> Result<Response, Refused> {
    let tenant = visitor.tenant();
    let look = move |pages| {
        let wanted = wanted.clone();
        async move {
            let looked = look(&pages, tenant, &wanted).await?;
            let mut said = live::Said::default();
            let shown = looked.troubled.iter().chain(&looked.lines);
            shown.for_each(|one| said.line(one));
            Ok(said)
        }
    };
    live::stream(&pages, &visitor, &address, (EVERY, look))
}

struct Looked {
    troubled: Vec<Standing>,
    more_troubled: u64,
    lines: Vec<Standing>,
    next: Option<DestinationId>,
}

async fn look(pages: &Pages, tenant: TenantId, wanted: &Wanted) -> Result<Looked, Refused> {
    let (after, search) = (wanted.after(), wanted.search.trim());
    let parts = &pages.0;
    let page = match search.is_empty() {
        true => parts.catalog.destinations(tenant, after, LINES).await?,
        false => {
            let found = parts
                .overview
                .find_destinations(tenant, search, after, LINES)
                .await?;
            each(pages, tenant, &found).await?
        }
    };
    let next = page
        .last()
        .filter(|_| page.len() >= LINES as usize)
        .map(|last| last.id);
    let is_first = after.is_none() && search.is_empty();
    let most = if wanted.all { ALL_TROUBLED } else { TROUBLED };
    let troubled = match is_first {
        true => parts.overview.troubled_destinations(tenant, most).await?,
        false => Troubled::default(),
    };
    let shown = troubled.first.len() as u64;
    let first = each(pages, tenant, &troubled.first).await?;
    Ok(Looked {
        troubled: standing::of(pages, tenant, first).await?,
        more_troubled: troubled.count.saturating_sub(shown),
        lines: standing::of(pages, tenant, page).await?,
        next,
    })
}

/// Those that are still there.
pub(super) async fn each(
    pages: &Pages,
    tenant: TenantId,
    ids: &[DestinationId],
) -> Result<Vec<Destination>, Refused> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        match pages.0.catalog.destination(tenant, *id).await {
            Ok(destination) => found.push(destination),
            // Deleted meanwhile.
            Err(CatalogError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn form_urlencoded(wanted: &Wanted) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .append_pair("search", &wanted.search)
        .append_pair("after", &wanted.after)
        .append_pair("all", if wanted.all { "true" } else { "false" })
        .finish()
}

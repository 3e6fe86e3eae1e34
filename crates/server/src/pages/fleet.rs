//! All tenants' destinations, those first that harm most: for operators.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::{Html, Response};
use domain::access::Scope;
use domain::ids::{DestinationId, TenantId};
use engine::ports::{AllDestinations, MAX_SKIPPED, Thing, TroubleState, WantedOfAll};
use http::Uri;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::standing::{self, Standing};
use super::visitor::Visitor;
use super::{Asked, Pages, live, overview, words};
use crate::api::fleet;

const PART: &str = "/dashboard/fleet";

/// Lines on a page.
const LINES: u32 = 50;

/// How often a page that is watched asks how many destinations there are and which
/// harm most: that looks through all of them, its lines are its own alone.
const ALL_EVERY: Duration = Duration::from_secs(10);

/// What is said above the lines once they are others, or in another order.
const MOVED: &str = "Others harm more by now: reload to see them first.";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    search: String,
    state: String,
    /// How many come before the page.
    skip: u32,
    /// Which lines the page has, where it is watched.
    ids: String,
}

impl Wanted {
    fn query(&self, skip: u32) -> String {
        url::form_urlencoded::Serializer::new(String::new())
            .append_pair("search", &self.search)
            .append_pair("state", &self.state)
            .append_pair("skip", &skip.to_string())
            .finish()
    }

    fn of_all(&self) -> WantedOfAll {
        WantedOfAll {
            text: self.search.clone(),
            state: fleet::state(&self.state),
            skip: self.skip.min(MAX_SKIPPED),
            limit: LINES,
        }
    }

    /// Where the page's stream is.
    fn live(&self, lines: &[Standing]) -> String {
        let ids: Vec<_> = lines.iter().map(|one| one.id.to_string()).collect();
        let query = self.query(self.skip);
        format!("/dashboard/fleet/live?{query}&ids={}", ids.join(","))
    }

    fn shown(&self) -> Vec<DestinationId> {
        let ids = self.ids.split(',').filter_map(|id| id.parse().ok());
        ids.take(LINES as usize).collect()
    }
}

#[derive(askama::Template)]
#[template(path = "fleet.html")]
struct Page {
    frame: Frame,
    /// How many there are and fail, and how many match.
    count: String,
    matching: String,
    is_filtered: bool,
    states: [(&'static str, &'static str); 5],
    lines: Vec<Standing>,
    previous: Option<String>,
    next: Option<String>,
    live: String,
    wanted: Wanted,
}

const fn in_words(state: TroubleState) -> &'static str {
    match state {
        TroubleState::Attention => "needs attention",
        TroubleState::Failing => "failing",
        TroubleState::Held => "held",
        TroubleState::Paused => "paused",
        TroubleState::Disabled => "disabled",
    }
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let asked = wanted.of_all();
    let found = all(&pages, visitor.home(), &asked).await?;
    let skip = asked.skip;
    let shown = skip.saturating_add(LINES);
    let has_more = found.matching > u64::from(shown) && shown <= MAX_SKIPPED;
    let [count, matching] = numbers(&found);
    let lines = standing::of_all(&pages, found.page).await?;
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Fleet", PART)).await?,
        count,
        matching,
        is_filtered: !wanted.search.trim().is_empty() || asked.state.is_some(),
        states: TroubleState::ALL.map(|state| (state.as_str(), in_words(state))),
        live: wanted.live(&lines),
        lines,
        previous: (skip > 0).then(|| wanted.query(skip.saturating_sub(LINES))),
        next: has_more.then(|| wanted.query(shown)),
        wanted,
    })
}

fn numbers(found: &AllDestinations) -> [String; 2] {
    let (count, failing) = (words::large(found.count), words::large(found.failing));
    [
        format!("{count} destinations, {failing} failing"),
        format!("{} match.", words::large(found.matching)),
    ]
}

/// It looks through all destinations: as a report, of which few are made at once.
async fn all(
    pages: &Pages,
    home: TenantId,
    asked: &WantedOfAll,
) -> Result<AllDestinations, Refused> {
    let (_report, _goes_on) = pages.service(home).report().await?;
    Ok(pages.0.overview.all_destinations(asked).await?)
}

pub(super) async fn live(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
    address: Uri,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let home = visitor.home();
    let watched = Arc::new(Mutex::new(Watched::of(&wanted)));
    let look = move |pages| {
        let watched = Arc::clone(&watched);
        async move { watched.lock().await.look(&pages, home).await }
    };
    live::stream(&pages, &visitor, &address, (overview::EVERY, look))
}

/// A page that is watched.
struct Watched {
    asked: WantedOfAll,
    shown: Vec<DestinationId>,
    /// Whose those are, as far as was asked.
    tenants: HashMap<DestinationId, TenantId>,
    /// When all were looked through last, and what that says.
    all: Option<(Instant, Vec<(String, String)>)>,
}

impl Watched {
    fn of(wanted: &Wanted) -> Self {
        Self {
            asked: wanted.of_all(),
            shown: wanted.shown(),
            tenants: HashMap::new(),
            all: None,
        }
    }

    async fn look(&mut self, pages: &Pages, home: TenantId) -> Result<live::Said, Refused> {
        let mut said = live::Said::default();
        said.texts.extend(self.of_all(pages, home).await?);
        let lines = self.lines(pages).await?;
        lines.iter().for_each(|one| said.line(one));
        for id in &self.shown {
            if !lines.iter().any(|one| one.id == *id) {
                said.texts
                    .push((format!("{id}.state"), "deleted".to_owned()));
                said.tones.push((format!("{id}.state"), "idle"));
            }
        }
        Ok(said)
    }

    /// How many there are, and whether those that are shown are still the first.
    async fn of_all(
        &mut self,
        pages: &Pages,
        home: TenantId,
    ) -> Result<Vec<(String, String)>, Refused> {
        if let Some((at, said)) = &self.all
            && at.elapsed() < ALL_EVERY
        {
            return Ok(said.clone());
        }
        let found = all(pages, home, &self.asked).await?;
        let first = found.page.iter().map(|one| one.destination.id);
        let moved = match first.eq(self.shown.iter().copied()) {
            true => String::new(),
            false => MOVED.to_owned(),
        };
        let of_each = (found.page.iter()).map(|one| (one.destination.id, one.destination.tenant));
        self.tenants.extend(of_each);
        let [count, matching] = numbers(&found);
        let said = vec![
            ("fleet.count".to_owned(), count),
            ("fleet.matching".to_owned(), matching),
            ("fleet.moved".to_owned(), moved),
        ];
        self.all = Some((Instant::now(), said.clone()));
        Ok(said)
    }

    /// Those that are shown and are still there, in no order.
    async fn lines(&mut self, pages: &Pages) -> Result<Vec<Standing>, Refused> {
        let mut of_tenants: BTreeMap<TenantId, Vec<DestinationId>> = BTreeMap::new();
        for id in &self.shown {
            let tenant = match self.tenants.get(id) {
                Some(tenant) => Some(*tenant),
                None => pages.0.overview.tenant_of(Thing::Destination(*id)).await?,
            };
            if let Some(tenant) = tenant {
                self.tenants.insert(*id, tenant);
                of_tenants.entry(tenant).or_default().push(*id);
            }
        }
        let (mut destinations, mut health) = (Vec::new(), Vec::new());
        for (tenant, ids) in of_tenants {
            destinations.extend(overview::each(pages, tenant, &ids).await?);
            health.extend(pages.0.catalog.health(tenant, &ids).await?);
        }
        standing::of_several(pages, destinations, health).await
    }
}

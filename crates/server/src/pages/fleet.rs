//! All tenants' destinations, those first that harm most: for operators.

use axum::extract::{Query, State};
use axum::response::Html;
use domain::access::Scope;
use engine::ports::{MAX_SKIPPED, TroubleState, WantedOfAll};
use serde::Deserialize;

use super::Asked;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::standing::{self, Standing};
use super::visitor::Visitor;
use super::words;
use crate::api::fleet;

const PART: &str = "/dashboard/fleet";

/// Lines on a page.
const LINES: u32 = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    search: String,
    state: String,
    /// How many come before the page.
    skip: u32,
}

impl Wanted {
    fn query(&self, skip: u32) -> String {
        url::form_urlencoded::Serializer::new(String::new())
            .append_pair("search", &self.search)
            .append_pair("state", &self.state)
            .append_pair("skip", &skip.to_string())
            .finish()
    }
}

#[derive(askama::Template)]
#[template(path = "fleet.html")]
struct Page {
    frame: Frame,
    count: String,
    failing: String,
    matching: String,
    is_filtered: bool,
    states: [(&'static str, &'static str); 5],
    lines: Vec<Standing>,
    previous: Option<String>,
    next: Option<String>,
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
    // It looks through all destinations: as a report, of which few are made at once.
    let (_report, _goes_on) = pages.service(visitor.home()).report().await?;
    let skip = wanted.skip.min(MAX_SKIPPED);
    let asked = WantedOfAll {
        text: wanted.search.clone(),
        state: fleet::state(&wanted.state),
        skip,
        limit: LINES,
    };
    let found = pages.0.overview.all_destinations(&asked).await?;
    let shown = skip.saturating_add(LINES);
    let has_more = found.matching > u64::from(shown) && shown <= MAX_SKIPPED;
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Fleet", PART)).await?,
        count: words::large(found.count),
        failing: words::large(found.failing),
        matching: words::large(found.matching),
        is_filtered: !wanted.search.trim().is_empty() || asked.state.is_some(),
        states: TroubleState::ALL.map(|state| (state.as_str(), in_words(state))),
        lines: standing::of_all(&pages, found.page).await?,
        previous: (skip > 0).then(|| wanted.query(skip.saturating_sub(LINES))),
        next: has_more.then(|| wanted.query(shown)),
        wanted,
    })
}

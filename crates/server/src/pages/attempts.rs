//! Attempts of a destination or of all, found by state, status, event and time.

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Response};
use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId};
use engine::ports::{AttemptFilter, AttemptPage, AttemptView};
use http::StatusCode;
use serde::Deserialize;

use super::destination::{Line, parsed};
use super::events::PART as EVENTS;
use super::frame::{Frame, rendered};
use super::names::Names;
use super::refused::Refused;
use super::visitor::Visitor;
use super::{Asked, Pages, searched};
use crate::service::Service;

/// Attempts on a page.
const LINES: u32 = 100;

/// What was typed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    state: String,
    status: String,
    r#type: String,
    text: String,
    destination: String,
    since: String,
    until: String,
    before: String,
}

impl Wanted {
    fn filter(&self, of: Option<DestinationId>) -> Result<AttemptFilter, Refused> {
        let owned = |typed| searched::text(typed).map(str::to_owned);
        Ok(AttemptFilter {
            destination: of,
            event_type: owned(&self.r#type),
            state: self.state.parse().ok(),
            status: searched::status(&self.status)?,
            text: owned(&self.text),
            since: searched::time("since", &self.since)?,
            until: searched::time("until", &self.until)?,
        })
    }

    fn query(&self, before: AttemptId) -> String {
        let typed: [(&str, &str); 7] = [
            ("state", &self.state),
            ("status", &self.status),
            ("type", &self.r#type),
            ("text", &self.text),
            ("destination", &self.destination),
            ("since", &self.since),
            ("until", &self.until),
        ];
        searched::query(&typed, &before.0.to_string())
    }
}

#[derive(askama::Template)]
#[template(path = "attempts.html")]
struct Page {
    frame: Frame,
    /// The destination whose page this is, and its name; of all if it is none's.
    of: Option<(DestinationId, String)>,
    /// Where the form goes.
    path: String,
    wanted: Wanted,
    states: Vec<&'static str>,
    attempts: Vec<Line>,
    /// What is wrong with the form.
    problem: Option<String>,
    next: Option<String>,
}

/// Those of one destination.
pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let (service, id) = (pages.service(visitor.tenant()), parsed(&id)?);
    let destination = service.destination(id).await?.destination;
    let found = found(&service, &wanted, Some(id)).await;
    let of = Some((id, destination.called().to_owned()));
    shown((&pages, &visitor), of, wanted, found).await
}

/// Those of all destinations, or of the one that is typed.
pub(super) async fn everywhere(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let (service, tenant) = (pages.service(visitor.tenant()), visitor.tenant());
    let of = searched::destination(&pages, tenant, &wanted.destination).await;
    let found = match of {
        Ok(of) => found(&service, &wanted, of).await,
        Err(refused) => Err(refused),
    };
    shown((&pages, &visitor), None, wanted, found).await
}

async fn shown(
    (pages, visitor): (&Pages, &Visitor),
    of: Option<(DestinationId, String)>,
    wanted: Wanted,
    found: Result<AttemptPage, Refused>,
) -> Result<Response, Refused> {
    let (found, problem) = match found {
        Ok(found) => (found, None),
        Err(refused) => (AttemptPage::default(), Some(refused.said()?)),
    };
    let next = found.next.map(|next| wanted.query(next));
    let status = match problem {
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
        None => StatusCode::OK,
    };
    let (part, path) = match &of {
        Some((id, _)) => (
            "/dashboard",
            format!("/dashboard/destinations/{id}/attempts"),
        ),
        None => (EVENTS, "/dashboard/attempts".to_owned()),
    };
    let frame = Frame::of(pages, visitor, ("Attempts", part)).await?;
    let places: Vec<_> = match of {
        // It stands above them.
        Some(_) => Vec::new(),
        None => (found.attempts.iter())
            .map(|attempt| attempt.destination)
            .collect(),
    };
    let names = Names::of(pages, places.into_iter()).await?;
    let line = |attempt: AttemptView| Line {
        to: of.is_none().then(|| names.name(attempt.destination)),
        ..Line::of(attempt, &frame)
    };
    let page: Html<String> = rendered(&Page {
        path,
        wanted,
        states: AttemptState::ALL.map(AttemptState::as_str).to_vec(),
        attempts: found.attempts.into_iter().map(line).collect(),
        problem,
        next,
        of,
        frame,
    })?;
    Ok((status, page).into_response())
}

/// The first page that has some, of a few.
async fn found(
    service: &Service,
    wanted: &Wanted,
    of: Option<DestinationId>,
) -> Result<AttemptPage, Refused> {
    let filter = wanted.filter(of)?;
    let mut before = wanted.before.parse().ok().map(AttemptId);
    let all = AttemptFilter {
        destination: of,
        ..AttemptFilter::default()
    };
    if let Some(of) = of.filter(|_| filter == all) {
        // Nothing is looked for: no more is read than is shown.
        let attempts = service.attempts(of, before, LINES).await?;
        let full = attempts.len() >= LINES as usize;
        let next = attempts.last().filter(|_| full).map(|last| last.id);
        return Ok(AttemptPage { attempts, next });
    }
    let mut page = AttemptPage::default();
    for _round in 0..searched::ROUNDS {
        page = service.find_attempts(&filter, before, LINES).await?;
        before = page.next;
        if before.is_none() || !page.attempts.is_empty() {
            break;
        }
    }
    Ok(page)
}

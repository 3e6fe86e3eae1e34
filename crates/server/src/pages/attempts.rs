//! A destination's attempts, found by state, status, event and time.

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Response};
use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId};
use engine::ports::{AttemptFilter, AttemptPage};
use http::StatusCode;
use serde::Deserialize;

use super::destination::{Line, parsed};
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::Visitor;
use super::{Asked, searched};
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
    since: String,
    until: String,
    before: String,
}

impl Wanted {
    fn filter(&self, of: DestinationId) -> Result<AttemptFilter, Refused> {
        let owned = |typed| searched::text(typed).map(str::to_owned);
        Ok(AttemptFilter {
            destination: Some(of),
            event_type: owned(&self.r#type),
            state: self.state.parse().ok(),
            status: searched::status(&self.status)?,
            text: owned(&self.text),
            since: searched::time("since", &self.since)?,
            until: searched::time("until", &self.until)?,
        })
    }

    fn query(&self, before: AttemptId) -> String {
        let typed: [(&str, &str); 6] = [
            ("state", &self.state),
            ("status", &self.status),
            ("type", &self.r#type),
            ("text", &self.text),
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
    id: DestinationId,
    name: String,
    wanted: Wanted,
    states: Vec<&'static str>,
    attempts: Vec<Line>,
    /// What is wrong with the form.
    problem: Option<String>,
    next: Option<String>,
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let (service, id) = (pages.service(visitor.tenant()), parsed(&id)?);
    let destination = service.destination(id).await?.destination;
    let (found, problem) = match found(&service, &wanted, id).await {
        Ok(found) => (found, None),
        Err(refused) => (AttemptPage::default(), Some(refused.said()?)),
    };
    let next = found.next.map(|next| wanted.query(next));
    let status = match problem {
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
        None => StatusCode::OK,
    };
    let frame = Frame::of(&pages, &visitor, ("Attempts", "/dashboard")).await?;
    let line = |attempt| Line::of(attempt, &frame);
    let page: Html<String> = rendered(&Page {
        id,
        name: destination.name,
        wanted,
        states: AttemptState::ALL.map(AttemptState::as_str).to_vec(),
        attempts: found.attempts.into_iter().map(line).collect(),
        problem,
        next,
        frame,
    })?;
    Ok((status, page).into_response())
}

/// The first page that has some, of a few.
async fn found(
    service: &Service,
    wanted: &Wanted,
    of: DestinationId,
) -> Result<AttemptPage, Refused> {
    let filter = wanted.filter(of)?;
    let mut before = wanted.before.parse().ok().map(AttemptId);
    let all = AttemptFilter {
        destination: Some(of),
        ..AttemptFilter::default()
    };
    if filter == all {
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

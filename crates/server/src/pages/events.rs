//! Events: found by what is known of them, and one with its attempts.

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId, TenantId};
use domain::redaction::Shown;
use engine::ports::{AttemptView, EventFilter, EventPage, FoundEvent};
use http::StatusCode;
use serde::Deserialize;

use super::destination::Line;
use super::frame::{Frame, rendered};
use super::names::Names;
use super::refused::Refused;
use super::visitor::Visitor;
use super::words::{self, NONE};
use super::{Asked, Pages, resend, searched, typed};
use crate::service::{Service, ServiceError};

pub(super) const PART: &str = "/dashboard/events";

/// Events on a page.
const LINES: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    text: String,
    r#type: String,
    state: String,
    status: String,
    destination: String,
    since: String,
    until: String,
    before: String,
}

impl Wanted {
    async fn filter(&self, pages: &Pages, tenant: TenantId) -> Result<EventFilter, Refused> {
        let owned = |typed| searched::text(typed).map(str::to_owned);
        Ok(EventFilter {
            event_type: owned(&self.r#type),
            state: self.state.parse().ok(),
            status: searched::status(&self.status)?,
            since: searched::time("since", &self.since)?,
            until: searched::time("until", &self.until)?,
            text: owned(&self.text),
            destination: searched::destination(pages, tenant, &self.destination).await?,
        })
    }

    fn query(&self, before: EventId) -> String {
        let typed: [(&str, &str); 7] = [
            ("text", &self.text),
            ("type", &self.r#type),
            ("state", &self.state),
            ("status", &self.status),
            ("destination", &self.destination),
            ("since", &self.since),
            ("until", &self.until),
        ];
        searched::query(&typed, &before.to_string())
    }

    /// The whole id of one event is all that was typed.
    fn is_one(&self) -> Option<EventId> {
        let others = [
            &self.r#type,
            &self.state,
            &self.status,
            &self.destination,
            &self.since,
            &self.until,
        ];
        let alone = others.iter().all(|typed| searched::text(typed).is_none());
        let id = self.text.trim().parse().ok();
        id.filter(|_| alone)
    }
}

struct Found {
    id: EventId,
    /// The end of it.
    end: String,
    /// To whom: one by name, or how many.
    to: String,
    /// Where the one is.
    destination: Option<DestinationId>,
    event_type: String,
    urgent: bool,
    bytes: String,
    at: String,
    iso: String,
    attempts: u32,
    /// The newest attempt; of those that were found by a state, how many are in it.
    stand: String,
    tone: &'static str,
}

impl Found {
    fn of(event: FoundEvent, wanted: Option<AttemptState>, names: &Names) -> Self {
        let shown = wanted.or(event.last);
        let word = shown.map_or(NONE.to_owned(), |state| words::state(state.as_str()));
        let destination = event.destination.filter(|_| event.destinations == 1);
        Self {
            end: words::short(&event.id.to_string()),
            to: match (destination, event.destinations) {
                (Some(one), _) => names.name(one),
                (None, 0) => NONE.to_owned(),
                (None, many) => format!("{many} destinations"),
            },
            destination,
            id: event.id,
            event_type: event.event_type.unwrap_or(NONE.to_owned()),
            urgent: event.urgent,
            bytes: words::count(event.payload_bytes, u32::MAX),
            at: words::time(event.created_at),
            iso: words::iso(event.created_at),
            attempts: event.attempts,
            stand: match event.matching {
                Some(matching) => format!("{matching} {word}"),
                None => word,
            },
            tone: match shown {
                Some(AttemptState::Succeeded) => "good",
                Some(AttemptState::Failed | AttemptState::Unknown) => "bad",
                _ => "idle",
            },
        }
    }
}

#[derive(askama::Template)]
#[template(path = "events.html")]
pub(super) struct Page {
    frame: Frame,
    wanted: Wanted,
    states: Vec<&'static str>,
    /// What the last column says.
    stand: &'static str,
    events: Vec<Found>,
    /// What is wrong with the form.
    problem: Option<String>,
    next: Option<String>,
    /// The form that resends is for the tenant whose pages the session shows, and says no
    /// other: whoever looks at another one's events has it there.
    may_resend: bool,
    /// What is resent of what was missed.
    missed: resend::Form,
}

/// What is wrong with a search stands beside that; this is of what was missed.
impl typed::Again for Page {
    fn say(&mut self, problem: String) {
        self.missed.problem = Some(problem);
    }
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let one = wanted.is_one();
    let to = |id| Ok(Redirect::to(&format!("/dashboard/events/{id}")).into_response());
    // An operator's is whoever's it is.
    if let Some(id) = one.filter(|_| visitor.is_operator()) {
        return to(id);
    }
    let (found, problem) = match found(&pages, &visitor, &wanted).await {
        Ok(found) => (found, None),
        Err(refused) => (EventPage::default(), Some(refused.said()?)),
    };
    if let ([found], Some(id)) = (&found.events[..], one)
        && found.id == id
    {
        return to(id);
    }
    let status = match problem {
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
        None => StatusCode::OK,
    };
    let page = page(&pages, &visitor, wanted, (found, problem)).await?;
    Ok((status, rendered(&page)?).into_response())
}

/// The newest events, and what somebody has typed of those that were missed.
pub(super) async fn with_missed(
    pages: &Pages,
    visitor: &Visitor,
    missed: resend::Form,
) -> Result<Page, Refused> {
    let wanted = Wanted::default();
    let found = found(pages, visitor, &wanted).await?;
    Ok(Page {
        missed,
        ..page(pages, visitor, wanted, (found, None)).await?
    })
}

/// What was found, or what is wrong with what was sought.
async fn page(
    pages: &Pages,
    visitor: &Visitor,
    wanted: Wanted,
    (found, problem): (EventPage, Option<String>),
) -> Result<Page, Refused> {
    let next = found.next.map(|next| wanted.query(next));
    let of = found.events.iter().filter_map(|event| event.destination);
    let names = Names::of(pages, of).await?;
    let state = wanted.state.parse().ok();
    Ok(Page {
        frame: Frame::of(pages, visitor, ("Events", PART)).await?,
        wanted,
        states: AttemptState::ALL.map(AttemptState::as_str).to_vec(),
        stand: match state {
            Some(_) => "Attempts in this state",
            None => "Last attempt",
        },
        events: (found.events.into_iter())
            .map(|event| Found::of(event, state, &names))
            .collect(),
        problem,
        next,
        may_resend: visitor.may(Scope::Manage) && visitor.tenant() == visitor.home(),
        missed: resend::Form::default(),
    })
}

/// The first page that has some, of a few.
async fn found(pages: &Pages, visitor: &Visitor, wanted: &Wanted) -> Result<EventPage, Refused> {
    let filter = wanted.filter(pages, visitor.tenant()).await?;
    let service = pages.service(visitor.tenant());
    let mut before = wanted.before.parse().ok();
    let mut page = EventPage::default();
    for _round in 0..searched::ROUNDS {
        page = service.find_events(&filter, before, LINES).await?;
        before = page.next;
        if before.is_none() || !page.events.is_empty() {
            break;
        }
    }
    Ok(page)
}

#[derive(askama::Template)]
#[template(path = "event.html")]
struct OnePage {
    frame: Frame,
    id: EventId,
    event_type: String,
    content_type: String,
    bytes: String,
    urgent: bool,
    at: String,
    /// What it carries, for who may see it.
    payload: Option<String>,
    /// What is said beside it.
    about_payload: &'static str,
    /// Each with how its destination is called.
    attempts: Vec<(String, Line)>,
}

/// What an event carries, as text, if its visitor may see it and it is still kept; and what
/// is said of it.
async fn payload(
    service: &Service,
    visitor: &Visitor,
    id: EventId,
) -> Result<(Option<String>, &'static str), Refused> {
    if !visitor.may(Scope::ReadPayloads) {
        return Ok((None, ""));
    }
    match service.payload(id).await {
        Ok(payload) => Ok(shown(payload.shown)),
        // Its time has come.
        Err(ServiceError::NotFound(_)) => Ok((None, "")),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Html<String>, Refused> {
    let id: EventId = id.parse().map_err(|_bad| Refused::not_found("event"))?;
    let service = pages.service(visitor.tenant());
    let (event, attempts) = service.event(id).await?;
    let (payload, about_payload) = payload(&service, &visitor, id).await?;
    let names = Names::of(&pages, attempts.iter().map(|one| one.destination)).await?;
    let frame = Frame::of(&pages, &visitor, ("Event", PART)).await?;
    let named = |attempt: AttemptView| {
        let name = names.name(attempt.destination);
        (name, Line::of(attempt, &frame))
    };
    rendered(&OnePage {
        id,
        event_type: event.event_type.unwrap_or(NONE.to_owned()),
        content_type: event.content_type,
        bytes: words::count(event.payload_bytes, u32::MAX),
        urgent: event.urgent,
        at: words::time(event.created_at),
        payload,
        about_payload,
        attempts: attempts.into_iter().map(named).collect(),
        frame,
    })
}

/// A payload in words, and what is said beside it.
pub(super) fn shown(payload: Shown) -> (Option<String>, &'static str) {
    match payload {
        Shown::Whole(bytes) => (Some(words::payload(&bytes)), ""),
        Shown::Redacted(bytes) => {
            let about = "What the catalogue hides of this type is left out here. Receivers get it.";
            (Some(words::payload(&bytes)), about)
        }
        Shown::Withheld => {
            let about = "It is not shown: the catalogue hides parts of this type's payloads, and \
                this one is no JSON.";
            (None, about)
        }
    }
}

//! Events: found by id, type and state, and one with its attempts.

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId};
use domain::redaction::Shown;
use engine::ports::{AttemptView, EventFilter, FoundEvent};
use serde::Deserialize;

use super::Asked;
use super::destination::Line;
use super::frame::{Frame, rendered};
use super::names::Names;
use super::refused::Refused;
use super::visitor::Visitor;
use super::words::{self, NONE};
use crate::service::{Service, ServiceError};

const PART: &str = "/dashboard/events";

/// Events on a page.
const LINES: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    id: String,
    r#type: String,
    state: String,
    before: String,
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
struct Page {
    frame: Frame,
    wanted: Wanted,
    states: Vec<&'static str>,
    /// What the last column says.
    stand: &'static str,
    events: Vec<Found>,
    next: Option<String>,
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let id = wanted.id.trim();
    if !id.is_empty() {
        let id: EventId = id.parse().map_err(|_bad| Refused::not_found("event"))?;
        return Ok(Redirect::to(&format!("/dashboard/events/{id}")).into_response());
    }
    let wanted_type = wanted.r#type.trim();
    let filter = EventFilter {
        event_type: (!wanted_type.is_empty()).then(|| wanted_type.to_owned()),
        state: wanted.state.parse().ok(),
        ..EventFilter::default()
    };
    let before = wanted.before.parse().ok();
    let service = pages.service(visitor.tenant());
    let page = service.find_events(&filter, before, LINES).await?;
    let next = page.next.map(|next| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("type", wanted_type)
            .append_pair("state", &wanted.state);
        query.append_pair("before", &next.to_string()).finish()
    });
    let of = page.events.iter().filter_map(|event| event.destination);
    let names = Names::of(&pages, of).await?;
    let page = Page {
        frame: Frame::of(&pages, &visitor, ("Events", PART)).await?,
        wanted,
        states: AttemptState::ALL.map(AttemptState::as_str).to_vec(),
        stand: match filter.state {
            Some(_) => "Attempts in this state",
            None => "Last attempt",
        },
        events: (page.events.into_iter())
            .map(|event| Found::of(event, filter.state, &names))
            .collect(),
        next,
    };
    Ok(rendered(&page)?.into_response())
}

#[derive(askama::Template)]
#[template(path = "event.html")]
struct EventPage {
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
pub(super) async fn payload(
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
    let named = |attempt: AttemptView| (names.name(attempt.destination), Line::from(attempt));
    rendered(&EventPage {
        frame: Frame::of(&pages, &visitor, ("Event", PART)).await?,
        id,
        event_type: event.event_type.unwrap_or(NONE.to_owned()),
        content_type: event.content_type,
        bytes: words::count(event.payload_bytes, u32::MAX),
        urgent: event.urgent,
        at: words::time(event.created_at),
        payload,
        about_payload,
        attempts: attempts.into_iter().map(named).collect(),
    })
}

/// A payload in words, and what is said beside it.
fn shown(payload: Shown) -> (Option<String>, &'static str) {
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

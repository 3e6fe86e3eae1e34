//! The catalogue of event types, as everybody reads it.

use axum::extract::{Path, Query, State};
use axum::response::Html;
use domain::event_types::{EventType, ListedEventType, MAX_TYPES};
use engine::ports::WantedEventTypes;
use serde::Deserialize;

use super::describe::Form;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::{Fields, Visitor};
use super::{Asked, Pages, typed, words};
use crate::service::{Service, ServiceError};

pub(super) const PART: &str = "/dashboard/event-types";

/// Types on a page.
const LINES: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    after: String,
    done: String,
}

struct Line {
    path: String,
    one: ListedEventType,
}

#[derive(askama::Template)]
#[template(path = "event_types.html")]
pub(super) struct Page {
    frame: Frame,
    lines: Vec<Line>,
    next: Option<String>,
    /// What is typed of one that is to be described.
    form: Form,
    problem: Option<String>,
    notice: &'static str,
}

typed::again!(Page);

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(query): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let after = Some(query.after).filter(|after| !after.is_empty());
    let form = Form::of(&Fields::default());
    rendered(&Page {
        notice: match query.done.as_str() {
            "deleted" => "Deleted.",
            _ => "",
        },
        ..listed(&pages, &visitor, after, form).await?
    })
}

/// Operators see those that are archived, too.
pub(super) async fn listed(
    pages: &Pages,
    visitor: &Visitor,
    after: Option<String>,
    form: Form,
) -> Result<Page, Refused> {
    let wanted = WantedEventTypes {
        archived: visitor.is_operator(),
        after,
        limit: LINES,
    };
    let found = pages.service(visitor.tenant()).event_types(wanted).await?;
    let full = found.len() >= LINES as usize;
    let next = found.last().filter(|_| full).map(|last| last.name.clone());
    Ok(Page {
        frame: Frame::of(pages, visitor, ("Event types", PART)).await?,
        lines: (found.into_iter())
            .map(|one| Line {
                path: path(&one.name),
                one,
            })
            .collect(),
        next,
        form,
        problem: None,
        notice: "",
    })
}

#[derive(askama::Template)]
#[template(path = "event_type.html")]
struct TypePage {
    frame: Frame,
    path: String,
    one: EventType,
    notice: &'static str,
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(query): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let one = found(&pages, &visitor, &name).await?;
    rendered(&TypePage {
        frame: Frame::of(&pages, &visitor, (&one.name, PART)).await?,
        path: path(&one.name),
        notice: match query.done.as_str() {
            "described" => "Described. Customers read it here, and choose it.",
            "changed" => "Changed.",
            _ => "",
        },
        one,
    })
}

/// All of one; what is no name is none.
pub(super) async fn found(
    pages: &Pages,
    visitor: &Visitor,
    name: &str,
) -> Result<EventType, Refused> {
    match pages.service(visitor.tenant()).event_type(name).await {
        Err(ServiceError::Invalid { .. }) => Err(Refused::not_found("event type")),
        found => Ok(found?),
    }
}

/// Where one is.
pub(super) fn path(name: &str) -> String {
    format!("{PART}/{}", words::in_path(name))
}

/// The types that are offered, by name.
pub(super) async fn offered(service: &Service) -> Result<Vec<ListedEventType>, ServiceError> {
    let wanted = WantedEventTypes {
        archived: false,
        after: None,
        limit: MAX_TYPES,
    };
    service.event_types(wanted).await
}

/// The names of those that have an example.
pub(super) async fn with_example(service: &Service) -> Result<Vec<String>, ServiceError> {
    let offered = offered(service).await?.into_iter();
    let with_example = offered.filter(|one| one.has_example);
    Ok(with_example.map(|one| one.name).collect())
}

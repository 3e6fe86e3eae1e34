//! The catalogue of event types, to be read.

use axum::extract::{Path, Query, State};
use axum::response::Html;
use domain::access::Scope;
use domain::event_types::{EventType, ListedEventType, MAX_TYPES};
use engine::ports::WantedEventTypes;
use serde::Deserialize;

use super::Asked;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::Visitor;
use crate::service::{Service, ServiceError};

const PART: &str = "/dashboard/event-types";

/// Types on a page.
const LINES: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct After {
    after: String,
}

struct Line {
    path: String,
    one: ListedEventType,
}

#[derive(askama::Template)]
#[template(path = "event_types.html")]
struct Page {
    frame: Frame,
    lines: Vec<Line>,
    next: Option<String>,
}

/// Operators see those that are archived, too.
pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(query): Query<After>,
) -> Result<Html<String>, Refused> {
    let wanted = WantedEventTypes {
        archived: visitor.may(Scope::Admin),
        after: Some(query.after).filter(|after| !after.is_empty()),
        limit: LINES,
    };
    let found = pages.service(visitor.tenant()).event_types(wanted).await?;
    let full = found.len() >= LINES as usize;
    let next = found.last().filter(|_| full).map(|last| last.name.clone());
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Event types", PART)).await?,
        lines: (found.into_iter())
            .map(|one| Line {
                path: path(&one.name),
                one,
            })
            .collect(),
        next,
    })
}

#[derive(askama::Template)]
#[template(path = "event_type.html")]
struct TypePage {
    frame: Frame,
    one: EventType,
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Html<String>, Refused> {
    let one = match pages.service(visitor.tenant()).event_type(&name).await {
        Err(ServiceError::Invalid { .. }) => return Err(Refused::not_found("event type")),
        found => found?,
    };
    rendered(&TypePage {
        frame: Frame::of(&pages, &visitor, (&one.name, PART)).await?,
        one,
    })
}

/// Of all that a type's name has, only a slash means something in a path.
fn path(name: &str) -> String {
    format!("{PART}/{}", name.replace('/', "%2F"))
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

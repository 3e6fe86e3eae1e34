//! One attempt: its request beside its response.

use axum::extract::{Path, State};
use axum::response::Html;
use domain::access::Scope;
use domain::ids::AttemptId;

use super::Asked;
use super::destination::Line;
use super::events;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::Visitor;
use super::words::{self, NONE};
use crate::service::sent::{Sees, Sent, SentHeader};

#[derive(askama::Template)]
#[template(path = "attempt.html")]
struct Page {
    frame: Frame,
    one: Line,
    name: String,
    /// Where it went.
    url: String,
    /// Where its destination's requests go by now, if that is elsewhere.
    url_now: Option<String>,
    started: String,
    bytes: String,
    in_batch: bool,
    headers: Vec<(String, String)>,
    response_headers: Vec<(String, String)>,
    /// A secret that has ended since may have signed as well.
    is_part: bool,
    /// What its event carries, for who may see it.
    payload: Option<String>,
    /// What is said of it.
    about_payload: &'static str,
    /// It is over, and its destination is there, so its event can be sent there again.
    is_over: bool,
}

pub(super) fn parsed(id: &str) -> Result<AttemptId, Refused> {
    let id = id.parse().map(AttemptId);
    id.map_err(|_bad| Refused::not_found("attempt"))
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Html<String>, Refused> {
    let id = parsed(&id)?;
    let sees = match visitor.may(Scope::ReadPayloads) {
        true => Sees::Payload,
        false => Sees::NoPayload,
    };
    let sent = pages.service(visitor.tenant()).sent(id, sees).await?;
    let (name, found) = (name(&sent), sent.found);
    let payload = sent.payload.map(|payload| events::shown(payload.shown));
    let (payload, about_payload) = payload.unwrap_or_default();
    let frame = Frame::of(&pages, &visitor, ("Attempt", "/dashboard")).await?;
    rendered(&Page {
        headers: sent.headers.into_iter().map(words_of).collect(),
        is_part: sent.is_part,
        started: (found.attempt.started_at).map_or(NONE.to_owned(), words::time),
        payload,
        about_payload,
        is_over: found.attempt.state.is_final() && sent.destination.is_some(),
        bytes: words::large(u64::from(found.payload_bytes)),
        in_batch: found.in_batch,
        name,
        url_now: (sent.destination)
            .map(|one| one.destination.url)
            .filter(|now| found.url.as_ref().is_some_and(|then| then != now)),
        url: found.url.unwrap_or_else(|| NONE.to_owned()),
        response_headers: (found.attempt.response_headers.iter())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        one: Line::of(found.attempt, &frame),
        frame,
    })
}

/// What a header said, or why that is not said.
fn words_of(header: SentHeader) -> (String, String) {
    (header.name, header.value.unwrap_or_else(str::to_owned))
}

/// How its destination is called.
pub(super) fn name(sent: &Sent) -> String {
    let name = (sent.destination.as_ref()).map(|one| one.destination.name.clone());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| sent.found.attempt.destination.to_string())
}

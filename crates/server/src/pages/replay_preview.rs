//! What replays would be of: how much, of which destinations and for about how long. Shown
//! before they begin, beside the button that begins them.

use std::time::Duration;

use axum::response::Html;
use domain::ids::DestinationId;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::words;
use crate::service::ReplayPreview;

/// What is asked.
pub(super) struct Question {
    /// What would be done: `Replay`.
    pub(super) verb: &'static str,
    /// To what: `dead letters`.
    pub(super) things: &'static str,
    /// The same, as a column's head.
    pub(super) head: &'static str,
    /// What it will do, a sentence each.
    pub(super) does: Vec<String>,
    /// What is said before a number where there are more.
    pub(super) part: &'static str,
    /// Which part of each limit may be used.
    pub(super) share: f64,
    /// Where the form goes.
    pub(super) action: &'static str,
    /// What it says.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Where nothing is done, and what that is.
    pub(super) back: &'static str,
    pub(super) origin: &'static str,
}

#[derive(askama::Template)]
#[template(path = "replay_preview.html")]
struct Page {
    frame: Frame,
    question: Question,
    count: String,
    is_all: bool,
    /// Which part of each limit, in words.
    share: String,
    takes: String,
    each: Vec<Previewed>,
    /// And so many more destinations; 0 for none.
    further: usize,
}

/// What would be replayed of one destination.
struct Previewed {
    id: DestinationId,
    name: String,
    count: String,
    takes: String,
}

/// How much was counted, and whether there is more.
pub(super) fn count(preview: &ReplayPreview, part: &str) -> String {
    match preview.is_all {
        true => words::large(preview.count),
        false => format!("{part} {}", words::large(preview.count)),
    }
}

/// How long all of it takes, as far as it was counted.
pub(super) fn takes_in_all(preview: &ReplayPreview) -> String {
    let least = if preview.is_all { "" } else { "at least " };
    format!("{least}about {}", takes(preview.takes))
}

/// A part of a limit: `half`, `30 %`, `all`.
pub(super) fn part(share: f64) -> String {
    let percent = share * 100.0;
    match format!("{percent:.0}").as_str() {
        "0" => "less than 1 %".to_owned(),
        "50" => "half".to_owned(),
        "100" => "all".to_owned(),
        percent => format!("{percent} %"),
    }
}

/// How long it takes.
fn takes(takes: Option<Duration>) -> String {
    takes.map_or("for ever: its limit is 0".to_owned(), words::span)
}

pub(super) fn page(
    frame: Frame,
    question: Question,
    preview: ReplayPreview,
) -> Result<Html<String>, Refused> {
    let count = count(&preview, question.part);
    let in_all = takes_in_all(&preview);
    let each = preview.each.into_iter().map(|one| Previewed {
        id: one.destination.id,
        count: words::large(one.count),
        takes: takes(one.takes),
        name: one.destination.called().to_owned(),
    });
    rendered(&Page {
        frame,
        share: part(question.share),
        question,
        count,
        is_all: preview.is_all,
        takes: in_all,
        each: each.collect(),
        further: preview.further,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_said_in_words() {
        let said = [0.001, 0.07, 0.3, 0.5, 1.0].map(part);
        assert_eq!(said, ["less than 1 %", "7 %", "30 %", "half", "all"]);
    }
}

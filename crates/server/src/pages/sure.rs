//! Asks before something is done that cannot be taken back, and says what it will do.
//!
//! A page of its own, so that it asks without a script. Its form is the one that was
//! sent, with `sure` beside it.

use axum::response::{IntoResponse, Response};

use super::Pages;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::{Fields, Visitor};

/// What is asked.
pub(super) struct Question {
    /// Such as `Revoke the key shop?`.
    pub(super) asks: String,
    /// What it will do, a sentence each.
    pub(super) does: Vec<String>,
    /// Where the form goes: to where it came from.
    pub(super) action: String,
    /// What it said.
    pub(super) fields: Vec<(&'static str, String)>,
    /// What the button says.
    pub(super) button: &'static str,
    /// Where nothing is done.
    pub(super) back: String,
}

impl Question {
    /// Whether what has its page at `path` is to be deleted.
    pub(super) fn delete(asks: String, does: Vec<String>, path: String) -> Self {
        Self {
            asks,
            does,
            action: format!("{path}/delete"),
            fields: Vec::new(),
            button: "Delete it",
            back: path,
        }
    }
}

#[derive(askama::Template)]
#[template(path = "sure.html")]
struct Page {
    frame: Frame,
    question: Question,
}

/// Whether it was asked, and the answer is yes.
pub(super) fn is_sure(fields: &Fields) -> bool {
    fields.get("sure").is_some()
}

pub(super) async fn ask(
    pages: &Pages,
    visitor: &Visitor,
    part: &'static str,
    question: Question,
) -> Result<Response, Refused> {
    let frame = Frame::of(pages, visitor, ("Are you sure?", part)).await?;
    Ok(rendered(&Page { frame, question })?.into_response())
}

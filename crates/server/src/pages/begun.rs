//! Replays that forms have begun, and the way to them. A form that begins them at all
//! destinations does so in parts: where more are left, it asks whether to go on.

use axum::response::{IntoResponse, Redirect, Response};
use domain::ids::DestinationId;
use engine::ports::Replay;

use super::dead_letters::PART;
use super::destination::parsed;
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Visitor};
use super::{Pages, typed};
use crate::service::{Everywhere, OfAll};

/// How many replays have begun by now.
const BEGUN: &str = "begun";
/// To which destination they came.
const AFTER: &str = "after";

/// A form that begins replays at all destinations.
pub(super) struct Form {
    /// Where it goes.
    pub(super) action: &'static str,
    /// Which part of each limit they may use; the usual one if it says none.
    pub(super) share: Option<f64>,
    /// What it says, but for how far it is.
    pub(super) fields: Vec<(&'static str, String)>,
    /// The page that it is on.
    pub(super) back: &'static str,
}

/// Begins as many as one form does, from where it came to. `posted` is the form as it came, by
/// somebody who is sure.
pub(super) async fn begin(
    pages: &Pages,
    (visitor, posted): (&Visitor, &Fields),
    of: OfAll<'_>,
    form: Form,
) -> Result<Response, Refused> {
    let before: usize = typed::number(posted, BEGUN)?.unwrap_or(0);
    let after = posted.get(AFTER).map(parsed).transpose()?;
    let service = pages.service(visitor.tenant());
    let begun = service
        .begin_form(of, Everywhere { after }, form.share)
        .await?;
    let in_all = before.saturating_add(begun.replays.len());
    match begun.next {
        Some(next) => {
            let back = form.back;
            sure::ask(pages, visitor, back, going_on(form, in_all, next)).await
        }
        None if before == 0 => Ok(to(&begun.replays)),
        None => Ok(to_all(in_all)),
    }
}

/// Whether to go on to the destinations after `next`, where so many replays have begun by now.
fn going_on(form: Form, begun: usize, next: DestinationId) -> Question {
    let mut fields = form.fields;
    fields.extend([(BEGUN, begun.to_string()), (AFTER, next.to_string())]);
    Question {
        asks: "Go on to the next destinations?".to_owned(),
        does: vec![format!(
            "{begun} replays have begun by now, and there are more destinations."
        )],
        action: form.action.to_owned(),
        fields,
        button: "Go on",
        back: form.back.to_owned(),
    }
}

/// To what has begun.
pub(super) fn to(begun: &[Replay]) -> Response {
    let to = match begun {
        [one] => format!("/dashboard/replays/{}", one.id),
        // One for each destination: they are in the list.
        _ => return to_all(begun.len()),
    };
    Redirect::to(&to).into_response()
}

/// To so many that have begun.
fn to_all(begun: usize) -> Response {
    Redirect::to(&format!("{PART}?begun={begun}")).into_response()
}

//! What has not started is cancelled: one delivery, or what waits at a destination.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::attempt::AttemptState;
use engine::ports::Destination;

use super::destination::parsed;
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted};
use super::{Asked, attempt, change, typed};
use crate::service::backlog::too_late;
use crate::service::sent::{Sees, Sent};
use crate::service::{CancelCursor, CancelDraft, rules};

const PART: &str = "/dashboard";

/// What one form cancels, in requests of the API's: of more it asks again.
const ROUNDS: u32 = 10;

/// Cancels one delivery. Of one that has started or is over nothing is asked: it is too late.
pub(super) async fn one(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = attempt::parsed(&id)?;
    let service = pages.service(visitor.tenant());
    if sure::is_sure(&fields) {
        service.cancel_attempt(id).await?;
    } else {
        let sent = service.sent(id, Sees::NoPayload).await?;
        // By that state alone: where it waits again by now, nobody has been asked.
        match sent.found.attempt.state {
            AttemptState::Cancelled => {}
            state if state.can_be_cancelled() => {
                return sure::ask(&pages, &visitor, PART, cancelling(&sent)).await;
            }
            state => return Err(too_late(state).into()),
        }
    }
    Ok(Redirect::to(&format!("/dashboard/attempts/{id}")).into_response())
}

fn cancelling(sent: &Sent) -> Question {
    let back = format!("/dashboard/attempts/{}", sent.found.attempt.id);
    Question {
        asks: format!("Cancel the delivery to {}?", attempt::name(sent)),
        does: vec![
            "It is not sent, nor tried again, unless it has started by then.".to_owned(),
            "Its event can be sent there again from its page.".to_owned(),
        ],
        action: format!("{back}/cancel"),
        fields: Vec::new(),
        button: "Cancel it",
        back,
    }
}

/// Cancels what waits at a destination: what was accepted before it was asked about.
pub(super) async fn backlog(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let service = pages.service(visitor.tenant());
    let mut draft = draft(&fields)?;
    if !sure::is_sure(&fields) {
        rules::wanted_type(draft.event_type.as_deref())?;
        let destination = service.destination(id).await?.destination;
        let waiting = change::waiting(&pages, id).await?;
        draft.accepted_before = Some(pages.0.overview.now().await?);
        let question = cancelling_all(&destination, &waiting, &draft);
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    let mut cancelled = typed::number(&fields, CANCELLED)?.unwrap_or(0_u32);
    for _round in 0..ROUNDS {
        let part = service.cancel_backlog(id, draft.clone()).await?;
        cancelled = cancelled.saturating_add(part.cancelled);
        draft.accepted_before = Some(part.accepted_before);
        draft.after = part.next;
        if draft.after.is_none() {
            let page = format!("/dashboard/destinations/{id}");
            let to = format!("{page}?done=cancelled&{CANCELLED}={cancelled}");
            return Ok(Redirect::to(&to).into_response());
        }
    }
    let destination = service.destination(id).await?.destination;
    let question = going_on(&destination, cancelled, &draft);
    sure::ask(&pages, &visitor, PART, question).await
}

/// How many are cancelled by now.
const CANCELLED: &str = "cancelled";

fn draft(fields: &Fields) -> Result<CancelDraft, Refused> {
    let before = fields.get("accepted_before").map(|text| {
        rules::time(text).ok_or_else(|| Refused::invalid("accepted_before: must be a time"))
    });
    let after = fields.get("after").map(str::parse::<CancelCursor>);
    Ok(CancelDraft {
        event_type: fields.get("type").map(str::to_owned),
        accepted_before: before.transpose()?,
        after: (after.transpose())
            .map_err(|problem| Refused::invalid(format!("after: {problem}")))?,
    })
}

/// What a form says to go on with the same, where so many are cancelled by now.
fn said(draft: &CancelDraft, cancelled: u32) -> Vec<(&'static str, String)> {
    let before = draft.accepted_before.map(|at| at.as_micros().to_string());
    let all = [
        (CANCELLED, Some(cancelled.to_string())),
        ("type", draft.event_type.clone()),
        ("accepted_before", before),
        ("after", draft.after.map(|after| after.to_string())),
    ];
    let said = all.into_iter();
    said.filter_map(|(name, text)| Some((name, text?)))
        .collect()
}

fn cancelling_all(destination: &Destination, waiting: &str, draft: &CancelDraft) -> Question {
    let back = format!("/dashboard/destinations/{}", destination.id);
    let which = match &draft.event_type {
        Some(one) => format!("Those of the type {one} are cancelled, and not sent."),
        None => "They are cancelled, and not sent.".to_owned(),
    };
    Question {
        asks: format!("Cancel what waits for {}?", destination.called()),
        does: vec![
            format!("{waiting} deliveries wait now, retries included. {which}"),
            "What comes from now on goes on waiting.".to_owned(),
            "What has started goes on, and so may what gets its permit meanwhile: pause first if \
             none may."
                .to_owned(),
        ],
        action: format!("{back}/cancel"),
        fields: said(draft, 0),
        button: "Cancel them",
        back,
    }
}

fn going_on(destination: &Destination, cancelled: u32, draft: &CancelDraft) -> Question {
    let back = format!("/dashboard/destinations/{}", destination.id);
    Question {
        asks: format!("Go on cancelling what waits for {}?", destination.called()),
        does: vec![format!(
            "{cancelled} are cancelled by now, and there may be more."
        )],
        action: format!("{back}/cancel"),
        fields: said(draft, cancelled),
        button: "Go on",
        back,
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::AttemptId;
    use domain::time::Timestamp;
    use engine::ports::CancelFrom;

    use super::*;

    /// So that nothing is cancelled that came after the first question, and nothing twice.
    #[test]
    fn what_goes_on_is_what_was_begun() {
        let begun = CancelDraft {
            event_type: Some("order.paid".to_owned()),
            accepted_before: Some(Timestamp::from_micros(1_769_860_800_000_000)),
            after: Some(CancelCursor(CancelFrom::Admitted(AttemptId(7)))),
        };
        let fields: Fields = said(&begun, 200_000).into_iter().collect();
        assert_eq!(draft(&fields).unwrap(), begun);
        assert_eq!(fields.text(CANCELLED), "200000", "and counted");
        assert_eq!(draft(&Fields::default()).unwrap(), CancelDraft::default());
        for (name, text) in [("accepted_before", "noon"), ("after", "first:x")] {
            let wrong = draft(&Fields::from([(name, text.to_owned())]));
            let said = wrong.unwrap_err().said().unwrap();
            assert!(said.starts_with(&format!("{name}: must be")), "{said}");
        }
    }
}

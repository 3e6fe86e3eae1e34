//! Events that are sent again: one of them, or what a destination has missed.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::attempt::{AttemptState, UnknownAttemptState};
use domain::ids::EventId;
use engine::ports::{Destination, ResentEvents};

use super::Asked;
use super::destination::parsed;
use super::refused::Refused;
use super::searched;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted};

/// How far back `what it has missed` may go: what it is called, and in hours.
pub(super) const SPANS: [(&str, u32); 4] =
    [("hour", 1), ("six hours", 6), ("day", 24), ("week", 168)];

/// Sends an event again to where it has been before.
pub(super) async fn event(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id: EventId = id.parse().map_err(|_bad| Refused::not_found("event"))?;
    let to = fields.get("destination").map(parsed).transpose()?;
    let service = pages.service(visitor.tenant());
    if !sure::is_sure(&fields) {
        service.event(id).await?;
        let destination = match to {
            Some(to) => Some(service.destination(to).await?.destination),
            None => None,
        };
        let question = resending(id, destination.as_ref());
        return sure::ask(&pages, &visitor, "/dashboard/events", question).await;
    }
    let begun = service.resend_event(id, to, None).await?;
    let to = match begun.replays.as_slice() {
        [one] => format!("/dashboard/replays/{}", one.progress.id),
        // One for each destination: they are in the list.
        _ => format!("/dashboard/dead-letters?begun={}", begun.replays.len()),
    };
    Ok(Redirect::to(&to).into_response())
}

fn resending(id: EventId, to: Option<&Destination>) -> Question {
    let back = format!("/dashboard/events/{id}");
    let who = match to {
        Some(to) => format!("{} gets", to.called()),
        None => "Each destination where it has been gets".to_owned(),
    };
    Question {
        asks: "Send this event again?".to_owned(),
        does: vec![
            format!(
                "{who} it once more, within its limits, also where it was delivered. It has the \
                 same id, so receivers can tell."
            ),
            "Where it still waits, it is left alone.".to_owned(),
        ],
        action: format!("{back}/resend"),
        fields: (to.map(|to| ("destination", to.id.to_string())))
            .into_iter()
            .collect(),
        button: "Send it again",
        back,
    }
}

/// How an attempt may have ended, to choose from.
pub(super) fn ends() -> Vec<&'static str> {
    let all = AttemptState::ALL.into_iter();
    let over = all.filter(|state| state.is_final() && *state != AttemptState::Succeeded);
    over.map(AttemptState::as_str).collect()
}

/// Which of those that it has missed, where not all of them are meant.
const SOME: [&str; 4] = ["type", "status", "state", "text"];

/// Sends to a destination what it has missed lately.
pub(super) async fn missed(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let (words, hours) = span(&fields)?;
    let service = pages.service(visitor.tenant());
    let now = pages.0.overview.now().await?;
    let owned = |name| fields.get(name).map(str::to_owned);
    let state = fields.get("state").map(str::parse).transpose();
    let which = ResentEvents {
        since: now - Duration::from_secs(u64::from(hours) * 3_600),
        until: None,
        event_type: owned("type"),
        state: state
            .map_err(|_unknown: UnknownAttemptState| Refused::invalid("state: no such state"))?,
        status: searched::status(fields.text("status"))?,
        text: owned("text"),
        only_missed: true,
    };
    if !sure::is_sure(&fields) {
        service.check_resend(&which).await?;
        let destination = service.destination(id).await?.destination;
        let question = resending_missed(&destination, (words, hours), &fields);
        return sure::ask(&pages, &visitor, "/dashboard", question).await;
    }
    let replay = service.resend_events(id, which, None).await?;
    Ok(Redirect::to(&format!("/dashboard/replays/{}", replay.progress.id)).into_response())
}

fn resending_missed(
    destination: &Destination,
    (words, hours): (&str, u32),
    fields: &Fields,
) -> Question {
    let back = format!("/dashboard/destinations/{}", destination.id);
    let some = SOME
        .into_iter()
        .filter_map(|name| Some((name, fields.get(name)?)));
    let some: Vec<_> = some.map(|(name, text)| (name, text.to_owned())).collect();
    let mut does = vec![
        format!(
            "Events of the last {words} that it subscribes to, or that were for it, and of which \
             no delivery succeeded, are sent again at half of its limit."
        ),
        "Those whose payload is not kept any more are skipped, and counted.".to_owned(),
    ];
    if !some.is_empty() {
        let said: Vec<_> = some
            .iter()
            .map(|(name, text)| format!("{name} {text}"))
            .collect();
        does.insert(1, format!("Only those with {}.", said.join(", ")));
    }
    Question {
        asks: format!("Resend what {} has missed?", destination.called()),
        does,
        action: format!("{back}/resend"),
        fields: [vec![("hours", hours.to_string())], some].concat(),
        button: "Resend them",
        back,
    }
}

fn span(fields: &Fields) -> Result<(&'static str, u32), Refused> {
    let wanted = fields.get("hours").unwrap_or_default();
    let found = SPANS
        .into_iter()
        .find(|(_, hours)| hours.to_string() == wanted);
    found.ok_or_else(|| Refused::invalid("hours: no such span"))
}

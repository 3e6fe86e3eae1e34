//! Events that are sent again: one of them, or what a destination or all of them have
//! missed.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::access::Scope;
use domain::attempt::{AttemptState, UnknownAttemptState};
use domain::ids::EventId;
use domain::replay::DEFAULT_SHARE;
use engine::ports::{Destination, ResentEvents};

use super::destination::{self, Beside, parsed};
use super::events::{self, PART as EVENTS};
use super::frame::Frame;
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted, Visitor};
use super::{Asked, Pages, begun, replay_preview, searched, typed, words};
use crate::service::{OfAll, ReplayPreview};

/// How far back `what it has missed` goes, where no time is typed: what that is called, and
/// in hours.
const SPANS: [(&str, u32); 4] = [("hour", 1), ("six hours", 6), ("day", 24), ("week", 168)];

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
        return sure::ask(&pages, &visitor, EVENTS, question).await;
    }
    let begun = service.resend_event(id, to, None).await?;
    Ok(begun::to(&begun.replays))
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
fn ends() -> Vec<&'static str> {
    let all = AttemptState::ALL.into_iter();
    let over = all.filter(|state| state.is_final() && *state != AttemptState::Succeeded);
    over.map(AttemptState::as_str).collect()
}

/// The form of what was missed, as it is typed.
pub(super) struct Form {
    /// Each with whether it is chosen.
    pub(super) spans: [(&'static str, u32, bool); 4],
    pub(super) states: Vec<&'static str>,
    pub(super) since: String,
    pub(super) until: String,
    pub(super) event_type: String,
    pub(super) status: String,
    pub(super) state: String,
    pub(super) text: String,
    pub(super) share: String,
    /// With what was delivered.
    pub(super) delivered: bool,
    pub(super) problem: Option<String>,
}

impl Form {
    fn of(fields: &Fields) -> Self {
        let text = |name| fields.text(name).to_owned();
        let hours = fields.text("hours");
        Self {
            spans: SPANS.map(|(words, of)| (words, of, of.to_string() == hours)),
            states: ends(),
            since: text("since"),
            until: text("until"),
            event_type: text("type"),
            status: text("status"),
            state: text("state"),
            text: text("text"),
            share: text("share"),
            delivered: fields.get("delivered").is_some(),
            problem: None,
        }
    }

    /// Whether it says more than a span.
    pub(super) fn says_more(&self) -> bool {
        let typed = [
            &self.since,
            &self.until,
            &self.event_type,
            &self.status,
            &self.state,
            &self.text,
            &self.share,
        ];
        self.delivered || typed.iter().any(|text| !text.is_empty())
    }
}

impl Default for Form {
    fn default() -> Self {
        Self::of(&Fields::default())
    }
}

const EVERYWHERE: &str = "/dashboard/events/resend";

/// Which of those that it has missed, where not all of them are meant.
const SOME: [&str; 4] = ["type", "status", "state", "text"];

/// What was missed in a time, of all that or of some.
struct Missed {
    /// Of which time, in words: `of the last day`.
    when: String,
    which: ResentEvents,
    /// Which part of each limit it may use; the usual one if that is not said.
    share: Option<f64>,
    /// What the form says beside that.
    some: Vec<(&'static str, String)>,
}

impl Missed {
    /// As the form says.
    async fn of(pages: &Pages, fields: &Fields) -> Result<Self, Refused> {
        let (since, when) = match searched::time("since", fields.text("since"))? {
            Some(since) => (since, format!("since {}", words::time(since))),
            None => {
                let (words, hours) = span(fields)?;
                let now = pages.0.overview.now().await?;
                let since = now - Duration::from_secs(u64::from(hours) * 3_600);
                (since, format!("of the last {words}"))
            }
        };
        let until = searched::time("until", fields.text("until"))?;
        let before = until.map(|until| format!(" and before {}", words::time(until)));
        let owned = |name| fields.get(name).map(str::to_owned);
        let state = fields.get("state").map(str::parse).transpose();
        let which = ResentEvents {
            since,
            until,
            event_type: owned("type"),
            state: state.map_err(|_unknown: UnknownAttemptState| {
                Refused::invalid("state: no such state")
            })?,
            status: searched::status(fields.text("status"))?,
            text: owned("text"),
            only_missed: fields.get("delivered").is_none(),
        };
        let some = SOME
            .into_iter()
            .filter_map(|name| Some((name, owned(name)?)));
        Ok(Self {
            when: when + &before.unwrap_or_default(),
            which,
            share: typed::decimal(fields, "share")?,
            some: some.collect(),
        })
    }

    /// The part of each limit that it may use.
    fn share(&self) -> f64 {
        self.share.unwrap_or(DEFAULT_SHARE)
    }

    /// What sending it does, a sentence each. `to` names who gets it.
    fn does(&self, to: &str) -> Vec<String> {
        let which = match self.which.only_missed {
            true => "and of which no delivery succeeded,",
            false => "delivered or not,",
        };
        let (when, part) = (&self.when, replay_preview::part(self.share()));
        let mut does = vec![format!(
            "Events {when} that {to} subscribes to, or that were for it, {which} are sent again \
             at {part} of its limit."
        )];
        if !self.some.is_empty() {
            let said = self
                .some
                .iter()
                .map(|(name, text)| format!("{name} {text}"));
            let said: Vec<_> = said.collect();
            does.push(format!("Only those with {}.", said.join(", ")));
        }
        does.push("Those whose payload is not kept any more are skipped.".to_owned());
        does
    }

    /// The form again, for just those that it was about: of a time that was counted, so
    /// many hours back would be another by then.
    fn fields(&self) -> Vec<(&'static str, String)> {
        let until = self.which.until.map(words::iso);
        let delivered = (!self.which.only_missed).then(|| "yes".to_owned());
        let share = self.share.map(|share| share.to_string());
        let said = [("until", until), ("delivered", delivered), ("share", share)];
        let said = said
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)));
        let since = ("since", words::iso(self.which.since));
        [since]
            .into_iter()
            .chain(said)
            .chain(self.some.iter().cloned())
            .collect()
    }
}

/// What the form says, if something can be found by it.
async fn checked(pages: &Pages, visitor: &Visitor, fields: &Fields) -> Result<Missed, Refused> {
    let missed = Missed::of(pages, fields).await?;
    let service = pages.service(visitor.tenant());
    service.check_resend(&missed.which, missed.share).await?;
    Ok(missed)
}

/// Who is sure changes something; anybody else reads.
async fn asking(pages: &Pages, visitor: Visitor, fields: &Fields) -> Result<Visitor, Refused> {
    match sure::is_sure(fields) {
        true => Ok(visitor),
        false => visitor.reading(pages).await,
    }
}

/// Sends to a destination what it has missed.
pub(super) async fn missed(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let visitor = asking(&pages, visitor, &fields).await?;
    let missed = match checked(&pages, &visitor, &fields).await {
        Ok(missed) => missed,
        Err(refused) => {
            let beside = Beside {
                missed: Form::of(&fields),
                ..Beside::default()
            };
            // Boxed: the page asks for much, and all others would carry room for it.
            let again = Box::pin(destination::filled(&pages, &visitor, id, beside));
            return typed::or_again(Err(refused), again).await;
        }
    };
    let service = pages.service(visitor.tenant());
    if !sure::is_sure(&fields) {
        let destination = service.destination(id).await?.destination;
        let preview = service.resend_preview(Some(id), &missed.which, missed.share);
        let question = resending_missed(&destination, &missed, &preview.await?);
        return sure::ask(&pages, &visitor, "/dashboard", question).await;
    }
    let replay = service
        .resend_events(id, missed.which, missed.share)
        .await?;
    Ok(begun::to(&[replay]))
}

/// Sends to all destinations what each of them has missed.
pub(super) async fn everywhere(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let visitor = asking(&pages, visitor, &fields).await?;
    let missed = match checked(&pages, &visitor, &fields).await {
        Ok(missed) => missed,
        Err(refused) => {
            let again = events::with_missed(&pages, &visitor, Form::of(&fields));
            return typed::or_again(Err(refused), again).await;
        }
    };
    if sure::is_sure(&fields) {
        let form = begun::Form {
            action: EVERYWHERE,
            share: missed.share,
            fields: missed.fields(),
            back: EVENTS,
        };
        let of = OfAll::Events(&missed.which);
        return begun::begin(&pages, (&visitor, &fields), of, form).await;
    }
    let service = pages.service(visitor.tenant());
    let preview = service.resend_preview(None, &missed.which, missed.share);
    let preview = preview.await?;
    let mut does = missed.does("a destination");
    does.push("Disabled destinations are left out.".to_owned());
    let question = replay_preview::Question {
        verb: "Resend",
        things: "deliveries",
        head: "Deliveries",
        does,
        part: "at least",
        share: missed.share(),
        action: EVERYWHERE,
        fields: missed.fields(),
        back: EVENTS,
        origin: "events",
    };
    let frame = Frame::of(&pages, &visitor, ("Resend", EVENTS)).await?;
    Ok(replay_preview::page(frame, question, preview)?.into_response())
}

fn resending_missed(
    destination: &Destination,
    missed: &Missed,
    preview: &ReplayPreview,
) -> Question {
    let back = format!("/dashboard/destinations/{}", destination.id);
    let mut does = missed.does("it");
    does.push(format!(
        "By now {} match, which takes {}.",
        replay_preview::count(preview, "at least"),
        replay_preview::takes_in_all(preview)
    ));
    Question {
        asks: format!("Resend what {} has missed?", destination.called()),
        does,
        action: format!("{back}/resend"),
        fields: missed.fields(),
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

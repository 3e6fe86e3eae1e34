//! Dead letters, and their way back with a bar that shows how far it is.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::ids::{AttemptId, ReplayId};
use domain::replay::{DEFAULT_SHARE, ReplaySource, ReplayState};
use engine::ports::{DeadLetterFilter, DeadLetterPosition, Replay};
use http::Uri;
use serde::Deserialize;

use super::destination::{Line, parsed};
use super::frame::{Frame, rendered};
use super::names::Names;
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted, Visitor};
use super::words::{self, NONE};
use super::{Asked, begun, live, replay_preview};
use crate::service::{OfAll, ReplayDraft, ReplayPreview, rules};

pub(super) const PART: &str = "/dashboard/dead-letters";
const REPLAYS_PART: &str = "/dashboard/replays";

/// Dead letters on a page, and replays beside them.
const LINES: u32 = 50;
const REPLAYS: u32 = 5;

/// How often a replay is looked at.
const EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    destination: String,
    r#type: String,
    status: String,
    after: String,
    /// So many replays have just begun.
    begun: String,
}

impl Wanted {
    fn filter(&self) -> Result<DeadLetterFilter, Refused> {
        let (destination, event_type) = (self.destination.trim(), self.r#type.trim());
        let status = self.status.trim();
        Ok(DeadLetterFilter {
            destination: (!destination.is_empty())
                .then(|| parsed(destination))
                .transpose()?,
            event_type: (!event_type.is_empty()).then(|| event_type.to_owned()),
            status: (!status.is_empty())
                .then(|| status.parse())
                .transpose()
                .map_err(|_bad| Refused::invalid("status: must be a number, such as 503"))?,
            ..DeadLetterFilter::default()
        })
    }

    fn after(&self) -> Option<DeadLetterPosition> {
        let (at, attempt) = self.after.split_once(':')?;
        Some(DeadLetterPosition {
            died_at: rules::time(at)?,
            attempt: AttemptId(attempt.parse().ok()?),
        })
    }

    /// The form that replays them.
    fn fields(self) -> Vec<(&'static str, String)> {
        vec![
            ("destination", self.destination),
            ("type", self.r#type),
            ("status", self.status),
        ]
    }

    fn query(&self, next: DeadLetterPosition) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("destination", &self.destination);
        query
            .append_pair("type", &self.r#type)
            .append_pair("status", &self.status);
        let after = format!("{}:{}", next.died_at.as_micros(), next.attempt.0);
        query.append_pair("after", &after).finish()
    }
}

struct Dead {
    /// The destination's.
    name: String,
    event_type: String,
    died: String,
    iso: String,
    line: Line,
}

/// A replay in a list.
struct Moving {
    id: ReplayId,
    state: &'static str,
    done: u64,
    total: u64,
    began: String,
}

#[derive(askama::Template)]
#[template(path = "dead_letters.html")]
struct Page {
    frame: Frame,
    wanted: Wanted,
    dead: Vec<Dead>,
    next: Option<String>,
    replays: Vec<Moving>,
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let service = pages.service(visitor.tenant());
    let page = service
        .dead_letters(wanted.filter()?, wanted.after(), LINES)
        .await?;
    let replays = service.replays(None, REPLAYS).await?;
    let of = (page.dead_letters.iter()).map(|one| one.attempt.destination);
    let names = Names::of(&pages, of).await?;
    let dead = |one: engine::ports::DeadLetter| Dead {
        name: names.name(one.attempt.destination),
        event_type: one.event_type.unwrap_or(NONE.to_owned()),
        died: words::time(one.died_at),
        iso: words::iso(one.died_at),
        line: Line::from(one.attempt),
    };
    let moving = |one: engine::ports::ReplayProgress| Moving {
        id: one.id,
        state: one.state.as_str(),
        done: one.done,
        total: one.total,
        began: words::time(one.created_at),
    };
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Dead letters", PART)).await?,
        next: page.next.map(|next| wanted.query(next)),
        wanted,
        dead: page.dead_letters.into_iter().map(dead).collect(),
        replays: replays.into_iter().map(moving).collect(),
    })
}

/// Replays what was asked for: of many, once it was shown how many and for how long.
pub(super) async fn replay(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let service = pages.service(visitor.tenant());
    let draft = draft(&fields)?;
    if draft.attempt.is_none() && !sure::is_sure(&fields) {
        let visitor = visitor.reading(&pages).await?;
        let preview = service.replay_preview(&draft.filter, None).await?;
        let frame = Frame::of(&pages, &visitor, ("Replay", PART)).await?;
        return Ok(preview_page(frame, wanted(&fields), preview)?.into_response());
    }
    if draft.attempt.is_none() && draft.filter.destination.is_none() {
        let form = begun::Form {
            action: REPLAYS_PART,
            share: None,
            fields: wanted(&fields).fields(),
            back: PART,
        };
        let of = OfAll::DeadLetters(&draft.filter);
        return begun::begin(&pages, (&visitor, &fields), of, form).await;
    }
    let begun = service.create_replays(draft).await?;
    Ok(begun::to(&begun.replays))
}

fn preview_page(
    frame: Frame,
    wanted: Wanted,
    preview: ReplayPreview,
) -> Result<Html<String>, Refused> {
    let question = replay_preview::Question {
        verb: "Replay",
        things: "dead letters",
        head: "Dead letters",
        does: Vec::new(),
        part: "more than",
        share: DEFAULT_SHARE,
        action: REPLAYS_PART,
        fields: wanted.fields(),
        back: PART,
        origin: "dead letters",
    };
    replay_preview::page(frame, question, preview)
}

fn wanted(fields: &Fields) -> Wanted {
    let text = |name| fields.get(name).unwrap_or_default().to_owned();
    Wanted {
        destination: text("destination"),
        r#type: text("type"),
        status: text("status"),
        ..Wanted::default()
    }
}

fn draft(fields: &Fields) -> Result<ReplayDraft, Refused> {
    if let Some(attempt) = fields.get("attempt") {
        let attempt = attempt
            .parse()
            .map_err(|_bad| Refused::not_found("dead letter"))?;
        return Ok(ReplayDraft {
            attempt: Some(AttemptId(attempt)),
            ..ReplayDraft::default()
        });
    }
    Ok(ReplayDraft {
        filter: wanted(fields).filter()?,
        ..ReplayDraft::default()
    })
}

#[derive(askama::Template)]
#[template(path = "replay.html")]
struct ReplayPage {
    frame: Frame,
    replay: Replay,
    /// What it is of.
    things: &'static str,
    is_running: bool,
    percent: u32,
    share: u32,
    began: String,
}

const fn things(replay: &Replay) -> &'static str {
    match replay.progress.source {
        ReplaySource::DeadLetters => "dead letters",
        ReplaySource::Events => "events",
    }
}

fn percent(replay: &Replay) -> u32 {
    let part = match replay.total {
        0 => u64::from(replay.state != ReplayState::Running) * 100,
        total => replay.done.saturating_mul(100) / total,
    };
    u32::try_from(part.min(100)).unwrap_or(100)
}

fn replay_id(id: &str) -> Result<ReplayId, Refused> {
    id.parse().map_err(|_bad| Refused::not_found("replay"))
}

pub(super) async fn progress(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Html<String>, Refused> {
    let replay = pages
        .service(visitor.tenant())
        .replay(replay_id(&id)?)
        .await?;
    rendered(&ReplayPage {
        frame: Frame::of(&pages, &visitor, ("Replay", PART)).await?,
        things: things(&replay),
        is_running: replay.state == ReplayState::Running,
        percent: percent(&replay),
        share: (replay.share * 100.0).round() as u32,
        began: words::time(replay.created_at),
        replay,
    })
}

pub(super) async fn live(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    address: Uri,
) -> Result<Response, Refused> {
    let (tenant, id) = (visitor.tenant(), replay_id(&id)?);
    pages.service(tenant).replay(id).await?;
    let look = move |pages: super::Pages| async move {
        let replay = pages.service(tenant).replay(id).await?;
        let numbers = [
            ("done", replay.done),
            ("total", replay.total),
            ("pending", replay.pending),
            ("succeeded", replay.succeeded),
            ("failed", replay.failed),
        ];
        let texts = numbers.into_iter();
        let texts = texts.map(|(name, number)| (format!("replay.{name}"), number.to_string()));
        let state = ("replay.state".to_owned(), replay.state.as_str().to_owned());
        Ok(live::Said {
            texts: texts.chain([state]).collect(),
            meters: vec![("replay".to_owned(), percent(&replay))],
            ..live::Said::default()
        })
    };
    live::stream(&pages, &visitor, &address, (EVERY, look))
}

pub(super) async fn cancel(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = replay_id(&id)?;
    let service = pages.service(visitor.tenant());
    let replay = service.replay(id).await?;
    if replay.state == ReplayState::Running && !sure::is_sure(&fields) {
        let left = words::large(replay.total.saturating_sub(replay.done));
        let question = Question {
            asks: "End this replay?".to_owned(),
            does: vec![
                match replay.source {
                    ReplaySource::DeadLetters => format!(
                        "About {left} dead letters that it has not moved stay dead letters, and can be replayed by another replay."
                    ),
                    ReplaySource::Events => format!("About {left} events are not sent again."),
                },
                format!(
                    "{} wait again or were sent: they stay in the backlog and go out.",
                    words::large(replay.done)
                ),
            ],
            action: format!("/dashboard/replays/{id}/cancel"),
            fields: Vec::new(),
            button: "End it",
            back: format!("/dashboard/replays/{id}"),
        };
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    service.cancel_replay(id).await?;
    Ok(Redirect::to(&format!("/dashboard/replays/{id}")).into_response())
}

#[cfg(test)]
mod tests {
    use domain::destination::DestinationState;
    use domain::handshake::Handshake;
    use domain::ids::{DestinationId, TenantId};
    use domain::policy::LimitSettings;
    use domain::time::Timestamp;
    use engine::ports::Destination;
    use uuid::Uuid;

    use super::*;
    use crate::service::PreviewedReplay;

    #[test]
    fn a_preview_of_many_destinations_says_how_many_it_does_not_name() {
        let destination = Destination {
            external_id: None,
            id: DestinationId(Uuid::from_u128(7)),
            tenant: TenantId(Uuid::from_u128(1)),
            name: "shop".to_owned(),
            url: "https://shop.example/".to_owned(),
            event_types: Vec::new(),
            filter: None,
            state: DestinationState::Active,
            limits: LimitSettings::default(),
            effective: LimitSettings::default(),
            ceiling: domain::ceiling::Ceiling::default(),
            own_ceiling: domain::ceiling::Ceiling::default(),
            lasting_ceiling: domain::ceiling::Ceiling::default(),
            spread: None,
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: None,
            created_at: Timestamp::from_micros(0),
        };
        let takes = Some(Duration::from_secs(61));
        let preview = |further| ReplayPreview {
            count: 10_000,
            is_all: false,
            each: vec![PreviewedReplay {
                destination: destination.clone(),
                count: 9_000,
                takes,
            }],
            further,
            takes,
        };
        let shown = |further| {
            let page = preview_page(Frame::nobody("Replay"), Wanted::default(), preview(further));
            page.unwrap().0
        };
        let page = shown(312);
        for says in [
            "<h1>Replay more than 10,000 dead letters?</h1>",
            "which takes at least about 1 min 1 s",
            ">shop</a>",
            "And 312 more destinations.",
        ] {
            assert!(page.contains(says), "{says} is not in {page}");
        }
        assert!(!shown(0).contains("more destinations"));
    }
}

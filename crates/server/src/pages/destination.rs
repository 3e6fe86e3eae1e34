//! One destination: what it does now, its limits, and its attempts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::destination::DestinationState;
use domain::filter::Filter;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::limit::Count;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{AttemptView, Destination, LimitHistory};
use http::Uri;
use serde::Deserialize;

use super::chart::{self, Chart, Window};
use super::event_types;
use super::frame::{Frame, rendered};
use super::handshake::{self, Consent};
use super::latency::{self, Latency};
use super::outcomes::{self, Drawn, Over};
use super::preview::{self, Preview};
use super::refused::Refused;
use super::secrets::{self, OVERLAPS};
use super::standing::{self, Standing};
use super::typed::Number;
use super::visitor::{Fields, Visitor};
use super::words::{self, NONE};
use super::{Asked, Pages, live, resend, statistics, typed};
use crate::service::Described;

/// How often the chart is drawn again.
const EVERY: Duration = Duration::from_millis(500);

/// How often latencies are drawn again: at each so many of those times.
const LATENCY_EVERY: u32 = 20;

/// And one of minutes or more.
const SLOW_CHART_EVERY: u32 = 10;

/// Attempts that are shown at once, and entries of history.
const ATTEMPTS: u32 = 20;
const HISTORY: u32 = 10;

#[derive(askama::Template)]
#[template(path = "destination.html")]
pub(super) struct Page {
    frame: Frame,
    one: Standing,
    /// The types that it subscribes to.
    takes: String,
    filter: Option<Filter>,
    is_active: bool,
    is_disabled: bool,
    window: Window,
    chart: Chart,
    outcomes: Drawn,
    overs: [Over; 6],
    statistics: [statistics::Line; 2],
    latency: Latency,
    size: String,
    /// What is wrong with the limits that were typed.
    problem: Option<String>,
    /// With what the form of limits was filled.
    was: String,
    limits: Vec<Number>,
    inherits: bool,
    shape: &'static str,
    shapes: [(&'static str, &'static str); 3],
    unlimited: bool,
    /// How much longer its windows are.
    margins: [Number; 2],
    count: &'static str,
    counts: [(&'static str, &'static str); 2],
    lasts: [preview::Last; 4],
    last: &'static str,
    ceiling: String,
    /// Saving less lowers that.
    is_lowered_by_less: bool,
    history: Vec<(String, String, String)>,
    attempts: Vec<Line>,
    secrets: Vec<secrets::Line>,
    /// What its receiver said, if that is asked first.
    consent: Option<Consent>,
    /// What lets it in, in words, and whether they are a warning.
    credentials: Vec<(String, bool)>,
    /// What is resent of what it has missed.
    missed: resend::Form,
    preview: Option<Preview>,
    new_secret: Option<String>,
    overlaps: [(&'static str, u64); 4],
    notice: String,
    /// Types of which the catalogue has an example to send.
    examples: Vec<String>,
}

/// What is wrong with limits stands beside those; this is of what it has missed.
impl typed::Again for Page {
    fn say(&mut self, problem: String) {
        self.missed.problem = Some(problem);
    }
}

/// An attempt in a list.
pub(super) struct Line {
    pub(super) id: AttemptId,
    pub(super) event: String,
    /// The end of it.
    pub(super) event_end: String,
    pub(super) destination: DestinationId,
    /// Its name, where attempts of several are listed.
    pub(super) to: Option<String>,
    pub(super) try_number: u32,
    pub(super) state: String,
    pub(super) tone: &'static str,
    pub(super) at: String,
    pub(super) iso: String,
    /// Of one that waits: until when, and from when on it is not sent.
    pub(super) due: Option<String>,
    pub(super) expires: Option<String>,
    pub(super) status: String,
    pub(super) latency: String,
    pub(super) error: String,
    pub(super) answer: String,
    /// What the form carries that cancels it, where it can be and its visitor may.
    pub(super) cancel: Option<String>,
}

impl Line {
    /// One that may be cancelled on the page with this frame.
    pub(super) fn of(attempt: AttemptView, frame: &Frame) -> Self {
        let may_cancel = frame.may_manage() && attempt.state.can_be_cancelled();
        Self {
            cancel: may_cancel.then(|| frame.token().to_owned()),
            ..Self::from(attempt)
        }
    }
}

impl From<AttemptView> for Line {
    fn from(attempt: AttemptView) -> Self {
        use domain::attempt::AttemptState as State;
        let took = attempt.started_at.zip(attempt.finished_at);
        let at = attempt.started_at.unwrap_or(attempt.created_at);
        let waits = attempt.state == State::Waiting;
        let of_what_waits = |time: Option<Timestamp>| time.filter(|_| waits).map(words::time);
        Self {
            id: attempt.id,
            event: attempt.event.to_string(),
            event_end: words::short(&attempt.event.to_string()),
            destination: attempt.destination,
            to: None,
            try_number: attempt.try_number,
            state: match attempt.dead_letter {
                true => "dead letter".to_owned(),
                false => words::state(attempt.state.as_str()),
            },
            tone: match attempt.state {
                State::Succeeded => "good",
                State::Failed | State::Unknown => "bad",
                _ => "idle",
            },
            at: words::clock(at),
            iso: words::iso(at),
            due: of_what_waits(attempt.due_at),
            expires: of_what_waits(attempt.expires_at),
            status: attempt
                .status
                .map_or(NONE.to_owned(), |status| status.to_string()),
            latency: took.map_or(NONE.to_owned(), |(from, to)| words::latency(to.since(from))),
            error: attempt.error.unwrap_or_default(),
            answer: attempt.response_body.unwrap_or_default(),
            cancel: None,
        }
    }
}

/// What is shown beside the destination, after a form.
pub(super) struct Beside {
    /// How much the bars show.
    pub(super) over: Over,
    pub(super) preview: Option<Preview>,
    /// Limits that were typed and not taken, and why.
    pub(super) refused: Option<(LimitSettings, String)>,
    /// What was typed of what it has missed.
    pub(super) missed: resend::Form,
    pub(super) new_secret: Option<String>,
    pub(super) notice: String,
}

impl Default for Beside {
    fn default() -> Self {
        Self {
            over: Over::of(""),
            preview: None,
            refused: None,
            missed: resend::Form::default(),
            new_secret: None,
            notice: String::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Done {
    done: String,
    over: String,
    /// So many deliveries were.
    cancelled: String,
}

pub(super) fn parsed(id: &str) -> Result<DestinationId, Refused> {
    id.parse()
        .map_err(|_not_an_id| Refused::not_found("destination"))
}

/// Back to its page, which says what was done.
pub(super) fn done(id: DestinationId, what: &str) -> Response {
    Redirect::to(&format!("/dashboard/destinations/{id}?done={what}")).into_response()
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(query): Query<Done>,
) -> Result<Html<String>, Refused> {
    let cancelled = words::large(query.cancelled.parse().unwrap_or(0));
    let cancelled = format!("Deliveries cancelled: {cancelled}.");
    let notice = match query.done.as_str() {
        "limits" => "The new limits are in force.",
        "requested" => "Asked. An operator will decide; until then the limits stay as they are.",
        "paused" => "Paused: nothing starts until it is resumed.",
        "resumed" => "Resumed.",
        "changed" => "Changed. What starts from now on goes by it.",
        "disabled" => "Disabled: events no longer go to it.",
        "asked" => "Its receiver is asked. Load this page again to see what it says.",
        "secret-deleted" => "Deleted: no request is signed with that secret any more.",
        "cancelled" => cancelled.as_str(),
        _ => "",
    };
    let beside = Beside {
        notice: notice.to_owned(),
        over: Over::of(&query.over),
        ..Beside::default()
    };
    page(&pages, &visitor, parsed(&id)?, beside).await
}

pub(super) async fn page(
    pages: &Pages,
    visitor: &Visitor,
    id: DestinationId,
    beside: Beside,
) -> Result<Html<String>, Refused> {
    rendered(&filled(pages, visitor, id, beside).await?)
}

/// The same, of which more can be said.
pub(super) async fn filled(
    pages: &Pages,
    visitor: &Visitor,
    id: DestinationId,
    beside: Beside,
) -> Result<Page, Refused> {
    let tenant = visitor.tenant();
    let destination = pages.0.catalog.destination(tenant, id).await?;
    let window = Window::of(&destination.effective);
    let one = standing(pages, destination.clone()).await?;
    let now = one.at;
    let chart = chart::draw(pages, id, (window, now)).await?;
    let attempts = pages.0.overview.last_started(id, ATTEMPTS).await?;
    let history = (pages.0.catalog)
        .limits_within(id, (Timestamp::from_micros(0), None), HISTORY)
        .await?;
    let service = pages.service(tenant).set_by(visitor.setter());
    let described = service.described(destination.clone()).await?;
    let (as_typed, problem) = beside.refused.unzip();
    let previewed = beside.preview.as_ref().map(|preview| preview.settings);
    let shown = previewed.or(as_typed).unwrap_or(destination.limits);
    let frame = Frame::of(pages, visitor, (&one.name, "/dashboard")).await?;
    Ok(Page {
        takes: destination.event_types.join(", "),
        filter: destination.filter.clone(),
        is_active: destination.state == DestinationState::Active,
        is_disabled: destination.state == DestinationState::Disabled,
        window,
        chart,
        outcomes: outcomes::draw(pages, id, (beside.over, now)).await?,
        overs: outcomes::ALL,
        statistics: statistics::lines(&service.statistics_at(id, now).await?),
        latency: latency::draw(pages, id, now).await?,
        size: format!("0 0 {} {}", chart::WIDTH, chart::HEIGHT),
        problem,
        was: typed::version(&values(&destination.limits)),
        limits: fields(&shown),
        inherits: shown.inherits(),
        shape: shown.shape.unwrap_or_default().as_str(),
        shapes: typed::SHAPES,
        unlimited: shown.unlimited,
        margins: margins(&shown),
        count: count(&shown),
        counts: typed::COUNTS,
        lasts: preview::LASTS,
        last: (beside.preview.as_ref()).map_or(preview::DEFAULT, |preview| preview.last),
        ceiling: match visitor.is_operator() {
            true => String::new(),
            false => words::ceiling(&service.most(&destination)),
        },
        is_lowered_by_less: service.is_lowered_by_less(&destination),
        history: history.iter().rev().map(entry).collect(),
        attempts: attempts.into_iter().map(Line::from).collect(),
        missed: beside.missed,
        secrets: secrets::lines(&service, id).await?,
        consent: handshake::consent(&service, id).await?,
        credentials: credentials(described),
        examples: event_types::with_example(&service).await?,
        preview: beside.preview,
        new_secret: beside.new_secret,
        overlaps: OVERLAPS,
        notice: beside.notice,
        frame,
        one,
    })
}

async fn standing(pages: &Pages, destination: Destination) -> Result<Standing, Refused> {
    let found = standing::of(pages, destination.tenant, vec![destination]).await?;
    let one = found.into_iter().next();
    one.ok_or_else(|| Refused::not_found("destination"))
}

/// What the form of limits is filled with.
pub(super) fn values(limits: &LimitSettings) -> Fields {
    let numbers = fields(limits).into_iter().chain(margins(limits));
    let numbers = numbers.map(|one| (one.name, one.value));
    let shape = limits.shape.unwrap_or_default().as_str();
    let words = [("shape", shape), ("count", count(limits))];
    let words = words.map(|(name, word)| (name, word.to_owned()));
    let unlimited = limits.unlimited.then(|| ("unlimited", "yes".to_owned()));
    numbers.chain(words).chain(unlimited).collect()
}

fn margins(limits: &LimitSettings) -> [Number; 2] {
    let field = |name, label, part: Option<f64>| Number {
        name,
        label,
        value: typed::shown(part),
    };
    [
        field(
            "safety_margin",
            "margin, a part of the period",
            limits.safety_margin,
        ),
        field("margin_cap", "at most, if measured", limits.margin_cap),
    ]
}

/// As the form has it: that a request counts until its start need not be said.
const fn count(limits: &LimitSettings) -> &'static str {
    match limits.count {
        Some(Count::Response) => Count::Response.as_str(),
        Some(Count::Start) | None => "",
    }
}

fn fields(limits: &LimitSettings) -> Vec<Number> {
    let field = |name, label, number| Number {
        name,
        label,
        value: typed::shown(number),
    };
    vec![
        field("per_second", "per second", limits.per_second),
        field("per_minute", "per minute", limits.per_minute),
        field("per_hour", "per hour", limits.per_hour),
        field("per_day", "per day", limits.per_day),
        field("burst", "burst", limits.burst),
        field("max_in_flight", "in flight at once", limits.max_in_flight),
    ]
}

/// The client certificate and the tokens, and what is wrong with them.
fn credentials(described: Described) -> Vec<(String, bool)> {
    let (shown, ends_soon) = (described.shown, described.certificate_ends_soon);
    let certificate = shown.certificate.map(|facts| {
        let until = words::time(facts.not_after);
        let soon = match ends_soon {
            true => ", which is soon: set another one",
            false => "",
        };
        let words = format!(
            "Shows the client certificate {} until {until}{soon}.",
            facts.subject
        );
        (words, ends_soon)
    });
    let client = shown.oauth2.map(|facts| {
        let words = format!("Gets tokens as {} at {}.", facts.client_id, facts.token_url);
        (words, false)
    });
    let trouble = shown.token_trouble.map(|trouble| {
        let (words, at) = (trouble.words, words::time(trouble.at));
        (format!("No token at {at}: {words}."), true)
    });
    [certificate, client, trouble]
        .into_iter()
        .flatten()
        .collect()
}

fn entry(entry: &LimitHistory) -> (String, String, String) {
    (
        words::time(entry.in_force_from),
        words::limits(&entry.effective),
        entry.state.as_str().to_owned(),
    )
}

pub(super) async fn live(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    address: Uri,
) -> Result<Response, Refused> {
    let (tenant, id) = (visitor.tenant(), parsed(&id)?);
    // Whose it is, before anything is said.
    pages.0.catalog.destination(tenant, id).await?;
    let looks = AtomicU32::new(1);
    let look = move |pages| {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        async move { said(&pages, (tenant, id), look).await }
    };
    live::stream(&pages, &visitor, &address, (EVERY, look))
}

async fn said(
    pages: &Pages,
    (tenant, id): (TenantId, DestinationId),
    look: u32,
) -> Result<live::Said, Refused> {
    let destination = pages.0.catalog.destination(tenant, id).await?;
    let window = Window::of(&destination.effective);
    let one = standing(pages, destination).await?;
    let mut said = live::Said::default();
    said.line(&one);
    said.texts.push((format!("{id}.limit"), one.limit.clone()));
    if window.is_quick() || look.is_multiple_of(SLOW_CHART_EVERY) {
        let chart = chart::draw(pages, id, (window, one.at)).await?;
        let rate = chart.rate.to_string();
        let texts = [("top", chart.top), ("half", chart.half), ("rate", rate)];
        let texts = texts.map(|(what, text)| (format!("chart.{what}"), text));
        said.texts.extend(texts);
        said.chart = Some(chart.svg);
    }
    if look.is_multiple_of(LATENCY_EVERY) {
        let latency = latency::draw(pages, id, one.at).await?;
        said.texts.push(("latency.top".to_owned(), latency.top));
        said.texts.push(("latency.half".to_owned(), latency.half));
        said.texts.push(("latency.of".to_owned(), latency.of));
        said.latency = Some(latency.svg);
    }
    Ok(said)
}

//! When people are told of one destination, and when its breaker opens.
//!
//! Two forms, each of which sets all that it has, by the same functions as
//! `/v1/destinations/{id}/alerts` and `…/breaker`.

use axum::extract::{Path, Query, State};
use axum::response::{Html, Response};
use domain::access::Scope;
use domain::health::{Breaker, BreakerSettings};
use domain::ids::DestinationId;
use domain::watch::AlertSettings;
use engine::ports::{AlertsChange, AlertsView, BreakerChange, HealthView};
use serde::Deserialize;

use super::alerts::Whose;
use super::destination::parsed;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::typed::{self, Number};
use super::visitor::{Fields, Posted, Visitor};
use super::{Asked, Pages, words};
use crate::service::Service;

const ALERTS: [(&str, &str); 3] = [
    ("backlog", "So many deliveries wait; 0 for never"),
    (
        "under_delivery_seconds",
        "For so many seconds it gets less than its limit allows; 0 for never",
    ),
    (
        "failing_percent",
        "Of a hundred answers so many are failures; 0 for never",
    ),
];

const BREAKER: [(&str, &str); 3] = [
    (
        "opens_after_failures",
        "So many failures in a row open it; 0 for never",
    ),
    (
        "opens_after_failing_for_seconds",
        "If they go on for so many seconds; 0 for at once",
    ),
    (
        "disable_after_seconds",
        "Open for so many seconds, the destination is disabled; 0 for at once",
    ),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    done: String,
}

/// Which of the two forms somebody has sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Alerts,
    Breaker,
}

/// A form, as it is filled.
struct Form {
    numbers: Vec<Number>,
    was: String,
}

impl Form {
    fn of(fields: &Fields, numbers: &[(&'static str, &'static str)]) -> Self {
        Self {
            numbers: typed::numbers(fields, numbers),
            was: fields.text(typed::WAS).to_owned(),
        }
    }
}

#[derive(askama::Template)]
#[template(path = "watched.html")]
struct Page {
    frame: Frame,
    id: DestinationId,
    name: String,
    /// Where it stands who is told.
    told: String,
    /// What is so now, a sentence each.
    now: Vec<String>,
    alerts: Form,
    breaker: Form,
    problem: Option<String>,
    notice: &'static str,
}

typed::again!(Page);

/// What the form of its alerts is filled with.
fn values_of_alerts(settings: &AlertSettings) -> Fields {
    let seconds = settings.under_delivery.as_secs();
    Fields::from([
        ("backlog", settings.backlog.to_string()),
        ("under_delivery_seconds", seconds.to_string()),
        ("failing_percent", settings.failing_percent.to_string()),
    ])
}

/// What the form of its breaker is filled with.
fn values_of_breaker(settings: &BreakerSettings) -> Fields {
    let (failing, disable) = (settings.failing_for, settings.disable_after);
    Fields::from([
        ("opens_after_failures", settings.failures.to_string()),
        (
            "opens_after_failing_for_seconds",
            failing.as_secs().to_string(),
        ),
        ("disable_after_seconds", disable.as_secs().to_string()),
    ])
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(query): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let notice = match query.done.as_str() {
        "alerts" => "Changed. People are told by these numbers from now on.",
        "breaker" => "Changed. The breaker goes by these numbers from now on.",
        _ => "",
    };
    rendered(&Page {
        notice,
        ..page(&pages, &visitor, parsed(&id)?, None).await?
    })
}

/// With one form as somebody has filled it in, or with both as the destination is.
async fn page(
    pages: &Pages,
    visitor: &Visitor,
    id: DestinationId,
    sent: Option<(Part, &Fields)>,
) -> Result<Page, Refused> {
    let service = pages.service(visitor.tenant());
    let destination = service.destination(id).await?.destination;
    let alerts = service.alerts(id).await?;
    let health = service.health(id).await?.view;
    let form = |part: Part, values: Fields, numbers: &[(&'static str, &'static str)]| match sent {
        Some((of, fields)) if of == part => Form::of(fields, numbers),
        _ => Form::of(&typed::filled(values), numbers),
    };
    Ok(Page {
        frame: Frame::of(pages, visitor, ("Alerts and breaker", "/dashboard")).await?,
        id,
        name: destination.called().to_owned(),
        told: Whose::of(visitor).path,
        now: now(&alerts, &health),
        alerts: form(Part::Alerts, values_of_alerts(&alerts.settings), &ALERTS),
        breaker: form(Part::Breaker, values_of_breaker(&health.settings), &BREAKER),
        problem: None,
        notice: "",
    })
}

fn now(alerts: &AlertsView, view: &HealthView) -> Vec<String> {
    let (watch, health) = (&alerts.watch, &view.health);
    let since = |what: &str, at| format!("{what} since {}.", words::time(at));
    let breaker = match health.breaker(view.now) {
        Breaker::Closed => (health.failing_since).map(|at| {
            let failures = words::large(health.failures.into());
            since(&format!("Failures in a row: {failures},"), at)
        }),
        Breaker::Open => health.opened_at.map(|at| since("Its breaker is open,", at)),
        Breaker::HalfOpen => {
            let says = "Its breaker lets one attempt through at a time. It is open,";
            health.opened_at.map(|at| since(says, at))
        }
    };
    let hold = health.hold.filter(|hold| hold.until > view.now);
    let all = [
        (watch.backlog_high_since).map(|at| since("Its backlog is high,", at)),
        (watch.short).map(|short| {
            let why = words::state(short.reason.as_str());
            let says = format!("It gets less than its limit allows ({why}),");
            since(&says, short.since)
        }),
        (alerts.failing_since).map(|at| since("It fails,", at)),
        breaker,
        hold.map(|hold| format!("Nothing starts before {}.", words::time(hold.until))),
    ];
    all.into_iter().flatten().collect()
}

fn done(id: DestinationId, part: Part) -> Response {
    let what = match part {
        Part::Alerts => "alerts",
        Part::Breaker => "breaker",
    };
    typed::done(&format!("/dashboard/destinations/{id}/alerts"), what)
}

/// Sets all of its alerts, an empty field to its default.
pub(super) async fn alerts(
    pages: Asked,
    id: Path<String>,
    posted: Posted,
) -> Result<Response, Refused> {
    set(pages, id, posted, Part::Alerts).await
}

/// Sets all of its breaker, an empty field to its default.
pub(super) async fn breaker(
    pages: Asked,
    id: Path<String>,
    posted: Posted,
) -> Result<Response, Refused> {
    set(pages, id, posted, Part::Breaker).await
}

async fn set(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor,
        mut fields,
        ..
    }: Posted,
    part: Part,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let service = pages.service(visitor.tenant());
    let changed = match part {
        Part::Alerts => change_alerts(&service, id, &mut fields).await,
        Part::Breaker => change_breaker(&service, id, &mut fields).await,
    };
    let done = changed.map(|()| done(id, part));
    let sent = Some((part, &fields));
    typed::or_again(done, page(&pages, &visitor, id, sent)).await
}

async fn change_alerts(
    service: &Service,
    id: DestinationId,
    fields: &mut Fields,
) -> Result<(), Refused> {
    let now = service.alerts(id).await?.settings;
    typed::unchanged(fields, &values_of_alerts(&now), &[])?;
    let change = AlertsChange {
        backlog: Some(typed::number(fields, "backlog")?),
        under_delivery_seconds: Some(typed::number(fields, "under_delivery_seconds")?),
        failing_percent: Some(typed::number(fields, "failing_percent")?),
    };
    service.change_alerts(id, change).await?;
    Ok(())
}

async fn change_breaker(
    service: &Service,
    id: DestinationId,
    fields: &mut Fields,
) -> Result<(), Refused> {
    let now = service.health(id).await?.view.settings;
    typed::unchanged(fields, &values_of_breaker(&now), &[])?;
    let failing_for = typed::number(fields, "opens_after_failing_for_seconds")?;
    let change = BreakerChange {
        failures: Some(typed::number(fields, "opens_after_failures")?),
        failing_for_seconds: Some(failing_for),
        disable_after_seconds: Some(typed::number(fields, "disable_after_seconds")?),
    };
    service.change_breaker(id, change).await?;
    Ok(())
}

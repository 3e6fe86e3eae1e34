//! What is changed of a destination: limits and state.
//!
//! Who is no operator changes limits up to the ceiling of the tenant's tier, and
//! asks for more ([`super::requests`]).

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::access::Scope;
use domain::ceiling::LargerBatches;
use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::policy::{LimitSettings, Rate};
use engine::ports::Destination;
use http::StatusCode;

use super::destination::{Beside, done, page, parsed, values};
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted};
use super::{Asked, Pages, preview, typed, words};
use crate::service::{DestinationEdit, LimitsChange};

/// Up to here, what waits is counted.
const COUNTED: u32 = 100_000;

const NUMBERS: [&str; 6] = [
    "per_second",
    "per_minute",
    "per_hour",
    "per_day",
    "burst",
    "max_in_flight",
];

/// What else the form has.
const OTHERS: [&str; 6] = [
    "shape",
    "unlimited",
    "safety_margin",
    "margin_cap",
    "count",
    typed::WAS,
];

pub(super) async fn limits(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor,
        mut fields,
        ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let destination = pages.0.catalog.destination(visitor.tenant(), id).await?;
    let change = change(&fields)?;
    let settings = change.applied_to(destination.limits);
    (settings.validate()).map_err(|invalid| Refused::invalid(invalid.to_string()))?;
    let now = values(&destination.limits);
    if let Err(refused) = typed::unchanged(&mut fields, &now, &["unlimited"]) {
        let beside = Beside {
            refused: Some((settings, refused.said()?)),
            ..Beside::default()
        };
        let told = page(&pages, &visitor, id, beside).await?;
        return Ok((StatusCode::CONFLICT, told).into_response());
    }
    let service = pages.service(visitor.tenant()).set_by(visitor.setter());
    let is_above = service.check_limits(&destination, &settings).is_err();
    let is_asked_for = is_above && !visitor.is_operator();
    if fields.has("preview") {
        // It changes nothing, and waits for a place among the reports.
        let visitor = visitor.without_place();
        let preview = preview::of(&service, &destination, (change, is_asked_for), &fields).await?;
        let beside = Beside {
            preview: Some(preview),
            ..Beside::default()
        };
        return Ok(page(&pages, &visitor, id, beside).await?.into_response());
    }
    if pauses(&destination, &settings) && !sure::is_sure(&fields) {
        let question = pausing(&pages, &destination, &fields).await?;
        return sure::ask(&pages, &visitor, "/dashboard", question).await;
    }
    if is_asked_for {
        let note = fields.get("note").unwrap_or_default().to_owned();
        let wanted = (change, LargerBatches::default());
        service.request_limits(id, wanted, note).await?;
        return Ok(done(id, "requested"));
    }
    if is_above {
        service.grant(id, settings).await?;
        return Ok(done(id, "limits"));
    }
    let edit = DestinationEdit {
        limits: change,
        ..DestinationEdit::default()
    };
    service.change_destination(id, edit).await?;
    Ok(done(id, "limits"))
}

/// Whether a destination that takes starts would take none. A limit of 0 is easily
/// typed, and looks like one that does not limit.
fn pauses(destination: &Destination, settings: &LimitSettings) -> bool {
    let zero = [
        settings.per_second,
        settings.per_minute,
        settings.per_hour,
        settings.per_day,
    ];
    zero.contains(&Some(0)) && destination.effective.policy().rate != Rate::Paused
}

async fn pausing(
    pages: &Pages,
    destination: &Destination,
    fields: &Fields,
) -> Result<Question, Refused> {
    let id = destination.id;
    let waiting = waiting(pages, id).await?;
    let name = destination.called();
    Ok(Question {
        asks: format!("Pause {name} with a limit of 0?"),
        does: vec![
            "Nothing is sent to it any more, until its limit is above 0.".to_owned(),
            format!(
                "{waiting} deliveries wait now. They go on waiting, and so does what comes; none \
                 is dropped before its age allows."
            ),
        ],
        action: format!("/dashboard/destinations/{id}/limits"),
        fields: again(fields),
        button: "Pause it",
        back: format!("/dashboard/destinations/{id}"),
    })
}

/// How many deliveries wait there now.
pub(super) async fn waiting(pages: &Pages, id: DestinationId) -> Result<String, Refused> {
    let waiting = pages.0.catalog.backlogs(&[id], COUNTED).await?;
    let waiting = waiting.first().copied().unwrap_or(0);
    Ok(words::count(waiting, COUNTED))
}

/// All of the form: what is empty is cleared, and a box that is not ticked is off.
fn change(fields: &Fields) -> Result<LimitsChange, Refused> {
    let mut numbers = [None; 6];
    for (number, name) in numbers.iter_mut().zip(NUMBERS) {
        *number = typed::number(fields, name)?;
    }
    let [
        per_second,
        per_minute,
        per_hour,
        per_day,
        burst,
        max_in_flight,
    ] = numbers.map(Some);
    let shape = typed::shape(fields)?;
    Ok(LimitsChange {
        per_second,
        per_minute,
        per_hour,
        per_day,
        burst,
        max_in_flight,
        shape: shape.map(Some),
        unlimited: Some(fields.has("unlimited")),
        safety_margin: said(fields, "safety_margin", typed::decimal)?,
        margin_cap: said(fields, "margin_cap", typed::decimal)?,
        count: said(fields, "count", typed::count)?,
    })
}

/// Of a form that has no such field nothing is said.
fn said<T>(
    fields: &Fields,
    name: &str,
    parsed: impl Fn(&Fields, &str) -> Result<T, Refused>,
) -> Result<Option<T>, Refused> {
    fields.has(name).then(|| parsed(fields, name)).transpose()
}

/// What the form says of limits, to send it again.
pub(super) fn again(fields: &Fields) -> Vec<(&'static str, String)> {
    let names = NUMBERS.into_iter().chain(OTHERS);
    let has = names.filter(|name| fields.has(name));
    has.map(|name| (name, fields.text(name).to_owned()))
        .collect()
}

pub(super) async fn state(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let (service, id) = (pages.service(visitor.tenant()), parsed(&id)?);
    let wanted = fields.get("state").unwrap_or_default();
    let what = match wanted.parse() {
        Ok(DestinationState::Active) => {
            service.resume(id).await?;
            "resumed"
        }
        Ok(DestinationState::Disabled) if !sure::is_sure(&fields) => {
            let question = disabling(&service.destination(id).await?.destination);
            return sure::ask(&pages, &visitor, "/dashboard", question).await;
        }
        Ok(state) => {
            let edit = DestinationEdit {
                state: Some(state),
                ..DestinationEdit::default()
            };
            service.change_destination(id, edit).await?;
            state.as_str()
        }
        Err(_no_state) => {
            let words = "state: must be active, paused or disabled";
            return Err(Refused::invalid(words));
        }
    };
    Ok(done(id, what))
}

fn disabling(destination: &Destination) -> Question {
    let id = destination.id;
    Question {
        asks: format!("Disable {}?", destination.called()),
        does: vec![
            "Nothing is sent to it until it is resumed.".to_owned(),
            "Events that come meanwhile are not for it: to send them, resend what it has missed."
                .to_owned(),
        ],
        action: format!("/dashboard/destinations/{id}/state"),
        fields: vec![("state", "disabled".to_owned())],
        button: "Disable it",
        back: format!("/dashboard/destinations/{id}/edit"),
    }
}

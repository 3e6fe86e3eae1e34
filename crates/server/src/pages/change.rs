//! What is changed of a destination: limits, state, secret.
//!
//! Who is no operator changes limits up to the ceiling of the tenant's tier, and
//! asks for more ([`super::requests`]).

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::limit::Shape;
use domain::policy::{LimitSettings, Policy, Rate};
use engine::ports::{Destination, NewLimitRequest, SessionKind};

use super::destination::{Beside, page, parsed};
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted, Visitor};
use super::{Asked, Pages, preview, words};
use crate::service::rules::{self, Lines};
use crate::service::secrets::{DEFAULT_OVERLAP, SecretDraft};
use crate::service::{DestinationEdit, LimitsChange};

/// Up to here, what waits is counted.
const COUNTED: u32 = 100_000;

/// The longest reason that a request gives, in bytes.
const MAX_NOTE_BYTES: usize = 1_000;

pub(super) const NUMBERS: [&str; 6] = [
    "per_second",
    "per_minute",
    "per_hour",
    "per_day",
    "burst",
    "max_in_flight",
];

pub(super) async fn limits(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let destination = pages.0.catalog.destination(visitor.tenant(), id).await?;
    let change = change(&fields)?;
    let settings = change.applied_to(destination.limits);
    (settings.validate()).map_err(|invalid| Refused::invalid(invalid.to_string()))?;
    let ceiling = ceiling(&pages, &visitor).await?;
    let is_above = !visitor.is_operator() && is_above(&settings, &ceiling);
    if fields.has("preview") {
        let service = pages.service(visitor.tenant());
        let preview = preview::of(&service, &destination, (change, is_above), &fields).await?;
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
    if is_above {
        return request(&pages, &visitor, id, (settings, &fields)).await;
    }
    let edit = DestinationEdit {
        limits: change,
        ..DestinationEdit::default()
    };
    pages
        .service(visitor.tenant())
        .change_destination(id, edit)
        .await?;
    Ok(Redirect::to(&format!("/dashboard/destinations/{id}?done=limits")).into_response())
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
    let waiting = pages.0.catalog.backlogs(&[id], COUNTED).await?;
    let waiting = waiting.first().copied().unwrap_or(0);
    let name = destination.called();
    let names = NUMBERS.into_iter().chain(["shape"]);
    Ok(Question {
        asks: format!("Pause {name} with a limit of 0?"),
        does: vec![
            "Nothing is sent to it any more, until its limit is above 0.".to_owned(),
            format!(
                "{} deliveries wait now. They go on waiting, and so does what comes; none is \
                 dropped before its age allows.",
                words::count(waiting, COUNTED)
            ),
        ],
        action: format!("/dashboard/destinations/{id}/limits"),
        fields: (names.filter_map(|name| Some((name, fields.get(name)?.to_owned())))).collect(),
        button: "Pause it",
        back: format!("/dashboard/destinations/{id}"),
    })
}

async fn request(
    pages: &Pages,
    visitor: &Visitor,
    id: DestinationId,
    (settings, fields): (LimitSettings, &Fields),
) -> Result<Response, Refused> {
    let note = fields.get("note").unwrap_or_default();
    rules::text("note", note, MAX_NOTE_BYTES, Lines::Many)?;
    let new = NewLimitRequest {
        id: pages.0.mint.uuid(),
        destination: id,
        settings,
        note: note.to_owned(),
    };
    pages
        .0
        .sessions
        .request_limits(visitor.tenant(), &new)
        .await?;
    Ok(Redirect::to(&format!("/dashboard/destinations/{id}?done=requested")).into_response())
}

/// All of the form: what is empty is cleared.
fn change(fields: &Fields) -> Result<LimitsChange, Refused> {
    let mut numbers = [None; 6];
    for (number, name) in numbers.iter_mut().zip(NUMBERS) {
        let parsed = fields.get(name).map(str::parse).transpose();
        *number = parsed.map_err(|_not_a_number| {
            Refused::invalid(format!("{name}: must be a whole number, or empty"))
        })?;
    }
    let [
        per_second,
        per_minute,
        per_hour,
        per_day,
        burst,
        max_in_flight,
    ] = numbers.map(Some);
    let shape = fields.get("shape").map(str::parse::<Shape>).transpose();
    let shape = shape.map_err(|_unknown| Refused::invalid("shape: no such shape"))?;
    Ok(LimitsChange {
        per_second,
        per_minute,
        per_hour,
        per_day,
        burst,
        max_in_flight,
        shape: shape.map(Some),
        unlimited: None,
        safety_margin: None,
        margin_cap: None,
        count: None,
    })
}

/// What the visitor's tier allows: the highest that he sets himself.
pub(super) async fn ceiling(pages: &Pages, visitor: &Visitor) -> Result<LimitSettings, Refused> {
    let tenancy = pages.0.app.tenancy();
    let tenant = tenancy.tenant(visitor.tenant()).await?;
    let tiers = tenancy.tiers().await?;
    let tier = tiers.into_iter().find(|tier| tier.name == tenant.tier);
    Ok(tier.map(|tier| tier.limits).unwrap_or_default())
}

/// Whether it allows more, in the long run, at once or in flight, than the ceiling
/// does.
fn is_above(settings: &LimitSettings, ceiling: &LimitSettings) -> bool {
    let (wanted, most) = (settings.or_tier(ceiling).policy(), ceiling.policy());
    let rate = |policy: &Policy| policy.starts_per_second().unwrap_or(f64::INFINITY);
    rate(&wanted) > rate(&most)
        || at_once(&wanted) > at_once(&most)
        || wanted.max_in_flight > most.max_in_flight
}

/// How many may start at one instant: 864,000 a day are ten a second, and could all
/// be sent in one.
fn at_once(policy: &Policy) -> u32 {
    match &policy.rate {
        Rate::Paused => 0,
        Rate::Unlimited => u32::MAX,
        Rate::Limited(limited) => (limited.windows.iter().map(|limit| limit.max.get()))
            .chain(limited.pacing.map(|pacing| pacing.burst))
            .min()
            .unwrap_or(u32::MAX),
    }
}

pub(super) async fn state(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Redirect, Refused> {
    visitor.needs(Scope::Manage)?;
    let (service, id) = (pages.service(visitor.tenant()), parsed(&id)?);
    let done = match fields.get("state") {
        Some("paused") => {
            let edit = DestinationEdit {
                state: Some(DestinationState::Paused),
                ..DestinationEdit::default()
            };
            service.change_destination(id, edit).await?;
            "paused"
        }
        Some("active") => {
            service.resume(id).await?;
            "resumed"
        }
        _ => return Err(Refused::invalid("state: must be paused or active")),
    };
    Ok(Redirect::to(&format!(
        "/dashboard/destinations/{id}?done={done}"
    )))
}

/// A new secret, shown in this answer and never again.
pub(super) async fn rotate(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted { visitor, .. }: Posted,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Manage)?;
    if visitor.session.kind == SessionKind::Opened {
        return Err(Refused::new(
            http::StatusCode::FORBIDDEN,
            "A link does not show secrets. Sign in with a key.",
        ));
    }
    let id = parsed(&id)?;
    let draft = SecretDraft {
        own: None,
        kind: None,
    };
    let service = pages.service(visitor.tenant());
    let (made, _) = service.rotate_secret(id, draft, DEFAULT_OVERLAP).await?;
    let beside = Beside {
        new_secret: made.shown_once.map(|secret| secret.expose().to_owned()),
        ..Beside::default()
    };
    page(&pages, &visitor, id, beside).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_the_tiers_rate_its_burst_and_its_places() {
        let tier = LimitSettings {
            per_second: Some(10),
            burst: Some(50),
            shape: Some(Shape::TokenBucket),
            ..LimitSettings::default()
        };
        let second = |limit| LimitSettings {
            per_second: Some(limit),
            ..LimitSettings::default()
        };
        let minute = |limit| LimitSettings {
            per_minute: Some(limit),
            ..LimitSettings::default()
        };
        let crowded = LimitSettings {
            max_in_flight: Some(51),
            ..second(1)
        };
        let lifted = LimitSettings {
            unlimited: true,
            ..LimitSettings::default()
        };
        let bucket = |burst| LimitSettings {
            per_day: Some(864_000),
            burst,
            shape: Some(Shape::TokenBucket),
            ..LimitSettings::default()
        };
        for below in [second(10), second(1), minute(50), LimitSettings::default()] {
            assert!(!is_above(&below, &tier), "{below:?}");
        }
        for above in [
            second(11),
            minute(51),
            minute(601),
            bucket(Some(51)),
            crowded,
            lifted,
        ] {
            assert!(is_above(&above, &tier), "{above:?}");
        }
        assert!(!is_above(&bucket(Some(50)), &tier));
        // A tier that limits no rate may limit what is in flight.
        let free = LimitSettings {
            unlimited: true,
            max_in_flight: Some(20),
            ..LimitSettings::default()
        };
        assert!(is_above(&crowded, &free));
        assert!(!is_above(
            &second(1_000),
            &LimitSettings {
                max_in_flight: Some(1_000),
                ..free
            }
        ));
    }
}

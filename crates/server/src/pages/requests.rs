//! What customers ask for beyond a ceiling, and operators decide on: limits of a
//! destination, on its page ([`super::change`]); its batches and more destinations, here.

use std::collections::HashMap;

use axum::extract::{Path, Query, State};
use axum::response::{Html, Redirect};
use domain::access::Scope;
use domain::batch::BatchSettings;
use domain::ceiling::{Ceiling, LargerBatches};
use domain::ids::DestinationId;
use engine::ports::{CatalogError, LimitRequest, LimitRequestState, Tenant, Wanted};
use serde::Deserialize;
use uuid::Uuid;

use super::destination::parsed;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::typed::{self, Number};
use super::visitor::{Fields, Posted, Visitor};
use super::words;
use super::{Asked, Pages};
use crate::service::LimitsChange;

const PART: &str = "/dashboard/requests";

/// Requests on a page.
const LINES: u32 = 100;

/// What larger batches are asked for by, and its label.
const BATCHES: [(&str, &str); 2] = [
    ("batch_events", "events in one request"),
    ("batch_bytes", "bytes in one request"),
];

const DESTINATIONS: [(&str, &str); 1] = [("destinations", "destinations, with those there are")];

struct Line {
    request: LimitRequest,
    /// Where it leads, if it is for a destination.
    destination: Option<DestinationId>,
    /// The destination's name; its id once it is deleted.
    name: String,
    /// Whose it is.
    tenant: String,
    limits: String,
    /// What holds today.
    today: String,
    at: String,
    state: &'static str,
    is_open: bool,
}

/// What is asked for here.
struct Form {
    title: String,
    /// Whose batches; `None` for the number of destinations.
    destination: Option<DestinationId>,
    numbers: Vec<Number>,
}

#[derive(askama::Template)]
#[template(path = "requests.html")]
struct Page {
    frame: Frame,
    lines: Vec<Line>,
    /// Where the older ones begin.
    next: Option<String>,
    form: Option<Form>,
}

/// What the form asks for, and which page of the list it is below.
#[derive(Debug, Deserialize)]
pub(super) struct Asks {
    /// Larger batches of this destination.
    destination: Option<String>,
    before: Option<String>,
}

/// An operator's are everybody's.
pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(asks): Query<Asks>,
) -> Result<Html<String>, Refused> {
    let service = pages.service(visitor.tenant());
    let before = asks.before.as_deref();
    let found = match visitor.is_operator() {
        true => service.all_limit_requests(before, LINES).await?,
        false => service.limit_requests(before, LINES).await?,
    };
    let (mut lines, mut tenants) = (Vec::new(), HashMap::new());
    for request in found.requests {
        let tenant = match tenants.get(&request.tenant) {
            Some(known) => Tenant::clone(known),
            None => {
                let found = pages.0.app.tenancy().tenant(request.tenant).await?;
                tenants.entry(request.tenant).or_insert(found).clone()
            }
        };
        let (name, today) = today(&pages, &request, &tenant).await?;
        lines.push(Line {
            limits: limits(&request.wanted),
            destination: request.wanted.destination(),
            name,
            tenant: tenant.name,
            today,
            at: words::time(request.created_at),
            state: request.state.as_str(),
            is_open: request.state == LimitRequestState::Open,
            request,
        });
    }
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Requests", PART)).await?,
        form: form(&pages, &visitor, asks.destination.as_deref()).await?,
        lines,
        next: found.next,
    })
}

/// For whoever may change something and decides nothing.
async fn form(
    pages: &Pages,
    visitor: &Visitor,
    destination: Option<&str>,
) -> Result<Option<Form>, Refused> {
    if visitor.is_operator() || !visitor.may(Scope::Manage) {
        return Ok(None);
    }
    let destination = destination.map(parsed).transpose()?;
    let Some(id) = destination else {
        return Ok(Some(Form {
            title: "More destinations".to_owned(),
            destination,
            numbers: typed::numbers(&Fields::default(), &DESTINATIONS),
        }));
    };
    let found = pages.0.catalog.destination(visitor.tenant(), id).await?;
    Ok(Some(Form {
        title: format!("Larger batches for {}", found.called()),
        destination,
        numbers: typed::numbers(&Fields::default(), &BATCHES),
    }))
}

fn so_many(destinations: u32) -> String {
    format!("{} destinations", words::large(destinations.into()))
}

fn limits(wanted: &Wanted) -> String {
    let (limits, batches) = match wanted {
        Wanted::Limits {
            limits, batches, ..
        } => (limits, batches),
        Wanted::Destinations(most) => return so_many(*most),
    };
    let parts = [
        (limits.as_ref()).map(|limits| words::limits(&limits.settings)),
        (!batches.is_empty()).then(|| of_batches(*batches)),
    ];
    beside(parts)
}

/// Limits and batches, where each is asked for.
fn beside(parts: [Option<String>; 2]) -> String {
    let said: Vec<_> = parts.into_iter().flatten().collect();
    said.join(" · ")
}

fn of_batches(batches: LargerBatches) -> String {
    words::batch_ceiling(&Ceiling::default().with_batches(batches))
}

/// The batches that a destination has, and the largest that it may have.
fn batches_today(has: BatchSettings, ceiling: &Ceiling) -> String {
    let today = match has.max_events {
        Some(_) => of_batches(LargerBatches {
            events: has.max_events,
            bytes: has.max_bytes,
        }),
        None => "no batches".to_owned(),
    };
    match words::batch_ceiling(ceiling) {
        most if most.is_empty() => today,
        most => format!("{today}, at most {most}"),
    }
}

/// How the destination is called, and what holds today of what is asked for.
async fn today(
    pages: &Pages,
    request: &LimitRequest,
    tenant: &Tenant,
) -> Result<(String, String), Refused> {
    let Wanted::Limits {
        destination: id,
        limits,
        batches,
    } = request.wanted
    else {
        let most = tenant.effective_max_destinations;
        let today = most.map_or(words::NONE.to_owned(), so_many);
        return Ok(("all".to_owned(), today));
    };
    let found = match pages.0.catalog.destination(request.tenant, id).await {
        Ok(found) => found,
        Err(CatalogError::NotFound(_)) => return Ok((id.to_string(), "deleted".to_owned())),
        Err(error) => return Err(error.into()),
    };
    let batches = match batches.is_empty() {
        true => None,
        false => {
            let has = pages.service(request.tenant).batches(id).await?;
            Some(batches_today(has, &found.ceiling))
        }
    };
    let limits = limits.map(|_| words::limits(&found.effective));
    Ok((found.called().to_owned(), beside([limits, batches])))
}

/// Asks for more destinations, or for larger batches of one.
pub(super) async fn create(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Redirect, Refused> {
    visitor.needs(Scope::Manage)?;
    let service = pages.service(visitor.tenant());
    let note = fields.text("note").to_owned();
    match fields.get("destination") {
        Some(id) => {
            let batches = LargerBatches {
                events: typed::number(&fields, "batch_events")?,
                bytes: typed::number(&fields, "batch_bytes")?,
            };
            let wanted = (LimitsChange::default(), batches);
            service.request_limits(parsed(id)?, wanted, note).await?;
        }
        None => {
            let most = typed::number(&fields, "destinations")?;
            let most = most.ok_or_else(|| Refused::invalid("destinations: say how many"))?;
            service.request_destinations(most, note).await?;
        }
    }
    Ok(Redirect::to(PART))
}

pub(super) async fn decide(
    State(pages): Asked,
    Path(id): Path<Uuid>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Redirect, Refused> {
    visitor.needs(Scope::Admin)?;
    let decision = match fields.get("decision") {
        Some("approve") => LimitRequestState::Approved,
        Some("decline") => LimitRequestState::Declined,
        _ => return Err(Refused::invalid("decision: must be approve or decline")),
    };
    let reason = fields.get("reason").unwrap_or_default();
    let service = pages.service(visitor.tenant());
    service.decide_limit_request(id, decision, reason).await?;
    Ok(Redirect::to(PART))
}

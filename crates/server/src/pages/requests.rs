//! Limits that customers ask for, and operators decide on.

use std::collections::HashMap;

use axum::extract::{Path, State};
use axum::response::{Html, Redirect};
use domain::access::Scope;
use engine::ports::{CatalogError, LimitRequest, LimitRequestState};
use uuid::Uuid;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::{Posted, Visitor};
use super::words;
use super::{Asked, Pages};

const PART: &str = "/dashboard/requests";

struct Line {
    request: LimitRequest,
    /// The destination's name; its id once it is deleted.
    destination: String,
    /// Whose it is.
    tenant: String,
    limits: String,
    /// What holds today.
    today: String,
    at: String,
    state: &'static str,
    is_open: bool,
}

#[derive(askama::Template)]
#[template(path = "requests.html")]
struct Page {
    frame: Frame,
    lines: Vec<Line>,
}

/// An operator's are everybody's.
pub(super) async fn list(State(pages): Asked, visitor: Visitor) -> Result<Html<String>, Refused> {
    let service = pages.service(visitor.tenant());
    let requests = match visitor.is_operator() {
        true => service.all_limit_requests().await?,
        false => service.limit_requests().await?,
    };
    let (mut lines, mut tenants) = (Vec::new(), HashMap::new());
    for request in requests {
        let tenant = match tenants.get(&request.tenant) {
            Some(name) => String::clone(name),
            None => {
                let found = pages.0.app.tenancy().tenant(request.tenant).await?;
                tenants.entry(request.tenant).or_insert(found.name).clone()
            }
        };
        let (destination, today) = today(&pages, &request).await?;
        lines.push(Line {
            limits: words::limits(&request.settings),
            destination,
            tenant,
            today,
            at: words::time(request.created_at),
            state: request.state.as_str(),
            is_open: request.state == LimitRequestState::Open,
            request,
        });
    }
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Requests", PART)).await?,
        lines,
    })
}

/// How the destination is called, and what holds today.
async fn today(pages: &Pages, request: &LimitRequest) -> Result<(String, String), Refused> {
    let catalog = &pages.0.catalog;
    let destination = catalog.destination(request.tenant, request.destination);
    match destination.await {
        Ok(found) => {
            let today = words::limits(&found.effective);
            Ok((found.called().to_owned(), today))
        }
        Err(CatalogError::NotFound(_)) => {
            Ok((request.destination.to_string(), "deleted".to_owned()))
        }
        Err(error) => Err(error.into()),
    }
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

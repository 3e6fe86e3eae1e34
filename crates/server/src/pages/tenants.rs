//! Tenants, for operators: all of them, and new ones.

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::ids::TenantId;
use engine::ports::{DEFAULT_TIER, Tenant, Tier};
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::tenant::parsed;
use super::visitor::{Fields, Posted, Visitor};
use super::words::{self, NONE};
use super::{Asked, Pages, tiers, typed};
use crate::service::tenancy::TenantDraft;

pub(super) const PART: &str = "/dashboard/tenants";

/// Tenants on a page.
const LINES: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct After {
    after: String,
}

struct Line {
    tenant: Tenant,
    since: String,
    in_flight: String,
}

impl From<Tenant> for Line {
    fn from(tenant: Tenant) -> Self {
        Self {
            since: words::time(tenant.created_at),
            in_flight: (tenant.effective_max_in_flight)
                .map_or(NONE.to_owned(), |most| most.to_string()),
            tenant,
        }
    }
}

/// A tier, beside the tenants.
struct TierLine {
    name: String,
    path: String,
    limits: String,
}

impl From<Tier> for TierLine {
    fn from(tier: Tier) -> Self {
        Self {
            path: tiers::path(&tier.name),
            limits: words::limits(&tier.limits),
            name: tier.name,
        }
    }
}

#[derive(askama::Template)]
#[template(path = "tenants.html")]
struct Page {
    frame: Frame,
    lines: Vec<Line>,
    tiers: Vec<TierLine>,
    form: Form,
    problem: Option<String>,
    next: Option<TenantId>,
}

typed::again!(Page);

/// What the form of a new tenant says.
struct Form {
    name: String,
    external_id: String,
    tier: String,
}

impl Form {
    fn of(fields: &Fields) -> Self {
        Self {
            name: fields.text("name").to_owned(),
            external_id: fields.text("external_id").to_owned(),
            tier: fields.get("tier").unwrap_or(DEFAULT_TIER).to_owned(),
        }
    }
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(query): Query<After>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let form = Form::of(&Fields::default());
    let after = query.after.parse().ok();
    rendered(&listed(&pages, &visitor, after, form).await?)
}

async fn listed(
    pages: &Pages,
    visitor: &Visitor,
    after: Option<TenantId>,
    form: Form,
) -> Result<Page, Refused> {
    let tenancy = pages.0.app.tenancy();
    let tenants = tenancy.tenants(after, LINES).await?;
    let full = tenants.len() >= LINES as usize;
    Ok(Page {
        frame: Frame::of(pages, visitor, ("Tenants", PART)).await?,
        next: tenants.last().filter(|_| full).map(|last| last.id),
        lines: tenants.into_iter().map(Line::from).collect(),
        tiers: (tenancy.tiers().await?.into_iter())
            .map(TierLine::from)
            .collect(),
        form,
        problem: None,
    })
}

pub(super) async fn create(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let created = created(&pages, &fields).await;
    let done = created.map(|one| Redirect::to(&format!("{PART}/{}", one.id)).into_response());
    typed::or_again(done, listed(&pages, &visitor, None, Form::of(&fields))).await
}

async fn created(pages: &Pages, fields: &Fields) -> Result<Tenant, Refused> {
    let form = Form::of(fields);
    let draft = TenantDraft {
        external_id: typed::external_id(fields)?,
        name: form.name,
        tier: form.tier,
        max_in_flight: None,
        ingest_per_second: None,
    };
    Ok(pages.0.app.tenancy().create_tenant(draft).await?)
}

/// From now on this session shows that tenant's pages.
pub(super) async fn open(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted { visitor, .. }: Posted,
) -> Result<Redirect, Refused> {
    visitor.needs(Scope::Admin)?;
    let tenant = pages.0.app.tenancy().tenant(parsed(&id)?).await?;
    pages
        .0
        .sessions
        .move_session(visitor.digest, tenant.id)
        .await?;
    Ok(Redirect::to("/dashboard"))
}

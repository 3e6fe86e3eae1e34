//! Tenants and their keys, for operators.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::{KeyId, Scope};
use domain::ids::TenantId;
use engine::ports::{ApiKey, BehindSession, DEFAULT_TENANT, DEFAULT_TIER, Tenant};
use secrecy::ExposeSecret;
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::links::{self, LINK_LIFETIMES};
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Posted, Visitor};
use super::words::{self, NONE};
use super::{Asked, Pages};
use crate::service::tenancy::{KeyDraft, TenantDraft};

const PART: &str = "/dashboard/tenants";

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

#[derive(askama::Template)]
#[template(path = "tenants.html")]
struct Page {
    frame: Frame,
    lines: Vec<Line>,
    tiers: Vec<(String, String)>,
    default_tier: &'static str,
    next: Option<TenantId>,
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(query): Query<After>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let tenancy = pages.0.app.tenancy();
    let tenants = tenancy.tenants(query.after.parse().ok(), LINES).await?;
    let next = tenants
        .last()
        .filter(|_| tenants.len() >= LINES as usize)
        .map(|last| last.id);
    let line = |tenant: Tenant| Line {
        since: words::time(tenant.created_at),
        in_flight: (tenant.effective_max_in_flight)
            .map_or(NONE.to_owned(), |most| most.to_string()),
        tenant,
    };
    let tiers = tenancy.tiers().await?.into_iter();
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Tenants", PART)).await?,
        lines: tenants.into_iter().map(line).collect(),
        tiers: tiers
            .map(|tier| (tier.name, words::limits(&tier.limits)))
            .collect(),
        default_tier: DEFAULT_TIER,
        next,
    })
}

pub(super) async fn create(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Redirect, Refused> {
    visitor.needs(Scope::Admin)?;
    let draft = TenantDraft {
        external_id: None,
        name: fields.get("name").unwrap_or_default().to_owned(),
        tier: fields.get("tier").unwrap_or(DEFAULT_TIER).to_owned(),
        max_in_flight: None,
        ingest_per_second: None,
    };
    let created = pages.0.app.tenancy().create_tenant(draft).await?;
    Ok(Redirect::to(&format!("{PART}/{}", created.id)))
}

struct KeyLine {
    key: ApiKey,
    scopes: String,
    created: String,
    used: String,
    ends: String,
    is_good: bool,
}

#[derive(askama::Template)]
#[template(path = "tenant.html")]
struct TenantPage {
    frame: Frame,
    tenant: Tenant,
    keys: Vec<KeyLine>,
    links: Vec<links::Line>,
    scopes: Vec<&'static str>,
    lifetimes: [(&'static str, u64); 3],
    new_key: Option<String>,
}

fn parsed(id: &str) -> Result<TenantId, Refused> {
    id.parse().map_err(|_bad| Refused::not_found("tenant"))
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Html<String>, Refused> {
    page(&pages, &visitor, parsed(&id)?, None).await
}

async fn page(
    pages: &Pages,
    visitor: &Visitor,
    id: TenantId,
    new_key: Option<String>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let tenancy = pages.0.app.tenancy();
    let tenant = tenancy.tenant(id).await?;
    let keys = tenancy.keys(id).await?;
    let now = pages.0.overview.now().await?;
    let line = |key: ApiKey| KeyLine {
        scopes: key
            .scopes
            .iter()
            .map(Scope::as_str)
            .collect::<Vec<_>>()
            .join(", "),
        created: words::time(key.created_at),
        used: key.last_used_at.map_or("never".to_owned(), words::time),
        ends: match (key.revoked_at, key.expires_at) {
            (Some(at), _) => format!("revoked {}", words::time(at)),
            (None, Some(at)) => words::time(at),
            (None, None) => "never".to_owned(),
        },
        is_good: key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > now),
        key,
    };
    let scopes = Scope::ALL.into_iter();
    let scopes = scopes.filter(|scope| !scope.is_the_installations() || id == DEFAULT_TENANT);
    rendered(&TenantPage {
        frame: Frame::of(pages, visitor, (&tenant.name, PART)).await?,
        tenant,
        keys: keys.into_iter().map(line).collect(),
        links: links::lines(pages, id).await?,
        scopes: scopes.map(Scope::as_str).collect(),
        lifetimes: LINK_LIFETIMES,
        new_key,
    })
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

pub(super) async fn create_key(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let id = parsed(&id)?;
    let days = fields.get("days").map(str::parse::<u32>).transpose();
    let days = days.map_err(|_bad| Refused::invalid("days: must be a whole number, or empty"))?;
    let named = |scope: &Scope| fields.has(&format!("scope_{scope}"));
    let draft = KeyDraft {
        name: fields.get("name").unwrap_or_default().to_owned(),
        scopes: Scope::ALL.into_iter().filter(named).collect(),
        expires_in: days.map(|days| Duration::from_secs(u64::from(days) * 86_400)),
    };
    let (_, text) = pages.0.app.tenancy().create_key(id, draft).await?;
    page(&pages, &visitor, id, Some(text.expose_secret().to_owned())).await
}

pub(super) async fn revoke_key(
    State(pages): Asked,
    Path((id, key)): Path<(String, String)>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let id = parsed(&id)?;
    let key: KeyId = key.parse().map_err(|_bad| Refused::not_found("key"))?;
    if !sure::is_sure(&fields) {
        let question = revoking(&pages, id, key).await?;
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    pages.0.app.tenancy().revoke_key(id, key).await?;
    Ok(Redirect::to(&format!("{PART}/{id}")).into_response())
}

async fn revoking(pages: &Pages, tenant: TenantId, id: KeyId) -> Result<Question, Refused> {
    let tenancy = pages.0.app.tenancy();
    let found = tenancy.keys(tenant).await?;
    let key = found.into_iter().find(|key| key.id == id);
    let key = key.ok_or_else(|| Refused::not_found("key"))?;
    let links = tenancy.links().list(tenant).await?;
    let behind = BehindSession::Key(id);
    let ends = links.iter().filter(|link| link.behind == behind).count();
    let used = key.last_used_at.map_or("never".to_owned(), words::time);
    Ok(Question {
        asks: match key.name.is_empty() {
            true => format!("Revoke the key {id}?"),
            false => format!("Revoke the key {}?", key.name),
        },
        does: vec![
            format!(
                "Whoever calls with it is refused within 5 seconds, for good. It was last used: {used}."
            ),
            format!(
                "Whoever is signed in with it is signed out, and {ends} open links to this tenant's pages that were made with it end."
            ),
        ],
        action: format!("{PART}/{tenant}/keys/{id}"),
        fields: Vec::new(),
        button: "Revoke it",
        back: format!("{PART}/{tenant}"),
    })
}

//! One tenant, for operators: what it is, its keys and its links; it is changed and
//! deleted.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::ids::TenantId;
use engine::ports::{ApiKey, DEFAULT_TENANT, Deletion, Tenant, TenantChange};
use http::Uri;
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::links::{self, LINK_LIFETIMES};
use super::refused::Refused;
use super::sure::{self, Question};
use super::tenants::PART;
use super::typed::{self, Number, shown};
use super::visitor::{Fields, Posted, Visitor};
use super::{Asked, Pages, live, words};

/// How often it is looked how far a deletion is.
const EVERY: Duration = Duration::from_secs(2);

const BOUNDS: [(&str, &str); 2] = [
    (
        "max_in_flight",
        "In flight at once, all of its destinations together",
    ),
    (
        "ingest_per_second",
        "Events taken in a second, at each API process",
    ),
];

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
pub(super) struct TenantPage {
    frame: Frame,
    tenant: Tenant,
    /// Since when it is being deleted, and what of it is left.
    deletion: Option<(String, u32)>,
    may_be_deleted: bool,
    form: Form,
    tiers: Vec<String>,
    problem: Option<String>,
    notice: &'static str,
    keys: Vec<KeyLine>,
    links: Vec<links::Line>,
    scopes: Vec<&'static str>,
    lifetimes: [(&'static str, u64); 3],
    new_key: Option<String>,
}

/// What the form of a tenant says.
struct Form {
    name: String,
    external_id: String,
    tier: String,
    bounds: Vec<Number>,
    was: String,
}

impl Form {
    fn of(fields: &Fields) -> Self {
        Self {
            name: fields.text("name").to_owned(),
            external_id: fields.text("external_id").to_owned(),
            tier: fields.text("tier").to_owned(),
            bounds: typed::numbers(fields, &BOUNDS),
            was: fields.text(typed::WAS).to_owned(),
        }
    }
}

/// What its form is filled with.
fn values(tenant: &Tenant) -> Fields {
    Fields::from([
        ("name", tenant.name.clone()),
        (
            "external_id",
            shown(tenant.external_id.as_ref().map(|id| id.as_str())),
        ),
        ("tier", tenant.tier.clone()),
        ("max_in_flight", shown(tenant.max_in_flight)),
        ("ingest_per_second", shown(tenant.ingest_per_second)),
    ])
}

typed::again!(TenantPage);

/// What is shown beside the tenant, after a form.
#[derive(Default)]
pub(super) struct Beside {
    new_key: Option<String>,
    /// As somebody has typed it.
    typed: Option<Form>,
    notice: &'static str,
}

impl Beside {
    pub(super) fn new_key(text: &str) -> Self {
        Self {
            new_key: Some(text.to_owned()),
            ..Self::default()
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Done {
    done: String,
}

pub(super) fn parsed(id: &str) -> Result<TenantId, Refused> {
    id.parse().map_err(|_bad| Refused::not_found("tenant"))
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(query): Query<Done>,
) -> Result<Html<String>, Refused> {
    let beside = Beside {
        notice: match query.done.as_str() {
            "changed" => "Changed.",
            _ => "",
        },
        ..Beside::default()
    };
    rendered(&page(&pages, &visitor, parsed(&id)?, beside).await?)
}

pub(super) async fn page(
    pages: &Pages,
    visitor: &Visitor,
    id: TenantId,
    beside: Beside,
) -> Result<TenantPage, Refused> {
    visitor.needs(Scope::Admin)?;
    let tenancy = pages.0.app.tenancy();
    let tenant = tenancy.tenant(id).await?;
    let scopes = Scope::ALL.into_iter();
    let scopes = scopes.filter(|scope| !scope.is_the_installations() || id == DEFAULT_TENANT);
    let is = || Form::of(&typed::filled(values(&tenant)));
    let form = beside.typed.unwrap_or_else(is);
    let tiers = tenancy.tiers().await?.into_iter();
    Ok(TenantPage {
        frame: Frame::of(pages, visitor, (&tenant.name, PART)).await?,
        deletion: tenant.deletion.map(in_words),
        may_be_deleted: id != DEFAULT_TENANT,
        tenant,
        form,
        tiers: tiers.map(|tier| tier.name).collect(),
        problem: None,
        notice: beside.notice,
        keys: keys(pages, id).await?,
        links: links::lines(pages, id).await?,
        scopes: scopes.map(Scope::as_str).collect(),
        lifetimes: LINK_LIFETIMES,
        new_key: beside.new_key,
    })
}

fn in_words(deletion: Deletion) -> (String, u32) {
    (words::time(deletion.since), deletion.destinations_left)
}

async fn keys(pages: &Pages, id: TenantId) -> Result<Vec<KeyLine>, Refused> {
    let keys = pages.0.app.tenancy().keys(id).await?;
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
    Ok(keys.into_iter().map(line).collect())
}

/// Changes all that the form has.
pub(super) async fn save(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor,
        mut fields,
        ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let id = parsed(&id)?;
    let done = saved(&pages, id, &mut fields).await;
    let beside = Beside {
        typed: Some(Form::of(&fields)),
        ..Beside::default()
    };
    typed::or_again(done, page(&pages, &visitor, id, beside)).await
}

async fn saved(pages: &Pages, id: TenantId, fields: &mut Fields) -> Result<Response, Refused> {
    let tenancy = pages.0.app.tenancy();
    let now = tenancy.tenant(id).await?;
    typed::unchanged(fields, &values(&now), &[])?;
    let change = TenantChange {
        external_id: typed::another_external_id(fields, now.external_id.as_ref())?,
        name: Some(fields.text("name").to_owned()),
        tier: Some(fields.text("tier").to_owned()),
        max_in_flight: Some(typed::number(fields, "max_in_flight")?),
        ingest_per_second: Some(typed::number(fields, "ingest_per_second")?),
    };
    tenancy.change_tenant(id, change).await?;
    pages.0.app.forget_tenants();
    Ok(typed::done(&format!("{PART}/{id}"), "changed"))
}

/// Deletes it, and shows how far that is.
pub(super) async fn delete(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let id = parsed(&id)?;
    let tenancy = pages.0.app.tenancy();
    if !sure::is_sure(&fields) {
        let tenant = tenancy.tenant(id).await?;
        return sure::ask(&pages, &visitor, PART, deleting(&tenant)).await;
    }
    tenancy.delete_tenant(id).await?;
    pages.0.app.forget_tenants();
    Ok(Redirect::to(&format!("{PART}/{id}")).into_response())
}

fn deleting(tenant: &Tenant) -> Question {
    let does = vec![
        "Its keys, links and sessions end at once. None of it can be brought back.".to_owned(),
        "Its destinations, and what waits for them, go step by step; its page shows how far \
             that is."
            .to_owned(),
        "What was tried stays in the ledger for its age; then the tenant is forgotten.".to_owned(),
    ];
    let asks = format!("Delete {}, with all that it has?", tenant.name);
    Question::delete(asks, does, format!("{PART}/{}", tenant.id))
}

/// How far its deletion is.
pub(super) async fn live(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
    address: Uri,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let id = parsed(&id)?;
    // That it is there, before anything is said.
    pages.0.app.tenancy().tenant(id).await?;
    let look = move |pages: Pages| async move {
        let tenant = pages.0.app.tenancy().tenant(id).await?;
        let left = tenant.deletion.map(|deletion| deletion.destinations_left);
        Ok(live::Said {
            texts: vec![("tenant.left".to_owned(), shown(left))],
            ..live::Said::default()
        })
    };
    live::stream(&pages, &visitor, &address, (EVERY, look))
}

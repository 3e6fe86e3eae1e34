//! When people are told of a tenant as a whole, and who is: by mail, in a chat, or by a
//! destination.
//!
//! A tenant's own page, and for operators that of any tenant, by the same functions as
//! `/v1/alerts`, `/v1/notice-addresses` and `/v1/operational-destinations`.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::ids::{DestinationId, NoticeAddressId, TenantId};
use domain::notices::{DEFAULT_EVERY, NoticeAddress, NoticeForm};
use domain::operations::{OperationalDestination, OperationalScope, OperationalType};
use domain::watch::{TenantAlerts, TenantWatch};
use engine::ports::{DEFAULT_TENANT, Registration, TenantAlertsChange};
use zeroize::Zeroizing;

use super::destination::parsed;
use super::frame::{Frame, rendered};
use super::names::Names;
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Posted, Visitor};
use super::{Asked, Pages, searched, typed, words};
use crate::hidden::Hidden;
use crate::service::Service;
use crate::service::notices::AddressDraft;

const PART: &str = "/dashboard/alerts";

/// Between two messages, in words and in seconds.
const PAUSES: [(&str, u64); 4] = [
    ("a minute", 60),
    ("ten minutes", 600),
    ("an hour", 3_600),
    ("twelve hours", 43_200),
];

/// What begins the name of a box that is ticked for a type.
const TYPE: &str = "type_";

/// Whose alerts a page is about, and where it is.
pub(super) struct Whose {
    tenant: TenantId,
    pub(super) path: String,
}

impl Whose {
    fn own(visitor: &Visitor) -> Self {
        Self {
            tenant: visitor.tenant(),
            path: PART.to_owned(),
        }
    }

    /// Of any tenant, for operators.
    fn any(visitor: &Visitor, id: &str) -> Result<Self, Refused> {
        visitor.needs(Scope::Admin)?;
        let tenant: TenantId = (id.parse()).map_err(|_bad| Refused::not_found("tenant"))?;
        Ok(Self::another(tenant))
    }

    fn another(tenant: TenantId) -> Self {
        Self {
            tenant,
            path: format!("/dashboard/tenants/{tenant}/alerts"),
        }
    }

    /// Of whose things the visitor looks at.
    pub(super) fn of(visitor: &Visitor) -> Self {
        match visitor.tenant() == visitor.home() {
            true => Self::own(visitor),
            false => Self::another(visitor.tenant()),
        }
    }

    fn service(&self, pages: &Pages) -> Service {
        pages.service(self.tenant)
    }
}

struct Line {
    id: NoticeAddressId,
    form: &'static str,
    address: String,
    of: &'static str,
    types: String,
    every: String,
}

impl From<NoticeAddress> for Line {
    fn from(found: NoticeAddress) -> Self {
        Self {
            id: found.id,
            form: in_words(found.form),
            address: found.shown,
            of: of(found.scope),
            types: types(&found.event_types),
            every: words::span(found.every),
        }
    }
}

/// A destination that is told.
struct Registered {
    id: DestinationId,
    name: String,
    of: &'static str,
    types: String,
}

impl Registered {
    fn of(found: &OperationalDestination, names: &Names) -> Self {
        Self {
            id: found.destination,
            name: names.name(found.destination),
            of: of(found.scope),
            types: types(&found.event_types),
        }
    }
}

const fn of(scope: OperationalScope) -> &'static str {
    match scope {
        OperationalScope::Tenant => "this tenant",
        OperationalScope::Installation => "all tenants",
    }
}

fn types(all: &[String]) -> String {
    match all.is_empty() {
        true => "all".to_owned(),
        false => all.join(", "),
    }
}

#[derive(askama::Template)]
#[template(path = "alerts.html")]
struct Page {
    frame: Frame,
    tenant: String,
    path: String,
    settings: TenantAlerts,
    /// What is so now, and since when.
    now: Vec<(&'static str, String)>,
    lines: Vec<Line>,
    registered: Vec<Registered>,
    types: [&'static str; OperationalType::ALL.len()],
    forms: [(&'static str, &'static str); NoticeForm::ALL.len()],
    pauses: [(&'static str, u64); 4],
    default_pause: u64,
    /// An address can be told of all tenants.
    may_have_all: bool,
}

pub(super) async fn own(State(pages): Asked, visitor: Visitor) -> Result<Html<String>, Refused> {
    page(&pages, &visitor, Whose::own(&visitor)).await
}

pub(super) async fn change_own(State(pages): Asked, posted: Posted) -> Result<Redirect, Refused> {
    change(&pages, Whose::own(&posted.visitor), &posted).await
}

pub(super) async fn add_own(State(pages): Asked, posted: Posted) -> Result<Redirect, Refused> {
    add(&pages, Whose::own(&posted.visitor), &posted).await
}

pub(super) async fn remove_own(
    State(pages): Asked,
    Path(id): Path<String>,
    posted: Posted,
) -> Result<Response, Refused> {
    remove(&pages, Whose::own(&posted.visitor), (&id, &posted)).await
}

pub(super) async fn register_own(State(pages): Asked, posted: Posted) -> Result<Redirect, Refused> {
    register(&pages, Whose::own(&posted.visitor), &posted).await
}

pub(super) async fn unregister_own(
    State(pages): Asked,
    Path(id): Path<String>,
    posted: Posted,
) -> Result<Redirect, Refused> {
    unregister(&pages, Whose::own(&posted.visitor), (&id, &posted)).await
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(tenant): Path<String>,
) -> Result<Html<String>, Refused> {
    let whose = Whose::any(&visitor, &tenant)?;
    page(&pages, &visitor, whose).await
}

pub(super) async fn change_any(
    State(pages): Asked,
    Path(tenant): Path<String>,
    posted: Posted,
) -> Result<Redirect, Refused> {
    change(&pages, Whose::any(&posted.visitor, &tenant)?, &posted).await
}

pub(super) async fn add_any(
    State(pages): Asked,
    Path(tenant): Path<String>,
    posted: Posted,
) -> Result<Redirect, Refused> {
    add(&pages, Whose::any(&posted.visitor, &tenant)?, &posted).await
}

pub(super) async fn remove_any(
    State(pages): Asked,
    Path((tenant, id)): Path<(String, String)>,
    posted: Posted,
) -> Result<Response, Refused> {
    let whose = Whose::any(&posted.visitor, &tenant)?;
    remove(&pages, whose, (&id, &posted)).await
}

pub(super) async fn register_any(
    State(pages): Asked,
    Path(tenant): Path<String>,
    posted: Posted,
) -> Result<Redirect, Refused> {
    register(&pages, Whose::any(&posted.visitor, &tenant)?, &posted).await
}

pub(super) async fn unregister_any(
    State(pages): Asked,
    Path((tenant, id)): Path<(String, String)>,
    posted: Posted,
) -> Result<Redirect, Refused> {
    let whose = Whose::any(&posted.visitor, &tenant)?;
    unregister(&pages, whose, (&id, &posted)).await
}

async fn page(pages: &Pages, visitor: &Visitor, whose: Whose) -> Result<Html<String>, Refused> {
    let tenant = pages.0.app.tenancy().tenant(whose.tenant).await?;
    let service = whose.service(pages);
    let alerts = service.tenant_alerts().await?;
    let addresses = service.addresses().await?;
    let registered = service.operational_destinations().await?;
    let names = Names::of(pages, registered.iter().map(|one| one.destination)).await?;
    rendered(&Page {
        frame: Frame::of(pages, visitor, ("Alerts", PART)).await?,
        tenant: tenant.name,
        path: whose.path,
        settings: alerts.settings,
        now: raised(&alerts.watch),
        lines: addresses.into_iter().map(Line::from).collect(),
        registered: (registered.iter())
            .map(|one| Registered::of(one, &names))
            .collect(),
        types: OperationalType::ALL.map(OperationalType::as_str),
        forms: NoticeForm::ALL.map(|form| (form.as_str(), in_words(form))),
        pauses: PAUSES,
        default_pause: DEFAULT_EVERY.as_secs(),
        may_have_all: visitor.is_operator() && whose.tenant == DEFAULT_TENANT,
    })
}

const fn in_words(form: NoticeForm) -> &'static str {
    match form {
        NoticeForm::Email => "e-mail",
        NoticeForm::Slack => "chat",
    }
}

fn raised(watch: &TenantWatch) -> Vec<(&'static str, String)> {
    let all = [
        ("too few requests succeed", watch.success_low_since),
        (
            "it has nearly as many destinations as it may have",
            watch.destinations_high_since,
        ),
        (
            "its backlog is nearly so long that events are refused",
            watch.backlog_high_since,
        ),
        ("its events are refused", watch.refused_since),
    ];
    let stands = |(what, since): (&'static str, Option<_>)| Some((what, words::time(since?)));
    all.into_iter().filter_map(stands).collect()
}

/// Each field is set, an empty one to its default.
async fn change(pages: &Pages, whose: Whose, posted: &Posted) -> Result<Redirect, Refused> {
    posted.visitor.needs(Scope::Manage)?;
    let number = |name: &str| typed::number(&posted.fields, name).map(Some);
    let change = TenantAlertsChange {
        success_percent: number("success_percent")?,
        success_seconds: number("success_seconds")?,
        success_least: number("success_least")?,
    };
    whose.service(pages).change_tenant_alerts(change).await?;
    Ok(Redirect::to(&whose.path))
}

/// What concerns all tenants is the administrator's.
fn may_ask_for(visitor: &Visitor, scope: OperationalScope) -> Result<(), Refused> {
    match scope {
        OperationalScope::Installation => visitor.needs(Scope::Admin),
        OperationalScope::Tenant => Ok(()),
    }
}

/// Of whom somebody is to be told, and what.
fn wanted(posted: &Posted) -> Result<Registration, Refused> {
    let Posted {
        visitor, fields, ..
    } = posted;
    visitor.needs(Scope::Manage)?;
    let scope = match fields.has("all_tenants") {
        true => OperationalScope::Installation,
        false => OperationalScope::Tenant,
    };
    may_ask_for(visitor, scope)?;
    let ticked = |one: &OperationalType| fields.has(&format!("{TYPE}{}", one.as_str()));
    Ok(Registration {
        scope,
        event_types: OperationalType::ALL.into_iter().filter(ticked).collect(),
    })
}

async fn register(pages: &Pages, whose: Whose, posted: &Posted) -> Result<Redirect, Refused> {
    let wanted = wanted(posted)?;
    let typed = posted.fields.text("told");
    let found = searched::destination(pages, whose.tenant, typed).await?;
    let id = found.ok_or_else(|| Refused::invalid("destination: say which is told"))?;
    let service = whose.service(pages);
    may_ask_for(&posted.visitor, service.told_of(id).await?)?;
    service.register_operational(id, wanted).await?;
    Ok(Redirect::to(&whose.path))
}

async fn unregister(
    pages: &Pages,
    whose: Whose,
    (id, posted): (&str, &Posted),
) -> Result<Redirect, Refused> {
    posted.visitor.needs(Scope::Manage)?;
    let id = parsed(id)?;
    let service = whose.service(pages);
    may_ask_for(&posted.visitor, service.told_of(id).await?)?;
    service.unregister_operational(id).await?;
    Ok(Redirect::to(&whose.path))
}

async fn add(pages: &Pages, whose: Whose, posted: &Posted) -> Result<Redirect, Refused> {
    let Registration { scope, event_types } = wanted(posted)?;
    let fields = &posted.fields;
    let form = fields.get("form").unwrap_or_default();
    let form = (NoticeForm::ALL.into_iter()).find(|one| one.as_str() == form);
    let pause: Option<u32> = typed::number(fields, "every_seconds")?;
    let address = fields.get("address").unwrap_or_default();
    let draft = AddressDraft {
        form: form.ok_or_else(|| Refused::invalid("form: must be email or slack"))?,
        address: Hidden::new(Zeroizing::new(address.to_owned())),
        scope,
        event_types,
        every: pause.map_or(DEFAULT_EVERY, |seconds| Duration::from_secs(seconds.into())),
    };
    whose.service(pages).register_address(draft).await?;
    Ok(Redirect::to(&whose.path))
}

/// Asked first: what waits for it is lost with it.
async fn remove(
    pages: &Pages,
    whose: Whose,
    (id, posted): (&str, &Posted),
) -> Result<Response, Refused> {
    posted.visitor.needs(Scope::Manage)?;
    let missing = || Refused::not_found("address");
    let id: NoticeAddressId = id.parse().map_err(|_bad| missing())?;
    let service = whose.service(pages);
    may_ask_for(&posted.visitor, service.address_told_of(id).await?)?;
    if !sure::is_sure(&posted.fields) {
        let found = service.addresses().await?;
        let found = found.into_iter().find(|one| one.id == id);
        let question = Question {
            asks: format!("Tell {} nothing more?", found.ok_or_else(missing)?.shown),
            does: vec!["What waits to be told there is dropped.".to_owned()],
            action: format!("{}/addresses/{id}", whose.path),
            fields: Vec::new(),
            button: "Remove it",
            back: whose.path,
        };
        return sure::ask(pages, &posted.visitor, PART, question).await;
    }
    service.remove_address(id).await?;
    Ok(Redirect::to(&whose.path).into_response())
}

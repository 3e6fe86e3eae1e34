//! Links that open one tenant's pages, for a while and for nothing else.
//!
//! Opening takes a click on a page of ours, so that neither a mail scanner
//! opens it nor the strict cookie gets lost on its way from another site.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::{LinkId, Scope, Scopes};
use domain::ids::TenantId;
use engine::ports::{BehindSession, DEFAULT_TENANT, Link, NewSession, Session, SessionKind};
use http::{Extensions, HeaderMap, header};

use super::frame::{Frame, rendered};
use super::guest::Guest;
use super::refused::Refused;
use super::sign_in::{SESSION_LIFETIME, begun};
use super::sure::{self, Question};
use super::visitor::{Posted, Visitor, identify, own_form, session, set_cookie};
use super::{Asked, Pages, words};
use crate::access::key::digest;
use crate::service::links::LinkRights;
use crate::service::{LinkDraft, ServiceError};

/// For how long a link can be good, in words and in seconds.
pub(super) const LINK_LIFETIMES: [(&str, u64); 3] = [
    ("one hour", 3_600),
    ("one day", 86_400),
    ("seven days", 604_800),
];

/// A link that was just made, to be shown once.
#[derive(Debug, Clone)]
struct MadeLink {
    /// The whole of it: it is on its way into a mail.
    url: String,
    lifetime: &'static str,
}

/// A link in a list.
pub(super) struct Line {
    pub(super) id: LinkId,
    pub(super) name: String,
    pub(super) does: &'static str,
    pub(super) made: String,
    pub(super) ends: String,
}

impl From<Link> for Line {
    fn from(link: Link) -> Self {
        Self {
            id: link.id,
            name: link.name,
            does: LinkRights::of(link.scopes).words(),
            made: words::time(link.created_at),
            ends: words::time(link.expires_at),
        }
    }
}

/// A tenant's links that are good.
pub(super) async fn lines(pages: &Pages, tenant: TenantId) -> Result<Vec<Line>, Refused> {
    let links = pages.0.app.tenancy().links().list(tenant).await?;
    Ok(links.into_iter().map(Line::from).collect())
}

#[derive(askama::Template)]
#[template(path = "link.html")]
struct OpenPage {
    frame: Frame,
    tenant: String,
    path: String,
}

async fn good(pages: &Pages, token: &str) -> Result<Session, Refused> {
    let found = session(pages, digest(token)).await?;
    let link = found.filter(|session| !session.kind.shows_pages());
    link.ok_or_else(over)
}

fn over() -> Refused {
    let words = "This link is over, or never was. Sign in with a key, or ask for another link.";
    Refused::new(http::StatusCode::NOT_FOUND, words)
}

impl Pages {
    /// A link that opens all pages of a tenant with all rights, for so long: for
    /// whoever starts the process, as the demo does.
    pub async fn full_link(
        &self,
        tenant: TenantId,
        good_for: Duration,
    ) -> Result<String, ServiceError> {
        let draft = LinkDraft {
            name: String::new(),
            scopes: Scopes::ALL,
            good_for,
        };
        let behind = BehindSession::Configured(self.0.app.gate().configured());
        let links = self.0.app.tenancy().links();
        Ok(links.create(tenant, behind, draft).await?.path)
    }
}

impl Pages {
    /// A link that signs in once, within so long, as the key that is configured does:
    /// for whoever starts the process.
    pub async fn once_link(&self, good_for: Duration) -> Result<String, ServiceError> {
        let links = self.0.app.tenancy().links();
        let token = links.new_held();
        let new = NewSession {
            digest: digest(&token),
            kind: SessionKind::Once,
            tenant: DEFAULT_TENANT,
            behind: links.behind(None),
            scopes: Scopes::ALL,
            good_for,
            name: String::new(),
            opened_by: None,
        };
        self.0.sessions.begin_session(&new).await?;
        Ok(format!("/dashboard/links/{token}"))
    }
}

/// Whoever has opened this very link here needs no second click, as in a frame that is
/// loaded again with its platform's page: that reads a session, and begins none.
pub(super) async fn show(
    State(pages): Asked,
    Path(token): Path<String>,
    guest: Guest,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let link = good(&pages, &token).await?;
    guest.note(&link);
    let visitor = identify(&headers, &Extensions::new(), &pages).await?;
    let opened_by = visitor.and_then(|visitor| visitor.session.opened_by);
    if opened_by == Some(digest(&token)) {
        return Ok(Redirect::to("/dashboard").into_response());
    }
    let tenant = pages.0.app.tenancy().tenant(link.tenant).await?;
    let page = rendered(&OpenPage {
        frame: Frame::nobody("Open").branded(guest.is_one().then_some(&pages)),
        tenant: tenant.name,
        path: format!("/dashboard/links/{token}"),
    })?;
    Ok(page.into_response())
}

pub(super) async fn open(
    State(pages): Asked,
    Path(token): Path<String>,
    request: Request,
) -> Result<Response, Refused> {
    let headers = request.headers().clone();
    // Before anything is read of whoever has none.
    let link = good(&pages, &token).await?;
    own_form(request, &pages).await?;
    let held = pages.0.app.tenancy().links().new_held();
    let signs_in = link.kind == SessionKind::Once;
    let good_for = match signs_in {
        true => SESSION_LIFETIME,
        false => link.left.min(SESSION_LIFETIME),
    };
    let new = NewSession {
        digest: digest(&held),
        kind: match signs_in {
            true => SessionKind::Key,
            false => SessionKind::Opened,
        },
        tenant: link.tenant,
        behind: link.behind,
        scopes: link.scopes,
        good_for,
        name: String::new(),
        opened_by: (!signs_in).then(|| digest(&token)),
    };
    match signs_in {
        true if !pages.0.sessions.use_once(digest(&token), &new).await? => return Err(over()),
        true => {}
        false => {
            pages.0.sessions.begin_session(&new).await?;
        }
    }
    let of = (&pages, &begun(&new));
    let cookie = set_cookie(of, &headers, &held, good_for.as_secs());
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/dashboard")).into_response())
}

#[derive(askama::Template)]
#[template(path = "links.html")]
struct OwnPage {
    frame: Frame,
    tenant: TenantId,
    /// Where its form goes.
    action: String,
    lifetimes: [(&'static str, u64); 3],
    may_show_payloads: bool,
    made: Option<MadeLink>,
    lines: Vec<Line>,
}

/// Whose links a page is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Own,
    Any,
}

pub(super) async fn own(State(pages): Asked, visitor: Visitor) -> Result<Html<String>, Refused> {
    may_make(&visitor)?;
    page(&pages, &visitor, (visitor.tenant(), Whose::Own), None).await
}

pub(super) async fn make_own(State(pages): Asked, posted: Posted) -> Result<Html<String>, Refused> {
    let visitor = &posted.visitor;
    may_make(visitor)?;
    let made = made(&pages, visitor.tenant(), &posted).await?;
    page(&pages, visitor, (visitor.tenant(), Whose::Own), Some(made)).await
}

/// An operator makes one for any tenant.
pub(super) async fn make(
    State(pages): Asked,
    Path(tenant): Path<String>,
    posted: Posted,
) -> Result<Html<String>, Refused> {
    posted.visitor.needs(Scope::Admin)?;
    let tenant = parsed(&tenant)?;
    let made = made(&pages, tenant, &posted).await?;
    page(&pages, &posted.visitor, (tenant, Whose::Any), Some(made)).await
}

fn parsed(tenant: &str) -> Result<TenantId, Refused> {
    tenant.parse().map_err(|_bad| Refused::not_found("tenant"))
}

/// Ends one: an operator any tenant's, others their own's.
pub(super) async fn end(
    State(pages): Asked,
    Path((tenant, link)): Path<(String, String)>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    let tenant = parsed(&tenant)?;
    let is_own = tenant == visitor.tenant();
    match is_own {
        true => may_make(&visitor)?,
        false => visitor.needs(Scope::Admin)?,
    }
    let link = link.parse().map_err(|_bad| Refused::not_found("link"))?;
    let back = match is_own {
        true => "/dashboard/links".to_owned(),
        false => format!("/dashboard/tenants/{tenant}"),
    };
    if !sure::is_sure(&fields) {
        let question = ending(&pages, (tenant, link), back).await?;
        return sure::ask(&pages, &visitor, "/dashboard/links", question).await;
    }
    pages.0.app.tenancy().links().end(tenant, link).await?;
    Ok(Redirect::to(&back).into_response())
}

async fn ending(
    pages: &Pages,
    (tenant, id): (TenantId, LinkId),
    back: String,
) -> Result<Question, Refused> {
    let found = lines(pages, tenant).await?;
    let link = found.into_iter().find(|line| line.id == id);
    let link = link.ok_or_else(|| Refused::not_found("link"))?;
    Ok(Question {
        asks: match link.name.is_empty() {
            true => format!("End the link {id}?"),
            false => format!("End the link {}?", link.name),
        },
        does: vec![
            "It opens nothing any more. A new one has another address.".to_owned(),
            "Whoever opened it is signed out with the next click.".to_owned(),
            format!("It would end by itself at {}.", link.ends),
        ],
        action: format!("/dashboard/tenants/{tenant}/links/{id}"),
        fields: Vec::new(),
        button: "End it",
        back,
    })
}

/// Not with a link: it must not make itself last longer.
fn may_make(visitor: &Visitor) -> Result<(), Refused> {
    visitor.needs(Scope::Manage)?;
    match visitor.session.kind {
        SessionKind::Key => Ok(()),
        SessionKind::Link | SessionKind::Opened | SessionKind::Once => {
            let words = "A link makes no links. Sign in with a key.";
            Err(Refused::new(http::StatusCode::FORBIDDEN, words))
        }
    }
}

/// Nobody gives what he has not, but for an operator, who could make a key that has it.
fn may_show_payloads(visitor: &Visitor) -> bool {
    visitor.may(Scope::ReadPayloads) || visitor.is_operator()
}

async fn page(
    pages: &Pages,
    visitor: &Visitor,
    (tenant, whose): (TenantId, Whose),
    made: Option<MadeLink>,
) -> Result<Html<String>, Refused> {
    rendered(&OwnPage {
        frame: Frame::of(pages, visitor, ("Links", "/dashboard/links")).await?,
        tenant,
        action: match whose {
            Whose::Own => "/dashboard/links".to_owned(),
            Whose::Any => format!("/dashboard/tenants/{tenant}/links"),
        },
        lifetimes: LINK_LIFETIMES,
        may_show_payloads: may_show_payloads(visitor),
        made,
        lines: lines(pages, tenant).await?,
    })
}

async fn made(pages: &Pages, tenant: TenantId, posted: &Posted) -> Result<MadeLink, Refused> {
    let Posted {
        visitor,
        fields,
        origin,
        ..
    } = posted;
    let asked = fields.get("seconds").and_then(|text| text.parse().ok());
    let known = LINK_LIFETIMES
        .into_iter()
        .find(|(_, seconds)| Some(*seconds) == asked);
    let (lifetime, seconds) = known.ok_or_else(|| Refused::invalid("seconds: no such lifetime"))?;
    let rights = LinkRights {
        may_change: fields.has("may_change"),
        may_read_payloads: fields.has("may_read_payloads"),
    };
    if rights.may_read_payloads && !may_show_payloads(visitor) {
        return Err(Refused::Scope(Scope::ReadPayloads));
    }
    let draft = LinkDraft {
        name: fields.get("name").unwrap_or_default().to_owned(),
        scopes: rights.scopes(),
        good_for: Duration::from_secs(seconds),
    };
    let links = pages.0.app.tenancy().links();
    let made = links.create(tenant, visitor.session.behind, draft).await?;
    // Without a public URL, where this browser has the dashboard.
    let here = || format!("{}{}", origin.as_deref().unwrap_or_default(), made.path);
    Ok(MadeLink {
        url: links.whole(&made.path).unwrap_or_else(here),
        lifetime,
    })
}

//! Links that open one tenant's pages, for a while and for nothing else.
//!
//! A link is 256 random bits of which the store knows the digest, like a
//! session. Nothing is signed: there is no key to lose, a link ends with the
//! key of whoever made it, and every process knows it at once. Opening takes a
//! click on a page of ours, so that neither a mail scanner opens it nor the
//! strict cookie gets lost on its way from another site.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::{Scope, Scopes};
use domain::ids::TenantId;
use engine::ports::{BehindSession, CatalogError, NewSession, Session, SessionKind};
use http::header;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::sign_in::SESSION_LIFETIME;
use super::visitor::{
    Fields, Posted, Visitor, digest, new_held, own_form, scopes_of_links, session, set_cookie,
};
use super::{Asked, Pages};

/// For how long a link can be good, in words and in seconds.
pub const LINK_LIFETIMES: [(&str, u64); 3] = [
    ("one hour", 3_600),
    ("one day", 86_400),
    ("seven days", 604_800),
];

/// A link that was just made, to be shown once.
#[derive(Debug, Clone)]
pub struct MadeLink {
    /// Below the dashboard's address.
    pub path: String,
    /// In words.
    pub lifetime: &'static str,
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
    let link = found.filter(|session| session.kind == SessionKind::Link);
    link.ok_or_else(|| {
        Refused::new(
            http::StatusCode::NOT_FOUND,
            "This link is over, or never was.",
        )
    })
}

impl Pages {
    /// A link that opens all pages of a tenant with all rights, for so long: for
    /// whoever starts the process, as the demo does.
    pub async fn full_link(
        &self,
        tenant: TenantId,
        good_for: Duration,
    ) -> Result<String, CatalogError> {
        let token = new_held(self);
        let new = NewSession {
            digest: digest(&token),
            kind: SessionKind::Link,
            tenant,
            behind: BehindSession::Configured(self.0.app.gate().configured()),
            scopes: Scopes::ALL,
            good_for,
        };
        self.0.sessions.begin_session(&new).await?;
        Ok(format!("/dashboard/links/{token}"))
    }
}

pub(super) async fn show(
    State(pages): Asked,
    Path(token): Path<String>,
) -> Result<Html<String>, Refused> {
    let link = good(&pages, &token).await?;
    let tenant = pages.0.app.tenancy().tenant(link.tenant).await?;
    rendered(&OpenPage {
        frame: Frame::nobody("Open"),
        tenant: tenant.name,
        path: format!("/dashboard/links/{token}"),
    })
}

pub(super) async fn open(
    State(pages): Asked,
    Path(token): Path<String>,
    request: Request,
) -> Result<Response, Refused> {
    let headers = request.headers().clone();
    own_form(request, &pages).await?;
    let link = good(&pages, &token).await?;
    let held = new_held(&pages);
    let good_for = link.left.min(SESSION_LIFETIME);
    let new = NewSession {
        digest: digest(&held),
        kind: SessionKind::Opened,
        tenant: link.tenant,
        behind: link.behind,
        scopes: link.scopes,
        good_for,
    };
    pages.0.sessions.begin_session(&new).await?;
    let cookie = set_cookie(&headers, &held, good_for.as_secs());
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/dashboard")).into_response())
}

#[derive(askama::Template)]
#[template(path = "links.html")]
struct OwnPage {
    frame: Frame,
    lifetimes: [(&'static str, u64); 3],
    made: Option<MadeLink>,
}

pub(super) async fn own(State(pages): Asked, visitor: Visitor) -> Result<Html<String>, Refused> {
    may_make(&visitor)?;
    page(&pages, &visitor, None).await
}

pub(super) async fn make_own(
    State(pages): Asked,
    Posted { visitor, fields }: Posted,
) -> Result<Html<String>, Refused> {
    may_make(&visitor)?;
    let made = made(&pages, (&visitor, visitor.tenant()), &fields).await?;
    page(&pages, &visitor, Some(made)).await
}

/// An operator makes one for any tenant.
pub(super) async fn make(
    State(pages): Asked,
    Path(tenant): Path<String>,
    Posted { visitor, fields }: Posted,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let tenant = tenant
        .parse()
        .map_err(|_bad| Refused::not_found("tenant"))?;
    pages.0.app.tenancy().tenant(tenant).await?;
    let made = made(&pages, (&visitor, tenant), &fields).await?;
    page(&pages, &visitor, Some(made)).await
}

/// Not with a link: it must not make itself last longer.
fn may_make(visitor: &Visitor) -> Result<(), Refused> {
    visitor.needs(Scope::Manage)?;
    match visitor.session.kind {
        SessionKind::Key => Ok(()),
        SessionKind::Link | SessionKind::Opened => {
            let words = "A link makes no links. Sign in with a key.";
            Err(Refused::new(http::StatusCode::FORBIDDEN, words))
        }
    }
}

async fn page(
    pages: &Pages,
    visitor: &Visitor,
    made: Option<MadeLink>,
) -> Result<Html<String>, Refused> {
    rendered(&OwnPage {
        frame: Frame::of(pages, visitor, ("Links", "/dashboard/links")).await?,
        lifetimes: LINK_LIFETIMES,
        made,
    })
}

async fn made(
    pages: &Pages,
    (visitor, tenant): (&Visitor, TenantId),
    fields: &Fields,
) -> Result<MadeLink, Refused> {
    let asked = fields.get("seconds").and_then(|text| text.parse().ok());
    let known = LINK_LIFETIMES
        .into_iter()
        .find(|(_, seconds)| Some(*seconds) == asked);
    let (lifetime, seconds) = known.ok_or_else(|| Refused::invalid("seconds: no such lifetime"))?;
    let token = new_held(pages);
    let new = NewSession {
        digest: digest(&token),
        kind: SessionKind::Link,
        tenant,
        behind: visitor.session.behind,
        scopes: scopes_of_links(fields.has("may_change")),
        good_for: Duration::from_secs(seconds),
    };
    pages.0.sessions.begin_session(&new).await?;
    Ok(MadeLink {
        path: format!("/dashboard/links/{token}"),
        lifetime,
    })
}

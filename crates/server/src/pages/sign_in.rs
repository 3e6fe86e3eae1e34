//! Signing in with a key, and out.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use engine::ports::{NewSession, Session, SessionKind};
use http::{StatusCode, header};

use super::Asked;
use super::frame::{Frame, rendered};
use super::guest::is_in_frame;
use super::refused::Refused;
use super::visitor::{Posted, own_form, set_cookie};
use crate::access::key::digest;
use crate::service::ServiceError;

/// How long a session lasts, whatever is done in it: a working day.
pub(super) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3_600);

#[derive(askama::Template)]
#[template(path = "sign_in.html")]
struct Page {
    frame: Frame,
    problem: &'static str,
}

fn page(problem: &'static str) -> Result<Html<String>, Refused> {
    let frame = Frame::nobody("Sign in");
    rendered(&Page { frame, problem })
}

pub(super) async fn show(
    State(pages): Asked,
    headers: http::HeaderMap,
) -> Result<Html<String>, Refused> {
    // Nobody signs in with a key in a frame: there it is said that a guest is out.
    match pages.0.portal.may_be_framed() && is_in_frame(&headers) {
        true => Err(Refused::SignIn),
        false => page(""),
    }
}

pub(super) async fn begin(State(pages): Asked, request: Request) -> Result<Response, Refused> {
    let headers = request.headers().clone();
    let fields = own_form(request, &pages).await?;
    let key = fields.get("key").unwrap_or_default();
    let gate = pages.0.app.gate();
    let known = gate.identify(key).await.map_err(ServiceError::from)?;
    let Some(identity) = known else {
        let page = page("No such key, or it is revoked or expired.")?;
        return Ok((StatusCode::UNAUTHORIZED, page).into_response());
    };
    if !identity.scopes.contains(Scope::Read) {
        let page = page("This key lacks the scope read: it opens no page.")?;
        return Ok((StatusCode::FORBIDDEN, page).into_response());
    }
    let links = pages.0.app.tenancy().links();
    let held = links.new_held();
    let new = NewSession {
        digest: digest(&held),
        kind: SessionKind::Key,
        tenant: identity.tenant,
        behind: links.behind(identity.key),
        scopes: identity.scopes,
        good_for: SESSION_LIFETIME,
        name: String::new(),
        opened_by: None,
    };
    pages.0.sessions.begin_session(&new).await?;
    let seconds = SESSION_LIFETIME.as_secs();
    let cookie = set_cookie((&pages, &begun(&new)), &headers, &held, seconds);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/dashboard")).into_response())
}

/// As it is when it begins.
pub(super) fn begun(new: &NewSession) -> Session {
    Session {
        kind: new.kind,
        tenant: new.tenant,
        behind: new.behind,
        scopes: new.scopes,
        left: new.good_for,
        opened_by: new.opened_by,
    }
}

pub(super) async fn end(
    State(pages): Asked,
    headers: http::HeaderMap,
    posted: Posted,
) -> Result<Response, Refused> {
    pages.0.sessions.end_session(posted.visitor.digest).await?;
    let of = (&pages, &posted.visitor.session);
    let cookie = set_cookie(of, &headers, "", 0);
    let to = Redirect::to("/dashboard/sign-in");
    Ok(([(header::SET_COOKIE, cookie)], to).into_response())
}

//! What every answer says to its browser: nothing inline, nothing of others, and no
//! frame, but for pages of guests where the platform may frame those.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use super::Asked;
use super::guest::{Guest, is_in_frame};
use super::refused::{self, Refused, Said};
use crate::listening::Known;

/// Security headers on every answer. What a page shows is its visitor's, so no
/// cache keeps it; assets say otherwise themselves.
pub(super) async fn guarded(State(pages): Asked, mut request: Request, next: Next) -> Response {
    let guest = Guest::default();
    request.extensions_mut().insert(guest.clone());
    let portal = &pages.0.portal;
    // A page that only says why there is nothing to see: in a frame it is said there.
    let in_frame = portal.may_be_framed() && is_in_frame(request.headers());
    let method = request.method().clone();
    let mut response = next.run(request).await;
    if let Some(tenant) = guest.tenant() {
        let held = pages.0.app.hold(tenant, &method, response).await;
        response = held.unwrap_or_else(|full| Refused::from(full).into_response());
    }
    let said = response.extensions_mut().remove::<Said>();
    let is_said_here = said.is_some() && (in_frame || guest.is_one());
    if let Some(Said(words)) = said.filter(|_| is_said_here) {
        let status = match response.status() {
            status if status.is_redirection() => StatusCode::UNAUTHORIZED,
            status => status,
        };
        let page = refused::page(words, portal.brand());
        response = (status, page).into_response();
    }
    let is_framed = guest.is_one() || (in_frame && is_said_here);
    if guest.tenant().is_some() {
        response.extensions_mut().insert(Known);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, portal.policy(is_framed));
    if !(is_framed && portal.may_be_framed()) {
        let never = HeaderValue::from_static("DENY");
        headers.insert(header::X_FRAME_OPTIONS, never);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not `no-referrer`: forms would come from the origin `null`.
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let isolated = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-opener-policy", isolated.clone());
    headers.insert("cross-origin-resource-policy", isolated);
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

//! The dashboard: pages for people, beside the API and by the same service.
//!
//! All of it lies under `/dashboard`, so that an ingress can keep it inside
//! while `/v1` is open to the world, or the other way round. A page is HTML
//! that works without a script; the script only puts in what an event stream
//! says (`live`). Whoever signs in with a key sees his tenant's things and no
//! others (`visitor`); every form carries a token of its session.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use domain::ids::TenantId;
use engine::ports::{Catalog, Overview, Sessions, Store, Survey, Tallies, wanted};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api::App;
use crate::parts::Parts;
use crate::portal::Portal;
use crate::request_id;
use crate::service::Service;

use guest::GuestPages;
pub(crate) use visitor::cookie as held_by;

mod alerts;
mod assets;
mod attempt;
mod attempts;
mod audit;
mod begun;
mod bounds;
mod cancel;
mod change;
mod chart;
mod dead_letters;
mod delivery;
mod describe;
mod destination;
mod edit;
mod event_types;
mod events;
mod fleet;
mod frame;
mod guard;
mod guest;
mod handshake;
mod keys;
mod latency;
mod limit_groups;
mod links;
mod live;
mod names;
mod outcomes;
mod overview;
mod preview;
mod refused;
mod replay_preview;
mod requests;
mod resend;
mod searched;
mod secrets;
mod sign_in;
mod standing;
mod statistics;
mod sure;
mod tenant;
mod tenants;
mod tiers;
mod typed;
mod visitor;
mod watched;
mod words;

/// The largest form, but for those of the catalogue.
const MAX_FORM_BYTES: usize = 64 * 1_024;

/// The largest of somebody who has not signed in: a key, and room to spare.
pub(crate) const MAX_STRANGERS_FORM_BYTES: usize = 4 * 1_024;

/// Nobody waits for the page any more.
#[derive(Clone)]
struct Late(CancellationToken);

/// The largest form that goes to this path.
pub(crate) fn max_form_bytes(path: &str) -> usize {
    let below = path.strip_prefix("/dashboard/event-types");
    match below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        true => describe::MAX_BYTES,
        false => MAX_FORM_BYTES,
    }
}

/// How long a page may take; an event stream only until it begins.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// What every page has.
#[derive(Clone)]
pub struct Pages(Arc<Inner>);

struct Inner {
    app: App,
    store: Arc<dyn Store>,
    catalog: Arc<dyn Catalog>,
    survey: Arc<dyn Survey>,
    overview: Arc<dyn Overview>,
    tallies: Arc<dyn Tallies>,
    sessions: Arc<dyn Sessions>,
    portal: GuestPages,
    streams: live::Places,
    shutdown: CancellationToken,
}

/// What pages are told, beside the service.
pub struct PagesOptions {
    /// How pages by link look, and who may frame them.
    pub portal: Portal,
    /// Event streams end with it.
    pub shutdown: CancellationToken,
}

impl Pages {
    /// Over the API's service.
    #[must_use]
    pub fn new(app: App, parts: &Parts, options: PagesOptions) -> Self {
        Self(Arc::new(Inner {
            app,
            store: Arc::clone(&parts.reading.store),
            catalog: Arc::clone(&parts.reading.catalog),
            survey: Arc::clone(&parts.reading.survey),
            overview: Arc::clone(&parts.reading.overview),
            tallies: Arc::clone(&parts.reading.tallies),
            sessions: Arc::clone(&parts.stored) as _,
            portal: GuestPages::new(options.portal),
            streams: live::Places::new(),
            shutdown: options.shutdown,
        }))
    }

    fn service(&self, tenant: TenantId) -> Service {
        self.0.app.service_of(tenant)
    }
}

/// All pages.
pub fn router(pages: Pages) -> Router {
    let app = pages.0.app.clone();
    Router::new()
        .route("/", get(async || Redirect::to("/dashboard")))
        .route("/dashboard", get(overview::show))
        .route("/dashboard/live", get(overview::live))
        .route(
            "/dashboard/sign-in",
            get(sign_in::show).post(sign_in::begin),
        )
        .route("/dashboard/sign-out", post(sign_in::end))
        .route(
            "/dashboard/links/{token}",
            get(links::show).post(links::open),
        )
        .route("/dashboard/attempts", get(attempts::everywhere))
        .route("/dashboard/attempts/{id}", get(attempt::show))
        .route("/dashboard/attempts/{id}/cancel", post(cancel::one))
        .route("/dashboard/events", get(events::list))
        .route("/dashboard/events/{id}", get(events::show))
        .route("/dashboard/events/{id}/resend", post(resend::event))
        .route("/dashboard/events/resend", post(resend::everywhere))
        .route("/dashboard/dead-letters", get(dead_letters::list))
        .route("/dashboard/replays", post(dead_letters::replay))
        .route("/dashboard/replays/{id}", get(dead_letters::progress))
        .route("/dashboard/replays/{id}/live", get(dead_letters::live))
        .route("/dashboard/replays/{id}/cancel", post(dead_letters::cancel))
        .route("/dashboard/fleet", get(fleet::show))
        .route("/dashboard/fleet/live", get(fleet::live))
        .route("/dashboard/audit", get(audit::show))
        .route(
            "/dashboard/requests",
            get(requests::list).post(requests::create),
        )
        .route("/dashboard/requests/{id}", post(requests::decide))
        .merge(of_destinations())
        .merge(of_limit_groups())
        .merge(of_event_types())
        .merge(of_tenants())
        .merge(of_alerts())
        .route_layer(middleware::from_fn(to_its_end))
        .route("/dashboard/assets/{name}", get(assets::serve))
        .layer(middleware::from_fn_with_state(
            pages.clone(),
            guard::guarded,
        ))
        .layer(middleware::from_fn_with_state(app, request_id::assign))
        .with_state(pages)
}

/// Destinations, and what is set of one.
fn of_destinations() -> Router<Pages> {
    Router::new()
        .route("/dashboard/destinations", post(edit::create))
        .route("/dashboard/destinations/new", get(edit::add))
        .route("/dashboard/destinations/{id}", get(destination::show))
        .route(
            "/dashboard/destinations/{id}/edit",
            get(edit::show).post(edit::save),
        )
        .route("/dashboard/destinations/{id}/delete", post(edit::delete))
        .route("/dashboard/destinations/{id}/trial", post(edit::trial))
        .route("/dashboard/destinations/{id}/live", get(destination::live))
        .route("/dashboard/destinations/{id}/attempts", get(attempts::list))
        .route("/dashboard/destinations/{id}/limits", post(change::limits))
        .route("/dashboard/destinations/{id}/state", post(change::state))
        .route(
            "/dashboard/destinations/{id}/secrets",
            post(secrets::rotate),
        )
        .route(
            "/dashboard/destinations/{id}/secrets/{secret}",
            post(secrets::delete),
        )
        .route(
            "/dashboard/destinations/{id}/handshake",
            post(handshake::ask),
        )
        .route(
            "/dashboard/destinations/{id}/alerts",
            get(watched::show).post(watched::alerts),
        )
        .route(
            "/dashboard/destinations/{id}/breaker",
            post(watched::breaker),
        )
        .route("/dashboard/destinations/{id}/cancel", post(cancel::backlog))
        .route("/dashboard/destinations/{id}/resend", post(resend::missed))
}

/// Limits that several destinations have together.
fn of_limit_groups() -> Router<Pages> {
    Router::new()
        .route(
            "/dashboard/limit-groups",
            get(limit_groups::list).post(limit_groups::create),
        )
        .route(
            "/dashboard/limit-groups/{name}",
            get(limit_groups::show).post(limit_groups::save),
        )
        .route(
            "/dashboard/limit-groups/{name}/delete",
            post(limit_groups::delete),
        )
}

/// The catalogue of event types.
fn of_event_types() -> Router<Pages> {
    Router::new()
        .route(
            "/dashboard/event-types",
            get(event_types::list).post(describe::create),
        )
        .route("/dashboard/event-types/{name}", get(event_types::show))
        .route(
            "/dashboard/event-types/{name}/edit",
            get(describe::show).post(describe::save),
        )
        .route(
            "/dashboard/event-types/{name}/delete",
            post(describe::delete),
        )
}

/// Tenants, their keys and their links, and their tiers.
fn of_tenants() -> Router<Pages> {
    Router::new()
        .route(
            "/dashboard/tenants",
            get(tenants::list).post(tenants::create),
        )
        .route(
            "/dashboard/tenants/{id}",
            get(tenant::show).post(tenant::save),
        )
        .route("/dashboard/tenants/{id}/delete", post(tenant::delete))
        .route("/dashboard/tenants/{id}/live", get(tenant::live))
        .route("/dashboard/tenants/{id}/open", post(tenants::open))
        .route("/dashboard/tenants/{id}/keys", post(keys::create))
        .route("/dashboard/tenants/{id}/keys/{key}", post(keys::revoke))
        .route("/dashboard/tiers", get(tiers::list).post(tiers::create))
        .route(
            "/dashboard/tiers/{name}",
            get(tiers::show).post(tiers::save),
        )
        .route("/dashboard/tiers/{name}/delete", post(tiers::delete))
        .route("/dashboard/tenants/{id}/links", post(links::make))
        .route("/dashboard/tenants/{id}/links/{link}", post(links::end))
        .route("/dashboard/links", get(links::own).post(links::make_own))
}

/// When people are told, and who: of one's own tenant, and of any.
fn of_alerts() -> Router<Pages> {
    Router::new()
        .route(
            "/dashboard/alerts",
            get(alerts::own).post(alerts::change_own),
        )
        .route("/dashboard/alerts/addresses", post(alerts::add_own))
        .route("/dashboard/alerts/addresses/{id}", post(alerts::remove_own))
        .route("/dashboard/alerts/destinations", post(alerts::register_own))
        .route(
            "/dashboard/alerts/destinations/{id}",
            post(alerts::unregister_own),
        )
        .route(
            "/dashboard/tenants/{id}/alerts",
            get(alerts::show).post(alerts::change_any),
        )
        .route(
            "/dashboard/tenants/{id}/alerts/addresses",
            post(alerts::add_any),
        )
        .route(
            "/dashboard/tenants/{id}/alerts/addresses/{address}",
            post(alerts::remove_any),
        )
        .route(
            "/dashboard/tenants/{id}/alerts/destinations",
            post(alerts::register_any),
        )
        .route(
            "/dashboard/tenants/{id}/alerts/destinations/{destination}",
            post(alerts::unregister_any),
        )
}

/// In a task of its own: neither a browser that leaves nor a time-out of ours
/// must leave a store in mid-transaction. What only looks and is too late ends with
/// the statement it has begun, which the store bounds, and has its tenant's place
/// until then; what changes something is done whole, once it has its place.
async fn to_its_end(mut request: Request, next: Next) -> Response {
    let late = CancellationToken::new();
    request.extensions_mut().insert(Late(late.clone()));
    let looks = request.method().is_safe();
    // Dropped with the browser's connection.
    let _left = late.clone().drop_guard();
    let while_wanted = if looks {
        late.clone()
    } else {
        CancellationToken::new()
    };
    let page = wanted::until(while_wanted, next.run(request));
    let page = tokio::spawn(page.in_current_span());
    match tokio::time::timeout(PAGE_TIMEOUT, page).await {
        Ok(Ok(response)) => response,
        Ok(Err(broken)) => refused::Refused::broken(&broken).into_response(),
        Err(_late) => {
            late.cancel();
            refused::Refused::unavailable("This took too long.").into_response()
        }
    }
}

/// What pages share: who asks, as handlers have it.
type Asked = State<Pages>;

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::MethodRouter;
    use http::StatusCode;
    use tokio::time::{Instant, sleep};
    use tower::ServiceExt;

    use super::*;

    async fn is_too_late(page: MethodRouter) {
        let pages = Router::new()
            .route("/", page)
            .route_layer(middleware::from_fn(to_its_end));
        let request = Request::get("/").body(Body::empty());
        let answer = pages.oneshot(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    /// It asks for one thing after another, and for nothing more once it is late.
    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_too_late_begins_nothing_more() {
        const STATEMENT: Duration = Duration::from_secs(7);
        let ended = CancellationToken::new();
        let at_the_end = ended.clone();
        let page = async move || {
            while wanted::check().is_ok() {
                sleep(STATEMENT).await;
            }
            at_the_end.cancel();
        };
        let began = Instant::now();
        is_too_late(get(page)).await;
        ended.cancelled().await;
        assert!(began.elapsed() <= PAGE_TIMEOUT + STATEMENT);
        assert!(wanted::check().is_ok(), "others are wanted");
    }

    /// Dropped in the middle of a query, it would leave a connection in a state
    /// that its pool does not know.
    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_too_late_is_answered_and_still_ends_by_itself() {
        let ended = CancellationToken::new();
        let at_the_end = ended.clone();
        let page = async move || {
            sleep(PAGE_TIMEOUT * 2).await;
            at_the_end.cancel();
        };
        let began = Instant::now();
        is_too_late(get(page)).await;
        assert!(began.elapsed() < PAGE_TIMEOUT * 2);
        ended.cancelled().await;
        assert!(began.elapsed() >= PAGE_TIMEOUT * 2);
    }
}

//! HTTP API v1: JSON in, JSON out, problems by RFC 9457.
//!
//! Handlers translate; [`crate::service`] decides. A handler that asks a store
//! does so in a task of its own (`App::run`): hyper drops a handler when its
//! client hangs up, and a store must not be left in mid-transaction. Every
//! request is bounded in bytes before it is read ([`body`]), and all of them
//! together in bytes, too.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api_key::ApiKey;
use crate::health;
use crate::service::{Service, ServiceError};

pub mod attempts;
pub mod body;
pub mod bulk;
pub mod cancel;
pub mod dead_letters;
pub mod destination_health;
pub mod destinations;
pub mod events;
mod idempotency;
pub mod limits;
pub mod parameters;
pub mod problem;
pub mod replays;
pub mod retries;
pub mod text;
mod traffic;

use problem::Problem;

/// How long a request may take, reading its body included. Above what a store
/// is given for a statement, so that its own answer comes first.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What every handler has.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    key: ApiKey,
    room: Arc<body::Room>,
    bulk: bulk::Places,
}

impl App {
    /// A service behind a key.
    #[must_use]
    pub fn new(service: Service, key: ApiKey) -> Self {
        Self(Arc::new(Inner {
            service: Arc::new(service),
            key,
            room: Arc::new(body::Room::new()),
            bulk: bulk::Places::new(),
        }))
    }

    /// Runs `work` to its end, even if the client does not wait for it.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Service>) -> F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServiceError>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.0.service));
        match tokio::spawn(work).await {
            Ok(done) => Ok(done?),
            Err(broken) => Err(ServiceError::Internal(broken.to_string()).into()),
        }
    }
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Paceline", description = "Delivers webhooks to every destination at exactly the rate it allows."),
    modifiers(&BearerKey),
    components(schemas(bulk::BulkEnd)),
    tags(
        (name = "destinations", description = "Endpoints with their own limits."),
        (name = "events", description = "Payloads, accepted once and delivered at least once."),
        (name = "dead letters", description = "Events that were given up, and their way back."),
        (name = "health", description = "For orchestrators; without a key.")
    )
)]
struct Document;

struct BearerKey;

impl Modify for BearerKey {
    fn modify(&self, document: &mut OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        document
            .components
            .get_or_insert_default()
            .security_schemes
            .insert("key".to_owned(), SecurityScheme::Http(scheme).into());
    }
}

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(destinations::create, destinations::list))
        .routes(routes!(
            destinations::show,
            destinations::change,
            destinations::delete
        ))
        .routes(routes!(destination_health::show))
        .routes(routes!(destination_health::change_breaker))
        .routes(routes!(destination_health::pause))
        .routes(routes!(destination_health::resume))
        .routes(routes!(attempts::list))
        .routes(routes!(retries::show, retries::set))
        .routes(routes!(cancel::backlog))
        .routes(routes!(cancel::attempt))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show))
        .routes(routes!(replays::create))
        .routes(routes!(replays::show))
        .routes(routes!(replays::cancel))
        .routes(routes!(events::post))
        .routes(routes!(events::post_batch))
        .routes(routes!(bulk::post_bulk))
        .routes(routes!(events::show))
}

/// The description of every route, served and tested.
#[must_use]
pub fn openapi() -> OpenApi {
    let mut document = Document::openapi();
    document.merge(routes().into_openapi());
    document.merge(health::routes().into_openapi());
    document
}

/// The API and its description.
pub fn router(app: App) -> Router {
    let (v1, _) = routes().split_for_parts();
    let v1 = v1
        .route_layer(middleware::from_fn_with_state(app.clone(), authenticate))
        .route_layer(middleware::from_fn(bound_time))
        .route_layer(middleware::from_fn(traffic::measure))
        .with_state(app);
    let document = Arc::new(openapi());
    v1.route(
        "/openapi.json",
        get(async move || Json(document.as_ref().clone())),
    )
    .fallback(async || Problem::no_route())
    .method_not_allowed_fallback(async || Problem::no_method())
}

/// `Authorization: Bearer KEY`, or 401. Before the body is read.
async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let offered = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, key)| key.trim());
    if offered.is_some_and(|key| app.0.key.is(key)) {
        next.run(request).await
    } else {
        Problem::unauthorized().into_response()
    }
}

async fn bound_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::too_slow().into_response(),
    }
}

//! HTTP API v1: JSON in, JSON out, problems by RFC 9457.
//!
//! Handlers translate; [`crate::service`] decides. A handler that asks a store
//! does so in a task of its own (`Caller::run`): hyper drops a handler when its
//! client hangs up, and a store must not be left in mid-transaction. Every
//! request is bounded in bytes before it is read ([`body`]), and all of them
//! together in bytes, too, as are the answers that are not read yet. Whoever calls reaches his tenant's things and no
//! others (`caller`).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use domain::ids::TenantId;
use http::{Method, header};
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Gate;
use crate::access::required::Required;
use crate::health;
use crate::request_id;
use crate::service::rate::ManageRates;
use crate::service::{Service, ServiceError, Tenancy};

pub(crate) mod acting;
pub(crate) mod answers;
pub mod attempts;
pub mod batches;
pub mod body;
pub mod bulk;
pub(crate) mod caller;
pub mod cancel;
pub mod compliance;
pub mod credentials;
pub mod dead_letters;
pub mod destination_health;
pub mod destinations;
pub mod event_types;
pub mod events;
mod examples;
pub mod fleet;
pub mod handshake;
mod idempotency;
pub mod keys;
pub mod limit_groups;
pub mod limit_requests;
pub mod limits;
pub mod links;
pub(crate) mod lists;
pub mod named;
pub mod notices;
pub mod operations;
pub mod parameters;
pub mod plan;
pub mod problem;
mod rate;
pub mod replays;
pub mod resend;
pub mod retries;
pub mod secrets;
pub mod smart_delivery;
pub mod standings;
pub mod statistics;
pub mod tenants;
pub mod text;
pub mod tiers;
mod trace_headers;
mod traffic;
pub mod trial;

use caller::Caller;
use problem::Problem;

/// How long a request may take, reading its body included. Above what a store
/// is given for a statement, so that its own answer comes first.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What every handler has.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    service: Service,
    tenancy: Arc<Tenancy>,
    gate: Arc<Gate>,
    required: &'static Required,
    manage: ManageRates,
    room: Arc<body::Room>,
    answers: Arc<body::Room>,
    bulk: bulk::Places,
    acting: acting::Acting,
}

impl App {
    /// A service, and its administration, behind a gate, of which tenants make so many
    /// management calls.
    #[must_use]
    pub fn new(service: Service, tenancy: Tenancy, gate: Arc<Gate>, manage: ManageRates) -> Self {
        Self(Arc::new(Inner {
            service,
            tenancy: Arc::new(tenancy),
            gate,
            manage,
            required: required(),
            room: Arc::new(body::Room::of_bodies()),
            answers: Arc::new(body::Room::of_answers()),
            bulk: bulk::Places::default(),
            acting: acting::Acting::default(),
        }))
    }

    /// What a tenant can do: the dashboard does the same.
    pub(crate) fn service_of(&self, tenant: TenantId) -> Service {
        self.0.service.of(tenant, None)
    }

    /// A new id, for a request.
    pub(crate) fn new_id(&self) -> uuid::Uuid {
        self.0.service.new_id()
    }

    /// Takes a management call of a tenant's, if it may make one now.
    pub(crate) fn manage(&self, tenant: TenantId) -> Result<(), ServiceError> {
        self.0.manage.take(tenant)
    }

    /// Gives the answer to a request of a tenant's room until it is written. One that
    /// only shows something is refused where there is none; what was done is said.
    pub(crate) async fn hold(
        &self,
        tenant: TenantId,
        method: &Method,
        answer: Response,
    ) -> Result<Response, Problem> {
        match method.is_safe() {
            true => self.0.answers.hold(tenant, answer).await,
            false => Ok(self.0.room.hold_anyway(tenant, answer).await),
        }
    }

    /// Forgets what it knows of the tenants that platforms act for: one was changed.
    pub(crate) fn forget_tenants(&self) {
        self.0.acting.forget();
    }

    /// What administrators do.
    pub(crate) fn tenancy(&self) -> &Arc<Tenancy> {
        &self.0.tenancy
    }

    /// What knows keys.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0.gate
    }
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Paceline", description = "Delivers webhooks to every destination at exactly the rate it allows."),
    modifiers(&BearerKey),
    components(schemas(bulk::BulkEnd)),
    tags(
        (name = "destinations", description = "Endpoints with their own limits."),
        (name = "limit groups", description = "One exact limit that several destinations have together."),
        (name = "events", description = "Payloads, accepted once and delivered at least once."),
        (name = "event types", description = "What the platform says of the types of its events."),
        (name = "operations", description = "What operators must know, and who is told."),
        (name = "dead letters", description = "Events that were given up, and their way back."),
        (name = "tenants", description = "Tenants, their keys and links, and plan tiers: for the scope `admin`."),
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
    of_destinations().merge(of_events()).merge(of_tenants())
}

/// What a destination has, and what is read of it.
fn of_destinations() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(destinations::create, destinations::list))
        .routes(routes!(
            destinations::show,
            destinations::put,
            destinations::change,
            destinations::delete
        ))
        .routes(routes!(destination_health::show))
        .routes(routes!(destination_health::change_breaker))
        .routes(routes!(destination_health::pause))
        .routes(routes!(destination_health::resume))
        .routes(routes!(operations::alerts, operations::change_alerts))
        .routes(routes!(smart_delivery::show, smart_delivery::change))
        .routes(routes!(handshake::show, handshake::ask))
        .routes(routes!(compliance::report))
        .routes(routes!(standings::explain))
        .routes(routes!(standings::list))
        .routes(routes!(statistics::show))
        .routes(routes!(plan::try_limits))
        .routes(routes!(trial::destination))
        .routes(routes!(attempts::list))
        .routes(routes!(retries::show, retries::set))
        .routes(routes!(batches::show, batches::set))
        .routes(routes!(cancel::backlog))
        .routes(routes!(resend::events))
        .routes(routes!(resend::preview_events))
        .routes(routes!(secrets::list, secrets::create))
        .routes(routes!(secrets::delete))
}

/// Events, and what becomes of them.
fn of_events() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(attempts::find))
        .routes(routes!(attempts::show))
        .routes(routes!(cancel::attempt))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show))
        .routes(routes!(replays::list, replays::create))
        .routes(routes!(replays::preview))
        .routes(routes!(replays::show))
        .routes(routes!(replays::cancel))
        .routes(routes!(resend::event))
        .routes(routes!(resend::everywhere))
        .routes(routes!(resend::preview_everywhere))
        .routes(routes!(events::list, events::post))
        .routes(routes!(events::post_batch))
        .routes(routes!(bulk::post_bulk))
        .routes(routes!(events::show))
        .routes(routes!(events::payload))
}

/// Tenants, who may do what for them, and what all of them share.
fn of_tenants() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(
            operations::tenant_alerts,
            operations::change_tenant_alerts
        ))
        .routes(routes!(operations::register, operations::unregister))
        .routes(routes!(operations::list))
        .routes(routes!(operations::events))
        .routes(routes!(notices::list, notices::create))
        .routes(routes!(notices::delete))
        .routes(routes!(fleet::list))
        .routes(routes!(event_types::list, event_types::create))
        .routes(routes!(
            event_types::show,
            event_types::change,
            event_types::delete
        ))
        .routes(routes!(tenants::create, tenants::list))
        .routes(routes!(
            tenants::show,
            tenants::put,
            tenants::change,
            tenants::delete
        ))
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::revoke))
        .routes(routes!(keys::identify))
        .routes(routes!(links::create, links::list))
        .routes(routes!(links::revoke))
        .routes(routes!(limit_groups::list))
        .routes(routes!(
            limit_groups::show,
            limit_groups::put,
            limit_groups::delete
        ))
        .routes(routes!(limit_requests::create))
        .routes(routes!(
            limit_requests::list,
            limit_requests::create_for_tenant
        ))
        .routes(routes!(limit_requests::list_all))
        .routes(routes!(limit_requests::approve))
        .routes(routes!(limit_requests::decline))
        .routes(routes!(tiers::list, tiers::create))
        .routes(routes!(tiers::change, tiers::delete))
}

/// The description of every route, served and tested.
#[must_use]
pub fn openapi() -> OpenApi {
    document_of(routes().into_openapi())
}

fn document_of(routes: OpenApi) -> OpenApi {
    let mut document = Document::openapi();
    document.merge(routes);
    rate::describe(&mut document);
    request_id::describe(&mut document);
    document.merge(health::routes().into_openapi());
    acting::describe(&mut document);
    answers::describe(&mut document);
    examples::describe(&mut document);
    document
}

/// What is made of all routes and of what is said of them.
struct Made {
    routes: Router<App>,
    required: Required,
    description: Bytes,
}

/// Once in a process: it takes a while, and tests put the API before many stores.
static MADE: LazyLock<Made> = LazyLock::new(|| {
    let (routes, described) = routes().split_for_parts();
    let document = document_of(described);
    let description = serde_json::to_vec(&document).expect("it has strings for its keys");
    Made {
        routes,
        required: Required::of(&document),
        description: description.into(),
    }
});

/// What each route asks of a key.
#[must_use]
pub fn required() -> &'static Required {
    &MADE.required
}

/// The API and its description.
pub fn router(app: App) -> Router {
    let v1 = (MADE.routes.clone())
        .route_layer(middleware::from_fn_with_state(
            app.clone(),
            caller::authenticate,
        ))
        .route_layer(middleware::from_fn(bound_time))
        .route_layer(middleware::from_fn(traffic::measure))
        .with_state(app.clone());
    v1.route("/openapi.json", described())
        .fallback(async || Problem::no_route())
        .method_not_allowed_fallback(async || Problem::no_method())
        .layer(middleware::from_fn_with_state(app, request_id::assign))
}

/// The description of every route, for anybody.
pub(crate) fn described<S: Clone + Send + Sync + 'static>() -> MethodRouter<S> {
    let description = MADE.description.clone();
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    get(async move || (content_type, description.clone()))
}

async fn bound_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::too_slow().into_response(),
    }
}

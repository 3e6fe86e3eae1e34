//! A running API and a client of it, in this process.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use adapters::http::Policy;
use adapters::in_process::InProcessSchedule;
use adapters::key_ring::KeyRing;
use adapters::sqlite::SqliteStore;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use domain::backpressure::BacklogBounds;
use domain::ingest_limit::IngestLimit;
use domain::signature::HeaderPrefix;
use domain::time::Timestamp;
use engine::backpressure::Pressure;
use engine::ingest::{Ingest, IngestOptions};
use engine::ports::{Backlog, Backpressure, Catalog, Overview, SecretStore, Store};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use secrecy::SecretString;
use serde_json::Value;
use server::access::Gate;
use server::api::{self, App};
use server::edge::Mint;
use server::parts::Reading;
use server::service::rate::{IngestRates, ManageRates};
use server::service::secrets::Signing;
use server::service::{Books, Intake, Registers, Service, Tenancy};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::store::FakeStore;
use crate::unmanaged::Unmanaged;

pub(crate) const KEY: &str = "test-key-0123456789";

const SECRET_KEY: &str = "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// 2026-01-31T12:00:00Z.
pub(crate) const NOON: Timestamp = Timestamp::from_millis(1_769_860_800_000);

pub(crate) struct World {
    pub(crate) store: Arc<FakeStore>,
    /// What the routes of operations ask.
    pub(crate) operations: Arc<SqliteStore>,
    pub(crate) schedule: Arc<InProcessSchedule>,
    router: Router,
    _ingest: tokio_util::sync::DropGuard,
}

/// Wide, but for one destination's: above 80 events are refused.
fn bounds() -> BacklogBounds {
    BacklogBounds {
        destination: NonZeroU64::new(100).unwrap(),
        ..BacklogBounds::default()
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) content_type: String,
    pub(crate) json: Value,
}

impl World {
    pub(crate) fn new() -> Self {
        let store = Arc::new(FakeStore::default());
        let backlog = SqliteStore::in_memory(Arc::new(|| NOON)).unwrap();
        let signing = store.clone();
        Self::over(
            store.clone(),
            (store.clone(), store),
            Arc::new(backlog),
            signing,
            None,
        )
    }

    /// The API over other ports than the fake's; without an overview, that of its own
    /// tenants.
    pub(crate) fn over<B: Backlog + Backpressure + 'static>(
        fake: Arc<FakeStore>,
        (store, catalog): (Arc<dyn Store>, Arc<dyn Catalog>),
        backlog: Arc<B>,
        secrets: Arc<dyn SecretStore>,
        overview: Option<Arc<dyn Overview>>,
    ) -> Self {
        let schedule = Arc::new(InProcessSchedule::new());
        let (ingest, back) = Ingest::new(store.clone(), schedule.clone(), IngestOptions::default());
        let stop = CancellationToken::new();
        tokio::spawn(back.run(stop.clone()));
        let mint = Arc::new(Mint::new(|| NOON, StdRng::seed_from_u64(7)));
        let tenancy = SqliteStore::in_memory(Arc::new(|| NOON)).unwrap();
        let tenancy = Arc::new(tenancy);
        let gate = Gate::new(tenancy.clone(), &SecretString::from(KEY));
        let gate = Arc::new(gate);
        let rates = IngestRates::new(IngestLimit::default());
        let pressure = Arc::new(Pressure::new(bounds()));
        let intake = Intake::new(ingest, pressure, backlog.clone(), rates);
        let operations = tenancy.clone();
        let (survey, tenants) = (tenancy.clone(), tenancy.clone());
        let registers = Registers {
            tenants: tenancy.clone(),
            keys: tenancy.clone(),
            sessions: tenancy.clone(),
            event_types: tenancy,
        };
        let tenancy = Tenancy::new(registers, gate.clone(), mint.clone());
        let signing = Signing {
            secrets: secrets.clone(),
            vault: Arc::new(KeyRing::parse(SECRET_KEY).unwrap()),
            prefix: HeaderPrefix::default(),
        };
        let reading = Reading {
            at_once: 4,
            store,
            catalog: catalog.clone(),
            backlog: backlog.clone(),
            operations_book: operations.clone(),
            survey,
            overview: overview.unwrap_or(operations.clone()),
            tallies: operations.clone(),
            event_types: operations.clone(),
            managers: Arc::new(Unmanaged),
            requests: Arc::new(Unmanaged),
            secrets,
        };
        let books = Books {
            reading,
            catalog,
            backlog,
            operations: operations.clone(),
            managers: Arc::new(Unmanaged),
            tenants,
            requests: Arc::new(Unmanaged),
        };
        let policy = Policy::default();
        let service = Service::new(books, schedule.clone(), intake, mint, policy, signing);
        Self {
            store: fake,
            operations,
            schedule,
            router: api::router(App::new(
                service,
                tenancy,
                gate,
                ManageRates::new(NonZeroU32::MAX),
            )),
            _ingest: stop.drop_guard(),
        }
    }

    pub(crate) async fn request(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let headers = response.headers().clone();
        let content_type = headers
            .get("content-type")
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            headers,
            content_type,
            json: serde_json::from_slice(&body).unwrap_or(Value::Null),
        }
    }

    /// The lines of a bulk body's answer, and its last line.
    pub(crate) async fn bulk(&self, body: impl Into<Body>) -> (Vec<Value>, Value) {
        bulk_lines(self.begin_bulk(body).await).await
    }

    /// Its answer, of which nothing is read yet.
    pub(crate) async fn begin_bulk(&self, body: impl Into<Body>) -> Response {
        let request = Request::post("/v1/events/bulk")
            .header("authorization", format!("Bearer {KEY}"))
            .header("content-type", "application/x-ndjson")
            .body(body.into());
        let router = self.router.clone();
        router.oneshot(request.unwrap()).await.unwrap()
    }

    /// The last line of such an answer.
    pub(crate) async fn bulk_end(&self, request: Request<Body>) -> Value {
        let response = self.router.clone().oneshot(request).await.unwrap();
        bulk_lines(response).await.1
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {KEY}"))
            .header("content-type", "application/json")
            .body(body.into())
            .unwrap();
        self.request(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl ToString) -> Answer {
        self.send(Method::POST, path, body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: impl ToString) -> Answer {
        self.send(Method::PUT, path, body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, body: impl ToString) -> Answer {
        self.send(Method::PATCH, path, body.to_string()).await
    }

    /// A destination of these settings; its path.
    pub(crate) async fn destination(&self, settings: Value) -> String {
        let mut body = settings;
        body["url"] = "https://example.com/hooks".into();
        let answer = self.post("/v1/destinations", body).await;
        assert_eq!(answer.status, 201, "{}", answer.json);
        format!("/v1/destinations/{}", answer.json["id"].as_str().unwrap())
    }
}

impl Answer {
    /// It refuses this field, with this status.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, field: &str) {
        assert_eq!(self.status, status, "{}", self.json);
        assert_eq!(self.content_type, "application/problem+json");
        assert_eq!(self.json["field"], field, "{}", self.json);
        assert_eq!(self.json["status"], status);
    }
}

/// What a bulk body is answered: its lines, and the last.
pub(crate) async fn bulk_lines(response: Response) -> (Vec<Value>, Value) {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let answer = response.into_body().collect().await.unwrap().to_bytes();
    let lines = answer.split_inclusive(|byte| *byte == b'\n');
    let mut lines: Vec<Value> = lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let end = lines.pop().unwrap();
    (lines, end)
}

//! `/livez`, `/readyz`, `/metrics`: what orchestrators and people look at.
//!
//! *Live* is whether this process answers at all, so it touches nothing: a
//! store that is away must not get every process restarted. *Ready* is the
//! truth about each part, at most a second old. Anybody may ask, so asking
//! often costs the parts nothing ([`look`]), and those who can reach the API
//! are not told in which words a part failed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use engine::ports::DeliveryQueue;
use engine::roles::Role;
use http::{StatusCode, header};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::parts::Parts;

pub mod look;

use look::Look;

/// From half a millisecond to half a minute.
const LATENCY_BUCKETS: [f64; 16] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
];

/// From a hundredth of a second to a day: how long what is due waits for a
/// limit.
const LAG_BUCKETS: [f64; 14] = [
    0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0,
];

/// How many rows, permits or events go together.
const BATCH_BUCKETS: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];

/// How often the parts are asked for `/metrics`.
const UPKEEP: Duration = Duration::from_secs(5);

/// A gauge that nobody has set for so long is not exported any more: its
/// destination is not shown, or whoever knew it has stopped. Longer than a
/// round of the survey where very many destinations have a backlog.
const GAUGES_LAST: Duration = Duration::from_secs(120);

/// What the three routes look at.
#[derive(Clone)]
pub struct Health {
    store: Arc<Look<()>>,
    schedule: Arc<Look<()>>,
    queue: Option<Arc<dyn DeliveryQueue>>,
    role: Role,
    metrics: PrometheusHandle,
    shutdown: CancellationToken,
    audience: Audience,
}

/// Who can reach a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Those who run Paceline: a failure is told in its own words, which can
    /// name hosts and databases.
    Operators,
    /// Whoever can reach the API: they learn which part failed, and no more.
    Everybody,
}

/// The answer of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Readiness {
    /// All that this role cannot do without is well.
    pub ready: bool,
    /// The process is going down and takes nothing new.
    pub draining: bool,
    /// The store.
    pub store: Part,
    /// The schedule.
    pub schedule: Part,
    /// The delivery queue; absent in a role that does not use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Part>,
}

/// One part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Part {
    /// It answers, and can be worked with.
    pub ready: bool,
    /// Why it cannot. Where the API is served as well, it is in the log instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Part {
    fn new<E: ToString>(answer: Result<(), E>) -> Self {
        let problem = answer.err().map(|error| error.to_string());
        Self {
            ready: problem.is_none(),
            problem,
        }
    }
}

impl Readiness {
    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let both = [&mut self.store, &mut self.schedule];
        both.into_iter().chain(self.queue.as_mut())
    }
}

impl Health {
    /// Of these parts.
    #[must_use]
    pub fn new(
        role: Role,
        parts: &Parts,
        metrics: PrometheusHandle,
        shutdown: CancellationToken,
    ) -> Self {
        let (stored, jobs) = (Arc::clone(&parts.stored), Arc::clone(&parts.schedule));
        let store = Look::new(move || {
            let stored = Arc::clone(&stored);
            async move { stored.ready().await.map_err(|error| error.to_string()) }
        });
        let schedule = Look::new(move || {
            let jobs = Arc::clone(&jobs);
            async move {
                let life = jobs.life().await;
                life.map(drop).map_err(|error| error.to_string())
            }
        });
        Self {
            store: Arc::new(store),
            schedule: Arc::new(schedule),
            queue: parts.queue.clone(),
            role,
            metrics,
            shutdown,
            audience: Audience::Operators,
        }
    }

    /// The same, as it is shown to others.
    #[must_use]
    pub fn shown_to(&self, audience: Audience) -> Self {
        Self {
            audience,
            ..self.clone()
        }
    }

    async fn readiness(&self) -> Readiness {
        let (store, schedule) = tokio::join!(self.store.now(), self.schedule.now());
        let (store, schedule) = (Part::new(store), Part::new(schedule));
        let queue = self.queue.as_ref().map(|queue| Part::new(queue.health()));
        let draining = self.shutdown.is_cancelled();
        // The API accepts events without a schedule, and the operator makes changes:
        // the sweep finds them.
        let needs_schedule = !matches!(self.role, Role::Api | Role::Operator);
        let parts = [
            Some(&store),
            Some(&schedule).filter(|_| needs_schedule),
            queue.as_ref(),
        ];
        Readiness {
            ready: !draining && parts.into_iter().flatten().all(|part| part.ready),
            draining,
            store,
            schedule,
            queue,
        }
    }
}

/// `/livez` and `/readyz`, without authentication.
pub fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health)
}

/// `/metrics`, without authentication.
pub fn metrics_router(health: Health) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(health)
}

/// The same where there are no parts.
pub(crate) fn rendered(metrics: PrometheusHandle) -> Router {
    Router::new().route("/metrics", get(async move || shown(&metrics)))
}

/// All three, to be described.
pub(crate) fn routes() -> OpenApiRouter<Health> {
    OpenApiRouter::new()
        .routes(routes!(livez))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
}

/// Whether the process answers; touches nothing.
#[utoipa::path(get, path = "/livez", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn livez() -> &'static str {
    "live\n"
}

/// Whether every part can be worked with, as of the last second.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "Ready.", body = Readiness),
    (status = 503, description = "Not ready; says which part is not.", body = Readiness)))]
pub(crate) async fn readyz(State(health): State<Health>) -> Response {
    let mut readiness = health.readiness().await;
    if health.audience == Audience::Everybody {
        for part in readiness.parts_mut() {
            part.problem = None;
        }
    }
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(readiness)).into_response()
}

/// Metrics in the text format of Prometheus. Where metrics have a listener of
/// their own, they are served there alone.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(health): State<Health>) -> Response {
    shown(&health.metrics)
}

fn shown(metrics: &PrometheusHandle) -> Response {
    let content_type = (
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    );
    ([content_type], metrics.render()).into_response()
}

/// The recorder of this process: there is one of them, whoever asks.
static RECORDER: Mutex<Option<PrometheusHandle>> = Mutex::new(None);

/// Makes metrics go somewhere: to the same place for all that run in one process.
pub fn install_metrics() -> anyhow::Result<PrometheusHandle> {
    let mut recorder = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(installed) = recorder.as_ref() {
        return Ok(installed.clone());
    }
    let installed = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &LATENCY_BUCKETS)
        .context("set the buckets of latencies")?
        .set_buckets_for_metric(
            Matcher::Full("paceline_limiter_lag_seconds".to_owned()),
            &LAG_BUCKETS,
        )
        .context("set the buckets of lags")?
        .set_buckets_for_metric(Matcher::Suffix("_permits".to_owned()), &BATCH_BUCKETS)
        .context("set the buckets of batches of permits")?
        .set_buckets_for_metric(Matcher::Suffix("_events".to_owned()), &BATCH_BUCKETS)
        .context("set the buckets of batches of events")?
        .idle_timeout(MetricKindMask::GAUGE, Some(GAUGES_LAST))
        .install_recorder()
        .context("install the metrics")?;
    Ok(recorder.insert(installed).clone())
}

/// Keeps the histograms' memory bounded where nobody scrapes, and says how the
/// parts are.
pub async fn upkeep(health: Health, shutdown: CancellationToken) {
    let mut known = Problems::default();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = health.measure(&mut known) => {}
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(UPKEEP) => health.metrics.run_upkeep(),
        }
    }
}

/// What each part was found to lack last, so that each change is logged once.
#[derive(Default)]
struct Problems([Option<String>; 3]);

impl Problems {
    fn note(&mut self, at: usize, name: &str, part: &Part) {
        let Some(known) = self.0.get_mut(at).filter(|known| **known != part.problem) else {
            return;
        };
        known.clone_from(&part.problem);
        match known {
            Some(problem) => tracing::warn!(part = name, problem, "not ready"),
            None => tracing::info!(part = name, "ready again"),
        }
    }
}

impl Health {
    /// Sets the gauges of the process and of its parts.
    async fn measure(&self, known: &mut Problems) {
        let (version, role) = (env!("CARGO_PKG_VERSION"), self.role.as_str());
        metrics::gauge!("paceline_build_info", "version" => version, "role" => role).set(1);
        let readiness = self.readiness().await;
        let parts = [
            ("store", Some(&readiness.store)),
            ("schedule", Some(&readiness.schedule)),
            ("queue", readiness.queue.as_ref()),
        ];
        for (at, (name, part)) in parts.into_iter().enumerate() {
            if let Some(part) = part {
                metrics::gauge!("paceline_part_up", "part" => name).set(u32::from(part.ready));
                known.note(at, name, part);
            }
        }
    }
}

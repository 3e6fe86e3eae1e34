//! `/livez`, `/readyz` and `/metrics` of a router.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Routing, shards};
use crate::health;

/// How often each shard is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The answer of `/readyz`. A shard that is away does not make a router less ready: it
/// serves the others' tenants, and tells its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// It takes requests.
    pub ready: bool,
    /// It is going down and takes nothing new.
    pub draining: bool,
    /// Each shard, and whether it was ready at the last look.
    pub shards: BTreeMap<String, bool>,
}

impl Routing {
    /// How it is.
    #[must_use]
    pub fn readiness(&self, shutdown: &CancellationToken) -> Readiness {
        let draining = shutdown.is_cancelled();
        let shards = self.0.shards.all();
        let said = |shard: &shards::Shard| (shard.name().to_string(), shard.is_ready());
        Readiness {
            ready: !draining,
            draining,
            shards: shards.map(said).collect(),
        }
    }

    /// `/livez` and `/readyz`, without authentication.
    pub fn probes(&self, shutdown: CancellationToken) -> Router {
        Router::new()
            .route("/livez", get(health::livez))
            .route("/readyz", get(readyz))
            .with_state((self.clone(), shutdown))
    }
}

async fn readyz(State((routing, shutdown)): State<(Routing, CancellationToken)>) -> Response {
    let readiness = routing.readiness(&shutdown);
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(readiness)).into_response()
}

//! `/work` of a scheduler: how much there is to deliver now, for autoscalers.
//!
//! Counted in permits and requests, not in messages, and in the store, which
//! knows it exactly. What waits for a limit, a pause or a receiver's backoff is
//! no work: more workers would not start it any sooner. Every scheduler gives
//! the same answer, since all ask the same store; at most once a second.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use engine::ports::{Fleet, Store};
use http::StatusCode;
use serde::Serialize;

use crate::health::look::Look;

/// Where it is asked for.
pub const PATH: &str = "/work";

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Both of the following together: what workers are needed for.
    pub work: u32,
    /// Permits that are given and not yet started.
    pub permits: u32,
    /// Requests that are under way.
    pub in_flight: u32,
    /// How many requests the live workers can have in flight.
    pub places: u32,
    /// The live workers.
    pub workers: u32,
}

impl From<&Fleet> for Work {
    fn from(fleet: &Fleet) -> Self {
        let in_flight =
            (fleet.loads.iter()).fold(0_u32, |sum, load| sum.saturating_add(load.in_flight));
        Self {
            work: fleet.outstanding.saturating_add(in_flight),
            permits: fleet.outstanding,
            in_flight,
            places: fleet.places,
            workers: fleet.workers,
        }
    }
}

/// The route, without authentication, like metrics.
pub fn router(store: Arc<dyn Store>) -> Router {
    let look = Look::new(move || {
        let store = Arc::clone(&store);
        async move {
            let fleet = store.fleet().await;
            let fleet = fleet.map_err(|error| error.to_string())?;
            Ok(Work::from(&fleet))
        }
    });
    Router::new()
        .route(PATH, get(work))
        .with_state(Arc::new(look))
}

async fn work(State(look): State<Arc<Look<Work>>>) -> Response {
    match look.now().await {
        Ok(work) => Json(work).into_response(),
        Err(problem) => unknown(&problem),
    }
}

/// No number at all: 0 would send workers home.
fn unknown(problem: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use adapters::sqlite::{SqliteStore, system_clock};
    use axum::body::Body;
    use domain::ids::{TenantId, WorkerId};
    use domain::share::Load;
    use engine::ports::Heartbeat;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn work_is_what_is_given_and_what_is_under_way() {
        let load = |tenant, outstanding, in_flight| Load {
            tenant: TenantId(Uuid::from_u128(tenant)),
            outstanding,
            in_flight,
        };
        let fleet = Fleet {
            workers: 2,
            places: 64,
            outstanding: 40,
            loads: vec![load(1, 30, 5), load(2, 10, 7)],
            ..Fleet::default()
        };
        let expected = Work {
            work: 52,
            permits: 40,
            in_flight: 12,
            places: 64,
            workers: 2,
        };
        assert_eq!(Work::from(&fleet), expected);
    }

    #[tokio::test]
    async fn it_is_asked_of_the_store() {
        let store = Arc::new(SqliteStore::in_memory(system_clock()).unwrap());
        let heartbeat = Heartbeat {
            worker: WorkerId(Uuid::from_u128(1)),
            places: 64,
        };
        store.heartbeat(&heartbeat).await.unwrap();
        let request = Request::get(PATH).body(Body::empty()).unwrap();
        let answer = router(store).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let expected = serde_json::json!({
            "work": 0, "permits": 0, "in_flight": 0, "places": 64, "workers": 1,
        });
        assert_eq!(body, expected);
    }
}

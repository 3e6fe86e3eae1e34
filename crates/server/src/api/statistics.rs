//! `/v1/destinations/{id}/statistics`.

use std::time::Duration;

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::statistics::{self, Counted};

/// How a destination has done lately. What is under way is not in it, and of the last
/// seconds little.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Statistics {
    /// Which destination.
    pub destination_id: Uuid,
    /// When this was so, by the store's clock.
    #[schema(format = DateTime)]
    pub at: String,
    /// The last 24 hours, counted by five minutes.
    pub last_day: Requests,
    /// The last 30 days, counted by days of UTC.
    pub last_30_days: Requests,
}

/// How many requests ended how, and how long answers took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Requests {
    /// All that were sent, retries with them.
    pub requests: u64,
    /// With a 2xx.
    pub succeeded: u64,
    /// With anything else but a 429, or no answer.
    pub failed: u64,
    /// With a 429.
    pub refused: u64,
    /// Nobody knows: their worker ended, or never sent them.
    pub unknown: u64,
    /// Of those that succeeded or failed; `null` of none.
    pub succeeded_percent: Option<f64>,
    /// How long half of the answers took at most; `null` if there were none. Counted in
    /// buckets, so mostly a few per cent wrong.
    pub p50_ms: Option<f64>,
    /// The same of 99 in a hundred.
    pub p99_ms: Option<f64>,
}

impl From<Counted> for Requests {
    fn from(Counted { tally, took }: Counted) -> Self {
        let millis = |took: Duration| rounded(took.as_secs_f64() * 1_000.0);
        Self {
            requests: tally.requests(),
            succeeded: tally.succeeded,
            failed: tally.failed,
            refused: tally.refused,
            unknown: tally.unknown,
            succeeded_percent: tally.succeeded_percent().map(rounded),
            p50_ms: took.quantile(0.5).map(millis),
            p99_ms: took.quantile(0.99).map(millis),
        }
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// Show how a destination has done over 24 hours and 30 days: volume, success rate and
/// latency.
#[utoipa::path(get, path = "/v1/destinations/{id}/statistics", operation_id = "show_statistics",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Statistics),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Statistics>, Problem> {
    let statistics::Statistics { now, day, month } = caller
        .run(|service| async move { service.statistics(id).await })
        .await?;
    Ok(Json(Statistics {
        destination_id: id.0,
        at: text::time(now),
        last_day: day.into(),
        last_30_days: month.into(),
    }))
}

//! `/v1/standings` and `/v1/destinations/{id}/explanation`.

use axum::Json;
use domain::destination::DestinationState;
use domain::explain::Reason;
use domain::health::Tally;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::Uuid;

use super::parameters::{DestinationPath, Page, PathId, StandingsPage};
use super::problem::Problem;
use super::{Caller, text};
use crate::audit::report::in_words;
use crate::service;

/// Where a destination stands, and why its next attempt is not going out now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Standing {
    /// Which destination.
    pub destination_id: Uuid,
    /// For people.
    pub name: String,
    /// Whether it takes starts.
    #[schema(schema_with = text::destination_state)]
    pub state: DestinationState,
    /// When this was so, by the store's clock.
    #[schema(format = DateTime)]
    pub at: String,
    /// Why the next attempt is not going out now, in one word; `now` if it is.
    #[schema(schema_with = reason)]
    pub reason: Reason,
    /// The same in a sentence.
    pub explanation: String,
    /// When the next attempt goes out, if nothing else changes. `null` where that
    /// is up to somebody: its owner, the receiver, a worker.
    #[schema(format = DateTime)]
    pub next_at: Option<String>,
    /// How many attempts wait, counted up to 100,000.
    pub backlog: u32,
    /// Since when the first of those that are due waits.
    #[schema(format = DateTime)]
    pub oldest_since: Option<String>,
    /// In how many seconds the backlog drains by its limits and its `max_in_flight`, if
    /// nothing else comes and requests go on taking as long as they did lately. `null`
    /// where nobody can say.
    pub drains_in_seconds: Option<f64>,
    /// Why nobody can say: its breaker is open, say, or nothing was measured yet. `null`
    /// where somebody can.
    pub drain_unknown: Option<String>,
    /// Whether it fails: as many of a hundred answers as its alerts' `failing_percent`
    /// says were failures lately, or, where nothing was answered, the last of what was
    /// sent before.
    pub failing: bool,
    /// Requests of the last five minutes that succeeded or failed, of the newest 200.
    pub answered_lately: u32,
    /// Of these, the ones that failed. A 429 is no failure.
    pub failed_lately: u32,
    /// So many of its last requests failed, one after the other.
    pub failures_in_a_row: u32,
    /// When the last one started that failed.
    #[schema(format = DateTime)]
    pub last_failure_at: Option<String>,
    /// The status that it got, if any.
    pub last_failure_status: Option<u16>,
    /// What came of the requests of the last hour, counted by five minutes.
    pub last_hour: Outcomes,
    /// And of the last day.
    pub last_day: Outcomes,
    /// Attempts that have started and have no outcome.
    pub in_flight: u32,
    /// Permits that may still start.
    pub permits: u32,
    /// Starts within the last second, as far as its limits look back.
    pub starts_in_last_second: u32,
    /// The limit in words: `10/second 100/minute`, `unlimited`, `paused`.
    pub limit: String,
    /// Starts per second that its shortest limit allows, as it is set; `null` for any
    /// number.
    pub configured_per_second: Option<f64>,
    /// And what all that is in force allows in the long run: 0 while paused, less under
    /// smart delivery.
    pub effective_per_second: Option<f64>,
    /// By how many seconds the window of its shortest limit is planned longer than its
    /// period, so that none of the whole period holds more at the receiver. `null` where
    /// it has no window.
    pub margin_seconds: Option<f64>,
}

/// How many requests ended how. What is under way is not in it, and of the last seconds
/// little.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Outcomes {
    /// With a 2xx.
    pub succeeded: u64,
    /// With anything else but a 429, or no answer.
    pub failed: u64,
    /// With a 429.
    pub refused: u64,
    /// Nobody knows: their worker ended, or never sent them.
    pub unknown: u64,
    /// Of those that succeeded or failed; `null` of none.
    pub failed_percent: Option<f64>,
}

impl From<Tally> for Outcomes {
    fn from(tally: Tally) -> Self {
        Self {
            succeeded: tally.succeeded,
            failed: tally.failed,
            refused: tally.refused,
            unknown: tally.unknown,
            failed_percent: tally.failed_percent().map(rounded),
        }
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// A page of standings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Standings {
    /// In the order of their destinations' ids; where backlogs are long, fewer
    /// than were asked for, and more on the next page.
    pub standings: Vec<Standing>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<Uuid>,
}

fn reason() -> Object {
    text::words(Reason::ALL.map(Reason::as_str))
}

impl From<service::Standing> for Standing {
    fn from(found: service::Standing) -> Self {
        let destination = found.destination;
        let last_failure = found.lately.last_failure.max(found.outcomes.last_failure);
        Self {
            destination_id: destination.id.0,
            limit: in_words(&destination.effective, destination.state),
            name: destination.name,
            state: destination.state,
            at: text::time(found.now),
            reason: found.explanation.reason,
            explanation: found.explanation.words,
            next_at: found.explanation.next_at.map(text::time),
            backlog: found.backlog,
            oldest_since: found.oldest.map(text::time),
            drains_in_seconds: (found.drains_in.ok()).map(|drain| rounded(drain.as_secs_f64())),
            drain_unknown: found.drains_in.err().map(|why| why.words().to_owned()),
            failing: found.failing,
            answered_lately: found.lately.answered,
            failed_lately: found.lately.failed,
            failures_in_a_row: found.failures_in_a_row,
            last_failure_at: last_failure.map(|(at, _)| text::time(at)),
            last_failure_status: last_failure.and_then(|(_, status)| status),
            last_hour: found.outcomes.hour.into(),
            last_day: found.outcomes.day.into(),
            in_flight: found.in_flight,
            permits: found.permits,
            starts_in_last_second: found.starts_in_last_second,
            configured_per_second: found.configured_per_second.map(rounded),
            effective_per_second: found.effective_per_second.map(rounded),
            margin_seconds: found.margin.map(|margin| rounded(margin.as_secs_f64())),
        }
    }
}

/// Explain a destination: why its next attempt is not going out now, and when
/// it will.
#[utoipa::path(get, path = "/v1/destinations/{id}/explanation", operation_id = "explain_destination",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Standing),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn explain(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<Standing>, Problem> {
    let found = caller
        .run(|service| async move { service.standing(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// List destinations with where they stand: backlog, when that has drained, and
/// what binds.
#[utoipa::path(get, path = "/v1/standings", operation_id = "list_standings",
    tag = "destinations", security(("key" = ["read"])),
    params(StandingsPage), responses(
    (status = 200, body = Standings),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<StandingsPage>,
) -> Result<Json<Standings>, Problem> {
    let found = caller
        .report(async move |service, turn| service.standings(page.after, page.limit, &turn).await)
        .await?;
    let standings = found.standings.into_iter().map(Standing::from).collect();
    Ok(Json(Standings {
        standings,
        next: found.next.map(|next| next.0),
    }))
}

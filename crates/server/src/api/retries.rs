//! `/v1/destinations/{id}/retries`: what is tried again, when, and how often.

use axum::Json;
use domain::retry::RetrySettings;
use engine::ports;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Caller;
use super::body::JsonBody;
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;

/// A destination's retry rules. What is absent or `null` is the default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryRules {
    /// Tries of one event, the first included; 8, or one more than there are
    /// `delays_ms`.
    #[schema(minimum = 1, maximum = 100)]
    pub max_tries: Option<u32>,
    /// The delay before each retry, taken as it is; the last one repeats.
    /// Excludes `base_ms`, `factor` and `cap_ms`.
    pub delays_ms: Option<Vec<u64>>,
    /// The longest delay before the first retry: 5,000. A delay is drawn
    /// between nothing and its bound.
    pub base_ms: Option<u64>,
    /// How much longer each bound is than the one before: 5.
    pub factor: Option<f64>,
    /// No bound is longer: a day.
    pub cap_ms: Option<u64>,
    /// Statuses that are not tried again: 400, 410, 413 and 422. All others
    /// that are no success are.
    pub final_statuses: Option<Vec<u16>>,
    /// How long a request may take to the end of its answer, from 100 to 30,000; no longer
    /// than `--request-timeout` says, which is 15 s.
    #[schema(minimum = 100, maximum = 30_000)]
    pub timeout_ms: Option<u64>,
    /// How old an event may become before it starts; older ones are dead
    /// letters. Holds for events that are accepted from now on. Without it the
    /// `ceiling.age_seconds` of the destination holds, if its tier has one.
    pub max_age_ms: Option<u64>,
}

impl From<ports::RetryRules> for RetryRules {
    fn from(rules: ports::RetryRules) -> Self {
        let policy = rules.policy;
        Self {
            max_tries: policy.max_tries,
            delays_ms: policy.delays_ms,
            base_ms: policy.base_ms,
            factor: policy.factor,
            cap_ms: policy.cap_ms,
            final_statuses: policy.final_statuses,
            timeout_ms: policy.timeout_ms,
            max_age_ms: (rules.max_age)
                .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// Look at a destination's retry rules.
#[utoipa::path(get, path = "/v1/destinations/{id}/retries", operation_id = "show_retries",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = RetryRules),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<RetryRules>, Problem> {
    let rules = caller
        .run(|service| async move { service.retry_rules(id).await })
        .await?;
    Ok(Json(rules.into()))
}

/// Set all of a destination's retry rules. Permits that are out stay.
#[utoipa::path(put, path = "/v1/destinations/{id}/retries", operation_id = "set_retries",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), request_body = RetryRules, responses(
    (status = 200, body = RetryRules),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn set(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<RetryRules>,
) -> Result<Json<RetryRules>, Problem> {
    let policy = RetrySettings {
        max_tries: body.max_tries,
        delays_ms: body.delays_ms,
        base_ms: body.base_ms,
        factor: body.factor,
        cap_ms: body.cap_ms,
        final_statuses: body.final_statuses,
        timeout_ms: body.timeout_ms,
    };
    let set =
        caller
            .run(move |service| async move {
                service.set_retry_rules(id, policy, body.max_age_ms).await
            })
            .await?;
    Ok(Json(set.into()))
}

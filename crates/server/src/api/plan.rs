//! `/v1/destinations/{id}/plan`.

use std::time::Duration;

use axum::Json;
use domain::limit::{Count, Shape};
use domain::series::Slot;
use domain::what_if::Summary;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::JsonBody;
use super::limits::{Effective, LimitsPatch, not_null, periods, present, present_object};
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::plan::DEFAULT_LAST;
use crate::service::{LimitsChange, Plan, PlanDraft};

/// What to try: the fields of a change of a destination's limits.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TryLimits {
    /// Starts per period; what is absent stays. Setting one ends `unlimited`.
    #[serde(default, deserialize_with = "present_object")]
    #[schema(value_type = Option<LimitsPatch>)]
    pub limits: Option<Option<LimitsPatch>>,
    /// `true` clears the limits.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = bool)]
    pub unlimited: Option<bool>,
    /// A bucket's capacity, or how many of a window may start at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub burst: Option<Option<u32>>,
    /// How the limit spreads its starts.
    #[serde(default, deserialize_with = "present")]
    #[schema(schema_with = text::shape_or_null)]
    pub shape: Option<Option<Shape>>,
    /// Attempts queued and in flight at once.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub max_in_flight: Option<Option<u32>>,
    /// By which part every period is stretched; `null` to measure it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    pub safety_margin: Option<Option<f64>>,
    /// The largest margin that is measured, as a part of the period; `null` for 0.01.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    pub margin_cap: Option<Option<f64>>,
    /// Until when a request counts; `null` until its start.
    #[serde(default, deserialize_with = "present")]
    #[schema(schema_with = text::count_or_null)]
    pub count: Option<Option<Count>>,
    /// How much of the past to replay: 1 to 604,800. By default six hours.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = u32)]
    pub last_seconds: Option<u32>,
}

/// What was recorded, and what would have been under the limits to try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIf {
    /// What was replayed begins then.
    #[schema(format = DateTime)]
    pub since: String,
    /// And ends then, exclusive.
    #[schema(format = DateTime)]
    pub until: String,
    /// What holds now.
    pub current: Effective,
    /// What would hold.
    pub proposed: Effective,
    /// How the recorded starts went. What already waited at `since` waits from
    /// then on.
    pub actual: Course,
    /// How they would have gone.
    pub replayed: Course,
    /// How many 429s were answered.
    pub refused: u64,
    /// How many there would be: in each second, those beyond what the receiver
    /// takes. `null` where nobody knows, for it was never sent as many.
    pub expected_refused: Option<u64>,
    /// How many the receiver took a second where it answered others with 429:
    /// the median of such seconds. `null` if it never did.
    pub receiver_takes_per_second: Option<u64>,
    /// How long after `until` the last of them starts: 0 if the limit keeps up,
    /// `null` if it never drains.
    pub drains_in_seconds: Option<f64>,
    /// Attempts that wait now.
    pub backlog: u64,
    /// In how many seconds these drain under what is proposed, if nothing else comes
    /// and requests take as long as those that were recorded; `null` where nobody can
    /// say.
    pub backlog_drains_in_seconds: Option<f64>,
    /// Why nobody can say; `null` where somebody can.
    pub backlog_drain_unknown: Option<String>,
    /// How long each point of the curves is.
    pub step_seconds: u64,
    /// Both curves, from `since` on.
    pub curves: Vec<CurvePoint>,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Course {
    /// Attempts that started.
    pub starts: u64,
    /// Attempts that had not started at the end.
    pub waiting: u64,
    /// How long half of those that started waited at most.
    pub wait_p50_seconds: Option<f64>,
    /// The same, of ninety-nine in a hundred.
    pub wait_p99_seconds: Option<f64>,
    /// The most that waited at once.
    pub peak_backlog: u64,
    /// When.
    #[schema(format = DateTime)]
    pub peak_at: Option<String>,
    /// When the last of them started, if all have.
    #[schema(format = DateTime)]
    pub drained_at: Option<String>,
    /// The most starts in a second of the clock.
    pub busiest_second: u64,
}

/// One point of both curves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CurvePoint {
    /// When it begins.
    #[schema(format = DateTime)]
    pub at: String,
    /// Attempts that became due.
    pub due: u64,
    /// Starts per second, as recorded.
    pub actual_per_second: f64,
    /// How many waited at its end, as recorded.
    pub actual_backlog: u64,
    /// Starts per second, as replayed.
    pub replayed_per_second: f64,
    /// How many would have waited at its end.
    pub replayed_backlog: u64,
}

impl From<TryLimits> for PlanDraft {
    fn from(body: TryLimits) -> Self {
        let last = body
            .last_seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            change: LimitsChange {
                unlimited: body.unlimited,
                burst: body.burst,
                shape: body.shape,
                max_in_flight: body.max_in_flight,
                safety_margin: body.safety_margin,
                margin_cap: body.margin_cap,
                count: body.count,
                ..periods(body.limits)
            },
            last: last.unwrap_or(DEFAULT_LAST),
        }
    }
}

impl From<Summary> for Course {
    fn from(summary: Summary) -> Self {
        Self {
            starts: summary.starts,
            waiting: summary.waiting,
            wait_p50_seconds: summary.wait_p50.map(seconds),
            wait_p99_seconds: summary.wait_p99.map(seconds),
            peak_backlog: summary.peak_backlog,
            peak_at: summary.peak_at.map(text::time),
            drained_at: summary.drained_at.map(text::time),
            busiest_second: summary.busiest_second,
        }
    }
}

impl From<Plan> for WhatIf {
    fn from(plan: Plan) -> Self {
        let curves = curves(&plan);
        Self {
            since: text::time(plan.since),
            until: text::time(plan.until),
            current: Effective::of(&plan.current),
            proposed: Effective::of(&plan.proposed),
            actual: plan.actual.into(),
            replayed: plan.replayed.into(),
            refused: plan.refused,
            expected_refused: plan.expected_refused,
            receiver_takes_per_second: plan.receiver.takes_per_second,
            drains_in_seconds: plan.drains_in.map(seconds),
            backlog: plan.backlog_now,
            backlog_drains_in_seconds: plan.backlog_drains_in.ok().map(seconds),
            backlog_drain_unknown: (plan.backlog_drains_in.err()).map(|why| why.words().to_owned()),
            step_seconds: plan.actual_curve.step.as_secs(),
            curves,
        }
    }
}

fn curves(plan: &Plan) -> Vec<CurvePoint> {
    let (actual, replayed) = (&plan.actual_curve, &plan.replayed_curve);
    let rate = |slot: &Slot| slot.starts as f64 / actual.step.as_secs_f64();
    let points = actual.slots.iter().zip(&replayed.slots).enumerate();
    let point = |(number, (was, would_be)): (usize, (&Slot, &Slot))| CurvePoint {
        at: text::time(actual.begins_at(number)),
        due: was.due,
        actual_per_second: rate(was),
        actual_backlog: was.backlog,
        replayed_per_second: rate(would_be),
        replayed_backlog: would_be.backlog,
    };
    points.map(point).collect()
}

/// To a thousandth: more would pretend to know it.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

/// Try other limits on what was recorded of a destination. Changes nothing.
#[utoipa::path(post, path = "/v1/destinations/{id}/plan", operation_id = "plan_limits",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), request_body = TryLimits, responses(
    (status = 200, body = WhatIf),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn try_limits(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<TryLimits>,
) -> Result<Json<WhatIf>, Problem> {
    let draft = body.into();
    let planned = caller
        .report(async move |service, turn| service.plan(id, draft, &turn).await)
        .await?;
    Ok(Json(planned.into()))
}

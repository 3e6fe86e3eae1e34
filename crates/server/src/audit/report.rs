//! From a ledger to a report: pure, so that what the audit says is tested
//! without a store.

use domain::compliance::{
    LimitVerdict, MAX_STRETCHES, Share, Stretch, Verdict, Violations, WindowCount,
};
use domain::destination::DestinationState;
use domain::ids::TenantId;
use domain::limit::Shape;
use domain::limit_group::GroupName;
use domain::margin::Margin;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{LimitHistory, SmartChange};
use serde::Serialize;
use utoipa::ToSchema;

use super::Span;
use crate::api::smart_delivery::SmartEntry;
use crate::api::text;

/// What the audit says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub since: String,
    pub until: String,
    /// No rule was broken anywhere.
    pub compliant: bool,
    pub destinations: Vec<DestinationReport>,
    /// Limits that several of them have together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limit_groups: Vec<GroupReport>,
}

/// What it says of a limit group: of what its members started together.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct GroupReport {
    /// Whose it is.
    pub tenant_id: String,
    /// What its tenant calls it.
    pub name: String,
    /// Until when it was judged, exclusive, where that is earlier than asked: its members
    /// have more starts than one request reads, and these are the oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub judged_until: Option<String>,
    /// In force at the end of the span, in words.
    pub limit_in_force: String,
    /// No rule was broken.
    pub compliant: bool,
    /// What its members started in the span.
    pub starts: u64,
    /// How each rule was kept.
    pub rules: Vec<RuleReport>,
}

impl GroupReport {
    /// The same, of which no more was judged.
    pub(super) fn judged_until(mut self, until: Option<Timestamp>) -> Self {
        self.judged_until = until.map(text::time);
        self
    }

    /// For people.
    pub(super) fn label(&self) -> String {
        format!("group {}", self.name)
    }

    pub(super) fn new(
        tenant: TenantId,
        name: &GroupName,
        now: Option<&LimitSettings>,
        verdict: &Verdict,
    ) -> Self {
        let mut rules: Vec<RuleReport> = (verdict.limits.iter())
            .map(|limit| RuleReport {
                margin_seconds: None,
                ..RuleReport::of_limit(limit, Margin::Set(0.0))
            })
            .collect();
        if !verdict.pause.is_empty() {
            rules.push(RuleReport::other("pause", &verdict.pause));
        }
        Self {
            tenant_id: tenant.to_string(),
            name: name.to_string(),
            judged_until: None,
            limit_in_force: now.map_or("unknown".to_owned(), |now| {
                in_words(now, DestinationState::Active)
            }),
            compliant: verdict.is_kept(),
            starts: verdict.starts,
            rules,
        }
    }
}

/// What it says of one destination.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DestinationReport {
    /// Its id.
    pub id: String,
    /// For people.
    pub name: String,
    /// From when on it was judged, where that is later than asked: it has more
    /// starts than one request reads, and these are the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub judged_since: Option<String>,
    /// In force at the end of the span, in words.
    pub limit_in_force: String,
    /// What was in force in the span, from when on, the earliest first.
    pub limits: Vec<LimitReport>,
    /// No rule was broken.
    pub compliant: bool,
    /// Attempts that started in the span.
    pub starts: u64,
    /// How much of the limit was used while there was backlog.
    pub share: ShareReport,
    /// How each rule was kept.
    pub rules: Vec<RuleReport>,
    /// Where it had a backlog and got less than its limit allowed.
    pub under_delivery: UnderDeliveryReport,
    /// The effective limits that smart delivery had in force, the earliest
    /// first. They are planned by, not judged: what is judged is the configured
    /// limit.
    pub smart_delivery: Vec<SmartEntry>,
    /// The span point by point, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveReport>,
}

impl DestinationReport {
    /// What is in force, and what was before it in the span: a window is judged by the
    /// limit of its own time, and 6 where 50 were allowed is no 6 of 5.
    #[must_use]
    pub fn limit_words(&self) -> String {
        let mut before = self.limits.iter().rev().skip(1).map(|one| &one.limit);
        let now = &self.limit_in_force;
        match (before.next(), before.count()) {
            (None, _) => now.clone(),
            (Some(last), 0) => format!("{now}, before {last}"),
            (Some(last), more) => format!("{now}, before {last} and {more} more"),
        }
    }
}

/// What was in force from a time on.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LimitReport {
    /// From when on.
    #[schema(format = DateTime)]
    pub in_force_from: String,
    /// In words: `10/second 100/minute`, `unlimited`, `paused`.
    pub limit: String,
}

/// How much of the limit was used while there was backlog.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct ShareReport {
    /// What it started.
    pub started: u64,
    /// What a perfect sender could have started.
    pub allowed: u64,
    /// Rounded down.
    pub percent: u64,
}

/// Where there was a backlog, and less started than nine tenths of what the
/// limit allowed.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct UnderDeliveryReport {
    /// For how long, all together.
    pub seconds: f64,
    /// When: the first 100.
    pub stretches: Vec<StretchReport>,
}

/// A time of under-delivery.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct StretchReport {
    /// When it began, to a point of the curve that it is judged by.
    #[schema(format = DateTime)]
    pub from: String,
    /// When it ended.
    #[schema(format = DateTime)]
    pub until: String,
    /// `concurrency`, `asked`, `refused` or `breaker` (a hold), `places` (no
    /// worker, or none with room), `smart`, `tenant`, `no_token`, `unclaimed`, `unscheduled`.
    pub reason: &'static str,
    /// What started in it.
    pub starts: u64,
    /// What the limit allows in so long; `null` is any number.
    pub allowed: Option<f64>,
    /// The most that waited.
    pub backlog: u64,
}

/// A span, point by point.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CurveReport {
    /// How long a point is.
    pub step_seconds: u64,
    /// In order of time.
    pub points: Vec<PointReport>,
}

/// What happened in one step.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PointReport {
    /// When it begins.
    #[schema(format = DateTime)]
    pub at: String,
    /// Starts per second, on average.
    pub starts_per_second: f64,
    /// The most that its limits allowed in a step, per second: of 60 a minute, 60 in a
    /// step of a second and 1 in a step of a minute. `null` is any number.
    pub limit_per_second: Option<f64>,
    /// Attempts that became due.
    pub due: u64,
    /// Attempts that waited at its end.
    pub backlog: u64,
    /// Starts that were answered 429.
    pub refused: u64,
    /// From when attempts were due to their outcomes: half of them took no
    /// longer. To a sixteenth.
    pub latency_p50_seconds: Option<f64>,
    /// The same, of ninety-nine in a hundred.
    pub latency_p99_seconds: Option<f64>,
}

/// How one rule was kept.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RuleReport {
    /// `second`, `minute`, `hour`, `day`, `bucket` or `pause`.
    pub rule: &'static str,
    /// The fullest period of the calendar; it can hide twice the limit.
    pub largest_aligned: Option<WindowReport>,
    /// The fullest window of all.
    pub largest_sliding: Option<WindowReport>,
    /// What was allowed in that window; `null` is any number.
    pub bound: Option<u64>,
    /// By how many seconds windows are planned longer than the period that is judged, by
    /// now: what requests may differ on their way for the receiver to count no more.
    /// `null` of what is no window.
    pub margin_seconds: Option<f64>,
    /// Starts that came too early.
    pub early_starts: u64,
    /// Where: the first 100.
    pub violations: Vec<ViolationReport>,
}

/// A window and what it held.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct WindowReport {
    pub starts: u64,
    pub ends_at: String,
}

/// A place where a rule was broken.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ViolationReport {
    pub ends_at: String,
    pub starts: u64,
    pub bound: u64,
    pub attempts: Vec<i64>,
}

impl Report {
    /// Of these destinations.
    #[must_use]
    pub fn new(span: Span, destinations: Vec<DestinationReport>) -> Self {
        Self {
            since: text::time(span.since),
            until: text::time(span.until),
            compliant: destinations.iter().all(|destination| destination.compliant),
            destinations,
            limit_groups: Vec::new(),
        }
    }

    /// And of these limit groups.
    #[must_use]
    pub fn with_groups(mut self, limit_groups: Vec<GroupReport>) -> Self {
        self.compliant &= limit_groups.iter().all(|group| group.compliant);
        self.limit_groups = limit_groups;
        self
    }
}

/// What is known of one destination in a span, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    pub id: String,
    pub name: String,
    pub span: Span,
    /// The span's beginning, where it is not the one that was asked for.
    pub judged_since: Option<Timestamp>,
    pub history: Vec<LimitHistory>,
    /// Of its windows, by now.
    pub margin: Margin,
    pub verdict: Verdict,
    /// What a perfect sender could have started.
    pub allowed: u64,
    pub stretches: Vec<Stretch>,
    /// The earliest first.
    pub smart: Vec<SmartChange>,
    pub curve: Option<CurveReport>,
}

impl From<Findings> for DestinationReport {
    fn from(found: Findings) -> Self {
        let Findings { span, verdict, .. } = found;
        let share = Share {
            started: verdict.starts,
            allowed: found.allowed,
        };
        let mut rules: Vec<RuleReport> = (verdict.limits.iter())
            .map(|limit| RuleReport::of_limit(limit, found.margin))
            .collect();
        rules.extend((verdict.bucket.as_ref()).map(|bucket| RuleReport::other("bucket", bucket)));
        if !verdict.pause.is_empty() {
            rules.push(RuleReport::other("pause", &verdict.pause));
        }
        let last = found
            .history
            .iter()
            .rfind(|entry| entry.in_force_from < span.until);
        Self {
            id: found.id,
            name: found.name,
            judged_since: found.judged_since.map(text::time),
            limit_in_force: match last {
                Some(entry) => in_words(&entry.effective, entry.state),
                None => "unknown".to_owned(),
            },
            limits: limits_in(&found.history, span),
            compliant: verdict.is_kept(),
            starts: verdict.starts,
            share: ShareReport {
                started: share.started,
                allowed: share.allowed,
                percent: share.percent(),
            },
            rules,
            under_delivery: UnderDeliveryReport::of(&found.stretches),
            smart_delivery: found.smart.into_iter().map(SmartEntry::from).collect(),
            curve: found.curve,
        }
    }
}

/// What was in force in a span: the entry that it began with, and those since.
fn limits_in(history: &[LimitHistory], span: Span) -> Vec<LimitReport> {
    let first = history.partition_point(|entry| entry.in_force_from <= span.since);
    let within = history.iter().skip(first.saturating_sub(1));
    let entries = within.take_while(|entry| entry.in_force_from < span.until);
    let mut limits: Vec<LimitReport> = (entries)
        .map(|entry| LimitReport {
            in_force_from: text::time(entry.in_force_from),
            limit: in_words(&entry.effective, entry.state),
        })
        .collect();
    // A change of something else is written down, too.
    limits.dedup_by(|later, earlier| later.limit == earlier.limit);
    limits
}

impl UnderDeliveryReport {
    fn of(stretches: &[Stretch]) -> Self {
        let lasted = stretches
            .iter()
            .map(|one| one.until.since(one.from).as_secs_f64());
        let listed = stretches.iter().take(MAX_STRETCHES);
        Self {
            // Not `sum`, of which nothing is -0.
            seconds: lasted.fold(0.0, |sum, one| sum + one),
            stretches: listed
                .map(|one| StretchReport {
                    from: text::time(one.from),
                    until: text::time(one.until),
                    reason: one.reason.as_str(),
                    starts: one.starts,
                    allowed: one.allowed.map(|allowed| (allowed * 10.0).round() / 10.0),
                    backlog: one.backlog,
                })
                .collect(),
        }
    }
}

impl RuleReport {
    fn of_limit(limit: &LimitVerdict, margin: Margin) -> Self {
        Self {
            largest_aligned: window(limit.aligned),
            largest_sliding: window(limit.sliding),
            bound: limit.bound,
            margin_seconds: Some(margin.of(limit.period.duration()).as_secs_f64()),
            ..Self::other(limit.period.as_str(), &limit.violations)
        }
    }

    fn other(rule: &'static str, violations: &Violations) -> Self {
        let listed = violations.listed.iter().map(|violation| ViolationReport {
            ends_at: text::time(violation.ends_at),
            starts: violation.starts,
            bound: violation.bound,
            attempts: violation.attempts.iter().map(|attempt| attempt.0).collect(),
        });
        Self {
            rule,
            largest_aligned: None,
            largest_sliding: None,
            bound: None,
            margin_seconds: None,
            early_starts: violations.early_starts,
            violations: listed.collect(),
        }
    }
}

fn window(count: WindowCount) -> Option<WindowReport> {
    (count.starts > 0).then(|| WindowReport {
        starts: count.starts,
        ends_at: text::time(count.ends_at),
    })
}

/// `10/second 100/minute token_bucket burst 50`, `unlimited`, `paused`.
#[must_use]
pub fn in_words(settings: &LimitSettings, state: DestinationState) -> String {
    if state != DestinationState::Active {
        return state.as_str().to_owned();
    }
    let mut words: Vec<String> = settings
        .limits()
        .iter()
        .filter_map(|(period, max)| Some(format!("{}/{period}", (*max)?)))
        .collect();
    let allowed =
        (settings.allowed_per_minute).map(|most| format!("receiver allows {most}/minute"));
    if words.is_empty() || settings.unlimited {
        let words = std::iter::once("unlimited".to_owned()).chain(allowed);
        return words.collect::<Vec<_>>().join(" ");
    }
    if let Some(shape) = settings.shape.filter(|shape| *shape != Shape::default()) {
        words.push(shape.as_str().to_owned());
    }
    words.extend(settings.burst.map(|burst| format!("burst {burst}")));
    words.extend(allowed);
    words.join(" ")
}

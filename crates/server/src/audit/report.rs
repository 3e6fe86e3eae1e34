//! From a ledger to a report: pure, so that what the audit says is tested
//! without a store.

use domain::compliance::{
    InForce, LimitVerdict, Share, Violations, WindowCount, ideal_starts, judge,
};
use domain::destination::DestinationState;
use domain::ids::AttemptId;
use domain::limit::Shape;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{LedgerRow, SmartChange};
use serde::Serialize;

use super::Span;
use crate::api::smart_delivery::SmartEntry;
use crate::api::text;

/// What is known of one destination in a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ledger {
    /// What was in force when.
    pub history: Vec<InForce>,
    /// What is in force at the end of the span.
    pub effective: Option<(LimitSettings, DestinationState)>,
    /// The starts, ascending.
    pub starts: Vec<(Timestamp, AttemptId)>,
    /// When each attempt, started or not, could have started at the earliest,
    /// ascending.
    pub due: Vec<Timestamp>,
    /// The effective limits that smart delivery had in force, the earliest
    /// first.
    pub smart: Vec<SmartChange>,
}

impl Ledger {
    /// Adds rows as the catalog returns them; [`Ledger::due`] has to be sorted
    /// afterwards.
    pub fn add(&mut self, rows: &[LedgerRow]) {
        for row in rows {
            self.due.push(row.due_at);
            self.starts
                .extend(row.started_at.map(|at| (at, row.attempt)));
        }
    }
}

/// What the audit says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub since: String,
    pub until: String,
    /// No rule was broken anywhere.
    pub compliant: bool,
    pub destinations: Vec<DestinationReport>,
}

/// What it says of one destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DestinationReport {
    pub id: String,
    pub name: String,
    /// In force at the end of the span, in words.
    pub limit_in_force: String,
    pub compliant: bool,
    pub starts: u64,
    pub share: ShareReport,
    pub rules: Vec<RuleReport>,
    /// The effective limits that smart delivery had in force, the earliest
    /// first. They are planned by, not judged: what is judged is the configured
    /// limit.
    pub smart_delivery: Vec<SmartEntry>,
}

/// How much of the limit was used while there was backlog.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShareReport {
    pub started: u64,
    /// What a perfect sender could have started.
    pub allowed: u64,
    /// Rounded down.
    pub percent: u64,
}

/// How one rule was kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleReport {
    /// `second`, `minute`, `hour`, `day`, `bucket` or `pause`.
    pub rule: &'static str,
    /// The fullest period of the calendar; it can hide twice the limit.
    pub largest_aligned: Option<WindowReport>,
    /// The fullest window of all.
    pub largest_sliding: Option<WindowReport>,
    /// What was allowed in that window; `null` is any number.
    pub bound: Option<u64>,
    /// Starts that came too early.
    pub early_starts: u64,
    /// Where: the first 100.
    pub violations: Vec<ViolationReport>,
}

/// A window and what it held.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowReport {
    pub starts: u64,
    pub ends_at: String,
}

/// A place where a rule was broken.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
        }
    }
}

impl DestinationReport {
    /// Judges one destination.
    #[must_use]
    pub fn new(id: String, name: String, ledger: &Ledger, span: Span) -> Self {
        let verdict = judge(&ledger.history, &ledger.starts);
        let share = Share {
            started: verdict.starts,
            allowed: ideal_starts(&ledger.history, &ledger.due, span.since, span.until),
        };
        let mut rules: Vec<RuleReport> = verdict.limits.iter().map(RuleReport::of_limit).collect();
        rules.extend((verdict.bucket.as_ref()).map(|bucket| RuleReport::other("bucket", bucket)));
        if !verdict.pause.is_empty() {
            rules.push(RuleReport::other("pause", &verdict.pause));
        }
        Self {
            id,
            name,
            limit_in_force: match &ledger.effective {
                Some((settings, state)) => in_words(settings, *state),
                None => "unknown".to_owned(),
            },
            compliant: verdict.is_kept(),
            starts: verdict.starts,
            share: ShareReport {
                started: share.started,
                allowed: share.allowed,
                percent: share.percent(),
            },
            rules,
            smart_delivery: ledger.smart.iter().copied().map(SmartEntry::from).collect(),
        }
    }
}

impl RuleReport {
    fn of_limit(limit: &LimitVerdict) -> Self {
        Self {
            largest_aligned: window(limit.aligned),
            largest_sliding: window(limit.sliding),
            bound: limit.bound,
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
    if words.is_empty() || settings.unlimited {
        return "unlimited".to_owned();
    }
    if let Some(shape) = settings.shape.filter(|shape| *shape != Shape::default()) {
        words.push(shape.as_str().to_owned());
    }
    words.extend(settings.burst.map(|burst| format!("burst {burst}")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TWO: LimitSettings = LimitSettings {
        per_second: Some(2),
        per_minute: None,
        per_hour: None,
        per_day: None,
        unlimited: false,
        burst: None,
        shape: None,
        max_in_flight: None,
        safety_margin: 0.0,
    };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn ledger(starts: &[i64]) -> Ledger {
        Ledger {
            history: vec![InForce::new(at(0), &TWO, DestinationState::Active)],
            effective: Some((TWO, DestinationState::Active)),
            starts: (1..)
                .map(AttemptId)
                .zip(starts)
                .map(|(id, ms)| (at(*ms), id))
                .collect(),
            due: vec![at(0); starts.len()],
            smart: Vec::new(),
        }
    }

    fn report(starts: &[i64]) -> DestinationReport {
        let span = Span {
            since: at(0),
            until: at(0) + Duration::from_secs(3),
        };
        DestinationReport::new("a".to_owned(), String::new(), &ledger(starts), span)
    }

    #[test]
    fn a_kept_limit_is_compliant_and_its_share_is_of_what_was_allowed() {
        let report = report(&[0, 1, 1_000, 1_001, 2_000]);
        assert!(report.compliant);
        assert_eq!(report.limit_in_force, "2/second");
        assert_eq!((report.share.started, report.share.allowed), (5, 5));
        assert_eq!(
            report.rules[0]
                .largest_sliding
                .as_ref()
                .map(|window| window.starts),
            Some(2)
        );
    }

    #[test]
    fn a_burst_across_two_calendar_seconds_is_found_with_its_attempts() {
        let report = report(&[900, 950, 1_000, 1_050]);
        assert!(!report.compliant);
        let second = &report.rules[0];
        assert_eq!(
            second.largest_aligned.as_ref().map(|window| window.starts),
            Some(2)
        );
        assert_eq!(
            second.largest_sliding.as_ref().map(|window| window.starts),
            Some(4)
        );
        assert_eq!(second.violations[0].attempts, [1, 2, 3, 4]);
    }
}

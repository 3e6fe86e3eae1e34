//! The verdict of a trial: the ledger's windows, the receivers', and the share.

use std::collections::HashSet;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::compliance::{self, ArrivalVerdict, InForce, MeanShare, Stalls, Verdict};
use domain::ids::{AttemptId, DestinationId};
use domain::limit::Period;
use domain::policy::Rate;
use domain::time::Timestamp;
use engine::ports::LedgerRow;
use serde::Serialize;

use super::received::{AtReceiver, Receivers};
use super::{Ledger, Plan};
use crate::receiver::Arrival;

/// What a perfect sender would have started in the last moments is not held
/// against a real one, which takes a few milliseconds from slot to start.
pub const LATENCY_ALLOWANCE: Duration = Duration::from_millis(200);

/// The least share of its limits that a destination with backlog must get, in
/// per cent.
pub const LEAST_SHARE_PERCENT: u64 = 98;

/// All destinations of a trial.
#[derive(Debug, Serialize)]
pub struct TrialVerdict {
    /// One each, in the order of the plans.
    pub destinations: Vec<DestinationVerdict>,
    /// Requests that were not signed by their destination's secret.
    pub bad_signatures: u64,
    /// How the receivers stood still.
    pub stalls: StoodStill,
}

/// A receiver's own stalls, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StoodStill {
    /// How many there were.
    pub times: usize,
    /// How long they were together.
    pub together_ms: u64,
    /// The longest.
    pub longest_ms: u64,
}

impl From<&Stalls> for StoodStill {
    fn from(stalls: &Stalls) -> Self {
        let (times, together) = stalls.sum();
        Self {
            times,
            together_ms: together.as_millis() as u64,
            longest_ms: stalls.longest().unwrap_or_default().as_millis() as u64,
        }
    }
}

/// One destination.
#[derive(Debug, Serialize)]
pub struct DestinationVerdict {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: DestinationId,
    /// Events that it was flooded with.
    pub events: u64,
    /// Starts in the ledger.
    pub starts: u64,
    /// What it had started of its limits, on average over the last of its periods.
    pub had_started: f64,
    /// What a perfect sender could have started, likewise.
    pub allowed: f64,
    /// The one in per cent of the other.
    pub share_percent: f64,
    /// One per limit.
    pub windows: Vec<WindowVerdict>,
    /// Early starts by any rule, buckets and pauses included.
    pub early_starts: u64,
    /// Attempts that broke a rule; at most a hundred.
    pub violating_attempts: Vec<AttemptId>,
    /// Requests that arrived at the receiver.
    pub arrivals: u64,
    /// How its limits were kept there, by the receiver's own clock.
    pub at_receiver: AtReceiver,
    /// Different events among them.
    pub events_arrived: u64,
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Attempts whose outcome is unknown.
    pub unknown: u64,
    /// Attempts whose start came too late to be sent.
    pub not_sent: u64,
    /// From creation to delivery, the median, in milliseconds.
    pub latency_p50_ms: u64,
    /// The same, the 99th percentile.
    pub latency_p99_ms: u64,
}

/// How one limit was kept.
#[derive(Debug, Serialize)]
pub struct WindowVerdict {
    /// The period.
    pub period: Period,
    /// The most that its fullest window may hold; none where a bucket rules.
    pub bound: Option<u64>,
    /// The fullest second (minute, …) of the calendar.
    pub largest_aligned: u64,
    /// The fullest sliding window of the ledger.
    pub largest_sliding: u64,
    /// The fullest sliding window at the receiver, less what its own stalls explain.
    pub largest_at_receiver: u64,
    /// The same by when requests were read.
    pub largest_as_read: u64,
    /// The share of all starts that came too early.
    pub early_starts: u64,
}

impl TrialVerdict {
    /// Whether no window was over, neither at a receiver nor in a ledger.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.destinations.iter().all(DestinationVerdict::is_kept)
    }

    /// Destinations that got less than they should have.
    pub fn under_delivered(&self, percent: u64) -> impl Iterator<Item = &DestinationVerdict> {
        (self.destinations.iter()).filter(move |one| one.is_under(percent))
    }
}

impl DestinationVerdict {
    /// Judges one destination between two instants of the store's clock.
    #[must_use]
    pub fn new(
        (plan, id): (&Plan, DestinationId),
        ledger: &Ledger,
        (receivers, arrivals): (Receivers<'_>, &[&Arrival]),
        (since, until): (Timestamp, Timestamp),
    ) -> Self {
        let starts: Vec<_> = (ledger.rows.iter())
            .filter_map(|row| Some((row.started_at?, row.attempt)))
            .collect();
        let verdict = compliance::judge_sends(&ledger.history, &starts);
        let share = ledger.share((since, until), LATENCY_ALLOWANCE);
        let read_at: Vec<_> = arrivals.iter().map(|arrival| arrival.read_at()).collect();
        let received = receivers.judge(&ledger.history, &read_at);
        let events: HashSet<_> = arrivals.iter().filter_map(|one| one.event).collect();
        let (latency_p50_ms, latency_p99_ms) = latency(&ledger.rows);
        let in_state = |state| {
            let rows = ledger.rows.iter().filter(|row| row.state == state);
            rows.count() as u64
        };
        Self {
            name: plan.name.clone(),
            id,
            events: u64::from(plan.events),
            starts: starts.len() as u64,
            had_started: share.started,
            allowed: share.allowed,
            share_percent: share.percent(),
            windows: windows(&verdict, &received),
            early_starts: verdict.early_starts(),
            violating_attempts: (verdict.violations())
                .flat_map(|violation| violation.attempts.iter().copied())
                .take(100)
                .collect(),
            arrivals: arrivals.len() as u64,
            at_receiver: AtReceiver::new(&received, &read_at, receivers.window_percent),
            events_arrived: events.len() as u64,
            succeeded: in_state(AttemptState::Succeeded),
            unknown: in_state(AttemptState::Unknown),
            not_sent: in_state(AttemptState::NotSent),
            latency_p50_ms,
            latency_p99_ms,
        }
    }

    /// Whether no window was over, neither at the receiver nor in the ledger.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.early_starts == 0 && self.at_receiver.early_arrivals == 0
    }

    /// Whether it got less than `percent` of what its limits allowed, rounded
    /// down to whole starts.
    #[must_use]
    pub fn is_under(&self, percent: u64) -> bool {
        self.had_started < (self.allowed * percent as f64 / 100.0).floor()
    }
}

impl Ledger {
    /// How much of its limits it shows to be used, on average over the last of the
    /// shortest period in force. What a perfect sender would have started in the last
    /// `allowance` is not held against it.
    #[must_use]
    pub fn share(&self, (since, until): (Timestamp, Timestamp), allowance: Duration) -> MeanShare {
        let mut due: Vec<_> = self.rows.iter().map(|row| row.due_at).collect();
        due.sort_unstable();
        let starts: Vec<_> = (self.rows.iter())
            .filter_map(|row| row.started_at)
            .collect();
        let average = (shortest_period(&self.history), allowance);
        MeanShare::new(&self.history, (&due, &starts), (since, until), average)
    }
}

/// The shortest period of what was in force last.
fn shortest_period(history: &[InForce]) -> Duration {
    let periods = history.last().map(|last| match &last.policy.rate {
        Rate::Limited(limited) => {
            let refill = limited.pacing.map(|pacing| pacing.refill);
            let all = limited.windows.iter().copied().chain(refill);
            all.map(|limit| limit.period).min()
        }
        Rate::Paused | Rate::Unlimited => None,
    });
    periods.flatten().unwrap_or(Period::Second).duration()
}

fn windows(verdict: &Verdict, received: &ArrivalVerdict) -> Vec<WindowVerdict> {
    let window = |limit: &compliance::LimitVerdict| {
        let (largest_at_receiver, largest_as_read) = received.fullest(limit.period);
        WindowVerdict {
            period: limit.period,
            bound: limit.bound,
            largest_aligned: limit.aligned.starts,
            largest_sliding: limit.sliding.starts,
            largest_at_receiver,
            largest_as_read,
            early_starts: limit.violations.early_starts,
        }
    };
    verdict.limits.iter().map(window).collect()
}

/// Median and 99th percentile from creation to delivery, in milliseconds.
fn latency(rows: &[LedgerRow]) -> (u64, u64) {
    let mut millis: Vec<_> = (rows.iter())
        .filter(|row| row.state == AttemptState::Succeeded)
        .filter_map(|row| Some(row.finished_at?.since(row.due_at).as_millis()))
        .collect();
    millis.sort_unstable();
    let at = |percent: usize| {
        let index = millis.len().saturating_mul(percent) / 100;
        let value = millis.get(index.min(millis.len().saturating_sub(1)));
        value.map_or(0, |value| u64::try_from(*value).unwrap_or(u64::MAX))
    };
    (at(50), at(99))
}

#[cfg(test)]
mod tests {
    use domain::destination::DestinationState;
    use domain::policy::LimitSettings;
    use uuid::Uuid;

    use super::super::{Ahead, WHOLE_WINDOWS, per_second};
    use super::*;

    /// Twelve and a half milliseconds: a margin of one part in a hundred, which is the
    /// most, and the way to the worker.
    const LATE: Duration = Duration::from_micros(12_500);

    /// What so many windows of this destination started until then, each so much later
    /// than a perfect sender's after the one before, of more that waits.
    fn ledger(limits: LimitSettings, late: Duration, until: Timestamp) -> Ledger {
        let at = Timestamp::from_millis;
        let per_window = limits.per_second.unwrap();
        let row = |number: u32| {
            let window = at(20) + (Duration::from_secs(1) + late) * (number / per_window);
            LedgerRow {
                attempt: AttemptId(number.into()),
                due_at: at(0),
                started_at: (window < until).then_some(window),
                finished_at: None,
                state: AttemptState::Started,
                status: None,
            }
        };
        Ledger {
            history: vec![InForce::new(at(0), &limits, DestinationState::Active)],
            rows: (0..per_window * 100).map(row).collect(),
        }
    }

    fn verdict(limits: LimitSettings, late: Duration, until: Timestamp) -> DestinationVerdict {
        let ledger = ledger(limits, late, until);
        let receivers = Receivers {
            stalls: &Stalls::default(),
            ahead: Ahead::default(),
            window_percent: WHOLE_WINDOWS,
        };
        let plan = Plan::flooded("one", limits, 1, 1);
        let span = (Timestamp::from_millis(0), until);
        DestinationVerdict::new(
            (&plan, DestinationId(Uuid::nil())),
            &ledger,
            (receivers, &[]),
            span,
        )
    }

    #[test]
    fn a_window_that_is_late_by_its_margin_is_not_missed_whenever_a_run_ends() {
        for until_ms in (5_000..65_000).step_by(50) {
            let until = Timestamp::from_millis(until_ms);
            let one = verdict(per_second(10), LATE, until);
            assert!(!one.is_under(LEAST_SHARE_PERCENT), "{until_ms} ms: {one:?}");
        }
    }

    #[test]
    fn a_destination_that_gets_less_than_it_should_is_under_whenever_a_run_ends() {
        for until_ms in (20_000..65_000).step_by(50) {
            let until = Timestamp::from_millis(until_ms);
            let one = verdict(per_second(10), LATE * 4, until);
            assert!(one.is_under(LEAST_SHARE_PERCENT), "{until_ms} ms: {one:?}");
        }
    }

    #[test]
    fn an_average_is_over_the_shortest_of_the_periods_in_force() {
        let both = LimitSettings {
            per_minute: Some(100),
            ..per_second(10)
        };
        let minute = LimitSettings {
            per_minute: Some(300),
            ..LimitSettings::default()
        };
        let at = Timestamp::from_millis;
        let in_force = |limits| InForce::new(at(0), &limits, DestinationState::Active);
        let shortest = |all: &[LimitSettings]| {
            let history: Vec<_> = all.iter().copied().map(in_force).collect();
            shortest_period(&history)
        };
        assert_eq!(shortest(&[both]), Duration::from_secs(1));
        assert_eq!(shortest(&[both, minute]), Duration::from_secs(60));
    }
}

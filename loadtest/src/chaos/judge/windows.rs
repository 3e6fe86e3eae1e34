//! No window over: in the ledger, at the workers' first byte, at the
//! receivers.
//!
//! The **ledger** is judged exactly, by the times that the store recorded, of claims and
//! of starts, whatever its clock did meanwhile: the rule compares recorded times, so it
//! holds on a clock that is set, too. A change is in force for claims at once; starts that
//! had been claimed before it come after it.
//!
//! The **wire** is judged by the workers' own log of first bytes, on the
//! wire's clock (see `timeline`). A worker sends at most
//! `MAX_CLAIM_TO_SEND` after its claim, or not at all, so a limit holds in
//! windows that are shorter by that much, and a change of limits reaches the
//! wire by that much later. **Receivers** add what a request may take to
//! arrive: 50 ms on the loopback. What arrived while the load test, in which
//! the receivers live, was itself late is left out, for nobody knows when that
//! was; so is what a worker was sending when it was stopped, for it arrives when
//! that worker goes on, even after its own retry; and destinations behind a
//! proxy are judged at the worker only.
//!
//! A batch is one start, that of its first event; the others are carried.
//!
//! Shorter windows are judged by stretching time: in units of which P of them
//! are as long as the shorter window, it is a window of P.

use std::collections::HashMap;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::compliance::{self, InForce, Rule, Start};
use domain::destination::DestinationState;
use domain::ids::AttemptId;
use domain::limit::Period;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use promises::{no_window_is_over, no_window_of_sends_is_over};
use uuid::Uuid;

use super::timeline::Timeline;
use super::{Case, Judgement};
use crate::chaos::log::{Change, Receipt, Row};

/// What a request on the loopback may take, in microseconds.
const LOOPBACK: i64 = 50_000;

/// One destination's evidence.
struct Destination<'a> {
    id: Uuid,
    name: &'a str,
    changes: Vec<&'a Change>,
}

pub(super) fn judge(case: &Case<'_>, timeline: &Timeline, judgement: &mut Judgement) {
    let evidence = case.evidence;
    let delta = i64::try_from(MAX_CLAIM_TO_SEND.as_micros()).unwrap_or(i64::MAX);
    let delays = Delays::new(case);
    let (mut timely, mut all) = (0, 0);
    let of_attempt: HashMap<i64, Uuid> = (evidence.rows.iter())
        .map(|row| (row.attempt, row.destination))
        .collect();
    for (number, tried) in (0_u32..).zip(&evidence.run.destinations) {
        let mut changes: Vec<_> = (evidence.changes.iter())
            .filter(|change| change.destination == tried.id)
            .collect();
        changes.sort_by_key(|change| change.from);
        let destination = Destination {
            id: tried.id,
            name: &tried.name,
            changes,
        };
        destination.judge_ledger(case, judgement);
        let mut sends: Vec<i64> = (evidence.sends.iter())
            .filter(|send| of_attempt.get(&send.attempt) == Some(&tried.id) && !send.carried)
            .map(|send| timeline.wire(send.at_us))
            .collect();
        destination.judge_wire(("sent", delta), &mut sends, timeline, judgement);
        if !tried.proxied {
            let mut receipts: Vec<i64> = (evidence.receipts.iter())
                .filter(|receipt| receipt.destination == number && !receipt.carried)
                .inspect(|_| all += 1)
                .filter(|receipt| !delays.hold(case, receipt))
                .map(|receipt| timeline.wire(receipt.at_us))
                .collect();
            timely += receipts.len();
            let later = delta + LOOPBACK;
            destination.judge_wire(("received", later), &mut receipts, timeline, judgement);
        }
    }
    judgement.figures.timely_receipts_percent = (timely * 100).checked_div(all).unwrap_or(100);
}

/// What makes a request arrive late that was sent in time: from when until
/// when, in order.
struct Delays {
    /// This process was late.
    lags: Vec<(i64, i64)>,
    /// A worker was stopped.
    stops: Vec<(i64, i64)>,
}

impl Delays {
    fn new(case: &Case<'_>) -> Self {
        let of = |what: &str, who: &str| {
            let happenings = case.evidence.happenings.iter();
            happenings
                .filter(|one| one.what == what && one.kind == who)
                .map(|one| (one.at_us - one.by_us, one.at_us))
                .collect::<Vec<_>>()
        };
        Self {
            lags: of("lag", ""),
            stops: of("stopped", "worker"),
        }
    }

    /// Whether they tell when this arrived, rather than its sender.
    fn hold(&self, case: &Case<'_>, receipt: &Receipt) -> bool {
        self.is_late(receipt.at_us) || self.was_stopped(case, receipt)
    }

    fn is_late(&self, at: i64) -> bool {
        // They do not overlap by more than the allowance, so the last two decide.
        let after = self.lags.partition_point(|(from, _)| *from <= at);
        self.lags[after.saturating_sub(2)..after]
            .iter()
            .any(|(_, until)| at <= *until + LOOPBACK)
    }

    /// Sent as a worker was stopped, and there after it went on.
    fn was_stopped(&self, case: &Case<'_>, receipt: &Receipt) -> bool {
        let key = receipt.event.zip(receipt.try_number);
        let Some(sends) = key.and_then(|key| case.sends.get(&key)) else {
            return false;
        };
        let spans = |sent: i64, (from, until): (i64, i64)| {
            sent.abs_diff(from) <= LOOPBACK.unsigned_abs() && receipt.at_us >= until
        };
        (self.stops.iter()).any(|stop| sends.iter().any(|sent| spans(*sent, *stop)))
    }
}

impl Destination<'_> {
    fn judge_ledger(&self, case: &Case<'_>, judgement: &mut Judgement) {
        let ledger = |at: fn(&Row) -> Option<i64>| {
            let mut starts: Vec<Start> = (case.evidence.rows.iter())
                .filter(|row| row.destination == self.id && row.carried_by.is_none())
                .filter_map(|row| Some((Timestamp::from_micros(at(row)?), AttemptId(row.attempt))))
                .collect();
            starts.sort_unstable();
            starts
        };
        let history: Vec<_> = (self.changes.iter())
            .map(|change| {
                let from = Timestamp::from_micros(change.from);
                InForce::new(from, &change.effective, change.state)
            })
            .collect();
        let claims = compliance::judge(&history, &ledger(|row| row.claimed_at));
        let judged = no_window_is_over(&claims).map_err(|broken| broken.of(self.name));
        judgement.keep("window", judged);
        let verdict = compliance::judge_sends(&history, &ledger(|row| row.started_at));
        for limit in verdict
            .limits
            .iter()
            .filter(|limit| limit.period == Period::Second)
        {
            let bound = limit.bound.unwrap_or(u64::MAX).max(1);
            let percent = limit.sliding.starts.saturating_mul(100) / bound;
            let fullest = &mut judgement.figures.fullest_window_percent;
            *fullest = percent.max(*fullest);
        }
        let judged = no_window_of_sends_is_over(&verdict).map_err(|broken| broken.of(self.name));
        judgement.keep("window", judged);
    }

    /// Windows shorter by `later` microseconds, which is also how much later a
    /// change reaches here.
    fn judge_wire(
        &self,
        (seen, later): (&str, i64),
        times: &mut [i64],
        timeline: &Timeline,
        judgement: &mut Judgement,
    ) {
        times.sort_unstable();
        let history = self.reaching(later, timeline);
        for period in Period::ALL {
            let whole = i64::try_from(period.duration().as_micros()).unwrap_or(i64::MAX);
            let shorter = whole - later;
            if shorter <= 0 {
                continue;
            }
            let stretched = |at: i64| {
                let units = i128::from(at) * i128::from(whole) / i128::from(shorter);
                Timestamp::from_micros(i64::try_from(units).unwrap_or(i64::MAX))
            };
            let starts: Vec<Start> = (1_i64..)
                .zip(times.iter())
                .map(|(number, at)| (stretched(*at), AttemptId(number)))
                .collect();
            let history: Vec<_> = (history.iter())
                .map(|(from, settings, state)| InForce::new(stretched(*from), settings, *state))
                .collect();
            let verdict = compliance::judge(&history, &starts);
            let of_period = |rule| match rule {
                Rule::Window(of) => of == period,
                // Once, and not by a bucket: its slack is its own.
                Rule::Pause => period == Period::Second,
                Rule::Bucket => false,
            };
            for violation in verdict.violations().filter(|one| of_period(one.rule)) {
                judgement.find("wire", || {
                    let last = violation.attempts.last().map_or(0, |last| last.0 - 1);
                    let at = times.get(usize::try_from(last).unwrap_or(0));
                    format!(
                        "{}: {} {seen} within {} ms ({:?}), bound {}, up to {} us",
                        self.name,
                        violation.starts,
                        shorter / 1_000,
                        violation.rule,
                        violation.bound,
                        at.copied().unwrap_or(0)
                    )
                });
            }
        }
    }

    /// What was in force on the wire's clock: at first, after each change, the
    /// looser of the two.
    fn reaching(
        &self,
        later: i64,
        timeline: &Timeline,
    ) -> Vec<(i64, LimitSettings, DestinationState)> {
        let mut reaching: Vec<(i64, LimitSettings, DestinationState)> = Vec::new();
        for change in &self.changes {
            let at = timeline.wire(timeline.shared(change.from));
            // Entries that were still on their way are overtaken.
            let mut before = None;
            while let Some(last) = reaching.pop_if(|last| last.0 > at) {
                before = Some(last);
            }
            let before = before.or(reaching.last().copied());
            if let Some((_, settings, state)) = before {
                let (settings, state) = looser((settings, state), (change.effective, change.state));
                reaching.push((at, settings, state));
            }
            reaching.push((at + later, change.effective, change.state));
        }
        reaching
    }
}

type Setting = (LimitSettings, DestinationState);

/// What allows all that either does.
fn looser(one: Setting, other: Setting) -> Setting {
    match (is_pause(&one), is_pause(&other)) {
        (true, _) => other,
        (false, true) => one,
        (false, false) => {
            let most = |a: Option<u32>, b: Option<u32>| Some(a?.max(b?));
            let (a, b) = (one.0, other.0);
            let settings = LimitSettings {
                per_second: most(a.per_second, b.per_second),
                per_minute: most(a.per_minute, b.per_minute),
                per_hour: most(a.per_hour, b.per_hour),
                per_day: most(a.per_day, b.per_day),
                unlimited: a.unlimited || b.unlimited,
                ..b
            };
            (settings, other.1)
        }
    }
}

fn is_pause((settings, state): &Setting) -> bool {
    *state != DestinationState::Active || settings.per_second == Some(0)
}

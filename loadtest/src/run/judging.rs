//! Starts against limits, at the sender and at the receiver.
//!
//! The sender's side is its ledger, judged as the demo's is; without the
//! database there is none. The receiver's side is what arrived.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::Context;
use domain::attempt::AttemptState;
use domain::compliance::largest_sliding;
use domain::ids::{AttemptId, DestinationId};
use domain::limit::Period;
use domain::time::Timestamp;
use engine::ports::LedgerRow;
use serde::{Deserialize, Serialize};
use server::parts::Stored;
use server::receiver::{self, Behaviour};
use server::trial::{DestinationVerdict, Ledger, Plan};
use uuid::Uuid;

use super::arrivals::Arrival;
use super::settings::{Limit, Settings, Shape};

/// The most destinations that are judged, those with the most arrivals.
pub(crate) const MAX_JUDGED: usize = 2_000;

/// The most destinations that a report lists, the worst ones.
const MAX_LISTED: usize = 20;

/// One destination's worst window, beside what it may hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judged {
    pub(crate) destination: u32,
    /// The window's length: the limit's period; a second where there is none.
    pub(crate) period_seconds: u64,
    /// What a window may hold; `None` is any number.
    pub(crate) bound: Option<u64>,
    /// Starts in the fullest window of the ledger, where that is known.
    pub(crate) worst_at_sender: Option<u64>,
    /// Arrivals in the fullest window at the receiver. Latency moves arrivals
    /// together, so it may hold a few more than the sender's.
    pub(crate) worst_at_receiver: u64,
    pub(crate) early_starts: u64,
    /// Starts in per cent of what a perfect sender could have made.
    pub(crate) share_percent: Option<u64>,
    pub(crate) arrivals: u64,
}

/// All of them together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Destinations that were judged.
    pub(crate) judged: u64,
    /// Starts that came too early; `None` without a ledger.
    pub(crate) early_starts: Option<u64>,
    /// Failed attempts that no receiver has answered; `None` without a ledger, or
    /// where receivers may take longer than a request may.
    pub(crate) unfounded_failures: Option<u64>,
    pub(crate) least_share_percent: Option<u64>,
    /// The worst, at most [`MAX_LISTED`].
    pub(crate) worst: Vec<Judged>,
    /// From due to start, in microseconds, unsorted.
    pub(crate) waits_us: Vec<u64>,
}

/// Where the ledger is, and since when it is ours.
pub(crate) struct Sender<'a> {
    pub(crate) stored: &'a dyn Stored,
    pub(crate) began: Timestamp,
    pub(crate) until: Timestamp,
}

/// Judges the destinations with the most arrivals.
pub(crate) async fn judge(
    settings: &Settings,
    destinations: &[(Uuid, u16)],
    arrivals: &[Arrival],
    sender: Option<Sender<'_>>,
) -> anyhow::Result<Verdict> {
    let mut by_destination: HashMap<u32, Vec<receiver::Arrival>> = HashMap::new();
    for arrival in arrivals {
        let of = by_destination.entry(arrival.destination()).or_default();
        of.push(as_received(*arrival));
    }
    let mut numbers: Vec<u32> = (0..settings.destinations).collect();
    let most = |number: &u32| Reverse(by_destination.get(number).map_or(0, Vec::len));
    numbers.sort_by_key(most);
    numbers.truncate(MAX_JUDGED);
    let mut verdict = Verdict::default();
    for number in numbers {
        let arrived = by_destination.remove(&number).unwrap_or_default();
        let judged = match &sender {
            Some(sender) => {
                let id = DestinationId(destinations[number as usize].0);
                with_ledger(settings, (number, id), &arrived, sender, &mut verdict).await?
            }
            None => without_ledger(settings, number, &arrived),
        };
        verdict.judged += 1;
        verdict.worst.push(judged);
    }
    verdict
        .worst
        .sort_by_key(|judged| Reverse(judged.badness()));
    verdict.worst.truncate(MAX_LISTED);
    Ok(verdict)
}

impl Judged {
    /// How far beyond its limit it was, in per cent; without one, how much
    /// came at once.
    fn badness(&self) -> (u64, u64, u64) {
        let percent = |starts: u64| match self.bound {
            Some(bound) => starts * 100 / bound.max(1),
            None => 0,
        };
        let sender = self.worst_at_sender.unwrap_or(0);
        (
            self.early_starts,
            percent(self.worst_at_receiver.max(sender)),
            self.worst_at_receiver,
        )
    }
}

async fn with_ledger(
    settings: &Settings,
    (number, id): (u32, DestinationId),
    arrived: &[receiver::Arrival],
    sender: &Sender<'_>,
    verdict: &mut Verdict,
) -> anyhow::Result<Judged> {
    let stored = sender.stored;
    let between = (sender.began, sender.until);
    let ledger = Ledger::read(stored, id, between).await;
    let ledger = ledger.context("read a ledger")?;
    for row in &ledger.rows {
        let waited = row.started_at.map(|started| started.since(row.due_at));
        verdict
            .waits_us
            .extend(waited.map(|waited| waited.as_micros() as u64));
    }
    if settings.shape != Shape::Slow {
        let unfounded = ledger.rows.iter().filter(|row| is_unfounded(row)).count() as u64;
        verdict.unfounded_failures = Some(verdict.unfounded_failures.unwrap_or(0) + unfounded);
    }
    let plan = Plan {
        name: number.to_string(),
        limits: settings.limit.settings(),
        behaviour: Behaviour::ACCEPT,
        events: u32::try_from(arrived.len()).unwrap_or(u32::MAX),
    };
    let arrived_refs: Vec<_> = arrived.iter().collect();
    let one = DestinationVerdict::new(&plan, id, &ledger, &arrived_refs, between);
    verdict.early_starts = Some(verdict.early_starts.unwrap_or(0) + one.early_starts);
    let mut judged = without_ledger(settings, number, arrived);
    judged.early_starts = one.early_starts;
    let fullest = one.windows.iter().max_by_key(|window| {
        let bound = window.bound.unwrap_or(u64::MAX).max(1);
        window.largest_sliding * 1_000 / bound
    });
    match fullest {
        Some(window) => {
            judged.period_seconds = window.period.duration().as_secs();
            judged.bound = window.bound;
            judged.worst_at_sender = Some(window.largest_sliding);
            judged.worst_at_receiver = window.largest_at_receiver;
            judged.share_percent = Some(one.share_percent);
            let least = verdict.least_share_percent.unwrap_or(u64::MAX);
            verdict.least_share_percent = Some(least.min(one.share_percent));
        }
        None => {
            let starts = ledger.rows.iter();
            let mut starts: Vec<_> = starts
                .filter_map(|row| Some((row.started_at?, row.attempt)))
                .collect();
            starts.sort_unstable_by_key(|(at, _)| *at);
            judged.worst_at_sender = Some(largest_sliding(&starts, Period::Second).starts);
        }
    }
    Ok(judged)
}

/// Our receivers accept every connection and answer every request, if with a 500.
fn is_unfounded(row: &LedgerRow) -> bool {
    row.state == AttemptState::Failed && row.status.is_none()
}

fn without_ledger(settings: &Settings, number: u32, arrived: &[receiver::Arrival]) -> Judged {
    let (bound, period) = match (settings.limit, settings.limit_then) {
        // What may be in a window that saw the change is not known here.
        (Limit::Per(max, period), None) => (Some(u64::from(max)), period),
        (Limit::Per(_, period), Some(_)) => (None, period),
        (Limit::Unlimited, _) => (None, Period::Second),
    };
    let starts: Vec<_> = arrived.iter().map(as_start).collect();
    Judged {
        destination: number,
        period_seconds: period.duration().as_secs(),
        bound,
        worst_at_sender: None,
        worst_at_receiver: largest_sliding(&starts, period).starts,
        early_starts: 0,
        share_percent: None,
        arrivals: arrived.len() as u64,
    }
}

fn as_start(arrival: &receiver::Arrival) -> (Timestamp, AttemptId) {
    let at_us = i64::try_from(arrival.at_us).unwrap_or(i64::MAX);
    (Timestamp::from_micros(at_us), AttemptId(0))
}

fn as_received(arrival: Arrival) -> receiver::Arrival {
    receiver::Arrival {
        destination: arrival.destination(),
        event: Some(Uuid::from_u128(arrival.event.into())),
        at_us: arrival.at_us.unsigned_abs(),
        body_bytes: 0,
    }
}

/// Attempts that still wait or are on their way, of all destinations.
pub(crate) async fn pending(
    stored: &dyn Stored,
    destinations: &[(Uuid, u16)],
) -> anyhow::Result<u64> {
    let ids: Vec<_> = destinations
        .iter()
        .map(|(id, _)| DestinationId(*id))
        .collect();
    let mut waiting = 0;
    for ids in ids.chunks(MAX_JUDGED) {
        let backlogs = stored.backlogs(ids, u32::MAX >> 1).await?;
        waiting += backlogs.into_iter().map(u64::from).sum::<u64>();
    }
    Ok(waiting + u64::from(stored.fleet().await?.outstanding))
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::Answer;
    use super::super::settings::tests::settings;
    use super::*;

    #[tokio::test]
    async fn without_a_ledger_the_receivers_windows_are_judged() {
        let settings = Settings {
            destinations: 3,
            limit: Limit::Per(2, Period::Second),
            ..settings(Shape::Constant)
        };
        let at = |ms: i64, destination| Arrival::new(ms * 1_000, 0, destination, Answer::Taken);
        let arrivals = [at(0, 1), at(100, 0), at(200, 1), at(900, 1), at(1_100, 0)];
        let ids = [(Uuid::nil(), 0); 3];
        let verdict = judge(&settings, &ids, &arrivals, None).await.unwrap();
        assert_eq!((verdict.judged, verdict.early_starts), (3, None));
        let worst = &verdict.worst[0];
        assert_eq!(
            (worst.destination, worst.worst_at_receiver, worst.bound),
            (1, 3, Some(2))
        );
        let second = &verdict.worst[1];
        assert_eq!((second.destination, second.worst_at_receiver), (0, 1));
    }
}

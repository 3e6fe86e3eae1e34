//! What if: recorded arrivals, replayed against another limit.
//!
//! [`replay`] puts arrivals and latencies that were recorded before the *real*
//! [`crate::admission::admit`], in virtual time: workers claim each permit at
//! its slot, and receivers take as long as they took. So what it says differs
//! from what will be by what it cannot know: other arrivals, other latencies,
//! and retries that would not have been, or would.

mod receiver;
mod virtual_time;

use std::time::Duration;

pub use receiver::Receiver;
pub use virtual_time::{MAX_AHEAD, Shared, replay};

use crate::series::Passage;
use crate::time::Timestamp;

/// The most arrivals of a replay: some seconds of work, and tens of megabytes.
pub const MAX_ARRIVALS: usize = 500_000;

/// How long a request is taken to last where no latency was recorded at all.
pub const ASSUMED_LATENCY: Duration = Duration::from_millis(100);

/// An attempt that is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it could start at the earliest.
    pub due_at: Timestamp,
    /// How long its request lasts.
    pub latency: Duration,
}

/// How a limit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Attempts that started.
    pub starts: u64,
    /// Attempts that had not, at the end.
    pub waiting: u64,
    /// Of those that started, how long half of them waited at most.
    pub wait_p50: Option<Duration>,
    /// The same, of ninety-nine in a hundred.
    pub wait_p99: Option<Duration>,
    /// The most that waited at once.
    pub peak_backlog: u64,
    /// When.
    pub peak_at: Option<Timestamp>,
    /// When the last of them started, if all have.
    pub drained_at: Option<Timestamp>,
    /// The most starts in a second of the clock.
    pub busiest_second: u64,
}

/// What was recorded, as arrivals: by when they were due. What has no latency
/// takes those of others, in turn.
#[must_use]
pub fn arrivals(recorded: &[Passage]) -> Vec<Arrival> {
    let latency = |passage: &Passage| {
        let (started, finished) = (passage.started_at?, passage.finished_at?);
        Some(finished.since(started))
    };
    let known: Vec<Duration> = recorded.iter().filter_map(latency).collect();
    let mut others = known.iter().copied().cycle();
    let mut arrivals: Vec<Arrival> = (recorded.iter())
        .map(|passage| Arrival {
            due_at: passage.due_at,
            latency: latency(passage)
                .or_else(|| others.next())
                .unwrap_or(ASSUMED_LATENCY),
        })
        .collect();
    arrivals.sort_by_key(|arrival| arrival.due_at);
    arrivals
}

/// How it went, from each attempt's way.
#[must_use]
pub fn summary(passages: &[Passage]) -> Summary {
    let starts: Vec<Timestamp> = passages.iter().filter_map(|one| one.started_at).collect();
    let mut waits: Vec<Duration> = (passages.iter())
        .filter_map(|one| Some(one.started_at?.since(one.due_at)))
        .collect();
    waits.sort_unstable();
    let waiting = (passages.len() - starts.len()) as u64;
    let (peak_backlog, peak_at) = peak(passages);
    Summary {
        starts: starts.len() as u64,
        waiting,
        wait_p50: quantile(&waits, 0.5),
        wait_p99: quantile(&waits, 0.99),
        peak_backlog,
        peak_at,
        drained_at: starts.iter().copied().max().filter(|_| waiting == 0),
        busiest_second: busiest_second(starts),
    }
}

fn quantile(sorted: &[Duration], part: f64) -> Option<Duration> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The most that waited at once, and since when. What starts at once never did.
fn peak(passages: &[Passage]) -> (u64, Option<Timestamp>) {
    let due = passages.iter().map(|one| (one.due_at, 1_i64));
    let started = (passages.iter()).filter_map(|one| Some((one.started_at?.max(one.due_at), -1)));
    let mut steps: Vec<_> = due.chain(started).collect();
    // Starts first: what ends in an instant does not add to what begins in it,
    // and what is due and starts in one instant is made up for before it counts.
    steps.sort_unstable();
    let (mut waiting, mut most, mut at) = (0, 0, None);
    for of_an_instant in steps.chunk_by(|a, b| a.0 == b.0) {
        waiting += of_an_instant.iter().map(|step| step.1).sum::<i64>();
        if waiting > most {
            (most, at) = (waiting, Some(of_an_instant[0].0));
        }
    }
    (most.unsigned_abs(), at)
}

fn busiest_second(mut starts: Vec<Timestamp>) -> u64 {
    let second = |at: &Timestamp| at.as_micros().div_euclid(1_000_000);
    starts.sort_unstable();
    let seconds = starts.chunk_by(|a, b| second(a) == second(b));
    seconds.map(|one| one.len() as u64).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;

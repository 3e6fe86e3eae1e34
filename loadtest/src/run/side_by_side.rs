//! The same traffic under other ways to limit it, side by side and in virtual
//! time: the classic formula, a fixed window, and our three shapes.
//!
//! Ours are decided by the real `admit` (`domain::what_if`). The other two are
//! written down here, as plainly as they are used, over the same events, request
//! times, places and way to the receiver. Everything is drawn from the seed, so
//! the same settings give the same figures.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use domain::admission::SLACK;
use domain::limit::Shape as LimitShape;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use domain::what_if::{Arrival, replay};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use server::output;

use super::settings::{Ingest, Limit, Rate, Settings, Shape};
use super::shapes;

/// The most events that are looked at: those of one destination.
const MAX_EVENTS: usize = 50_000;

/// Requests at once, of every way: `max_in_flight` where none is set.
const PLACES: usize = 50;

/// How long a request takes.
const LATENCY_US: std::ops::Range<u64> = 50_000..150_000;

/// From the start to the receiver's clock.
const WAY_US: std::ops::Range<u64> = 1_000..6_000;

/// How much later than planned a job runs at most, as a part of its period.
const LATE: f64 = 0.05;

/// The same traffic under the classic formula, a fixed window and our three
/// shapes, in virtual time: takes seconds and no server.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How the events are spread over time.
    #[arg(long, value_enum, default_value_t = Shape::Burst)]
    shape: Shape,
    /// The limit.
    #[arg(long, value_name = "N/PERIOD", default_value = "100/s")]
    limit: Limit,
    /// Events of a burst or an import.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    events: u32,
    /// Events a second beside them.
    #[arg(long, value_name = "N/s", default_value = "0")]
    rate: Rate,
    /// How long the traffic lasts.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// What is drawn: the same seed gives the same figures.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also as JSON, into this file.
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

/// Prints the table.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let settings = Settings {
        shape: args.shape,
        rate: args.rate,
        seconds: args.seconds,
        destinations: 1,
        hot: 1,
        events: args.events,
        limit: args.limit,
        limit_then: None,
        max_in_flight: None,
        safety_margin: None,
        payload_bytes: 0,
        ingest: Ingest::Auto,
        seed: args.seed,
    };
    settings.check()?;
    let ways = ways(&settings);
    ensure!(!ways.is_empty(), "side by side needs a limit and events");
    if let Some(path) = &args.summary {
        let text = serde_json::to_string_pretty(&ways)?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    output::line(&super::table::side_by_side(&ways))?;
    Ok(())
}

/// How one way of limiting did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Way {
    pub(crate) name: String,
    /// Starts that it allows into any window; none where it promises nothing.
    pub(crate) promised: Option<u64>,
    /// Starts in the fullest window.
    pub(crate) worst_at_sender: u64,
    /// Arrivals in the fullest window.
    pub(crate) worst_at_receiver: u64,
    /// From the first event to the last start.
    pub(crate) last_start_seconds: f64,
}

/// The traffic of one destination, as every way gets it.
struct Traffic {
    limit: u32,
    period: Duration,
    arrivals: Vec<Arrival>,
    /// How long each is on its way.
    ways_us: Vec<u64>,
    seed: u64,
}

/// How each way does with what the first destination gets; nothing where it has
/// no limit, or no traffic.
pub(crate) fn ways(settings: &Settings) -> Vec<Way> {
    let Some(traffic) = traffic(settings) else {
        return Vec::new();
    };
    let max = u64::from(traffic.limit);
    let burst = (traffic.limit / 5).max(1);
    let shaped = |shape, burst| LimitSettings {
        shape: Some(shape),
        burst,
        ..settings.limit.settings()
    };
    let slack = SLACK.as_secs_f64() / traffic.period.as_secs_f64();
    let bucket = |burst: u32| u64::from(burst) + (max as f64 * (1.0 + slack)).ceil() as u64;
    let ours = |shape, burst| traffic.ours(&shaped(shape, burst));
    vec![
        traffic.judge("classic formula", None, &traffic.classic()),
        traffic.judge("fixed window", None, &traffic.fixed_window()),
        traffic.judge(
            "sliding window",
            Some(max),
            &ours(LimitShape::SlidingWindow, None),
        ),
        traffic.judge(
            &format!("token bucket of {burst}"),
            Some(bucket(burst)),
            &ours(LimitShape::TokenBucket, Some(burst)),
        ),
        traffic.judge(
            "leaky bucket",
            Some(bucket(1)),
            &ours(LimitShape::LeakyBucket, None),
        ),
    ]
}

fn traffic(settings: &Settings) -> Option<Traffic> {
    let Limit::Per(limit, period) = settings.limit else {
        return None;
    };
    let mut random = StdRng::seed_from_u64(settings.seed);
    let steps = shapes::steps(settings).filter(|step| step.destination == 0);
    let due_us = steps.flat_map(|step| (0..step.count).map(move |_| step.at_us));
    let arrivals: Vec<Arrival> = due_us
        .take(MAX_EVENTS)
        .map(|at_us| Arrival {
            due_at: Timestamp::from_micros(at_us as i64),
            latency: Duration::from_micros(random.random_range(LATENCY_US)),
        })
        .collect();
    (!arrivals.is_empty()).then(|| Traffic {
        limit,
        period: period.duration(),
        ways_us: arrivals
            .iter()
            .map(|_| random.random_range(WAY_US))
            .collect(),
        arrivals,
        seed: settings.seed,
    })
}

impl Traffic {
    /// The real admission; starts by event.
    fn ours(&self, settings: &LimitSettings) -> Vec<i64> {
        let passages = replay(&settings.policy(), None, &self.arrivals, u32::MAX);
        let started = passages.iter().filter_map(|passage| passage.started_at);
        started.map(Timestamp::as_micros).collect()
    }

    /// `allow = rate_limit − attempts_still_in_queue`, once a period. What workers
    /// have prefetched is not in the queue any more.
    fn classic(&self) -> Vec<i64> {
        let mut random = StdRng::seed_from_u64(self.seed ^ 2);
        let period = self.period.as_micros() as i64;
        let mut places = Places::new();
        let mut starts: Vec<i64> = Vec::with_capacity(self.arrivals.len());
        let mut run = 0;
        while starts.len() < self.arrivals.len() {
            let late = (random.random_range(0.0..LATE) * period as f64) as i64;
            let now = run * period + late;
            // All that was published has its start by now: it is in the queue
            // until then, but for one prefetched message a place.
            let unstarted = starts.iter().rev().take_while(|start| **start > now);
            let in_queue = unstarted.count().saturating_sub(PLACES);
            let arrived =
                (self.arrivals).partition_point(|arrival| arrival.due_at.as_micros() <= now);
            let allow = (self.limit as usize).saturating_sub(in_queue);
            let until = arrived.min(starts.len() + allow);
            for event in starts.len()..until {
                starts.push(places.start(now, self.arrivals[event].latency));
            }
            run += 1;
        }
        starts
    }

    /// So many in each period of a clock that the traffic knows nothing of.
    fn fixed_window(&self) -> Vec<i64> {
        let mut random = StdRng::seed_from_u64(self.seed ^ 3);
        let period = self.period.as_micros() as i64;
        let phase = random.random_range(0..period);
        let mut places = Places::new();
        let mut used: HashMap<i64, u32> = HashMap::new();
        let mut window = i64::MIN;
        let start = |arrival: &Arrival| loop {
            let begins = window.saturating_mul(period).saturating_sub(phase);
            let at = places.earliest(arrival.due_at.as_micros().max(begins));
            let of = (at + phase).div_euclid(period);
            window = window.max(of);
            let count = used.entry(of).or_default();
            if of == window && *count < self.limit {
                *count += 1;
                return places.start(at, arrival.latency);
            }
            window += 1;
        };
        self.arrivals.iter().map(start).collect()
    }

    fn judge(&self, name: &str, promised: Option<u64>, starts: &[i64]) -> Way {
        let on_the_way = starts.iter().zip(&self.ways_us);
        let arrived: Vec<i64> = on_the_way.map(|(at, way)| at + *way as i64).collect();
        let first = self
            .arrivals
            .first()
            .map_or(0, |one| one.due_at.as_micros());
        let last = starts.iter().max().map_or(first, |last| *last);
        Way {
            name: name.to_owned(),
            promised,
            worst_at_sender: fullest(starts.to_vec(), self.period),
            worst_at_receiver: fullest(arrived, self.period),
            last_start_seconds: (last - first) as f64 / 1_000_000.0,
        }
    }
}

/// When requests end, of so many at once.
struct Places(BinaryHeap<Reverse<i64>>);

impl Places {
    fn new() -> Self {
        Self(BinaryHeap::new())
    }

    /// When one that may start at `at` finds a place.
    fn earliest(&self, at: i64) -> i64 {
        match self.0.peek() {
            Some(Reverse(free)) if self.0.len() >= PLACES => at.max(*free),
            _ => at,
        }
    }

    fn start(&mut self, at: i64, latency: Duration) -> i64 {
        let at = self.earliest(at);
        if self.0.len() >= PLACES {
            self.0.pop();
        }
        self.0.push(Reverse(at + latency.as_micros() as i64));
        at
    }
}

/// The most of these in any half-open window of this length.
fn fullest(mut times: Vec<i64>, period: Duration) -> u64 {
    times.sort_unstable();
    let period = period.as_micros() as i64;
    let mut oldest = 0;
    let mut most = 0;
    for (newest, at) in times.iter().enumerate() {
        while times[oldest] <= at - period {
            oldest += 1;
        }
        most = most.max(newest + 1 - oldest);
    }
    most as u64
}

#[cfg(test)]
mod tests;

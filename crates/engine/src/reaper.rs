//! The reaper: what nobody came back for goes on.
//!
//! Every instance reaps; there is no leader, because each row is locked and
//! rechecked. After its own start, after a stall, and after the store was
//! away it gives workers time to show themselves before it takes their starts
//! for lost: their heartbeats could not be written either.
//!
//! A part of it that the store puts off costs the others nothing. It may have been
//! too large a step, so the next ones are smaller until one gets through.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pause::ends_within;
use crate::ports::{
    HEARTBEAT_TIMEOUT, MAX_REQUEST_TIMEOUT, REAP_PART_BOUND, ReapRules, Reaped, Schedule, Store,
};
use crate::wake::wake_freed;

/// Rows of one step, at most: some milliseconds, for where a store has one writer the others
/// wait meanwhile.
const MOST: u32 = 250;

/// Rows of the smallest step: if the store cannot do so few in its bound, fewer
/// would not help.
const LEAST: u32 = 10;

/// How the reaper runs.
#[derive(Debug, Clone, Copy)]
pub struct ReaperOptions {
    /// Between two runs.
    pub every: Duration,
    /// From one run that goes through everything to the next, if it has cancelled and expired
    /// nothing and no step was full. Else all runs do: little at a time is felt less by those
    /// beside it.
    pub everything_every: Duration,
    /// How old a start may be while its worker lives: the longest request and
    /// ten seconds.
    pub start_timeout: Duration,
    /// How long after its deadline a permit is moved back: a claim made just
    /// in time may still be committing, and would only be skipped.
    pub permit_grace: Duration,
    /// How long workers get to show themselves again.
    pub patience: Duration,
}

impl Default for ReaperOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(250),
            everything_every: Duration::from_secs(1),
            start_timeout: MAX_REQUEST_TIMEOUT.saturating_add(RECORDED_WITHIN),
            permit_grace: Duration::from_millis(100),
            patience: HEARTBEAT_TIMEOUT.saturating_add(Duration::from_secs(1)),
        }
    }
}

/// How long after the longest request a worker that lives may take to record it.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);

impl ReaperOptions {
    /// Where no request takes longer than this.
    #[must_use]
    pub fn for_requests(longest: Duration) -> Self {
        Self {
            start_timeout: longest.saturating_add(RECORDED_WITHIN),
            ..Self::default()
        }
    }
}

/// The loop.
pub struct Reaper {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    options: ReaperOptions,
    /// Until then no start is taken for lost.
    patient_until: Instant,
    last_tick: Instant,
    /// How much of the last tick went into parts that were put off: time in which
    /// the store was there, and so is no stall.
    put_off_for: Duration,
    /// When everything is gone through again.
    everything_from: Instant,
    /// Rows of the next step.
    limit: u32,
}

impl Reaper {
    /// A reaper of this store, waking into this schedule.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, schedule: Arc<dyn Schedule>, options: ReaperOptions) -> Self {
        let now = Instant::now();
        Self {
            store,
            schedule,
            options,
            patient_until: now + options.patience,
            last_tick: now,
            put_off_for: Duration::ZERO,
            everything_from: now,
            limit: MOST,
        }
    }

    /// Reaps until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let began = Instant::now();
            // What is left has half of the time: it may be much, and all of one tenant's.
            let pause = match self.tick().await {
                true => began.elapsed().min(self.options.every),
                false => self.options.every,
            };
            if ends_within(pause, &shutdown).await {
                return;
            }
        }
    }

    /// One batch. Returns whether more may be left.
    pub async fn tick(&mut self) -> bool {
        let now = Instant::now();
        let away = now
            .duration_since(self.last_tick)
            .saturating_sub(self.put_off_for);
        if away > self.options.patience / 2 {
            self.patient_until = now + self.options.patience;
        }
        self.last_tick = now;
        let rules = self.rules(now);
        let limit = self.limit;
        match self.store.reap(&rules, limit).await {
            Ok(reaped) => {
                report(&reaped);
                self.go_on_from(&reaped);
                wake_freed(self.schedule.as_ref(), &reaped.wakes).await;
                if let Some(problem) = &reaped.cut_short {
                    return self.has_failed(problem);
                }
                let may_be_more = reaped.is_full(limit);
                let has_found = may_be_more || reaped.cancelled > 0 || reaped.expired > 0;
                if rules.everything && !has_found && reaped.put_off.is_empty() {
                    self.everything_from = now + self.options.everything_every;
                }
                may_be_more
            }
            Err(error) => self.has_failed(&error),
        }
    }

    /// The store was away, and heartbeats may have been kept from it as well. Nothing more is
    /// to be had at once.
    fn has_failed(&mut self, error: &impl Display) -> bool {
        tracing::warn!(%error, "reaping failed, will run again");
        self.patient_until = Instant::now() + self.options.patience;
        false
    }

    /// A step of which something was put off is followed by a smaller one.
    fn go_on_from(&mut self, reaped: &Reaped) {
        let parts = u32::try_from(reaped.put_off.len()).unwrap_or(u32::MAX);
        self.put_off_for = REAP_PART_BOUND.saturating_mul(parts);
        self.limit = match parts {
            0 => self.limit.saturating_mul(2).min(MOST),
            _ => (self.limit / 4).max(LEAST),
        };
    }

    fn rules(&self, now: Instant) -> ReapRules {
        // Longer than any process lives, and far from overflowing a clock.
        const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);
        let patient = now < self.patient_until;
        ReapRules {
            heartbeat_timeout: if patient { NEVER } else { HEARTBEAT_TIMEOUT },
            start_timeout: if patient {
                NEVER
            } else {
                self.options.start_timeout
            },
            permit_grace: self.options.permit_grace,
            everything: now >= self.everything_from,
        }
    }
}

fn report(reaped: &Reaped) {
    metrics::counter!("paceline_permits_expired_total").increment(reaped.expired_permits.into());
    metrics::counter!("paceline_starts_unknown_total").increment(reaped.unknown_starts.into());
    metrics::counter!("paceline_attempts_expired_total").increment(reaped.expired.into());
    metrics::counter!("paceline_dead_letters_total").increment(reaped.expired.into());
    for put_off in &reaped.put_off {
        let (part, problem) = (put_off.part, &put_off.problem);
        tracing::warn!(
            part,
            problem,
            "a part of reaping is put off, the others go on"
        );
    }
    if reaped.unknown_starts > 0 {
        tracing::warn!(
            starts = reaped.unknown_starts,
            "starts without an outcome: recorded as unknown, to be tried again"
        );
    }
}

//! What a destination's answers come to: holds, the breaker, and giving up.
//!
//! ```text
//!         20 failures in a row over 5 s         the wait is over
//!   closed ───────────────────────────► open ───────────────────► half open
//!      ▲                                  ▲                          │  │
//!      │                                  └────── the probe fails ───┘  │
//!      └────────────────────────── the probe succeeds ──────────────────┘
//! ```
//!
//! A **hold** is a time before which nothing starts. The receiver asks for
//! one ([`crate::signals`]); a 429 that names none gets one that grows; an open
//! breaker is one hold after another, and between two of them admission lets
//! exactly one attempt through, the probe. A 429 is an answer of a receiver
//! that works: it neither opens the breaker nor closes it.
//!
//! **In a row** means one after the other. A failure counts if its attempt
//! started when the last counted one had ended. A hundred requests that were
//! under way together and fail together tell of one moment, as one request
//! would; and twenty quick failures tell of little more. So the breaker asks
//! for both: so many failures in a row, and that they go on for some seconds.
//!
//! A hold is about what starts, so an answer to what started before the hold
//! began is of the same burst: it may make the hold longer, but is neither
//! another refusal nor a failed probe.

mod event;
mod failing;
mod lately;
mod tally;
mod took;
mod words;

use std::time::Duration;

pub use event::{HealthChange, HealthEvent};
pub use failing::{Failing, TOLD_AFTER};
pub use lately::{FAILING_PERCENT, LATELY, Lately};
pub use tally::{LastDay, Slot, Tally};
pub use took::{LATENCY_BOUNDS, Took};
pub use words::{Breaker, DisableReason, HoldReason, UnknownWord};

use crate::time::Timestamp;

/// How many failures in a row open the breaker, unless set.
pub const DEFAULT_FAILURES: u32 = 20;

/// How long failures in a row must go on to open the breaker, unless set: for
/// longer than a receiver's restart or an overrun accept queue takes. The hold
/// that follows, [`FIRST_PROBE`], costs six times as much.
pub const DEFAULT_FAILING_FOR: Duration = Duration::from_secs(5);

/// How long the breaker may stay open, unless set.
pub const DEFAULT_DISABLE_AFTER: Duration = Duration::from_secs(5 * 86_400);

/// The first hold after a 429 that names no time; each further one is twice as
/// long, of which at least a half.
pub const FIRST_HOLD: Duration = Duration::from_secs(1);

/// No hold is planned for longer; jitter may add a tenth.
pub const LONGEST_HOLD: Duration = crate::signals::MAX_WAIT;

/// Before the first probe; each further pause is twice as long. Longer than any
/// permit lasts, so that none from before the opening can start beside a probe.
pub const FIRST_PROBE: Duration = Duration::from_secs(30);

/// So many holds in a row, without a success in between, cost the attempts that
/// were refused no try: over an hour, if the receiver names no time. After
/// that a 429 is a failed try like any other.
pub const FREE_HOLDS: u32 = 12;

/// So many failures in a row make a destination a failing one. One alone is an
/// accident, and so is a crowd that fails together: it counts as one here too. A
/// receiver that hiccups once would be slowed down otherwise, though it takes
/// what comes next. One that is down fails again, and is a failing one then.
const FAILING_FROM: u32 = 2;

/// When the breaker opens and when it gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// So many failures in a row open it; 0 for never.
    pub failures: u32,
    /// If there is so much time at least between the end of the first of them and
    /// the end of the last; zero for at once.
    pub failing_for: Duration,
    /// Open for so long, the destination is disabled; zero for at once.
    pub disable_after: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: DEFAULT_FAILURES,
            failing_for: DEFAULT_FAILING_FOR,
            disable_after: DEFAULT_DISABLE_AFTER,
        }
    }
}

/// What is remembered of a destination. The default is of one that is well,
/// and need not be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// Failures in a row, while the breaker is closed; those that were under way
    /// together count as one.
    pub failures: u32,
    /// When the first of them ended.
    pub failing_since: Option<Timestamp>,
    /// When the last of them ended.
    pub last_failed_at: Option<Timestamp>,
    /// Holds in a row that a 429 began, without a success in between.
    pub refusals: u32,
    /// The last hold.
    pub hold: Option<Hold>,
    /// The breaker is open since then.
    pub opened_at: Option<Timestamp>,
    /// Probes that failed since.
    pub probes: u32,
    /// We have disabled it.
    pub disabled: Option<DisableReason>,
}

/// Whether a destination's last tries have failed, so that what comes for it need
/// not come at once: by its failures in a row, and whether its breaker is open.
#[must_use]
pub const fn is_failing(failures: u32, is_open: bool) -> bool {
    is_open || failures >= FAILING_FROM
}

/// A time before which nothing starts. It may be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// When it began.
    pub since: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// Why.
    pub reason: HoldReason,
}

/// The answer to one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// When the attempt was claimed: what was claimed before a hold is no answer to it.
    pub claimed_at: Timestamp,
    /// When its outcome was there.
    pub finished_at: Timestamp,
    /// What it was.
    pub answer: Answer,
    /// What the receiver asked for, and a throw of dice.
    pub signal: Signal,
}

/// What health makes of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A 2xx.
    Succeeded,
    /// A 429.
    Refused,
    /// A 410: it does not want to be called again, ever.
    Gone,
    /// Anything else, and no answer at all.
    Failed,
}

impl Answer {
    /// Of an attempt that was sent, by whether it succeeded and by its status.
    #[must_use]
    pub const fn of(succeeded: bool, status: Option<u16>) -> Self {
        match (succeeded, status) {
            (true, _) => Self::Succeeded,
            (false, Some(429)) => Self::Refused,
            (false, Some(410)) => Self::Gone,
            (false, _) => Self::Failed,
        }
    }
}

/// What the worker adds to an outcome for its destination's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signal {
    /// For how long the receiver wants to be left alone.
    pub wait: Option<Duration>,
    /// For good: it said so, whatever its status.
    pub disable: bool,
    /// Random: spreads the ends of holds that begin together.
    pub dice: u16,
}

/// What answers come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// What to remember now.
    pub health: Health,
    /// A hold began, or ends later than it did: permits that are out wait
    /// again.
    pub held: bool,
    /// The breaker opened.
    pub opened: bool,
    /// The breaker closed.
    pub closed: bool,
    /// It fails on, and so much of the time has passed after which it is disabled.
    pub disabled_soon: Option<DisabledSoon>,
    /// The destination is to be disabled.
    pub disable: Option<DisableReason>,
}

/// How near a destination whose breaker is open is to being disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisabledSoon {
    /// One of [`WARNED_AT_PERCENT`].
    pub percent: u32,
    /// When it will be disabled, if a probe fails then.
    pub disabled_at: Timestamp,
}

/// So much of the time until it is disabled has passed when its owner is warned.
pub const WARNED_AT_PERCENT: [u32; 3] = [50, 70, 90];

impl Health {
    /// Whether there is nothing to remember at `now`.
    #[must_use]
    pub fn is_well(&self, now: Timestamp) -> bool {
        let hold = self.hold.filter(|hold| hold.until > now);
        Self { hold, ..*self } == Self::default()
    }

    /// Nothing starts before that.
    #[must_use]
    pub fn held_until(&self) -> Option<Timestamp> {
        self.hold.map(|hold| hold.until)
    }

    /// What the breaker does at `now`. Half open, it lets one attempt through
    /// at a time.
    #[must_use]
    pub fn breaker(&self, now: Timestamp) -> Breaker {
        match (self.opened_at, self.held_until()) {
            (None, _) => Breaker::Closed,
            (Some(_), Some(until)) if until > now => Breaker::Open,
            (Some(_), _) => Breaker::HalfOpen,
        }
    }

    /// Whether an attempt that is refused now keeps its try: the receiver turns
    /// away everybody, and this one has done nothing wrong.
    #[must_use]
    pub const fn spares_tries(&self) -> bool {
        self.refusals <= FREE_HOLDS
    }

    /// What `observations`, in any order, come to at `now`. An observation is
    /// told once; when exactly does not matter much.
    pub fn observe(
        self,
        settings: &BreakerSettings,
        observations: &[Observation],
        now: Timestamp,
    ) -> Verdict {
        let mut verdict = Verdict {
            health: self,
            held: false,
            opened: false,
            closed: false,
            disabled_soon: None,
            disable: None,
        };
        if self.disabled.is_some() {
            return verdict;
        }
        let mut observations = observations.to_vec();
        observations.sort_by_key(|one| one.finished_at);
        let watch = Watch { settings, now };
        for one in &observations {
            watch.see(&mut verdict, one);
        }
        verdict.health.disabled = verdict.disable;
        verdict.held = verdict.health.held_until() > self.held_until();
        verdict
    }
}

/// What judges observations.
struct Watch<'a> {
    settings: &'a BreakerSettings,
    now: Timestamp,
}

impl Watch<'_> {
    fn see(&self, verdict: &mut Verdict, one: &Observation) {
        let health = &mut verdict.health;
        // What started before the last hold was over is of the burst that it ended:
        // nothing starts within a hold but what was claimed while it was written.
        let fresh = (health.hold).is_none_or(|hold| one.claimed_at >= hold.until);
        match one.answer {
            Answer::Succeeded => self.succeeded(verdict, one),
            Answer::Gone => verdict.disable = Some(DisableReason::Gone),
            Answer::Failed => self.failed(verdict, one, fresh),
            Answer::Refused if fresh => health.refusals = health.refusals.saturating_add(1),
            Answer::Refused => {}
        }
        if one.signal.disable {
            verdict.disable = Some(DisableReason::Gone);
        }
        let health = &mut verdict.health;
        if let Some(wait) = one.signal.wait {
            let wait = wait.min(LONGEST_HOLD);
            let jitter = wait.mul_f64(one.signal.part() / 10.0);
            self.hold(health, wait + jitter, HoldReason::Asked, fresh);
        } else if one.answer == Answer::Refused && fresh {
            let bound = doubled(FIRST_HOLD, health.refusals.saturating_sub(1));
            let wait = bound.mul_f64(0.5 + one.signal.part() / 2.0);
            self.hold(health, wait, HoldReason::Refused, fresh);
        }
    }

    fn succeeded(&self, verdict: &mut Verdict, one: &Observation) {
        let health = &mut verdict.health;
        // It may be of the burst that the last hold ended, not of one before.
        if (health.hold).is_none_or(|hold| one.claimed_at >= hold.since) {
            health.refusals = 0;
        }
        match health.opened_at {
            None => {
                health.failures = 0;
                health.failing_since = None;
                health.last_failed_at = None;
            }
            Some(opened_at) if one.claimed_at >= opened_at => {
                *health = Health::default();
                verdict.closed = !std::mem::take(&mut verdict.opened);
            }
            // It was on its way when the others failed.
            Some(_) => {}
        }
    }

    fn failed(&self, verdict: &mut Verdict, one: &Observation, fresh: bool) {
        let health = &mut verdict.health;
        if let Some(opened_at) = health.opened_at {
            if fresh && one.claimed_at >= opened_at {
                health.probes = health.probes.saturating_add(1);
                self.pause(verdict, one, opened_at);
            }
            return;
        }
        // It was under way when the last one failed: the same accident. What ends
        // first is seen first, so as many count as can follow each other.
        if (health.last_failed_at).is_some_and(|last| one.claimed_at < last) {
            return;
        }
        health.failures = health.failures.saturating_add(1);
        health.last_failed_at = Some(one.finished_at);
        let since = *health.failing_since.get_or_insert(one.finished_at);
        let is_enough = health.failures >= self.settings.failures
            && one.finished_at.since(since) >= self.settings.failing_for;
        if self.settings.failures > 0 && is_enough {
            health.opened_at = Some(self.now);
            verdict.opened = !std::mem::take(&mut verdict.closed);
            self.pause(verdict, one, self.now);
        }
    }

    /// Until the next probe; or there is none, because it took too long.
    fn pause(&self, verdict: &mut Verdict, one: &Observation, opened_at: Timestamp) {
        if self.now.since(opened_at) >= self.settings.disable_after {
            verdict.disable.get_or_insert(DisableReason::Failing);
            return;
        }
        let health = &mut verdict.health;
        // When the probe before this one failed, if there was one.
        let before = health
            .last_failed_at
            .map_or(opened_at, |last| last.max(opened_at));
        health.last_failed_at = Some(one.finished_at);
        let passed = |at: Timestamp, percent: u32| {
            at.since(opened_at) >= self.settings.disable_after / 100 * percent
        };
        let reached = (WARNED_AT_PERCENT.into_iter().rev())
            .find(|percent| passed(self.now, *percent) && !passed(before, *percent));
        let reached = reached.map(|percent| DisabledSoon {
            percent,
            disabled_at: opened_at + self.settings.disable_after,
        });
        verdict.disabled_soon = reached.or(verdict.disabled_soon);
        let bound = doubled(FIRST_PROBE, health.probes);
        let wait = bound + bound.mul_f64(one.signal.part() / 10.0);
        self.hold(health, wait, HoldReason::Breaker, true);
    }

    /// Holds for so long from now on; a hold is never made shorter.
    fn hold(&self, health: &mut Health, wait: Duration, reason: HoldReason, fresh: bool) {
        let until = self.now + wait;
        let before = health.hold.filter(|hold| !fresh || hold.until > self.now);
        match before {
            Some(hold) if hold.until >= until => {}
            before => {
                let since = before.map_or(self.now, |hold| hold.since);
                health.hold = Some(Hold {
                    since,
                    until,
                    reason,
                });
            }
        }
    }
}

impl Signal {
    /// The throw, between 0 and 1.
    fn part(self) -> f64 {
        f64::from(self.dice) / f64::from(u16::MAX)
    }
}

/// `first`, doubled so many times, up to [`LONGEST_HOLD`].
fn doubled(first: Duration, times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(LONGEST_HOLD)
}

#[cfg(test)]
mod tests;

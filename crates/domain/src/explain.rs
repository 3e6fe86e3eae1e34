//! Why the next attempt of a destination is not going out now, and when it
//! will: in words, for people.
//!
//! What admission decides from is what this explains from, so that what it says
//! binds is what binds. It is a statement about one instant: an arrival, an
//! outcome or a change may bring another reason in the next.

mod drain;
mod words;

pub use drain::{Measured, Unknown, drains_in};
pub use words::Reason;

use std::sync::Arc;

use crate::admission::{Backlog, Gate, Opening, PROGRESS, Usage, openings};
use crate::destination::DestinationState;
use crate::health::HoldReason;
use crate::policy::{Policy, Rate};
use crate::time::Timestamp;
use crate::watch::Around;

/// All that it is explained from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circumstances<'a> {
    /// The destination's own state.
    pub state: DestinationState,
    /// What admission obeys.
    pub policy: &'a Policy,
    /// What it uses of that.
    pub usage: &'a Usage,
    /// What waits, as far as a run looks.
    pub backlog: &'a Backlog,
    /// What binds beside its own limits.
    pub around: Around,
    /// Why it had no access token when one was asked for last, if that was lately.
    pub no_token: Option<&'a str>,
    /// Workers that live.
    pub workers: u32,
    /// The store's clock.
    pub now: Timestamp,
}

/// Why not now, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// In one word.
    pub reason: Reason,
    /// When the next attempt goes out, if nothing else changes; `None` where
    /// that is up to somebody: its owner, the receiver, a worker.
    pub next_at: Option<Timestamp>,
    /// In a sentence or two.
    pub words: String,
}

/// Says why the next attempt is not going out now, and when it will.
///
/// ```
/// use domain::admission::{Backlog, Usage};
/// use domain::destination::DestinationState;
/// use domain::explain::{Circumstances, Reason, explain};
/// use domain::policy::LimitSettings;
/// use domain::time::Timestamp;
/// use domain::watch::Around;
///
/// let at = Timestamp::from_millis;
/// let policy = LimitSettings { per_second: Some(2), ..LimitSettings::EXACT }.policy();
/// let usage = Usage { starts: vec![at(9_900), at(9_400)], ..Usage::default() };
/// let explanation = explain(&Circumstances {
///     state: DestinationState::Active,
///     policy: &policy,
///     usage: &usage,
///     backlog: &Backlog { due: 3, urgent: 0, next_due: None },
///     around: Around::default(),
///     no_token: None,
///     workers: 1,
///     now: at(10_000),
/// });
/// assert_eq!((explanation.reason, explanation.next_at), (Reason::Window, Some(at(10_400))));
/// ```
#[must_use]
pub fn explain(circumstances: &Circumstances<'_>) -> Explanation {
    let (reason, next_at) = circumstances.reason();
    let mut words = circumstances.words(reason, next_at);
    words.extend(circumstances.urgent_words());
    Explanation {
        words,
        reason,
        next_at,
    }
}

impl Circumstances<'_> {
    fn reason(&self) -> (Reason, Option<Timestamp>) {
        match self.state {
            DestinationState::Disabled => return (Reason::Disabled, None),
            DestinationState::Paused => return (Reason::Paused, None),
            DestinationState::Active => {}
        }
        let group = self.usage.group.as_ref();
        if group.is_some_and(|group| group.limits.is_paused()) {
            return (Reason::ZeroLimit, None);
        }
        if self.policy.rate == Rate::Paused {
            return match self.policy.allowed_per_minute {
                Some(0) => (Reason::NotAllowed, None),
                _ => (Reason::ZeroLimit, None),
            };
        }
        if let Some(slot) = self.next_slot() {
            return self.permitted(slot);
        }
        if self.backlog.due == 0 {
            return match self.backlog.next_due {
                Some(due) => (Reason::Backoff, Some(self.not_before_hold(due))),
                None => (Reason::NoWork, None),
            };
        }
        if let Some(until) = self.admits_from() {
            return (self.hold(until), Some(until));
        }
        self.what_blocks()
    }

    /// Something is due, nothing holds it, and no permit is out for it.
    fn what_blocks(&self) -> (Reason, Option<Timestamp>) {
        let under_way = self.under_way();
        if self.usage.probing && under_way > 0 {
            return (Reason::Probe, None);
        }
        if self.usage.incomplete {
            return (Reason::Counting, None);
        }
        if under_way >= self.policy.max_in_flight {
            return (Reason::Concurrency, None);
        }
        if self.around.tenant_is_full {
            return (Reason::Tenant, None);
        }
        if self.workers == 0 {
            return (Reason::NoWorkers, None);
        }
        if self.around.no_places {
            return (Reason::Places, None);
        }
        if let Some(opening) = self.binding(self.usage) {
            return (of_gate(opening.gate), Some(opening.at));
        }
        let waits = |since: Timestamp| self.now.since(since) >= PROGRESS;
        match self.around.waits_since.is_some_and(waits) {
            true => (Reason::Unscheduled, None),
            false => (Reason::Now, Some(self.now)),
        }
    }

    /// It has a permit for this slot.
    fn permitted(&self, slot: Timestamp) -> (Reason, Option<Timestamp>) {
        if self.workers == 0 {
            return (Reason::NoWorkers, None);
        }
        if slot <= self.now {
            return (Reason::Permitted, Some(self.now));
        }
        // What made it wait is what the starts before it say.
        let group = self.usage.group.as_ref();
        let before = Usage {
            outstanding: Vec::new(),
            group: group.map(|group| Arc::new(group.without_permits())),
            ..self.usage.clone()
        };
        let reason = match (&self.policy.rate, self.binding(&before)) {
            (_, Some(opening)) => of_gate(opening.gate),
            // A bucket is charged with the permit, a window with its start.
            (Rate::Limited(limited), None) if limited.pacing.is_some() => Reason::Spacing,
            _ => Reason::Permitted,
        };
        (reason, Some(slot))
    }

    /// The earliest slot that may still be used.
    fn next_slot(&self) -> Option<Timestamp> {
        let usable = (self.usage.outstanding.iter()).filter(|one| one.deadline > self.now);
        usable.map(|one| one.not_before).min()
    }

    /// The rule that opens last by this usage, if one is closed.
    fn binding(&self, usage: &Usage) -> Option<Opening> {
        let opens = openings(self.policy, usage, self.now).into_iter();
        opens
            .filter(|opening| opening.at > self.now)
            .max_by_key(|opening| opening.at)
    }

    fn admits_from(&self) -> Option<Timestamp> {
        (self.usage.admits_from()).filter(|until| *until > self.now)
    }

    fn not_before_hold(&self, at: Timestamp) -> Timestamp {
        self.admits_from().map_or(at, |until| until.max(at))
    }

    /// Of what lasts longer: a hold, or a deferral.
    fn hold(&self, until: Timestamp) -> Reason {
        if self.usage.held_until != Some(until) {
            // A worker puts its destination off until it asks for a token again.
            return match self.no_token {
                Some(_) => Reason::NoToken,
                None => Reason::Places,
            };
        }
        match self.around.held_for {
            Some(HoldReason::Refused) => Reason::Refused,
            Some(HoldReason::Breaker) => Reason::Breaker,
            Some(HoldReason::Asked) => Reason::Asked,
            // Somebody holds it by hand.
            None => Reason::Asked,
        }
    }

    /// Queued and in flight.
    fn under_way(&self) -> u32 {
        let queued = u32::try_from(self.usage.outstanding.len()).unwrap_or(u32::MAX);
        queued.saturating_add(self.usage.in_flight)
    }
}

const fn of_gate(gate: Gate) -> Reason {
    match gate {
        Gate::Window(_) => Reason::Window,
        Gate::Group(_) => Reason::Group,
        Gate::Spacing(_) => Reason::Spacing,
        Gate::Pace => Reason::Smart,
    }
}

#[cfg(test)]
mod tests;

//! When each rule by itself would let one attempt more start: for people who
//! ask why it does not start now.

use super::{Counted, LOOK_WHEN_CROWDED, Limit, Pacing, Plan, Policy, Timestamp, Usage, lead};

/// A rule that an attempt has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// A sliding window.
    Window(Limit),
    /// A bucket, or the `burst` of a window.
    Spacing(Pacing),
    /// The pace of smart delivery.
    Pace,
}

/// When a rule lets one more start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Which rule.
    pub gate: Gate,
    /// From then on; `now` if it does already.
    pub at: Timestamp,
}

/// When each rule lets one attempt more start, if what is outstanding starts on
/// time. The latest of them binds. None where nothing limits or all is paused.
///
/// [`super::super::admit`] counts a permit at its deadline and not at its slot,
/// so it may give that slot a little later, and never earlier.
#[must_use]
pub fn openings(policy: &Policy, usage: &Usage, now: Timestamp) -> Vec<Opening> {
    let plan = Plan::new(policy, usage, now, now + lead(policy));
    let Some(limited) = plan.limited() else {
        let pace = plan.pace().into_iter();
        return pace
            .map(|pace| opening(Gate::Pace, pace.opens(), now))
            .collect();
    };
    let gates =
        (limited.windows.iter().copied().map(Gate::Window)).chain(policy.pace.map(|_| Gate::Pace));
    let windows = plan.windows(Counted::OnTime);
    let windows = gates
        .zip(windows)
        .map(|(gate, window)| opening(gate, window.opens(), now));
    let spacing = limited.pacing.map(|pacing| {
        let token = (plan.meter).next_token(pacing, plan.refill_micros(pacing), now);
        opening(Gate::Spacing(pacing), Some(token), now)
    });
    windows.chain(spacing).collect()
}

fn opening(gate: Gate, at: Option<Timestamp>, now: Timestamp) -> Opening {
    // Without a time, an answer opens it: soon, and not now.
    let at = at.map_or(now + LOOK_WHEN_CROWDED, |at| at.max(now));
    Opening { gate, at }
}

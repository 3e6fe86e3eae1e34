//! When each rule by itself would let one attempt more start: for people who
//! ask why it does not start now.

use super::{
    Counted, LOOK_WHEN_CROWDED, Limit, Limited, Pacing, Plan, Policy, Timestamp, Usage, Window,
};

/// A rule that an attempt has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// A sliding window.
    Window(Limit),
    /// A window of its limit group.
    Group(Limit),
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
    let plan = Plan::new(policy, usage, now);
    let (limited, group) = (plan.limited(), usage.group.as_deref());
    let own = |limited: &Limited| limited.windows.iter().copied().map(Gate::Window).collect();
    let own: Vec<Gate> = limited.map_or_else(Vec::new, own);
    let of_group = (group.into_iter()).flat_map(|group| group.limits.windows().map(Gate::Group));
    let windows = plan.windows(Counted::OnTime);
    let opens = |(gate, window): (Gate, &Window)| opening(gate, window.opens(), now);
    let pace = windows.pace.iter().map(|window| (Gate::Pace, window));
    let spacing = limited.and_then(|limited| limited.pacing).map(|pacing| {
        let token = (plan.meter).next_token(pacing, plan.refill_micros(pacing), now);
        opening(Gate::Spacing(pacing), Some(token), now)
    });
    (own.into_iter().zip(&windows.own))
        .chain(of_group.zip(&windows.group))
        .chain(pace)
        .map(opens)
        .chain(spacing)
        .collect()
}

fn opening(gate: Gate, at: Option<Timestamp>, now: Timestamp) -> Opening {
    // Without a time, an answer opens it: soon, and not now.
    let at = at.map_or(now + LOOK_WHEN_CROWDED, |at| at.max(now));
    Opening { gate, at }
}

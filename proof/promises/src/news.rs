//! Promises about what operators are told.

use std::fmt;
use std::time::Duration;

use super::{Promise, keep};

/// "A row becomes one event for each operational destination that is told,
/// exactly." `forgotten` says that retention may have deleted some.
pub fn news_are_told_once(
    news: impl fmt::Debug,
    (events, expected): (usize, usize),
    forgotten: bool,
) -> Promise {
    let kept = events == expected || (forgotten && events < expected);
    keep("news_are_told_once", kept, || {
        format!("{news:?} are {events} events instead of {expected}")
    })
}

/// An alert is raised once and ended once, in turn: `raised` says of each of its
/// news whether it raises.
pub fn an_alert_is_raised_and_ended_in_turn(alert: impl fmt::Debug, raised: &[bool]) -> Promise {
    let mut expected = true;
    let kept = raised.iter().all(|is_raised| {
        let in_turn = *is_raised == expected;
        expected = !expected;
        in_turn
    });
    keep("an_alert_is_raised_and_ended_in_turn", kept, || {
        format!("{alert:?}: {raised:?}")
    })
}

/// What operators are left with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsettled {
    /// News that nobody has relayed.
    pub unrelayed: usize,
    /// Destinations with an alert that was raised and not ended.
    pub raised: usize,
    /// For how long nothing has waited any more.
    pub after: Duration,
    /// How long it may take.
    pub bound: Duration,
}

impl Unsettled {
    /// All the time that it may take is over.
    pub fn at_the_end(unrelayed: usize, raised: usize) -> Self {
        Self {
            unrelayed,
            raised,
            after: Duration::MAX,
            bound: Duration::ZERO,
        }
    }
}

/// Once nothing waits, every alert ends, and everything is told.
pub fn every_alert_ends(left: Unsettled) -> Promise {
    let settled = left.unrelayed + left.raised == 0 || left.after <= left.bound;
    keep("every_alert_ends", settled, || format!("{left:?}"))
}

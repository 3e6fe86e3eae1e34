//! Where a judge need not look.
//!
//! To judge the windows that a start is in is to go through as many starts as a window
//! holds: thousands, for each of thousands, where a limit of a minute is used. While a
//! window holds no more than the least that was ever in force, no judge can find it over,
//! and none is asked. Everything else is judged by [`domain::compliance`]. A build with debug
//! assertions, as tests are, asks the judge all the same, and holds this file to it.

use std::time::Duration;

use domain::compliance::InForce;
use domain::policy::Rate;
use domain::time::Timestamp;
use promises::Promise;

/// The least that was ever in force, where only windows were.
#[derive(Default)]
pub(super) struct Room(Option<Vec<(Duration, usize)>>);

impl Room {
    /// Of all that was in force; none if some of it was a pause, or had a bucket.
    pub(super) fn of(history: &[InForce]) -> Self {
        let mut least: Vec<(Duration, usize)> = Vec::new();
        for entry in history {
            let windows = match &entry.policy.rate {
                Rate::Unlimited => continue,
                Rate::Limited(limited) if limited.pacing.is_none() => &limited.windows,
                Rate::Limited(_) | Rate::Paused => return Self(None),
            };
            for limit in windows {
                let (period, most) = (limit.period.duration(), limit.max.get() as usize);
                match least.iter_mut().find(|(of, _)| *of == period) {
                    Some((_, least)) => *least = most.min(*least),
                    None => least.push((period, most)),
                }
            }
        }
        Self(Some(least))
    }

    /// What a judge says of the windows that begin within a period before `at` or later,
    /// where `after` says how many there are after an instant. It is not asked where it
    /// cannot find one over.
    pub(super) fn judge_unless_it_holds_all(
        &self,
        (at, after): (Timestamp, impl Fn(Timestamp) -> usize),
        judged: impl Fn() -> Promise,
    ) -> Promise {
        let holds = |(period, most): &(Duration, usize)| after(at - *period) <= *most;
        if !self.0.as_ref().is_some_and(|all| all.iter().all(holds)) {
            return judged();
        }
        debug_assert_eq!(judged(), Ok(()), "there was room");
        Ok(())
    }
}

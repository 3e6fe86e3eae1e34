//! The safety margin J: by how much a window is planned longer than its period, so that
//! none of the whole period holds more than its limit *at the receiver*.
//!
//! Starts are exact at the sender. What a receiver counts is arrivals, and two requests
//! that left one period apart arrive closer together by as much as the first was longer
//! on its way. If requests take between d and d + J to the receiver's clock, then a
//! window of the period P there holds only what left within P + J, which is no more
//! than the limit ([`crate::admission`]).
//!
//! J is measured: nobody can see a request arrive, but the way there is a part of the
//! response time r, so how much r differs tells how much the way does. J is the 99th
//! percentile of r less the shortest, no less than [`LEAST`] and no more than
//! a cap, a part of the period: [`MOST`], or what its owner sets. A receiver that takes
//! its time over some requests makes it larger than the network does, and the cap bounds
//! what that costs.
//!
//! It stretches windows. A bucket promises `burst + r·(t + SLACK)`, and has room for the
//! network in its slack: only a margin that was set by hand slows it.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::time::Timestamp;

/// The smallest margin that is measured: what a network does even where nothing shows.
pub const LEAST: Duration = Duration::from_millis(1);

/// The largest margin that is measured, as a part of the period, unless its owner sets
/// another: so it costs no more of a limit than that.
pub const MOST: f64 = 0.01;

/// How many of a destination's last response times are looked at.
const REMEMBERED: usize = 256;

/// With fewer than that nothing is measured: a 99th percentile of a handful is luck.
const ENOUGH: usize = 20;

/// How long either end of what was measured stands beside what workers say meanwhile, if
/// none of them says it again.
pub const STANDS: Duration = Duration::from_secs(120);

/// What was measured so long ago says nothing of now: the margin is the largest again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(240);

/// How often a worker says what it measures, if it has had answers since.
pub const SAID_EVERY: Duration = Duration::from_secs(60);

/// The margin of a destination's windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Margin {
    /// Its owner's: this part of each period.
    Set(f64),
    /// By its response times.
    Measured {
        /// How much they differ; `None` of one that has not answered often enough
        /// lately, which has the largest margin.
        spread: Option<Spread>,
        /// The largest, as a part of each period.
        cap: f64,
    },
}

impl Margin {
    /// How much longer a window of this period is planned.
    ///
    /// ```
    /// use std::time::Duration;
    /// use domain::margin::{Margin, Spread};
    ///
    /// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    /// let millis = Duration::from_millis;
    /// let spread = |least, most| Spread { least: millis(least), most: millis(most) };
    /// let measured = |spread, cap| Margin::Measured { spread: Some(spread), cap };
    /// let quick = measured(spread(2, 6), 0.01);
    /// assert_eq!((quick.of(second), quick.of(minute)), (millis(4), millis(4)));
    /// // One that is slow at times: a hundredth of the period, and no more.
    /// let slow = measured(spread(20, 260), 0.01);
    /// assert_eq!((slow.of(second), slow.of(minute)), (millis(10), millis(240)));
    /// // Or as much more as its owner lets it cost.
    /// assert_eq!(measured(spread(20, 260), 0.1).of(second), millis(100));
    /// assert_eq!(Margin::Set(0.02).of(second), millis(20));
    /// ```
    #[must_use]
    pub fn of(self, period: Duration) -> Duration {
        match self {
            Self::Set(part) => period.mul_f64(part),
            Self::Measured { spread, cap } => {
                let most = period.mul_f64(cap);
                spread.map_or(most, |spread| spread.width().max(LEAST).min(most))
            }
        }
    }
}

/// The margin of a limit that several destinations have together: their requests meet at
/// the receiver, so what counts is the longest way of any of them and the shortest of any
/// other. No less than a margin that one of them sets by hand.
///
/// ```
/// use std::time::Duration;
/// use domain::margin::{Margin, Spread, together};
///
/// let (second, millis) = (Duration::from_secs(1), Duration::from_millis);
/// let spread = |least, most| Spread { least: millis(least), most: millis(most) };
/// let measured = |spread| Margin::Measured { spread: Some(spread), cap: 0.01 };
/// let (near, far) = (measured(spread(1, 2)), measured(spread(5, 7)));
/// assert_eq!(together([near, far], second), millis(6));
/// assert_eq!(together([near, Margin::Set(0.02)], second), millis(20));
/// ```
#[must_use]
pub fn together(margins: impl IntoIterator<Item = Margin>, period: Duration) -> Duration {
    let mut set = Duration::ZERO;
    let mut measured: Option<Margin> = None;
    for margin in margins {
        let (spread, cap) = match margin {
            Margin::Set(_) => {
                set = set.max(margin.of(period));
                continue;
            }
            Margin::Measured { spread, cap } => (spread, cap),
        };
        measured = Some(match measured {
            Some(Margin::Measured {
                spread: other,
                cap: most,
            }) => Margin::Measured {
                spread: spread.zip(other).map(|(one, other)| Spread {
                    least: one.least.min(other.least),
                    most: one.most.max(other.most),
                }),
                cap: cap.max(most),
            },
            _ => margin,
        });
    }
    measured.map_or(set, |measured| measured.of(period).max(set))
}

impl fmt::Display for Margin {
    /// For people: `measured`, or the part of the period.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(part) => write!(f, "{part} of the period"),
            Self::Measured { spread, .. } => f.write_str(match spread {
                Some(_) => "measured",
                None => "not measured yet",
            }),
        }
    }
}

/// How much a destination's response times differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// The shortest.
    pub least: Duration,
    /// The 99th percentile.
    pub most: Duration,
}

impl Spread {
    /// The difference.
    #[must_use]
    pub fn width(self) -> Duration {
        self.most.saturating_sub(self.least)
    }

    /// Whether it is worth saying where `told` was said last: it has become wider at
    /// either end, by an eighth of what it was.
    #[must_use]
    pub fn is_wider_than(self, told: Self) -> bool {
        let eighth = (told.width() / 8).max(LEAST / 8);
        self.most > told.most + eighth || self.least + eighth < told.least
    }
}

/// What all workers together have measured of one destination, and when either end was.
///
/// Requests of one worker meet those of another at the receiver, so the ends are those of
/// all. An end that nobody sees again for [`STANDS`] gives way to the next that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The shortest, and when it was said last.
    pub least: (Duration, Timestamp),
    /// The 99th percentile, and when it was said last.
    pub most: (Duration, Timestamp),
}

impl Measured {
    /// What the first worker says.
    #[must_use]
    pub const fn first(said: Spread, now: Timestamp) -> Self {
        Self {
            least: (said.least, now),
            most: (said.most, now),
        }
    }

    /// From what a store keeps of either end: microseconds, and when they were said.
    #[must_use]
    pub const fn of_micros(least: (i64, Timestamp), most: (i64, Timestamp)) -> Self {
        const fn duration(micros: i64) -> Duration {
            match micros {
                ..0 => Duration::ZERO,
                _ => Duration::from_micros(micros.unsigned_abs()),
            }
        }
        Self {
            least: (duration(least.0), least.1),
            most: (duration(most.0), most.1),
        }
    }

    /// The same after a worker has said this.
    #[must_use]
    pub fn and(self, said: Spread, now: Timestamp) -> Self {
        let end = |(known, said_at): (Duration, Timestamp), new: Duration, is_farther: bool| {
            match is_farther || now.since(said_at) > STANDS {
                true => (new, now),
                false => (known, said_at),
            }
        };
        Self {
            least: end(self.least, said.least, said.least <= self.least.0),
            most: end(self.most, said.most, said.most >= self.most.0),
        }
    }

    /// How much they differ by now; `None` if nobody has said so for long.
    #[must_use]
    pub fn spread(self, now: Timestamp) -> Option<Spread> {
        let oldest = self.least.1.min(self.most.1);
        (now.since(oldest) <= FORGOTTEN_AFTER).then_some(Spread {
            least: self.least.0,
            most: self.most.0,
        })
    }
}

/// The last response times of one destination, as one worker has seen them.
#[derive(Debug, Clone, Default)]
pub struct ResponseTimes {
    /// In microseconds, the newest last, [`REMEMBERED`] at most.
    micros: VecDeque<u32>,
}

impl ResponseTimes {
    /// One more: from a request's first byte to the end of its answer.
    pub fn note(&mut self, took: Duration) {
        if self.micros.len() == REMEMBERED {
            self.micros.pop_front();
        }
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.micros.push_back(micros);
    }

    /// What they come to, once there are enough.
    ///
    /// ```
    /// use std::time::Duration;
    /// use domain::margin::{ResponseTimes, Spread};
    ///
    /// let mut times = ResponseTimes::default();
    /// (1..20).for_each(|ms| times.note(Duration::from_millis(ms)));
    /// assert_eq!(times.spread(), None);
    /// (20..=200).for_each(|ms| times.note(Duration::from_millis(ms)));
    /// let [least, most] = [1, 198].map(Duration::from_millis);
    /// assert_eq!(times.spread(), Some(Spread { least, most }));
    /// ```
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        if self.micros.len() < ENOUGH {
            return None;
        }
        let mut sorted: Vec<u32> = self.micros.iter().copied().collect();
        let rank = (sorted.len() * 99).div_ceil(100);
        let (_, most, _) = sorted.select_nth_unstable(rank.saturating_sub(1));
        let most = *most;
        let least = self.micros.iter().copied().min()?;
        let micros = |micros: u32| Duration::from_micros(u64::from(micros));
        Some(Spread {
            least: micros(least),
            most: micros(most),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn spread(least: u64, most: u64) -> Spread {
        Spread {
            least: Duration::from_millis(least),
            most: Duration::from_millis(most),
        }
    }

    #[test]
    fn a_margin_is_never_less_than_a_millisecond_nor_more_than_a_hundredth() {
        let second = Duration::from_secs(1);
        for (measured, millis) in [
            (None, 10),
            (Some(spread(5, 5)), 1),
            (Some(spread(5, 4)), 1),
            (Some(spread(5, 12)), 7),
            (Some(spread(0, 15_000)), 10),
        ] {
            let (spread, cap) = (measured, MOST);
            let margin = Margin::Measured { spread, cap }.of(second);
            assert_eq!(margin, Duration::from_millis(millis), "{measured:?}");
        }
        assert_eq!(Margin::Set(0.0).of(second), Duration::ZERO);
        assert_eq!(Margin::Set(1.0).of(second), second);
    }

    #[test]
    fn what_two_workers_say_holds_together_until_it_is_old() {
        let at = Timestamp::from_millis;
        let (near, far) = (spread(1, 3), spread(40, 42));
        let wide = Some(spread(1, 42));
        let both = Measured::first(near, at(0)).and(far, at(60_000));
        assert_eq!(both.spread(at(60_000)), wide);
        // As long as each says its own, both ends stand.
        let both = both.and(near, at(100_000)).and(far, at(150_000));
        assert_eq!(both.spread(at(150_000)), wide);
        // The far one has gone.
        let both = both.and(near, at(270_000));
        assert_eq!(both.spread(at(270_000)), wide);
        let alone = both.and(near, at(270_001));
        assert_eq!(alone.spread(at(270_001)), Some(near));
        // A clock that was set back makes nothing old.
        assert_eq!(both.and(near, at(0)).spread(at(0)), wide);
    }

    #[test]
    fn a_hiccup_is_forgotten_though_the_shortest_is_seen_all_the_time() {
        let at = Timestamp::from_millis;
        let calm = spread(1, 3);
        let mut measured = Measured::first(spread(1, 900), at(0));
        for minute in 1..=2 {
            let now = at(minute * 60_000);
            measured = measured.and(calm, now);
            assert_eq!(measured.spread(now), Some(spread(1, 900)));
        }
        let now = at(180_000);
        assert_eq!(measured.and(calm, now).spread(now), Some(calm));
    }

    #[test]
    fn what_nobody_says_any_more_is_no_measure() {
        let at = Timestamp::from_millis;
        let measured = Measured::first(spread(1, 3), at(0)).and(spread(2, 4), at(60_000));
        assert_eq!(measured.spread(at(240_000)), Some(spread(1, 4)));
        assert_eq!(measured.spread(at(240_001)), None);
    }

    #[test]
    fn what_became_wider_is_worth_saying_and_what_became_narrower_can_wait() {
        let told = spread(10, 18);
        assert!(!told.is_wider_than(told));
        assert!(!spread(12, 15).is_wider_than(told));
        assert!(!spread(9, 19).is_wider_than(told));
        assert!(spread(10, 20).is_wider_than(told));
        assert!(spread(8, 18).is_wider_than(told));
    }

    #[test]
    fn only_the_last_times_are_remembered() {
        let mut times = ResponseTimes::default();
        times.note(Duration::from_micros(1));
        times.note(Duration::from_secs(9_999));
        (0..REMEMBERED).for_each(|_| times.note(Duration::from_millis(7)));
        assert_eq!(times.spread(), Some(spread(7, 7)));
        assert_eq!(times.micros.len(), REMEMBERED);
    }
}

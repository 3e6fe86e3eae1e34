//! From what a user sets to what admission obeys.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::LONGEST_ANSWER;
use crate::limit::{Count, Limit, MAX_LIMIT, Period, Shape};
use crate::margin::{self, Margin, Spread};
use crate::smart::Pace;

/// What a destination's or a tier's row says, column by column.
///
/// `None` is SQL's NULL. Of the four limits: all `None` means the tier's
/// limits, shape and burst; if one is set, those that are `None` do not
/// limit. `0` in any of them pauses.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LimitSettings {
    /// Starts per second.
    pub per_second: Option<u32>,
    /// Starts per minute.
    pub per_minute: Option<u32>,
    /// Starts per hour.
    pub per_hour: Option<u32>,
    /// Starts per day.
    pub per_day: Option<u32>,
    /// No rate limit; `max_in_flight` still holds.
    pub unlimited: bool,
    /// The capacity of a token bucket; beside `sliding_window`, how many may
    /// start at once.
    pub burst: Option<u32>,
    /// How the limit spreads its starts.
    pub shape: Option<Shape>,
    /// Attempts queued and in flight at once.
    pub max_in_flight: Option<u32>,
    /// By which part every period is stretched, for receivers that count
    /// arrivals: 0.02 makes a second 1.02 s. `None` to measure it ([`Margin`]).
    pub safety_margin: Option<f64>,
    /// The largest margin that is measured, as a part of the period. `None` for a
    /// hundredth ([`margin::MOST`]).
    pub margin_cap: Option<f64>,
    /// Until when a request counts. `None` for its start.
    pub count: Option<Count>,
    /// Starts per minute that the receiver allows, by [`crate::handshake`]; `0` for none
    /// yet. Nobody sets it: it is a window of its own beside what is set, and takes
    /// nothing from the tier.
    pub allowed_per_minute: Option<u32>,
}

/// A setting that makes no sense, named by its column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidSettings {
    /// The column, such as `burst`.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// The largest `safety_margin` and `margin_cap`: a period made twice as long.
pub const MAX_SAFETY_MARGIN: f64 = 1.0;

/// `max_in_flight` where none is set, or a quarter of a second's worth of the
/// limit where that is more.
pub const DEFAULT_MAX_IN_FLIGHT: u32 = 50;

/// The column of this period's limit.
pub(crate) const fn column(period: Period) -> &'static str {
    match period {
        Period::Second => "limit_per_second",
        Period::Minute => "limit_per_minute",
        Period::Hour => "limit_per_hour",
        Period::Day => "limit_per_day",
    }
}

/// Limits by their columns.
pub(crate) fn columns(
    limits: [(Period, Option<u32>); 4],
) -> impl Iterator<Item = (&'static str, Option<u32>)> {
    (limits.into_iter()).map(|(period, max)| (column(period), max))
}

/// Refuses numbers above what can be, naming the column.
pub(crate) fn at_most(
    columns: impl IntoIterator<Item = (&'static str, Option<u32>)>,
    most: u32,
    problem: &str,
) -> Result<(), InvalidSettings> {
    let mut columns = columns.into_iter();
    let over = columns.find(|(_, number)| number.is_some_and(|number| number > most));
    match over {
        Some((field, _)) => Err(InvalidSettings {
            field,
            problem: problem.to_owned(),
        }),
        None => Ok(()),
    }
}

impl LimitSettings {
    /// Nothing set, and no margin: for whoever counts at the sender and means to the
    /// microsecond, such as tests and models.
    pub const EXACT: Self = Self {
        per_second: None,
        per_minute: None,
        per_hour: None,
        per_day: None,
        unlimited: false,
        burst: None,
        shape: None,
        max_in_flight: None,
        safety_margin: Some(0.0),
        margin_cap: None,
        count: None,
        allowed_per_minute: None,
    };

    /// The four limits with their periods, the shortest first.
    #[must_use]
    pub const fn limits(&self) -> [(Period, Option<u32>); 4] {
        [
            (Period::Second, self.per_second),
            (Period::Minute, self.per_minute),
            (Period::Hour, self.per_hour),
            (Period::Day, self.per_day),
        ]
    }

    /// Whether the tier decides: no limit of its own, and not unlimited.
    #[must_use]
    pub fn inherits(&self) -> bool {
        !self.unlimited && self.limits().iter().all(|(_, max)| max.is_none())
    }

    /// These settings with the tier's limits, shape and burst where they
    /// inherit. `max_in_flight`, both margins, `count` and what the receiver allows are
    /// the destination's own; the first falls back to the tier's if it is not set.
    #[must_use]
    pub fn or_tier(&self, tier: &Self) -> Self {
        let max_in_flight = self.max_in_flight.or(tier.max_in_flight);
        if !self.inherits() {
            return Self {
                max_in_flight,
                ..*self
            };
        }
        Self {
            max_in_flight,
            safety_margin: self.safety_margin,
            margin_cap: self.margin_cap,
            count: self.count,
            allowed_per_minute: self.allowed_per_minute,
            ..*tier
        }
    }

    /// Refuses nonsense, naming the column. The stores' constraints say the
    /// same.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        let refuse = |field, problem: &str| {
            Err(InvalidSettings {
                field,
                problem: problem.to_owned(),
            })
        };
        let others = [("burst", self.burst), ("max_in_flight", self.max_in_flight)];
        let columns = columns(self.limits()).chain(others);
        at_most(columns, MAX_LIMIT, "must be at most 1000000000")?;
        if self.burst == Some(0) {
            return refuse("burst", "must be at least 1");
        }
        if self.max_in_flight == Some(0) {
            return refuse("max_in_flight", "must be at least 1");
        }
        if self.shape == Some(Shape::LeakyBucket) && self.burst.is_some_and(|burst| burst != 1) {
            return refuse("burst", "a leaky_bucket has no burst; leave it out");
        }
        if self.unlimited && self.limits().iter().any(|(_, max)| max.is_some()) {
            return refuse(
                "unlimited",
                "cannot stand beside a limit: leave one of them out",
            );
        }
        let parts = [
            ("safety_margin", self.safety_margin),
            ("margin_cap", self.margin_cap),
        ];
        for (field, part) in parts {
            if part.is_some_and(|part| !(0.0..=MAX_SAFETY_MARGIN).contains(&part)) {
                return refuse(field, "must be between 0 and 1");
            }
        }
        Ok(())
    }

    /// What admission obeys. Call on settings that the tier has been merged
    /// into ([`LimitSettings::or_tier`]); if nothing limits even then, the
    /// destination is unlimited.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let rate = self.rate();
        let quarter = match &rate {
            Rate::Limited(limited) => limited.per_second() / 4.0,
            Rate::Paused | Rate::Unlimited => 0.0,
        };
        let default = DEFAULT_MAX_IN_FLIGHT.max(quarter.min(f64::from(MAX_LIMIT)) as u32);
        Policy {
            rate,
            max_in_flight: self.max_in_flight.unwrap_or(default).max(1),
            margin: self.margin(),
            count: self.count.unwrap_or_default(),
            allowed_per_minute: self.allowed_per_minute,
            pace: None,
        }
    }

    /// Where answers are counted nothing is left for a margin to hold, unless one is
    /// set.
    fn margin(&self) -> Margin {
        let part = |part: f64| part.clamp(0.0, MAX_SAFETY_MARGIN);
        match (self.safety_margin, self.count) {
            (Some(set), _) => Margin::Set(part(set)),
            (None, Some(Count::Response)) => Margin::Set(0.0),
            (None, Some(Count::Start) | None) => Margin::Measured {
                spread: None,
                cap: part(self.margin_cap.unwrap_or(margin::MOST)),
            },
        }
    }

    /// The lower of what is set and what the receiver allows, minute by minute.
    fn rate(&self) -> Rate {
        let set = self.set_rate();
        match self.allowed_per_minute {
            None => set,
            Some(most) => match Limit::new(most.min(MAX_LIMIT), Period::Minute) {
                None => Rate::Paused,
                Some(allowed) => set.within(allowed),
            },
        }
    }

    fn set_rate(&self) -> Rate {
        if self.unlimited {
            return Rate::Unlimited;
        }
        if self.limits().iter().any(|(_, max)| *max == Some(0)) {
            return Rate::Paused;
        }
        let mut limits: Vec<Limit> = self
            .limits()
            .iter()
            .filter_map(|(period, max)| Limit::new((*max)?.min(MAX_LIMIT), *period))
            .collect();
        let Some(&shortest) = limits.first() else {
            return Rate::Unlimited;
        };
        let paced = |burst: u32| {
            Some(Pacing {
                refill: shortest,
                burst: burst.max(1),
            })
        };
        let shape = self.shape.unwrap_or_default();
        let pacing = match shape {
            Shape::SlidingWindow => self
                .burst
                .filter(|burst| *burst < shortest.max.get())
                .and_then(paced),
            Shape::TokenBucket => paced(self.burst.unwrap_or(shortest.max.get())),
            Shape::LeakyBucket => paced(1),
        };
        // A bucket is planned by its slots and stands for its shortest window. No slot
        // says when an answer comes: where those count, the window stays.
        if shape != Shape::SlidingWindow && self.count != Some(Count::Response) {
            limits.remove(0);
        }
        Rate::Limited(Limited {
            windows: limits,
            pacing,
        })
    }
}

/// What admission obeys: the settings of a destination, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// How many starts, and when.
    pub rate: Rate,
    /// Attempts queued and in flight at once, at least 1.
    pub max_in_flight: u32,
    /// By how much its windows are longer than their periods.
    pub margin: Margin,
    /// Until when a request counts in them.
    pub count: Count,
    /// What the receiver allows, which is in `rate` already: for whoever says why.
    pub allowed_per_minute: Option<u32>,
    /// What smart delivery makes of it: slots are planned no faster.
    pub pace: Option<Pace>,
}

/// How many starts, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rate {
    /// None: a limit of zero.
    Paused,
    /// Only `max_in_flight` limits.
    Unlimited,
    /// Windows, spacing, or both.
    Limited(Limited),
}

impl Rate {
    /// The same, and this window beside it.
    fn within(self, window: Limit) -> Self {
        let mut limited = match self {
            Self::Paused => return Self::Paused,
            Self::Unlimited => Limited {
                windows: Vec::new(),
                pacing: None,
            },
            Self::Limited(limited) => limited,
        };
        let windows = &mut limited.windows;
        let at = windows.partition_point(|one| one.period < window.period);
        match windows
            .get_mut(at)
            .filter(|one| one.period == window.period)
        {
            Some(same) => same.max = same.max.min(window.max),
            None => windows.insert(at, window),
        }
        Self::Limited(limited)
    }
}

/// Windows that hold at most L starts each, and a spacing. At least one of
/// the two is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limited {
    /// The sliding windows, the shortest first; at most four.
    pub windows: Vec<Limit>,
    /// The spacing: a token or leaky bucket, or a window's `burst`.
    pub pacing: Option<Pacing>,
}

impl Limited {
    /// The fastest long-run rate that all of it allows together, in starts per
    /// second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        let refill = self.pacing.map(|pacing| pacing.refill);
        self.windows
            .iter()
            .copied()
            .chain(refill)
            .map(Limit::per_second)
            .fold(f64::INFINITY, f64::min)
    }
}

/// A bucket: it holds `burst` tokens, refilled at one per P/L.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// L and P of the refill.
    pub refill: Limit,
    /// Its capacity, at least 1.
    pub burst: u32,
}

impl Policy {
    /// How long the window of this limit is planned: stretched by the margin; and by the
    /// longest answer where that counts and all that is known are starts in buckets.
    #[must_use]
    pub fn stretched(&self, limit: Limit) -> Duration {
        let period = limit.period.duration();
        let answer = match self.count {
            Count::Response if limit.is_coarse() => LONGEST_ANSWER,
            Count::Response | Count::Start => Duration::ZERO,
        };
        period + self.margin.of(period) + answer
    }

    /// How long a bucket takes to refill: stretched only by a margin that was set.
    #[must_use]
    pub fn refill_period(&self, pacing: Pacing) -> Duration {
        let period = pacing.refill.period.duration();
        period.mul_f64(1.0 + self.set_margin())
    }

    /// By how much the window of its shortest limit is planned longer than its period;
    /// `None` where it has no window.
    #[must_use]
    pub fn margin_in_force(&self) -> Option<Duration> {
        let Rate::Limited(limited) = &self.rate else {
            return None;
        };
        let shortest = limited.windows.first()?;
        Some(self.margin.of(shortest.period.duration()))
    }

    /// The same, where the response times differ so much: it matters unless the
    /// margin is set.
    #[must_use]
    pub fn measured(self, spread: Option<Spread>) -> Self {
        let margin = match self.margin {
            Margin::Measured { cap, .. } => Margin::Measured { spread, cap },
            set @ Margin::Set(_) => set,
        };
        Self { margin, ..self }
    }

    fn set_margin(&self) -> f64 {
        match self.margin {
            Margin::Set(part) => part,
            Margin::Measured { .. } => 0.0,
        }
    }

    /// The fastest long-run rate, in starts per second; `None` if nothing but
    /// `max_in_flight` limits. A margin that is measured takes up to a hundredth of it,
    /// which is not in it.
    #[must_use]
    pub fn starts_per_second(&self) -> Option<f64> {
        let configured = match &self.rate {
            Rate::Paused => Some(0.0),
            Rate::Unlimited => None,
            Rate::Limited(limited) => Some(limited.per_second() / (1.0 + self.set_margin())),
        };
        let paced = (self.pace).map(|pace| f64::from(pace.max()) / pace.period().as_secs_f64());
        configured.into_iter().chain(paced).reduce(f64::min)
    }

    /// What is set, in starts per second: that of the shortest of its limits, which is
    /// the one that people know. In the long run others may allow less
    /// ([`Policy::starts_per_second`]).
    #[must_use]
    pub fn configured_per_second(&self) -> Option<f64> {
        let limited = match &self.rate {
            Rate::Paused => return Some(0.0),
            Rate::Unlimited => return None,
            Rate::Limited(limited) => limited,
        };
        let refill = limited.pacing.map(|pacing| pacing.refill);
        let all = refill.into_iter().chain(limited.windows.iter().copied());
        all.min_by_key(|limit| limit.period).map(Limit::per_second)
    }

    /// The most that may start in any time of this length, as it is set; `None` for any
    /// number. 60 a minute may all start in one second, and 10 a second are 600 a minute.
    #[must_use]
    pub fn most_in(&self, length: Duration) -> Option<f64> {
        let limited = match &self.rate {
            Rate::Paused => return Some(0.0),
            Rate::Unlimited => return None,
            Rate::Limited(limited) => limited,
        };
        let length = length.as_secs_f64();
        // A window's starts may all be at its beginning, and so may the next one's.
        let in_windows = (limited.windows.iter()).map(|limit| {
            let windows = (length / limit.period.duration().as_secs_f64()).ceil();
            f64::from(limit.max.get()) * windows.max(1.0)
        });
        let in_bucket = (limited.pacing)
            .map(|pacing| f64::from(pacing.burst) + pacing.refill.per_second() * length);
        in_windows.chain(in_bucket).reduce(f64::min)
    }

    /// Whether any window is counted in coarse buckets, so that outcomes must
    /// fold their starts.
    #[must_use]
    pub fn is_coarse(&self) -> bool {
        match &self.rate {
            Rate::Limited(limited) => limited.windows.iter().any(|limit| limit.is_coarse()),
            Rate::Paused | Rate::Unlimited => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_of_its_own_period() {
        let most = |limits: LimitSettings, seconds| {
            let policy = limits.policy();
            policy.most_in(Duration::from_secs(seconds))
        };
        let minute = LimitSettings {
            per_minute: Some(60),
            ..LimitSettings::default()
        };
        assert_eq!(most(minute, 1), Some(60.0), "all at once");
        assert_eq!(most(minute, 60), Some(60.0));
        assert_eq!(most(minute, 90), Some(120.0), "at the beginnings of two");
        let both = LimitSettings {
            per_second: Some(10),
            per_day: Some(1_000),
            ..minute
        };
        assert_eq!(most(both, 2), Some(20.0));
        assert_eq!(most(both, 7_200), Some(1_000.0));
        assert_eq!(most(both, 30), Some(60.0));
        let bucket = LimitSettings {
            per_second: Some(10),
            burst: Some(50),
            shape: Some(Shape::TokenBucket),
            ..LimitSettings::default()
        };
        assert_eq!(most(bucket, 3), Some(80.0), "a full one, and its refill");
        assert_eq!(most(LimitSettings::default(), 1), None);
    }

    const TIER: LimitSettings = LimitSettings {
        per_second: Some(2),
        per_minute: None,
        per_hour: None,
        per_day: None,
        unlimited: false,
        burst: Some(10),
        shape: Some(Shape::TokenBucket),
        max_in_flight: None,
        safety_margin: None,
        margin_cap: None,
        count: None,
        allowed_per_minute: None,
    };

    #[test]
    fn what_the_receiver_allows_is_a_window_beside_what_is_set() {
        let allowed = |own: LimitSettings, most: u32| {
            let own = LimitSettings {
                allowed_per_minute: Some(most),
                ..own
            };
            own.or_tier(&TIER).policy()
        };
        let windows = |policy: &Policy| match &policy.rate {
            Rate::Limited(limited) => limited.windows.clone(),
            other => panic!("{other:?}"),
        };
        let minute = |most: u32| Limit::new(most, Period::Minute).unwrap();
        let (second, hour) = (Limit::new(10, Period::Second), Limit::new(9, Period::Hour));
        // The tier's bucket stays, and refills no slower.
        let tier = allowed(LimitSettings::default(), 60);
        assert_eq!(windows(&tier), [minute(60)]);
        let own = LimitSettings {
            per_second: Some(10),
            per_minute: Some(100),
            per_hour: Some(9),
            ..LimitSettings::default()
        };
        let both = [second.unwrap(), minute(60), hour.unwrap()];
        assert_eq!(windows(&allowed(own, 60)), both);
        let as_set = [second.unwrap(), minute(100), hour.unwrap()];
        assert_eq!(windows(&allowed(own, 120)), as_set, "the lower counts");
        let without = LimitSettings {
            per_minute: None,
            ..own
        };
        assert_eq!(windows(&allowed(without, 60)), both);
        let unlimited = LimitSettings {
            unlimited: true,
            ..LimitSettings::default()
        };
        assert_eq!(windows(&allowed(unlimited, 7)), [minute(7)]);
        // A bucket of a minute holds more than the receiver takes in one.
        let bucket = LimitSettings {
            per_minute: Some(100),
            burst: Some(50),
            shape: Some(Shape::TokenBucket),
            ..LimitSettings::EXACT
        };
        let policy = allowed(bucket, 60);
        assert_eq!(policy.most_in(Duration::from_secs(59)), Some(60.0));
    }

    #[test]
    fn what_the_receiver_has_not_allowed_is_paused() {
        for unlimited in [false, true] {
            let own = LimitSettings {
                unlimited,
                allowed_per_minute: Some(0),
                ..LimitSettings::default()
            };
            assert_eq!(own.or_tier(&TIER).policy().rate, Rate::Paused);
        }
        let paused = LimitSettings {
            per_hour: Some(0),
            allowed_per_minute: Some(60),
            ..LimitSettings::default()
        };
        assert_eq!(paused.policy().rate, Rate::Paused);
    }

    #[test]
    fn all_null_takes_the_tiers_limit_shape_and_burst() {
        let policy = LimitSettings::default().or_tier(&TIER).policy();
        let Rate::Limited(limited) = policy.rate else {
            panic!("limited by the tier")
        };
        assert_eq!(
            limited.pacing.map(|p| (p.refill.max.get(), p.burst)),
            Some((2, 10))
        );
        assert!(limited.windows.is_empty());
    }

    #[test]
    fn one_set_is_not_the_tiers_and_defaults_to_a_sliding_window() {
        let own = LimitSettings {
            per_minute: Some(7),
            ..LimitSettings::default()
        };
        let Rate::Limited(limited) = own.or_tier(&TIER).policy().rate else {
            panic!("limited")
        };
        assert_eq!(limited.pacing, None);
        assert_eq!(limited.windows, [Limit::new(7, Period::Minute).unwrap()]);
    }

    #[test]
    fn what_is_configured_is_the_shortest_limit_however_little_a_day_allows() {
        let set = |settings: LimitSettings| settings.policy();
        let both = set(LimitSettings {
            per_second: Some(2),
            per_day: Some(50_000),
            ..LimitSettings::default()
        });
        assert_eq!(both.configured_per_second(), Some(2.0));
        assert_eq!(both.starts_per_second(), Some(50_000.0 / 86_400.0));
        let bucket = set(LimitSettings {
            per_day: Some(50_000),
            ..TIER
        });
        assert_eq!(bucket.configured_per_second(), Some(2.0));
        let none = LimitSettings::default().policy();
        assert_eq!(none.configured_per_second(), None);
    }

    #[test]
    fn zero_pauses_and_unlimited_lifts_only_the_rate() {
        let zero = LimitSettings {
            per_hour: Some(0),
            per_second: Some(5),
            ..LimitSettings::default()
        };
        assert_eq!(zero.or_tier(&TIER).policy().rate, Rate::Paused);
        let unlimited = LimitSettings {
            unlimited: true,
            ..LimitSettings::default()
        };
        let policy = unlimited.or_tier(&TIER).policy();
        assert_eq!((policy.rate, policy.max_in_flight), (Rate::Unlimited, 50));
    }

    #[test]
    fn a_bucket_refills_by_its_shortest_period_and_keeps_longer_windows() {
        let settings = LimitSettings {
            per_second: Some(10),
            per_minute: Some(100),
            shape: Some(Shape::LeakyBucket),
            ..LimitSettings::default()
        };
        let Rate::Limited(limited) = settings.policy().rate else {
            panic!("limited")
        };
        assert_eq!(
            limited.pacing.map(|p| (p.refill.period, p.burst)),
            Some((Period::Second, 1))
        );
        assert_eq!(limited.windows, [Limit::new(100, Period::Minute).unwrap()]);
    }

    #[test]
    fn max_in_flight_is_a_quarter_of_a_seconds_worth_where_that_is_more() {
        let settings = LimitSettings {
            per_second: Some(1_000),
            ..LimitSettings::default()
        };
        assert_eq!(settings.policy().max_in_flight, 250);
    }

    #[test]
    fn nonsense_is_refused_by_the_name_of_its_column() {
        let refused = |settings: LimitSettings| settings.validate().unwrap_err().field;
        let base = LimitSettings::default();
        assert_eq!(
            refused(LimitSettings {
                burst: Some(0),
                ..base
            }),
            "burst"
        );
        assert_eq!(
            refused(LimitSettings {
                max_in_flight: Some(0),
                ..base
            }),
            "max_in_flight"
        );
        assert_eq!(
            refused(LimitSettings {
                safety_margin: Some(-0.1),
                ..base
            }),
            "safety_margin"
        );
        assert_eq!(
            refused(LimitSettings {
                safety_margin: Some(f64::NAN),
                ..base
            }),
            "safety_margin"
        );
        assert_eq!(
            refused(LimitSettings {
                per_day: Some(MAX_LIMIT + 1),
                ..base
            }),
            "limit_per_day"
        );
        assert_eq!(
            refused(LimitSettings {
                unlimited: true,
                per_day: Some(1),
                ..base
            }),
            "unlimited"
        );
    }
}

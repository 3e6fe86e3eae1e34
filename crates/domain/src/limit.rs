//! Limits: at most so many starts per period.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The largest number that a limit, a burst or a concurrency cap may have.
/// Far above what one sender can do; it keeps every product of admission's
/// arithmetic within 128 bits.
pub const MAX_LIMIT: u32 = 1_000_000_000;

/// The length of the sliding window that a limit counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// One second.
    Second,
    /// 60 seconds.
    Minute,
    /// 3,600 seconds.
    Hour,
    /// 86,400 seconds.
    Day,
}

impl Period {
    /// All of them, the shortest first.
    pub const ALL: [Self; 4] = [Self::Second, Self::Minute, Self::Hour, Self::Day];

    /// How long the window is.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        })
    }

    /// How long one coarse bucket of starts is: a two-hundredth of the period.
    /// Counting a whole bucket at its end over-counts by that much at most, so
    /// a large limit is used to 99.5 % in the worst case and never exceeded.
    #[must_use]
    pub const fn bucket(self) -> Duration {
        Duration::from_micros(self.duration().as_micros() as u64 / 200)
    }

    /// The word: `second`, `minute`, `hour`, `day`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// At most [`Limit::max`] starts in every half-open window of
/// [`Limit::period`]. A limit of zero cannot be written: zero is
/// [`crate::policy::Rate::Paused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limit {
    /// Starts per period.
    pub max: NonZeroU32,
    /// The window.
    pub period: Period,
}

/// Starts of a limit above this many are read from coarse buckets, at or below
/// it one by one. Reading 2,000 index entries costs under a millisecond; more
/// would make a run's cost grow with the limit.
pub const EXACT_MAX: u32 = 2_000;

impl Limit {
    /// A limit, or `None` for zero or more than [`MAX_LIMIT`].
    #[must_use]
    pub fn new(max: u32, period: Period) -> Option<Self> {
        if max > MAX_LIMIT {
            return None;
        }
        NonZeroU32::new(max).map(|max| Self { max, period })
    }

    /// Starts per second, as a number for leads and shares, not for
    /// admission.
    #[must_use]
    pub fn per_second(self) -> f64 {
        f64::from(self.max.get()) / self.period.duration().as_secs_f64()
    }

    /// Whether its starts are counted in coarse buckets ([`EXACT_MAX`]).
    #[must_use]
    pub fn is_coarse(self) -> bool {
        self.max.get() > EXACT_MAX
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.max, self.period)
    }
}

/// How a limit spreads its starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// At most L in every sliding window, as early as that allows.
    #[default]
    SlidingWindow,
    /// Capacity `burst`, refilled at L per P.
    TokenBucket,
    /// Evenly spaced at P/L.
    LeakyBucket,
}

impl Shape {
    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
        }
    }
}

/// Until when a limit counts a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Its start: exact at the receiver as long as the way there differs by no more
    /// than the margin.
    #[default]
    Start,
    /// The end of its answer, and without one the end of the longest time-out: exact at
    /// the receiver however long requests are on their way, for a round trip in each
    /// period.
    Response,
}

impl Count {
    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Response => "response",
        }
    }
}

/// The text is nothing that can be counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown count {0:?}: expected start or response")]
pub struct UnknownCount(pub String);

impl FromStr for Count {
    type Err = UnknownCount;
    fn from_str(text: &str) -> Result<Self, UnknownCount> {
        match text {
            "start" => Ok(Self::Start),
            "response" => Ok(Self::Response),
            other => Err(UnknownCount(other.to_owned())),
        }
    }
}

/// The text is no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown shape {0:?}: expected sliding_window, token_bucket or leaky_bucket")]
pub struct UnknownShape(pub String);

impl FromStr for Shape {
    type Err = UnknownShape;
    fn from_str(text: &str) -> Result<Self, UnknownShape> {
        match text {
            "sliding_window" => Ok(Self::SlidingWindow),
            "token_bucket" => Ok(Self::TokenBucket),
            "leaky_bucket" => Ok(Self::LeakyBucket),
            _ => Err(UnknownShape(text.to_owned())),
        }
    }
}

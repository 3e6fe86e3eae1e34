//! Time as an argument: instants of the store's clock.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant of the **store's** clock, in microseconds since the Unix epoch.
///
/// There is one clock that limits are judged by, and it is the store's
/// (`clock_timestamp()` in Postgres, read after the lock). No other clock is
/// ever converted into a `Timestamp` that admission or the audit looks at;
/// workers hold an estimate of it ([`crate::clock::StoreClock`]) that can
/// cost them an *early* answer and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest instant that can be written down.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest instant that can be written down.
    pub const MAX: Self = Self(i64::MAX);

    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// From whole milliseconds since the Unix epoch, saturating.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    ///
    /// ```
    /// use domain::time::Timestamp;
    /// use std::time::Duration;
    /// let noon = Timestamp::from_millis(43_200_000);
    /// assert_eq!((noon + Duration::from_millis(5)).since(noon), Duration::from_millis(5));
    /// assert_eq!(noon.since(noon + Duration::from_millis(5)), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0).max(0);
        Duration::from_micros(micros.unsigned_abs())
    }

    /// `self - other` in microseconds, signed, saturating.
    #[must_use]
    pub const fn micros_since(self, other: Self) -> i64 {
        self.0.saturating_sub(other.0)
    }

    /// The first multiple of `step` that is not before it, by UTC.
    ///
    /// ```
    /// use domain::time::Timestamp;
    /// use std::time::Duration;
    /// let rounded = |ms| Timestamp::from_millis(ms).rounded_up(Duration::from_millis(250));
    /// assert_eq!([1_000, 1_001, 1_249].map(rounded), [1_000, 1_250, 1_250].map(Timestamp::from_millis));
    /// ```
    #[must_use]
    pub fn rounded_up(self, step: Duration) -> Self {
        let step = micros(step).max(1);
        let over = self.0.rem_euclid(step);
        let missing = if over == 0 { 0 } else { step - over };
        Self(self.0.saturating_add(missing))
    }
}

/// A duration in microseconds, saturating; finer parts are cut off.
#[must_use]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;
    /// Saturates at [`Timestamp::MAX`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;
    /// Saturates at [`Timestamp::MIN`].
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}µs", self.0)
    }
}

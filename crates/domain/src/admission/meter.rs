//! The level of a bucket.

use std::time::Duration;

use crate::policy::Pacing;
use crate::time::Timestamp;

/// The level of a bucket, as what is missing from it.
///
/// It is charged when a slot is planned, so a permit that is still
/// outstanding is never forgotten; one that ends unused has cost a token. A
/// change from one bucket to another keeps it; one from a shape without bucket
/// to one with must set it back to the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    /// Tokens missing at `as_of`, in millionths.
    pub missing_micro: i64,
    /// The last slot planned.
    pub as_of: Timestamp,
}

impl Default for Meter {
    /// A full bucket.
    fn default() -> Self {
        Self {
            missing_micro: 0,
            as_of: Timestamp::MIN,
        }
    }
}

/// One token.
const TOKEN: i128 = 1_000_000;

impl Meter {
    /// The level that these starts, the newest first, leave behind: a bucket
    /// that comes into force has to count them, or a window that straddles the
    /// change would hold what was allowed before and a whole burst.
    ///
    /// No more than `burst` + L are missing: then nothing starts for a whole
    /// period, and no window of it straddles the change any more.
    pub(super) fn from_starts(starts: &[Timestamp], pacing: Pacing, period_micros: i64) -> Self {
        let most = i64::from(pacing.burst) + i64::from(pacing.refill.max.get());
        let most = most.saturating_mul(1_000_000);
        let mut meter = Self::default();
        for start in starts.iter().rev() {
            meter = meter.charged(pacing, period_micros, *start);
            meter.missing_micro = meter.missing_micro.min(most);
        }
        meter
    }

    /// The level at `at`, refilled at L per `period_micros`.
    pub(super) fn refilled(self, pacing: Pacing, period_micros: i64, at: Timestamp) -> Self {
        if at <= self.as_of {
            return self;
        }
        let elapsed = i128::from(at.micros_since(self.as_of));
        let max = i128::from(pacing.refill.max.get());
        let refill = elapsed.saturating_mul(max).saturating_mul(TOKEN) / i128::from(period_micros);
        let missing = (i128::from(self.missing_micro) - refill).max(0);
        Self {
            missing_micro: i64::try_from(missing).unwrap_or(i64::MAX),
            as_of: at,
        }
    }

    /// The first instant, `at` or later, at which a token is there. Slots are
    /// planned in order, so never before the last one.
    pub(super) fn next_token(self, pacing: Pacing, period_micros: i64, at: Timestamp) -> Timestamp {
        let at = at.max(self.as_of);
        let now = self.refilled(pacing, period_micros, at);
        let room = (i128::from(pacing.burst) - 1) * TOKEN;
        let over = i128::from(now.missing_micro) - room;
        if over <= 0 {
            return at;
        }
        let max = i128::from(pacing.refill.max.get()) * TOKEN;
        // Rounded up: a slot a microsecond late is safe, one early is not.
        let wait = (over * i128::from(period_micros) + max - 1) / max;
        at + Duration::from_micros(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// The level after a slot at `at`.
    pub(super) fn charged(self, pacing: Pacing, period_micros: i64, at: Timestamp) -> Self {
        let level = self.refilled(pacing, period_micros, at);
        Self {
            missing_micro: level.missing_micro.saturating_add(1_000_000),
            as_of: level.as_of,
        }
    }
}

//! The level of a bucket.

use std::time::Duration;

use crate::limit::EXACT_MAX;
use crate::policy::Pacing;
use crate::time::Timestamp;

/// The level of a bucket, as what is missing from it.
///
/// It is charged when a slot is planned, so a permit that is still
/// outstanding is never forgotten; one that ends unused has cost a token. A
/// change of the limits keeps it, but then the starts before the change are
/// counted too ([`super::Usage::recount`]).
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

/// The most claims that are read for a bucket that has just come into force,
/// beside those that may be in flight.
pub(super) const BUCKET_STARTS_MAX: u32 = 2 * EXACT_MAX;

/// How many of the newest claims a bucket that has just come into force has to
/// count.
pub(super) fn counted_starts(pacing: Pacing) -> i64 {
    i64::from(pacing.burst) + i64::from(pacing.refill.max.get())
}

impl Meter {
    /// The level of a bucket that has just come into force, where the newest
    /// claims (the newest first) were made under other limits: what they leave
    /// behind at its own rate, or what the bucket before it had missing, whichever
    /// is more. Without the claims, a window that straddles the change would hold
    /// what was allowed before and a whole burst; without the level, so would
    /// an interval that reaches back to a slower bucket.
    ///
    /// Claims and not starts, as slots are counted and not starts: all of them are
    /// sent within [`super::SLACK`], which the promise has room for.
    ///
    /// No more than `burst` + L are missing: then nothing starts for a whole
    /// period, and no window of it straddles the change any more. As much is
    /// missing where so many claims would have to be counted that they were
    /// not all read.
    pub(super) fn recounted(
        self,
        claims: &[Timestamp],
        pacing: Pacing,
        period_micros: i64,
    ) -> Self {
        let most = counted_starts(pacing).saturating_mul(1_000_000);
        let capped = |meter: Self| Self {
            missing_micro: meter.missing_micro.min(most),
            ..meter
        };
        let mut counted = Self::default();
        for claim in claims.iter().rev() {
            counted = capped(counted.charged(pacing, period_micros, *claim));
        }
        let enough = usize::try_from(BUCKET_STARTS_MAX).unwrap_or(usize::MAX);
        if claims.len() >= enough && most > i64::from(BUCKET_STARTS_MAX) * 1_000_000 {
            counted.missing_micro = most;
        }
        let at = self.as_of.max(counted.as_of);
        let kept = capped(self).refilled(pacing, period_micros, at);
        let counted = counted.refilled(pacing, period_micros, at);
        if counted.missing_micro > kept.missing_micro {
            counted
        } else {
            kept
        }
    }

    /// The level at `at`, refilled at L per `period_micros`.
    pub(crate) fn refilled(self, pacing: Pacing, period_micros: i64, at: Timestamp) -> Self {
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

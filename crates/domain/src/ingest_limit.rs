//! How fast one tenant may hand events in: a bucket that is refilled evenly.
//!
//! It protects the API and the store from one tenant's loop, not a receiver:
//! what receivers are promised is `admission`'s. Each API process has buckets
//! of its own, so N processes take at most N times the limit.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::time::Timestamp;

/// Events a second; as many may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestLimit(pub NonZeroU32);

impl Default for IngestLimit {
    /// Far above what one process commits: a fuse.
    fn default() -> Self {
        Self(NonZeroU32::MIN.saturating_add(49_999))
    }
}

/// What a tenant has used, in millionths of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestBucket {
    missing_micro: u64,
    as_of: Timestamp,
}

const MICRO: u64 = 1_000_000;

impl IngestBucket {
    /// Nothing is used.
    #[must_use]
    pub const fn full(now: Timestamp) -> Self {
        Self {
            missing_micro: 0,
            as_of: now,
        }
    }

    /// As it is now.
    #[must_use]
    pub fn at(self, limit: IngestLimit, now: Timestamp) -> Self {
        let elapsed = u64::try_from(now.micros_since(self.as_of)).unwrap_or(0);
        let refilled = elapsed.saturating_mul(u64::from(limit.0.get()));
        Self {
            missing_micro: self.missing_micro.saturating_sub(refilled),
            as_of: self.as_of.max(now),
        }
    }

    /// Takes so many events, or says when there may be room for them. More than
    /// the bucket holds are taken when it is full, and waited for afterwards.
    pub fn take(self, limit: IngestLimit, now: Timestamp, events: u32) -> Result<Self, Duration> {
        let now_has = self.at(limit, now);
        let capacity = u64::from(limit.0.get()) * MICRO;
        let wanted = u64::from(events) * MICRO;
        let room = capacity.saturating_sub(wanted);
        if now_has.missing_micro > room {
            let micros = (now_has.missing_micro - room).div_ceil(u64::from(limit.0.get()));
            return Err(Duration::from_micros(micros));
        }
        Ok(Self {
            missing_micro: now_has.missing_micro.saturating_add(wanted),
            ..now_has
        })
    }

    /// How many more may come at once.
    #[must_use]
    pub fn left(self, limit: IngestLimit) -> u32 {
        let capacity = u64::from(limit.0.get()) * MICRO;
        u32::try_from(capacity.saturating_sub(self.missing_micro) / MICRO).unwrap_or(u32::MAX)
    }

    /// When it will be full, if nothing more comes.
    #[must_use]
    pub fn full_after(self, limit: IngestLimit) -> Duration {
        Duration::from_micros(self.missing_micro.div_ceil(u64::from(limit.0.get())))
    }
}

//! How fast one tenant may hand events in: a bucket that is refilled evenly. An
//! event counts for each destination that it goes to, and for one if it goes to none:
//! its deliveries are what it costs.
//!
//! It protects the API and the store from one tenant's loop, not a receiver:
//! what receivers are promised is `admission`'s. Each API process has buckets
//! of its own, so N processes take at most N times the limit.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::time::Timestamp;

/// Deliveries a second; as many may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestLimit(pub NonZeroU32);

impl Default for IngestLimit {
    /// Of the default tenant. Far above what one process commits: a fuse.
    fn default() -> Self {
        Self(NonZeroU32::MIN.saturating_add(49_999))
    }
}

impl IngestLimit {
    /// Of a tenant for which nothing is said, nor in its tier: what two cores that also run
    /// the store take beside all else.
    #[must_use]
    pub const fn of_a_tenant() -> Self {
        Self(NonZeroU32::MIN.saturating_add(999))
    }
}

/// What a tenant has used, in millionths of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestBucket {
    missing_micro: u64,
    as_of: Timestamp,
}

const MICRO: u64 = 1_000_000;

/// The most events that one request counts for: as many as it may have.
const MAX_REQUEST: u32 = 1_000;

/// A tenant whose events went to very many destinations is not kept waiting for
/// longer: an hour of it would be no fuse but a punishment.
pub const LONGEST_DEBT: Duration = Duration::from_secs(60);

impl IngestBucket {
    /// Nothing is used.
    #[must_use]
    pub const fn full(now: Timestamp) -> Self {
        Self {
            missing_micro: 0,
            as_of: now,
        }
    }

    /// As it is now. What is missing is never more than the bucket and what is
    /// refilled in [`LONGEST_DEBT`], or a request, whatever the limit was when it was
    /// taken.
    #[must_use]
    pub fn at(self, limit: IngestLimit, now: Timestamp) -> Self {
        let elapsed = u64::try_from(now.micros_since(self.as_of)).unwrap_or(0);
        let refilled = elapsed.saturating_mul(u64::from(limit.0.get()));
        let debt = limit.capacity().saturating_mul(LONGEST_DEBT.as_secs());
        let most = limit.capacity() + debt.max(u64::from(MAX_REQUEST) * MICRO);
        Self {
            missing_micro: self.missing_micro.saturating_sub(refilled).min(most),
            as_of: self.as_of.max(now),
        }
    }

    /// Takes so many events, or says when there may be room for them: as soon
    /// as there is room for one. What is taken beyond is waited for afterwards,
    /// so that many at once do not starve beside single ones.
    pub fn take(self, limit: IngestLimit, now: Timestamp, events: u32) -> Result<Self, Duration> {
        let now_has = self.at(limit, now);
        let room = limit.capacity() - MICRO;
        if now_has.missing_micro > room {
            let micros = (now_has.missing_micro - room).div_ceil(u64::from(limit.0.get()));
            return Err(Duration::from_micros(micros));
        }
        let wanted = u64::from(events.min(MAX_REQUEST)) * MICRO;
        Ok(Self {
            missing_micro: now_has.missing_micro + wanted,
            ..now_has
        })
    }

    /// Takes what events that were taken as one each have cost beyond that: known
    /// only once they are written, and waited for afterwards.
    #[must_use]
    pub fn charge(self, limit: IngestLimit, now: Timestamp, deliveries: u32) -> Self {
        let now_has = self.at(limit, now);
        let more = u64::from(deliveries) * MICRO;
        let missing_micro = now_has.missing_micro.saturating_add(more);
        Self {
            missing_micro,
            ..now_has
        }
        .at(limit, now)
    }

    /// Gives back what was taken and not used.
    #[must_use]
    pub const fn give_back(self, events: u32) -> Self {
        let given = events as u64 * MICRO;
        Self {
            missing_micro: self.missing_micro.saturating_sub(given),
            ..self
        }
    }

    /// What it lacks of being full, in millionths of an event.
    #[must_use]
    pub const fn missing_micro(self) -> u64 {
        self.missing_micro
    }

    /// How many more may come at once.
    #[must_use]
    pub fn left(self, limit: IngestLimit) -> u32 {
        let left = limit.capacity().saturating_sub(self.missing_micro);
        u32::try_from(left / MICRO).unwrap_or(u32::MAX)
    }

    /// When it will be full, if nothing more comes.
    #[must_use]
    pub fn full_after(self, limit: IngestLimit) -> Duration {
        Duration::from_micros(self.missing_micro.div_ceil(u64::from(limit.0.get())))
    }
}

impl IngestLimit {
    /// So many a second; `None` for zero, which is no limit.
    #[must_use]
    pub fn of(per_second: u32) -> Option<Self> {
        NonZeroU32::new(per_second).map(Self)
    }

    fn capacity(self) -> u64 {
        u64::from(self.0.get()) * MICRO
    }
}

//! How fast tenants hand events in, in this process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::ids::TenantId;
use domain::ingest_limit::{IngestBucket, IngestLimit};
use domain::time::Timestamp;
use tokio::time::Instant;

/// Tenants that are remembered; full buckets are forgotten first.
const MAX_TENANTS: usize = 10_000;

/// The buckets of all tenants.
pub struct IngestRates {
    /// Of tenants for which nothing is said, nor in their tier.
    usual: IngestLimit,
    began: Instant,
    buckets: Mutex<HashMap<TenantId, IngestBucket>>,
}

/// A tenant, and the limit that its key came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// Whose events they are.
    pub tenant: TenantId,
    /// `None` for the usual one.
    pub limit: Option<IngestLimit>,
}

/// Where a tenant stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateStanding {
    /// Events a second, and as many at once.
    pub limit: u32,
    /// How many more may come at once.
    pub left: u32,
    /// When as many as the limit may, if nothing more comes.
    pub full_after: Duration,
}

impl IngestRates {
    /// With this limit for tenants that have none of their own.
    #[must_use]
    pub fn new(usual: IngestLimit) -> Self {
        Self {
            usual,
            began: Instant::now(),
            buckets: Mutex::default(),
        }
    }

    /// Takes so many events of a tenant's, or says when to come again.
    pub fn take(&self, whose: Limited, events: u32) -> Result<(), Duration> {
        let limit = whose.limit.unwrap_or(self.usual);
        let now = self.now();
        let mut buckets = self.buckets();
        if buckets.len() >= MAX_TENANTS && !buckets.contains_key(&whose.tenant) {
            buckets.retain(|_, bucket| !bucket.at(limit, now).full_after(limit).is_zero());
        }
        let bucket = (buckets.entry(whose.tenant)).or_insert(IngestBucket::full(now));
        *bucket = bucket.take(limit, now, events)?;
        Ok(())
    }

    /// Where a tenant stands.
    #[must_use]
    pub fn standing(&self, whose: Limited) -> RateStanding {
        let limit = whose.limit.unwrap_or(self.usual);
        let now = self.now();
        let known = self.buckets().get(&whose.tenant).copied();
        let bucket = known.unwrap_or(IngestBucket::full(now)).at(limit, now);
        RateStanding {
            limit: limit.0.get(),
            left: bucket.left(limit),
            full_after: bucket.full_after(limit),
        }
    }

    fn buckets(&self) -> MutexGuard<'_, HashMap<TenantId, IngestBucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By a clock that does not step.
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0) + self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use engine::ports::DEFAULT_TENANT;

    use super::*;

    fn limit(events: u32) -> IngestLimit {
        IngestLimit(NonZeroU32::new(events).unwrap())
    }

    /// Its own or the usual one; and one that changes is in force at once.
    #[tokio::test(start_paused = true)]
    async fn each_tenant_has_a_bucket_and_its_limit() {
        let rates = IngestRates::new(limit(1_000));
        let whose = |limit| Limited {
            tenant: DEFAULT_TENANT,
            limit,
        };
        assert_eq!(rates.standing(whose(None)).limit, 1_000);
        assert_eq!(rates.take(whose(None), 1_000), Ok(()));
        assert_eq!(rates.standing(whose(None)).left, 0);
        let own = whose(Some(limit(4)));
        assert_eq!(rates.take(own, 4), Err(Duration::from_secs(250)));
        tokio::time::advance(Duration::from_secs(250)).await;
        assert_eq!(rates.take(own, 4), Ok(()));
        assert_eq!(rates.standing(own).full_after, Duration::from_secs(1));
        let other = Limited {
            tenant: TenantId(uuid::Uuid::from_u128(9)),
            limit: None,
        };
        assert_eq!(rates.take(other, 1_000), Ok(()));
    }
}

//! How fast tenants hand events in, and change things, in this process.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::ids::TenantId;
use domain::ingest_limit::{IngestBucket, IngestLimit};
use domain::time::Timestamp;
use engine::ports::DEFAULT_TENANT;
use tokio::time::Instant;

use super::ServiceError;

/// Buckets that are remembered; full ones are forgotten first.
const MAX_BUCKETS: usize = 10_000;

/// The buckets of all tenants.
pub struct IngestRates {
    /// Of the default tenant, and of the others, if nothing is said for them nor for their
    /// tier.
    usual: IngestLimit,
    of_others: IngestLimit,
    began: Instant,
    buckets: Mutex<HashMap<Whose, Bucket>>,
}

/// A tenant; and whether by a limit of its own, or the usual one: the key that
/// the process is started with pays for no other.
type Whose = (TenantId, bool);

#[derive(Clone, Copy)]
struct Bucket {
    level: IngestBucket,
    limit: IngestLimit,
}

/// A tenant, and the limit that its key came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// Whose events they are.
    pub tenant: TenantId,
    /// `None` for the usual one.
    pub limit: Option<IngestLimit>,
}

impl Limited {
    /// Whether it is what this process takes, of which another one takes as much again; and no
    /// share of a tenant's.
    #[must_use]
    pub fn is_of_the_process(self) -> bool {
        self.limit.is_none() && self.tenant == DEFAULT_TENANT
    }
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

/// How many management calls each tenant makes, the default one apart: what changes a
/// destination or its limits is kept for ever, or for months, and shared locks are taken
/// for it.
pub struct ManageRates(IngestRates);

impl ManageRates {
    /// So many a second, and as many at once.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        Self(IngestRates::new(IngestLimit(per_second)))
    }

    /// With another rate for all but the default tenant, whose keys are the installation's
    /// own.
    #[must_use]
    pub fn of_others(self, per_second: NonZeroU32) -> Self {
        Self(self.0.of_others(IngestLimit(per_second)))
    }

    /// Takes one call of a tenant's.
    pub fn take(&self, tenant: TenantId) -> Result<(), ServiceError> {
        let limit = None;
        let taken = self.0.take(Limited { tenant, limit }, 1);
        taken.map_err(|retry_after| ServiceError::TooManyChanges { retry_after })
    }
}

impl IngestRates {
    /// With this limit for tenants that have none of their own.
    #[must_use]
    pub fn new(usual: IngestLimit) -> Self {
        Self {
            usual,
            of_others: usual,
            began: Instant::now(),
            buckets: Mutex::default(),
        }
    }

    /// With another for all of these but the default tenant, whose keys are the
    /// installation's own.
    #[must_use]
    pub fn of_others(self, of_others: IngestLimit) -> Self {
        Self { of_others, ..self }
    }

    /// Takes so many events of a tenant's, or says when to come again.
    pub fn take(&self, whose: Limited, events: u32) -> Result<(), Duration> {
        let now = self.now();
        let mut buckets = self.buckets();
        let bucket = self.bucket(&mut buckets, whose);
        bucket.level = bucket.level.take(bucket.limit, now, events)?;
        Ok(())
    }

    /// Charges what a tenant's events have cost beyond one each: their deliveries.
    pub fn charge(&self, whose: Limited, deliveries: u32) {
        let now = self.now();
        let mut buckets = self.buckets();
        let bucket = self.bucket(&mut buckets, whose);
        bucket.level = bucket.level.charge(bucket.limit, now, deliveries);
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&self, whose: Limited, events: u32) {
        let mut buckets = self.buckets();
        let bucket = self.bucket(&mut buckets, whose);
        bucket.level = bucket.level.give_back(events);
    }

    /// Where a tenant stands.
    #[must_use]
    pub fn standing(&self, whose: Limited) -> RateStanding {
        let now = self.now();
        let mut buckets = self.buckets();
        let Bucket { level, limit } = *self.bucket(&mut buckets, whose);
        let level = level.at(limit, now);
        RateStanding {
            limit: limit.0.get(),
            left: level.left(limit),
            full_after: level.full_after(limit),
        }
    }

    /// A tenant's bucket, under the limit that it has now.
    fn bucket<'a>(
        &self,
        buckets: &'a mut HashMap<Whose, Bucket>,
        whose: Limited,
    ) -> &'a mut Bucket {
        let now = self.now();
        let key = (whose.tenant, whose.limit.is_some());
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&key) {
            make_room(buckets, now);
        }
        let limit = whose.limit.unwrap_or(match whose.is_of_the_process() {
            true => self.usual,
            false => self.of_others,
        });
        let level = IngestBucket::full(now);
        let bucket = buckets.entry(key).or_insert(Bucket { level, limit });
        bucket.limit = limit;
        bucket
    }

    fn buckets(&self) -> MutexGuard<'_, HashMap<Whose, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By a clock that does not step.
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0) + self.began.elapsed()
    }
}

/// Forgets the buckets that are full, and of the others those that are nearest
/// to it: every second one.
fn make_room(buckets: &mut HashMap<Whose, Bucket>, now: Timestamp) {
    let missing = |bucket: &Bucket| bucket.level.at(bucket.limit, now).missing_micro();
    buckets.retain(|_, bucket| missing(bucket) > 0);
    if buckets.len() < MAX_BUCKETS {
        return;
    }
    let mut all: Vec<u64> = buckets.values().map(missing).collect();
    let middle = all.len() / 2;
    let (_, middle, _) = all.select_nth_unstable(middle);
    let middle = *middle;
    buckets.retain(|_, bucket| missing(bucket) > middle);
}

#[cfg(test)]
mod tests {
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
        let own = |events| whose(Some(limit(events)));
        assert_eq!(rates.take(own(500), 500), Ok(()), "of its own bucket");
        let wait = rates.take(own(4), 1).unwrap_err();
        assert_eq!(wait, Duration::from_millis(124_250), "497 at four a second");
        tokio::time::advance(wait).await;
        assert_eq!(rates.take(own(4), 1), Ok(()));
        assert_eq!(rates.standing(own(4)).full_after, Duration::from_secs(1));
        rates.give_back(own(4), 1);
        assert_eq!(rates.standing(own(4)).left, 1);
        let other = Limited {
            tenant: TenantId(uuid::Uuid::from_u128(9)),
            limit: None,
        };
        assert_eq!(rates.take(other, 1_000), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn others_than_the_default_tenant_have_less() {
        let rates = IngestRates::new(limit(1_000)).of_others(limit(10));
        let standing = |tenant, limit| rates.standing(Limited { tenant, limit }).limit;
        let other = TenantId(uuid::Uuid::from_u128(9));
        assert_eq!(standing(DEFAULT_TENANT, None), 1_000);
        assert_eq!(standing(other, None), 10);
        assert_eq!(standing(other, Some(limit(70))), 70);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_changes_so_much_a_second_and_keeps_nobody_from_it() {
        let rates = ManageRates::new(limit(3).0);
        let other = TenantId(uuid::Uuid::from_u128(9));
        for _ in 0..3 {
            assert_eq!(rates.take(DEFAULT_TENANT), Ok(()));
        }
        let Err(ServiceError::TooManyChanges { retry_after }) = rates.take(DEFAULT_TENANT) else {
            panic!("a fourth");
        };
        assert_eq!(rates.take(other), Ok(()));
        tokio::time::advance(retry_after).await;
        assert_eq!(rates.take(DEFAULT_TENANT), Ok(()));
        let rates = ManageRates::new(limit(3).0).of_others(limit(1).0);
        assert_eq!(rates.take(other), Ok(()));
        assert!(rates.take(other).is_err(), "a second");
        assert_eq!(rates.take(DEFAULT_TENANT), Ok(()));
        assert_eq!(rates.take(DEFAULT_TENANT), Ok(()));
    }

    /// Those who owe most are remembered longest.
    #[tokio::test(start_paused = true)]
    async fn buckets_are_bounded() {
        let rates = IngestRates::new(limit(10));
        let tenant = |number| Limited {
            tenant: TenantId(uuid::Uuid::from_u128(number)),
            limit: None,
        };
        for number in 0..20_000 {
            let events = if number == 77 { 900 } else { 20 };
            assert_eq!(rates.take(tenant(number), events), Ok(()));
            assert!(rates.buckets().len() <= MAX_BUCKETS);
        }
        assert!(rates.take(tenant(77), 1).is_err());
    }
}

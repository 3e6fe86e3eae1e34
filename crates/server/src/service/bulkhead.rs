//! A bulkhead: places for work of one kind, of which one tenant has a share.
//!
//! Whoever wants more than his share waits in a line of his own, and not for
//! long: beyond its end he is told to come again. So in the line of all there are
//! never more of one tenant than he has places, and another one's turn comes
//! after these. Whoever goes away while he waits has left the line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::ids::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ServiceError;

/// How many places there are.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// What is done there, as a client knows it.
    pub of: &'static str,
    /// For all tenants.
    pub all: usize,
    /// For one.
    pub of_one: usize,
    /// How many more of one tenant may wait.
    pub waiting: usize,
}

/// Places, and those who wait for them; cheap to clone.
#[derive(Clone)]
pub struct Bulkhead(Arc<Inner>);

struct Inner {
    places: Places,
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<TenantId, Line>>,
}

/// One tenant's, for as long as he has somebody here.
struct Line {
    own: Arc<Semaphore>,
    /// Who works or waits.
    here: usize,
}

/// A place, until it is dropped.
pub struct Place {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    /// The last: the line goes after the places in it.
    _here: Here,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

/// Somebody who works or waits.
struct Here {
    bulkhead: Bulkhead,
    tenant: TenantId,
}

impl Bulkhead {
    /// With so many places.
    #[must_use]
    pub fn new(places: Places) -> Self {
        Self(Arc::new(Inner {
            all: Arc::new(Semaphore::new(places.all)),
            places,
            tenants: Mutex::default(),
        }))
    }

    /// A place, as soon as it is this tenant's turn; may be dropped while it
    /// waits.
    pub async fn enter(&self, tenant: TenantId) -> Result<Place, ServiceError> {
        let places = &self.0.places;
        let (here, own) = {
            let mut tenants = self.tenants();
            let line = tenants.entry(tenant).or_insert_with(|| Line {
                own: Arc::new(Semaphore::new(places.of_one)),
                here: 0,
            });
            if line.here >= places.of_one + places.waiting {
                return Err(ServiceError::Busy(format!(
                    "there are {} {} of this tenant already",
                    line.here, places.of
                )));
            }
            line.here += 1;
            let here = Here {
                bulkhead: self.clone(),
                tenant,
            };
            (here, Arc::clone(&line.own))
        };
        let closed = |_closed| ServiceError::Internal("a bulkhead was closed".to_owned());
        let own = own.acquire_owned().await.map_err(closed)?;
        let all = Arc::clone(&self.0.all).acquire_owned().await;
        Ok(Place {
            _all: all.map_err(closed)?,
            _own: own,
            _here: here,
        })
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Line>> {
        (self.0.tenants.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut tenants = self.bulkhead.tenants();
        if let Some(line) = tenants.get_mut(&self.tenant) {
            line.here -= 1;
            if line.here == 0 {
                tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use uuid::Uuid;

    use super::*;

    fn tenant(id: u128) -> TenantId {
        TenantId(Uuid::from_u128(id))
    }

    fn bulkhead() -> Bulkhead {
        Bulkhead::new(Places {
            of: "reports",
            all: 3,
            of_one: 2,
            waiting: 2,
        })
    }

    #[tokio::test]
    async fn one_tenant_waits_for_itself_and_is_refused_beyond_its_line() {
        let bulkhead = bulkhead();
        let [ours, theirs] = [tenant(1), tenant(2)];
        let one = bulkhead.enter(ours).await.unwrap();
        let _two = bulkhead.enter(ours).await.unwrap();
        let mut third = Box::pin(bulkhead.enter(ours));
        let mut fourth = Box::pin(bulkhead.enter(ours));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(fourth.as_mut().now_or_never().is_none());
        let fifth = bulkhead.enter(ours).await;
        assert!(matches!(fifth, Err(ServiceError::Busy(_))));
        let _theirs = bulkhead.enter(theirs).await.unwrap();

        // Whoever goes away leaves the line to those behind him.
        drop(third);
        drop(one);
        fourth.await.unwrap();
    }

    #[tokio::test]
    async fn the_line_of_all_has_no_more_of_one_than_his_share() {
        let bulkhead = bulkhead();
        let held = [
            bulkhead.enter(tenant(1)).await.unwrap(),
            bulkhead.enter(tenant(2)).await.unwrap(),
            bulkhead.enter(tenant(2)).await.unwrap(),
        ];
        // Four of a tenant come before one of another.
        let mut crowd: Vec<_> = (0..4)
            .map(|_| Box::pin(bulkhead.enter(tenant(3))))
            .collect();
        for one in &mut crowd {
            assert!(one.as_mut().now_or_never().is_none());
        }
        let mut other = Box::pin(bulkhead.enter(tenant(4)));
        assert!(other.as_mut().now_or_never().is_none());
        drop(held);
        // Three places: two are the crowd's, which keeps them.
        let kept: Vec<_> = (crowd.iter_mut())
            .filter_map(|one| one.as_mut().now_or_never())
            .collect();
        assert_eq!(kept.len(), 2);
        assert!(other.as_mut().now_or_never().is_some());
        drop((kept, crowd));
        drop(other);
        assert!(bulkhead.tenants().is_empty(), "nobody is remembered");
        assert_eq!(bulkhead.0.all.available_permits(), 3);
    }
}

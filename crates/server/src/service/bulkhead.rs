//! A bulkhead: places for work of one kind, which tenants share by turns
//! (`domain::bulkhead`).
//!
//! Whoever finds no place waits in his tenant's line: beyond its end he is told to come
//! again. Whoever goes away while he waits has left the line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::bulkhead::{Lines, Ticket};
use domain::ids::TenantId;
use tokio::sync::oneshot;

use super::ServiceError;

/// How many places there are.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// What is done there, as a client knows it.
    pub of: &'static str,
    /// For all tenants.
    pub all: usize,
    /// How many of one tenant may work or wait.
    pub of_one: usize,
}

/// Places, and those who wait for them; cheap to clone.
#[derive(Clone)]
pub struct Bulkhead(Arc<Inner>);

struct Inner {
    places: Places,
    state: Mutex<State>,
}

struct State {
    lines: Lines,
    /// Those who wait, and how each is called.
    calls: HashMap<Ticket, oneshot::Sender<()>>,
}

/// A place, or one in the line, until it is dropped.
pub struct Place {
    bulkhead: Bulkhead,
    ticket: Ticket,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

impl Bulkhead {
    /// With so many places.
    #[must_use]
    pub fn new(places: Places) -> Self {
        let state = State {
            lines: Lines::new(places.all, places.of_one),
            calls: HashMap::new(),
        };
        Self(Arc::new(Inner {
            places,
            state: Mutex::new(state),
        }))
    }

    /// A place, as soon as it is this tenant's turn; may be dropped while it
    /// waits.
    pub async fn enter(&self, tenant: TenantId) -> Result<Place, ServiceError> {
        let (place, called) = self.join(tenant)?;
        (called.await)
            .map_err(|_closed| ServiceError::Internal("a bulkhead was closed".to_owned()))?;
        Ok(place)
    }

    fn join(&self, tenant: TenantId) -> Result<(Place, oneshot::Receiver<()>), ServiceError> {
        let mut state = self.state();
        let Some(ticket) = state.lines.join(tenant) else {
            let Places { of, of_one, .. } = self.0.places;
            return Err(ServiceError::Busy(format!(
                "there are {of_one} {of} of this tenant already"
            )));
        };
        let (call, called) = oneshot::channel();
        state.calls.insert(ticket, call);
        state.serve();
        let place = Place {
            bulkhead: self.clone(),
            ticket,
        };
        Ok((place, called))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        (self.0.state.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Calls those whose turn it is.
    fn serve(&mut self) {
        while let Some(ticket) = self.lines.serve() {
            if let Some(call) = self.calls.remove(&ticket) {
                // Whoever goes away at this moment drops his place himself.
                let _ = call.send(());
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.bulkhead.state();
        state.lines.leave(self.ticket);
        state.calls.remove(&self.ticket);
        state.serve();
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
            all: 4,
            of_one: 4,
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
    async fn a_place_that_came_to_one_who_has_gone_is_the_next_ones() {
        let bulkhead = bulkhead();
        let mut held = Vec::new();
        while let Some(place) = bulkhead.enter(tenant(1)).now_or_never() {
            held.push(place.unwrap());
        }
        let mut gone = Box::pin(bulkhead.enter(tenant(1)));
        let mut next = Box::pin(bulkhead.enter(tenant(1)));
        assert!(gone.as_mut().now_or_never().is_none());
        assert!(next.as_mut().now_or_never().is_none());
        held.pop();
        // It was called, and has not looked.
        drop(gone);
        assert!(next.as_mut().now_or_never().is_some());
        drop(held);
        let all = (1..5).map(|id| bulkhead.enter(tenant(id)).now_or_never());
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(Option::is_some), "no place was lost");
        drop((next, all));
        assert!(bulkhead.state().calls.is_empty(), "nobody is remembered");
    }
}

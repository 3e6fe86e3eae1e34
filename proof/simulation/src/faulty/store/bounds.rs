//! Backlogs that are counted, and what adds to them.

use async_trait::async_trait;
use domain::backpressure::{BacklogBounds, Backlogged, CountPace};
use domain::event::NewEvent;
use engine::ports::{Acceptance, Backpressure, Counted, DEFAULT_TENANT, StoreError};

use super::FaultyStore;
use crate::gate::Gate;
use crate::sabotage::Sabotage;
use crate::site::Site;
use crate::store::SimulatedStore;
use crate::witness::Pending;

/// What is pending, of each and of all.
pub(crate) fn pending(store: &SimulatedStore) -> Pending {
    let mut found = Pending::new();
    let mut whole = 0;
    for (tenant, id, pending, takes) in store.all_pending() {
        found.insert(Backlogged::Destination(tenant, id), (pending, takes));
        whole += pending;
    }
    // All are of one tenant.
    for whose in [Backlogged::Tenant(DEFAULT_TENANT), Backlogged::All] {
        found.insert(whose, (whole, true));
    }
    found
}

impl FaultyStore {
    pub(crate) fn pending(&self) -> Pending {
        pending(&self.inner)
    }

    /// Runs a statement that may add to backlogs: by as much as they are longer
    /// after it. The store's are done at once.
    pub(super) async fn noting_what_comes<T>(&self, statement: impl Future<Output = T>) -> T {
        // To count them is to read all of them.
        if !self.witness.judges_backlogs() {
            return statement.await;
        }
        let before = self.pending();
        let answer = statement.await;
        for (whose, (pending, _)) in self.pending() {
            let was = before.get(&whose).map_or(0, |(pending, _)| *pending);
            if let Backlogged::Destination(_, id) = whose
                && pending > was
            {
                self.witness.came(id, pending - was);
            }
        }
        answer
    }

    async fn count(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        pace: Option<&CountPace>,
    ) -> Result<(Counted, domain::time::Timestamp), StoreError> {
        let before = self.inner.counted_at();
        let mut counted = self.inner.shipped().standings(bounds, passed, pace).await?;
        let at = self.inner.counted_at();
        if at != before {
            self.witness.counted(at, self.pending());
            self.note_standings(&counted);
        }
        tamper(&self.gate, &mut counted);
        Ok((counted, at))
    }

    fn note_standings(&self, counted: &Counted) {
        let refusing = counted.standings.iter().filter(|one| one.is_refusing());
        for one in refusing {
            self.gate.around.counts.note("backlog counted as too long");
            let line = format_args!("{:?} {} refuses", one.whose, one.pending);
            self.line(Site::Standings, line);
        }
    }
}

/// A bug in what is told of a count.
fn tamper(gate: &Gate, counted: &mut Counted) {
    if gate.has(Sabotage::ForgetsCounts) {
        counted.standings.retain(|one| one.whose == Backlogged::All);
        counted.standings.iter_mut().for_each(|one| {
            (one.pending, one.refused) = (0, None);
        });
    }
    if gate.has(Sabotage::RefusesForEver) {
        for one in &mut counted.standings {
            one.refused = one.refused.or(Some((counted_long_ago(), one.pending)));
        }
    }
}

fn counted_long_ago() -> domain::time::Timestamp {
    domain::time::Timestamp::from_micros(0)
}

#[async_trait]
impl Backpressure for FaultyStore {
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        pace: Option<&CountPace>,
    ) -> Result<Counted, StoreError> {
        let (bounds, passed, pace) = (*bounds, passed.to_vec(), pace.copied());
        let counted = self.call(Site::Standings, |store, _| async move {
            store.count(&bounds, &passed, pace.as_ref()).await
        });
        let (counted, at) = counted.await?;
        self.witness.learned(self.gate.life, at);
        Ok(counted)
    }

    async fn repeated(&self, events: &[NewEvent]) -> Result<Vec<Option<Acceptance>>, StoreError> {
        let events = events.to_vec();
        self.call(Site::Repeated, |store, _| async move {
            store.inner.shipped().repeated(&events).await
        })
        .await
    }
}

//! Where requests go, cached by destination and epoch.

use std::collections::HashMap;
use std::sync::Arc;

use domain::ids::DestinationId;
use domain::permit::Permit;

use crate::ports::{Store, Target};

/// Targets kept at once; beyond it the cache begins anew. About 200 bytes each.
const MOST: usize = 50_000;

/// The cache. A change of URL bumps the epoch, and every permit carries the
/// epoch that it was admitted at, so a stale entry is seen as such.
pub(super) struct Targets {
    store: Arc<dyn Store>,
    known: HashMap<DestinationId, Arc<Target>>,
}

impl Targets {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            known: HashMap::new(),
        }
    }

    /// The targets of these permits, read in one statement where the cache has
    /// none of their epoch. One that cannot be read is left out.
    pub(super) async fn of(&mut self, permits: &[Permit]) -> HashMap<DestinationId, Arc<Target>> {
        let mut missing: Vec<_> = (permits.iter())
            .filter(|permit| {
                (self.known.get(&permit.destination))
                    .is_none_or(|target| target.epoch < permit.epoch)
            })
            .map(|permit| permit.destination)
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            self.read(&missing).await;
        }
        (permits.iter())
            .filter_map(|permit| {
                let target = self.known.get(&permit.destination)?;
                (target.epoch >= permit.epoch).then(|| (permit.destination, Arc::clone(target)))
            })
            .collect()
    }

    async fn read(&mut self, missing: &[DestinationId]) {
        if self.known.len() + missing.len() > MOST {
            self.known.clear();
        }
        match self.store.targets(missing).await {
            Ok(targets) => {
                let fresh = targets
                    .into_iter()
                    .map(|one| (one.destination, Arc::new(one)));
                self.known.extend(fresh);
            }
            Err(error) => tracing::warn!(%error, "targets not read"),
        }
    }
}

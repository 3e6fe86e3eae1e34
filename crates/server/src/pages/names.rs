//! What destinations are called, on pages that have their ids.

use std::collections::{BTreeSet, HashMap};

use domain::ids::DestinationId;

use super::Pages;
use super::refused::Refused;
use super::words;

/// The names of the destinations on one page.
pub(super) struct Names(HashMap<DestinationId, String>);

impl Names {
    /// Asks for all of them at once.
    pub(super) async fn of(
        pages: &Pages,
        destinations: impl Iterator<Item = DestinationId>,
    ) -> Result<Self, Refused> {
        let ids: BTreeSet<_> = destinations.collect();
        let ids: Vec<_> = ids.into_iter().collect();
        if ids.is_empty() {
            return Ok(Self(HashMap::new()));
        }
        let called = pages.0.overview.names(&ids).await?.into_iter();
        Ok(Self(
            called.map(|one| (one.destination, one.name)).collect(),
        ))
    }

    /// Its name; the end of its id, once it is forgotten.
    pub(super) fn name(&self, id: DestinationId) -> String {
        let name = self.0.get(&id).cloned();
        name.unwrap_or_else(|| words::short(&id.to_string()))
    }
}

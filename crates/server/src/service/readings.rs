//! What is read for people, apart from what the installation lives by: bounded
//! per tenant, and through connections that ingest and sign-in do not share. What people
//! change goes through those that ingest has, and is bounded here as well.

use std::sync::Arc;

use domain::ids::TenantId;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ServiceError;
use super::bulkhead::{Bulkhead, Place, Places};

/// Who waits for his turn to read a list or a single thing, of one tenant: as many
/// as a browser with all its streams, and a program with some threads, have.
const READS_WAITING: usize = 62;

/// Reads of one tenant that go on however few the connections are.
const LEAST_READS: usize = 2;

/// Reports, plans and standings: seconds of work, and memory.
const REPORTS: Places = Places {
    of: "reports, plans or standings",
    all: 4,
    of_one: 2,
    waiting: 2,
};

/// The places of one process.
#[derive(Clone)]
pub struct Readings {
    reads: Bulkhead,
    changes: Bulkhead,
    reports: Bulkhead,
}

impl Readings {
    /// Over a store that answers so many reads at once. One tenant has half of
    /// them; in all there are more reads than that at work, since pages think, too.
    #[must_use]
    pub fn new(at_once: u32) -> Self {
        let at_once = at_once as usize;
        Self {
            reads: Bulkhead::new(Places {
                of: "reads",
                all: (4 * at_once).max(4 * LEAST_READS),
                of_one: (at_once / 2).max(LEAST_READS),
                waiting: READS_WAITING,
            }),
            // Of the other connections, of which there are three times as many: the rest
            // of them is for events and those who sign in.
            changes: Bulkhead::new(Places {
                of: "changes",
                all: at_once.max(LEAST_READS),
                of_one: (at_once / 2).max(1),
                waiting: READS_WAITING,
            }),
            reports: Bulkhead::new(REPORTS),
        }
    }

    /// A place for a read.
    pub async fn read(&self, tenant: TenantId) -> Result<Place, ServiceError> {
        self.reads.enter(tenant).await
    }

    /// A place for a change.
    pub async fn change(&self, tenant: TenantId) -> Result<Place, ServiceError> {
        self.changes.enter(tenant).await
    }

    /// A place for a report. The report goes on for as long as somebody has the
    /// guard.
    pub async fn report(&self, tenant: TenantId) -> Result<(Report, DropGuard), ServiceError> {
        let place = self.reports.enter(tenant).await?;
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let report = Report {
            _place: Arc::new(place),
            gone,
        };
        Ok((report, guard))
    }
}

/// A report that is being made; cheap to clone.
#[derive(Clone)]
pub struct Report {
    _place: Arc<Place>,
    gone: CancellationToken,
}

impl Report {
    /// An error once nobody waits for it any more: asked between two steps, so
    /// that no statement is left in the middle.
    pub fn goes_on(&self) -> Result<(), ServiceError> {
        match self.gone.is_cancelled() {
            true => Err(ServiceError::Busy("nobody waits for it".to_owned())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::ports::DEFAULT_TENANT;
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_tenant_reads_by_half_of_the_connections() {
        for (at_once, own) in [(1, 2), (4, 2), (25, 12)] {
            let readings = Readings::new(at_once);
            let mut taken = Vec::new();
            while let Some(place) = readings.read(DEFAULT_TENANT).now_or_never() {
                taken.push(place.unwrap());
            }
            assert_eq!(taken.len(), own, "of {at_once}");
        }
    }
}

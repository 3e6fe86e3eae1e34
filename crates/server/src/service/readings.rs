//! What is read for people, apart from what the installation lives by: bounded
//! per tenant, and through connections that ingest and sign-in do not share.

use std::sync::Arc;

use domain::ids::TenantId;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ServiceError;
use super::bulkhead::{Bulkhead, Place, Places};

/// Lists, and single things. One tenant has half of the connections that are for
/// reading by default.
const READS: Places = Places {
    of: "reads",
    all: 16,
    of_one: 2,
    waiting: 62,
};

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
    reports: Bulkhead,
}

impl Default for Readings {
    fn default() -> Self {
        Self {
            reads: Bulkhead::new(READS),
            reports: Bulkhead::new(REPORTS),
        }
    }
}

impl Readings {
    /// A place for a read.
    pub async fn read(&self, tenant: TenantId) -> Result<Place, ServiceError> {
        self.reads.enter(tenant).await
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

//! What is read for people, apart from what the installation lives by: shared between
//! tenants by turns, and through connections that ingest and sign-in do not share. What
//! people change goes through those that ingest has, and is shared here as well; and so are
//! the cores, between bodies of many events.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use domain::ids::TenantId;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ServiceError;
use super::bulkhead::{Bulkhead, Place, Places};

/// Who reads, or waits for his turn to read, a list or a single thing, of one tenant: as
/// many as a browser with all its streams, and a program with some threads, have. So many
/// change something as well.
const OF_ONE: usize = 64;

/// Reads that go on however few the connections are: two of one tenant.
const LEAST_READS: usize = 4;

/// Changes that go on however few the connections are.
const LEAST_CHANGES: usize = 2;

/// Reports, plans and standings, which are seconds of work, and memory: those of one
/// tenant that are made or wait, with a place that rests.
const REPORTS_OF_ONE: usize = 4;

/// The fewest and the most reports that are made at once; between them as many as there are
/// cores.
const REPORTS: [usize; 2] = [2, 4];

/// A place rests for as long as its report took, and no longer than this: whoever asks for
/// one after the other has half of its time.
const RESTS_FOR: Duration = Duration::from_secs(1);

/// Bodies that are parsed at once however few the cores are: one of one tenant, whose others
/// wait. How many those are is bounded by its room for bodies.
const LEAST_BODIES: usize = 2;

/// One connection in so many is for reports.
const FOR_REPORTS: usize = 3;

/// The places of one process.
#[derive(Clone)]
pub struct Readings {
    reads: Bulkhead,
    changes: Bulkhead,
    reports: Bulkhead,
    bodies: Bulkhead,
}

impl Readings {
    /// Over a store that answers so many reads at once. A place is a connection: reads
    /// and reports have theirs apart, so that whoever gets a place waits for none, but
    /// where connections are fewer than the least.
    #[must_use]
    pub fn new(at_once: u32) -> Self {
        let at_once = at_once as usize;
        let [least, most] = REPORTS;
        let for_reports = (at_once / FOR_REPORTS).clamp(least, most);
        let rest = at_once.saturating_sub(for_reports);
        let cores = available_parallelism().map_or(least, NonZero::get);
        Self {
            reads: Bulkhead::new(Places {
                of: "reads",
                all: rest.max(LEAST_READS),
                of_one: OF_ONE,
            }),
            // Of the other connections, of which there are more: the rest of them is for
            // events and those who sign in.
            changes: Bulkhead::new(Places {
                of: "changes",
                all: rest.max(LEAST_CHANGES),
                of_one: OF_ONE,
            }),
            reports: Bulkhead::new(Places {
                of: "reports, plans or standings",
                all: for_reports.min(cores.max(least)),
                of_one: REPORTS_OF_ONE,
            }),
            bodies: Bulkhead::new(Places {
                of: "bodies",
                all: cores.max(LEAST_BODIES),
                of_one: usize::MAX,
            }),
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

    /// A place for a body that is to be parsed, which is work for a core.
    pub async fn body(&self, tenant: TenantId) -> Result<Place, ServiceError> {
        self.bodies.enter(tenant).await
    }

    /// A place for a report. The report goes on for as long as somebody has the
    /// guard.
    pub async fn report(&self, tenant: TenantId) -> Result<(Report, DropGuard), ServiceError> {
        let place = self.reports.enter(tenant).await?;
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let report = Report {
            _place: Arc::new(Resting {
                place: Some(place),
                since: Instant::now(),
            }),
            gone,
        };
        Ok((report, guard))
    }
}

/// A report that is being made; cheap to clone.
#[derive(Clone)]
pub struct Report {
    _place: Arc<Resting>,
    gone: CancellationToken,
}

/// A place that rests before the next one has it.
struct Resting {
    place: Option<Place>,
    since: Instant,
}

impl Drop for Resting {
    fn drop(&mut self) {
        let place = self.place.take();
        let rest = self.since.elapsed().min(RESTS_FOR);
        // Without a runtime the process ends, and nobody waits.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep(rest).await;
                drop(place);
            });
        }
    }
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
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_tenant_reads_by_half_of_the_connections() {
        for (at_once, own) in [(1, 2), (6, 2), (36, 16)] {
            let readings = Readings::new(at_once);
            let mut taken = Vec::new();
            while let Some(place) = readings.read(DEFAULT_TENANT).now_or_never() {
                taken.push(place.unwrap());
            }
            assert_eq!(taken.len(), own, "of {at_once}");
        }
    }

    /// Whoever posts a small one waits for no core that another's large ones have.
    #[tokio::test]
    async fn bodies_of_one_tenant_are_parsed_by_half_of_the_cores() {
        let readings = Readings::new(6);
        let (mut taken, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..1_000 {
            let mut place = Box::pin(readings.body(DEFAULT_TENANT));
            match place.as_mut().now_or_never() {
                Some(place) => taken.push(place.unwrap()),
                None => waiting.push(place),
            }
        }
        let cores = available_parallelism().map_or(1, NonZero::get);
        assert_eq!(taken.len(), cores.max(LEAST_BODIES).div_ceil(2));
        let other = TenantId(Uuid::from_u128(9));
        assert!(readings.body(other).now_or_never().is_some());
        taken.pop();
        let next = waiting[0].as_mut().now_or_never();
        assert!(next.is_some());
        assert!(waiting[1].as_mut().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_rests_for_as_long_as_its_report_took() {
        let readings = Readings::new(6);
        let (first, _wanted) = readings.report(DEFAULT_TENANT).await.unwrap();
        sleep(Duration::from_millis(300)).await;
        drop(first);
        let began = Instant::now();
        readings.report(DEFAULT_TENANT).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_millis(300));
    }

    #[tokio::test]
    async fn reads_and_reports_together_have_no_more_places_than_connections() {
        let readings = Readings::new(6);
        let tenants = || (1..).map(|id| TenantId(Uuid::from_u128(id)));
        let mut reads = Vec::new();
        for tenant in tenants() {
            match readings.read(tenant).now_or_never() {
                Some(place) => reads.push(place.unwrap()),
                None => break,
            }
        }
        let mut reports = Vec::new();
        for tenant in tenants() {
            match readings.report(tenant).now_or_never() {
                Some(report) => reports.push(report.unwrap()),
                None => break,
            }
        }
        assert_eq!([reads.len(), reports.len()], [4, 2]);
    }
}

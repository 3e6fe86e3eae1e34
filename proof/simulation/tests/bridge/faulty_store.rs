//! Faults planted in front of a store, for the bridge to find.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::{AttemptId, DestinationId, TenantId, WorkerId};
use domain::permit::Permit;
use domain::share::Room;
use domain::smart::SmartDelivery;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Admitted, AttemptView, BreakerChange, Catalog, CatalogError, ClaimAnswer, Claims,
    Deferral, Destination, DestinationChange, EventSummary, Fleet, HealthBook, HealthView,
    Heartbeat, LedgerPosition, LedgerRow, LimitHistory, Mark, NewDestination, OperationalEvent,
    Outcome, ReapRules, Reaped, Recorded, Run, SmartBook, SmartChange, SmartView, Start, Store,
    StoreError, Sweep, SweepPage, Target, Wake,
};

use super::calls::Driver;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A permit that started starts again.
    StartsTwice,
    /// Of the events of one call, the last is lost.
    LosesEvent,
    /// An outcome is answered and not recorded.
    LosesOutcome,
    /// What was handed back wakes nobody.
    LosesWakes,
}

/// A store with a fault.
pub(crate) struct Faulty<D> {
    pub(crate) inner: D,
    pub(crate) fault: Fault,
    /// What each permit was answered that started.
    pub(crate) started: Mutex<BTreeMap<PermitKey, Start>>,
}

/// Attempt and number.
pub(crate) type PermitKey = (i64, i64);

impl<D> Faulty<D> {
    pub(crate) fn new(inner: D, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            started: Mutex::default(),
        }
    }

    fn claimed(&self, permits: &[Permit], claims: &mut Claims) {
        let mut started = self.started.lock().unwrap();
        for (permit, answer) in permits.iter().zip(&mut claims.answers) {
            let key = (permit.attempt.0, permit.number.0);
            match answer {
                ClaimAnswer::Started(start) => {
                    started.insert(key, start.clone());
                }
                _ => {
                    if let Some(start) = started.get(&key) {
                        *answer = ClaimAnswer::Started(start.clone());
                    }
                }
            }
        }
    }
}

#[async_trait]
impl<D: Driver> Store for Faulty<D> {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        if self.fault == Fault::LosesEvent && events.len() > 1 {
            let (last, first) = events.split_last().unwrap();
            let mut answers = self.inner.accept_events(first).await?;
            let domain::event::Audience::Destination(to) = last.audience else {
                return self.inner.accept_events(events).await;
            };
            answers.push(Acceptance::Accepted(vec![to]));
            return Ok(answers);
        }
        self.inner.accept_events(events).await
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        self.inner.admit(runs, room).await
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        self.inner.targets(destinations).await
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let mut claims = self.inner.claim_starts(worker, permits).await?;
        if self.fault == Fault::StartsTwice {
            self.claimed(permits, &mut claims);
        }
        Ok(claims)
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        self.inner.claim_batches(worker, permits).await
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        let wakes = self.inner.release_permits(permits).await?;
        Ok(match self.fault {
            Fault::LosesWakes => Vec::new(),
            _ => wakes,
        })
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        self.inner.defer(deferrals).await
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        let recorded = match self.fault {
            Fault::LosesOutcome => &outcomes[..outcomes.len() / 2],
            _ => outcomes,
        };
        self.inner.record_outcomes(worker, recorded).await
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        self.inner.reap(rules, limit).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        self.inner.sweep(sweep).await
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        self.inner.clear_marks(marks).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Fleet, StoreError> {
        self.inner.heartbeat(heartbeat).await
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        self.inner.fleet().await
    }
}

#[async_trait]
impl<D: Driver> Catalog for Faulty<D> {
    async fn create_destination(
        &self,
        tenant: TenantId,
        new: &NewDestination,
    ) -> Result<Destination, CatalogError> {
        self.inner.create_destination(tenant, new).await
    }

    async fn destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Destination, CatalogError> {
        self.inner.destination(tenant, id).await
    }

    async fn destinations(
        &self,
        tenant: TenantId,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<Destination>, CatalogError> {
        self.inner.destinations(tenant, after, limit).await
    }

    async fn destinations_of(
        &self,
        tenant: TenantId,
        ids: &[DestinationId],
    ) -> Result<Vec<Destination>, CatalogError> {
        self.inner.destinations_of(tenant, ids).await
    }

    async fn change_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
        change: &DestinationChange,
    ) -> Result<Destination, CatalogError> {
        self.inner.change_destination(tenant, id, change).await
    }

    async fn delete_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<(), CatalogError> {
        self.inner.delete_destination(tenant, id).await
    }

    async fn event(
        &self,
        tenant: TenantId,
        id: domain::ids::EventId,
    ) -> Result<(EventSummary, Vec<AttemptView>), CatalogError> {
        self.inner.event(tenant, id).await
    }

    async fn attempts(
        &self,
        tenant: TenantId,
        id: DestinationId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError> {
        self.inner.attempts(tenant, id, before, limit).await
    }

    async fn ledger(
        &self,
        destination: DestinationId,
        since: Timestamp,
        until: Timestamp,
        after: Option<LedgerPosition>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, CatalogError> {
        let inner = &self.inner;
        inner.ledger(destination, since, until, after, limit).await
    }

    async fn starts_before(
        &self,
        destination: DestinationId,
        since: Timestamp,
        before: domain::compliance::Start,
        limit: u32,
    ) -> Result<Vec<domain::compliance::Start>, CatalogError> {
        let inner = &self.inner;
        inner.starts_before(destination, since, before, limit).await
    }

    async fn limit_history(
        &self,
        destination: DestinationId,
    ) -> Result<Vec<LimitHistory>, CatalogError> {
        self.inner.limit_history(destination).await
    }

    async fn backlogs(
        &self,
        destinations: &[DestinationId],
        cap: u32,
    ) -> Result<Vec<u32>, CatalogError> {
        self.inner.backlogs(destinations, cap).await
    }

    async fn ready(&self) -> Result<(), CatalogError> {
        self.inner.ready().await
    }
}

#[async_trait]
impl<D: Driver> HealthBook for Faulty<D> {
    async fn health(
        &self,
        tenant: TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<HealthView>, CatalogError> {
        self.inner.health(tenant, destinations).await
    }

    async fn resume(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        self.inner.resume(tenant, destination).await
    }

    async fn change_breaker(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &BreakerChange,
    ) -> Result<(), CatalogError> {
        self.inner.change_breaker(tenant, destination, change).await
    }

    async fn operational_events(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        self.inner.operational_events(after, limit).await
    }
}

#[async_trait]
impl<D: Driver> SmartBook for Faulty<D> {
    async fn smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<SmartView, CatalogError> {
        self.inner.smart_delivery(tenant, destination).await
    }

    async fn set_smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        to: SmartDelivery,
    ) -> Result<(), CatalogError> {
        (self.inner)
            .set_smart_delivery(tenant, destination, to)
            .await
    }

    async fn smart_history(
        &self,
        destination: DestinationId,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SmartChange>, CatalogError> {
        self.inner.smart_history(destination, until, limit).await
    }
}

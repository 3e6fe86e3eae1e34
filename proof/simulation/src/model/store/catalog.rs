//! The same store, as its users see it.

use std::collections::BTreeSet;

use async_trait::async_trait;
use domain::compliance::Start;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    AttemptView, Catalog, CatalogError, Destination, DestinationChange, EventSummary,
    LedgerPosition, LedgerRow, LimitHistory, Managed, NewDestination,
};

use super::{ModelStore, destinations, managers, reading};

#[async_trait]
impl Catalog for ModelStore {
    async fn create_destination(
        &self,
        tenant: TenantId,
        new: &NewDestination,
    ) -> Result<Destination, CatalogError> {
        self.step(|rows, now| destinations::create(rows, now, tenant, new))
    }

    async fn destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Destination, CatalogError> {
        self.read(|rows| destinations::read(rows, tenant, id))
    }

    async fn destinations(
        &self,
        tenant: TenantId,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<Destination>, CatalogError> {
        Ok(self.read(|rows| destinations::page(rows, tenant, after, limit)))
    }

    async fn destinations_of(
        &self,
        tenant: TenantId,
        ids: &[DestinationId],
    ) -> Result<Vec<Destination>, CatalogError> {
        let ids: BTreeSet<&DestinationId> = ids.iter().collect();
        let found = |id: &DestinationId| self.read(|rows| destinations::read(rows, tenant, *id));
        Ok(ids.into_iter().filter_map(|id| found(id).ok()).collect())
    }

    async fn change_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
        change: &DestinationChange,
    ) -> Result<Destination, CatalogError> {
        self.change(|rows, now| {
            managers::check(rows, Managed::by_nobody(tenant, id))?;
            destinations::change(rows, now, tenant, id, change)
        })
    }

    async fn delete_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<(), CatalogError> {
        self.change(|rows, now| {
            managers::check(rows, Managed::by_nobody(tenant, id))?;
            destinations::delete(rows, now, tenant, id)
        })
    }

    async fn event(
        &self,
        tenant: TenantId,
        id: EventId,
    ) -> Result<(EventSummary, Vec<AttemptView>), CatalogError> {
        self.read(|rows| reading::event(rows, tenant, id))
    }

    async fn attempts(
        &self,
        tenant: TenantId,
        id: DestinationId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError> {
        self.read(|rows| reading::attempts(rows, tenant, id, before, limit))
    }

    async fn ledger(
        &self,
        destination: DestinationId,
        since: Timestamp,
        until: Timestamp,
        after: Option<LedgerPosition>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, CatalogError> {
        let span = reading::Span {
            destination,
            since,
            until,
            after,
            limit,
        };
        Ok(self.read(|rows| reading::ledger(rows, &span)))
    }

    async fn starts_before(
        &self,
        destination: DestinationId,
        since: Timestamp,
        before: Start,
        limit: u32,
    ) -> Result<Vec<Start>, CatalogError> {
        let page = (since, before, limit);
        Ok(self.read(|rows| reading::starts_before(rows, destination, page)))
    }

    async fn limit_history(
        &self,
        destination: DestinationId,
    ) -> Result<Vec<LimitHistory>, CatalogError> {
        Ok(self.read(|rows| rows.history(destination)))
    }

    async fn backlogs(
        &self,
        destinations: &[DestinationId],
        cap: u32,
    ) -> Result<Vec<u32>, CatalogError> {
        Ok(self.read(|rows| reading::backlogs(rows, destinations, cap)))
    }

    async fn ready(&self) -> Result<(), CatalogError> {
        Ok(())
    }
}

//! The two ports of operations, each method a step on one of the two threads.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, NoticeAddressId, TenantId};
use domain::notices::NoticeAddress;
use domain::operations::{OperationalDestination, OperationalEvent};
use engine::ports::{
    AlertsChange, AlertsView, CatalogError, NewNoticeAddress, Operations, OperationsBook,
    Registration, RelayedOperations, StoreError, TenantAlertsChange, TenantAlertsView, WatchRules,
    Watched,
};
use rusqlite::Transaction;

use super::destinations::not_found;
use super::rows::execute;
use super::{SqliteStore, notices, operations, watch};

const CHANGE_ALERTS: &str = "
    -- change_alerts
    update destinations
    set alert_backlog = iif(?3, ?4, alert_backlog),
        alert_under_delivery_seconds = iif(?5, ?6, alert_under_delivery_seconds),
        alert_failing_percent = iif(?7, ?8, alert_failing_percent)
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

#[async_trait]
impl Operations for SqliteStore {
    async fn relay_operational_events(&self, limit: u32) -> Result<RelayedOperations, StoreError> {
        Ok(self
            .write(move |tx, now| operations::relay(tx, now, limit))
            .await?)
    }

    async fn watch(&self, rules: &WatchRules) -> Result<Watched, StoreError> {
        let rules = *rules;
        Ok(self
            .write(move |tx, now| watch::step(tx, now, &rules))
            .await?)
    }

    async fn trim_operational_events(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        Ok(self
            .write(move |tx, now| operations::trim(tx, now, kept, limit))
            .await?)
    }

    async fn drop_notices(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        Ok(self
            .write(move |tx, now| notices::drop_old(tx, now, kept, limit))
            .await?)
    }
}

#[async_trait]
impl OperationsBook for SqliteStore {
    async fn register_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        registration: &Registration,
    ) -> Result<OperationalDestination, CatalogError> {
        let registration = registration.clone();
        let step = move |tx: &Transaction<'_>, now| {
            operations::register(tx, now, (tenant, destination), &registration)
        };
        Ok(self.write(step).await?)
    }

    async fn unregister_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        Ok(self
            .write(move |tx, _| operations::unregister(tx, tenant, destination))
            .await?)
    }

    async fn operational_destinations(
        &self,
        tenant: TenantId,
    ) -> Result<Vec<OperationalDestination>, CatalogError> {
        Ok(self
            .read(move |tx| operations::of_tenant(tx, tenant))
            .await?)
    }

    async fn register_address(
        &self,
        tenant: TenantId,
        new: &NewNoticeAddress,
    ) -> Result<NoticeAddress, CatalogError> {
        let new = new.clone();
        let step = move |tx: &Transaction<'_>, now| notices::register(tx, now, tenant, &new);
        Ok(self.write(step).await?)
    }

    async fn remove_address(
        &self,
        tenant: TenantId,
        address: NoticeAddressId,
    ) -> Result<(), CatalogError> {
        Ok(self
            .write(move |tx, _| notices::remove(tx, tenant, address))
            .await?)
    }

    async fn addresses(&self, tenant: TenantId) -> Result<Vec<NoticeAddress>, CatalogError> {
        Ok(self.read(move |tx| notices::of_tenant(tx, tenant)).await?)
    }

    async fn recent_operational_events(
        &self,
        tenant: Option<TenantId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        Ok(self
            .read(move |tx| operations::recent(tx, tenant, before, limit))
            .await?)
    }

    async fn alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<AlertsView, CatalogError> {
        Ok(self
            .read(move |tx| watch::alerts(tx, tenant, destination)?.ok_or_else(not_found))
            .await?)
    }

    async fn change_alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &AlertsChange,
    ) -> Result<(), CatalogError> {
        let row = (
            destination.to_string(),
            tenant.to_string(),
            change.backlog.is_some(),
            change.backlog.flatten(),
            change.under_delivery_seconds.is_some(),
            change.under_delivery_seconds.flatten(),
            change.failing_percent.is_some(),
            change.failing_percent.flatten(),
        );
        Ok(self
            .write(move |tx, _| match execute(tx, CHANGE_ALERTS, row)? {
                0 => Err(not_found()),
                _ => Ok(()),
            })
            .await?)
    }

    async fn tenant_alerts(&self, tenant: TenantId) -> Result<TenantAlertsView, CatalogError> {
        Ok(self
            .read(move |tx| watch::tenants::alerts(tx, tenant))
            .await?)
    }

    async fn change_tenant_alerts(
        &self,
        tenant: TenantId,
        change: &TenantAlertsChange,
    ) -> Result<(), CatalogError> {
        let change = *change;
        Ok(self
            .write(move |tx, _| watch::tenants::change(tx, tenant, &change))
            .await?)
    }
}

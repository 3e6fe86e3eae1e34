//! Destinations' health, as their owners see it.

use async_trait::async_trait;
use domain::health::{BreakerSettings, Health};
pub use domain::health::{HealthChange, HealthEvent};
use domain::ids::{DestinationId, TenantId};
pub use domain::operations::OperationalEvent;
use domain::time::Timestamp;

use super::error::CatalogError;

/// The part of [`super::Catalog`] that is about how destinations answer. The
/// loops do not need it: outcomes write it and admission reads it, in the store.
#[async_trait]
pub trait HealthBook: Send + Sync {
    /// The health of these destinations, in the order of the ids; those that
    /// the tenant does not have are left out. Reads only.
    async fn health(
        &self,
        tenant: TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<HealthView>, CatalogError>;

    /// The owner says that the destination is well: forgets its hold, its
    /// breaker and its failures, and makes it active. Its backlog drains at its
    /// limit. Repeating it changes nothing. Refused (`Conflict`) where a
    /// [`Manager`](super::Manager) holds it and has paused it.
    async fn resume(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError>;

    /// Sets what `change` names of the breaker and leaves the rest. In force
    /// from the next outcome on.
    async fn change_breaker(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &BreakerChange,
    ) -> Result<(), CatalogError>;

    /// What operators must know, the oldest first: up to `limit` after the one
    /// of id `after`, of all tenants.
    async fn operational_events(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError>;
}

/// The health of one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthView {
    /// Whose.
    pub destination: DestinationId,
    /// The store's clock.
    pub now: Timestamp,
    /// What is remembered.
    pub health: Health,
    /// What it is judged by.
    pub settings: BreakerSettings,
    /// It fails when so many of a hundred answers are failures; 0 for never.
    pub failing_percent: u32,
}

/// What to change of a breaker: the outer `None` leaves it as it is, the inner
/// sets the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BreakerChange {
    /// So many failures in a row open it; 0 for never.
    pub failures: Option<Option<u32>>,
    /// If they go on for so many seconds at least; 0 for at once.
    pub failing_for_seconds: Option<Option<u32>>,
    /// Open for so many seconds, the destination is disabled; 0 for at once.
    pub disable_after_seconds: Option<Option<u32>>,
}

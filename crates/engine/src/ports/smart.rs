//! Smart delivery, as destinations' owners see it.

use async_trait::async_trait;
use domain::ids::{DestinationId, TenantId};
use domain::smart::{Effective, Reason, SmartDelivery};
use domain::time::Timestamp;

use super::error::CatalogError;

/// Entries of its history are kept for so many days, and the one in force then.
pub const SMART_HISTORY_DAYS: u32 = 7;

/// The part of [`super::Catalog`] that is about effective limits. The loops do
/// not need it: outcomes write them and admission reads them, in the store.
///
/// An effective limit is one that admission plans by, at or below the configured
/// one. It is no promise and has no epoch: permits that are out keep theirs.
#[async_trait]
pub trait SmartBook: Send + Sync {
    /// What is in force at a destination, and why. Reads only.
    async fn smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<SmartView, CatalogError>;

    /// Turns it on or off. Either way the configured limit is in force then;
    /// setting what is set already changes nothing.
    async fn set_smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        to: SmartDelivery,
    ) -> Result<(), CatalogError>;

    /// What came into force before `until`, the newest first, up to `limit`; no
    /// further back than what was in force [`SMART_HISTORY_DAYS`] ago. Every cut, every change of the
    /// reason, and raises by a tenth or more.
    async fn smart_history(
        &self,
        destination: DestinationId,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SmartChange>, CatalogError>;
}

/// What is in force at one destination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmartView {
    /// Whether it follows the receiver's answers.
    pub delivery: SmartDelivery,
    /// What is lowered.
    pub effective: Effective,
    /// Why.
    pub reason: Reason,
}

/// An entry of history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmartChange {
    /// From when on.
    pub in_force_from: Timestamp,
    /// What was lowered.
    pub effective: Effective,
    /// Why.
    pub reason: Reason,
}

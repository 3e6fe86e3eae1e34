//! The outbox: events that users wrote into the store themselves.

use async_trait::async_trait;
use domain::ids::DestinationId;

use super::error::StoreError;

/// Rows that one relay at a time reads, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lane(pub u16);

/// What one step of a relay did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relayed {
    /// Which lane it was; `None` if no lane had rows that nobody holds.
    pub lane: Option<Lane>,
    /// Rows that are events now.
    pub accepted: u32,
    /// Rows that could not be events, and were moved out of the way.
    pub rejected: u32,
    /// Whom to wake.
    pub destinations: Vec<DestinationId>,
}

/// A store that users insert events into, in their own transactions.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Turns the first rows of one lane, after `after` in a circle, into
    /// events, at most `limit`: the events are inserted and the rows deleted in
    /// one transaction, so each row becomes one event however often relays die.
    /// A row that cannot be an event is moved to `outbox_rejected` with the
    /// reason. Lanes and rows that somebody holds are skipped; rows of one
    /// destination become events in the order in which they were inserted.
    ///
    /// Bounds of the backlog do not apply: the rows are in the store already,
    /// and nobody is there to be refused.
    async fn relay(&self, after: Lane, limit: u32) -> Result<Relayed, StoreError>;

    /// Returns when rows may have been inserted. A hint: it may return for
    /// nothing, and it may never return.
    async fn inserted(&self);
}

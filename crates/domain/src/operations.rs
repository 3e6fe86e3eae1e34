//! Operational events: what operators must know, who is told, and how.
//!
//! Told are **operational destinations**: ordinary destinations that an owner
//! has registered. News about an ordinary destination go to those of its
//! tenant and to those of the whole installation. News about an operational
//! destination go only to those that stand before it in one order
//! ([`OperationalDestination::precedes`]), never to itself: so news about news
//! end, whatever fails, and no two destinations keep each other busy.

mod payload;
mod words;

pub use payload::{event_id, payload, rfc3339};
pub use words::{OperationalScope, OperationalType};

use crate::event::{Audience, DEFAULT_CONTENT_TYPE, NewEvent, Timing};
use crate::ids::{DestinationId, TenantId};
use crate::time::Timestamp;

/// What happened to one destination, or to a tenant as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationalEvent {
    /// Ascending.
    pub id: i64,
    /// When it came to be.
    pub created_at: Timestamp,
    /// [`OperationalType::as_str`].
    pub event_type: String,
    /// About whom, if not the tenant as a whole.
    pub destination: Option<DestinationId>,
    /// Whose it is.
    pub tenant: TenantId,
    /// JSON, an object.
    pub details: String,
}

/// A destination that is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationalDestination {
    /// Which.
    pub destination: DestinationId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of whose destinations it is told.
    pub scope: OperationalScope,
    /// Of which types ([`OperationalType::as_str`], or what a newer version
    /// calls one of its own); none is all.
    pub event_types: Vec<String>,
    /// The order of registration.
    pub position: i64,
}

impl OperationalDestination {
    /// One strict order of all: the installation's before the tenants', and
    /// the earlier registered first.
    #[must_use]
    pub fn precedes(&self, other: &Self) -> bool {
        let rank = |one: &Self| (one.scope == OperationalScope::Tenant, one.position);
        rank(self) < rank(other)
    }

    fn wants(&self, event: &OperationalEvent) -> bool {
        wants((self.scope, self.tenant), &self.event_types, event)
    }
}

/// Whether one that is registered for this scope by this tenant, and for these
/// types, is told of an event; no types are all.
#[must_use]
pub fn wants(
    (scope, tenant): (OperationalScope, TenantId),
    types: &[String],
    event: &OperationalEvent,
) -> bool {
    let sees = scope == OperationalScope::Installation || tenant == event.tenant;
    sees && (types.is_empty() || types.contains(&event.event_type))
}

/// Who of `all` is told of this.
#[must_use]
pub fn told<'a>(
    event: &OperationalEvent,
    all: &'a [OperationalDestination],
) -> Vec<&'a OperationalDestination> {
    let is_it = |one: &&OperationalDestination| Some(one.destination) == event.destination;
    let about = all.iter().find(is_it);
    let before = move |one: &OperationalDestination| about.is_none_or(|about| one.precedes(about));
    all.iter()
        .filter(|one| before(one) && one.wants(event))
        .collect()
}

/// The events that deliver this, one for each that is told. Their ids are of
/// the news and whom they are for: made again, they are the same.
#[must_use]
pub fn deliveries(event: &OperationalEvent, all: &[OperationalDestination]) -> Vec<NewEvent> {
    let delivery = |to: &OperationalDestination| NewEvent {
        id: event_id(event, to.destination),
        tenant: to.tenant,
        audience: Audience::Destination(to.destination),
        event_type: Some(event.event_type.clone()),
        content_type: DEFAULT_CONTENT_TYPE.to_owned(),
        payload: payload(event).into(),
        idempotency: None,
        trace: None,
        timing: Timing::default(),
    };
    told(event, all).into_iter().map(delivery).collect()
}

/// The same of the first of many, as many as make `most` events at most, but
/// one at least: how many that are, and their events.
#[must_use]
pub fn first_deliveries(
    events: &[OperationalEvent],
    all: &[OperationalDestination],
    most: usize,
) -> (usize, Vec<NewEvent>) {
    let mut made = Vec::new();
    for (taken, event) in events.iter().enumerate() {
        let next = deliveries(event, all);
        if taken > 0 && made.len() + next.len() > most {
            return (taken, made);
        }
        made.extend(next);
    }
    (events.len(), made)
}

#[cfg(test)]
mod tests;

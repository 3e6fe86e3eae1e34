//! Events: what is accepted, once, and never changed.

use crate::ids::{DestinationId, EventId, TenantId};

/// The largest payload, in bytes. Receivers recommend 20 KiB; beyond this the
/// store's pages and a worker's memory would have to be bounded by guesses.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

/// The longest event type, in bytes.
pub const MAX_TYPE_BYTES: usize = 128;

/// Whom an event is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// One destination.
    Destination(DestinationId),
    /// Every destination of the tenant that subscribes to the event's type.
    Subscribers,
}

/// An event that a client hands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Its id, given by us.
    pub id: EventId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Whom it is for.
    pub audience: Audience,
    /// Its type, such as `order.paid`; required for [`Audience::Subscribers`].
    pub event_type: Option<String>,
    /// The media type of the payload.
    pub content_type: String,
    /// The bytes, kept and sent as they are.
    pub payload: bytes::Bytes,
}

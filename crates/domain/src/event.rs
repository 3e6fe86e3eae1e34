//! Events: what is accepted, once, and never changed.

use std::time::Duration;

use crate::ids::{DestinationId, EventId, TenantId};
use crate::trace::TraceContext;

/// The largest payload, in bytes. Receivers recommend 20 KiB; beyond this the
/// store's pages and a worker's memory would have to be bounded by guesses.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

/// The longest event type, in bytes.
pub const MAX_TYPE_BYTES: usize = 128;

/// The media type of a payload of which nothing else is said.
pub const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// The longest media type, in bytes.
const MAX_CONTENT_TYPE_BYTES: usize = 200;

/// The most destinations that one event may go to. Its deliveries are written at
/// once, in one statement beside other tenants' events: so many take a tenth of a
/// second.
pub const MAX_DESTINATIONS: usize = 1_000;

/// What is wrong with an event's type. It is letters, digits and `. _ - : /`,
/// so that it can stand in a header, a label and a shell without quoting.
#[must_use]
pub fn event_type_problem(event_type: &str) -> Option<&'static str> {
    const _: () = assert!(MAX_TYPE_BYTES == 128, "the text says so");
    if event_type.is_empty() || event_type.len() > MAX_TYPE_BYTES {
        return Some("must have 1 to 128 bytes");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    let problem = "must be of letters, digits and . _ - : /";
    (!event_type.bytes().all(allowed)).then_some(problem)
}

/// What is wrong with a media type. It becomes a header of every request: what
/// could not, or could smuggle another one, is refused.
#[must_use]
pub fn content_type_problem(content_type: &str) -> Option<&'static str> {
    if content_type.len() > MAX_CONTENT_TYPE_BYTES {
        return Some("must be at most 200 bytes");
    }
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if !content_type.bytes().all(printable) {
        return Some("must be of printable ASCII");
    }
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    match essence.split_once('/') {
        Some((kind, subtype)) if !kind.is_empty() && !subtype.is_empty() => None,
        _ => Some("must be a media type, such as application/json"),
    }
}

/// The longest idempotency key, in bytes.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// How long a key stands for its event.
pub const IDEMPOTENCY_KEY_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// What makes a repeated request the same event: the client's own name for it
/// within its tenant, and what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key.
    pub key: String,
    /// SHA-256 of what was asked for: the same key with another digest is
    /// another request, and refused.
    pub digest: [u8; 32],
    /// How long the key stands for this event, by the store's clock.
    pub kept_for: Duration,
}

/// Whom an event is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// One destination.
    Destination(DestinationId),
    /// Every destination of the tenant that subscribes to the event's type.
    Subscribers,
    /// The same, if there is one at least.
    SomeSubscriber,
}

impl Audience {
    /// The destination that it names; `None` of those that subscribe.
    #[must_use]
    pub const fn named(&self) -> Option<DestinationId> {
        match self {
            Self::Destination(id) => Some(*id),
            Self::Subscribers | Self::SomeSubscriber => None,
        }
    }
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
    /// `None`: a repeated request is another event.
    pub idempotency: Option<Idempotency>,
    /// The trace that it belongs to, if there is one.
    pub trace: Option<TraceContext>,
}

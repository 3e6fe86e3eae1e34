//! The identities, one type each, so that none can stand in for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What was given is not an id of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {kind} id: expected a UUID")]
pub struct InvalidId {
    /// The word for what was expected, such as `destination`.
    pub kind: &'static str,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|_| InvalidId { kind: $kind })
            }
        }
    };
}

uuid_id! {
    /// Who owns destinations and API keys.
    TenantId, "tenant"
}
uuid_id! {
    /// An endpoint with its own limits.
    DestinationId, "destination"
}
uuid_id! {
    /// One accepted payload. Receivers see it as the delivery's stable id and
    /// deduplicate on it.
    EventId, "event"
}
uuid_id! {
    /// Dead letters of one destination on their way back into its backlog.
    ReplayId, "replay"
}
uuid_id! {
    /// A mail address or a chat that operational events are told to.
    NoticeAddressId, "notice address"
}
uuid_id! {
    /// One secret of a destination.
    SecretId, "secret"
}
uuid_id! {
    /// One worker process, new with every process: a restarted worker is
    /// another worker, so that its predecessor's starts can be told apart.
    WorkerId, "worker"
}

/// One outbound request for one event to one destination; given by the store
/// in creation order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptId(pub i64);

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of one permit within its destination. It never repeats: a row
/// that is admitted again gets a new one, and what still carries the old
/// number is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PermitNumber(pub i64);

/// Counts the revocations of a destination's permits. Any change that is not
/// a pure raise bumps it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub i64);

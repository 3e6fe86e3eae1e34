//! What the store says: at the end of a run, or as it commits. Times are its own, in
//! microseconds.

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::policy::LimitSettings;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The store, at the end: one attempt. Times are the store's, in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) attempt: i64,
    pub(crate) event: Uuid,
    pub(crate) destination: Uuid,
    pub(crate) try_number: u32,
    pub(crate) state: AttemptState,
    pub(crate) dead_letter: bool,
    pub(crate) due_at: i64,
    pub(crate) created_at: i64,
    pub(crate) claimed_at: Option<i64>,
    pub(crate) started_at: Option<i64>,
    pub(crate) finished_at: Option<i64>,
    /// Whether it was ever `unknown`, by a trigger of the run's own: a late
    /// outcome overwrites the state.
    pub(crate) was_unknown: bool,
    /// A dead letter that was replayed.
    pub(crate) is_replayed: bool,
    /// A replay made it.
    pub(crate) is_replay: bool,
    /// The attempt whose request carried it, which is the start of both.
    #[serde(default)]
    pub(crate) carried_by: Option<i64>,
}

/// The store, at the end: what was in force from when on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) destination: Uuid,
    pub(crate) from: i64,
    pub(crate) effective: LimitSettings,
    pub(crate) state: DestinationState,
}

/// The store, at the end: an operational event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct News {
    pub(crate) id: i64,
    pub(crate) created_at: i64,
    pub(crate) event_type: String,
    /// `None`: about the tenant as a whole.
    pub(crate) destination: Option<Uuid>,
    pub(crate) tenant: Uuid,
    pub(crate) details: String,
    pub(crate) relayed: bool,
}

/// The store, at the end: an event at an operational destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) event: Uuid,
    pub(crate) destination: Uuid,
    pub(crate) body: String,
}

/// What became of a destination, by triggers of the run's own and by what the
/// watch remembers at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Happened {
    pub(crate) destination: Uuid,
    pub(crate) is_deleted: bool,
    /// How many times an attempt became a dead letter.
    pub(crate) died: u64,
    /// Of which nobody has been told yet: they are counted, and told of once
    /// in a while.
    pub(crate) died_untold: u64,
    /// How many times it was disabled.
    pub(crate) disabled: u64,
}

/// The store, as it commits: what it remembers of a destination's health from then
/// on. Nothing of one that is well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) destination: Uuid,
    /// Just before the commit.
    pub(crate) noted_at: i64,
    /// Nothing starts before.
    pub(crate) until: Option<i64>,
    /// Why, such as `asked`.
    pub(crate) reason: Option<String>,
    /// The breaker is open since then.
    pub(crate) opened_at: Option<i64>,
}

/// The store, at the end: what smart delivery had in force from when on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SmartLimit {
    pub(crate) destination: Uuid,
    pub(crate) from: i64,
    /// Starts per second; none is as configured.
    pub(crate) per_second: Option<f64>,
}

/// The store, at the end: what it counted of a destination's requests, in all slots of
/// one length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tallied {
    pub(crate) destination: Uuid,
    /// `minutes` or `hour`.
    pub(crate) slot: String,
    /// It was deleted, and is counted no further.
    pub(crate) deleted: bool,
    pub(crate) succeeded: u64,
    /// With a 429, too.
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
}

/// The store, as it commits: a secret that signs, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecretNote {
    pub(crate) secret: Uuid,
    pub(crate) destination: Uuid,
    pub(crate) expires_at: Option<i64>,
    /// Just before the commit.
    pub(crate) noted_at: i64,
}

/// The run: a secret as the receivers call it, and an id that the store has for it.
/// A request to rotate whose answer was lost may have been done twice: then there
/// are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownSecret {
    pub(crate) called: Uuid,
    pub(crate) secret: Uuid,
}

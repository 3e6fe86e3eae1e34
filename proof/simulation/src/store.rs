//! The store of a world: the ports, its clock, the faults that strike inside it,
//! and what judges ask of its rows.

mod image;
mod of_model;
mod rows;
mod sqlite;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use domain::attempt::AttemptState;
use domain::batch::BatchRules;
use domain::compliance::InForce;
use domain::event::NewEvent;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::operations::OperationalEvent;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::smart::Effective;
use domain::time::Timestamp;
use engine::ports::{
    Backlog, Backpressure, Catalog, CatalogError, MAX_HEAD_START, Operations, OperationsBook,
    Replays, Retain, SecretStore, Store,
};

use crate::model::{ClockStep, ModelStore};
pub use sqlite::SimulatedStore;

/// The ports of a store that nothing strikes inside.
pub(crate) trait OtherPorts:
    Catalog + Backlog + Backpressure + Operations + OperationsBook + Replays + Retain + SecretStore
{
}

impl<T> OtherPorts for T where
    T: Catalog
        + Backlog
        + Backpressure
        + Operations
        + OperationsBook
        + Replays
        + Retain
        + SecretStore
{
}

/// All ports of a store, and what a world does to it beside them.
pub(crate) trait WorldStore: Store + Rows + Struck {
    /// The others.
    fn ports(&self) -> &dyn OtherPorts;
}

/// A transaction that stays open.
#[derive(Debug)]
pub(crate) enum Unseen {
    /// Of the model.
    Model(crate::model::Unseen),
    /// Of SQLite.
    Sqlite(sqlite::Unseen),
}

/// What becomes of a store from outside.
pub(crate) trait Struck {
    /// The store's clock.
    fn now(&self) -> Timestamp;

    /// Sets the store's clock.
    fn step_clock(&self, step: ClockStep);

    /// As if somebody's open transaction held the destination's row and its
    /// admitted attempts, until [`Struck::unlock_destination`].
    fn lock_destination(&self, destination: DestinationId);

    /// That transaction ends.
    fn unlock_destination(&self, destination: DestinationId);

    /// The server crashes and is back: admissions since the last other commit
    /// are forgotten, for they alone do not wait for the disk, and every other
    /// commit flushes all that came before it. How many rows wait again.
    fn forget_unflushed(&self) -> usize;

    /// Accepts these events in a transaction that stays open; `None` if there
    /// is nothing to insert, or another one holds one of their keys.
    fn accept_unseen(&self, events: &[NewEvent]) -> Option<Unseen>;

    /// It commits. The attempts that are there now.
    fn commit_unseen(&self, unseen: Unseen) -> Vec<AttemptId>;

    /// The hold that the destination's health remembers is over.
    fn end_hold(&self, destination: DestinationId);

    /// Nothing of a destination starts before its last entry of limit history is in
    /// force. Where a change waits for the starts that are dated ahead, nothing does.
    fn hold_until_in_force(&self) {}

    /// Sets a tier's limits, as operators do by SQL.
    fn change_tier(&self, name: &str, limits: LimitSettings) -> Result<(), CatalogError>;
}

/// What judges ask of the rows. The store stands still meanwhile.
pub(crate) trait Rows {
    /// One attempt.
    fn row(&self, id: AttemptId) -> Option<Row>;

    /// A destination's attempts, in creation order.
    fn rows_of(&self, destination: DestinationId) -> Vec<Row>;

    /// The attempts of an event that is there, in creation order.
    fn rows_of_event(&self, event: EventId) -> Option<Vec<Row>>;

    /// The newest attempt.
    fn newest(&self) -> Option<AttemptId>;

    /// Whether it is the first attempt of an event that is there.
    fn is_first(&self, id: AttemptId) -> bool;

    /// An attempt that is not over, or a dead letter that can be replayed, and
    /// whose event is not there.
    fn orphan(&self) -> Option<AttemptId>;

    /// An event's media type and payload.
    fn payload(&self, event: EventId) -> Option<(String, Bytes)>;

    /// All events, each with where its first attempt goes, and its payload.
    fn all_events(&self) -> Vec<(EventId, Option<DestinationId>, Bytes)>;

    /// What was in force from when on at a destination.
    fn in_force(&self, destination: DestinationId) -> Vec<InForce>;

    /// What its requests are batches by; `None` if they are not.
    fn batch_rules(&self, destination: DestinationId) -> Option<BatchRules>;

    /// How many of its attempts wait, are admitted, and are in flight.
    fn under_way(&self, destination: DestinationId) -> UnderWay;

    /// Whether a run at `now` has left both first attempts and others that it
    /// could have admitted, and nothing that is too old stood before them.
    fn both_wait(&self, destination: DestinationId, now: Timestamp) -> bool;

    /// How many of these permits were given at `now` to first attempts, and how
    /// many to others.
    fn turns(&self, permits: &[Permit], now: Timestamp) -> (usize, usize);

    /// Nothing of it starts before that.
    fn held_until(&self, destination: DestinationId) -> Option<Timestamp>;

    /// Whether its breaker is open, or half open.
    fn is_probing(&self, destination: DestinationId) -> bool;

    /// What is lowered of its limits.
    fn lowered(&self, destination: DestinationId) -> Effective;

    /// Whether smart delivery, which is on, has ever lowered them.
    fn was_lowered(&self, destination: DestinationId) -> bool;

    /// The dead letters of a destination that were replayed, and the attempts
    /// that replays have made: event and try, in order.
    fn replayed(&self, destination: DestinationId) -> [Vec<(EventId, u32)>; 2];

    /// How many attempts are pending, of each destination that has some; and
    /// whether it takes events.
    fn all_pending(&self) -> Vec<(TenantId, DestinationId, u64, bool)>;

    /// When backlogs were last counted.
    fn counted_at(&self) -> Timestamp;

    /// What operators must know, in order.
    fn news(&self) -> Vec<OperationalEvent>;

    /// What of it was not relayed yet, in order.
    fn news_to_relay(&self) -> Vec<OperationalEvent>;

    /// Those that are told, in the order of registration; and whether each takes
    /// events: neither deleted nor disabled.
    fn told(&self) -> Vec<(DestinationId, bool)>;

    /// How many destinations have an alert that was raised and has not ended.
    fn alerts(&self) -> usize;
}

/// An attempt, as judges see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: AttemptId,
    pub(crate) event: EventId,
    pub(crate) destination: DestinationId,
    pub(crate) try_number: u32,
    pub(crate) tries_before: u32,
    pub(crate) state: AttemptState,
    pub(crate) status: Option<u16>,
    /// The permit that it has, or that it started under.
    pub(crate) permit: Option<Permit>,
    /// When it could have started at the earliest.
    pub(crate) waits_since: Timestamp,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    /// It is a dead letter that can be replayed.
    pub(crate) is_open_dead_letter: bool,
}

/// How many attempts of a destination stand where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) waiting: usize,
    pub(crate) admitted: usize,
    pub(crate) in_flight: usize,
}

/// Which store a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum StoreKind {
    /// The model.
    #[default]
    Model,
    /// The shipped store on SQLite.
    Sqlite,
}

impl StoreKind {
    /// An empty one whose clock shows `base` now.
    pub(crate) fn open(self, base: Timestamp) -> Arc<dyn WorldStore> {
        match self {
            Self::Model => Arc::new(ModelStore::new(base).with_head_start(MAX_HEAD_START)),
            Self::Sqlite => {
                let store = SimulatedStore::new(base, MAX_HEAD_START);
                Arc::new(store.expect("memory needs nothing of the system"))
            }
        }
    }
}

/// What a future comes to that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

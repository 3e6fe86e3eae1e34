//! The same store, as seen by the loop that replays.

use async_trait::async_trait;

use super::error::StoreError;
use super::schedule::Wake;

/// Dead letters, and events whatever became of them, back into the backlog.
#[async_trait]
pub trait Replays: Send + Sync {
    /// One step of up to `limit` running replays that nobody else holds. Tenants take
    /// turns: the one of each that was looked at longest ago comes before the second of
    /// any, so that many of one tenant slow nobody else's. How many dead letters each may
    /// move now is [`domain::replay::Pace::step`]'s to say. Each that is moved is
    /// marked as replayed in the same commit that adds its attempt (due now,
    /// with the next try number), so it is moved exactly once, whatever
    /// crashes and however many do this at once. Repeating it is the next step.
    ///
    /// An event that is sent again gets a next try as well, and what is a dead letter of
    /// it there counts as replayed. Steps of one destination send an event again one after
    /// the other, and leave alone what waits or is under way: so it is added once for each
    /// replay that it is of.
    ///
    /// A store with one writer takes several short commits, each of one replay: after an
    /// error some of them may have been done, and their wakes are the sweep's.
    ///
    /// Ends replays that have looked at everything, and those of destinations
    /// that are gone.
    async fn advance_replays(&self, limit: u32) -> Result<Advanced, StoreError>;
}

/// What one step of all replays did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advanced {
    /// Dead letters that wait again.
    pub replayed: u32,
    /// Events that wait again, beside those.
    pub resent: u32,
    /// Replays that were looked at and go on.
    pub running: u32,
    /// Whom to wake.
    pub wakes: Vec<Wake>,
}

//! The store of a world: the shipped SQLite store, the faults that strike it from
//! outside, and what judges ask of its rows.

mod image;
mod rows;
mod sqlite;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::permit::Permit;
use domain::time::Timestamp;

pub use sqlite::{SimulatedStore, Unseen};

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
    pub(crate) claimed_at: Option<Timestamp>,
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

/// What a future comes to that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

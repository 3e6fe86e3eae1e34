//! Permits: leave to start one attempt once.

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use crate::time::Timestamp;

/// How many permits of one destination travel in one message at most. Groups
/// of this size cost the broker a third less per permit than single ones;
/// larger ones gain little and would make a worker's prefetch coarse.
pub const MAX_GROUP: usize = 16;

/// Leave to start `attempt` once, not before `not_before` and not after
/// `deadline`, both by the store's clock.
///
/// A permit is revocable: the store's row decides when it is claimed, so a
/// permit that is lost, doubled, late or stale can do no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Permit {
    /// The destination whose limit this permit is counted in.
    pub destination: DestinationId,
    /// The attempt that may start.
    pub attempt: AttemptId,
    /// This permit's number; the row must still carry it.
    pub number: PermitNumber,
    /// The destination's epoch at admission.
    pub epoch: Epoch,
    /// The earliest start.
    pub not_before: Timestamp,
    /// The latest start.
    pub deadline: Timestamp,
}

/// Up to [`MAX_GROUP`] permits of one destination, in the order of their
/// slots: what one message of the delivery queue carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitGroup {
    /// Never empty, all of one destination.
    permits: Vec<Permit>,
}

impl PermitGroup {
    /// A group of these permits.
    ///
    /// `None` if there are none, more than [`MAX_GROUP`], or permits of more
    /// than one destination.
    #[must_use]
    pub fn new(permits: Vec<Permit>) -> Option<Self> {
        let first = permits.first()?;
        let one_destination = permits.iter().all(|p| p.destination == first.destination);
        (one_destination && permits.len() <= MAX_GROUP).then_some(Self { permits })
    }

    /// Cuts permits of many destinations, each destination's in a row, into
    /// groups; the order is kept.
    #[must_use]
    pub fn split(permits: &[Permit]) -> Vec<Self> {
        permits
            .chunk_by(|a, b| a.destination == b.destination)
            .flat_map(|of_one| of_one.chunks(MAX_GROUP))
            .map(|chunk| Self {
                permits: chunk.to_vec(),
            })
            .collect()
    }

    /// The permits, never empty.
    #[must_use]
    pub fn permits(&self) -> &[Permit] {
        &self.permits
    }

    /// The destination of all of them.
    #[must_use]
    pub fn destination(&self) -> DestinationId {
        self.permits[0].destination
    }
}

//! The memory that batches may have: a batch is a thousand times an event.
//!
//! Taken before the claim, for the largest batch, since nobody knows before how
//! large it will be; what it does not need is given back when it is there. So
//! few wait for their claims at once, and what waits for an answer is bounded by
//! its bytes, however many places there are.

use std::sync::Arc;
use std::time::Duration;

use domain::batch::MAX_BYTES;
use domain::slow::Standing;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::places::NoPlace;
use crate::ports::{BATCH_BODY_BYTES, MAX_BATCHES, Start};

/// Of all batches of a worker that are claimed or wait for their answers. Places
/// alone would let 2,048 of them hold 3 GiB. This is room for 70 of the largest,
/// twice what is claimed at once, and for all places with batches of 64 KiB,
/// where answers are short; more than a small machine has to spare would end the
/// process with all its deliveries.
const BYTES: u32 = 128 * 1024 * 1024;

/// The largest batch: base64 makes four bytes of three, and each event has an
/// envelope. One event that is larger than a batch may be goes alone, and is not
/// larger by as much.
const LARGEST: u32 = MAX_BYTES / 3 * 4 + 500 * ENVELOPE + READ;

/// Of one event: its id, type, times and the names of them.
const ENVELOPE: u32 = 512;

/// What its answer may take.
const READ: u32 = BATCH_BODY_BYTES as u32;

/// Permits that wait for their claims, or are claimed. Fewer than two statements
/// would leave the store idle; more would hold places for nothing.
const CLAIMING: usize = 2 * MAX_BATCHES;

pub(super) struct BatchRoom {
    bytes: Arc<Semaphore>,
    claiming: Arc<Semaphore>,
}

/// Room for one batch, until it is dropped.
pub(super) struct Room {
    bytes: OwnedSemaphorePermit,
    claiming: Option<OwnedSemaphorePermit>,
}

impl BatchRoom {
    pub(super) fn new() -> Self {
        Self {
            bytes: Arc::new(Semaphore::new(BYTES as usize)),
            claiming: Arc::new(Semaphore::new(CLAIMING)),
        }
    }

    /// Room for the largest batch within `patience`. Those that hang leave half
    /// of it to the others: theirs is gone until a timeout.
    pub(super) async fn in_time(
        &self,
        standing: Standing,
        patience: Duration,
    ) -> Result<Room, NoPlace> {
        let half = (BYTES / 2) as usize;
        if standing == Standing::Hung && self.bytes.available_permits() < half {
            return Err(NoPlace::TurnedAway);
        }
        let both = async {
            let claiming = Arc::clone(&self.claiming).acquire_owned().await.ok()?;
            let bytes = Arc::clone(&self.bytes).acquire_many_owned(LARGEST).await;
            Some((claiming, bytes.ok()?))
        };
        match timeout(patience, both).await {
            Ok(Some((claiming, bytes))) => Ok(Room {
                bytes,
                claiming: Some(claiming),
            }),
            // Not at once again: it would find as little.
            Ok(None) | Err(_) => Err(NoPlace::TurnedAway),
        }
    }
}

impl Room {
    /// It has been claimed: keeps what this start needs.
    pub(super) fn keep(&mut self, start: &Start) {
        self.claiming = None;
        let payloads = start.members.iter().map(|member| member.payload.len());
        let envelopes = start.members.len() * ENVELOPE as usize;
        let needed = payloads.sum::<usize>() / 3 * 4 + envelopes + BATCH_BODY_BYTES;
        let spare = self.bytes.num_permits().saturating_sub(needed);
        drop(self.bytes.split(spare));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_for_claims_than_two_statements_take() {
        let room = BatchRoom::new();
        let mut held = Vec::new();
        for _ in 0..CLAIMING {
            held.push(
                room.in_time(Standing::Prompt, PATIENCE)
                    .await
                    .unwrap_or_else(|_| panic!()),
            );
        }
        let none = room.in_time(Standing::Prompt, PATIENCE).await;
        assert!(matches!(none, Err(NoPlace::TurnedAway)));
        held.pop();
        assert!(room.in_time(Standing::Prompt, PATIENCE).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn all_batches_together_have_so_many_bytes() {
        let room = BatchRoom::new();
        let mut held = Vec::new();
        while let Ok(mut one) = room.in_time(Standing::Prompt, PATIENCE).await {
            one.claiming = None;
            held.push(one);
            assert!(held.len() as u64 * u64::from(LARGEST) <= u64::from(BYTES));
        }
        assert_eq!(held.len(), (BYTES / LARGEST) as usize);
        held.truncate(held.len() / 2);
        let hung = room.in_time(Standing::Hung, PATIENCE).await;
        assert!(hung.is_ok(), "half is free");
        held.push(
            room.in_time(Standing::Prompt, PATIENCE)
                .await
                .unwrap_or_else(|_| panic!()),
        );
        held.push(
            room.in_time(Standing::Prompt, PATIENCE)
                .await
                .unwrap_or_else(|_| panic!()),
        );
        let hung = room.in_time(Standing::Hung, PATIENCE).await;
        assert!(
            matches!(hung, Err(NoPlace::TurnedAway)),
            "the rest is for others"
        );
    }
}

//! Outcomes that can wait for others of their kind.
//!
//! Who hangs is one of many, as a rule: a network is gone, or a thousand receivers
//! are down. Each ends alone, and to record what failed takes a dozen statements,
//! be it for one or for a hundred. Nobody waits for these: the retry is seconds
//! away, and the place is free already. So they are recorded together.

use std::time::Duration;

use domain::ids::WorkerId;
use domain::slow::can_wait;
use tokio::time::{Instant, sleep_until};

use crate::ports::Outcome;

/// How long the first waits for others.
const WAITS: Duration = Duration::from_millis(250);

/// So many are enough.
const ENOUGH: usize = 200;

/// An outcome, and the identity that its start was claimed under.
pub(super) type Handed = (WorkerId, Outcome);

/// Those that wait.
#[derive(Default)]
pub(super) struct Patient {
    waiting: Vec<Handed>,
    until: Option<Instant>,
}

impl Patient {
    /// Keeps the outcomes of a request if they can wait; else they are for the commit
    /// that is next.
    pub(super) fn sift(&mut self, outcomes: Vec<Handed>) -> Vec<Handed> {
        if !outcomes.iter().all(|(_, one)| can_wait(one)) {
            return outcomes;
        }
        self.until.get_or_insert_with(|| Instant::now() + WAITS);
        self.waiting.extend(outcomes);
        if self.waiting.len() >= ENOUGH {
            self.hurry();
        }
        Vec::new()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// They wait no more.
    pub(super) fn hurry(&mut self) {
        self.until = self.until.map(|_| Instant::now());
    }

    /// Returns when they have waited; never while there are none.
    pub(super) async fn over(&self) {
        match self.until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// All of them.
    pub(super) fn take(&mut self) -> Vec<Handed> {
        self.until = None;
        std::mem::take(&mut self.waiting)
    }
}

//! What follows an outcome: another try and when, a dead letter, or nothing.
//!
//! ```text
//!   started ── outcome ──► follow_up: a retry, a dead letter, or nothing
//!      │
//!      └── nobody came back ──► unknown: after_unknown has added the retry
//!                                  │
//!                                  └── late outcome ──► follow_up adds no second one;
//!                                      if it succeeded, the retry is called off
//! ```

use super::outcome::{NextTry, Outcome, Speaks};
use super::{AttemptState, OutcomeKind};
use crate::admission::start_of;
use crate::health::{Answer, Health};
use crate::time::Timestamp;

/// The row of a start, as it is when its outcome comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// `started`, or `unknown` if somebody has given it up.
    pub state: AttemptState,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// Its start, as far as it is known: no later than that.
    pub latest: Timestamp,
    /// Which try it was.
    pub try_number: u32,
    /// The class of the batches that it may be in.
    pub batch_limit: Option<u32>,
    /// Giving it up made a dead letter of it.
    pub dead_letter: bool,
}

/// What an outcome comes to. Recording it makes no choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct FollowUp {
    /// When its request was sent.
    pub started_at: Timestamp,
    /// When the attempt ended.
    pub finished_at: Timestamp,
    /// The attempt is a dead letter now.
    pub dead_letter: bool,
    /// The new attempt.
    pub retry: Option<Retry>,
    /// The retry of an earlier giving up is called off, if it has not started:
    /// the event was delivered after all.
    pub calls_off_retry: bool,
}

/// A new attempt that follows another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Which try it is.
    pub try_number: u32,
    /// When it may be admitted.
    pub due_at: Timestamp,
    /// The class of the batches that it may be in.
    pub batch_limit: Option<u32>,
    /// The other was never sent: this one stands in its place, in a replay as well.
    pub in_its_place: bool,
    /// The same, and it is due: it stays in the lane of the other.
    pub in_its_lane: bool,
}

/// What follows `outcome` at `now`, with the destination's health as this batch
/// of outcomes leaves it, if anything is remembered of it.
pub fn follow_up(
    outcome: &Outcome,
    row: &Started,
    now: Timestamp,
    health: Option<&Health>,
) -> FollowUp {
    let succeeded = outcome.kind == OutcomeKind::Succeeded;
    let started_at = start_of(row.claimed_at, outcome.sent_after, row.latest);
    let finished_at = started_at + outcome.elapsed;
    // Whether there is another try was decided when it was given up.
    if row.state == AttemptState::Unknown {
        return FollowUp {
            started_at,
            finished_at,
            dead_letter: row.dead_letter && !succeeded,
            retry: None,
            calls_off_retry: succeeded,
        };
    }
    let next = outcome.next_try(row.try_number, (started_at, now), health);
    FollowUp {
        started_at,
        finished_at,
        dead_letter: outcome.next == NextTry::DeadLetter,
        retry: next.map(|(try_number, due_at)| Retry {
            try_number,
            due_at,
            batch_limit: outcome.next_limit(row.batch_limit),
            in_its_place: outcome.kind == OutcomeKind::NotSent,
            in_its_lane: outcome.kind == OutcomeKind::NotSent && due_at <= now,
        }),
        calls_off_retry: false,
    }
}

impl Outcome {
    /// The class that what follows this outcome comes back in, after one of
    /// class `limit`.
    #[must_use]
    pub const fn next_limit(&self, limit: Option<u32>) -> Option<u32> {
        match self.next {
            NextTry::Split { limit, .. } | NextTry::RetryHalved { limit, .. } => Some(limit),
            _ => limit,
        }
    }

    /// The number of the try that follows try `try_number`, and when it is due;
    /// `None` if none does. One that was refused with a 429 waits for the hold
    /// that this began, and keeps its try for as long as its destination's
    /// health says so.
    #[must_use]
    pub fn next_try(
        &self,
        try_number: u32,
        (started_at, now): (Timestamp, Timestamp),
        health: Option<&Health>,
    ) -> Option<(u32, Timestamp)> {
        let delay = match self.next {
            NextTry::None | NextTry::DeadLetter => return None,
            NextTry::Again => return Some((try_number, now)),
            NextTry::Split { delay, .. } => {
                return Some((try_number, started_at + self.elapsed + delay));
            }
            NextTry::RetryAfter(delay) | NextTry::RetryHalved { delay, .. } => delay,
        };
        // What one event was answered began no hold.
        let of_all = matches!(self.speaks, Speaks::ForRequest | Speaks::Carried);
        let refused = of_all && Answer::of(false, self.status) == Answer::Refused;
        let spared = health.filter(|health| refused && health.spares_tries());
        match spared.and_then(Health::held_until) {
            Some(until) => Some((try_number, until.max(now))),
            None => Some((
                try_number.saturating_add(1),
                started_at + self.elapsed + delay,
            )),
        }
    }
}

/// A start that nobody came back for, as its row and its destination's say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenUp {
    /// Which try it was.
    pub try_number: u32,
    /// Tries before the event's last replay: the policy counts from there.
    pub tries_before: u32,
    /// How many tries the policy allows.
    pub max_tries: u32,
    /// Others went with it, or it with another, and it may go with others again.
    pub is_batch: bool,
    /// The class of the batches that it may be in.
    pub batch_limit: Option<u32>,
    /// Nobody owns its destination any more.
    pub destination_is_gone: bool,
}

/// What follows a start that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct AfterUnknown {
    /// It is a dead letter.
    pub dead_letter: bool,
    /// The new attempt, due at once.
    pub retry: Option<Retry>,
}

/// What follows a start that is given up at `now`.
///
/// Its try counts: it may have been sent. Where that uses the tries up, an event
/// of a batch gets another one, alone, as after a failure
/// ([`crate::batch::after_failure`]): the others may be to blame.
pub fn after_unknown(start: &GivenUp, now: Timestamp) -> AfterUnknown {
    let tries = start.try_number.saturating_sub(start.tries_before);
    let used_up = tries >= start.max_tries;
    let (try_number, batch_limit) = match used_up {
        true => (start.try_number, Some(1)),
        false => (start.try_number.saturating_add(1), start.batch_limit),
    };
    let dead_letter = used_up && !start.is_batch;
    AfterUnknown {
        dead_letter,
        retry: (!dead_letter && !start.destination_is_gone).then_some(Retry {
            try_number,
            due_at: now,
            batch_limit,
            in_its_place: false,
            in_its_lane: false,
        }),
    }
}

#[cfg(test)]
mod tests;

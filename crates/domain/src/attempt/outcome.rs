//! What became of one start, and what it says of its receiver.
//!
//! An outcome is about one attempt. Health and smart delivery judge *requests*,
//! and a batch is one request with an outcome for each of its events: one of
//! them speaks for the request, the others say nothing of it ([`Speaks`]).

use std::time::Duration;

use bytes::Bytes;

use super::OutcomeKind;
use crate::admission::MAX_REQUEST_TIMEOUT;
use crate::batch::AfterBatch;
use crate::health::{self, Observation, Signal};
use crate::ids::{AttemptId, DestinationId, PermitNumber};
use crate::remark::Remark;
use crate::response_headers::ResponseHeaders;
use crate::retry::AfterFailure;
use crate::smart::{self, Sample};
use crate::time::Timestamp;

/// What became of one start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The attempt.
    pub attempt: AttemptId,
    /// The permit that it started under.
    pub number: PermitNumber,
    /// Whose it is.
    pub destination: DestinationId,
    /// What happened.
    pub kind: OutcomeKind,
    /// From the claim to the request's first byte, by the worker's monotonic clock
    /// and counted from before it asked, so that it is never too short. If nothing
    /// was sent, to when that was clear.
    pub sent_after: Duration,
    /// From the start to the end; the store adds it to the start to get
    /// `finished_at`.
    pub elapsed: Duration,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// For people, if it failed; no payload, no URL.
    pub error: Option<Remark>,
    /// The beginning of the response body.
    pub response_body: Bytes,
    /// Those of its headers that are kept.
    pub response_headers: ResponseHeaders,
    /// What follows, if it failed.
    pub next: NextTry,
    /// What the receiver asked for.
    pub signal: Signal,
    /// What it says of the request.
    pub speaks: Speaks,
    /// Of one that was not sent: it left, and its receiver says that it has not looked at
    /// it, but not by resetting its stream. So bytes of it may arrive yet.
    pub may_arrive: bool,
}

/// What an outcome says of the request that it is of. Health and smart delivery
/// judge requests, and a batch is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speaks {
    /// All: the request was answered as the attempt was.
    #[default]
    ForRequest,
    /// It was answered event by event, and the attempt led it: it counts as
    /// well answered if anything was taken, and else as not.
    ForParts {
        /// Whether anything was.
        taken: bool,
    },
    /// Nothing: another attempt led it, and was answered the same.
    Carried,
    /// Nothing: another attempt led it, and it was answered by itself.
    Apart,
}

/// What follows an outcome, as the worker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTry {
    /// Nothing: it succeeded.
    None,
    /// A new attempt with the next try number, due this long after the end.
    RetryAfter(Duration),
    /// A new attempt with the *same* try number, due now: nothing was sent.
    Again,
    /// A new attempt with the next try number, due this long after the end, in a
    /// batch of at most so many.
    RetryHalved {
        /// The class that it comes back in.
        limit: u32,
        /// How long after the end.
        delay: Duration,
    },
    /// A new attempt with the *same* try number, due this long after the end,
    /// in a batch of at most so many: the one in which it failed is split.
    Split {
        /// The class that it comes back in.
        limit: u32,
        /// How long after the end.
        delay: Duration,
    },
    /// Nothing: the tries are used up, or the answer is final.
    DeadLetter,
}

impl From<AfterFailure> for NextTry {
    fn from(after: AfterFailure) -> Self {
        match after {
            AfterFailure::RetryAfter(delay) => Self::RetryAfter(delay),
            AfterFailure::DeadLetter(_) => Self::DeadLetter,
        }
    }
}

impl From<AfterBatch> for NextTry {
    fn from(after: AfterBatch) -> Self {
        match after {
            AfterBatch::RetryAfter(delay) => Self::RetryAfter(delay),
            AfterBatch::RetryHalved { limit, delay } => Self::RetryHalved { limit, delay },
            AfterBatch::Split { limit, delay } => Self::Split { limit, delay },
            AfterBatch::DeadLetter(_) => Self::DeadLetter,
        }
    }
}

impl Outcome {
    /// The same without what the receiver wrote, for a store that refuses it. `None`
    /// if there is nothing to leave out.
    #[must_use]
    pub fn without_answer(&self) -> Option<Self> {
        let plain = Self {
            error: (self.error.as_ref())
                .map(|_| Remark::new("the store refused the answer's text")),
            response_body: Bytes::new(),
            response_headers: ResponseHeaders::default(),
            signal: Signal::default(),
            ..self.clone()
        };
        (plain != *self).then_some(plain)
    }

    /// What the destination's health makes of this outcome, and so what its
    /// breaker counts; `None` if nothing was sent, or another attempt speaks for
    /// the request.
    #[must_use]
    pub fn observation(&self, claimed_at: Timestamp) -> Option<Observation> {
        let (kind, status) = self.of_request()?;
        let succeeded = match kind {
            OutcomeKind::Succeeded => true,
            OutcomeKind::Failed => false,
            OutcomeKind::NotSent => return None,
        };
        Some(Observation {
            claimed_at,
            finished_at: claimed_at + self.sent_after + self.elapsed,
            answer: health::Answer::of(succeeded, status),
            signal: self.signal,
        })
    }

    /// How long after its claim its request arrives no more: by the end of its answer, or
    /// without one by the end of the longest time-out. What was given up sooner may lie in
    /// the network, or be read late; and so may what a receiver says that it will not look
    /// at, before it has come.
    #[must_use]
    pub fn arrives_within(&self) -> Duration {
        let ended = self.sent_after + self.elapsed;
        match (self.speaks, self.kind, self.status, self.may_arrive) {
            (Speaks::ForRequest, OutcomeKind::Failed, None, _)
            | (Speaks::ForRequest, OutcomeKind::NotSent, None, true) => {
                ended.max(self.sent_after + MAX_REQUEST_TIMEOUT)
            }
            _ => ended,
        }
    }

    /// What smart delivery makes of this outcome; `None` if it says nothing
    /// about how much the receiver takes.
    #[must_use]
    pub fn sample(&self, claimed_at: Timestamp) -> Option<Sample> {
        let (kind, status) = self.of_request()?;
        let answer = match kind {
            OutcomeKind::NotSent => None,
            OutcomeKind::Succeeded => Some(smart::Answer::Taken),
            OutcomeKind::Failed => smart::Answer::of(status),
        };
        Some(Sample {
            claimed_at,
            latency: self.elapsed,
            answer: answer?,
        })
    }

    /// Whether a destination that is well stays as it is.
    #[must_use]
    pub fn is_unremarkable(&self) -> bool {
        let failed = |(kind, _): (OutcomeKind, _)| kind == OutcomeKind::Failed;
        let asks = self.signal.wait.is_some() || self.signal.disable;
        !self.of_request().is_some_and(failed) && !asks
    }

    /// Whether nothing follows from it: no other try, and nothing to be remembered
    /// of a destination that is well.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_unremarkable() && self.next == NextTry::None
    }

    /// What became of the request; `None` if another attempt led it.
    fn of_request(&self) -> Option<(OutcomeKind, Option<u16>)> {
        match self.speaks {
            Speaks::ForRequest => Some((self.kind, self.status)),
            Speaks::ForParts { taken: true } => Some((OutcomeKind::Succeeded, None)),
            Speaks::ForParts { taken: false } => Some((OutcomeKind::Failed, None)),
            Speaks::Carried | Speaks::Apart => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::retry::Why;

    /// A failure after 50 ms that is tried again a second later.
    pub(in crate::attempt) fn outcome() -> Outcome {
        Outcome {
            attempt: AttemptId(1),
            number: PermitNumber(1),
            destination: DestinationId(Uuid::nil()),
            kind: OutcomeKind::Failed,
            sent_after: Duration::ZERO,
            elapsed: Duration::from_millis(50),
            status: Some(500),
            error: None,
            response_body: Bytes::new(),
            response_headers: ResponseHeaders::default(),
            next: NextTry::RetryAfter(Duration::from_secs(1)),
            signal: Signal::default(),
            speaks: Speaks::ForRequest,
            may_arrive: false,
        }
    }

    const START: Timestamp = Timestamp::from_millis(10_000);

    fn of(kind: OutcomeKind, status: Option<u16>, speaks: Speaks) -> Outcome {
        Outcome {
            kind,
            status,
            speaks,
            elapsed: Duration::from_millis(40),
            ..outcome()
        }
    }

    #[test]
    fn a_request_is_judged_once_whatever_it_carries() {
        use crate::health::Answer::{Failed, Succeeded};
        let failed = |speaks| of(OutcomeKind::Failed, Some(500), speaks);
        let answer = |outcome: &Outcome| outcome.observation(START).map(|one| one.answer);
        assert_eq!(answer(&failed(Speaks::ForRequest)), Some(Failed));
        let (taken, none) = (
            Speaks::ForParts { taken: true },
            Speaks::ForParts { taken: false },
        );
        assert_eq!(answer(&failed(taken)), Some(Succeeded), "a part was taken");
        assert_eq!(answer(&failed(none)), Some(Failed));
        for speaks in [Speaks::Carried, Speaks::Apart] {
            assert_eq!(failed(speaks).observation(START), None);
            assert_eq!(failed(speaks).sample(START), None);
            assert!(failed(speaks).is_unremarkable());
        }
    }

    #[test]
    fn what_was_not_sent_says_nothing_of_the_receiver() {
        let late = of(OutcomeKind::NotSent, None, Speaks::ForRequest);
        assert_eq!(late.observation(START), None);
        assert_eq!(late.sample(START), None);
        assert!(late.is_unremarkable());
    }

    #[test]
    fn what_a_receiver_will_not_look_at_may_still_arrive() {
        let unread = |may_arrive| Outcome {
            may_arrive,
            ..of(OutcomeKind::NotSent, None, Speaks::ForRequest)
        };
        assert_eq!(unread(false).arrives_within(), Duration::from_millis(40));
        assert_eq!(unread(true).arrives_within(), MAX_REQUEST_TIMEOUT);
    }

    #[test]
    fn an_observation_is_dated_from_the_claim_and_ends_after_the_send() {
        let taken = of(OutcomeKind::Succeeded, Some(204), Speaks::ForRequest);
        let seen = taken.observation(START).map(|one| one.finished_at);
        assert_eq!(seen, Some(Timestamp::from_millis(10_040)));
        let late = Outcome {
            sent_after: Duration::from_millis(300),
            ..taken.clone()
        };
        let seen = late.observation(START);
        let seen = seen.map(|one| (one.claimed_at, one.finished_at));
        assert_eq!(seen, Some((START, Timestamp::from_millis(10_340))));
        let sample = taken.sample(START).map(|one| one.answer);
        assert_eq!(sample, Some(smart::Answer::Taken));
        assert!(taken.is_unremarkable());
    }

    #[test]
    fn a_success_that_asks_for_a_pause_is_remarkable() {
        let mut taken = of(OutcomeKind::Succeeded, Some(200), Speaks::ForRequest);
        taken.signal.wait = Some(Duration::from_secs(1));
        assert!(!taken.is_unremarkable());
    }

    #[test]
    fn a_success_that_is_to_be_the_last_is_remarkable() {
        let mut taken = of(OutcomeKind::Succeeded, Some(200), Speaks::ForRequest);
        taken.signal.disable = true;
        assert!(!taken.is_unremarkable());
        assert!(
            taken
                .observation(START)
                .is_some_and(|one| one.signal.disable)
        );
    }

    #[test]
    fn what_the_policy_says_is_what_follows() {
        let delay = Duration::from_secs(9);
        assert_eq!(
            NextTry::from(AfterFailure::RetryAfter(delay)),
            NextTry::RetryAfter(delay)
        );
        let dead = NextTry::from(AfterFailure::DeadLetter(Why::Final));
        assert_eq!(dead, NextTry::DeadLetter);
        let split = NextTry::from(AfterBatch::Split { limit: 2, delay });
        assert_eq!(split, NextTry::Split { limit: 2, delay });
    }
}

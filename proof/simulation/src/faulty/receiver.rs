//! The receivers, which misbehave when told to, and one process's way to them.

mod nonsense;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::admission::MAX_CLAIM_TO_SEND;
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::signals::RawSignals;
use engine::ports::{FirstByte, Prepared, Request, Response, SendError, Sender, Target};
use tokio::time::{Instant, sleep};

use super::store::short;
use crate::counts::Counts;
use crate::dice::Dice;
use crate::gate::Gate;
use crate::model::{Connecting, ModelSender, Reaction, Receivers};
use crate::sabotage::Sabotage;
use crate::scenario::Behaviour;
use crate::signing::is_signed;
use crate::site::Site;
use crate::witness::Witness;
use nonsense::{Nonsense, Part};
use promises::every_request_is_signed;

/// How long a receiver takes at most that behaves well.
pub(crate) const PROMPT: Duration = Duration::from_millis(60);

/// How the receivers behave now. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Behaviours {
    /// By the operation that asked for it; the newest counts.
    all: Arc<Mutex<BTreeMap<DestinationId, BTreeMap<u32, Behaviour>>>>,
}

impl Behaviours {
    /// A receiver behaves so from now on.
    pub(crate) fn begin(&self, of: DestinationId, operation: u32, behaviour: Behaviour) {
        let mut all = self.all();
        all.entry(of).or_default().insert(operation, behaviour);
    }

    /// It does so no longer.
    pub(crate) fn end(&self, of: DestinationId, operation: u32) {
        self.all().entry(of).or_default().remove(&operation);
    }

    fn of(&self, destination: DestinationId) -> Option<Behaviour> {
        let all = self.all();
        let newest = all.get(&destination)?.last_key_value();
        newest.map(|(_, behaviour)| *behaviour)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<DestinationId, BTreeMap<u32, Behaviour>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receivers that behave as the operations say, and tell the witness what they
/// take.
pub(crate) struct WatchedReceivers {
    pub(crate) behaviours: Behaviours,
    pub(crate) witness: Witness,
    pub(crate) counts: Counts,
    pub(crate) dice: Dice,
    pub(crate) takings: Takings,
    /// What the answer to the request that began last says beside its status.
    pub(crate) said: (RawSignals, Bytes),
}

/// What receivers have taken that take only so much. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Takings(Arc<Mutex<BTreeMap<DestinationId, Taking>>>);

/// Of one of them.
#[derive(Debug, Clone, Copy)]
struct Taking {
    /// Of its first request.
    since: Instant,
    /// Of its last request; or when the last that waits will be done.
    at: Instant,
    /// What its bucket holds.
    room: f64,
}

impl Takings {
    fn change<T>(&self, of: DestinationId, room: f64, change: impl FnOnce(&mut Taking) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let new = Taking {
            since: now,
            at: now,
            room,
        };
        change(all.entry(of).or_insert(new))
    }

    /// Whether a bucket of a second's worth has room for one more, and for how
    /// long it has been there.
    fn take(&self, of: DestinationId, per_second: u32) -> (bool, Duration) {
        let per_second = f64::from(per_second);
        self.change(of, per_second, |one| {
            let passed = one.at.elapsed().as_secs_f64();
            one.room = (one.room + passed * per_second).min(per_second);
            one.at = Instant::now();
            let is_taken = one.room >= 1.0;
            one.room -= if is_taken { 1.0 } else { 0.0 };
            (is_taken, one.since.elapsed())
        })
    }

    /// When one more is done, if one follows the other, and for how long it has
    /// been there.
    fn queue(&self, of: DestinationId, per_second: u32) -> (Duration, Duration) {
        let takes = Duration::from_secs_f64(1.0 / f64::from(per_second));
        self.change(of, 0.0, |one| {
            one.at = one.at.max(Instant::now()) + takes;
            (
                one.at.saturating_duration_since(Instant::now()),
                one.since.elapsed(),
            )
        })
    }
}

/// So long a hidden capacity may take to be found; what comes after is counted.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// So many of those that answer nonsense ask for hours.
const ENDLESS_PERMILLE: u32 = 125;

impl Receivers for WatchedReceivers {
    fn connect(&mut self, target: &Target) -> Connecting {
        match self.behaviours.of(target.destination) {
            Some(Behaviour::Refuses) => {
                self.counts.note("receiver refused the connection");
                Connecting::Fails(Duration::ZERO)
            }
            _ => Connecting::Ready(Duration::ZERO),
        }
    }

    fn react(&mut self, destination: DestinationId, request: &Request) -> Reaction {
        let signed = is_signed(destination, request);
        (self.witness).note(every_request_is_signed(request.attempt, signed));
        self.said = Default::default();
        let dice = self.dice.of(request.attempt.0.unsigned_abs());
        let prompt = dice.up_to(PROMPT);
        let (counted, reaction) = match self.behaviours.of(destination) {
            Some(Behaviour::Hangs) => ("receiver hung", Reaction::Hangs),
            Some(Behaviour::Fails) => ("receiver failed", Reaction::answers(500, prompt)),
            Some(Behaviour::Rejects) => ("receiver answered 422", Reaction::answers(422, prompt)),
            Some(Behaviour::Busy) => {
                let busy = Reaction::Answers {
                    after: prompt,
                    status: 429,
                    retry_after: Some(1),
                };
                ("receiver answered 429", busy)
            }
            Some(Behaviour::LosesResponses) => {
                return self.take(destination, request, Reaction::Breaks(prompt));
            }
            Some(Behaviour::Slow { millis }) => {
                let slowly = Reaction::answers(200, Duration::from_millis(millis));
                return self.take(destination, request, slowly);
            }
            Some(Behaviour::Takes { per_second }) => {
                let (is_taken, after) = self.takings.take(destination, per_second);
                self.count(after, is_taken);
                if is_taken {
                    return self.take(destination, request, Reaction::answers(200, prompt));
                }
                ("receiver took no more", Reaction::answers(429, prompt))
            }
            Some(Behaviour::Queues { per_second }) => {
                let (done_in, after) = self.takings.queue(destination, per_second);
                self.count(after, true);
                let reaction = Reaction::answers(200, done_in + prompt / 4);
                return self.take(destination, request, reaction);
            }
            Some(Behaviour::AnswersInParts) if request.batch.is_some() => {
                return self.take_in_parts(destination, request, dice, prompt);
            }
            Some(Behaviour::AnswersNonsense) => {
                return self.answer_nonsense(destination, request, dice, prompt);
            }
            Some(Behaviour::Refuses | Behaviour::AnswersInParts) | None => {
                return self.take(destination, request, Reaction::answers(200, prompt));
            }
        };
        self.counts.note(counted);
        reaction
    }

    fn said(&mut self) -> (RawSignals, Bytes) {
        std::mem::take(&mut self.said)
    }
}

impl WatchedReceivers {
    fn count(&self, after: Duration, is_taken: bool) {
        if after >= FOUND_WITHIN {
            self.counts.note(match is_taken {
                true => "taken after a minute",
                false => "refused after a minute",
            });
        }
    }

    /// Says of each event of a batch what became of it, and nothing of some, which
    /// it has taken.
    fn take_in_parts(
        &mut self,
        destination: DestinationId,
        request: &Request,
        dice: Dice,
        prompt: Duration,
    ) -> Reaction {
        let mut results = Vec::new();
        for (event, attempt) in self.witness.carried_by(request.attempt) {
            let status = match dice.of(attempt.0.unsigned_abs()).below(10) {
                0..5 => Some(200),
                5 => None,
                6 | 7 => Some(503),
                8 => Some(500),
                _ => Some(422),
            };
            if status.is_none_or(|status| status == 200) {
                self.witness.took(destination, event, attempt);
            }
            self.witness.answered(attempt, status);
            let result = |status| format!(r#"{{"id":"{}","status":{status}}}"#, event.0);
            results.extend(status.map(result));
        }
        self.counts.note("receiver answered in parts");
        self.said.1 = format!(r#"{{"results":[{}]}}"#, results.join(",")).into();
        Reaction::answers(207, prompt)
    }

    /// Says what nobody can mean. It took what it says it took, and some of what
    /// it says nothing legible of.
    fn answer_nonsense(
        &mut self,
        destination: DestinationId,
        request: &Request,
        dice: Dice,
        prompt: Duration,
    ) -> Reaction {
        let carried = self.carried(request);
        let endless = (self.dice.of(destination.0.as_u64_pair().1)).permille(ENDLESS_PERMILLE);
        let nonsense = Nonsense::answer(dice, &carried, (request.batch.is_some(), endless));
        let is_success = |status: u16| (200..300).contains(&status);
        for ((event, attempt), part) in carried.into_iter().zip(&nonsense.parts) {
            let taken = match part {
                Part::WithTheRest => is_success(nonsense.status),
                Part::Said(status) => status.is_none_or(is_success),
                Part::Lost => dice.of(attempt.0.unsigned_abs()).permille(500),
            };
            if taken {
                self.witness.took(destination, event, attempt);
            }
            match part {
                Part::WithTheRest => {}
                Part::Said(status) => self.witness.answered(attempt, *status),
                Part::Lost => self.witness.response_lost(destination, event, attempt),
            }
        }
        self.counts.note(match nonsense.status {
            207 if request.batch.is_some() => "receiver answered a batch with nonsense",
            _ => "receiver answered with an odd status",
        });
        self.said = (nonsense.signals, nonsense.body);
        Reaction::answers(nonsense.status, prompt)
    }

    fn carried(&self, request: &Request) -> Vec<(EventId, AttemptId)> {
        match request.batch {
            Some(_) => self.witness.carried_by(request.attempt),
            None => vec![(request.event, request.attempt)],
        }
    }

    /// The receiver takes the event, whether or not its answer arrives.
    fn take(&self, destination: DestinationId, request: &Request, reaction: Reaction) -> Reaction {
        let arrives =
            matches!(reaction, Reaction::Answers { after, .. } if after <= request.timeout);
        for (event, attempt) in self.carried(request) {
            self.witness.took(destination, event, attempt);
            if !arrives {
                self.counts.note("response lost");
                self.witness.response_lost(destination, event, attempt);
            }
        }
        reaction
    }
}

/// One process's way to the receivers.
#[derive(Clone)]
pub(crate) struct FaultySender {
    pub(crate) inner: Arc<ModelSender>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) witness: Witness,
}

#[async_trait]
impl Sender for FaultySender {
    async fn prepare(&self, target: &Target) -> Result<Box<dyn Prepared>, SendError> {
        self.gate.enter(Site::Prepare).await;
        let inner = self.inner.prepare(target).await;
        self.gate.leave(Site::Prepare).await;
        Ok(Box::new(Connection {
            inner: inner?,
            to: self.clone(),
            destination: target.destination,
        }))
    }
}

/// A request that is under way, until this is dropped.
struct Ended<'a> {
    witness: &'a Witness,
    attempt: AttemptId,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.witness.ended(self.attempt);
    }
}

/// Ready for one request.
struct Connection {
    inner: Box<dyn Prepared>,
    to: FaultySender,
    destination: DestinationId,
}

#[async_trait]
impl Prepared for Connection {
    async fn send(
        self: Box<Self>,
        request: Request,
        first_byte: FirstByte,
    ) -> Result<Response, SendError> {
        let gate = &self.to.gate;
        let attempt = request.attempt;
        if gate.has(Sabotage::SendsLate) {
            sleep(MAX_CLAIM_TO_SEND * 2).await;
        }
        // The worker has let go of it: what holds it up from here on is the
        // network.
        first_byte.leaves();
        self.to.witness.sending(attempt);
        let _ended = Ended {
            witness: &self.to.witness,
            attempt,
        };
        gate.enter(Site::Send).await;
        let answer = self.inner.send(request, first_byte).await;
        let status = answer.as_ref().map(|response| response.status);
        (gate.around.trace).line(format_args!(
            "{} Send: {} {attempt} {status:?}",
            gate.process,
            short(self.destination)
        ));
        gate.leave(Site::Send).await;
        answer
    }
}

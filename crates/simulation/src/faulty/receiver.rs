//! The receivers, and one process's way to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::ids::DestinationId;
use engine::ports::{Prepared, Request, Response, SendError, Sender, Target};
use tokio::time::{Instant, sleep, sleep_until};

use super::store::short;
use crate::dice::Dice;
use crate::gate::{Gate, Site};
use crate::scenario::Behaviour;
use crate::witness::Witness;

/// How the receivers behave now.
#[derive(Default)]
pub(crate) struct Receivers {
    /// By the operation that asked for it; the newest counts.
    behaviours: Mutex<BTreeMap<DestinationId, BTreeMap<u32, Behaviour>>>,
}

impl Receivers {
    /// A receiver behaves so from now on.
    pub(crate) fn begin(&self, of: DestinationId, operation: u32, behaviour: Behaviour) {
        let mut all = (self.behaviours.lock()).unwrap_or_else(PoisonError::into_inner);
        all.entry(of).or_default().insert(operation, behaviour);
    }

    /// It does so no longer.
    pub(crate) fn end(&self, of: DestinationId, operation: u32) {
        let mut all = (self.behaviours.lock()).unwrap_or_else(PoisonError::into_inner);
        all.entry(of).or_default().remove(&operation);
    }

    fn behaviour(&self, of: DestinationId) -> Option<Behaviour> {
        let all = (self.behaviours.lock()).unwrap_or_else(PoisonError::into_inner);
        let newest = all.get(&of)?.last_key_value();
        newest.map(|(_, behaviour)| *behaviour)
    }
}

/// One process's way to the receivers.
#[derive(Clone)]
pub(crate) struct FaultySender {
    pub(crate) receivers: Arc<Receivers>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) witness: Witness,
}

#[async_trait]
impl Sender for FaultySender {
    async fn prepare(&self, target: &Target) -> Result<Box<dyn Prepared>, SendError> {
        let (_, _) = self.gate.enter(Site::Prepare).await;
        if self.receivers.behaviour(target.destination) == Some(Behaviour::Refuses) {
            self.gate
                .around
                .counts
                .note("receiver refused the connection");
            return Err(SendError::Connect("refused".to_owned()));
        }
        self.gate.leave(Site::Prepare).await;
        Ok(Box::new(Connection {
            to: self.clone(),
            destination: target.destination,
        }))
    }
}

/// Ready for one request.
struct Connection {
    to: FaultySender,
    destination: DestinationId,
}

#[async_trait]
impl Prepared for Connection {
    async fn send(self: Box<Self>, request: Request) -> Result<Response, SendError> {
        self.to.witness.sending(request.attempt);
        let began = Instant::now();
        let (_, dice) = self.to.gate.enter(Site::Send).await;
        let answer = self.exchange(&request, dice, began).await;
        let (destination, attempt) = (short(self.destination), request.attempt);
        let status = answer.as_ref().map(|response| response.status);
        let process = self.to.gate.process;
        (self.to.gate.around.trace).line(format_args!(
            "{process} Send: {destination} {attempt} {status:?}"
        ));
        self.to.gate.leave(Site::Send).await;
        answer
    }
}

impl Connection {
    async fn exchange(
        &self,
        request: &Request,
        dice: Dice,
        began: Instant,
    ) -> Result<Response, SendError> {
        let counts = &self.to.gate.around.counts;
        let timeout = began + request.timeout;
        let timed_out = Err(SendError::TimedOut(request.timeout));
        // On its way.
        sleep(dice.of(1).up_to(Duration::from_millis(30))).await;
        let behaviour = self.to.receivers.behaviour(self.destination);
        let patience = match behaviour {
            Some(Behaviour::Hangs) => {
                counts.note("receiver hung");
                sleep_until(timeout).await;
                return timed_out;
            }
            Some(Behaviour::Fails) => {
                counts.note("receiver failed");
                return Ok(self.answer(500, began));
            }
            Some(Behaviour::Busy) => {
                counts.note("receiver answered 429");
                return Ok(self.answer(429, began));
            }
            Some(Behaviour::Slow { millis }) => Duration::from_millis(millis),
            _ => dice.of(2).up_to(Duration::from_millis(30)),
        };
        let (destination, event) = (self.destination, request.event);
        (self.to.witness).took(destination, event, request.attempt);
        let lost = || {
            counts.note("response lost");
            (self.to.witness).response_lost(destination, event, request.attempt);
        };
        if behaviour == Some(Behaviour::LosesResponses) {
            lost();
            return Err(SendError::Exchange("the connection broke".to_owned()));
        }
        let answered = Instant::now() + patience;
        if answered > timeout {
            lost();
            sleep_until(timeout).await;
            return timed_out;
        }
        sleep_until(answered).await;
        Ok(self.answer(200, began))
    }

    fn answer(&self, status: u16, began: Instant) -> Response {
        Response {
            status,
            retry_after: (status == 429).then(|| "1".to_owned()),
            body: Bytes::new(),
            elapsed: began.elapsed(),
        }
    }
}

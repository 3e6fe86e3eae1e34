//! One permit, from hand to outcome.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::admission::latest_start;
use domain::attempt::OutcomeKind;
use domain::attempt::promptness::Late;
use domain::credentials::Token;
use domain::health::Signal;
use domain::ids::WorkerId;
use domain::permit::Permit;
use domain::response_headers::ResponseHeaders;
use futures_util::FutureExt;
use rand::RngExt;
use rand::distr::{Distribution, StandardUniform};
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::ports::{
    ClaimAnswer, FirstByte, NextTry, Outcome, Prepared, Request, Response, Schedule, SendError,
    Sender, Speaks, Start, Store,
};
use crate::store_clock::SharedClock;
use crate::wake::wake_freed;
use crate::worker::batch::{self, Batch};
use crate::worker::claims::{Claimed, Claims};
use crate::worker::hand::InHand;
use crate::worker::heard::heard;
use crate::worker::meters::Meters;
use crate::worker::not_done::NotDone;
use crate::worker::places::{Asking, NoPlace, Place, Places, Waits};
use crate::worker::promptness::Promptness;
use crate::worker::records::Records;
use crate::worker::room::{BatchRoom, Room};
use crate::worker::sends::Sends;
use crate::worker::spreads::Spreads;
use crate::worker::targets::Addressee;
use crate::worker::tokens::{PutOff, Tokens};
use crate::worker::tries::Tries;
use crate::worker::turned_away::TurnedAway;

/// How long before a permit's deadline a connection that is still not ready is
/// given up: time enough for the claim.
const CLAIM_TIME: Duration = Duration::from_millis(100);

/// The first and the longest pause before a claim is asked for again.
const CLAIM_BACKOFF: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// How far the estimate of the store's clock may run ahead before a start is
/// asked for too early for its head start.
const CLOCK_ERROR: Duration = Duration::from_millis(2);

/// Nobody plans slots farther ahead than this: the store's clock has stepped
/// back since, and a message is not held for so long.
const FARTHEST_SLOT: Duration = Duration::from_secs(10);

/// How long an answer may take before its request's send is reported by itself.
/// Long enough that most answers come first; so short that the start is known well
/// before the shortest period is over and the next slots of its limit are planned.
const REPORTED_AFTER: Duration = Duration::from_millis(100);

/// What all deliveries of one worker share.
pub(super) struct Deliverer {
    pub(super) store: Arc<dyn Store>,
    pub(super) schedule: Arc<dyn Schedule>,
    pub(super) sender: Arc<dyn Sender>,
    pub(super) clock: Arc<SharedClock>,
    pub(super) claims: Claims,
    /// Of those whose requests are batches.
    pub(super) batch_claims: Claims,
    pub(super) records: Records,
    pub(super) sends: Sends,
    pub(super) spreads: Arc<Spreads>,
    pub(super) turned_away: TurnedAway,
    pub(super) tokens: Arc<Tokens>,
    pub(super) places: Arc<Places>,
    /// For batches, beside a place.
    pub(super) batch_room: BatchRoom,
    pub(super) rng: Arc<Mutex<StdRng>>,
    pub(super) promptness: Promptness,
    /// Of batches: what takes longer to claim is no measure for the others.
    pub(super) batch_promptness: Promptness,
    pub(super) meters: Meters,
    pub(super) request_timeout: Duration,
    pub(super) shutdown: CancellationToken,
}

/// A connection, or why there is none; and what lets its request in, where a token does.
type Ready = (Result<Box<dyn Prepared>, SendError>, Option<Token>);

/// A connection, or why there is none, and what making it ready took.
struct Connection {
    ready: Result<Box<dyn Prepared>, SendError>,
    /// What lets the request in, where a token does.
    token: Option<Token>,
    took: Duration,
}

/// What is sent, and since when it is claimed.
struct Sending {
    permit: Permit,
    worker: WorkerId,
    start: Start,
    ready: Result<Box<dyn Prepared>, SendError>,
    token: Option<Token>,
    /// As [`Started::not_after`].
    not_after: Instant,
}

/// What came of it, and when.
struct Sent {
    result: Result<Response, NotDone>,
    /// From the claim to the first byte.
    sent_after: Duration,
    /// From there to the end.
    elapsed: Duration,
}

/// A start that was claimed, and with what it is sent.
struct Started {
    permit: Permit,
    worker: WorkerId,
    start: Start,
    /// What the claim took.
    took: Duration,
    /// No later than the store's date of the claim; starts are timed from here.
    not_after: Instant,
    connection: Connection,
    /// Held until the outcome is there.
    place: Place,
    /// Of a batch: until its outcomes are handed in.
    room: Option<Room>,
}

impl Deliverer {
    /// Waits, claims, sends and records. The permit leaves the hand as soon as
    /// the store knows of it.
    pub(super) async fn deliver(&self, in_hand: InHand, addressee: Option<Arc<Addressee>>) {
        let Some(addressee) = addressee else {
            // Nobody can say where to, or sign for it: left to its deadline.
            in_hand.known();
            return;
        };
        let ready = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return,
            ready = self.get_ready(&in_hand, &addressee) => ready,
        };
        match ready {
            // Apart, or whatever waits in hand would have room for its request all the while.
            Ok(ready) => Box::pin(self.start(in_hand, ready, &addressee)).await,
            Err(NoPlace::TooLate) => self.turned_away.too_late(in_hand).await,
            Err(NoPlace::TurnedAway) => self.turned_away.send(in_hand).await,
            Err(NoPlace::NoToken(lasts)) => self.turned_away.put_off(in_hand, lasts).await,
        }
    }

    /// Claims the permit, waits for its slot's instant, and sends.
    async fn start(
        &self,
        in_hand: InHand,
        (connection, place, mut room): (Connection, Place, Option<Room>),
        addressee: &Addressee,
    ) {
        let permit = in_hand.permit;
        let claims = match addressee.target.batches {
            true => &self.batch_claims,
            false => &self.claims,
        };
        let claimed = self.claim(claims, permit).await;
        let answered_at = Instant::now();
        in_hand.known();
        let Some((start, claimed)) = claimed else {
            return;
        };
        if let Some(room) = &mut room {
            room.keep(&start);
        }
        if !claimed.ahead.is_zero() {
            // Whenever the store read its clock, that was before it answered, and before the
            // claim was on its disk; quicker answers than this one say it better.
            let by_answer = answered_at + claimed.ahead;
            let surely = self.clock.surely_by(start.claimed_at);
            let at = surely.map_or(by_answer, |surely| surely.min(by_answer));
            // What is over by then would still wait for the timer's next turn.
            if at > Instant::now() {
                sleep_until(at).await;
            }
        }
        let started = Started {
            permit,
            worker: claimed.worker,
            start,
            took: answered_at - claimed.asked_at,
            not_after: claimed.asked_at + claimed.ahead,
            connection,
            place,
            room,
        };
        // Apart for the same reason: claims and slots are waited for as well.
        Box::pin(self.send(started, addressee)).await;
    }

    /// Gives permits back to the store, unused.
    pub(super) async fn release(&self, permits: &[Permit]) {
        match self.store.release_permits(permits).await {
            Ok(wakes) => wake_freed(self.schedule.as_ref(), &wakes).await,
            Err(error) => tracing::debug!(%error, "permits left to expire"),
        }
    }

    /// Makes the connection ready, waits for the slot, for a place and, for a
    /// batch, before that for room. Not if there will be none of them.
    ///
    /// A destination that hangs takes its place first, so that no more of them
    /// connect than have places.
    async fn get_ready(
        &self,
        in_hand: &InHand,
        addressee: &Addressee,
    ) -> Result<(Connection, Place, Option<Room>), NoPlace> {
        let target = &addressee.target;
        let permit = &in_hand.permit;
        let time_left = self.clock.until(permit.not_before);
        self.meters.ahead(time_left);
        if time_left > FARTHEST_SLOT {
            return Err(NoPlace::TooLate);
        }
        let asking = Asking {
            destination: permit.destination,
            standing: self.places.standing(permit.destination),
            tag: Some(in_hand.tag()),
        };
        let place = match asking.standing.takes_its_place_first() {
            true => {
                let patience = self.clock.until(permit.deadline).saturating_sub(CLAIM_TIME);
                Some(self.places.first_of_all(asking, patience).await?)
            }
            false => None,
        };
        let connection = self.connect(in_hand, addressee, asking).await?;
        let asking = Asking {
            tag: (!in_hand.has_left_its_message()).then(|| in_hand.tag()),
            ..asking
        };
        let asked_for_at = permit.not_before - self.head_start();
        self.clock.reach(asked_for_at).await;
        // A place is not kept for what has no room.
        let room = match target.batches {
            true => Some(self.room(permit, asking).await?),
            false => None,
        };
        let place = match place {
            Some(place) => place,
            None => {
                let in_time = self.clock.until(permit.deadline).max(CLAIM_TIME);
                let place = self.places.in_time(asking, in_time).await;
                // What nobody knows is not tried again at once.
                place.map_err(|none| match asking.standing.is_known_to_answer() {
                    true => none,
                    false => NoPlace::TurnedAway,
                })?
            }
        };
        Ok((connection, place, room))
    }

    /// Room for a batch; who waits for it needs a seat.
    async fn room(&self, permit: &Permit, asking: Asking) -> Result<Room, NoPlace> {
        let in_time = self.clock.until(permit.deadline).max(CLAIM_TIME);
        let _seat = self.places.sit(asking)?;
        self.batch_room.in_time(asking.standing, in_time).await
    }

    /// A connection, or why there can be none. If there is none in time, that says
    /// nothing of the receiver yet: the dial goes on (see [`Sender::prepare`]), and the
    /// permit goes back unused; where nobody can be reached, once its time is over.
    ///
    /// A message waits for it for a moment only; but where nobody can be reached, those
    /// that answer keep the hand: whatever else came would be no better off.
    async fn connect(
        &self,
        in_hand: &InHand,
        addressee: &Addressee,
        asking: Asking,
    ) -> Result<Connection, NoPlace> {
        let permit = &in_hand.permit;
        let patience = self.clock.until(permit.deadline).saturating_sub(CLAIM_TIME);
        let patience = patience.max(CLAIM_TIME);
        let began = Instant::now();
        let mut dial = pin!(timeout(patience, self.prepare(addressee)));
        let dialled = match timeout(asking.standing.dial_grace(), &mut dial).await {
            Ok(dialled) => dialled,
            Err(_elapsed) => {
                if let Waits::Apart(leave) = self.places.waits_apart(asking)? {
                    in_hand.leaves_its_message(leave);
                }
                dial.await
            }
        };
        let prepared = dialled.map_err(|_elapsed| NoPlace::TurnedAway)?;
        let (ready, token) = prepared.map_err(|PutOff(lasts)| NoPlace::NoToken(lasts))?;
        if matches!(ready, Err(SendError::NoWay(_))) {
            // All the others are no better off: a permit that went back at once would only
            // be admitted again.
            let needs_a_seat =
                !asking.standing.is_known_to_answer() && !in_hand.has_left_its_message();
            let _seat = match needs_a_seat {
                true => self.places.sit(asking)?,
                false => None,
            };
            sleep_until(began + patience).await;
            return Err(NoPlace::TurnedAway);
        }
        Ok(Connection {
            ready,
            token,
            took: began.elapsed(),
        })
    }

    /// A token, where one lets requests in, and then a connection: without the one there
    /// is no use of the other.
    async fn prepare(&self, addressee: &Addressee) -> Result<Ready, PutOff> {
        let target = &addressee.target;
        let token = match &addressee.client {
            None => None,
            Some(client) => Some(self.tokens.of(target.destination, client).await?),
        };
        Ok((caught(self.sender.prepare(target)).await, token))
    }

    /// How long before its slot a start is asked for.
    fn head_start(&self) -> Duration {
        self.store.head_start().saturating_sub(CLOCK_ERROR)
    }

    /// Claims the start, asking again while it is early or its row is locked.
    /// `None` when there is nothing to send.
    async fn claim(&self, claims: &Claims, permit: Permit) -> Option<(Start, Claimed)> {
        let mut again = Backoff::new(CLAIM_BACKOFF.0, CLAIM_BACKOFF.1);
        let overdue = Instant::now() + self.clock.until(permit.deadline) + CLAIM_TIME;
        loop {
            let mut claimed = claims.claim(permit).await?;
            let answer = std::mem::replace(&mut claimed.answer, ClaimAnswer::Refused);
            let left = overdue.saturating_duration_since(Instant::now());
            let pause = match answer {
                ClaimAnswer::Started(start) => return Some((start, claimed)),
                ClaimAnswer::Refused => {
                    metrics::counter!("paceline_permits_refused_total").increment(1);
                    return None;
                }
                // The store's clock has stepped back since the slot was planned.
                ClaimAnswer::Early(pause) if pause > left => {
                    self.release(&[permit]).await;
                    return None;
                }
                ClaimAnswer::Early(pause) => pause,
                ClaimAnswer::Skipped => again.failed(),
            };
            if pause > left {
                return None;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends at once, or not at all if too long has passed since before the
    /// claim: nothing starts later than it is counted.
    async fn send(&self, mut started: Started, addressee: &Addressee) {
        let batch =
            (!started.start.members.is_empty()).then(|| Batch::of(started.permit, &started.start));
        let bound = match &batch {
            Some(_) => self.batch_promptness.bound(started.took),
            None => self.promptness.bound(started.took),
        };
        let (permit, worker, claimed_at) =
            (started.permit, started.worker, started.start.claimed_at);
        let tries = Tries::of(&started.start);
        let dialling = started.connection.took;
        let sending = Sending {
            permit,
            worker,
            start: started.start,
            ready: started.connection.ready,
            token: started.connection.token.clone(),
            not_after: started.not_after,
        };
        let _room = started.room;
        let Sent {
            result,
            sent_after,
            elapsed,
        } = self.exchange(sending, bound, addressee).await;
        if let (Ok(Response { status: 401, .. }), Some(token), Some(client)) =
            (&result, &started.connection.token, &addressee.client)
        {
            self.tokens.throw_away(client, token);
        }
        if !matches!(result, Err(NotDone::NotSent(_))) {
            // Also by what its receiver has not looked at: it may have said so late.
            let timed_out = matches!(result, Err(NotDone::Send(SendError::TimedOut(_))));
            started.place.held(dialling + elapsed, timed_out);
        }
        let was_looked_at = !matches!(result, Err(NotDone::NotSent(_) | NotDone::Unread { .. }));
        if was_looked_at {
            if result.is_ok() {
                self.spreads.note(&addressee.target, elapsed);
            }
            let status = result.as_ref().ok().map(|response| response.status);
            self.meters.response(status, elapsed);
        }
        let dice = || self.random();
        let answered_at = claimed_at + sent_after + elapsed;
        let signal = heard(result.as_ref().ok(), answered_at, dice);
        let mut outcomes = match batch {
            Some(batch) => batch.outcomes(result, elapsed, self.random()),
            None => vec![self.outcome(permit, &tries, elapsed, result)],
        };
        if let Some(first) = outcomes.first_mut() {
            first.signal = signal;
        }
        for outcome in &mut outcomes {
            outcome.sent_after = sent_after;
            note_outcome(outcome);
            self.meters.outcome(outcome.kind);
            if outcome.next == NextTry::DeadLetter {
                metrics::counter!("paceline_dead_letters_total").increment(1);
            }
        }
        self.records.record(worker, outcomes).await;
    }

    /// The request and its answer, if it is not too late for it once it is composed and
    /// signed: nothing but the hand-over is left then. Where the answer is slow to come,
    /// the store is told meanwhile when the request was sent.
    async fn exchange(&self, sending: Sending, bound: Duration, addressee: &Addressee) -> Sent {
        let (permit, claimed_at) = (sending.permit, sending.start.claimed_at);
        let counted_for = latest_start(claimed_at, permit.deadline).since(claimed_at);
        let bound = bound.min(counted_for);
        let events = sending.start.members.len();
        let limit = sending.start.retry.timeout(self.request_timeout);
        let ready = sending.ready.map(|connection| {
            let mut request = match events {
                0 => request(permit, sending.start, addressee, limit),
                _ => batch::request(permit, sending.start, addressee, limit),
            };
            request.token = sending.token;
            (connection, request)
        });
        let from = Instant::now();
        let late = from.saturating_duration_since(sending.not_after);
        let not_done = |why| Sent {
            result: Err(why),
            sent_after: late,
            elapsed: from.elapsed(),
        };
        if late > bound {
            let why = format!("{} ms passed since the claim", late.as_millis());
            return not_done(NotDone::NotSent(why));
        }
        let (connection, request) = match ready {
            Ok(ready) => ready,
            Err(error) => return not_done(NotDone::from(error)),
        };
        if events > 0 {
            metrics::histogram!("paceline_batch_events").record(events as f64);
        }
        let first_byte = FirstByte::default().by(sending.not_after + bound);
        let since_claim = |at: Instant| at.saturating_duration_since(sending.not_after);
        let mut exchange = pin!(caught(connection.send(request, first_byte.clone())));
        let result = match timeout(REPORTED_AFTER, &mut exchange).await {
            Ok(result) => result,
            Err(_no_answer_yet) => {
                let sent_after = first_byte.left_at().map(since_claim);
                let _unanswered = sent_after
                    .map(|sent_after| self.sends.report(sending.worker, permit, sent_after));
                exchange.await
            }
        };
        let left_at = first_byte.left_at();
        if let Some(sent_after) = left_at.map(since_claim)
            && let Some(late) = Late::of(sent_after, bound, counted_for)
        {
            note_late(&permit, sent_after, late);
        }
        // If nothing was sent, it failed as it was tried.
        let sent_at = left_at.unwrap_or(from);
        Sent {
            result: result.map_err(NotDone::from),
            sent_after: since_claim(sent_at),
            elapsed: sent_at.elapsed(),
        }
    }

    fn outcome(
        &self,
        permit: Permit,
        tries: &Tries,
        elapsed: Duration,
        result: Result<Response, NotDone>,
    ) -> Outcome {
        let blank = Outcome {
            attempt: permit.attempt,
            number: permit.number,
            destination: permit.destination,
            kind: OutcomeKind::Failed,
            sent_after: Duration::ZERO,
            elapsed,
            status: None,
            error: None,
            response_body: Bytes::new(),
            response_headers: ResponseHeaders::default(),
            next: NextTry::None,
            signal: Signal::default(),
            speaks: Speaks::ForRequest,
            may_arrive: false,
        };
        match result {
            Ok(response) if (200..300).contains(&response.status) => Outcome {
                kind: OutcomeKind::Succeeded,
                status: Some(response.status),
                response_body: response.body,
                response_headers: response.headers,
                ..blank
            },
            Ok(response) => {
                let error = format!("the receiver answered {}", response.status);
                let (next, error) =
                    tries.after_failure(Some(response.status), self.random(), error);
                Outcome {
                    status: Some(response.status),
                    error: Some(error.into()),
                    response_body: response.body,
                    response_headers: response.headers,
                    next,
                    ..blank
                }
            }
            Err(NotDone::NotSent(why)) => Outcome {
                kind: OutcomeKind::NotSent,
                error: Some(why.into()),
                next: NextTry::Again,
                ..blank
            },
            Err(NotDone::Unread { why, may_arrive }) => Outcome {
                kind: OutcomeKind::NotSent,
                error: Some(why.into()),
                next: NextTry::Again,
                may_arrive,
                ..blank
            },
            Err(NotDone::Send(error)) => {
                let (next, error) = tries.after_failure(None, self.random(), error.to_string());
                Outcome {
                    error: Some(error.into()),
                    next,
                    ..blank
                }
            }
        }
    }

    fn random<T>(&self) -> T
    where
        StandardUniform: Distribution<T>,
    {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        rng.random()
    }
}

/// Signed here, over what is sent and as of its claim: each attempt has a
/// timestamp of its own.
fn request(permit: Permit, start: Start, addressee: &Addressee, timeout: Duration) -> Request {
    let sent_at_seconds = start.claimed_at.as_micros().div_euclid(1_000_000);
    let signature = addressee.signer.sign(
        start.claimed_at,
        &start.event.to_string(),
        sent_at_seconds,
        &start.payload,
    );
    Request {
        attempt: permit.attempt,
        event: start.event,
        batch: None,
        try_number: start.try_number,
        sent_at_seconds,
        signature,
        headers: Arc::clone(&addressee.headers),
        token: None,
        trace: start.trace.filter(|_| addressee.target.pass_traceparent),
        content_type: start.content_type,
        payload: start.payload,
        timeout,
    }
}

/// A panic of the sender fails this one try, and an event that always causes
/// it ends as a dead letter.
async fn caught<T>(doing: impl Future<Output = Result<T, SendError>>) -> Result<T, SendError> {
    let done = AssertUnwindSafe(doing).catch_unwind().await;
    done.unwrap_or_else(|_panic| {
        tracing::error!("the sender panicked");
        Err(SendError::Exchange("the sender panicked".to_owned()))
    })
}

/// Ids and numbers: what the receiver said is in the ledger.
fn note_outcome(outcome: &Outcome) {
    tracing::debug!(
        attempt = outcome.attempt.0,
        permit = outcome.number.0,
        destination = %outcome.destination,
        outcome = outcome.kind.state().as_str(),
        status = outcome.status,
        elapsed_ms = outcome.elapsed.as_secs_f64() * 1_000.0,
        "attempt ended"
    );
}

/// A request that left late although it was not too late just before.
fn note_late(permit: &Permit, sent_after: Duration, late: Late) {
    metrics::counter!("paceline_sends_late_total", "ledger" => late.as_str()).increment(1);
    if late == Late::DatedEarly {
        tracing::warn!(
            attempt = permit.attempt.0,
            destination = %permit.destination,
            sent_after_ms = sent_after.as_secs_f64() * 1_000.0,
            "a request left later than it is counted: its start in the ledger is too early"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<'a, F: Future>(
        _: impl Fn(&'a Deliverer, InHand, (Connection, Place, Option<Room>), &'a Addressee) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// A worker has as many of them as claims and slots that are waited for.
    #[test]
    fn a_start_that_waits_for_its_claim_is_small() {
        let bytes = bytes_of(Deliverer::start);
        assert!(bytes <= 3_584, "{bytes} bytes");
    }
}

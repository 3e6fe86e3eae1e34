//! What was seen: by the clients, at the ports, by the receivers.
//!
//! The witness stands where the processes meet their parts. It sees what was
//! committed, also if the process never learned of it, and judges every step
//! at once by the [`promises`]. It keeps its own record of what started
//! when, and does not ask the store about it.

mod backlogs;
mod group;
mod room;
mod seen;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::AttemptState;
use domain::compliance::{InForce, Start};
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{ClaimAnswer, Claims, Finish, Taken, Wake};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::counts::Counts;
use crate::world::named_by_client;
pub(crate) use backlogs::Pending;
use promises::{Broken, Delivered, Promise, Sending};
use seen::{Lease, Seen, longest};

/// Sees everything. Clones share what was seen.
#[derive(Clone)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    broken: Arc<Notify>,
    counts: Counts,
}

/// An event that a client knows to be accepted.
pub(crate) struct AcceptedEvent {
    pub(crate) destination: DestinationId,
    pub(crate) event: EventId,
    pub(crate) was_taken: bool,
}

impl Witness {
    pub(crate) fn new(counts: Counts) -> Self {
        Self {
            seen: Arc::default(),
            broken: Arc::default(),
            counts,
        }
    }

    /// A client was told that the event is accepted.
    pub(crate) fn accepted(&self, destination: DestinationId, event: EventId) {
        let mut seen = self.seen();
        let event = seen.events.entry((destination, event)).or_default();
        event.is_accepted = true;
    }

    /// A client hands in an event, for now or for later. Whatever try is accepted, it does
    /// not go out before the earliest that one of them says.
    pub(crate) fn is_for(
        &self,
        destination: DestinationId,
        event: EventId,
        deliver_at: Option<Timestamp>,
    ) {
        let mut seen = self.seen();
        let earliest = (seen.for_later).entry((destination, named_by_client(event)));
        let earliest = earliest.or_insert(deliver_at);
        *earliest = deliver_at.min(*earliest);
    }

    /// What is in force of a destination, all of it.
    pub(crate) fn in_force(&self, destination: DestinationId, history: Vec<InForce>) {
        let mut seen = self.seen();
        let of = seen.destinations.entry(destination).or_default();
        of.longest = history.iter().map(longest).max().unwrap_or_default();
        of.note_history(history);
        let Seen {
            group,
            destinations,
            ..
        } = &mut *seen;
        group.arrive_anew(destinations);
    }

    /// Permits were given; `first` says of an attempt whether it is the first
    /// of its event.
    pub(crate) fn admitted(&self, permits: &[Permit], first: impl Fn(AttemptId) -> bool) {
        let mut seen = self.seen();
        for permit in permits {
            let of = seen.attempts.entry(permit.attempt).or_default();
            let was_admitted = std::mem::replace(&mut of.was_admitted, true);
            let was_late = of.was_late;
            if was_admitted
                || was_late
                || Some(permit.attempt) < seen.in_order_from
                || !first(permit.attempt)
            {
                continue;
            }
            let destination = seen.destinations.entry(permit.destination).or_default();
            let newest = destination.newest_admitted.replace(permit.attempt);
            let in_order = newest.map_or(Ok(()), |newest| {
                promises::first_attempts_are_admitted_in_order(newest, permit.attempt)
            });
            self.judge(&mut seen, in_order);
        }
    }

    /// These attempts were committed long after their ids were given: younger ones
    /// were there before.
    pub(crate) fn committed_late(&self, attempts: Vec<AttemptId>) {
        let mut seen = self.seen();
        for attempt in attempts {
            seen.attempts.entry(attempt).or_default().was_late = true;
        }
    }

    /// Starts were claimed; `state` tells the state of an attempt's row now.
    pub(crate) fn claimed(
        &self,
        permits: &[Permit],
        claims: &Claims,
        state: impl Fn(AttemptId) -> Option<AttemptState>,
    ) {
        let mut seen = self.seen();
        let mut started = BTreeMap::<DestinationId, Timestamp>::new();
        for (permit, answer) in permits.iter().zip(&claims.answers) {
            self.count_answer(&seen, permit, answer);
            let ClaimAnswer::Started(start) = answer else {
                continue;
            };
            seen.starts += 1;
            let is_member = seen.group.has(permit.destination);
            let of = seen.attempts.entry(permit.attempt).or_default();
            of.claimed_at = Some((permit.destination, start.claimed_at));
            of.of_group = is_member;
            // It may be dated ahead, to its slot.
            let started_then = Instant::now() + start.claimed_at.since(claims.now);
            let has_started = of.started.replace(started_then).is_some();
            let once =
                promises::a_permit_starts_once_and_in_time(permit, start.claimed_at, has_started);
            self.judge(&mut seen, once);
            seen.note_start(permit, start.claimed_at);
            let held_until =
                (seen.destinations.get(&permit.destination)).and_then(|of| of.held_until);
            let judged = promises::nothing_starts_during_a_hold(
                permit.attempt,
                start.claimed_at,
                held_until,
            );
            self.judge(&mut seen, judged);
            let first = started
                .entry(permit.destination)
                .or_insert(start.claimed_at);
            *first = start.claimed_at.min(*first);
            let once = seen.note_members(permit.attempt, &start.members, started_then);
            self.judge(&mut seen, once);
            let members = start.members.iter().map(|member| member.event);
            for event in members.chain([start.event]) {
                let named = (permit.destination, named_by_client(event));
                let deliver_at = seen.for_later.get(&named).copied().flatten();
                if deliver_at.is_some() {
                    self.counts.note("started when it was for");
                }
                let judged = promises::nothing_starts_before_it_is_for(
                    permit.attempt,
                    start.claimed_at,
                    deliver_at,
                );
                self.judge(&mut seen, judged);
                let Some(of) = seen.events.get_mut(&(permit.destination, event)) else {
                    continue;
                };
                for delivered in &mut of.delivered {
                    let state = state(delivered.attempt);
                    delivered.was_unknown |= state == Some(AttemptState::Unknown);
                }
            }
        }
        for (destination, first) in started {
            let judged = seen.judge_windows(destination, first);
            self.judge(&mut seen, judged);
        }
    }

    /// Nothing of a destination starts before that; whether that is news, and
    /// later than it was.
    pub(crate) fn held(&self, destination: DestinationId, until: Option<Timestamp>) -> bool {
        let mut seen = self.seen();
        let of = seen.destinations.entry(destination).or_default();
        std::mem::replace(&mut of.held_until, until) < until
    }

    /// A request goes out.
    pub(crate) fn sending(&self, attempt: AttemptId) {
        let mut seen = self.seen();
        let of = seen.attempts.entry(attempt).or_default();
        let sending = Sending {
            since_start: of.started.map(|started| started.elapsed()),
            within: MAX_CLAIM_TO_SEND,
            was_sent: std::mem::replace(&mut of.was_sent, true),
        };
        let judged = promises::a_start_is_sent_once_and_at_once(attempt, sending);
        self.judge(&mut seen, judged);
        let judged = seen.note_send(attempt);
        self.judge(&mut seen, judged);
        let judged = seen.note_send_of_group(attempt);
        self.judge(&mut seen, judged);
    }

    /// It has been answered, or nobody waits for that any more.
    pub(crate) fn ended(&self, attempt: AttemptId) {
        let mut seen = self.seen();
        let judged = seen.note_end(attempt);
        self.judge(&mut seen, judged);
    }

    /// So its start is recorded now.
    pub(crate) fn dated(&self, attempt: AttemptId, recorded_at: Timestamp) {
        let mut seen = self.seen();
        let sent_at = seen.attempts.get(&attempt).and_then(|of| of.sent_at);
        let judged = promises::a_start_is_dated_to_its_send(attempt, recorded_at, sent_at);
        self.judge(&mut seen, judged);
    }

    /// What the request of this attempt carries: events and their attempts.
    pub(crate) fn carried_by(&self, attempt: AttemptId) -> Vec<(EventId, AttemptId)> {
        let seen = self.seen();
        let of = seen.attempts.get(&attempt);
        of.map(|of| of.carries.clone()).unwrap_or_default()
    }

    /// A receiver answered for this attempt by itself, or said nothing of it.
    pub(crate) fn answered(&self, attempt: AttemptId, status: Option<u16>) {
        self.seen().answered.insert(attempt, status);
    }

    /// All that receivers answered so.
    pub(crate) fn all_answered(&self) -> Vec<(AttemptId, Option<u16>)> {
        let seen = self.seen();
        let answered = seen.answered.iter();
        answered
            .map(|(attempt, status)| (*attempt, *status))
            .collect()
    }

    /// News were relayed, and these were to be told of them.
    pub(crate) fn told(&self, news: i64, to: Vec<DestinationId>) {
        let mut seen = self.seen();
        seen.told.extend(to.into_iter().map(|to| (news, to)));
    }

    /// Whether it was to be told of them.
    pub(crate) fn was_told(&self, news: i64, to: DestinationId) -> bool {
        self.seen().told.contains(&(news, to))
    }

    /// A receiver took an event.
    pub(crate) fn took(&self, destination: DestinationId, event: EventId, attempt: AttemptId) {
        let mut seen = self.seen();
        let of = seen.events.entry((destination, event)).or_default();
        let judged = promises::a_duplicate_has_a_reason(&of.delivered, attempt);
        if of.delivered.iter().any(|earlier| earlier.was_unknown) {
            let what = "event delivered twice after an unknown outcome";
            self.counts.note(what);
        }
        of.delivered.push(Delivered {
            attempt,
            was_unknown: false,
            response_was_lost: false,
        });
        self.judge(&mut seen, judged);
    }

    /// The response to a delivery does not arrive.
    pub(crate) fn response_lost(
        &self,
        destination: DestinationId,
        event: EventId,
        attempt: AttemptId,
    ) {
        let mut seen = self.seen();
        let of = seen.events.entry((destination, event)).or_default();
        for delivered in &mut of.delivered {
            delivered.response_was_lost |= delivered.attempt == attempt;
        }
    }

    /// Jobs were taken.
    pub(crate) fn taken(&self, taken: &Taken, lease: Duration) {
        let now = Instant::now();
        let mut seen = self.seen();
        for job in &taken.jobs {
            let lease = Lease {
                token: job.token.clone(),
                until: now + lease,
            };
            let before = seen.leases.insert(job.destination, lease);
            let held_for = before
                .map(|before| before.until.saturating_duration_since(now))
                .filter(|left| !left.is_zero());
            let judged = promises::a_lease_is_exclusive(job.destination, held_for);
            self.judge(&mut seen, judged);
        }
    }

    /// Leases were ended.
    pub(crate) fn finished(&self, finishes: &[Finish]) {
        let mut seen = self.seen();
        for finish in finishes {
            let held = seen.leases.get(&finish.destination);
            if held.is_some_and(|lease| lease.token == finish.token) {
                seen.leases.remove(&finish.destination);
            }
        }
    }

    /// Destinations were woken; some of them under lease.
    pub(crate) fn woken(&self, wakes: &[Wake]) {
        let mut seen = self.seen();
        for wake in wakes.iter().filter(|wake| wake.clear_floor) {
            seen.leases.remove(&wake.destination);
        }
    }

    /// The schedule has lost its leases, or its clock was set.
    pub(crate) fn leases_forgotten(&self) {
        self.seen().leases.clear();
    }

    /// The store's clock was set back; the next attempt will be this one.
    pub(crate) fn clock_set_back(&self, next: AttemptId) {
        let mut seen = self.seen();
        seen.in_order_from = Some(next);
        for of in seen.destinations.values_mut() {
            of.newest_admitted = None;
        }
    }

    /// Notes what was judged elsewhere.
    pub(crate) fn note(&self, judged: Promise) {
        self.judge(&mut self.seen(), judged);
    }

    /// Returns when a promise has been broken.
    pub(crate) async fn until_broken(&self) {
        while self.seen().broken.is_empty() {
            self.broken.notified().await;
        }
    }

    /// The promises that were broken, in order.
    pub(crate) fn broken(&self) -> Vec<Broken> {
        self.seen().broken.clone()
    }

    /// How many starts there were.
    pub(crate) fn starts(&self) -> u64 {
        self.seen().starts
    }

    /// What was in force, and what started, of one destination.
    pub(crate) fn ledger(&self, destination: DestinationId) -> (Vec<InForce>, Vec<Start>) {
        let seen = self.seen();
        let of = seen.destinations.get(&destination);
        of.map(|of| (of.history.clone(), of.starts.clone()))
            .unwrap_or_default()
    }

    /// When its requests were sent, by the store's clock at their claims.
    pub(crate) fn sends(&self, destination: DestinationId) -> Vec<Start> {
        let seen = self.seen();
        let of = seen.destinations.get(&destination);
        of.map(|of| of.sends.clone()).unwrap_or_default()
    }

    /// All events that a client was told are accepted.
    pub(crate) fn accepted_events(&self) -> Vec<AcceptedEvent> {
        (self.seen().events.iter())
            .filter(|(_, of)| of.is_accepted)
            .map(|((destination, event), of)| AcceptedEvent {
                destination: *destination,
                event: *event,
                was_taken: !of.delivered.is_empty(),
            })
            .collect()
    }

    fn judge(&self, seen: &mut Seen, judged: Promise) {
        if let Err(broken) = judged {
            seen.broken.push(broken);
            self.broken.notify_one();
        }
    }

    fn count_answer(&self, seen: &Seen, permit: &Permit, answer: &ClaimAnswer) {
        match answer {
            ClaimAnswer::Started(_) => {}
            ClaimAnswer::Early(_) => self.counts.note("claim early"),
            ClaimAnswer::Skipped => self.counts.note("claim skipped"),
            ClaimAnswer::Refused => {
                self.counts.note("claim refused");
                let attempt = seen.attempts.get(&permit.attempt);
                if attempt.is_some_and(|of| of.started.is_some()) {
                    self.counts.note("claim of a permit that had started");
                }
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

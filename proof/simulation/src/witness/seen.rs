//! What a witness remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::compliance::{Arrival, AtReceiver, InForce, Start, judge};
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::limit::{Count, Period};
use domain::margin;
use domain::permit::Permit;
use domain::policy::Rate;
use domain::time::Timestamp;
use engine::ports::Member;
use tokio::time::Instant;

use super::backlogs::Backlogs;
use super::group::OfGroup;
use super::room::Room;
use promises::{Broken, Delivered, Promise};

/// All that was seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) destinations: BTreeMap<DestinationId, OfDestination>,
    pub(super) events: BTreeMap<(DestinationId, EventId), OfEvent>,
    /// By their clients' names: not before that; `None` is at once.
    pub(super) for_later: BTreeMap<(DestinationId, u128), Option<Timestamp>>,
    pub(super) attempts: BTreeMap<AttemptId, OfAttempt>,
    pub(super) leases: BTreeMap<DestinationId, Lease>,
    /// News, by number, and who was to be told of them when they were relayed.
    pub(super) told: BTreeSet<(i64, DestinationId)>,
    /// What a receiver answered for each attempt of a batch by itself.
    pub(super) answered: BTreeMap<AttemptId, Option<u16>>,
    pub(super) backlogs: Backlogs,
    pub(super) group: OfGroup,
    pub(super) broken: Vec<Broken>,
    pub(super) starts: u64,
    /// The first attempt that was created after the store's clock was last set
    /// back. What was created before it seems to be younger.
    pub(super) in_order_from: Option<AttemptId>,
}

#[derive(Default)]
pub(super) struct OfDestination {
    pub(super) history: Vec<InForce>,
    /// The longest window that was ever in force.
    pub(super) longest: Duration,
    /// What no window has to be judged for.
    room: Room,
    /// Claims, in order.
    pub(super) starts: Vec<Start>,
    /// Requests, in order.
    pub(super) sends: Vec<Start>,
    /// When they were at the receiver, in order: the times that all of them take are left
    /// out.
    pub(super) arrivals: Vec<Arrival>,
    /// The newest first attempt that was ever admitted.
    pub(super) newest_admitted: Option<AttemptId>,
    /// Nothing of it may start before.
    pub(super) held_until: Option<Timestamp>,
}

#[derive(Default)]
pub(super) struct OfEvent {
    pub(super) is_accepted: bool,
    pub(super) delivered: Vec<Delivered>,
}

#[derive(Default)]
pub(super) struct OfAttempt {
    pub(super) was_admitted: bool,
    /// Its commit was held up.
    pub(super) was_late: bool,
    pub(super) started: Option<Instant>,
    /// By the store's clock, and where.
    pub(super) claimed_at: Option<(DestinationId, Timestamp)>,
    /// It was claimed by a member of the limit group.
    pub(super) of_group: bool,
    /// On the same clock.
    pub(super) sent_at: Option<Timestamp>,
    pub(super) was_sent: bool,
    /// What its request carries, itself first, if that is a batch.
    pub(super) carries: Vec<(EventId, AttemptId)>,
}

pub(super) struct Lease {
    pub(super) token: String,
    pub(super) until: Instant,
}

impl OfDestination {
    /// How much longer this request is on its way than the quickest one: as much as the
    /// network may differ where a margin is measured, in a part that is the attempt's own.
    /// Where the owner has set a smaller one, or no window is in force but a bucket's, as
    /// much as that covers.
    pub(super) fn way(&self, attempt: AttemptId) -> Duration {
        part(attempt, self.covered().min(margin::LEAST))
    }

    /// The smallest margin that was ever in force.
    fn covered(&self) -> Duration {
        let covered = |entry: &InForce| match &entry.policy.rate {
            Rate::Limited(limited) if limited.pacing.is_some() => Duration::ZERO,
            _ => entry.policy.margin.of(Period::Second.duration()),
        };
        self.history.iter().map(covered).min().unwrap_or_default()
    }

    /// What was in force so far. An owner who sets a smaller margin gives up what it covered
    /// of the requests that are on their way as well: these come as others will.
    pub(super) fn note_history(&mut self, history: Vec<InForce>) {
        let before = self.covered();
        self.room = Room::of(&history);
        self.history = history;
        if self.covered() < before && !self.ever_counted_answers() {
            let sends = self.sends.iter();
            let arrive = sends.map(|(at, attempt)| Arrival::at(*at + self.way(*attempt)));
            let mut arrivals: Vec<_> = arrive.collect();
            arrivals.sort_unstable_by_key(|arrival| arrival.read_at);
            self.arrivals = arrivals;
        }
    }

    /// Whether its answers have counted at some time: requests of then may be on their way
    /// for longer than the margin that counting starts needs.
    fn ever_counted_answers(&self) -> bool {
        let mut policies = self.history.iter().map(|entry| &entry.policy);
        policies.any(|policy| policy.count == Count::Response)
    }

    /// Whether its answers have always counted.
    fn counts_answers(&self) -> bool {
        let mut policies = self.history.iter().map(|entry| &entry.policy);
        policies.all(|policy| policy.count == Count::Response) && !self.history.is_empty()
    }

    /// One request is at the receiver, and is judged with all that were before it.
    fn arrives(&mut self, at: Timestamp) -> Promise {
        arrive((&self.history, &self.room), &mut self.arrivals, at)
    }
}

impl Seen {
    /// Keeps the starts in order: the store's clock may step back.
    pub(super) fn note_start(&mut self, permit: &Permit, at: Timestamp) {
        let of = self.destinations.entry(permit.destination).or_default();
        let place = of.starts.partition_point(|(other, _)| *other <= at);
        of.starts.insert(place, (at, permit.attempt));
    }

    /// The request of an attempt goes out, and is judged with all that went before it.
    pub(super) fn note_send(&mut self, attempt: AttemptId) -> Promise {
        let Some(of) = self.attempts.get_mut(&attempt) else {
            return Ok(());
        };
        let (Some((destination, claimed_at)), Some(started)) = (of.claimed_at, of.started) else {
            return Ok(());
        };
        let at = claimed_at + started.elapsed();
        of.sent_at = Some(at);
        let of = self.destinations.entry(destination).or_default();
        let place = of.sends.partition_point(|(other, _)| *other <= at);
        of.sends.insert(place, (at, attempt));
        if of.ever_counted_answers() {
            return Ok(());
        }
        of.arrives(at + of.way(attempt))
            .map_err(|broken| broken.of(destination))
    }

    /// The same with all that the limit group has sent.
    pub(super) fn note_send_of_group(&mut self, attempt: AttemptId) -> Promise {
        let of = self.attempts.get(&attempt).filter(|of| of.of_group);
        let of = of.and_then(|of| Some((of.claimed_at?, of.sent_at?)));
        let Some(((destination, claimed_at), sent_at)) = of else {
            return Ok(());
        };
        let Some(of) = self.destinations.get(&destination) else {
            return Ok(());
        };
        self.group
            .sent((destination, of), attempt, (claimed_at, sent_at))
    }

    /// Nothing more comes of the request of an attempt. Where answers count it has arrived
    /// at any time until now, by a part that is the attempt's own.
    pub(super) fn note_end(&mut self, attempt: AttemptId) -> Promise {
        let Some(of) = self.attempts.get(&attempt) else {
            return Ok(());
        };
        let (Some((destination, claimed_at)), Some(started)) = (of.claimed_at, of.started) else {
            return Ok(());
        };
        let (sent_at, ended_at) = (of.sent_at, claimed_at + started.elapsed());
        let of = self.destinations.entry(destination).or_default();
        let (Some(sent_at), true) = (sent_at, of.counts_answers()) else {
            return Ok(());
        };
        of.arrives(sent_at + part(attempt, ended_at.since(sent_at)))
            .map_err(|broken| broken.of(destination))
    }

    /// What is carried starts with its leader, and once, like any other.
    pub(super) fn note_members(
        &mut self,
        leader: AttemptId,
        members: &[Member],
        started: Instant,
    ) -> Promise {
        let mut judged = Ok(());
        for member in members.iter().filter(|member| member.attempt != leader) {
            let of = self.attempts.entry(member.attempt).or_default();
            let has_started = of.started.replace(started).is_some();
            judged = judged.and(promises::what_is_carried_starts_once(
                member.attempt,
                has_started,
            ));
        }
        let carries = members.iter().map(|member| (member.event, member.attempt));
        let of = self.attempts.entry(leader).or_default();
        of.carries = carries.collect();
        judged
    }

    /// Judges the windows that the starts from `first` on are in: those that
    /// end with one of them or later, and begin no more than the longest
    /// window before.
    pub(super) fn judge_windows(&self, destination: DestinationId, first: Timestamp) -> Promise {
        let Some(of) = self.destinations.get(&destination) else {
            return Ok(());
        };
        let after = |since| of.starts.len() - of.starts.partition_point(|(at, _)| *at <= since);
        let judged = || {
            let since = first - of.longest;
            let begin = of.starts.partition_point(|(at, _)| *at <= since);
            promises::no_window_is_over(&judge(&of.history, &of.starts[begin..]))
                .map_err(|broken| broken.of(destination))
        };
        (of.room).judge_unless_it_holds_all((first, after), judged)
    }
}

/// One more request is at its receiver, and judged with all that were before it, by what is
/// in force for all of these.
pub(super) fn arrive(
    (history, room): (&[InForce], &Room),
    arrivals: &mut Vec<Arrival>,
    at: Timestamp,
) -> Promise {
    let until =
        |arrivals: &[Arrival], at: Timestamp| arrivals.partition_point(|other| other.read_at <= at);
    arrivals.insert(until(arrivals, at), Arrival::at(at));
    let after = |since| arrivals.len() - until(arrivals, since);
    room.judge_unless_it_holds_all((at, after), || {
        let longest = history.iter().map(longest).max().unwrap_or_default();
        let of = AtReceiver {
            history,
            later: MAX_CLAIM_TO_SEND + margin::LEAST,
            window_percent: 100,
        };
        let in_windows = &arrivals[until(arrivals, at - longest)..];
        promises::no_window_of_arrivals_is_over(&of.judge(in_windows))
    })
}

/// A part of this time that is the attempt's own.
fn part(attempt: AttemptId, of: Duration) -> Duration {
    let mixed = attempt.0.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let thousandths = u32::try_from((mixed >> 32) % 1_001).unwrap_or_default();
    of * thousandths / 1_000
}

/// The longest window or refill of a policy.
pub(super) fn longest(in_force: &InForce) -> Duration {
    let Rate::Limited(limited) = &in_force.policy.rate else {
        return Duration::ZERO;
    };
    let refill = limited.pacing.map(|pacing| pacing.refill);
    (limited.windows.iter().copied().chain(refill))
        .map(|limit| limit.period)
        .max()
        .map_or(Duration::ZERO, Period::duration)
}

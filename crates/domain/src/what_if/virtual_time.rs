//! Virtual time: runs, claims and outcomes, one after the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Arrival;
use crate::admission::{
    Backlog, Blocked, Bucket, CROWDED_FLOOR, CoarseStarts, Decision, GROUP_LEAD, Group, Look,
    Member, Newest, Outstanding, Slot, Usage, admit, newest_claims, newest_starts, read_ahead,
};
use crate::ids::{DestinationId, TenantId};
use crate::limit::{Count, Limit, Period};
use crate::limit_group::{GroupLimits, GroupName};
use crate::policy::{Policy, Rate};
use crate::series::Passage;
use crate::time::{Timestamp, micros};

/// A replay ends so long after its last arrival, drained or not.
pub const MAX_AHEAD: Duration = Duration::from_secs(31 * 86_400);

/// The shortest time between two runs that found nothing to do.
const TICK: Duration = Duration::from_millis(1);

/// Replays arrivals, by when they are due, against a policy.
///
/// Each attempt is in the answer, in the same order; what has not started has no
/// start. `group` is that of the destination: the others of it start when they did, and
/// what is left of its limit is there. `places` bounds permits as the fleet's workers do.
/// What started before the first of them is not known, and counts for nothing.
///
/// ```
/// use domain::policy::LimitSettings;
/// use domain::series::Passage;
/// use domain::time::Timestamp;
/// use domain::what_if::{Arrival, replay};
/// use std::time::Duration;
///
/// let policy = LimitSettings { per_second: Some(2), ..LimitSettings::EXACT }.policy();
/// let at = Timestamp::from_millis;
/// let arrival = Arrival { due_at: at(0), latency: Duration::from_millis(50) };
/// let replayed = replay(&policy, None, &[arrival; 5], 1_000);
/// let second = |one: &Passage| one.started_at.unwrap().as_micros() / 1_000_000;
/// let seconds: Vec<_> = replayed.iter().map(second).collect();
/// assert_eq!(seconds, [0, 0, 1, 1, 2]);
/// ```
#[must_use]
pub fn replay(
    policy: &Policy,
    group: Option<&Shared>,
    arrivals: &[Arrival],
    places: u32,
) -> Vec<Passage> {
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
        return Vec::new();
    };
    let mut world = World::new(policy, group, arrivals);
    let mut now = first.due_at;
    let end = last.due_at + MAX_AHEAD;
    while now <= end {
        world.advance(now);
        if world.admitted == arrivals.len() && world.permits.is_empty() {
            break;
        }
        let backlog = world.backlog(now);
        let decision = admit(policy, &world.usage, &backlog, places, now);
        world.give(&decision.slots);
        let Some(next) = world.next_look(&decision, now) else {
            break;
        };
        world.usage.meter = decision.meter;
        now = next;
    }
    // What has a permit starts at its slot.
    world.advance(Timestamp::MAX);
    world.passages
}

/// A limit group, as one of its members meets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// What it allows.
    pub limits: GroupLimits,
    /// What its other members started, in order.
    pub others: Vec<Timestamp>,
}

impl Shared {
    /// What its other members use of it by `now`.
    #[must_use]
    pub fn of_others(&self, now: Timestamp) -> Group {
        self.used(Member::default(), now)
    }

    /// Its usage by `now`, of this member and of the others together. What these start within
    /// the lead has its permits already.
    fn used(&self, own: Member, now: Timestamp) -> Group {
        let since = now - Group::reaches_back(&self.limits);
        let known = now + GROUP_LEAD;
        let known = self.others.partition_point(|at| *at <= known);
        let others = self.others[..known].iter().rev();
        let others = others.take_while(|at| **at > since).copied();
        let others = Member {
            starts: others.take(Group::reads(&self.limits) as usize).collect(),
            ..Member::default()
        };
        let called = |number: u128| DestinationId(Uuid::from_u128(number));
        Group {
            tenant: TenantId(Uuid::nil()),
            name: GroupName::kept("replayed".to_owned()),
            limits: self.limits,
            members: BTreeMap::from([(called(1), own), (called(2), others)]),
        }
    }
}

struct World<'a> {
    policy: &'a Policy,
    group: Option<&'a Shared>,
    /// Its own newest starts, as its group counts them.
    of_group: Vec<Timestamp>,
    arrivals: &'a [Arrival],
    passages: Vec<Passage>,
    /// So many of them have been given a permit.
    admitted: usize,
    /// Permits whose slot has not come, and whose they are.
    permits: VecDeque<(Slot, usize)>,
    /// When requests end.
    ends: BinaryHeap<Reverse<Timestamp>>,
    usage: Usage,
    /// How many of the newest starts and claims are kept.
    keep: [usize; 2],
}

impl<'a> World<'a> {
    fn new(policy: &'a Policy, group: Option<&'a Shared>, arrivals: &'a [Arrival]) -> Self {
        let waiting = |arrival: &Arrival| Passage {
            due_at: arrival.due_at,
            started_at: None,
            finished_at: None,
            refused: false,
        };
        let count = |newest: Option<Newest>| newest.map_or(0, |newest| newest.count as usize);
        let coarse = coarse(policy).map(|limit| CoarseStarts {
            period: limit.period,
            buckets: Vec::new(),
            unfolded: Vec::new(),
        });
        Self {
            policy,
            group,
            of_group: Vec::new(),
            arrivals,
            passages: arrivals.iter().map(waiting).collect(),
            admitted: 0,
            permits: VecDeque::new(),
            ends: BinaryHeap::new(),
            usage: Usage {
                coarse: coarse.collect(),
                ..Usage::default()
            },
            keep: [newest_starts(policy), newest_claims(policy, false)].map(count),
        }
    }

    /// Claims what has come to its slot by `now`, and ends what has ended.
    fn advance(&mut self, now: Timestamp) {
        let come = |permit: &mut (Slot, usize)| permit.0.not_before <= now;
        while let Some((slot, attempt)) = self.permits.pop_front_if(come) {
            self.start(attempt, slot.not_before);
        }
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            if let Some(Reverse(end)) = self.ends.pop()
                && self.policy.count == Count::Response
            {
                note(&mut self.usage.starts, self.keep[0], end);
            }
        }
        self.usage.in_flight = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        let outstanding = self.permits.iter().map(|(slot, _)| Outstanding {
            not_before: slot.not_before,
            deadline: slot.deadline,
        });
        self.usage.outstanding = outstanding.collect();
        self.usage.group = self.group.map(|group| {
            let own = Member {
                margin: Some(self.policy.margin),
                outstanding: self.usage.outstanding.clone(),
                starts: self.of_group.clone(),
            };
            Arc::new(group.used(own, now))
        });
        for (coarse, limit) in self.usage.coarse.iter_mut().zip(coarse(self.policy)) {
            let since = now - self.policy.stretched(limit);
            coarse.buckets.retain(|bucket| bucket.ends_at > since);
        }
    }

    fn start(&mut self, attempt: usize, at: Timestamp) {
        let finished_at = at + self.arrivals[attempt].latency;
        self.passages[attempt].started_at = Some(at);
        self.passages[attempt].finished_at = Some(finished_at);
        self.ends.push(Reverse(finished_at));
        // It is sent as it is claimed.
        if self.policy.count == Count::Start {
            note(&mut self.usage.starts, self.keep[0], at);
        }
        note(&mut self.usage.claims, self.keep[1], at);
        if let Some(group) = self.group {
            let most = Group::reads(&group.limits) as usize;
            note(&mut self.of_group, most, at);
        }
        for coarse in &mut self.usage.coarse {
            fold(coarse, at);
        }
    }

    fn backlog(&self, now: Timestamp) -> Backlog {
        let arrived = self.arrivals.partition_point(|one| one.due_at <= now);
        let due = arrived.saturating_sub(self.admitted);
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        Backlog {
            due: due.min(read_ahead(self.policy)),
            urgent: 0,
            next_due: self.arrivals.get(arrived).map(|next| next.due_at),
        }
    }

    fn give(&mut self, slots: &[Slot]) {
        for slot in slots {
            self.permits.push_back((*slot, self.admitted));
            self.admitted += 1;
        }
    }

    /// When the next run is: as planned, or when something wakes it.
    fn next_look(&self, decision: &Decision, now: Timestamp) -> Option<Timestamp> {
        let arrival = self.backlog(now).next_due;
        let soonest = now + TICK;
        match decision.look {
            Look::Idle => match decision.blocked {
                Some(Blocked::Paused) => None,
                _ => arrival.map(|at| at.max(soonest)),
            },
            Look::At { at, floor } => {
                let freed = match decision.blocked {
                    Some(Blocked::Concurrency | Blocked::Places) => self.next_end(now),
                    Some(Blocked::Limit) if self.policy.count == Count::Response => {
                        self.next_end(now)
                    }
                    _ => None,
                };
                // A batch that was full runs again at once.
                if decision.blocked.is_none() && at <= now {
                    return Some(now);
                }
                // What is blocked by a limit is not woken by arrivals.
                let woken = arrival
                    .filter(|_| decision.blocked.is_none())
                    .map(|arrival| floor.map_or(arrival, |floor| arrival.max(floor)));
                let next = [Some(at), freed, woken].into_iter().flatten().min();
                next.map(|next| next.max(soonest))
            }
        }
    }

    /// When a place is free again: the end of a request, or of one that has yet
    /// to start.
    fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        let running = self.ends.peek().map(|Reverse(end)| *end);
        let queued = (self.permits.iter())
            .map(|(slot, attempt)| slot.not_before + self.arrivals[*attempt].latency);
        let end = queued.chain(running).min()?;
        Some(end.max(now + CROWDED_FLOOR))
    }
}

fn coarse(policy: &Policy) -> impl Iterator<Item = Limit> + '_ {
    let windows = match &policy.rate {
        Rate::Limited(limited) => limited.windows.as_slice(),
        Rate::Paused | Rate::Unlimited => &[],
    };
    windows.iter().copied().filter(|limit| limit.is_coarse())
}

/// One more of the newest, the newest first.
fn note(newest: &mut Vec<Timestamp>, most: usize, at: Timestamp) {
    if most > 0 {
        newest.insert(0, at);
        newest.truncate(most);
    }
}

/// Counts a start in its bucket, as stores do.
fn fold(coarse: &mut CoarseStarts, at: Timestamp) {
    let ends_at = end_of_bucket(coarse.period, at);
    match coarse.buckets.last_mut() {
        Some(last) if last.ends_at == ends_at => last.starts += 1,
        _ => coarse.buckets.push(Bucket { ends_at, starts: 1 }),
    }
}

fn end_of_bucket(period: Period, at: Timestamp) -> Timestamp {
    let length = micros(period.bucket());
    let number = at.as_micros().div_euclid(length).saturating_add(1);
    Timestamp::from_micros(number.saturating_mul(length))
}

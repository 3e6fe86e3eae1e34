//! One destination and its workers, in virtual time: what a store would
//! record, and every legal thing that may happen to a permit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use domain::admission::{
    Backlog, Blocked, Bucket, CoarseStarts, Decision, Look, Meter, Newest, Outstanding, Usage,
    admit, latest_start, newest_claims, newest_starts, read_ahead, start_of,
};
use domain::compliance::{InForce, Start};
use domain::ids::{AttemptId, PermitNumber};
use domain::limit::{Count, Period};
use domain::policy::{Policy, Rate};
use domain::smart::Effective;
use domain::time::Timestamp;

/// What becomes of a permit. All numbers are microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// It is claimed so late after its slot (at its deadline at the latest), sent so
    /// long after that (at its latest start at the latest), and finished so long
    /// after its claim, or as soon as it is sent.
    Start { late: u64, sent: u64, takes: u64 },
    /// It is handed back so long after it was admitted, unless its deadline
    /// comes first.
    Release { after: u64 },
    /// Nobody claims it; its row waits again so long after its deadline.
    Orphan { reaped_after: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Claim {
        permit: u64,
        sent: u64,
        takes: u64,
        wakes: bool,
    },
    MoveBack {
        permit: u64,
    },
    /// Its worker says when it was sent.
    Report {
        permit: u64,
    },
    Finish {
        permit: u64,
        wakes: bool,
    },
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) policy: Policy,
    pub(crate) history: Vec<InForce>,
    /// Claims, in order.
    pub(crate) starts: Vec<Start>,
    /// When they were sent, in no order.
    pub(crate) sends: Vec<Start>,
    /// When those that are over were answered, in no order.
    pub(crate) answers: Vec<Start>,
    pub(crate) runs: u64,
    /// How many outcomes woke it.
    pub(crate) woken: u64,
    /// How long requests were in flight, all that are over together.
    pub(crate) in_use: Duration,
    pub(crate) waiting: u64,
    /// When the destination runs next, if runs follow looks.
    pub(crate) next_run: Option<Timestamp>,
    floor: Timestamp,
    outstanding: BTreeMap<u64, Outstanding>,
    last_permit: PermitNumber,
    in_flight: u32,
    under_way: BTreeMap<u64, Row>,
    /// What is over, by when it counts: its start or, where answers count, the end of its
    /// answer; and when it was claimed.
    over: BTreeSet<(Timestamp, Timestamp, u64)>,
    buckets: BTreeMap<(Period, Timestamp), u32>,
    meter: Meter,
    recount: bool,
    held_until: Option<Timestamp>,
    events: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    fates: Vec<Fate>,
    number: u64,
}

/// A start that has no outcome yet.
#[derive(Clone, Copy)]
struct Row {
    claimed_at: Timestamp,
    sent_at: Timestamp,
    /// As far as it is known.
    started_at: Timestamp,
}

impl Row {
    fn report(&mut self) {
        let sent_after = self.sent_at.since(self.claimed_at);
        self.started_at = start_of(self.claimed_at, sent_after, self.started_at);
    }
}

/// A request without an answer is reported so long after it was sent.
const REPORTED_AFTER: Duration = Duration::from_millis(100);

/// For every worker does its work at once and well.
pub(crate) const PROMPT: Fate = Fate::Start {
    late: 2_000,
    sent: 500,
    takes: 20_000,
};

/// A backlog that does not end.
pub(crate) const ENDLESS: u64 = u64::MAX / 2;

impl World {
    pub(crate) fn new(policy: Policy) -> Self {
        let now = Timestamp::from_millis(1_000_000_000);
        let entry = InForce {
            from: now,
            policy: policy.clone(),
        };
        Self {
            now,
            policy,
            history: vec![entry],
            starts: Vec::new(),
            sends: Vec::new(),
            answers: Vec::new(),
            runs: 0,
            woken: 0,
            in_use: Duration::ZERO,
            waiting: ENDLESS,
            next_run: Some(now),
            floor: now,
            outstanding: BTreeMap::new(),
            last_permit: PermitNumber(0),
            in_flight: 0,
            under_way: BTreeMap::new(),
            over: BTreeSet::new(),
            buckets: BTreeMap::new(),
            meter: Meter::default(),
            recount: true,
            held_until: None,
            events: BinaryHeap::new(),
            fates: vec![PROMPT],
            number: 0,
        }
    }

    /// What becomes of the permits, in turn.
    pub(crate) fn fates(mut self, fates: Vec<Fate>) -> Self {
        self.fates = fates;
        self
    }

    /// So many starts, evenly spread over the time before now.
    pub(crate) fn started_before(mut self, count: u32, over: Duration) -> Self {
        for number in 0..count {
            let at = self.now - over * (count - number) / count;
            let id = AttemptId(-i64::from(count - number));
            self.starts.push((at, id));
            self.sends.push((at, id));
            self.number += 1;
            self.end(self.number, (at, at), at);
        }
        self
    }

    /// Lets happen what happens until `until`.
    pub(crate) fn advance(&mut self, until: Timestamp) {
        while let Some(Reverse((at, _, event))) = self.events.peek().copied() {
            if at > until {
                break;
            }
            self.events.pop();
            self.now = at;
            self.happen(event);
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Claim {
                permit,
                sent,
                takes,
                wakes,
            } => self.claim(permit, sent, takes, wakes),
            Event::MoveBack { permit } => self.move_back(permit),
            Event::Report { permit } => {
                if let Some(row) = self.under_way.get_mut(&permit) {
                    row.report();
                }
            }
            Event::Finish { permit, wakes } => self.finish(permit, wakes),
        }
    }

    fn claim(&mut self, permit: u64, sent: u64, takes: u64, wakes: bool) {
        if self.held_until.is_some_and(|until| until > self.now) {
            return self.move_back(permit);
        }
        let Some(row) = self.outstanding.remove(&permit) else {
            return; // revoked
        };
        assert!(row.not_before <= self.now && self.now <= row.deadline);
        let latest = latest_start(self.now, row.deadline);
        let sent_at = (self.now + Duration::from_micros(sent)).min(latest);
        let claimed = Row {
            claimed_at: self.now,
            sent_at,
            started_at: latest,
        };
        let id = AttemptId(permit as i64);
        self.starts.push((self.now, id));
        self.sends.push((sent_at, id));
        self.under_way.insert(permit, claimed);
        self.in_flight += 1;
        self.schedule(sent_at + REPORTED_AFTER, Event::Report { permit });
        let ends = sent_at.max(self.now + Duration::from_micros(takes));
        self.schedule(ends, Event::Finish { permit, wakes });
    }

    fn move_back(&mut self, permit: u64) {
        if self.outstanding.remove(&permit).is_some() {
            self.waiting += 1;
            self.wake(self.now);
        }
    }

    /// The outcome; it folds the start, as the store does.
    fn finish(&mut self, permit: u64, wakes: bool) {
        self.in_flight -= 1;
        let mut row = self.under_way.remove(&permit).unwrap();
        row.report();
        self.in_use += self.now.since(row.claimed_at);
        self.answers.push((self.now, AttemptId(permit as i64)));
        self.end(permit, (row.started_at, row.claimed_at), self.now);
        if wakes {
            self.woken += 1;
            self.wake(self.now);
        }
    }

    fn end(
        &mut self,
        number: u64,
        (started_at, claimed_at): (Timestamp, Timestamp),
        answered_at: Timestamp,
    ) {
        let counts_at = match self.policy.count {
            Count::Start => started_at,
            Count::Response => answered_at,
        };
        self.over.insert((counts_at, claimed_at, number));
        for period in Period::ALL {
            let length = i64::try_from(period.bucket().as_micros()).unwrap();
            let end = (started_at.as_micros().div_euclid(length) + 1) * length;
            *self
                .buckets
                .entry((period, Timestamp::from_micros(end)))
                .or_default() += 1;
        }
    }

    fn wake(&mut self, at: Timestamp) {
        let at = at.max(self.floor);
        self.next_run = Some(self.next_run.map_or(at, |next| next.min(at)));
    }

    fn schedule(&mut self, at: Timestamp, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// The usage, as little of it as a store may hand in.
    pub(crate) fn usage(&self) -> Usage {
        self.usage_for(self.recount)
    }

    /// The same for whoever looks at what was used, as for a recount.
    pub(crate) fn usage_for(&self, recount: bool) -> Usage {
        let windows = match &self.policy.rate {
            Rate::Limited(limited) => limited.windows.as_slice(),
            Rate::Paused | Rate::Unlimited => &[],
        };
        let unfolded = || self.under_way.values().map(|row| row.started_at);
        let starts = self.newest(newest_starts(&self.policy));
        let claims = self.newest(newest_claims(&self.policy, recount));
        let mut claims: Vec<_> = claims.map(|(_, claimed_at)| claimed_at).collect();
        claims.sort_unstable_by_key(|at| Reverse(*at));
        let coarse = windows
            .iter()
            .filter(|limit| limit.is_coarse())
            .map(|limit| {
                let since = self.now - self.policy.stretched(*limit);
                let range = (limit.period, since)..=(limit.period, Timestamp::MAX);
                CoarseStarts {
                    period: limit.period,
                    buckets: (self.buckets.range(range))
                        .map(|((_, ends_at), starts)| Bucket {
                            ends_at: *ends_at,
                            starts: *starts,
                        })
                        .collect(),
                    unfolded: unfolded().collect(),
                }
            });
        Usage {
            outstanding: self.outstanding.values().copied().collect(),
            in_flight: self.in_flight,
            starts: starts.map(|(started_at, _)| started_at).collect(),
            claims,
            coarse: coarse.collect(),
            incomplete: false,
            meter: self.meter,
            recount,
            held_until: self.held_until,
            deferred_until: None,
            probing: false,
            group: None,
        }
    }

    /// The newest by their starts, with their claims, no more than are asked for.
    fn newest(&self, asked: Option<Newest>) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let (period, most) = asked.map_or((Duration::ZERO, 0), |newest| {
            (newest.period, newest.count as usize)
        });
        let since = self.now - period;
        let under_way = (self.under_way.values())
            .filter(|_| self.policy.count == Count::Start)
            .map(|row| (row.started_at, row.claimed_at));
        let over = self
            .over
            .iter()
            .rev()
            .map(|(start, claim, _)| (*start, *claim));
        let over = over.take(most).take_while(|(start, _)| *start > since);
        let mut all: Vec<_> = under_way
            .filter(|(start, _)| *start > since)
            .chain(over)
            .collect();
        all.sort_unstable_by_key(|(start, _)| Reverse(*start));
        all.into_iter().take(most)
    }

    /// One run; checks what every decision promises.
    pub(crate) fn run(&mut self, places: u32) -> Decision {
        self.runs += 1;
        let due = self.waiting.min(u64::from(read_ahead(&self.policy))) as u32;
        let usage = self.usage();
        let backlog = Backlog {
            due,
            urgent: 0,
            next_due: None,
        };
        let decision = admit(&self.policy, &usage, &backlog, places, self.now);
        let queued = usage.outstanding.len() + usage.in_flight as usize;
        let free = (self.policy.max_in_flight as usize).saturating_sub(queued);
        assert!(decision.slots.len() <= free.min(places as usize).min(due as usize));
        assert!(
            decision
                .slots
                .iter()
                .all(|slot| slot.not_before >= self.now)
        );
        assert!(decision.slots.is_sorted_by_key(|slot| slot.not_before));
        self.note_look(&decision);
        self.meter = decision.meter;
        self.recount = false;
        for slot in &decision.slots {
            self.waiting -= 1;
            self.number += 1;
            self.last_permit.0 += 1;
            let wakes = decision.wakes(self.last_permit);
            let fate = self.fates[self.last_permit.0 as usize % self.fates.len()];
            let row = Outstanding {
                not_before: slot.not_before,
                deadline: slot.deadline,
            };
            self.outstanding.insert(self.number, row);
            self.decide_fate(self.number, row, (fate, wakes));
        }
        decision
    }

    fn note_look(&mut self, decision: &Decision) {
        (self.next_run, self.floor) = match decision.look {
            Look::At { at, floor } => (Some(at), floor.unwrap_or(self.now)),
            Look::Idle => (None, self.now),
        };
        if decision.blocked.is_some_and(|why| why != Blocked::Paused) {
            assert!(self.next_run.unwrap() > self.now, "{decision:?}");
            assert!(self.floor > self.now, "{decision:?}");
        }
    }

    fn decide_fate(&mut self, permit: u64, row: Outstanding, (fate, wakes): (Fate, bool)) {
        let micros = Duration::from_micros;
        let (at, event) = match fate {
            Fate::Start { late, sent, takes } => {
                let at = (row.not_before + micros(late)).min(row.deadline);
                let claim = Event::Claim {
                    permit,
                    sent,
                    takes,
                    wakes,
                };
                (at, claim)
            }
            Fate::Release { after } => (self.now + micros(after), Event::MoveBack { permit }),
            Fate::Orphan { reaped_after } => (
                row.deadline + micros(reaped_after),
                Event::MoveBack { permit },
            ),
        };
        self.schedule(at, event);
    }

    /// So many more wait, all of them due.
    pub(crate) fn arrive(&mut self, count: u64) {
        self.waiting += count;
        self.wake(self.now);
    }

    /// The receiver asks for a hold.
    pub(crate) fn hold(&mut self, length: Duration) {
        self.held_until = Some(self.now + length);
    }

    /// Smart delivery: it revokes nothing, and is not what is promised.
    pub(crate) fn slow(&mut self, to: Effective) {
        let configured = self.history.last().map(|entry| entry.policy.clone());
        self.policy = configured.unwrap().slowed(to);
    }

    /// A change that is not a pure raise: it revokes. The epoch is another.
    pub(crate) fn change(&mut self, policy: Policy) {
        self.waiting += self.outstanding.len() as u64;
        self.outstanding.clear();
        self.recount = true;
        self.policy = policy.clone();
        // The history's time is read after the claims in flight.
        self.now = self.now + Duration::from_micros(1);
        self.history.push(InForce {
            from: self.now,
            policy,
        });
        self.floor = self.now;
        self.wake(self.now);
    }

    /// Runs whenever the looks say so, until then.
    pub(crate) fn follow_looks(&mut self, places: u32, until: Timestamp) {
        self.follow(|_| places, until);
    }

    /// The same where so many places are all that it may have queued and in flight, and no
    /// limit of its own.
    pub(crate) fn follow_looks_within(&mut self, places: u32, until: Timestamp) {
        let left = |world: &Self| {
            let queued = u32::try_from(world.outstanding.len()).unwrap_or(u32::MAX);
            places.saturating_sub(queued + world.in_flight)
        };
        self.follow(left, until);
    }

    fn follow(&mut self, places: impl Fn(&Self) -> u32, until: Timestamp) {
        loop {
            let next = self.next_run.unwrap_or(until);
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            match event {
                Some(at) if at <= next && at <= until => self.advance(at),
                _ if next >= until => return self.advance(until),
                _ => {
                    let at = next.max(self.now);
                    self.advance(at);
                    let places = places(self);
                    let _ = self.run(places);
                }
            }
        }
    }

    /// Lets everything that may still start do so.
    pub(crate) fn settle(&mut self) {
        self.advance(self.now + Duration::from_secs(10));
    }
}

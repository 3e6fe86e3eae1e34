//! One destination and its workers, in virtual time: what a store would
//! record, and every legal thing that may happen to a permit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use domain::admission::{
    Backlog, Blocked, Bucket, CoarseStarts, Decision, Look, Meter, Outstanding, Usage, admit,
    newest_starts, read_ahead,
};
use domain::compliance::{InForce, Start};
use domain::ids::AttemptId;
use domain::limit::Period;
use domain::policy::{Policy, Rate};
use domain::smart::Effective;
use domain::time::Timestamp;

/// What becomes of a permit. All numbers are microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// It starts so late after its slot (at its deadline at the latest), and
    /// is finished so long after that.
    Start { late: u64, takes: u64 },
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
        takes: u64,
    },
    MoveBack {
        permit: u64,
    },
    Finish {
        started_at: Timestamp,
        crowded: bool,
    },
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) policy: Policy,
    pub(crate) history: Vec<InForce>,
    /// The ledger.
    pub(crate) starts: Vec<Start>,
    pub(crate) runs: u64,
    pub(crate) waiting: u64,
    /// When the destination runs next, if runs follow looks.
    pub(crate) next_run: Option<Timestamp>,
    floor: Timestamp,
    outstanding: BTreeMap<u64, Outstanding>,
    in_flight: u32,
    unfolded: Vec<Timestamp>,
    buckets: BTreeMap<(Period, Timestamp), u32>,
    meter: Meter,
    recount: bool,
    held_until: Option<Timestamp>,
    events: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    fates: Vec<Fate>,
    number: u64,
}

/// For every worker does its work at once and well.
pub(crate) const PROMPT: Fate = Fate::Start {
    late: 2_000,
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
            runs: 0,
            waiting: ENDLESS,
            next_run: Some(now),
            floor: now,
            outstanding: BTreeMap::new(),
            in_flight: 0,
            unfolded: Vec::new(),
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
            self.starts
                .push((at, AttemptId(-i64::from(count - number))));
            self.unfolded.push(at);
            self.in_flight += 1;
            self.finish(at, false);
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
            Event::Claim { permit, takes } => self.claim(permit, takes),
            Event::MoveBack { permit } => self.move_back(permit),
            Event::Finish {
                started_at,
                crowded,
            } => self.finish(started_at, crowded),
        }
    }

    fn claim(&mut self, permit: u64, takes: u64) {
        if self.held_until.is_some_and(|until| until > self.now) {
            return self.move_back(permit);
        }
        let Some(row) = self.outstanding.remove(&permit) else {
            return; // revoked
        };
        assert!(row.not_before <= self.now && self.now <= row.deadline);
        self.starts.push((self.now, AttemptId(permit as i64)));
        self.in_flight += 1;
        self.unfolded.push(self.now);
        // As at admission: whether outcomes make room that somebody waits for.
        let crowded = self.in_flight * 2 >= self.policy.max_in_flight;
        let finish = Event::Finish {
            started_at: self.now,
            crowded,
        };
        self.schedule(self.now + Duration::from_micros(takes), finish);
    }

    fn move_back(&mut self, permit: u64) {
        if self.outstanding.remove(&permit).is_some() {
            self.waiting += 1;
            self.wake(self.now);
        }
    }

    /// The outcome; it folds the start, as the store does.
    fn finish(&mut self, started_at: Timestamp, crowded: bool) {
        self.in_flight -= 1;
        let index = self
            .unfolded
            .iter()
            .position(|at| *at == started_at)
            .unwrap();
        self.unfolded.swap_remove(index);
        for period in Period::ALL {
            let length = i64::try_from(period.bucket().as_micros()).unwrap();
            let end = (started_at.as_micros().div_euclid(length) + 1) * length;
            *self
                .buckets
                .entry((period, Timestamp::from_micros(end)))
                .or_default() += 1;
        }
        if crowded {
            self.wake(self.now);
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
        let newest = newest_starts(&self.policy, recount);
        let (period, most) = newest.map_or((Duration::ZERO, 0), |newest| {
            (newest.period, newest.count as usize)
        });
        let coarse = windows
            .iter()
            .filter(|limit| limit.is_coarse())
            .map(|limit| {
                let since = self.now - self.policy.stretched(limit.period);
                let range = (limit.period, since)..=(limit.period, Timestamp::MAX);
                CoarseStarts {
                    period: limit.period,
                    buckets: (self.buckets.range(range))
                        .map(|((_, ends_at), starts)| Bucket {
                            ends_at: *ends_at,
                            starts: *starts,
                        })
                        .collect(),
                    unfolded: self.unfolded.clone(),
                }
            });
        Usage {
            outstanding: self.outstanding.values().copied().collect(),
            in_flight: self.in_flight,
            starts: self
                .starts
                .iter()
                .rev()
                .map(|(at, _)| *at)
                .take_while(|at| *at > self.now - period)
                .take(most)
                .collect(),
            coarse: coarse.collect(),
            incomplete: false,
            meter: self.meter,
            recount,
            held_until: self.held_until,
            deferred_until: None,
            probing: false,
        }
    }

    /// One run; checks what every decision promises.
    pub(crate) fn run(&mut self, places: u32) -> Decision {
        self.runs += 1;
        let due = self.waiting.min(u64::from(read_ahead(&self.policy))) as u32;
        let usage = self.usage();
        let backlog = Backlog {
            due,
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
            let fate = self.fates[self.number as usize % self.fates.len()];
            let row = Outstanding {
                not_before: slot.not_before,
                deadline: slot.deadline,
            };
            self.outstanding.insert(self.number, row);
            self.decide_fate(self.number, row, fate);
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

    fn decide_fate(&mut self, permit: u64, row: Outstanding, fate: Fate) {
        let micros = Duration::from_micros;
        let (at, event) = match fate {
            Fate::Start { late, takes } => {
                let at = (row.not_before + micros(late)).min(row.deadline);
                (at, Event::Claim { permit, takes })
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
        loop {
            let next = self.next_run.unwrap_or(until);
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            match event {
                Some(at) if at <= next && at <= until => self.advance(at),
                _ if next >= until => return self.advance(until),
                _ => {
                    let at = next.max(self.now);
                    self.advance(at);
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

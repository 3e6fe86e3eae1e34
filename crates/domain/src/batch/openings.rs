//! Which batches are due, and which of those that wait open them.
//!
//! A pure replay of what claims will do: permits that are out have been
//! promised what waits behind them, so their batches are filled first, and
//! what is left opens new ones. If that turns out differently, because a row
//! was locked or a permit ended, a batch is smaller than it might have been or
//! waits for the next look; nothing else hangs on it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{BatchRules, Line, Room};
use crate::time::Timestamp;
use crate::turns::{Lane, Lanes, turn};

/// When to look again if more waits than was read: what was read is on its way
/// by then.
pub const LOOK_WHEN_CUT: Duration = Duration::from_millis(50);

/// An attempt that waits, is due and is not too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// From when on it has waited.
    pub since: Timestamp,
    /// Of its payload.
    pub bytes: u32,
    /// Its class.
    pub limit: Option<u32>,
}

/// An attempt that opens a batch: one that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// Of which list.
    pub lane: Lane,
    /// Where in it.
    pub place: usize,
}

/// What waits at a destination, and what was promised of it.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// What waits and is due, each lane in the order in which it goes.
    pub waiting: Lanes<Vec<Waiting>>,
    /// The leaders that have permits and may still start, in the order of their
    /// slots, and the lane that each is of.
    pub promised: Vec<(Lane, Waiting)>,
    /// There are more of some than were read.
    pub cut: bool,
}

/// What [`openings`] answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Openings {
    /// The leaders of the batches that are due, in the order in which they go.
    pub leaders: Vec<Leader>,
    /// When the next batch is due, if nothing else comes.
    pub next_due: Option<Timestamp>,
}

/// Which batches are due now, at most `most`. The lanes open them in turn, by the number of
/// the permit (`crate::turns`).
///
/// A first attempt opens one when that is full or it has waited for `max_wait`.
/// What is urgent opens one at once, and so does what is due, which has waited before.
#[must_use]
pub fn openings(
    rules: &BatchRules,
    lines: &Lines,
    (number, most): (i64, u32),
    now: Timestamp,
) -> Openings {
    let mut queues = Queues::of(lines);
    for (lane, leader) in &lines.promised[..] {
        queues.fill(rules, *lane, leader);
    }
    let mut leaders = Vec::new();
    for number in (number..).take(most as usize) {
        let next = queues.next(rules, now);
        let waits = next.map(|place| place.is_some());
        let leader = turn(number, waits).and_then(|lane| {
            let place = *next.of(lane);
            place.map(|place| Leader { lane, place })
        });
        let Some(leader) = leader else {
            break;
        };
        queues.open(rules, leader);
        leaders.push(leader);
    }
    let waits = (queues.firsts.front()).map(|first| lines.waiting.firsts[*first].since);
    let at_last = waits.map(|since| since + rules.max_wait);
    let cut = lines.cut.then(|| now + LOOK_WHEN_CUT);
    Openings {
        leaders,
        next_due: at_last.into_iter().chain(cut).min(),
    }
}

/// What is left of each line: places in the lists.
struct Queues<'a> {
    waiting: &'a Lanes<Vec<Waiting>>,
    urgent: VecDeque<usize>,
    firsts: VecDeque<usize>,
    /// Those in no class under `None`.
    due: BTreeMap<Option<u32>, VecDeque<usize>>,
}

impl<'a> Queues<'a> {
    fn of(lines: &'a Lines) -> Self {
        let waiting = &lines.waiting;
        let mut due: BTreeMap<Option<u32>, VecDeque<usize>> = BTreeMap::new();
        for (place, one) in waiting.others.iter().enumerate() {
            due.entry(one.limit).or_default().push_back(place);
        }
        Self {
            waiting,
            urgent: (0..waiting.urgent.len()).collect(),
            firsts: (0..waiting.firsts.len()).collect(),
            due,
        }
    }

    /// Who would open a batch now, of each lane.
    fn next(&self, rules: &BatchRules, now: Timestamp) -> Lanes<Option<usize>> {
        Lanes {
            urgent: self.urgent.front().copied(),
            firsts: self.first_due(rules, now),
            others: self.other_due(),
        }
    }

    /// The next first attempt, if its batch is due.
    fn first_due(&self, rules: &BatchRules, now: Timestamp) -> Option<usize> {
        let firsts = &self.waiting.firsts;
        let next = *self.firsts.front()?;
        let leader = &firsts[next];
        if now.since(leader.since) >= rules.max_wait {
            return Some(next);
        }
        let mut room = Room::beside(rules, None, leader.bytes);
        let mut others = self.firsts.iter().skip(1);
        while room.events() > 0 {
            if !room.take(firsts[*others.next()?].bytes) {
                break;
            }
        }
        Some(next)
    }

    /// The one that has been due for longest.
    fn other_due(&self) -> Option<usize> {
        self.due
            .values()
            .filter_map(|line| line.front())
            .min()
            .copied()
    }

    fn open(&mut self, rules: &BatchRules, Leader { lane, place }: Leader) {
        let leader = self.waiting.of(lane)[place];
        let line = match lane {
            Lane::Urgent => Some(&mut self.urgent),
            Lane::First => Some(&mut self.firsts),
            Lane::Other => self.due.get_mut(&leader.limit),
        };
        line.map(VecDeque::pop_front);
        self.fill(rules, lane, &leader);
    }

    /// Takes out what a leader's batch holds beside it.
    fn fill(&mut self, rules: &BatchRules, lane: Lane, leader: &Waiting) {
        let mut room = Room::beside(rules, leader.limit, leader.bytes);
        for line in Line::of(lane, leader.limit).into_iter().flatten() {
            let list = self.waiting.of(line.lane());
            let queue = match line {
                Line::Urgent => Some(&mut self.urgent),
                Line::Firsts => Some(&mut self.firsts),
                Line::Due => self.due.get_mut(&None),
                Line::Class(limit) => self.due.get_mut(&Some(limit)),
            };
            let Some(queue) = queue else {
                continue;
            };
            while room.events() > 0
                && let Some(next) = queue.front()
                && room.take(list[*next].bytes)
            {
                queue.pop_front();
            }
        }
    }
}

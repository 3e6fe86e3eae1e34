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

/// An attempt that opens a batch: one that waits, by its place in the list it
/// is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leader {
    /// Of [`Lines::firsts`].
    First(usize),
    /// Of [`Lines::due`].
    Due(usize),
}

/// What waits at a destination, and what was promised of it.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// First attempts that were never admitted, in the order in which they go.
    pub firsts: Vec<Waiting>,
    /// All others that are due, in the order in which they go.
    pub due: Vec<Waiting>,
    /// The leaders that have permits and may still start, in the order of their
    /// slots, and whether each is a first attempt.
    pub promised: Vec<(bool, Waiting)>,
    /// There are more of either than were read.
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

/// Which batches are due now, at most `most`. First attempts and the others
/// open them in turn, by the number of the permit (`crate::turns`).
///
/// A first attempt opens one when that is full or it has waited for `max_wait`.
/// What is due has waited before, and opens one at once.
#[must_use]
pub fn openings(
    rules: &BatchRules,
    lines: &Lines,
    (number, most): (i64, u32),
    now: Timestamp,
) -> Openings {
    let mut queues = Queues::of(lines);
    for (first, leader) in &lines.promised[..] {
        queues.fill(rules, *first, leader);
    }
    let mut leaders = Vec::new();
    let mut first_is_next = number.rem_euclid(2) == 1;
    while leaders.len() < most as usize {
        let first = || queues.first_due(rules, now).map(Leader::First);
        let other = || queues.other_due().map(Leader::Due);
        let leader = match first_is_next {
            true => first().or_else(other),
            false => other().or_else(first),
        };
        let Some(leader) = leader else {
            break;
        };
        queues.open(rules, lines, leader);
        leaders.push(leader);
        first_is_next = !first_is_next;
    }
    let waits = queues
        .firsts
        .front()
        .map(|first| lines.firsts[*first].since);
    let at_last = waits.map(|since| since + rules.max_wait);
    let cut = lines.cut.then(|| now + LOOK_WHEN_CUT);
    Openings {
        leaders,
        next_due: at_last.into_iter().chain(cut).min(),
    }
}

/// What is left of each line: places in the lists.
struct Queues<'a> {
    lines: &'a Lines,
    firsts: VecDeque<usize>,
    /// Those in no class under `None`.
    due: BTreeMap<Option<u32>, VecDeque<usize>>,
}

impl<'a> Queues<'a> {
    fn of(lines: &'a Lines) -> Self {
        let mut due: BTreeMap<Option<u32>, VecDeque<usize>> = BTreeMap::new();
        for (place, waiting) in lines.due.iter().enumerate() {
            due.entry(waiting.limit).or_default().push_back(place);
        }
        Self {
            lines,
            firsts: (0..lines.firsts.len()).collect(),
            due,
        }
    }

    /// The next first attempt, if its batch is due.
    fn first_due(&self, rules: &BatchRules, now: Timestamp) -> Option<usize> {
        let next = *self.firsts.front()?;
        let leader = &self.lines.firsts[next];
        if now.since(leader.since) >= rules.max_wait {
            return Some(next);
        }
        let mut room = Room::beside(rules, None, leader.bytes);
        let mut others = self.firsts.iter().skip(1);
        while room.events() > 0 {
            if !room.take(self.lines.firsts[*others.next()?].bytes) {
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

    fn open(&mut self, rules: &BatchRules, lines: &Lines, leader: Leader) {
        let (first, waiting) = match leader {
            Leader::First(place) => (true, lines.firsts[place]),
            Leader::Due(place) => (false, lines.due[place]),
        };
        let line = match first {
            true => Some(&mut self.firsts),
            false => self.due.get_mut(&waiting.limit),
        };
        line.map(VecDeque::pop_front);
        self.fill(rules, first, &waiting);
    }

    /// Takes out what a leader's batch holds beside it.
    fn fill(&mut self, rules: &BatchRules, first: bool, leader: &Waiting) {
        let mut room = Room::beside(rules, leader.limit, leader.bytes);
        for line in Line::of(first, leader.limit).into_iter().flatten() {
            let (queue, list) = match line {
                Line::Firsts => (Some(&mut self.firsts), &self.lines.firsts),
                Line::Due => (self.due.get_mut(&None), &self.lines.due),
                Line::Class(limit) => (self.due.get_mut(&Some(limit)), &self.lines.due),
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

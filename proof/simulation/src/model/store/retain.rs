//! Retention: what is over and old goes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use async_trait::async_trait;
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::retention::Kept;
use domain::time::Timestamp;
use engine::ports::{Retain, RetainRules, Retained, StoreError, Walk};

use super::ModelStore;
use super::replays;
use super::rows::{Attempt, DestinationRow, Rows};

/// Where the walks are.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Walks(BTreeMap<Walk, Round>);

/// One round of a walk.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Round {
    after: Option<Place>,
    began_at: Timestamp,
    due_at: Timestamp,
}

/// What a walk has come to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Attempt(AttemptId),
    /// The model keeps events by their ids.
    Event(EventId),
}

/// What became of a step.
#[derive(Default)]
struct Stepped {
    examined: usize,
    removed: usize,
    last: Option<Place>,
    more: bool,
}

#[async_trait]
impl Retain for ModelStore {
    async fn retain(&self, rules: &RetainRules) -> Result<Retained, StoreError> {
        Ok(self.step(|rows, now| retain(rows, now, rules)))
    }
}

fn retain(rows: &mut Rows, now: Timestamp, rules: &RetainRules) -> Retained {
    let walks = Walk::ALL.map(|walk| (rows.walks.0.get(&walk).copied(), walk));
    let due_at = |round: Option<Round>| round.map_or(Timestamp::MIN, |round| round.due_at);
    let due = walks.into_iter().filter(|(round, _)| due_at(*round) <= now);
    let Some((round, walk)) = due.min_by_key(|(round, walk)| (due_at(*round), walk.as_str()))
    else {
        return Retained::default();
    };
    let mut round = round.unwrap_or(Round {
        after: None,
        began_at: now,
        due_at: now,
    });
    let stepped = step(rows, now, (walk, round.after), rules);
    round.after = stepped.last.or(round.after);
    round.due_at = match stepped.more {
        true => now,
        false => now + rules.rest,
    };
    if !stepped.more && round.began_at <= now - rules.again {
        round.after = None;
        round.began_at = now;
    }
    rows.walks.0.insert(walk, round);
    Retained {
        walk: Some(walk),
        examined: u32::try_from(stepped.examined).unwrap_or(u32::MAX),
        removed: u32::try_from(stepped.removed).unwrap_or(u32::MAX),
        more: stepped.more,
    }
}

fn step(
    rows: &mut Rows,
    now: Timestamp,
    (walk, after): (Walk, Option<Place>),
    rules: &RetainRules,
) -> Stepped {
    let keep = &rules.keep;
    let most = usize::try_from(rules.limit).unwrap_or(usize::MAX);
    let since = match walk {
        Walk::Events => keep.payloads,
        Walk::DeadLetters => keep.dead_letters,
        Walk::Attempts | Walk::LimitHistory | Walk::Records => keep.ledger,
        Walk::Destinations => return destinations(rows, now - rules.deleted_for),
        // It has none.
        Walk::Days => Kept::Forever,
    };
    let Some(since) = since.cutoff(now) else {
        return Stepped::default();
    };
    match (walk, after) {
        (Walk::Attempts, Some(Place::Attempt(after))) => attempts(rows, since, after, most),
        (Walk::Attempts, _) => attempts(rows, since, AttemptId(0), most),
        (Walk::Events, Some(Place::Event(after))) => events(rows, since, Some(after), most),
        (Walk::Events, _) => events(rows, since, None, most),
        (Walk::DeadLetters, _) => dead_letters(rows, since, keep.ledger.cutoff(now), most),
        (Walk::LimitHistory, _) => limit_history(rows, since),
        (Walk::Records, _) => records(rows, since),
        (Walk::Days | Walk::Destinations, _) => Stepped::default(),
    }
}

/// The oldest rows of the ledger, up to the first that is young.
fn attempts(rows: &mut Rows, since: Timestamp, after: AttemptId, most: usize) -> Stepped {
    let old: Vec<_> = (rows.ledger.after(after))
        .take(most)
        .take_while(|row| row.created_at < since)
        .map(|row| (row.id, is_over(row, since)))
        .collect();
    let gone = old
        .iter()
        .filter(|(id, over)| *over && !rows.held.contains(id));
    let gone: Vec<_> = gone.map(|(id, _)| *id).collect();
    gone.iter().for_each(|id| rows.ledger.remove(*id));
    Stepped {
        examined: old.len(),
        removed: gone.len(),
        last: old.last().map(|(id, _)| Place::Attempt(*id)),
        more: old.len() >= most,
    }
}

fn is_over(row: &Attempt, since: Timestamp) -> bool {
    let last = row
        .finished_at
        .max(row.started_at)
        .max(Some(row.created_at));
    row.state.is_final() && last < Some(since) && !row.is_open_dead_letter()
}

/// Those that died first, but none that a running replay awaits: they go, or are attempts that failed like others.
fn dead_letters(
    rows: &mut Rows,
    since: Timestamp,
    ledger: Option<Timestamp>,
    most: usize,
) -> Stepped {
    let mut dead: Vec<_> = (rows.ledger.attempts())
        .filter(|row| row.is_open_dead_letter() && !rows.held.contains(&row.id))
        .filter_map(|row| Some((row.died_at()?, row.id)))
        .filter(|(died, _)| *died < since)
        .filter(|(died, id)| !replays::awaits(rows, *died, *id))
        .collect();
    dead.sort_unstable();
    dead.truncate(most);
    for (died, id) in &dead {
        if ledger.is_some_and(|ledger| *died < ledger) {
            rows.ledger.remove(*id);
        } else {
            rows.ledger
                .change(*died, *id, |row| row.dead_letter = false);
        }
    }
    Stepped {
        examined: dead.len(),
        removed: dead.len(),
        last: None,
        more: dead.len() >= most,
    }
}

/// Events whose attempts are all over; none that a dead letter can be replayed
/// with.
fn events(rows: &mut Rows, since: Timestamp, after: Option<EventId>, most: usize) -> Stepped {
    let needs = |row: &Attempt| !row.state.is_final() || row.is_open_dead_letter();
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let examined: Vec<_> = (rows.events.range((from, Bound::Unbounded)))
        .take(most)
        .map(|(id, event)| {
            let mut attempts = event.attempts.iter().filter_map(|id| rows.ledger.get(*id));
            (*id, event.created_at < since && !attempts.any(needs))
        })
        .collect();
    let gone: Vec<_> = examined.iter().filter(|one| one.1).collect();
    for (id, _) in &gone {
        rows.events.remove(id);
    }
    Stepped {
        examined: examined.len(),
        removed: gone.len(),
        last: examined.last().map(|(id, _)| Place::Event(*id)),
        more: examined.len() >= most,
    }
}

/// Of each destination the last entry before the cut stays, and all after it; and
/// what a start that is left was made under.
fn limit_history(rows: &mut Rows, since: Timestamp) -> Stepped {
    let mut removed = 0;
    let mut first: BTreeMap<_, Timestamp> = BTreeMap::new();
    for row in rows.ledger.attempts() {
        if let (Some(at), None) = (row.started_at, row.carried_by) {
            let first = first.entry(row.destination).or_insert(at);
            *first = at.min(*first);
        }
    }
    for (id, row) in &mut rows.destinations {
        let judged = |at: Timestamp| first.get(id).is_some_and(|first| *first < at);
        let before = row.history.len();
        let old: Vec<_> = row
            .history
            .iter()
            .map(|entry| entry.in_force_from)
            .collect();
        let mut place = 0;
        row.history.retain(|entry| {
            place += 1;
            let later = &old[place..];
            let ends = later.iter().filter(|at| **at >= entry.in_force_from).min();
            !ends.is_some_and(|at| *at < since && !judged(*at))
        });
        removed += before - row.history.len();
    }
    Stepped {
        examined: removed,
        removed,
        ..Stepped::default()
    }
}

/// Those that were deleted by then, and have nothing left in the ledger.
fn destinations(rows: &mut Rows, deleted_by: Timestamp) -> Stepped {
    let in_ledger: BTreeSet<_> = (rows.ledger.attempts())
        .map(|row| row.destination)
        .collect();
    let is_over = |(id, row): (&DestinationId, &DestinationRow)| {
        let is_old = row.deleted_at.is_some_and(|at| at <= deleted_by);
        (is_old && !in_ledger.contains(id)).then_some(*id)
    };
    let gone: Vec<_> = rows.destinations.iter().filter_map(is_over).collect();
    for id in &gone {
        rows.destinations.remove(id);
        rows.replays.retain(|_, replay| replay.destination() != *id);
    }
    Stepped {
        examined: gone.len(),
        removed: gone.len(),
        ..Stepped::default()
    }
}

/// Replays that are over.
fn records(rows: &mut Rows, since: Timestamp) -> Stepped {
    let before = rows.replays.len();
    rows.replays
        .retain(|_, replay| replay.finished_at().is_none_or(|at| at >= since));
    let removed = before - rows.replays.len();
    Stepped {
        examined: removed,
        removed,
        ..Stepped::default()
    }
}

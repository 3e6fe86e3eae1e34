//! Nobody starved: no destination with due work went without a start for too
//! long while others were served.
//!
//! Faults stop everybody for a while, so the wait is counted in seconds of the
//! store's clock in which at least three other destinations started something.

use std::collections::{BTreeMap, HashMap};

use domain::destination::DestinationState;
use domain::limit::Period;
use uuid::Uuid;

use super::{Case, Judgement, holds};
use crate::chaos::log::Row;

/// Beside the longest period of its limits: a request that hangs (15 s), the
/// reaper's patience after an outage, and a retry's pause.
const PATIENCE_SECONDS: u64 = 40;

/// A second counts when so many others were served in it.
const OTHERS: usize = 3;

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// Which destinations started something, by the second.
type Served = BTreeMap<i64, Vec<Uuid>>;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    let mut rows: HashMap<Uuid, Vec<&Row>> = HashMap::new();
    let mut served = Served::new();
    for row in &case.evidence.rows {
        rows.entry(row.destination).or_default().push(row);
        if let Some(at) = row.started_at {
            let second = served.entry(at.div_euclid(SECOND)).or_default();
            if !second.contains(&row.destination) {
                second.push(row.destination);
            }
        }
    }
    for tried in &case.evidence.run.destinations {
        let Some(rows) = rows.get(&tried.id) else {
            continue;
        };
        let Some((from, waited)) = longest_wait(case, tried.id, rows, &served) else {
            continue;
        };
        let longest = &mut judgement.figures.longest_wait_seconds;
        *longest = waited.max(*longest);
        let bound = PATIENCE_SECONDS + longest_period_seconds(case, tried.id);
        if waited > bound {
            judgement.find("starved", || {
                format!(
                    "{} had due work from {from} us on and was not served in {waited} s in which \
                     others were; bound {bound} s",
                    tried.name
                )
            });
        }
    }
}

/// The worst time between two starts, from when work was due.
fn longest_wait(
    case: &Case<'_>,
    destination: Uuid,
    rows: &[&Row],
    served: &Served,
) -> Option<(i64, u64)> {
    let mut starts: Vec<(i64, i64)> = (rows.iter())
        .filter_map(|row| Some((row.started_at?, row.due_at)))
        .collect();
    starts.sort_unstable();
    let pauses = pauses(case, destination);
    let mut worst = None;
    // From the last start backwards, so that all that is still to start is known.
    let mut due = i64::MAX;
    for index in (0..starts.len()).rev() {
        let (at, due_at) = starts[index];
        due = due.min(due_at);
        let before = index
            .checked_sub(1)
            .map_or(i64::MIN, |before| starts[before].0);
        let from = before.max(due);
        let seconds = (from.div_euclid(SECOND) + 1)..at.div_euclid(SECOND);
        if seconds.is_empty() {
            continue;
        }
        let waited = (served.range(seconds))
            .filter(|(second, others)| {
                others.len() >= OTHERS
                    && !pauses
                        .iter()
                        .any(|(from, until)| (from..until).contains(second))
            })
            .count() as u64;
        if worst.is_none_or(|(_, most)| waited > most) {
            worst = Some((from, waited));
        }
    }
    worst
}

/// Seconds in which it was paused or held, and one more each way.
fn pauses(case: &Case<'_>, destination: Uuid) -> Vec<(i64, i64)> {
    let mut changes: Vec<_> = (case.evidence.changes.iter())
        .filter(|change| change.destination == destination)
        .collect();
    changes.sort_by_key(|change| change.from);
    let ends = changes
        .iter()
        .skip(1)
        .map(|change| change.from)
        .chain([i64::MAX]);
    (changes.iter().zip(ends))
        .filter(|(change, _)| change.state != DestinationState::Active)
        .map(|(change, end)| {
            let until = end.div_euclid(SECOND).saturating_add(2);
            (change.from.div_euclid(SECOND), until)
        })
        .chain(holds::quiet(case, destination))
        .collect()
}

/// Zero for a second: it is within the patience.
fn longest_period_seconds(case: &Case<'_>, destination: Uuid) -> u64 {
    let changes = case.evidence.changes.iter();
    let of_it = changes.filter(|change| change.destination == destination);
    of_it
        .flat_map(|change| {
            let limits = change.effective;
            [
                limits.per_minute.map(|_| Period::Minute),
                limits.per_hour.map(|_| Period::Hour),
                limits.per_day.map(|_| Period::Day),
            ]
        })
        .flatten()
        .map(|period| period.duration().as_secs())
        .max()
        .unwrap_or(0)
}

//! Nothing starts while its destination is held, and beside a probe nothing else.
//!
//! What the store remembers of a destination's health is noted as it is committed,
//! by the store's clock; starts have the time of their claim, by the same clock. A
//! claim that was under way as the hold was committed may still be a start: so a
//! hold counts from [`UNDER_WAY`] later on. What the clock said twice, because it
//! was set back, is not judged: nobody knows which came first.

use std::collections::HashMap;

use domain::destination::DestinationState;
use domain::ids::AttemptId;
use domain::time::Timestamp;
use promises::{a_breaker_lets_one_through, nothing_starts_during_a_hold};
use uuid::Uuid;

use super::timeline::Timeline;
use super::{Case, Judgement};
use crate::chaos::log::{Hold, Row, Tried};

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// What a claim may take from what it sees to its time, and a commit from its last
/// statement to being seen, on a machine that does much else.
pub(super) const UNDER_WAY: i64 = 2 * SECOND;

pub(super) fn judge(case: &Case<'_>, timeline: &Timeline, judgement: &mut Judgement) {
    let notes = by_destination(case);
    let mut starts: HashMap<Uuid, Vec<(i64, &Row)>> = HashMap::new();
    for row in &case.evidence.rows {
        if let (Some(at), None) = (row.claimed_at, row.carried_by) {
            starts.entry(row.destination).or_default().push((at, row));
        }
    }
    for tried in &case.evidence.run.destinations {
        let Some(notes) = notes.get(&tried.id) else {
            continue;
        };
        let mut starts = starts.remove(&tried.id).unwrap_or_default();
        starts.retain(|(at, _)| !timeline.was_twice(*at));
        starts.sort_unstable_by_key(|(at, row)| (*at, row.attempt));
        let found = Notes(notes);
        judge_holds(tried, &found, &starts, judgement);
        judge_probes(tried, &found, &starts, judgement);
        judge_end(case, tried, &found, judgement);
    }
}

/// Seconds in which it was held or its breaker was open, and one more each way.
pub(super) fn quiet(case: &Case<'_>, destination: Uuid) -> Vec<(i64, i64)> {
    let notes: Vec<&Hold> = (case.evidence.holds.iter())
        .filter(|note| note.destination == destination)
        .collect();
    let notes = Notes(&notes);
    let seconds = |(from, until): (i64, i64)| {
        let until = until.div_euclid(SECOND).saturating_add(2);
        (from.div_euclid(SECOND), until)
    };
    (notes.holds().chain(notes.openings()))
        .map(seconds)
        .collect()
}

fn by_destination<'a>(case: &Case<'a>) -> HashMap<Uuid, Vec<&'a Hold>> {
    let mut notes: HashMap<Uuid, Vec<&Hold>> = HashMap::new();
    for note in &case.evidence.holds {
        notes.entry(note.destination).or_default().push(note);
    }
    notes
}

/// What was noted of one destination, in the order of the commits.
struct Notes<'a>(&'a [&'a Hold]);

impl Notes<'_> {
    /// From each commit until nothing holds it any more: until its end, or until
    /// the health is forgotten, as where its owner resumes it.
    fn holds(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().enumerate().filter_map(|(place, note)| {
            let until = note.until?;
            let later = self.0[place + 1..].iter();
            let shorter = later
                .take_while(|later| later.noted_at < until)
                .find(|later| later.until.is_none_or(|other| other < until));
            let until = shorter.map_or(until, |later| later.noted_at);
            (note.noted_at < until).then_some((note.noted_at, until))
        })
    }

    /// From each opening of the breaker until it closes, or to the end.
    fn openings(&self) -> impl Iterator<Item = (i64, i64)> {
        let opened = |place: usize| self.0.get(place).and_then(|note| note.opened_at);
        (0..self.0.len()).filter_map(move |place| {
            let since = opened(place)?;
            if place > 0 && opened(place - 1) == Some(since) {
                return None;
            }
            let mut later = self.0[place..].iter();
            let closed = later.find(|note| note.opened_at != Some(since));
            Some((
                self.0[place].noted_at,
                closed.map_or(i64::MAX, |note| note.noted_at),
            ))
        })
    }
}

fn within<'a>(starts: &'a [(i64, &'a Row)], from: i64, until: i64) -> &'a [(i64, &'a Row)] {
    let first = starts.partition_point(|(at, _)| *at <= from.saturating_add(UNDER_WAY));
    let after = starts.partition_point(|(at, _)| *at < until);
    starts.get(first..after).unwrap_or_default()
}

fn judge_holds(tried: &Tried, notes: &Notes<'_>, starts: &[(i64, &Row)], found: &mut Judgement) {
    for (from, until) in notes.holds() {
        found.figures.holds += 1;
        for (at, row) in within(starts, from, until) {
            let (attempt, until) = (AttemptId(row.attempt), Timestamp::from_micros(until));
            let started_at = Timestamp::from_micros(*at);
            let judged = nothing_starts_during_a_hold(attempt, started_at, Some(until));
            found.keep("held", judged.map_err(|broken| broken.of(&tried.name)));
        }
    }
}

fn judge_probes(tried: &Tried, notes: &Notes<'_>, starts: &[(i64, &Row)], found: &mut Judgement) {
    for (from, until) in notes.openings() {
        found.figures.breakers_opened += 1;
        found.figures.breakers_closed += u64::from(until < i64::MAX);
        let probes = within(starts, from, until);
        found.figures.probes += probes.len() as u64;
        for pair in probes.windows(2) {
            let ((_, before), (at, row)) = (pair[0], pair[1]);
            // Of one that nobody knew the end of, another takes the place.
            let is_over = before.finished_at.is_some_and(|end| end <= at);
            let in_flight = if is_over || before.was_unknown { 1 } else { 2 };
            let pair = [before.attempt, row.attempt];
            let judged = a_breaker_lets_one_through(&tried.name, in_flight);
            let judged = judged.map_err(|broken| broken.of(format_args!("attempts {pair:?}")));
            found.keep("held", judged);
        }
    }
}

/// A receiver that never came back is disabled after its breaker opened.
fn judge_end(case: &Case<'_>, tried: &Tried, notes: &Notes<'_>, judgement: &mut Judgement) {
    let opened = notes.openings().next().is_some();
    if tried.doomed && opened && !is_disabled(case, tried.id) {
        judgement.find("held", || {
            format!("{} never came back, and is not disabled", tried.name)
        });
    }
}

/// At the end.
pub(super) fn is_disabled(case: &Case<'_>, destination: Uuid) -> bool {
    let changes = case.evidence.changes.iter();
    let of_it = changes.filter(|change| change.destination == destination);
    let last = of_it.max_by_key(|change| change.from);
    last.is_some_and(|change| change.state == DestinationState::Disabled)
}

//! What a call on Postgres may find held by another.
//!
//! Its statements skip rows that others hold (`skip locked`), which has answers
//! that no order of whole calls gives: *skipped*, and a batch of which a part is
//! done. Each is allowed for a row that a call which was under way at the same
//! time touches, and for no other:
//!
//! - A claim, an outcome or a run is answered *skipped*.
//! - A claim that found its row held, and when it looked again found it moved,
//!   is answered *refused*; an outcome that did so is not mentioned.
//! - A release leaves the row, and so does the reaper; a late success leaves the
//!   retry; a run leaves what it had chosen, and spends the number. (A claim or
//!   a release under an old number, too, holds the row until it has seen that
//!   the row has moved.)
//!
//! And a worker that retires while it claims may be seen alive by the claim, which
//! is committed after it; and the fleet may lack what a run gives that was under
//! way at the same time.

use std::collections::BTreeSet;

use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use engine::ports::{Admitted, ClaimAnswer, Heartbeat, NextTry, RunResult};

use super::calls::{Answer, Call};
use super::shown::{Place, Shown};
use crate::bridge::linear::{Called, Step};

/// Rows that others hold while a step is made.
pub(crate) type Held = BTreeSet<Place>;

/// The most rows of which each part is tried.
const CONTENDED: usize = 6;

/// The calls that were under way while this one was.
fn overlapping<'a>(
    step: &Step<'a, Call, Answer>,
) -> impl Iterator<Item = &'a Called<Call, Answer>> {
    let (of, own) = (step.of, step.called());
    let others = step.batch.iter().enumerate();
    let others = others.filter(move |(index, _)| *index != of);
    others
        .map(|(_, other)| other)
        .filter(|other| other.begun < own.ended && own.begun < other.ended)
}

/// Whether a call may have held a row for a moment.
fn touches(one: &Called<Call, Answer>, place: &Place, shown: &Shown) -> bool {
    match (&one.call, &one.answer) {
        (Call::Claim(_, permits) | Call::Release(permits), _) => permits
            .iter()
            .any(|permit| shown.place(permit.attempt) == Some(*place)),
        // A late success takes back what followed.
        (Call::Record(_, outcomes), _) => outcomes.iter().any(|outcome| {
            let own = shown.place(outcome.attempt);
            own.is_some_and(|own| (own.0, own.1) == (place.0, place.1) && own.2 <= place.2)
        }),
        (_, Answer::Admitted(admitted)) => {
            let mut places = permits_of(admitted).map(|permit| shown.place(permit.attempt));
            places.any(|given| given == Some(*place))
        }
        // What it locks, it moves.
        (_, Answer::Reaped(reaped)) => {
            reaped.expired_permits + reaped.unknown_starts + reaped.cancelled > 0
        }
        (Call::Change(id, _) | Call::Delete(id), _) => place.1 == *id,
        _ => false,
    }
}

/// Those of these rows that a call under way at the same time touches.
pub(crate) fn contended(
    step: &Step<'_, Call, Answer>,
    rows: impl IntoIterator<Item = Place>,
    shown: &Shown,
) -> Held {
    let is_touched = |place: &Place| overlapping(step).any(|one| touches(one, place, shown));
    rows.into_iter().filter(is_touched).collect()
}

/// What others may have held during a call, each possibility; of a run, see
/// [`left_by_run`]. None: it says
/// that it skipped what nobody touched.
pub(crate) fn possibilities(step: &Step<'_, Call, Answer>, shown: &Shown) -> Vec<Held> {
    let called = step.called();
    let (must, may) = match (&called.call, &called.answer) {
        (Call::Claim(_, permits), Answer::Claims(claims)) => {
            let answered = |wanted: &dyn Fn(&ClaimAnswer) -> bool| -> Held {
                let answers = permits.iter().zip(&claims.answers);
                let answers = answers.filter(|(_, answer)| wanted(answer));
                answers
                    .filter_map(|(permit, _)| shown.place(permit.attempt))
                    .collect()
            };
            (
                answered(&|answer| *answer == ClaimAnswer::Skipped),
                answered(&|answer| *answer == ClaimAnswer::Refused),
            )
        }
        (Call::Release(permits), _) => {
            let rows = permits
                .iter()
                .filter_map(|permit| shown.place(permit.attempt));
            (Held::new(), rows.collect())
        }
        (Call::Record(_, outcomes), Answer::Recorded(recorded)) => {
            let skipped: Held = (recorded.skipped.iter())
                .filter_map(|id| shown.place(*id))
                .collect();
            let mut may = Held::new();
            for outcome in outcomes {
                let Some(own) = shown.place(outcome.attempt) else {
                    continue;
                };
                may.insert(own);
                if outcome.next == NextTry::None {
                    may.extend(shown.followers(&own));
                }
            }
            (skipped, may)
        }
        _ => return vec![Held::new()],
    };
    if contended(step, must.iter().copied(), shown) != must {
        return Vec::new();
    }
    let may = contended(step, may.difference(&must).copied(), shown);
    let parts = parts(&may, None);
    parts.into_iter().map(|part| &part | &must).collect()
}

/// The worker that a claim may have seen alive though it has retired: both were
/// under way at the same time.
pub(crate) fn retires_meanwhile(step: &Step<'_, Call, Answer>) -> Option<WorkerId> {
    let Call::Claim(by, _) = &step.called().call else {
        return None;
    };
    let retires = |one: &Called<Call, Answer>| matches!(&one.call, Call::Beat(Heartbeat { worker, places: 0 }) if worker == by);
    overlapping(step).any(retires).then_some(*by)
}

/// Whether an outcome of this destination is recorded at the same time. A run reads
/// the health before what waits, in two statements: it may see the retry alone.
pub(crate) fn is_recorded_meanwhile(step: &Step<'_, Call, Answer>, id: DestinationId) -> bool {
    overlapping(step).any(|one| match &one.call {
        Call::Record(_, outcomes) => outcomes.iter().any(|outcome| outcome.destination == id),
        _ => false,
    })
}

/// How many permits a fleet may lack that are given already: a run that has
/// read what was there before a release commits after the release, and after the
/// fleet, without what was released, was read.
pub(crate) fn given_unseen(step: &Step<'_, Call, Answer>) -> usize {
    let runs = overlapping(step).filter_map(|one| match &one.answer {
        Answer::Admitted(admitted) => Some(permits_of(admitted).count()),
        _ => None,
    });
    runs.sum()
}

/// All parts of some rows, or all that have so many.
pub(crate) fn parts(rows: &Held, count: Option<usize>) -> Vec<Held> {
    let rows: Vec<Place> = rows.iter().copied().take(2 * CONTENDED).collect();
    let all = 0..1_u32 << rows.len();
    let is_wanted = |part: &u32| match count {
        Some(count) => usize::try_from(part.count_ones()) == Ok(count),
        None => part >> CONTENDED == 0,
    };
    let of = |part: u32| -> Held {
        let is_in = |index: &usize| part & (1 << index) != 0;
        (0..rows.len())
            .filter(is_in)
            .map(|index| rows[index])
            .collect()
    };
    all.filter(is_wanted).map(of).collect()
}

/// What a run has left of what it would have chosen alone. None: somebody would
/// have had to hold what nobody touched.
pub(crate) fn left_by_run(
    step: &Step<'_, Call, Answer>,
    alone: impl Iterator<Item = Place>,
    shown: &Shown,
) -> Option<Held> {
    let Answer::Admitted(admitted) = &step.called().answer else {
        return None;
    };
    let given: Held = permits_of(admitted)
        .filter_map(|permit| shown.place(permit.attempt))
        .collect();
    let left: Held = alone.filter(|place| !given.contains(place)).collect();
    (contended(step, left.iter().copied(), shown) == left).then_some(left)
}

/// All permits that runs gave.
pub(crate) fn permits_of(admitted: &Admitted) -> impl Iterator<Item = &Permit> {
    admitted.results.iter().flat_map(|result| match result {
        RunResult::Decided { permits, .. } => permits.as_slice(),
        _ => &[],
    })
}

/// Whether each run that was skipped met another of the same destination, or a
/// change of it.
pub(crate) fn skips_are_met(step: &Step<'_, Call, Answer>, admitted: &Admitted) -> bool {
    let Call::Admit(runs, _) = &step.called().call else {
        return false;
    };
    let results = runs.iter().zip(&admitted.results);
    let mut skipped = results.filter(|(_, result)| matches!(result, RunResult::Skipped));
    skipped.all(|(run, _)| {
        overlapping(step).any(|one| match &one.call {
            Call::Admit(runs, _) => runs
                .iter()
                .any(|other| other.destination == run.destination),
            Call::Change(id, _) | Call::Delete(id) => *id == run.destination,
            _ => false,
        })
    })
}

//! Finding destinations that need a look, and the marks that changes leave.

use std::ops::Bound;
use std::time::Duration;

use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Mark, Sweep, SweepPage, Wake};

use super::indexes::Indexes;
use super::rows::Rows;

/// Reads one page; see [`engine::ports::Store::sweep`].
pub(super) fn sweep(rows: &Rows, now: Timestamp, sweep: &Sweep) -> SweepPage {
    let limit = usize::try_from(sweep.limit).unwrap_or(usize::MAX);
    let mut page = SweepPage::default();
    if sweep.after.is_none() {
        page.marks = oldest_marks(rows, limit);
        let unblocked = |mark: &Mark| Wake::unblocked(mark.destination);
        page.wakes = page.marks.iter().map(unblocked).collect();
    }
    if sweep.only_marks {
        return page;
    }
    let after = sweep.after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut busy = rows.ledger.busy.range((after, Bound::Unbounded)).peekable();
    for destination in busy.by_ref().take(limit) {
        page.next = Some(*destination);
        if is_late(rows, *destination) && !rows.locked.contains(destination) {
            page.late += 1;
        }
        let mut marks = page.marks.iter();
        let marked = marks.any(|mark| mark.destination == *destination);
        if let Some(after) = look(rows, now, sweep, *destination)
            && !marked
        {
            page.wakes.push(Wake::after(*destination, after));
        }
    }
    if busy.peek().is_none() {
        page.next = None;
    }
    page
}

/// Whether something was committed so late that admission had gone past it.
fn is_late(rows: &Rows, destination: DestinationId) -> bool {
    let indexes = rows.ledger.indexes(destination);
    indexes.is_some_and(Indexes::hides_first)
}

/// Admission goes back to what was late in this page, unless somebody holds the
/// destination.
pub(super) fn go_back(rows: &mut Rows, sweep: &Sweep) {
    let limit = usize::try_from(sweep.limit).unwrap_or(usize::MAX);
    let after = sweep.after.map_or(Bound::Unbounded, Bound::Excluded);
    let busy = rows.ledger.busy.range((after, Bound::Unbounded));
    let page: Vec<_> = busy.take(limit).copied().collect();
    for destination in page {
        if !rows.locked.contains(&destination) {
            rows.ledger.go_back(destination);
        }
    }
}

fn oldest_marks(rows: &Rows, limit: usize) -> Vec<Mark> {
    let mut marks: Vec<_> = (rows.marks.iter())
        .map(|(destination, version)| Mark {
            destination: *destination,
            version: *version,
        })
        .collect();
    marks.sort_unstable_by_key(|mark| mark.version);
    marks.truncate(limit);
    marks
}

/// After how long a destination needs a look, if it needs one.
fn look(
    rows: &Rows,
    now: Timestamp,
    sweep: &Sweep,
    destination: DestinationId,
) -> Option<Duration> {
    let row = (rows.living(destination)).filter(|row| row.state == DestinationState::Active)?;
    let indexes = rows.ledger.indexes(destination)?;
    let next_due = indexes.due.first().map(|(due_at, _)| *due_at);
    if is_late(rows, destination) {
        return Some(Duration::ZERO);
    }
    let due = !indexes.first.is_empty() || next_due.is_some_and(|due_at| due_at <= now);
    if sweep.everything {
        return match due || !indexes.admitted.is_empty() {
            true => Some(Duration::ZERO),
            false => next_due.map(|due_at| due_at.since(now)),
        };
    }
    let next_look_at = row.pacing.next_look_at;
    let overdue = next_look_at.is_none_or(|at| at < now - sweep.overdue);
    (due && overdue).then_some(Duration::ZERO)
}

/// Forgets marks; see [`engine::ports::Store::clear_marks`].
pub(super) fn clear_marks(rows: &mut Rows, marks: &[Mark]) {
    for mark in marks {
        if rows.marks.get(&mark.destination) == Some(&mark.version) {
            rows.marks.remove(&mark.destination);
        }
    }
}

//! Finding destinations that need a look, and the marks that changes leave.
//!
//! Destinations with work are found by hopping through the partial indexes of
//! the backlog from one destination to the next: the cost is proportional to
//! how many have work, not to how much, and the idle ones cost nothing.

use std::time::Duration;

use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Mark, Sweep, SweepPage, Wake};
use rusqlite::Transaction;

use super::fault::Fault;
use super::rows::{all, execute, first, parse, word};

/// One hop: the next destination in an index, after the one given.
const HOPS: [&str; 3] = [
    "
    -- sweep: the next destination with first attempts
    select destination from (select next_line(?1) as destination)
    where destination is not null",
    "
    -- sweep: the next destination with retries
    select destination_id from deliveries indexed by deliveries_due
    where permit is null and due_at is not null and destination_id > ?1
    order by destination_id limit 1",
    "
    -- sweep: the next destination with permits
    select destination_id from deliveries indexed by deliveries_held
    where permit is not null and carried_by is null and state = 'admitted'
        and destination_id > ?1
    order by destination_id limit 1",
];

const LOOK: &str = "
    -- sweep: does it need a look
    select
        line_length(?1) > 0,
        exists (
            select 1 from deliveries indexed by deliveries_held
            where destination_id = ?1 and permit is not null and carried_by is null
                and state = 'admitted'
        ),
        (
            select due_at from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
            order by urgent desc, due_at limit 1
        ),
        (select next_look_at from pacing where destination_id = ?1)
    from destinations
    where id = ?1 and state = 'active' and deleted_at is null";

const MARKS: &str = "
    -- sweep: what changes left, the oldest first
    select destination_id, version from destination_marks order by version limit ?1";

const CLEAR_MARK: &str = "
    -- clear_marks
    delete from destination_marks where destination_id = ?1 and version = ?2";

/// The statements of a page, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 4] = [HOPS[0], HOPS[1], HOPS[2], LOOK];

/// Reads one page; see [`engine::ports::Store::sweep`].
pub(super) fn sweep(
    tx: &Transaction<'_>,
    now: Timestamp,
    sweep: &Sweep,
) -> Result<SweepPage, Fault> {
    let mut page = SweepPage::default();
    if sweep.after.is_none() {
        page.marks = all(tx, MARKS, [sweep.limit], |row| {
            Ok(Mark {
                destination: word(row, 0, ("destination_marks", "destination_id"))?,
                version: row.get(1)?,
            })
        })?;
        let unblocked = |mark: &Mark| Wake::unblocked(mark.destination);
        page.wakes = page.marks.iter().map(unblocked).collect();
    }
    if sweep.only_marks {
        return Ok(page);
    }
    let mut hops = Hops::after(tx, sweep.after)?;
    for _ in 0..sweep.limit {
        let Some(key) = hops.next()? else {
            break;
        };
        let destination: DestinationId = parse(&key, ("attempts", "destination_id"))?;
        page.next = hops.has_more().then_some(destination);
        let marked = page
            .marks
            .iter()
            .any(|mark| mark.destination == destination);
        if let Some(after) = look(tx, now, sweep, &key)?
            && !marked
        {
            page.wakes.push(Wake::after(destination, after));
        }
    }
    Ok(page)
}

/// After how long a destination needs a look, if it needs one.
fn look(
    tx: &Transaction<'_>,
    now: Timestamp,
    sweep: &Sweep,
    destination: &str,
) -> Result<Option<Duration>, Fault> {
    let read = first(tx, LOOK, [destination], |row| {
        let (first_attempts, admitted): (bool, bool) = (row.get(0)?, row.get(1)?);
        let next_due: Option<i64> = row.get(2)?;
        let next_look_at: Option<i64> = row.get(3)?;
        Ok((first_attempts, admitted, next_due, next_look_at))
    })?;
    let Some((first_attempts, admitted, next_due, next_look_at)) = read else {
        return Ok(None);
    };
    let next_due = next_due.map(Timestamp::from_micros);
    let due = first_attempts || next_due.is_some_and(|due_at| due_at <= now);
    if sweep.everything {
        return Ok(match (due || admitted, next_due) {
            (true, _) => Some(Duration::ZERO),
            (false, Some(due_at)) => Some(due_at.since(now)),
            (false, None) => None,
        });
    }
    let overdue = next_look_at.is_none_or(|at| Timestamp::from_micros(at) < now - sweep.overdue);
    Ok((due && overdue).then_some(Duration::ZERO))
}

/// The destinations with work, in id order: a merge of the three indexes.
pub(super) struct Hops<'a> {
    tx: &'a Transaction<'a>,
    /// The next destination of each index; `None` at its end.
    heads: [Option<String>; 3],
}

impl<'a> Hops<'a> {
    fn after(tx: &'a Transaction<'a>, after: Option<DestinationId>) -> Result<Self, Fault> {
        Self::beyond(
            tx,
            &after.map(|after| after.to_string()).unwrap_or_default(),
        )
    }

    /// The same after a key as the rows hold it; an empty one is before all.
    pub(super) fn beyond(tx: &'a Transaction<'a>, after: &str) -> Result<Self, Fault> {
        let mut heads = [None, None, None];
        for (head, hop) in heads.iter_mut().zip(HOPS) {
            *head = next_in(tx, hop, after)?;
        }
        Ok(Self { tx, heads })
    }

    fn has_more(&self) -> bool {
        self.heads.iter().any(Option::is_some)
    }

    pub(super) fn next(&mut self) -> Result<Option<String>, Fault> {
        let Some(next) = self.heads.iter().flatten().min().cloned() else {
            return Ok(None);
        };
        for (head, hop) in self.heads.iter_mut().zip(HOPS) {
            if head.as_ref() == Some(&next) {
                *head = next_in(self.tx, hop, &next)?;
            }
        }
        Ok(Some(next))
    }
}

fn next_in(tx: &Transaction<'_>, hop: &str, after: &str) -> Result<Option<String>, Fault> {
    first(tx, hop, [after], |row| Ok(row.get(0)?))
}

/// Forgets marks; see [`engine::ports::Store::clear_marks`].
pub(super) fn clear_marks(tx: &Transaction<'_>, marks: &[Mark]) -> Result<(), Fault> {
    for mark in marks {
        execute(tx, CLEAR_MARK, (mark.destination.to_string(), mark.version))?;
    }
    Ok(())
}

//! Writes what was decided on what had been read without a lock, if that is still so.
//!
//! A run's read brings the version of what admission remembers of its destination
//! ([`Found::version`](super::destinations::Found)). This statement locks the destination
//! and that row, and goes on with those of which the version and the epoch are as they were
//! read. So nobody has admitted in between, and no limit has changed; and nobody does until
//! it has committed. Both rows are locked *before* they are compared for good: whoever had
//! them and has committed since the statement began is seen, because Postgres asks for the
//! same once more of a row that it locks in another version than its snapshot has. The
//! destination's row alone would not do. An admission locks it and leaves it as it is, so
//! there is nothing to ask anew, and two would write on one read.
//!
//! Who has changed is left to the admission that locks first, and so is one whose row
//! somebody holds.

use std::collections::HashSet;

use domain::ids::AttemptId;
use domain::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Failure;
use super::mark::{MARKED, PICKS_BOUND, Picks, bind_notes, of, picked, remembered};
use super::plan::Plan;

/// What was bound of the destinations: their epochs and versions, and how many picks of
/// each there are.
const NOTES: usize = PICKS_BOUND + 4;

/// Whoever bumps an epoch writes another version as well (`mark_changed`). It is compared
/// all the same: it is what the claim asks of the permit.
const LOCKED: &str = "select d.id, n.picks, p.first_after
        from unnest($11::uuid[], $12::bigint[], $13::bigint[], $14::bigint[])
            as n (id, epoch, version, picks)
        join destinations d on d.id = any (array[n.id])
        join pacing p on p.destination_id = any (array[n.id])
        where d.epoch = n.epoch and p.xmin::text::bigint = n.version
        order by n.id
        for no key update of d, p skip locked";

/// What was written.
#[derive(Default)]
pub(super) struct Written {
    /// Of these destinations.
    pub(super) destinations: HashSet<Uuid>,
    /// What has a permit.
    pub(super) marked: HashSet<AttemptId>,
}

/// Like the admission that locks it does not wait for the disk; `set_config` says so of this
/// statement's own transaction, also where nothing is written: the locks alone make a commit
/// that would wait, and hold the destination as long. So it is asked for a row whether there
/// are others or not. Where some of the picks were gone the cursor stays: it would
/// have to stop at the first of those.
fn text() -> String {
    let locked = LOCKED;
    let ours = "\n        join locked l on l.id = n.destination_id";
    let picked = picked(ours);
    let cursor = "case
                when (select count(*) from marked m where m.destination_id = n.id) = l.picks
                then n.first_after
                else l.first_after
            end";
    let remembered = remembered(
        (NOTES + 1, PICKS_BOUND),
        cursor,
        "\n        join locked l on l.id = n.id",
    );
    format!(
        "-- admit: write_unlocked
    with unflushed as materialized (select set_config('synchronous_commit', 'off', true)),
    locked as materialized ({locked}),
    picked as materialized ({picked}),
    marked as ({MARKED}),
    remembered as ({remembered})
    select l.id, array(select m.id from marked m where m.destination_id = l.id)
    from unflushed left join locked l on true"
    )
}

/// Writes those plans of whose destinations nothing has changed since they were read.
pub(super) async fn write(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<Written, Failure> {
    let picks = |plan: &Plan| i64::try_from(plan.decided.permits.len()).unwrap_or(i64::MAX);
    let statement = (Picks::of(plans).bound_to(text(), now))
        .bind(of(plans, |plan| plan.read.candidate.destination.0))
        .bind(of(plans, |plan| plan.read.candidate.epoch.0))
        .bind(of(plans, |plan| plan.read.version))
        .bind(of(plans, picks));
    let rows: Vec<(Option<Uuid>, Vec<i64>)> =
        bind_notes(statement, plans, |plan| plan.cursor(&plan.picked(), now))
            .fetch_all(connection)
            .await?;
    let mut written = Written::default();
    for (destination, marked) in rows {
        // Of a row without a destination nothing is marked.
        written.destinations.extend(destination);
        written.marked.extend(marked.into_iter().map(AttemptId));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is bound is counted, so no number may be left out.
    #[test]
    fn all_that_is_bound_is_asked_for() {
        let text = text();
        let is_asked = |number: usize| {
            let asked = format!("${number}::");
            text.contains(&asked) || text.contains(&format!("(${number})"))
        };
        for number in 1..=NOTES + 7 {
            assert!(is_asked(number), "${number} in {text}");
        }
        assert!(!is_asked(NOTES + 8), "{text}");
    }
}

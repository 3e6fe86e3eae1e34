//! Scheduler runs: lock, then read, then let the domain decide, then mark.
//!
//! The lock and the reading are two statements. In one, the reading would be
//! of the snapshot from before the lock, and two schedulers that met would
//! both admit the same free places. Members of limit groups lock these as well, in between.

use std::collections::{HashMap, HashSet};

use domain::admission::round;
use domain::ids::DestinationId;
use domain::share::Room;
use engine::ports::{Admitted, Run, RunResult};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::connect::BEGIN_UNFLUSHED;
use super::destinations::{Found, Known, lock, read_destinations};
use super::failure::Failure;
use super::limit_group;
use super::mark::{fold_starts, mark};
use super::plan::{Plan, Read};
use super::usage::{self, Question};

/// One batch of runs.
///
/// It does not wait for the disk. A server that crashes may forget an admission, with
/// its permits still on their way: their rows wait again, so the claim refuses them. And
/// a claim does wait: in the order of the log its admission comes first, so what has
/// started keeps its permit, its meter and its cursor.
pub(super) async fn admit(pool: &PgPool, runs: &[Run], room: &Room) -> Result<Admitted, Failure> {
    let ids: Vec<Uuid> = runs.iter().map(|run| run.destination.0).collect();
    let mut transaction = pool.begin_with(BEGIN_UNFLUSHED).await?;
    let locked = lock(&mut transaction, &ids).await?;
    let known = read_destinations(&mut transaction, &ids).await?;
    let reads = read_runs(&mut transaction, runs, &locked, &known).await?;
    let Known { now, found, .. } = known;
    let round = round(room, reads.iter().map(|read| &read.candidate), now);
    let plans: Vec<Plan> = (reads.into_iter().zip(round.decided))
        .map(|(read, decided)| Plan { read, decided })
        .collect();
    let marked = mark(&mut transaction, &plans, now).await?;
    fold_starts(&mut transaction, &plans).await?;
    transaction.commit().await?;

    let mut decided: HashMap<DestinationId, RunResult> = (plans.into_iter())
        .map(|plan| (plan.read.candidate.destination, plan.result(&marked, now)))
        .collect();
    let result = |run: &Run| match decided.remove(&run.destination) {
        Some(result) => result,
        // Somebody else's lock, of it or of its group; or it is in the batch twice.
        None if locked.contains(&run.destination.0) => gone_or_skipped(&found, run),
        None if found.contains_key(&run.destination) => RunResult::Skipped,
        None => RunResult::Gone,
    };
    Ok(Admitted {
        now,
        results: runs.iter().map(result).collect(),
        given: round.given,
    })
}

fn gone_or_skipped(found: &HashMap<DestinationId, Found>, run: &Run) -> RunResult {
    match found.get(&run.destination) {
        Some(destination) if destination.deleted => RunResult::Gone,
        _ => RunResult::Skipped,
    }
}

/// Those that are locked and there, with what is used of their limits; of members of a
/// limit group those whose group is locked as well.
async fn read_runs(
    connection: &mut PgConnection,
    runs: &[Run],
    locked: &HashSet<Uuid>,
    known: &Known,
) -> Result<Vec<Read>, Failure> {
    let admitting = || {
        let found = known.found.values();
        found.filter(|one| locked.contains(&one.id.0) && !one.deleted)
    };
    let group_locks = limit_group::lock(connection, admitting()).await?;
    let ours: HashMap<DestinationId, &Found> = admitting()
        .filter(|one| match &one.limit_group {
            Some(name) => group_locks.contains(&(one.tenant, name.clone())),
            None => true,
        })
        .map(|one| (one.id, one))
        .collect();
    let asked_at = (known.now, known.open);
    let groups = limit_group::read(connection, ours.values().copied(), asked_at).await?;
    let mut once = HashSet::new();
    let ours: Vec<(&Run, &Found)> = (runs.iter())
        .filter(|run| once.insert(run.destination))
        .filter_map(|run| Some((run, *ours.get(&run.destination)?)))
        .collect();
    let questions: Vec<Question<'_>> = (ours.iter())
        .map(|(_, destination)| Question::of(destination, &groups))
        .collect();
    let mut readings = usage::read(connection, &questions, asked_at).await?;
    Ok((ours.into_iter())
        .filter_map(|(run, destination)| {
            let reading = readings.remove(&destination.id)?;
            Some(Read::of(run, destination, reading))
        })
        .collect())
}

//! Scheduler runs: read, let the domain decide, and mark, where nothing has changed between.
//!
//! Whatever decides what may start is on the destination's row or its pacing's: another
//! run writes the one, a change of limits one of the two. So the statement that marks locks
//! both and compares their versions, and who is not as it was read is left alone. Two
//! schedulers that met would both admit the same free places else.
//!
//! Some need their locks first, and then they are read in another statement: in one, the
//! reading would be of the snapshot from before the lock. Members of limit groups lock these
//! as well, in between.

use std::collections::{HashMap, HashSet};

use domain::admission::round;
use domain::ids::{AttemptId, DestinationId};
use domain::share::{Given, Room};
use domain::time::Timestamp;
use engine::ports::{Admitted, Run, RunResult};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::connect::BEGIN_UNFLUSHED;
use super::destinations::{Found, Known, lock, read_destinations};
use super::failure::Failure;
use super::limit_group;
use super::mark::{fold_starts, mark, mark_unchanged};
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
    match unlocked(pool, (runs, &ids), room).await? {
        Some(admitted) => Ok(admitted),
        None => locked(pool, (runs, &ids), room).await,
    }
}

/// Reads, decides, and then writes of those of which nothing has changed meanwhile: three
/// statements, and nobody waits while it is decided. `None` if any of them needs a lock for
/// longer: members of groups, those that run for the first time, and those of which starts
/// have to be folded. Then all of the batch have it, for they share what there is room for.
async fn unlocked(
    pool: &PgPool,
    (runs, ids): (&[Run], &[Uuid]),
    room: &Room,
) -> Result<Option<Admitted>, Failure> {
    let mut connection = pool.acquire().await?;
    let known = read_destinations(&mut connection, ids).await?;
    let needs_locks = |one: &Found| one.limit_group.is_some() || one.versions.1.is_none();
    if known.found.values().any(needs_locks) {
        return Ok(None);
    }
    let all: HashSet<Uuid> = ids.iter().copied().collect();
    let reads = read_runs(&mut connection, runs, &all, &known).await?;
    let (plans, _) = decide(room, reads, known.now);
    if plans.iter().any(|plan| !plan.to_fold().is_empty()) {
        return Ok(None);
    }
    let (unchanged, marked) = mark_unchanged(&mut connection, &plans, known.now).await?;
    let changed = |plan: &Plan| !unchanged.contains(&plan.read.candidate.destination);
    let plans: Vec<Plan> = plans.into_iter().filter(|plan| !changed(plan)).collect();
    let given = Given::by_tenant(plans.iter().map(Plan::given));
    Ok(Some(Admitted {
        now: known.now,
        results: results(runs, plans, &marked, &known),
        given,
    }))
}

/// Locks, reads, decides, and writes.
async fn locked(
    pool: &PgPool,
    (runs, ids): (&[Run], &[Uuid]),
    room: &Room,
) -> Result<Admitted, Failure> {
    let mut transaction = pool.begin_with(BEGIN_UNFLUSHED).await?;
    let locked = lock(&mut transaction, ids).await?;
    let known = read_destinations(&mut transaction, ids).await?;
    let reads = read_runs(&mut transaction, runs, &locked, &known).await?;
    let (plans, given) = decide(room, reads, known.now);
    let marked = mark(&mut transaction, &plans, known.now).await?;
    fold_starts(&mut transaction, &plans).await?;
    transaction.commit().await?;
    Ok(Admitted {
        now: known.now,
        results: results(runs, plans, &marked, &known),
        given,
    })
}

fn decide(room: &Room, reads: Vec<Read>, now: Timestamp) -> (Vec<Plan>, Vec<Given>) {
    let round = round(room, reads.iter().map(|read| &read.candidate), now);
    let plans = (reads.into_iter().zip(round.decided))
        .map(|(read, decided)| Plan { read, decided })
        .collect();
    (plans, round.given)
}

/// What became of each run.
fn results(
    runs: &[Run],
    plans: Vec<Plan>,
    marked: &HashSet<AttemptId>,
    known: &Known,
) -> Vec<RunResult> {
    let mut decided: HashMap<DestinationId, RunResult> = (plans.into_iter())
        .map(|plan| {
            (
                plan.read.candidate.destination,
                plan.result(marked, known.now),
            )
        })
        .collect();
    let result = |run: &Run| match decided.remove(&run.destination) {
        Some(result) => result,
        None => match known.found.get(&run.destination) {
            // Somebody else's lock or change, of it or of its group; or it is in the batch
            // twice.
            Some(destination) if !destination.deleted => RunResult::Skipped,
            _ => RunResult::Gone,
        },
    };
    runs.iter().map(result).collect()
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

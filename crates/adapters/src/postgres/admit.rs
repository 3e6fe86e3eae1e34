//! Scheduler runs: read, let the domain decide, mark.
//!
//! Many at once lock first. The lock and the reading are two statements: in one, the
//! reading would be of the snapshot from before the lock, and two schedulers that met would
//! both admit the same free places. Members of limit groups lock these as well, in between.
//!
//! Few at once read without a lock, and the one statement that writes locks and asks
//! whether all is as it was read ([`unlocked`]): three statements instead of seven, which a
//! lone event would wait for. Where that cannot be asked they lock, too; and so do, at once,
//! those of which something has changed meanwhile, so that one that is written often waits
//! no longer than others.

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
use super::mark::{fold_starts, mark_admitted, remember};
use super::plan::{Plan, Read};
use super::unlocked;
use super::usage::{self, Question};

/// Runs that are read without a lock, at most: none yet. With eight a lone event is six
/// statements, and no limit breaks; but beside others a run is not as if it had been alone
/// (`bridge_store::postgres_answers_many_callers_as_sqlite_does_in_some_order`).
const MOST_UNLOCKED: usize = 0;

/// One batch of runs.
///
/// It does not wait for the disk. A server that crashes may forget an admission, with
/// its permits still on their way: their rows wait again, so the claim refuses them. And
/// a claim does wait: in the order of the log its admission comes first, so what has
/// started keeps its permit, its meter and its cursor.
pub(super) async fn admit(pool: &PgPool, runs: &[Run], room: &Room) -> Result<Admitted, Failure> {
    // Of none the way with the lock is gone: a scheduler that begins makes its statements ready.
    if !runs.is_empty()
        && runs.get(MOST_UNLOCKED).is_none()
        && let Some((done, changed)) = admit_unlocked(pool, runs, room).await?
    {
        let mut admitted = done.admitted(runs);
        if !changed.is_empty() {
            let mut left = room.clone();
            left.add(&admitted.given);
            let again = admit_locked(pool, &changed, &left)
                .await?
                .admitted(&changed);
            put_in(&mut admitted, runs, again, &changed);
        }
        return Ok(admitted);
    }
    let done = admit_locked(pool, runs, room).await?;
    Ok(done.admitted(runs))
}

/// Puts what became of those that `changed` where they are among all.
fn put_in(admitted: &mut Admitted, runs: &[Run], again: Admitted, changed: &[Run]) {
    let destinations = changed.iter().map(|run| run.destination);
    let mut results: HashMap<DestinationId, RunResult> = destinations.zip(again.results).collect();
    for (run, result) in runs.iter().zip(&mut admitted.results) {
        // Of one that is there twice the first was planned.
        if let Some(again) = results.remove(&run.destination) {
            *result = again;
        }
    }
    let given = admitted.given.iter().chain(&again.given);
    admitted.given = Given::by_tenant(given.map(|one| (one.tenant, one.permits)));
    admitted.now = again.now;
}

fn ids(runs: &[Run]) -> Vec<Uuid> {
    runs.iter().map(|run| run.destination.0).collect()
}

async fn admit_locked(pool: &PgPool, runs: &[Run], room: &Room) -> Result<Done, Failure> {
    let ids = ids(runs);
    let mut transaction = pool.begin_with(BEGIN_UNFLUSHED).await?;
    let locked = lock(&mut transaction, &ids).await?;
    let known = read_destinations(&mut transaction, &ids).await?;
    let reads = read_runs(&mut transaction, runs, &locked, &known).await?;
    let Known { now, found, .. } = known;
    let plans = decided(reads, room, now);
    let marked = mark_admitted(&mut transaction, &plans, now).await?;
    remember(&mut transaction, &plans, &marked, now).await?;
    fold_starts(&mut transaction, &plans).await?;
    transaction.commit().await?;
    Ok(Done {
        now,
        plans,
        marked,
        locked,
        found,
    })
}

/// What is written, and the runs of which something had changed. None where all take a lock:
/// the first run of a destination, those of members of limit groups, and what has starts to
/// be folded.
///
/// It is one connection from the first read to the write. A server that crashed in between
/// may have forgotten versions and give them again, and would have ended it.
async fn admit_unlocked(
    pool: &PgPool,
    runs: &[Run],
    room: &Room,
) -> Result<Option<(Done, Vec<Run>)>, Failure> {
    let ids = ids(runs);
    let mut connection = pool.acquire().await?;
    let known = read_destinations(&mut connection, &ids).await?;
    if !known.found.values().all(Found::is_known_by_its_version) {
        return Ok(None);
    }
    let all: HashSet<Uuid> = ids.into_iter().collect();
    let reads = read_runs(&mut connection, runs, &all, &known).await?;
    let Known { now, found, .. } = known;
    let plans = decided(reads, room, now);
    if plans.iter().any(|plan| !plan.to_fold().is_empty()) {
        return Ok(None);
    }
    let written = unlocked::write(&mut connection, &plans, now).await?;
    let is_written = |plan: &Plan| {
        let destination = plan.read.candidate.destination.0;
        written.destinations.contains(&destination)
    };
    let (plans, changed): (Vec<Plan>, Vec<Plan>) = plans.into_iter().partition(is_written);
    let done = Done {
        now,
        plans,
        marked: written.marked,
        locked: all,
        found,
    };
    Ok(Some((done, changed.iter().map(Plan::run).collect())))
}

/// What the domain decides.
fn decided(reads: Vec<Read>, room: &Room, now: Timestamp) -> Vec<Plan> {
    let round = round(room, reads.iter().map(|read| &read.candidate), now);
    (reads.into_iter().zip(round.decided))
        .map(|(read, decided)| Plan { read, decided })
        .collect()
}

/// A batch that is written.
struct Done {
    now: Timestamp,
    plans: Vec<Plan>,
    marked: HashSet<AttemptId>,
    /// Which of them are known to be as they were found.
    locked: HashSet<Uuid>,
    found: HashMap<DestinationId, Found>,
}

impl Done {
    fn admitted(self, runs: &[Run]) -> Admitted {
        let (now, marked) = (self.now, self.marked);
        let given = Given::by_tenant(self.plans.iter().map(Plan::given));
        let mut decided: HashMap<DestinationId, RunResult> = (self.plans.into_iter())
            .map(|plan| (plan.read.candidate.destination, plan.result(&marked, now)))
            .collect();
        let left = |run: &Run| match self.found.get(&run.destination) {
            Some(one) if one.deleted && self.locked.contains(&one.id.0) => RunResult::Gone,
            // Somebody has its row or its group's; or it is in the batch twice.
            Some(_) => RunResult::Skipped,
            None => RunResult::Gone,
        };
        let result = |run: &Run| (decided.remove(&run.destination)).unwrap_or_else(|| left(run));
        Admitted {
            now,
            results: runs.iter().map(result).collect(),
            given,
        }
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

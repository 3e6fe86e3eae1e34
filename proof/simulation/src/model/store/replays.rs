//! Replays: dead letters that become waiting attempts again.

use std::ops::Bound::{Excluded, Unbounded};

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::ids::{AttemptId, DestinationId, ReplayId, TenantId};
use domain::policy::Rate;
use domain::replay::{ReplayState, Step, step};
use domain::time::Timestamp;
use engine::ports::{
    Advanced, CatalogError, DeadLetterFilter, MAX_COUNTED, MAX_EXAMINED, NewReplay, Replay,
    ReplayProgress, Wakes, Which,
};

use super::backlog::own;
use super::dead_letters::matches;
use super::record::add_try;
use super::rows::{Attempt, Rows};

/// A replay's row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReplayRow {
    tenant: TenantId,
    destination: DestinationId,
    one: Option<AttemptId>,
    filter: DeadLetterFilter,
    share: f64,
    state: ReplayState,
    total: u64,
    done: u64,
    after: (Timestamp, AttemptId),
    paced_at: Option<Timestamp>,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
}

impl ReplayRow {
    /// Whose dead letters.
    pub(super) fn destination(&self) -> DestinationId {
        self.destination
    }

    /// When it was over.
    pub(super) fn finished_at(&self) -> Option<Timestamp> {
        self.finished_at
    }
}

/// Begins one; see [`engine::ports::Backlog::create_replay`].
pub(super) fn create(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    new: &NewReplay,
) -> Result<Replay, CatalogError> {
    let gone = CatalogError::NotFound("dead letter");
    let (one, destination, mut filter) = match &new.which {
        Which::One(attempt) => {
            let row = rows.ledger.get(*attempt);
            let row = row.filter(|row| row.is_open_dead_letter()).ok_or(gone)?;
            (Some(*attempt), row.destination, DeadLetterFilter::default())
        }
        Which::Matching(destination, filter) => (None, *destination, filter.clone()),
    };
    own(rows, tenant, destination).map_err(|error| match one {
        Some(_) => CatalogError::NotFound("dead letter"),
        None => error,
    })?;
    if one.is_none() {
        filter.died_before = Some(filter.died_before.unwrap_or(now).min(now));
    }
    let row = ReplayRow {
        tenant,
        destination,
        one,
        filter,
        share: new.share,
        state: ReplayState::Running,
        total: 0,
        done: 0,
        after: (Timestamp::MIN, AttemptId(0)),
        paced_at: None,
        created_at: now,
        finished_at: None,
    };
    let matching = left(rows, &row).filter(|(_, _, matches)| *matches);
    let total = matching.take(MAX_COUNTED as usize).count() as u64;
    rows.replays.insert(new.id, ReplayRow { total, ..row });
    read(rows, tenant, new.id)
}

/// The dead letters that a replay has yet to look at, and whether they match.
fn left<'a>(
    rows: &'a Rows,
    replay: &'a ReplayRow,
) -> impl Iterator<Item = (Timestamp, AttemptId, bool)> + 'a {
    let dead = rows.ledger.indexes(replay.destination).into_iter();
    let dead = dead.flat_map(|of| of.dead.range((Excluded(replay.after), Unbounded)));
    let in_time = |died: Timestamp| {
        let filter = &replay.filter;
        filter.died_from.is_none_or(|from| died >= from)
            && filter.died_before.is_none_or(|before| died < before)
    };
    dead.filter(move |(died, _)| in_time(*died))
        .filter_map(move |(died, id)| {
            let row = rows.ledger.get(*id)?;
            let wanted = replay.one.is_none_or(|one| one == *id);
            Some((*died, *id, wanted && matches(rows, row, &replay.filter)))
        })
}

/// Whether a replay that runs may still come to this dead letter.
pub(super) fn awaits(rows: &Rows, died: Timestamp, id: AttemptId) -> bool {
    let of = rows.ledger.get(id).map(|row| row.destination);
    rows.replays.values().any(|replay| {
        let filter = &replay.filter;
        replay.state == ReplayState::Running
            && Some(replay.destination) == of
            && replay.one.is_none_or(|one| one == id)
            && filter.died_from.is_none_or(|from| died >= from)
            && filter.died_before.is_none_or(|before| died < before)
    })
}

/// Reads one; see [`engine::ports::Backlog::replay`].
pub(super) fn read(rows: &Rows, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError> {
    let row = rows.replays.get(&id).filter(|row| row.tenant == tenant);
    let row = row.ok_or(CatalogError::NotFound("replay"))?;
    let of = |states: &[AttemptState]| {
        let attempts = rows.ledger.attempts_of(row.destination);
        let ours = attempts.filter(|one| one.replay == Some(id.0) && states.contains(&one.state));
        ours.count() as u64
    };
    use AttemptState::{Admitted, Expired, Failed, Started, Succeeded, Unknown, Waiting};
    Ok(Replay {
        progress: row.progress(id),
        pending: of(&[Waiting, Admitted, Started]),
        succeeded: of(&[Succeeded]),
        failed: of(&[Failed, Unknown, Expired]),
    })
}

/// Reads a page; see [`engine::ports::Backlog::replays`].
pub(super) fn page(
    rows: &Rows,
    tenant: TenantId,
    after: Option<ReplayId>,
    limit: u32,
) -> Vec<ReplayProgress> {
    let newest_first = rows.replays.iter().rev();
    newest_first
        .filter(|(id, row)| row.tenant == tenant && after.is_none_or(|after| **id < after))
        .take(limit as usize)
        .map(|(id, row)| row.progress(*id))
        .collect()
}

impl ReplayRow {
    fn progress(&self, id: ReplayId) -> ReplayProgress {
        ReplayProgress {
            id,
            destination: self.destination,
            share: self.share,
            state: self.state,
            total: self.total,
            done: self.done,
            created_at: self.created_at,
            finished_at: self.finished_at,
        }
    }
}

/// Ends one; see [`engine::ports::Backlog::cancel_replay`].
pub(super) fn cancel(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    id: ReplayId,
) -> Result<Replay, CatalogError> {
    read(rows, tenant, id)?;
    end(rows, now, id, ReplayState::Cancelled);
    read(rows, tenant, id)
}

fn end(rows: &mut Rows, now: Timestamp, id: ReplayId, state: ReplayState) {
    let row = rows.replays.get_mut(&id);
    if let Some(row) = row.filter(|row| row.state == ReplayState::Running) {
        row.state = state;
        row.finished_at = Some(now);
    }
}

/// One step of each; see [`engine::ports::Replays::advance_replays`].
pub(super) fn advance(rows: &mut Rows, now: Timestamp, limit: u32) -> Advanced {
    let running = rows.replays.iter();
    let mut running: Vec<_> = running
        .filter(|(_, row)| row.state == ReplayState::Running)
        .map(|(id, row)| (row.paced_at, *id))
        .collect();
    running.sort_unstable();
    running.truncate(limit as usize);
    let mut wakes = Wakes::default();
    let mut advanced = Advanced::default();
    for (_, id) in running {
        let Some(step) = next_step(rows, now, id) else {
            end(rows, now, id, ReplayState::Cancelled);
            continue;
        };
        let (moved, all) = take(rows, now, id, step);
        advanced.replayed += moved;
        if let Some(row) = rows.replays.get(&id).filter(|_| moved > 0) {
            wakes.now(row.destination);
        }
        match all {
            true => end(rows, now, id, ReplayState::Completed),
            false => advanced.running += 1,
        }
    }
    advanced.wakes = wakes.into_vec();
    advanced
}

/// What a replay may move now; `None` if its destination is gone.
fn next_step(rows: &Rows, now: Timestamp, id: ReplayId) -> Option<Step> {
    let replay = rows.replays.get(&id)?;
    let destination = rows.living(replay.destination)?;
    let mut policy = rows.effective(destination).policy();
    if destination.state != DestinationState::Active {
        policy.rate = Rate::Paused;
    }
    let indexes = rows.ledger.indexes(replay.destination)?;
    let due = indexes.due.iter().map(|(_, id)| *id);
    let admitted = indexes.admitted.iter().map(|(_, _, id)| *id);
    let ours = |attempt: &AttemptId| {
        let row = rows.ledger.get(*attempt);
        row.is_some_and(|row| row.replay == Some(id.0))
    };
    let waiting = due.chain(admitted).filter(ours).count();
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
    Some(step(&policy, replay.share, replay.paced_at, waiting, now))
}

/// Moves what the step allows; how many, and whether nothing is left.
fn take(rows: &mut Rows, now: Timestamp, id: ReplayId, step: Step) -> (u32, bool) {
    let Some(replay) = rows.replays.get(&id).cloned() else {
        return (0, true);
    };
    let (mut moved, mut all, mut after) = (0, false, replay.after);
    if step.count > 0 {
        let examined: Vec<_> = left(rows, &replay).take(MAX_EXAMINED as usize).collect();
        all = examined.len() < MAX_EXAMINED as usize;
        for (died, attempt, matches) in examined {
            if moved >= step.count {
                all = false;
                break;
            }
            after = (died, attempt);
            if matches {
                put_back(rows, now, id, attempt);
                moved += 1;
            }
        }
    }
    if let Some(row) = rows.replays.get_mut(&id) {
        row.after = after;
        row.done += u64::from(moved);
        row.paced_at = Some(step.paced_at(moved));
    }
    (moved, all)
}

/// A dead letter becomes a waiting attempt.
fn put_back(rows: &mut Rows, now: Timestamp, id: ReplayId, dead: AttemptId) {
    let Some(old) = rows.ledger.get(dead).cloned() else {
        return;
    };
    let destination = rows.destinations.get(&old.destination);
    let max_age = destination.and_then(|row| row.max_age);
    rows.ledger
        .change(now, dead, |row| row.replayed_at = Some(now));
    let next = Attempt {
        try_number: old.try_number.saturating_add(1),
        tries_before: old.try_number,
        due_at: Some(now),
        replay: Some(id.0),
        expires_at: max_age.map(|age| now + age),
        payload_bytes: old.payload_bytes,
        ..Attempt::waiting(old.event, old.destination, now)
    };
    add_try(rows, now, next);
}

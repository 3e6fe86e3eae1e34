//! Outcomes of many attempts in one commit, until they are recorded.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use domain::batch::MAX_EVENTS;
use domain::health::DisabledSoon;
use domain::ids::WorkerId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::patient::{Handed, Patient};
use crate::backoff::Backoff;
use crate::ports::{HealthChange, HealthEvent, MAX_ROWS, Outcome, Schedule, Store, StoreError};
use crate::wake::wake_all;

/// Hands in outcomes. Clones share the commit.
#[derive(Clone)]
pub(super) struct Records {
    outcomes: mpsc::Sender<Together>,
    /// What the channel holds is bounded by outcomes, not by messages.
    room: Arc<Semaphore>,
}

/// The outcomes of one request: of a batch, those of all its events. They are
/// recorded in one commit, so that what comes back comes back together.
struct Together {
    worker: WorkerId,
    outcomes: Vec<Outcome>,
    _room: OwnedSemaphorePermit,
}

const _: () = assert!(
    MAX_EVENTS as usize <= MAX_ROWS,
    "a batch fits into one commit"
);

struct Loop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    outcomes: mpsc::Receiver<Together>,
    /// What was taken and does not fit into the commit before it.
    next: Option<Together>,
    /// Commits that failed. Each waits by itself, so that one which fails for ever
    /// does not hold up what others have sent meanwhile.
    failed: Vec<Failed>,
    /// Outcomes whose rows somebody else had locked. They wait by themselves,
    /// so that one row that stays locked does not hold up all the others.
    locked: Vec<Handed>,
    locked_until: Instant,
    locks: Backoff,
    /// Outcomes of requests that hung: nobody waits for them.
    patient: Patient,
}

/// Outcomes of one commit that failed, and when it is tried again.
struct Failed {
    outcomes: Vec<Handed>,
    until: Instant,
    pauses: Backoff,
}

/// As many outcomes as this, in failed commits or of locked rows, and nothing more is
/// taken: a store that is away must not fill the memory.
const MAX_WAITING: usize = 4 * MAX_ROWS;

/// The first and the longest pause before a commit that failed is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Records {
    /// Starts the loop; it ends when the last clone is dropped and all is
    /// recorded. As many outcomes as `places`, or as fit into one commit, may
    /// wait; then senders wait too.
    pub(super) fn spawn(
        tasks: &mut JoinSet<()>,
        store: Arc<dyn Store>,
        schedule: Arc<dyn Schedule>,
        places: u32,
    ) -> Self {
        let (sender, outcomes) = mpsc::channel(places as usize);
        let back = Loop {
            store,
            schedule,
            outcomes,
            next: None,
            failed: Vec::new(),
            locked: Vec::new(),
            locked_until: Instant::now(),
            locks: Backoff::new(PAUSES.0, PAUSES.1),
            patient: Patient::default(),
        };
        tasks.spawn(back.run());
        let room = (places as usize).max(MAX_ROWS);
        Self {
            outcomes: sender,
            room: Arc::new(Semaphore::new(room)),
        }
    }

    /// Hands in the outcomes of one request; they will be recorded unless the
    /// process dies.
    pub(super) async fn record(&self, worker: WorkerId, outcomes: Vec<Outcome>) {
        let weight = u32::try_from(outcomes.len()).unwrap_or(MAX_EVENTS);
        let room = Arc::clone(&self.room).acquire_many_owned(weight).await;
        let Ok(room) = room else {
            return;
        };
        let together = Together {
            worker,
            outcomes,
            _room: room,
        };
        // The loop outlives every sender.
        let _ = self.outcomes.send(together).await;
    }
}

impl Loop {
    async fn run(mut self) {
        let mut open = true;
        loop {
            let mut batch = Vec::new();
            let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
            let room = self.room();
            tokio::select! {
                biased;
                () = sleep_until(self.locked_until), if !self.locked.is_empty() => {
                    batch = std::mem::take(&mut self.locked);
                }
                failed = first_due(&mut self.failed), if !self.failed.is_empty() => {
                    (batch, pauses) = (failed.outcomes, failed.pauses);
                }
                () = self.patient.over(), if !self.patient.is_empty() => {
                    batch = self.patient.take();
                }
                taken = next(&mut self.next, &mut self.outcomes), if open && room > 0 => {
                    open = taken.is_some();
                    self.fill(&mut batch, taken, room);
                    if !open {
                        self.patient.hurry();
                    }
                }
                else => return,
            }
            let outcomes = self.tick(batch).await;
            if !outcomes.is_empty() {
                let until = Instant::now() + pauses.failed();
                self.failed.push(Failed {
                    outcomes,
                    until,
                    pauses,
                });
            }
        }
    }

    /// How many outcomes the next commit may take.
    fn room(&self) -> usize {
        let failed: usize = self.failed.iter().map(|one| one.outcomes.len()).sum();
        let waiting = self.locked.len() + failed;
        match waiting < MAX_WAITING {
            true => MAX_ROWS.saturating_sub(self.locked.len()),
            false => 0,
        }
    }

    /// What is one commit each, the last first.
    fn apart(&self, outcomes: Vec<Outcome>) -> [Vec<Outcome>; 2] {
        match self.store.plain_outcomes_apart() {
            true => plain_apart(outcomes),
            false => [Vec::new(), outcomes],
        }
    }

    /// What was taken, and what else is there and fits.
    fn fill(&mut self, batch: &mut Vec<Handed>, mut taken: Option<Together>, room: usize) {
        while let Some(together) = taken {
            // The first goes in any case: it waits for nobody.
            if !batch.is_empty() && batch.len() + together.outcomes.len() > room {
                self.next = Some(together);
                return;
            }
            let worker = together.worker;
            let outcomes = together.outcomes.into_iter().map(|one| (worker, one));
            batch.extend(self.patient.sift(outcomes.collect()));
            taken = self.outcomes.try_recv().ok();
        }
    }

    /// One commit per identity, or two: one that failed must not make a hundred
    /// that succeeded go its long way. Returns what the store did not answer for:
    /// it is recorded again, and recording twice changes nothing.
    async fn tick(&mut self, batch: Vec<Handed>) -> Vec<Handed> {
        let waited = !self.locked.is_empty();
        let mut by_worker: BTreeMap<WorkerId, Vec<Outcome>> = BTreeMap::new();
        for (worker, outcome) in batch {
            by_worker.entry(worker).or_default().push(outcome);
        }
        let mut again = Vec::new();
        let mut commits: Vec<_> = (by_worker.into_iter().rev())
            .flat_map(|(worker, outcomes)| self.apart(outcomes).map(|part| (worker, part)))
            .filter(|(_, part)| !part.is_empty())
            .collect();
        while let Some((worker, outcomes)) = commits.pop() {
            match self.store.record_outcomes(worker, &outcomes).await {
                Ok(recorded) => {
                    let skipped: HashSet<_> = recorded.skipped.into_iter().collect();
                    let locked = (outcomes.into_iter())
                        .filter(|outcome| skipped.contains(&outcome.attempt))
                        .map(|outcome| (worker, outcome));
                    self.locked.extend(locked);
                    recorded.health.iter().for_each(tell);
                    wake_all(self.schedule.as_ref(), &recorded.wakes).await;
                }
                // One of them is to blame, and must not hold up the others.
                Err(StoreError::Corrupt { .. } | StoreError::Refused(_)) if outcomes.len() > 1 => {
                    let mut first = outcomes;
                    let second = first.split_off(first.len() / 2);
                    commits.extend([(worker, second), (worker, first)]);
                }
                Err(error @ (StoreError::Corrupt { .. } | StoreError::Refused(_))) => {
                    commits.extend(without_answer(&outcomes, &error).map(|one| (worker, one)));
                }
                Err(
                    error @ (StoreError::Unavailable(_)
                    | StoreError::TooSlow(_)
                    | StoreError::Lost(_)),
                ) => {
                    tracing::warn!(%error, outcomes = outcomes.len(), "not recorded yet");
                    again.extend(outcomes.into_iter().map(|outcome| (worker, outcome)));
                }
            }
        }
        match (waited, self.locked.is_empty()) {
            (false, true) => self.locks.succeeded(),
            (false, false) => self.locked_until = Instant::now() + self.locks.failed(),
            (true, _) => {}
        }
        again
    }
}

/// Of destinations of which something follows, and of the others. All of one
/// destination together: its answers are judged in their order, and what comes
/// back of a batch comes back together.
fn plain_apart(outcomes: Vec<Outcome>) -> [Vec<Outcome>; 2] {
    let remarkable: HashSet<_> = (outcomes.iter())
        .filter(|outcome| !outcome.is_plain())
        .map(|outcome| outcome.destination)
        .collect();
    let is_remarkable = |one: &Outcome| remarkable.contains(&one.destination);
    let (others, plain) = outcomes.into_iter().partition(is_remarkable);
    [others, plain]
}

/// What is recorded of an outcome that the store refuses, if anything.
fn without_answer(refused: &[Outcome], error: &StoreError) -> Option<Vec<Outcome>> {
    let plain: Vec<_> = refused.iter().filter_map(Outcome::without_answer).collect();
    if matches!(error, StoreError::Refused(_)) && !plain.is_empty() {
        tracing::error!(%error, "outcome recorded without what the receiver answered");
        return Some(plain);
    }
    tracing::error!(%error, "outcome given up: its start becomes unknown");
    None
}

/// The failed commit that is due first, when it is. Nothing is lost if it is dropped.
async fn first_due(failed: &mut Vec<Failed>) -> Failed {
    let first = (0..failed.len()).min_by_key(|at| failed[*at].until);
    match first {
        Some(first) => {
            sleep_until(failed[first].until).await;
            failed.swap_remove(first)
        }
        None => std::future::pending().await,
    }
}

/// What was left over, or else what comes. Nothing is lost if it is dropped.
async fn next(
    left: &mut Option<Together>,
    outcomes: &mut mpsc::Receiver<Together>,
) -> Option<Together> {
    match left.take() {
        Some(left) => Some(left),
        None => outcomes.recv().await,
    }
}

/// Operators are told by the log too.
fn tell(change: &HealthChange) {
    let (destination, event) = (change.destination, change.what.as_str());
    metrics::counter!("paceline_health_changes_total", "event" => event).increment(1);
    match change.what {
        HealthEvent::BreakerOpened => {
            tracing::warn!(%destination, event, "breaker open: the backlog is held");
        }
        HealthEvent::BreakerClosed => {
            tracing::info!(%destination, event, "breaker closed: the backlog drains");
        }
        HealthEvent::DisabledSoon(DisabledSoon { percent, .. }) => {
            tracing::warn!(%destination, event, percent, "it fails on, and will be disabled");
        }
        HealthEvent::Disabled(reason) => {
            tracing::error!(%destination, event, %reason, "destination disabled");
        }
    }
}

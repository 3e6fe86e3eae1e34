//! Backpressure in one process: what the store last counted, what this process
//! has accepted since, and the loop that asks.
//!
//! Nobody asks the store on an event's way in. What is on its way in, and what
//! other processes have accepted since the count, is not known here: by so much
//! a mark may be passed.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::backpressure::{
    BacklogBounds, Backlogged, CountPace, FIRST_RETRY_AFTER, MIN_RETRY_AFTER, Standing,
    is_meant_by_all, low_mark, noted_mark, refuses,
};
use domain::event::NewEvent;
use domain::ids::{DestinationId, TenantId};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::ports::{self, Counted};

/// How often the store is asked: it says what the last count said, and counts
/// when that is due.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// What was accepted before is forgotten, though no count has come since: a
/// store that cannot count must not make us refuse for ever.
const REMEMBERED: Duration = Duration::from_secs(1_800);

/// In how many slices what was accepted between two counts is kept, about.
const SLICES: u32 = 8;

/// An event is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Whose backlog is too long.
    pub whose: Backlogged,
    /// When there may be room again.
    pub retry_after: Duration,
}

/// What this process knows of backlogs: share it with whoever takes events in.
pub struct Pressure {
    bounds: BacklogBounds,
    known: Mutex<Known>,
}

struct Known {
    standings: HashMap<Backlogged, Standing>,
    /// What was accepted here, the newest last; never empty.
    slices: VecDeque<Slice>,
    /// Found to be above their high mark here, when, and not yet by the store.
    passed: HashMap<Backlogged, Instant>,
    /// When the next count is due, and how long after the one before.
    due: Instant,
    wait: Duration,
}

struct Slice {
    began: Instant,
    ended: Option<Instant>,
    accepted: HashMap<Backlogged, u64>,
}

impl Slice {
    fn new(began: Instant) -> Self {
        Self {
            began,
            ended: None,
            accepted: HashMap::new(),
        }
    }
}

impl Pressure {
    /// Nothing is known: everything is taken, up to the bounds.
    #[must_use]
    pub fn new(bounds: BacklogBounds) -> Self {
        let now = Instant::now();
        Self {
            bounds,
            known: Mutex::new(Known {
                standings: HashMap::new(),
                slices: VecDeque::from([Slice::new(now)]),
                passed: HashMap::new(),
                due: now,
                wait: ASK_EVERY,
            }),
        }
    }

    /// Why this event is not taken, if it is not: the longest wait. One
    /// destination's backlog does not refuse what goes to all subscribers.
    #[must_use]
    pub fn refusal(&self, event: &NewEvent) -> Option<Refusal> {
        let named = event.audience.named();
        let destination = named.map(|id| Backlogged::Destination(event.tenant, id));
        let tenant = Backlogged::Tenant(event.tenant);
        let mut known = self.known();
        let meant = is_meant_by_all(
            &self.bounds,
            known.pending(Backlogged::All),
            known.pending(tenant),
        );
        // Asked all the same: what is above its mark is noted.
        let by_all = known.refusal(Backlogged::All, self.bounds.of(Backlogged::All));
        let own = [Some(tenant), destination].into_iter().flatten();
        own.filter_map(|whose| known.refusal(whose, self.bounds.of(whose)))
            .chain(by_all.filter(|_| meant))
            .max_by_key(|refusal| refusal.retry_after)
    }

    /// Notes an event that was accepted, and to whom it goes.
    pub fn accepted(&self, tenant: TenantId, destinations: &[DestinationId]) {
        let more = u64::try_from(destinations.len()).unwrap_or(u64::MAX);
        let mut known = self.known();
        let Some(slice) = known.slices.back_mut() else {
            return;
        };
        let mut add = |whose, more| {
            let accepted = slice.accepted.entry(whose).or_default();
            *accepted = accepted.saturating_add(more);
        };
        add(Backlogged::All, more);
        add(Backlogged::Tenant(tenant), more);
        for destination in destinations {
            add(Backlogged::Destination(tenant, *destination), 1);
        }
    }

    /// Before the store is asked: what is accepted from now on is not in a
    /// count that begins now. The backlogs that were found above their mark.
    fn begin(&self) -> Vec<Backlogged> {
        let now = Instant::now();
        let mut known = self.known();
        let known = &mut *known;
        let oldest = known.wait / SLICES;
        if let Some(slice) = known.slices.back_mut()
            && (now >= known.due || now.duration_since(slice.began) >= oldest)
        {
            slice.ended = Some(now);
            known.slices.push_back(Slice::new(now));
        }
        known.drop_slices(now.checked_sub(REMEMBERED));
        known.passed.keys().copied().collect()
    }

    fn learn(&self, counted: Counted) {
        let now = Instant::now();
        let mut known = self.known();
        let counted_at = now.checked_sub(counted.age);
        known.due = counted_at.map_or(now, |at| at + counted.wait);
        known.wait = counted.wait;
        known.drop_slices(counted_at);
        let before = std::mem::take(&mut known.standings);
        known.standings = (counted.standings.into_iter())
            .map(|standing| (standing.whose, standing))
            .collect();
        let Known {
            standings, passed, ..
        } = &mut *known;
        passed.retain(|whose, noted| {
            // A count from before says nothing. One from after: until the store
            // refuses as well, or has counted less than the low mark.
            counted_at.is_none_or(|at| *noted > at)
                || (standings.get(whose)).is_some_and(|standing| {
                    !standing.is_refusing() && standing.pending >= low_mark(self.bounds.of(*whose))
                })
        });
        tell_changes(&before, standings);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what refuses from now on, and what takes again.
fn tell_changes(before: &HashMap<Backlogged, Standing>, after: &HashMap<Backlogged, Standing>) {
    let refuses = |standings: &HashMap<_, Standing>, whose| {
        (standings.get(whose)).is_some_and(Standing::is_refusing)
    };
    for standing in after.values() {
        if standing.is_refusing() && !refuses(before, &standing.whose) {
            let Standing { whose, pending, .. } = standing;
            tracing::warn!(?whose, pending, "a backlog is too long: events are refused");
        }
    }
    for whose in before.keys() {
        if refuses(before, whose) && !refuses(after, whose) {
            tracing::info!(?whose, "a backlog is short again: events are taken");
        }
    }
}

impl Known {
    /// What ended by then.
    fn drop_slices(&mut self, by: Option<Instant>) {
        if let Some(by) = by {
            let ended = |slice: &Slice| slice.ended.is_some_and(|ended| ended <= by);
            self.slices.retain(|slice| !ended(slice));
        }
    }

    fn accepted(&self, whose: Backlogged) -> u64 {
        let of_slice = |slice: &Slice| slice.accepted.get(&whose).copied();
        (self.slices.iter().filter_map(of_slice)).fold(0, u64::saturating_add)
    }

    /// As many as are known of.
    fn pending(&self, whose: Backlogged) -> u64 {
        let counted = self.standings.get(&whose).map_or(0, |one| one.pending);
        counted.saturating_add(self.accepted(whose))
    }

    fn refusal(&mut self, whose: Backlogged, bound: u64) -> Option<Refusal> {
        let standing = self.standings.get(&whose);
        if let Some(standing) = standing.filter(|standing| standing.is_refusing()) {
            let retry_after = standing.retry_after.max(MIN_RETRY_AFTER);
            return Some(Refusal { whose, retry_after });
        }
        let accepted = self.accepted(whose);
        let counted = match standing {
            Some(standing) => standing.pending,
            // Not told of, so below this; before the first count, of all.
            None if accepted > 0 => noted_mark(bound),
            None => 0,
        };
        // What was above its mark refuses until a count says otherwise.
        if let Entry::Vacant(unseen) = self.passed.entry(whose) {
            if !refuses(bound, false, counted.saturating_add(accepted)) {
                return None;
            }
            unseen.insert(Instant::now());
        }
        let retry_after = FIRST_RETRY_AFTER;
        Some(Refusal { whose, retry_after })
    }
}

/// The loop that has backlogs counted.
pub struct BackpressureLoop {
    store: Arc<dyn ports::Backpressure>,
    pressure: Arc<Pressure>,
    pace: CountPace,
}

impl BackpressureLoop {
    /// Over what counts, for whoever shares `pressure`.
    #[must_use]
    pub fn new(
        store: Arc<dyn ports::Backpressure>,
        pressure: Arc<Pressure>,
        pace: CountPace,
    ) -> Self {
        Self {
            store,
            pressure,
            pace,
        }
    }

    /// Asks until `shutdown`, which does not wait for a count.
    pub async fn run(self, shutdown: CancellationToken) {
        let asking = async {
            // What is known already, before the first count.
            self.ask(None).await;
            loop {
                self.tick().await;
                sleep(ASK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = asking => {}
        }
    }

    /// Asks once. What was known stays known while the store does not answer.
    pub async fn tick(&self) {
        self.ask(Some(&self.pace)).await;
    }

    async fn ask(&self, pace: Option<&CountPace>) {
        let passed = self.pressure.begin();
        let asked = self.store.standings(&self.pressure.bounds, &passed, pace);
        match asked.await {
            Ok(counted) => {
                // The whole comes first.
                if let Some(whole) = counted.standings.first() {
                    metrics::gauge!("paceline_pending_attempts").set(whole.pending as f64);
                    let bound = self.pressure.bounds.of(Backlogged::All);
                    metrics::gauge!("paceline_pending_bound_attempts").set(bound as f64);
                }
                self.pressure.learn(counted);
            }
            Err(error) => tracing::warn!(%error, "backlogs could not be counted"),
        }
    }
}

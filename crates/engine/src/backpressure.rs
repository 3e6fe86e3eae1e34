//! Backpressure in one process: what the store last counted, what this process
//! has accepted since, and the loop that asks again.
//!
//! Nobody asks the store on an event's way in. What other processes accept
//! between two counts is not known here, so a mark may be passed by that much;
//! what this one accepts passes it by one event at most.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::backpressure::{
    BacklogBounds, Backlogged, MIN_RETRY_AFTER, Standing, low_mark, noted_mark, refuses,
};
use domain::event::{Audience, NewEvent};
use domain::ids::{DestinationId, TenantId};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::ports;

/// How the loop runs.
#[derive(Debug, Clone, Copy)]
pub struct BackpressureOptions {
    /// Between two counts, while they are quick.
    pub every: Duration,
    /// A count takes at most one part in so many of a process's time: the next
    /// one waits so many times as long as the last one took.
    pub one_part_in: u32,
    /// But no longer than this.
    pub at_most: Duration,
}

impl Default for BackpressureOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            one_part_in: 20,
            at_most: Duration::from_secs(60),
        }
    }
}

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

#[derive(Default)]
struct Known {
    standings: HashMap<Backlogged, Standing>,
    /// Accepted since the last count began.
    since: HashMap<Backlogged, u64>,
    /// Accepted between the count before it and that: in the count or not.
    earlier: HashMap<Backlogged, u64>,
    /// Found to be above their high mark here, and not yet by the store.
    passed: HashSet<Backlogged>,
}

impl Pressure {
    /// Nothing is known: everything is taken, up to the bounds.
    #[must_use]
    pub fn new(bounds: BacklogBounds) -> Self {
        Self {
            bounds,
            known: Mutex::default(),
        }
    }

    /// Why this event is not taken, if it is not: the longest wait. One
    /// destination's backlog does not refuse what goes to all subscribers.
    #[must_use]
    pub fn refusal(&self, event: &NewEvent) -> Option<Refusal> {
        let destination = match event.audience {
            Audience::Destination(id) => Some(Backlogged::Destination(id.0)),
            Audience::Subscribers => None,
        };
        let tenant = Backlogged::Tenant(event.tenant.0);
        let mut known = self.known();
        [Some(Backlogged::All), Some(tenant), destination]
            .into_iter()
            .flatten()
            .filter_map(|whose| known.refusal(whose, self.bounds.of(whose)))
            .max_by_key(|refusal| refusal.retry_after)
    }

    /// Notes an event that was accepted, and to whom it goes.
    pub fn accepted(&self, tenant: TenantId, destinations: &[DestinationId]) {
        let more = u64::try_from(destinations.len()).unwrap_or(u64::MAX);
        let mut known = self.known();
        let mut add = |whose, more| {
            let since = known.since.entry(whose).or_default();
            *since = since.saturating_add(more);
        };
        add(Backlogged::All, more);
        add(Backlogged::Tenant(tenant.0), more);
        for destination in destinations {
            add(Backlogged::Destination(destination.0), 1);
        }
    }

    /// A count begins: what is accepted from now on may not be in it. The
    /// backlogs that were found above their high mark.
    fn begin(&self) -> Vec<Backlogged> {
        let mut known = self.known();
        for (whose, more) in std::mem::take(&mut known.since) {
            let earlier = known.earlier.entry(whose).or_default();
            *earlier = earlier.saturating_add(more);
        }
        known.passed.iter().copied().collect()
    }

    fn learn(&self, standings: Vec<Standing>) {
        let mut known = self.known();
        known.standings = (standings.into_iter())
            .map(|standing| (standing.whose, standing))
            .collect();
        known.earlier.clear();
        let Known {
            standings, passed, ..
        } = &mut *known;
        // Until the store refuses as well, or has counted less than the low mark.
        passed.retain(|whose| {
            (standings.get(whose)).is_some_and(|standing| {
                !standing.refusing && standing.pending >= low_mark(self.bounds.of(*whose))
            })
        });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn refusal(&mut self, whose: Backlogged, bound: u64) -> Option<Refusal> {
        let standing = self.standings.get(&whose);
        let more = |of: &HashMap<_, _>| of.get(&whose).copied().unwrap_or(0);
        let accepted = more(&self.since).saturating_add(more(&self.earlier));
        let counted = match standing {
            Some(standing) => standing.pending,
            // Not told of, so below this; before the first count, of all.
            None if accepted > 0 => noted_mark(bound),
            None => 0,
        };
        let refusing = standing.filter(|standing| standing.refusing);
        let pending = counted.saturating_add(accepted);
        // What refuses goes on until a count says otherwise.
        let passed = self.passed.contains(&whose);
        if refusing.is_none() && !passed {
            if !refuses(bound, false, pending) {
                return None;
            }
            self.passed.insert(whose);
        }
        let retry_after = refusing.map_or(MIN_RETRY_AFTER, |standing| standing.retry_after);
        Some(Refusal { whose, retry_after })
    }
}

/// The loop that has backlogs counted.
pub struct BackpressureLoop {
    store: Arc<dyn ports::Backpressure>,
    pressure: Arc<Pressure>,
    options: BackpressureOptions,
    wait: Duration,
}

impl BackpressureLoop {
    /// Over what counts, for whoever shares `pressure`.
    #[must_use]
    pub fn new(
        store: Arc<dyn ports::Backpressure>,
        pressure: Arc<Pressure>,
        options: BackpressureOptions,
    ) -> Self {
        Self {
            store,
            pressure,
            options,
            wait: options.every,
        }
    }

    /// Asks until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let wait = self.tick().await;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = sleep(wait) => {}
            }
        }
    }

    /// Asks once; how long to wait before the next time. What was known stays
    /// known while the store does not answer.
    pub async fn tick(&mut self) -> Duration {
        let began = Instant::now();
        let passed = self.pressure.begin();
        // A little less, so that the count before this one is old enough.
        let older = self.wait.mul_f64(0.9);
        let asked = self.store.standings(&self.pressure.bounds, &passed, older);
        match asked.await {
            Ok(standings) => self.pressure.learn(standings),
            Err(error) => tracing::warn!(%error, "backlogs could not be counted"),
        }
        let rest = began.elapsed().saturating_mul(self.options.one_part_in);
        self.wait = rest.clamp(self.options.every, self.options.at_most);
        self.wait
    }
}

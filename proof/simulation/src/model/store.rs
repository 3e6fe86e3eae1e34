//! The model of the store: tables as ordered maps, each step under one lock.
//!
//! It says what the SQL of both drivers says, method by method, and holds the
//! rows where invariants can read them ([`ModelStore::read`]). A step costs
//! what its batch costs, times the depth of a tree; never what the ledger
//! costs.

mod admit;
mod backlog;
mod backpressure;
mod cancel;
mod catalog;
mod change;
mod claim;
mod dead_letters;
mod destinations;
mod fleet;
mod health;
mod indexes;
mod ingest;
mod keys;
mod ledger;
mod managers;
mod operations;
mod reading;
mod reap;
mod record;
mod replays;
mod retain;
mod rows;
mod secrets;
mod smart;
mod survey;
mod sweep;
mod unseen;
mod usage;
mod view;
mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::{AttemptId, DestinationId, TenantId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Admitted, CatalogError, Claims, Deferral, Fleet, Heartbeat, Mark, Outcome,
    ReapRules, Reaped, Recorded, Run, Store, StoreError, Sweep, SweepPage, Target, Wake, Wakes,
};
use tokio::sync::Notify;

use super::clock::{ClockStep, ModelClock};
pub use ledger::Transition;
pub use reap::ReapStep;
pub use rows::{Attempt, EventRow, Rows};
pub use unseen::Unseen;

/// A store in memory. It never fails by itself, and refuses what Postgres refuses.
#[derive(Debug)]
pub struct ModelStore {
    state: Mutex<State>,
    /// Told of every change that leaves a mark.
    changed: Notify,
}

#[derive(Debug, Clone, PartialEq)]
struct State {
    clock: ModelClock,
    rows: Rows,
}

/// No call can tell them apart.
impl PartialEq for ModelStore {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || *self.state() == *other.state()
    }
}

impl ModelStore {
    /// An empty, migrated store whose clock shows `base` now.
    #[must_use]
    pub fn new(base: Timestamp) -> Self {
        Self {
            state: Mutex::new(State {
                clock: ModelClock::new(base),
                rows: Rows::default(),
            }),
            changed: Notify::new(),
        }
    }

    /// The same, whose permits may start a little before their slots; see
    /// [`Store::head_start`].
    #[must_use]
    pub fn with_head_start(self, head_start: Duration) -> Self {
        self.state().rows.head_start = head_start;
        self
    }

    /// Another store in the same state: what becomes of either is not seen by
    /// the other.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            state: Mutex::new(self.state().clone()),
            changed: Notify::new(),
        }
    }

    /// The store's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.state().clock.now()
    }

    /// Sets the store's clock.
    pub fn step_clock(&self, step: ClockStep) {
        self.state().clock.step(step);
    }

    /// Reads the rows, for invariants. The store stands still meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Rows) -> T) -> T {
        read(&self.state().rows)
    }

    /// Notes every change of an attempt's state from now on; they have to be
    /// taken regularly, by [`ModelStore::take_transitions`].
    pub fn note_transitions(&self) {
        self.state().rows.ledger.note_transitions();
    }

    /// The changes of state since the last call, in order.
    #[must_use]
    pub fn take_transitions(&self) -> Vec<Transition> {
        self.state().rows.ledger.take_transitions()
    }

    /// Forgets events all of whose attempts ended before `before`, and these
    /// attempts, as a dropped partition does. How many attempts.
    ///
    /// `before` has to be further back than any window reaches. An event that
    /// is handed in again after that is accepted as new.
    pub fn forget_finished(&self, before: Timestamp) -> usize {
        self.state().rows.forget_finished(before)
    }

    /// As if somebody's open transaction held the destination's row and its
    /// admitted attempts: whatever would lock them skips them, until
    /// [`ModelStore::unlock_destination`].
    pub fn lock_destination(&self, destination: DestinationId) {
        self.state().rows.locked.insert(destination);
    }

    /// That transaction ends.
    pub fn unlock_destination(&self, destination: DestinationId) {
        self.state().rows.locked.remove(&destination);
    }

    /// As if somebody's open transactions held these rows: whatever would lock
    /// them skips them. Until the next call, which names all that are held from
    /// then on.
    pub fn hold_attempts(&self, held: impl IntoIterator<Item = AttemptId>) {
        self.state().rows.held = held.into_iter().collect();
    }

    /// As if whoever claims had looked before this worker retired. Until the next
    /// call.
    pub fn see_alive(&self, worker: Option<WorkerId>) {
        self.state().rows.seen_alive = worker;
    }

    /// As if so many of the destination's attempts had never been, the oldest
    /// first: a user's own SQL.
    pub fn delete_attempts(&self, destination: DestinationId, count: usize) {
        self.step(|rows, _| {
            let oldest = rows.ledger.attempts_of(destination).take(count);
            let oldest: Vec<_> = oldest.map(|row| row.id).collect();
            oldest.into_iter().for_each(|id| rows.ledger.remove(id));
        });
    }

    /// As if somebody had written down that operators must know this.
    pub fn raise(&self, of: (DestinationId, TenantId), event_type: &str, details: &str) {
        self.step(|rows, now| {
            rows.news.note(now, of, (event_type, details.to_owned()));
        });
    }

    /// One destination's health becomes another one's; `None` is none.
    pub fn copy_health(&self, from: Option<DestinationId>, to: DestinationId) {
        self.step(|rows, _| {
            let health = from.and_then(|from| rows.health.get(&from).copied());
            match health {
                Some(health) => rows.health.insert(to, health),
                None => rows.health.remove(&to),
            };
        });
    }

    /// One step of [`Store::reap`]: how many rows it moved, and whom to wake.
    pub fn reap_step(&self, step: ReapStep, rules: &ReapRules, limit: u32) -> (u32, Vec<Wake>) {
        self.step(|rows, now| {
            let mut wakes = Wakes::default();
            let moved = reap::reap_step(rows, now, step, rules, limit, &mut wakes);
            (moved, wakes.into_vec())
        })
    }

    /// Nothing of the destination starts before `until`.
    pub fn hold(&self, destination: DestinationId, until: Timestamp) {
        self.step(|rows, _| change::hold(rows, destination, until));
    }

    /// The hold that the destination's health remembers is over.
    pub fn end_hold(&self, destination: DestinationId) {
        self.step(|rows, _| {
            let health = rows.health.get_mut(&destination);
            if let Some(hold) = health.and_then(|health| health.hold.as_mut()) {
                hold.until = hold.since;
            }
        });
    }

    /// A tier's limits as they are set; `None` if there is no such tier.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<LimitSettings> {
        self.read(|rows| rows.tiers.get(name).copied())
    }

    /// Sets a tier's limits, and carries the change to all that inherit it.
    pub fn change_tier(&self, name: &str, limits: LimitSettings) -> Result<(), CatalogError> {
        self.change(|rows, now| change::change_tier(rows, now, name, limits))
    }

    /// Moves a tenant to another tier, with all its destinations.
    pub fn change_tenant_tier(&self, tenant: TenantId, tier: &str) -> Result<(), CatalogError> {
        self.change(|rows, now| change::change_tenant_tier(rows, now, tenant, tier))
    }

    /// Adds a tenant of this tier, unless it is there.
    pub fn add_tenant(&self, tenant: TenantId, tier: &str) {
        self.step(|rows, _| {
            let tier = || tier.to_owned();
            rows.tenants.entry(tenant).or_insert_with(tier);
        });
    }

    /// Bounds what a tenant has queued and in flight; `None` for no bound.
    pub fn bound_tenant(&self, tenant: TenantId, max_in_flight: Option<u32>) {
        self.step(|rows, _| match max_in_flight {
            Some(most) => rows.tenant_max_in_flight.insert(tenant, most),
            None => rows.tenant_max_in_flight.remove(&tenant),
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server crashes and is back: admissions since the last other commit
    /// are forgotten, for they alone do not wait for the disk, and every other
    /// commit flushes all that came before it. How many rows wait again.
    pub fn forget_unflushed(&self) -> usize {
        self.step_unflushed(admit::forget_unflushed)
    }

    /// One atomic step, at one instant.
    fn step<T>(&self, step: impl FnOnce(&mut Rows, Timestamp) -> T) -> T {
        self.step_unflushed(|rows, now| {
            rows.unflushed.clear();
            step(rows, now)
        })
    }

    /// The same, which a crash may forget.
    fn step_unflushed<T>(&self, step: impl FnOnce(&mut Rows, Timestamp) -> T) -> T {
        let mut state = self.state();
        let now = state.clock.tick();
        step(&mut state.rows, now)
    }

    /// A step that may leave marks.
    fn change<T>(&self, step: impl FnOnce(&mut Rows, Timestamp) -> T) -> T {
        let answer = self.step(step);
        self.changed.notify_one();
        answer
    }

    /// A read, at one instant.
    fn look<T>(&self, look: impl FnOnce(&Rows, Timestamp) -> T) -> T {
        let state = self.state();
        look(&state.rows, state.clock.now())
    }
}

/// How long a request may take; the same in every target.
const TIMEOUT: Duration = engine::ports::MAX_REQUEST_TIMEOUT;

#[async_trait]
impl Store for ModelStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        self.step(|rows, now| {
            if ingest::is_held_up(rows, events) {
                let problem = "somebody's transaction holds a key";
                return Err(StoreError::Unavailable(problem.to_owned()));
            }
            Ok(ingest::accept_events(rows, now, events))
        })
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        Ok(self.step_unflushed(|rows, now| admit::admit_runs(rows, now, runs, room)))
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        Ok(self.look(|rows, now| claim::targets(rows, now, destinations, TIMEOUT)))
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        Ok(self.step(|rows, now| claim::claim_starts(rows, now, worker, permits)))
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        Ok(self.step(|rows, now| claim::claim_batches(rows, now, worker, permits)))
    }

    fn head_start(&self) -> Duration {
        self.read(|rows| rows.head_start)
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        Ok(self.step(|rows, now| claim::release_permits(rows, now, permits)))
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        self.step(|rows, now| claim::defer(rows, now, deferrals));
        Ok(())
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        // Postgres holds no NUL in a text.
        let text = |outcome: &Outcome| outcome.error.as_deref().is_some_and(|it| it.contains('\0'));
        if let Some(outcome) = outcomes.iter().find(|outcome| text(outcome)) {
            let refused = format!("a NUL in the error of {}", outcome.attempt);
            return Err(StoreError::Refused(refused));
        }
        Ok(self.step(|rows, now| record::record_outcomes(rows, now, worker, outcomes)))
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        Ok(self.step(|rows, now| reap::reap(rows, now, rules, limit)))
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        let page = self.look(|rows, now| sweep::sweep(rows, now, sweep));
        if page.late > 0 {
            self.step(|rows, _| sweep::go_back(rows, sweep));
        }
        Ok(page)
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        self.step(|rows, _| sweep::clear_marks(rows, marks));
        Ok(())
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Fleet, StoreError> {
        Ok(self.step(|rows, now| fleet::heartbeat(rows, now, heartbeat)))
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        Ok(self.look(fleet::fleet))
    }
}

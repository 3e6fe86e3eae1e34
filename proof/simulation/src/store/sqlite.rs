//! The shipped SQLite store in memory, on the caller's thread and in virtual time.
//!
//! What only other stores know is done to it from outside: rows that somebody's
//! transaction holds, a server that forgets what it had not flushed, and a
//! transaction that commits late.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adapters::sqlite::SqliteStore;
use async_trait::async_trait;
use domain::event::{Audience, NewEvent};
use domain::ids::{AttemptId, DestinationId, TenantId, WorkerId};
use domain::permit::Permit;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::Backpressure as _;
use engine::ports::{
    Acceptance, Admitted, ClaimAnswer, Claims, Outcome, ReapRules, Reaped, Recorded, Run,
    RunResult, Store, StoreError, StoreLayer, Wake,
};
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use tokio::sync::Notify;

use super::rows::{all, execute, first, text, time, word};
use crate::model::{ClockStep, ModelClock};

/// The shipped store, and what strikes it.
pub struct SimulatedStore {
    store: SqliteStore,
    connection: Arc<Mutex<Connection>>,
    clock: Arc<Mutex<ModelClock>>,
    state: Mutex<State>,
    /// Told of every entry of limit history.
    changed: Arc<Notify>,
    /// Whether one was dated since the last admission.
    has_changed: Arc<AtomicBool>,
}

/// How a store's clock goes on beside the runtime's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Of two steps one is later.
    Ticks,
    /// Only where it is set.
    Still,
}

#[derive(Default)]
struct State {
    /// Destinations that somebody's transaction holds.
    locked: BTreeSet<DestinationId>,
    /// Attempts whose rows somebody's transactions hold.
    held_rows: BTreeSet<AttemptId>,
    /// Destinations whose change is not in force before then: its transaction waits.
    changing: BTreeMap<DestinationId, Timestamp>,
    /// Keys that transactions hold that stay open.
    held: BTreeSet<(TenantId, String)>,
    /// What admissions that are not on the disk yet have changed, in order.
    unflushed: Vec<Unflushed>,
    /// How many rows had been changed by the last of them. Any other commit has
    /// flushed them since.
    changes: i64,
}

/// A destination and its picks as they were before an admission.
struct Unflushed {
    destination: String,
    /// Its row of `pacing`, if there was one.
    pacing: Option<Vec<Value>>,
    attempts: Vec<AttemptId>,
}

/// What a transaction that stays open has inserted.
#[derive(Debug)]
pub struct Unseen {
    since: Timestamp,
    events: Vec<(NewEvent, DestinationId, AttemptId)>,
}

/// The store's and the judges': each is prepared once.
const CACHED_STATEMENTS: usize = 512;

const PACING: &str = "
    select destination_id, last_permit, meter_missing_micro, meter_as_of, meter_epoch, looked_at,
        next_look_at, first_after, held_until, deferred_until
    from pacing where destination_id = ?1";

const RESTORE_PACING: &str = "
    insert or replace into pacing
        (destination_id, last_permit, meter_missing_micro, meter_as_of, meter_epoch, looked_at,
        next_look_at, first_after, held_until, deferred_until)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// It was never admitted: admission leaves alone since when it waits.
const WAIT_AGAIN: &str = "
    update deliveries
    set state = 'waiting', permit = null, epoch = null, not_before = null, deadline = null,
        coarse = 0, crowded = 0, admitted_at = null
    where id = ?1 and state = 'admitted'";

const INSERT_EVENT: &str = "
    insert into events (id, tenant_id, event_type, content_type, payload, created_at, urgent)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const INSERT_ATTEMPT: &str = "
    insert into deliveries
        (id, event_id, destination_id, tenant_id, created_at, payload_bytes, due_at, expires_at,
        urgent)
    select ?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(min(by_age, ?8), by_age, ?8), ?9
    from (
        select coalesce(?7, ?5) + coalesce(max_age_ms, tier_age_ms) * 1000 as by_age
        from destinations where id = ?3
    )";

const INSERT_KEY: &str = "
    insert or replace into idempotency_keys (tenant_id, key, digest, event_id, expires_at)
    values (?1, ?2, ?3, ?4, ?5)";

/// A change is dated after the claims that are dated ahead of it: Postgres waits for
/// them, but for no longer than a head start, when its clock was set back.
const DATE_CHANGES: &str = "
    create temp trigger changes_come_after_claims
    after update of in_force_from on main.limit_history
    when exists (
        select 1 from deliveries
        where destination_id = new.destination_id and state = 'started'
            and claimed_at > new.in_force_from
    )
    begin
        update limit_history
        set in_force_from = 1 + min(new.in_force_from + head_start(), (
            select max(claimed_at) from deliveries
            where destination_id = new.destination_id and state = 'started'
                and claimed_at > new.in_force_from
        ))
        where id = new.id;
        select change_waits();
    end";

/// More than a head start later is a clock that was set back since.
const NOT_IN_FORCE: &str = "
    select destination_id, max(in_force_from) from limit_history
    where in_force_from > ?1 and in_force_from <= ?2 group by destination_id";

/// Later than any reap asks for: as if the deadlines of a destination's permits were
/// not to be seen.
const HIDE_PERMITS: &str = "
    update deliveries set deadline = deadline + 9000000000000000
    where destination_id = ?1 and state = 'admitted'";

const SHOW_PERMITS: &str = "
    update deliveries set deadline = deadline - 9000000000000000
    where destination_id = ?1 and state = 'admitted'";

impl SimulatedStore {
    /// An empty, migrated store whose clock shows `base` now, and whose permits may
    /// start by `head_start` before their slots.
    pub fn new(base: Timestamp, head_start: Duration) -> Result<Self, StoreError> {
        let connection = Connection::open_in_memory().map_err(unavailable)?;
        Self::on(connection, ModelClock::new(base), Pace::Ticks, head_start)
    }

    pub(super) fn on(
        connection: Connection,
        clock: ModelClock,
        pace: Pace,
        head_start: Duration,
    ) -> Result<Self, StoreError> {
        let connection = Arc::new(Mutex::new(connection));
        let clock = Arc::new(Mutex::new(clock));
        let shown = Arc::clone(&clock);
        let shown = Arc::new(move || match pace {
            Pace::Ticks => locked(&shown).tick(),
            Pace::Still => locked(&shown).now(),
        });
        let store = SqliteStore::inline(Arc::clone(&connection), shown, head_start)?;
        locked(&connection).set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        let changed = Arc::new(Notify::new());
        tell_of_changes(&locked(&connection), Arc::clone(&changed)).map_err(unavailable)?;
        let has_changed = Arc::new(AtomicBool::default());
        let told = Arc::clone(&has_changed);
        date_changes(&locked(&connection), head_start, told).map_err(unavailable)?;
        Ok(Self {
            store,
            connection,
            clock,
            state: Mutex::default(),
            changed,
            has_changed,
        })
    }

    /// What its rows are in, for a judge's own SQL. No step is made meanwhile.
    pub fn connection(&self) -> MutexGuard<'_, Connection> {
        locked(&self.connection)
    }

    /// The shipped store, with the ports that nothing strikes inside.
    #[must_use]
    pub const fn shipped(&self) -> &SqliteStore {
        &self.store
    }

    /// The store's clock shows this, from now on.
    pub fn show(&self, at: Timestamp) {
        let mut clock = locked(&self.clock);
        let ahead = clock.now().micros_since(at);
        let by = Duration::from_micros(ahead.unsigned_abs());
        clock.step(match ahead > 0 {
            true => ClockStep::Backward(by),
            false => ClockStep::Forward(by),
        });
    }

    /// No change waits any more for what starts ahead of it.
    pub fn end_changes(&self) {
        self.has_changed.store(false, Ordering::Relaxed);
        self.state().changing.clear();
    }

    /// As if somebody's open transactions held these rows: whatever would lock them
    /// skips them. Until the next call, which names all that are held from then on.
    pub fn hold_rows(&self, held: impl IntoIterator<Item = AttemptId>) {
        self.state().held_rows = held.into_iter().collect();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Whether somebody holds what a claim or a release of it would lock.
    fn is_permit_held(&self, permit: &Permit) -> bool {
        let state = self.state();
        state.locked.contains(&permit.destination) || state.held_rows.contains(&permit.attempt)
    }

    /// A change that waits holds its destination.
    fn note_changes_that_wait(&self, now: Timestamp) {
        if !self.has_changed.swap(false, Ordering::Relaxed) {
            return;
        }
        let key = (
            now.as_micros(),
            (now + Store::head_start(self)).as_micros() + 1,
        );
        let waits = all(&self.connection(), NOT_IN_FORCE, key, |row| {
            Ok((word(row, 0)?, time(row, 1)?))
        });
        self.state().changing.extend(waits);
    }

    /// Locked, or held by a change that waits.
    fn is_held(&self, destination: DestinationId, now: Timestamp) -> bool {
        let state = self.state();
        let changing = state.changing.get(&destination);
        state.locked.contains(&destination) || changing.is_some_and(|until| now < *until)
    }

    /// Whether the row is still admitted under this very number.
    fn is_admitted_under(&self, permit: &Permit) -> bool {
        let sql = "
            select 1 from deliveries
            where id = ?1 and state = 'admitted' and permit = ?2 and destination_id = ?3";
        let key = params![permit.attempt.0, permit.number.0, text(permit.destination)];
        first(&self.connection(), sql, key, |_| Ok(())).is_some()
    }

    /// How many rows were ever changed.
    fn changes(&self) -> i64 {
        let changes = first(&self.connection(), "select total_changes()", [], |row| {
            row.get(0)
        });
        changes.unwrap_or_default()
    }

    fn pacing(&self, destination: DestinationId) -> Unflushed {
        let destination = text(destination);
        let pacing = first(&self.connection(), PACING, [&destination], |row| {
            (0..10).map(|column| row.get(column)).collect()
        });
        Unflushed {
            destination,
            pacing,
            attempts: Vec::new(),
        }
    }

    /// Runs the admission; what it changed is on no disk yet.
    async fn admit_unflushed(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        let changes = self.changes();
        let mut before: Vec<_> = runs
            .iter()
            .map(|run| self.pacing(run.destination))
            .collect();
        let admitted = self.store.admit(runs, room).await?;
        for (before, result) in before.iter_mut().zip(&admitted.results) {
            if let RunResult::Decided { permits, .. } = result {
                let given = |permit: &&Permit| self.was_given_at(permit.attempt, admitted.now);
                let given = permits.iter().filter(given);
                before.attempts = given.map(|permit| permit.attempt).collect();
            }
        }
        let after = self.changes();
        let mut state = self.state();
        if changes != state.changes {
            state.unflushed.clear();
        }
        state.unflushed.append(&mut before);
        state.changes = after;
        Ok(admitted)
    }

    fn was_given_at(&self, attempt: AttemptId, at: Timestamp) -> bool {
        let sql = "select 1 from deliveries where id = ?1 and admitted_at = ?2";
        let key = (attempt.0, at.as_micros());
        first(&self.connection(), sql, key, |_| Ok(())).is_some()
    }

    fn holds_a_key(&self, events: &[NewEvent]) -> bool {
        let state = self.state();
        let mut keys = events.iter().filter_map(key);
        keys.any(|key| state.held.contains(&key))
    }

    /// Where an event goes that nobody has handed in yet.
    fn destination_of(&self, event: &NewEvent) -> Option<DestinationId> {
        let Audience::Destination(to) = event.audience else {
            return None;
        };
        let sql = "
            select 1 from destinations d
            where d.id = ?1 and d.tenant_id = ?2 and d.deleted_at is null
                and d.state <> 'disabled' and not exists (select 1 from events where id = ?3)";
        let key = (text(to), text(event.tenant), text(event.id));
        first(&self.connection(), sql, key, |_| Ok(())).map(|()| to)
    }

    /// Changes rows of the destinations that are locked. It is no commit, so it
    /// flushes nothing.
    fn strike_locked(&self, sql: &str) {
        let mut state = self.state();
        let connection = self.connection();
        let changed = (state.locked.iter())
            .map(|destination| execute(&connection, sql, [text(destination)]))
            .sum::<usize>();
        state.changes += i64::try_from(changed).unwrap_or_default();
    }

    /// Gives an id that nothing else gets.
    fn next_id(&self) -> AttemptId {
        let connection = self.connection();
        let kept = "insert into sqlite_sequence (name, seq)
            select 'deliveries', 0 where not exists
                (select 1 from sqlite_sequence where name = 'deliveries')";
        execute(&connection, kept, []);
        let next = "update sqlite_sequence set seq = seq + 1 where name = 'deliveries'";
        execute(&connection, next, []);
        let given = "select seq from sqlite_sequence where name = 'deliveries'";
        AttemptId(first(&connection, given, [], |row| row.get(0)).unwrap_or_default())
    }
}

pub(super) fn unavailable(error: rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whoever waits for a change is woken by an entry of limit history.
fn tell_of_changes(connection: &Connection, changed: Arc<Notify>) -> Result<(), rusqlite::Error> {
    let flags = rusqlite::functions::FunctionFlags::SQLITE_UTF8;
    connection.create_scalar_function("limits_changed", 0, flags, move |_| {
        changed.notify_one();
        Ok(true)
    })?;
    connection.execute_batch(
        "create temp trigger limits_changed after insert on main.limit_history
        begin select limits_changed(); end",
    )
}

/// A change comes after what starts before it, and says so where it has to wait.
fn date_changes(
    connection: &Connection,
    head_start: Duration,
    told: Arc<AtomicBool>,
) -> Result<(), rusqlite::Error> {
    let flags = rusqlite::functions::FunctionFlags::SQLITE_UTF8;
    let head_start = domain::time::micros(head_start);
    connection.create_scalar_function("head_start", 0, flags, move |_| Ok(head_start))?;
    connection.create_scalar_function("change_waits", 0, flags, move |_| {
        told.store(true, Ordering::Relaxed);
        Ok(true)
    })?;
    connection.execute_batch(DATE_CHANGES)?;
    connection.execute_batch(HIDDEN)
}

/// The key that it asks for.
fn key(event: &NewEvent) -> Option<(TenantId, String)> {
    let asked = event.idempotency.as_ref()?;
    Some((event.tenant, asked.key.clone()))
}

impl fmt::Debug for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedStore").finish_non_exhaustive()
    }
}

/// What becomes of the store from outside.
impl SimulatedStore {
    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        locked(&self.clock).now()
    }

    /// Sets the store's clock.
    pub fn step_clock(&self, step: ClockStep) {
        locked(&self.clock).step(step);
    }

    /// As if somebody's open transaction held the destination's row and its
    /// admitted attempts, until [`SimulatedStore::unlock_destination`].
    pub fn lock_destination(&self, destination: DestinationId) {
        self.state().locked.insert(destination);
    }

    /// That transaction ends.
    pub fn unlock_destination(&self, destination: DestinationId) {
        self.state().locked.remove(&destination);
    }

    /// The server crashes and is back: admissions since the last other commit
    /// are forgotten, for they alone do not wait for the disk, and every other
    /// commit flushes all that came before it. How many rows wait again.
    pub fn forget_unflushed(&self) -> usize {
        let changes = self.changes();
        let mut state = self.state();
        let mut unflushed = std::mem::take(&mut state.unflushed);
        if changes != state.changes {
            return 0;
        }
        let connection = self.connection();
        let mut forgotten = 0;
        while let Some(before) = unflushed.pop() {
            match before.pacing {
                Some(row) => {
                    let row = rusqlite::params_from_iter(row);
                    execute(&connection, RESTORE_PACING, row);
                }
                None => {
                    let forget = "delete from pacing where destination_id = ?1";
                    execute(&connection, forget, [&before.destination]);
                }
            }
            for attempt in before.attempts {
                forgotten += execute(&connection, WAIT_AGAIN, [attempt.0]);
            }
        }
        forgotten
    }

    /// Accepts these events in a transaction that stays open; `None` if there
    /// is nothing to insert, or another one holds one of their keys.
    pub fn accept_unseen(&self, events: &[NewEvent]) -> Option<Unseen> {
        if self.holds_a_key(events) {
            return None;
        }
        let since = locked(&self.clock).tick();
        let known = super::at_once(self.store.repeated(events));
        let known = known.and_then(Result::ok).unwrap_or_default();
        let new = events
            .iter()
            .zip(known)
            .filter(|(_, known)| known.is_none());
        let inserted: Vec<_> = new
            .filter_map(|(event, _)| Some((event, self.destination_of(event)?)))
            .map(|(event, to)| (event.clone(), to, self.next_id()))
            .collect();
        let mut state = self.state();
        let keys = inserted.iter().filter_map(|(event, ..)| key(event));
        state.held.extend(keys);
        let unseen = Unseen {
            since,
            events: inserted,
        };
        (!unseen.events.is_empty()).then_some(unseen)
    }

    /// It commits. The attempts that are there now.
    pub fn commit_unseen(&self, unseen: Unseen) -> Vec<AttemptId> {
        let mut attempts = Vec::new();
        let at = unseen.since.as_micros();
        for (event, to, attempt) in unseen.events {
            if let Some(key) = key(&event) {
                self.state().held.remove(&key);
            }
            let connection = self.connection();
            let (id, tenant) = (text(event.id), text(event.tenant));
            let (kind, media, payload) = (&event.event_type, &event.content_type, &event.payload);
            let timing = event.timing;
            let row = params![id, tenant, kind, media, &payload[..], at, timing.urgent];
            execute(&connection, INSERT_EVENT, row);
            let bytes = i64::try_from(payload.len()).unwrap_or(i64::MAX);
            let due_at = timing.waits_from(unseen.since).map(Timestamp::as_micros);
            let expires_at = timing.expires_at.map(Timestamp::as_micros);
            let row = params![
                attempt.0,
                id,
                text(to),
                tenant,
                at,
                bytes,
                due_at,
                expires_at,
                timing.is_urgent(unseen.since)
            ];
            execute(&connection, INSERT_ATTEMPT, row);
            if let Some(asked) = &event.idempotency {
                let until = (unseen.since + asked.kept_for).as_micros();
                let row = params![tenant, asked.key, &asked.digest[..], id, until];
                execute(&connection, INSERT_KEY, row);
            }
            attempts.push(attempt);
        }
        attempts
    }

    /// The hold that the destination's health remembers is over.
    pub fn end_hold(&self, destination: DestinationId) {
        let sql = "update health set held_until = held_since where destination_id = ?1";
        execute(&self.connection(), sql, [text(destination)]);
    }
}

#[async_trait]
impl StoreLayer for SimulatedStore {
    fn under(&self) -> Option<&dyn Store> {
        Some(&self.store)
    }

    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        if self.holds_a_key(events) {
            let problem = "somebody's transaction holds a key";
            return Err(StoreError::Unavailable(problem.to_owned()));
        }
        self.store.accept_events(events).await
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        let now = self.now();
        self.note_changes_that_wait(now);
        let free = |run: &&Run| !self.is_held(run.destination, now);
        let free: Vec<_> = runs.iter().filter(free).copied().collect();
        let mut admitted = self.admit_unflushed(&free, room).await?;
        let mut decided = std::mem::take(&mut admitted.results).into_iter();
        // Of one that is held nothing is known, not even whether it is gone.
        let results = runs
            .iter()
            .map(|run| match self.is_held(run.destination, now) {
                true => Some(RunResult::Skipped),
                false => decided.next(),
            });
        admitted.results = results
            .map(|one| one.unwrap_or(RunResult::Skipped))
            .collect();
        self.leave_held(&mut admitted);
        Ok(admitted)
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let free = self.not_held(permits);
        let claims = self.store.claim_starts(worker, &free).await?;
        Ok(self.beside_held(permits, claims))
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let free = self.not_held(permits);
        let claims = self.store.claim_batches(worker, &free).await?;
        Ok(self.beside_held(permits, claims))
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        let free = self.not_held(permits);
        self.store.release_permits(&free).await
    }

    /// As on Postgres: one call fewer is what a file is spared, and no more.
    fn plain_outcomes_apart(&self) -> bool {
        true
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
        let skipped = self.skipped(worker, outcomes);
        let hidden = self.hide_held();
        let recorded = self.store.record_outcomes(worker, outcomes).await;
        self.show_again(&hidden);
        recorded.map(|recorded| Recorded {
            skipped,
            ..recorded
        })
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        // It goes past permits that somebody holds.
        self.strike_locked(HIDE_PERMITS);
        let hidden = self.hide_held();
        let reaped = self.store.reap(rules, limit).await;
        self.show_again(&hidden);
        self.strike_locked(SHOW_PERMITS);
        reaped
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Where what is hidden is meanwhile.
const HIDDEN: &str = "create temp table hidden as select * from deliveries where false";

const HIDE: [&str; 2] = [
    "insert into hidden select * from deliveries where id = ?1",
    "delete from deliveries where id = ?1",
];

const SHOW: [&str; 2] = [
    "insert into deliveries select * from hidden where id = ?1",
    "delete from hidden where id = ?1",
];

/// What is unknown stays where it is, but waits for nothing.
const HIDE_UNKNOWN: &str = "
    update ledger set state = 'succeeded' where id = ?1 and state = 'unknown'";

const SHOW_UNKNOWN: &str = "update ledger set state = 'unknown' where id = ?1";

/// Something of it was not seen.
const NOT_DRAINED: &str = "
    update destinations set drained_at = null
    where drained_at is not null
        and id = (select destination_id from deliveries where id = ?1)";

impl SimulatedStore {
    /// A run that finds what it has chosen held leaves it; the number is spent.
    fn leave_held(&self, admitted: &mut Admitted) {
        let held = self.state().held_rows.clone();
        for result in &mut admitted.results {
            if let RunResult::Decided { permits, .. } = result {
                permits.retain(|permit| {
                    let leaves = held.contains(&permit.attempt)
                        && self.was_given_at(permit.attempt, admitted.now);
                    if leaves {
                        execute(&self.connection(), WAIT_AGAIN, [permit.attempt.0]);
                    }
                    !leaves
                });
            }
        }
    }

    /// The attempts of these outcomes that would be recorded, were they not held.
    fn skipped(&self, worker: WorkerId, outcomes: &[Outcome]) -> Vec<AttemptId> {
        let sql = "
            select 1 from attempts
            where id = ?1 and permit = ?2 and worker_id = ?3 and destination_id = ?4
                and state in ('started', 'unknown')";
        let state = self.state();
        let mut once = BTreeSet::new();
        let held = (outcomes.iter()).filter(|one| state.held_rows.contains(&one.attempt));
        held.filter(|one| once.insert(one.attempt))
            .filter(|one| {
                let key = (
                    one.attempt.0,
                    one.number.0,
                    text(worker),
                    text(one.destination),
                );
                first(&self.connection(), sql, key, |_| Ok(())).is_some()
            })
            .map(|one| one.attempt)
            .collect()
    }

    fn hide_held(&self) -> Vec<AttemptId> {
        let held = self.state().held_rows.clone();
        self.hide(held)
    }

    /// Puts attempts out of sight that still wait for something. Which of them did.
    pub fn hide(&self, ids: impl IntoIterator<Item = AttemptId>) -> Vec<AttemptId> {
        let connection = self.connection();
        let hide = |id: &AttemptId| {
            let moved = HIDE.map(|sql| execute(&connection, sql, [id.0]));
            moved[0] > 0 || execute(&connection, HIDE_UNKNOWN, [id.0]) > 0
        };
        ids.into_iter().filter(hide).collect()
    }

    /// They are there again.
    pub fn show_again(&self, hidden: &[AttemptId]) {
        let connection = self.connection();
        for id in hidden {
            let moved = SHOW.map(|sql| execute(&connection, sql, [id.0]));
            let again = if moved[0] > 0 {
                NOT_DRAINED
            } else {
                SHOW_UNKNOWN
            };
            execute(&connection, again, [id.0]);
        }
    }

    fn not_held(&self, permits: &[Permit]) -> Vec<Permit> {
        let free = |permit: &&Permit| !self.is_permit_held(permit);
        permits.iter().filter(free).copied().collect()
    }

    /// The answers for all of them, in order.
    fn beside_held(&self, permits: &[Permit], mut claims: Claims) -> Claims {
        let mut answers = std::mem::take(&mut claims.answers).into_iter();
        let answers = permits.iter().map(|permit| {
            match (self.is_permit_held(permit), self.is_admitted_under(permit)) {
                (true, true) => ClaimAnswer::Skipped,
                (true, false) => ClaimAnswer::Refused,
                (false, _) => answers.next().unwrap_or(ClaimAnswer::Refused),
            }
        });
        claims.answers = answers.collect();
        claims
    }
}

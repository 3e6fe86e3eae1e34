//! The store's contract on SQLite: a file of its own for every test, a clock
//! that the test moves, and a second connection as a user's shell would be.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use adapters::sqlite::{Clock, SqliteStore, system_clock};
use async_trait::async_trait;
use contract::backlog::BacklogWorld;
use contract::operations::{Dialect, OperationsWorld};
use contract::retention::RetentionWorld;
use contract::store::{Backdoor, World};
use contract::survey::SurveyWorld;
use contract::tallies::TalliesWorld;
use contract::tenants::TenantWorld;
use domain::time::Timestamp;
use rusqlite::{Connection, TransactionBehavior};

/// The system's clock, and how far the test has moved it.
struct Moved {
    clock: Clock,
    ahead: AtomicI64,
}

impl Moved {
    fn now(&self) -> Timestamp {
        let now = (self.clock)().as_micros();
        Timestamp::from_micros(now + self.ahead.load(Ordering::SeqCst))
    }
}

struct Door {
    path: PathBuf,
    moved: Arc<Moved>,
}

impl Door {
    /// The triggers date history by the system's clock; once the test has moved its own, it
    /// is by that.
    fn run(&self, statement: &str) -> Result<(), rusqlite::Error> {
        let mut shell = Connection::open(&self.path)?;
        shell.busy_timeout(std::time::Duration::from_secs(5))?;
        let tx = shell.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let last = "select coalesce(max(id), 0) from limit_history";
        let last: i64 = tx.query_row(last, [], |row| row.get(0))?;
        tx.execute_batch(statement)?;
        if self.moved.ahead.load(Ordering::SeqCst) != 0 {
            let date = "update limit_history set in_force_from = ?2 where id > ?1";
            tx.execute(date, (last, self.moved.now().as_micros()))?;
        }
        tx.commit()
    }
}

#[async_trait]
impl Backdoor for Door {
    async fn sql(&self, statement: &str) -> Result<(), String> {
        self.run(statement).map_err(|error| error.to_string())
    }

    async fn pass_until(&self, at: Timestamp) {
        let left = at.micros_since(self.moved.now()).max(0);
        self.moved.ahead.fetch_add(left, Ordering::SeqCst);
    }
}

/// A world, and the directory that goes with it.
struct InDirectory {
    world: BacklogWorld,
    _directory: tempfile::TempDir,
}

impl Deref for InDirectory {
    type Target = BacklogWorld;

    fn deref(&self) -> &BacklogWorld {
        &self.world
    }
}

async fn world() -> InDirectory {
    let (store, door, directory) = opened();
    InDirectory {
        world: BacklogWorld::new(World::new(store.clone(), door), store),
        _directory: directory,
    }
}

/// The same, with the port of retention.
struct RetentionInDirectory {
    world: RetentionWorld,
    _directory: tempfile::TempDir,
}

impl Deref for RetentionInDirectory {
    type Target = RetentionWorld;

    fn deref(&self) -> &RetentionWorld {
        &self.world
    }
}

async fn retention_world() -> RetentionInDirectory {
    let (store, door, directory) = opened();
    let world = World::new(store.clone(), door);
    let world = BacklogWorld::new(world, store.clone());
    RetentionInDirectory {
        world: RetentionWorld::new(world, store),
        _directory: directory,
    }
}

/// The same, with the ports of operations.
struct OperationsInDirectory {
    world: OperationsWorld,
    _directory: tempfile::TempDir,
}

impl Deref for OperationsInDirectory {
    type Target = OperationsWorld;

    fn deref(&self) -> &OperationsWorld {
        &self.world
    }
}

async fn operations_world() -> OperationsInDirectory {
    let (store, door, directory) = opened();
    let world = World::new(store.clone(), door);
    OperationsInDirectory {
        world: OperationsWorld::new(world, store, Dialect::Sqlite),
        _directory: directory,
    }
}

/// The same, and the port of the survey.
struct SurveyInDirectory {
    world: SurveyWorld,
    _directory: tempfile::TempDir,
}

impl Deref for SurveyInDirectory {
    type Target = SurveyWorld;

    fn deref(&self) -> &SurveyWorld {
        &self.world
    }
}

async fn survey_world() -> SurveyInDirectory {
    let (store, door, directory) = opened();
    let world = World::new(store.clone(), door);
    let world = OperationsWorld::new(world, store.clone(), Dialect::Sqlite);
    SurveyInDirectory {
        world: SurveyWorld::new(world, store),
        _directory: directory,
    }
}

/// The same, with the tallies.
struct TalliesInDirectory {
    world: TalliesWorld,
    _directory: tempfile::TempDir,
}

impl Deref for TalliesInDirectory {
    type Target = TalliesWorld;

    fn deref(&self) -> &TalliesWorld {
        &self.world
    }
}

async fn tallies_world() -> TalliesInDirectory {
    let (store, door, directory) = opened();
    let world = World::new(store.clone(), door);
    let world = OperationsWorld::new(world, store.clone(), Dialect::Sqlite);
    TalliesInDirectory {
        world: TalliesWorld::new(world, store),
        _directory: directory,
    }
}

/// The same, with the ports of tenants and keys.
struct TenantsInDirectory {
    world: TenantWorld,
    _directory: tempfile::TempDir,
}

impl Deref for TenantsInDirectory {
    type Target = TenantWorld;

    fn deref(&self) -> &TenantWorld {
        &self.world
    }
}

async fn tenant_world() -> TenantsInDirectory {
    let (store, door, directory) = opened();
    let world = World::new(store.clone(), door);
    TenantsInDirectory {
        world: TenantWorld::new(world, store),
        _directory: directory,
    }
}

fn opened() -> (Arc<SqliteStore>, Arc<Door>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("paceline.db");
    let moved = Arc::new(Moved {
        clock: system_clock(),
        ahead: AtomicI64::new(0),
    });
    let clock = moved.clone();
    let store = SqliteStore::open(&path, Arc::new(move || clock.now())).unwrap();
    (Arc::new(store), Arc::new(Door { path, moved }), directory)
}

contract::tenant_contract!(super::tenant_world);

contract::store_contract!(super::world);
contract::backlog_contract!(super::world);

mod retention {
    contract::retention_contract!(crate::retention_world);
}

mod survey {
    contract::survey_contract!(crate::survey_world);
}

mod tallies {
    contract::tallies_contract!(crate::tallies_world);
}

mod operations {
    contract::operations_contract!(crate::operations_world);
}

#[tokio::test]
async fn an_old_epoch_is_no_proof_that_a_permit_is_gone() {
    let world = world().await;
    contract::store::admission::an_old_epoch_is_no_proof_that_a_permit_is_gone(&world).await;
}

/// A survey judges ledgers as the audit does: a ledger that says that a limit
/// was broken, which no store writes by itself, is found.
#[tokio::test]
async fn a_survey_finds_starts_that_came_too_early() {
    let world = survey_world().await;
    let destination = world.destination().per_second(2).create().await;
    world.accept(destination, 5).await;
    let worker = world.worker().await;
    let first = world.admit(destination).await;
    world.start(worker, &first).await;
    let mut survey = world.survey_loop(1, destination);
    let (kept, _) = world.round(&mut survey).await;
    assert_eq!(kept.shown[0].early_starts, 0);
    world.pass(std::time::Duration::from_secs(3)).await;
    let second = world.admit(destination).await;
    world.start(worker, &second).await;
    let all_at_once = format!(
        "update deliveries set started_at = (
            select min(started_at) from deliveries where destination_id = '{destination}'
        )
        where destination_id = '{destination}' and started_at is not null"
    );
    world.sql(&all_at_once).await;
    let (broken, _) = world.round(&mut survey).await;
    let started = first.len() + second.len();
    assert!(started > 2, "{started}");
    assert_eq!(broken.shown[0].early_starts, started as u64 - 2);
}

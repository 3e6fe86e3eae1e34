//! The contract that every store keeps, on Postgres: time really passes.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use adapters::postgres::PostgresStore;
use async_trait::async_trait;
use contract::backlog::BacklogWorld;
use contract::operations::{Dialect, OperationsWorld};
use contract::retention::RetentionWorld;
use contract::store::{Backdoor, World};
use contract::survey::SurveyWorld;
use contract::tallies::TalliesWorld;
use contract::tenants::TenantWorld;
use domain::time::Timestamp;
use engine::ports::Store;
use sqlx::PgConnection;

use crate::answers::any_answer_is_recorded;
use crate::database::{Database, Shell};

struct Door {
    shell: Shell,
    store: PostgresStore,
}

#[async_trait]
impl Backdoor for Door {
    async fn sql(&self, statement: &str) -> Result<(), String> {
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()));
        let done = async |user: &mut PgConnection| statement.execute(user).await;
        let done = self.shell.ask(done).await;
        done.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn pass_until(&self, at: Timestamp) {
        loop {
            let now = self.store.fleet().await.unwrap().now;
            if now >= at {
                return;
            }
            tokio::time::sleep(at.since(now) + Duration::from_micros(200)).await;
        }
    }
}

pub(crate) struct Fresh {
    world: BacklogWorld,
    _database: Database,
}

impl Deref for Fresh {
    type Target = BacklogWorld;

    fn deref(&self) -> &BacklogWorld {
        &self.world
    }
}

pub(crate) fn world_of(database: &Database) -> World {
    world_at(&database.url, database.store.clone())
}

/// One over `store`, with a user's shell at `url`.
pub(crate) fn world_at(url: &str, store: PostgresStore) -> World {
    let door = Arc::new(Door {
        shell: Shell::at(url),
        store: store.clone(),
    });
    World::new(Arc::new(store), door)
}

/// From the bytes of an answer to the row.
#[test]
fn whatever_a_receiver_answers_is_recorded() -> fuzzing::Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let database = runtime.block_on(Database::create());
    let store = Arc::new(database.store.clone());
    any_answer_is_recorded(&runtime, store, world_of(&database))
}

pub(crate) async fn world() -> Fresh {
    let database = Database::create().await;
    let store = Arc::new(database.store.clone());
    Fresh {
        world: BacklogWorld::new(world_of(&database), store),
        _database: database,
    }
}

struct FreshRetention {
    world: RetentionWorld,
    _database: Database,
}

impl Deref for FreshRetention {
    type Target = RetentionWorld;

    fn deref(&self) -> &RetentionWorld {
        &self.world
    }
}

async fn retention_world() -> FreshRetention {
    let database = Database::create().await;
    let store = Arc::new(database.store.clone());
    let world = BacklogWorld::new(world_of(&database), store.clone());
    FreshRetention {
        world: RetentionWorld::new(world, store),
        _database: database,
    }
}

struct FreshOperations {
    world: OperationsWorld,
    _database: Database,
}

impl Deref for FreshOperations {
    type Target = OperationsWorld;

    fn deref(&self) -> &OperationsWorld {
        &self.world
    }
}

async fn operations_world() -> FreshOperations {
    let database = Database::create().await;
    let store = Arc::new(database.store.clone());
    FreshOperations {
        world: OperationsWorld::new(world_of(&database), store, Dialect::Postgres),
        _database: database,
    }
}

struct FreshSurvey {
    world: SurveyWorld,
    _database: Database,
}

impl Deref for FreshSurvey {
    type Target = SurveyWorld;

    fn deref(&self) -> &SurveyWorld {
        &self.world
    }
}

async fn survey_world() -> FreshSurvey {
    let FreshOperations { world, _database } = operations_world().await;
    let store = Arc::new(_database.store.clone());
    FreshSurvey {
        world: SurveyWorld::new(world, store),
        _database,
    }
}

struct FreshTallies {
    world: TalliesWorld,
    _database: Database,
}

impl Deref for FreshTallies {
    type Target = TalliesWorld;

    fn deref(&self) -> &TalliesWorld {
        &self.world
    }
}

async fn tallies_world() -> FreshTallies {
    let FreshOperations { world, _database } = operations_world().await;
    let store = Arc::new(_database.store.clone());
    FreshTallies {
        world: TalliesWorld::new(world, store),
        _database,
    }
}

struct FreshTenants {
    world: TenantWorld,
    _database: Database,
}

impl Deref for FreshTenants {
    type Target = TenantWorld;

    fn deref(&self) -> &TenantWorld {
        &self.world
    }
}

async fn tenant_world() -> FreshTenants {
    let database = Database::create().await;
    let store = Arc::new(database.store.clone());
    FreshTenants {
        world: TenantWorld::new(world_of(&database), store),
        _database: database,
    }
}

contract::store_contract!(crate::contract::world);

mod retention {
    contract::retention_contract!(crate::contract::retention_world);
}

mod survey {
    contract::survey_contract!(crate::contract::survey_world);
}

mod tallies {
    contract::tallies_contract!(crate::contract::tallies_world);
}

mod operations {
    contract::operations_contract!(crate::contract::operations_world);
}

contract::tenant_contract!(crate::contract::tenant_world);

#[tokio::test]
async fn an_old_epoch_is_no_proof_that_a_permit_is_gone() {
    let world = world().await;
    contract::store::admission::an_old_epoch_is_no_proof_that_a_permit_is_gone(&world).await;
}

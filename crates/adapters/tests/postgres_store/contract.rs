//! The contract that every store keeps, on Postgres: time really passes.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use adapters::postgres::PostgresStore;
use async_trait::async_trait;
use domain::time::Timestamp;
use engine::contract::store::{Backdoor, World};
use engine::contract::tenants::TenantWorld;
use engine::ports::Store;
use sqlx::{Connection, PgConnection};

use crate::database::Database;

struct Door {
    url: String,
    store: PostgresStore,
}

#[async_trait]
impl Backdoor for Door {
    async fn sql(&self, statement: &str) -> Result<(), String> {
        let mut user = PgConnection::connect(&self.url).await.unwrap();
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()));
        let done = statement.execute(&mut user).await;
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

struct Fresh {
    world: World,
    _database: Database,
}

impl Deref for Fresh {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

async fn world() -> Fresh {
    let database = Database::create().await;
    let store = Arc::new(database.store.clone());
    let door = Arc::new(Door {
        url: database.url.clone(),
        store: database.store.clone(),
    });
    Fresh {
        world: World::new(store.clone(), door).with_operations(store.clone(), store),
        _database: database,
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
    let Fresh { world, _database } = world().await;
    let store = Arc::new(_database.store.clone());
    FreshTenants {
        world: TenantWorld::new(world, store.clone(), store),
        _database,
    }
}

engine::store_contract!(crate::contract::world);

mod operations {
    engine::operations_contract!(crate::contract::world);
}
engine::tenant_contract!(crate::contract::tenant_world);

#[tokio::test]
async fn an_old_epoch_is_no_proof_that_a_permit_is_gone() {
    let world = world().await;
    engine::contract::store::admission::an_old_epoch_is_no_proof_that_a_permit_is_gone(&world)
        .await;
}

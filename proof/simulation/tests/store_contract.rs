//! The store's contract on its model, in virtual time, with a small
//! interpreter in the place of a user's SQL shell.

mod support;

use std::sync::Arc;

use contract::backlog::BacklogWorld;
use contract::operations::{Dialect, OperationsWorld};
use contract::retention::RetentionWorld;
use contract::store::World;
use contract::survey::SurveyWorld;
use contract::tenants::BackpressureWorld;
use domain::time::Timestamp;
use engine::ports::MAX_HEAD_START;
use simulation::model::ModelStore;
use support::sql::Shell;

const BEGAN: Timestamp = Timestamp::from_millis(1_795_000_000_000);

async fn world() -> Box<BacklogWorld> {
    tokio::time::pause();
    let store = Arc::new(ModelStore::new(BEGAN).with_head_start(MAX_HEAD_START));
    Box::new(world_of(&store))
}

fn world_of(store: &Arc<ModelStore>) -> BacklogWorld {
    let door = Arc::new(Shell::new(store.clone()));
    let world = World::new(store.clone(), door);
    BacklogWorld::new(world, store.clone(), store.clone())
}

async fn retention_world() -> Box<RetentionWorld> {
    tokio::time::pause();
    let store = Arc::new(ModelStore::new(BEGAN).with_head_start(MAX_HEAD_START));
    Box::new(RetentionWorld::new(world_of(&store), store))
}

async fn operations_world() -> Box<OperationsWorld> {
    tokio::time::pause();
    let store = Arc::new(ModelStore::new(BEGAN).with_head_start(MAX_HEAD_START));
    let door = Arc::new(Shell::new(store.clone()));
    let world = World::new(store.clone(), door);
    // No test of whole steps asks for a trigger, of whatever dialect.
    let dialect = Dialect::Sqlite;
    Box::new(OperationsWorld::new(world, store.clone(), store, dialect))
}

async fn backpressure_world() -> Box<BackpressureWorld> {
    tokio::time::pause();
    let store = Arc::new(ModelStore::new(BEGAN).with_head_start(MAX_HEAD_START));
    let door = Arc::new(Shell::new(store.clone()));
    Box::new(BackpressureWorld::new(
        World::new(store.clone(), door),
        store,
    ))
}

async fn survey_world() -> Box<SurveyWorld> {
    tokio::time::pause();
    let store = Arc::new(ModelStore::new(BEGAN).with_head_start(MAX_HEAD_START));
    let door = Arc::new(Shell::new(store.clone()));
    let world = World::new(store.clone(), door);
    let world = OperationsWorld::new(world, store.clone(), store.clone(), Dialect::Sqlite);
    Box::new(SurveyWorld::new(world, store))
}

contract::store_contract!(super::world);
contract::backpressure_contract!(super::backpressure_world);
contract::backlog_contract!(super::world);

mod survey {
    contract::survey_contract!(crate::survey_world);
}

mod operations {
    contract::operations_contract!(crate::operations_world, in whole steps);
}

mod retention {
    contract::retention_contract!(crate::retention_world);
}

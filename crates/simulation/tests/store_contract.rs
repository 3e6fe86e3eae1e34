//! The store's contract on its model, in virtual time, with a small
//! interpreter in the place of a user's SQL shell.

mod support;

use std::sync::Arc;

use domain::time::Timestamp;
use engine::contract::backlog::BacklogWorld;
use engine::contract::store::World;
use engine::ports::MAX_HEAD_START;
use simulation::model::ModelStore;
use support::sql::Shell;

async fn world() -> Box<BacklogWorld> {
    tokio::time::pause();
    let store = ModelStore::new(Timestamp::from_millis(1_795_000_000_000));
    let store = Arc::new(store.with_head_start(MAX_HEAD_START));
    let door = Arc::new(Shell::new(store.clone()));
    let world = World::new(store.clone(), door);
    Box::new(BacklogWorld::new(world, store.clone(), store))
}

engine::store_contract!(super::world);
engine::backlog_contract!(super::world);

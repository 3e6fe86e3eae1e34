//! Nothing is taken from anybody.

use super::world::{World, is, spec};

#[tokio::test]
async fn one_of_the_apis_of_the_same_name_is_a_conflict() {
    let world = World::new();
    world.paceline.by_the_api("shop");
    world.settle().await;
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), [""; 0]);
    assert_eq!(world.condition("Conflict"), is("True", "Conflict"));
    assert_eq!(world.condition("Synced"), is("False", "Conflict"));
    assert_eq!(world.condition("Ready"), is("False", "Conflict"));
    assert_eq!(world.status()["destinationId"], serde_json::Value::Null);
    assert_eq!(world.cluster.events(), ["Conflict"], "said once");
    // Its deletion leaves alone what was never its own.
    world.cluster.delete("destinations", "shop");
    world.look().await.unwrap();
    assert_eq!(world.shop(), None);
    assert_eq!(world.paceline.done(), [""; 0]);
    assert_eq!(world.paceline.rows().rows.len(), 1);
}

#[tokio::test]
async fn what_another_of_this_name_holds_is_a_conflict_until_it_is_let_go() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    // As if a cluster had been restored from a copy of this one.
    world.paceline.rows().rows[0].uid = Some("of another cluster".to_owned());
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), [""; 0]);
    assert_eq!(world.condition("Conflict"), is("True", "Conflict"));
    world.paceline.rows().rows[0].uid = None;
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["take over"]);
    assert_eq!(world.condition("Conflict"), is("False", "NoConflict"));
    assert_eq!(world.condition("Ready"), is("True", "Delivering"));
}

#[tokio::test]
async fn what_was_deleted_by_sql_is_made_again() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    world.paceline.rows().rows.clear();
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["create"]);
    world.apply(spec(6));
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["change"]);
}

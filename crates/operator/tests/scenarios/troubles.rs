//! What is missing, wrong or away.

use std::time::Duration;

use kube::runtime::controller::Action;
use operator::destinations::Refusal;
use operator::reconcile::Failure;
use serde_json::json;

use super::world::{SECRET, World, is, secret, spec};

#[tokio::test]
async fn without_its_secret_nothing_is_made() {
    let world = World::new();
    world.cluster.remove("secrets", "shop-signing");
    world.settle().await;
    assert_eq!(world.paceline.done(), [""; 0]);
    assert_eq!(world.condition("Synced"), is("False", "SecretMissing"));
    world.cluster.put("secrets", secret(SECRET));
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["create"]);
    assert_eq!(world.condition("Synced"), is("True", "Synced"));
    // Gone again: what is there goes on, and limits are still changed.
    world.cluster.remove("secrets", "shop-signing");
    world.apply(spec(9));
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["change"]);
    assert_eq!(world.condition("Synced"), is("False", "SecretMissing"));
}

#[tokio::test]
async fn what_paceline_refuses_is_said_and_not_tried_in_a_loop() {
    let world = World::new();
    let mut refused = spec(5);
    refused["url"] = json!("https://refused.example");
    world.apply(refused);
    world.settle().await;
    assert_eq!(world.condition("Synced"), is("False", "Invalid"));
    let message = world.status()["conditions"][1]["message"].clone();
    assert_eq!(message, "url: leads to a place that is not open");
    world.apply(spec(5));
    world.look().await.unwrap();
    assert_eq!(world.condition("Ready"), is("True", "Delivering"));
    assert_eq!(world.cluster.events(), ["Invalid", "Delivering", "Synced"]);
}

#[tokio::test]
async fn while_the_store_is_away_it_is_tried_later_and_later() {
    let world = World::new();
    world.settle().await;
    world.paceline.rows().away = true;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let failure = world.look().await.unwrap_err();
        assert!(matches!(
            failure,
            Failure::Paceline(Refusal::Unavailable(_))
        ));
        pauses.push(pause(&world, &failure));
    }
    for (n, pause) in pauses.iter().enumerate() {
        let longest = Duration::from_secs(60.min(1 << n));
        assert!(*pause >= longest / 2 && *pause <= longest, "{n}: {pause:?}");
    }
    assert_eq!(world.condition("Synced"), is("False", "StoreAway"));
    assert_ne!(
        world.status()["destinationId"],
        json!(null),
        "it is known still"
    );
    assert_eq!(
        world.cluster.events(),
        ["Delivering", "StoreAway"],
        "said once"
    );
    world.paceline.rows().away = false;
    world.look().await.unwrap();
    assert_eq!(world.condition("Ready"), is("True", "Delivering"));
    world.paceline.rows().away = true;
    let failure = world.look().await.unwrap_err();
    assert!(
        pause(&world, &failure) <= Duration::from_secs(1),
        "from the beginning"
    );
}

/// The pause, as far as an action tells of it.
fn pause(world: &World, failure: &Failure) -> Duration {
    let action = world.try_again(failure);
    let millis = (1..=60_000_u64).map(Duration::from_millis);
    let shown = format!("{action:?}");
    assert_ne!(action, Action::await_change());
    // An action has no getters: its text is `Action { requeue_after: Some(0.75s) }`.
    let text = shown
        .split("Some(")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    let text = text.expect("it says when");
    let found = millis.min_by_key(|one| {
        let exact = parse(text);
        one.abs_diff(exact)
    });
    found.expect("there are some")
}

/// What `Debug` of a duration prints.
fn parse(text: &str) -> Duration {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.trim_end_matches('s'), 1.0),
    };
    Duration::from_secs_f64(number.parse::<f64>().unwrap() * unit)
}

#[tokio::test]
async fn while_the_api_server_is_away_nothing_is_touched() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    world.apply(spec(50));
    world.cluster.state().away = true;
    let failure = world.look().await.unwrap_err();
    assert!(matches!(failure, Failure::Cluster(_)), "{failure}");
    assert_eq!(world.paceline.done(), [""; 0]);
    world.cluster.state().away = false;
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["change"]);
    assert_eq!(world.condition("Ready"), is("True", "Delivering"));
}

/// It is put off, and not forgotten.
#[tokio::test]
async fn a_deletion_waits_for_the_store() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    world.cluster.delete("destinations", "shop");
    world.paceline.rows().away = true;
    assert!(world.look().await.is_err());
    assert!(world.shop().is_some(), "its finalizer keeps it");
    world.paceline.rows().away = false;
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["release"]);
    assert_eq!(world.shop(), None);
}

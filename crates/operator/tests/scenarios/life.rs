//! A resource is made, changed and deleted.

use std::time::Duration;

use domain::destination::DestinationState;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use operator::FINALIZER;
use serde_json::json;

use super::world::{World, is, secret, secrets, spec};

#[tokio::test]
async fn a_resource_gets_its_destination() {
    let world = World::new();
    world.look().await.unwrap();
    assert_eq!(world.shop().unwrap().finalizers(), [FINALIZER]);
    assert_eq!(world.paceline.done(), [""; 0], "the finalizer comes first");
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["create"]);
    let kept = world.paceline.rows().rows[0].clone();
    assert_eq!(kept.row.name, "shop");
    assert_eq!(kept.row.url, "https://shop.example/hooks");
    assert_eq!(kept.row.limits.per_second, Some(5));
    assert_eq!(kept.resource.as_deref(), Some("paceline/shop"));
    assert_eq!(kept.uid, world.shop().unwrap().uid());
    let status = world.status();
    assert_eq!(status["destinationId"], kept.row.id.to_string());
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["circuit"], "closed");
    assert_eq!(world.condition("Ready"), is("True", "Delivering"));
    assert_eq!(world.condition("Synced"), is("True", "Synced"));
    assert_eq!(world.condition("Conflict"), is("False", "NoConflict"));
    assert_eq!(world.condition("Throttled"), is("False", "NotThrottled"));
    assert_eq!(world.cluster.events(), ["Delivering"]);
}

#[tokio::test]
async fn a_changed_limit_is_changed_and_told_in_one_look() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    world.apply(spec(50));
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["change"]);
    assert_eq!(
        world.paceline.rows().rows[0].row.limits.per_second,
        Some(50)
    );
    assert_eq!(world.status()["observedGeneration"], 2);
    assert_eq!(world.cluster.events(), ["Delivering"], "nothing went wrong");
}

/// What somebody changed by SQL is put right.
#[tokio::test]
async fn drift_is_put_right() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    world.paceline.rows().rows[0].row.url = "https://elsewhere.example".to_owned();
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["change"]);
    let url = world.paceline.rows().rows[0].row.url.clone();
    assert_eq!(url, "https://shop.example/hooks");
}

#[tokio::test]
async fn a_pause_is_a_state_and_a_given_up_receiver_stays_given_up() {
    let world = World::new();
    world.settle().await;
    let mut paused = spec(5);
    paused["paused"] = json!(true);
    world.apply(paused);
    world.look().await.unwrap();
    assert_eq!(
        world.paceline.rows().rows[0].row.state,
        DestinationState::Paused
    );
    assert_eq!(world.condition("Ready"), is("True", "Paused"));
    world.apply(spec(5));
    world.look().await.unwrap();
    assert_eq!(world.condition("Ready"), is("True", "Delivering"));
    world.paceline.done();
    world.paceline.rows().rows[0].row.state = DestinationState::Disabled;
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), [""; 0]);
    assert_eq!(world.condition("Ready"), is("False", "Disabled"));
}

#[tokio::test]
async fn another_secret_is_rotated_in_once() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    world.cluster.put(
        "secrets",
        secret("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"),
    );
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["rotate"]);
    let now = world.paceline.rows().rows[0].secret.clone();
    assert_eq!(
        now, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "without its line's end"
    );
}

/// A client certificate and an OAuth2 client, each from its Secret: shown, changed when
/// the Secret is, kept where it is missing, and removed with the field.
#[tokio::test]
async fn what_its_secrets_hold_is_shown() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    let shown = || world.paceline.rows().rows[0].shown.clone();
    let mut spec_of_both = spec(5);
    spec_of_both["clientCertificateRef"] = json!({ "name": "shop-tls" });
    spec_of_both["oauth2"] = json!({
        "tokenUrl": "https://login.example/token", "clientId": "paceline",
        "clientSecretRef": { "name": "shop-login" }, "scopes": ["hooks"],
    });
    world.apply(spec_of_both.clone());
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), [""; 0]);
    let message = world.status()["conditions"][1]["message"].clone();
    assert_eq!(message, "there is no Secret shop-tls");
    let tls = |key| secrets("shop-tls", json!({ "tls.crt": "chain\n", "tls.key": key }));
    world.cluster.put("secrets", tls("key"));
    let login = secrets("shop-login", json!({ "secret": "s3cret" }));
    world.cluster.put("secrets", login);
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["show"], "once");
    let login = "paceline with s3cret at https://login.example/token";
    assert_eq!(shown(), format!("chain and key; {login}"));
    world.cluster.put("secrets", tls("another"));
    world.look().await.unwrap();
    assert_eq!(shown(), format!("chain and another; {login}"));
    world.cluster.remove("secrets", "shop-tls");
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["show"]);
    assert_eq!(world.condition("Synced"), is("False", "SecretMissing"));
    world.apply(spec(5));
    world.look().await.unwrap();
    assert_eq!(
        (world.paceline.done(), shown()),
        (vec!["show".to_owned()], String::new())
    );
    assert_eq!(world.condition("Synced"), is("True", "Synced"));
}

/// And the next of its name goes on with it.
#[tokio::test]
async fn what_is_retained_stays_and_is_taken_over_again() {
    let world = World::new();
    world.settle().await;
    world.paceline.done();
    world.cluster.delete("destinations", "shop");
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["release"]);
    assert_eq!(world.shop(), None, "the finalizer is gone, and so is it");
    assert_eq!(world.paceline.rows().rows.len(), 1);
    world.apply(spec(7));
    world.settle().await;
    assert_eq!(world.paceline.done(), ["take over", "change"]);
    assert_eq!(world.paceline.rows().rows.len(), 1, "no second one");
    assert_eq!(world.condition("Ready"), is("True", "Delivering"));
}

#[tokio::test]
async fn what_is_to_be_discarded_is_deleted() {
    let world = World::new();
    let mut discarded = spec(5);
    discarded["deletionPolicy"] = json!("Discard");
    world.apply(discarded);
    world.settle().await;
    world.paceline.done();
    world.cluster.delete("destinations", "shop");
    world.look().await.unwrap();
    assert_eq!(world.paceline.done(), ["discard"]);
    assert_eq!(world.shop(), None);
    assert!(world.paceline.rows().rows.is_empty());
}

/// Work is looked at more often than its absence, and a status is written only
/// when it says something else.
#[tokio::test]
async fn an_equal_status_is_not_written() {
    let world = World::new();
    world.settle().await;
    let written = world.cluster.count("patch", "destinations/status");
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.cluster.count("patch", "destinations/status"), written);
    world.paceline.rows().backlog = 1_234;
    let busy = world.look().await.unwrap();
    assert_eq!(world.status()["backlog"], 1_200);
    assert_eq!(world.condition("Throttled"), is("True", "Limited"));
    assert_eq!(world.cluster.events(), ["Delivering", "Limited"]);
    world.paceline.rows().backlog = 1_236;
    world.look().await.unwrap();
    assert_eq!(
        world.cluster.count("patch", "destinations/status"),
        written + 1
    );
    assert_ne!(busy, Action::await_change());
}

/// An idle one has its turn every five minutes; what happens to it is told within
/// seconds all the same.
#[tokio::test(start_paused = true)]
async fn trouble_and_work_of_an_idle_destination_are_told_within_seconds() {
    let world = World::new();
    let test = async {
        // Idle for long.
        tokio::time::sleep(Duration::from_secs(100)).await;
        let looks = world.paceline.rows().looks;
        world.paceline.rows().backlog = 120;
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(world.status()["backlog"], 120);
        world.paceline.rows().breaker_is_open = true;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(world.condition("Ready"), is("False", "CircuitOpen"));
        assert_eq!(world.paceline.rows().looks, looks + 2, "one each");
        // And closed again, with nothing left.
        world.paceline.rows().breaker_is_open = false;
        world.paceline.rows().backlog = 0;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(world.condition("Ready"), is("True", "Delivering"));
        // While the store is away nothing is known, and nothing ends.
        world.paceline.rows().away = true;
        tokio::time::sleep(Duration::from_secs(20)).await;
        world.paceline.rows().away = false;
        world.paceline.rows().breaker_is_open = true;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(world.condition("Ready"), is("False", "CircuitOpen"));
    };
    tokio::select! {
        () = test => {}
        () = world.act() => panic!("the loop ended"),
    }
}

/// The loop, with its watch: what we write does not call us again.
#[tokio::test(start_paused = true)]
async fn the_loop_comes_to_rest() {
    let world = World::new();
    let test = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.paceline.done(), ["create"]);
        let looks = world.paceline.rows().looks;
        assert!((1..=2).contains(&looks), "{looks} looks");
        assert_eq!(world.cluster.count("list", "destinations"), 1);
        assert_eq!(world.cluster.count("watch", "destinations"), 1);
        assert_eq!(world.cluster.count("patch", "destinations"), 1);
        assert_eq!(world.cluster.count("patch", "destinations/status"), 1);
        let calls = world.cluster.state().calls.len();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.cluster.state().calls.len(), calls, "it rests");
        // A change is seen to at once: within a second.
        world.apply(spec(50));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.paceline.done(), ["change"]);
        let looks_then = world.paceline.rows().looks;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.paceline.rows().looks, looks_then);
        // And what has nothing to do is looked at from time to time.
        tokio::time::sleep(Duration::from_secs(330)).await;
        assert!(world.paceline.rows().looks > looks_then);
        assert_eq!(world.paceline.done(), [""; 0]);
    };
    tokio::select! {
        () = test => {}
        () = world.act() => panic!("the loop ended"),
    }
}

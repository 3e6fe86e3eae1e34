//! A destination's health over the API.

use std::time::Duration;

use domain::health::{DisableReason, Health, Hold, HoldReason};
use domain::ids::DestinationId;
use serde_json::json;

use crate::world::{NOON, World};

fn id_of(path: &str) -> DestinationId {
    path.rsplit('/').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn one_that_is_well_holds_nothing() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    let health = world.get(&format!("{path}/health")).await;
    assert_eq!(health.status, 200);
    assert_eq!(
        health.json,
        json!({
            "state": "active",
            "disabled_for": null,
            "breaker": {
                "state": "closed",
                "failures": 0,
                "failing_since": null,
                "opened_at": null,
                "failed_probes": 0,
                "opens_after_failures": 20,
                "opens_after_failing_for_seconds": 5,
                "disable_after_seconds": 432_000,
            },
            "hold": null,
        })
    );
}

#[tokio::test]
async fn an_open_breaker_says_since_when_and_until_when() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    let hold = Hold {
        since: NOON,
        until: NOON + Duration::from_secs(30),
        reason: HoldReason::Breaker,
    };
    let open = Health {
        failures: 20,
        failing_since: Some(NOON),
        last_failed_at: Some(NOON + Duration::from_secs(5)),
        hold: Some(hold),
        opened_at: Some(NOON),
        ..Health::default()
    };
    world.store.state().health.insert(id_of(&path), open);
    let health = world.get(&format!("{path}/health")).await.json;
    assert_eq!(health["breaker"]["state"], "open");
    assert_eq!(
        health["breaker"]["failing_since"],
        "2026-01-31T12:00:00.000000Z"
    );
    assert_eq!(
        health["breaker"]["opened_at"],
        "2026-01-31T12:00:00.000000Z"
    );
    assert_eq!(health["hold"]["until"], "2026-01-31T12:00:30.000000Z");
    assert_eq!(health["hold"]["reason"], "breaker");

    // The hold is over: one attempt at a time, and nothing is held.
    let over = Health {
        hold: Some(Hold {
            until: NOON,
            ..hold
        }),
        ..open
    };
    world.store.state().health.insert(id_of(&path), over);
    let health = world.get(&format!("{path}/health")).await.json;
    assert_eq!(health["breaker"]["state"], "half_open");
    assert!(health["hold"].is_null());
}

#[tokio::test]
async fn resuming_makes_active_and_forgets() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    let gone = Health {
        disabled: Some(DisableReason::Gone),
        ..Health::default()
    };
    world.store.state().health.insert(id_of(&path), gone);
    let paused = world.post(&format!("{path}/pause"), "").await;
    assert_eq!(
        (paused.status.as_u16(), &paused.json["state"]),
        (200, &json!("paused"))
    );
    let health = world.get(&format!("{path}/health")).await.json;
    assert_eq!(
        (&health["state"], &health["disabled_for"]),
        (&json!("paused"), &json!("gone"))
    );
    let resumed = world.post(&format!("{path}/resume"), "").await;
    assert_eq!(
        (resumed.status.as_u16(), &resumed.json["state"]),
        (200, &json!("active"))
    );
    let health = world.get(&format!("{path}/health")).await.json;
    assert!(health["disabled_for"].is_null());
}

#[tokio::test]
async fn a_breaker_is_changed_by_name_and_null_is_the_default() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    let breaker = format!("{path}/breaker");
    let set = json!({
        "opens_after_failures": 5,
        "opens_after_failing_for_seconds": 30,
        "disable_after_seconds": 0,
    });
    let answer = world.patch(&breaker, set).await;
    let failing_for = "opens_after_failing_for_seconds";
    assert_eq!(answer.json["breaker"]["opens_after_failures"], 5);
    assert_eq!(answer.json["breaker"][failing_for], 30);
    assert_eq!(answer.json["breaker"]["disable_after_seconds"], 0);
    let answer = world
        .patch(&breaker, json!({"opens_after_failures": null}))
        .await;
    assert_eq!(answer.json["breaker"]["opens_after_failures"], 20);
    assert_eq!(answer.json["breaker"][failing_for], 30);
    let answer = world.patch(&breaker, json!({failing_for: null})).await;
    assert_eq!(answer.json["breaker"][failing_for], 5);
    assert_eq!(answer.json["breaker"]["disable_after_seconds"], 0);

    for field in [failing_for, "disable_after_seconds"] {
        let absurd = json!({field: 4_000_000_000_u32});
        let answer = world.patch(&breaker, absurd).await;
        answer.refuses(422, field);
    }
    let unknown = world.patch(&breaker, json!({"failures": 5})).await;
    assert_eq!(unknown.status, 422);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::new();
    let path = "/v1/destinations/00000000-0000-0000-0000-00000000dead";
    assert_eq!(world.get(&format!("{path}/health")).await.status, 404);
    for verb in ["pause", "resume"] {
        assert_eq!(world.post(&format!("{path}/{verb}"), "").await.status, 404);
    }
    assert_eq!(
        world.patch(&format!("{path}/breaker"), "{}").await.status,
        404
    );
}

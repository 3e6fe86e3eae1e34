//! Smart delivery over the API.

use std::time::Duration;

use domain::ids::DestinationId;
use domain::smart::{Effective, Reason};
use engine::ports::SmartChange;
use serde_json::json;

use crate::world::{NOON, World};

#[tokio::test]
async fn it_is_off_until_it_is_turned_on() {
    let world = World::new();
    let path = format!("{}/smart-delivery", world.destination(json!({})).await);
    let off = json!({
        "enabled": false,
        "effective_per_second": null,
        "effective_max_in_flight": null,
        "reason": "configured",
        "history": [],
    });
    assert_eq!(world.get(&path).await.json, off);
    let on = world.patch(&path, json!({ "enabled": true })).await;
    assert_eq!(on.status, 200);
    assert_eq!(on.json["enabled"], true);
    let back = world.patch(&path, json!({ "enabled": false })).await;
    assert_eq!(back.json, off);
}

#[tokio::test]
async fn it_says_what_is_in_force_why_and_what_was() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    let id: DestinationId = path.rsplit('/').next().unwrap().parse().unwrap();
    let change = |seconds, rate, reason| SmartChange {
        in_force_from: NOON + Duration::from_secs(seconds),
        effective: Effective {
            per_second: Some(rate),
            max_in_flight: (seconds > 0).then_some(7),
        },
        reason,
    };
    let history = vec![
        change(0, 3.5, Reason::Refused),
        change(9, 3.850_04, Reason::Raising),
    ];
    world.store.state().smart.insert(id, history);
    let found = world.get(&format!("{path}/smart-delivery")).await.json;
    assert_eq!(
        found,
        json!({
            "enabled": true,
            "effective_per_second": 3.85,
            "effective_max_in_flight": 7,
            "reason": "raising",
            "history": [
                {
                    "in_force_from": "2026-01-31T12:00:09.000000Z",
                    "effective_per_second": 3.85,
                    "effective_max_in_flight": 7,
                    "reason": "raising",
                },
                {
                    "in_force_from": "2026-01-31T12:00:00.000000Z",
                    "effective_per_second": 3.5,
                    "effective_max_in_flight": null,
                    "reason": "refused",
                },
            ],
        })
    );
}

#[tokio::test]
async fn nonsense_is_refused_by_its_field() {
    let world = World::new();
    let path = format!("{}/smart-delivery", world.destination(json!({})).await);
    let refused = world.patch(&path, json!({ "enable": true })).await;
    assert_eq!(refused.status, 422);
    assert!(
        refused.json.to_string().contains("enable"),
        "{:?}",
        refused.json
    );
}

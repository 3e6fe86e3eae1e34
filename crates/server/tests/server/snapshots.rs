//! What users see, committed: a change of it is a change to be looked at.

use clap::CommandFactory;
use serde_json::json;
use server::cli::Cli;

use crate::world::World;

#[test]
fn help() {
    let mut text = String::new();
    let mut command = Cli::command().term_width(100);
    command.build();
    describe(&mut command, &mut text);
    insta::assert_snapshot!(text);
}

fn describe(command: &mut clap::Command, text: &mut String) {
    if command.get_name() == "help" {
        return;
    }
    // The environment of whoever runs the tests must not show.
    let plain = command
        .clone()
        .term_width(100)
        .mut_args(|argument| argument.hide_env_values(true));
    text.push_str(&plain.clone().render_long_help().to_string());
    text.push_str("\n----\n");
    for inner in command.get_subcommands_mut() {
        describe(inner, text);
    }
}

#[test]
fn openapi() {
    insta::assert_json_snapshot!(server::api::openapi());
}

#[tokio::test]
async fn responses() {
    let world = World::new();
    let body = json!({
        "url": "https://example.com/hooks", "name": "shop", "event_types": ["order.paid"],
        "limits": {"per_second": 10, "per_minute": 200}, "shape": "token_bucket", "burst": 50,
    });
    let created = world.post("/v1/destinations", body).await.json;
    let accepted = world
        .post(
            "/v1/events",
            json!({"type": "order.paid", "payload": {"n": 1}}),
        )
        .await
        .json;
    let event = world
        .get(&format!("/v1/events/{}", accepted["id"].as_str().unwrap()))
        .await
        .json;
    let refused = world
        .post("/v1/destinations", json!({"url": "x"}))
        .await
        .json;
    let batch = json!({"events": [{"type": "order.paid", "payload": 1}, {"type": "order.paid"}]});
    let batch = world.post("/v1/events/batch", batch).await.json;
    insta::assert_json_snapshot!(json!({
        "POST /v1/destinations": created,
        "POST /v1/events": accepted,
        "GET /v1/events/{id}": event,
        "a problem": refused,
        "POST /v1/events/batch": batch,
    }));
}

//! Each command of the runbook, fenced or in its prose, runs as it stands there, for
//! an alert whose destination is another tenant's than the operator's key's. Only the
//! port is another one; `$ID` is the label of the alert.

use serde_json::{Value, json};

use crate::book::{blocks, commands, document, inline, words};
use crate::stage::Stage;

/// The customer of whom the alerts tell.
const CUSTOMER: &str = "M\u{fc}ller & S\u{f6}hne";

/// In the order of the page, each once.
fn shown() -> Vec<String> {
    let page = document("runbook.md");
    let fenced = blocks(page, "sh");
    let fenced = fenced.iter().flat_map(|block| commands(block));
    let is_command = |code: &String| code.starts_with("paceline ") || code.starts_with("curl ");
    let mut shown: Vec<String> = Vec::new();
    for command in fenced.chain(inline(page).into_iter().filter(is_command)) {
        if !shown.contains(&command) {
            shown.push(command);
        }
    }
    shown
}

/// Asks the API with the operator's key, or with another.
fn post(stage: &Stage, key: &str, path: &str, body: &Value) -> Value {
    let authorization = format!("Authorization: Bearer {key}");
    let url = format!("http://{}{path}", stage.api);
    let words = ["-s", "-H", &authorization, "-d", &body.to_string(), &url].map(str::to_owned);
    stage.curl(&words)
}

/// An operator's key, and a customer with a destination.
fn world() -> (Stage, String) {
    let mut stage = Stage::new();
    let key = "the-key-of-whoever-is-on-call".to_owned();
    stage
        .variables
        .insert("PACELINE_API_KEY".to_owned(), key.clone());
    let serve = format!("serve --allow-http --allow-networks {}", stage.receiver);
    stage.serve(&words(&serve, &stage.variables));
    let tenant = post(&stage, &key, "/v1/tenants", &json!({"name": CUSTOMER}));
    let tenant = tenant["id"].as_str().unwrap();
    let keys = format!("/v1/tenants/{tenant}/keys");
    let scopes = json!({"name": "own", "scopes": ["ingest", "manage", "read"]});
    let theirs = post(&stage, &key, &keys, &scopes);
    let url = format!("http://{}/hooks", stage.receiver);
    let new = json!({"name": "their shop", "url": url});
    let theirs = theirs["key"].as_str().unwrap();
    let made = post(&stage, theirs, "/v1/destinations", &new);
    let id = made["id"].as_str().unwrap().to_owned();
    stage.variables.insert("ID".to_owned(), id.clone());
    (stage, id)
}

#[test]
fn each_command_runs_for_another_tenants_destination() {
    let (stage, id) = world();
    let shown = shown();
    assert!(shown.len() >= 10, "{shown:?}");
    let mut of_it = 0;
    for command in &shown {
        let command = command.replace("127.0.0.1:8080", &stage.api);
        let words = words(&command, &stage.variables);
        if words[0] == "curl" {
            assert_eq!(stage.curl(&words[1..])["ready"], true, "{command}");
            continue;
        }
        let output = stage.run(&words[1..]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.trim().is_empty(), "{command} says nothing");
        // What it is about, and what is about all tenants.
        if command.contains("$ID") || command.contains(&id) {
            of_it += 1;
            let path = format!("/v1/destinations/{id}");
            let after = command.split(' ').nth(2).unwrap();
            match after {
                "pause" => stage.wait_for(&path, |found| found["state"] == "paused"),
                "resume" => stage.wait_for(&path, |found| found["state"] == "active"),
                "update" => {
                    stage.wait_for(&path, |found| found["limits"]["per_second"] == 50);
                }
                _ => {}
            }
        }
        if words[1..] == ["top", "--all"] {
            assert!(
                said.contains("their shop") && said.contains(CUSTOMER),
                "{said}"
            );
        }
        if words[1..] == ["operations", "events", "--installation"] {
            assert!(said.contains("TENANT"), "{said}");
        }
    }
    assert!(of_it >= 6, "{of_it} of {shown:?}");
}

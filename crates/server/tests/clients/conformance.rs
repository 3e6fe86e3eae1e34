//! The server does what its description says: schemathesis finds no violation.
//!
//! Needs it: the path in `PACELINE_TEST_SCHEMATHESIS` (`scripts/test` sets it),
//! or else what `scripts/tool` installs; and for what is asked over a database
//! PACELINE_TEST_DATABASE_URL, as `scripts/with-servers` sets it.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::scratch::Scratch;
use crate::seeds;
use crate::site::{KEY, Site, done, root};

fn schemathesis() -> String {
    let named = env::var("PACELINE_TEST_SCHEMATHESIS").ok();
    named.filter(|path| !path.is_empty()).unwrap_or_else(|| {
        let said = done(Command::new(root().join("scripts/tool")).arg("schemathesis"));
        said.trim().to_owned()
    })
}

/// Not asked at all: lines of JSON that are answered line by line are nothing that a
/// generator of one JSON body can write. `tests/server/bulk.rs` has its own.
const LEFT_OUT: [&str; 1] = ["POST /v1/events/bulk"];

fn run(site: &Site, (settings, description): (&str, &str), key: &str) -> Command {
    let settings = root().join("crates/server/tests/clients").join(settings);
    let mut command = Command::new(schemathesis());
    command
        .current_dir(site.folder.path())
        .env("PACELINE_API_KEY", key)
        .arg("--config-file")
        .arg(settings)
        .args(["run", description, "--no-color"])
        .args(["--report", "ndjson", "--report-dir", "asked"]);
    command
}

/// What each operation was answered in a run in which nothing failed, and what that said.
#[track_caller]
fn conforms(site: &Site, settings: &str, seeds: &[(&str, String)]) -> Answered {
    let description = format!("{}/openapi.json", site.url());
    let mut command = run(site, (settings, &description), KEY);
    let seeds = seeds.iter().map(|(name, id)| (name, id));
    answered(site, command.envs(seeds))
}

#[track_caller]
fn answered(site: &Site, command: &mut Command) -> Answered {
    let said = done(command);
    let reports = fs::read_dir(site.folder.path().join("asked")).unwrap();
    let mut statuses: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for report in reports {
        let lines = fs::read_to_string(report.unwrap().path()).unwrap();
        for line in lines.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let recorder = &event["ScenarioFinished"]["recorder"];
            let (Some(label), Some(asked)) = (
                recorder["label"].as_str(),
                recorder["interactions"].as_object(),
            ) else {
                continue;
            };
            let of = statuses.entry(label.to_owned()).or_default();
            let status = |one: &Value| one["response"]["status_code"].as_u64();
            of.extend(asked.values().filter_map(status));
        }
    }
    Answered { statuses, said }
}

struct Answered {
    statuses: BTreeMap<String, BTreeSet<u64>>,
    said: String,
}

impl Answered {
    /// Of all that are described, those of which no answer has such a status.
    fn without(&self, site: &Site, wanted: impl Fn(u64) -> bool) -> Vec<String> {
        let description = site.get("/openapi.json");
        let paths = description["paths"].as_object().unwrap();
        let described = paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        let has = |operation: &String| {
            let statuses = self.statuses.get(operation);
            statuses.is_some_and(|all| all.iter().any(|status| wanted(*status)))
        };
        let mut left: Vec<_> = described.filter(|one| !has(one)).collect();
        left.sort_unstable();
        left
    }
}

#[track_caller]
fn tested_all(site: &Site, key: &str, phases: &[&str]) {
    let description = format!("{}/openapi.json", site.url());
    let mut command = run(site, ("schemathesis.toml", &description), key);
    let wanted = phases.join(",").to_lowercase();
    let answered = answered(site, command.args(["--phases", &wanted]));
    // An empty run would succeed as well.
    for phase in phases {
        let said = &answered.said;
        assert!(said.contains(&format!("✅ {phase}")), "{said}");
    }
    assert_eq!(answered.without(site, |_any| true), LEFT_OUT);
}

#[test]
fn the_server_does_what_its_description_says_to_an_administrator() {
    let site = Site::start();
    let all = ["Examples", "Coverage", "Fuzzing", "Stateful"];
    tested_all(&site, KEY, &all);
}

/// Without the coverage of all that a schema refuses, which is refused before anybody looks
/// whose the request is.
#[test]
fn the_server_does_what_its_description_says_to_a_tenant() {
    let site = Site::start();
    let key = site.tenants_key();
    tested_all(&site, &key, &["Examples", "Fuzzing", "Stateful"]);
}

/// With ids of things that are there, and with the bodies that the description has as
/// examples: so that what is answered to those who succeed is held to the description too.
#[test]
fn each_operation_succeeds_as_it_is_described() {
    all_succeed(&Site::start());
}

/// What the other store answers is held to the same description.
#[tokio::test(flavor = "multi_thread")]
async fn each_operation_succeeds_over_a_database_as_it_is_described() {
    let database = Scratch::migrated("").await;
    all_succeed(&Site::over(&database.url()));
}

fn all_succeed(site: &Site) {
    let seeds = seeds::planted(site, None);
    let answered = conforms(site, "seeded.toml", &seeds);
    assert_eq!(answered.without(site, is_success), LEFT_OUT);
}

fn is_success(status: u64) -> bool {
    (200..300).contains(&status)
}

/// The same for a tenant that a platform acts for, whose tier sets no ceiling: each
/// operation that takes the header succeeds with it.
#[test]
fn each_operation_succeeds_for_a_tenant_as_it_is_described() {
    const TENANT: &str = "customer-7";
    let site = Site::start();
    site.post("/v1/tiers", &json!({"name": "unbounded"}));
    let tenant = json!({"name": "of a platform", "external_id": TENANT, "tier": "unbounded"});
    site.post("/v1/tenants", &tenant);
    let seeds = seeds::planted(&site, Some(TENANT));
    let ours = fs::read_to_string(root().join("crates/server/tests/clients/seeded.toml")).unwrap();
    let header = format!("[headers]\nPaceline-Tenant = \"{TENANT}\"\n");
    let settings = ours.replace("[headers]\n", &header);
    assert_ne!(settings, ours);
    let file = site.folder.path().join("acting.toml");
    fs::write(&file, settings).unwrap();
    let answered = conforms(&site, file.to_str().unwrap(), &seeds);

    let description = site.get("/openapi.json");
    let takes_the_header = |operation: &String| {
        let (method, path) = operation.split_once(' ').unwrap();
        let described = &description["paths"][path][method.to_lowercase()];
        let parameters = described["parameters"].as_array();
        parameters.is_some_and(|all| all.iter().any(|one| one["name"] == "Paceline-Tenant"))
    };
    let mut left = answered.without(&site, is_success);
    left.retain(takes_the_header);
    assert_eq!(left, LEFT_OUT);
}

/// A check that finds nothing must be one that could: of a description that is
/// wrong about one field it says so.
#[test]
fn a_description_that_is_wrong_is_found_out() {
    let site = Site::start();
    let mut description = site.get("/openapi.json");
    let next = "/components/schemas/Destinations/properties/next/type";
    *description.pointer_mut(next).unwrap() = "integer".into();
    let file = site.folder.path().join("wrong.json");
    fs::write(&file, description.to_string()).unwrap();
    let output = run(&site, ("schemathesis.toml", "wrong.json"), KEY)
        .args(["--url", &site.url()])
        .args(["--include-path", "/v1/destinations"])
        .args(["--include-method", "GET"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Response violates schema"), "{said}");
}

//! The server does what its description says: schemathesis finds no violation.
//!
//! Needs it: the path in `PACELINE_TEST_SCHEMATHESIS` (`scripts/test` sets it),
//! or else what `scripts/tool` installs.

use std::env;
use std::fs;
use std::process::Command;

use crate::site::{KEY, Site, done, root};

fn schemathesis() -> String {
    let named = env::var("PACELINE_TEST_SCHEMATHESIS").ok();
    named.filter(|path| !path.is_empty()).unwrap_or_else(|| {
        let said = done(Command::new(root().join("scripts/tool")).arg("schemathesis"));
        said.trim().to_owned()
    })
}

fn run(site: &Site, description: &str, key: &str) -> Command {
    let settings = root().join("crates/server/tests/clients/schemathesis.toml");
    let mut command = Command::new(schemathesis());
    command
        .current_dir(site.folder.path())
        .env("PACELINE_API_KEY", key)
        .arg("--config-file")
        .arg(settings)
        .args(["run", description, "--no-color"]);
    command
}

/// What it says of a run in which nothing failed.
#[track_caller]
fn conforms(site: &Site, key: &str) -> String {
    let description = format!("{}/openapi.json", site.url());
    done(&mut run(site, &description, key))
}

#[track_caller]
fn tested_all(said: &str) {
    // An empty run would succeed as well.
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(said.contains(&format!("✅ {phase}")), "{said}");
    }
    let tested = said.lines().find_map(|line| {
        let count = line.trim().strip_prefix("Tested: ")?;
        count.parse::<usize>().ok()
    });
    assert!(tested.is_some_and(|tested| tested >= 50), "{said}");
}

#[test]
fn the_server_does_what_its_description_says_to_an_administrator() {
    let site = Site::start();
    tested_all(&conforms(&site, KEY));
}

#[test]
fn the_server_does_what_its_description_says_to_a_tenant() {
    let site = Site::start();
    let key = site.tenants_key();
    tested_all(&conforms(&site, &key));
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
    let output = run(&site, "wrong.json", KEY)
        .args(["--url", &site.url()])
        .args(["--include-path", "/v1/destinations"])
        .args(["--include-method", "GET"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Response violates schema"), "{said}");
}

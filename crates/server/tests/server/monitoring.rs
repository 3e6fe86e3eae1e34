//! Alerts, recording rules, dashboard and runbook against a live `/metrics`.
//!
//! Needs promtool: the path in `PACELINE_TEST_PROMTOOL` (`scripts/test` sets
//! it), or else the one on the `PATH`.

use std::collections::BTreeSet;
use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use server::exported::{METRICS, Of};
use server::receiver::{Behaviour, Receiver};

use crate::process::{Server, free_port, get, paceline, poll};

const ALERTS: &str = include_str!("../../../../k8s/components/monitoring/rules.yaml");
const TESTS: &str = include_str!("../../../../docs/monitoring/alerts.test.yaml");
const DASHBOARD: &str = include_str!("../../../../docs/monitoring/grafana.json");
const RUNBOOK: &str = include_str!("../../../../docs/runbook.md");

/// The rules as promtool takes them, without what Kubernetes wants around them,
/// beside their tests.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let rules: Value = serde_saphyr::from_str(ALERTS).unwrap();
    assert_eq!(rules["kind"], "PrometheusRule");
    // JSON is YAML.
    let spec = rules["spec"].to_string();
    std::fs::write(folder.path().join("alerts.yaml"), spec).unwrap();
    std::fs::write(folder.path().join("alerts.test.yaml"), TESTS).unwrap();
    folder
}

fn promtool(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let named = env::var_os("PACELINE_TEST_PROMTOOL").filter(|path| !path.is_empty());
    let program = named.unwrap_or_else(|| "promtool".into());
    let child = Command::new(&program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| {
        panic!(
            "promtool is missing ({}: {error}): run scripts/test, or set \
             PACELINE_TEST_PROMTOOL to what scripts/promtool prints",
            program.display()
        )
    });
    let mut stdin = child.stdin.take().unwrap();
    // One that takes no input has closed its end.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn accepted(output: &Output) {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool refuses:\n{said}");
    // A lint is no failure to promtool; to us it is.
    assert!(output.stderr.is_empty(), "promtool complains:\n{said}");
}

/// Words that begin with `paceline_` or `paceline:`.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    let words = text.split(|char| !is_part(char));
    let ours = words.filter(|word| word.starts_with("paceline_") || word.starts_with("paceline:"));
    ours.map(str::to_owned).collect()
}

/// The values of a key of the rules, one a line.
fn rules(key: &str) -> BTreeSet<&'static str> {
    let lines = ALERTS
        .lines()
        .map(|line| line.trim().trim_start_matches("- "));
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    values.collect()
}

/// Every expression of the dashboard, wherever it stands.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("expr" | "query" | "definition", Value::String(text)) => {
                        found.push(text.clone());
                    }
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// `# TYPE name kind` of each metric that has a sample, with the names of its
/// samples.
fn exported(metrics: &str) -> BTreeSet<String> {
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let end = |line: &&str| !line.is_empty();
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or(line).to_owned();
    samples.filter(end).map(name).collect()
}

/// An installation that has delivered something, and has something left.
async fn metrics_of_a_busy_server() -> String {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(Behaviour::ACCEPT, 1_000).await.unwrap();
    let port = free_port();
    let server = Server::start(folder.path(), port);
    let url = format!("http://127.0.0.1:{port}");
    let client = |arguments: &[&str]| -> Value {
        let with = ["--url", &url, "--output", "json"];
        let mut command = paceline(folder.path());
        let output = command.args(arguments).args(with).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let endpoint = receiver.url(0);
    let created = client(&["destination", "create", &endpoint, "--per-minute", "2"]);
    let id = created["id"].as_str().unwrap();
    for order in 0..5 {
        let payload = json!({ "order": order }).to_string();
        client(&["event", "send", "--destination", id, &payload]);
    }
    // A survey that ended after its two starts: what follows is in the gauges.
    let metrics = || get(port, "/metrics");
    let line = format!("paceline_destination_drain_seconds{{destination=\"{id}\"");
    poll("the first survey", || {
        metrics().filter(|text| text.contains(&line))
    });
    // One that a busy machine starts too late is not sent, and is a start all the same.
    let outcomes = |text: &str| -> f64 {
        let lines = (text.lines()).filter(|line| line.starts_with("paceline_attempts_total{"));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum()
    };
    poll("two starts", || {
        metrics().filter(|text| outcomes(text) >= 2.0)
    });
    let shown = format!("paceline_destination_tokens{{destination=\"{id}\"");
    let answer = poll("a survey of what is left", || {
        let text = metrics()?;
        let tokens = text.lines().find(|line| line.starts_with(&shown))?;
        tokens.ends_with(" 0").then(|| text.clone())
    });
    assert_eq!(server.stop(), Some(0), "drained");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_and_dashboard_ask_for_what_a_live_server_exports() {
    let metrics = metrics_of_a_busy_server().await;
    let folder = folder();
    accepted(&promtool(folder.path(), &["check", "metrics"], &metrics));
    let exported = exported(&metrics);
    let recorded = rules("record");
    // A router is no part of it.
    let of_routers: BTreeSet<&str> = (METRICS.iter())
        .filter(|metric| matches!(metric.of, Of::Router))
        .map(|metric| metric.name)
        .collect();
    let known = |name: &String| {
        exported.contains(name)
            || recorded.contains(name.as_str())
            || of_routers.contains(name.as_str())
    };
    let mut asked = names(ALERTS);
    let mut found = Vec::new();
    expressions(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    assert!(
        found.len() > 30,
        "the dashboard has panels: {}",
        found.len()
    );
    asked.extend(found.iter().flat_map(|expression| names(expression)));
    let missing: Vec<_> = asked.iter().filter(|name| !known(name)).collect();
    assert!(
        missing.is_empty(),
        "nobody exports {missing:?} in\n{metrics}"
    );

    let value = |start: &str| {
        let line = metrics.lines().find(|line| line.starts_with(start));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    let one = |name: &str| value(&format!("paceline_{name} "));
    assert_eq!(one("starts_total"), Some(2.0));
    assert_eq!(one("early_starts"), Some(0.0));
    assert_eq!(one("workers"), Some(1.0));
    assert_eq!(one("delivery_seconds_count"), Some(2.0));
    assert_eq!(one("dead_letters_total"), Some(0.0));
    assert_eq!(value("paceline_responses_total{class=\"2xx\"}"), Some(2.0));
    assert_eq!(value("paceline_destination_backlog_attempts{"), Some(3.0));
    assert_eq!(value("paceline_destination_failed_ratio{"), Some(0.0));
    // Two in the minute that is full now, and the third a minute later.
    let drains = value("paceline_destination_drain_seconds{").unwrap();
    assert!((60.0..=120.0).contains(&drains), "{drains}");
    for part in ["store", "schedule", "queue"] {
        let up = format!("paceline_part_up{{part=\"{part}\"}}");
        assert_eq!(value(&up), Some(1.0), "{part}");
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let folder = folder();
    for arguments in [
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts.test.yaml"],
    ] {
        accepted(&promtool(folder.path(), &arguments, ""));
    }
}

#[test]
fn every_alert_has_a_test_and_an_entry_in_the_runbook() {
    let alerts = rules("alert");
    assert!(alerts.len() >= 10, "{alerts:?}");
    let entries: BTreeSet<&str> = (RUNBOOK.lines())
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert_eq!(entries, alerts);
    let anchors: BTreeSet<String> = (alerts.iter())
        .map(|alert| format!("docs/runbook.md#{}", alert.to_lowercase()))
        .collect();
    let named: BTreeSet<String> = rules("runbook").into_iter().map(str::to_owned).collect();
    assert_eq!(named, anchors);
    for alert in alerts {
        let tested = format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels");
        assert!(TESTS.contains(&tested), "no test in which {alert} fires");
    }
}

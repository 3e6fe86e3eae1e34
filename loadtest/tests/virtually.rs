//! What needs no Paceline: ways to limit side by side, and the scheduler alone.

use std::process::Command;

use serde_json::Value;

fn loadtest(arguments: &[&str]) -> String {
    let program = Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .env_remove("PACELINE_TEST_REDIS_URL")
        .args(arguments)
        .output()
        .expect("this program starts");
    let said = String::from_utf8_lossy(&program.stderr);
    assert!(program.status.success(), "{said}");
    String::from_utf8(program.stdout).expect("text")
}

#[test]
fn ways_to_limit_are_shown_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let summary = folder.path().join("ways.json");
    let file = summary.to_str().unwrap();
    let text = loadtest(&["side-by-side", "--events", "1000", "--summary", file]);
    let ways: Vec<Value> = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    let names: Vec<_> = ways.iter().filter_map(|way| way["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "classic formula",
            "fixed window",
            "sliding window",
            "token bucket of 20",
            "leaky bucket"
        ]
    );
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
}

/// Every destination goes on to be run, at its limit's pace and no faster.
#[test]
fn a_scheduler_alone_runs_every_destination() {
    let arguments = [
        "scheduler",
        "--destinations",
        "300",
        "--limit",
        "1/s",
        "--seconds",
        "3",
    ];
    let text = loadtest(&arguments);
    let json = text.find('{').expect("a report");
    let report: Value = serde_json::from_str(&text[json..]).expect("a report is JSON");
    let figure = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    assert_eq!(figure("allowed_per_second"), 300.0);
    let starts = figure("starts_per_second") * figure("seconds");
    // Each at least once, and at most one a second and what was planned ahead.
    assert!(starts >= 300.0, "{text}");
    assert!(starts <= 300.0 * (figure("seconds") + 2.0), "{text}");
    assert!(
        figure("runs_per_start") >= 1.0 && figure("runs_per_start") < 3.0,
        "{text}"
    );
}

//! `loadtest run`, whole, on an embedded Paceline: a few hundred events, and
//! reports that say what became of them. Nothing here depends on how fast the
//! machine is.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::{sleep, timeout};

/// So many events a second, for so long.
const RATE: u64 = 100;
const SECONDS: u64 = 3;

fn loadtest(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_loadtest");
    Command::new(program)
        .args(["--program", program])
        .args(arguments)
        .output()
        .expect("this program starts")
}

fn run(summary: &Path, arguments: &[&str]) -> Output {
    let (rate, seconds) = (RATE.to_string(), SECONDS.to_string());
    let common = [
        "run",
        "--rate",
        &rate,
        "--seconds",
        &seconds,
        "--drain-seconds",
        "300",
    ];
    let summary = ["--summary", summary.to_str().expect("a path is text")];
    loadtest(&[&common, &summary[..], arguments].concat())
}

fn report(path: &Path) -> Value {
    let text = std::fs::read(path).expect("there is a report");
    serde_json::from_slice(&text).expect("a report is JSON")
}

#[test]
fn every_event_is_delivered_once_and_the_report_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (before, page) = (folder.path().join("a.json"), folder.path().join("a.html"));
    let limited = [
        "--destinations",
        "5",
        "--limit",
        "50/s",
        "--html",
        page.to_str().unwrap(),
    ];
    let holds = ["--threshold", "lost==0", "--threshold", "delivered==300"];
    let output = run(&before, &[&limited[..], &holds[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("accepted") && said.contains("backlog"),
        "a line of progress: {said}"
    );

    let report = report(&before);
    assert_eq!(
        (&report["format"], &report["ended"]),
        (&1.into(), &"drained".into())
    );
    let metric = |name: &str| report["metrics"][name].as_f64();
    let events = (RATE * SECONDS) as f64;
    for name in ["offered", "accepted", "delivered", "requests"] {
        assert_eq!(metric(name), Some(events), "{name}");
    }
    for name in [
        "refused",
        "unanswered",
        "duplicates",
        "undelivered",
        "lost",
        "early_starts",
    ] {
        assert_eq!(metric(name), Some(0.0), "{name}");
    }
    let processes = report["processes"].as_array().unwrap();
    let names: Vec<_> = processes
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    for name in ["serve", "receiver", "client"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let delivered: u64 = (report["seconds"].as_array().unwrap().iter())
        .filter_map(|second| second["delivered"].as_u64())
        .sum();
    assert_eq!(delivered, RATE * SECONDS);
    for one in report["destinations"].as_array().unwrap() {
        assert_eq!(one["arrivals"], 60, "{one}");
        assert!(one["worst_at_sender"].as_u64().unwrap() <= 50, "{one}");
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));

    let same = loadtest(&[
        "compare",
        before.to_str().unwrap(),
        before.to_str().unwrap(),
    ]);
    assert!(same.status.success());
    let said = String::from_utf8_lossy(&same.stdout);
    assert!(said.contains("300") && said.contains("1.00"), "{said}");
}

#[test]
fn an_import_goes_in_bulk_and_a_threshold_that_is_crossed_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let summary = folder.path().join("b.json");
    let import = [
        "--shape", "import", "--events", "500", "--hot", "3", "--rate", "0",
    ];
    let common = [
        "run",
        "--seconds",
        "1",
        "--destinations",
        "3",
        "--drain-seconds",
        "300",
    ];
    let crossed = [
        "--threshold",
        "delivered<500",
        "--summary",
        summary.to_str().unwrap(),
    ];
    let output = loadtest(&[&common[..], &import[..], &crossed[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("crossed: delivered < 500: it is 500"),
        "{said}"
    );
    let metrics = &report(&summary)["metrics"];
    assert_eq!(
        (&metrics["delivered"], &metrics["lost"]),
        (&500.0.into(), &0.0.into())
    );
}

#[test]
fn a_threshold_over_no_figure_is_refused_before_anything_starts() {
    let output = loadtest(&["run", "--threshold", "p98_ms<10"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("p99_ms") && said.contains("least_share_percent"),
        "{said}"
    );
}

#[test]
fn a_backlog_of_others_is_for_postgres_alone() {
    let output = loadtest(&["run", "--waiting", "100"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--waiting needs --size distributed"),
        "{said}"
    );
}

/// So do the processes of the run that is under way.
#[tokio::test]
async fn targets_that_are_told_to_end_leave_no_process() {
    let program = env!("CARGO_BIN_EXE_loadtest");
    let mut targets = tokio::process::Command::new(program)
        .args(["--program", program, "targets", "--only", "embedded"])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("this program starts");
    let id = targets.id().expect("it runs");
    let mut started = Vec::new();
    until(|| {
        started = started_by(id);
        started.iter().any(|one| words(*one).contains("\0serve"))
    })
    .await;
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), Signal::TERM).expect("it runs");
    let ended = timeout(Duration::from_secs(60), targets.wait()).await;
    let ended = ended.expect("within a minute").expect("it ends");
    assert_eq!(ended.code(), Some(130));
    until(|| started.iter().all(|one| words(*one).is_empty())).await;
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let asking = async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), asking)
        .await
        .expect("within a minute");
}

/// The processes that this one has started, and those that they have.
fn started_by(process: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    children
        .flat_map(|id| [vec![id], started_by(id)].concat())
        .collect()
}

/// What a process was started with; nothing of one that has ended.
fn words(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default()
}

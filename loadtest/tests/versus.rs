//! `loadtest versus`, whole: a few hundred events by turns through an embedded Paceline
//! and BullMQ. It takes Node, npm and Redis; where one is missing it says so and is
//! skipped. Nothing here depends on how fast the machine is.

use std::io::Write;
use std::process::{Command, Output};

use serde_json::Value;

/// Whether a program is here; said loudly if not.
fn is_here(program: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok();
    if !here {
        skip(&format!("{program} is missing"));
    }
    here
}

/// Past what the test's harness captures.
fn skip(why: &str) {
    let line = format!("\nNOT RUN: loadtest versus is not tried: {why}");
    writeln!(std::io::stderr(), "{line}").expect("say what is skipped");
}

fn versus(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_loadtest");
    Command::new(program)
        .args(["--program", program, "versus", "--json"])
        .args(arguments)
        .output()
        .expect("this program starts")
}

fn row<'a>(report: &'a Value, figure: &str) -> &'a Value {
    let mut rows = report["rows"].as_array().expect("rows").iter();
    let is = |row: &&Value| {
        row["figure"]
            .as_str()
            .is_some_and(|name| name.contains(figure))
    };
    rows.find(is).expect("a row of the figure")
}

#[test]
fn both_sides_deliver_all_and_are_judged_alike() {
    if !["node", "npm", "redis-server"].into_iter().all(is_here) {
        return;
    }
    let drain = ["--events", "300", "--destinations", "3", "--pairs", "1"];
    let limit = ["--limits", "40/s", "--seconds", "2", "--in-flight", "16"];
    let output = versus(&[&drain[..], &limit, &["--sizes", "embedded"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("install BullMQ") {
        skip(&format!("npm found no packages: {said}"));
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("no report: {error}: {said}"));
    // How fast it is depends on the machine; the exit code says what the verdicts say.
    let rows = report["rows"].as_array().unwrap();
    let verdicts: Vec<_> = (rows.iter())
        .filter_map(|row| row["verdict"]["passed"].as_bool())
        .collect();
    assert_eq!(verdicts.len(), 3, "a drain, a share, a window: {rows:?}");
    let passed = verdicts.iter().all(|passed| *passed);
    assert_eq!(output.status.success(), passed, "{said}");

    let turns = report["turns"].as_array().unwrap();
    let order: Vec<_> = turns
        .iter()
        .map(|turn| turn["who"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["paceline", "bullmq", "paceline", "bullmq"]);
    for turn in &turns[..2] {
        let drained = &turn["outcome"]["drained"];
        assert_eq!(drained["extra"], 0, "{turn}");
        assert!(drained["connections"].as_u64() > Some(0), "{turn}");
        assert!(
            drained["processes_us"]
                .as_object()
                .is_some_and(|all| !all.is_empty())
        );
    }
    let peers = &turns[1]["outcome"]["drained"]["connections"];
    assert!(peers.as_u64() <= Some(16), "two pools of eight: {peers}");
    for side in ["paceline", "bullmq"] {
        let of = |figure: &str| row(&report, figure)[side].as_f64().unwrap();
        assert!(of("deliveries/s") > 0.0, "{side}");
        // Not a whole one on a machine that is busy, but never none of it.
        assert!(of("share of the limit") > 10.0, "{side}");
        assert!((1.0..=80.0).contains(&of("worst window")), "{side}");
    }
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("appendonly yes, appendfsync everysec"),
        "{notes}"
    );
    assert!(notes.contains("SQLite file"), "{notes}");
}

#[test]
fn what_it_cannot_measure_is_refused_before_anything_is_installed() {
    let output = versus(&["--limits", "5/min", "--seconds", "60"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--seconds must be at least 120"), "{said}");
}

/// The peer's requests are signed as ours are: by the official library's word.
#[test]
fn the_peer_signs_as_the_standard_says() {
    if !is_here("node") {
        return;
    }
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/versus/signature.mjs");
    let (id, timestamp, payload) = ("msg_7", 1_700_000_000, r#"{"order":"ä"}"#);
    let script = format!(
        "import {{ signature }} from {module:?};\
         const key = Buffer.from('0123456789abcdef0123456789abcdef');\
         const signed = {{ id: {id:?}, timestamp: {timestamp}, payload: {payload:?} }};\
         process.stdout.write(signature(key, signed));"
    );
    let node = Command::new("node")
        .args(["--input-type=module", "--eval", &script])
        .output()
        .expect("node starts");
    let said = String::from_utf8_lossy(&node.stderr);
    assert!(node.status.success(), "{said}");
    let key = b"0123456789abcdef0123456789abcdef".to_vec();
    let official = standardwebhooks::Webhook::from_bytes(key).unwrap();
    let expected = official.sign(id, timestamp, payload.as_bytes()).unwrap();
    assert_eq!(String::from_utf8_lossy(&node.stdout), expected);
}

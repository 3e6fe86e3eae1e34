//! `loadtest cluster`, whole: an API server that the test plays over real
//! sockets, and pods that are real processes of Paceline, killed when the API
//! server is told to kill them. Nothing here depends on how fast the machine is.
#![cfg(feature = "k8s")]
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod api_server;
mod pod;

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use server::receiver::{Behaviour, Receiver};
use tokio::process::Command;

use api_server::ApiServer;
use pod::{KEY, Pod};

/// So many events a second, for so long.
const RATE: u64 = 40;
const SECONDS: u64 = 6;

/// What is done to the pod meanwhile.
const FAULTS: [&str; 8] = [
    "--fault",
    "1s evict app=worker",
    "--fault",
    "2s kill app=worker",
    "--fault",
    "3s scale worker 3",
    "--fault",
    "4s delete app=worker",
];

const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: another
clusters: [{ name: test, cluster: { server: "http://ADDRESS" } }]
users: [{ name: test, user: {} }]
contexts:
  - { name: another, context: { cluster: nowhere, user: test } }
  - { name: test, context: { cluster: test, user: test } }
"#;

async fn loadtest(folder: &Path, server: &ApiServer, arguments: &[&str]) -> Output {
    let kubeconfig = folder.join("kubeconfig");
    let text = KUBECONFIG.replace("ADDRESS", &server.address.to_string());
    std::fs::write(&kubeconfig, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .args(["cluster", "--context", "test", "--kubeconfig"])
        .arg(kubeconfig)
        .args(arguments)
        .env("PACELINE_API_KEY", KEY)
        .kill_on_drop(true)
        .output()
        .await
        .expect("this program starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_and_nothing_is_lost_while_its_pod_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(Behaviour::ACCEPT, 10_000).await.unwrap();
    let pod = Pod::start(folder.path()).await;
    let url = format!("http://{}", pod.address);
    let server = ApiServer::start(pod).await;
    let to = receiver.url(0);
    let to = to.strip_suffix("/0").unwrap();
    let (summary, page) = (folder.path().join("a.json"), folder.path().join("a.html"));
    let (rate, seconds) = (RATE.to_string(), SECONDS.to_string());
    let load = [
        "--url",
        &url,
        "--to",
        to,
        "--rate",
        &rate,
        "--seconds",
        &seconds,
    ];
    let shape = [
        "--destinations",
        "2",
        "--limit",
        "15/s",
        "--drain-seconds",
        "300",
    ];
    let written = [
        "--summary",
        summary.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ];
    let arguments = [&load[..], &shape, &written, &FAULTS].concat();
    let output = loadtest(folder.path(), &server, &arguments).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(said.contains("limits held, and nothing was lost"), "{said}");

    let report: Value = serde_json::from_slice(&std::fs::read(&summary).unwrap()).unwrap();
    all_of_it_held(&report);
    let record = receiver.record();
    let arrived: std::collections::BTreeSet<_> = record
        .arrivals
        .iter()
        .filter_map(|arrival| arrival.event)
        .collect();
    assert!(
        arrived.len() as u64 >= RATE * SECONDS,
        "by the receiver's own count"
    );

    what_was_done_is_in_the_timeline(&report);
    // An eviction that a budget refuses is asked for once, and not again unseen.
    assert_eq!(server.count("POST", "/eviction"), 1);
    let deletes = server.bodies("DELETE", "/pods/");
    assert_eq!(deletes[0]["gracePeriodSeconds"], 0, "killed");
    assert_eq!(deletes[1]["gracePeriodSeconds"], Value::Null, "deleted");
    assert_eq!(server.kills(), 2, "of a real process");
    assert_eq!(server.replicas(), 2, "scaled back");
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
}

fn all_of_it_held(report: &Value) {
    assert_eq!(report["ended"], "drained");
    let events = RATE * SECONDS;
    for (name, expected) in [
        ("offered", events),
        ("accepted", events),
        ("delivered", events),
    ] {
        assert_eq!(report["counts"][name], expected, "{name}");
    }
    assert_eq!(report["counts"]["lost"], 0);
    for one in report["destinations"].as_array().unwrap() {
        assert_eq!(one["compliant"], true, "{one}");
        let fullest = one["rules"][0]["largest_sliding"]["starts"].as_u64();
        assert!(fullest.is_some_and(|starts| starts <= 15), "{one}");
    }
}

fn what_was_done_is_in_the_timeline(report: &Value) {
    let timeline = report["timeline"].as_array().unwrap();
    let of = |kind: &'static str| timeline.iter().filter(move |entry| entry["kind"] == kind);
    let faults: Vec<_> = of("fault")
        .map(|entry| json!([entry["verb"], entry["object"], entry["answer"]]))
        .collect();
    let expected = [
        json!(["evict", "pod worker-0", "refused"]),
        json!(["kill", "pod worker-0", "done"]),
        json!(["scale", "deployment worker to 3", "done"]),
        json!(["delete", "pod worker-0", "done"]),
        json!(["scale back", "deployment worker to 2", "done"]),
    ];
    assert_eq!(faults, expected);
    let refused = of("fault").next().unwrap();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("disruption budget"), "{message}");
    let wanted: Vec<_> = of("deployment")
        .filter_map(|entry| entry["wanted"].as_i64())
        .collect();
    assert_eq!(wanted[..2], [2, 3], "the watch saw it");
    assert!(of("autoscaler").any(|entry| entry["name"] == "worker" && entry["current"] == 2));
}

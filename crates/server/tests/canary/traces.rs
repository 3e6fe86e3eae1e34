//! Traces: one from ingest to outcome, as a collector and a receiver see it.

use std::collections::HashMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::listener::{Listener, Request};
use crate::place::{Place, free_port};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

fn well(_path: &str) -> (u16, &'static str) {
    (200, "")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn destination(place: &Place, receiver: &Listener, passes: bool) -> String {
    let body = json!({
        "url": format!("http://{}/", receiver.address),
        "unlimited": true,
        "pass_traceparent": passes,
    });
    let created = place.done("POST", "/v1/destinations", "", &body);
    assert_eq!(created["pass_traceparent"], passes);
    created["id"].as_str().unwrap().to_owned()
}

/// One event, delivered, and the request that the receiver got.
fn deliver(place: &Place, receiver: &Listener, to: &str, lines: &str) -> (Value, Request) {
    let before = receiver.requests().len();
    let body = json!({ "destination_id": to, "payload": {} });
    let event = place.done("POST", "/v1/events", lines, &body);
    place.attempts(&event, |attempts| attempts[0]["state"] == "succeeded");
    (event, receiver.requests()[before].clone())
}

/// The spans of one trace, by name; each name is there once.
fn spans_of(collector: &Listener, trace: &str) -> HashMap<String, Span> {
    let mut spans = HashMap::new();
    for request in collector.requests() {
        assert_eq!(request.path, "/v1/traces");
        let export = ExportTraceServiceRequest::decode(request.body.as_slice()).unwrap();
        let scopes = export
            .resource_spans
            .into_iter()
            .flat_map(|one| one.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            if hex(&span.trace_id) == trace {
                let name = span.name.clone();
                assert!(spans.insert(name.clone(), span).is_none(), "{name} twice");
            }
        }
    }
    spans
}

#[test]
fn one_trace_goes_from_the_client_to_the_receiver() {
    let (receiver, collector) = (Listener::start(well), Listener::start(well));
    let endpoint = format!("http://{}", collector.address);
    let mut place = Place::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let told = destination(&place, &receiver, true);
    let untold = destination(&place, &receiver, false);
    let lines = format!("traceparent: 00-{TRACE}-{CLIENT}-01\r\ntracestate: a=1,b=2\r\n");
    let (_, request) = deliver(&place, &receiver, &told, &lines);
    let (own, quiet) = deliver(&place, &receiver, &untold, "");
    let ignored = "traceparent: 00-11111111111111111111111111111111-00f067aa0ba902b7-00\r\n";
    deliver(&place, &receiver, &untold, ignored);
    let (code, printed) = place.stop();
    assert_eq!(code, Some(0), "{printed}");

    let spans = spans_of(&collector, TRACE);
    let mut parent = CLIENT.to_owned();
    for name in ["ingest", "admission", "permit", "attempt", "outcome"] {
        let span = spans
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {spans:?}"));
        assert_eq!(hex(&span.parent_span_id), parent, "{name}");
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano,
            "{name}"
        );
        parent = hex(&span.span_id);
    }
    let attempt = hex(&spans["attempt"].span_id);
    let parent = request.header("traceparent");
    assert_eq!(parent, Some(format!("00-{TRACE}-{attempt}-01")));
    assert_eq!(request.header("tracestate").as_deref(), Some("a=1,b=2"));

    // A trace that begins here has the event's id, and is nobody else's business.
    let own = own["id"].as_str().unwrap().replace('-', "");
    let spans = spans_of(&collector, &own);
    assert_eq!(spans.len(), 5, "{:?}", spans.keys());
    assert!(spans["ingest"].parent_span_id.is_empty(), "it begins here");
    assert_eq!(quiet.header("traceparent"), None);
    let unsampled = spans_of(&collector, "11111111111111111111111111111111");
    assert!(
        unsampled.is_empty(),
        "its client said that nobody records it"
    );
}

#[test]
fn without_a_collector_traces_are_passed_on_and_nothing_is_written_unasked() {
    let receiver = Listener::start(well);
    let mut place = Place::start(&[]);
    let told = destination(&place, &receiver, true);
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    let lines = format!("traceparent: {parent}\r\n");
    let (_, request) = deliver(&place, &receiver, &told, &lines);
    assert_eq!(request.header("traceparent"), Some(parent));
    let (_, request) = deliver(&place, &receiver, &told, "");
    assert_eq!(request.header("traceparent"), None);

    // What is no trace becomes one, and smuggles nothing.
    let bad = "traceparent: 00-x; evil\r\ntracestate: a=1\r\n";
    let (event, request) = deliver(&place, &receiver, &told, bad);
    let id = event["id"].as_str().unwrap().replace('-', "");
    let parent = request.header("traceparent").unwrap();
    assert!(
        parent.starts_with(&format!("00-{id}-")) && parent.ends_with("-00"),
        "{parent}"
    );
    assert_eq!(request.header("tracestate"), None);

    // The setting takes effect at once, for what is sent from then on.
    let change = json!({ "pass_traceparent": false });
    let changed = place.done("PATCH", &format!("/v1/destinations/{told}"), "", &change);
    assert_eq!(changed["pass_traceparent"], false);
    let (_, request) = deliver(&place, &receiver, &told, &lines);
    assert_eq!(request.header("traceparent"), None);

    let (code, printed) = place.stop();
    assert_eq!(code, Some(0), "{printed}");
    let store = Connection::open(place.path().join("paceline.db")).unwrap();
    let kept: i64 = store
        .query_row("select count(trace) from events", [], |row| row.get(0))
        .unwrap();
    assert_eq!(kept, 3, "of four events three came with a header");
}

#[test]
fn a_collector_that_is_away_harms_nothing() {
    let receiver = Listener::start(well);
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let mut place = Place::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let told = destination(&place, &receiver, true);
    for _ in 0..3 {
        let (_, request) = deliver(&place, &receiver, &told, "");
        assert!(request.header("traceparent").is_some());
    }
    let (code, printed) = place.stop();
    assert_eq!(code, Some(0), "drained: {printed}");
    assert!(
        printed.contains("opentelemetry"),
        "the log says so: {printed}"
    );
}

use super::super::arrivals::Answer;
use super::super::settings::Shape;
use super::super::settings::tests::settings;
use super::*;

/// Four events: one delivered twice, one refused at first, one that was
/// not accepted, and one that never arrived.
pub(crate) fn evidence() -> Evidence {
    let sent = |due_us, accepted_us| Sent {
        destination: 0,
        due_us,
        sent_us: due_us + 10,
        accepted_us,
    };
    let at = |at_us, event, answer| Arrival::new(at_us, event, 0, answer);
    Evidence {
        system: "embedded".to_owned(),
        machine: "2 cores of a test".to_owned(),
        began_at_unix_ms: 1_700_000_000_000,
        settings: settings(Shape::Constant),
        ended: Ended::Undrained,
        load_us: (1_000_000, 3_000_000),
        released_us: None,
        sent: vec![
            sent(1_000_000, 1_002_010),
            sent(1_500_000, 1_504_010),
            sent(2_000_000, 0),
            sent(2_500_000, 2_506_010),
        ],
        refused: 1,
        arrivals: vec![
            at(1_003_010, 0, Answer::Taken),
            at(1_600_000, 1, Answer::Refused),
            at(2_000_000, 0, Answer::Taken),
            at(4_504_010, 1, Answer::Taken),
            at(4_600_000, u32::MAX, Answer::Taken),
        ],
        verdict: Verdict {
            judged: 20,
            early_starts: Some(0),
            waits_us: vec![3_000, 1_000],
            ..Verdict::default()
        },
        pending: Some(0),
        used: BTreeMap::from([
            (
                "serve".to_owned(),
                Used {
                    user_seconds: 0.2,
                    system_seconds: 0.1,
                    resident_mib: 25.0,
                },
            ),
            (
                "client".to_owned(),
                Used {
                    user_seconds: 0.1,
                    system_seconds: 0.0,
                    resident_mib: 5.0,
                },
            ),
        ]),
        grown: BTreeMap::new(),
        watched_seconds: 4.0,
        database: Some(Done {
            wal_bytes: 2_000,
            transactions: 4,
            calls: Some(12),
            longest: Vec::new(),
        }),
        notes: vec!["a <note> & more".to_owned()],
    }
}

fn close(report: &Report, name: &str, expected: f64) {
    let measured = report.metric(name).unwrap_or_else(|| panic!("no {name}"));
    assert!((measured - expected).abs() < 1e-6, "{name}: {measured}");
}

#[test]
fn events_are_counted_once_whatever_became_of_them() {
    let report = report(evidence());
    let counts = [
        ("offered", 4.0),
        ("accepted", 3.0),
        ("refused", 1.0),
        ("unanswered", 0.0),
        ("delivered", 2.0),
        ("duplicates", 1.0),
        ("undelivered", 1.0),
        ("lost", 1.0),
        ("requests", 5.0),
    ];
    for (name, expected) in counts {
        close(&report, name, expected);
    }
}

#[test]
fn what_still_waits_is_not_lost_and_without_a_store_it_is_not_known() {
    let waiting = report(Evidence {
        pending: Some(3),
        ..evidence()
    });
    close(&waiting, "lost", 0.0);
    let unknown = report(Evidence {
        pending: None,
        ..evidence()
    });
    assert_eq!(unknown.metric("lost"), None);
}

#[test]
fn rates_are_of_the_time_of_the_load() {
    let report = report(evidence());
    close(&report, "offered_per_second", 2.0);
    close(&report, "accepted_per_second", 1.5);
    close(&report, "delivered_per_second", 0.5);
    close(&report, "overall_per_second", 2.0 / 3.504_01);
    close(&report, "drain_seconds", 1.504_01);
}

#[test]
fn what_was_held_drains_from_its_release_on() {
    let held = report(Evidence {
        released_us: Some(3_504_010),
        ..evidence()
    });
    close(&held, "drained_per_second", 2.0);
    let not_held = report(evidence());
    assert_eq!(not_held.metric("drained_per_second"), None);
}

#[test]
fn latencies_are_from_accepted_to_the_first_byte() {
    let report = report(evidence());
    close(&report, "p50_ms", 1.0);
    close(&report, "max_ms", 3_000.0);
    close(&report, "ingest_p50_ms", 4.0);
    close(&report, "client_late_p99_ms", 0.01);
    close(&report, "start_p50_ms", 1.0);
    close(&report, "start_p99_ms", 3.0);
}

#[test]
fn lateness_and_growth_are_there_where_they_are_known() {
    let nothing = report(evidence());
    for name in ["late_p99_ms", "rss_growth.serve"] {
        assert_eq!(nothing.metric(name), None, "{name}");
    }
    let known = report(Evidence {
        verdict: Verdict {
            lates_us: vec![50_000, 0, 2_000],
            ..evidence().verdict
        },
        grown: BTreeMap::from([("serve".to_owned(), 1.25)]),
        ..evidence()
    });
    close(&known, "late_p50_ms", 2.0);
    close(&known, "late_p99_ms", 50.0);
    close(&known, "rss_growth.serve", 1.25);
}

/// Of events at their destinations, which were accepted and arrived at these tenths of a
/// second.
fn of_events(shape: Shape, limit: &str, events: &[(u32, i64, i64)]) -> Report {
    let us = |tenths: i64| tenths * SECOND_US / 10;
    let sent = events.iter().map(|(destination, accepted, _)| Sent {
        destination: *destination,
        due_us: us(*accepted),
        sent_us: us(*accepted),
        accepted_us: us(*accepted),
    });
    let arrivals = (0..).zip(events).map(|(event, (destination, _, first))| {
        Arrival::new(us(*first), event, *destination, Answer::Taken)
    });
    report(Evidence {
        settings: Settings {
            limit: limit.parse().unwrap(),
            ..settings(shape)
        },
        sent: sent.collect(),
        arrivals: arrivals.collect(),
        ..evidence()
    })
}

fn stalled(shape: Shape, limit: &str, events: &[(u32, i64, i64)]) -> Option<f64> {
    of_events(shape, limit, events).metric("stalled_seconds")
}

/// A hundred a second, until the load ends at the third second; and then what waited.
#[test]
fn a_few_that_are_late_are_stragglers_and_many_at_their_pace_are_not() {
    let in_time = (0..200).map(|event| (0, 10 + event % 20, 11 + event % 20));
    for (waited, last, expected) in [(65, 340, 30.35), (65, 31, 0.0), (1, 340, 30.99)] {
        let late = std::iter::repeat_n((0, 25, last), waited);
        let events: Vec<_> = in_time.clone().chain(late).collect();
        let report = of_events(Shape::Constant, "unlimited", &events);
        close(&report, "stragglers_seconds", expected);
    }
    // Of what takes seconds, the last after 99 %.
    let drained = (0..500).map(|event| (0, 25, 30 + event / 5));
    let events: Vec<_> = in_time.chain(drained).chain([(0, 25, 500)]).collect();
    let report = of_events(Shape::Constant, "unlimited", &events);
    close(&report, "stragglers_seconds", 50.0 - 12.9);
}

#[test]
fn a_stall_is_what_no_limit_explains() {
    let constant = |limit, events: &[_]| stalled(Shape::Constant, limit, events).unwrap();
    let one_waits = [(0, 5, 10), (0, 5, 40)];
    for (limit, expected) in [
        ("unlimited", 3.0),
        ("2/s", 3.0),
        ("1/s", 1.98),
        ("1/min", 0.0),
    ] {
        let seconds = constant(limit, &one_waits);
        assert!((seconds - expected).abs() < 1e-6, "{limit}: {seconds}");
    }
    let comes_in_time = [(0, 5, 10), (0, 35, 40)];
    assert!(constant("unlimited", &comes_in_time) < 1e-6);
    // The limit holds the first destination, and not the other.
    let another_waits = [(0, 5, 10), (0, 5, 40), (1, 20, 45)];
    assert!((constant("1/min", &another_waits) - 2.0).abs() < 1e-6);
    for shape in [Shape::Failing, Shape::Slow, Shape::LimitChange] {
        assert_eq!(stalled(shape, "1/s", &one_waits), None, "{shape:?}");
    }
}

#[test]
fn costs_are_by_delivery_and_process() {
    let report = report(evidence());
    close(&report, "cpu_us_per_delivery", 200_000.0);
    close(&report, "cpu_us_per_delivery.serve", 150_000.0);
    close(&report, "cpu_cores", 0.1);
    close(&report, "statements_per_delivery", 6.0);
    close(&report, "wal_bytes_per_delivery", 1_000.0);
    close(&report, "peak_rss_mib.serve", 25.0);
    assert_eq!(
        report.processes[0].name, "serve",
        "the most expensive first"
    );
}

#[test]
fn the_writers_thread_is_a_part_of_its_process() {
    let mut evidence = evidence();
    let writer = Used {
        user_seconds: 0.0,
        system_seconds: 0.1,
        resident_mib: 0.0,
    };
    evidence.used.insert("sqlite-writer".to_owned(), writer);
    let report = report(evidence);
    close(&report, "writer_us_per_delivery", 50_000.0);
    close(&report, "cpu_us_per_delivery", 200_000.0);
    assert_eq!(report.processes.len(), 2);
    assert_eq!(report.metric("peak_rss_mib.sqlite-writer"), None);
}

#[test]
fn every_second_has_its_backlog() {
    let report = report(evidence());
    let backlogs: Vec<_> = report.seconds.iter().map(|second| second.backlog).collect();
    assert_eq!(backlogs, [1, 2, 2, 1]);
    let offered: Vec<_> = report.seconds.iter().map(|second| second.offered).collect();
    assert_eq!(offered, [2, 2, 0, 0]);
}

#[test]
fn every_figure_of_a_report_has_a_name_that_thresholds_know() {
    let report = report(evidence());
    assert!(
        report
            .metrics
            .keys()
            .all(|name| super::super::metrics::is_known(name))
    );
    assert_eq!(report.in_order().count(), report.metrics.len());
}

#[test]
fn a_report_survives_json() {
    let report = report(evidence());
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.starts_with(r#"{"format":1,"#));
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

//! The ways to ask whether a limit was kept agree, on both stores: the SQL of
//! docs/audit.md, the view, the report, the program's exit code, and a
//! receiver's own log; all against ledgers with known faults.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod ledger;
mod place;
#[path = "../../../adapters/tests/support/scratch.rs"]
mod scratch;
mod statements;

use std::process::{Command, Output};

use domain::admission::known_until;
use domain::compliance::{largest_aligned, largest_sliding};
use domain::limit::Period;
use domain::time::Timestamp;
use engine::ports::{Catalog, OperationsBook};
use serde_json::Value;
use server::audit::{Beyond, Depth, DestinationReport, NotExamined, Report, Span, collect};
use server::parts;

use ledger::{Kind, Ledger, SECOND};
use place::Place;

const LEDGERS: u32 = 20;
const DOCUMENTED: &str = include_str!("../../../../docs/audit.md");
const PLACEHOLDER: &str = "0192f3c4-…";

#[tokio::test]
async fn every_way_to_ask_agrees_on_postgres() {
    agree(&Place::postgres().await).await;
}

#[tokio::test]
async fn every_way_to_ask_agrees_on_sqlite() {
    agree(&Place::sqlite().await).await;
}

async fn agree(place: &Place) {
    let stored = parts::open_to_read(&place.config()).await.unwrap();
    let now = stored.fleet().await.unwrap().now.as_micros();
    // Within the hour that the documented query looks at.
    let begin = now / SECOND * SECOND - 3_000 * SECOND;
    let span = Span {
        since: Timestamp::from_micros(begin),
        until: Timestamp::from_micros(begin + 60 * SECOND),
    };
    let ledgers: Vec<Ledger> = (0..LEDGERS)
        .map(|number| Ledger::random(number, begin))
        .collect();
    let over = ledgers.iter().filter(|ledger| !ledger.planted.is_empty());
    assert!((5..LEDGERS as usize - 5).contains(&over.count()));
    for ledger in &ledgers {
        place.write(ledger).await;
    }
    let mut changed = 0;
    for ledger in &ledgers {
        sql_agrees(place, ledger).await;
        let report = report_agrees(place, ledger, span).await;
        program_agrees(place, ledger, &report);
        what_began_before_is_counted(place, ledger, span).await;
        a_slice_of_it_is_judged(place, ledger, span).await;
        changed += usize::from(known_limits_are_judged(place, ledger, span).await);
    }
    assert!(changed > 0, "no limit changed in the span");
    csv_has_every_ledger(place, &ledgers, &Report::new(span, Vec::new()));
    the_last_half_second_is_not_judged(place).await;
    no_verdict_without_a_store(place);
}

async fn sql_agrees(place: &Place, ledger: &Ledger) {
    let expected = ledger.seconds();
    let id = ledger.destination;
    let view = format!("select * from starts_per_second where destination_id = '{id}'");
    assert_eq!(place.seconds(&view).await, expected, "{ledger:?}");
    let mut over = expected.clone();
    over.retain(|second| second.over);
    let query = documented("select * from starts_per_second", id);
    assert_eq!(place.seconds(&query).await, over, "{ledger:?}");
    // It knows no buckets, and says so.
    if ledger.kind != Kind::Bucket {
        let begins = match place.is_postgres() {
            true => "select\n    a.destination_id",
            false => "select\n    s.destination_id",
        };
        let query = documented(begins, id);
        assert_eq!(place.seconds(&query).await, expected, "{ledger:?}");
    }
    let fullest = expected.iter().map(|second| second.starts).max();
    let aligned = largest_aligned(&ledger.log(), Period::Second);
    assert_eq!(Some(aligned.starts as i64), fullest, "{ledger:?}");
}

/// The statement of docs/audit.md that begins so, for this destination.
fn documented(begins: &str, id: domain::ids::DestinationId) -> String {
    let mut blocks = DOCUMENTED.split("```sql\n").skip(1);
    let block = blocks.find(|block| block.starts_with(begins)).unwrap();
    let (statement, _) = block.split_once("```").unwrap();
    assert!(statement.contains(PLACEHOLDER));
    statement.replace(PLACEHOLDER, &id.to_string())
}

async fn report_agrees(place: &Place, ledger: &Ledger, span: Span) -> Report {
    let depth = Depth {
        points: 10,
        rows: u64::MAX,
        limits: u32::MAX,
        beyond: Beyond::Refuse,
    };
    let report = examined(place, ledger, span, depth).await.unwrap();
    assert_eq!(report.judged_since, None);
    let charted: f64 = (report.curve.iter())
        .flat_map(|curve| curve.points.iter())
        .map(|point| point.starts_per_second)
        .sum();
    assert_eq!(charted > 0.0, report.starts > 0, "{ledger:?}");

    assert_eq!(report.starts, ledger.starts.len() as u64);
    assert_eq!(report.compliant, ledger.planted.is_empty(), "{ledger:?}");
    let rule = &report.rules[0];
    assert_eq!(rule.rule, "second");
    let over: Vec<_> = rule.violations.iter().collect();
    let attempts: Vec<_> = over.iter().map(|one| one.attempts.clone()).collect();
    assert_eq!(attempts, ledger.planted, "{ledger:?}");
    let allowed = ledger.allowed().unwrap_or(0);
    assert!(over.iter().all(|one| one.bound == allowed), "{ledger:?}");
    let early = ledger
        .planted
        .iter()
        .map(|crowd| crowd.len() as u64 - allowed);
    assert_eq!(rule.early_starts, early.sum::<u64>(), "{ledger:?}");

    let (count, ends_at) = ledger.fullest();
    let sliding = rule.largest_sliding.as_ref().unwrap();
    assert_eq!(sliding.starts, count, "{ledger:?}");
    let end = chrono::DateTime::parse_from_rfc3339(&sliding.ends_at).unwrap();
    assert_eq!(end.timestamp_micros(), ends_at.as_micros(), "{ledger:?}");
    let received = largest_sliding(&ledger.log(), Period::Second);
    assert_eq!((received.starts, received.ends_at), (count, ends_at));

    let bucket = report.rules.iter().find(|rule| rule.rule == "bucket");
    assert_eq!(bucket.is_some(), ledger.kind == Kind::Bucket);
    let spaced = bucket.is_none_or(|rule| (rule.early_starts == 0) == report.compliant);
    assert!(spaced, "{ledger:?}");
    Report::new(span, vec![report])
}

async fn examined(
    place: &Place,
    ledger: &Ledger,
    span: Span,
    depth: Depth,
) -> Result<DestinationReport, NotExamined> {
    let stored = parts::open_to_read(&place.config()).await.unwrap();
    let stored = stored.as_ref();
    let wanted = [ledger.destination];
    let found = collect::destinations(stored, stored, &wanted).await;
    let destination = found.unwrap().remove(0);
    let books: (&dyn Catalog, &dyn OperationsBook) = (stored, stored);
    let examined = collect::examine(books, &destination, span, depth).await?;
    Ok(examined.report)
}

/// A span that begins within a crowd: its last start is over, with all of them.
async fn what_began_before_is_counted(place: &Place, ledger: &Ledger, span: Span) {
    let Some(crowd) = ledger.planted.first() else {
        return;
    };
    let last = crowd.last().unwrap();
    let (at, _) = ledger.starts.iter().find(|(_, id)| id == last).unwrap();
    let span = Span {
        since: Timestamp::from_micros(*at),
        ..span
    };
    let depth = Depth {
        points: 0,
        rows: u64::MAX,
        limits: u32::MAX,
        beyond: Beyond::Refuse,
    };
    let report = examined(place, ledger, span, depth).await.unwrap();
    let within = ledger.starts.iter().filter(|(start, _)| start >= at);
    assert_eq!(report.starts, within.count() as u64, "{ledger:?}");
    assert!(!report.compliant, "{ledger:?}");
    assert_eq!(&report.rules[0].violations[0].attempts, crowd, "{ledger:?}");
}

/// More than may be read is refused, or judged as far as it goes.
async fn a_slice_of_it_is_judged(place: &Place, ledger: &Ledger, span: Span) {
    let rows = ledger.starts.len() as u64 - 1;
    let depth = Depth {
        points: 0,
        rows,
        limits: u32::MAX,
        beyond: Beyond::Refuse,
    };
    let refused = examined(place, ledger, span, depth).await.unwrap_err();
    assert!(matches!(refused, NotExamined::TooLong(_)), "{refused}");
    let depth = Depth {
        beyond: Beyond::Slice,
        ..depth
    };
    let report = examined(place, ledger, span, depth).await.unwrap();
    let mut times: Vec<i64> = ledger.starts.iter().map(|(at, _)| *at).collect();
    times.sort_unstable();
    let since = times[times.len() - (rows / 2) as usize];
    let within = times.iter().filter(|at| **at >= since);
    assert_eq!(report.starts, within.count() as u64, "{ledger:?}");
    let judged_since = report.judged_since.unwrap();
    let judged_since = chrono::DateTime::parse_from_rfc3339(&judged_since).unwrap();
    assert_eq!(judged_since.timestamp_micros(), since, "{ledger:?}");
}

/// Where limits changed more often than may be read, what is judged begins with the
/// first that is known: what started before it may have been allowed more.
async fn known_limits_are_judged(place: &Place, ledger: &Ledger, span: Span) -> bool {
    let last = ledger.history.last().unwrap();
    if last.from <= span.since.as_micros() {
        return false;
    }
    let depth = Depth {
        points: 0,
        rows: u64::MAX,
        limits: 1,
        beyond: Beyond::Refuse,
    };
    let refused = examined(place, ledger, span, depth).await.unwrap_err();
    assert!(matches!(refused, NotExamined::TooLong(1)), "{refused}");
    let depth = Depth {
        beyond: Beyond::Slice,
        ..depth
    };
    let report = examined(place, ledger, span, depth).await.unwrap();
    let judged_since = report.judged_since.unwrap();
    let judged_since = chrono::DateTime::parse_from_rfc3339(&judged_since).unwrap();
    assert_eq!(judged_since.timestamp_micros(), last.from, "{ledger:?}");
    let known = ledger.starts.iter().filter(|(at, _)| *at >= last.from);
    assert_eq!(report.starts, known.count() as u64, "{ledger:?}");
    true
}

fn audit(url: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_paceline"))
        .env_clear()
        .args(["audit", "--database-url", url])
        .args(arguments)
        .output()
        .unwrap()
}

/// The same report word for word, and its verdict as an exit code.
fn program_agrees(place: &Place, ledger: &Ledger, report: &Report) {
    let id = ledger.destination.to_string();
    let span = ["--since", &report.since, "--until", &report.until];
    let mut arguments = vec!["--destination", &id, "--output", "json", "--points", "10"];
    arguments.extend(span);
    let output = audit(&place.url, &arguments);
    let code = if ledger.planted.is_empty() { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, serde_json::to_value(report).unwrap());
}

fn csv_has_every_ledger(place: &Place, ledgers: &[Ledger], span: &Report) {
    let arguments = [
        "--output",
        "csv",
        "--since",
        &span.since,
        "--until",
        &span.until,
    ];
    let output = audit(&place.url, &arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let mut reader = csv::Reader::from_reader(output.stdout.as_slice());
    let header = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    for ledger in ledgers {
        let id = ledger.destination.to_string();
        let mut of_it = rows.iter().filter(|row| row[0] == *id);
        let row = of_it.find(|row| row.iter().any(|cell| cell == "second"));
        let cell = |name: &str| {
            let column = header.iter().position(|column| column == name);
            row.unwrap()[column.unwrap()].to_owned()
        };
        assert_eq!(cell("starts"), ledger.starts.len().to_string());
        assert_eq!(cell("largest_sliding"), ledger.fullest().0.to_string());
        assert_eq!(cell("violations"), ledger.planted.len().to_string());
        let ids: Vec<String> = ledger.planted.concat().iter().map(i64::to_string).collect();
        assert_eq!(cell("attempts"), ids.join(" "));
        assert_eq!(cell("compliant"), ledger.planted.is_empty().to_string());
    }
}

/// Whatever is asked for: a start that is not known yet stands at its latest.
async fn the_last_half_second_is_not_judged(place: &Place) {
    let output = audit(
        &place.url,
        &["--until", "2200-01-01T00:00:00Z", "--output", "json"],
    );
    let stored = parts::open_to_read(&place.config()).await.unwrap();
    let now = stored.fleet().await.unwrap().now;
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let until = printed["until"].as_str().unwrap();
    let until = chrono::DateTime::parse_from_rfc3339(until).unwrap();
    assert!(until.timestamp_micros() <= known_until(now).as_micros());
    let output = audit(&place.url, &["--since", "400ms"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

fn no_verdict_without_a_store(place: &Place) {
    let files = place.files();
    let output = audit(&place.missing(), &["--output", "json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    assert_eq!(place.files(), files, "a missing store is not made");
}

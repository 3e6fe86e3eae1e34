//! The claim's verdict stands twice: in the domain, and in the statement that
//! claims. Here both judge the same drawn rows, on a clock that stands still, so
//! that what lies on a boundary is told apart to the microsecond.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use adapters::postgres::{PostgresOptions, PostgresStore};
use domain::attempt::AttemptState;
use domain::attempt::verdict::{Asked, Row, Verdict, verdict};
use domain::destination::DestinationState;
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{ClaimAnswer, HEARTBEAT_TIMEOUT, MAX_HEAD_START, Store};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use crate::database::{Database, per_second};

/// Cases for each worker.
const CASES: usize = 120;

/// What a message says, and what the rows say.
#[derive(Debug)]
struct Case {
    permit: Permit,
    row: Row,
    attempt: AttemptId,
    destination: DestinationId,
}

#[tokio::test]
async fn a_claim_in_sql_is_what_the_domain_says() {
    let database = Database::create().await;
    let mut rng = StdRng::seed_from_u64(23);
    let (store, now) = standing_still(&database).await;
    let least = now - HEARTBEAT_TIMEOUT;
    let moment = Duration::from_micros(1);
    let workers = [(least, false), (least - moment, false), (now, true)];
    let mut seen = BTreeSet::new();
    for (seen_at, retired) in workers {
        let worker = database.worker().await;
        let set = "update workers set seen_at = from_micros";
        let (id, micros) = (worker.0, seen_at.as_micros());
        let set = format!("{set}({micros}), retired = {retired} where id = '{id}'");
        database.sql(&set).await;
        let asked = Asked {
            now,
            worker_lives: seen_at >= least && !retired,
            head_start: MAX_HEAD_START,
        };
        let cases = drawn(&database, &mut rng, now).await;
        let permits: Vec<Permit> = cases.iter().map(|case| case.permit).collect();
        let claims = store.claim_starts(worker, &permits).await.unwrap();
        assert_eq!(claims.now, now, "the clock stands still");
        let woken: BTreeSet<_> = claims.wakes.iter().map(|wake| wake.destination).collect();
        let after = states(&database).await;
        for (case, answer) in cases.iter().zip(claims.answers) {
            let expected = verdict(&case.permit, &case.row, asked);
            let is_woken = woken.contains(&case.destination);
            assert_eq!(
                found(&case.row, &answer, (&after[&case.attempt], is_woken)),
                Ok(expected),
                "{answer:?} and {:?} of {case:?}",
                after[&case.attempt]
            );
            seen.insert(word(expected));
        }
    }
    assert_eq!(seen.len(), 4, "not each verdict was drawn: {seen:?}");
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Starts(_) => "starts",
        Verdict::Early(_) => "early",
        Verdict::Returned => "returned",
        Verdict::Refused => "refused",
    }
}

/// What the statement made of it, by its answer, by the row's state after it and by
/// whether the destination is woken.
fn found(
    before: &Row,
    answer: &ClaimAnswer,
    (after, is_woken): (&String, bool),
) -> Result<Verdict, &'static str> {
    let is_as_before = after == before.state.as_str();
    match answer {
        ClaimAnswer::Started(start) if after == "started" => Ok(Verdict::Starts(start.claimed_at)),
        ClaimAnswer::Early(left) if is_as_before => Ok(Verdict::Early(*left)),
        ClaimAnswer::Refused if is_woken && after == "waiting" => Ok(Verdict::Returned),
        ClaimAnswer::Refused if !is_woken && is_as_before => Ok(Verdict::Refused),
        _ => Err("the answer, the row and the wakes disagree"),
    }
}

/// A store whose statements find a `clock_timestamp` that stands still, and what it
/// says.
async fn standing_still(database: &Database) -> (PostgresStore, Timestamp) {
    let now = database.number("select micros(clock_timestamp())").await;
    let clock = format!(
        "create schema still;
        create function still.clock_timestamp() returns timestamptz
        language sql immutable as $$ select public.from_micros({now}) $$"
    );
    database.sql(&clock).await;
    // Only what names pg_catalog does not find it first.
    let path = "-csearch_path%3Dstill,public,pg_catalog";
    let options = PostgresOptions {
        url: format!("{}?options={path}", database.url),
        max_connections: 2,
    };
    let store = PostgresStore::connect(options).await.unwrap();
    (store, Timestamp::from_micros(now))
}

/// One destination and one attempt for each case.
async fn drawn(database: &Database, rng: &mut StdRng, now: Timestamp) -> Vec<Case> {
    let (mut set, mut states) = (String::new(), HashMap::new());
    for _ in 0..CASES {
        let destination = database.destination(per_second(20)).await;
        database.accept(destination, 1).await;
        let to = [
            "active", "active", "active", "paused", "disabled", "deleted",
        ];
        let to = *to.choose(rng).unwrap();
        let column = match to {
            "deleted" => "deleted_at = clock_timestamp()".to_owned(),
            state => format!("state = '{state}'"),
        };
        set.push_str(&format!(
            "update destinations set {column} where id = '{destination}';"
        ));
        states.insert(destination.0, to);
    }
    database.sql(&set).await;
    let rows = "select a.id, d.id, d.epoch from attempts a
        join destinations d on d.id = a.destination_id order by a.id";
    let mut user = database.user().await;
    let rows: Vec<(i64, Uuid, i64)> = sqlx::query_as(rows).fetch_all(&mut user).await.unwrap();
    let mut sql = String::new();
    let mut cases = Vec::new();
    for (attempt, destination, epoch) in rows {
        // Of an earlier worker.
        let Some(state) = states.get(&destination) else {
            continue;
        };
        let of = (DestinationId(destination), AttemptId(attempt), epoch);
        let (case, holds) = case(rng, now, of, state);
        sql.push_str(&written(&case, holds));
        cases.push(case);
    }
    database.sql(&sql).await;
    assert_eq!(cases.len(), CASES);
    cases
}

fn micros(rng: &mut StdRng, now: Timestamp, of: &[i64]) -> Timestamp {
    Timestamp::from_micros(now.as_micros() + of.choose(rng).unwrap())
}

/// A case, and the two holds that the later of counts.
fn case(
    rng: &mut StdRng,
    now: Timestamp,
    (destination, attempt, epoch): (DestinationId, AttemptId, i64),
    state: &str,
) -> (Case, [Option<Timestamp>; 2]) {
    let own = Permit {
        destination,
        attempt,
        number: PermitNumber(rng.random_range(5..8)),
        epoch: Epoch(epoch - i64::from(rng.random_ratio(1, 8))),
        not_before: micros(
            rng,
            now,
            &[-900_000, -1, 0, 1, 9_999, 10_000, 10_001, 500_000],
        ),
        deadline: micros(rng, now, &[-500_000, -1, 0, 1, 2_000_000, 2_500_000]),
    };
    let has = [
        AttemptState::Admitted,
        AttemptState::Admitted,
        AttemptState::Admitted,
        AttemptState::Admitted,
        AttemptState::Waiting,
        AttemptState::Started,
        AttemptState::Cancelled,
    ];
    let has = *has.choose(rng).unwrap();
    let hold = |rng: &mut StdRng| {
        let is_held = rng.random_ratio(1, 4);
        let ends = [-1, 0, 1, 9_999, 10_000, 10_001, 499_999, 500_000, 500_001];
        is_held.then(|| micros(rng, now, &ends))
    };
    let holds = [hold(rng), hold(rng)];
    let one_in = |rng: &mut StdRng, of| rng.random_ratio(1, of);
    let permit = Permit {
        number: PermitNumber(own.number.0 + i64::from(one_in(rng, 10))),
        epoch: Epoch(own.epoch.0 + i64::from(one_in(rng, 10))),
        destination: match one_in(rng, 10) {
            true => DestinationId(Uuid::from_u128(1)),
            false => destination,
        },
        // A message may say anything of the times.
        not_before: now,
        deadline: now,
        ..own
    };
    let row = Row {
        state: has,
        permit: (has != AttemptState::Waiting).then_some(own),
        epoch: Epoch(epoch),
        destination: match state {
            "paused" => DestinationState::Paused,
            "disabled" => DestinationState::Disabled,
            _ => DestinationState::Active,
        },
        is_deleted: state == "deleted",
        held_until: holds.into_iter().flatten().max(),
    };
    let case = Case {
        permit,
        row,
        attempt,
        destination,
    };
    (case, holds)
}

/// The rows, as SQL.
fn written(case: &Case, [pacing, health]: [Option<Timestamp>; 2]) -> String {
    let (destination, attempt) = (case.destination, case.attempt);
    let time = |at: Option<Timestamp>| match at {
        Some(at) => format!("from_micros({})", at.as_micros()),
        None => "null".to_owned(),
    };
    let own = match case.row.permit {
        Some(own) => format!(
            "permit = {}, epoch = {}, not_before = {}, deadline = {}",
            own.number.0,
            own.epoch.0,
            time(Some(own.not_before)),
            time(Some(own.deadline))
        ),
        None => "permit = null, epoch = null, not_before = null, deadline = null".to_owned(),
    };
    let started_at = match case.row.state {
        AttemptState::Started => "pg_catalog.clock_timestamp()",
        _ => "null",
    };
    let state = case.row.state.as_str();
    let mut sql = format!(
        "update attempts set state = '{state}', claimed_at = {started_at}, started_at = {started_at}, {own}
        where id = {attempt};
        insert into pacing (destination_id, held_until) values ('{destination}', {})
        on conflict (destination_id) do update set held_until = excluded.held_until;",
        time(pacing)
    );
    if let Some(until) = health {
        let until = time(Some(until));
        sql.push_str(&format!(
            "insert into health (destination_id, held_since, held_until, held_for)
            values ('{destination}', {until}, {until}, 'asked');"
        ));
    }
    sql
}

/// What each attempt's row says now.
async fn states(database: &Database) -> HashMap<AttemptId, String> {
    let rows = sqlx::query_as("select id, state from attempts");
    let rows: Vec<(i64, String)> = rows.fetch_all(&mut database.user().await).await.unwrap();
    (rows.into_iter())
        .map(|(id, state)| (AttemptId(id), state))
        .collect()
}

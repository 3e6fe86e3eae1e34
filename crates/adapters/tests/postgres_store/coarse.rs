//! Large limits, whose starts are folded into buckets: each exactly once.

use std::time::Duration;

use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::limit::Period;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::time::micros;
use engine::ports::{ClaimAnswer, NextTry, Outcome, ReapRules, Store};
use futures_util::future::join_all;

use crate::counting::Counted;
use crate::database::Database;

/// The receiver has taken it.
pub(crate) fn success(permit: &Permit) -> Outcome {
    Outcome {
        attempt: permit.attempt,
        number: permit.number,
        destination: permit.destination,
        kind: OutcomeKind::Succeeded,
        sent_after: Duration::ZERO,
        elapsed: Duration::from_millis(5),
        status: Some(200),
        error: None,
        response_body: Bytes::new(),
        response_headers: domain::response_headers::ResponseHeaders::default(),
        next: NextTry::None,
        signal: domain::health::Signal::default(),
        speaks: engine::ports::Speaks::ForRequest,
        may_arrive: false,
    }
}

const WRONG_BUCKETS: &str =
    "select count(*) from (values ('second'), ('minute'), ('hour'), ('day'))
        as p (period)
    where (select coalesce(sum(b.starts), 0) from start_buckets b where b.period = p.period)
        <> (select count(*) from attempts where folded)";

/// Buckets that hold anything but what started in them, their ends excluded.
fn wrong_bucket_ends() -> String {
    let widths: Vec<String> = (Period::ALL.iter())
        .map(|period| format!("('{period}', {}::bigint)", micros(period.bucket())))
        .collect();
    format!(
        "select count(*) from (
            select destination_id, period, ends_at, sum(starts) as starts from start_buckets
            group by 1, 2, 3
        ) b
        join (values {}) as p (period, width) on p.period = b.period
        where micros(b.ends_at) % p.width <> 0 or b.starts <> (
            select count(*) from attempts a
            where a.folded and a.destination_id = b.destination_id and a.started_at < b.ends_at
                and a.started_at >= b.ends_at - p.width * interval '1 microsecond'
        )",
        widths.join(", ")
    )
}

/// Not by a later run, which has to go through what is in no bucket; and from the second
/// batch on by the one statement that records what succeeded.
#[tokio::test]
async fn a_success_is_folded_with_its_outcome() {
    let database = Database::create().await;
    let counted = Counted::of(&database).await;
    // The connection's settings are no outcome's.
    counted.store.accept_events(&[]).await.unwrap();
    let worker = database.worker().await;
    let limits = LimitSettings {
        per_minute: Some(6_000),
        ..LimitSettings::EXACT
    };
    let destination = database.destination(limits).await;
    let mut started = 0;
    for knows_of_it in [false, true] {
        database.accept(destination, 5).await;
        let permits = database.permits(destination).await;
        database.let_nothing_lapse().await;
        let claims = database.store.claim_starts(worker, &permits).await.unwrap();
        let outcomes: Vec<Outcome> = (permits.iter().zip(&claims.answers))
            .filter(|(_, answer)| matches!(answer, ClaimAnswer::Started(_)))
            .map(|(permit, _)| success(permit))
            .collect();
        assert!(!outcomes.is_empty());
        started += outcomes.len();
        let before = counted.statements();
        let recorded = counted.store.record_outcomes(worker, &outcomes).await;
        assert_eq!(recorded.unwrap().skipped, []);
        let statements = counted.statements() - before;
        assert_eq!(statements == 1, knows_of_it, "{statements} statements");
    }
    let folded = database
        .number("select count(*) from attempts where folded")
        .await;
    assert_eq!(folded, i64::try_from(started).unwrap());
    assert_eq!(database.number(WRONG_BUCKETS).await, 0);
    assert_eq!(database.number(&wrong_bucket_ends()).await, 0);
}

/// Outcomes sent twice, by tasks that meet, while schedulers run and the
/// reaper gives starts up.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_folded_exactly_once() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let limits = LimitSettings {
        per_minute: Some(6_000),
        max_in_flight: Some(10_000),
        ..LimitSettings::EXACT
    };
    let destination = database.destination(limits).await;
    database.accept(destination, 400).await;
    let mut started = 0;
    for round in 0..4 {
        let permits = database.permits(destination).await;
        let claims = database.store.claim_starts(worker, &permits).await.unwrap();
        let ours: Vec<Permit> = (permits.iter().zip(&claims.answers))
            .filter(|(_, answer)| matches!(answer, ClaimAnswer::Started(_)))
            .map(|(permit, _)| *permit)
            .collect();
        started += ours.len();
        let outcomes: Vec<Outcome> = ours.iter().map(success).collect();
        // In the second round the reaper takes part: everything is too old.
        let rules = ReapRules {
            heartbeat_timeout: Duration::from_secs(60),
            start_timeout: Duration::from_secs(if round == 1 { 0 } else { 60 }),
            permit_grace: Duration::from_secs(60),
            everything: true,
        };
        let record = async |part: usize| {
            let mut left = outcomes[outcomes.len() / 4 * part..].to_vec();
            while !left.is_empty() {
                let recorded = database.store.record_outcomes(worker, &left).await.unwrap();
                left.retain(|outcome| recorded.skipped.contains(&outcome.attempt));
            }
        };
        let reap = async || {
            for _ in 0..5 {
                database.store.reap(&rules, 20).await.unwrap();
                database.run(destination).await;
            }
        };
        tokio::join!(join_all((0..4).map(record)), reap());
    }
    assert!(started >= 300, "{started}");
    let folded = database
        .number("select count(*) from attempts where folded")
        .await;
    assert_eq!(folded, i64::try_from(started).unwrap());
    assert_eq!(database.number(WRONG_BUCKETS).await, 0);
    let open = "select count(*) from attempts where state in ('started', 'unknown')";
    assert_eq!(
        database.number(open).await,
        0,
        "late outcomes overwrite unknown"
    );
}

/// Starts from before a limit became coarse: counted, then folded by runs.
#[tokio::test]
async fn a_limit_that_becomes_coarse_folds_what_started_before() {
    let database = Database::create().await;
    let limits = LimitSettings {
        per_minute: Some(6_000),
        ..LimitSettings::EXACT
    };
    let destination = database.destination(limits).await;
    database.accept(destination, 5).await;
    database
        .sql(&format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, created_at, claimed_at, started_at,
                finished_at
            )
            select e.id, '{destination}', e.tenant_id, 'succeeded', t, t, t, t
            from (select * from events limit 1) e
            cross join lateral (
                -- Every fifth where a bucket of the second ends.
                select date_trunc('second', clock_timestamp()) - g * interval '1 millisecond' as t
                from generate_series(1, 6000) g
            ) x"
        ))
        .await;
    // 6,000 in the last six seconds: the minute is full, however they count.
    let mut runs = 0;
    while database
        .number("select count(*) from attempts where folded")
        .await
        < 6_000
    {
        assert_eq!(database.permits(destination).await, []);
        runs += 1;
        assert!(runs < 10, "each run folds up to 5,000");
    }
    assert_eq!(database.permits(destination).await, []);
    assert_eq!(database.number(WRONG_BUCKETS).await, 0);
    assert_eq!(database.number(&wrong_bucket_ends()).await, 0);
}

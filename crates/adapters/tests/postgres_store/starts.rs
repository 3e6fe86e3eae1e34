//! Claims under concurrency: with each other, and with changes of limits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adapters::postgres::{PostgresOptions, PostgresStore};
use domain::ids::DestinationId;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{Catalog, ClaimAnswer, ReapRules, Reaped, Store};
use futures_util::future::join_all;
use sqlx::{Connection, Postgres, Transaction};

use crate::database::{Database, per_second, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_claimed_by_many_starts_once() {
    let database = Database::create().await;
    let workers = [database.worker().await, database.worker().await];
    for round in 0..20 {
        let destination = database.destination(per_second(20)).await;
        database.accept(destination, 20).await;
        let permits = database.permits(destination).await;
        assert_eq!(permits.len(), 20);
        database.let_nothing_lapse().await;
        // The same permit twice in one batch, and four batches at once.
        let doubled: Vec<Permit> = permits.iter().chain(&permits).copied().collect();
        let claims = (0..4).map(|task| database.store.claim_starts(workers[task % 2], &doubled));
        let claims = join_all(claims).await;
        let started = (claims
            .iter()
            .flat_map(|claims| &claims.as_ref().unwrap().answers))
        .filter(|answer| matches!(answer, ClaimAnswer::Started(_)))
        .count();
        assert_eq!(started, 20, "round {round}");
    }
}

#[tokio::test]
async fn a_held_row_is_skipped_by_claims_and_outcomes() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    database.accept(destination, 2).await;
    let permits = database.permits(destination).await;
    let mut user = database.user().await;
    let mut user = user.begin().await.unwrap();
    let held = permits[0].attempt;
    run(
        &mut user,
        format!("select from attempts where id = {held} for update"),
    )
    .await;
    let answers = database
        .store
        .claim_starts(worker, &permits)
        .await
        .unwrap()
        .answers;
    assert_eq!(answers[0], ClaimAnswer::Skipped);
    assert!(matches!(answers[1], ClaimAnswer::Started(_)));
    user.rollback().await.unwrap();
    let answers = database
        .store
        .claim_starts(worker, &permits)
        .await
        .unwrap()
        .answers;
    assert!(matches!(answers[0], ClaimAnswer::Started(_)));
    assert_eq!(answers[1], ClaimAnswer::Refused);
}

/// A start is never dated to before what its claim had to wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_starts_after_its_wait() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    database.accept(destination, 2).await;
    let mut permits = database.permits(destination).await;
    // On one connection, where the statement is prepared: else it would begin
    // when its preparation has waited.
    let options = PostgresOptions {
        url: database.url.clone(),
        max_connections: 1,
    };
    let store = PostgresStore::connect(options).await.unwrap();
    let first = permits.split_off(1);
    store.claim_starts(worker, &first).await.unwrap();
    let mut other = database.user().await;
    let mut other = other.begin().await.unwrap();
    run(
        &mut other,
        "lock table attempts in exclusive mode".to_owned(),
    )
    .await;
    let claiming = tokio::spawn(async move { store.claim_starts(worker, &permits).await.unwrap() });
    database.until_somebody_waits().await;
    let held_until = database.number("select micros(clock_timestamp())").await;
    other.commit().await.unwrap();
    let claims = claiming.await.unwrap();
    assert!(matches!(claims.answers[..], [ClaimAnswer::Started(_)]));
    assert!(claims.now.as_micros() >= held_until);
}

/// A claim in time that commits after the deadline: the row has started.
#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_leaves_what_a_claim_holds_alone() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    database.accept(destination, 1).await;
    let permit = database.permits(destination).await[0];
    let late = "update attempts set not_before = not_before - interval '1 minute',
        deadline = deadline - interval '1 minute'";
    database.sql(late).await;
    let mut claim = database.user().await;
    let mut claim = claim.begin().await.unwrap();
    let start = format!(
        "update attempts set state = 'started', claimed_at = deadline, started_at = deadline,
            worker_id = '{worker}'
        where id = {}",
        permit.attempt
    );
    run(&mut claim, start).await;
    let (reaped, _) = reap_against(&database, claim).await;
    assert_eq!(reaped.expired_permits, 0);
    assert!(reaped.put_off.is_empty(), "{:?}", reaped.put_off);
    let started = "select count(*) from attempts where state = 'started'";
    assert_eq!(database.number(started).await, 1);
}

/// An outcome that commits just when its start is given up: it stands.
#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_leaves_what_an_outcome_holds_alone() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    database.accept(destination, 1).await;
    let permits = database.permits(destination).await;
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    assert!(matches!(claims.answers[..], [ClaimAnswer::Started(_)]));
    let old = "update attempts
        set not_before = not_before - interval '1 hour', deadline = deadline - interval '1 hour',
            claimed_at = claimed_at - interval '1 hour', started_at = started_at - interval '1 hour'";
    database.sql(old).await;
    let mut outcome = database.user().await;
    let mut outcome = outcome.begin().await.unwrap();
    run(
        &mut outcome,
        "update attempts set state = 'succeeded', finished_at = clock_timestamp()".to_owned(),
    )
    .await;
    let (reaped, has_waited) = reap_against(&database, outcome).await;
    assert!(!has_waited, "what is held is another pass's");
    assert_eq!(reaped.unknown_starts, 0);
    assert!(reaped.put_off.is_empty(), "{:?}", reaped.put_off);
    let succeeded = "select count(*) from attempts where state = 'succeeded'";
    assert_eq!(database.number(succeeded).await, 1);
    let attempts = "select count(*) from attempts";
    assert_eq!(database.number(attempts).await, 1, "and is not tried again");
}

/// Reaps while `held` is open, and commits that once the reaper has either
/// ended or come to wait for it. Answers whether it has waited, too.
async fn reap_against(database: &Database, held: Transaction<'_, Postgres>) -> (Reaped, bool) {
    let store = database.store.clone();
    let reaping = tokio::spawn(async move {
        let rules = ReapRules {
            heartbeat_timeout: Duration::from_secs(600),
            start_timeout: Duration::from_secs(600),
            permit_grace: Duration::ZERO,
            everything: true,
        };
        store.reap(&rules, 100).await.unwrap()
    });
    while !reaping.is_finished() && !database.somebody_waits().await {
        tokio::task::yield_now().await;
    }
    let has_waited = !reaping.is_finished();
    held.commit().await.unwrap();
    (reaping.await.unwrap(), has_waited)
}

/// While schedulers admit and workers claim, a user cuts the limit in a
/// transaction that stays open. From its time in history on, the new limit
/// holds in every window; and nothing starts until the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cut_is_in_force_from_its_time_in_history() {
    let database = Database::create().await;
    for round in 0..5 {
        // One every five milliseconds, so that permits are out at any time.
        let spaced = LimitSettings {
            burst: Some(1),
            ..per_second(200)
        };
        let destination = database.destination(spaced).await;
        database.accept(destination, 800).await;
        let stop = AtomicBool::new(false);
        let cut = async {
            while starts(&database, destination).await.len() < 20 {
                tokio::task::yield_now().await;
            }
            let open_until = cut_to_three(&database, destination).await;
            // More than fit into one window of the new limit.
            let later = async || {
                let starts = starts(&database, destination).await;
                starts.iter().filter(|start| **start > open_until).count()
            };
            while later().await < 5 {
                tokio::task::yield_now().await;
            }
            stop.store(true, Ordering::Relaxed);
            open_until
        };
        let claimers = join_all((0..3).map(|_| admit_and_claim(&database, destination, &stop)));
        let (open_until, _) = tokio::join!(cut, claimers);

        let history = database.store.limit_history(destination).await.unwrap();
        let in_force = history.last().unwrap().in_force_from;
        let starts = starts(&database, destination).await;
        let before = starts.iter().filter(|start| **start < in_force).count();
        let after: Vec<Timestamp> = starts
            .into_iter()
            .filter(|start| *start >= in_force)
            .collect();
        assert!(
            before >= 20,
            "round {round}: it was busy before, {before} starts"
        );
        assert!(
            after[0] > open_until,
            "round {round}: a start while the cut was open"
        );
        for (index, start) in after.iter().enumerate() {
            let window = after[..=index]
                .iter()
                .filter(|s| s.micros_since(*start) > -1_000_000);
            assert!(
                window.count() <= 3,
                "round {round}: over the new limit at {start:?}"
            );
        }
    }
}

/// The transaction was open before; the start is still one of the old limit.
#[tokio::test]
async fn a_cut_is_dated_after_what_started_in_its_transaction() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    database.accept(destination, 1).await;
    let permits = database.permits(destination).await;
    let mut user = database.user().await;
    let mut user = user.begin().await.unwrap();
    run(&mut user, "select 1".to_owned()).await;
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    assert!(matches!(claims.answers[..], [ClaimAnswer::Started(_)]));
    let cut = format!("update destinations set limit_per_second = 3 where id = '{destination}'");
    run(&mut user, cut).await;
    user.commit().await.unwrap();
    let history = database.store.limit_history(destination).await.unwrap();
    assert!(history[1].in_force_from > claims.now);
}

/// A claim may be dated up to 25 ms ahead. Here the cuts follow at once,
/// in one connection that has made one before.
#[tokio::test]
async fn a_cut_is_dated_after_a_claim_that_lies_ahead() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    database.accept(destination, 1).await;
    let permits = database.permits(destination).await;
    database.store.claim_starts(worker, &permits).await.unwrap();
    let mut user = database.user().await;
    for limit in (10..20).rev() {
        let ahead = "update attempts set claimed_at = clock_timestamp() + interval '25 ms'";
        let cut = format!(
            "update destinations set limit_per_second = {limit} where id = '{destination}'"
        );
        run(&mut user, format!("begin; {ahead}; {cut}; commit")).await;
        let start = "select max(micros(claimed_at)) from attempts";
        let start = Timestamp::from_micros(database.number(start).await);
        let history = database.store.limit_history(destination).await.unwrap();
        let cut = history.last().unwrap();
        assert!(cut.in_force_from > start, "{start:?}: {cut:?}");
    }
}

/// Cuts to 3/s in an explicit transaction; the clock just before its commit.
async fn cut_to_three(database: &Database, destination: DestinationId) -> Timestamp {
    let mut user = database.user().await;
    let mut user = user.begin().await.unwrap();
    let cut = format!("update destinations set limit_per_second = 3 where id = '{destination}'");
    run(&mut user, cut).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let now: i64 = sqlx::query_scalar("select micros(clock_timestamp())")
        .fetch_one(&mut *user)
        .await
        .unwrap();
    user.commit().await.unwrap();
    Timestamp::from_micros(now)
}

/// Admits and claims until told to stop.
async fn admit_and_claim(database: &Database, destination: DestinationId, stop: &AtomicBool) {
    let worker = database.worker().await;
    database.let_nothing_lapse().await;
    let mut in_hand: Vec<Permit> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        in_hand.extend(database.permits(destination).await);
        let claims = database.store.claim_starts(worker, &in_hand).await.unwrap();
        let mut answers = claims.answers.iter();
        in_hand.retain(|_| {
            let answer = answers.next();
            matches!(answer, Some(ClaimAnswer::Early(_) | ClaimAnswer::Skipped))
        });
        // Outcomes do not matter here, only places do. None comes before its slot: what is
        // claimed ahead of it is sent then.
        database
            .sql(
                "with gone as (
                    delete from deliveries
                    where state = 'started' and claimed_at <= clock_timestamp()
                    returning id, event_id, destination_id, tenant_id, claimed_at, started_at
                )
                insert into ledger (
                    id, event_id, destination_id, tenant_id, claimed_at, started_at, state
                )
                select *, 'succeeded' from gone",
            )
            .await;
    }
}

/// When its attempts were claimed, in order: a change is in force for claims at once.
async fn starts(database: &Database, destination: DestinationId) -> Vec<Timestamp> {
    let claims: Vec<i64> = sqlx::query_scalar(
        "select micros(claimed_at) from attempts
        where destination_id = $1 and claimed_at is not null order by 1",
    )
    .bind(destination.0)
    .fetch_all(&mut database.user().await)
    .await
    .unwrap();
    claims.into_iter().map(Timestamp::from_micros).collect()
}

#[tokio::test]
async fn a_permit_from_before_a_cut_is_refused_and_one_from_before_a_raise_is_not() {
    let database = Database::create().await;
    let worker = database.worker().await;
    for (sql, starts) in [
        ("limit_per_second = 5", false),
        ("shape = 'leaky_bucket'", false),
        ("url = 'https://other.example/'", false),
        ("safety_margin = 0.5", false),
        ("safety_margin = null", false),
        ("limit_per_second = null", false), // the tier's, a bucket of 10
        ("state = 'paused'", false),
        ("max_in_flight = 9", false),
        ("limit_per_second = 50", true),
        ("limit_per_second = null, unlimited = true", true),
        ("limit_per_minute = 10", false),
        ("max_in_flight = 500", true),
        ("name = 'x'", true),
    ] {
        let destination = database.destination(per_second(20)).await;
        database.accept(destination, 5).await;
        let permits = database.permits(destination).await;
        database
            .sql(&format!(
                "update destinations set {sql} where id = '{destination}'"
            ))
            .await;
        let answers = database
            .store
            .claim_starts(worker, &permits)
            .await
            .unwrap()
            .answers;
        let started = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
        let refused = |answer: &ClaimAnswer| *answer == ClaimAnswer::Refused;
        match starts {
            true => assert!(answers.iter().all(started), "{sql}: {answers:?}"),
            false => assert!(answers.iter().all(refused), "{sql}: {answers:?}"),
        }
    }
}

#[tokio::test]
async fn a_claim_finds_the_hold_that_its_permit_was_given_before() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    database.accept(destination, 1).await;
    let permits = database.permits(destination).await;
    let mut user = database.user().await;
    let hold = "insert into health (destination_id, held_since, held_until, held_for)";
    let hold = format!(
        "{hold} select '{destination}', c, c + interval '1 minute', 'asked'
        from clock_timestamp() c"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(hold))
        .execute(&mut user)
        .await
        .unwrap();
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    let run = engine::ports::Run {
        destination,
        republish: false,
    };
    let admitted = database.store.admit(&[run], &Room::of(100)).await.unwrap();
    let decided = admitted.results.into_iter().next().unwrap();
    let engine::ports::RunResult::Decided { blocked, .. } = decided else {
        panic!("{decided:?}");
    };
    assert_eq!(blocked, Some(domain::admission::Blocked::Hold));
}

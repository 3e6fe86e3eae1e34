//! The horizon: nothing that waits, is under way or counts lies below it.

use adapters::postgres::DayAges;
use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use engine::ports::{ClaimAnswer, RunResult, Store};

use crate::database::{Database, per_second};
use crate::days::{ENDED_LATE, SUCCEEDED, WAITING, old, running_for};

/// Days are kept so long that none goes. Ids of today have been given.
async fn look(database: &Database) {
    database
        .sql("select next_attempt_id('attempts_id_seq')")
        .await;
    database.store.keep_days(&FOREVER).await.unwrap();
}

const FOREVER: DayAges = DayAges {
    events: None,
    attempts: None,
    dead_letters: None,
};

/// Two looks, with an hour between them.
pub(crate) async fn raise(database: &Database) {
    look(database).await;
    an_hour_passes(database).await;
    look(database).await;
    an_hour_passes(database).await;
}

async fn an_hour_passes(database: &Database) {
    database
        .sql("update attempts_horizon set seen_at = seen_at - interval '61 minutes'")
        .await;
}

/// The day of the horizon, in days before today.
async fn horizon_in_days(database: &Database) -> i64 {
    database
        .number(
            "select (utc_day(now()) - date '1970-01-01')::bigint - (o.attempt_id >> 36)
            from attempts_horizon o",
        )
        .await
}

async fn horizon(database: &Database) -> i64 {
    let sql = "select attempt_id from attempts_horizon";
    database.number(sql).await
}

async fn starts_all(database: &Database, to: DestinationId) -> usize {
    let worker = database.worker().await;
    let permits = database.permits(to).await;
    database.let_nothing_lapse().await;
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    (claims.answers.iter())
        .filter(|answer| matches!(answer, ClaimAnswer::Started(_)))
        .count()
}

#[tokio::test]
async fn what_is_over_and_counts_no_more_lies_below_it() {
    let database = running_for(20).await;
    let to = database.destination(per_second(100)).await;
    for days in [18, 9, 4] {
        old(&database, to, days, 5, SUCCEEDED).await;
    }
    look(&database).await;
    look(&database).await;
    assert_eq!(horizon(&database).await, 0, "an hour has not passed");
    an_hour_passes(&database).await;
    look(&database).await;
    assert_eq!(horizon_in_days(&database).await, 3);
    // And it does not go back.
    raise(&database).await;
    assert_eq!(horizon_in_days(&database).await, 3);
}

#[tokio::test]
async fn what_waits_or_is_under_way_lies_above_it_however_old() {
    let database = running_for(20).await;
    let to = database.destination(per_second(100)).await;
    old(&database, to, 18, 5, SUCCEEDED).await;
    old(&database, to, 15, 3, WAITING).await;
    raise(&database).await;
    assert_eq!(horizon_in_days(&database).await, 15);
    assert_eq!(starts_all(&database, to).await, 3);
    raise(&database).await;
    assert_eq!(horizon_in_days(&database).await, 15, "they are under way");
}

#[tokio::test]
async fn what_counts_lies_above_it_although_it_is_of_an_old_day() {
    let database = running_for(20).await;
    let three_a_day = LimitSettings {
        per_day: Some(3),
        ..LimitSettings::EXACT
    };
    let to = database.destination(three_a_day).await;
    old(&database, to, 12, 2, ENDED_LATE).await;
    raise(&database).await;
    assert_eq!(horizon_in_days(&database).await, 12);
    database.accept(to, 10).await;
    match database.run(to).await {
        RunResult::Decided { permits, .. } => assert_eq!(permits.len(), 1, "{permits:?}"),
        other => panic!("{other:?}"),
    }
}

/// What came while the first look was on its way is found by the second.
#[tokio::test]
async fn what_the_second_look_finds_lies_above_it() {
    let database = running_for(20).await;
    let to = database.destination(per_second(100)).await;
    look(&database).await;
    an_hour_passes(&database).await;
    old(&database, to, 11, 2, WAITING).await;
    look(&database).await;
    assert_eq!(horizon_in_days(&database).await, 11);
    assert_eq!(starts_all(&database, to).await, 2);
}

#[tokio::test]
async fn a_day_that_may_come_back_lies_above_it() {
    let database = running_for(20).await;
    let to = database.destination(per_second(100)).await;
    old(&database, to, 11, 2, ENDED_LATE).await;
    // Whoever detached it was killed, and its rows count after all.
    let detach = "do $$ begin execute format('alter table ledger detach partition ledger_%s',
        to_char(utc_day(now()) - 11, 'YYYY_MM_DD')); end; $$";
    look(&database).await;
    an_hour_passes(&database).await;
    database.sql(detach).await;
    look(&database).await;
    assert_eq!(horizon_in_days(&database).await, 11);
}

#[tokio::test]
async fn a_clock_that_is_ahead_for_a_moment_moves_nothing() {
    let database = running_for(20).await;
    // By that clock, nothing of today counted any more.
    database
        .sql(
            "update attempts_horizon set seen = first_attempt_id(utc_day(now()) + 1),
                seen_at = now() + interval '4 days'",
        )
        .await;
    look(&database).await;
    assert_eq!(horizon(&database).await, 0);
    an_hour_passes(&database).await;
    look(&database).await;
    assert_eq!(horizon_in_days(&database).await, 3);
}

/// Nothing was accepted for days: the ids to come may be of any of them.
#[tokio::test]
async fn it_is_below_all_ids_to_come() {
    let database = running_for(20).await;
    database
        .sql("select setval('attempts_id_seq', first_attempt_id(utc_day(now()) - 9) + 7)")
        .await;
    for _ in 0..2 {
        database.store.keep_days(&FOREVER).await.unwrap();
        an_hour_passes(&database).await;
    }
    assert_eq!(horizon_in_days(&database).await, 9);
}

/// By hand, or from a backup.
#[tokio::test]
async fn what_is_revived_below_it_is_found_by_the_next_look() {
    let database = running_for(20).await;
    let to = database.destination(per_second(100)).await;
    old(&database, to, 18, 3, SUCCEEDED).await;
    raise(&database).await;
    assert_eq!(horizon_in_days(&database).await, 3);
    database
        .sql(
            "update attempts set state = 'waiting', claimed_at = null, started_at = null,
                finished_at = null",
        )
        .await;
    // Its start would be of a day that is not asked.
    assert_eq!(database.permits(to).await.len(), 0);
    look(&database).await;
    assert_eq!(horizon_in_days(&database).await, 18);
    assert_eq!(starts_all(&database, to).await, 3);
}

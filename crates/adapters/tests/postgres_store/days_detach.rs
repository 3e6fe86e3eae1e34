//! A day that goes: while it is read, or after its going was interrupted.

use std::time::Duration;

use engine::ports::{ClaimAnswer, Store};
use sqlx::Connection;

use crate::database::{per_second, run};
use crate::days::{AGES, SUCCEEDED, WAITING, has, keep, old, running_for};

/// Somebody's long report reads everything, meanwhile. It goes on reading what
/// it saw; all others go on at once; the day goes when the report has ended.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_day_that_goes_while_it_is_read() {
    let database = running_for(10).await;
    let to = database.destination(per_second(100)).await;
    old(&database, to, 9, 10, SUCCEEDED).await;
    let mut report = database.user().await;
    let mut report = report.begin().await.unwrap();
    let read = "select count(*) from events e join attempts a on a.event_id = e.id";
    let count = async |report: &mut sqlx::PgConnection| -> i64 {
        sqlx::query_scalar(read).fetch_one(report).await.unwrap()
    };
    assert_eq!(count(&mut report).await, 10);
    let store = database.store.clone();
    let dropping = tokio::spawn(async move { store.keep_days(&AGES).await });
    let pending = "select count(*) from pg_inherits where inhdetachpending";
    while database.number(pending).await == 0 {
        tokio::task::yield_now().await;
    }
    // All in less than any lock's timeout, or it fails.
    let worker = database.worker().await;
    database.accept(to, 5).await;
    let permits = database.permits(to).await;
    assert_eq!(permits.len(), 5);
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    let started = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
    assert!(claims.answers.iter().all(started));
    assert!(!dropping.is_finished(), "it waits for the report");
    report.commit().await.unwrap();
    dropping.await.unwrap().unwrap();
    keep(&database.store).await;
    assert!(!has(&database, "events", 9).await);
    assert_eq!(database.number(pending).await, 0);
}

/// The process died between its steps, or gave up waiting.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_half_done_is_finished() {
    let database = running_for(40).await;
    let to = database.destination(per_second(100)).await;
    for days in [37, 36, 35, 34] {
        old(&database, to, days, 10, SUCCEEDED).await;
    }
    old(&database, to, 35, 1, WAITING).await;
    let mut user = database.user().await;
    let name = "select to_char(utc_day(now()) - $1, '\"ledger\"_YYYY_MM_DD')";
    let mut names = Vec::new();
    for days in [37, 36, 35] {
        let name: String = (sqlx::query_scalar(name)
            .bind(days)
            .fetch_one(&mut user)
            .await)
            .unwrap();
        names.push(name);
    }
    // Detached and not dropped; the one of them should not have been.
    for name in &names[1..] {
        let detach = format!("alter table ledger detach partition {name} concurrently");
        run(&mut user, detach).await;
    }
    // Interrupted while it waited for a reader.
    let mut report = database.user().await;
    let mut report = report.begin().await.unwrap();
    run(&mut report, "select count(*) from attempts".to_owned()).await;
    run(&mut user, "set statement_timeout = '200ms'".to_owned()).await;
    let detach = format!(
        "alter table ledger detach partition {} concurrently",
        names[0]
    );
    let interrupted = sqlx::raw_sql(sqlx::AssertSqlSafe(detach))
        .execute(&mut user)
        .await;
    assert!(interrupted.is_err());
    let pending = "select count(*) from pg_inherits where inhdetachpending";
    assert_eq!(database.number(pending).await, 1);
    report.commit().await.unwrap();

    // What meets somebody's lock is put off, as autovacuum's on a busy machine.
    let began = tokio::time::Instant::now();
    while has(&database, "ledger", 34).await {
        assert!(began.elapsed() < Duration::from_secs(60), "34 days");
        keep(&database.store).await;
    }
    for (days, stays) in [(37, false), (36, false), (35, true), (34, false)] {
        assert_eq!(has(&database, "ledger", days).await, stays, "{days} days");
    }
    let left = "select count(*) from pg_class where relname ~ '^ledger_[0-9_]+$'
        and relkind = 'r' and not relispartition";
    assert_eq!(database.number(left).await, 0);
    assert_eq!(database.permits(to).await.len(), 1, "it is delivered");
}

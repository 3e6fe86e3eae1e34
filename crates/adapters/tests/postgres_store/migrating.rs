//! The schema is brought forward: beside those who use the tables, and not from a
//! version that this one does not come from.

use engine::ports::Catalog;

use crate::database::{Database, run};

/// A transaction of somebody's is open for long while the schema is brought forward:
/// whoever comes after the migration waits for it for two seconds at most, and it goes on
/// once that transaction has ended.
#[tokio::test]
async fn a_migration_that_waits_for_a_writer_holds_nobody_up() {
    let database = Database::create().await;
    // One is to be done again, and it makes triggers of `destinations`.
    let back = "drop table health, response_times, smart_limits, smart_history, handshakes;
        drop function destinations_forget_health, destinations_set_smart,
            destinations_before_handshake, destinations_set_handshake,
            destinations_move_handshake, destinations_resume_handshake cascade;
        delete from _sqlx_migrations where version = 5";
    database.sql(back).await;
    let write = "update destinations set name = name where false";
    let mut writer = database.user().await;
    run(&mut writer, format!("begin; {write}")).await;
    let beside = async {
        database.until_somebody_waits().await;
        // Behind it in the queue; with a time-out of its own, which is not met.
        database
            .sql(&format!("set statement_timeout = '10s'; {write}"))
            .await;
        run(&mut writer, "commit".to_owned()).await;
    };
    let (migrated, ()) = tokio::join!(database.store.migrate(), beside);
    migrated.unwrap();
    assert_eq!(database.number("select count(*) from health").await, 0);
}

/// There is no way from the migrations before the first release to these.
#[tokio::test]
async fn a_schema_from_before_the_first_release_is_told_what_to_do() {
    let database = Database::create().await;
    let before = "update _sqlx_migrations set description = 'init', checksum = 'another'
            where version = 1;
        insert into _sqlx_migrations (version, description, success, checksum, execution_time)
            values (42, 'tallies', true, '', 0)";
    database.sql(before).await;
    let what_to_do = "drop schema public cascade; create schema public";
    let refused = database.store.migrate().await.unwrap_err().to_string();
    assert!(refused.contains(what_to_do), "{refused}");
    let not_ready = database.store.ready().await.unwrap_err().to_string();
    assert!(not_ready.contains(what_to_do), "{not_ready}");
    // As it says.
    let over = format!("drop schema if exists paceline cascade; {what_to_do}");
    database.sql(&over).await;
    database.store.migrate().await.unwrap();
    database.store.ready().await.unwrap();
}

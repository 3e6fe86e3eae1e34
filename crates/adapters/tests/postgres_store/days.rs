//! Partitions, one a day: made ahead, found by ids, dropped whole, and nobody
//! waits for it.

use std::time::Duration;

use adapters::postgres::{DayAges, DaysKept, PostgresStore};
use domain::ids::DestinationId;
use engine::ports::{Catalog, ClaimAnswer, DEFAULT_TENANT, Store};

use crate::database::{Database, per_second, run};

const DAY: Duration = Duration::from_secs(86_400);

/// A week of events, a month of attempts and of dead letters.
pub(crate) const AGES: DayAges = DayAges {
    events: Some(Duration::from_secs(7 * 86_400)),
    attempts: Some(Duration::from_secs(30 * 86_400)),
    dead_letters: Some(Duration::from_secs(30 * 86_400)),
};

/// As if it had run for so many days.
pub(crate) async fn running_for(days: u32) -> Database {
    let database = Database::create().await;
    database
        .sql(&format!(
            "do $$
            begin
                execute regexp_replace(
                    pg_get_functiondef('event_day(uuid)'::regprocedure),
                    '''[0-9a-f]{{8}}-[0-9a-f-]{{27}}''', '''01800000-0000-0000-0000-000000000000''');
            end;
            $$;
            select ensure_day('ledger', utc_day(now()) - n), ensure_day('events', utc_day(now()) - n)
            from generate_series(1, {days}) n"
        ))
        .await;
    database
}

/// So many attempts of as many events, all of them so many days old; `columns`
/// and `values` say what became of them.
pub(crate) async fn old(
    database: &Database,
    to: DestinationId,
    days: u32,
    count: u32,
    fate: [&str; 2],
) {
    let [columns, values] = fate;
    database
        .sql(&format!(
            "with n as (
                select g, now() - {days} * interval '1 day' as at, (
                    lpad(to_hex((extract(epoch from now()) * 1000)::bigint - {days} * 86400000::bigint),
                        12, '0') || '7' || substr(translate(gen_random_uuid()::text, '-', ''), 14)
                )::uuid as id
                from generate_series(1, {count}) g
            ),
            e as (
                insert into events (id, tenant_id, content_type, payload, created_at, day)
                select n.id, '{DEFAULT_TENANT}', 'text/plain', 'x', n.at, event_day(n.id) from n
            )
            insert into attempts (
                id, event_id, destination_id, tenant_id, created_at, {columns}
            )
            select coalesce(
                    (select max(a.id) from attempts a
                     where a.id < first_attempt_id(utc_day(now()) - {days} + 1)
                        and a.id > first_attempt_id(utc_day(now()) - {days})),
                    first_attempt_id(utc_day(now()) - {days})
                ) + n.g, n.id, '{to}', '{DEFAULT_TENANT}', n.at, {values}
            from n"
        ))
        .await;
}

pub(crate) const SUCCEEDED: [&str; 2] = [
    "state, claimed_at, started_at, finished_at",
    "'succeeded', n.at, n.at, n.at",
];
pub(crate) const WAITING: [&str; 2] = ["state", "'waiting'"];
const DEAD: [&str; 2] = [
    "state, claimed_at, started_at, finished_at, dead_letter",
    "'failed', n.at, n.at, n.at, true",
];
pub(crate) const ENDED_LATE: [&str; 2] = [
    "state, claimed_at, started_at, finished_at",
    "'succeeded', now(), now(), now()",
];

/// Whether that day of the table is there.
pub(crate) async fn has(database: &Database, table: &str, days: u32) -> bool {
    let sql = format!(
        "select count(*) from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = '{table}'::regclass and not i.inhdetachpending
            and partition_day(c.relname) = utc_day(now()) - {days}"
    );
    database.number(&sql).await == 1
}

/// Steps until one leaves things as they are.
pub(crate) async fn keep(store: &PostgresStore) -> Vec<String> {
    let mut dropped = Vec::new();
    loop {
        let kept = store.keep_days(&AGES).await.unwrap();
        if kept.dropped.is_empty() {
            return dropped;
        }
        dropped.extend(kept.dropped);
    }
}

#[tokio::test]
async fn days_are_made_ahead_and_none_takes_what_has_no_day() {
    let database = Database::create().await;
    let ready = database.store.ready().await;
    ready.unwrap();
    let defaults = "select count(*) from pg_partitioned_table where partdefid <> 0";
    assert_eq!(database.number(defaults).await, 0);
    let ahead = "select count(*) from generate_series(0, 3) n
        where has_day(utc_day(clock_timestamp()) + n)";
    assert_eq!(database.number(ahead).await, 4);
    let beyond = "select has_day(utc_day(clock_timestamp()) + 4)::integer::bigint";
    assert_eq!(database.number(beyond).await, 0);

    let tomorrow = "select format('drop table ledger_%1$s, events_%1$s',
        to_char(utc_day(now()) + 1, 'YYYY_MM_DD'))";
    let mut user = database.user().await;
    let drop: String = sqlx::query_scalar(tomorrow)
        .fetch_one(&mut user)
        .await
        .unwrap();
    run(&mut user, drop).await;
    let made = database.store.keep_days(&AGES).await.unwrap();
    let expected = DaysKept {
        made: 2,
        ..DaysKept::default()
    };
    assert_eq!(made, expected);
    assert_eq!(database.number(ahead).await, 4);

    let today = tomorrow.replace("utc_day(now()) + 1", "utc_day(now())");
    let drop: String = sqlx::query_scalar(sqlx::AssertSqlSafe(today))
        .fetch_one(&mut user)
        .await
        .unwrap();
    run(&mut user, drop).await;
    assert!(database.store.ready().await.is_err(), "no day, and ready");
}

/// The first inserts of a day, at once: the sequence is at yesterday's ids.
#[tokio::test(flavor = "multi_thread")]
async fn ids_of_a_new_day_are_its_own_and_each_is_given_once() {
    let database = Database::create().await;
    let to = database.destination(per_second(100)).await;
    for round in 0..5 {
        let back = "select setval('attempts_id_seq', first_attempt_id(utc_day(now())) - 50)";
        database.sql(back).await;
        database.sql("delete from attempts").await;
        let inserts = (0..8).map(|_| database.accept(to, 20));
        futures_util::future::join_all(inserts).await;
        let todays = "select count(distinct id) from attempts
            where id > first_attempt_id(utc_day(now()))";
        assert_eq!(database.number(todays).await, 160, "round {round}");
    }
    let more = "select count(*) from attempts where id > 9007199254740992";
    assert_eq!(database.number(more).await, 0, "JSON holds them");
    // By whoever inserts, under whatever search_path, the first of a day too.
    let elsewhere = format!(
        "delete from attempts;
        select setval('attempts_id_seq', first_attempt_id(utc_day(now())) - 50);
        create schema elsewhere; set search_path = elsewhere;
        insert into public.attempts (event_id, destination_id, tenant_id)
        values (public.new_event_id(), '{to}', '{DEFAULT_TENANT}')"
    );
    database.sql(&elsewhere).await;
}

#[tokio::test]
async fn a_day_goes_when_it_is_old_and_nothing_in_it_is_needed() {
    let database = running_for(36).await;
    let to = database.destination(per_second(100)).await;
    for days in [36, 35, 34, 33, 32, 31, 20, 10, 9, 8, 5] {
        old(&database, to, days, 10, SUCCEEDED).await;
    }
    // A paused destination's backlog, a dead letter within its age, and what was
    // delivered long after it came.
    old(&database, to, 35, 1, WAITING).await;
    old(&database, to, 10, 1, DEAD).await;
    old(&database, to, 9, 1, WAITING).await;
    old(&database, to, 33, 1, ENDED_LATE).await;
    // Too old to be replayed.
    old(&database, to, 34, 1, DEAD).await;
    keep(&database.store).await;
    for (days, stays) in [
        (36, false),
        (35, true),
        (34, false),
        (33, true),
        (32, false),
        (30, true),
    ] {
        assert_eq!(
            has(&database, "ledger", days).await,
            stays,
            "ledger, {days} days"
        );
    }
    for (days, stays) in [
        (36, false),
        (35, true),
        (33, false),
        (20, false),
        (10, true),
        (9, true),
        (8, false),
        (7, true),
        (5, true),
    ] {
        assert_eq!(
            has(&database, "events", days).await,
            stays,
            "events, {days} days"
        );
    }
    // What had to stay can be delivered.
    let permits = database.permits(to).await;
    assert_eq!(permits.len(), 2);
    let worker = database.worker().await;
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    for answer in claims.answers {
        let ClaimAnswer::Started(start) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(&start.payload[..], b"x");
    }
    // Then nothing holds the events' days any more.
    database
        .sql("update attempts set state = 'succeeded' where state = 'started'")
        .await;
    keep(&database.store).await;
    assert!(!has(&database, "events", 35).await && !has(&database, "events", 9).await);
    assert!(has(&database, "ledger", 35).await, "it ended today");
}

/// Many old days with a backlog do not keep younger ones from going; nor does
/// one that a user's own view depends on.
#[tokio::test]
async fn days_that_stay_hold_up_no_others() {
    let database = running_for(45).await;
    let to = database.destination(per_second(100)).await;
    for days in 36..=45 {
        old(&database, to, days, 1, WAITING).await;
    }
    let view = "do $$ begin
        execute to_char(utc_day(now()) - 35, '\"create view theirs as table ledger\"_YYYY_MM_DD');
    end; $$";
    database.sql(view).await;
    keep(&database.store).await;
    for (table, days, stays) in [
        ("ledger", 36, true),
        ("ledger", 34, false),
        ("ledger", 31, false),
        ("events", 36, true),
        ("events", 35, false),
        ("events", 8, false),
    ] {
        assert_eq!(has(&database, table, days).await, stays, "{table}, {days}");
    }
    database.sql("drop view theirs").await;
    assert_eq!(keep(&database.store).await.len(), 1);
}

#[tokio::test]
async fn for_ever_is_for_ever() {
    let database = running_for(40).await;
    let ages = DayAges {
        events: None,
        attempts: None,
        dead_letters: None,
    };
    assert_eq!(
        database.store.keep_days(&ages).await.unwrap(),
        DaysKept::default()
    );
    let days = "select count(*) from pg_inherits where inhparent = 'ledger'::regclass";
    assert_eq!(database.number(days).await, 44);
}

/// The longest age is longer than what limits count.
#[tokio::test]
async fn what_limits_count_stays_however_short_the_age() {
    let database = running_for(5).await;
    let to = database.destination(per_second(100)).await;
    old(&database, to, 2, 10, SUCCEEDED).await;
    let ages = DayAges {
        events: Some(DAY),
        attempts: Some(Duration::ZERO),
        dead_letters: Some(DAY),
    };
    database.store.keep_days(&ages).await.unwrap();
    database.store.keep_days(&ages).await.unwrap();
    assert!(has(&database, "ledger", 2).await);
    assert!(!has(&database, "events", 2).await);
    assert!(!has(&database, "ledger", 5).await);
}

/// No scheduler has run for days: an event is accepted all the same.
#[tokio::test]
async fn an_event_of_a_day_that_nobody_made_is_accepted() {
    let database = Database::create().await;
    let to = database.destination(per_second(100)).await;
    let none = "do $$
        declare one record;
        begin
            for one in
                select c.oid::regclass as name
                from pg_inherits i join pg_class c on c.oid = i.inhrelid
                where i.inhparent in ('ledger'::regclass, 'events'::regclass)
                    and partition_day(c.relname) is not null
            loop
                execute format('drop table %s', one.name);
            end loop;
        end;
        $$";
    database.sql(none).await;
    assert!(!has(&database, "ledger", 0).await);
    database.accept(to, 1).await;
    let waiting = "select count(*) from attempts where state = 'waiting'";
    assert_eq!(database.number(waiting).await, 1);
    // Who is asked whether it is ready, and is not, is so at the next look.
    database.store.ready().await.unwrap_err();
    database.store.ready().await.unwrap();
    assert!(has(&database, "ledger", 0).await, "where it ends");
}

/// What is owed since a day of which the ledger has none, say because somebody dropped it,
/// ends in that day.
#[tokio::test]
async fn a_day_that_is_owed_something_is_made() {
    let database = running_for(20).await;
    let to = database.destination(per_second(100)).await;
    old(&database, to, 12, 1, WAITING).await;
    let drop = "do $$ begin execute format('drop table ledger_%1$s',
        to_char(utc_day(now()) - 12, 'YYYY_MM_DD')); end; $$";
    database.sql(drop).await;
    keep(&database.store).await;
    assert!(has(&database, "ledger", 12).await);
    database
        .sql("update attempts set state = 'cancelled' where state = 'waiting'")
        .await;
}

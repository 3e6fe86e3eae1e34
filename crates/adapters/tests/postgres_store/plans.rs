//! What a run costs: by the pages that it touches, not by a clock.

use std::num::NonZeroU64;
use std::time::Duration;

use adapters::postgres::PostgresStore;
use domain::attempt::OutcomeKind;
use domain::backpressure::{BacklogBounds, CountPace};
use domain::ids::{DestinationId, WorkerId};
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Backpressure, Catalog, DEFAULT_TENANT, NextTry, Operations, ReapRules, Run, Store,
    Survey, SurveyRules, Sweep, WatchRules,
};

use crate::database::{Database, per_second};
use crate::ratios::{UNLIMITED, admit, claim};

pub(crate) async fn pages_of_ten_runs(database: &Database, destination: DestinationId) -> i64 {
    let run = Run {
        destination,
        republish: false,
    };
    let ten_runs = async |store: PostgresStore| {
        for _ in 0..10 {
            let room = Room::of(u32::MAX);
            store.admit(&[run], &room).await.unwrap();
        }
    };
    database.pages_of(ten_runs).await
}

async fn pages_of_ten_looks(database: &Database) -> i64 {
    let rules = WatchRules {
        every: Duration::ZERO,
        patience: Duration::ZERO,
        ..WatchRules::default()
    };
    let ten_looks = async |store: PostgresStore| {
        for _ in 0..10 {
            assert_eq!(store.watch(&rules).await.unwrap().looked, 1);
        }
    };
    database.pages_of(ten_looks).await
}

async fn backlog(database: &Database, destination: DestinationId, from: u32, to: u32) {
    database
        .sql(&format!(
            "insert into attempts (event_id, destination_id, tenant_id, due_at)
            select e.id, '{destination}', '{DEFAULT_TENANT}',
                case when g % 2 = 0 then clock_timestamp() end
            from (select id from events limit 1) e, generate_series({from} + 1, {to}) g"
        ))
        .await;
}

/// A plan is kept by its connection: one that was made when the day was known to
/// be empty serves when it is full.
#[tokio::test]
async fn a_plan_for_an_empty_day_serves_a_full_one() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.sql("vacuum analyze attempts").await;
    let run = Run {
        destination,
        republish: false,
    };
    let room = Room::of(u32::MAX);
    let before_and_after = async |store: PostgresStore| {
        store.admit(&[run], &room).await.unwrap();
        let over = format!(
            "insert into attempts
                (event_id, destination_id, tenant_id, state, claimed_at, started_at, finished_at)
            select gen_random_uuid(), '{destination}', '{DEFAULT_TENANT}', 'succeeded', at, at, at
            from (select clock_timestamp() - interval '1 hour' as at) t,
                generate_series(1, 200000)"
        );
        database.sql(&over).await;
        for _ in 0..10 {
            store.admit(&[run], &room).await.unwrap();
        }
    };
    let pages = database.pages_of(before_and_after).await;
    // With planning. Reading the day once by its key would be some thousands.
    assert!((50..3_000).contains(&pages), "{pages}");
}

/// The way of an event that fails for good, and of two that are delivered: by what records
/// the plain ones, and by what looks at each.
async fn ways(database: &Database, store: &PostgresStore, to: DestinationId, worker: WorkerId) {
    for fails in [true, false, false] {
        let accepted = store.accept_events(&[database.event(to)]).await.unwrap();
        assert_eq!(accepted.len(), 1);
        let permits = admit(store, &[to]).await;
        let mut outcomes = claim(store, worker, &permits).await;
        assert_eq!(outcomes.len(), 1);
        if fails {
            outcomes[0].kind = OutcomeKind::Failed;
            outcomes[0].next = NextTry::DeadLetter;
        }
        let recorded = store.record_outcomes(worker, &outcomes).await.unwrap();
        assert_eq!(recorded.skipped, []);
    }
}

/// What is owed is often nothing, and the server vacuums then. Plans of that time serve
/// beside many that wait, for a time or for their turn, and are over, many destinations, and
/// many that are remembered.
#[tokio::test]
async fn plans_for_when_nothing_is_owed_serve_when_much_is() {
    let pages_beside = async |others: u32| {
        let database = Database::create().await;
        let to = database.destination(UNLIMITED).await;
        let worker = database.worker().await;
        database.let_nothing_lapse().await;
        database.sql("vacuum analyze").await;
        let before_and_after = async |store: PostgresStore| {
            ways(&database, &store, to, worker).await;
            let beside = format!(
                "with d as (
                    insert into destinations (id, tenant_id, url)
                    select gen_random_uuid(), '{DEFAULT_TENANT}', 'https://x.example/'
                    from generate_series(1, {others})
                    returning id
                ),
                p as (insert into pacing (destination_id) select id from d),
                h as (insert into health (destination_id) select id from d)
                insert into deliveries (event_id, destination_id, tenant_id, due_at)
                select gen_random_uuid(), d.id, '{DEFAULT_TENANT}',
                    case when n % 2 = 0 then clock_timestamp() + interval '1 hour' end
                from d, generate_series(1, 10) n"
            );
            database.sql(&beside).await;
            let over = format!(
                "insert into attempts
                    (event_id, destination_id, tenant_id, state, claimed_at, started_at, finished_at)
                select gen_random_uuid(), '{to}', '{DEFAULT_TENANT}', 'succeeded', at, at, at
                from (select clock_timestamp() - interval '1 minute' as at) t,
                    generate_series(1, {others})"
            );
            database.sql(&over).await;
            for _ in 0..5 {
                ways(&database, &store, to, worker).await;
            }
        };
        database.pages_of(before_and_after).await
    };
    let (few, many) = (pages_beside(10).await, pages_beside(4_000).await);
    assert!(few > 100, "the counters count: {few}");
    // Some are planned once more. What reads one index as a whole makes seven times as many.
    assert!(many <= 2 * few, "{few}, then {many}");
}

/// A try that is given up, and what calls its retry off: a success that comes late. Meanwhile
/// the event comes in once more, and is told where it went.
async fn a_late_success(
    database: &Database,
    store: &PostgresStore,
    to: DestinationId,
    worker: WorkerId,
) {
    let event = database.event(to);
    store
        .accept_events(std::slice::from_ref(&event))
        .await
        .unwrap();
    let permits = admit(store, &[to]).await;
    database.let_nothing_lapse().await;
    let outcomes = claim(store, worker, &permits).await;
    assert_eq!(outcomes.len(), 1);
    let at_once = ReapRules {
        heartbeat_timeout: Duration::from_secs(3_600),
        start_timeout: Duration::ZERO,
        permit_grace: Duration::from_secs(3_600),
        everything: true,
    };
    let reaped = store.reap(&at_once, 100).await.unwrap();
    assert_eq!(reaped.unknown_starts, 1);
    let waits = format!(
        "select count(*) from deliveries where event_id = '{}'",
        event.id
    );
    assert_eq!(database.number(&waits).await, 1, "its retry");
    let again = store.accept_events(std::slice::from_ref(&event)).await;
    assert_eq!(again.unwrap(), [Acceptance::Accepted(vec![to])]);
    let recorded = store.record_outcomes(worker, &outcomes).await.unwrap();
    assert_eq!(recorded.skipped, []);
    assert_eq!(database.number(&waits).await, 0, "nothing");
}

/// Retries of an event are found by the event, however many others wait for theirs at the
/// same destination.
#[tokio::test]
async fn a_late_success_reads_what_waits_of_its_event_alone() {
    let pages_beside = async |others: u32| {
        let database = Database::create().await;
        let to = database.destination(UNLIMITED).await;
        let worker = database.worker().await;
        database.let_nothing_lapse().await;
        let beside = format!(
            "insert into deliveries (event_id, destination_id, tenant_id, due_at)
            select gen_random_uuid(), '{to}', '{DEFAULT_TENANT}',
                clock_timestamp() + interval '1 hour'
            from generate_series(1, {others})"
        );
        database.sql(&beside).await;
        database.sql("vacuum analyze").await;
        let ten_times = async |store: PostgresStore| {
            for _ in 0..10 {
                a_late_success(&database, &store, to, worker).await;
            }
        };
        database.pages_of(ten_times).await
    };
    let (few, many) = (pages_beside(10).await, pages_beside(20_000).await);
    assert!(few > 100, "the counters count: {few}");
    // Levels of the indexes.
    assert!(many <= 2 * few, "{few}, then {many}");
}

/// With the statistics of an empty table, and with true ones.
#[tokio::test]
async fn a_run_costs_the_same_whatever_the_backlog() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 1).await;
    backlog(&database, destination, 0, 1_000).await;
    database.permits(destination).await;
    let small = pages_of_ten_runs(&database, destination).await;
    backlog(&database, destination, 1_000, 200_000).await;
    let large = pages_of_ten_runs(&database, destination).await;
    database.sql("analyze").await;
    let analyzed = pages_of_ten_runs(&database, destination).await;
    assert!(small > 50, "the counters count: {small}");
    // One level more in each index, and no more.
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}

/// Two hundred thousand wait, and the watch counts up to its threshold.
#[tokio::test]
async fn a_look_of_the_watch_costs_the_same_whatever_the_backlog() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database
        .sql("update destinations set alert_backlog = 300")
        .await;
    database.accept(destination, 1).await;
    backlog(&database, destination, 0, 1_000).await;
    pages_of_ten_looks(&database).await;
    let small = pages_of_ten_looks(&database).await;
    backlog(&database, destination, 1_000, 200_000).await;
    let large = pages_of_ten_looks(&database).await;
    database.sql("analyze").await;
    let analyzed = pages_of_ten_looks(&database).await;
    assert!(small > 50, "the counters count: {small}");
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}

async fn pages_of_ten_surveys(database: &Database, destination: DestinationId) -> i64 {
    let rules = SurveyRules { page: 10, far: 100 };
    let ten_surveys = async |store: PostgresStore| {
        for _ in 0..10 {
            let page = store.survey_backlogs(None, &rules).await.unwrap();
            assert_eq!((page.backlogs[0].waiting(), page.next), (200, None));
            let standings = store.survey_standings(&[destination]).await.unwrap();
            assert_eq!(standings.len(), 1);
        }
    };
    database.pages_of(ten_surveys).await
}

/// Two hundred thousand wait, as many are over, and a survey counts up to its
/// cap.
#[tokio::test]
async fn a_survey_costs_the_same_whatever_the_backlog() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 1).await;
    backlog(&database, destination, 0, 1_000).await;
    pages_of_ten_surveys(&database, destination).await;
    let small = pages_of_ten_surveys(&database, destination).await;
    backlog(&database, destination, 1_000, 200_000).await;
    let over = format!(
        "insert into attempts
            (event_id, destination_id, tenant_id, state, claimed_at, started_at, finished_at)
        select e.id, '{destination}', '{DEFAULT_TENANT}', 'succeeded', at, at, at
        from (select id from events limit 1) e,
            (select clock_timestamp() - interval '1 hour' as at) t, generate_series(1, 200000)"
    );
    database.sql(&over).await;
    let large = pages_of_ten_surveys(&database, destination).await;
    database.sql("analyze").await;
    let analyzed = pages_of_ten_surveys(&database, destination).await;
    assert!(small > 50, "the counters count: {small}");
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}

/// Destinations that have never had any work.
async fn idle(database: &Database, count: u32) {
    database
        .sql(&format!(
            "insert into destinations (id, tenant_id, name, url, limit_per_second)
            select gen_random_uuid(), '{DEFAULT_TENANT}', 'idle', 'http://127.0.0.1:1/', 1
            from generate_series(1, {count})"
        ))
        .await;
}

/// Pages that the walks through who has a backlog touch: a sweep, a look of the
/// watch, and a survey.
async fn pages_of_ten_walks(database: &Database) -> [i64; 3] {
    let sweep = Sweep {
        after: None,
        limit: 1_000,
        overdue: Duration::ZERO,
        everything: false,
        only_marks: false,
    };
    let swept = database.pages_of(async |store: PostgresStore| {
        for _ in 0..10 {
            assert_eq!(store.sweep(&sweep).await.unwrap().wakes.len(), 20);
        }
    });
    let swept = swept.await;
    let rules = WatchRules {
        every: Duration::ZERO,
        patience: Duration::ZERO,
        ..WatchRules::default()
    };
    let watched = database.pages_of(async |store: PostgresStore| {
        for _ in 0..10 {
            assert_eq!(store.watch(&rules).await.unwrap().looked, 20);
        }
    });
    let watched = watched.await;
    let rules = SurveyRules { page: 100, far: 10 };
    let surveyed = database.pages_of(async |store: PostgresStore| {
        for _ in 0..10 {
            let page = store.survey_backlogs(None, &rules).await.unwrap();
            assert_eq!(page.backlogs.len(), 20);
        }
    });
    [swept, watched, surveyed.await]
}

/// Twenty have work, and ten thousand have none.
#[tokio::test]
async fn who_has_no_work_costs_the_walks_nothing() {
    let database = Database::create().await;
    for _ in 0..20 {
        let destination = database.destination(per_second(100)).await;
        database.accept(destination, 1).await;
        backlog(&database, destination, 0, 2).await;
    }
    pages_of_ten_walks(&database).await;
    let few = pages_of_ten_walks(&database).await;
    idle(&database, 10_000).await;
    let many = pages_of_ten_walks(&database).await;
    database.sql("analyze").await;
    let analyzed = pages_of_ten_walks(&database).await;
    for (few, rest) in few.into_iter().zip(many.into_iter().zip(analyzed)) {
        assert!(few > 50, "the counters count: {few}");
        // A level more in an index.
        let most = few + few / 2;
        assert!(rest.0 <= most && rest.1 <= most, "{few}, then {rest:?}");
    }
}

/// A plan of when there were few destinations is kept by its connection.
#[tokio::test]
async fn a_survey_that_was_planned_among_few_serves_among_many() {
    let rules = SurveyRules { page: 100, far: 10 };
    let pages_beside = async |others: u32| {
        let database = Database::create().await;
        for _ in 0..20 {
            let destination = database.destination(per_second(100)).await;
            database.accept(destination, 1).await;
        }
        database.sql("vacuum analyze").await;
        let surveys = async |store: PostgresStore| {
            for survey in 0..20 {
                if survey == 10 {
                    idle(&database, others).await;
                }
                let page = store.survey_backlogs(None, &rules).await.unwrap();
                assert_eq!(page.backlogs.len(), 20);
            }
        };
        database.pages_of(surveys).await
    };
    let (few, many) = (pages_beside(10).await, pages_beside(10_000).await);
    assert!(few > 100, "the counters count: {few}");
    assert!(many <= few + few / 2, "{few}, then {many}");
}

/// So many attempts of a destination that started in this hour of a day long ago,
/// a millisecond apart.
async fn started(database: &Database, destination: DestinationId, hour: u32, count: u32) {
    let over = format!(
        "insert into attempts
            (event_id, destination_id, tenant_id, state, claimed_at, started_at, finished_at)
        select gen_random_uuid(), '{destination}', '{DEFAULT_TENANT}', 'succeeded', at, at, at
        from (
            select '2026-01-01 {hour}:00:00+00'::timestamptz + g * interval '1 ms' as at
            from generate_series(1, {count}) g
        ) t"
    );
    database.sql(&over).await;
}

async fn pages_of_ten_reports(database: &Database, destination: DestinationId) -> i64 {
    let hour = |hour: i64| Timestamp::from_millis(1_767_225_600_000 + hour * 3_600_000);
    let ten_reports = async |store: PostgresStore| {
        for _ in 0..10 {
            let page = store
                .ledger(destination, hour(12), hour(13), None, 1_000)
                .await
                .unwrap();
            assert_eq!(page.len(), 500);
        }
    };
    database.pages_of(ten_reports).await
}

/// An hour of one destination, whatever started in other hours and elsewhere.
#[tokio::test]
async fn a_report_reads_its_destination_and_its_time_alone() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    let other = database.destination(per_second(100)).await;
    started(&database, destination, 12, 500).await;
    pages_of_ten_reports(&database, destination).await;
    let small = pages_of_ten_reports(&database, destination).await;
    started(&database, destination, 11, 100_000).await;
    started(&database, destination, 14, 100_000).await;
    started(&database, other, 12, 100_000).await;
    let large = pages_of_ten_reports(&database, destination).await;
    database.sql("analyze").await;
    let analyzed = pages_of_ten_reports(&database, destination).await;
    assert!(small > 50, "the counters count: {small}");
    // Levels of the indexes, and rows that lie on other pages.
    let most = small + small / 2 + 500;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}

/// Always due.
const NOW: CountPace = CountPace {
    every: Duration::ZERO,
    one_part_in: 0,
    at_most: Duration::ZERO,
};

/// However many attempts are final.
#[tokio::test]
async fn a_count_of_backlogs_reads_what_is_pending_alone() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 1).await;
    backlog(&database, destination, 0, 500).await;
    let finals = async |count: u32| {
        let insert = format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, claimed_at, started_at, finished_at
            )
            select e.id, '{destination}', '{DEFAULT_TENANT}', 'succeeded', now(), now(), now()
            from (select id from events limit 1) e, generate_series(1, {count}) g"
        );
        database.sql(&insert).await;
    };
    let pages = async || {
        let count = async |store: PostgresStore| {
            for _ in 0..10 {
                let bounds = BacklogBounds::default();
                let counted = store.standings(&bounds, &[], Some(&NOW));
                assert_eq!(counted.await.unwrap().standings[0].pending, 501);
            }
        };
        database.pages_of(count).await
    };
    finals(2_000).await;
    let small = pages().await;
    finals(100_000).await;
    let large = pages().await;
    database.sql("analyze").await;
    let analyzed = pages().await;
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}

/// However many destinations have a backlog: as long as all of it is less than any
/// tenant's may be, whose each is does not matter.
#[tokio::test]
async fn a_count_of_backlogs_looks_nobody_up_while_all_of_it_is_little() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 1).await;
    backlog(&database, destination, 0, 1_000).await;
    let others = format!(
        "with others as (
            insert into destinations (id, tenant_id, name, url, limit_per_second)
            select gen_random_uuid(), '{DEFAULT_TENANT}', '', 'https://receiver.example/', 1
            from generate_series(1, 1000) returning id
        )
        update attempts a set destination_id = o.id
        from (select id, row_number() over () as nth from others) o,
            (select id, row_number() over () as nth from attempts where due_at is not null) b
        where b.id = a.id and b.nth = o.nth"
    );
    let looked_up = async |tenant: u64| {
        let bounds = BacklogBounds {
            tenant: NonZeroU64::new(tenant).unwrap(),
            ..BacklogBounds::default()
        };
        let count = async |store: PostgresStore| {
            let counted = store.standings(&bounds, &[], Some(&NOW));
            assert_eq!(counted.await.unwrap().standings[0].pending, 1_001);
        };
        let read = "select (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
            from pg_statio_user_tables where relname = 'destinations'";
        let before = database.number(read).await;
        database.pages_of(count).await;
        database.number(read).await - before
    };
    database.sql(&others).await;
    let pages = (looked_up(1_000_000).await, looked_up(1_000).await);
    // Planning reads a few; and of a tenant that has too much it is known.
    assert!(pages.0 < 50 && pages.1 > 500, "{pages:?}");
}

/// However many events the requests in flight carry.
#[tokio::test]
async fn the_fleet_is_read_by_its_requests() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 1).await;
    let started = async |leader: &str, count: u32| {
        let insert = format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, permit, claimed_at, started_at,
                carried_by
            )
            select e.id, '{destination}', '{DEFAULT_TENANT}', 'started', 1, now(), now(), {leader}
            from (select id from events limit 1) e, generate_series(1, {count}) g"
        );
        database.sql(&insert).await;
    };
    let pages = async || {
        let look = async |store: PostgresStore| {
            for _ in 0..10 {
                let fleet = store.fleet().await.unwrap();
                assert_eq!(fleet.loads[0].in_flight, 200);
            }
        };
        database.pages_of(look).await
    };
    started("null", 200).await;
    started("1", 1_000).await;
    let small = pages().await;
    started("1", 100_000).await;
    let large = pages().await;
    database.sql("analyze").await;
    let analyzed = pages().await;
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}

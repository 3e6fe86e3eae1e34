//! The outbox on Postgres: each row is one event, in order, whatever happens
//! to the relays.

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use adapters::in_process::InProcessSchedule;
use adapters::postgres::{PostgresOptions, PostgresStore};
use domain::ids::DestinationId;
use domain::operations::OperationalType;
use domain::policy::LimitSettings;
use engine::ports::{DEFAULT_TENANT, Lane, Operations as _, Outbox, WatchRules};
use engine::relay::{Relay, RelayOptions};
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::database::{Database, run};

/// Set for a process that does nothing but relay.
const RELAY_URL: &str = "PACELINE_TEST_RELAY_URL";

fn relay(store: &PostgresStore, batch: u32) -> Relay {
    let options = RelayOptions {
        batch,
        ..RelayOptions::default()
    };
    let schedule = Arc::new(InProcessSchedule::new());
    Relay::new(Arc::new(store.clone()), schedule, options)
}

/// Relays until the outbox is empty.
async fn relay_all(database: &Database) {
    let mut relay = relay(&database.store, 100);
    while relay.tick().await {}
}

async fn texts(database: &Database, sql: &str) -> Vec<String> {
    let mut user = database.user().await;
    let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()));
    query.fetch_all(&mut user).await.unwrap()
}

async fn destination(database: &Database) -> DestinationId {
    database.destination(LimitSettings::EXACT).await
}

/// The payloads that wait at a destination, in the order of their attempts.
async fn waiting(database: &Database, to: DestinationId) -> Vec<String> {
    let sql = format!(
        "select convert_from(e.payload, 'UTF8') from attempts a join events e on e.id = a.event_id
         where a.destination_id = '{to}' order by a.id"
    );
    texts(database, &sql).await
}

#[tokio::test]
async fn a_row_is_an_event_when_its_transaction_commits_and_not_before() {
    let database = Database::create().await;
    let to = destination(&database).await;
    let id = database.id();
    let mut user = database.user().await;
    let insert = format!(
        "begin; insert into paceline.outbox (event_id, destination_id, event_type, payload)
         values ('{id}', '{to}', 'order.paid', '{{\"order\" : 4711}}')"
    );
    run(&mut user, insert.clone()).await;
    relay_all(&database).await;
    assert_eq!(waiting(&database, to).await, Vec::<String>::new());
    run(&mut user, "rollback".to_owned()).await;
    relay_all(&database).await;
    assert_eq!(database.number("select count(*) from events").await, 0);

    run(&mut user, format!("{insert}; commit")).await;
    relay_all(&database).await;
    assert_eq!(waiting(&database, to).await, ["{\"order\" : 4711}"]);
    let same = format!(
        "select count(*) from events where id = '{id}' and event_type = 'order.paid'
            and content_type = 'application/json' and tenant_id = '{DEFAULT_TENANT}'"
    );
    assert_eq!(database.number(&same).await, 1);
    assert_eq!(database.number("select count(*) from outbox").await, 0);
}

#[tokio::test]
async fn an_id_that_is_there_already_is_no_second_event() {
    let database = Database::create().await;
    let to = destination(&database).await;
    let id = database.id();
    for _ in 0..2 {
        let row = format!("('{id}', '{to}', '1'), ('{id}', '{to}', '1')");
        let columns = "paceline.outbox (event_id, destination_id, payload)";
        database
            .sql(&format!("insert into {columns} values {row}"))
            .await;
        relay_all(&database).await;
    }
    assert_eq!(waiting(&database, to).await, ["1"]);
    assert_eq!(database.number("select count(*) from outbox").await, 0);
}

/// It is not answered as if it were the same event: nobody would get it.
#[tokio::test]
async fn a_row_with_the_id_of_another_tenants_event_is_rejected() {
    let database = Database::create().await;
    let (id, other) = (database.id(), database.id());
    let tenant = format!("insert into tenants (id, name, tier) values ('{other}', 'x', 'free')");
    database.sql(&tenant).await;
    let to = destination(&database).await;
    let theirs = format!(
        "insert into events (id, tenant_id, content_type, payload, created_at, day)
        values ('{id}', '{other}', 'text/plain', 'theirs', now(), event_day('{id}'))"
    );
    database.sql(&theirs).await;
    let row = format!(
        "insert into paceline.outbox (event_id, destination_id, payload)
        values ('{id}', '{to}', 'ours'), (null, '{to}', 'another')"
    );
    database.sql(&row).await;
    relay_all(&database).await;
    assert_eq!(waiting(&database, to).await, ["another"]);
    let rejected = "select payload || ' ' || split_part(reason, ':', 1)
        from paceline.outbox_rejected";
    assert_eq!(texts(&database, rejected).await, ["ours event_id"]);
    assert_eq!(database.number("select count(*) from outbox").await, 0);
}

#[tokio::test]
async fn bad_rows_are_moved_out_of_the_way_with_the_reason() {
    let database = Database::create().await;
    let to = destination(&database).await;
    let nowhere = database.id();
    let disabled = destination(&database).await;
    let disable = format!("update destinations set state = 'disabled' where id = '{disabled}'");
    database.sql(&disable).await;
    let rows = [
        format!("('{to}', null, '\"good\"', null, null)"),
        "(null, null, '1', null, null)".to_owned(),
        format!("('{nowhere}', null, '1', null, null)"),
        format!("('{disabled}', null, '1', null, null)"),
        format!("('{to}', 'a b', '1', null, null)"),
        format!("('{to}', null, null, null, null)"),
        format!("('{to}', null, '1', '\\x31', null)"),
        format!("('{to}', null, repeat('x', 262145), null, null)"),
        format!("('{to}', null, '1', null, 'no type')"),
        format!("('{to}', null, null, '\\x00ff', 'application/octet-stream')"),
    ];
    let columns = "(destination_id, event_type, payload, payload_bytes, content_type)";
    let rows = rows.join(", ");
    let insert = format!("insert into paceline.outbox {columns} values {rows}");
    database.sql(&insert).await;
    relay_all(&database).await;
    let accepted = format!(
        "select encode(e.payload, 'hex') from attempts a join events e on e.id = a.event_id
         where a.destination_id = '{to}' order by a.id"
    );
    assert_eq!(texts(&database, &accepted).await, ["22676f6f6422", "00ff"]);
    let reasons = "select split_part(reason, ':', 1) from paceline.outbox_rejected
        order by position";
    let columns = [
        "destination_id",
        "destination_id",
        "destination_id",
        "event_type",
        "payload",
        "payload",
        "payload",
        "content_type",
    ];
    assert_eq!(texts(&database, reasons).await, columns);
    assert_eq!(database.number("select count(*) from outbox").await, 0);
}

#[tokio::test]
async fn types_go_to_their_subscribers() {
    let database = Database::create().await;
    let (all, none) = (destination(&database).await, destination(&database).await);
    let subscribe = format!("update destinations set event_types = '{{*}}' where id = '{all}'");
    database.sql(&subscribe).await;
    let insert = "insert into paceline.outbox (event_type, payload) values ('order.paid', '1')";
    database.sql(insert).await;
    relay_all(&database).await;
    assert_eq!(waiting(&database, all).await, ["1"]);
    assert_eq!(waiting(&database, none).await, Vec::<String>::new());
}

/// As if they had come by the API.
#[tokio::test]
async fn filters_are_asked_of_rows() {
    let database = Database::create().await;
    let (small, large) = (destination(&database).await, destination(&database).await);
    for (to, filter) in [(small, "1"), (large, r#"{"gte": 100}"#)] {
        let set = format!(
            "update destinations set event_types = '{{*}}', filter = '{{\"/total\": {filter}}}'
            where id = '{to}'"
        );
        database.sql(&set).await;
    }
    let insert = r#"insert into paceline.outbox (event_type, payload) values
        ('order.paid', '{"total": 100}'), ('order.paid', '{"total": 1}'),
        ('order.paid', '{"total": 2}')"#;
    database.sql(insert).await;
    relay_all(&database).await;
    assert_eq!(waiting(&database, large).await, [r#"{"total": 100}"#]);
    assert_eq!(waiting(&database, small).await, [r#"{"total": 1}"#]);
    let events = "select count(*) from events";
    assert_eq!(database.number(events).await, 3, "one is for nobody");
}

/// Rows of a destination keep their order although many relays work on many
/// destinations; and each row is one event.
#[tokio::test]
async fn many_relays_keep_the_order_of_each_destination() {
    let database = Database::create().await;
    let mut destinations = Vec::new();
    for _ in 0..5 {
        destinations.push(destination(&database).await);
    }
    let mut running = tokio::task::JoinSet::new();
    let stop = CancellationToken::new();
    for _ in 0..4 {
        running.spawn(relay(&database.store, 7).run(stop.clone()));
    }
    for n in 0..100 {
        let rows: Vec<_> = (destinations.iter())
            .map(|to| format!("('{to}', '{n}')"))
            .collect();
        let columns = "paceline.outbox (destination_id, payload)";
        let insert = format!("insert into {columns} values {}", rows.join(", "));
        database.sql(&insert).await;
    }
    while database.number("select count(*) from outbox").await > 0 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.join_all().await;
    let expected: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    for to in destinations {
        assert_eq!(waiting(&database, to).await, expected);
    }
}

/// A lane that another relay holds is skipped; a row that its user holds does
/// not keep the others.
#[tokio::test]
async fn what_somebody_holds_is_skipped() {
    let database = Database::create().await;
    let to = destination(&database).await;
    let rows = format!("('{to}', '1'), ('{to}', '2')");
    let columns = "paceline.outbox (destination_id, payload)";
    let insert = format!("insert into {columns} values {rows}");
    database.sql(&insert).await;
    let mut holding = PgConnection::connect(&database.url).await.unwrap();
    let lanes = "begin; select from outbox_lanes for update";
    run(&mut holding, lanes.to_owned()).await;
    let skipped = database.store.relay(Lane(0), 10).await.unwrap();
    assert_eq!(skipped.lane, None);
    run(&mut holding, "rollback".to_owned()).await;

    let row = "begin; select from outbox order by position limit 1 for update";
    run(&mut holding, row.to_owned()).await;
    relay_all(&database).await;
    assert_eq!(waiting(&database, to).await, ["2"]);
    run(&mut holding, "rollback".to_owned()).await;
    relay_all(&database).await;
    assert_eq!(waiting(&database, to).await, ["2", "1"]);
}

/// The script of the documentation, run by a role that may do nothing else.
#[tokio::test]
async fn the_example_works_for_a_role_that_may_only_insert() {
    let database = Database::create().await;
    let all = destination(&database).await;
    let subscribe = format!("update destinations set event_types = '{{*}}' where id = '{all}'");
    database.sql(&subscribe).await;
    let role = format!("shop_{}", database.id().simple());
    let grants = include_str!("../../../../examples/outbox_grants.sql");
    let example = include_str!("../../../../examples/outbox.sql");
    // As who made it we may take it on.
    let make = format!("create role {role}; grant {role} to current_user");
    database.sql(&make).await;
    database.sql(&grants.replace("shop", &role)).await;
    let mut user = database.user().await;
    run(
        &mut user,
        "create table public.orders (id bigint, total_cents bigint)".to_owned(),
    )
    .await;
    run(
        &mut user,
        format!("grant all on orders to {role}; set role {role}"),
    )
    .await;
    run(&mut user, example.to_owned()).await;
    let denied = sqlx::raw_sql("select * from outbox")
        .execute(&mut user)
        .await;
    assert!(denied.is_err(), "the table itself is not theirs");
    relay_all(&database).await;
    let payloads = waiting(&database, all).await;
    assert_eq!(payloads, [r#"{"order": 4711, "total_cents": 4200}"#]);
    run(&mut user, "reset role".to_owned()).await;
    run(&mut user, format!("drop owned by {role}; drop role {role}")).await;
}

/// An insert is told to relays, which need not wait out their pause.
#[tokio::test]
async fn an_insert_wakes_a_relay_that_waits() {
    let database = Database::create().await;
    let to = destination(&database).await;
    let options = RelayOptions {
        // Longer than any test.
        every: Duration::from_secs(1_000_000),
        batch: 10,
    };
    let schedule = Arc::new(InProcessSchedule::new());
    let relay = Relay::new(Arc::new(database.store.clone()), schedule, options);
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.run(stop.clone()));
    for n in 1..=3 {
        let columns = "paceline.outbox (destination_id, payload)";
        let insert = format!("insert into {columns} values ('{to}', '{n}')");
        database.sql(&insert).await;
        while waiting(&database, to).await.len() < n {
            tokio::task::yield_now().await;
        }
    }
    stop.cancel();
    running.await.unwrap();
}

/// Not a test by itself: the process that the next one starts and kills.
#[tokio::test]
async fn relay_of_another_process() {
    let Ok(url) = std::env::var(RELAY_URL) else {
        return;
    };
    let options = PostgresOptions {
        url,
        max_connections: 4,
    };
    let store = PostgresStore::connect(options).await.unwrap();
    relay(&store, 3).run(CancellationToken::new()).await;
}

fn start_relay(database: &Database) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "outbox::relay_of_another_process"])
        .env(RELAY_URL, &database.url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Two relay processes, killed again and again in the middle of their work.
#[tokio::test]
async fn relays_that_are_killed_lose_and_repeat_nothing() {
    const ROWS: usize = 600;
    let database = Database::create().await;
    let to = destination(&database).await;
    let other = destination(&database).await;
    let ids: Vec<Uuid> = (0..ROWS).map(|_| database.id()).collect();
    let rows: Vec<_> = (ids.iter().enumerate())
        .map(|(n, id)| format!("('{id}', '{}', '{n}')", if n % 2 == 0 { to } else { other }))
        .collect();
    let columns = "paceline.outbox (event_id, destination_id, payload)";
    let insert = format!("insert into {columns} values {}", rows.join(", "));
    database.sql(&insert).await;
    let left = "select count(*) from outbox";
    let mut kills = 0;
    loop {
        let before = database.number(left).await;
        if before == 0 {
            break;
        }
        let mut relays = [start_relay(&database), start_relay(&database)];
        // Both are at work when rows go; somewhere in there they die.
        while database.number(left).await + 15 > before && database.number(left).await > 0 {
            tokio::task::yield_now().await;
        }
        for relay in &mut relays {
            relay.kill().unwrap();
            relay.wait().unwrap();
            kills += 1;
        }
    }
    assert!(kills >= 10, "it was over after {kills} kills");
    let events: HashSet<_> = texts(&database, "select id::text from events")
        .await
        .into_iter()
        .collect();
    let expected: HashSet<_> = ids.iter().map(Uuid::to_string).collect();
    assert_eq!(events, expected);
    assert_eq!(
        database.number("select count(*) from attempts").await,
        ROWS as i64
    );
    for (to, remainder) in [(to, 0), (other, 1)] {
        let payloads = waiting(&database, to).await;
        let expected = (0..ROWS)
            .filter(|n| n % 2 == remainder)
            .map(|n| n.to_string());
        let expected: Vec<_> = expected.collect();
        assert_eq!(payloads, expected, "in order");
    }
    assert_eq!(
        database
            .number("select count(*) from outbox_rejected")
            .await,
        0
    );
}

/// What is infinite is never, or at once, and stops no lane.
#[tokio::test]
async fn a_row_says_when_its_event_is_sent() {
    let database = Database::create().await;
    let to = destination(&database).await;
    let times = [
        ("now() + interval '1 day'", "now() + interval '2 days'"),
        ("'-infinity'", "'infinity'"),
        ("now() + interval '31 days'", "null"),
        ("'infinity'", "null"),
        ("null", "'-infinity'"),
        ("null", "now()"),
    ];
    let mut user = database.user().await;
    for (deliver_at, expires_at) in times {
        let insert = format!(
            "insert into paceline.outbox (destination_id, payload, deliver_at, expires_at)
             values ('{to}', '{{}}', {deliver_at}, {expires_at})"
        );
        run(&mut user, insert).await;
    }
    relay_all(&database).await;
    let kept = "select count(*) from attempts
        where due_at > now() + interval '23 hours' and expires_at > due_at + interval '23 hours'";
    assert_eq!(
        database.number(kept).await,
        1,
        "the first, with both its times"
    );
    let at_once = "select count(*) from attempts where due_at is null and expires_at is null";
    assert_eq!(database.number(at_once).await, 1, "the second");
    let reasons = texts(
        &database,
        "select reason from outbox_rejected order by position",
    );
    let ahead = "deliver_at: must be at most 30 days ahead";
    let over = "expires_at: must be in the future";
    assert_eq!(reasons.await, [ahead, ahead, over, over]);
    // Operators are told how many.
    let watched = database.store.watch(&WatchRules::default()).await.unwrap();
    let [told] = &watched.news[..] else {
        panic!("{watched:?}")
    };
    assert_eq!(told.news.event_type, OperationalType::OutboxRejected);
    assert_eq!(told.news.details, r#"{"count":4,"since":null}"#);
}

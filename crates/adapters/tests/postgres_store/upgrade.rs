//! A database that was there before its tables were divided by the day.

use std::path::PathBuf;

use adapters::postgres::{PostgresOptions, PostgresStore};
use domain::ids::{DestinationId, EventId};
use engine::ports::{Catalog, ClaimAnswer, DEFAULT_TENANT, Store};

use crate::database::{Database, run};

/// As our own connections have it.
const HOME: &str = "set search_path = public";

/// The schema before, as its migrations left it.
async fn before() -> (Database, PostgresStore) {
    let database = Database::empty().await;
    let before = migrations(|name| name < "0020");
    assert!(before.len() > 10, "the migrations were not found");
    let mut user = database.user().await;
    run(&mut user, HOME.to_owned()).await;
    for migration in before {
        run(&mut user, migration).await;
    }
    let options = PostgresOptions {
        url: database.url.clone(),
        max_connections: 4,
    };
    let store = PostgresStore::connect(options).await.unwrap();
    (database, store)
}

/// The texts of those, in order.
fn migrations(which: impl Fn(&str) -> bool) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../migrations/postgres");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| which(path.file_name().unwrap().to_str().unwrap()))
        .collect();
    files.sort();
    (files.iter())
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect()
}

/// What was there: an attempt that waits, one that is over, a dead letter, an
/// event whose id is dated ahead, and what a user added.
const ROWS: &str = "
    insert into destinations (id, tenant_id, url) values ($to, $tenant, 'https://receiver.example/');
    insert into events (id, tenant_id, content_type, payload, created_at) values
        ($one, $tenant, 'text/plain', 'one', now() - interval '40 days'),
        ($ahead, $tenant, 'text/plain', 'ahead', now());
    insert into events (id, tenant_id, content_type, payload, created_at)
    select (
        lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0')
        || '7' || substr(translate(gen_random_uuid()::text, '-', ''), 14)
    )::uuid, $tenant, 'text/plain', 'today', now();
    insert into attempts (event_id, destination_id, tenant_id, state, started_at, finished_at)
    values ($one, $to, $tenant, 'succeeded', now(), now());
    insert into attempts (event_id, destination_id, tenant_id, state, started_at, finished_at)
    values ($one, $to, $tenant, 'failed', now(), now());
    insert into attempts (event_id, destination_id, tenant_id)
    select e.id, $to, $tenant from events e order by e.payload;
    create role $role; grant $role to current_user;
    grant select on attempts to $role;
    create view theirs as select destination_id, count(*) as attempts from attempts group by 1;
    create index their_index on attempts (status) where status >= 500;
";

#[tokio::test]
async fn what_was_there_before_stays_and_goes_on() {
    let (database, store) = before().await;
    let role = format!("reader_{}", database.id().simple());
    let to = database.id();
    let (one, ahead) = (database.id(), "02200000-0000-7000-8000-000000000001");
    let rows = ROWS
        .replace("$tenant", &format!("'{DEFAULT_TENANT}'"))
        .replace("$to", &format!("'{to}'"))
        .replace("$one", &format!("'{one}'"))
        .replace("$ahead", &format!("'{ahead}'"))
        .replace("$role", &role);
    let mut user = database.user().await;
    run(&mut user, HOME.to_owned()).await;
    run(&mut user, rows).await;
    let before = indexes(&database).await;
    let last = database.number("select max(id) from attempts").await;

    for migration in migrations(|name| name >= "0020") {
        run(&mut user, format!("begin; {migration} commit")).await;
    }

    assert_eq!(
        indexes(&database).await.replace("attempts_by_end ", ""),
        before
    );
    assert_eq!(database.number("select max(id) from attempts").await, last);
    nothing_is_missing(&database).await;
    run(
        &mut user,
        format!("set role {role}; select from attempts; reset role"),
    )
    .await;

    let events = [(one, "one"), (ahead.parse().unwrap(), "ahead")];
    for (id, _) in events {
        store.event(DEFAULT_TENANT, EventId(id)).await.unwrap();
    }
    go_on(&database, &store, DestinationId(to)).await;
    assert!(database.number("select max(id) from attempts").await > last);

    run(
        &mut user,
        "update attempts set dead_letter = true where state = 'failed'".to_owned(),
    )
    .await;
    let tallies = "select count(*) from dead_letter_tallies";
    assert_eq!(
        database.number(tallies).await,
        1,
        "the trigger is there once"
    );
    let gone = database
        .refused(&format!("delete from destinations where id = '{to}'"))
        .await;
    assert!(gone.to_string().contains("has attempts"), "{gone}");
    run(&mut user, format!("drop owned by {role}; drop role {role}")).await;
}

/// The names of the table's indexes.
async fn indexes(database: &Database) -> String {
    let names = "select string_agg(indexname, ' ' order by indexname collate \"C\")
        from pg_indexes where tablename = 'attempts'";
    let mut user = database.user().await;
    sqlx::query_scalar(names)
        .fetch_one(&mut user)
        .await
        .unwrap()
}

/// Rows are where they are looked for, and views see them.
async fn nothing_is_missing(database: &Database) {
    for (sql, expected) in [
        ("select count(*) from attempts", 5),
        ("select count(*) from events where day = event_day(id)", 3),
        // Today's are where they were.
        ("select count(*) from events_timeless", 2),
        ("select attempts from theirs", 5),
        ("select sum(starts)::bigint from starts_per_second", 2),
    ] {
        assert_eq!(database.number(sql).await, expected, "{sql}");
    }
}

/// What waited starts, with its payload, and so does what comes.
async fn go_on(database: &Database, store: &PostgresStore, to: DestinationId) {
    let new = format!(
        "with e as (
            insert into events (id, tenant_id, content_type, payload, created_at, day)
            select n.id, '{DEFAULT_TENANT}', 'text/plain', 'new', now(), event_day(n.id)
            from (select new_event_id() as id) n
            returning id
        )
        insert into attempts (event_id, destination_id, tenant_id)
        select id, '{to}', '{DEFAULT_TENANT}' from e"
    );
    database.sql(&new).await;
    database
        .sql("update destinations set unlimited = true")
        .await;
    let worker = domain::ids::WorkerId(database.id());
    let heartbeat = engine::ports::Heartbeat { worker, places: 10 };
    store.heartbeat(&heartbeat).await.unwrap();
    let run = engine::ports::Run {
        destination: to,
        republish: false,
    };
    let room = domain::share::Room::of(u32::MAX);
    let admitted = store.admit(&[run], &room).await.unwrap();
    let permits = match &admitted.results[0] {
        engine::ports::RunResult::Decided { permits, .. } => permits.clone(),
        _ => Vec::new(),
    };
    let claims = store.claim_starts(worker, &permits).await.unwrap();
    let payload = |answer: &ClaimAnswer| match answer {
        ClaimAnswer::Started(start) => Some(String::from_utf8_lossy(&start.payload).into_owned()),
        _ => None,
    };
    let payloads: Vec<String> = claims.answers.iter().filter_map(payload).collect();
    assert_eq!(payloads, ["ahead", "one", "today", "new"]);
}

/// Somebody reads for long while the schema is brought forward: whoever comes after
/// the migration waits for it for two seconds at most, and it goes on once the reader
/// has ended.
#[tokio::test]
async fn a_migration_that_waits_for_a_reader_holds_nobody_up() {
    let database = Database::create().await;
    // One is to be done again, and it needs all of `sessions`.
    let back = "alter table sessions drop column name, drop column link_digest;
        delete from _sqlx_migrations where version = 41";
    database.sql(back).await;
    let mut reader = database.user().await;
    run(&mut reader, "begin; select from sessions".to_owned()).await;
    let beside = async {
        database.until_somebody_waits().await;
        // Behind it in the queue; with a time-out of its own, which is not met.
        let read = "set statement_timeout = '10s'; select from sessions";
        database.sql(read).await;
        run(&mut reader, "commit".to_owned()).await;
    };
    let (migrated, ()) = tokio::join!(database.store.migrate(), beside);
    migrated.unwrap();
    database.store.ready().await.unwrap();
}

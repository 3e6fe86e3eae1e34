//! A worker talks to strangers, so it has a role of its own: with the rights that
//! `examples/worker_grants.sql` gives, its statements run, and others do not.

use std::path::Path;
use std::time::Duration;

use adapters::postgres::{PostgresOptions, PostgresStore};
use contract::store::World;
use domain::attempt::{AttemptState, OutcomeKind};
use domain::handshake::{Answer, Handshake};
use domain::ids::{NoticeAddressId, SecretId, WorkerId};
use domain::margin::Spread;
use domain::notices::NoticeForm;
use domain::operations::OperationalScope;
use domain::permit::Permit;
use engine::ports::{
    Catalog, ClaimAnswer, DEFAULT_TENANT, Deferral, Handshakes, Heartbeat, NewNoticeAddress,
    NextTry, Notices, Operations, OperationsBook, Outcome, ReapRules, Recorded, SendReport, Store,
    TokenBook, TokenNote, TraceBook,
};

use crate::contract::world_of;
use crate::database::{Database, run};

/// Of the repository.
const GRANTS: &str = "../../examples/worker_grants.sql";

/// The store as a worker has it, once the owner has given the rights.
async fn worker_of(database: &Database) -> PostgresStore {
    let mut owner = database.user().await;
    // Roles are the server's, and other tests may be making it.
    let role = "do $$ begin
            create role paceline_worker;
            grant paceline_worker to current_user;
        exception when duplicate_object or unique_violation then null; end $$";
    run(&mut owner, role.to_owned()).await;
    // Once by hand, and again as `paceline migrate` gives them: neither minds the other.
    let grants = Path::new(env!("CARGO_MANIFEST_DIR")).join(GRANTS);
    run(&mut owner, std::fs::read_to_string(grants).unwrap()).await;
    let given = database.store.grant_to_workers("paceline_worker").await;
    given.unwrap();
    let options = PostgresOptions {
        url: format!("{}?options=-c%20role%3Dpaceline_worker", database.url),
        max_connections: 2,
    };
    PostgresStore::connect(options).await.unwrap()
}

async fn started(store: &PostgresStore, worker: WorkerId, permits: &[Permit]) {
    let claims = store.claim_starts(worker, permits).await.unwrap();
    for answer in &claims.answers {
        assert!(matches!(answer, ClaimAnswer::Started(_)), "{answer:?}");
    }
}

async fn record(store: &PostgresStore, worker: WorkerId, outcomes: &[Outcome]) -> Recorded {
    store.record_outcomes(worker, outcomes).await.unwrap()
}

/// Each kind of outcome writes other tables.
async fn record_all(world: &World, store: &PostgresStore, worker: WorkerId) {
    let retry = NextTry::RetryAfter(Duration::from_secs(1));
    let destination = world.destination().unlimited().create().await;
    // At the first failure that counts.
    let opens = "update destinations set breaker_failures = 1, breaker_failing_for_seconds = 0";
    world
        .sql(&format!("{opens} where id = '{destination}'"))
        .await;
    world.accept(destination, 30).await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 30);
    started(store, worker, &permits).await;
    let succeeded = world.outcome(&permits[0], OutcomeKind::Succeeded, NextTry::None);
    record(store, worker, &[succeeded]).await;
    let not_sent = world.outcome(&permits[1], OutcomeKind::NotSent, NextTry::Again);
    record(store, worker, &[not_sent]).await;
    let last = world.outcome(&permits[2], OutcomeKind::Failed, NextTry::DeadLetter);
    let recorded = record(store, worker, &[last]).await;
    assert!(!recorded.health.is_empty(), "its breaker opened");
    let failed = |permit| Outcome {
        status: Some(503),
        ..world.outcome(permit, OutcomeKind::Failed, retry)
    };
    let failures: Vec<_> = permits[3..29].iter().map(failed).collect();
    record(store, worker, &failures).await;
    let gone = Outcome {
        status: Some(410),
        ..world.outcome(&permits[29], OutcomeKind::Failed, retry)
    };
    let recorded = record(store, worker, &[gone]).await;
    assert!(!recorded.health.is_empty(), "it is disabled");
}

/// Smart delivery finds another limit.
async fn cut(world: &World, store: &PostgresStore, worker: WorkerId) {
    let destination = world.destination().per_second(100).create().await;
    let smart = format!("update destinations set smart_delivery = true where id = '{destination}'");
    world.sql(&smart).await;
    world.accept(destination, 2).await;
    let permits = world.admit(destination).await;
    started(store, worker, &permits).await;
    let retry = NextTry::RetryAfter(Duration::from_secs(1));
    let refused = |permit| Outcome {
        status: Some(429),
        ..world.outcome(permit, OutcomeKind::Failed, retry)
    };
    let outcomes: Vec<_> = permits.iter().map(refused).collect();
    record(store, worker, &outcomes).await;
}

/// Receivers are asked, and both answers are written down.
async fn ask(world: &World, store: &PostgresStore) {
    let builder = world.destination().per_second(100);
    let destination = builder.handshake(Handshake::CloudEvents).create().await;
    world.accept(destination, 2).await;
    let questions = store.take_handshakes(None, 1).await.unwrap().taken;
    let no = Answer::Refused("it answered 405".to_owned());
    for answer in [Answer::Allowed(None), no] {
        let recorded = store.record_handshake(&questions[0], &answer).await;
        assert!(recorded.unwrap().changed, "{answer:?}");
        let permits = world.admit(destination).await;
        assert_eq!(permits.is_empty(), answer != Answer::Allowed(None));
    }
}

/// People are told of what the outcomes came to.
async fn tell(world: &World, owner: &PostgresStore, store: &PostgresStore) {
    let address = NewNoticeAddress {
        id: NoticeAddressId(world.id()),
        scope: OperationalScope::Tenant,
        form: NoticeForm::Email,
        shown: "ops@example.com".to_owned(),
        sealed: None,
        event_types: Vec::new(),
        every: Duration::from_secs(60),
    };
    let registered = owner.register_address(DEFAULT_TENANT, &address).await;
    registered.unwrap();
    owner.relay_operational_events(100).await.unwrap();
    let lease = Duration::from_secs(60);
    let claimed = store
        .claim_digest(&NoticeForm::ALL, lease)
        .await
        .unwrap()
        .unwrap();
    assert!(claimed.digest.total() > 0);
    let again_in = Duration::from_secs(1);
    store.digest_untold(claimed.lease, again_in).await.unwrap();
    store.digest_told(claimed.lease).await.unwrap();
}

#[tokio::test]
async fn a_worker_needs_no_more_than_its_grants() {
    let database = Database::create().await;
    let world = world_of(&database);
    let store = worker_of(&database).await;
    store.ready().await.unwrap();
    let worker = WorkerId(world.id());
    lives(&store, worker).await;

    let destination = world.destination().unlimited().create().await;
    assert_eq!(store.targets(&[destination]).await.unwrap().len(), 1);
    world.accept(destination, 3).await;
    let permits = world.admit(destination).await;
    store.release_permits(&permits[..1]).await.unwrap();
    let claims = store.claim_batches(worker, &permits[1..2]).await.unwrap();
    assert!(matches!(claims.answers[0], ClaimAnswer::Started(_)));
    let lasts = Duration::from_secs(1);
    let deferral = Deferral { destination, lasts };
    store.defer(&[deferral]).await.unwrap();
    let note = TokenNote {
        secret: SecretId(world.id()),
        trouble: Some("it hangs".to_owned()),
    };
    store.note_tokens(&[note]).await.unwrap();
    record_all(&world, &store, worker).await;
    cut(&world, &store, worker).await;
    ask(&world, &store).await;
    tell(&world, &database.store, &store).await;
    let retired = Heartbeat { worker, places: 0 };
    store.heartbeat(&retired).await.unwrap();
}

async fn lives(store: &PostgresStore, worker: WorkerId) {
    let heartbeat = Heartbeat { worker, places: 64 };
    store.heartbeat(&heartbeat).await.unwrap();
}

/// Three events in one request, whose send is reported before its answer.
#[expect(clippy::panic, reason = "a test fails by panicking")]
async fn batch(world: &World, store: &PostgresStore, worker: WorkerId) {
    let destination = world.destination().unlimited().create().await;
    let batches = "update destinations
        set batch_max_events = 3, batch_max_bytes = 1000000, batch_max_wait_ms = 60000";
    world
        .sql(&format!("{batches} where id = '{destination}'"))
        .await;
    world.accept(destination, 3).await;
    let permits = world.admit(destination).await;
    lives(store, worker).await;
    let claims = store.claim_batches(worker, &permits).await.unwrap();
    let [ClaimAnswer::Started(start)] = &claims.answers[..] else {
        panic!("one batch: {:?}", claims.answers);
    };
    assert_eq!(start.members.len(), 3);
    let sent = SendReport {
        attempt: permits[0].attempt,
        number: permits[0].number,
        destination,
        sent_after: Duration::from_millis(1),
    };
    store.report_sends(worker, &[sent]).await.unwrap();
    let traced = store.traces(&[permits[0].attempt]).await.unwrap();
    assert!(traced.is_empty(), "nobody traces");
    let succeeded = world.outcome(&permits[0], OutcomeKind::Succeeded, NextTry::None);
    let outcomes: Vec<_> = (start.members.iter())
        .map(|member| Outcome {
            attempt: member.attempt,
            ..succeeded.clone()
        })
        .collect();
    record(store, worker, &outcomes).await;
    let states = world.states(destination).await;
    assert_eq!(states, [AttemptState::Succeeded; 3]);
}

/// A limit so large that its starts are counted in buckets.
async fn coarse(database: &Database, world: &World, store: &PostgresStore, worker: WorkerId) {
    let destination = world.destination().per_minute(2_100).create().await;
    world.accept(destination, 1).await;
    let permits = world.admit(destination).await;
    lives(store, worker).await;
    started(store, worker, &permits).await;
    let succeeded = world.outcome(&permits[0], OutcomeKind::Succeeded, NextTry::None);
    record(store, worker, &[succeeded]).await;
    let counted = "select coalesce(sum(starts), 0) from start_buckets where period = 'minute'";
    assert_eq!(database.number(counted).await, 1);
}

/// An answer that comes when its start was given up, and a retry waits.
async fn late(world: &World, owner: &PostgresStore, store: &PostgresStore, worker: WorkerId) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let permits = world.admit(destination).await;
    lives(store, worker).await;
    started(store, worker, &permits).await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::ZERO,
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    let reaped = owner.reap(&rules, 100).await.unwrap();
    assert_eq!(reaped.unknown_starts, 1);
    let succeeded = world.outcome(&permits[0], OutcomeKind::Succeeded, NextTry::None);
    record(store, worker, &[succeeded]).await;
    let states = [AttemptState::Succeeded, AttemptState::Cancelled];
    assert_eq!(world.states(destination).await, states);
}

#[tokio::test]
async fn what_a_worker_does_seldom_needs_no_more_either() {
    let database = Database::create().await;
    let world = world_of(&database);
    let store = worker_of(&database).await;
    let worker = WorkerId(world.id());
    batch(&world, &store, worker).await;
    coarse(&database, &world, &store, worker).await;
    late(&world, &database.store, &store, worker).await;
    let destination = world.destination().per_second(1).create().await;
    let spread = Spread {
        least: Duration::from_millis(1),
        most: Duration::from_millis(2),
    };
    // The first makes the row.
    for _ in 0..2 {
        let reported = store.report_spreads(&[(destination, spread)]).await;
        reported.unwrap();
    }
}

/// The first of a day sets the sequence of ids forward, and it may be a worker's.
#[tokio::test]
async fn the_first_attempt_of_a_day_may_be_a_retry() {
    let database = Database::create().await;
    let world = world_of(&database);
    let destination = world.destination().unlimited().create().await;
    let _store = worker_of(&database).await;
    let mut user = database.user().await;
    run(&mut user, "set role paceline_worker".to_owned()).await;
    let retry = format!(
        "insert into deliveries (event_id, destination_id, tenant_id, try_number, due_at)
        values (gen_random_uuid(), '{destination}', '{DEFAULT_TENANT}', 2, clock_timestamp())"
    );
    run(&mut user, retry).await;
    let of_today = "select count(*) from deliveries
        where id >= first_attempt_id(utc_day(clock_timestamp() - interval '1 minute'))";
    assert_eq!(database.number(of_today).await, 1);
}

/// Its own and what it is to deliver: of other tables it can read no column.
#[tokio::test]
async fn a_worker_reads_no_other_table() {
    let database = Database::create().await;
    let _store = worker_of(&database).await;
    let readable: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname not in ('pg_catalog', 'information_schema')
            and c.relkind in ('r', 'p', 'v', 'm', 'f')
            and has_any_column_privilege('paceline_worker', c.oid, 'select')
        order by c.relname::text collate \"C\"",
    )
    .fetch_all(&mut database.user().await)
    .await
    .unwrap();
    let needed = [
        "_sqlx_migrations",
        "attempts",
        "deliveries",
        "destination_secrets",
        "destinations",
        "events",
        "handshakes",
        "health",
        "ledger",
        "notice_addresses",
        "notices",
        "operational_events",
        "pacing",
        "response_times",
        "smart_history",
        "smart_limits",
        "start_buckets",
        "tenants",
        "tiers",
        "workers",
    ];
    assert_eq!(readable, needed);
}

/// What a worker that was taken over would like to do.
#[tokio::test]
async fn what_is_no_workers_business_is_refused() {
    let database = Database::create().await;
    let world = world_of(&database);
    let destination = world.destination().per_second(5).create().await;
    let _store = worker_of(&database).await;
    let mut user = database.user().await;
    run(&mut user, "set role paceline_worker".to_owned()).await;
    for statement in [
        "update destinations set limit_per_second = 1000",
        "update destinations set url = 'https://elsewhere.example/'",
        "insert into destinations (id) values (gen_random_uuid())",
        "select * from api_keys",
        "update destination_secrets set sealed = ''",
        "delete from attempts",
        "delete from events",
        "update events set payload = ''",
        "drop table workers",
        "create table public.mine (id int)",
        "update tiers set limit_per_second = 1",
        "select * from sessions",
        "select response_body from ledger",
        "select response_body from attempts",
        "select filter from destinations",
        "select external_id from tenants",
        "update deliveries set tenant_id = gen_random_uuid()",
        "update deliveries set event_id = gen_random_uuid()",
        "update deliveries set expires_at = null",
        "update ledger set destination_id = gen_random_uuid()",
        "update attempts set state = 'waiting'",
        "delete from ledger",
        "update pacing set first_after = 0",
        "delete from start_buckets",
        "update start_buckets set ends_at = ends_at + interval '1 day'",
        "delete from limit_history",
        "update notice_addresses set shown = 'me@example.com'",
        "truncate deliveries",
        "select setval('attempts_id_seq', 9223372036854775807)",
    ] {
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()));
        let refused = refused.execute(&mut user).await;
        let problem = refused.err().map(|error| error.to_string());
        let denied = problem.as_ref().is_some_and(|said| {
            said.contains("permission denied") || said.contains("must be owner")
        });
        assert!(denied, "{statement}: {problem:?}");
    }
    let kept = world.catalog.destination(DEFAULT_TENANT, destination).await;
    assert_eq!(kept.unwrap().limits.per_second, Some(5));
}

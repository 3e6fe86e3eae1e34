//! What only the SQLite store promises: what it survives, who else may open
//! its file, and that its triggers agree with the domain.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adapters::sqlite::{SqliteStore, system_clock};
use contract::store::{Backdoor, World};
use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{NewEvent, Timing};
use domain::ids::{DestinationId, EventId};
use domain::limit::{Count, Period, Shape};
use domain::margin;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::retention::{Kept, Retention};
use domain::share::Room;
use domain::smart::{Reason, SmartDelivery};
use domain::time::Timestamp;
use engine::ports::{
    Catalog, CatalogError, ClaimAnswer, DEFAULT_TENANT, DestinationChange, NextTry, Outcome,
    ReapRules, Retain, RetainRules, Run, Store, StoreError, Wake, Walk,
};
use rusqlite::Connection;

#[path = "recorded/answers.rs"]
mod answers;
#[path = "sqlite_store/log.rs"]
mod log;

/// From the bytes of an answer to the row.
#[test]
fn whatever_a_receiver_answers_is_recorded() -> fuzzing::Outcome {
    let place = Place::new();
    let path = place.file("paceline.db");
    let store = Arc::new(SqliteStore::open(&path, system_clock()).unwrap());
    let world = World::new(store.clone(), Arc::new(Shell(path)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    answers::any_answer_is_recorded(&runtime.unwrap(), store, world)
}

/// A user's shell, with none of our settings.
struct Shell(PathBuf);

impl Shell {
    fn connect(&self) -> Connection {
        Connection::open(&self.0).unwrap()
    }

    fn number(&self, sql: &str) -> i64 {
        let number = self.connect().query_row(sql, [], |row| row.get(0));
        number.unwrap()
    }
}

#[async_trait::async_trait]
impl Backdoor for Shell {
    async fn sql(&self, statement: &str) -> Result<(), String> {
        let done = self.connect().execute_batch(statement);
        done.map_err(|error| error.to_string())
    }

    async fn pass_until(&self, at: Timestamp) {
        tokio::time::sleep(at.since(system_clock()())).await;
    }
}

fn open(path: &Path) -> World {
    let store = Arc::new(SqliteStore::open(path, system_clock()).unwrap());
    World::new(store, Arc::new(Shell(path.to_owned())))
}

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// And in no file beside the store, for which a process may have no place.
#[test]
fn what_a_statement_would_take_back_is_kept_in_memory() {
    let connection = Arc::new(Mutex::new(Connection::open_in_memory().unwrap()));
    SqliteStore::inline(Arc::clone(&connection), system_clock(), Duration::ZERO).unwrap();
    let connection = connection.lock().unwrap();
    let kept = connection.pragma_query_value(None, "temp_store", |row| row.get::<_, i64>(0));
    assert_eq!(kept.unwrap(), 2);
}

/// First attempts go in creation order, whatever the clock says of it.
#[tokio::test]
async fn first_attempts_keep_their_order_when_the_clock_is_set_back() {
    let clock = Arc::new(AtomicI64::new(4_100_000_000_000_000));
    let shown = clock.clone();
    let shown = move || Timestamp::from_micros(shown.load(Ordering::SeqCst));
    let store = Arc::new(SqliteStore::in_memory(Arc::new(shown)).unwrap());
    let world = World::new(store, Arc::new(Shell(PathBuf::new())));
    let destination = world.destination().unlimited().create().await;
    let mut events = world.accept(destination, 1).await;
    clock.fetch_sub(1_000_000, Ordering::SeqCst);
    events.extend(world.accept(destination, 1).await);
    clock.fetch_add(2_000_000, Ordering::SeqCst);
    let attempts = world.attempts(destination).await;
    let in_order: Vec<_> = attempts.iter().map(|attempt| attempt.event).collect();
    assert_eq!(in_order, events);
    let permits = world.admit(destination).await;
    let admitted: Vec<_> = permits.iter().map(|permit| permit.attempt).collect();
    let ids: Vec<_> = attempts.iter().map(|attempt| attempt.id).collect();
    assert_eq!(admitted, ids);
}

/// Keys are not deleted without their index: who was freed before is woken all the same.
#[tokio::test]
async fn a_reap_that_is_cut_short_says_whom_it_freed() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let clock = Arc::new(AtomicI64::new(4_100_000_000_000_000));
    let shown = clock.clone();
    let shown = move || Timestamp::from_micros(shown.load(Ordering::SeqCst));
    let store = Arc::new(SqliteStore::open(&path, Arc::new(shown)).unwrap());
    let world = World::new(store.clone(), Arc::new(Shell(path.clone())));
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    clock.fetch_add(1_000_000, Ordering::SeqCst);
    assert_eq!(world.admit(destination).await.len(), 1);
    let cut = Shell(path).connect();
    cut.execute_batch("drop index idempotency_keys_expired")
        .unwrap();
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(3_600),
        start_timeout: Duration::from_secs(3_600),
        permit_grace: Duration::ZERO,
        everything: true,
    };
    let nothing = store.reap(&rules, 10).await;
    let is_away = matches!(nothing, Err(StoreError::Unavailable(_)));
    assert!(is_away, "{nothing:?}");
    clock.fetch_add(60_000_000, Ordering::SeqCst);
    let reaped = store.reap(&rules, 10).await.unwrap();
    assert_eq!(reaped.wakes, [Wake::now(destination)]);
    let problem = reaped.cut_short.unwrap();
    assert!(problem.contains("idempotency_keys_expired"), "{problem}");
}

/// A row takes 20 ms here. Others write between two steps.
#[tokio::test]
async fn a_reap_goes_on_for_a_while_and_leaves_the_rest_for_the_next() {
    const ROW_TAKES: i64 = 20_000;
    let (clock, pace) = (
        Arc::new(AtomicI64::new(4_100_000_000_000_000)),
        Arc::new(AtomicI64::new(0)),
    );
    let (shown, step) = (clock.clone(), pace.clone());
    let shown = move || {
        let step = step.load(Ordering::SeqCst);
        Timestamp::from_micros(shown.fetch_add(step, Ordering::SeqCst))
    };
    let store = Arc::new(SqliteStore::in_memory(Arc::new(shown)).unwrap());
    let world = World::new(store.clone(), Arc::new(Shell(PathBuf::new())));
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 40).await;
    let permits = u32::try_from(world.admit(destination).await.len()).unwrap();
    assert!(permits >= 10, "{permits}");
    clock.fetch_add(60_000_000, Ordering::SeqCst);
    pace.store(ROW_TAKES, Ordering::SeqCst);
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(3_600),
        start_timeout: Duration::from_secs(3_600),
        permit_grace: Duration::ZERO,
        everything: true,
    };
    let (mut passes, mut expired) = (0, 0);
    loop {
        let reaped = store.reap(&rules, 1_000).await.unwrap();
        assert!(reaped.expired_permits <= 5, "{reaped:?}");
        (passes, expired) = (passes + 1, expired + reaped.expired_permits);
        if !reaped.is_full(1_000) {
            break;
        }
        assert!(reaped.expired_permits > 0 || expired == permits);
    }
    assert_eq!(expired, permits);
    assert!(passes >= permits / 5, "{passes}");
}

/// Who has lost a permit again with its transaction is in line again.
#[tokio::test]
async fn a_run_that_is_taken_back_leaves_the_line_as_it_was() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let waits = world.destination().unlimited().create().await;
    let fails = world.destination().unlimited().create().await;
    world.accept(waits, 3).await;
    world.accept(fails, 1).await;
    let refuse = format!(
        "create trigger refuse before insert on pacing when new.destination_id = '{fails}'
        begin select raise(abort, 'not this one'); end"
    );
    world.sql(&refuse).await;
    let run = |destination| Run {
        destination,
        republish: false,
    };
    let both = [run(waits), run(fails)];
    let room = Room::of(100);
    assert!(world.store.admit(&both, &room).await.is_err());
    assert_eq!(world.admit(waits).await.len(), 3);
}

/// Whoever inserts by SQL is told what a ceiling of bytes asks for.
#[test]
fn batches_without_bytes_are_refused_with_what_to_do() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let _store = SqliteStore::open(&path, system_clock()).unwrap();
    let shell = Shell(path).connect();
    let tenant = "update tiers set ceiling_batch_bytes = 1000 where name = 'free';
        insert into tenants (id, name, tier, created_at) values ('t', 'bounded', 'free', 0)";
    shell.execute_batch(tenant).unwrap();
    let insert = "insert into destinations (id, tenant_id, url, batch_max_events)
        values ('d', 't', 'https://x.example/', 2)";
    let said = shell.execute_batch(insert).unwrap_err().to_string();
    assert!(said.contains("batch_max_bytes is null"), "{said}");
}

#[tokio::test]
async fn expired_idempotency_keys_are_deleted_a_few_at_a_time() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let shell = Shell(path.clone()).connect();
    for (n, expires_at) in [(1, 1_i64), (2, 2), (3, 3), (4, i64::MAX)] {
        let row = "insert into idempotency_keys values ('t', ?1, x'00', 'e', ?2)";
        shell.execute(row, (n.to_string(), expires_at)).unwrap();
    }
    let rules = engine::ports::ReapRules {
        heartbeat_timeout: Duration::from_secs(5),
        start_timeout: Duration::from_secs(5),
        permit_grace: Duration::ZERO,
        everything: true,
    };
    let left = || -> Vec<String> {
        let mut rows = shell.prepare("select key from idempotency_keys").unwrap();
        let keys = rows.query_map([], |row| row.get(0)).unwrap();
        keys.map(Result::unwrap).collect()
    };
    world.store.reap(&rules, 2).await.unwrap();
    assert_eq!(left(), ["3", "4"]);
    world.store.reap(&rules, 2).await.unwrap();
    assert_eq!(left(), ["4"]);
}

#[tokio::test]
async fn a_destination_with_attempts_is_not_deleted() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let waits = world.destination().unlimited().create().await;
    world.accept(waits, 1).await;
    let started = world.destination().unlimited().create().await;
    world.accept(started, 1).await;
    let permits = world.admit(started).await;
    world.start(world.worker().await, &permits).await;
    let without = world.destination().unlimited().create().await;
    let shell = Shell(path).connect();
    let delete = |id: DestinationId| {
        let delete = "delete from destinations where id = ?1";
        shell.execute(delete, [id.to_string()])
    };
    for with in [waits, started] {
        let refused = delete(with).unwrap_err().to_string();
        assert!(refused.contains("has attempts"), "{refused}");
    }
    assert_eq!(delete(without).unwrap(), 1);
}

/// Somebody has deleted an event that was still to be sent.
#[tokio::test]
async fn what_has_lost_its_event_is_not_sent_and_others_are() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let of = world.destination().unlimited().create().await;
    world.accept(of, 3).await;
    let permits = world.admit(of).await;
    let shell = Shell(path).connect();
    let lose = "delete from events where id = (select event_id from deliveries where id = ?1)";
    assert_eq!(shell.execute(lose, [permits[1].attempt.0]).unwrap(), 1);
    let worker = world.worker().await;
    let claims = world.store.claim_starts(worker, &permits).await.unwrap();
    assert!(matches!(claims.answers[0], ClaimAnswer::Started(_)));
    assert!(matches!(claims.answers[1], ClaimAnswer::Refused));
    assert!(matches!(claims.answers[2], ClaimAnswer::Started(_)));
    let (started, not_sent) = (AttemptState::Started, AttemptState::NotSent);
    assert_eq!(world.states(of).await, [started, not_sent, started]);
}

#[tokio::test]
async fn a_walk_of_retention_that_fails_waits_and_the_others_go_on() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let store = Arc::new(SqliteStore::open(&path, system_clock()).unwrap());
    let world = World::new(store.clone(), Arc::new(Shell(path.clone())));
    let of = world.destination().unlimited().create().await;
    world.accept(of, 3).await;
    let shell = Shell(path).connect();
    shell
        .execute_batch(
            "insert into ledger (id, event_id, destination_id, tenant_id, created_at, state)
            select id, event_id, destination_id, tenant_id, created_at, 'cancelled'
            from deliveries;
            delete from deliveries;
            create trigger refuse before delete on ledger
            begin select raise(abort, 'not today'); end;",
        )
        .unwrap();
    let now = Kept::For(Duration::ZERO);
    let rules = RetainRules {
        keep: Retention {
            payloads: now,
            ledger: now,
            dead_letters: now,
        },
        rest: Duration::from_millis(1),
        ..RetainRules::default()
    };
    let mut failed = 0;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        match store.retain(&rules).await {
            Ok(retained) => assert_ne!(retained.walk, Some(Walk::Attempts)),
            Err(_) => failed += 1,
        }
    }
    assert_eq!(failed, 1, "it is put off");
    let left = "select count(*) from events";
    let left: i64 = shell.query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_reopened_file_has_everything() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let destination = world.destination().per_second(3).create().await;
    world.accept(destination, 5).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..2]).await;
    world.finish(worker, &permits[..1]).await;
    let before = world.attempts(destination).await;
    drop(world);

    let world = open(&path);
    assert_eq!(world.attempts(destination).await, before);
    assert_eq!(world.readmit(destination).await, permits[2..]);
    world.start(worker, &permits[2..]).await;
    world.finish(worker, &permits[1..]).await;
    world.pass(Duration::from_secs(1)).await;
    let more = world.admit(destination).await;
    assert!(more[0].number > permits[2].number);
}

/// Whoever opens the file finds both lanes, each in its order, and what had permits.
#[tokio::test]
async fn a_reopened_file_has_both_lanes() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let of = world.destination().unlimited().max_in_flight(8);
    let of = of.create().await;
    let normal = world.accept(of, 10).await;
    let timing = Timing {
        urgent: true,
        ..Timing::default()
    };
    let mut urgent = Vec::new();
    for _ in 0..10 {
        let event = NewEvent {
            timing,
            ..world.event(of)
        };
        urgent.push(event.id);
        world.store.accept_events(&[event]).await.unwrap();
    }
    let given = world.admit(of).await;
    drop(world);

    let world = open(&path);
    assert_eq!(world.readmit(of).await, given);
    let worker = world.worker().await;
    world.start(worker, &given).await;
    world.finish(worker, &given).await;
    let given = [given, world.admit(of).await].concat();
    let attempts = world.attempts(of).await;
    let of_lane = |lane: &[EventId]| -> Vec<EventId> {
        let event = |permit: &Permit| {
            let found = attempts.iter().find(|one| one.id == permit.attempt);
            found.unwrap().event
        };
        let events = given.iter().map(event);
        events.filter(|event| lane.contains(event)).collect()
    };
    assert_eq!(of_lane(&normal), normal[..6]);
    assert_eq!(of_lane(&urgent), urgent);
}

/// The files as they are while the store runs, with no checkpoint and no
/// goodbye: what a crash leaves.
#[tokio::test]
async fn a_crash_loses_nothing_that_was_answered() {
    let place = Place::new();
    let world = open(&place.file("paceline.db"));
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 300).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    world.finish(worker, &permits[..20]).await;
    for ending in ["", "-wal"] {
        let from = place.file(&format!("paceline.db{ending}"));
        std::fs::copy(from, place.file(&format!("crashed.db{ending}"))).unwrap();
    }
    let crashed = open(&place.file("crashed.db"));
    assert_eq!(
        crashed.attempts(destination).await,
        world.attempts(destination).await
    );
    assert_eq!(crashed.backlog(destination).await, 250);
    // The starts are still those of the worker that made them.
    crashed.finish(worker, &permits[20..]).await;
    assert_eq!(crashed.admit(destination).await.len(), 50);
}

/// Payloads are nobody else's to read.
#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    let file = place.file("private.db");
    let _world = open(&file);
    for suffix in ["", "-wal", "-shm"] {
        let path = format!("{}{suffix}", file.display());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
}

/// Whatever is done to the files: what would be written is refused, readiness ends,
/// and both for good.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_gone_takes_nothing_more_and_is_not_ready() {
    use std::fs;

    type Way = fn(&Path);

    let moved = |path: &Path| fs::rename(path, path.with_extension("moved")).unwrap();
    let replaced = |path: &Path| {
        let other = path.with_extension("other");
        fs::copy(path, &other).unwrap();
        fs::rename(&other, path).unwrap();
    };
    let deleted = |path: &Path| fs::remove_file(path).unwrap();
    let log_deleted = |path: &Path| fs::remove_file(path.with_extension("db-wal")).unwrap();
    let ways: [(&str, Way); 4] = [
        ("paceline.db was deleted or moved away", moved),
        ("paceline.db was replaced by another file", replaced),
        ("paceline.db was deleted or moved away", deleted),
        ("paceline.db-wal was deleted or moved away", log_deleted),
    ];
    for (says, happens) in ways {
        let place = Place::new();
        let path = fs::canonicalize(place.directory.path()).unwrap();
        let path = path.join("paceline.db");
        let world = open(&path);
        let destination = world.destination().create().await;
        let store = &world.catalog;
        store.ready().await.unwrap();
        let before = fs::read(&path).unwrap();

        happens(&path);
        let refused = store.delete_destination(DEFAULT_TENANT, destination).await;
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, CatalogError::Store(StoreError::Lost(_))),
            "{refused}"
        );
        let says = format!(
            "{}/{says} while it was open",
            path.parent().unwrap().display()
        );
        assert!(refused.to_string().ends_with(&says), "{refused}");
        let unready = store.ready().await.unwrap_err().to_string();
        assert!(unready.ends_with(&says), "{unready}");

        // The same bytes are not the same file, and what came in between is unknown.
        fs::write(&path, before).unwrap();
        store.ready().await.unwrap_err();
    }
}

#[tokio::test]
async fn a_second_paceline_is_refused_until_the_first_has_gone() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let refused = SqliteStore::open(&path, system_clock()).unwrap_err();
    let says = "is open in another paceline process";
    assert!(refused.to_string().contains(says), "got {refused}");
    drop(world);
    open(&path).destination().create().await;
}

#[tokio::test]
async fn a_shells_cut_is_in_force_after_every_start_before_it() {
    let place = Place::new();
    let world = open(&place.file("paceline.db"));
    for _ in 0..20 {
        let destination = world.destination().per_second(10).create().await;
        world.accept(destination, 10).await;
        let worker = world.worker().await;
        let permits = world.admit(destination).await;
        let started = world.start(worker, &permits[..5]).await;
        world
            .sql(&format!(
                "update destinations set limit_per_second = 2 where id = '{destination}'"
            ))
            .await;
        let history = world.catalog.limit_history(destination).await.unwrap();
        assert_eq!(history[1].effective.per_second, Some(2));
        assert!(history[1].in_force_from > started[4].claimed_at);
        assert!(history[1].in_force_from <= world.now().await + Duration::from_millis(1));
        // Nothing of the new limit starts before its history.
        let (next, _, _) = world.decide(destination).await;
        assert!(
            next.iter()
                .all(|permit| permit.not_before >= history[1].in_force_from)
        );
    }
}

/// A destination of ten a second with a start.
async fn with_a_start(world: &World) -> DestinationId {
    let destination = world.destination().per_second(10).create().await;
    world.accept(destination, 2).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    destination
}

/// As if that was claimed ahead of its slot: it is dated to it, and not sent before.
fn lies_ahead(destination: DestinationId) -> String {
    format!(
        "update deliveries set claimed_at = (select now + 24000 from store_clock)
        where destination_id = '{destination}' and state = 'started'"
    )
}

fn claimed_at(shell: &Shell, destination: DestinationId) -> i64 {
    shell.number(&format!(
        "select claimed_at from deliveries
        where destination_id = '{destination}' and state = 'started'"
    ))
}

fn limit(destination: DestinationId, per_second: u32) -> String {
    format!("update destinations set limit_per_second = {per_second} where id = '{destination}'")
}

/// The same by the store's own statement, and not by a shell.
async fn change_limit(world: &World, destination: DestinationId, per_second: u32) {
    let change = DestinationChange {
        limits: Some(LimitSettings {
            per_second: Some(per_second),
            ..LimitSettings::EXACT
        }),
        ..DestinationChange::default()
    };
    let catalog = &world.catalog;
    let changed = catalog.change_destination(DEFAULT_TENANT, destination, &change);
    changed.await.unwrap();
}

/// By a shell, and by the store's own statement.
#[tokio::test]
async fn a_cut_is_in_force_after_a_start_that_lies_ahead() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let (world, shell) = (open(&path), Shell(path));
    for by_shell in [true, false] {
        let destination = with_a_start(&world).await;
        let (ahead, cut) = (lies_ahead(destination), limit(destination, 2));
        if by_shell {
            // At one instant.
            world
                .sql(&format!("begin immediate; {ahead}; {cut}; commit"))
                .await;
        } else {
            world.sql(&ahead).await;
            change_limit(&world, destination, 2).await;
        }
        let history = world.catalog.limit_history(destination).await.unwrap();
        let in_force = history[1].in_force_from;
        assert!(
            in_force.as_micros() > claimed_at(&shell, destination),
            "{history:?}"
        );
        let (next, _, _) = world.decide(destination).await;
        assert_eq!(next.len(), 1);
        assert!(next[0].not_before >= in_force, "{next:?}");
    }
}

/// Or history would end with the cut for good.
#[tokio::test]
async fn no_change_is_in_force_before_the_cut_that_it_follows() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let (world, shell) = (open(&path), Shell(path));
    for by_shell in [true, false] {
        let destination = with_a_start(&world).await;
        let (ahead, cut) = (lies_ahead(destination), limit(destination, 2));
        let raise = limit(destination, 20);
        let then = if by_shell { raise.as_str() } else { "" };
        world
            .sql(&format!("begin immediate; {ahead}; {cut}; {then}; commit"))
            .await;
        if !by_shell {
            change_limit(&world, destination, 20).await;
        }
        let history = world.catalog.limit_history(destination).await.unwrap();
        let limits: Vec<_> = history.iter().map(|one| one.effective.per_second).collect();
        assert_eq!(limits, [Some(10), Some(2), Some(20)], "{history:?}");
        assert!(history[1].in_force_from.as_micros() > claimed_at(&shell, destination));
    }
}

/// For all of its members at once, of which one has such a start, or has just left with it.
#[tokio::test]
async fn a_cut_of_a_group_is_in_force_after_a_start_that_lies_ahead() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let (world, shell) = (open(&path), Shell(path));
    for (name, leaves) in [("crm", false), ("erp", true)] {
        let insert = format!(
            "insert into limit_groups (tenant_id, name, limit_per_second)
            values ('{DEFAULT_TENANT}', '{name}', 10)"
        );
        world.sql(&insert).await;
        let beside = world.destination().per_second(10).create().await;
        let member = with_a_start(&world).await;
        let joins = format!(
            "update destinations set limit_group = '{name}' where id in ('{member}', '{beside}')"
        );
        world.sql(&joins).await;
        let ahead = lies_ahead(member);
        let leave = match leaves {
            true => format!("update destinations set limit_group = null where id = '{member}'"),
            false => String::new(),
        };
        let cut = format!("update limit_groups set limit_per_second = 2 where name = '{name}'");
        let raise = format!("update limit_groups set limit_per_second = 20 where name = '{name}'");
        // At one instant.
        let all = format!("begin immediate; {ahead}; {leave}; {cut}; {raise}; commit");
        world.sql(&all).await;
        let claimed_at = claimed_at(&shell, member);
        let dated = |limit: u32| {
            shell.number(&format!(
                "select in_force_from from limit_group_history
                where limit_group = '{name}' and limit_per_second = {limit}
                order by id desc limit 1"
            ))
        };
        assert!(dated(2) > claimed_at, "{name}");
        assert!(dated(20) >= dated(2), "{name}");
        let members: &[_] = if leaves { &[beside] } else { &[member, beside] };
        for one in members {
            let held = format!("select held_until from pacing where destination_id = '{one}'");
            assert!(shell.number(&held) >= dated(2), "{name}");
        }
        if leaves {
            let left = format!(
                "select left_at from limit_group_members where destination_id = '{member}'"
            );
            assert!(shell.number(&left) > claimed_at, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_waits_for_a_shell_that_holds_the_write_lock() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = Arc::new(open(&path));
    let destination = world.destination().unlimited().create().await;
    let shell = Shell(path).connect();
    shell.execute_batch("begin immediate").unwrap();
    let accepting = world.clone();
    let accepting = tokio::spawn(async move { accepting.accept(destination, 1).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!accepting.is_finished());
    shell.execute_batch("commit").unwrap();
    assert_eq!(accepting.await.unwrap().len(), 1);
}

/// Who waited for the write lock may find that others have started, or changed
/// a limit, meanwhile: its own time comes after theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_waited_for_the_lock_has_the_time_after_it() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = Arc::new(open(&path));
    let [claimed, admitted] = [
        world.destination().unlimited().create().await,
        world.destination().unlimited().create().await,
    ];
    world.accept(claimed, 1).await;
    world.accept(admitted, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(claimed).await;
    let shell = Shell(path).connect();
    shell.execute_batch("begin immediate").unwrap();
    // A claim reads its own clock, an admission has its step's.
    let (claiming, admitting) = (world.clone(), world.clone());
    let claiming = tokio::spawn(async move { claiming.claim(worker, &permits).await });
    let admitting = tokio::spawn(async move { admitting.admit(admitted).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!claiming.is_finished() && !admitting.is_finished());
    let held_until = system_clock()();
    shell.execute_batch("commit").unwrap();
    assert!(claiming.await.unwrap().now >= held_until);
    assert!(admitting.await.unwrap()[0].not_before >= held_until);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_read_does_not_delay_the_path() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = Arc::new(open(&path));
    let destination = world.destination().unlimited().create().await;
    let event = world.accept(destination, 1).await[0];
    let rows = format!(
        "insert into ledger
            (id, event_id, destination_id, tenant_id, state, created_at, claimed_at, started_at)
        with recursive n (n) as (values (1) union all select n + 1 from n where n < 300000)
        select n + 1000, '{event}', '{destination}', '{DEFAULT_TENANT}', 'succeeded', 0, n, n
        from n"
    );
    world.sql(&rows).await;
    let auditing = world.clone();
    let audit = tokio::spawn(async move {
        let until = Timestamp::MAX;
        let ledger = auditing
            .catalog
            .ledger(destination, Timestamp::MIN, until, None, 1_000_000);
        ledger.await.unwrap().len()
    });
    tokio::time::sleep(Duration::from_millis(5)).await;
    world.accept(destination, 1).await;
    assert!(
        !audit.is_finished(),
        "the audit was not long enough, or delayed the path"
    );
    // The snapshot that it began with, or one row more if it began late.
    assert!(audit.await.unwrap() >= 300_001);
}

#[tokio::test]
async fn another_schema_is_refused() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let store = SqliteStore::open(&path, system_clock()).unwrap();
    store.ready().await.unwrap();
    let shell = Shell(path.clone()).connect();
    shell.pragma_update(None, "user_version", 99).unwrap();
    let answer = store.ready().await;
    assert!(
        matches!(answer, Err(CatalogError::Schema { found: 99, .. })),
        "got {answer:?}"
    );
    drop(store);
    let refused = SqliteStore::open(&path, system_clock()).unwrap_err();
    assert!(
        matches!(refused, StoreError::Unavailable(_)),
        "got {refused}"
    );
}

/// There is no way from the migrations before the first release to these, nor from
/// another program's.
#[tokio::test]
async fn a_file_from_before_the_first_release_is_told_what_to_do() {
    let place = Place::new();
    let path = place.file("paceline.db");
    drop(SqliteStore::open(&path, system_clock()).unwrap());
    let shell = Shell(path.clone()).connect();
    shell.pragma_update(None, "application_id", 0).unwrap();
    for version in [1, 8, 22] {
        shell.pragma_update(None, "user_version", version).unwrap();
        let refused = SqliteStore::open(&path, system_clock()).unwrap_err();
        assert!(
            refused.to_string().contains("move this one away"),
            "{refused}"
        );
        let read = SqliteStore::open_to_read(&path, system_clock()).unwrap();
        let not_ready = read.ready().await.unwrap_err();
        assert!(
            not_ready.to_string().contains("move this one away"),
            "{not_ready}"
        );
    }
}

#[tokio::test]
async fn it_runs_in_memory_too() {
    let store = Arc::new(SqliteStore::in_memory(system_clock()).unwrap());
    let place = Place::new();
    let door = Arc::new(Shell(place.file("unused.db")));
    let world = World::new(store, door);
    let destination = world.destination().per_second(3).create().await;
    world.accept(destination, 5).await;
    assert_eq!(world.admit(destination).await.len(), 3);
    assert_eq!(world.attempts(destination).await.len(), 5);
}

/// All combinations of a few values.
fn many_settings() -> Vec<LimitSettings> {
    let mut many = Vec::new();
    for per_second in [None, Some(5), Some(20)] {
        for per_minute in [None, Some(0), Some(300)] {
            for burst in [None, Some(1), Some(9)] {
                for shape in [None, Some(Shape::SlidingWindow), Some(Shape::TokenBucket)] {
                    let safety_margin = match burst {
                        None => None,
                        Some(9) => Some(0.5),
                        Some(_) => Some(0.0),
                    };
                    let (margin_cap, count) = match burst {
                        None => (None, per_second.map(|_| Count::Response)),
                        Some(9) => (Some(0.3), None),
                        Some(_) => (None, per_minute.map(|_| Count::Start)),
                    };
                    many.push(LimitSettings {
                        margin_cap,
                        count,
                        per_second,
                        per_minute,
                        burst,
                        shape,
                        safety_margin,
                        ..LimitSettings::EXACT
                    });
                }
            }
        }
    }
    many.push(LimitSettings {
        unlimited: true,
        max_in_flight: Some(60),
        ..LimitSettings::EXACT
    });
    many
}

fn write(shell: &Connection, id: &str, limits: &LimitSettings) {
    let set = "update destinations set limit_per_second = ?2, limit_per_minute = ?3, burst = ?4,
        shape = ?5, safety_margin = ?6, unlimited = ?7, max_in_flight = ?8, margin_cap = ?9,
        count = ?10 where id = ?1";
    let shape = limits.shape.map(|shape| shape.as_str());
    let row = (
        id,
        limits.per_second,
        limits.per_minute,
        limits.burst,
        shape,
        limits.safety_margin,
        limits.unlimited,
        limits.max_in_flight,
        limits.margin_cap,
        limits.count.map(Count::as_str),
    );
    shell.execute(set, row).unwrap();
}

/// The triggers resolve as the domain does, and leave permits alone only where
/// all that was allowed is allowed still.
#[tokio::test]
async fn triggers_agree_with_the_domain() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let tier = LimitSettings {
        per_second: Some(10),
        burst: Some(50),
        shape: Some(Shape::TokenBucket),
        ..LimitSettings::EXACT
    };
    let destination = world.destination().create().await;
    let (shell, id) = (Shell(path).connect(), destination.to_string());
    // Only the triggers are under test: no disk.
    shell.execute_batch("pragma synchronous = off").unwrap();
    let epoch = || -> i64 {
        let epoch = "select epoch from destinations where id = ?1";
        shell.query_row(epoch, [&id], |row| row.get(0)).unwrap()
    };
    let many = many_settings();
    let mut raises = 0;
    for (number, before) in many.iter().enumerate() {
        for after in many.iter().skip(number % 7).step_by(7) {
            write(&shell, &id, before);
            let epoch_before = epoch();
            write(&shell, &id, after);
            let (old, new) = (before.or_tier(&tier), after.or_tier(&tier));
            let revoked = epoch() > epoch_before;
            if old != new && !revoked {
                raises += 1;
                assert!(is_raise(&old, &new), "not revoked: {old:?} to {new:?}");
            }
            assert!(old != new || !revoked, "revoked for nothing: {old:?}");
        }
    }
    assert!(raises > 20, "only {raises} raises");
    let history = world.catalog.limit_history(destination).await.unwrap();
    let resolved: Vec<_> = many.iter().map(|limits| limits.or_tier(&tier)).collect();
    assert!(
        history
            .iter()
            .all(|entry| resolved.contains(&entry.effective))
    );
}

/// Every window and every bucket is as large as before, or larger.
fn is_raise(old: &LimitSettings, new: &LimitSettings) -> bool {
    let max = |limits: &LimitSettings, period: Period| {
        let of_period = limits.limits().into_iter().find(|(one, _)| *one == period);
        of_period.and_then(|(_, max)| max).unwrap_or(u32::MAX)
    };
    let windows = Period::ALL
        .into_iter()
        .all(|period| max(new, period) >= max(old, period));
    let shape = |limits: &LimitSettings| limits.shape.unwrap_or_default();
    let burst = new
        .burst
        .is_none_or(|burst| old.burst.is_some_and(|old| burst >= old));
    // One that is measured may be anything.
    let margin = match (new.safety_margin, old.safety_margin) {
        (new, old) if new == old => true,
        (None, _) => false,
        (Some(new), old) => new <= old.unwrap_or_default(),
    };
    let cap = |limits: &LimitSettings| limits.margin_cap.unwrap_or(margin::MOST);
    let is_longer = cap(new) > cap(old);
    let counts_another = new.count.unwrap_or_default() != old.count.unwrap_or_default();
    let margin = margin && !is_longer && !counts_another;
    margin && (new.unlimited || (windows && shape(old) == shape(new) && burst))
}

#[tokio::test]
async fn a_claim_finds_the_hold_that_its_permit_was_given_before() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let destination = world.destination().unlimited().create().await;
    let worker = world.worker().await;
    world.accept(destination, 1).await;
    let permits = world.admit(destination).await;
    world
        .sql(&format!(
            "insert into health (destination_id, held_since, held_until, held_for)
            select '{destination}', now, now + 60000000, 'asked' from store_clock"
        ))
        .await;
    let claims = world.claim(worker, &permits).await;
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    assert_eq!(world.states(destination).await, [AttemptState::Waiting]);
}

/// Smart delivery's history is of a week, and of what was in force before it.
#[tokio::test]
async fn history_keeps_what_was_in_force_a_week_ago() {
    let place = Place::new();
    let world = open(&place.file("smart.db"));
    let destination = world.destination().per_second(10).create().await;
    let on = (world.catalog).set_smart_delivery(DEFAULT_TENANT, destination, SmartDelivery::On);
    on.await.unwrap();
    world.accept(destination, 5).await;
    let old = format!(
        "insert into smart_history (destination_id, in_force_from, reason)
        values ('{destination}', 1, 'refused'), ('{destination}', 2, 'slow')"
    );
    world.sql(&old).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    let retry = NextTry::RetryAfter(Duration::from_secs(3_600));
    let refused = Outcome {
        status: Some(429),
        ..world.outcome(&permits[0], OutcomeKind::Failed, retry)
    };
    let recorded = world.store.record_outcomes(worker, &[refused]).await;
    assert_eq!(recorded.unwrap().skipped, []);
    let history = (world.catalog).smart_history(destination, Timestamp::MAX, 10);
    let reasons: Vec<Reason> = (history.await.unwrap().iter())
        .map(|change| change.reason)
        .collect();
    assert_eq!(reasons, [Reason::Refused, Reason::Configured, Reason::Slow]);
}

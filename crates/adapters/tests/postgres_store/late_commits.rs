//! Events whose commit takes longer than the admission cursor waits.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use adapters::postgres::{PostgresOptions, PostgresStore};
use contract::store::World;
use domain::ids::DestinationId;
use engine::ports::{ClaimAnswer, DEFAULT_TENANT, SendReport, Store, Sweep};
use sqlx::{Connection, PgConnection};

use crate::contract::world_at;
use crate::database::{Database, run};

/// All that waits, as a scheduler asks once a second.
const WHOLE: Sweep = Sweep {
    after: None,
    limit: 100,
    overdue: Duration::ZERO,
    everything: false,
    only_marks: false,
};

/// An event of this destination that was accepted a minute ago, by SQL.
fn insert_old(world: &World, destination: DestinationId) -> String {
    let event = world.id();
    format!(
        "insert into events (id, tenant_id, content_type, payload, created_at, day)
        values ('{event}', '{DEFAULT_TENANT}', 'text/plain', 'x', clock_timestamp(), event_day('{event}'));
        insert into attempts (event_id, destination_id, tenant_id, created_at)
        values ('{event}', '{destination}', '{DEFAULT_TENANT}', clock_timestamp() - interval '1 minute')"
    )
}

/// A client in the middle of its transaction.
struct Slow(PgConnection);

impl Slow {
    /// It has inserted an old event, and has not committed.
    async fn inserts(database: &Database, world: &World, destination: DestinationId) -> Self {
        let mut client = database.user().await;
        let insert = insert_old(world, destination);
        run(&mut client, format!("begin; {insert}")).await;
        Self(client)
    }

    async fn commits(mut self) {
        run(&mut self.0, "commit".to_owned()).await;
    }
}

/// The sweep finds what the cursor has passed, and the next run admits it.
async fn is_healed(store: &PostgresStore, world: &World, destination: DestinationId) {
    assert_eq!(
        world.admit(destination).await,
        [],
        "the cursor has passed it"
    );
    let page = store.sweep(&WHOLE).await.unwrap();
    assert_eq!(page.late, 1);
    assert!(
        page.wakes
            .iter()
            .any(|wake| wake.destination == destination)
    );
    assert_eq!(world.admit(destination).await.len(), 1);
    assert_eq!(store.sweep(&WHOLE).await.unwrap().late, 0, "once is enough");
}

/// A client that keeps its transaction open, past every time-out of ours.
#[tokio::test]
async fn what_is_committed_behind_the_cursor_is_found() {
    let database = Database::create().await;
    let world = world_at(&database.url, database.store.clone());
    let destination = world.destination().unlimited().create().await;
    let slow = Slow::inserts(&database, &world, destination).await;
    database.sql(&insert_old(&world, destination)).await;
    assert_eq!(world.admit(destination).await.len(), 1);
    slow.commits().await;
    is_healed(&database.store, &world, destination).await;
}

/// The same for a destination that is looked at all the time: the sweep would leave it
/// to its next look.
#[tokio::test]
async fn a_busy_destination_is_found_too() {
    let database = Database::create().await;
    let world = world_at(&database.url, database.store.clone());
    let destination = world.destination().per_second(1).create().await;
    let slow = Slow::inserts(&database, &world, destination).await;
    database.sql(&insert_old(&world, destination)).await;
    world.accept(destination, 10).await;
    assert!(!world.admit(destination).await.is_empty());
    slow.commits().await;
    let not_overdue = Sweep {
        overdue: Duration::from_secs(3_600),
        ..WHOLE
    };
    assert_eq!(database.store.sweep(&not_overdue).await.unwrap().late, 1);
}

/// A run that holds the destination would write its cursor over ours: later, then.
#[tokio::test]
async fn a_cursor_is_not_lowered_under_a_run() {
    let database = Database::create().await;
    let world = world_at(&database.url, database.store.clone());
    let destination = world.destination().unlimited().create().await;
    let slow = Slow::inserts(&database, &world, destination).await;
    database.sql(&insert_old(&world, destination)).await;
    world.admit(destination).await;
    slow.commits().await;
    let mut running = database.user().await;
    let lock =
        format!("begin; select from destinations where id = '{destination}' for no key update");
    run(&mut running, lock).await;
    assert_eq!(database.store.sweep(&WHOLE).await.unwrap().late, 0);
    run(&mut running, "rollback".to_owned()).await;
    is_healed(&database.store, &world, destination).await;
}

/// Servers of a test's own, in a folder that goes with it.
struct Own(tempfile::TempDir);

impl Own {
    /// A Postgres that can wait for a standby.
    async fn start() -> Self {
        let own = Self(tempfile::tempdir().unwrap());
        own.script("start");
        let mut superuser = own.superuser().await;
        for setting in ["wal_level = replica", "max_wal_senders = 2"] {
            run(&mut superuser, format!("alter system set {setting}")).await;
        }
        drop(superuser);
        own.script("stop");
        own.script("start");
        own
    }

    /// A store on it, and a world.
    async fn world(&self) -> (PostgresStore, Arc<World>) {
        let url = self.value("DATABASE_URL");
        let store = PostgresStore::connect(PostgresOptions {
            url: url.clone(),
            max_connections: 6,
        });
        let store = store.await.unwrap();
        store.migrate().await.unwrap();
        let world = Arc::new(world_at(&url, store.clone()));
        world.sql("select ensure_day('events', '2037-07-04')").await;
        (store, world)
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("servers")
    }

    fn script(&self, verb: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers");
        let mut command = Command::new(script);
        command.arg(verb).arg(self.folder());
        if verb != "remove" {
            command.arg("postgres");
        }
        assert!(command.status().unwrap().success(), "servers {verb}");
    }

    fn value(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.folder().join("postgres.env")).unwrap();
        let mut values = text.lines().filter_map(|line| line.split_once('='));
        values.find(|(key, _)| *key == name).unwrap().1.to_owned()
    }

    async fn superuser(&self) -> PgConnection {
        let url = self.value("POSTGRES_SUPERUSER_URL");
        PgConnection::connect(&url).await.unwrap()
    }

    /// Commits wait for this standby from now on; for none, if it is empty.
    async fn waits_for(&self, standby: &str) {
        let mut superuser = self.superuser().await;
        let set = format!("alter system set synchronous_standby_names = '{standby}'");
        run(&mut superuser, set).await;
        run(&mut superuser, "select pg_reload_conf()".to_owned()).await;
    }

    /// Returns when commits wait, of which one is left to wait: a setting is in force a
    /// moment after it was made.
    async fn stalls(&self, world: &Arc<World>) {
        for number in 0.. {
            let user = Arc::clone(world);
            let probe = format!("create table public.probe_{number} ()");
            let probing = tokio::spawn(async move { user.sql(&probe).await });
            while !probing.is_finished() {
                if self.waiting().await > 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// How many commits wait.
    async fn waiting(&self) -> i64 {
        let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
        (sqlx::query_scalar(waits)
            .fetch_one(&mut self.superuser().await)
            .await)
            .unwrap()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.script("remove");
    }
}

/// A synchronous standby that stalls: what was accepted meanwhile becomes visible in
/// any order when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_standby_loses_no_event() {
    let own = Own::start().await;
    let (store, world) = own.world().await;
    let destination = world.destination().unlimited().create().await;

    own.waits_for("nobody").await;
    own.stalls(&world).await;
    let accepting = Arc::clone(&world);
    let accepted = tokio::spawn(async move { accepting.accept(destination, 1).await });
    while own.waiting().await < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let local = "set synchronous_commit = local";
    world
        .sql(&format!("{local}; {}", insert_old(&world, destination)))
        .await;
    assert_eq!(world.admit(destination).await.len(), 1);

    own.waits_for("").await;
    accepted.await.unwrap();
    is_healed(&store, &world, destination).await;
}

/// Slow receivers keep their limit's pace, whatever the standby does; and the rows of a
/// report are free for their outcomes at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_sends_waits_for_no_standby() {
    let own = Own::start().await;
    let (store, world) = own.world().await;
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let (worker, permits) = (world.worker().await, world.admit(destination).await);
    let claims = store.claim_starts(worker, &permits).await.unwrap();
    assert!(matches!(claims.answers[..], [ClaimAnswer::Started(_)]));

    own.waits_for("nobody").await;
    own.stalls(&world).await;
    let sent = SendReport {
        attempt: permits[0].attempt,
        number: permits[0].number,
        destination,
        sent_after: Duration::from_millis(1),
    };
    let reported = tokio::spawn(async move { store.report_sends(worker, &[sent]).await });
    while !reported.is_finished() {
        assert_eq!(own.waiting().await, 1, "it waits too");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    reported.await.unwrap().unwrap();
    own.waits_for("").await;
}

/// Neither the first run nor one that is marked where nothing has changed.
#[tokio::test(flavor = "multi_thread")]
async fn an_admission_waits_for_no_standby() {
    let own = Own::start().await;
    let (_store, world) = own.world().await;
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 2).await;
    let hold = format!("update destinations set max_in_flight = 1 where id = '{destination}'");
    world.sql(&hold).await;

    own.waits_for("nobody").await;
    own.stalls(&world).await;
    for given in [1, 0] {
        let world = Arc::clone(&world);
        let admitted = tokio::spawn(async move { world.admit(destination).await.len() });
        while !admitted.is_finished() {
            assert_eq!(own.waiting().await, 1, "it waits too");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(admitted.await.unwrap(), given);
    }
    own.waits_for("").await;
}

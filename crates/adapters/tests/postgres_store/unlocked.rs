//! Runs that read without a lock, and are written if nothing has changed since.

use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use domain::share::Room;
use engine::ports::{Admitted, Run, RunResult, Store};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinHandle;

use crate::database::{Database, per_second, run};

/// What has changed since a run read it is not written over: it is read again, with the
/// lock, and admitted in the same call.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_not_written_on_what_has_changed_since_it_read() {
    let database = Database::create().await;
    let destination = database.destination(per_second(10)).await;
    database.accept(destination, 1).await;
    assert_eq!(database.permits(destination).await.len(), 1);
    for change in [
        // By another scheduler, and by a sweep.
        "update pacing set last_permit = last_permit + 1",
        "update pacing set first_after = 0",
        // A cut, a raise, and what only wakes.
        "update destinations set limit_per_second = 8",
        "update destinations set limit_per_second = 9",
        "update destinations set smart_delivery = true",
    ] {
        database.accept(destination, 1).await;
        let mut other = database.user().await;
        let mut other = other.begin().await.unwrap();
        let lock = "lock table pacing in exclusive mode";
        run(&mut other, lock.to_owned()).await;
        let reading = admitting(&database, destination);
        // It has read, and comes to write.
        database.until_somebody_waits().await;
        run(&mut other, change.to_owned()).await;
        let (last, epoch) = last_permit(&mut other).await;
        other.commit().await.unwrap();
        let admitted = reading.await.unwrap();
        let [RunResult::Decided { permits, .. }] = admitted.results.as_slice() else {
            panic!("{change}: {:?}", admitted.results)
        };
        assert!(!permits.is_empty(), "{change}");
        for (permit, number) in permits.iter().zip(last + 1..) {
            assert_eq!(
                (permit.number.0, permit.epoch.0),
                (number, epoch),
                "{change}"
            );
        }
        // What was decided first and not written is given to nobody.
        let given: u32 = admitted.given.iter().map(|given| given.permits).sum();
        assert_eq!(usize::try_from(given).unwrap(), permits.len(), "{change}");
    }
}

/// One that has changed while somebody has its row is left, and nothing is given for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_changed_and_is_held_is_skipped() {
    let database = Database::create().await;
    let destination = database.destination(per_second(10)).await;
    database.accept(destination, 1).await;
    assert_eq!(database.permits(destination).await.len(), 1);
    database.accept(destination, 1).await;
    let mut holder = database.user().await;
    let mut holder = holder.begin().await.unwrap();
    let hold = "select from destinations for no key update";
    run(&mut holder, hold.to_owned()).await;
    let admitted = admitting(&database, destination).await.unwrap();
    assert_eq!(admitted.results, [RunResult::Skipped]);
    assert_eq!(admitted.given, []);
    holder.rollback().await.unwrap();
    assert_eq!(database.permits(destination).await.len(), 1);
}

/// The version is read no later than what is used: an admission that commits between
/// the two is in the one or makes the other old.
#[tokio::test(flavor = "multi_thread")]
async fn the_version_is_read_no_later_than_the_usage() {
    let database = Database::create().await;
    let destination = database.destination(per_second(10)).await;
    database.accept(destination, 1).await;
    assert_eq!(database.permits(destination).await.len(), 1);
    database.let_nothing_lapse().await;
    database.accept(destination, 40).await;
    let mut usage = database.user().await;
    let mut usage = usage.begin().await.unwrap();
    // Only what reads what is used waits for that.
    let lock = "lock table deliveries in access exclusive mode";
    run(&mut usage, lock.to_owned()).await;
    let reading = admitting(&database, destination);
    database.until_somebody_waits().await;
    let mut other = database.user().await;
    let mut other = other.begin().await.unwrap();
    // For that waits what reads versions, and what writes.
    let lock = "lock table pacing in access exclusive mode";
    run(&mut other, lock.to_owned()).await;
    usage.rollback().await.unwrap();
    let waits = "select count(*) from pg_locks l join pg_class c on c.oid = l.relation
        join pg_database d on d.oid = l.database
        where c.relname = 'pacing' and d.datname = current_database() and not l.granted";
    while database.number(waits).await == 0 {
        tokio::task::yield_now().await;
    }
    // Another admits nine, from the end so that they are not the same ones.
    run(
        &mut other,
        format!(
            "with last as (
                select id, row_number() over (order by id) + 1 as number
                from (
                    select id from deliveries
                    where destination_id = '{destination}' and state = 'waiting'
                    order by id desc limit 9
                ) x
            )
            update deliveries a
            set state = 'admitted', permit = l.number, epoch = 0,
                not_before = clock_timestamp(), deadline = clock_timestamp() + interval '1 minute'
            from last l where a.id = l.id"
        ),
    )
    .await;
    let remembered = "update pacing set last_permit = last_permit + 9";
    run(&mut other, remembered.to_owned()).await;
    other.commit().await.unwrap();
    let admitted = reading.await.unwrap();
    let [RunResult::Decided { permits, .. }] = admitted.results.as_slice() else {
        panic!("{:?}", admitted.results)
    };
    assert_eq!(permits, &[], "the other's nine fill the window");
    let rows = "select count(*) from attempts where state = 'admitted'";
    assert_eq!(database.number(rows).await, 10);
}

/// What a run read of limits is as it was if the version is: each of their columns makes
/// another, whoever changes it.
#[tokio::test]
async fn each_column_of_limits_makes_another_version() {
    let database = Database::create().await;
    let destination = database.destination(LimitSettings::EXACT).await;
    database.run(destination).await;
    // What is its tier's is in force while it has no limit of its own.
    let (of_tier, its_own) = ("tiers", "destinations");
    let plain = "limit_per_second = null, burst = null, shape = null";
    database.sql(&format!("update {of_tier} set {plain}")).await;
    for table in [of_tier, its_own] {
        let columns = columns_of_limits(&database, table).await;
        let known = LIMITS
            .iter()
            .filter(|(column, _)| columns.iter().any(|of| of == column));
        assert_eq!(known.clone().count(), columns.len(), "{table}: {columns:?}");
        for (column, value) in known {
            let version = "select xmin::text::bigint from pacing";
            let before = database.number(version).await;
            let change = format!("update {table} set {column} = {value}");
            database.sql(&change).await;
            assert_ne!(database.number(version).await, before, "{change}");
            if *column == "unlimited" {
                // Beside it no other may stand.
                let back = format!("update {table} set {column} = false");
                database.sql(&back).await;
            }
        }
    }
}

/// The columns of limits, and for each what it is not at first.
const LIMITS: [(&str, &str); 12] = [
    ("unlimited", "true"),
    ("limit_per_second", "7"),
    ("limit_per_minute", "70"),
    ("limit_per_hour", "700"),
    ("limit_per_day", "7000"),
    ("burst", "3"),
    ("shape", "'token_bucket'"),
    ("max_in_flight", "5"),
    ("safety_margin", "0.5"),
    ("margin_cap", "0.5"),
    ("count", "'response'"),
    ("allowed_per_minute", "60"),
];

/// Those that this table has.
async fn columns_of_limits(database: &Database, table: &str) -> Vec<String> {
    let text = format!(
        "select a.attname::text from pg_attribute a
        join pg_attribute t on t.attname = a.attname and t.attrelid = '{table}'::regclass
        where a.attrelid = 'limit_settings'::regclass and a.attnum > 0 and not a.attisdropped
        order by a.attnum"
    );
    let mut user = database.user().await;
    sqlx::query_scalar(AssertSqlSafe(text))
        .fetch_all(&mut user)
        .await
        .unwrap()
}

/// A run of this destination, on its way.
fn admitting(database: &Database, destination: DestinationId) -> JoinHandle<Admitted> {
    let store = database.store.clone();
    tokio::spawn(async move {
        let run = Run {
            destination,
            republish: false,
        };
        store.admit(&[run], &Room::of(100)).await.unwrap()
    })
}

/// The last number that was given, and the epoch, of the only destination.
async fn last_permit(user: &mut PgConnection) -> (i64, i64) {
    let text = "select p.last_permit, d.epoch
        from pacing p join destinations d on d.id = p.destination_id";
    sqlx::query_as(text).fetch_one(user).await.unwrap()
}

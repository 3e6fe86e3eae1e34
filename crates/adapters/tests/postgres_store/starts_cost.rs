//! What asks for claims and starts reads what is under way, and not what is over: by
//! the pages that it touches.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use engine::ports::{
    Catalog, DEFAULT_TENANT, DestinationChange, HEARTBEAT_TIMEOUT, ReapRules, SendReport, Store,
    Tallies, TallyRules,
};
use serde_json::Value as Json;
use sqlx::{PgConnection, Row};

use crate::counting::Counted;
use crate::database::{Database, per_second, run};

/// A destination of which ten are in flight.
struct World {
    database: Database,
    destination: DestinationId,
    worker: WorkerId,
    claimed: Vec<Permit>,
}

impl World {
    async fn new() -> Self {
        let database = Database::create().await;
        let destination = database.destination(per_second(10)).await;
        let worker = database.worker().await;
        database.accept(destination, 10).await;
        let claimed = database.permits(destination).await;
        let claims = database.store.claim_starts(worker, &claimed).await.unwrap();
        assert_eq!(claims.answers.len(), 10);
        Self {
            database,
            destination,
            worker,
            claimed,
        }
    }

    /// So many starts that are over, half of them in coarse buckets, claimed and started
    /// when those were that are in flight.
    async fn over(&self, count: u32) {
        let insert = format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, worker_id, claimed_at, started_at,
                finished_at, folded
            )
            select a.event_id, a.destination_id, a.tenant_id, 'succeeded', a.worker_id,
                a.claimed_at, a.claimed_at, a.claimed_at, g % 2 = 0
            from (select * from attempts where destination_id = '{}' limit 1) a,
                generate_series(1, {count}) g",
            self.destination
        );
        self.database.sql(&insert).await;
    }

    /// So many in flight at another destination.
    async fn elsewhere(&self, count: u32) {
        let other = self.database.destination(per_second(1)).await;
        let insert = format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, permit, worker_id, claimed_at,
                started_at
            )
            select a.event_id, '{other}', a.tenant_id, 'started', 1, a.worker_id,
                clock_timestamp(), clock_timestamp()
            from (select * from attempts where destination_id = '{}' limit 1) a,
                generate_series(1, {count})",
            self.destination
        );
        self.database.sql(&insert).await;
    }

    /// Of ten changes of its limit, every other one a cut.
    async fn pages_of_changes(&self) -> i64 {
        let changes = async |store: PostgresStore| {
            for number in 0..10 {
                let change = DestinationChange {
                    limits: Some(per_second(20 - number % 2)),
                    ..DestinationChange::default()
                };
                let changed = store.change_destination(DEFAULT_TENANT, self.destination, &change);
                changed.await.unwrap();
            }
        };
        self.database.pages_of(changes).await
    }

    async fn pages_of_tallies(&self) -> i64 {
        let rules = TallyRules {
            every: Duration::ZERO,
            pace: Duration::ZERO,
            settled: Duration::ZERO,
            ..TallyRules::default()
        };
        let tallies = async |store: PostgresStore| {
            for _ in 0..10 {
                store.tally(&rules).await.unwrap();
            }
        };
        self.database.pages_of(tallies).await
    }

    async fn pages_of_reaps(&self) -> i64 {
        let rules = ReapRules {
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            start_timeout: Duration::from_secs(3_600),
            permit_grace: Duration::ZERO,
            everything: true,
        };
        let reaps = async |store: PostgresStore| {
            for _ in 0..10 {
                let reaped = store.reap(&rules, 100).await.unwrap();
                assert_eq!(reaped.unknown_starts, 0);
            }
        };
        self.database.pages_of(reaps).await
    }

    async fn pages_of_reports(&self) -> i64 {
        let reports: Vec<SendReport> = (self.claimed.iter())
            .map(|permit| SendReport {
                attempt: permit.attempt,
                number: permit.number,
                destination: permit.destination,
                sent_after: Duration::from_millis(1),
            })
            .collect();
        let reported = async |store: PostgresStore| {
            for _ in 0..10 {
                store.report_sends(self.worker, &reports).await.unwrap();
            }
        };
        self.database.pages_of(reported).await
    }

    /// The fewest of three: the server cleans up so many new rows by itself meanwhile.
    async fn fewest_pages(&self) -> [i64; 4] {
        let [one, two, three] = [self.pages().await, self.pages().await, self.pages().await];
        std::array::from_fn(|at| one[at].min(two[at]).min(three[at]))
    }

    async fn pages(&self) -> [i64; 4] {
        self.database.let_nothing_lapse().await;
        [
            self.pages_of_changes().await,
            self.pages_of_tallies().await,
            self.pages_of_reaps().await,
            self.pages_of_reports().await,
        ]
    }
}

/// With the statistics of an empty table, and with true ones; whatever is over, and
/// whatever is in flight elsewhere.
#[tokio::test]
async fn changes_tallies_reaps_and_reports_read_no_history() {
    let world = World::new().await;
    world.over(1_000).await;
    world.pages().await;
    let small = world.pages().await;
    world.over(200_000).await;
    let large = world.pages().await;
    world.database.sql("analyze").await;
    let analyzed = world.pages().await;
    for (small, after) in small.into_iter().zip(large.into_iter().zip(analyzed)) {
        assert!(small > 50, "the counters count: {small}");
        // Levels of the indexes.
        let most = small + small / 2;
        assert!(
            after.0 <= most && after.1 <= most,
            "{small}, then {after:?}"
        );
    }
    // The reaper's alone is to look at who claimed all of these.
    world.elsewhere(20_000).await;
    world.database.sql("analyze").await;
    let [changes, tallies, _, reports] = world.fewest_pages().await;
    for (what, small, after) in [
        ("changes", small[0], changes),
        ("tallies", small[1], tallies),
        ("reports", small[3], reports),
    ] {
        assert!(after <= small + small / 2, "{what}: {small}, then {after}");
    }
}

/// A tally of many destinations at once, each with many starts, by a plan of a time when there
/// were none: the rows that all of its nodes give.
#[tokio::test]
async fn a_tally_reads_each_start_once() {
    let world = World::new().await;
    let (destinations, starts) = (40, 100);
    let mut ids = Vec::new();
    for _ in 0..destinations {
        ids.push(world.database.destination(per_second(10)).await);
    }
    let counted = Counted::of(&world.database).await;
    let rules = TallyRules {
        every: Duration::ZERO,
        ..TallyRules::default()
    };
    counted.store.tally(&rules).await.unwrap();
    world.database.sql("analyze").await;
    let mut user = world.database.user().await;
    let text = counted.text("tally: count");
    // As the store's sessions plan.
    let prepare = format!(
        "set plan_cache_mode = force_generic_plan;
        set enable_seqscan = off;
        set enable_bitmapscan = off;
        set enable_hashjoin = off;
        set enable_mergejoin = off;
        prepare tally (uuid[], bigint[], bigint, bigint, bigint, bigint[]) as {text}"
    );
    run(&mut user, prepare).await;
    let idle = rows_of_a_tally(&mut user, &ids).await;

    for id in &ids {
        let insert = format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, claimed_at, started_at, finished_at
            )
            select a.event_id, '{id}', a.tenant_id, 'succeeded', a.claimed_at,
                a.claimed_at + g * interval '1 microsecond', a.claimed_at + interval '1 second'
            from (select * from attempts where state = 'started' limit 1) a,
                generate_series(1, {starts}) g"
        );
        world.database.sql(&insert).await;
    }
    let rows = rows_of_a_tally(&mut user, &ids).await - idle;
    let each = rows / f64::from(destinations * starts);
    assert!((5.0..15.0).contains(&each), "{each} for each start");
}

/// What all nodes of the prepared tally's plan give to whoever asks them.
async fn rows_of_a_tally(user: &mut PgConnection, of: &[DestinationId]) -> f64 {
    let ids: Vec<String> = of.iter().map(|id| format!("'{id}'")).collect();
    let explain = format!(
        "explain (analyze, costs off, timing off, format json)
        execute tally (
            array[{}]::uuid[], array_fill(0::bigint, array[{}]), micros(clock_timestamp()), 1000,
            60000000, array[1000, 100000]::bigint[])",
        ids.join(", "),
        ids.len()
    );
    let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(explain));
    let plan: String = plan.fetch_one(user).await.unwrap().get_unchecked(0);
    let plan: Json = serde_json::from_str(&plan).unwrap();
    rows_given(&plan[0]["Plan"])
}

/// The rows that a node and those below it have given.
fn rows_given(node: &Json) -> f64 {
    let below = node["Plans"].as_array().map(Vec::as_slice);
    let of_below: f64 = below.unwrap_or_default().iter().map(rows_given).sum();
    let number = |key: &str| node[key].as_f64().unwrap();
    of_below + number("Actual Rows") * number("Actual Loops")
}

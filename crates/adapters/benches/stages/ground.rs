//! A store with a backlog of a given size, and one step of its way at a time.
//!
//! A ground is made once for each store and size, and shared by the stages: a
//! million rows take longer to make than to measure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use adapters::sqlite::{SqliteStore, system_clock};
use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::health::Signal;
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::response_headers::ResponseHeaders;
use domain::share::Room;
use engine::ports::{
    Catalog, ClaimAnswer, DEFAULT_TENANT, Heartbeat, NewDestination, NextTry, Outcome, Run,
    RunResult, Speaks, Store,
};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::database::Database;
use crate::size::BATCH;

const DESTINATIONS: u128 = 100;
const PAYLOAD_BYTES: usize = 1_024;
/// Payloads that the backlog shares: claims read one each.
const EVENTS: usize = 1_000;

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Postgres,
    Sqlite,
}

/// A store, 100 destinations without a rate limit, and what waits at them.
pub(crate) struct Ground {
    runtime: Arc<Runtime>,
    store: Arc<dyn Store>,
    destinations: Vec<DestinationId>,
    worker: WorkerId,
    next: u128,
    under: Under,
}

/// What a ground stands on, and is gone with it.
enum Under {
    Postgres(Database),
    Sqlite(TempDir),
}

type Grounds = BTreeMap<(Kind, u32), Arc<Mutex<Ground>>>;

static GROUNDS: LazyLock<Mutex<Grounds>> = LazyLock::new(Mutex::default);

/// The ground of this store and size.
pub(crate) fn of(kind: Kind, rows: u32) -> Arc<Mutex<Ground>> {
    let mut grounds = GROUNDS.lock().unwrap();
    let ground = grounds
        .entry((kind, rows))
        .or_insert_with(|| Arc::new(Mutex::new(Ground::make(kind, rows))));
    Arc::clone(ground)
}

/// Takes all of them away: statics are not dropped.
pub(crate) fn clear() {
    GROUNDS.lock().unwrap().clear();
}

impl Ground {
    fn make(kind: Kind, rows: u32) -> Self {
        let runtime = Arc::new(Runtime::new().unwrap());
        let (store, catalog, under) = match kind {
            Kind::Postgres => {
                let database = runtime.block_on(Database::create());
                let store = database.store.clone();
                two_ports(store, Under::Postgres(database))
            }
            Kind::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let store = SqliteStore::open(&file(&folder), system_clock()).unwrap();
                two_ports(store, Under::Sqlite(folder))
            }
        };
        let mut ground = Self {
            runtime,
            store,
            destinations: (1..=DESTINATIONS)
                .map(|number| Uuid::from_u128((0xd_u128 << 112) | number))
                .map(DestinationId)
                .collect(),
            worker: WorkerId(Uuid::nil()),
            next: 0,
            under,
        };
        ground.create_destinations(catalog.as_ref());
        for _ in 0..EVENTS / BATCH {
            let events = ground.events();
            ground.accept(&events);
        }
        ground.multiply(rows.saturating_sub(EVENTS as u32));
        ground
    }

    fn create_destinations(&self, catalog: &dyn Catalog) {
        let limits = LimitSettings {
            unlimited: true,
            ..LimitSettings::EXACT
        };
        for id in &self.destinations {
            let new = NewDestination {
                external_id: None,
                id: *id,
                name: String::new(),
                url: "https://receiver.example/".to_owned(),
                event_types: Vec::new(),
                filter: None,
                limits,
                pass_traceparent: false,
                handshake: Handshake::None,
                limit_group: None,
            };
            let created = catalog.create_destination(DEFAULT_TENANT, &new);
            self.runtime.block_on(created).unwrap();
        }
    }

    /// So many attempts more that wait, of the same events: by one statement, as
    /// a way through the store would take hours for the largest.
    fn multiply(&self, rows: u32) {
        match &self.under {
            Under::Postgres(database) => {
                let insert = format!(
                    "insert into attempts (event_id, destination_id, tenant_id)
                    select event_id, destination_id, tenant_id
                    from (select * from attempts order by id limit {EVENTS}) a,
                        generate_series(1, {})
                    limit {rows}",
                    rows as usize / EVENTS + 1
                );
                let insert = async {
                    database.sql(&insert).await;
                    database.sql("vacuum analyze").await;
                    database.sql("checkpoint").await;
                };
                self.runtime.block_on(insert);
            }
            Under::Sqlite(folder) => {
                let insert = format!(
                    "insert into deliveries (event_id, destination_id, tenant_id, created_at)
                    with recursive n (n) as (
                        values (1) union all select n + 1 from n where n <= {}
                    )
                    select event_id, destination_id, tenant_id, created_at
                    from n, (select * from deliveries order by id limit {EVENTS})
                    limit {rows}",
                    rows as usize / EVENTS
                );
                let shell = Connection::open(file(folder)).unwrap();
                shell.execute_batch(&insert).unwrap();
                shell
                    .execute_batch("pragma wal_checkpoint(truncate)")
                    .unwrap();
            }
        }
    }

    /// A batch of events, one for each destination.
    pub(crate) fn events(&mut self) -> Vec<NewEvent> {
        let destinations = self.destinations.iter().cycle().take(BATCH);
        destinations
            .map(|destination| {
                self.next += 1;
                NewEvent {
                    // Of the day that the databases of tests have.
                    id: EventId(Uuid::from_u128((0x01f1_u128 << 112) | self.next)),
                    tenant: DEFAULT_TENANT,
                    audience: Audience::Destination(*destination),
                    event_type: None,
                    content_type: "application/json".to_owned(),
                    payload: Bytes::from(vec![b'x'; PAYLOAD_BYTES]),
                    idempotency: None,
                    trace: None,
                    timing: Timing::default(),
                }
            })
            .collect()
    }

    pub(crate) fn accept(&self, events: &[NewEvent]) {
        let accepted = self.runtime.block_on(self.store.accept_events(events));
        assert_eq!(accepted.unwrap().len(), BATCH);
    }

    /// One run of all destinations, with room for a batch.
    pub(crate) fn admit(&self) -> Vec<Permit> {
        let run = |destination: &DestinationId| Run {
            destination: *destination,
            republish: false,
        };
        let runs: Vec<Run> = self.destinations.iter().map(run).collect();
        let room = Room::of(BATCH as u32);
        let admitted = self.runtime.block_on(self.store.admit(&runs, &room));
        let permits = |result: RunResult| match result {
            RunResult::Decided { permits, .. } => permits,
            RunResult::Skipped | RunResult::Gone => Vec::new(),
        };
        let results = admitted.unwrap().results;
        let permits: Vec<Permit> = results.into_iter().flat_map(permits).collect();
        assert_eq!(permits.len(), BATCH);
        permits
    }

    /// A worker that has just said that it lives, and has not before: one that was
    /// silent while another ground was made has lapsed, and is not taken back.
    pub(crate) fn heartbeat(&mut self) {
        self.worker = WorkerId(Uuid::from_u128(self.worker.0.as_u128() + 1));
        let heartbeat = Heartbeat {
            worker: self.worker,
            places: BATCH as u32,
        };
        let said = self.runtime.block_on(self.store.heartbeat(&heartbeat));
        said.unwrap();
    }

    /// Successes of those that could be started.
    pub(crate) fn claim(&self, permits: &[Permit]) -> Vec<Outcome> {
        let claims = self.store.claim_starts(self.worker, permits);
        let answers = self.runtime.block_on(claims).unwrap().answers;
        let started = permits.iter().zip(&answers);
        let started = started.filter(|(_, answer)| matches!(answer, ClaimAnswer::Started(_)));
        let outcomes: Vec<Outcome> = started.map(|(permit, _)| success(permit)).collect();
        assert!(
            !outcomes.is_empty(),
            "every permit was refused: {answers:?}"
        );
        outcomes
    }

    pub(crate) fn record(&self, outcomes: &[Outcome]) {
        let recorded = self.store.record_outcomes(self.worker, outcomes);
        let recorded = self.runtime.block_on(recorded).unwrap();
        assert!(recorded.skipped.is_empty());
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("bench.db")
}

/// The store as the loops and as its owners see it.
fn two_ports<S: Store + Catalog + 'static>(
    store: S,
    under: Under,
) -> (Arc<dyn Store>, Arc<dyn Catalog>, Under) {
    let store = Arc::new(store);
    (store.clone(), store, under)
}

fn success(permit: &Permit) -> Outcome {
    Outcome {
        attempt: permit.attempt,
        number: permit.number,
        destination: permit.destination,
        kind: OutcomeKind::Succeeded,
        sent_after: Duration::ZERO,
        elapsed: Duration::from_millis(5),
        status: Some(200),
        error: None,
        response_body: Bytes::from_static(b"ok"),
        response_headers: ResponseHeaders::kept(
            (200, b"ok"),
            [("date", b"Fri, 27 Nov 2026 15:00:00 GMT".as_slice())],
        ),
        next: NextTry::None,
        signal: Signal::default(),
        speaks: Speaks::default(),
        may_arrive: false,
    }
}

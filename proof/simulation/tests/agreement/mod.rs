//! Two stores that are asked the same.

mod change;
mod draw;
mod others;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use adapters::sqlite::SqliteStore;
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{Catalog, ClaimAnswer, DEFAULT_TENANT, RunResult, Store, SweepPage};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use simulation::model::ModelStore;

/// Later than the system's clock, by which SQLite's triggers hold a destination
/// for a millisecond after a change: here that is over.
const BEGAN: Timestamp = Timestamp::from_millis(4_100_000_000_000);

/// How many permits and starts are remembered, to be drawn from.
const REMEMBERED: usize = 60;

/// The model and a driver, with what has been done to both.
pub(crate) struct Pair {
    model: ModelStore,
    sqlite: SqliteStore,
    /// SQLite's clock: the model's, as of its last step.
    clock: Arc<AtomicI64>,
    random: StdRng,
    ids: u128,
    destinations: Vec<DestinationId>,
    workers: Vec<WorkerId>,
    /// The latest permits, stale ones too.
    permits: Vec<Permit>,
    /// The latest starts, with those that are over.
    started: Vec<(WorkerId, Permit)>,
    starts: usize,
    page: SweepPage,
}

/// Asks both the same, and compares the answers.
macro_rules! both {
    ($pair:expr, $method:ident($($argument:expr),*)) => {{
        let model = $pair.model.$method($($argument),*).await;
        let now = $pair.model.now();
        $pair.set_clock(now);
        let sqlite = $pair.sqlite.$method($($argument),*).await;
        $crate::agreement::assert_same(stringify!($method), &model, &sqlite);
        model
    }};
}
use both;

impl Pair {
    pub(crate) async fn new(seed: u64) -> Self {
        let clock = Arc::new(AtomicI64::new(BEGAN.as_micros()));
        let of_sqlite = clock.clone();
        let now = move || Timestamp::from_micros(of_sqlite.load(Ordering::SeqCst));
        let mut pair = Self {
            model: ModelStore::new(BEGAN),
            sqlite: SqliteStore::in_memory(Arc::new(now)).unwrap(),
            clock,
            random: StdRng::seed_from_u64(seed),
            ids: 0,
            destinations: Vec::new(),
            workers: Vec::new(),
            permits: Vec::new(),
            started: Vec::new(),
            starts: 0,
            page: SweepPage::default(),
        };
        for _ in 0..3 {
            pair.create().await;
            pair.enlist().await;
        }
        pair
    }

    /// How many attempts have started.
    pub(crate) const fn starts(&self) -> usize {
        self.starts
    }

    /// SQLite's next step is at this time.
    fn set_clock(&self, now: Timestamp) {
        self.clock.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Compares all that can be read of both.
    pub(crate) async fn compare_rows(&mut self) {
        let until = Timestamp::MAX;
        for id in self.destinations.clone() {
            both!(self, attempts(DEFAULT_TENANT, id, None, 10_000)).unwrap();
            both!(self, ledger(id, BEGAN, until, None, 10_000)).unwrap();
            both!(self, limit_history(id)).unwrap();
        }
        both!(self, destinations(DEFAULT_TENANT, None, 100)).unwrap();
        both!(self, backlogs(&self.destinations, 50)).unwrap();
        both!(self, targets(&self.destinations)).unwrap();
    }

    fn note_permits(&mut self, results: &[RunResult]) {
        for result in results {
            if let RunResult::Decided { permits, .. } = result {
                self.permits.extend(permits);
            }
        }
        let old = self.permits.len().saturating_sub(REMEMBERED);
        self.permits.drain(..old);
    }

    fn note_starts(&mut self, worker: WorkerId, permits: &[Permit], answers: &[ClaimAnswer]) {
        for (permit, answer) in permits.iter().zip(answers) {
            if matches!(answer, ClaimAnswer::Started(_)) {
                self.started.push((worker, *permit));
                self.starts += 1;
            }
        }
        let old = self.started.len().saturating_sub(REMEMBERED);
        self.started.drain(..old);
    }
}

/// Errors too: what one refuses the other refuses. Where several columns are
/// wrong, which one is named is each store's own.
fn assert_same<T: Debug, E: Debug>(what: &str, model: &Result<T, E>, sqlite: &Result<T, E>) {
    let text = |answer: &Result<T, E>| {
        let text = format!("{answer:?}");
        match (answer, text.split_once(" { field: ")) {
            (Err(_), Some((kind, _))) => kind.to_owned(),
            _ => text,
        }
    };
    assert_eq!(text(model), text(sqlite), "{what}: the model, and SQLite");
}

//! SQLite's answers and rows with many callers at once, explained by what it does with
//! one: an order of each batch's calls in which every answer and every row is the same,
//! to the microsecond. Its clock is ours and stands still during a batch.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use adapters::sqlite::SqliteStore;
use domain::ids::DestinationId;
use domain::time::{Timestamp, micros};
use engine::ports::DEFAULT_TENANT;
use proptest::test_runner::TestCaseError;
use tokio::runtime::Builder;

use super::calls::{Answer, Call, Driver};
use super::case::{Plan, at_once, furnish, plans};
use super::known::Known;
use super::reference::Reference;
use crate::bridge::linear::{Called, Candidate, Step, explain};
use crate::bridge::{CONNECTIONS, Cases};

/// Later than the system's clock, by which SQLite's triggers hold a destination
/// for a millisecond after a change: here that is over.
const BEGAN: Timestamp = Timestamp::from_millis(4_100_000_000_000);

/// The most calls in one batch.
const BATCH: usize = 6;

/// The most states that a case is followed in; none where there were too many. Calls that met, and whose order no row
/// shows, can leave twice as many with each batch; what comes later in such a case is
/// tried in another.
const STATES: usize = 8;

/// Wraps a driver, to plant a fault in front of it.
pub(crate) type Wrap<'a> = &'a dyn Fn(SqliteStore) -> Arc<dyn Driver>;

/// Draws cases and explains each of their batches.
pub(crate) fn agree(cases: Cases, wrap: Wrap<'_>) -> Result<(), String> {
    let threads = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let mut still = Builder::new_current_thread();
    let still = still.enable_time().start_paused(true).build().unwrap();
    cases.run(&plans(1..=CONNECTIONS, BATCH, 14), |plan| {
        // The reference needs the clock that stands still, the driver real threads.
        let mut case = still.block_on(async { Case::new(wrap) });
        threads.block_on(furnish(&*case.driver, &mut case.known, &plan.limits, || ()));
        still.block_on(case.furnish_reference(&plan));
        for batch in plan.batches {
            case.pass(batch.pause);
            let resolve = |(by, drawn)| (by, case.known.resolve(drawn));
            let calls = batch.calls.into_iter().map(resolve).collect();
            let called = threads.block_on(at_once(&case.driver, calls));
            let rows = threads.block_on(rows(&*case.driver, &case.destinations));
            still.block_on(case.explain(&called, &rows))?;
            let is_clear = (1..=STATES).contains(&case.states.len());
            if case.known.destinations.is_empty() || !is_clear {
                break;
            }
        }
        Ok(())
    })
}

struct Case {
    driver: Arc<dyn Driver>,
    clock: Arc<AtomicI64>,
    known: Known,
    /// All there ever were.
    destinations: Vec<DestinationId>,
    states: Vec<State>,
}

impl Case {
    fn new(wrap: Wrap<'_>) -> Self {
        let clock = Arc::new(AtomicI64::new(BEGAN.as_micros()));
        let shown = clock.clone();
        let shown = move || Timestamp::from_micros(shown.load(Ordering::SeqCst));
        Self {
            driver: wrap(SqliteStore::in_memory(Arc::new(shown)).unwrap()),
            clock,
            known: Known::default(),
            destinations: Vec::new(),
            states: Vec::new(),
        }
    }

    async fn furnish_reference(&mut self, plan: &Plan) {
        let state = State {
            reference: Reference::new(BEGAN, Duration::ZERO),
            now: BEGAN,
        };
        let mut known = Known::default();
        furnish(state.reference.store(), &mut known, &plan.limits, || ()).await;
        self.destinations = known.destinations;
        self.states = vec![state];
    }

    fn pass(&mut self, by: Duration) {
        // At least so much that a start is later than the change before.
        let by = micros(by) + 1;
        let now = self.clock.fetch_add(by, Ordering::SeqCst) + by;
        for state in &mut self.states {
            state.now = Timestamp::from_micros(now);
        }
    }

    async fn explain(
        &mut self,
        called: &[Called<Call, Answer>],
        rows_of_driver: &str,
    ) -> Result<(), TestCaseError> {
        for one in called {
            self.known.learn(&one.call, &one.answer);
        }
        let Some(explained) = explain(std::mem::take(&mut self.states), called).await else {
            return Ok(());
        };
        let orders = explained.len();
        let mut differs = String::new();
        for state in explained {
            state.reference.store().show(state.now);
            let rows = rows(state.reference.store(), &self.destinations).await;
            if rows == rows_of_driver {
                self.states.push(state);
            } else {
                differs = rows;
            }
        }
        match self.states.is_empty() {
            false => Ok(()),
            true => Err(TestCaseError::fail(format!(
                "{orders} orders explain the answers, none the rows:\n{called:#?}\nrows:\n\
                 {rows_of_driver}\nof the reference:\n{differs}"
            ))),
        }
    }
}

/// All that can be read of a store.
async fn rows(driver: &(impl Driver + ?Sized), destinations: &[DestinationId]) -> String {
    let mut text = String::new();
    for id in destinations {
        let attempts = driver
            .catalog()
            .attempts(DEFAULT_TENANT, *id, None, 10_000)
            .await;
        let ledger = driver
            .catalog()
            .ledger(*id, BEGAN, Timestamp::MAX, None, 10_000)
            .await;
        let history = driver.catalog().limit_history(*id).await;
        writeln!(
            text,
            "{attempts:?}\n{:?}\n{:?}",
            ledger.unwrap(),
            history.unwrap()
        )
        .unwrap();
    }
    let backlogs = driver.catalog().backlogs(destinations, 50).await.unwrap();
    let targets = driver.store().targets(destinations).await.unwrap();
    writeln!(text, "{backlogs:?}\n{targets:?}").unwrap();
    text
}

/// Where the store may stand.
struct State {
    reference: Reference,
    now: Timestamp,
}

impl Candidate for State {
    type Call = Call;
    type Answer = Answer;

    async fn after(&self, step: Step<'_, Call, Answer>) -> Vec<Self> {
        let called = step.called();
        let state = Self {
            reference: self.reference.fork(),
            now: self.now,
        };
        // All steps of a batch are at one time.
        state.reference.store().show(self.now);
        let answer = state.reference.ask(&called.call).await;
        (answer == called.answer)
            .then_some(state)
            .into_iter()
            .collect()
    }

    fn is_as(&self, other: &Self) -> bool {
        self.reference.is_as(&other.reference)
    }
}

//! Postgres's answers and rows against the store on SQLite, which takes one call after
//! the other, with as many callers at once as there are connections: an order of each
//! batch's calls in which every answer and every row is the same.
//!
//! Postgres's clock is the real one, so SQLite's is set for each call to when Postgres
//! made it: the time that it answered, or that a new row says. So all is compared to the
//! microsecond: slots, deadlines, starts, what is due when. Of a call that says no time
//! there are readings of the clock before and after its batch, and the times between them
//! at which it could have decided otherwise ([`super::standing`]). A part of a case is
//! shorter than any permit lives and any worker lapses. What takes longer is left out.
//! Permits lapse between the parts. First a case is played, then it is explained, which
//! takes longer.
//!
//! What no order of whole calls gives is allowed where Postgres gives it, and
//! nowhere else: what a call may find held by another ([`super::held`]), and
//! calls of several statements, each with a snapshot of its own: a reap and a
//! sweep.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use adapters::postgres::PostgresStore;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Heartbeat, RunResult};

use proptest::test_runner::TestCaseError;
use tokio::runtime::{Builder, Runtime};

use super::calls::{Answer, Call, Driver};
use super::case::{Plan, at_once, furnish, plans};
use super::known::Known;
use super::postgres;
use super::scratch::Scratch;
use super::shown::Shown;
use super::standing::{Asked, State};
use crate::bridge::Cases;
use crate::bridge::linear::{Called, explain};

/// Wraps a driver, to plant a fault in front of it.
pub(crate) type Wrap<'a> = &'a dyn Fn(PostgresStore) -> Arc<dyn Driver>;

/// The most calls in one batch.
const BATCH: usize = 6;

/// The most batches in one case.
const BATCHES: usize = 14;

/// How long a part of a case may take: less than the 2 s that a permit lives
/// after its slot.
const PART: Duration = Duration::from_millis(1_900);

/// Between two parts every permit lapses: the slot of none is later than 200 ms
/// after its admission.
const LAPSE: Duration = Duration::from_millis(2_300);

/// No worker lapses that gave a sign of life less than this ago.
const SEEN: Duration = Duration::from_millis(4_900);

/// Draws cases of `parts` parts and explains each of their batches. How many
/// calls it compared.
pub(crate) fn agree(
    cases: Cases,
    connections: RangeInclusive<usize>,
    parts: usize,
    wrap: Wrap<'_>,
) -> Result<usize, String> {
    let threads = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let mut still = Builder::new_current_thread();
    let still = still.enable_time().start_paused(true).build().unwrap();
    let compared = RefCell::new(0);
    // One that all cases' are copies of stays for as long as any is there.
    let _kept = threads.block_on(Scratch::migrated(""));
    cases.run(&plans(connections, BATCH, BATCHES), |plan| {
        let (store, _dropped) = threads.block_on(postgres(plan.connections));
        let mut case = Case::new(&threads, &still, wrap(store), &plan);
        case.play(plan, parts);
        case.explain()?;
        *compared.borrow_mut() += case.compared;
        Ok(())
    })?;
    Ok(compared.into_inner())
}

struct Case<'a> {
    threads: &'a Runtime,
    /// The reference needs a clock that stands still, the driver a real one.
    still: &'a Runtime,
    driver: Arc<dyn Driver>,
    known: Known,
    /// All there ever were.
    destinations: Vec<DestinationId>,
    states: Vec<State>,
    /// When the part began.
    began: Timestamp,
    /// Since when every worker that there ever was has been seen.
    seen: Timestamp,
    /// How many workers there were.
    workers: usize,
    played: Vec<Played>,
    compared: usize,
}

/// A batch, and what there was after it.
struct Played {
    called: Vec<Called<Call, Answer>>,
    asked: Asked,
    rest: String,
}

/// Whether a case goes on.
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    /// From here on the stores may differ, or it took too long.
    End,
}

impl<'a> Case<'a> {
    fn new(threads: &'a Runtime, still: &'a Runtime, driver: Arc<dyn Driver>, plan: &Plan) -> Self {
        let mut known = Known::default();
        let began = threads.block_on(clock(&*driver));
        threads.block_on(furnish(&*driver, &mut known, &plan.limits, || ()));
        // Nothing is admitted yet: on a slow machine all of the part is left.
        let ready = threads.block_on(clock(&*driver));
        let state = still.block_on(async {
            let state = State::new(began);
            let before = || state.set(began);
            furnish(
                state.reference.store(),
                &mut Known::default(),
                &plan.limits,
                before,
            )
            .await;
            state
        });
        Self {
            threads,
            still,
            driver,
            destinations: known.destinations.clone(),
            workers: known.workers.len(),
            known,
            states: vec![state],
            began: ready,
            seen: began,
            played: Vec::new(),
            compared: 0,
        }
    }

    /// Makes the batches of a plan, as long as time allows.
    fn play(&mut self, plan: Plan, parts: usize) {
        let of_part = plan.batches.len().div_ceil(parts);
        for (number, batch) in plan.batches.into_iter().enumerate() {
            if number > 0 && number % of_part == 0 && self.lapse() == Then::End {
                break;
            }
            // Short: there are many in a part.
            let pause = Duration::from_micros(u64::from(batch.pause.subsec_micros() % 12_000));
            self.threads
                .block_on(async { tokio::time::sleep(pause).await });
            let resolve = |(by, drawn)| (by, self.known.resolve(drawn));
            let calls = batch.calls.into_iter().map(resolve).collect();
            if self.make(calls) == Then::End || self.known.destinations.is_empty() {
                break;
            }
        }
    }

    /// Looks for SQLite's way to do what was played.
    fn explain(&mut self) -> Result<(), TestCaseError> {
        for played in std::mem::take(&mut self.played) {
            if self.still.block_on(self.explain_batch(played))? == Then::End {
                break;
            }
        }
        Ok(())
    }

    /// Lets all permits lapse, and no worker.
    fn lapse(&mut self) -> Then {
        let from = self.threads.block_on(clock(&*self.driver));
        self.began = self.threads.block_on(async {
            loop {
                let now = clock(&*self.driver).await;
                match LAPSE.saturating_sub(now.since(from)) {
                    Duration::ZERO => return now,
                    left => tokio::time::sleep(left).await,
                }
            }
        });
        for worker in self.known.workers.clone() {
            let beat = Call::Beat(Heartbeat { worker, places: 50 });
            if self.make(vec![(0, beat)]) == Then::End {
                return Then::End;
            }
        }
        // One that has retired is not seen again: its starts are given up.
        if self.known.workers.len() == self.workers {
            self.seen = self.began;
        }
        Then::GoOn
    }

    /// Makes calls on the driver.
    fn make(&mut self, calls: Vec<(usize, Call)>) -> Then {
        let (between, called, shown, rest) = self.threads.block_on(async {
            let from = clock(&*self.driver).await;
            let called = at_once(&self.driver, calls).await;
            let to = clock(&*self.driver).await;
            let shown = Shown::read(&*self.driver, &self.destinations).await;
            let rest = rest(&*self.driver, &self.destinations).await;
            ((from, to), called, shown, rest)
        });
        if between.1.since(self.began) >= PART || between.1.since(self.seen) >= SEEN {
            return Then::End;
        }
        for one in &called {
            self.known.learn(&one.call, &one.answer);
        }
        let asked = Asked { between, shown };
        self.played.push(Played {
            called,
            asked,
            rest,
        });
        Then::GoOn
    }

    async fn explain_batch(&mut self, played: Played) -> Result<Then, TestCaseError> {
        let Played {
            called,
            asked,
            rest: rest_of_driver,
        } = played;
        let asked = Rc::new(asked);
        let differs = Rc::new(RefCell::new(String::new()));
        for state in &mut self.states {
            state.asked = asked.clone();
            state.differs = differs.clone();
            state.woken.clear();
        }
        let text = format!("{}{rest_of_driver}", asked.shown.text());
        // Postgres gives ids before the commit: of two inserts at once, that of
        // the greater id may be seen first. From then on the stores choose in
        // different orders.
        let mut in_another_order = 0;
        let Some(explained) = explain(std::mem::take(&mut self.states), &called).await else {
            return Ok(Then::End);
        };
        for state in explained {
            let shown = Shown::read(state.reference.store(), &self.destinations).await;
            let rest = rest(state.reference.store(), &self.destinations).await;
            let ours = format!("{}{rest}", shown.text());
            if ours != text {
                *differs.borrow_mut() = format!("rows:\n{text}\nof the reference:\n{ours}");
            } else if shown.orders() != asked.shown.orders() {
                in_another_order += 1;
            } else {
                self.states.push(state);
            }
        }
        let inserts = |one: &&Called<Call, Answer>| {
            matches!(one.call, Call::Accept(_) | Call::Record(..) | Call::Reap(_))
        };
        if self.states.is_empty() {
            // Seen at once where an admission is among them that gave a destination several
            // permits: they are in that order.
            let several = |result: &RunResult| matches!(result, RunResult::Decided { permits, .. } if permits.len() > 1);
            let in_order = |one: &Called<Call, Answer>| matches!(&one.answer, Answer::Admitted(admitted) if admitted.results.iter().any(several));
            let seen = in_another_order > 0 || called.iter().any(in_order);
            if seen && called.iter().filter(inserts).count() > 1 {
                return Ok(Then::End);
            }
            let differs = differs.borrow();
            let problem = format!("{called:#?}\nis not what the reference does:\n{differs}");
            return Err(TestCaseError::fail(problem));
        }
        self.compared += called.len();
        Ok(Then::GoOn)
    }
}

/// What a store's clock shows.
async fn clock(driver: &dyn Driver) -> Timestamp {
    driver.store().fleet().await.unwrap().now
}

/// What there is to compare beside the attempts.
async fn rest(driver: &(impl Driver + ?Sized), destinations: &[DestinationId]) -> String {
    let mut text = String::new();
    for id in destinations {
        for entry in driver.catalog().limit_history(*id).await.unwrap() {
            writeln!(text, "{id:?} {:?} {:?}", entry.effective, entry.state).unwrap();
        }
    }
    let backlogs = driver.catalog().backlogs(destinations, 50).await.unwrap();
    let mut targets = driver.store().targets(destinations).await.unwrap();
    targets.sort_unstable_by_key(|target| target.destination);
    writeln!(text, "{backlogs:?}\n{targets:?}").unwrap();
    text
}

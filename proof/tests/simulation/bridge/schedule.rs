//! Drawn batches of takes, finishes and wakes, explained by the rules of the schedule in
//! process.

#[path = "schedule_draw.rs"]
mod draw;
#[path = "faulty_schedule.rs"]
pub(crate) mod faulty;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use adapters::in_process::Jobs;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Finish, NextRun, Schedule, Taken, Wake};
use proptest::prelude::{Just, Strategy, prop};
use proptest::test_runner::TestCaseError;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use crate::bridge::Cases;
use crate::bridge::linear::{Called, Candidate, Order, Step, explain};
use draw::{Drawn, batches};

/// The connections of one case.
pub(crate) type Schedules = Vec<Arc<dyn Schedule>>;

/// A call as it is made.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Take { max: usize, lease: Duration },
    Finish(Vec<Finish>),
    Wake(Vec<Wake>),
}

/// None for calls that answer nothing.
type Answer = Option<Taken>;

/// Draws cases and explains each of their batches.
pub(crate) fn agree(
    drawn: Cases,
    connections: RangeInclusive<usize>,
    make: &impl AsyncFn(usize) -> Schedules,
) -> Result<(), String> {
    let cases = connections.prop_flat_map(|count| (Just(count), batches(count)));
    // Real threads for the driver; a clock that stands still for the rules.
    let threads = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let mut still = Builder::new_current_thread();
    let still = still.enable_time().start_paused(true).build().unwrap();
    drawn.run(&cases, |(connections, batches)| {
        let schedules = threads.block_on(make(connections));
        case(&threads, &still, &schedules, batches)
    })
}

fn case(
    threads: &Runtime,
    still: &Runtime,
    schedules: &Schedules,
    batches: Vec<Vec<(usize, Drawn)>>,
) -> Result<(), TestCaseError> {
    let mut states = vec![State::new(schedules.len() == 1)];
    let mut seen = Vec::new();
    for drawn in batches {
        let batch = resolved(drawn, &seen);
        let called = threads.block_on(at_once(schedules, batch));
        for taken in called.iter().filter_map(|called| called.answer.as_ref()) {
            let jobs = taken.jobs.iter();
            seen.extend(jobs.map(|job| (job.destination, job.token.clone())));
        }
        states.iter_mut().for_each(State::pass);
        let Some(explained) = still.block_on(explain(states, &called)) else {
            return Ok(());
        };
        states = explained;
        if states.is_empty() {
            let problem = format!("no order explains {called:#?}");
            return Err(TestCaseError::fail(problem));
        }
    }
    Ok(())
}

/// The calls, with tokens for the places of tokens: the latest ones come
/// first, so that most finishes end a lease.
fn resolved(drawn: Vec<(usize, Drawn)>, seen: &[(DestinationId, String)]) -> Vec<(usize, Call)> {
    let latest: Vec<_> = seen.iter().rev().take(6).collect();
    let finish = |(index, next): (prop::sample::Index, NextRun)| {
        let (destination, token) = match latest.is_empty() {
            true => (DestinationId(Uuid::from_u128(0)), "nobody's".to_owned()),
            false => (*index.get(&latest)).clone(),
        };
        Finish {
            destination,
            token,
            next,
        }
    };
    let resolve = |call| match call {
        Drawn::Take { max, lease } => Call::Take { max, lease },
        Drawn::Wake(wakes) => Call::Wake(wakes),
        Drawn::Finish(ends) => Call::Finish(ends.into_iter().map(finish).collect()),
    };
    let calls = drawn.into_iter();
    calls.map(|(by, call)| (by, resolve(call))).collect()
}

/// Makes the calls, each connection its own one after the other.
async fn at_once(schedules: &Schedules, batch: Vec<(usize, Call)>) -> Vec<Called<Call, Answer>> {
    let order = Arc::new(Order::default());
    let mut of_each: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
    for (by, call) in batch {
        of_each.entry(by).or_default().push(call);
    }
    let begin = Arc::new(tokio::sync::Barrier::new(of_each.len()));
    let mut tasks = tokio::task::JoinSet::new();
    for (by, calls) in of_each {
        let (schedule, order, begin) = (schedules[by].clone(), order.clone(), begin.clone());
        tasks.spawn(async move {
            let mut called = Vec::new();
            begin.wait().await;
            for call in calls {
                let ask = async |call: &Call| ask(&*schedule, call).await;
                called.push(order.note(call, ask).await);
            }
            called
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

async fn ask(schedule: &dyn Schedule, call: &Call) -> Answer {
    match call {
        Call::Take { max, lease } => Some(schedule.take(*max, *lease).await.unwrap()),
        Call::Finish(finishes) => {
            schedule.finish(finishes).await.unwrap();
            None
        }
        Call::Wake(wakes) => {
            schedule.wake(wakes).await.unwrap();
            None
        }
    }
}

/// Where the schedule may stand.
struct State {
    jobs: Jobs,
    now: Timestamp,
    /// The token of the rules for each of the schedule's.
    tokens: BTreeMap<String, String>,
    /// Calls came one by one: of jobs due at different times, the longest due
    /// comes first.
    in_order: bool,
}

impl State {
    fn new(in_order: bool) -> Self {
        Self {
            jobs: Jobs::new("rules"),
            now: Timestamp::from_millis(4_100_000_000_000),
            tokens: BTreeMap::new(),
            in_order,
        }
    }

    /// A later batch is later.
    fn pass(&mut self) {
        self.now = self.now + Duration::from_micros(1);
    }

    /// Takes what the schedule took, if the rules allow it.
    fn take(&mut self, max: usize, lease: Duration, real: &Taken) -> bool {
        let due = self.jobs.due(self.now);
        let taken = if self.in_order {
            self.jobs.take(self.now, max, lease)
        } else {
            let wanted: BTreeSet<_> = real.jobs.iter().map(|job| job.destination).collect();
            (self.jobs).take_of(self.now, max, lease, |of| wanted.contains(&of))
        };
        let (mut ours, mut theirs) = (taken.jobs, real.jobs.clone());
        if !self.in_order {
            ours.sort_by_key(|job| job.destination);
            theirs.sort_by_key(|job| job.destination);
        }
        let is_same = ours.len() == theirs.len()
            && theirs.len() == due.min(max)
            && (ours.iter().zip(&theirs))
                .all(|(a, b)| (a.destination, a.lapsed) == (b.destination, b.lapsed))
            && class(taken.next_due) == class(real.next_due);
        let tokens = theirs.into_iter().zip(ours);
        self.tokens.extend(
            tokens.map(|(theirs, ours)| (theirs.token + &key(ours.destination), ours.token)),
        );
        is_same
    }

    fn finish(&mut self, finishes: &[Finish]) {
        let ours = |finish: &Finish| Finish {
            token: (self
                .tokens
                .get(&(finish.token.clone() + &key(finish.destination))))
            .map_or("nobody's", String::as_str)
            .to_owned(),
            ..finish.clone()
        };
        let finishes: Vec<_> = finishes.iter().map(ours).collect();
        for finish in &finishes {
            self.jobs.finish(self.now, finish);
        }
    }
}

/// One take may give all its jobs one token.
fn key(destination: DestinationId) -> String {
    format!(" of {destination:?}")
}

/// Whether something is due: now, later, never.
fn class(next_due: Option<Duration>) -> Option<bool> {
    next_due.map(|next_due| next_due.is_zero())
}

impl Candidate for State {
    type Call = Call;
    type Answer = Answer;

    async fn after(&self, step: Step<'_, Call, Answer>) -> Vec<Self> {
        assert_eq!(step.number, 0, "a call of a schedule is one step");
        let called = step.called();
        let mut state = Self {
            jobs: self.jobs.clone(),
            now: self.now,
            tokens: self.tokens.clone(),
            in_order: self.in_order,
        };
        match (&called.call, &called.answer) {
            (Call::Take { max, lease }, Some(real)) => {
                let same = state.take(*max, *lease, real);
                return same.then_some(state).into_iter().collect();
            }
            (Call::Take { .. }, None) => return Vec::new(),
            (Call::Finish(finishes), _) => state.finish(finishes),
            (Call::Wake(wakes), _) => {
                for wake in wakes {
                    state.jobs.wake(state.now, wake);
                }
            }
        }
        vec![state]
    }

    fn is_as(&self, other: &Self) -> bool {
        self.with_their_tokens() == other.with_their_tokens()
    }
}

impl State {
    /// The jobs, with the schedule's tokens for those of the rules.
    fn with_their_tokens(&self) -> String {
        let mut text = format!("{:?}", self.jobs);
        for (theirs, ours) in &self.tokens {
            text = text.replace(&format!("\"{ours}\""), theirs);
        }
        text
    }
}

//! A world: the parts, the processes, and the operations as they come.

mod clients;
mod groups;
mod handshakes;
mod news;
mod operate;
mod owners;
mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::handshake::Handshake;
use domain::ids::{DestinationId, ReplayId};
use domain::time::Timestamp;
use engine::ports::{DEFAULT_TENANT, MAX_HEAD_START, NewDestination, SecretStore as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::counts::Counts;
use crate::dice::Dice;
use crate::faulty::{Behaviours, Takings, WatchedReceivers, fates};
use crate::gate::Deaths;
use crate::intake::Intake;
use crate::model::{ModelQueue, ModelSender};
pub use crate::process::PLACES;
use crate::process::{Parts, Running};
use crate::sabotage::Sabotage;
use crate::scenario::{Operation, Process, Scenario};
use crate::schedule::SimulatedSchedule;
use crate::signing;
use crate::store::SimulatedStore;
use crate::trace::{Sink, Trace};
use crate::weather::{Surroundings, Weather};
pub(crate) use clients::named_by_client;

use crate::witness::Witness;
use promises::Broken;

/// What the store's clock shows at the beginning.
const BEGAN: Timestamp = Timestamp::from_millis(1_760_000_000_000);

/// Where every destination's requests go.
const URL: &str = "https://receiver.example/hooks";

/// Groups that the queue holds at most.
const QUEUE_CAPACITY: usize = 10_000;

/// What the dice of the queue and of the receivers are called; processes have
/// small numbers.
const QUEUE: u64 = 1_000_000;
const RECEIVERS: u64 = 1_000_001;

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The promises that were broken, in order; the run ends with the first.
    pub broken: Vec<Broken>,
    /// The hash of its trace.
    pub hash: u64,
    /// The lines of its trace.
    pub lines: u64,
    /// How many attempts started.
    pub starts: u64,
    /// How much virtual time has passed.
    pub simulated: Duration,
    /// How much of it passed after the last fault, while the rest drained.
    pub draining: Duration,
}

/// Runs a scenario, on this thread and in virtual time.
#[must_use]
pub fn run(scenario: &Scenario, sink: Option<Sink>, counts: &Counts) -> Report {
    run_sabotaged(scenario, None, sink, counts)
}

/// The same with a bug planted.
#[must_use]
pub fn run_sabotaged(
    scenario: &Scenario,
    sabotage: Option<Sabotage>,
    sink: Option<Sink>,
    counts: &Counts,
) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the system");
    let report = runtime.block_on(async {
        let around = Surroundings {
            weather: Arc::new(Weather::default()),
            trace: Trace::new(sink),
            counts: counts.clone(),
            deaths: Arc::new(Deaths::default()),
            sabotage,
        };
        let mut world = World::new(scenario, around).await;
        world.run().await
    });
    // Some tasks never end, those of dead processes for instance.
    runtime.shutdown_background();
    report
}

struct World<'a> {
    scenario: &'a Scenario,
    parts: Parts,
    dice: Dice,
    began: Instant,
    processes: BTreeMap<Process, Lives>,
    /// What is to be done when, in milliseconds; then in order of coming.
    agenda: BTreeMap<(u64, u64), Action<'a>>,
    actions: u64,
    front: Arc<Front>,
    clients: JoinSet<()>,
    handing: Arc<Handing>,
    for_later: Arc<ForLater>,
    deleted: Vec<DestinationId>,
    /// Where owners have cancelled what waited.
    cancelled: BTreeSet<DestinationId>,
    replays: Vec<ReplayId>,
    /// Where the store's clock has been before it was set.
    clock_has_been: Timestamp,
}

/// Where clients hand events in, while there is an API.
type Front = Mutex<Option<Intake>>;

/// How long each client still takes for what it has not handed in, by the number of
/// its operation.
type Handing = Mutex<BTreeMap<u32, Duration>>;

/// How much later than they are handed in events are for, and how long after that they
/// may still be admitted.
type ForLater = Mutex<BTreeMap<DestinationId, (Duration, Option<Duration>)>>;

/// A process, and how often it was started.
struct Lives {
    life: u64,
    running: Option<Running>,
    /// How long it stays away when it reaches the point at which it dies.
    down_ms: u64,
}

/// Something to be done.
enum Action<'a> {
    /// An operation begins.
    Begin(&'a Operation),
    /// What it began is over.
    End(&'a Operation),
    /// A process that ended in this life is started again.
    Start(Process, u64),
}

impl<'a> World<'a> {
    async fn new(scenario: &'a Scenario, around: Surroundings) -> Self {
        let counts = around.counts.clone();
        let dice = Dice::new(scenario.seed);
        let (witness, behaviours) = (Witness::new(counts.clone()), Behaviours::default());
        let receivers = WatchedReceivers {
            behaviours: behaviours.clone(),
            witness: witness.clone(),
            counts,
            dice: dice.of(RECEIVERS),
            takings: Takings::default(),
            said: Default::default(),
        };
        let store = SimulatedStore::new(BEGAN, MAX_HEAD_START);
        let store = store.expect("memory needs nothing of the system");
        let parts = Parts {
            store: Arc::new(store),
            schedule: Arc::new(SimulatedSchedule::new("schedule", BEGAN)),
            queue: Arc::new(ModelQueue::new(QUEUE_CAPACITY)),
            sender: Arc::new(ModelSender::new(receivers)),
            behaviours,
            witness,
            around,
            keep: scenario.keep(),
            bounds: scenario.bounds(),
            tells: scenario.tells(),
        };
        (parts.queue).decide_by(fates(parts.around.clone(), dice.of(QUEUE)));
        let world = Self {
            scenario,
            parts,
            dice,
            began: Instant::now(),
            processes: BTreeMap::new(),
            agenda: BTreeMap::new(),
            actions: 0,
            front: Arc::default(),
            clients: JoinSet::new(),
            handing: Arc::default(),
            for_later: Arc::default(),
            deleted: Vec::new(),
            cancelled: BTreeSet::new(),
            replays: Vec::new(),
            clock_has_been: Timestamp::MIN,
        };
        for (number, limits) in scenario.destinations.iter().enumerate() {
            let new = NewDestination {
                external_id: None,
                id: destination(number),
                name: String::new(),
                url: URL.to_owned(),
                event_types: Vec::new(),
                filter: None,
                limits: *limits,
                pass_traceparent: false,
                handshake: Handshake::None,
                limit_group: None,
            };
            let secrets = match world.parts.around.sabotage {
                Some(Sabotage::ForgetsSecrets) => Vec::new(),
                _ => vec![signing::sealed(new.id)],
            };
            let store = world.parts.store.shipped();
            let created = store.create_destination_with(DEFAULT_TENANT, &new, &secrets);
            created.await.expect("drawn limits are valid");
            world.read_history(new.id);
            world.sabotage_limits(new.id, limits).await;
        }
        world.arrange_alerts().await;
        world
    }

    async fn run(&mut self) -> Report {
        for operation in &self.scenario.operations {
            self.plan(operation.at_ms, Action::Begin(operation));
        }
        let schedulers = (0..self.scenario.schedulers).map(Process::Scheduler);
        let workers = (0..self.scenario.workers).map(Process::Worker);
        for process in [Process::Api].into_iter().chain(schedulers).chain(workers) {
            self.start(process, 0);
        }
        let end = self.began + Duration::from_millis(self.scenario.lasts_ms);
        let drained_from = match self.go_on_until(end).await {
            Ok(()) => {
                self.calm_down().await;
                let from = Instant::now();
                self.rest().await;
                from
            }
            Err(BrokenPromise) => Instant::now(),
        };
        let trace = &self.parts.around.trace;
        for broken in self.parts.witness.broken() {
            trace.line(format_args!("BROKEN {broken}"));
        }
        Report {
            broken: self.parts.witness.broken(),
            hash: trace.hash(),
            lines: trace.lines(),
            starts: self.parts.witness.starts(),
            simulated: self.began.elapsed(),
            draining: drained_from.elapsed(),
        }
    }

    /// Lets time pass and operations come, until a promise is broken.
    async fn go_on_until(&mut self, end: Instant) -> Result<(), BrokenPromise> {
        let witness = self.parts.witness.clone();
        let deaths = Arc::clone(&self.parts.around.deaths);
        loop {
            let next = self.agenda.first_key_value().map(|((at_ms, _), _)| *at_ms);
            let next = next.map_or(end, |at_ms| self.began + Duration::from_millis(at_ms));
            tokio::select! {
                biased;
                () = witness.until_broken() => return Err(BrokenPromise),
                process = deaths.next() => self.died(process),
                () = sleep_until(next.min(end)) => {
                    if next > end || self.agenda.is_empty() {
                        return Ok(());
                    }
                    if let Some((_, action)) = self.agenda.pop_first() {
                        self.act(action).await;
                    }
                }
            }
        }
    }

    fn plan(&mut self, at_ms: u64, action: Action<'a>) {
        self.actions += 1;
        self.agenda.insert((at_ms, self.actions), action);
    }

    fn plan_in(&mut self, after_ms: u64, action: Action<'a>) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.plan(now.saturating_add(after_ms), action);
    }

    async fn act(&mut self, action: Action<'a>) {
        match action {
            Action::Begin(operation) => self.begin(operation).await,
            Action::End(operation) => self.end(operation),
            Action::Start(process, life) => self.start(process, life),
        }
    }

    /// Starts a process that ended in its `life`th life, or had none.
    fn start(&mut self, process: Process, life: u64) {
        let lives = self.processes.entry(process).or_insert(Lives {
            life: 0,
            running: None,
            down_ms: 0,
        });
        if lives.life != life {
            return;
        }
        lives.life += 1;
        lives.running = None;
        let running = Running::begin(process, lives.life, self.dice, &self.parts);
        self.parts
            .around
            .trace
            .line(format_args!("{process} started, life {}", lives.life));
        if process == Process::Api {
            *self.front.lock().unwrap_or_else(PoisonError::into_inner) = running.front.clone();
        }
        lives.running = Some(running);
    }

    /// A process has reached the point at which it is killed.
    fn died(&mut self, process: Process) {
        if let Some(lives) = self.processes.get(&process) {
            self.kill(process, lives.down_ms);
        }
    }

    fn kill(&mut self, process: Process, down_ms: u64) {
        let Some(lives) = self.processes.get_mut(&process) else {
            return;
        };
        if lives.running.take().is_none() {
            return;
        }
        let life = lives.life;
        self.parts.around.counts.note("process killed");
        (self.parts.around.trace).line(format_args!("{process} killed"));
        self.plan_in(down_ms, Action::Start(process, life));
    }

    /// Tells the witness what is in force.
    fn read_history(&self, of: DestinationId) {
        let history = self.parts.store.in_force(of);
        self.parts.witness.in_force(of, history);
    }
}

struct BrokenPromise;

/// The destination with this index.
fn destination(index: usize) -> DestinationId {
    DestinationId(Uuid::from_u128(index as u128))
}

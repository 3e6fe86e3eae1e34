//! Processes: the roles of the program, each with the loops that `engine::roles` says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use domain::backpressure::BacklogBounds;
use domain::retention::Retention;
use engine::ports::RetainRules;
use engine::retention::RetentionOptions;
use engine::roles::{self, Entrance, Role, Settings};
use engine::scheduler::SchedulerOptions;
use engine::worker::WorkerOptions;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::faulty::{Behaviours, FaultyQueue, FaultySchedule, FaultySender, FaultyStore, pending};
use crate::gate::Gate;
use crate::intake::{Bounded, Intake};
use crate::model::{ModelQueue, ModelSender};
use crate::scenario::Process;
use crate::schedule::SimulatedSchedule;
use crate::signing::PlainVault;
use crate::store::SimulatedStore;
use crate::weather::Surroundings;
use crate::witness::Witness;

/// How long an idle scheduler waits for a wake: the model says when there is
/// one, so it need not ask two hundred times a second as a shipped one does.
const IDLE: Duration = Duration::from_millis(500);

/// What a worker can send at once.
pub const PLACES: u32 = 256;

/// How long one request may take.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a process that is asked to end takes at most.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api => f.write_str("api"),
            Self::Scheduler(number) => write!(f, "scheduler {number}"),
            Self::Worker(number) => write!(f, "worker {number}"),
        }
    }
}

impl Process {
    /// What it does.
    const fn role(self) -> Role {
        match self {
            Self::Api => Role::Api,
            Self::Scheduler(_) => Role::Scheduler,
            Self::Worker(_) => Role::Worker,
        }
    }
}

/// The parts that all processes share.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<SimulatedStore>,
    pub(crate) schedule: Arc<SimulatedSchedule>,
    pub(crate) queue: Arc<ModelQueue>,
    pub(crate) sender: Arc<ModelSender>,
    pub(crate) behaviours: Behaviours,
    pub(crate) witness: Witness,
    pub(crate) around: Surroundings,
    /// How long things are kept, if anything is ever deleted.
    pub(crate) keep: Option<Retention>,
    /// How long backlogs may become, if they are bounded.
    pub(crate) bounds: Option<BacklogBounds>,
    /// Whether somebody is told of what operators must know.
    pub(crate) tells: bool,
}

/// One life of a process. Dropping it is a crash.
pub(crate) struct Running {
    pub(crate) gate: Arc<Gate>,
    /// Where clients hand events in, if it is the API.
    pub(crate) front: Option<Intake>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    /// Starts a process, in its `life`th life.
    pub(crate) fn begin(process: Process, life: u64, dice: Dice, parts: &Parts) -> Self {
        let gate = Arc::new(Gate::new(process, life, dice, parts.around.clone()));
        let mut running = Self {
            gate: Arc::clone(&gate),
            front: None,
            shutdown: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        let ports = Ports::new(&gate, parts);
        let seed = match process {
            Process::Worker(_) => gate.roll(crate::site::Site::Heartbeat).seed(),
            Process::Api | Process::Scheduler(_) => 0,
        };
        let settings = settings(parts, seed);
        let assembly = roles::assemble(process.role(), &ports.engine(parts), settings);
        for one in assembly.loops {
            running.tasks.spawn(one.run(running.shutdown.clone()));
        }
        running.front = (assembly.entrance).map(|entrance| intake(entrance, &ports, life, parts));
        running
    }

    /// Asks it to end in order.
    pub(crate) fn stop(&self) {
        self.shutdown.cancel();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Tasks that its tasks began end a little later; until then no call of
        // theirs goes anywhere.
        self.gate.close();
    }
}

/// How every process runs.
fn settings(parts: &Parts, seed: u64) -> Settings {
    Settings {
        bounds: parts.bounds.unwrap_or_default(),
        schedulers: vec![SchedulerOptions {
            idle: IDLE,
            ..SchedulerOptions::default()
        }],
        // In small steps and often.
        retention: RetentionOptions {
            rules: RetainRules {
                keep: parts.keep.unwrap_or_default(),
                limit: 20,
                rest: Duration::from_secs(1),
                again: Duration::from_secs(10),
                ..RetainRules::default()
            },
            ..RetentionOptions::default()
        },
        worker: WorkerOptions {
            places: PLACES,
            request_timeout: REQUEST_TIMEOUT,
            grace: GRACE,
            seed,
        },
        ..Settings::of(Role::Serve, seed)
    }
}

/// Where clients hand events in. A witness knows since when they can.
fn intake(entrance: Entrance, ports: &Ports, life: u64, parts: &Parts) -> Intake {
    (parts.witness).api_began(life, parts.bounds, pending(&parts.store));
    let Entrance { ingest, pressure } = entrance;
    let bounded = parts.bounds.map(|_| Bounded {
        pressure,
        store: Arc::clone(&ports.store),
        life,
    });
    Intake { ingest, bounded }
}

/// The ports as one process sees them.
struct Ports {
    store: Arc<FaultyStore>,
    schedule: Arc<FaultySchedule>,
    queue: Arc<FaultyQueue>,
    sender: Arc<FaultySender>,
}

impl Ports {
    /// Those of what this run is about: what a scenario leaves out has no port.
    fn engine(&self, parts: &Parts) -> roles::Ports {
        let store = || Arc::clone(&self.store);
        roles::Ports {
            store: store(),
            schedule: Arc::clone(&self.schedule) as _,
            queue: Some(Arc::clone(&self.queue) as _),
            sender: Arc::clone(&self.sender) as _,
            vault: Some(Arc::new(PlainVault)),
            backpressure: parts.bounds.map(|_| store() as _),
            retain: parts.keep.map(|_| store() as _),
            operations: parts.tells.then(|| store() as _),
            replays: Some(store()),
            // Nobody has secrets to seal anew, an outbox or a handshake, nobody reads metrics
            // and tallies, and no person is told.
            tokens: None,
            noticing: None,
            secrets: None,
            outbox: None,
            surveyed: None,
            tallies: None,
            asking: None,
        }
    }

    fn new(gate: &Arc<Gate>, parts: &Parts) -> Self {
        let gate = || Arc::clone(gate);
        let witness = || parts.witness.clone();
        Self {
            store: Arc::new(FaultyStore {
                inner: Arc::clone(&parts.store),
                gate: gate(),
                witness: witness(),
            }),
            schedule: Arc::new(FaultySchedule {
                inner: Arc::clone(&parts.schedule),
                gate: gate(),
                witness: witness(),
                finished: Arc::default(),
            }),
            queue: Arc::new(FaultyQueue {
                inner: Arc::clone(&parts.queue),
                gate: gate(),
            }),
            sender: Arc::new(FaultySender {
                inner: Arc::clone(&parts.sender),
                gate: gate(),
                witness: witness(),
            }),
        }
    }
}

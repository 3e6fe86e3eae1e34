//! Processes: the engine's loops, wired as the shipped roles wire them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::ingest::{Ingest, IngestOptions};
use engine::reaper::{Reaper, ReaperOptions};
use engine::replay::{ReplayLoop, ReplayOptions};
use engine::scheduler::{Scheduler, SchedulerOptions};
use engine::sweep::{SweepLoop, SweepOptions};
use engine::worker::{Worker, WorkerOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::faulty::{Behaviours, FaultyQueue, FaultySchedule, FaultySender, FaultyStore};
use crate::gate::Gate;
use crate::model::{ModelQueue, ModelSchedule, ModelSender, ModelStore};
use crate::scenario::Process;
use crate::signing::PlainVault;
use crate::weather::Surroundings;
use crate::witness::Witness;

/// How long an idle scheduler waits for a wake: the model says when there is
/// one, so it need not ask two hundred times a second as a shipped one does.
const IDLE: Duration = Duration::from_millis(500);

/// What a worker can send at once.
const PLACES: u32 = 256;

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

/// The parts that all processes share.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<ModelStore>,
    pub(crate) schedule: Arc<ModelSchedule>,
    pub(crate) queue: Arc<ModelQueue>,
    pub(crate) sender: Arc<ModelSender>,
    pub(crate) behaviours: Behaviours,
    pub(crate) witness: Witness,
    pub(crate) around: Surroundings,
}

/// One life of a process. Dropping it is a crash.
pub(crate) struct Running {
    pub(crate) gate: Arc<Gate>,
    /// Where clients hand events in, if it is the API.
    pub(crate) front: Option<Ingest>,
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
        match process {
            Process::Api => running.begin_api(ports),
            Process::Scheduler(_) => running.begin_scheduler(ports),
            Process::Worker(_) => {
                let seed = gate.roll(crate::site::Site::Heartbeat).seed();
                running.begin_worker(ports, seed);
            }
        }
        running
    }

    fn begin_api(&mut self, ports: Ports) {
        let (front, back) = Ingest::new(ports.store, ports.schedule, IngestOptions::default());
        self.front = Some(front);
        self.tasks.spawn(back.run(self.shutdown.clone()));
    }

    fn begin_scheduler(&mut self, ports: Ports) {
        let both = || (ports.store.clone(), ports.schedule.clone());
        let options = SchedulerOptions {
            idle: IDLE,
            ..SchedulerOptions::default()
        };
        let (store, schedule) = both();
        let scheduler = Scheduler::new(store, schedule, ports.queue.clone(), options);
        self.tasks.spawn(scheduler.run(self.shutdown.clone()));
        let (store, schedule) = both();
        let options = ReaperOptions {
            start_timeout: REQUEST_TIMEOUT + Duration::from_secs(10),
            ..ReaperOptions::default()
        };
        let reaper = Reaper::new(store, schedule, options);
        self.tasks.spawn(reaper.run(self.shutdown.clone()));
        let (store, schedule) = both();
        let sweep = SweepLoop::new(store, schedule, SweepOptions::default());
        self.tasks.spawn(sweep.run(self.shutdown.clone()));
        let (store, schedule) = both();
        let replay = ReplayLoop::new(store, schedule, ReplayOptions::default());
        self.tasks.spawn(replay.run(self.shutdown.clone()));
    }

    fn begin_worker(&mut self, ports: Ports, seed: u64) {
        let options = WorkerOptions {
            places: PLACES,
            request_timeout: REQUEST_TIMEOUT,
            grace: GRACE,
            seed,
        };
        let worker = Worker::new(
            ports.store,
            ports.schedule,
            ports.queue,
            ports.sender,
            options,
        )
        .opening_with(Arc::new(PlainVault));
        self.tasks.spawn(worker.run(self.shutdown.clone()));
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

/// The ports as one process sees them.
struct Ports {
    store: Arc<FaultyStore>,
    schedule: Arc<FaultySchedule>,
    queue: Arc<FaultyQueue>,
    sender: Arc<FaultySender>,
}

impl Ports {
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

//! Processes: the engine's loops, wired as the shipped roles wire them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use domain::backpressure::{BacklogBounds, CountPace};
use domain::retention::Retention;
use engine::backpressure::{BackpressureLoop, Pressure};
use engine::ingest::{Ingest, IngestOptions};
use engine::notifier::{Notifier, NotifierOptions};
use engine::ports::RetainRules;
use engine::reaper::{Reaper, ReaperOptions};
use engine::replay::{ReplayLoop, ReplayOptions};
use engine::retention::{RetentionLoop, RetentionOptions};
use engine::scheduler::{Scheduler, SchedulerOptions};
use engine::sweep::{SweepLoop, SweepOptions};
use engine::worker::{Worker, WorkerOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::faulty::{Behaviours, FaultyQueue, FaultySchedule, FaultySender, FaultyStore, pending};
use crate::gate::Gate;
use crate::intake::{Bounded, Intake};
use crate::model::{ModelQueue, ModelSchedule, ModelSender, ModelStore};
use crate::scenario::Process;
use crate::signing::PlainVault;
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
        match process {
            Process::Api => running.begin_api(ports, life, parts),
            Process::Scheduler(_) => {
                if let Some(keep) = parts.keep {
                    running.begin_retention(&ports, keep);
                }
                if parts.tells {
                    running.begin_notifier(&ports);
                }
                running.begin_scheduler(ports);
            }
            Process::Worker(_) => {
                let seed = gate.roll(crate::site::Site::Heartbeat).seed();
                running.begin_worker(ports, seed);
            }
        }
        running
    }

    fn begin_api(&mut self, ports: Ports, life: u64, parts: &Parts) {
        let store = Arc::clone(&ports.store);
        let (ingest, back) = Ingest::new(ports.store, ports.schedule, IngestOptions::default());
        self.tasks.spawn(back.run(self.shutdown.clone()));
        (parts.witness).api_began(life, parts.bounds, pending(&parts.store));
        let bounded = parts.bounds.map(|bounds| Bounded {
            pressure: Arc::new(Pressure::new(bounds)),
            store,
            life,
        });
        if let Some(bounded) = &bounded {
            let pressure = Arc::clone(&bounded.pressure);
            let counts = bounded.store.clone();
            let counting = BackpressureLoop::new(counts, pressure, CountPace::default());
            self.tasks.spawn(counting.run(self.shutdown.clone()));
        }
        self.front = Some(Intake { ingest, bounded });
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

    /// Beside a scheduler, as everywhere.
    fn begin_notifier(&mut self, ports: &Ports) {
        let (store, schedule) = (ports.store.clone(), ports.schedule.clone());
        let notifier = Notifier::new(store, schedule, NotifierOptions::default());
        self.tasks.spawn(notifier.run(self.shutdown.clone()));
    }

    /// Beside a scheduler, in small steps and often.
    fn begin_retention(&mut self, ports: &Ports, keep: Retention) {
        let options = RetentionOptions {
            rules: RetainRules {
                keep,
                limit: 20,
                rest: Duration::from_secs(1),
                again: Duration::from_secs(10),
                ..RetainRules::default()
            },
            ..RetentionOptions::default()
        };
        let retention = RetentionLoop::new(ports.store.clone(), options);
        self.tasks.spawn(retention.run(self.shutdown.clone()));
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

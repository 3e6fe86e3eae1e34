//! A trial in one process, over one SQLite file that goes with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adapters::key_ring::KeyRing;
use anyhow::Context;
use engine::ingest::{Ingest, IngestOptions};
use engine::ports::DEFAULT_TENANT;
use engine::reaper::{Reaper, ReaperOptions};
use engine::replay::{ReplayLoop, ReplayOptions};
use engine::scheduler::{Scheduler, SchedulerOptions};
use engine::sweep::{SweepLoop, SweepOptions};
use engine::tally::{TallyLoop, TallyOptions};
use engine::worker::{Worker, WorkerOptions};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Plan, Trial};
use crate::config::{MANAGE_PER_SECOND, QueueConfig, ScheduleConfig, StoreConfig, TargetConfig};
use crate::edge::Mint;
use crate::front::{Front, FrontOptions};
use crate::listening::{Bounds, Listening};
use crate::parts::Parts;
use crate::receiver;
use crate::secret_keys::new_key;

/// A trial's worker does not wait for receivers that never answer.
const GRACE: Duration = Duration::from_millis(500);

/// Where it listens, on this machine.
pub struct Listeners {
    /// The API and the dashboard.
    pub dashboard: TcpListener,
    /// What is sent to.
    pub receivers: TcpListener,
}

/// Everything in this process.
pub struct Embedded {
    /// What is tried.
    pub trial: Trial,
    /// How events come in.
    pub ingest: Ingest,
    /// The SQLite file.
    pub file: PathBuf,
    /// Where the dashboard opens, with all rights, for a day.
    pub dashboard: String,
    folder: PathBuf,
    loops: TaskTracker,
    shutdown: CancellationToken,
}

impl Embedded {
    /// Creates the destinations in a new file and starts every loop.
    pub async fn set_up(plans: Vec<Plan>) -> anyhow::Result<Self> {
        let listeners = Listeners {
            dashboard: receiver::listen().context("listen for the dashboard")?,
            receivers: receiver::listen().context("listen for the receivers")?,
        };
        Self::listening_at(listeners, plans).await
    }

    /// The same at ports that were chosen.
    pub async fn listening_at(listeners: Listeners, plans: Vec<Plan>) -> anyhow::Result<Self> {
        let Listeners {
            dashboard,
            receivers,
        } = listeners;
        let mint = Mint::from_system()?;
        let folder = std::env::temp_dir().join(format!("paceline-trial-{}", mint.uuid()));
        std::fs::create_dir(&folder).context("make a folder for the trial")?;
        let file = folder.join("paceline.db");
        let parts = connect(&file).await?;
        let vault = Arc::new(KeyRing::parse(&new_key(&mint))?);
        let trial = Trial::receiving_at(receivers, &parts, vault.as_ref(), plans).await?;
        let (loops, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let seed = u64::from_le_bytes(mint.bytes());
        let ingest = spawn(&loops, &shutdown, (&parts, Arc::clone(&vault)), seed)?;
        let around = (&loops, &shutdown);
        let dashboard = spawn_front(dashboard, around, (&parts, vault), mint).await?;
        loops.close();
        Ok(Self {
            trial,
            ingest,
            file,
            dashboard,
            folder,
            loops,
            shutdown,
        })
    }

    /// Stops every loop and removes the file.
    pub async fn strike(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        // Receivers that never answer would hold the worker: its grace is short.
        let _ = tokio::time::timeout(GRACE * 10, self.loops.wait()).await;
        drop(self.trial);
        std::fs::remove_dir_all(&self.folder).context("remove the trial's folder")
    }
}

async fn connect(file: &Path) -> anyhow::Result<Parts> {
    let store = StoreConfig {
        database_url: format!("sqlite:{}", file.display()).parse()?,
        database_connections: 2,
    };
    let schedule = ScheduleConfig {
        schedule_url: "in-process".parse()?,
        schedule_prefix: String::new(),
        schedule_shards: 1,
    };
    let queue = QueueConfig {
        queue_url: "in-process".parse()?,
        queue_name: String::new(),
        queue_shards: 1,
    };
    let target = TargetConfig::this_host();
    Parts::connect(&store, &schedule, Some(&queue), &target).await
}

fn spawn(
    loops: &TaskTracker,
    shutdown: &CancellationToken,
    (parts, vault): (&Parts, Arc<KeyRing>),
    seed: u64,
) -> anyhow::Result<Ingest> {
    let queue = parts.queue.clone().context("a trial has a queue")?;
    let both = || (Arc::clone(&parts.store), Arc::clone(&parts.schedule));

    let (store, schedule) = both();
    let (ingest, back) = Ingest::new(store, schedule, IngestOptions::default());
    loops.spawn(back.run(shutdown.clone()));

    let (store, schedule) = both();
    let options = SchedulerOptions::default();
    let scheduler = Scheduler::new(store, schedule, Arc::clone(&queue), options);
    loops.spawn(scheduler.run(shutdown.clone()));

    let (store, schedule) = both();
    loops.spawn(Reaper::new(store, schedule, ReaperOptions::default()).run(shutdown.clone()));

    let (store, schedule) = both();
    loops.spawn(SweepLoop::new(store, schedule, SweepOptions::default()).run(shutdown.clone()));

    let (store, schedule) = both();
    let options = WorkerOptions {
        grace: GRACE,
        seed,
        ..WorkerOptions::default()
    };
    let sender = Arc::clone(&parts.sender);
    let worker = Worker::new(store, schedule, queue, sender, options).opening_with(vault);
    loops.spawn(worker.run(shutdown.clone()));

    // For what the dashboard says of an hour and a day.
    let tally = TallyLoop::new(Arc::clone(&parts.tallies), TallyOptions::default());
    loops.spawn(tally.run(shutdown.clone()));

    // For dead letters that somebody replays on the dashboard.
    let replays = Arc::clone(&parts.replays);
    let replay = ReplayLoop::new(
        replays,
        Arc::clone(&parts.schedule),
        ReplayOptions::default(),
    );
    loops.spawn(replay.run(shutdown.clone()));
    Ok(ingest)
}

/// The API and the dashboard.
async fn spawn_front(
    listener: TcpListener,
    (loops, shutdown): (&TaskTracker, &CancellationToken),
    (parts, vault): (&Parts, Arc<KeyRing>),
    mint: Mint,
) -> anyhow::Result<String> {
    let address = listener
        .local_addr()
        .context("read the listener's address")?;
    let key = mint.key().text;
    let options = FrontOptions {
        key: &key,
        manage_per_second: MANAGE_PER_SECOND,
        public_url: None,
        vault,
        ingest: None,
        target: &TargetConfig::this_host(),
        shutdown: shutdown.clone(),
    };
    let front = Front::new(parts, Arc::new(mint), options);
    loops.spawn(front.counting.run(shutdown.clone()));
    loops.spawn(front.back.run(shutdown.clone()));
    let listening = Listening {
        listener,
        router: front.router,
        bounds: Bounds::default(),
        tls: None,
    };
    let stop = shutdown.clone();
    loops.spawn(listening.serve(stop));
    let day = Duration::from_secs(86_400);
    let path = front.pages.full_link(DEFAULT_TENANT, day).await?;
    Ok(format!("http://{address}{path}"))
}

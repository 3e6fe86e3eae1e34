//! What is taken away in mid-run.

use std::time::Duration;

use adapters::shell::{self, QueueCommand};
use anyhow::{Context, bail};
use domain::time::Timestamp;
use rustix::process::Signal;
use server::trial::{Children, Distributed, SharedParts};
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;
use uuid::Uuid;

/// What a request on the loopback may take, in microseconds.
pub(crate) const LOOPBACK: i64 = 50_000;

/// How long a worker stands still: far longer than a request takes, so that what it sends
/// when it goes on is told from what others sent meanwhile, and than a worker lets pass
/// between two heartbeats, by which it is known.
const STOPPED: Duration = Duration::from_secs(3);

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of a scheduler, and another one in its place.
    KillScheduler,
    /// `kill -9` of a worker, and another one in its place.
    KillWorker,
    /// SIGSTOP to a worker, which goes on after [`STOPPED`].
    StopWorker,
    /// Half of its limit for every destination, by SQL.
    CutLimits,
    /// Every job of the schedule is gone, as after FLUSHALL.
    LoseSchedule,
    /// The delivery queue is emptied.
    PurgeQueue,
    /// The delivery queue is deleted.
    DeleteQueue,
}

/// Each fault once, at even distances within the run.
pub(crate) const PROGRAMME: [Fault; 5] = [
    Fault::KillScheduler,
    Fault::LoseSchedule,
    Fault::KillWorker,
    Fault::PurgeQueue,
    Fault::DeleteQueue,
];

/// Those of a run each, in its middle.
pub(crate) const EACH: [Fault; 6] = [
    Fault::KillWorker,
    Fault::KillScheduler,
    Fault::StopWorker,
    Fault::CutLimits,
    Fault::LoseSchedule,
    Fault::DeleteQueue,
];

impl Fault {
    /// As tables and JSON call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KillScheduler => "kill-scheduler",
            Self::KillWorker => "kill-worker",
            Self::StopWorker => "stop-worker",
            Self::CutLimits => "cut-limits",
            Self::LoseSchedule => "lose-schedule",
            Self::PurgeQueue => "purge-queue",
            Self::DeleteQueue => "delete-queue",
        }
    }
}

/// A worker stood still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    /// Its id in the ledger.
    pub(crate) worker: Uuid,
    /// Since when at the latest, by the store's clock.
    pub(crate) stopped_at: Timestamp,
    /// Until when at the earliest, by the receivers' clock.
    pub(crate) went_on_at: Timestamp,
}

/// Does them all, one after the other, in `length`.
pub(crate) async fn perform(stage: &mut Distributed, length: Duration) -> anyhow::Result<()> {
    let step = length / (PROGRAMME.len() as u32 + 1);
    let began = Instant::now();
    for (number, fault) in (1_u32..).zip(PROGRAMME) {
        tokio::time::sleep_until(began + step * number).await;
        commit(fault, stage).await?;
    }
    Ok(())
}

/// Does one. Of a worker that stood still it says when.
pub(crate) async fn commit(
    fault: Fault,
    stage: &mut Distributed,
) -> anyhow::Result<Option<Stopped>> {
    let (children, shared) = (&mut stage.children, &stage.shared);
    match fault {
        Fault::KillScheduler => replace(children, "scheduler").await?,
        Fault::KillWorker => replace(children, "worker").await?,
        Fault::StopWorker => return stop_worker(stage).await.map(Some),
        Fault::CutLimits => cut_limits(shared).await?,
        Fault::LoseSchedule => shared.lose_schedule().await?,
        Fault::PurgeQueue => queue(shared, QueueCommand::Purge).await?,
        Fault::DeleteQueue => queue(shared, QueueCommand::Delete).await?,
    }
    Ok(None)
}

async fn stop_worker(stage: &Distributed) -> anyhow::Result<Stopped> {
    let mut workers = stage.children.all.iter();
    let worker = workers.find(|child| child.role == "worker");
    let process = worker.context("there is no worker to stop")?;
    process.signal(Signal::STOP)?;
    let stopped_at = stage.trial.now().await;
    tokio::time::sleep(STOPPED).await;
    let stopped = match stopped_at {
        Ok(at) => silent_since(at, &stage.shared.database_url)
            .await
            .map(|worker| (worker, at)),
        Err(error) => Err(error),
    };
    let went_on_at = Timestamp::from_micros(stage.trial.receiver.clock());
    process.signal(Signal::CONT)?;
    let (worker, stopped_at) = stopped?;
    Ok(Stopped {
        worker,
        stopped_at,
        went_on_at,
    })
}

/// The one worker without a heartbeat since then.
async fn silent_since(at: Timestamp, database_url: &str) -> anyhow::Result<Uuid> {
    let connection = PgConnection::connect(database_url).await;
    let mut connection = connection.context("look for the worker that stands still")?;
    let silent = "select id from workers where not retired and micros(seen_at) <= $1";
    let silent: Vec<Uuid> = sqlx::query_scalar(silent)
        .bind(at.as_micros())
        .fetch_all(&mut connection)
        .await
        .context("look for the worker that stands still")?;
    connection.close().await.context("leave Postgres")?;
    match silent.as_slice() {
        [one] => Ok(*one),
        some => bail!("{} workers stand still, not one", some.len()),
    }
}

/// A limit of 1 would be cut to a pause.
async fn cut_limits(shared: &SharedParts) -> anyhow::Result<()> {
    let cut = "update destinations set limit_per_second = limit_per_second / 2, \
               limit_per_minute = limit_per_minute / 2";
    Ok(shell::psql(&shared.database_url, cut).await?)
}

async fn replace(children: &mut Children, role: &'static str) -> anyhow::Result<()> {
    children.kill(role).await?;
    children.add(role)
}

async fn queue(shared: &SharedParts, command: QueueCommand) -> anyhow::Result<()> {
    Ok(shell::rabbitmq(&shared.queue_url, &shared.queue_name, command).await?)
}

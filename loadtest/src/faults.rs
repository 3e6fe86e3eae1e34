//! What is taken away in mid-run.

use std::time::Duration;

use adapters::shell::{self, QueueCommand};
use anyhow::Context;
use domain::time::Timestamp;
use rustix::process::Signal;
use server::trial::{Children, Distributed, SharedParts};
use tokio::time::Instant;

/// How long a worker stands still: far longer than a request takes, so that what it sends
/// when it goes on is told from what others sent meanwhile.
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
    let worker = worker.context("there is no worker to stop")?;
    worker.signal(Signal::STOP)?;
    let stopped_at = stage.trial.now().await;
    tokio::time::sleep(STOPPED).await;
    let went_on_at = Timestamp::from_micros(stage.trial.receiver.clock());
    worker.signal(Signal::CONT)?;
    Ok(Stopped {
        stopped_at: stopped_at?,
        went_on_at,
    })
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

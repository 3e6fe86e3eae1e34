//! What is taken away in mid-run.

use std::time::Duration;

use adapters::shell::{self, QueueCommand};
use server::trial::{Children, SharedParts};
use tokio::time::Instant;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of a scheduler, and another one in its place.
    KillScheduler,
    /// `kill -9` of a worker, and another one in its place.
    KillWorker,
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

/// Does them all, one after the other, in `length`.
pub(crate) async fn perform(
    children: &mut Children,
    shared: &SharedParts,
    length: Duration,
) -> anyhow::Result<()> {
    let step = length / (PROGRAMME.len() as u32 + 1);
    let began = Instant::now();
    for (number, fault) in (1_u32..).zip(PROGRAMME) {
        tokio::time::sleep_until(began + step * number).await;
        commit(fault, children, shared).await?;
    }
    Ok(())
}

async fn commit(fault: Fault, children: &mut Children, shared: &SharedParts) -> anyhow::Result<()> {
    match fault {
        Fault::KillScheduler => replace(children, "scheduler").await,
        Fault::KillWorker => replace(children, "worker").await,
        Fault::LoseSchedule => Ok(shared.lose_schedule().await?),
        Fault::PurgeQueue => queue(shared, QueueCommand::Purge).await,
        Fault::DeleteQueue => queue(shared, QueueCommand::Delete).await,
    }
}

async fn replace(children: &mut Children, role: &'static str) -> anyhow::Result<()> {
    children.kill(role).await?;
    children.add(role)
}

async fn queue(shared: &SharedParts, command: QueueCommand) -> anyhow::Result<()> {
    Ok(shell::rabbitmq(&shared.queue_url, &shared.queue_name, command).await?)
}

//! Does the faults of a plan, each at its time, and heals what they did.

mod late;
mod owner;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use adapters::shell::{self, QueueCommand};
use anyhow::Context;
use domain::ids::{DestinationId, TenantId};
use engine::ports::{Backlog, Catalog, SecretStore};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::diary::Diary;
use super::fault::{Fault, Server, Slot, Trouble};
use super::keeper::Order;
use super::log::Appender;
use super::plan::Planned;
use super::processes::Processes;
use super::proxy::{Link, Proxy};
use super::secrets::Secrets;
use super::servers::PrivateServers;
use super::setting::Tenant;
pub(crate) use late::write_event;

/// The delivery queue's name, as the roles have it by default.
const QUEUE: &str = "paceline.deliveries";

/// All that faults are done to.
pub(crate) struct Scene {
    pub(crate) servers: PrivateServers,
    pub(crate) processes: Processes,
    /// By the numbers of the destinations; only some have one.
    pub(crate) receiver_links: Vec<Option<Proxy>>,
    /// By their numbers.
    pub(crate) destinations: Vec<Target>,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) secret_store: Arc<dyn SecretStore>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) backlog: Arc<dyn Backlog>,
    pub(crate) diary: Arc<Diary>,
    /// One at a time does something to a server as a whole.
    pub(crate) turns: [Mutex<()>; 3],
    pub(crate) clock_ahead_ms: AtomicI64,
    /// So far.
    pub(crate) replays: AtomicU64,
    /// So far.
    pub(crate) late_commits: AtomicU64,
    /// The log of what clients post.
    pub(crate) posts: Appender,
}

/// A destination, as faults see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) tenant: TenantId,
    pub(crate) id: DestinationId,
    /// Its limit per second as it is at first.
    pub(crate) limit: Option<u32>,
}

/// Does them all; returns when each is over. Cancelling leaves out the rest.
pub(crate) async fn perform(
    scene: &Arc<Scene>,
    plan: &[Planned],
    cancelled: &CancellationToken,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut doing = JoinSet::new();
    for planned in plan {
        tokio::select! {
            biased;
            () = cancelled.cancelled() => break,
            () = sleep_until(began + planned.at) => {}
        }
        let (scene, fault) = (Arc::clone(scene), planned.fault);
        doing.spawn(async move { scene.commit_and_note(fault).await });
        while let Some(done) = doing.try_join_next() {
            done.context("a fault broke")??;
        }
    }
    while let Some(done) = doing.join_next().await {
        done.context("a fault broke")??;
    }
    Ok(())
}

impl Scene {
    /// A fault that could not be done is noted, and is not one.
    async fn commit_and_note(&self, fault: Fault) -> anyhow::Result<()> {
        match self.commit(fault).await {
            Ok(()) => Ok(()),
            Err(error) => self
                .diary
                .note("not_done", &fault.kind(), &format!("{error:#}")),
        }
    }

    fn begun(&self, fault: Fault) -> anyhow::Result<()> {
        self.diary
            .note("fault", &fault.kind(), &format!("{fault:?}"))
    }

    async fn commit(&self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Kill(slot) => self.order(fault, slot, Order::Kill),
            Fault::Freeze(slot, length) => self.order(fault, slot, Order::Freeze(length)),
            Fault::Terminate(slot) => self.order(fault, slot, Order::Terminate),
            Fault::Crash(slot, point, times) => self.order(fault, slot, Order::Crash(point, times)),
            Fault::ServerLink(slot, server, trouble) => {
                let links = &self.processes.place(slot)?.links;
                let link = links
                    .iter()
                    .find(|(to, _)| *to == server)
                    .context("no link")?;
                self.trouble(fault, &link.1, trouble).await
            }
            Fault::ApiLink(slot, trouble) => {
                let front = self.processes.place(slot)?.front.as_ref();
                self.trouble(fault, front.context("no link")?, trouble)
                    .await
            }
            Fault::ReceiverLink(number, trouble) => {
                let link = self
                    .receiver_links
                    .get(number as usize)
                    .and_then(Option::as_ref);
                self.trouble(fault, link.context("no link")?, trouble).await
            }
            Fault::LoseSchedule => {
                self.begun(fault)?;
                let url = self.servers.url(Server::Redis)?;
                Ok(shell::redis_cli(&url, &["FLUSHALL"]).await?)
            }
            Fault::PurgeQueue => self.queue(fault, QueueCommand::Purge).await,
            Fault::DeleteQueue => self.queue(fault, QueueCommand::Delete).await,
            Fault::KillServer(..) | Fault::MemoryAlarm(_) | Fault::DiskFull(_) => {
                self.break_server(fault).await
            }
            Fault::ClockStep(by_ms) => self.step_clock(fault, by_ms),
            Fault::ChangeLimit(number, percent) => self.change_limit(fault, number, percent).await,
            Fault::Pause(number, length) => self.pause(fault, number, length).await,
            Fault::Delete(number) => self.delete(fault, number).await,
            Fault::Cancel(number) => self.cancel(fault, number).await,
            Fault::Age(number, length) => self.shorten_age(fault, number, length).await,
            Fault::Replay => self.replay(fault).await,
            Fault::Rotate(number, overlap) => self.rotate(fault, number, overlap).await,
            Fault::LateCommit(number, open) => self.commit_late(fault, number, open).await,
        }
    }

    fn order(&self, fault: Fault, slot: Slot, order: Order) -> anyhow::Result<()> {
        self.processes.place(slot)?.order(order)?;
        self.begun(fault)
    }

    async fn trouble(&self, fault: Fault, proxy: &Proxy, trouble: Trouble) -> anyhow::Result<()> {
        self.begun(fault)?;
        match trouble {
            Trouble::Reset => proxy.reset(),
            Trouble::For(link, length) => {
                proxy.set(link);
                sleep(length).await;
                proxy.set(Link::Pass);
            }
        }
        Ok(())
    }

    async fn queue(&self, fault: Fault, command: QueueCommand) -> anyhow::Result<()> {
        let url = self.servers.url(Server::Rabbitmq)?;
        shell::rabbitmq(&url, QUEUE, command).await?;
        self.begun(fault)
    }

    async fn break_server(&self, fault: Fault) -> anyhow::Result<()> {
        let server = match fault {
            Fault::KillServer(server, _) => server,
            Fault::MemoryAlarm(_) => Server::Rabbitmq,
            _ => Server::Postgres,
        };
        let _turn = self.turns[server as usize].lock().await;
        self.begun(fault)?;
        match fault {
            Fault::KillServer(server, pause) => {
                self.servers.kill(server).await?;
                sleep(pause).await;
                self.servers.restart(server).await?;
            }
            Fault::MemoryAlarm(length) => {
                self.servers.set_memory_alarm(true).await?;
                sleep(length).await;
                self.servers.set_memory_alarm(false).await?;
            }
            Fault::DiskFull(length) => {
                self.servers.fill_disk().await?;
                sleep(length).await;
                self.servers.free_disk().await?;
            }
            _ => {}
        }
        self.diary.note("healed", &fault.kind(), "")
    }

    fn step_clock(&self, fault: Fault, by_ms: i64) -> anyhow::Result<()> {
        self.begun(fault)?;
        let ahead = self.clock_ahead_ms.fetch_add(by_ms, Ordering::Relaxed) + by_ms;
        // Before it is done: nothing can have been started after it unnoted.
        self.diary.note_step(by_ms * 1_000)?;
        self.servers.set_clock(ahead)
    }

    fn destination(&self, number: u32) -> anyhow::Result<Target> {
        let found = self.destinations.get(number as usize).copied();
        found.with_context(|| format!("no destination {number}"))
    }

    /// All links pass, all servers run, limits are what they were.
    pub(crate) async fn heal(&self) -> anyhow::Result<()> {
        let links = self
            .processes
            .places
            .iter()
            .flat_map(|place| place.links.iter().map(|(_, link)| link).chain(&place.front));
        for link in links.chain(self.receiver_links.iter().flatten()) {
            link.set(Link::Pass);
        }
        for server in Server::ALL {
            self.servers.restart(server).await?;
        }
        for one in &self.destinations {
            if let Some(limit) = one.limit {
                self.set_limit(one.id, limit).await?;
            }
        }
        let any_age = "update destinations set max_age_ms = null where max_age_ms is not null";
        self.servers.sql(any_age).await?;
        self.diary.note("healed", "", "all")
    }
}

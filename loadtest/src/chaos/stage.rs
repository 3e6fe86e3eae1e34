//! One run from the first server to the last log line.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use domain::ids::{DestinationId, TenantId};
use engine::ports::Catalog;
use server::config::StoreConfig;
use server::parts::Stored;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::abilities::Abilities;
use super::client::{Client, Load};
use super::diary::Diary;
use super::fault::Server;
use super::log::{Folder, Grouped, Run, Tried, boottime_us};
use super::outbox::Program;
use super::plan::Planned;
use super::processes::Processes;
use super::receivers::Storm;
use super::secrets::Secrets;
use super::servers::PrivateServers;
use super::setting::{Site, Tenant};
use super::storm::{self, Scene, Target};
use super::world::{AT_ONCE, Destination, GROUP, Manners, destinations, group_limits, shares};
use super::{health, ledger, news, receivers, setting};

/// Clients of each tenant that post at the same time.
const CLIENTS: u64 = 2;

/// How long clients may go on after the storm.
const LAST_POSTS: Duration = Duration::from_secs(60);

/// What a run is made of.
pub(crate) struct Stage {
    pub(crate) seed: u64,
    pub(crate) events: u64,
    pub(crate) scale: u32,
    /// Of the storm.
    pub(crate) length: Duration,
    pub(crate) drain: Duration,
    pub(crate) folder: Folder,
    pub(crate) shutdown: CancellationToken,
}

impl Stage {
    /// Sets up, storms, heals, drains, exports; takes everything away however
    /// it ended.
    pub(crate) async fn play(self, abilities: Abilities, plan: &[Planned]) -> anyhow::Result<()> {
        let home = tempfile::Builder::new()
            .prefix("paceline-chaos.")
            .tempdir()?;
        // Postgres, which root runs as another user, has to get through.
        make_passable(home.path())?;
        let servers = PrivateServers::start(home.path().join("servers"), abilities).await?;
        let diary = Arc::new(Diary::open(&self.folder)?);
        let stored = open_store(&servers).await?;
        let planned = destinations(self.scale);
        let log = self.folder.appender(Folder::RECEIPTS)?;
        let (secrets, key) = Secrets::new(planned.len(), self.folder.appender(Folder::KNOWN)?)?;
        let secrets = Arc::new(secrets);
        let when = Arc::new(Storm {
            began: OnceLock::new(),
            length: self.length,
        });
        let receiver =
            receivers::start(&planned, Arc::clone(&secrets), Arc::clone(&when), log).await?;
        let tenants = setting::tenants(stored.as_ref()).await?;
        let site = Site {
            stored: stored.as_ref(),
            tenants: &tenants,
            secrets: &secrets,
            receiver: &receiver,
            group: group_limits(self.scale),
        };
        let (tried, receiver_links) = site.create(&planned).await?;
        health::doom(&servers, &tried).await?;
        let program = std::env::current_exe().context("find this program")?;
        let logs = std::path::absolute(&self.folder.0)?;
        let processes = Processes::start(&program, &logs, &servers, &key, &diary).await?;
        let scene = Arc::new(Scene {
            servers,
            processes,
            receiver_links,
            destinations: targets(&planned, &tried),
            tenants: tenants.clone(),
            secrets,
            secret_store: Arc::clone(&stored) as _,
            catalog: Arc::clone(&stored) as _,
            backlog: Arc::clone(&stored) as _,
            diary: Arc::clone(&diary),
            turns: [(); 3].map(|()| Mutex::new(())),
            clock_ahead_ms: AtomicI64::new(0),
            replays: AtomicU64::new(0),
            late_commits: AtomicU64::new(0),
            posts: self.folder.appender(Folder::CLIENT)?,
        });
        let cast = Cast {
            planned: &planned,
            tried: &tried,
            tenants: &tenants,
            when: &when,
        };
        let ended = self.storm(&scene, plan, &cast).await;
        let scene = Arc::into_inner(scene).context("somebody still holds the scene")?;
        let stopped = scene.processes.stop().await;
        let exported = match ended.as_ref().and(stopped.as_ref()) {
            Ok(()) => {
                let from = (&scene.servers, &*scene.catalog);
                self.export(from, &tried).await
            }
            Err(_) => Ok(()),
        };
        receivers::stop(receiver, &diary).await?;
        let removed = scene.servers.remove().await;
        ended.and(stopped).and(exported).and(removed)
    }

    async fn export(
        &self,
        (servers, catalog): (&PrivateServers, &dyn Catalog),
        tried: &[Tried],
    ) -> anyhow::Result<()> {
        let folder = &self.folder;
        ledger::export(servers, catalog, tried, folder).await?;
        news::export(servers, tried, folder).await?;
        health::export(servers, folder).await
    }

    async fn storm(
        &self,
        scene: &Arc<Scene>,
        plan: &[Planned],
        cast: &Cast<'_>,
    ) -> anyhow::Result<()> {
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let watched = self.watch(scene, &stop);
        let began_us = boottime_us();
        let clients = self.post(scene, cast)?;
        cast.when.began.get_or_init(Instant::now);
        scene
            .diary
            .note("begun", "", &format!("{} faults planned", plan.len()))?;
        storm::perform(scene, plan, &self.shutdown).await?;
        let posted = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Ok(Ok(())),
            posted = timeout(self.length + LAST_POSTS, joined(clients)) => posted,
        };
        posted.context("the clients did not get rid of their events")??;
        scene.heal().await?;
        let run = Run {
            seed: self.seed,
            destinations: cast.tried.to_vec(),
            groups: vec![self.group(cast)],
            planned: plan.len(),
            storm_us: (began_us, boottime_us()),
        };
        let path = self.folder.0.join(Folder::RUN);
        tokio::fs::write(path, serde_json::to_vec_pretty(&run)?).await?;
        let drain = || ledger::drain(&scene.servers, self.drain, &self.shutdown);
        drain().await?;
        news::end_watch(&scene.servers).await?;
        let left = drain().await?;
        scene.diary.note(
            "drained",
            "",
            &format!("{left} attempts, replays and news left"),
        )?;
        stop.cancel();
        joined(watched).await
    }

    /// The limit group of the run, with its members.
    fn group(&self, cast: &Cast<'_>) -> Grouped {
        let members = cast.planned.iter().zip(cast.tried);
        Grouped {
            name: GROUP.to_owned(),
            limits: group_limits(self.scale),
            members: (members.filter(|(planned, _)| planned.grouped))
                .map(|(_, tried)| tried.id)
                .collect(),
        }
    }

    /// Watches the store's clock, and resumes who is disabled.
    fn watch(&self, scene: &Arc<Scene>, stop: &CancellationToken) -> JoinSet<anyhow::Result<()>> {
        let mut watched = JoinSet::new();
        let (watching, folder, stopped) = (Arc::clone(scene), self.folder.clone(), stop.clone());
        watched
            .spawn(async move { ledger::sample_clock(&watching.servers, &folder, stopped).await });
        let (owner, stopped) = (Arc::clone(scene), stop.clone());
        watched.spawn(async move { news::resume(&owner.servers, stopped).await });
        watched
    }

    /// So many clients of each tenant, and a program with an outbox.
    fn post(
        &self,
        scene: &Arc<Scene>,
        cast: &Cast<'_>,
    ) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let log = Arc::new(self.folder.appender(Folder::CLIENT)?);
        let apis = scene.processes.apis();
        let mut clients = JoinSet::new();
        for (tenant, one) in cast.tenants.iter().enumerate() {
            for number in 0..CLIENTS {
                let client = Client {
                    apis: apis.clone(),
                    destinations: cast.tried.iter().map(|one| one.id).collect(),
                    key: one.key.clone(),
                    log: Arc::clone(&log),
                };
                clients.spawn(client.post(Load {
                    seed: self.seed,
                    shares: shares(cast.planned, self.events),
                    tenants: cast.planned.iter().map(|one| one.tenant).collect(),
                    tenant,
                    length: self.length,
                    at_once: AT_ONCE[tenant],
                    client: (number, CLIENTS),
                }));
            }
        }
        let program = Program {
            seed: self.seed,
            events: self.events,
            length: self.length,
            destinations: cast.steady(),
            log,
        };
        let scene = Arc::clone(scene);
        clients.spawn(async move { program.run(&scene.servers).await });
        Ok(clients)
    }
}

/// Who takes part.
struct Cast<'a> {
    planned: &'a [Destination],
    tried: &'a [Tried],
    tenants: &'a [Tenant],
    when: &'a Storm,
}

impl Cast<'_> {
    /// Those that are never deleted or disabled, so that no row of an outbox is
    /// refused.
    fn steady(&self) -> Vec<(u32, Tried)> {
        let all = (0_u32..).zip(self.planned).zip(self.tried);
        all.filter(|((_, planned), tried)| {
            planned.manners == Manners::Polite && !planned.mortal && tried.told.is_none()
        })
        .map(|((number, _), tried)| (number, tried.clone()))
        .collect()
    }
}

/// The store, with what the run remembers beside it.
async fn open_store(servers: &PrivateServers) -> anyhow::Result<Arc<dyn Stored>> {
    let store = StoreConfig {
        database_url: servers.url(Server::Postgres)?.parse()?,
        database_connections: 4,
    };
    server::parts::migrate(&store).await?;
    servers.sql(ledger::REMEMBER_UNKNOWN).await?;
    servers.sql(news::REMEMBER_NEWS).await?;
    servers.sql(health::REMEMBER_HEALTH).await?;
    server::parts::open_to_read(&store).await
}

fn targets(planned: &[Destination], tried: &[Tried]) -> Vec<Target> {
    let target = |(planned, tried): (&Destination, &Tried)| Target {
        tenant: TenantId(tried.tenant),
        id: DestinationId(tried.id),
        limit: planned.limits.per_second,
    };
    planned.iter().zip(tried).map(target).collect()
}

/// Waits for all; the first error ends the others.
async fn joined(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(done) = tasks.join_next().await {
        done.context("a task broke")??;
    }
    Ok(())
}

fn make_passable(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let passable = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(folder, passable).context("open the folder to Postgres")
}

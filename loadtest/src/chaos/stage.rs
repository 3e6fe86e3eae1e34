//! One run from the first server to the last log line.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use adapters::key_ring::KeyRing;
use anyhow::Context;
use domain::ids::DestinationId;
use domain::signature::SigningSecret;
use engine::ports::{
    Backlog, BreakerChange, Catalog, DEFAULT_TENANT, NewDestination, NewSecret, RetryRules,
    SecretStore,
};
use server::config::StoreConfig;
use server::edge::Mint;
use server::receiver::Receiver;
use server::trial::new_secret;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::abilities::Abilities;
use super::client::{Client, Load};
use super::diary::Diary;
use super::fault::Server;
use super::log::{Folder, Run, Tried, boottime_us};
use super::plan::Planned;
use super::processes::Processes;
use super::proxy::Proxy;
use super::servers::PrivateServers;
use super::storm::{self, Scene};
use super::world::{Destination, destinations, shares};
use super::{ledger, receivers};

/// Clients that post at the same time.
const CLIENTS: u64 = 4;

/// How long clients may go on after the storm.
const LAST_POSTS: Duration = Duration::from_secs(60);

/// How often this process looks whether it is late itself.
const HEARTBEAT: Duration = Duration::from_millis(20);

/// Later than this it says when: what arrived meanwhile was seen late.
const LATE: Duration = Duration::from_millis(25);

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
        let store = StoreConfig {
            database_url: servers.url(Server::Postgres)?.parse()?,
            database_connections: 4,
        };
        server::parts::migrate(&store).await?;
        servers.sql(ledger::REMEMBER_UNKNOWN).await?;
        let stored = server::parts::open_to_read(&store).await?;
        let (catalog, backlog) = (stored.catalog, stored.backlog);

        let planned = destinations(self.scale);
        let log = self.folder.appender(Folder::RECEIPTS)?;
        let secrets = server::parts::open_secrets(&store).await?;
        let signed = signed(&planned)?;
        let receiver = receivers::start(&planned, &signed.secrets, log).await?;
        let (tried, receiver_links) = create(
            &planned,
            &signed.new,
            &receiver,
            (&*catalog, &*backlog, &*secrets),
        )
        .await?;
        let program = std::env::current_exe().context("find this program")?;
        let logs = std::path::absolute(&self.folder.0)?;
        let processes = Processes::start(&program, &logs, &servers, &signed.key, &diary).await?;
        let limits = planned.iter().map(|one| one.limits.per_second);
        let scene = Arc::new(Scene {
            servers,
            processes,
            receiver_links,
            destinations: tried.iter().map(|one| one.id).zip(limits).collect(),
            catalog,
            backlog,
            diary,
            turns: [(); 3].map(|()| Mutex::new(())),
            clock_ahead_ms: AtomicI64::new(0),
            replays: AtomicU64::new(0),
        });
        let ended = self.storm(&scene, plan, &planned, &tried).await;
        let scene = Arc::into_inner(scene).context("somebody still holds the scene")?;
        let stopped = scene.processes.stop().await;
        let exported = match ended.as_ref().and(stopped.as_ref()) {
            Ok(()) => {
                let catalog = scene.catalog.as_ref();
                ledger::export(&scene.servers, catalog, &tried, &self.folder).await
            }
            Err(_) => Ok(()),
        };
        receiver.stop().await.context("stop the receivers")?;
        let removed = scene.servers.remove().await;
        ended.and(stopped).and(exported).and(removed)
    }

    async fn storm(
        &self,
        scene: &Arc<Scene>,
        plan: &[Planned],
        planned: &[Destination],
        tried: &[Tried],
    ) -> anyhow::Result<()> {
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let watched = self.watch(scene, &stop);
        let began_us = boottime_us();
        let clients = self.post(scene, planned, tried)?;
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
            destinations: tried.to_vec(),
            planned: plan.len(),
            storm_us: (began_us, boottime_us()),
        };
        let path = self.folder.0.join(Folder::RUN);
        tokio::fs::write(path, serde_json::to_vec_pretty(&run)?).await?;
        let left = ledger::drain(&scene.servers, self.drain, &self.shutdown).await?;
        scene.diary.note(
            "drained",
            "",
            &format!("{left} attempts and dead letters left"),
        )?;
        stop.cancel();
        joined(watched).await
    }

    /// Watches the store's clock, and how late this process is itself.
    fn watch(&self, scene: &Arc<Scene>, stop: &CancellationToken) -> JoinSet<anyhow::Result<()>> {
        let mut watched = JoinSet::new();
        let (watching, folder, stopped) = (Arc::clone(scene), self.folder.clone(), stop.clone());
        watched
            .spawn(async move { ledger::sample_clock(&watching.servers, &folder, stopped).await });
        let (diary, stop) = (Arc::clone(&scene.diary), stop.clone());
        watched.spawn(async move {
            while !stop.is_cancelled() {
                let before = Instant::now();
                sleep(HEARTBEAT).await;
                let late = before.elapsed().saturating_sub(HEARTBEAT);
                if late > LATE {
                    diary.note_lag(i64::try_from(late.as_micros()).unwrap_or(i64::MAX))?;
                }
            }
            Ok(())
        });
        watched
    }

    fn post(
        &self,
        scene: &Scene,
        planned: &[Destination],
        tried: &[Tried],
    ) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let log = Arc::new(self.folder.appender(Folder::CLIENT)?);
        let fronts = scene
            .processes
            .places
            .iter()
            .filter_map(|place| place.front.as_ref());
        let apis: Vec<_> = fronts.map(Proxy::address).collect();
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let client = Client {
                apis: apis.clone(),
                destinations: tried.iter().map(|one| one.id).collect(),
                log: Arc::clone(&log),
            };
            clients.spawn(client.post(Load {
                seed: self.seed,
                shares: shares(planned, self.events),
                length: self.length,
                client: (number, CLIENTS),
            }));
        }
        Ok(clients)
    }
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

/// What the destinations sign with.
struct Signed {
    /// What the processes seal and open with.
    key: Zeroizing<String>,
    /// Each destination's secret.
    secrets: Vec<SigningSecret>,
    /// The same, sealed, with the destination's id.
    new: Vec<NewSecret>,
}

fn signed(planned: &[Destination]) -> anyhow::Result<Signed> {
    let mint = Mint::from_system()?;
    let key = server::secret_keys::new_key(&mint);
    let vault = KeyRing::parse(&key)?;
    let new = planned.iter().map(|_| {
        let id = DestinationId(mint.uuid());
        new_secret(&vault, &mint, id)
    });
    let (secrets, new) = new.unzip();
    Ok(Signed { key, secrets, new })
}

/// Creates the destinations, and the proxies before some of them.
async fn create(
    planned: &[Destination],
    signed: &[NewSecret],
    receiver: &Receiver,
    (catalog, backlog, secrets): (&dyn Catalog, &dyn Backlog, &dyn SecretStore),
) -> anyhow::Result<(Vec<Tried>, Vec<Option<Proxy>>)> {
    let (mut tried, mut links) = (Vec::new(), Vec::new());
    for (number, (one, secret)) in (0_u32..).zip(planned.iter().zip(signed)) {
        let link = match one.proxied {
            true => Some(Proxy::start(receiver.address()).await?),
            false => None,
        };
        let address = link.as_ref().map_or(receiver.address(), Proxy::address);
        let new = NewDestination {
            id: secret.place.destination,
            name: one.name.clone(),
            url: format!("http://{address}/r/{number}"),
            event_types: Vec::new(),
            limits: one.limits,
        };
        let secret = std::slice::from_ref(secret);
        let created = secrets
            .create_destination_with(DEFAULT_TENANT, &new, secret)
            .await?;
        // Links that break would open it, and the judge counts starts: the
        // simulation has breakers.
        let never = BreakerChange {
            failures: Some(Some(0)),
            ..BreakerChange::default()
        };
        (catalog.change_breaker(DEFAULT_TENANT, created.id, &never)).await?;
        if let Some(policy) = one.manners.retries() {
            let rules = RetryRules {
                policy,
                max_age: None,
            };
            (backlog.set_retry_rules(DEFAULT_TENANT, created.id, &rules)).await?;
        }
        tried.push(Tried {
            id: created.id.0,
            name: one.name.clone(),
            proxied: one.proxied,
        });
        links.push(link);
    }
    Ok((tried, links))
}

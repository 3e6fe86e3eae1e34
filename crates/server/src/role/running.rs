//! A process of a role while it runs: the loops that `engine::roles` hands out, and
//! beside them what the program itself does.
//!
//! Shutdown goes with the stream: readiness turns false, the API finishes its
//! requests, ingest commits what they handed in; meanwhile the scheduler stops
//! taking and the worker drains, all within the grace period.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::ports::{NoVault, Vault};
use engine::roles::{self, Entrance, LoopKind, Role};
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::config::RoleConfig;
use super::listeners::{Listeners, MetricsAt};
use super::loops::Loops;
use super::ready::Ready;
use crate::config::ManageConfig;
use crate::edge::{self, Mint};
use crate::front::{self, Front, FrontOptions};
use crate::health::{self, Audience, Health};
use crate::listening::{Listening, Tls};
use crate::managed::{self, ManagedDestinations};
use crate::pages::Pages;
use crate::parts::Parts;
use crate::portal::Portal;
use crate::traces::Tracing;
use crate::{welcome, work};

/// How long probes that are kept open may hold up the end of the process.
const PROBES_END: Duration = Duration::from_millis(500);

/// A process whose loops run. Dropping it is a crash.
pub struct Running {
    role: Role,
    config: RoleConfig,
    /// Where it listens, and how.
    address: SocketAddr,
    scheme: &'static str,
    /// Where events come in, in a role that takes them.
    pub entrance: Option<Entrance>,
    /// The dashboard, for whoever makes links to it.
    pub pages: Option<Pages>,
    loops: Loops,
    probes: Probes,
    tracing: Option<Tracing>,
    shutdown: CancellationToken,
}

/// What answers probes and metrics until all else has drained.
struct Probes {
    serving: JoinSet<()>,
    drained: CancellationToken,
}

impl Ready {
    /// Starts it: from now on it listens, until `shutdown`.
    pub fn start(
        mut self,
        listeners: Listeners,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Running> {
        let address = listeners.main.local_addr();
        let address = address.context("read the listener's address")?;
        let mut loops = Loops::new();
        let traces = self.tracing.as_mut();
        if let Some(admissions) = traces.and_then(|traces| traces.admissions.take()) {
            loops.spawn("traces", admissions.run(shutdown.clone()));
        }
        let starting = Starting {
            health: Health::new(self.role, &self.parts, self.metrics, shutdown.clone()),
            role: self.role,
            config: &self.config,
            parts: &self.parts,
            vault: self.vault,
            mint: Arc::new(self.mint),
            shutdown: shutdown.clone(),
        };
        // Ingest ends when the API has, and there is nobody left to hand anything in.
        let served = match &self.key {
            Some(_) => CancellationToken::new(),
            None => shutdown.clone(),
        };
        let entrance = starting.engine(&mut loops, &served);
        starting.follow_store(&mut loops);
        if let Some(cluster) = &self.cluster {
            starting.operate(&mut loops, cluster);
        }
        let mut probes = Probes {
            serving: JoinSet::new(),
            drained: CancellationToken::new(),
        };
        let at = match &listeners.metrics {
            Some(_) => MetricsAt::Apart,
            None => MetricsAt::Main,
        };
        if let Some(listener) = listeners.metrics {
            probes.spawn(starting.probes(listener, at, MetricsAt::Apart));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut pages = None;
        match (self.key, entrance.clone()) {
            (Some(key), Some(entrance)) => {
                let api = Api {
                    listener: listeners.main,
                    tls: self.tls,
                    portal: self.portal,
                    metrics: at,
                    key,
                    served,
                };
                pages = Some(starting.serve_api(&mut loops, api, entrance));
            }
            _ => probes.spawn(starting.probes(listeners.main, at, MetricsAt::Main)),
        }
        let upkeep = health::upkeep(starting.health.clone(), shutdown.clone());
        loops.spawn("metrics", upkeep);
        tracing::info!(role = self.role.as_str(), %address, "started");
        Ok(Running {
            role: self.role,
            address,
            scheme,
            entrance,
            pages,
            loops,
            probes,
            tracing: self.tracing,
            shutdown,
            config: self.config,
        })
    }
}

impl Running {
    /// Tells whoever started `serve` on this machine where the pages are.
    pub async fn welcome(&self) -> anyhow::Result<()> {
        if let (Role::Serve, Some(pages)) = (self.role, &self.pages)
            && self.address.ip().is_loopback()
        {
            let at = (self.scheme, self.address);
            welcome::say(pages, at, &self.config.store).await?;
        }
        Ok(())
    }

    /// Waits until it is told to stop, or a loop breaks, and then until all of it has
    /// drained.
    pub async fn ended(self) -> anyhow::Result<ExitCode> {
        let grace = self.config.shutdown.shutdown_grace;
        let ended = self.loops.join(&self.shutdown, grace).await;
        self.probes.end().await;
        if let Some(tracing) = self.tracing {
            tracing.end().await;
        }
        ended
    }
}

impl Probes {
    fn spawn(&mut self, listening: Listening) {
        self.serving.spawn(listening.serve(self.drained.clone()));
    }

    async fn end(self) {
        self.drained.cancel();
        // A probe that is kept open must not keep the process.
        let _ = tokio::time::timeout(PROBES_END, self.serving.join_all()).await;
    }
}

/// Where the API is served, and what it needs for that.
struct Api {
    listener: TcpListener,
    tls: Option<Tls>,
    portal: Portal,
    metrics: MetricsAt,
    key: SecretString,
    /// Told when the last request is answered.
    served: CancellationToken,
}

/// A process that is being started.
struct Starting<'a> {
    role: Role,
    config: &'a RoleConfig,
    parts: &'a Parts,
    vault: Option<Arc<dyn Vault>>,
    mint: Arc<Mint>,
    health: Health,
    shutdown: CancellationToken,
}

impl Starting<'_> {
    /// Returns where events come in, in a role that takes them.
    fn engine(&self, loops: &mut Loops, served: &CancellationToken) -> Option<Entrance> {
        let ports = self.parts.engine(self.vault.clone());
        let settings = self.config.settings(self.role, &self.mint);
        let assembly = roles::assemble(self.role, &ports, settings);
        for one in assembly.loops {
            let ends = match one.kind() {
                LoopKind::Ingest => served.clone(),
                _ => self.shutdown.clone(),
            };
            loops.spawn(one.kind().as_str(), one.run(ends));
        }
        assembly.entrance
    }

    fn vault(&self) -> Arc<dyn Vault> {
        self.vault.clone().unwrap_or_else(|| Arc::new(NoVault))
    }

    fn follow_store(&self, loops: &mut Loops) {
        let (dated, by) = (Arc::clone(&self.mint), Arc::clone(&self.parts.store));
        loops.spawn(
            "clock",
            edge::follow_store(dated, by, self.shutdown.clone()),
        );
    }

    /// Only the replica that holds the Lease acts. It takes no events in.
    fn operate(&self, loops: &mut Loops, cluster: &operator::Cluster) {
        let Some(config) = &self.config.operator else {
            return;
        };
        let closed = Entrance::closed(&self.parts.engine(None));
        let intake = front::intake(self.parts, self.config.ingest, closed);
        let (mint, vault) = (Arc::clone(&self.mint), self.vault());
        let service = front::service(self.parts, intake, mint, &self.config.target, vault);
        let options = managed::options(config, cluster, &self.mint);
        let destinations = Arc::new(ManagedDestinations::new(service));
        let (client, shutdown) = (cluster.client.clone(), self.shutdown.clone());
        loops.spawn(
            "operator",
            operator::run(client, destinations, options, shutdown),
        );
    }

    /// What orchestrators ask of a listener that does not serve the API, and
    /// metrics if they are served here.
    fn probes(&self, listener: TcpListener, metrics: MetricsAt, here: MetricsAt) -> Listening {
        let mut router = health::router(self.health.shown_to(Audience::Operators));
        if self.role.has(LoopKind::Scheduler) {
            router = router.merge(work::router(Arc::clone(&self.parts.store)));
        }
        if metrics == here {
            router = router.merge(health::metrics_router(self.health.clone()));
        }
        Listening {
            listener,
            router,
            bounds: self.config.listen.bounds(),
            tls: None,
        }
    }

    /// Returns the pages, for whoever makes links to them.
    fn serve_api(&self, loops: &mut Loops, api: Api, entrance: Entrance) -> Pages {
        let manage =
            (self.config.api.as_ref()).map_or_else(ManageConfig::default, |api| api.manage);
        let options = FrontOptions {
            key: &api.key,
            manage: manage.rates(),
            public_url: self.config.links.public_url.clone(),
            portal: api.portal,
            vault: self.vault(),
            intake: front::intake(self.parts, self.config.ingest, entrance),
            target: &self.config.target,
            shutdown: self.shutdown.clone(),
        };
        let front = Front::new(self.parts, Arc::clone(&self.mint), options);
        let uses = front.gate.note_uses(self.shutdown.clone());
        loops.spawn("uses of keys", uses);
        let health = self.health.shown_to(Audience::Everybody);
        let mut router = front.router.merge(health::router(health));
        if api.metrics == MetricsAt::Main {
            router = router.merge(health::metrics_router(self.health.clone()));
        }
        let listening = Listening {
            listener: api.listener,
            router,
            bounds: self.config.listen.bounds(),
            tls: api.tls.as_ref().map(Tls::acceptor),
        };
        if let Some(tls) = api.tls {
            loops.spawn("certificate", tls.renew(self.shutdown.clone()));
        }
        let serving = listening.serve(self.shutdown.clone());
        loops.spawn("api", async move {
            // Also if it panics: ingest must not wait for it for ever.
            let _served = api.served.drop_guard();
            serving.await;
        });
        front.pages
    }
}

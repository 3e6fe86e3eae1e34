//! Which loops run in which role.
//!
//! | loop | serve | api | scheduler | worker | operator |
//! |---|---|---|---|---|---|
//! | API, ingest and backpressure | ✓ | ✓ | | | |
//! | scheduler, reaper, sweep, replay, retention | ✓ | | ✓ | | |
//! | notifier, survey, tally | ✓ | | ✓ | | |
//! | relay, where there is an outbox | ✓ | ✓ | ✓ | | |
//! | worker | ✓ | | | ✓ | |
//! | resealing | ✓ | ✓ | | | |
//! | resources of Kubernetes | | | | | ✓ |
//! | `/livez`, `/readyz`, `/metrics` | ✓ | ✓ | ✓ | ✓ | ✓ |
//! | `/work` | | | ✓ | | |
//!
//! Every instance of a role runs all of its loops; none needs a leader, but for
//! the operator, of which one acts.
//!
//! Shutdown goes with the stream: readiness turns false, the API finishes its
//! requests, ingest commits what they handed in; meanwhile the scheduler stops
//! taking and the worker drains, all within the grace period.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use domain::backpressure::BacklogBounds;
use engine::backpressure::Pressure;
use engine::ingest::IngestLoop;
use engine::notifier::{Notifier, NotifierOptions};
use engine::ports::{NoVault, RetainRules, Vault};
use engine::reaper::{Reaper, ReaperOptions};
use engine::relay::{Relay, RelayOptions};
use engine::replay::{ReplayLoop, ReplayOptions};
use engine::resealing::Resealing;
use engine::retention::{RetentionLoop, RetentionOptions};
use engine::scheduler::{Scheduler, SchedulerOptions};
use engine::survey::{SurveyLoop, SurveyOptions};
use engine::sweep::{SweepLoop, SweepOptions};
use engine::tally::{TallyLoop, TallyOptions};
use engine::traced::Admissions;
use engine::worker::{Worker, WorkerOptions};
use operator::Cluster;
use rand::SeedableRng;
use rand::rngs::StdRng;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api_key;
use crate::config::{
    ApiConfig, IngestConfig, KeepConfig, ListenConfig, MANAGE_PER_SECOND, OperatorConfig,
    QueueConfig, RequestConfig, ScheduleConfig, SecretKeysConfig, ShownConfig, ShutdownConfig,
    StoreConfig, TargetConfig, TlsConfig, TracesConfig, WorkerConfig, require_shared,
};
use crate::edge::{self, Mint};
use crate::exported;
use crate::front::{self, Front, FrontOptions};
use crate::health::{self, Audience, Health};
use crate::listening::{Listening, Tls};
use crate::managed::{self, ManagedDestinations};
use crate::pages::Pages;
use crate::parts::Parts;
use crate::secret_keys;
use crate::traces::Tracing;
use crate::{signals, welcome, work};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Serve,
    /// Takes events in.
    Api,
    /// Takes, admits, publishes, finishes; repairs.
    Scheduler,
    /// Delivers.
    Worker,
    /// Makes destinations what resources of Kubernetes say.
    Operator,
}

impl Role {
    /// The word, as on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Api => "api",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Operator => "operator",
        }
    }

    /// The schedulers of one process. A run waits for the store nearly all of its
    /// time, and whoever is woken during it waits for its end. Two share the work as
    /// two processes would: one takes what comes while the other waits. Embedded, the
    /// store takes one writer at a time.
    fn schedulers(self) -> Vec<SchedulerOptions> {
        let one = SchedulerOptions::default();
        // Idle, one of them looks at the schedule often enough.
        let idle = Duration::from_secs(2);
        match self {
            Self::Scheduler => vec![one, SchedulerOptions { idle, ..one }],
            Self::Serve => vec![one],
            Self::Api | Self::Worker | Self::Operator => Vec::new(),
        }
    }

    fn schedules(self) -> bool {
        !self.schedulers().is_empty()
    }
}

/// What a role is started with.
#[derive(Debug, Clone)]
pub struct RoleConfig {
    pub store: StoreConfig,
    pub schedule: ScheduleConfig,
    /// `None` for a role without permits.
    pub queue: Option<QueueConfig>,
    pub listen: ListenConfig,
    /// `None` for a role without the API.
    pub api: Option<ApiConfig>,
    /// The same.
    pub tls: Option<TlsConfig>,
    /// `None` for a role that takes no events in.
    pub ingest: Option<IngestConfig>,
    /// `None` for a role that neither makes secrets nor signs.
    pub secret_keys: Option<SecretKeysConfig>,
    pub target: TargetConfig,
    /// `None` for a role without a worker.
    pub worker: Option<WorkerConfig>,
    pub request: RequestConfig,
    /// `None` for a role that does not schedule.
    pub keep: Option<KeepConfig>,
    /// The same.
    pub shown: Option<ShownConfig>,
    /// `None` for a role without resources of Kubernetes.
    pub operator: Option<OperatorConfig>,
    /// `None` for a role that no event passes through.
    pub traces: Option<TracesConfig>,
    pub shutdown: ShutdownConfig,
}

/// How much of the grace period is kept for recording the last outcomes.
const RECORDING: Duration = Duration::from_secs(2);

/// Runs a role until it is told to stop.
pub async fn run(role: Role, config: RoleConfig) -> anyhow::Result<ExitCode> {
    run_with(role, config, |parts| parts).await
}

/// Runs a role whose parts are wrapped first: by tests that watch the ports,
/// or break at them.
pub async fn run_with(
    role: Role,
    config: RoleConfig,
    wrap: impl FnOnce(Parts) -> Parts,
) -> anyhow::Result<ExitCode> {
    if role != Role::Serve {
        let queue = config.queue.as_ref();
        require_shared(role.as_str(), &config.store, &config.schedule, queue)?;
    }
    // Before anything is dialled: what is refused is refused at once.
    let mint = Mint::from_system()?;
    let key = match &config.api {
        Some(api) => Some(api_key::resolve(
            role,
            api,
            &config.listen,
            &config.store,
            &mint,
        )?),
        None => None,
    };
    let tls = match &config.tls {
        Some(tls) => Tls::load(tls)?,
        None => None,
    };
    let ring = match &config.secret_keys {
        Some(keys) => Some(secret_keys::resolve(
            role == Role::Serve,
            keys,
            &config.store,
            &mint,
        )?),
        None => None,
    };
    let cluster = match &config.operator {
        Some(_) => Some(managed::connect().await?),
        None => None,
    };
    let metrics = health::install_metrics()?;
    exported::describe(role);
    let mut parts = wrap(connect(&config).await?);
    let mut tracing = Tracing::wrap(config.traces.as_ref(), role.as_str(), &mut parts)?;
    let admissions = tracing
        .as_mut()
        .and_then(|tracing| tracing.admissions.take());
    if let Err(error) = parts.catalog.ready().await {
        // Not fatal: it may be migrated, or come back, while we are not ready.
        tracing::error!(%error, "the store is not ready for this binary");
    }
    if let Some(ring) = &ring {
        secret_keys::check(ring, parts.secrets.as_ref()).await?;
    }
    let listeners = Listeners::bind(&config.listen, tls).await?;
    signals::until_stopped(|shutdown| async move {
        let running = Running {
            role,
            health: Health::new(role, &parts, metrics, shutdown.clone()),
            config,
            parts,
            vault: ring.map(|ring| Arc::new(ring) as Arc<dyn Vault>),
            cluster,
            admissions,
            shutdown,
        };
        let ended = running.run(listeners, key, mint).await;
        if let Some(tracing) = tracing {
            tracing.end().await;
        }
        ended
    })
    .await
}

/// Dials everything; where people read, with connections of their own for it.
async fn connect(config: &RoleConfig) -> anyhow::Result<Parts> {
    let (schedule, queue) = (&config.schedule, config.queue.as_ref());
    if config.api.is_none() {
        return Parts::connect(&config.store, schedule, queue, &config.target).await;
    }
    let [store, reading] = config.store.divided();
    let parts = Parts::connect(&store, schedule, queue, &config.target).await?;
    parts.read_apart(&reading).await
}

/// What this process listens on.
struct Listeners {
    /// The API, or what a role without it answers.
    main: TcpListener,
    /// The API's certificate.
    tls: Option<Tls>,
    /// Metrics, where they are not to be had on the first one.
    metrics: Option<TcpListener>,
}

/// Where the API is served.
struct ApiListener {
    listener: TcpListener,
    tls: Option<Tls>,
    metrics: MetricsAt,
}

/// Where `/metrics` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricsAt {
    /// Beside all else.
    Main,
    /// At an address of its own.
    Apart,
}

impl Listeners {
    async fn bind(config: &ListenConfig, tls: Option<Tls>) -> anyhow::Result<Self> {
        let bind = async |address, variable| {
            let bound = TcpListener::bind(address).await;
            bound.with_context(|| format!("listen on {address} ({variable})"))
        };
        Ok(Self {
            main: bind(config.listen, "PACELINE_LISTEN").await?,
            tls,
            metrics: match config.metrics_listen {
                Some(address) => Some(bind(address, "PACELINE_METRICS_LISTEN").await?),
                None => None,
            },
        })
    }
}

struct Running {
    role: Role,
    config: RoleConfig,
    parts: Parts,
    vault: Option<Arc<dyn Vault>>,
    cluster: Option<Cluster>,
    /// Where traces are recorded.
    admissions: Option<Admissions>,
    health: Health,
    shutdown: CancellationToken,
}

impl Running {
    async fn run(
        mut self,
        listeners: Listeners,
        key: Option<SecretString>,
        mint: Mint,
    ) -> anyhow::Result<ExitCode> {
        let Listeners { main, tls, metrics } = listeners;
        let address = main.local_addr().context("read the listener's address")?;
        let mut loops = Loops::new();
        if let Some(admissions) = self.admissions.take() {
            loops.spawn("traces", admissions.run(self.shutdown.clone()));
        }
        let seed = u64::from_le_bytes(mint.bytes());
        self.spawn_engine(&mut loops, seed);
        self.spawn_relay(&mut loops);
        self.spawn_resealing(&mut loops, &mint);
        let mint = Arc::new(mint);
        let (dated, by) = (Arc::clone(&mint), Arc::clone(&self.parts.store));
        loops.spawn(
            "clock",
            edge::follow_store(dated, by, self.shutdown.clone()),
        );
        self.spawn_operator(&mut loops, &mint);
        // Probes and metrics are answered until all else has drained.
        let drained = CancellationToken::new();
        let mut probes = JoinSet::new();
        let mut metrics_at = MetricsAt::Main;
        if let Some(listener) = metrics {
            metrics_at = MetricsAt::Apart;
            let listening = self.probes(listener, metrics_at, MetricsAt::Apart);
            probes.spawn(listening.serve(drained.clone()));
        }
        match key {
            Some(key) => {
                let api = ApiListener {
                    listener: main,
                    tls,
                    metrics: metrics_at,
                };
                let scheme = if api.tls.is_some() { "https" } else { "http" };
                let pages = self.spawn_api(&mut loops, api, &key, mint);
                if self.role == Role::Serve && address.ip().is_loopback() {
                    welcome::say(&pages, (scheme, address), &self.config.store).await?;
                }
            }
            None => {
                let listening = self.probes(main, metrics_at, MetricsAt::Main);
                probes.spawn(listening.serve(drained.clone()));
            }
        }
        loops.spawn(
            "metrics",
            health::upkeep(self.health.clone(), self.shutdown.clone()),
        );
        tracing::info!(role = self.role.as_str(), %address, "started");
        let grace = self.config.shutdown.shutdown_grace;
        let ended = loops.join(&self.shutdown, grace).await;
        drained.cancel();
        // A probe that is kept open must not keep the process.
        let _ = tokio::time::timeout(Duration::from_millis(500), probes.join_all()).await;
        ended
    }

    /// What orchestrators ask of a listener that does not serve the API, and
    /// metrics if they are served here.
    fn probes(&self, listener: TcpListener, metrics: MetricsAt, here: MetricsAt) -> Listening {
        let mut router = health::router(self.health.shown_to(Audience::Operators));
        if self.role.schedules() {
            router = router.merge(work::router(Arc::clone(&self.parts.store)));
        }
        if metrics == here {
            router = router.merge(self.metrics());
        }
        Listening {
            listener,
            router,
            bounds: self.config.listen.bounds(),
            tls: None,
        }
    }

    fn metrics(&self) -> axum::Router {
        health::metrics_router(self.health.clone())
    }

    fn spawn_engine(&self, loops: &mut Loops, seed: u64) {
        let Some(queue) = &self.parts.queue else {
            return;
        };
        let (store, schedule) = (&self.parts.store, &self.parts.schedule);
        let parts = || (Arc::clone(store), Arc::clone(schedule));
        let request_timeout = self.config.request.request_timeout;
        if self.role.schedules() {
            let scheduler = |options| {
                let (store, schedule) = parts();
                Scheduler::new(store, schedule, Arc::clone(queue), options)
                    .counting_suspends(edge::suspended)
            };
            let mut schedulers: Vec<Scheduler> = Vec::new();
            for options in self.role.schedulers() {
                let one = scheduler(options);
                schedulers.push(match schedulers.first() {
                    Some(first) => one.beside(first),
                    None => one,
                });
            }
            for scheduler in schedulers {
                loops.spawn("scheduler", scheduler.run(self.shutdown.clone()));
            }

            let (store, schedule) = parts();
            let options = ReaperOptions {
                start_timeout: request_timeout + Duration::from_secs(10),
                ..ReaperOptions::default()
            };
            let reaper = Reaper::new(store, schedule, options);
            loops.spawn("reaper", reaper.run(self.shutdown.clone()));

            let (store, schedule) = parts();
            let sweep = SweepLoop::new(store, schedule, SweepOptions::default());
            loops.spawn("sweep", sweep.run(self.shutdown.clone()));

            let (_, schedule) = parts();
            let replays = Arc::clone(&self.parts.replays);
            let replay = ReplayLoop::new(replays, schedule, ReplayOptions::default());
            loops.spawn("replay", replay.run(self.shutdown.clone()));

            self.spawn_retention(loops);
            self.spawn_survey(loops);

            let (_, schedule) = parts();
            let operations = Arc::clone(&self.parts.operations);
            let notifier = Notifier::new(operations, schedule, NotifierOptions::default());
            loops.spawn("notifier", notifier.run(self.shutdown.clone()));

            let tallies = Arc::clone(&self.parts.tallies);
            let tally = TallyLoop::new(tallies, TallyOptions::default());
            loops.spawn("tally", tally.run(self.shutdown.clone()));
        }
        if let Some(worker) = self.config.worker {
            let (store, schedule) = parts();
            let options = WorkerOptions {
                places: worker.worker_places,
                request_timeout,
                grace: self
                    .config
                    .shutdown
                    .shutdown_grace
                    .saturating_sub(RECORDING),
                seed,
            };
            let sender = Arc::clone(&self.parts.sender);
            let mut worker = Worker::new(store, schedule, Arc::clone(queue), sender, options)
                .counting_suspends(edge::suspended);
            if let Some(vault) = &self.vault {
                worker = worker.opening_with(Arc::clone(vault));
            }
            loops.spawn("worker", worker.run(self.shutdown.clone()));
        }
    }

    fn spawn_retention(&self, loops: &mut Loops) {
        let keep = self.config.keep.map(|keep| keep.retention());
        let options = RetentionOptions {
            rules: RetainRules {
                keep: keep.unwrap_or_default(),
                ..RetainRules::default()
            },
            ..RetentionOptions::default()
        };
        let retention = RetentionLoop::new(Arc::clone(&self.parts.retain), options);
        loops.spawn("retention", retention.run(self.shutdown.clone()));
    }

    fn spawn_survey(&self, loops: &mut Loops) {
        let shown = self.config.shown.as_ref();
        let survey = SurveyLoop::new(
            Arc::clone(&self.parts.survey),
            Arc::clone(&self.parts.store),
            Arc::clone(&self.parts.catalog),
            shown.map_or_else(SurveyOptions::default, ShownConfig::options),
        )
        .with_outcomes(Arc::clone(&self.parts.tallies));
        loops.spawn("survey", survey.run(self.shutdown.clone()));
    }

    /// Where secrets are made: there are few of these processes, and they have
    /// the time.
    fn spawn_resealing(&self, loops: &mut Loops, mint: &Mint) {
        if let (Some(vault), Some(_)) = (&self.vault, &self.config.api) {
            let secrets = Arc::clone(&self.parts.secrets);
            let rng = StdRng::from_seed(mint.bytes());
            let resealing = Resealing::new(secrets, Arc::clone(vault), rng);
            loops.spawn("resealing", resealing.run(self.shutdown.clone()));
        }
    }

    fn spawn_relay(&self, loops: &mut Loops) {
        let outbox = self.parts.outbox.as_ref();
        if let Some(outbox) = outbox.filter(|_| !matches!(self.role, Role::Worker | Role::Operator))
        {
            let (outbox, schedule) = (Arc::clone(outbox), Arc::clone(&self.parts.schedule));
            let relay = Relay::new(outbox, schedule, RelayOptions::default());
            loops.spawn("relay", relay.run(self.shutdown.clone()));
        }
    }

    /// One of several acts; the others wait for its Lease.
    fn spawn_operator(&self, loops: &mut Loops, mint: &Arc<Mint>) {
        let (Some(cluster), Some(config)) = (&self.cluster, &self.config.operator) else {
            return;
        };
        // It takes no events in.
        let pressure = Arc::new(Pressure::new(BacklogBounds::default()));
        let (intake, _) = front::intake(&self.parts, self.config.ingest, pressure);
        let (target, vault) = (&self.config.target, self.vault());
        let service = front::service(&self.parts, intake, Arc::clone(mint), target, vault);
        let options = managed::options(config, cluster, mint);
        let destinations = Arc::new(ManagedDestinations::new(service));
        let client = cluster.client.clone();
        let shutdown = self.shutdown.clone();
        loops.spawn(
            "operator",
            operator::run(client, destinations, options, shutdown),
        );
    }

    fn vault(&self) -> Arc<dyn Vault> {
        self.vault.clone().unwrap_or_else(|| Arc::new(NoVault))
    }

    /// Returns the pages, for whoever makes links to them.
    fn spawn_api(
        &self,
        loops: &mut Loops,
        at: ApiListener,
        key: &SecretString,
        mint: Arc<Mint>,
    ) -> Pages {
        let manage = self.config.api.as_ref();
        let options = FrontOptions {
            key,
            manage_per_second: manage.map_or(MANAGE_PER_SECOND, |api| api.manage_per_second),
            public_url: manage.and_then(|api| api.public_url.clone()),
            vault: self.vault(),
            ingest: self.config.ingest,
            target: &self.config.target,
            shutdown: self.shutdown.clone(),
        };
        let front = Front::new(&self.parts, mint, options);
        loops.spawn("backpressure", front.counting.run(self.shutdown.clone()));
        let uses = front.gate.note_uses(self.shutdown.clone());
        loops.spawn("uses of keys", uses);
        let health = self.health.shown_to(Audience::Everybody);
        let mut router = front.router.merge(health::router(health));
        if at.metrics == MetricsAt::Main {
            router = router.merge(self.metrics());
        }
        let listening = Listening {
            listener: at.listener,
            router,
            bounds: self.config.listen.bounds(),
            tls: at.tls.as_ref().map(Tls::acceptor),
        };
        if let Some(tls) = at.tls {
            loops.spawn("certificate", tls.renew(self.shutdown.clone()));
        }
        loops.spawn(
            "api",
            serve_api(listening.serve(self.shutdown.clone()), front.back),
        );
        front.pages
    }
}

/// The API, and behind it ingest: it stops when there is nobody left to hand
/// anything in.
async fn serve_api(listening: impl Future<Output = ()>, ingest: IngestLoop) {
    let served = CancellationToken::new();
    let http = async {
        listening.await;
        served.cancel();
    };
    tokio::join!(http, ingest.run(served.clone()));
}

/// The running loops, by name.
struct Loops(JoinSet<&'static str>);

impl Loops {
    fn new() -> Self {
        Self(JoinSet::new())
    }

    fn spawn(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(async move {
            run.await;
            name
        });
    }

    /// Waits until all have ended. A loop that ends by itself, or panics, takes
    /// the process down in order: half a role would look alive and do nothing.
    async fn join(
        mut self,
        shutdown: &CancellationToken,
        grace: Duration,
    ) -> anyhow::Result<ExitCode> {
        let mut broken = false;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            ended = self.0.join_next() => {
                broken = true;
                match ended {
                    Some(Ok(name)) => tracing::error!(name, "a loop ended by itself; draining"),
                    Some(Err(error)) => tracing::error!(%error, "a loop broke; draining"),
                    None => {}
                }
                shutdown.cancel();
            }
        }
        let drain = async {
            while let Some(ended) = self.0.join_next().await {
                if let Err(error) = ended {
                    broken = true;
                    tracing::error!(%error, "a loop broke while draining");
                }
            }
        };
        let drained = tokio::time::timeout(grace, drain).await.is_ok();
        if !drained {
            tracing::warn!("not drained within PACELINE_SHUTDOWN_GRACE; the rest is reaped later");
        }
        if broken || !drained {
            return Ok(ExitCode::FAILURE);
        }
        tracing::info!("drained");
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One alone is held up by each of its runs.
    #[test]
    fn who_schedules_over_servers_has_a_second_one_that_is_seldom_awake() {
        let [one, second] = Role::Scheduler.schedulers()[..] else {
            panic!("not two");
        };
        assert_eq!(one.idle, SchedulerOptions::default().idle);
        assert!(second.idle >= one.idle * 4, "idle it costs next to nothing");
        assert_eq!(Role::Serve.schedulers().len(), 1);
        for role in [Role::Serve, Role::Scheduler] {
            assert!(role.schedules(), "{role:?}");
        }
        for role in [Role::Api, Role::Worker, Role::Operator] {
            assert!(!role.schedules(), "{role:?}");
        }
    }
}

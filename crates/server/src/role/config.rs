//! What a role is started with, and how that makes its loops run.

use std::time::Duration;

use engine::notices::NoticesOptions;
use engine::ports::RetainRules;
use engine::retention::RetentionOptions;
use engine::roles::{Role, Settings};
use engine::survey::SurveyOptions;
use engine::worker::WorkerOptions;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::config::{
    ApiConfig, IngestConfig, KeepConfig, LinksConfig, ListenConfig, MailConfig, OperatorConfig,
    PortalConfig, QueueConfig, RequestConfig, ScheduleConfig, SecretKeysConfig, ShardConfig,
    ShownConfig, ShutdownConfig, StoreConfig, TargetConfig, TlsConfig, TracesConfig, WorkerConfig,
};
use crate::edge::{self, Mint};

/// How much of the grace period is kept for recording the last outcomes.
const RECORDING: Duration = Duration::from_secs(2);

/// What a role is started with.
#[derive(Debug, Clone)]
pub struct RoleConfig {
    pub store: StoreConfig,
    pub schedule: ScheduleConfig,
    /// `None` for a role without permits.
    pub queue: Option<QueueConfig>,
    /// Which of several shards it is of.
    pub shard: ShardConfig,
    pub listen: ListenConfig,
    /// `None` for a role without the API.
    pub api: Option<ApiConfig>,
    /// The same.
    pub tls: Option<TlsConfig>,
    /// The same.
    pub portal: Option<PortalConfig>,
    /// `None` for a role that takes no events in.
    pub ingest: Option<IngestConfig>,
    /// `None` for a role that neither makes secrets nor signs.
    pub secret_keys: Option<SecretKeysConfig>,
    /// What links to the pages begin with.
    pub links: LinksConfig,
    /// `None` for a role that tells nobody.
    pub mail: Option<MailConfig>,
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

impl RoleConfig {
    /// With names of its shard's own for the schedule and the queue, which several shards
    /// may have in one Redis and one RabbitMQ.
    pub(super) fn in_its_shard(self) -> Self {
        Self {
            schedule: self.shard.schedule(self.schedule),
            queue: self.queue.map(|queue| self.shard.queue(queue)),
            ..self
        }
    }

    /// How the loops run; a role without one of these settings has no loop that goes by
    /// it.
    pub(super) fn settings(&self, role: Role, mint: &Mint) -> Settings {
        let by_default = WorkerOptions::default();
        let keep = self.keep.map(|keep| keep.retention()).unwrap_or_default();
        let shown = self.shown.as_ref();
        let bounds = self.ingest.map(|ingest| ingest.bounds());
        Settings {
            bounds: bounds.unwrap_or_default(),
            schedulers: role.schedulers(),
            retention: RetentionOptions {
                rules: RetainRules {
                    keep,
                    ..RetainRules::default()
                },
                ..RetentionOptions::default()
            },
            survey: shown.map_or_else(SurveyOptions::default, ShownConfig::options),
            worker: WorkerOptions {
                places: (self.worker).map_or(by_default.places, |worker| worker.worker_places),
                request_timeout: self.request.request_timeout,
                grace: self.shutdown.shutdown_grace.saturating_sub(RECORDING),
                seed: u64::from_le_bytes(mint.bytes()),
            },
            notices: NoticesOptions {
                pages: (self.links.public_url.as_ref()).map(ToString::to_string),
                ..NoticesOptions::default()
            },
            sealing: StdRng::from_seed(mint.bytes()),
            suspended: edge::suspended,
        }
    }
}

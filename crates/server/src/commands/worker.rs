//! `paceline worker`: claims starts and sends.

use std::process::ExitCode;

use engine::roles::Role;

use crate::config::{
    LinksConfig, ListenConfig, MailConfig, QueueConfig, RequestConfig, ScheduleConfig,
    SecretKeysConfig, ShardConfig, ShutdownConfig, StoreConfig, TargetConfig, TracesConfig,
    WorkerConfig,
};
use crate::role::{self, RoleConfig};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub store: StoreConfig,
    #[command(flatten)]
    pub schedule: ScheduleConfig,
    #[command(flatten)]
    pub queue: QueueConfig,
    #[command(flatten)]
    pub shard: ShardConfig,
    #[command(flatten)]
    pub listen: ListenConfig,
    #[command(flatten)]
    pub secret_keys: SecretKeysConfig,
    #[command(flatten)]
    pub links: LinksConfig,
    #[command(flatten)]
    pub mail: MailConfig,
    #[command(flatten)]
    pub target: TargetConfig,
    #[command(flatten)]
    pub worker: WorkerConfig,
    #[command(flatten)]
    pub request: RequestConfig,
    #[command(flatten)]
    pub traces: TracesConfig,
    #[command(flatten)]
    pub shutdown: ShutdownConfig,
}

impl From<Args> for RoleConfig {
    fn from(args: Args) -> Self {
        Self {
            store: args.store,
            schedule: args.schedule,
            queue: Some(args.queue),
            shard: args.shard,
            listen: args.listen,
            api: None,
            portal: None,
            tls: None,
            ingest: None,
            links: args.links,
            mail: Some(args.mail),
            secret_keys: Some(args.secret_keys),
            target: args.target,
            worker: Some(args.worker),
            request: args.request,
            keep: None,
            shown: None,
            operator: None,
            traces: Some(args.traces),
            shutdown: args.shutdown,
        }
    }
}

/// Runs the role until it is told to stop.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    role::run(Role::Worker, args.into()).await
}

//! `paceline scheduler`: decides what may start when, and repairs.

use std::process::ExitCode;

use engine::roles::Role;

use crate::config::{
    KeepConfig, ListenConfig, QueueConfig, RequestConfig, ScheduleConfig, ShardConfig, ShownConfig,
    ShutdownConfig, StoreConfig, TargetConfig, TracesConfig,
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
    pub request: RequestConfig,
    #[command(flatten)]
    pub keep: KeepConfig,
    #[command(flatten)]
    pub shown: ShownConfig,
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
            links: crate::config::LinksConfig::default(),
            mail: None,
            secret_keys: None,
            target: TargetConfig::default(),
            worker: None,
            request: args.request,
            keep: Some(args.keep),
            shown: Some(args.shown),
            operator: None,
            traces: Some(args.traces),
            shutdown: args.shutdown,
        }
    }
}

/// Runs the role until it is told to stop.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    role::run(Role::Scheduler, args.into()).await
}

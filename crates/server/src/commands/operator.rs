//! `paceline operator`: on Kubernetes, makes destinations what resources say.

use std::process::ExitCode;

use engine::roles::Role;

use crate::config::{
    ListenConfig, OperatorConfig, RequestConfig, ScheduleConfig, SecretKeysConfig, ShardConfig,
    ShutdownConfig, StoreConfig, TargetConfig,
};
use crate::role::{self, RoleConfig};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub store: StoreConfig,
    #[command(flatten)]
    pub schedule: ScheduleConfig,
    #[command(flatten)]
    pub shard: ShardConfig,
    #[command(flatten)]
    pub listen: ListenConfig,
    #[command(flatten)]
    pub operator: OperatorConfig,
    #[command(flatten)]
    pub secret_keys: SecretKeysConfig,
    #[command(flatten)]
    pub target: TargetConfig,
    #[command(flatten)]
    pub shutdown: ShutdownConfig,
}

impl From<Args> for RoleConfig {
    fn from(args: Args) -> Self {
        Self {
            store: args.store,
            schedule: args.schedule,
            queue: None,
            shard: args.shard,
            listen: args.listen,
            api: None,
            portal: None,
            tls: None,
            ingest: None,
            links: crate::config::LinksConfig::default(),
            mail: None,
            secret_keys: Some(args.secret_keys),
            target: args.target,
            worker: None,
            request: RequestConfig::default(),
            keep: None,
            shown: None,
            operator: Some(args.operator),
            traces: None,
            shutdown: args.shutdown,
        }
    }
}

/// Runs the role until it is told to stop.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    role::run(Role::Operator, args.into()).await
}

//! `paceline api`: takes events in, and does nothing else.

use std::process::ExitCode;

use engine::roles::Role;

use crate::config::{
    ApiConfig, IngestConfig, LinksConfig, ListenConfig, PortalConfig, RequestConfig,
    ScheduleConfig, SecretKeysConfig, ShardConfig, ShutdownConfig, StoreConfig, TargetConfig,
    TlsConfig, TracesConfig,
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
    pub tls: TlsConfig,
    #[command(flatten)]
    pub api: ApiConfig,
    #[command(flatten)]
    pub ingest: IngestConfig,
    #[command(flatten)]
    pub secret_keys: SecretKeysConfig,
    #[command(flatten)]
    pub links: LinksConfig,
    #[command(flatten)]
    pub portal: PortalConfig,
    #[command(flatten)]
    pub target: TargetConfig,
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
            queue: None,
            shard: args.shard,
            listen: args.listen,
            api: Some(args.api),
            tls: Some(args.tls),
            ingest: Some(args.ingest),
            links: args.links,
            portal: Some(args.portal),
            mail: None,
            secret_keys: Some(args.secret_keys),
            target: args.target,
            worker: None,
            request: RequestConfig::default(),
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
    role::run(Role::Api, args.into()).await
}

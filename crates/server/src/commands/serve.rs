//! `paceline serve`: all of it in one process.

use std::process::ExitCode;

use clap::{Args as _, FromArgMatches as _};
use engine::roles::Role;

use crate::config::{
    ApiConfig, IngestConfig, KeepConfig, LinksConfig, ListenConfig, MailConfig, PortalConfig,
    QueueConfig, RequestConfig, ScheduleConfig, SecretKeysConfig, ShardConfig, ShownConfig,
    ShutdownConfig, StoreConfig, TargetConfig, TlsConfig, TracesConfig, WorkerConfig,
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
    pub mail: MailConfig,
    #[command(flatten)]
    pub target: TargetConfig,
    #[command(flatten)]
    pub worker: WorkerConfig,
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

impl Args {
    /// As if these flags were all that is said: the environment is not asked.
    pub fn of(flags: &[&str]) -> Result<Self, clap::Error> {
        let command = clap::Command::new("serve").no_binary_name(true);
        let command = Self::augment_args(command).mut_args(|flag| flag.env(None::<&'static str>));
        Self::from_arg_matches(&command.try_get_matches_from(flags)?)
    }
}

impl From<Args> for RoleConfig {
    fn from(args: Args) -> Self {
        Self {
            // While the address is still there to look at.
            target: args.target.asking_as(args.links.public_url.as_ref()),
            store: args.store,
            schedule: args.schedule,
            queue: Some(args.queue),
            shard: args.shard,
            listen: args.listen,
            api: Some(args.api),
            tls: Some(args.tls),
            ingest: Some(args.ingest),
            links: args.links,
            portal: Some(args.portal),
            mail: Some(args.mail),
            secret_keys: Some(args.secret_keys),
            worker: Some(args.worker),
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
    role::run(Role::Serve, args.into()).await
}

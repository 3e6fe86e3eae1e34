//! `paceline migrate`: brings the schema up to this binary's. Safe to repeat,
//! and to run from several places at once.
//!
//! With `--worker-role` it gives the role of workers its rights as well, which each
//! version may change.
//!
//! With `--wait` it changes nothing, and ends when somebody else has: for what has
//! to start after that, such as a pod beside the Job that migrates.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep, timeout};

use crate::config::{StoreConfig, positive_duration};
use crate::{output, parts};

/// Between two looks at the schema.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub store: StoreConfig,
    /// Change nothing, and wait until the schema is at least this binary's; for
    /// init containers.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait before that is a failure.
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    #[arg(value_parser = positive_duration)]
    pub timeout: Duration,
    /// Give this role of Postgres, which is there already, the rights that workers need,
    /// and no more: for workers that connect as a role of their own.
    #[arg(
        long,
        env = "PACELINE_WORKER_ROLE",
        value_name = "ROLE",
        conflicts_with = "wait"
    )]
    #[arg(value_parser = role_name)]
    pub worker_role: Option<String>,
}

/// The longest name that Postgres has, in bytes.
const MAX_ROLE_BYTES: usize = 63;

fn role_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > MAX_ROLE_BYTES || text.contains(char::is_control) {
        return Err(format!(
            "must have 1 to {MAX_ROLE_BYTES} bytes, none of them control characters"
        ));
    }
    Ok(text.to_owned())
}

/// Migrates, or waits for it, and says so.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.wait {
        true => wait(&args.store, args.timeout).await?,
        false => parts::migrate(&args.store).await?,
    }
    if let Some(role) = &args.worker_role {
        parts::grant_to_workers(&args.store, role).await?;
    }
    output::line(&format!("{} is up to date", args.store.database_url))?;
    Ok(ExitCode::SUCCESS)
}

/// The store may be away meanwhile, or not yet there.
async fn wait(store: &StoreConfig, patience: Duration) -> anyhow::Result<()> {
    // What is wrong with the URL does not mend itself.
    store.place()?;
    let end = Instant::now() + patience;
    let mut last = None;
    loop {
        // A pool that is given up in mid-question is used no more.
        let left = end.saturating_duration_since(Instant::now());
        let problem = match timeout(left, parts::schema_is_there(store)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(problem)) => problem,
            Err(_elapsed) => break,
        };
        tracing::info!(%problem, "waits for the schema");
        last = Some(problem);
        if Instant::now() + LOOK > end {
            break;
        }
        sleep(LOOK).await;
    }
    let waited = humantime::format_duration(patience);
    match last {
        Some(problem) => Err(problem).with_context(|| format!("waited {waited} in vain")),
        None => bail!(
            "waited {waited} in vain: no answer from {}",
            store.database_url
        ),
    }
}

//! `paceline migrate`: brings the schema up to this binary's. Safe to repeat,
//! and to run from several places at once.

use std::process::ExitCode;

use crate::config::StoreConfig;
use crate::{output, parts};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub store: StoreConfig,
}

/// Migrates, and says so.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    parts::migrate(&args.store).await?;
    output::line(&format!("{} is up to date", args.store.database_url))?;
    Ok(ExitCode::SUCCESS)
}

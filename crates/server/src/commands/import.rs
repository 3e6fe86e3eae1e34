//! `paceline import …`: from other services, over their API and ours.

use std::process::ExitCode;

use clap::Subcommand;

mod svix;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take over what an account of Svix has: applications, endpoints, secrets, headers.
    ///
    /// It can be repeated: what is there is brought up to date.
    Svix(svix::Args),
}

/// Does it, and says what was done and what was not.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Svix(args) => svix::run(args).await,
    }
}

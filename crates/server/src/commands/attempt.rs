//! `paceline attempt …`: one attempt, over the API.

use std::process::ExitCode;

use clap::Subcommand;

use super::destination::Connection;
use crate::client::Client;
use crate::output;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Cancel an attempt that has not started.
    Cancel {
        /// Its id.
        id: i64,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Does it.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let Command::Cancel { id, connection } = command;
    let client = Client::new(&connection.client)?;
    client.post(&format!("/v1/attempts/{id}/cancel")).await?;
    output::line(&format!("cancelled {id}"))?;
    Ok(ExitCode::SUCCESS)
}

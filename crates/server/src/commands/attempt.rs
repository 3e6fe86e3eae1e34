//! `paceline attempt …`: attempts, over the API.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use uuid::Uuid;

use super::destination::Connection;
use super::named::Named;
use super::sure::Sure;
use crate::api::attempts::{Attempt, Attempts};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List a destination's attempts, the newest first.
    List {
        /// The destination's id or its name.
        destination: Named,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Cancel an attempt that has not started.
    Cancel {
        /// Its id.
        id: i64,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

/// The most rows asked for at once.
const PAGE: usize = 1_000;

/// Does it.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List {
            destination,
            limit,
            connection,
        } => {
            let client = Client::new(&connection.client)?;
            let destination = destination.destination(&client).await?;
            let found = list(&client, destination, limit).await?;
            match connection.output {
                Format::Json => output::json(&json!({ "attempts": found }))?,
                Format::Table => print(&found)?,
            }
        }
        Command::Cancel {
            id,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::new(&connection.client)?;
            let what = format!("Cancels the attempt {id}: its event is not sent there any more.");
            sure.ask(async || Ok(what)).await?;
            client.post(&format!("/v1/attempts/{id}/cancel")).await?;
            output::done(connection.output, "cancelled", id)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, destination: Uuid, limit: usize) -> anyhow::Result<Vec<Attempt>> {
    let mut found: Vec<Attempt> = Vec::new();
    while found.len() < limit {
        let rows = (limit - found.len()).min(PAGE);
        let mut path = format!("/v1/destinations/{destination}/attempts?limit={rows}");
        if let Some(last) = found.last() {
            path += &format!("&before={}", last.id);
        }
        let page: Attempts = client.get(&path).await?;
        found.extend(page.attempts);
        if page.next.is_none() {
            break;
        }
    }
    Ok(found)
}

/// A table of them.
pub(super) fn print(attempts: &[Attempt]) -> anyhow::Result<()> {
    let rows = attempts.iter().map(|attempt| {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![
            attempt.id.to_string(),
            attempt.destination_id.to_string(),
            attempt.try_number.to_string(),
            attempt.state.as_str().to_owned(),
            word(&attempt.started_at),
            attempt
                .delivery_latency_ms
                .map(|ms| format!("{ms:.1}"))
                .unwrap_or_default(),
            attempt
                .status
                .map(|status| status.to_string())
                .unwrap_or_default(),
            word(&attempt.error),
        ]
    });
    let header = [
        "ATTEMPT",
        "DESTINATION",
        "TRY",
        "STATE",
        "STARTED AT",
        "LATENCY MS",
        "STATUS",
        "ERROR",
    ];
    output::line(&output::table(&header, rows).to_string())
}

//! `paceline destination test`: an event that tries it, and what came of it.

use std::process::ExitCode;

use clap::Args;
use domain::attempt::AttemptState;
use http::Method;
use serde_json::json;

use super::{Connection, PATH};
use crate::api::trial::TriedDestination;
use crate::client::Client;
use crate::commands::attempt;
use crate::commands::named::Named;
use crate::output::{self, Format};

#[derive(Debug, Args)]
pub struct Trial {
    /// Its id or its name.
    pub id: Named,
    /// Send the catalogue's example of this type; a small event if absent.
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// How long to wait for the answer, 5 at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=5))]
    pub wait: u32,
    #[command(flatten)]
    pub connection: Connection,
}

/// Sends it; a failure where it did not succeed.
pub(super) async fn run(args: Trial) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.connection.client)?;
    let id = args.id.destination(&client).await?;
    let path = format!("{PATH}/{id}/test");
    let body = json!({ "type": args.event_type, "wait_seconds": args.wait });
    let tried: TriedDestination = client.send(Method::POST, &path, &body).await?;
    match args.connection.output {
        Format::Json => output::json(&tried)?,
        Format::Table => match &tried.attempt {
            Some(one) => attempt::print(std::slice::from_ref(one))?,
            None => output::line(&format!(
                "no answer yet; look again with: paceline event show {}",
                tried.event_id
            ))?,
        },
    }
    let state = tried.attempt.map(|attempt| attempt.state);
    Ok(match state {
        Some(AttemptState::Succeeded) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

//! `paceline event …`: events over the API.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use domain::event::MAX_PAYLOAD_BYTES;
use http::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::attempt;
use super::destination::Connection;
use crate::api::events::{Accepted, Event};
use crate::client::Client;
use crate::output::{self, Format};

mod import;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send an event to a destination, or to a type's subscribers.
    Send(Send),
    /// Send events from a file, one JSON object on each line, as the API takes
    /// them: `{"destination_id": …, "payload": …}`, or with a `type` for all who
    /// subscribe to it. Ends with 1 if one of them was refused. To send a file
    /// again that was sent in part, give each line an `idempotency_key`.
    Import {
        /// The file; `-` reads standard input.
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show an event and its attempts.
    Show {
        /// Its id.
        id: Uuid,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, clap::Args)]
pub struct Send {
    /// The one destination that it is for.
    #[arg(long, value_name = "ID", required_unless_present = "event_type")]
    pub destination: Option<Uuid>,

    /// Its type; without --destination, for all who subscribe to it.
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// The payload's media type [default: application/json]
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,

    /// Your own name for this event: sent again within 24 hours, with the same
    /// content, it is the same event and not another one.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,

    /// The payload; `-` reads it from standard input, `@FILE` from a file.
    #[arg(value_name = "PAYLOAD")]
    pub payload: String,

    #[command(flatten)]
    pub connection: Connection,
}

/// The body of the request, with the payload as it stands.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_id: Option<Uuid>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    event_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
}

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Send(send) => post(send).await?,
        Command::Import { file, connection } => return import::run(&file, &connection).await,
        Command::Show { id, connection } => {
            let client = Client::new(&connection.client)?;
            let event: Event = client.get(&format!("/v1/events/{id}")).await?;
            match connection.output {
                Format::Json => output::json(&event)?,
                Format::Table => print(&event)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn post(send: Send) -> anyhow::Result<()> {
    let bytes = read(&send.payload)?;
    // JSON goes as it stands; anything else, and JSON with space around it,
    // which a JSON value cannot keep, in base64.
    let json: Option<&RawValue> = serde_json::from_slice(&bytes)
        .ok()
        .filter(|raw: &&RawValue| raw.get().len() == bytes.len());
    if json.is_none() && send.content_type.is_none() {
        serde_json::from_slice::<&RawValue>(&bytes)
            .context("the payload is not JSON: correct it, or name its --content-type")?;
    }
    let body = Body {
        destination_id: send.destination,
        event_type: send.event_type.as_deref(),
        content_type: send.content_type.as_deref(),
        payload: json,
        payload_base64: json.is_none().then(|| STANDARD.encode(&bytes)),
        idempotency_key: send.idempotency_key.as_deref(),
    };
    let client = Client::new(&send.connection.client)?;
    let accepted: Accepted = client.send(Method::POST, "/v1/events", &body).await?;
    match send.connection.output {
        Format::Json => output::json(&accepted),
        Format::Table => {
            let count = accepted.destinations.len();
            output::line(&format!(
                "{} accepted for {count} destination(s)",
                accepted.id
            ))
        }
    }
}

/// A little more than is allowed, so that the API says what is.
fn read(payload: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_PAYLOAD_BYTES as u64 + 1;
    if payload == "-" {
        let mut input = std::io::stdin().lock().take(most);
        input
            .read_to_end(&mut bytes)
            .context("read standard input")?;
    } else if let Some(path) = payload.strip_prefix('@') {
        let file = std::fs::File::open(path).with_context(|| format!("open {path}"))?;
        file.take(most)
            .read_to_end(&mut bytes)
            .with_context(|| format!("read {path}"))?;
    } else {
        bytes.extend_from_slice(payload.as_bytes());
    }
    Ok(bytes)
}

fn print(event: &Event) -> anyhow::Result<()> {
    output::line(&format!(
        "{}  {}  {} bytes of {}  accepted {}",
        event.id,
        event.event_type.as_deref().unwrap_or("(no type)"),
        event.payload_bytes,
        event.content_type,
        event.created_at,
    ))?;
    attempt::print(&event.attempts)
}

//! `paceline event …`: events over the API.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{ArgGroup, Subcommand};
use domain::event::MAX_PAYLOAD_BYTES;
use http::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::attempt;
use super::destination::Connection;
use super::named::Named;
use super::resend::{self, OfEvent};
use crate::api::events::{Accepted, Event, EventPayload, NOT_SHOWN, as_it_stands};
use crate::client::Client;
use crate::output::{self, Format};

mod import;
mod list;
mod tail;

use list::Filter;

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
    /// List events, the newest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// So many at most.
        #[arg(long, value_name = "N", default_value_t = 20)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        #[command(flatten)]
        connection: Connection,
    },
    /// Print new events as they come, until it is interrupted.
    Tail(tail::Tail),
    /// Print what an event carries, as it was sent.
    Payload {
        /// Its id.
        id: Uuid,
        #[command(flatten)]
        connection: Connection,
    },
    /// Send an event again, whatever became of it.
    Resend(OfEvent),
    /// Show an event and its attempts.
    Show {
        /// Its id.
        id: Uuid,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("to").args(["destination", "event_type"]).required(true).multiple(true))]
pub struct Send {
    /// The one destination that it is for: its id or its name.
    #[arg(long, value_name = "ID")]
    pub destination: Option<Named>,

    /// Its type; without --destination, for all who subscribe to it.
    #[arg(long = "type", alias = "event-type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// Refuse it if no destination subscribes to its type with a filter that takes it.
    #[arg(long)]
    pub strict: bool,

    /// The payload's media type [default: application/json]
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,

    /// Your own name for this event: sent again within 24 hours, with the same
    /// content, it is the same event and not another one.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,

    /// Not sent before this, at most 30 days ahead.
    #[arg(long, value_name = "TIME")]
    pub deliver_at: Option<String>,

    /// What has not been admitted by then is not sent any more.
    #[arg(long, value_name = "TIME")]
    pub expires_at: Option<String>,

    /// Its first attempts go before those of other events.
    #[arg(long)]
    pub urgent: bool,

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
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    urgent: bool,
}

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Send(send) => post(send).await?,
        Command::Import { file, connection } => return import::run(&file, &connection).await,
        Command::List {
            filter,
            limit,
            connection,
        } => list::run(filter, limit as usize, &connection).await?,
        Command::Tail(args) => tail::run(args).await?,
        Command::Payload { id, connection } => {
            let client = Client::new(&connection.client)?;
            let payload: EventPayload = client.get(&format!("/v1/events/{id}/payload")).await?;
            match connection.output {
                Format::Json => output::json(&payload)?,
                Format::Table => {
                    let bytes = payload.bytes().context("read the payload")?;
                    output::bytes(&bytes.context(NOT_SHOWN)?)?;
                }
            }
        }
        Command::Resend(args) => resend::event(args).await?,
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
    let json = as_it_stands(&bytes);
    if json.is_none() && send.content_type.is_none() {
        serde_json::from_slice::<&RawValue>(&bytes)
            .context("the payload is not JSON: correct it, or name its --content-type")?;
    }
    let client = Client::new(&send.connection.client)?;
    let destination_id = match &send.destination {
        Some(named) => Some(named.destination(&client).await?),
        None => None,
    };
    let body = Body {
        destination_id,
        event_type: send.event_type.as_deref(),
        strict: send.strict,
        content_type: send.content_type.as_deref(),
        payload: json,
        payload_base64: json.is_none().then(|| STANDARD.encode(&bytes)),
        idempotency_key: send.idempotency_key.as_deref(),
        deliver_at: send.deliver_at.as_deref(),
        expires_at: send.expires_at.as_deref(),
        urgent: send.urgent,
    };
    let accepted: Accepted = client.send(Method::POST, "/v1/events", &body).await?;
    if let (true, Some(event_type)) = (accepted.destinations.is_empty(), &send.event_type) {
        output::aside(&format!(
            "accepted, but no destination subscribes to {event_type}, or its filter does not \
             take this: nothing will be sent (--strict refuses such an event)"
        ));
    }
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

/// Nobody waits for the end of what has none: counted no further.
const MAX_COUNTED_BYTES: u64 = 1024 * 1024 * 1024;

fn read(payload: &str) -> anyhow::Result<Vec<u8>> {
    if payload == "-" {
        bounded(std::io::stdin().lock()).context("read standard input")
    } else if let Some(path) = payload.strip_prefix('@') {
        let file = std::fs::File::open(path).with_context(|| format!("open {path}"))?;
        bounded(file).with_context(|| format!("read {path}"))
    } else {
        bounded(payload.as_bytes())
    }
}

/// All of it. Of what is too long the size is told, and no more than may be sent is
/// ever in memory.
fn bounded(mut input: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_PAYLOAD_BYTES as u64;
    (&mut input).take(most + 1).read_to_end(&mut bytes)?;
    let read = bytes.len() as u64;
    if read <= most {
        return Ok(bytes);
    }
    let rest = std::io::copy(&mut input.take(MAX_COUNTED_BYTES), &mut std::io::sink())?;
    let or_more = match rest {
        MAX_COUNTED_BYTES => " or more",
        _ => "",
    };
    bail!(
        "the payload is {}{or_more} bytes; at most {} are taken",
        output::grouped(read + rest),
        output::grouped(most)
    )
}

fn print(event: &Event) -> anyhow::Result<()> {
    output::line(&format!(
        "{}  {}{}  {} bytes of {}  accepted {}",
        event.id,
        event.event_type.as_deref().unwrap_or("(no type)"),
        if event.urgent { "  urgent" } else { "" },
        event.payload_bytes,
        event.content_type,
        event.created_at,
    ))?;
    if let Some(due_at) = &event.due_at {
        output::line(&format!("what waits is due from {due_at} on"))?;
    }
    if let Some(expires_at) = &event.expires_at {
        output::line(&format!("what waits is not sent from {expires_at} on"))?;
    }
    attempt::print(&event.attempts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many bytes as are wanted, of which none is looked at: to write a gibibyte of
    /// them takes seconds.
    struct Endless;

    impl Read for Endless {
        fn read(&mut self, wanted: &mut [u8]) -> std::io::Result<usize> {
            Ok(wanted.len())
        }
    }

    #[test]
    fn a_payload_that_is_too_long_is_told_by_its_size() {
        let most = MAX_PAYLOAD_BYTES;
        assert_eq!(bounded(&vec![b'x'; most][..]).unwrap().len(), most);
        let says = |bytes| bounded(Endless.take(bytes)).unwrap_err().to_string();
        let expected = "the payload is 1,000,009 bytes; at most 262,144 are taken";
        assert_eq!(says(1_000_009), expected);
        let expected = "the payload is 262,145 bytes; at most 262,144 are taken";
        assert_eq!(says(most as u64 + 1), expected);
        assert!(says(u64::MAX).contains(" or more bytes; "));
    }
}

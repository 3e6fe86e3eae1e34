//! `paceline attempt …`: attempts, over the API.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use domain::attempt::AttemptState;
use domain::search::SoughtStatus;
use serde_json::json;
use url::form_urlencoded;

use super::destination::Connection;
use super::named::Named;
use super::sure::Sure;
use crate::api::attempts::{Attempt, Attempts, SentRequest, ShownAttempt};
use crate::api::events::NOT_SHOWN;
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List attempts, the newest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one attempt: its request as it was sent, and what was answered.
    Show {
        /// Its id.
        id: i64,
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

/// Which attempts.
#[derive(Debug, Clone, Args)]
pub struct Filter {
    /// Of this destination, by its id or its name; of all if absent.
    pub destination: Option<Named>,
    /// Of events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// In this state, such as failed or waiting.
    #[arg(long, value_name = "STATE")]
    pub state: Option<AttemptState>,
    /// Answered with this HTTP status, or with one of a class: 500, 5xx.
    #[arg(long, value_name = "STATUS")]
    pub status: Option<SoughtStatus>,
    /// A part of the event's id, or its whole idempotency key.
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Created then or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Created before.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

impl Filter {
    /// As the API takes it.
    async fn query(&self, client: &Client) -> anyhow::Result<Vec<(&'static str, String)>> {
        let destination = match &self.destination {
            Some(named) => Some(named.destination(client).await?.to_string()),
            None => None,
        };
        let fields = [
            ("destination_id", destination),
            ("type", self.event_type.clone()),
            ("state", self.state.map(|state| state.as_str().to_owned())),
            ("status", self.status.map(|status| status.to_string())),
            ("text", self.text.clone()),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
        ];
        let set = fields.into_iter();
        Ok(set
            .filter_map(|(field, value)| Some((field, value?)))
            .collect())
    }
}

/// The most rows asked for at once.
const PAGE: usize = 1_000;

/// Does it.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List {
            filter,
            limit,
            connection,
        } => {
            let client = Client::new(&connection.client)?;
            let query = filter.query(&client).await?;
            let found = list(&client, &query, limit).await?;
            match connection.output {
                Format::Json => output::json(&json!({ "attempts": found }))?,
                Format::Table => print(&found)?,
            }
        }
        Command::Show { id, connection } => {
            let client = Client::new(&connection.client)?;
            let shown: ShownAttempt = client.get(&format!("/v1/attempts/{id}")).await?;
            match connection.output {
                Format::Json => output::json(&shown)?,
                Format::Table => print_one(&shown)?,
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

/// So many pages are looked through.
const MAX_PAGES: u32 = 200;

/// The newest of them; a page may hold few and still not be the last.
async fn list(
    client: &Client,
    query: &[(&'static str, String)],
    limit: usize,
) -> anyhow::Result<Vec<Attempt>> {
    let mut found: Vec<Attempt> = Vec::new();
    let mut before: Option<i64> = None;
    for _ in 0..MAX_PAGES {
        let rows = (limit - found.len()).min(PAGE);
        if rows == 0 {
            return Ok(found);
        }
        let mut written = form_urlencoded::Serializer::new(String::new());
        written.extend_pairs(query);
        written.append_pair("limit", &rows.to_string());
        written.extend_pairs(before.map(|before| ("before", before.to_string())));
        let page: Attempts = client
            .get(&format!("/v1/attempts?{}", written.finish()))
            .await?;
        found.extend(page.attempts);
        before = page.next;
        if before.is_none() {
            return Ok(found);
        }
    }
    output::aside("there may be more: only the newest attempts were looked through");
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

/// An attempt, and its request beside its answer.
fn print_one(shown: &ShownAttempt) -> anyhow::Result<()> {
    let attempt = &shown.attempt;
    output::line(&format!("event {}", attempt.event_id))?;
    print(std::slice::from_ref(attempt))?;
    match &shown.request {
        None => output::line("\nIt has not been sent.")?,
        Some(request) => print_request(request)?,
    }
    for (name, value) in attempt.response_headers.iter().flatten() {
        output::line(&format!("< {name}: {value}"))?;
    }
    match &attempt.response_body {
        Some(body) => output::bytes(format!("\n{body}\n").as_bytes()),
        None => Ok(()),
    }
}

/// As it was sent, so far as that is known.
fn print_request(request: &SentRequest) -> anyhow::Result<()> {
    let url = request.url.as_deref().unwrap_or("(a URL that is not kept)");
    output::line(&format!("\n> POST {url}"))?;
    for header in &request.headers {
        let value = match (&header.value, &header.withheld) {
            (Some(value), _) => value.clone(),
            (None, Some(why)) => format!("({why})"),
            (None, None) => String::new(),
        };
        output::line(&format!("> {}: {value}", header.name))?;
    }
    output::line("")?;
    match &request.payload {
        Some(payload) => match payload.bytes().context("read the payload")? {
            Some(bytes) => {
                output::bytes(&bytes)?;
                output::line("")?;
            }
            None => output::line(&format!("({NOT_SHOWN})"))?,
        },
        None => {
            let bytes = output::grouped(u64::from(request.payload_bytes));
            output::line(&format!("({bytes} bytes, which are not shown)"))?;
        }
    }
    output::line("")
}

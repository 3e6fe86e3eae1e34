//! `paceline dead-letters …` and `paceline replay …`: what was given up, and
//! back into the backlog, over the API.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use url::form_urlencoded;
use uuid::Uuid;

use super::destination::Connection;
use crate::api::dead_letters::{DeadLetter, DeadLetters};
use crate::api::replays::Replay;
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List dead letters that were not replayed, those that died last first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a dead letter and the last response.
    Show {
        /// The id of its last attempt.
        id: i64,
        #[command(flatten)]
        connection: Connection,
    },
    /// Put one, or all of a destination that match, back into the backlog.
    Replay {
        /// The id of one dead letter; without it, name --destination.
        #[arg(required_unless_present = "destination")]
        id: Option<i64>,
        #[command(flatten)]
        filter: Filter,
        /// Which part of the destination's limit it may use.
        #[arg(long, value_name = "PART")]
        share: Option<f64>,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// Show how far a replay is.
    Show {
        /// Its id.
        id: Uuid,
        #[command(flatten)]
        connection: Connection,
    },
    /// End a replay; what it has put back stays in the backlog.
    Cancel {
        /// Its id.
        id: Uuid,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Which dead letters.
#[derive(Debug, Clone, Default, Args)]
pub struct Filter {
    /// Of this destination.
    #[arg(long, value_name = "ID")]
    pub destination: Option<Uuid>,
    /// Of events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// Whose last answer had this status.
    #[arg(long, value_name = "STATUS")]
    pub status: Option<u16>,
    /// That died at this time or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub died_from: Option<String>,
    /// That died before.
    #[arg(long, value_name = "TIME")]
    pub died_before: Option<String>,
}

impl Filter {
    /// What is set, as the API takes it.
    fn fields(&self) -> Map<String, Value> {
        [
            (
                "destination_id",
                self.destination.map(|id| id.to_string().into()),
            ),
            ("type", self.event_type.clone().map(Value::from)),
            ("status", self.status.map(Value::from)),
            ("died_from", self.died_from.clone().map(Value::from)),
            ("died_before", self.died_before.clone().map(Value::from)),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), value?)))
        .collect()
    }

    fn query(&self, limit: usize, after: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (field, value) in self.fields() {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            query.append_pair(&field, &text);
        }
        query.append_pair("limit", &limit.to_string());
        if let Some(after) = after {
            query.append_pair("after", after);
        }
        query.finish()
    }
}

/// The most rows asked for at once.
const PAGE: usize = 1_000;

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List {
            filter,
            limit,
            connection,
        } => {
            let found = list(&Client::new(&connection.client)?, &filter, limit).await?;
            match connection.output {
                Format::Json => output::json(&json!({ "dead_letters": found }))?,
                Format::Table => print(&found)?,
            }
        }
        Command::Show { id, connection } => {
            let client = Client::new(&connection.client)?;
            let found: DeadLetter = client.get(&format!("/v1/dead-letters/{id}")).await?;
            match connection.output {
                Format::Json => output::json(&found)?,
                Format::Table => {
                    print(std::slice::from_ref(&found))?;
                    if let Some(body) = &found.attempt.response_body {
                        output::line(&format!("\nThe last response began:\n{body}"))?;
                    }
                }
            }
        }
        Command::Replay {
            id,
            filter,
            share,
            connection,
        } => {
            let mut body = filter.fields();
            body.extend(id.map(|id| ("attempt_id".to_owned(), id.into())));
            body.extend(share.map(|share| ("share".to_owned(), share.into())));
            let client = Client::new(&connection.client)?;
            let created: Replay = client.send(Method::POST, "/v1/replays", &body).await?;
            print_replay(&created, connection.output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The same for `paceline replay`.
pub async fn run_replay(command: ReplayCommand) -> anyhow::Result<ExitCode> {
    let (replay, format): (Replay, Format) = match command {
        ReplayCommand::Show { id, connection } => {
            let client = Client::new(&connection.client)?;
            let found = client.get(&format!("/v1/replays/{id}")).await?;
            (found, connection.output)
        }
        ReplayCommand::Cancel { id, connection } => {
            let client = Client::new(&connection.client)?;
            let path = format!("/v1/replays/{id}/cancel");
            let ended = client.send(Method::POST, &path, &json!({})).await?;
            (ended, connection.output)
        }
    };
    print_replay(&replay, format)?;
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, filter: &Filter, limit: usize) -> anyhow::Result<Vec<DeadLetter>> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    while all.len() < limit {
        let query = filter.query((limit - all.len()).min(PAGE), after.as_deref());
        let page: DeadLetters = client.get(&format!("/v1/dead-letters?{query}")).await?;
        all.extend(page.dead_letters);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(all)
}

fn print(dead_letters: &[DeadLetter]) -> anyhow::Result<()> {
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let rows = dead_letters.iter().map(|one| {
        vec![
            one.attempt.id.to_string(),
            one.attempt.event_id.to_string(),
            one.attempt.destination_id.to_string(),
            word(&one.event_type),
            one.attempt.try_number.to_string(),
            one.died_at.clone(),
            (one.attempt.status).map_or_else(String::new, |status| status.to_string()),
            word(&one.attempt.error),
            word(&one.replayed_at),
        ]
    });
    let header = [
        "ID",
        "EVENT",
        "DESTINATION",
        "TYPE",
        "TRY",
        "DIED AT",
        "STATUS",
        "WHY",
        "REPLAYED AT",
    ];
    output::line(&output::table(&header, rows).to_string())
}

fn print_replay(replay: &Replay, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json(replay);
    }
    let row = vec![
        replay.id.to_string(),
        replay.destination_id.to_string(),
        replay.state.as_str().to_owned(),
        replay.share.to_string(),
        format!("{} of {}", replay.done, replay.total),
        replay.pending.to_string(),
        replay.succeeded.to_string(),
        replay.failed.to_string(),
    ];
    let header = [
        "ID",
        "DESTINATION",
        "STATE",
        "SHARE",
        "REPLAYED",
        "PENDING",
        "SUCCEEDED",
        "FAILED",
    ];
    output::line(&output::table(&header, [row]).to_string())
}

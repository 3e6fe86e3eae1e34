//! `paceline dead-letters …` and `paceline replay …`: what was given up, and
//! back into the backlog, over the API.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use domain::replay::{DEFAULT_SHARE, ReplaySource, ReplayState};
use http::Method;
use serde_json::{Map, Value, json};
use url::form_urlencoded;
use uuid::Uuid;

use super::destination::Connection;
use super::named::Named;
use super::sure::Sure;
use crate::api::attempts::Attempt;
use crate::api::dead_letters::{DeadLetter, DeadLetters};
use crate::api::replays::{BegunReplays, Replay, ReplayPreview, ReplayProgress, Replays};
use crate::client::Client;
use crate::commands::plan::duration;
use crate::output::{self, Format};
use crate::progress::{Measure, Progress};

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
    /// Put one, or all that match, back into the backlog.
    Replay {
        /// The id of one dead letter; without it, say --destination or
        /// --all-destinations.
        #[arg(required_unless_present_any = ["destination", "all_destinations"])]
        id: Option<i64>,
        /// Those of all destinations: a replay for each.
        #[arg(long, conflicts_with_all = ["id", "destination"])]
        all_destinations: bool,
        #[command(flatten)]
        filter: Filter,
        /// Which part of the destination's limit it may use.
        #[arg(long, value_name = "PART")]
        share: Option<f64>,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// List replays, the newest first.
    List {
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show how far a replay is.
    Show {
        /// Its id.
        id: Uuid,
        /// Wait until it has ended.
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// End a replay; what it has put back stays in the backlog.
    Cancel {
        /// Its id.
        id: Uuid,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Which dead letters.
#[derive(Debug, Clone, Default, Args)]
pub struct Filter {
    /// Of this destination: its id or its name.
    #[arg(long, value_name = "ID")]
    pub destination: Option<Named>,
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
    /// The same, with the id of its destination.
    async fn resolved(mut self, client: &Client) -> anyhow::Result<Self> {
        if let Some(named) = &self.destination {
            self.destination = Some(named.destination(client).await?.into());
        }
        Ok(self)
    }

    /// What is set, as the API takes it.
    fn fields(&self) -> Map<String, Value> {
        [
            (
                "destination_id",
                (self.destination.as_ref()).and_then(|named| Some(named.id()?.to_string().into())),
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
        let mut query = as_query(&self.fields());
        query.append_pair("limit", &limit.to_string());
        if let Some(after) = after {
            query.append_pair("after", after);
        }
        query.finish()
    }
}

fn as_query(fields: &Map<String, Value>) -> form_urlencoded::Serializer<'static, String> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (field, value) in fields {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        query.append_pair(field, &text);
    }
    query
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
            let client = Client::new(&connection.client)?;
            let filter = filter.resolved(&client).await?;
            let found = list(&client, &filter, limit).await?;
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
                    print_response(&found.attempt)?;
                }
            }
        }
        Command::Replay {
            id,
            all_destinations,
            filter,
            share,
            sure,
            connection,
        } => {
            // One that is named needs no question: it is that one.
            if id.is_none() {
                sure.check()?;
            }
            let client = Client::new(&connection.client)?;
            let mut body = filter.resolved(&client).await?.fields();
            if id.is_none() {
                match sure.yes {
                    true if connection.output == Format::Json => {}
                    // Who may not read may replay all the same.
                    true => match preview(&client, &body, share).await {
                        Ok(words) => output::aside(&words),
                        Err(problem) => output::aside(&format!("{problem:#}")),
                    },
                    false => sure.ask(|| preview(&client, &body, share)).await?,
                }
            }
            body.extend(id.map(|id| ("attempt_id".to_owned(), id.into())));
            body.extend(share.map(|share| ("share".to_owned(), share.into())));
            if all_destinations {
                body.insert("all_destinations".to_owned(), true.into());
            }
            let begun = begin(&client, "/v1/replays", body, connection.output).await?;
            match connection.output {
                Format::Json => output::json(&json!({ "replays": begun }))?,
                Format::Table => {
                    print_replays(&begun)?;
                    output::aside(&progress_at(&begun));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where it shows how far they are.
pub(super) fn progress_at(begun: &[Replay]) -> String {
    match begun {
        [] => "No dead letter matches: nothing is replayed.".to_owned(),
        [one] => {
            let id = one.progress.id;
            format!("How far it is: paceline replay show {id} --follow")
        }
        _ => "How far they are: paceline replay list".to_owned(),
    }
}

/// What it will replay, and for about how long, in words.
async fn preview(
    client: &Client,
    fields: &Map<String, Value>,
    share: Option<f64>,
) -> anyhow::Result<String> {
    let mut query = as_query(fields);
    if let Some(share) = share {
        query.append_pair("share", &share.to_string());
    }
    let path = format!("/v1/replays/preview?{}", query.finish());
    let found: ReplayPreview = client.get(&path).await?;
    Ok(in_words(&found, share.unwrap_or(DEFAULT_SHARE)))
}

fn in_words(preview: &ReplayPreview, share: f64) -> String {
    let count = output::grouped(preview.dead_letters);
    let (more, least) = match preview.is_all {
        true => ("", ""),
        false => ("more than ", "at least "),
    };
    let destinations = preview.destinations.len() as u64 + preview.further_destinations;
    let takes = takes(least, preview.takes_seconds);
    format!(
        "Replays {more}{count} dead letters of {destinations} destination(s) at {share} of their \
         limits, {takes}."
    )
}

/// How long what was previewed takes, in words: or `at least ` so long.
pub(super) fn takes(least: &str, seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) => format!("which takes {least}about {}", duration(seconds)),
        None => "which takes until a limit that is 0 now is raised".to_owned(),
    }
}

/// Begins replays by this route, in as many requests as it takes. Where one fails, those that
/// have begun are printed, and the error says where to go on.
pub(super) async fn begin(
    client: &Client,
    path: &str,
    mut body: Map<String, Value>,
    format: Format,
) -> anyhow::Result<Vec<Replay>> {
    let mut all: Vec<Replay> = Vec::new();
    let progress = Progress::begin("replays begun:", Measure::Unknown, format);
    loop {
        let begun: anyhow::Result<BegunReplays> = client.send(Method::POST, path, &body).await;
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => {
                drop(progress);
                return Err(error.context(cut_short(&all, &body, format)?));
            }
        };
        all.extend(begun.replays);
        progress.at(all.len() as u64);
        let Some(next) = begun.next else {
            return Ok(all);
        };
        body.insert("after".to_owned(), next.to_string().into());
    }
}

/// What an error came in the midst of, and where it is to go on from.
fn cut_short(
    begun: &[Replay],
    body: &Map<String, Value>,
    format: Format,
) -> anyhow::Result<String> {
    let Some(after) = body.get("after").and_then(Value::as_str) else {
        return Ok("begin a replay".to_owned());
    };
    match format {
        _ if begun.is_empty() => {}
        Format::Json => output::json(&json!({ "replays": begun, "next": after }))?,
        Format::Table => print_replays(begun)?,
    }
    let some = begun.len();
    Ok(format!(
        "begin the rest, of the destinations after {after}; {some} replays have begun"
    ))
}

/// The same for `paceline replay`.
pub async fn run_replay(command: ReplayCommand) -> anyhow::Result<ExitCode> {
    let (replay, format): (Replay, Format) = match command {
        ReplayCommand::List { limit, connection } => {
            let found = list_replays(&Client::new(&connection.client)?, limit).await?;
            match connection.output {
                Format::Json => output::json(&json!({ "replays": found }))?,
                Format::Table => print_progress(&found)?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        ReplayCommand::Show {
            id,
            follow,
            connection,
        } => {
            let client = Client::new(&connection.client)?;
            let path = format!("/v1/replays/{id}");
            let found = match follow {
                true => followed(&client, &path, connection.output).await?,
                false => client.get(&path).await?,
            };
            (found, connection.output)
        }
        ReplayCommand::Cancel {
            id,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::new(&connection.client)?;
            let what = async || {
                let found: Replay = client.get(&format!("/v1/replays/{id}")).await?;
                let (total, done) = (found.progress.total, found.progress.done);
                let left = total.saturating_sub(done);
                Ok(match found.progress.source {
                    ReplaySource::DeadLetters => format!(
                        "Ends the replay {id}: {done} dead letters are back in the backlog and \
                         stay there, about {left} stay dead letters."
                    ),
                    ReplaySource::Events => format!(
                        "Ends the replay {id}: {done} events are in the backlog again and stay \
                         there, about {left} are not sent again."
                    ),
                })
            };
            sure.ask(what).await?;
            let path = format!("/v1/replays/{id}/cancel");
            let ended = client.send(Method::POST, &path, &json!({})).await?;
            (ended, connection.output)
        }
    };
    match format {
        Format::Json => output::json(&replay)?,
        Format::Table => print_replays(&[replay])?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How often a replay is looked at that somebody waits for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A replay that has ended.
async fn followed(client: &Client, path: &str, format: Format) -> anyhow::Result<Replay> {
    let progress = Progress::begin("back in the backlog", Measure::Things(0), format);
    loop {
        let found: Replay = client.get(path).await?;
        progress.of(found.progress.total);
        progress.at(found.progress.done);
        if found.progress.state != ReplayState::Running {
            return Ok(found);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn list_replays(client: &Client, limit: usize) -> anyhow::Result<Vec<ReplayProgress>> {
    let mut all = Vec::new();
    let mut after: Option<Uuid> = None;
    while all.len() < limit {
        let page = (limit - all.len()).min(PAGE);
        let after_words = after.map_or_else(String::new, |after| format!("&after={after}"));
        let path = format!("/v1/replays?limit={page}{after_words}");
        let found: Replays = client.get(&path).await?;
        all.extend(found.replays);
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    Ok(all)
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

/// What its last request was answered, as far as that is kept.
fn print_response(attempt: &Attempt) -> anyhow::Result<()> {
    if let Some(headers) = &attempt.response_headers {
        output::line("\nHeaders of the last response:")?;
        for (name, value) in headers {
            output::line(&format!("{name}: {value}"))?;
        }
    }
    if let Some(body) = &attempt.response_body {
        output::line(&format!("\nThe last response began:\n{body}"))?;
    }
    Ok(())
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

/// What every replay's row begins with.
const PROGRESS: [&str; 6] = [
    "ID",
    "DESTINATION",
    "STATE",
    "SHARE",
    "REPLAYED",
    "CREATED AT",
];

fn progress(replay: &ReplayProgress) -> Vec<String> {
    vec![
        replay.id.to_string(),
        replay.destination_id.to_string(),
        replay.state.as_str().to_owned(),
        replay.share.to_string(),
        format!("{} of {}", replay.done, replay.total),
        replay.created_at.clone(),
    ]
}

fn print_progress(replays: &[ReplayProgress]) -> anyhow::Result<()> {
    let rows = replays.iter().map(progress);
    output::line(&output::table(&PROGRESS, rows).to_string())
}

pub(super) fn print_replays(replays: &[Replay]) -> anyhow::Result<()> {
    let rows = replays.iter().map(|replay| {
        let mut row = progress(&replay.progress);
        row.extend([replay.pending, replay.succeeded, replay.failed].map(|n| n.to_string()));
        row
    });
    let header = [PROGRESS.as_slice(), &["PENDING", "SUCCEEDED", "FAILED"]].concat();
    output::line(&output::table(&header, rows).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_says_where_to_go_on() {
        let mut body = Map::new();
        let said = |body: &Map<String, Value>| cut_short(&[], body, Format::Table).unwrap();
        assert_eq!(said(&body), "begin a replay");
        let after = "01900000-0000-7000-8000-000000000007";
        body.insert("after".to_owned(), after.into());
        assert!(said(&body).contains(&format!("after {after}; 0 replays")));
    }
}

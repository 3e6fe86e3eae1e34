//! `paceline destination …`: destinations over the API.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use domain::external_id::ExternalId;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::named::Named;
use super::resend::{self, ToDestination};
use super::sure::Sure;
use crate::api::destinations::{Destination, Destinations};
use crate::api::secrets::FirstSecret;
use crate::client::{Client, ClientConfig};
use crate::output::{self, Format};

mod backlog;
mod batches;
mod credentials;
pub(super) mod explain;
mod handshake;
mod health;
mod secret;
pub(super) mod settings;
mod smart;
mod statistics;
mod trial;

use settings::Settings;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a destination.
    Create {
        /// Where its requests go.
        #[arg(value_name = "ENDPOINT")]
        endpoint: String,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        connection: Connection,
    },
    /// Create the destination that you call so, or make it into this one.
    ///
    /// What is not named is as of a new one, but for its state, its secrets, and what is
    /// never shown again: headers, client certificate, OAuth2 client. Repeating it changes
    /// nothing.
    Put(Put),
    /// List destinations.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one destination.
    Show {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change what is named and nothing else.
    Update {
        /// Its id or its name.
        id: Named,
        /// Where its requests go from now on.
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a destination and its backlog.
    Delete {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
    /// Hold its backlog; events are still accepted.
    Pause {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// What signs its requests.
    #[command(subcommand)]
    Secret(secret::Command),
    /// Send it an event to try it, within its limits, and print what came of that. Ends
    /// with 1 unless it was delivered in time.
    Test(trial::Trial),
    /// Let it go on, whatever holds it: a pause, a hold, its breaker, or that it was disabled.
    Resume {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show how it answers, and what holds its backlog.
    Health {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// Say why its next attempt is not going out now, and when it will.
    Explain {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// List where destinations stand: backlog, when that has drained, what binds.
    Standings {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show how it has done over 24 hours and 30 days: volume, success rate, latency.
    Statistics {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// Set when its breaker opens and when it gives up.
    Breaker {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        settings: health::BreakerSettings,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show its effective limit, why it is lower than the configured one, and what it was.
    SmartDelivery {
        /// Its id or its name.
        id: Named,
        /// Turn it on or off before.
        #[arg(long, value_enum, value_name = "TURN")]
        set: Option<smart::Turn>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show whether its receiver allows that anything is sent to it, and how much.
    Handshake {
        /// Its id or its name.
        id: Named,
        /// Have it asked now before.
        #[arg(long)]
        ask: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show or set what is tried again, when, and how often.
    Retries(backlog::Retries),
    /// Show or set how many events share a request.
    Batches(batches::Batches),
    /// Cancel what waits there, or the part of it that matches.
    Cancel(backlog::Cancel),
    /// Send to one, or to all, again what was missed since a time.
    Resend(ToDestination),
}

#[derive(Debug, Args)]
pub struct Put {
    /// What you call it in your own books.
    #[arg(value_name = "EXTERNAL_ID")]
    pub called: ExternalId,
    /// Where its requests go.
    #[arg(value_name = "ENDPOINT")]
    pub endpoint: String,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub connection: Connection,
}

/// A destination, and what it signs with if it had to be created.
#[derive(Serialize, Deserialize)]
struct Made {
    #[serde(flatten)]
    destination: Destination,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<FirstSecret>,
}

/// Whom to talk to, and how to print.
#[derive(Debug, Clone, Args)]
pub struct Connection {
    #[command(flatten)]
    pub client: ClientConfig,

    /// How to print.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub output: Format,
}

pub(super) const PATH: &str = "/v1/destinations";

/// The most rows asked for at once.
const PAGE: usize = 1_000;

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create {
            endpoint,
            settings,
            connection,
        } => {
            make((Method::POST, PATH), (endpoint, &settings), &connection).await?;
        }
        Command::Put(args) => put(args).await?,
        Command::List { connection } => {
            let destinations = list(&Client::new(&connection.client)?).await?;
            match connection.output {
                Format::Json => output::json(&json!({ "destinations": destinations }))?,
                Format::Table => print(&destinations, Format::Table)?,
            }
        }
        Command::Show { id, connection } => show(&id, &connection).await?,
        Command::Update {
            id,
            endpoint,
            settings,
            connection,
        } => {
            change(&id, with_endpoint(settings.json(), endpoint), &connection).await?;
        }
        Command::Delete {
            id,
            sure,
            connection,
        } => delete(&id, sure, &connection).await?,
        Command::Secret(command) => return secret::run(command).await,
        Command::Test(args) => return trial::run(args).await,
        Command::Pause { id, connection } => change(&id, state("paused"), &connection).await?,
        Command::Resume { id, connection } => resume(&id, &connection).await?,
        Command::Health { id, connection } => show_health(&id, &connection).await?,
        Command::Statistics { id, connection } => statistics::show(&id, &connection).await?,
        Command::Explain { id, connection } => explain::explain(&id, &connection).await?,
        Command::Standings { connection } => explain::list(&connection).await?,
        Command::Breaker {
            id,
            settings,
            connection,
        } => {
            let client = Client::new(&connection.client)?;
            let id = id.destination(&client).await?;
            let path = format!("{PATH}/{id}/breaker");
            let changed = client.send(Method::PATCH, &path, &settings.json()).await?;
            health::print(&changed, connection.output)?;
        }
        Command::SmartDelivery {
            id,
            set,
            connection,
        } => smart::run(&id, set, &connection).await?,
        Command::Handshake {
            id,
            ask,
            connection,
        } => handshake::run(&id, ask, &connection).await?,
        Command::Retries(args) => backlog::retries(args).await?,
        Command::Batches(args) => batches::batches(args).await?,
        Command::Cancel(args) => backlog::cancel(args).await?,
        Command::Resend(args) => resend::destination(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn resume(id: &Named, connection: &Connection) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let path = format!("{PATH}/{id}/resume");
    let resumed: Destination = client.send(Method::POST, &path, &json!({})).await?;
    print(&[resumed], connection.output)
}

async fn show(id: &Named, connection: &Connection) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let found: Destination = client.get(&format!("{PATH}/{id}")).await?;
    print(&[found], connection.output)
}

async fn delete(id: &Named, sure: Sure, connection: &Connection) -> anyhow::Result<()> {
    sure.check()?;
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let what = async || {
        let (name, waiting) = explain::waiting(&client, id).await?;
        Ok(format!(
            "Deletes the destination {name}: {waiting} deliveries wait and are dropped. \
             Nothing is sent to it any more. What was sent stays in the ledger."
        ))
    };
    sure.ask(what).await?;
    client.delete(&format!("{PATH}/{id}")).await?;
    output::done(connection.output, "deleted", id)
}

async fn show_health(id: &Named, connection: &Connection) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let found = client.get(&format!("{PATH}/{id}/health")).await?;
    health::print(&found, connection.output)
}

async fn put(args: Put) -> anyhow::Result<()> {
    let Put {
        called,
        endpoint,
        settings,
        connection,
    } = args;
    anyhow::ensure!(
        settings.external_id.is_none(),
        "--external-id: leave it out, the first argument says it"
    );
    let path = format!("{PATH}/{}", called.as_str());
    make((Method::PUT, &path), (endpoint, &settings), &connection).await
}

/// Shows the secret of one that is created: nobody will see that again.
async fn make(
    (method, path): (Method, &str),
    (endpoint, settings): (String, &Settings),
    connection: &Connection,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        !settings.clears_types(),
        "--type none: a new destination has no types to clear; leave --type out"
    );
    let body = with_endpoint(settings.json(), Some(endpoint));
    let client = Client::new(&connection.client)?;
    let made: Made = client.send(method, path, &body).await?;
    match connection.output {
        Format::Json => output::json(&made),
        Format::Table => {
            print(&[made.destination], Format::Table)?;
            match made.secret.and_then(|first| first.secret) {
                Some(secret) => output::line(&secret::shown_once(secret.expose())),
                None => Ok(()),
            }
        }
    }
}

fn state(word: &str) -> Map<String, Value> {
    Map::from_iter([("state".to_owned(), word.into())])
}

fn with_endpoint(mut body: Map<String, Value>, endpoint: Option<String>) -> Map<String, Value> {
    if let Some(endpoint) = endpoint {
        body.insert("url".to_owned(), endpoint.into());
    }
    body
}

async fn change(
    id: &Named,
    body: Map<String, Value>,
    connection: &Connection,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        !body.is_empty(),
        "nothing to change: name what, such as --per-second 50"
    );
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let changed: Destination = client
        .send(Method::PATCH, &format!("{PATH}/{id}"), &body)
        .await?;
    print(&[changed], connection.output)
}

pub(super) async fn list(client: &Client) -> anyhow::Result<Vec<Destination>> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page: Destinations = client.get(&format!("{PATH}?limit={PAGE}{after}")).await?;
        all.extend(page.destinations);
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}

fn print(destinations: &[Destination], format: Format) -> anyhow::Result<()> {
    match (format, destinations) {
        (Format::Json, [one]) => output::json(one),
        (Format::Json, all) => output::json(&all),
        (Format::Table, all) => {
            let rows = all.iter().map(|destination| {
                vec![
                    destination.id.to_string(),
                    destination.name.clone(),
                    destination.url.clone(),
                    destination.state.as_str().to_owned(),
                    settings::words(destination),
                    destination.effective.max_in_flight.to_string(),
                    destination.event_types.join(","),
                ]
            });
            let header = ["ID", "NAME", "URL", "STATE", "LIMIT", "IN FLIGHT", "TYPES"];
            output::line(&output::table(&header, rows).to_string())
        }
    }
}

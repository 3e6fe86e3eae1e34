//! `paceline limit-request …`: what is above a ceiling, asked for and decided on, over the
//! API.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::destination::Connection;
use super::destination::settings::{RateLimits, Setting, number, object, phrase};
use super::named::Named;
use crate::api::limit_requests::{LimitRequest, LimitRequestList};
use crate::client::Client;
use crate::output::{self, Format};
use crate::service::ceilings::MAX_LIMIT_REQUESTS;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask for what is above the ceiling of a tenant's tier: limits and batches of one
    /// destination, or more destinations.
    Create(Create),
    /// List requests, those first that wait for a decision.
    List {
        /// Those of all tenants, with a key that has the scope admin.
        #[arg(long)]
        all: bool,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 200)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Grant what was asked for: it is in force at once.
    Approve(Decide),
    /// Refuse what was asked for.
    Decline(Decide),
}

/// What is asked for.
#[derive(Debug, Args)]
pub struct Create {
    /// The destination, by its id or its name.
    #[arg(required_unless_present = "destinations")]
    destination: Option<Named>,
    #[command(flatten)]
    limits: RateLimits,
    /// Attempts queued and in flight at once.
    #[arg(long, value_name = "N")]
    max_in_flight: Option<Setting>,
    /// Events that may be in one request.
    #[arg(long, value_name = "N")]
    batch_events: Option<u32>,
    /// Bytes of their payloads.
    #[arg(long, value_name = "N")]
    batch_bytes: Option<u32>,
    /// How many destinations the tenant may have, with those that are there: a request of
    /// its own.
    #[arg(long, value_name = "N", conflicts_with = "destination")]
    destinations: Option<u32>,
    /// Why, for whoever decides.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    connection: Connection,
}

impl Create {
    /// Of one destination.
    fn limits(&self) -> Map<String, Value> {
        let wanted = [
            ("max_in_flight", number(self.max_in_flight)),
            ("batch_events", self.batch_events.map(Value::from)),
            ("batch_bytes", self.batch_bytes.map(Value::from)),
        ];
        object(wanted.into_iter().chain(self.limits.fields()))
    }
}

/// What is decided.
#[derive(Debug, Args)]
pub struct Decide {
    /// The request's id.
    id: Uuid,
    /// Why, for whoever asked.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    connection: Connection,
}

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(args) => create(&args).await?,
        Command::List {
            all,
            limit,
            connection,
        } => {
            let (client, path) = match all {
                true => (
                    Client::administering(&connection.client)?,
                    "/v1/fleet/limit-requests",
                ),
                false => (Client::new(&connection.client)?, "/v1/limit-requests"),
            };
            let found = list(&client, path, limit).await?;
            match connection.output {
                Format::Json => output::json(&found)?,
                Format::Table => {
                    output::line(&table(&found.limit_requests))?;
                    if found.next.is_some() {
                        output::aside("there may be more: see --limit");
                    }
                }
            }
        }
        Command::Approve(args) => decide("approve", &args).await?,
        Command::Decline(args) => decide("decline", &args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Page after page, as far as was asked for.
async fn list(client: &Client, path: &str, limit: usize) -> anyhow::Result<LimitRequestList> {
    let mut all = Vec::new();
    let mut before: Option<String> = None;
    while all.len() < limit {
        let page = (limit - all.len()).min(MAX_LIMIT_REQUESTS as usize);
        let on = before.map_or_else(String::new, |before| format!("&before={before}"));
        let found: LimitRequestList = client.get(&format!("{path}?limit={page}{on}")).await?;
        all.extend(found.limit_requests);
        before = found.next;
        if before.is_none() {
            break;
        }
    }
    Ok(LimitRequestList {
        limit_requests: all,
        next: before,
    })
}

async fn create(args: &Create) -> anyhow::Result<()> {
    let mut body = args.limits();
    let client = Client::new(&args.connection.client)?;
    let path = match (&args.destination, args.destinations) {
        (None, Some(destinations)) => {
            anyhow::ensure!(
                body.is_empty(),
                "--destinations is a request of its own: name a destination with the other flags"
            );
            body.insert("destinations".to_owned(), destinations.into());
            "/v1/limit-requests".to_owned()
        }
        (Some(destination), _) => {
            anyhow::ensure!(
                !body.is_empty(),
                "nothing is asked for: name what, such as --per-second 50"
            );
            let id = destination.destination(&client).await?;
            format!("/v1/destinations/{id}/limit-requests")
        }
        (None, None) => {
            anyhow::bail!("nothing is asked for: name a destination, or --destinations")
        }
    };
    body.insert("note".to_owned(), args.note.clone().into());
    print(
        client.send(Method::POST, &path, &body).await?,
        args.connection.output,
    )
}

async fn decide(how: &str, args: &Decide) -> anyhow::Result<()> {
    let client = Client::administering(&args.connection.client)?;
    let path = format!("/v1/limit-requests/{}/{how}", args.id);
    let body = json!({ "reason": args.reason });
    print(
        client.send(Method::POST, &path, &body).await?,
        args.connection.output,
    )
}

fn print(request: LimitRequest, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&request),
        Format::Table => output::line(&table(&[request])),
    }
}

fn table(requests: &[LimitRequest]) -> String {
    let rows = requests.iter().map(|request| {
        let limit = match (&request.limits, request.destinations) {
            (_, Some(most)) => Some(format!("{most} destinations")),
            (None, None) => None,
            (Some(_), None) if request.unlimited => Some("unlimited".to_owned()),
            (Some(limits), None) => {
                let shape = request.shape.unwrap_or_default();
                Some(phrase(limits, shape, request.burst))
            }
        };
        let batches = [
            (request.batch_events, "events"),
            (request.batch_bytes, "bytes"),
        ];
        let batches = batches.map(|(most, of)| Some(format!("{} {of}", most?)));
        let batches: Vec<_> = batches.into_iter().flatten().collect();
        vec![
            request.id.to_string(),
            output::or_dash(request.destination_id),
            output::or_dash(limit),
            output::or_dash(request.max_in_flight),
            output::or_dash((!batches.is_empty()).then(|| batches.join(", "))),
            request.state.clone(),
            request.note.clone(),
            request.reason.clone(),
        ]
    });
    let header = [
        "ID",
        "DESTINATION",
        "LIMIT",
        "IN FLIGHT",
        "BATCHES",
        "STATE",
        "NOTE",
        "REASON",
    ];
    output::table(&header, rows).to_string()
}

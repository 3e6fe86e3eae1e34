//! `paceline limit-request …`: limits above a ceiling, asked for and decided on, over the
//! API.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;
use uuid::Uuid;

use super::destination::Connection;
use super::destination::settings::{RateLimits, Setting, number, object, phrase};
use super::named::Named;
use crate::api::limit_requests::{LimitRequest, LimitRequestList};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask for limits of a destination that are above the ceiling of its tenant's tier.
    Create {
        /// The destination, by its id or its name.
        destination: Named,
        #[command(flatten)]
        limits: RateLimits,
        /// Attempts queued and in flight at once.
        #[arg(long, value_name = "N")]
        max_in_flight: Option<Setting>,
        /// Why, for whoever decides.
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// List requests, those first that wait for a decision.
    List {
        /// Those of all tenants, with a key that has the scope admin.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Grant what was asked for: it is in force at once.
    Approve(Decide),
    /// Refuse what was asked for.
    Decline(Decide),
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
        Command::Create {
            destination,
            limits,
            max_in_flight,
            note,
            connection,
        } => {
            let wanted = [("max_in_flight", number(max_in_flight))];
            let mut body = object(wanted.into_iter().chain(limits.fields()));
            anyhow::ensure!(
                !body.is_empty(),
                "nothing is asked for: name what, such as --per-second 50"
            );
            body.insert("note".to_owned(), note.into());
            let client = Client::new(&connection.client)?;
            let id = destination.destination(&client).await?;
            let path = format!("/v1/destinations/{id}/limit-requests");
            print(
                client.send(Method::POST, &path, &body).await?,
                connection.output,
            )?;
        }
        Command::List { all, connection } => {
            let (client, path) = match all {
                true => (
                    Client::administering(&connection.client)?,
                    "/v1/fleet/limit-requests",
                ),
                false => (Client::new(&connection.client)?, "/v1/limit-requests"),
            };
            let list: LimitRequestList = client.get(path).await?;
            match connection.output {
                Format::Json => output::json(&list)?,
                Format::Table => output::line(&table(&list.limit_requests))?,
            }
        }
        Command::Approve(args) => decide("approve", &args).await?,
        Command::Decline(args) => decide("decline", &args).await?,
    }
    Ok(ExitCode::SUCCESS)
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
        let limit = match request.unlimited {
            true => "unlimited".to_owned(),
            false => phrase(
                &request.limits,
                request.shape.unwrap_or_default(),
                request.burst,
            ),
        };
        vec![
            request.id.to_string(),
            request.destination_id.to_string(),
            limit,
            output::or_dash(request.max_in_flight),
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
        "STATE",
        "NOTE",
        "REASON",
    ];
    output::table(&header, rows).to_string()
}

//! `paceline limit-group …`: limits that several destinations have together, over the API.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use domain::limit::Shape;
use http::Method;
use serde_json::json;

use super::destination::Connection;
use super::destination::settings::phrase;
use super::sure::Sure;
use crate::api::limit_groups::{LimitGroup, LimitGroupList};
use crate::api::limits::Limits;
use crate::client::Client;
use crate::output::{self, Format};

const PATH: &str = "/v1/limit-groups";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List limit groups.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a limit group and its members.
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Create a limit group, or set all of its limits.
    Set {
        /// Its name, such as acme or api.example.com.
        name: String,
        #[command(flatten)]
        limits: GroupLimits,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a limit group that has no members.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

/// What its members may start together.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = true)]
pub struct GroupLimits {
    /// At most so many starts in any second; 0 pauses all members.
    #[arg(long, value_name = "N")]
    pub per_second: Option<u32>,

    /// At most so many starts in any minute.
    #[arg(long, value_name = "N")]
    pub per_minute: Option<u32>,

    /// At most so many starts in any hour.
    #[arg(long, value_name = "N")]
    pub per_hour: Option<u32>,

    /// At most so many starts in any day.
    #[arg(long, value_name = "N")]
    pub per_day: Option<u32>,
}

/// Runs it.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { connection } => {
            let found = list(&Client::new(&connection.client)?).await?;
            match connection.output {
                Format::Json => output::json(&found)?,
                _ => output::line(&table(&found))?,
            }
        }
        Command::Show { name, connection } => {
            let client = Client::new(&connection.client)?;
            let found: LimitGroup = client.get(&path(&name)).await?;
            print(&found, connection.output)?;
        }
        Command::Set {
            name,
            limits,
            connection,
        } => {
            let client = Client::new(&connection.client)?;
            let limits = Limits {
                per_second: limits.per_second,
                per_minute: limits.per_minute,
                per_hour: limits.per_hour,
                per_day: limits.per_day,
            };
            let body = json!({ "limits": limits });
            let put: LimitGroup = client.send(Method::PUT, &path(&name), &body).await?;
            print(&put, connection.output)?;
        }
        Command::Delete {
            name,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::new(&connection.client)?;
            sure.ask(async || Ok(format!("Deletes the limit group {name}.")))
                .await?;
            client.delete(&path(&name)).await?;
            output::done(connection.output, "deleted", name)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All of them.
async fn list(client: &Client) -> anyhow::Result<Vec<LimitGroup>> {
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let page: LimitGroupList = client.get(&format!("{PATH}?limit=1000{after}")).await?;
        found.extend(page.limit_groups);
        match page.next {
            Some(next) => after = format!("&after={}", in_path(&next)),
            None => return Ok(found),
        }
    }
}

fn in_path(name: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    encoded.replace('+', "%20")
}

fn path(name: &str) -> String {
    format!("{PATH}/{}", in_path(name))
}

fn print(found: &LimitGroup, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(found),
        _ => output::line(&table(std::slice::from_ref(found))),
    }
}

fn table(groups: &[LimitGroup]) -> String {
    let rows = groups.iter().map(|group| {
        let members: Vec<String> = group.members.iter().map(ToString::to_string).collect();
        vec![
            group.name.to_string(),
            phrase(&group.limits, Shape::default(), None),
            output::or_dash((!members.is_empty()).then(|| members.join(" "))),
        ]
    });
    output::table(&["NAME", "LIMITS", "MEMBERS"], rows).to_string()
}

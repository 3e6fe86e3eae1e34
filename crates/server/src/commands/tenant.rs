//! `paceline tenant …`: tenants over the API, for its administrator.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use domain::external_id::ExternalId;
use http::Method;
use serde_json::{Map, Value, json};

use super::destination::Connection;
use super::destination::settings::Setting;
use super::named::Named;
use super::sure::Sure;
use crate::api::tenants::{Tenant, TenantList};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a tenant.
    Create {
        #[command(flatten)]
        new: New,
        /// What you call it in your own books.
        #[arg(long, value_name = "ID")]
        external_id: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Create the tenant that you call so, or make it into this one. Repeating it changes
    /// nothing.
    Put {
        /// What you call it in your own books.
        #[arg(value_name = "EXTERNAL_ID")]
        called: ExternalId,
        #[command(flatten)]
        new: New,
        #[command(flatten)]
        connection: Connection,
    },
    /// List tenants.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one tenant.
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
        /// A name, for people.
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// What you call it from now on.
        #[arg(long, value_name = "ID")]
        external_id: Option<String>,
        /// Its plan tier from now on.
        #[arg(long, value_name = "TIER")]
        tier: Option<String>,
        /// Attempts of all its destinations queued and in flight at once;
        /// `none` for the tier's.
        #[arg(long, value_name = "N")]
        max_in_flight: Option<Setting>,
        /// Events that it may hand in a second, at each API process; `none` for
        /// the tier's.
        #[arg(long, value_name = "N")]
        ingest_per_second: Option<Setting>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a tenant with its keys, links, destinations and their backlogs.
    ///
    /// Destinations go step by step: `paceline tenant show` says how many are left.
    Delete {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Args)]
pub struct New {
    /// Its name, for people.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Its plan tier.
    #[arg(long, value_name = "TIER", default_value = "standard")]
    pub tier: String,
    /// Attempts of all its destinations queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<u32>,
    /// Events that it may hand in a second, at each API process.
    #[arg(long, value_name = "N")]
    pub ingest_per_second: Option<u32>,
}

impl New {
    /// As the API takes it, with this name of the caller's own, if it has one.
    fn json(&self, external_id: Option<&str>) -> Value {
        json!({
            "name": self.name, "external_id": external_id, "tier": self.tier,
            "max_in_flight": self.max_in_flight, "ingest_per_second": self.ingest_per_second,
        })
    }
}

const PATH: &str = "/v1/tenants";

/// The most rows asked for at once.
const PAGE: usize = 1_000;

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create {
            new,
            external_id,
            connection,
        } => {
            let body = new.json(external_id.as_deref());
            make((Method::POST, PATH), &body, &connection).await?;
        }
        Command::Put {
            called,
            new,
            connection,
        } => {
            let (path, body) = (format!("{PATH}/{}", called.as_str()), new.json(None));
            make((Method::PUT, &path), &body, &connection).await?;
        }
        Command::List { connection } => {
            let tenants = list(&Client::administering(&connection.client)?).await?;
            match connection.output {
                Format::Json => output::json(&json!({ "tenants": tenants }))?,
                Format::Table => print(&tenants, Format::Table)?,
            }
        }
        Command::Show { id, connection } => {
            let client = Client::administering(&connection.client)?;
            let id = id.tenant(&client).await?;
            let found: Tenant = client.get(&format!("{PATH}/{id}")).await?;
            print(&[found], connection.output)?;
        }
        Command::Update {
            id,
            name,
            external_id,
            tier,
            max_in_flight,
            ingest_per_second,
            connection,
        } => {
            let number = |Setting(number)| Value::from(number);
            let body: Map<String, Value> = [
                ("name", name.map(Value::from)),
                ("external_id", external_id.map(Value::from)),
                ("tier", tier.map(Value::from)),
                ("max_in_flight", max_in_flight.map(number)),
                ("ingest_per_second", ingest_per_second.map(number)),
            ]
            .into_iter()
            .filter_map(|(field, value)| Some((field.to_owned(), value?)))
            .collect();
            anyhow::ensure!(
                !body.is_empty(),
                "nothing to change: name what, such as --tier enterprise"
            );
            let client = Client::administering(&connection.client)?;
            let id = id.tenant(&client).await?;
            let path = format!("{PATH}/{id}");
            let changed: Tenant = client.send(Method::PATCH, &path, &body).await?;
            print(&[changed], connection.output)?;
        }
        Command::Delete {
            id,
            sure,
            connection,
        } => delete(&id, sure, &connection).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn make(
    (method, path): (Method, &str),
    body: &Value,
    connection: &Connection,
) -> anyhow::Result<()> {
    let client = Client::administering(&connection.client)?;
    let made: Tenant = client.send(method, path, body).await?;
    print(&[made], connection.output)
}

async fn delete(id: &Named, sure: Sure, connection: &Connection) -> anyhow::Result<()> {
    sure.check()?;
    let client = Client::administering(&connection.client)?;
    let id = id.tenant(&client).await?;
    let path = format!("{PATH}/{id}");
    let what = async || {
        let found: Tenant = client.get(&path).await?;
        Ok(format!(
            "Deletes the tenant {}: its keys and links end at once, its destinations and what \
             waits there go with it. What was sent stays in the ledger.",
            found.name
        ))
    };
    sure.ask(what).await?;
    let deleted: Tenant = client.send(Method::DELETE, &path, &json!({})).await?;
    print(&[deleted], connection.output)
}

pub(super) async fn list(client: &Client) -> anyhow::Result<Vec<Tenant>> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page: TenantList = client.get(&format!("{PATH}?limit={PAGE}{after}")).await?;
        all.extend(page.tenants);
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}

fn print(tenants: &[Tenant], format: Format) -> anyhow::Result<()> {
    match (format, tenants) {
        (Format::Json, [one]) => output::json(one),
        (Format::Json, all) => output::json(&all),
        (Format::Table, all) => {
            let rows = all.iter().map(|tenant| {
                vec![
                    tenant.id.to_string(),
                    tenant.name.clone(),
                    tenant.tier.clone(),
                    output::or_dash(tenant.effective_max_in_flight),
                    output::or_dash(tenant.effective_ingest_per_second),
                    match &tenant.deletion {
                        None => "active".to_owned(),
                        Some(deletion) => {
                            format!("deleting, {} left", deletion.destinations_left)
                        }
                    },
                ]
            });
            let header = ["ID", "NAME", "TIER", "IN FLIGHT", "INGEST/S", "STATE"];
            output::line(&output::table(&header, rows).to_string())
        }
    }
}

//! `paceline tier …`: plan tiers over the API, for its administrator.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::destination::Connection;
use super::destination::settings::{RateLimits, Setting, number, object, phrase};
use super::sure::Sure;
use crate::api::tiers::{Ceiling, Tier, TierList};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the plan tiers.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Create a plan tier: what is left out does not limit.
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        limits: TierLimits,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a plan tier that no tenant has.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change what is named and nothing else, for all that inherit it.
    Update {
        /// Its name.
        name: String,
        #[command(flatten)]
        limits: TierLimits,
        #[command(flatten)]
        connection: Connection,
    },
}

/// What a tier says.
#[derive(Debug, Clone, Args)]
pub struct TierLimits {
    #[command(flatten)]
    pub limits: RateLimits,

    /// Attempts of one destination queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<Setting>,

    /// Attempts of all destinations of one tenant queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub tenant_max_in_flight: Option<Setting>,

    /// Events that one tenant may hand in a second, at each API process.
    #[arg(long, value_name = "N")]
    pub tenant_ingest_per_second: Option<Setting>,

    /// Destinations that one tenant may have.
    #[arg(long, value_name = "N")]
    pub tenant_max_destinations: Option<Setting>,

    /// The most that its tenants set for a destination: starts per second in the long run.
    #[arg(long, value_name = "N")]
    pub ceiling_per_second: Option<Setting<f64>>,

    /// The same: how many may start at one instant.
    #[arg(long, value_name = "N")]
    pub ceiling_at_once: Option<Setting>,

    /// The same: attempts queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub ceiling_in_flight: Option<Setting>,

    /// The same: events in one request.
    #[arg(long, value_name = "N")]
    pub ceiling_batch_events: Option<Setting>,

    /// The same: bytes of their payloads.
    #[arg(long, value_name = "N")]
    pub ceiling_batch_bytes: Option<Setting>,

    /// How old an event may become before it starts, in seconds, also where a destination
    /// says nothing.
    #[arg(long, value_name = "N")]
    pub ceiling_age_seconds: Option<Setting>,
}

impl TierLimits {
    fn json(&self) -> Map<String, Value> {
        let ceiling = object([
            ("per_second", number(self.ceiling_per_second)),
            ("at_once", number(self.ceiling_at_once)),
            ("max_in_flight", number(self.ceiling_in_flight)),
            ("batch_events", number(self.ceiling_batch_events)),
            ("batch_bytes", number(self.ceiling_batch_bytes)),
            ("age_seconds", number(self.ceiling_age_seconds)),
        ]);
        let own = [
            ("ceiling", (!ceiling.is_empty()).then(|| ceiling.into())),
            ("max_in_flight", number(self.max_in_flight)),
            ("tenant_max_in_flight", number(self.tenant_max_in_flight)),
            (
                "tenant_ingest_per_second",
                number(self.tenant_ingest_per_second),
            ),
            (
                "tenant_max_destinations",
                number(self.tenant_max_destinations),
            ),
        ];
        object(own.into_iter().chain(self.limits.fields()))
    }
}

const PATH: &str = "/v1/tiers";

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { connection } => {
            let list: TierList = Client::administering(&connection.client)?.get(PATH).await?;
            match connection.output {
                Format::Json => output::json(&list)?,
                Format::Table => output::line(&table(&list.tiers))?,
            }
        }
        Command::Create {
            name,
            limits,
            connection,
        } => {
            let mut body = limits.json();
            body.insert("name".to_owned(), name.into());
            let client = Client::administering(&connection.client)?;
            let created: Tier = client.send(Method::POST, PATH, &body).await?;
            print(created, connection.output)?;
        }
        Command::Delete {
            name,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::administering(&connection.client)?;
            sure.ask(async || Ok(format!("Deletes the tier {name}, if no tenant has it.")))
                .await?;
            client.delete(&format!("{PATH}/{}", in_path(&name))).await?;
            output::done(connection.output, "deleted", name)?;
        }
        Command::Update {
            name,
            limits,
            connection,
        } => {
            let body = limits.json();
            anyhow::ensure!(
                !body.is_empty(),
                "nothing to change: name what, such as --per-second 50"
            );
            let client = Client::administering(&connection.client)?;
            let path = format!("{PATH}/{}", in_path(&name));
            let changed: Tier = client.send(Method::PATCH, &path, &body).await?;
            print(changed, connection.output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A name as it stands in a path.
fn in_path(name: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    encoded.replace('+', "%20")
}

fn print(tier: Tier, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&tier),
        Format::Table => output::line(&table(&[tier])),
    }
}

fn table(tiers: &[Tier]) -> String {
    let rows = tiers.iter().map(|tier| {
        vec![
            tier.name.clone(),
            phrase(&tier.limits, tier.shape.unwrap_or_default(), tier.burst),
            output::or_dash(tier.max_in_flight),
            output::or_dash(tier.tenant_max_in_flight),
            output::or_dash(tier.tenant_ingest_per_second),
            output::or_dash(tier.tenant_max_destinations),
            ceiling(&tier.ceiling),
        ]
    });
    let header = [
        "NAME",
        "LIMIT",
        "IN FLIGHT",
        "TENANT IN FLIGHT",
        "TENANT INGEST/S",
        "TENANT DESTINATIONS",
        "CEILING",
    ];
    output::table(&header, rows).to_string()
}

fn ceiling(ceiling: &Ceiling) -> String {
    let parts = [
        ceiling.per_second.map(|most| format!("{most}/second")),
        ceiling.at_once.map(|most| format!("{most} at once")),
        ceiling
            .max_in_flight
            .map(|most| format!("{most} in flight")),
        (ceiling.batch_events).map(|most| format!("{most} events/request")),
        (ceiling.batch_bytes).map(|most| format!("{most} bytes/request")),
        (ceiling.age_seconds).map(|most| format!("{most} s old")),
    ];
    let said: Vec<_> = parts.into_iter().flatten().collect();
    output::or_dash((!said.is_empty()).then(|| said.join(" ")))
}

//! `paceline tier …`: plan tiers over the API, for its administrator.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use domain::limit::Shape;
use http::Method;
use serde_json::{Map, Value};

use super::destination::Connection;
use super::destination::settings::{Setting, phrase};
use crate::api::tiers::{Tier, TierList};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the plan tiers.
    List {
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
    /// At most so many starts in any second; 0 pauses, `none` clears.
    #[arg(long, value_name = "N")]
    pub per_second: Option<Setting>,

    /// At most so many starts in any minute.
    #[arg(long, value_name = "N")]
    pub per_minute: Option<Setting>,

    /// At most so many starts in any hour.
    #[arg(long, value_name = "N")]
    pub per_hour: Option<Setting>,

    /// At most so many starts in any day.
    #[arg(long, value_name = "N")]
    pub per_day: Option<Setting>,

    /// No rate limit; --max-in-flight still holds.
    #[arg(long)]
    pub unlimited: bool,

    /// A bucket's capacity, or how many of a window may start at once.
    #[arg(long, value_name = "N")]
    pub burst: Option<Setting>,

    /// sliding_window, token_bucket or leaky_bucket.
    #[arg(long, value_name = "SHAPE")]
    pub shape: Option<Shape>,

    /// Attempts of one destination queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<Setting>,

    /// Attempts of all destinations of one tenant queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub tenant_max_in_flight: Option<Setting>,
}

impl TierLimits {
    fn json(&self) -> Map<String, Value> {
        let number = |setting: Option<Setting>| setting.map(|Setting(number)| Value::from(number));
        let limits: Map<String, Value> = [
            ("per_second", self.per_second),
            ("per_minute", self.per_minute),
            ("per_hour", self.per_hour),
            ("per_day", self.per_day),
        ]
        .into_iter()
        .filter_map(|(field, setting)| Some((field.to_owned(), number(setting)?)))
        .collect();
        [
            ("limits", (!limits.is_empty()).then(|| limits.into())),
            ("unlimited", self.unlimited.then_some(true.into())),
            ("burst", number(self.burst)),
            ("shape", self.shape.map(|shape| shape.as_str().into())),
            ("max_in_flight", number(self.max_in_flight)),
            ("tenant_max_in_flight", number(self.tenant_max_in_flight)),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), value?)))
        .collect()
    }
}

const PATH: &str = "/v1/tiers";

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { connection } => {
            let list: TierList = Client::new(&connection.client)?.get(PATH).await?;
            match connection.output {
                Format::Json => output::json(&list)?,
                Format::Table => output::line(&table(&list.tiers))?,
            }
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
            let client = Client::new(&connection.client)?;
            let path = format!("{PATH}/{name}");
            let changed: Tier = client.send(Method::PATCH, &path, &body).await?;
            match connection.output {
                Format::Json => output::json(&changed)?,
                Format::Table => output::line(&table(&[changed]))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(tiers: &[Tier]) -> String {
    let number = |most: Option<u32>| most.map_or_else(|| "-".to_owned(), |most| most.to_string());
    let rows = tiers.iter().map(|tier| {
        vec![
            tier.name.clone(),
            phrase(&tier.limits, tier.shape.unwrap_or_default(), tier.burst),
            number(tier.max_in_flight),
            number(tier.tenant_max_in_flight),
        ]
    });
    let header = ["NAME", "LIMIT", "IN FLIGHT", "TENANT IN FLIGHT"];
    output::table(&header, rows).to_string()
}

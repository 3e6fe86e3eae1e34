//! A destination's smart delivery, on a terminal.

use clap::ValueEnum;
use http::Method;
use serde_json::{Map, Value};

use super::{Connection, Named, PATH};
use crate::api::smart_delivery::{EffectiveLimit, SmartStatus};
use crate::client::Client;
use crate::output::{self, Format};

/// Whether the effective limit follows how the receiver answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Turn {
    /// It does.
    On,
    /// The configured limit is in force.
    Off,
}

/// Turns it, if that is asked for, and prints what is in force.
pub(super) async fn run(
    id: &Named,
    set: Option<Turn>,
    connection: &Connection,
) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let path = format!("{PATH}/{id}/smart-delivery");
    let status = match set {
        Some(turn) => client.send(Method::PATCH, &path, &turn.json()).await?,
        None => client.get(&path).await?,
    };
    print(&status, connection.output)
}

impl Turn {
    fn json(self) -> Map<String, Value> {
        Map::from_iter([("enabled".to_owned(), (self == Self::On).into())])
    }
}

fn print(status: &SmartStatus, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json(status);
    }
    let row = |from: &str, limit: &EffectiveLimit| {
        let rate = limit.effective_per_second.map(|rate| rate.to_string());
        let in_flight = limit.effective_max_in_flight.map(|most| most.to_string());
        let configured = || "configured".to_owned();
        vec![
            from.to_owned(),
            rate.unwrap_or_else(configured),
            in_flight.unwrap_or_else(configured),
            limit.reason.as_str().to_owned(),
        ]
    };
    let now = match status.enabled {
        true => "now",
        false => "off",
    };
    let history = status.history.iter();
    let rows = std::iter::once(row(now, &status.now))
        .chain(history.map(|entry| row(&entry.in_force_from, &entry.limit)));
    let header = ["FROM", "PER SECOND", "IN FLIGHT", "REASON"];
    output::line(&output::table(&header, rows).to_string())
}

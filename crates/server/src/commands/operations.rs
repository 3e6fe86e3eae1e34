//! `paceline operations …`: what operators must know, over the API.

mod addresses;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use domain::operations::{OperationalScope, OperationalType};
use http::Method;
use serde_json::{Map, Value, json};

use super::destination::Connection;
use super::named::Named;
use crate::api::operations::{
    Alerts, OperationalDestination, OperationalDestinations, OperationalEvents, TenantAlerts,
};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what operators must know, the newest first.
    Events {
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Only those before the one of this id.
        #[arg(long, value_name = "ID")]
        before: Option<i64>,
        /// Of all tenants; for the scope `admin`.
        #[arg(long)]
        installation: bool,
        /// Of this type only.
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<OperationalType>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the destinations that are told.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Tell a destination, or change what it is told of.
    Register {
        /// Its id or its name.
        id: Named,
        /// Of all tenants' destinations; for the scope `admin`.
        #[arg(long)]
        installation: bool,
        /// Of this type only; may be repeated.
        #[arg(long = "type", value_name = "TYPE")]
        types: Vec<OperationalType>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Tell a destination nothing more.
    Unregister {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        connection: Connection,
    },
    #[command(flatten)]
    Addresses(addresses::Command),
    /// Show a destination's alerts, or set when operators are told of it.
    Alerts {
        /// Its id or its name.
        id: Named,
        #[command(flatten)]
        settings: AlertSettings,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the alerts of a tenant as a whole, or set when operators are told of it.
    TenantAlerts {
        #[command(flatten)]
        settings: TenantAlertSettings,
        #[command(flatten)]
        connection: Connection,
    },
}

/// What to change of a tenant's alerts.
#[derive(Debug, Clone, Args)]
pub struct TenantAlertSettings {
    /// When fewer of a hundred answers are successes; 0 for never.
    #[arg(long, value_name = "PERCENT")]
    pub success: Option<u32>,

    /// Of the answers within so long, such as `1h`; `5m` to `1day`.
    #[arg(long, value_name = "DURATION", value_parser = crate::config::duration)]
    pub within: Option<Duration>,

    /// If there are so many.
    #[arg(long, value_name = "COUNT")]
    pub least: Option<u32>,
}

impl TenantAlertSettings {
    fn json(&self) -> Map<String, Value> {
        let seconds = self.within.map(|within| whole_seconds(within).into());
        given([
            ("success_percent", self.success.map(Value::from)),
            ("success_seconds", seconds),
            ("success_least", self.least.map(Value::from)),
        ])
    }
}

/// Those that are said.
fn given<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    (fields.into_iter())
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// What to change of alerts.
#[derive(Debug, Clone, Args)]
pub struct AlertSettings {
    /// So many attempts wait; 0 for never.
    #[arg(long, value_name = "COUNT")]
    pub backlog: Option<u32>,

    /// For so long, such as `60s`, it gets less than its limit allows; `0s` for
    /// never.
    #[arg(long, value_name = "DURATION", value_parser = crate::config::duration)]
    pub under_delivery: Option<Duration>,

    /// It fails when so many of a hundred answers are failures; 0 for never.
    #[arg(long, value_name = "PERCENT")]
    pub failing: Option<u32>,
}

impl AlertSettings {
    fn json(&self) -> Map<String, Value> {
        let seconds = self.under_delivery.map(|after| whole_seconds(after).into());
        given([
            ("backlog", self.backlog.map(Value::from)),
            ("under_delivery_seconds", seconds),
            ("failing_percent", self.failing.map(Value::from)),
        ])
    }
}

const PATH: &str = "/v1/operational-destinations";

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Events {
            limit,
            before,
            installation,
            event_type,
            connection,
        } => {
            let client = Client::new(&connection.client)?;
            let of_type = event_type.map_or(String::new(), |one| format!("&type={}", one.as_str()));
            let query = format!("scope={}{of_type}", scope(installation));
            let page = newest(&client, &query, before, limit).await?;
            match connection.output {
                Format::Json => output::json(&page)?,
                Format::Table => output::line(&events(&page))?,
            }
        }
        Command::List { connection } => {
            let list: OperationalDestinations = Client::new(&connection.client)?.get(PATH).await?;
            match connection.output {
                Format::Json => output::json(&list)?,
                Format::Table => output::line(&told(&list.operational_destinations))?,
            }
        }
        Command::Register {
            id,
            installation,
            types,
            connection,
        } => {
            let body = json!({"scope": scope(installation), "event_types": types});
            let client = Client::new(&connection.client)?;
            let id = id.destination(&client).await?;
            let path = format!("{PATH}/{id}");
            let registered: OperationalDestination = client.send(Method::PUT, &path, &body).await?;
            match connection.output {
                Format::Json => output::json(&registered)?,
                Format::Table => output::line(&told(&[registered]))?,
            }
        }
        Command::Unregister { id, connection } => {
            let client = Client::new(&connection.client)?;
            let id = id.destination(&client).await?;
            client.delete(&format!("{PATH}/{id}")).await?;
            output::done(connection.output, "unregistered", id)?;
        }
        Command::Addresses(command) => return addresses::run(command).await,
        Command::Alerts {
            id,
            settings,
            connection,
        } => of_destination(&id, &settings, &connection).await?,
        Command::TenantAlerts {
            settings,
            connection,
        } => of_tenant(&settings, &connection).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn of_destination(
    id: &Named,
    settings: &AlertSettings,
    connection: &Connection,
) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let (path, change) = (format!("/v1/destinations/{id}/alerts"), settings.json());
    let alerts: Alerts = match change.is_empty() {
        true => client.get(&path).await?,
        false => client.send(Method::PATCH, &path, &change).await?,
    };
    match connection.output {
        Format::Json => output::json(&alerts),
        Format::Table => output::line(&table(&alerts)),
    }
}

async fn of_tenant(settings: &TenantAlertSettings, connection: &Connection) -> anyhow::Result<()> {
    let (path, change) = ("/v1/alerts", settings.json());
    let client = Client::new(&connection.client)?;
    let alerts: TenantAlerts = match change.is_empty() {
        true => client.get(path).await?,
        false => client.send(Method::PATCH, path, &change).await?,
    };
    match connection.output {
        Format::Json => output::json(&alerts),
        Format::Table => output::line(&tenants_table(&alerts)),
    }
}

/// The newest so many, from as many pages as hold them: a page of a rare type may hold
/// none, and not be the last.
async fn newest(
    client: &Client,
    query: &str,
    mut before: Option<i64>,
    limit: u32,
) -> anyhow::Result<OperationalEvents> {
    let mut all = Vec::new();
    loop {
        let left = limit.saturating_sub(u32::try_from(all.len())?);
        let after = before.map_or(String::new(), |before| format!("&before={before}"));
        let path = format!("/v1/operational-events?limit={left}&{query}{after}");
        let page: OperationalEvents = client.get(&path).await?;
        all.extend(page.operational_events);
        before = page.next;
        if before.is_none() || all.len() >= limit as usize {
            return Ok(OperationalEvents {
                operational_events: all,
                next: before,
            });
        }
    }
}

/// Whole seconds, rounded up: what is short is not never.
fn whole_seconds(after: Duration) -> u64 {
    after.as_secs() + u64::from(after.subsec_nanos() > 0)
}

const fn scope(installation: bool) -> &'static str {
    match installation {
        true => OperationalScope::Installation.as_str(),
        false => OperationalScope::Tenant.as_str(),
    }
}

fn events(page: &OperationalEvents) -> String {
    let rows = page.operational_events.iter().map(|event| {
        vec![
            event.id.to_string(),
            event.timestamp.clone(),
            event.event_type.clone(),
            match event.destination_name.is_empty() {
                true => output::or_dash(event.destination_id.as_ref()),
                false => event.destination_name.clone(),
            },
            match event.tenant_name.is_empty() {
                true => event.tenant_id.to_string(),
                false => event.tenant_name.clone(),
            },
            Value::from(event.details.clone()).to_string(),
        ]
    });
    let header = ["ID", "TIME", "TYPE", "DESTINATION", "TENANT", "DETAILS"];
    output::table(&header, rows).to_string()
}

fn told(all: &[OperationalDestination]) -> String {
    let rows = all.iter().map(|one| {
        vec![
            one.destination_id.to_string(),
            one.scope.as_str().to_owned(),
            types(&one.event_types),
        ]
    });
    output::table(&["DESTINATION", "SCOPE", "TYPES"], rows).to_string()
}

fn types(all: &[String]) -> String {
    match all.is_empty() {
        true => "all".to_owned(),
        false => all.join(","),
    }
}

fn table(alerts: &Alerts) -> String {
    let short = alerts.under_delivery.as_ref();
    let row = vec![
        alerts.backlog.to_string(),
        format!("{}s", alerts.under_delivery_seconds),
        output::or_dash(alerts.backlog_high_since.as_ref()),
        output::or_dash(short.map(|short| &short.since)),
        output::or_dash(short.map(|short| short.reason.as_str())),
        format!("{} %", alerts.failing_percent),
        output::or_dash(alerts.failing_since.as_ref()),
    ];
    let header = [
        "BACKLOG",
        "UNDER DELIVERY",
        "HIGH SINCE",
        "SHORT SINCE",
        "SHORT FOR",
        "FAILING",
        "FAILING SINCE",
    ];
    output::table(&header, [row]).to_string()
}

fn tenants_table(alerts: &TenantAlerts) -> String {
    let row = vec![
        format!("{} %", alerts.success_percent),
        format!("{}s", alerts.success_seconds),
        alerts.success_least.to_string(),
        output::or_dash(alerts.success_low_since.as_ref()),
        output::or_dash(alerts.destinations_high_since.as_ref()),
        output::or_dash(alerts.backlog_high_since.as_ref()),
        output::or_dash(alerts.refused_since.as_ref()),
    ];
    let header = [
        "SUCCESS",
        "WITHIN",
        "LEAST",
        "LOW SINCE",
        "DESTINATIONS HIGH SINCE",
        "BACKLOG HIGH SINCE",
        "REFUSED SINCE",
    ];
    output::table(&header, [row]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_not_never() {
        for (millis, seconds) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2)] {
            let settings = AlertSettings {
                backlog: None,
                under_delivery: Some(Duration::from_millis(millis)),
                failing: None,
            };
            assert_eq!(settings.json()["under_delivery_seconds"], seconds);
            assert_eq!(settings.json().len(), 1);
        }
    }
}

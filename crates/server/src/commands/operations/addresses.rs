//! `paceline operations add-address` and its like: people who are told.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use domain::notices::NoticeForm;
use domain::operations::OperationalType;
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use uuid::Uuid;

use super::super::destination::Connection;
use super::{scope, types, whole_seconds};
use crate::api::notices::{NoticeAddress, NoticeAddresses};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Tell somebody by mail or in a chat.
    AddAddress {
        /// A mail address, or the URL of an incoming webhook as Slack has them.
        address: SecretString,
        /// Of all tenants' destinations; for the scope `admin`.
        #[arg(long)]
        installation: bool,
        /// Of this type only; may be repeated.
        #[arg(long = "type", value_name = "TYPE")]
        types: Vec<OperationalType>,
        /// Between two messages, such as `10m`: what happens meanwhile comes as one.
        #[arg(long, value_name = "DURATION", default_value = "10m")]
        #[arg(value_parser = crate::config::duration)]
        every: Duration,
        #[command(flatten)]
        connection: Connection,
    },
    /// List who is told by mail or in a chat.
    Addresses {
        #[command(flatten)]
        connection: Connection,
    },
    /// Tell an address nothing more.
    RemoveAddress {
        /// Its id, as `addresses` shows it.
        id: Uuid,
        #[command(flatten)]
        connection: Connection,
    },
}

const PATH: &str = "/v1/notice-addresses";

/// Does it, and prints what it got.
pub(super) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::AddAddress {
            address,
            installation,
            types,
            every,
            connection,
        } => {
            let body = json!({
                "form": form_of(address.expose_secret()),
                "address": address.expose_secret(),
                "scope": scope(installation),
                "event_types": types,
                "every_seconds": whole_seconds(every),
            });
            let client = Client::new(&connection.client)?;
            let added: NoticeAddress = client.send(Method::POST, PATH, &body).await?;
            match connection.output {
                Format::Json => output::json(&added)?,
                Format::Table => output::line(&table(&[added]))?,
            }
        }
        Command::Addresses { connection } => {
            let list: NoticeAddresses = Client::new(&connection.client)?.get(PATH).await?;
            match connection.output {
                Format::Json => output::json(&list)?,
                Format::Table => output::line(&table(&list.notice_addresses))?,
            }
        }
        Command::RemoveAddress { id, connection } => {
            let client = Client::new(&connection.client)?;
            client.delete(&format!("{PATH}/{id}")).await?;
            output::done(connection.output, "removed", id)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What has a scheme is a webhook.
fn form_of(address: &str) -> NoticeForm {
    match address.contains("://") {
        true => NoticeForm::Slack,
        false => NoticeForm::Email,
    }
}

fn table(all: &[NoticeAddress]) -> String {
    let rows = all.iter().map(|one| {
        vec![
            one.id.to_string(),
            one.form.to_string(),
            one.address.clone(),
            one.scope.as_str().to_owned(),
            types(&one.event_types),
            format!("{}s", one.every_seconds),
        ]
    });
    let header = ["ID", "FORM", "ADDRESS", "SCOPE", "TYPES", "EVERY"];
    output::table(&header, rows).to_string()
}

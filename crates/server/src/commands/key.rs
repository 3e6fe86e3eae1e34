//! `paceline key …`: API keys over the API, for its administrator.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use domain::access::{KeyId, Scope};
use http::Method;
use serde_json::json;
use uuid::Uuid;

use super::destination::Connection;
use super::named::Named;
use super::sure::Sure;
use crate::api::keys::{ApiKey, CreatedKey, KeyList};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a key and show it, once.
    Create {
        /// The tenant that it is for, by its id or its name.
        tenant: Named,
        /// What it may be used for: ingest, manage, read, admin,
        /// platform or read-payloads. Repeatable.
        #[arg(long = "scope", value_name = "SCOPE", required = true)]
        scopes: Vec<Scope>,
        /// A name, for people.
        #[arg(long, value_name = "TEXT", default_value = "")]
        name: String,
        /// How long it is good for, such as `90d`; without it until it is
        /// revoked.
        #[arg(long, value_name = "DURATION", value_parser = crate::config::duration)]
        expires_in: Option<Duration>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List a tenant's keys.
    List {
        /// Whose: an id or a name.
        tenant: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke a key for good; it is refused everywhere within 5 seconds.
    Revoke {
        /// Whose it is: an id or a name.
        tenant: Named,
        /// Its id.
        key: KeyId,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

fn path(tenant: Uuid) -> String {
    format!("/v1/tenants/{tenant}/keys")
}

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create {
            tenant,
            scopes,
            name,
            expires_in,
            connection,
        } => {
            let seconds = expires_in.map(|expires_in| expires_in.as_secs());
            let body = json!({"name": name, "scopes": scopes, "expires_in_seconds": seconds});
            let client = Client::administering(&connection.client)?;
            let tenant = tenant.tenant(&client).await?;
            let created: CreatedKey = client.send(Method::POST, &path(tenant), &body).await?;
            match connection.output {
                Format::Json => output::json(&created)?,
                // The key alone: it may be on its way into a file.
                Format::Table => output::line(&created.key)?,
            }
        }
        Command::List { tenant, connection } => {
            let client = Client::administering(&connection.client)?;
            let tenant = tenant.tenant(&client).await?;
            let list: KeyList = client.get(&path(tenant)).await?;
            match connection.output {
                Format::Json => output::json(&list)?,
                Format::Table => output::line(&table(&list.keys))?,
            }
        }
        Command::Revoke {
            tenant,
            key,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::administering(&connection.client)?;
            let tenant = tenant.tenant(&client).await?;
            sure.ask(async || revoking(&client, tenant, key).await)
                .await?;
            client.delete(&format!("{}/{key}", path(tenant))).await?;
            output::done(connection.output, "revoked", key)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What ends with it, in words.
async fn revoking(client: &Client, tenant: Uuid, id: KeyId) -> anyhow::Result<String> {
    let list: KeyList = client.get(&path(tenant)).await?;
    let id = id.to_string();
    let key = list.keys.into_iter().find(|key| key.id == id);
    let (name, used) = key.map_or_else(Default::default, |key| (key.name, key.last_used_at));
    Ok(format!(
        "Revokes the key {id} {name}: whoever calls with it is refused, for good, and whoever \
         is signed in with it or has a link that it made is signed out. Last used: {}.",
        used.unwrap_or_else(|| "never".to_owned())
    ))
}

fn table(keys: &[ApiKey]) -> String {
    let rows = keys.iter().map(|key| {
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.as_str()).collect();
        vec![
            key.id.clone(),
            key.name.clone(),
            scopes.join(","),
            key.created_at.clone(),
            output::or_dash(key.expires_at.as_ref()),
            output::or_dash(key.last_used_at.as_ref()),
            output::or_dash(key.revoked_at.as_ref()),
        ]
    });
    let header = [
        "ID",
        "NAME",
        "SCOPES",
        "CREATED",
        "EXPIRES",
        "LAST USED",
        "REVOKED",
    ];
    output::table(&header, rows).to_string()
}

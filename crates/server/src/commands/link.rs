//! `paceline link …`: links to a tenant's pages over the API, for its
//! administrator.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use domain::access::LinkId;
use http::Method;
use serde_json::json;
use uuid::Uuid;

use super::destination::Connection;
use super::named::Named;
use super::sure::Sure;
use crate::api::links::{CreatedLink, Link, LinkList};
use crate::client::Client;
use crate::output::{self, Format};
use crate::service::links::LinkRights;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a link to a tenant's pages and show it, once.
    Create {
        /// The tenant whose pages it opens, by its id or its name.
        tenant: Named,
        /// A name, for people.
        #[arg(long, value_name = "TEXT", default_value = "")]
        name: String,
        /// How long it is good for, a minute to seven days, such as `8h`.
        #[arg(long, value_name = "DURATION", value_parser = crate::config::duration)]
        #[arg(default_value = "1h")]
        expires_in: Duration,
        /// It may add, change, try, pause and delete destinations, rotate their signing
        /// secrets, replay and resend, and set limits up to the tier's.
        #[arg(long)]
        may_change: bool,
        /// It shows what events carry.
        #[arg(long)]
        may_read_payloads: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// List a tenant's links that are good.
    List {
        /// Whose: an id or a name.
        tenant: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke a link for good; whoever opened it is signed out.
    Revoke {
        /// Whose pages it opens: an id or a name.
        tenant: Named,
        /// Its id.
        link: LinkId,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

fn path(tenant: Uuid) -> String {
    format!("/v1/tenants/{tenant}/links")
}

/// Does it, and prints what it got.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create {
            tenant,
            name,
            expires_in,
            may_change,
            may_read_payloads,
            connection,
        } => {
            let body = json!({
                "name": name, "may_change": may_change, "may_read_payloads": may_read_payloads,
                "expires_in_seconds": expires_in.as_secs(),
            });
            let client = Client::administering(&connection.client)?;
            let tenant = tenant.tenant(&client).await?;
            let mut created: CreatedLink = client.send(Method::POST, &path(tenant), &body).await?;
            let url = client.url().join(&created.url);
            created.url = url.context("read the link's url")?.into();
            match connection.output {
                Format::Json => output::json(&created)?,
                // The link alone: it may be on its way into a mail.
                Format::Table => output::line(&created.url)?,
            }
        }
        Command::List { tenant, connection } => {
            let client = Client::administering(&connection.client)?;
            let tenant = tenant.tenant(&client).await?;
            let list: LinkList = client.get(&path(tenant)).await?;
            match connection.output {
                Format::Json => output::json(&list)?,
                Format::Table => output::line(&table(&list.links))?,
            }
        }
        Command::Revoke {
            tenant,
            link,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::administering(&connection.client)?;
            let tenant = tenant.tenant(&client).await?;
            let what = format!(
                "Revokes the link {link}: it opens nothing any more, and whoever opened it is \
                 signed out."
            );
            sure.ask(async || Ok(what)).await?;
            client.delete(&format!("{}/{link}", path(tenant))).await?;
            output::done(connection.output, "revoked", link)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(links: &[Link]) -> String {
    let rows = links.iter().map(|link| {
        let rights = LinkRights {
            may_change: link.may_change,
            may_read_payloads: link.may_read_payloads,
        };
        vec![
            link.id.clone(),
            link.name.clone(),
            rights.words().to_owned(),
            link.created_at.clone(),
            link.expires_at.clone(),
        ]
    });
    let header = ["ID", "NAME", "DOES", "CREATED", "EXPIRES"];
    output::table(&header, rows).to_string()
}

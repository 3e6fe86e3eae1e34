//! `paceline destination secret …`: what signs a destination's requests.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use domain::signature::SecretKind;
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Connection, Named, PATH, Sure};
use crate::api::secrets::{CreatedSecret, Secret, Secrets};
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the secrets that sign, without the secrets.
    List {
        /// The destination's id or its name.
        destination: Named,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add a secret, shown once; those before it sign beside it for a day, and
    /// then no more.
    Rotate {
        /// The destination's id or its name.
        destination: Named,
        /// How a new one signs: hmac or ed25519; as the one before it, if left out.
        #[arg(long, value_name = "KIND", conflicts_with = "secret")]
        kind: Option<SecretKind>,
        /// How long the secrets before it still sign: `0s` for one that has
        /// leaked, at most `7days`.
        #[arg(long, value_name = "DURATION", value_parser = crate::config::duration)]
        overlap: Option<Duration>,
        /// Your own secret, whsec_… or whsk_…; better set by its variable.
        #[arg(
            long,
            env = "PACELINE_SECRET",
            value_name = "SECRET",
            hide_env_values = true
        )]
        secret: Option<SecretString>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete a secret: no request is signed by it any more.
    Delete {
        /// The destination's id or its name.
        destination: Named,
        /// The secret's id.
        id: Uuid,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Does it, and prints what it got.
pub(super) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List {
            destination,
            connection,
        } => {
            let client = Client::new(&connection.client)?;
            let destination = destination.destination(&client).await?;
            let found: Secrets = client.get(&format!("{PATH}/{destination}/secrets")).await?;
            match connection.output {
                Format::Json => output::json(&found)?,
                Format::Table => print(&found.secrets)?,
            }
        }
        Command::Rotate {
            destination,
            kind,
            overlap,
            secret,
            connection,
        } => {
            let body = body(kind, overlap, secret.as_ref());
            let client = Client::new(&connection.client)?;
            let destination = destination.destination(&client).await?;
            let path = format!("{PATH}/{destination}/secrets");
            let created: CreatedSecret = client.send(Method::POST, &path, &body).await?;
            match connection.output {
                Format::Json => output::json(&created)?,
                Format::Table => {
                    print(std::slice::from_ref(&created.added))?;
                    if let Some(secret) = &created.secret {
                        output::line(&shown_once(secret.expose()))?;
                    }
                }
            }
        }
        Command::Delete {
            destination,
            id,
            sure,
            connection,
        } => {
            sure.check()?;
            let client = Client::new(&connection.client)?;
            let destination = destination.destination(&client).await?;
            sure.ask(async || deleting(&client, destination, id).await)
                .await?;
            let path = format!("{PATH}/{destination}/secrets/{id}");
            client.delete(&path).await?;
            output::done(connection.output, "deleted", id)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What becomes of signatures without it, in words.
async fn deleting(client: &Client, destination: Uuid, id: Uuid) -> anyhow::Result<String> {
    let found: Secrets = client.get(&format!("{PATH}/{destination}/secrets")).await?;
    let others = found.secrets.iter().filter(|one| one.id != id).count();
    Ok(format!(
        "Deletes the secret {id}: no request is signed by it any more, and a receiver that \
         knows no other refuses all. {others} other secret(s) sign."
    ))
}

/// The line for the receiver's owner.
pub(super) fn shown_once(secret: &str) -> String {
    format!("secret: {secret} (shown once: give it to the receiver)")
}

fn body(
    kind: Option<SecretKind>,
    overlap: Option<Duration>,
    secret: Option<&SecretString>,
) -> Map<String, Value> {
    let secret = secret.map(|secret| secret.expose_secret().into());
    [
        ("kind", kind.map(|kind| kind.as_str().into())),
        (
            "overlap_seconds",
            overlap.map(|overlap| overlap.as_secs().into()),
        ),
        ("secret", secret),
    ]
    .into_iter()
    .filter_map(|(field, value)| Some((field.to_owned(), value?)))
    .collect()
}

fn print(secrets: &[Secret]) -> anyhow::Result<()> {
    let rows = secrets.iter().map(|secret| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![
            secret.id.to_string(),
            secret.kind.as_str().to_owned(),
            secret.created_at.clone(),
            text(&secret.expires_at),
            text(&secret.public_key),
        ]
    });
    let header = ["ID", "KIND", "CREATED", "EXPIRES", "PUBLIC KEY"];
    output::line(&output::table(&header, rows).to_string())
}

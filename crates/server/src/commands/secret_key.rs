//! `paceline secret-key …`: the keys that secrets are sealed under.

use std::process::ExitCode;
use std::sync::Arc;

use adapters::key_ring::KeyRing;
use clap::{Args, Subcommand};
use engine::ports::{SecretStore, Vault};
use engine::resealing::Resealing;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::config::{Database, SecretKeysConfig, StoreConfig};
use crate::edge::Mint;
use crate::{output, parts, secret_keys};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a new key, for PACELINE_SECRET_KEYS or its file.
    Generate,
    /// Show under which keys secrets are sealed.
    List(Place),
    /// Seal all secrets under the first key, while everything runs.
    Reseal(Place),
}

/// The store and the keys.
#[derive(Debug, Clone, Args)]
pub struct Place {
    #[command(flatten)]
    pub store: StoreConfig,
    #[command(flatten)]
    pub secret_keys: SecretKeysConfig,
}

/// Does it, and prints what it did.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let mint = Mint::from_system()?;
    match command {
        Command::Generate => {
            output::line(&secret_keys::new_key(&mint))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::List(place) => list(&place, &mint).await,
        Command::Reseal(place) => reseal(&place, &mint).await,
    }
}

async fn open(place: &Place, mint: &Mint) -> anyhow::Result<(KeyRing, Arc<dyn SecretStore>)> {
    // The file beside the database, if it is there: this makes none.
    let database = place.store.place()?;
    let embedded =
        matches!(&database, Database::Sqlite(file) if secret_keys::file_beside(file).exists());
    let ring = secret_keys::resolve(embedded, &place.secret_keys, &place.store, mint)?;
    Ok((ring, parts::open_secrets(&place.store).await?))
}

async fn list(place: &Place, mint: &Mint) -> anyhow::Result<ExitCode> {
    let (ring, secrets) = open(place, mint).await?;
    let in_use = secrets.keys_in_use().await?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (number, id) in ring.ids().enumerate() {
        let sealed = in_use.iter().find(|(key, _)| key == id);
        let sealed = sealed.map_or(0, |(_, number)| *number);
        let role = if number == 0 { "seals" } else { "opens" };
        rows.push(vec![id.to_owned(), role.to_owned(), sealed.to_string()]);
    }
    for (key, number) in &in_use {
        if !ring.ids().any(|id| id == key) {
            rows.push(vec![key.clone(), "missing".to_owned(), number.to_string()]);
        }
    }
    output::line(&output::table(&["KEY", "IT", "SECRETS"], rows).to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Exits with 1 if a secret is left under another key.
async fn reseal(place: &Place, mint: &Mint) -> anyhow::Result<ExitCode> {
    let (ring, secrets) = open(place, mint).await?;
    let key = ring.sealing_key().to_owned();
    let rng = StdRng::from_seed(mint.bytes());
    let mut resealing = Resealing::new(secrets, Arc::new(ring), rng);
    let (mut resealed, mut closed) = (0, 0);
    loop {
        let page = resealing.tick().await?;
        resealed += page.resealed;
        closed += page.closed;
        if !page.more {
            break;
        }
    }
    output::line(&format!("sealed {resealed} secrets anew under {key}"))?;
    if closed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("{closed} secrets do not open: the log says why"))?;
    Ok(ExitCode::FAILURE)
}

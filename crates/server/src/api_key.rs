//! The key that a process starts with: configured, or made at the first start.
//!
//! It is no row of the store: it has all scopes of the default tenant for as
//! long as the process has it, so that one command is enough to begin with and
//! an administrator cannot lock himself out.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use engine::roles::Role;
use secrecy::{ExposeSecret, SecretString};

use crate::config::{ApiConfig, ConfigError, Database, ListenConfig, StoreConfig};
use crate::edge::Mint;

/// The shortest key for an address that others can reach.
const MIN_KEY_BYTES: usize = 16;

/// The key that is configured; for `serve` on a loopback address, else the one
/// in the key file beside the database, made and printed at the first start.
pub fn resolve(
    role: Role,
    api: &ApiConfig,
    listen: &ListenConfig,
    store: &StoreConfig,
    mint: &Mint,
) -> anyhow::Result<SecretString> {
    let loopback = listen.listen.ip().is_loopback();
    if let Some(key) = &api.api_key {
        let length = key.expose_secret().len();
        if length == 0 || (!loopback && length < MIN_KEY_BYTES) {
            let problem = format!("must have at least {MIN_KEY_BYTES} characters");
            return Err(ConfigError::flag("api-key", problem).into());
        }
        return Ok(key.clone());
    }
    if role != Role::Serve || !loopback {
        return Err(ConfigError::flag(
            "api-key",
            format!(
                "set one: without a key, {} could be called by anyone",
                listen.listen
            ),
        )
        .into());
    }
    match store.place()? {
        Database::Sqlite(database) => stored(&key_file(&database), mint),
        Database::SqliteInMemory | Database::Postgres(_) => {
            let key = mint.key().text;
            announce(&key, "for this run; set PACELINE_API_KEY to keep one")?;
            Ok(key)
        }
    }
}

/// Where the key of an embedded database is: `paceline.db.key` for
/// `paceline.db`.
#[must_use]
pub fn key_file(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".key");
    PathBuf::from(name)
}

/// The key in a key file, if there is one.
pub fn read(file: &Path) -> io::Result<Option<SecretString>> {
    match fs::read_to_string(file) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(SecretString::from(text.trim()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn stored(file: &Path, mint: &Mint) -> anyhow::Result<SecretString> {
    let context = || format!("key file {}", file.display());
    if let Some(key) = read(file).with_context(context)? {
        return Ok(key);
    }
    let key = mint.key().text;
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut opened| writeln!(opened, "{}", key.expose_secret()))
        .with_context(context)?;
    if let Err(error) = announce(&key, &format!("kept in {}", file.display())) {
        // Nobody reads it there; it can be read in the file.
        let file = file.display();
        tracing::warn!(error = %format!("{error:#}"), %file, "the API key is in this file");
    }
    Ok(key)
}

/// To standard output, once, and never to the log.
fn announce(key: &SecretString, note: &str) -> anyhow::Result<()> {
    writeln!(
        io::stdout().lock(),
        "API key: {} ({note})",
        key.expose_secret()
    )
    .context("print the API key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(
        key: Option<&str>,
        listen: &str,
        database: &str,
    ) -> (ApiConfig, ListenConfig, StoreConfig) {
        let Ok(database_url) = database.parse();
        (
            ApiConfig {
                manage: crate::config::ManageConfig::default(),
                api_key: key.map(SecretString::from),
            },
            ListenConfig {
                listen: listen.parse().unwrap(),
                metrics_listen: None,
                max_connections: 16,
                max_connections_per_address: 16,
            },
            StoreConfig {
                database_url,
                database_connections: 2,
            },
        )
    }

    fn resolved(
        role: Role,
        key: Option<&str>,
        listen: &str,
        database: &str,
    ) -> Result<SecretString, String> {
        let mint = Mint::from_system().unwrap();
        let (api, listen, store) = config(key, listen, database);
        resolve(role, &api, &listen, &store, &mint).map_err(|error| error.to_string())
    }

    #[test]
    fn an_open_address_needs_a_key_and_a_long_one() {
        let refused = |role, key, listen| {
            resolved(role, key, listen, "sqlite::memory:")
                .err()
                .unwrap_or_default()
        };
        assert!(refused(Role::Serve, None, "0.0.0.0:80").contains("PACELINE_API_KEY"));
        assert!(refused(Role::Api, None, "127.0.0.1:80").contains("PACELINE_API_KEY"));
        assert!(refused(Role::Serve, Some("short"), "0.0.0.0:80").contains("at least 16"));
        assert_eq!(refused(Role::Serve, Some("short"), "127.0.0.1:80"), "");
        assert!(refused(Role::Serve, Some(""), "127.0.0.1:80").contains("at least 16"));
    }

    #[test]
    fn the_first_start_makes_a_key_and_the_second_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let url = format!("sqlite:{}", database.display());
        let serve = || resolved(Role::Serve, None, "127.0.0.1:80", &url).unwrap();
        serve();
        let key = read(&key_file(&database)).unwrap().unwrap();
        assert_eq!(serve().expose_secret(), key.expose_secret());
    }
}

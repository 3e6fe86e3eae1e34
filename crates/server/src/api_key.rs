//! The API's key: where it comes from, and how it is compared.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::config::{ApiConfig, ConfigError, Database, ListenConfig, StoreConfig};
use crate::edge::Mint;
use crate::role::Role;

/// The shortest key for an address that others can reach.
const MIN_KEY_BYTES: usize = 16;

/// The key that callers must know, kept as its digest.
#[derive(Clone)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    /// Of this text.
    #[must_use]
    pub fn new(key: &SecretString) -> Self {
        Self(Sha256::digest(key.expose_secret().as_bytes()).into())
    }

    /// Whether it is the key. Takes as long for a near miss as for a far one:
    /// it compares digests, all of them, so the time tells nothing about the
    /// key.
    #[must_use]
    pub fn is(&self, offered: &str) -> bool {
        let offered: [u8; 32] = Sha256::digest(offered.as_bytes()).into();
        let difference =
            (self.0.iter().zip(offered)).fold(0, |sum, (ours, theirs)| sum | (ours ^ theirs));
        std::hint::black_box(difference) == 0
    }
}

/// The key that is configured; for `serve` on a loopback address, else the one
/// in the key file beside the database, made and printed at the first start.
pub fn resolve(
    role: Role,
    api: &ApiConfig,
    listen: &ListenConfig,
    store: &StoreConfig,
    mint: &Mint,
) -> anyhow::Result<ApiKey> {
    let loopback = listen.listen.ip().is_loopback();
    if let Some(key) = &api.api_key {
        let length = key.expose_secret().len();
        if length == 0 || (!loopback && length < MIN_KEY_BYTES) {
            let problem = format!("must have at least {MIN_KEY_BYTES} characters");
            return Err(ConfigError::flag("api-key", problem).into());
        }
        return Ok(ApiKey::new(key));
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
            let key = SecretString::from(mint.api_key());
            announce(&key, "for this run; set PACELINE_API_KEY to keep one")?;
            Ok(ApiKey::new(&key))
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

fn stored(file: &Path, mint: &Mint) -> anyhow::Result<ApiKey> {
    let context = || format!("key file {}", file.display());
    if let Some(key) = read(file).with_context(context)? {
        return Ok(ApiKey::new(&key));
    }
    let key = SecretString::from(mint.api_key());
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut opened| writeln!(opened, "{}", key.expose_secret()))
        .with_context(context)?;
    announce(&key, &format!("kept in {}", file.display()))?;
    Ok(ApiKey::new(&key))
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

    #[test]
    fn only_the_key_is_the_key() {
        let key = ApiKey::new(&SecretString::from("correct horse"));
        assert!(key.is("correct horse"));
        for other in ["", "correct hors", "correct horse ", "Correct horse"] {
            assert!(!key.is(other), "{other:?}");
        }
    }

    fn config(
        key: Option<&str>,
        listen: &str,
        database: &str,
    ) -> (ApiConfig, ListenConfig, StoreConfig) {
        let Ok(database_url) = database.parse();
        (
            ApiConfig {
                api_key: key.map(SecretString::from),
            },
            ListenConfig {
                listen: listen.parse().unwrap(),
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
    ) -> Result<ApiKey, String> {
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
        assert!(serve().is(key.expose_secret()));
    }
}

//! The keys that secrets are sealed under: where they come from.
//!
//! One process with an SQLite file makes a key file beside it at its first
//! start, so that one command still starts it. Whatever shares a database is
//! told its keys, because all of them need the same.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use adapters::key_ring::KeyRing;
use anyhow::{Context, bail};
use engine::ports::SecretStore;
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use crate::access::key::hex;
use crate::config::{ConfigError, Database, SecretKeysConfig, StoreConfig};
use crate::edge::Mint;

/// The largest file of keys that is read.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The ring of keys that is configured; for one process with an SQLite file,
/// else the one in the file beside it, made at the first start.
pub fn resolve(
    embedded: bool,
    config: &SecretKeysConfig,
    store: &StoreConfig,
    mint: &Mint,
) -> anyhow::Result<KeyRing> {
    match (&config.secret_keys, &config.secret_keys_file) {
        (Some(_), Some(_)) => Err(ConfigError::flag(
            "secret-keys",
            "set this or --secret-keys-file (PACELINE_SECRET_KEYS_FILE), not both",
        )
        .into()),
        (Some(keys), None) => Ok(KeyRing::parse(keys.expose_secret())
            .map_err(|problem| ConfigError::flag("secret-keys", problem.to_string()))?),
        (None, Some(file)) => from_file(file),
        (None, None) => match store.place()? {
            Database::Sqlite(database) if embedded => beside(&database, mint),
            Database::SqliteInMemory if embedded => {
                let key = new_key(mint);
                KeyRing::parse(&key).context("a new key")
            }
            _ => Err(ConfigError::flag(
                "secret-keys",
                "set this or --secret-keys-file (PACELINE_SECRET_KEYS_FILE): destinations' \
                 secrets are sealed under these keys, the same in every process that serves the \
                 API or delivers; `paceline secret-key generate` makes one",
            )
            .into()),
        },
    }
}

/// A key of a new id.
pub fn new_key(mint: &Mint) -> Zeroizing<String> {
    let id = hex(&mint.bytes::<4>());
    let key = Zeroizing::new(mint.bytes());
    KeyRing::entry(&format!("key-{id}"), &key)
}

/// Where the keys of an embedded database are: `paceline.db.secret-keys` for
/// `paceline.db`.
#[must_use]
pub fn file_beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".secret-keys");
    PathBuf::from(name)
}

fn from_file(file: &Path) -> anyhow::Result<KeyRing> {
    let refused = |problem: String| ConfigError::flag("secret-keys-file", problem);
    let unreadable =
        |error: io::Error| refused(format!("{} cannot be read: {error}", file.display()));
    let text = read(file).map_err(unreadable)?;
    let parsed = KeyRing::parse(&text);
    Ok(parsed.map_err(|problem| refused(format!("{}: {problem}", file.display())))?)
}

fn read(file: &Path) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let opened = OpenOptions::new().read(true).open(file)?;
    opened.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The file beside an embedded database. A new one is written whole, for its
/// owner's eyes only, before anything is sealed under it.
fn beside(database: &Path, mint: &Mint) -> anyhow::Result<KeyRing> {
    let file = file_beside(database);
    let context = || format!("key file {}", file.display());
    match read(&file) {
        Ok(text) => return KeyRing::parse(&text).with_context(context),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(context),
    }
    let text = Zeroizing::new(format!(
        "# Destinations' secrets are sealed under the first of these keys. Keep a copy:\n\
         # without it nobody can sign. To change it: docs/signatures.md.\n{}\n",
        *new_key(mint)
    ));
    let partial = file.with_extension(format!("secret-keys.{}", mint.uuid()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)
        .and_then(|mut opened| {
            opened.write_all(text.as_bytes())?;
            opened.sync_all()
        })
        // Not `rename`, which would replace what somebody else made meanwhile.
        .and_then(|()| std::fs::hard_link(&partial, &file));
    let removed = std::fs::remove_file(&partial);
    match written {
        Ok(()) => removed.with_context(context)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(context),
    }
    let text = read(&file).with_context(context)?;
    KeyRing::parse(&text).with_context(context)
}

/// Refuses to go on where secrets are sealed under a key that is not in the
/// ring. A store that cannot say (it is away, or yet to be migrated) is left to
/// readiness.
pub async fn check(ring: &KeyRing, secrets: &dyn SecretStore) -> anyhow::Result<()> {
    let in_use = match secrets.keys_in_use().await {
        Ok(in_use) => in_use,
        Err(error) => {
            tracing::warn!(%error, "it is not known whether all secrets can be opened");
            return Ok(());
        }
    };
    for (key, number) in in_use {
        if !ring.ids().any(|id| id == key) {
            bail!(
                "{number} secrets in the store are sealed under the key {key}, which is not among \
                 those of PACELINE_SECRET_KEYS, PACELINE_SECRET_KEYS_FILE or the key file beside \
                 the database: add it after the others"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use engine::ports::Vault;
    use secrecy::SecretString;

    use super::*;

    fn store(url: &str) -> StoreConfig {
        StoreConfig {
            database_url: url.parse().unwrap(),
            database_connections: 2,
        }
    }

    fn given(keys: Option<&str>, file: Option<&Path>) -> SecretKeysConfig {
        SecretKeysConfig {
            secret_keys: keys.map(SecretString::from),
            secret_keys_file: file.map(Path::to_owned),
        }
    }

    fn refused(embedded: bool, config: &SecretKeysConfig, url: &str) -> String {
        let mint = Mint::from_system().unwrap();
        let refused = resolve(embedded, config, &store(url), &mint).unwrap_err();
        assert!(refused.downcast_ref::<ConfigError>().is_some());
        format!("{refused:#}")
    }

    #[test]
    fn an_embedded_database_gets_a_key_of_its_own_and_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("paceline.db").display());
        let mint = Mint::from_system().unwrap();
        let ring = || resolve(true, &given(None, None), &store(&url), &mint).unwrap();
        let first = ring().sealing_key().to_owned();
        let file = folder.path().join("paceline.db.secret-keys");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ring().sealing_key(), first);
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "no partial file is left");
        // A file that was cut short is not replaced by a new key.
        std::fs::write(&file, "key-1:AAAA").unwrap();
        let broken = resolve(true, &given(None, None), &store(&url), &mint);
        assert!(format!("{:#}", broken.unwrap_err()).contains("paceline.db.secret-keys"));
    }

    #[test]
    fn whoever_shares_a_database_is_told_which_setting_is_missing() {
        for url in ["postgres://db/paceline", "sqlite:a.db"] {
            let said = refused(false, &given(None, None), url);
            assert!(said.contains("PACELINE_SECRET_KEYS"), "{said}");
            assert!(said.contains("PACELINE_SECRET_KEYS_FILE"), "{said}");
        }
        let said = refused(true, &given(None, None), "postgres://db/paceline");
        assert!(said.contains("PACELINE_SECRET_KEYS"), "{said}");
    }

    #[test]
    fn a_wrong_setting_is_named_and_no_key_is_shown() {
        let said = refused(true, &given(Some("hunter2"), None), "sqlite:a.db");
        assert!(
            said.contains("--secret-keys (PACELINE_SECRET_KEYS)"),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
        let nowhere = Path::new("/nowhere/keys");
        let said = refused(true, &given(None, Some(nowhere)), "sqlite:a.db");
        assert!(said.contains("PACELINE_SECRET_KEYS_FILE"), "{said}");
        let said = refused(true, &given(Some("a:b"), Some(nowhere)), "sqlite:a.db");
        assert!(said.contains("not both"), "{said}");
        let shown = format!("{:?}", given(Some("hunter2"), None));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn keys_come_from_the_setting_or_its_file() {
        let mint = Mint::from_system().unwrap();
        let keys = format!("{},{}", *new_key(&mint), *new_key(&mint));
        let store = store("postgres://db/paceline");
        let ring = resolve(false, &given(Some(&keys), None), &store, &mint).unwrap();
        assert_eq!(ring.ids().count(), 2);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &keys).unwrap();
        let same = resolve(false, &given(None, Some(file.path())), &store, &mint).unwrap();
        assert!(ring.ids().eq(same.ids()));
    }
}

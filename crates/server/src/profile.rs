//! Profiles: which API the command line talks to, and as whom, kept in one file of its
//! user's.
//!
//! The file holds keys: it is made for its owner alone, is replaced whole, and is not
//! read where others may read it too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Url;

use crate::config::ConfigError;

/// The profile that is meant where none is named.
pub const DEFAULT: &str = "default";

/// Longer than any file that people make: some hundreds of profiles.
const MAX_FILE_BYTES: u64 = 256 * 1024;

const MAX_NAME_BYTES: usize = 64;

/// One of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Where the API is.
    #[serde(serialize_with = "shown", deserialize_with = "parsed")]
    pub url: Url,
    /// The key to it.
    #[serde(serialize_with = "exposed", deserialize_with = "hidden")]
    pub api_key: SecretString,
    /// Whom it acts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Authorities to trust beside this host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The key may go in clear to another machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
}

/// All of one user.
#[derive(Debug)]
pub struct Profiles {
    file: PathBuf,
    all: BTreeMap<String, Profile>,
}

impl Profiles {
    /// Reads this user's; none are there before the first login. `None` where there is
    /// no folder to keep any in.
    pub fn of_user() -> anyhow::Result<Option<Self>> {
        let folder = folder(|name| std::env::var_os(name));
        folder.map(|folder| Self::read(&folder)).transpose()
    }

    /// The same where they are needed.
    pub fn required() -> anyhow::Result<Self> {
        let found = Self::of_user()?;
        found.context("there is no folder to keep profiles in: set HOME or XDG_CONFIG_HOME")
    }

    fn read(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join("profiles.toml");
        let all = parse(&file).with_context(|| format!("read {}", file.display()))?;
        Ok(Self { file, all })
    }

    /// Where they are kept.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The one of that name, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Profile> {
        self.all.get(name)
    }

    /// The one of that name, which somebody has named.
    pub fn named(&self, name: &str) -> Result<&Profile, ConfigError> {
        self.find(name).ok_or_else(|| self.missing(name))
    }

    /// Keeps it under that name, in place of what had it.
    pub fn keep(&mut self, name: &str, profile: Profile) -> anyhow::Result<()> {
        self.all.insert(name.to_owned(), profile);
        self.write()
    }

    /// Forgets the one of that name.
    pub fn forget(&mut self, name: &str) -> anyhow::Result<()> {
        if self.all.remove(name).is_none() {
            bail!(self.missing(name));
        }
        self.write()
    }

    fn missing(&self, name: &str) -> ConfigError {
        let names: Vec<_> = self.all.keys().map(String::as_str).collect();
        let others = match names.as_slice() {
            [] => String::new(),
            names => format!("; there are: {}", names.join(", ")),
        };
        ConfigError::flag(
            "profile",
            format!(
                "there is no profile {name}: `paceline login --profile {name}` makes it{others}"
            ),
        )
    }

    /// Whoever reads it meanwhile finds the old file or the new one, and a crash leaves
    /// one of them.
    fn write(&self) -> anyhow::Result<()> {
        let text = toml::to_string(&self.all).context("write profiles as TOML")?;
        let new = self
            .file
            .with_extension(format!("toml.{}", std::process::id()));
        let written = replace(&self.file, &new, text.as_bytes());
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.with_context(|| format!("write {}", self.file.display()))
    }
}

fn replace(file: &Path, new: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    // What a crash has left has the name of a process that is gone.
    let _ = fs::remove_file(new);
    let mut opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(new)?;
    opened.write_all(text)?;
    opened.sync_all()?;
    fs::rename(new, file)
}

/// `paceline` in the user's folder of configuration, if there is one.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // By the XDG specification one that is not absolute is as if it were not set.
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let configuration =
        absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    configuration.map(|folder| folder.join("paceline"))
}

fn parse(file: &Path) -> anyhow::Result<BTreeMap<String, Profile>> {
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened?,
    };
    if opened.metadata()?.mode() & 0o077 != 0 {
        bail!(
            "others may read it, and it has keys in it: chmod 600 {}",
            file.display()
        );
    }
    let mut text = String::new();
    opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        bail!("it is longer than {MAX_FILE_BYTES} bytes");
    }
    // The parser would quote the line, which may have a key in it.
    toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        anyhow::anyhow!("line {line}: {}", error.message())
    })
}

/// A profile's name, from the command line.
pub fn name(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(fine) {
        return Err("1 to 64 letters, digits and . _ -".to_owned());
    }
    Ok(text.to_owned())
}

fn shown<S: Serializer>(url: &Url, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(url.as_str())
}

fn parsed<'de, D: Deserializer<'de>>(from: D) -> Result<Url, D::Error> {
    let text = String::deserialize(from)?;
    Url::parse(&text).map_err(|error| de::Error::custom(format!("url: {error}")))
}

fn exposed<S: Serializer>(key: &SecretString, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(key.expose_secret())
}

fn hidden<'de, D: Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    String::deserialize(from).map(SecretString::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn profile(url: &str, tenant: Option<&str>) -> Profile {
        Profile {
            url: Url::parse(url).unwrap(),
            api_key: SecretString::from("\"a\" \\ key"),
            tenant: tenant.map(str::to_owned),
            ca_file: None,
            insecure_http: false,
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_kept_is_read_again_and_nobody_elses() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/paceline");
        let mut profiles = Profiles::read(&folder).unwrap();
        assert!(profiles.find(DEFAULT).is_none());
        profiles
            .keep(DEFAULT, profile("https://a.example", None))
            .unwrap();
        profiles
            .keep("b.c", profile("http://127.0.0.1:1", Some("shop")))
            .unwrap();
        assert_eq!((mode(&folder), mode(profiles.file())), (0o700, 0o600));
        let read = Profiles::read(&folder).unwrap();
        let found = read.named("b.c").unwrap();
        assert_eq!(found.url.as_str(), "http://127.0.0.1:1/");
        assert_eq!(found.api_key.expose_secret(), "\"a\" \\ key");
        assert_eq!(found.tenant.as_deref(), Some("shop"));
        profiles.forget("b.c").unwrap();
        let says = profiles.forget("b.c").unwrap_err().to_string();
        let expected = "--profile (PACELINE_PROFILE): there is no profile b.c: \
                        `paceline login --profile b.c` makes it; there are: default";
        assert_eq!(says, expected);
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "nothing is left over"
        );
    }

    #[test]
    fn a_file_that_others_may_read_or_nobody_can_is_refused_without_its_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profiles.toml");
        let refused = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            format!("{:#}", Profiles::read(folder.path()).unwrap_err())
        };
        assert!(refused("", 0o640).contains("chmod 600"));
        for text in [
            "[a]\nurl = \"https://a\"\napi_key = \"hunter2",
            "[a]\nurl = \"https://a\"\napi_key = \"hunter2\"\nmore = 1",
            "[a]\nurl = \"nowhere\"\napi_key = \"hunter2\"",
            "[a]\nurl = \"https://a\"\napi_key = [\"hunter2\"]",
        ] {
            let says = refused(text, 0o600);
            assert!(says.contains("profiles.toml: line "), "{says}");
            assert!(!says.contains("hunter2"), "{says}");
        }
        let long = format!("#{}", "x".repeat(MAX_FILE_BYTES as usize));
        assert!(refused(&long, 0o600).contains("longer than"));
    }

    #[test]
    fn they_are_in_the_users_folder_of_configuration() {
        let of = |xdg: &str, home: &str| {
            folder(|name| {
                let value = if name == "HOME" { home } else { xdg };
                (!value.is_empty()).then(|| value.into())
            })
        };
        assert_eq!(of("/x", "/home/ann"), Some("/x/paceline".into()));
        assert_eq!(
            of("", "/home/ann"),
            Some("/home/ann/.config/paceline".into())
        );
        assert_eq!(
            of("x", "/home/ann"),
            Some("/home/ann/.config/paceline".into())
        );
        assert_eq!(of("", ""), None);
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "shop-1.test_2"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "a b", "../x", "ü", &"a".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}

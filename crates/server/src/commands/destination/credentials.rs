//! What a destination shows to be let in, as flags.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::settings::{Filter, NONE};

/// A client certificate, and how access tokens are got.
#[derive(Debug, Clone, Args)]
pub struct Credentials {
    /// A file in PEM with the client certificate that its connections show, its chain
    /// behind it; `none` for none.
    #[arg(long, value_name = "FILE")]
    pub client_certificate: Option<PemFile>,

    /// The file with the certificate's private key, if that is not in the same one.
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PemFile>,

    /// How its access tokens are asked for by OAuth2 client credentials:
    /// `{"token_url": "https://…", "client_id": "…", "client_secret": "…"}`; `@FILE` reads
    /// it from a file, where a secret belongs; `none` for none.
    #[arg(long = "oauth2", value_name = "JSON")]
    pub oauth2: Option<OAuth2>,
}

impl Credentials {
    /// Their fields in a body of the API, and what is set of them.
    pub(super) fn fields(&self) -> [(&'static str, Option<Value>); 2] {
        let client = self.oauth2.clone().map(|OAuth2(client)| client);
        [
            ("client_certificate", self.certificate()),
            ("oauth2", client),
        ]
    }

    /// One file may hold both: of each text only what belongs there is read.
    fn certificate(&self) -> Option<Value> {
        let PemFile(certificate) = self.client_certificate.as_ref()?;
        let Some(certificate) = certificate else {
            return Some(Value::Null);
        };
        let key = self.client_key.as_ref().and_then(|file| file.0.as_ref());
        Some(json!({
            "certificate": certificate.expose_secret(),
            "private_key": key.unwrap_or(certificate).expose_secret(),
        }))
    }
}

/// The text of a file, or `none`.
#[derive(Clone)]
pub struct PemFile(Option<SecretString>);

impl FromStr for PemFile {
    type Err = String;
    fn from_str(file: &str) -> Result<Self, String> {
        if file == NONE {
            return Ok(Self(None));
        }
        match std::fs::read_to_string(file) {
            Ok(text) => Ok(Self(Some(text.into()))),
            Err(problem) => Err(format!("cannot read {file}: {problem}")),
        }
    }
}

impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PemFile")
    }
}

/// A client as JSON, from the argument or a file; `null` for `none`. The server says what
/// is wrong in it.
#[derive(Clone)]
pub struct OAuth2(Value);

impl FromStr for OAuth2 {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|Filter(value)| Self(value))
    }
}

impl fmt::Debug for OAuth2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OAuth2")
    }
}

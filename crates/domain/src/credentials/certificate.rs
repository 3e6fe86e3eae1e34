//! A client certificate, with its key, and what may be shown of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Malformed;
use crate::time::Timestamp;

/// A certificate and its chain, as PEM. Common chains have 3 to 8 KB.
pub const MAX_CERTIFICATE_BYTES: usize = 16 * 1024;

/// A private key, as PEM: RSA with 8,192 bits has 6.5 KB.
pub const MAX_KEY_BYTES: usize = 8 * 1024;

/// The certificate and what stands between it and a root.
pub const MAX_CHAIN: usize = 10;

/// A certificate that ends within this time is warned of.
pub const ENDS_SOON: Duration = Duration::from_secs(30 * 86_400);

/// A certificate, its chain behind it, and its private key: PEM, each. `Debug` shows
/// neither, and the key is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    chain: String,
    key: Zeroizing<String>,
}

#[derive(Serialize, Deserialize)]
struct Written<'a> {
    certificate: std::borrow::Cow<'a, str>,
    private_key: std::borrow::Cow<'a, str>,
}

impl ClientCertificate {
    /// Of these two texts. Whether they are what they should be, TLS says.
    #[must_use]
    pub const fn new(chain: String, key: Zeroizing<String>) -> Self {
        Self { chain, key }
    }

    /// The certificate, and then its chain.
    #[must_use]
    pub fn chain(&self) -> &str {
        &self.chain
    }

    /// The private key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// As text, to be sealed.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let written = Written {
            certificate: self.chain.as_str().into(),
            private_key: self.key.as_str().into(),
        };
        Zeroizing::new(serde_json::to_string(&written).expect("texts can be written as JSON"))
    }

    /// From that text.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let written: Written<'_> =
            serde_json::from_str(text).map_err(|_invalid| Malformed("client certificate"))?;
        let key = Zeroizing::new(written.private_key.into_owned());
        Ok(Self::new(written.certificate.into_owned(), key))
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

/// What may be shown of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFacts {
    /// Whose it says that it is: `CN=paceline, O=Example`.
    pub subject: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub sha256: String,
    /// From then on nobody has to take it any more.
    pub not_after: Timestamp,
}

impl CertificateFacts {
    /// As text, beside what is sealed.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written as JSON")
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// Whether it ends so soon, or has ended, that its owner has to be warned.
    #[must_use]
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        now + ENDS_SOON >= self.not_after
    }
}

impl FromStr for CertificateFacts {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        serde_json::from_str(text).map_err(|_invalid| Malformed("facts of a certificate"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_sealed_and_shows_nothing() {
        let key = Zeroizing::new("-----BEGIN PRIVATE KEY-----\ncanary\n".to_owned());
        let one = ClientCertificate::new("-----BEGIN CERTIFICATE-----\r\n\"".to_owned(), key);
        assert_eq!(ClientCertificate::parse(&one.expose()), Ok(one.clone()));
        assert!(!format!("{one:?}").contains("canary"));
        let malformed = ClientCertificate::parse("canary").unwrap_err();
        assert!(!malformed.to_string().contains("canary"));
    }

    #[test]
    fn its_owner_is_warned_a_month_before_it_ends() {
        let at = Timestamp::from_millis(1_800_000_000_000);
        let facts = CertificateFacts {
            subject: "CN=paceline".to_owned(),
            sha256: "00".to_owned(),
            not_after: at,
        };
        assert_eq!(facts.text().parse(), Ok(facts.clone()));
        let day = Duration::from_secs(86_400);
        for (now, soon, ended) in [
            (at - 31 * day, false, false),
            (at - 30 * day, true, false),
            (at - day, true, false),
            (at, true, true),
        ] {
            assert_eq!((facts.ends_soon(now), facts.has_ended(now)), (soon, ended));
        }
    }
}

//! One secret: made, read, shown, and signed with.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Random bytes of an HMAC secret, by the specification.
const HMAC_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A text longer than any secret is not decoded.
const MAX_TEXT_BYTES: usize = 128;

const HMAC_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// How a secret signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    /// `v1`: HMAC-SHA256. Both sides have the secret, `whsec_…`.
    Hmac,
    /// `v1a`: ed25519. The receiver has the public key only, `whpk_…`.
    Ed25519,
}

impl SecretKind {
    /// The word, as in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hmac => "hmac",
            Self::Ed25519 => "ed25519",
        }
    }
}

/// The word is of no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected hmac or ed25519")]
pub struct UnknownKind;

impl FromStr for SecretKind {
    type Err = UnknownKind;
    fn from_str(word: &str) -> Result<Self, UnknownKind> {
        match word {
            "hmac" => Ok(Self::Hmac),
            "ed25519" => Ok(Self::Ed25519),
            _ => Err(UnknownKind),
        }
    }
}

/// Why a text is no secret. Never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    /// It begins with something else.
    #[error("must begin with whsec_ (HMAC) or whsk_ (ed25519)")]
    Prefix,
    /// What follows is not base64.
    #[error("must be standard base64 after its prefix")]
    Base64,
    /// Too few or too many bytes for HMAC.
    #[error("must hold 24 to 64 random bytes")]
    Length,
    /// No ed25519 key.
    #[error("must hold an ed25519 private key of 32 bytes, or of 64 with its own public key")]
    Key,
}

/// A secret that signs. Wiped when dropped.
pub struct SigningSecret(Material);

enum Material {
    Hmac(Zeroizing<Vec<u8>>),
    /// The `zeroize` feature wipes it when it is dropped.
    Ed25519(Box<SigningKey>),
}

impl SigningSecret {
    /// A new one, of 32 bytes that nobody can guess.
    #[must_use]
    pub fn new(kind: SecretKind, random: &Zeroizing<[u8; 32]>) -> Self {
        Self(match kind {
            SecretKind::Hmac => Material::Hmac(Zeroizing::new(random.to_vec())),
            SecretKind::Ed25519 => Material::Ed25519(Box::new(SigningKey::from_bytes(random))),
        })
    }

    /// From its text: `whsec_` or `whsk_`, and base64.
    pub fn parse(text: &str) -> Result<Self, SecretProblem> {
        if let Some(text) = text.strip_prefix(HMAC_PREFIX) {
            let bytes = decoded(text)?;
            if !HMAC_BYTES.contains(&bytes.len()) {
                return Err(SecretProblem::Length);
            }
            return Ok(Self(Material::Hmac(bytes)));
        }
        let text = text.strip_prefix(PRIVATE_PREFIX);
        let bytes = decoded(text.ok_or(SecretProblem::Prefix)?)?;
        let key = match bytes.len() {
            32 => bytes.as_slice().try_into().map(SigningKey::from_bytes).ok(),
            64 => (bytes.as_slice().try_into().ok())
                .and_then(|pair| SigningKey::from_keypair_bytes(pair).ok()),
            _ => None,
        };
        let key = key.ok_or(SecretProblem::Key)?;
        Ok(Self(Material::Ed25519(Box::new(key))))
    }

    /// How it signs.
    #[must_use]
    pub const fn kind(&self) -> SecretKind {
        match &self.0 {
            Material::Hmac(_) => SecretKind::Hmac,
            Material::Ed25519(_) => SecretKind::Ed25519,
        }
    }

    /// Its text, the whole secret: to be shown once, or to be sealed.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let (prefix, bytes) = match &self.0 {
            Material::Hmac(bytes) => (HMAC_PREFIX, bytes.clone()),
            Material::Ed25519(key) => {
                let pair = Zeroizing::new(key.to_keypair_bytes());
                (PRIVATE_PREFIX, Zeroizing::new(pair.to_vec()))
            }
        };
        // Of its full size from the start: growing would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(MAX_TEXT_BYTES));
        text.push_str(prefix);
        BASE64_STANDARD.encode_string(bytes.as_slice(), &mut text);
        text
    }

    /// What a receiver of `v1a` verifies by, `whpk_…`; no secret.
    #[must_use]
    pub fn public_key(&self) -> Option<String> {
        match &self.0 {
            Material::Hmac(_) => None,
            Material::Ed25519(key) => {
                let public = BASE64_STANDARD.encode(key.verifying_key().as_bytes());
                Some(format!("{PUBLIC_PREFIX}{public}"))
            }
        }
    }

    /// One signature of `prefix` and `body`, such as `v1,K5oZ…`.
    pub(super) fn sign(&self, prefix: &[u8], body: &[u8]) -> String {
        match &self.0 {
            Material::Hmac(bytes) => {
                let mut mac = hmac(bytes);
                mac.update(prefix);
                mac.update(body);
                let sum = BASE64_STANDARD.encode(mac.finalize().into_bytes());
                format!("v1,{sum}")
            }
            Material::Ed25519(key) => {
                let content = [prefix, body].concat();
                let signature = BASE64_STANDARD.encode(key.sign(&content).to_bytes());
                format!("v1a,{signature}")
            }
        }
    }
}

fn hmac(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes keys of every length")
}

fn decoded(text: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(SecretProblem::Length);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_TEXT_BYTES));
    BASE64_STANDARD
        .decode_vec(text, &mut bytes)
        .map_err(|_invalid| SecretProblem::Base64)?;
    Ok(bytes)
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningSecret({}, ***)", self.kind().as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(text: &str) -> SecretProblem {
        SigningSecret::parse(text).unwrap_err()
    }

    #[test]
    fn what_is_no_secret_is_refused_for_a_reason() {
        use SecretProblem::{Base64, Key, Length, Prefix};
        let encoded = |prefix: &str, length: usize| {
            format!("{prefix}{}", BASE64_STANDARD.encode(vec![7; length]))
        };
        assert_eq!(problem(""), Prefix);
        assert_eq!(problem("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Prefix);
        assert_eq!(problem(&encoded("whpk_", 32)), Prefix);
        assert_eq!(problem("whsec_not base64!"), Base64);
        assert_eq!(problem("whsec_AAAA\n"), Base64);
        assert_eq!(problem(&encoded("whsec_", 23)), Length);
        assert_eq!(problem(&encoded("whsec_", 65)), Length);
        assert_eq!(problem(&encoded("whsec_", 100_000)), Length);
        assert_eq!(problem(&encoded("whsk_", 31)), Key);
        assert_eq!(problem(&encoded("whsk_", 64)), Key); // another's public key
        for length in [24, 64] {
            assert!(SigningSecret::parse(&encoded("whsec_", length)).is_ok());
        }
        assert!(SigningSecret::parse(&encoded("whsk_", 32)).is_ok());
    }

    proptest! {
        #[test]
        fn a_secret_is_read_as_it_was_shown(random: [u8; 32], ed25519: bool) {
            let kind = if ed25519 { SecretKind::Ed25519 } else { SecretKind::Hmac };
            let made = SigningSecret::new(kind, &Zeroizing::new(random));
            let read = SigningSecret::parse(&made.expose()).unwrap();
            prop_assert_eq!(read.kind(), kind);
            prop_assert_eq!(read.expose(), made.expose());
            prop_assert_eq!(read.public_key(), made.public_key());
            prop_assert_eq!(read.sign(b"a.1.", b"x"), made.sign(b"a.1.", b"x"));
            prop_assert_eq!(kind.as_str().parse(), Ok(kind));
        }

        /// Whatever it is, reading ends, and what is read can be signed with.
        #[test]
        fn any_text_is_a_secret_or_refused(text: String, prefix in 0..3_usize) {
            let prefix = ["", "whsec_", "whsk_"][prefix];
            if let Ok(secret) = SigningSecret::parse(&format!("{prefix}{text}")) {
                prop_assert!(secret.sign(b"", b"").starts_with('v'));
            }
        }
    }
}

//! Signatures by Standard Webhooks 1.0.
//!
//! What is signed is `id.timestamp.body`, byte for byte as it is sent. Each
//! secret in force makes one signature: `v1` is HMAC-SHA256, `v1a` is ed25519.
//! Pure arithmetic: no clock decides here which secrets are in force, the
//! caller says when the request starts.
//!
//! A secret is wiped from memory when it is dropped, and neither `Debug` nor
//! an error ever shows one.

mod secret;

use std::fmt;
use std::str::FromStr;

use crate::time::Timestamp;

pub use secret::{SecretKind, SecretProblem, SigningSecret, UnknownKind};

/// How many secrets of one destination may sign at the same time.
pub const MAX_LIVE_SECRETS: usize = 3;

/// What the names of a signature's three headers begin with: `…id`, `…timestamp` and
/// `…signature`. What is signed, and how, is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderPrefix {
    /// As Standard Webhooks calls them.
    #[default]
    Webhook,
    /// As Svix calls them, for receivers that look for nothing else.
    Svix,
}

impl HeaderPrefix {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Svix];

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook-",
            Self::Svix => "svix-",
        }
    }
}

impl fmt::Display for HeaderPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no such prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected webhook- or svix-")]
pub struct UnknownPrefix;

impl FromStr for HeaderPrefix {
    type Err = UnknownPrefix;
    fn from_str(text: &str) -> Result<Self, UnknownPrefix> {
        let spelt = |prefix: &Self| prefix.as_str() == text;
        Self::ALL.into_iter().find(spelt).ok_or(UnknownPrefix)
    }
}

/// A secret, and until when it signs.
pub struct Key {
    /// What signs.
    pub secret: SigningSecret,
    /// From then on it does not; `None` for as long as it is there.
    pub expires_at: Option<Timestamp>,
}

/// All that signs one destination's requests. Without a key it signs nothing:
/// its requests go out unsigned.
#[derive(Default)]
pub struct Signer {
    keys: Vec<Key>,
}

impl Signer {
    /// Signs with these, in this order.
    #[must_use]
    pub const fn new(keys: Vec<Key>) -> Self {
        Self { keys }
    }

    /// The value of the signature's header for a request that starts at `at`: the
    /// signature of each secret that is in force then, separated by spaces.
    /// `None` if none is.
    ///
    /// `timestamp_seconds` is the value of the timestamp's.
    #[must_use]
    pub fn sign(
        &self,
        at: Timestamp,
        id: &str,
        timestamp_seconds: i64,
        body: &[u8],
    ) -> Option<String> {
        let prefix = format!("{id}.{timestamp_seconds}.");
        let signatures: Vec<_> = (self.keys.iter())
            .filter(|key| key.expires_at.is_none_or(|end| at < end))
            .map(|key| key.secret.sign(prefix.as_bytes(), body))
            .collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of the specification and of its official libraries.
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const HMAC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const HMAC_SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const ED25519: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
    const ED25519_SIGNATURE: &str = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";

    fn key(text: &str, expires_at: Option<i64>) -> Key {
        Key {
            secret: SigningSecret::parse(text).unwrap(),
            expires_at: expires_at.map(Timestamp::from_micros),
        }
    }

    fn signed(keys: Vec<Key>) -> Option<String> {
        let at = Timestamp::from_micros(AT * 1_000_000);
        Signer::new(keys).sign(at, ID, AT, BODY)
    }

    #[test]
    fn the_vectors_of_the_specification() {
        assert_eq!(
            signed(vec![key(HMAC, None)]).as_deref(),
            Some(HMAC_SIGNATURE)
        );
        assert_eq!(
            signed(vec![key(ED25519, None)]).as_deref(),
            Some(ED25519_SIGNATURE)
        );
    }

    #[test]
    fn every_secret_in_force_signs_and_no_other() {
        let both = signed(vec![
            key(HMAC, None),
            key(ED25519, Some(AT * 1_000_000 + 1)),
        ]);
        assert_eq!(both, Some(format!("{HMAC_SIGNATURE} {ED25519_SIGNATURE}")));
        let expired = signed(vec![key(ED25519, Some(AT * 1_000_000)), key(HMAC, None)]);
        assert_eq!(expired.as_deref(), Some(HMAC_SIGNATURE));
        assert_eq!(signed(vec![key(HMAC, Some(0))]), None);
        assert_eq!(signed(Vec::new()), None);
    }

    #[test]
    fn a_prefix_has_one_spelling() {
        for prefix in HeaderPrefix::ALL {
            assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
        for wrong in ["", "svix", "Svix-", "webhook-id"] {
            assert_eq!(wrong.parse::<HeaderPrefix>(), Err(UnknownPrefix));
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let signer = Signer::new(vec![key(HMAC, None), key(ED25519, None)]);
        let shown = format!("{signer:?} {:?}", signer.keys[0].secret);
        assert!(
            !shown.contains("MfKQ") && !shown.contains("6Xb/"),
            "{shown}"
        );
    }
}

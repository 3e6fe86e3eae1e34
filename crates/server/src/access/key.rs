//! How a key is written: `pl_<id>_<secret>_<checksum>`, and of an installation that is
//! one of several shards `pl_<shard>_<id>_<secret>_<checksum>`.
//!
//! - `pl_` tells people and scanners whose key it is;
//! - the shard says to whoever stands before several of them which one knows the key.
//!   One that was put in the place of another makes it a key that is not there: digests
//!   are of the whole text;
//! - the id, 16 hex digits, says which digest to compare with, and is no secret;
//! - the secret, 64 hex digits, is 256 random bits;
//! - the checksum, 8 hex digits, is the beginning of the SHA-256 of all before
//!   the underscore in front of it. A typing error, or a text that only looks
//!   like a key, is told from a key without asking anybody.

use domain::access::KeyId;
use domain::shard::ShardName;
use secrecy::SecretString;
use sha2::{Digest, Sha256};

/// What every key begins with.
pub const PREFIX: &str = "pl_";

/// Hex digits of the secret: 256 bits.
const SECRET_DIGITS: usize = 64;

/// Hex digits of the checksum.
const CHECKSUM_DIGITS: usize = 8;

/// A new key, to be shown once.
pub struct MintedKey {
    /// Its id.
    pub id: KeyId,
    /// The whole key.
    pub text: SecretString,
    /// What the store keeps.
    pub digest: [u8; 32],
}

impl MintedKey {
    /// From random bytes: 8 for the id, 32 for the secret.
    #[must_use]
    pub fn new(shard: Option<&ShardName>, id: [u8; 8], secret: [u8; 32]) -> Self {
        let id = KeyId(u64::from_be_bytes(id));
        let shard = shard.map(|shard| format!("{shard}_")).unwrap_or_default();
        let body = format!("{PREFIX}{shard}{id}_{}", hex(&secret));
        let text = format!("{body}_{}", checksum(&body));
        Self {
            id,
            digest: digest(&text),
            text: SecretString::from(text),
        }
    }
}

/// A text that has the form of a key and a checksum that is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyText {
    /// Which key it claims to be.
    pub id: KeyId,
    /// Whose key it claims to be, of several shards.
    pub shard: Option<ShardName>,
}

impl KeyText {
    /// `None` for what cannot be a key: no store need be asked.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (body, sum) = text.rsplit_once('_')?;
        let (names, secret) = body.strip_prefix(PREFIX)?.rsplit_once('_')?;
        let (shard, id) = match names.split_once('_') {
            Some((shard, id)) => (Some(shard.parse().ok()?), id),
            None => (None, names),
        };
        let id = id.parse().ok()?;
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if secret.len() != SECRET_DIGITS || !secret.bytes().all(digit) {
            return None;
        }
        (checksum(body) == sum).then_some(Self { id, shard })
    }
}

/// What a key is compared by, and whatever else the store is not told itself.
#[must_use]
pub fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn checksum(body: &str) -> String {
    hex(&digest(body)[..CHECKSUM_DIGITS / 2])
}

/// Two digits a byte, in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn minted() -> MintedKey {
        MintedKey::new(None, [1; 8], [0xab; 32])
    }

    fn of_a_shard() -> MintedKey {
        MintedKey::new(Some(&"eu1".parse().unwrap()), [1; 8], [0xab; 32])
    }

    #[test]
    fn a_key_has_its_form_and_its_checksum() {
        let minted = minted();
        let text = minted.text.expose_secret();
        assert!(text.starts_with("pl_0101010101010101_abab"), "{text}");
        assert_eq!(text.len(), 3 + 16 + 1 + 64 + 1 + 8);
        let (id, shard) = (minted.id, None);
        assert_eq!(KeyText::parse(text), Some(KeyText { id, shard }));
        assert_eq!(minted.digest, digest(text));
    }

    #[test]
    fn a_key_of_a_shard_names_it() {
        let minted = of_a_shard();
        let text = minted.text.expose_secret();
        assert!(text.starts_with("pl_eu1_0101010101010101_abab"), "{text}");
        let read = KeyText::parse(text).unwrap();
        assert_eq!(read.id, minted.id);
        assert_eq!(read.shard.unwrap().as_str(), "eu1");
    }

    #[test]
    fn any_other_letter_is_noticed() {
        for minted in [minted(), of_a_shard()] {
            is_noticed_in(minted.text.expose_secret());
        }
    }

    fn is_noticed_in(text: &str) {
        for at in 0..text.len() {
            for other in ["0", "f", "_", "Z", ""] {
                let mut wrong = text.to_owned();
                wrong.replace_range(at..=at, other);
                if wrong != *text {
                    assert_eq!(KeyText::parse(&wrong), None, "{wrong}");
                }
            }
        }
        for wrong in [
            "",
            "pl_",
            "pl___",
            "pl_0101010101010101",
            &format!("{text}0"),
        ] {
            assert_eq!(KeyText::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_of_a_configuration_is_not_taken_for_one() {
        assert_eq!(KeyText::parse("correct horse battery staple"), None);
    }
}

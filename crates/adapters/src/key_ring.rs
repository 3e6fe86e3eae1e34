//! The vault: a ring of keys, the first of which seals.
//!
//! XChaCha20-Poly1305. What is sealed is a version byte, the nonce, and the
//! ciphertext with its tag; tenant, destination, secret, kind and version are
//! authenticated with it, so a row that is copied elsewhere does not open. The
//! id of the key is beside it in its row.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use engine::ports::{NONCE_BYTES, Place, Sealed, Vault, VaultError};
use zeroize::Zeroizing;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The most keys in a ring: each is there only until all is sealed under the
/// first.
const MAX_KEYS: usize = 16;

/// The longest id of a key.
const MAX_ID_BYTES: usize = 64;

/// The version of what is sealed.
const VERSION: u8 = 1;

/// Keys by their ids. Wiped when dropped.
pub struct KeyRing {
    keys: Vec<(String, XChaCha20Poly1305)>,
}

/// Why a text is no ring of keys. Never repeats a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingProblem {
    /// There is none.
    #[error(
        "holds no key: expected ID:KEY, the key being 32 bytes in base64 (`paceline secret-key generate` makes one)"
    )]
    Empty,
    /// Too many.
    #[error("holds more than {MAX_KEYS} keys")]
    TooMany,
    /// An entry without a colon, or with an id that cannot be one.
    #[error("key {0}: expected ID:KEY, with an id of 1 to {MAX_ID_BYTES} letters, digits or -_.")]
    Id(usize),
    /// Not 32 bytes of base64.
    #[error("key {0}: expected 32 bytes in base64 after the id")]
    Key(usize),
    /// An id twice.
    #[error("the id {0} is there twice")]
    Twice(String),
}

impl KeyRing {
    /// From `ID:KEY` entries, separated by commas or white space; lines that
    /// begin with `#` are left out. The first key seals.
    pub fn parse(text: &str) -> Result<Self, KeyRingProblem> {
        let lines = text.lines().filter(|line| !line.trim().starts_with('#'));
        let entries = lines.flat_map(|line| line.split([',', ' ', '\t', '\r']));
        let mut keys: Vec<(String, XChaCha20Poly1305)> = Vec::new();
        for (number, entry) in (1..).zip(entries.filter(|entry| !entry.is_empty())) {
            if number > MAX_KEYS {
                return Err(KeyRingProblem::TooMany);
            }
            let (id, key) = entry.split_once(':').ok_or(KeyRingProblem::Id(number))?;
            if !is_id(id) {
                return Err(KeyRingProblem::Id(number));
            }
            if keys.iter().any(|(other, _)| other == id) {
                return Err(KeyRingProblem::Twice(id.to_owned()));
            }
            let key = decoded(key).ok_or(KeyRingProblem::Key(number))?;
            keys.push((id.to_owned(), cipher(&key)));
        }
        match keys.is_empty() {
            true => Err(KeyRingProblem::Empty),
            false => Ok(Self { keys }),
        }
    }

    /// The text of a new key, of bytes that nobody can guess.
    #[must_use]
    pub fn entry(id: &str, key: &Zeroizing<[u8; KEY_BYTES]>) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(MAX_ID_BYTES + 2 * KEY_BYTES));
        text.push_str(id);
        text.push(':');
        BASE64_STANDARD.encode_string(key.as_slice(), &mut text);
        text
    }

    /// The ids of its keys, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(id, _)| id.as_str())
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !id.is_empty() && id.len() <= MAX_ID_BYTES && id.bytes().all(allowed)
}

fn decoded(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    // Of 32 bytes exactly 44 characters; one more group is room for a wrong one.
    if text.len() > 48 {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(48));
    BASE64_STANDARD.decode_vec(text, &mut bytes).ok()?;
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

fn cipher(key: &[u8; KEY_BYTES]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*key))
}

/// What is authenticated beside the secret.
fn place_bytes(place: &Place) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(place.tenant.0.as_bytes());
    bytes.extend_from_slice(place.destination.0.as_bytes());
    bytes.extend_from_slice(place.secret.0.as_bytes());
    bytes.extend_from_slice(place.kind.as_str().as_bytes());
    bytes
}

impl Vault for KeyRing {
    fn sealing_key(&self) -> &str {
        &self.keys[0].0
    }

    fn seal(&self, place: &Place, nonce: &[u8; NONCE_BYTES], secret: &[u8]) -> Sealed {
        let (id, cipher) = &self.keys[0];
        let aad = place_bytes(place);
        let payload = Payload {
            msg: secret,
            aad: &aad,
        };
        let encrypted = cipher
            .encrypt(&XNonce::from(*nonce), payload)
            .expect("only what is larger than 256 GiB cannot be sealed");
        let bytes = [&[VERSION], nonce.as_slice(), &encrypted].concat();
        Sealed {
            key: id.clone(),
            bytes: Bytes::from(bytes),
        }
    }

    fn open(&self, place: &Place, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let key = self.keys.iter().find(|(id, _)| *id == sealed.key);
        let unknown = || VaultError::UnknownKey(sealed.key.clone());
        let refused = || VaultError::Refused(sealed.key.clone());
        let (_, cipher) = key.ok_or_else(unknown)?;
        let (version, rest) = sealed.bytes.split_first().ok_or_else(refused)?;
        let (nonce, encrypted) = rest
            .split_first_chunk::<NONCE_BYTES>()
            .filter(|_| *version == VERSION)
            .ok_or_else(refused)?;
        let aad = place_bytes(place);
        let payload = Payload {
            msg: encrypted,
            aad: &aad,
        };
        let opened = cipher.decrypt(&XNonce::from(*nonce), payload);
        opened.map(Zeroizing::new).map_err(|_invalid| refused())
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.ids().collect();
        f.debug_struct("KeyRing")
            .field("ids", &ids)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::{DestinationId, SecretId, TenantId};
    use domain::signature::SecretKind;
    use engine::ports::SealedKind;
    use uuid::Uuid;

    use super::*;

    fn entry(id: &str, byte: u8) -> String {
        KeyRing::entry(id, &Zeroizing::new([byte; KEY_BYTES])).to_string()
    }

    fn place() -> Place {
        Place {
            tenant: TenantId(Uuid::from_u128(1)),
            destination: DestinationId(Uuid::from_u128(2)),
            secret: SecretId(Uuid::from_u128(3)),
            kind: SealedKind::Signs(SecretKind::Hmac),
        }
    }

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse(text).unwrap()
    }

    #[test]
    fn the_first_key_seals_and_every_key_opens() {
        let (old, new) = (entry("2025", 1), entry("2026", 2));
        let sealed = ring(&old).seal(&place(), &[9; NONCE_BYTES], b"secret");
        assert_eq!(sealed.key, "2025");
        let both = ring(&format!("# the new one first\n{new}\n{old}\n"));
        assert_eq!(both.sealing_key(), "2026");
        assert_eq!(both.open(&place(), &sealed).unwrap().as_slice(), b"secret");
        let again = both.seal(&place(), &[8; NONCE_BYTES], b"secret");
        let newest = ring(&new);
        assert_eq!(newest.open(&place(), &again).unwrap().as_slice(), b"secret");
        let unknown = newest.open(&place(), &sealed).unwrap_err();
        assert_eq!(unknown, VaultError::UnknownKey("2025".to_owned()));
    }

    /// The test vector of draft-irtf-cfrg-xchacha, A.3.1, would not go through
    /// our framing; so the same cipher is asked directly.
    #[test]
    fn what_is_sealed_is_xchacha20_poly1305_of_the_place() {
        let sealed = ring(&entry("k", 5)).seal(&place(), &[7; NONCE_BYTES], b"secret");
        assert_eq!(sealed.bytes[0], VERSION);
        assert_eq!(&sealed.bytes[1..=NONCE_BYTES], &[7; NONCE_BYTES]);
        let mut aad = vec![1];
        aad.extend([1_u128, 2, 3].iter().flat_map(|id| id.to_be_bytes()));
        aad.extend(b"hmac");
        let payload = Payload {
            msg: &sealed.bytes[1 + NONCE_BYTES..],
            aad: &aad,
        };
        let opened = cipher(&[5; KEY_BYTES]).decrypt(&XNonce::from([7; NONCE_BYTES]), payload);
        assert_eq!(opened.unwrap(), b"secret");
    }

    #[test]
    fn nothing_opens_elsewhere_or_altered() {
        let ring = ring(&entry("k", 5));
        let sealed = ring.seal(&place(), &[7; NONCE_BYTES], b"secret");
        let other = Uuid::from_u128(77);
        let elsewhere = [
            Place {
                tenant: TenantId(other),
                ..place()
            },
            Place {
                destination: DestinationId(other),
                ..place()
            },
            Place {
                secret: SecretId(other),
                ..place()
            },
            Place {
                kind: SealedKind::Headers,
                ..place()
            },
        ];
        for elsewhere in elsewhere {
            assert!(ring.open(&elsewhere, &sealed).is_err(), "{elsewhere:?}");
        }
        for at in 0..sealed.bytes.len() {
            let mut bytes = sealed.bytes.to_vec();
            bytes[at] ^= 1;
            let altered = Sealed {
                bytes: bytes.into(),
                ..sealed.clone()
            };
            assert!(ring.open(&place(), &altered).is_err(), "byte {at}");
            let cut = Sealed {
                bytes: sealed.bytes.slice(..at),
                ..sealed.clone()
            };
            assert!(ring.open(&place(), &cut).is_err(), "cut at {at}");
        }
        let another = super::tests::ring(&entry("k", 6));
        assert_eq!(
            another.open(&place(), &sealed).unwrap_err(),
            VaultError::Refused("k".to_owned())
        );
    }

    #[test]
    fn a_wrong_ring_is_refused_without_its_keys() {
        let canary = BASE64_STANDARD.encode([7; 31]);
        let good = entry("a", 1);
        for (text, problem) in [
            (String::new(), KeyRingProblem::Empty),
            ("# a:b\n\n".to_owned(), KeyRingProblem::Empty),
            (canary.clone(), KeyRingProblem::Id(1)),
            (format!("{good},:{canary}"), KeyRingProblem::Id(2)),
            (format!("a b:{canary}"), KeyRingProblem::Id(1)),
            (format!("b:{canary}"), KeyRingProblem::Key(1)),
            (format!("b:{}", "A".repeat(1_000)), KeyRingProblem::Key(1)),
            (
                format!("{good},{good}"),
                KeyRingProblem::Twice("a".to_owned()),
            ),
        ] {
            let refused = KeyRing::parse(&text).unwrap_err();
            assert_eq!(refused, problem);
            assert!(!format!("{refused} {refused:?}").contains(&canary));
        }
        let many: Vec<_> = (0..=MAX_KEYS).map(|n| entry(&format!("k{n}"), 1)).collect();
        assert_eq!(
            KeyRing::parse(&many.join(" ")).unwrap_err(),
            KeyRingProblem::TooMany
        );
        let shown = format!("{:?}", ring(&good));
        assert!(
            shown.contains('a') && !shown.contains(&good[2..]),
            "{shown}"
        );
    }
}

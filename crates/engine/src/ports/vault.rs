//! The vault: what must not be readable in a copy of the database.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use domain::ids::{DestinationId, SecretId, TenantId};
use domain::signature::{SecretKind, UnknownKind};
use domain::time::Timestamp;
use zeroize::Zeroizing;

/// Random bytes that [`Vault::seal`] takes. So many that they never repeat by
/// chance, whoever draws them.
pub const NONCE_BYTES: usize = 24;

/// Closes and opens secrets with keys that no store has. Pure: the keys are all
/// in memory, and the caller brings the randomness.
pub trait Vault: Send + Sync {
    /// The id of the key that seals.
    fn sealing_key(&self) -> &str;

    /// Seals under [`Vault::sealing_key`]. What is sealed opens at this place
    /// and at no other: a row that is moved to another destination is refused.
    /// `nonce` must be fresh.
    fn seal(&self, place: &Place, nonce: &[u8; NONCE_BYTES], secret: &[u8]) -> Sealed;

    /// Opens what was sealed under any key of the ring.
    fn open(&self, place: &Place, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError>;
}

/// Where a sealed secret belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Whose it is.
    pub tenant: TenantId,
    /// Of which destination.
    pub destination: DestinationId,
    /// Which one.
    pub secret: SecretId,
    /// What it is for.
    pub kind: SealedKind,
}

/// What a sealed secret is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SealedKind {
    /// It signs.
    Signs(SecretKind),
    /// It is the headers that the destination adds: their values may be
    /// passwords.
    Headers,
    /// It is the client certificate that its connections show, and the key of it.
    ClientCertificate,
    /// It is what its tokens are asked for with.
    OAuth2,
    /// It is the URL of a chat that notices go to.
    Notice,
}

impl SealedKind {
    /// The word, as in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signs(kind) => kind.as_str(),
            Self::Headers => "headers",
            Self::ClientCertificate => "client_certificate",
            Self::OAuth2 => "oauth2",
            Self::Notice => "notice",
        }
    }
}

impl FromStr for SealedKind {
    type Err = UnknownKind;
    fn from_str(word: &str) -> Result<Self, UnknownKind> {
        match word {
            "headers" => Ok(Self::Headers),
            "client_certificate" => Ok(Self::ClientCertificate),
            "oauth2" => Ok(Self::OAuth2),
            "notice" => Ok(Self::Notice),
            word => word.parse().map(Self::Signs),
        }
    }
}

/// A secret as the store has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Under which key.
    pub key: String,
    /// Of the vault's own format.
    pub bytes: Bytes,
}

/// A secret as the store has it, and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// Where it belongs.
    pub place: Place,
    /// What it is.
    pub sealed: Sealed,
    /// From then on it does not sign, by the store's clock.
    pub expires_at: Option<Timestamp>,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed(under {}, {} bytes)", self.key, self.bytes.len())
    }
}

/// Why something cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The key is not in this process's ring.
    #[error("it is sealed under the key {0}, which this process does not have")]
    UnknownKey(String),
    /// It was altered or moved, or the key of that id is another one.
    #[error("it does not open with the key {0}: altered, moved, or another key of that id")]
    Refused(String),
    /// It opened, and is not what it should be.
    #[error("it opened, and is no valid {0}")]
    Invalid(&'static str),
}

/// A vault without keys: opens nothing. For processes whose destinations have
/// no secrets.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVault;

impl Vault for NoVault {
    fn sealing_key(&self) -> &'static str {
        "none"
    }

    /// Seals nothing: what it returns opens nowhere.
    fn seal(&self, _place: &Place, _nonce: &[u8; NONCE_BYTES], _secret: &[u8]) -> Sealed {
        Sealed {
            key: self.sealing_key().to_owned(),
            bytes: Bytes::new(),
        }
    }

    fn open(&self, _place: &Place, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        Err(VaultError::UnknownKey(sealed.key.clone()))
    }
}

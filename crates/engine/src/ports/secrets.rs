//! The same store, as those see it who sign: sealed secrets and headers, and whatever else
//! a destination shows to be let in.
//!
//! The store never has a key and never sees a secret. A change of what a
//! destination signs with or adds bumps its epoch in the same transaction, so
//! that workers read its target again; sealing the same secret under another
//! key does not.

use std::time::Duration;

use async_trait::async_trait;
use domain::credentials::{CertificateFacts, Malformed, OAuthFacts, TROUBLE_STANDS};
use domain::ids::{DestinationId, SecretId, TenantId};
use domain::signature::SecretKind;
use domain::time::Timestamp;

use super::catalog::{Destination, DestinationChange, NewDestination};
use super::error::{CatalogError, StoreError};
use super::managers::Managed;
use super::vault::{Place, Sealed, SealedKind, SealedSecret};

/// What the API, the command line and the operator ask of a store about secrets.
/// Every method is one transaction and checks the tenant in its own query; those
/// that change a destination check who holds it as well, and refuse (`Conflict`)
/// if it is somebody else.
#[async_trait]
pub trait SecretStore: Send + Sync {
    /// [`Catalog::create_destination`](super::Catalog::create_destination) with
    /// its secrets and headers, in one commit: there is no moment in which it
    /// would send unsigned.
    async fn create_destination_with(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        secrets: &[NewSecret],
    ) -> Result<Destination, CatalogError>;

    /// [`Catalog::change_destination`](super::Catalog::change_destination) with
    /// its headers and whatever else it has one of, in one commit: a new URL never gets
    /// the old URL's passwords.
    async fn change_destination_with(
        &self,
        of: Managed<'_>,
        change: &DestinationChange,
        singles: &[SingleChange],
    ) -> Result<Destination, CatalogError>;

    /// What may be shown of what destinations add and show, in the order of
    /// `destinations`.
    async fn shown(&self, destinations: &[DestinationId]) -> Result<Vec<Shown>, CatalogError>;

    /// A destination's secrets that sign now, the newest first; at most
    /// [`MAX_LIVE_SECRETS`](domain::signature::MAX_LIVE_SECRETS).
    async fn secrets(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<Vec<Secret>, CatalogError>;

    /// Adds a secret. All others that sign, of whatever kind, end `overlap` from
    /// now, unless they end earlier. Refused (`Conflict`) if then more than
    /// [`MAX_LIVE_SECRETS`](domain::signature::MAX_LIVE_SECRETS) would sign.
    async fn rotate_secret(
        &self,
        of: Managed<'_>,
        new: &NewSecret,
        overlap: Duration,
    ) -> Result<Secret, CatalogError>;

    /// Deletes a secret: no start after this is signed by it. The last one that
    /// signs is refused (`Conflict`), or requests would go out unsigned.
    async fn delete_secret(&self, of: Managed<'_>, secret: SecretId) -> Result<(), CatalogError>;

    /// Up to `limit` secrets that are not sealed under `key`, in id order,
    /// after `after`. Costs nothing where all are.
    async fn sealed_under_others(
        &self,
        key: &str,
        after: Option<SecretId>,
        limit: u32,
    ) -> Result<Vec<SealedSecret>, StoreError>;

    /// Replaces what is sealed by the same secret, sealed anew; only where it
    /// still is what `from` says. How many were replaced. Repeating it changes
    /// nothing.
    async fn reseal(&self, resealed: &[Resealed]) -> Result<u32, StoreError>;

    /// Deletes up to `limit` secrets that have ended. How many.
    async fn forget_expired(&self, limit: u32) -> Result<u32, StoreError>;

    /// Under which keys secrets are sealed, and how many under each.
    async fn keys_in_use(&self) -> Result<Vec<(String, u64)>, StoreError>;
}

/// A secret to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSecret {
    /// Where it belongs.
    pub place: Place,
    /// What it is.
    pub sealed: Sealed,
    /// What may be shown of it: an ed25519 public key; names of headers, separated by
    /// spaces; [`CertificateFacts`] and [`OAuthFacts`] as they write themselves.
    pub shown: Option<String>,
}

/// What becomes of a secret of which a destination has one at most: its headers, its
/// client certificate, its OAuth2 client. What is not named stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SingleChange {
    /// It is this one.
    Set(NewSecret),
    /// There is none of this kind.
    Clear(SealedKind),
}

impl SingleChange {
    /// Of which kind it is.
    #[must_use]
    pub const fn kind(&self) -> SealedKind {
        match self {
            Self::Set(new) => new.place.kind,
            Self::Clear(kind) => *kind,
        }
    }

    /// What is stored from now on.
    #[must_use]
    pub const fn set(&self) -> Option<&NewSecret> {
        match self {
            Self::Set(new) => Some(new),
            Self::Clear(_) => None,
        }
    }
}

/// What may be shown of what a destination has one of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shown {
    /// The names of the headers that it adds.
    pub header_names: Vec<String>,
    /// Its client certificate.
    pub certificate: Option<CertificateFacts>,
    /// What its tokens are asked for with.
    pub oauth2: Option<OAuthFacts>,
    /// Why it had no token when one was asked for last, if so.
    pub token_trouble: Option<TokenTrouble>,
}

impl Shown {
    /// With what a row shows; one that signs shows nothing here.
    pub fn add(&mut self, kind: SealedKind, text: &str) -> Result<(), Malformed> {
        match kind {
            SealedKind::Headers => {
                self.header_names = text.split_whitespace().map(str::to_owned).collect();
            }
            SealedKind::ClientCertificate => self.certificate = Some(text.parse()?),
            SealedKind::OAuth2 => self.oauth2 = Some(text.parse()?),
            SealedKind::Signs(_) | SealedKind::Notice => {}
        }
        Ok(())
    }
}

/// A request for a token came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenTrouble {
    /// In words.
    pub words: String,
    /// When a worker last said so.
    pub at: Timestamp,
}

impl TokenTrouble {
    /// Whether it was said lately.
    #[must_use]
    pub fn stands(&self, now: Timestamp) -> bool {
        now.since(self.at) < TROUBLE_STANDS
    }
}

/// A secret, as people may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its id.
    pub id: SecretId,
    /// How it signs.
    pub kind: SecretKind,
    /// What a receiver of `v1a` verifies by.
    pub public_key: Option<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// From then on it does not sign.
    pub expires_at: Option<Timestamp>,
}

/// A secret that was opened and sealed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resealed {
    /// Which.
    pub secret: SecretId,
    /// As it was.
    pub from: Sealed,
    /// As it shall be.
    pub to: Sealed,
}

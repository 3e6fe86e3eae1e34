//! API keys: who calls, for which tenant, and what for.

use std::time::Duration;

use async_trait::async_trait;
use domain::access::{KeyId, Scopes};
use domain::ids::TenantId;
use domain::time::Timestamp;

use super::error::CatalogError;

/// What authentication and the administration of keys ask of a store. Keys
/// themselves never get there, only their digests. Every method is one
/// transaction.
#[async_trait]
pub trait Keys: Send + Sync {
    /// Adds a key; it is good at once. Repeating it is refused: its id is
    /// there already. A tenant that does not exist is `NotFound`; a tenant
    /// that has [`MAX_KEYS`] keys in force is refused, and so is `admin` for
    /// any tenant but the default one.
    async fn create_key(&self, tenant: TenantId, new: &NewKey) -> Result<ApiKey, CatalogError>;

    /// A tenant's keys, revoked and expired ones too, the newest first, at most
    /// `limit`.
    async fn keys(&self, tenant: TenantId, limit: u32) -> Result<Vec<ApiKey>, CatalogError>;

    /// Revokes a tenant's key for good. Revoking again changes nothing. Reads
    /// of it from then on find nothing.
    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<(), CatalogError>;

    /// What keys are compared with and stand for, of those that are in force by the
    /// store's clock: nothing of one that is unknown, revoked or expired. One step,
    /// which reads only; at most [`MAX_ROWS`](super::MAX_ROWS) ids.
    async fn credentials(&self, ids: &[KeyId]) -> Result<Vec<(KeyId, Credential)>, CatalogError>;

    /// Notes when keys were last used, in one statement; never earlier than it
    /// says already, and at most once in [`USE_NOTED_EVERY`] for each key,
    /// however many processes note it. Keys that are gone are left out.
    async fn note_keys_used(&self, uses: &[KeyUse]) -> Result<(), CatalogError>;
}

/// The most keys in force that one tenant has.
pub const MAX_KEYS: u32 = 100;

/// How often a key's last use is written down, at most.
pub const USE_NOTED_EVERY: Duration = Duration::from_secs(60);

/// A key to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its id, given by us.
    pub id: KeyId,
    /// For people; may be empty.
    pub name: String,
    /// SHA-256 of the whole key.
    pub digest: [u8; 32],
    /// What it may be used for; at least one.
    pub scopes: Scopes,
    /// How long it is good for, from now on by the store's clock; `None` for
    /// ever.
    pub expires_in: Option<Duration>,
}

/// A key, as its administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// Whose it is.
    pub tenant: TenantId,
    /// For people.
    pub name: String,
    /// What it may be used for.
    pub scopes: Scopes,
    /// When it was added.
    pub created_at: Timestamp,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to within about two minutes.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A key in force, as authentication needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Whose it is.
    pub tenant: TenantId,
    /// SHA-256 of the whole key.
    pub digest: [u8; 32],
    /// What it may be used for.
    pub scopes: Scopes,
    /// How long it is good for yet; `None` for ever.
    pub expires_in: Option<Duration>,
    /// The most events a second that its tenant may hand in at each process;
    /// `None` for what that is configured with.
    pub ingest_per_second: Option<u32>,
}

/// That a key was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    /// Which.
    pub key: KeyId,
    /// How long ago.
    pub ago: Duration,
}

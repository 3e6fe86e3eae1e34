//! Who has the dashboard open.

use std::time::Duration;

use async_trait::async_trait;
use domain::access::{KeyId, LinkId, Scopes};
use domain::ids::TenantId;
pub use domain::session::{SessionKind, UnknownSessionWord};
use domain::time::Timestamp;

use super::error::CatalogError;

/// What the dashboard writes. What a browser holds never gets here, only its
/// digest. Every method is one transaction.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Begins a session, and forgets some that are over. Refused for a tenant
    /// that has [`MAX_SESSIONS`]. Says until when it is good.
    async fn begin_session(&self, new: &NewSession) -> Result<Timestamp, CatalogError>;

    /// A session that is good: not over by the store's clock, and neither is
    /// the key behind it, nor the link that opened it.
    async fn session(&self, digest: [u8; 32]) -> Result<Option<Session>, CatalogError>;

    /// Ends what signs in once ([`SessionKind::Once`]) and begins the session that it
    /// is good for, together. `false`, and nothing is begun, where it is over or was
    /// used: of several at the same moment one is told `true`.
    async fn use_once(&self, once: [u8; 32], new: &NewSession) -> Result<bool, CatalogError>;

    /// From now on it shows this tenant's pages. One that is over is left.
    async fn move_session(&self, digest: [u8; 32], tenant: TenantId) -> Result<(), CatalogError>;

    /// Ends a session. Ending it again changes nothing.
    async fn end_session(&self, digest: [u8; 32]) -> Result<(), CatalogError>;

    /// A tenant's links that are good, the newest first, at most `limit`.
    async fn links(&self, tenant: TenantId, limit: u32) -> Result<Vec<Link>, CatalogError>;

    /// Ends a tenant's link and all sessions that it opened, even those that it
    /// is just opening. One that is not there is `NotFound`, so ending it again
    /// is, too.
    async fn end_link(&self, tenant: TenantId, id: LinkId) -> Result<(), CatalogError>;
}

/// The most sessions and links of one tenant that are not over.
pub const MAX_SESSIONS: u32 = 10_000;

/// Sessions that are over and that one beginning forgets.
pub const FORGOTTEN_AT_ONCE: u32 = 1_000;

/// The key that a session stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BehindSession {
    /// A key of the store.
    Key(KeyId),
    /// The one that is configured, by its digest.
    Configured([u8; 32]),
}

/// A session to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// SHA-256 of what the browser holds.
    pub digest: [u8; 32],
    /// What it is.
    pub kind: SessionKind,
    /// Whose pages it shows.
    pub tenant: TenantId,
    /// It ends with this.
    pub behind: BehindSession,
    /// What it may do.
    pub scopes: Scopes,
    /// How long it is good for, from now on by the store's clock.
    pub good_for: Duration,
    /// Of a link, for people; may be empty.
    pub name: String,
    /// The digest of the link that opens it: it ends with that.
    pub opened_by: Option<[u8; 32]>,
}

/// A link, as whoever gave it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its id.
    pub id: LinkId,
    /// Whose pages it opens.
    pub tenant: TenantId,
    /// For people; may be empty.
    pub name: String,
    /// It ends with this.
    pub behind: BehindSession,
    /// What may be done by it.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is over.
    pub expires_at: Timestamp,
}

/// A session that is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// What it is.
    pub kind: SessionKind,
    /// Whose pages it shows.
    pub tenant: TenantId,
    /// It ends with this.
    pub behind: BehindSession,
    /// What it may do.
    pub scopes: Scopes,
    /// How long it is good for yet.
    pub left: Duration,
    /// The digest of the link that opened it.
    pub opened_by: Option<[u8; 32]>,
}

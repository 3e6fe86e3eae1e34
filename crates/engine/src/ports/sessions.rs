//! Who has the dashboard open, and which limits its visitors ask for.

use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use domain::access::{KeyId, LinkId, Scopes};
use domain::ids::{DestinationId, TenantId};
use domain::policy::LimitSettings;
pub use domain::session::{SessionKind, UnknownSessionWord};
use domain::time::Timestamp;
use uuid::Uuid;

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

    /// Asks for limits of one of the tenant's destinations. An open request for
    /// it is replaced.
    async fn request_limits(
        &self,
        tenant: TenantId,
        new: &NewLimitRequest,
    ) -> Result<(), CatalogError>;

    /// Up to `limit` requests, the open ones first and then the newest: of one
    /// tenant, or of all.
    async fn limit_requests(
        &self,
        tenant: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<LimitRequest>, CatalogError>;

    /// Decides an open request. One that is decided is a conflict.
    async fn decide_limit_request(
        &self,
        id: Uuid,
        decision: LimitRequestState,
    ) -> Result<(), CatalogError>;
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
}

/// Limits that somebody asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLimitRequest {
    /// Its id, given by us.
    pub id: Uuid,
    /// For which destination.
    pub destination: DestinationId,
    /// All of them, as they shall be.
    pub settings: LimitSettings,
    /// Why, in their words.
    pub note: String,
}

/// Whether a request was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitRequestState {
    /// Not yet.
    Open,
    /// In force.
    Approved,
    /// Left as it was.
    Declined,
}

impl LimitRequestState {
    /// The word, as in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approved => "approved",
            Self::Declined => "declined",
        }
    }
}

impl FromStr for LimitRequestState {
    type Err = UnknownSessionWord;
    fn from_str(text: &str) -> Result<Self, UnknownSessionWord> {
        [Self::Open, Self::Approved, Self::Declined]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownSessionWord(text.to_owned()))
    }
}

/// A request as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitRequest {
    /// Its id.
    pub id: Uuid,
    /// Whose.
    pub tenant: TenantId,
    /// For which destination.
    pub destination: DestinationId,
    /// All limits, as they shall be.
    pub settings: LimitSettings,
    /// Why.
    pub note: String,
    /// Whether it was decided.
    pub state: LimitRequestState,
    /// When it was made.
    pub created_at: Timestamp,
}

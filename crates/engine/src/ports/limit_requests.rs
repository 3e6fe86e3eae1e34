//! What owners ask for, and what operators grant beyond a ceiling.

use std::str::FromStr;

use async_trait::async_trait;
use domain::ceiling::LargerBatches;
use domain::ids::{DestinationId, TenantId};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use uuid::Uuid;

use super::error::CatalogError;

/// Requests for what is above a ceiling. Every method is one transaction.
#[async_trait]
pub trait LimitRequests: Send + Sync {
    /// Asks for limits of one of the tenant's destinations, for its batches, or for both. An
    /// open request for it is replaced, but for the part that the new one does not ask for;
    /// one that says the same stays as it is, and nobody is told of it again. Returns the id
    /// of the one that is open then.
    async fn request_limits(
        &self,
        tenant: TenantId,
        new: &NewLimitRequest,
    ) -> Result<Uuid, CatalogError>;

    /// Asks for so many destinations of the tenant, as [`Self::request_limits`] does for
    /// limits: of these a tenant has one open request as well.
    async fn request_destinations(
        &self,
        tenant: TenantId,
        new: &NewDestinationsRequest,
    ) -> Result<Uuid, CatalogError>;

    /// Up to `limit` requests, the open ones first and then the newest: of one
    /// tenant, or of all; those that come after this one in that order. One that is decided
    /// between two pages may be on both.
    async fn limit_requests(
        &self,
        tenant: Option<TenantId>,
        before: Option<LimitRequestPosition>,
        limit: u32,
    ) -> Result<Vec<LimitRequest>, CatalogError>;

    /// Whosever it is.
    async fn limit_request(&self, id: Uuid) -> Result<LimitRequest, CatalogError>;

    /// Sets the limits of one of the tenant's destinations, whatever its ceiling says, and
    /// grants it what they need; what it was granted before stays. A conflict where a
    /// resource of Kubernetes holds it.
    async fn grant_limits(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        settings: &LimitSettings,
    ) -> Result<(), CatalogError>;

    /// Decides an open request; one that is approved is granted: limits are set then, larger
    /// batches and more destinations may be. A conflict if it is decided or replaced, or if
    /// limits are asked for and the destination's are not any more what they were then.
    async fn decide_limit_request(
        &self,
        id: Uuid,
        decision: LimitRequestState,
        reason: &str,
    ) -> Result<(), CatalogError>;
}

/// What somebody asks for of a destination.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLimitRequest {
    /// Its id, given by us.
    pub id: Uuid,
    /// For which destination.
    pub destination: DestinationId,
    /// Its limits; `None` asks for batches alone.
    pub limits: Option<OtherLimits>,
    /// How large its batches may be.
    pub batches: LargerBatches,
    /// Why, in their words.
    pub note: String,
}

/// Limits of a destination in place of those that it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OtherLimits {
    /// What it has when they are asked for.
    pub before: LimitSettings,
    /// All of them, as they shall be.
    pub settings: LimitSettings,
}

/// A number of destinations that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDestinationsRequest {
    /// Its id, given by us.
    pub id: Uuid,
    /// So many, with those that are there; at least 1.
    pub destinations: u32,
    /// Why, in their words.
    pub note: String,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a page of them at most, and they are copied"
)]
pub enum Wanted {
    /// Of one destination.
    Limits {
        /// Which.
        destination: DestinationId,
        /// Its limits; `None` where they stay.
        limits: Option<OtherLimits>,
        /// How large its batches may be.
        batches: LargerBatches,
    },
    /// So many destinations of the tenant.
    Destinations(u32),
}

impl Wanted {
    /// The destination that it is for, if it is for one.
    #[must_use]
    pub const fn destination(&self) -> Option<DestinationId> {
        match self {
            Self::Limits { destination, .. } => Some(*destination),
            Self::Destinations(_) => None,
        }
    }
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Open, Self::Approved, Self::Declined];

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

/// A word that none of them is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown state of a limit request {0:?}")]
pub struct UnknownRequestState(String);

impl FromStr for LimitRequestState {
    type Err = UnknownRequestState;
    fn from_str(text: &str) -> Result<Self, UnknownRequestState> {
        (Self::ALL.into_iter())
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownRequestState(text.to_owned()))
    }
}

/// A request as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitRequest {
    /// Its id.
    pub id: Uuid,
    /// Whose.
    pub tenant: TenantId,
    /// What for.
    pub wanted: Wanted,
    /// Why.
    pub note: String,
    /// Whether it was decided.
    pub state: LimitRequestState,
    /// When it was made.
    pub created_at: Timestamp,
    /// Why it was decided so, in the operator's words; may be empty.
    pub reason: String,
    /// When that was.
    pub decided_at: Option<Timestamp>,
}

impl LimitRequest {
    /// Where it stands in a list.
    #[must_use]
    pub fn position(&self) -> LimitRequestPosition {
        LimitRequestPosition {
            is_open: self.state == LimitRequestState::Open,
            created_at: self.created_at,
            id: self.id,
        }
    }
}

/// Where a page of requests ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRequestPosition {
    /// Whether the last one waits for a decision: the others come after those.
    pub is_open: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// Which it was.
    pub id: Uuid,
}

impl LimitRequestPosition {
    /// Before all that there may be: in the year 2255, as stores agree on.
    pub const FIRST: Self = Self {
        is_open: true,
        created_at: Timestamp::from_micros(1 << 53),
        id: Uuid::max(),
    };
}

/// Why a request is not decided on.
pub const NOT_OPEN: &str = "it is decided already, or a newer one has taken its place";

/// Why a request is not approved.
pub const LIMITS_HAVE_CHANGED: &str =
    "the destination's limits have been changed since: decline it, and have it asked for anew";

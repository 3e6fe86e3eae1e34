//! The same store, as its users see it: destinations, events, ledgers.

use async_trait::async_trait;
use domain::attempt::AttemptState;
use domain::ceiling::Ceiling;
use domain::compliance::Start;
use domain::destination::DestinationState;
use domain::external_id::ExternalId;
use domain::filter::Filter;
use domain::handshake::Handshake;
use domain::ids::{AttemptId, DestinationId, EventId, ReplayId, TenantId};
use domain::limit_group::GroupName;
use domain::margin::Spread;
use domain::policy::{LimitSettings, Policy};
use domain::response_headers::ResponseHeaders;
use domain::series::Passage;
use domain::time::Timestamp;

use super::error::CatalogError;
use super::handshake::HandshakeBook;
use super::health::HealthBook;
use super::limit_groups::LimitGroups;
use super::smart::SmartBook;

/// What the API, the command line, the operator and the audit ask of a store.
/// Every method is one transaction and checks the tenant in its own query.
#[async_trait]
pub trait Catalog: HealthBook + SmartBook + HandshakeBook + LimitGroups + Send + Sync {
    /// Creates a destination, active, with its first entry in limit history.
    ///
    /// Refused where the tenant has as many as its tier allows
    /// ([`super::Tier::tenant_max_destinations`]); of several at the same moment all
    /// may be taken.
    async fn create_destination(
        &self,
        tenant: TenantId,
        new: &NewDestination,
    ) -> Result<Destination, CatalogError>;

    /// One destination with its effective settings.
    async fn destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Destination, CatalogError>;

    /// Which one its platform calls so.
    async fn destination_called(
        &self,
        tenant: TenantId,
        id: &ExternalId,
    ) -> Result<DestinationId, CatalogError>;

    /// Up to `limit` destinations in id order, after `after`; deleted ones are
    /// left out.
    async fn destinations(
        &self,
        tenant: TenantId,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<Destination>, CatalogError>;

    /// Those of these that are there, in id order, in one read; deleted ones and
    /// other tenants' are left out.
    async fn destinations_of(
        &self,
        tenant: TenantId,
        ids: &[DestinationId],
    ) -> Result<Vec<Destination>, CatalogError>;

    /// Changes what `change` names and nothing else, by the same triggers as a
    /// user's SQL: a change that is not a pure raise revokes permits and is in
    /// force from its time in limit history. Refused (`Conflict`) where a
    /// [`Manager`](super::Manager) holds it.
    async fn change_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
        change: &DestinationChange,
    ) -> Result<Destination, CatalogError>;

    /// Deletes a destination: nothing of it starts any more; what was admitted
    /// is cancelled in this transaction, the waiting backlog in small steps by
    /// the reaper. The ledger stays. Deleting again is `NotFound`. Refused
    /// (`Conflict`) where a [`Manager`](super::Manager) holds it.
    async fn delete_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<(), CatalogError>;

    /// An event and its attempts in creation order (the newest 1,000).
    async fn event(
        &self,
        tenant: TenantId,
        id: EventId,
    ) -> Result<(EventSummary, Vec<AttemptView>), CatalogError>;

    /// A destination's attempts, the newest first, before `before`.
    async fn attempts(
        &self,
        tenant: TenantId,
        id: DestinationId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError>;

    /// The ledger of one destination, for the audit: attempts that started in
    /// `[since, until)` by start, or wait since before `until`; up to `limit`,
    /// in the order of `(started_at, id)`, those that have not started last;
    /// from after the given position on.
    async fn ledger(
        &self,
        destination: DestinationId,
        since: Timestamp,
        until: Timestamp,
        after: Option<LedgerPosition>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, CatalogError>;

    /// Starts of one destination since then and before a position, the newest
    /// first; up to `limit`.
    async fn starts_before(
        &self,
        destination: DestinationId,
        since: Timestamp,
        before: Start,
        limit: u32,
    ) -> Result<Vec<Start>, CatalogError>;

    /// Limit history of one destination, the earliest first, resolved against the
    /// tier: what was in force at `since` and what came into force after it and
    /// before `until`, if that is given; of more than `limit` entries the newest. A
    /// destination may have had very many, and those outside cost nothing.
    async fn limits_within(
        &self,
        destination: DestinationId,
        within: (Timestamp, Option<Timestamp>),
        limit: u32,
    ) -> Result<Vec<LimitHistory>, CatalogError>;

    /// All of it, which has no bound: for whoever looks at one destination alone.
    /// What runs for others asks for a part.
    async fn limit_history(
        &self,
        destination: DestinationId,
    ) -> Result<Vec<LimitHistory>, CatalogError> {
        let ever = (Timestamp::from_micros(0), None);
        self.limits_within(destination, ever, u32::MAX).await
    }

    /// How many attempts wait, counted up to `cap`, per destination given.
    async fn backlogs(
        &self,
        destinations: &[DestinationId],
        cap: u32,
    ) -> Result<Vec<u32>, CatalogError>;

    /// Reachable, and its schema is at least the one that this binary needs.
    async fn ready(&self) -> Result<(), CatalogError>;
}

/// The tenant that a single API key stands for.
pub const DEFAULT_TENANT: TenantId = TenantId(uuid::Uuid::from_u128(1));

/// A destination to be created.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDestination {
    /// Its id, given by us.
    pub id: DestinationId,
    /// What its platform calls it; unique among its tenant's.
    pub external_id: Option<ExternalId>,
    /// For people; may be empty.
    pub name: String,
    /// Absolute, http or https.
    pub url: String,
    /// The types of events that it subscribes to; `*` is all.
    pub event_types: Vec<String>,
    /// Which events of these types it takes; `None` is all.
    pub filter: Option<Filter>,
    /// Its limits, as set.
    pub limits: LimitSettings,
    /// Whether its receiver is sent `traceparent`.
    pub pass_traceparent: bool,
    /// Whether its receiver is asked before anything is sent to it.
    pub handshake: Handshake,
    /// The limit group that its starts count for as well: one of its tenant's.
    pub limit_group: Option<GroupName>,
}

/// What to change; `None` leaves it as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DestinationChange {
    /// What its platform calls it from now on.
    pub external_id: Option<ExternalId>,
    /// A new name.
    pub name: Option<String>,
    /// A new URL.
    pub url: Option<String>,
    /// New subscriptions.
    pub event_types: Option<Vec<String>>,
    /// Which events of its types it takes from now on; `Some(None)` is all.
    pub filter: Option<Option<Filter>>,
    /// A new state.
    pub state: Option<DestinationState>,
    /// All limit columns, as they shall be from now on.
    pub limits: Option<LimitSettings>,
    /// Whether its receiver is sent `traceparent`. Another word revokes permits
    /// that are out: what is sent is by the epoch.
    pub pass_traceparent: Option<bool>,
    /// Whether its receiver is asked before anything is sent to it. Another word begins
    /// anew, and revokes permits that are out.
    pub handshake: Option<Handshake>,
    /// The limit group that it is in from now on; `Some(None)` is none. Another one revokes
    /// permits that are out.
    pub limit_group: Option<Option<GroupName>>,
}

/// A destination as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Destination {
    /// Its id.
    pub id: DestinationId,
    /// What its platform calls it.
    pub external_id: Option<ExternalId>,
    /// Whose it is.
    pub tenant: TenantId,
    /// For people.
    pub name: String,
    /// Where its requests go.
    pub url: String,
    /// What it subscribes to.
    pub event_types: Vec<String>,
    /// Which events of these types it takes; `None` is all. One that was written by hand
    /// and makes no sense says so, and takes none.
    pub filter: Option<Filter>,
    /// Whether it takes starts.
    pub state: DestinationState,
    /// Its limits, as set.
    pub limits: LimitSettings,
    /// Its limits with the tier's where they inherit.
    pub effective: LimitSettings,
    /// The most that may be set for it: its tier's ceiling, and what it was granted.
    pub ceiling: Ceiling,
    /// The most that its tenant sets itself: the same, and what its tier gives, it was
    /// granted or has where the tier has no ceiling.
    pub own_ceiling: Ceiling,
    /// The same without what it has: what stays of it once its tenant sets less.
    pub lasting_ceiling: Ceiling,
    /// How much its response times differ, once that is measured: the margin of its
    /// windows, unless one is set.
    pub spread: Option<Spread>,
    /// Whether its receiver is sent `traceparent`.
    pub pass_traceparent: bool,
    /// Whether its receiver is asked before anything is sent to it; what that has come to
    /// is in `effective`.
    pub handshake: Handshake,
    /// The limit group that its starts count for as well.
    pub limit_group: Option<GroupName>,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Destination {
    /// What of admission follows from its own row: not what smart delivery makes of it.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.effective.policy().measured(self.spread)
    }

    /// Its name; its URL where it has none.
    #[must_use]
    pub fn called(&self) -> &str {
        match self.name.is_empty() {
            true => &self.url,
            false => &self.name,
        }
    }
}

/// An event without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSummary {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: Option<String>,
    /// The payload's media type.
    pub content_type: String,
    /// The payload's size.
    pub payload_bytes: u32,
    /// Its first attempts go before those of other events.
    pub urgent: bool,
    /// When it was accepted.
    pub created_at: Timestamp,
}

/// An attempt, as people look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptView {
    /// Its id.
    pub id: AttemptId,
    /// Which event.
    pub event: EventId,
    /// To whom.
    pub destination: DestinationId,
    /// Which try.
    pub try_number: u32,
    /// Where it stands.
    pub state: AttemptState,
    /// It failed, and its event's tries are used up.
    pub dead_letter: bool,
    /// When its event was accepted, or the try before it ended.
    pub created_at: Timestamp,
    /// When it is due, where that is said: of a retry, of what is meant for later, of what
    /// is urgent or whose permit came back. `None` for another first try, due at once.
    pub due_at: Option<Timestamp>,
    /// Not admitted from then on: the event's own end, or the destination's `max_age` after
    /// it is due, whichever is earlier.
    pub expires_at: Option<Timestamp>,
    /// When it got its (last) permit.
    pub admitted_at: Option<Timestamp>,
    /// When its request was sent; until that is known, the latest that it may have been.
    pub started_at: Option<Timestamp>,
    /// When its outcome was there.
    pub finished_at: Option<Timestamp>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// Why it failed, in words.
    pub error: Option<String>,
    /// The beginning of the response body, as text.
    pub response_body: Option<String>,
    /// Those of its headers that are kept.
    pub response_headers: ResponseHeaders,
    /// The replay that made it; `None` for a first try, and for the tries after that.
    pub replay: Option<ReplayId>,
}

/// A row of the ledger, as the audit reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerRow {
    /// The attempt.
    pub attempt: AttemptId,
    /// When it could have started at the earliest: its creation, or when its
    /// retry was due.
    pub due_at: Timestamp,
    /// When it started; `None` while it has not.
    pub started_at: Option<Timestamp>,
    /// When its outcome was there.
    pub finished_at: Option<Timestamp>,
    /// Where it stands.
    pub state: AttemptState,
    /// The HTTP status of its answer.
    pub status: Option<u16>,
}

impl LedgerRow {
    /// Its way, for a series.
    #[must_use]
    pub fn passage(&self) -> Passage {
        Passage {
            due_at: self.due_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            refused: self.status == Some(429),
        }
    }
}

/// Where a page of the ledger ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerPosition {
    /// The last row's start.
    pub started_at: Option<Timestamp>,
    /// The last row's attempt.
    pub attempt: AttemptId,
}

/// What was in force from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitHistory {
    /// From when on.
    pub in_force_from: Timestamp,
    /// The settings, resolved against the tier.
    pub effective: LimitSettings,
    /// The destination's state.
    pub state: DestinationState,
}

//! Operational events on their way: raised, delivered, and forgotten; and the
//! same as people see it.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, NoticeAddressId, TenantId};
use domain::notices::NoticeAddress;
use domain::operations::{
    OperationalDestination, OperationalEvent, OperationalScope, OperationalType,
};
use domain::time::Timestamp;
use domain::watch::{AlertSettings, TenantAlerts, TenantWatch, Watch};

use super::error::{CatalogError, StoreError};
use super::notices::NewNoticeAddress;

/// What the notifier asks of a store. Every method is one transaction, and any
/// number of processes may ask at once.
#[async_trait]
pub trait Operations: Send + Sync {
    /// Turns operational events that were not relayed yet, the oldest first and
    /// at most `limit`, into at most [`MAX_ROWS`](super::MAX_ROWS) events for the operational destinations that are told
    /// ([`domain::operations::deliveries`]), by the way of ingest: they are
    /// inserted and the operational events marked in one transaction, so each
    /// becomes one event for each that is told, however often relays die. Rows
    /// that somebody holds are skipped. What nobody is told of is marked too;
    /// a destination that is disabled or gone is not told. The same transaction
    /// leaves a notice for each address that is told ([`domain::notices`]).
    async fn relay_operational_events(&self, limit: u32) -> Result<RelayedOperations, StoreError>;

    /// One step of the watch: adds up dead letters, and looks at the next
    /// destinations that have due work or something that is remembered of
    /// them ([`domain::watch`]); what operators must know is written down in
    /// the same transaction. A step that is not due, or that somebody else is
    /// taking, does nothing. It looks at a few tenants as well, in a round of
    /// their own, and adds up rows of the outbox that were rejected.
    ///
    /// Costs two index probes for each destination with work, and for those
    /// that fall behind as much as one admission does, and a count up to the
    /// threshold; all that bounded for one step. A tenant costs a few probes,
    /// its slots of the time that is set, and a count of its destinations.
    async fn watch(&self, rules: &WatchRules) -> Result<Watched, StoreError>;

    /// Deletes operational events that were relayed and are older than `kept`,
    /// the oldest first, at most `limit`. How many.
    async fn trim_operational_events(&self, kept: Duration, limit: u32) -> Result<u32, StoreError>;

    /// Drops up to `limit` notices that have waited for longer than `kept`, the oldest
    /// first. How many.
    async fn drop_notices(&self, kept: Duration, limit: u32) -> Result<u32, StoreError>;
}

/// What the API and the command line ask of a store about operations. Every
/// method is one transaction and checks the tenant in its own query.
#[async_trait]
pub trait OperationsBook: Send + Sync {
    /// Makes a destination of the tenant an operational one, or changes what
    /// it is told of. It keeps its place in the order.
    async fn register_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        registration: &Registration,
    ) -> Result<OperationalDestination, CatalogError>;

    /// It is told nothing more; what is under way arrives. Doing it again is
    /// `NotFound`.
    async fn unregister_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError>;

    /// The tenant's, in the order of registration; at most [`MAX_OPERATIONAL`].
    async fn operational_destinations(
        &self,
        tenant: TenantId,
    ) -> Result<Vec<OperationalDestination>, CatalogError>;

    /// Registers an address for notices.
    async fn register_address(
        &self,
        tenant: TenantId,
        new: &NewNoticeAddress,
    ) -> Result<NoticeAddress, CatalogError>;

    /// It is told nothing more, what waits for it included. Doing it again is
    /// `NotFound`.
    async fn remove_address(
        &self,
        tenant: TenantId,
        address: NoticeAddressId,
    ) -> Result<(), CatalogError>;

    /// The tenant's, in the order of registration; at most
    /// [`MAX_NOTICE_ADDRESSES`](super::MAX_NOTICE_ADDRESSES).
    async fn addresses(&self, tenant: TenantId) -> Result<Vec<NoticeAddress>, CatalogError>;

    /// What operators must know, the newest first: up to `limit` before the one
    /// of id `before`; of one tenant, or of all.
    async fn recent_operational_events(
        &self,
        tenant: Option<TenantId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError>;

    /// When operators are told of a destination, and what the watch remembers.
    async fn alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<AlertsView, CatalogError>;

    /// Sets what `change` names and leaves the rest. In force from the next
    /// look on.
    async fn change_alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &AlertsChange,
    ) -> Result<(), CatalogError>;

    /// A tenant's own alerts, and what is the case now.
    async fn tenant_alerts(&self, tenant: TenantId) -> Result<TenantAlertsView, CatalogError>;

    /// Sets what `change` names and leaves the rest. In force from the next
    /// look on.
    async fn change_tenant_alerts(
        &self,
        tenant: TenantId,
        change: &TenantAlertsChange,
    ) -> Result<(), CatalogError>;
}

/// The alerts of a tenant as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantAlertsView {
    /// When operators are told.
    pub settings: TenantAlerts,
    /// What is remembered of it.
    pub watch: TenantWatch,
}

/// What to change of a tenant's alerts: the outer `None` leaves it as it is, the
/// inner sets the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantAlertsChange {
    /// When fewer of a hundred answers are successes; 0 for never.
    pub success_percent: Option<Option<u32>>,
    /// Of the answers within so many seconds.
    pub success_seconds: Option<Option<u32>>,
    /// If there are so many.
    pub success_least: Option<Option<u32>>,
}

/// The most operational destinations that one tenant has: every piece of news
/// becomes an event for each.
pub const MAX_OPERATIONAL: u32 = 20;

/// Dead letters that one step of the watch adds up.
pub const MAX_TALLIES: u32 = 10_000;

/// How the watch goes round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchRules {
    /// Between the end of one round and the beginning of the next.
    pub every: Duration,
    /// Between two steps of a round, and where a step leaves dead letters to
    /// be counted.
    pub pace: Duration,
    /// Who has waited for less is not looked at: what is gone by then needs
    /// nobody.
    pub patience: Duration,
    /// Dead letters of one destination are told of once in so long.
    pub dead_letters_every: Duration,
    /// Destinations with work that one step passes by.
    pub page: u32,
    /// Destinations that one step looks at.
    pub looks: u32,
    /// How far one step counts backlogs, all of them together; one more may
    /// be begun.
    pub counted: u32,
    /// Between the end of one round of the tenants and the beginning of the next.
    pub tenants_every: Duration,
    /// Tenants that one step looks at. Destinations are counted like backlogs.
    pub tenants: u32,
}

impl Default for WatchRules {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            pace: Duration::from_secs(1),
            patience: Duration::from_secs(10),
            dead_letters_every: Duration::from_secs(300),
            page: 1_000,
            looks: 100,
            counted: 200_000,
            tenants_every: Duration::from_secs(60),
            tenants: 50,
        }
    }
}

/// What a relay did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayedOperations {
    /// Operational events that are relayed now.
    pub relayed: u32,
    /// There may be more to relay.
    pub more: bool,
    /// Events that they became.
    pub accepted: u32,
    /// Whom to wake.
    pub destinations: Vec<DestinationId>,
}

/// What a step of the watch did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Watched {
    /// It was due, and ours.
    pub stepped: bool,
    /// The round goes on with another step.
    pub more: bool,
    /// Destinations that were looked at.
    pub looked: u32,
    /// What operators must know; it is written down already.
    pub news: Vec<Told>,
}

/// Something that operators must know of a destination, or of a tenant as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Whose, if not the tenant's.
    pub destination: Option<DestinationId>,
    /// Its tenant.
    pub tenant: TenantId,
    /// What.
    pub news: domain::watch::News,
}

/// What a destination is to be told of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registration {
    /// Of whose destinations.
    pub scope: OperationalScope,
    /// Of which types; none is all.
    pub event_types: Vec<OperationalType>,
}

/// The alerts of one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AlertsView {
    /// When operators are told.
    pub settings: AlertSettings,
    /// What is remembered of it.
    pub watch: Watch,
    /// It fails since then.
    pub failing_since: Option<Timestamp>,
}

/// What to change of alerts: the outer `None` leaves it as it is, the inner
/// sets the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AlertsChange {
    /// So many attempts wait; 0 for never.
    pub backlog: Option<Option<u32>>,
    /// For so many seconds it gets less than its limit allows; 0 for never.
    pub under_delivery_seconds: Option<Option<u32>>,
    /// It fails when so many of a hundred answers are failures; 0 for never.
    pub failing_percent: Option<Option<u32>>,
}

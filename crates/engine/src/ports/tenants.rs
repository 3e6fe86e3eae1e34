//! Tenants and plan tiers, as the installation's administrator sees them.

use std::time::Duration;

use async_trait::async_trait;
use domain::ceiling::Ceiling;
use domain::external_id::ExternalId;
use domain::ids::TenantId;
use domain::policy::LimitSettings;
use domain::time::Timestamp;

use super::error::CatalogError;

/// What the administration of tenants and tiers asks of a store. Every method
/// is one transaction.
#[async_trait]
pub trait Tenants: Send + Sync {
    /// Adds a tenant. A tier that does not exist is refused by the name `tier`, an
    /// external id that another one has by the name `external_id`.
    async fn create_tenant(&self, new: &NewTenant) -> Result<Tenant, CatalogError>;

    /// Ends all that a tenant has: its keys, links and sessions at once; its destinations,
    /// with their backlogs, in the steps of [`super::Store::reap`]; and itself with the
    /// last of what the ledger has of them. Again, it changes nothing. A `Conflict`
    /// while resources of Kubernetes manage destinations of it.
    ///
    /// Nothing is created for it any more, and its external id is free.
    async fn delete_tenant(&self, id: TenantId) -> Result<Tenant, CatalogError>;

    /// One tenant, also one that is being deleted.
    async fn tenant(&self, id: TenantId) -> Result<Tenant, CatalogError>;

    /// The one that its platform calls so.
    async fn tenant_called(&self, id: &ExternalId) -> Result<Tenant, CatalogError>;

    /// Up to `limit` tenants in id order, after `after`.
    async fn tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, CatalogError>;

    /// Changes what `change` names and nothing else. Another tier reaches the
    /// tenant's destinations by the same triggers as a user's SQL: one that is
    /// not a pure raise revokes permits, and is in force from its time in limit
    /// history. `max_in_flight` is in force for permits from now on.
    async fn change_tenant(
        &self,
        id: TenantId,
        change: &TenantChange,
    ) -> Result<Tenant, CatalogError>;

    /// All tiers, by name.
    async fn tiers(&self) -> Result<Vec<Tier>, CatalogError>;

    /// Adds a tier. One that is there already is refused by the name `name`.
    async fn create_tier(&self, new: &Tier) -> Result<Tier, CatalogError>;

    /// Deletes a tier that no tenant has; a `Conflict` for one that some have.
    async fn delete_tier(&self, name: &str) -> Result<(), CatalogError>;

    /// Changes what `change` names and nothing else; reaches all destinations
    /// that inherit, as above.
    async fn change_tier(&self, name: &str, change: &TierChange) -> Result<Tier, CatalogError>;
}

/// Why a tenant cannot be deleted.
pub const TENANT_IS_MANAGED: &str =
    "resources of Kubernetes manage destinations of this tenant: delete those first";

/// Of a deleted tenant so many destinations are deleted in one step.
pub const EMPTIED_AT_ONCE: u32 = 50;

/// From so long after its deletion on, a tenant that has no destination is done: until
/// then one may appear whose creation had begun before.
pub const EMPTIED_AFTER: Duration = Duration::from_secs(60);

/// The tier of a tenant for which nothing else is said.
pub const DEFAULT_TIER: &str = "standard";

/// A tenant to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTenant {
    /// Its id, given by us.
    pub id: TenantId,
    /// What its platform calls it.
    pub external_id: Option<ExternalId>,
    /// For people.
    pub name: String,
    /// The name of its tier.
    pub tier: String,
    /// The most attempts of all its destinations queued and in flight at once;
    /// `None` for the tier's.
    pub max_in_flight: Option<u32>,
    /// The most events that it may hand in a second, at each process that takes
    /// events in; `None` for the tier's.
    pub ingest_per_second: Option<u32>,
}

/// What to change; `None` leaves it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantChange {
    /// What its platform calls it from now on.
    pub external_id: Option<ExternalId>,
    /// A new name.
    pub name: Option<String>,
    /// The name of another tier.
    pub tier: Option<String>,
    /// Another `max_in_flight`; the inner `None` is the tier's.
    pub max_in_flight: Option<Option<u32>>,
    /// Another `ingest_per_second`; the inner `None` is the tier's.
    pub ingest_per_second: Option<Option<u32>>,
}

/// A tenant as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// What its platform calls it.
    pub external_id: Option<ExternalId>,
    /// For people.
    pub name: String,
    /// The name of its tier.
    pub tier: String,
    /// As set for it alone.
    pub max_in_flight: Option<u32>,
    /// What holds: its own, or the tier's; `None` for no bound.
    pub effective_max_in_flight: Option<u32>,
    /// As set for it alone.
    pub ingest_per_second: Option<u32>,
    /// What holds: its own, or the tier's; `None` for what each process is
    /// configured with.
    pub effective_ingest_per_second: Option<u32>,
    /// How many destinations it may have: as its tier says, or as many as it was granted
    /// beyond that; `None` for no bound.
    pub effective_max_destinations: Option<u32>,
    /// When it was added.
    pub created_at: Timestamp,
    /// It is being deleted, and how far that is.
    pub deletion: Option<Deletion>,
}

/// How far the deletion of a tenant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// Since when.
    pub since: Timestamp,
    /// Destinations that have not been deleted, or of which something still waits or is
    /// under way. Where it is 0, the ledger alone knows the tenant.
    pub destinations_left: u32,
}

/// What to change of a tier; `None` leaves it as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TierChange {
    /// All limits, as they shall be from now on; a tier has no safety margin.
    pub limits: Option<LimitSettings>,
    /// Another bound on what each of its tenants has in flight.
    pub tenant_max_in_flight: Option<Option<u32>>,
    /// Another bound on what each of its tenants hands in a second.
    pub tenant_ingest_per_second: Option<Option<u32>>,
    /// Another bound on how many destinations each of its tenants has.
    pub tenant_max_destinations: Option<Option<u32>>,
    /// Another ceiling, whole, on what its tenants set from now on.
    pub ceiling: Option<Ceiling>,
}

/// A plan tier: what destinations without limits of their own inherit.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// The limits.
    pub limits: LimitSettings,
    /// The most attempts that each of its tenants has queued and in flight at
    /// once, all destinations together; `None` for no bound.
    pub tenant_max_in_flight: Option<u32>,
    /// The most events that each of its tenants may hand in a second, at each
    /// process; `None` for what that is configured with.
    pub tenant_ingest_per_second: Option<u32>,
    /// The most destinations that each of its tenants has, with those that it has
    /// deleted within [`COUNTED_AFTER_DELETION`]; `None` for no bound. A tenant may be
    /// granted more ([`super::LimitRequests`]).
    pub tenant_max_destinations: Option<u32>,
    /// The most that its tenants set for their destinations, but for the default tenant.
    pub ceiling: Ceiling,
}

/// Why a tier cannot be deleted.
pub const TIER_IN_USE: &str = "tenants have this tier: give them another one first";

/// The bound of a tier for which nothing else is said: as many as are measured in
/// one installation.
pub const DEFAULT_MAX_DESTINATIONS: u32 = 10_000;

/// So long a deleted destination counts against the bound of its tenant: it has to be
/// finished still, and whoever makes and deletes them by turns would have no bound.
pub const COUNTED_AFTER_DELETION: Duration = Duration::from_secs(3_600);

/// Why a tenant may not have one more destination. The stores' triggers say the same.
pub const TOO_MANY_DESTINATIONS: &str = "the tenant has as many destinations as its tier allows, \
    counting those deleted within the last hour: delete some and wait, or ask for more with a \
    limit request";

/// The refusal of one more destination.
#[must_use]
pub fn too_many_destinations() -> CatalogError {
    CatalogError::Invalid {
        field: "tenant_max_destinations".to_owned(),
        problem: TOO_MANY_DESTINATIONS.to_owned(),
    }
}

//! The same store, as those see it who manage destinations from outside: a
//! resource of Kubernetes has a destination, and nobody else changes it.
//!
//! A destination is *held* by the resource that made it or took it over,
//! *released* by one that is gone and left it there, for the next of its name,
//! or nobody's but the API's. What is held is never given to another, and
//! nobody else changes it: whoever changes a destination says who he believes
//! holds it ([`Managed`]), and the store compares in the same transaction.

use async_trait::async_trait;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, TenantId};

use super::catalog::{Destination, NewDestination};
use super::error::CatalogError;
use super::secrets::NewSecret;
use super::vault::SealedSecret;

/// What the operator asks of a store. Every method is one transaction and
/// checks the tenant in its own query.
#[async_trait]
pub trait Managers: Send + Sync {
    /// [`SecretStore::create_destination_with`](super::SecretStore::create_destination_with),
    /// held from the start, in one commit: a crash leaves none that its resource
    /// does not find again. Refused (`Conflict`) if the resource has one.
    async fn create_managed(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        secrets: &[NewSecret],
        manager: &Manager,
    ) -> Result<Destination, CatalogError>;

    /// The destination that the resource has or may have; else the first that
    /// nobody manages and that has this name. Reads only.
    async fn find_managed(
        &self,
        tenant: TenantId,
        resource: &str,
        name: &str,
    ) -> Result<Option<Found>, CatalogError>;

    /// Who holds a destination; `None` for nobody, and of one that is not there.
    async fn manager(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Option<Manager>, CatalogError>;

    /// Holds what was released by a resource of the same name. Repeating it
    /// changes nothing. Anything else is refused (`Conflict`).
    async fn take_over(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError>;

    /// Lets go of what this very manager holds. Of anything else, changes
    /// nothing.
    async fn release(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError>;

    /// [`Catalog::delete_destination`](super::Catalog::delete_destination) for
    /// the manager that holds it. Anything else is refused (`Conflict`).
    async fn discard(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError>;

    /// How what resources hold stands, in brief, of all tenants: a page of at most
    /// [`MAX_ROWS`](super::MAX_ROWS), in the order of the ids, after this one. Reads only, and of
    /// each destination only rows by its id.
    async fn held(
        &self,
        after: Option<DestinationId>,
    ) -> Result<Vec<HeldDestination>, CatalogError>;

    /// What signs, and the headers, sealed, the newest first: to see whether what
    /// somebody wants is there already.
    async fn sealed_secrets(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Vec<SealedSecret>, CatalogError>;
}

/// A destination that a resource holds, in brief.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldDestination {
    /// Which.
    pub id: DestinationId,
    /// The resource that holds it: its namespace and name.
    pub resource: String,
    /// Its state.
    pub state: DestinationState,
    /// Its breaker is open, or half open.
    pub breaker_is_open: bool,
    /// The last run left something that waits or is under way.
    pub has_work: bool,
}

/// A resource that manages a destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Manager {
    /// Its namespace and name, such as `paceline/shop`.
    pub resource: String,
    /// Which of all that ever had this name.
    pub uid: String,
}

/// A destination that somebody wants to change, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Managed<'a> {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which.
    pub destination: DestinationId,
    /// The manager that wants it; `None` for the API, and whoever calls that.
    pub by: Option<&'a Manager>,
}

impl<'a> Managed<'a> {
    /// For the API: refused where a resource holds it.
    #[must_use]
    pub const fn by_nobody(tenant: TenantId, destination: DestinationId) -> Self {
        Self {
            tenant,
            destination,
            by: None,
        }
    }

    /// For this manager: refused unless it holds it.
    #[must_use]
    pub const fn by(tenant: TenantId, destination: DestinationId, manager: &'a Manager) -> Self {
        Self {
            tenant,
            destination,
            by: Some(manager),
        }
    }

    /// Refuses (`Conflict`) unless it is held by whoever wants to change it.
    /// `holder` is read in the transaction of the change, and stays until its end.
    pub fn check(&self, holder: Option<&Manager>) -> Result<(), CatalogError> {
        if holder == self.by {
            return Ok(());
        }
        Err(CatalogError::Conflict(match holder {
            Some(holder) => format!(
                "the destination is managed by the Kubernetes resource {}: change it there",
                holder.resource
            ),
            None => "the destination is not managed by this resource any more".to_owned(),
        }))
    }
}

/// A destination that a resource found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub id: DestinationId,
    /// Whose it is.
    pub hold: Hold,
}

/// Whose a destination is that a resource found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// Of a resource of the same name, with this uid.
    Held(String),
    /// It was one of the same name that let it go.
    Released,
    /// Nobody manages it: it is the API's, and has the same name.
    Unmanaged,
}

/// Why a resource is refused a second destination.
pub const HAS_ONE: &str = "the resource has a destination already";

/// Why a destination is not taken over.
pub const NOT_RELEASED: &str = "the destination was not released by a resource of this name";

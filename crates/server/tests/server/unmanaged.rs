//! Where nobody manages anything: a port that answers at once, for tests in
//! virtual time.

use async_trait::async_trait;
use domain::ids::{DestinationId, TenantId};
use engine::ports::{
    CatalogError, Destination, Found, HeldDestination, Manager, Managers, NOT_RELEASED,
    NewDestination, NewSecret, SealedSecret,
};

pub(crate) struct Unmanaged;

fn refused<T>() -> Result<T, CatalogError> {
    Err(CatalogError::Conflict(NOT_RELEASED.to_owned()))
}

#[async_trait]
impl Managers for Unmanaged {
    async fn create_managed(
        &self,
        _: TenantId,
        _: &NewDestination,
        _: &[NewSecret],
        _: &Manager,
    ) -> Result<Destination, CatalogError> {
        refused()
    }

    async fn find_managed(
        &self,
        _: TenantId,
        _: &str,
        _: &str,
    ) -> Result<Option<Found>, CatalogError> {
        Ok(None)
    }

    async fn manager(
        &self,
        _: TenantId,
        _: DestinationId,
    ) -> Result<Option<Manager>, CatalogError> {
        Ok(None)
    }

    async fn take_over(
        &self,
        _: TenantId,
        _: DestinationId,
        _: &Manager,
    ) -> Result<(), CatalogError> {
        refused()
    }

    async fn release(
        &self,
        _: TenantId,
        _: DestinationId,
        _: &Manager,
    ) -> Result<(), CatalogError> {
        Ok(())
    }

    async fn discard(
        &self,
        _: TenantId,
        _: DestinationId,
        _: &Manager,
    ) -> Result<(), CatalogError> {
        refused()
    }

    async fn held(&self, _: Option<DestinationId>) -> Result<Vec<HeldDestination>, CatalogError> {
        Ok(Vec::new())
    }

    async fn sealed_secrets(
        &self,
        _: TenantId,
        _: DestinationId,
    ) -> Result<Vec<SealedSecret>, CatalogError> {
        Ok(Vec::new())
    }
}

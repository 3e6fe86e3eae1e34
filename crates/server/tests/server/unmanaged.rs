//! Where nobody manages anything: a port that answers at once, for tests in
//! virtual time.

use async_trait::async_trait;
use domain::ids::{DestinationId, TenantId};
use domain::policy::LimitSettings;
use engine::ports::{
    CatalogError, Destination, Found, HeldDestination, LimitRequest, LimitRequestPosition,
    LimitRequestState, LimitRequests, Manager, Managers, NOT_RELEASED, NewDestination,
    NewDestinationsRequest, NewLimitRequest, NewSecret, SealedSecret,
};
use uuid::Uuid;

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

#[async_trait]
impl LimitRequests for Unmanaged {
    async fn request_limits(&self, _: TenantId, _: &NewLimitRequest) -> Result<Uuid, CatalogError> {
        refused()
    }

    async fn request_destinations(
        &self,
        _: TenantId,
        _: &NewDestinationsRequest,
    ) -> Result<Uuid, CatalogError> {
        refused()
    }

    async fn limit_requests(
        &self,
        _: Option<TenantId>,
        _: Option<LimitRequestPosition>,
        _: u32,
    ) -> Result<Vec<LimitRequest>, CatalogError> {
        Ok(Vec::new())
    }

    async fn limit_request(&self, _: Uuid) -> Result<LimitRequest, CatalogError> {
        refused()
    }

    async fn grant_limits(
        &self,
        _: TenantId,
        _: DestinationId,
        _: &LimitSettings,
    ) -> Result<(), CatalogError> {
        refused()
    }

    async fn decide_limit_request(
        &self,
        _: Uuid,
        _: LimitRequestState,
        _: &str,
    ) -> Result<(), CatalogError> {
        refused()
    }
}

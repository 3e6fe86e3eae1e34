//! The port of those who sign: each method is one step.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, SecretId, TenantId};
use engine::ports::{
    CatalogError, Destination, DestinationChange, Managed, NewDestination, NewSecret, Resealed,
    SealedSecret, Secret, SecretStore, Shown, SingleChange, StoreError, TokenBook, TokenNote,
};

use super::PostgresStore;
use super::failure::retried;
use super::secrets::{self, answered};

#[async_trait]
impl SecretStore for PostgresStore {
    async fn create_destination_with(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        sealed: &[NewSecret],
    ) -> Result<Destination, CatalogError> {
        let created =
            retried(|| secrets::create_destination_with(&self.pool, tenant, new, sealed)).await?;
        answered(created)
    }

    async fn change_destination_with(
        &self,
        of: Managed<'_>,
        change: &DestinationChange,
        singles: &[SingleChange],
    ) -> Result<Destination, CatalogError> {
        let step = || secrets::change_destination_with(&self.pool, of, change, singles);
        answered(retried(step).await?)
    }

    async fn shown(&self, destinations: &[DestinationId]) -> Result<Vec<Shown>, CatalogError> {
        Ok(retried(|| secrets::shown(&self.pool, destinations)).await?)
    }

    async fn secrets(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<Vec<Secret>, CatalogError> {
        answered(retried(|| secrets::secrets(&self.pool, tenant, destination)).await?)
    }

    async fn rotate_secret(
        &self,
        of: Managed<'_>,
        new: &NewSecret,
        overlap: Duration,
    ) -> Result<Secret, CatalogError> {
        let step = || secrets::rotate_secret(&self.pool, of, new, overlap);
        Ok(retried(step).await?)
    }

    async fn delete_secret(&self, of: Managed<'_>, secret: SecretId) -> Result<(), CatalogError> {
        let step = || secrets::delete_secret(&self.pool, of, secret);
        Ok(retried(step).await?)
    }

    async fn sealed_under_others(
        &self,
        key: &str,
        after: Option<SecretId>,
        limit: u32,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        Ok(retried(|| secrets::sealed_under_others(&self.pool, key, after, limit)).await?)
    }

    async fn reseal(&self, resealed: &[Resealed]) -> Result<u32, StoreError> {
        Ok(retried(|| secrets::reseal(&self.pool, resealed)).await?)
    }

    async fn forget_expired(&self, limit: u32) -> Result<u32, StoreError> {
        Ok(retried(|| secrets::forget_expired(&self.pool, limit)).await?)
    }

    async fn keys_in_use(&self) -> Result<Vec<(String, u64)>, StoreError> {
        Ok(retried(|| secrets::keys_in_use(&self.pool)).await?)
    }
}

#[async_trait]
impl TokenBook for PostgresStore {
    async fn note_tokens(&self, notes: &[TokenNote]) -> Result<(), StoreError> {
        Ok(retried(|| secrets::note_tokens(&self.pool, notes)).await?)
    }
}

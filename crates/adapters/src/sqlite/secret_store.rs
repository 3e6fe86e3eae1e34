//! The port of those who sign: each method is one step on one of the threads.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, SecretId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, Destination, DestinationChange, Managed, NewDestination, NewSecret, Resealed,
    SealedSecret, Secret, SecretStore, Shown, SingleChange, StoreError, TokenBook, TokenNote,
};
use rusqlite::Transaction;

use super::fault::Fault;
use super::{SqliteStore, managers, secrets};

impl SqliteStore {
    /// A step that changes a destination, refused where somebody else holds it.
    async fn held<T: Send + 'static>(
        &self,
        of: Managed<'_>,
        step: impl FnOnce(&Transaction<'_>, Timestamp, (TenantId, DestinationId)) -> Result<T, Fault>
        + Send
        + 'static,
    ) -> Result<T, CatalogError> {
        let (tenant, destination, by) = (of.tenant, of.destination, of.by.cloned());
        let step = move |tx: &Transaction<'_>, now| {
            let by = by.as_ref();
            let of = Managed {
                tenant,
                destination,
                by,
            };
            managers::check(tx, of)?;
            step(tx, now, (tenant, destination))
        };
        Ok(self.write(step).await?)
    }
}

#[async_trait]
impl SecretStore for SqliteStore {
    async fn create_destination_with(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        sealed: &[NewSecret],
    ) -> Result<Destination, CatalogError> {
        let (new, sealed) = (new.clone(), sealed.to_vec());
        let step = move |tx: &Transaction<'_>, now| {
            secrets::create_destination_with(tx, now, tenant, &new, &sealed)
        };
        Ok(self.write(step).await?)
    }

    async fn change_destination_with(
        &self,
        of: Managed<'_>,
        change: &DestinationChange,
        singles: &[SingleChange],
    ) -> Result<Destination, CatalogError> {
        let (change, singles) = (change.clone(), singles.to_vec());
        let step = move |tx: &Transaction<'_>, now, key| {
            secrets::change_destination_with(tx, now, key, &change, &singles)
        };
        self.held(of, step).await
    }

    async fn shown(&self, destinations: &[DestinationId]) -> Result<Vec<Shown>, CatalogError> {
        let destinations = destinations.to_vec();
        Ok(self
            .read(move |tx| secrets::shown(tx, &destinations))
            .await?)
    }

    async fn secrets(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<Vec<Secret>, CatalogError> {
        Ok(self
            .look(move |tx, now| secrets::secrets(tx, now, tenant, destination))
            .await?)
    }

    async fn rotate_secret(
        &self,
        of: Managed<'_>,
        new: &NewSecret,
        overlap: Duration,
    ) -> Result<Secret, CatalogError> {
        let new = new.clone();
        let step = move |tx: &Transaction<'_>, now, (_, id)| {
            secrets::rotate_secret(tx, now, id, &new, overlap)
        };
        self.held(of, step).await
    }

    async fn delete_secret(&self, of: Managed<'_>, secret: SecretId) -> Result<(), CatalogError> {
        let step =
            move |tx: &Transaction<'_>, now, (_, id)| secrets::delete_secret(tx, now, id, secret);
        self.held(of, step).await
    }

    async fn sealed_under_others(
        &self,
        key: &str,
        after: Option<SecretId>,
        limit: u32,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        let key = key.to_owned();
        Ok(self
            .read(move |tx| secrets::sealed_under_others(tx, &key, after, limit))
            .await?)
    }

    async fn reseal(&self, resealed: &[Resealed]) -> Result<u32, StoreError> {
        let resealed = resealed.to_vec();
        Ok(self
            .write(move |tx, _| secrets::reseal(tx, &resealed))
            .await?)
    }

    async fn forget_expired(&self, limit: u32) -> Result<u32, StoreError> {
        Ok(self
            .write(move |tx, now| secrets::forget_expired(tx, now, limit))
            .await?)
    }

    async fn keys_in_use(&self) -> Result<Vec<(String, u64)>, StoreError> {
        Ok(self.read(|tx| secrets::keys_in_use(tx)).await?)
    }
}

#[async_trait]
impl TokenBook for SqliteStore {
    async fn note_tokens(&self, notes: &[TokenNote]) -> Result<(), StoreError> {
        let notes = notes.to_vec();
        Ok(self
            .write(move |tx, now| secrets::note_tokens(tx, now, &notes))
            .await?)
    }
}

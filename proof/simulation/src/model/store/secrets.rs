//! Sealed secrets and headers. The model has no keys either.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, SecretId, TenantId};
use domain::signature::{MAX_LIVE_SECRETS, SecretKind};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, Destination, DestinationChange, HeadersChange, Managed, NewDestination,
    NewSecret, Resealed, SealedKind, SealedSecret, Secret, SecretStore, StoreError,
};
use engine::sealing::{LAST_ONE, TOO_MANY};

use super::change::{Besides, carry_out};
use super::rows::{Rows, SecretRow};
use super::{ModelStore, destinations, managers};

impl SecretRow {
    fn signs(&self) -> Option<SecretKind> {
        match self.sealed.place.kind {
            SealedKind::Signs(kind) => Some(kind),
            SealedKind::Headers => None,
        }
    }

    fn is_live(&self, now: Timestamp) -> bool {
        self.sealed.expires_at.is_none_or(|end| end > now)
    }

    fn shown(&self) -> Option<Secret> {
        Some(Secret {
            id: self.sealed.place.secret,
            kind: self.signs()?,
            public_key: self.shown.clone(),
            created_at: self.created_at,
            expires_at: self.sealed.expires_at,
        })
    }
}

/// A destination's secrets and headers that are in force, the newest first.
fn live(
    rows: &Rows,
    now: Timestamp,
    destination: DestinationId,
) -> impl DoubleEndedIterator<Item = &SecretRow> {
    // Ids grow with time, as the ids of version 7 do.
    (rows.secrets.values().rev())
        .filter(move |row| row.sealed.place.destination == destination && row.is_live(now))
}

/// What a destination signs with and adds; see [`engine::ports::Target`].
pub(super) fn of_destination(
    rows: &Rows,
    now: Timestamp,
    destination: DestinationId,
) -> Vec<SealedSecret> {
    let found = live(rows, now, destination);
    found.map(|row| row.sealed.clone()).collect()
}

pub(super) fn insert(rows: &mut Rows, now: Timestamp, new: &NewSecret) {
    let sealed = SealedSecret {
        place: new.place,
        sealed: new.sealed.clone(),
        expires_at: None,
    };
    let row = SecretRow {
        sealed,
        shown: new.shown.clone(),
        created_at: now,
    };
    rows.secrets.insert(new.place.secret, row);
}

fn rotate(
    rows: &mut Rows,
    now: Timestamp,
    of: Managed<'_>,
    new: &NewSecret,
    overlap: Duration,
) -> Result<Secret, CatalogError> {
    managers::check(rows, of)?;
    let destination = of.destination;
    let end = now + overlap;
    let is_another =
        |row: &SecretRow| row.sealed.place.destination == destination && row.signs().is_some();
    let ends = |row: &SecretRow| match is_another(row) {
        true => Some(row.sealed.expires_at.map_or(end, |at| at.min(end))),
        false => row.sealed.expires_at,
    };
    let left = live(rows, now, destination)
        .filter(|row| row.signs().is_some() && ends(row).is_none_or(|at| at > now));
    if left.count() >= MAX_LIVE_SECRETS {
        return Err(CatalogError::Conflict(TOO_MANY.to_owned()));
    }
    for row in rows.secrets.values_mut() {
        row.sealed.expires_at = ends(row);
    }
    insert(rows, now, new);
    carry_out(rows, now, destination, Besides::Revokes);
    let added = rows.secrets.get(&new.place.secret);
    let shown = added.and_then(SecretRow::shown);
    shown.ok_or(CatalogError::NotFound("secret"))
}

fn delete(
    rows: &mut Rows,
    now: Timestamp,
    of: Managed<'_>,
    secret: SecretId,
) -> Result<(), CatalogError> {
    managers::check(rows, of)?;
    let destination = of.destination;
    let there = rows.secrets.get(&secret);
    let is_its = there
        .is_some_and(|row| row.sealed.place.destination == destination && row.signs().is_some());
    if !is_its {
        return Err(CatalogError::NotFound("secret"));
    }
    let others = live(rows, now, destination)
        .filter(|row| row.signs().is_some() && row.sealed.place.secret != secret);
    if others.count() == 0 {
        return Err(CatalogError::Conflict(LAST_ONE.to_owned()));
    }
    rows.secrets.remove(&secret);
    carry_out(rows, now, destination, Besides::Revokes);
    Ok(())
}

fn change_headers(
    rows: &mut Rows,
    now: Timestamp,
    destination: DestinationId,
    headers: &HeadersChange,
) {
    if *headers == HeadersChange::Keep {
        return;
    }
    rows.secrets
        .retain(|_, row| row.sealed.place.destination != destination || row.signs().is_some());
    if let HeadersChange::Set(new) = headers {
        insert(rows, now, new);
    }
    carry_out(rows, now, destination, Besides::Revokes);
}

/// A destination's secrets go with it.
pub(super) fn forget(rows: &mut Rows, destination: DestinationId) {
    (rows.secrets).retain(|_, row| row.sealed.place.destination != destination);
}

fn header_names(rows: &Rows, destination: DestinationId) -> Vec<String> {
    let mut all = rows.secrets.values();
    let headers =
        all.find(|row| row.sealed.place.destination == destination && row.signs().is_none());
    let shown = headers.and_then(|row| row.shown.as_deref());
    let names = shown.unwrap_or_default().split_whitespace();
    names.map(str::to_owned).collect()
}

fn reseal(rows: &mut Rows, resealed: &[Resealed]) -> u32 {
    let mut done = 0;
    for one in resealed {
        let row = rows.secrets.get_mut(&one.secret);
        if let Some(row) = row.filter(|row| row.sealed.sealed == one.from) {
            row.sealed.sealed = one.to.clone();
            done += 1;
        }
    }
    done
}

fn forget_expired(rows: &mut Rows, now: Timestamp, limit: u32) -> u32 {
    let mut ended: Vec<_> = (rows.secrets.values())
        .filter(|row| !row.is_live(now))
        .map(|row| (row.sealed.expires_at, row.sealed.place.secret))
        .collect();
    ended.sort_unstable();
    ended.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    for (_, secret) in &ended {
        rows.secrets.remove(secret);
    }
    u32::try_from(ended.len()).unwrap_or(u32::MAX)
}

#[async_trait]
impl SecretStore for ModelStore {
    async fn create_destination_with(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        secrets: &[NewSecret],
    ) -> Result<Destination, CatalogError> {
        self.step(|rows, now| {
            let created = destinations::create(rows, now, tenant, new)?;
            for secret in secrets {
                insert(rows, now, secret);
            }
            Ok(created)
        })
    }

    async fn change_destination_with(
        &self,
        of: Managed<'_>,
        change: &DestinationChange,
        headers: &HeadersChange,
    ) -> Result<Destination, CatalogError> {
        self.change(|rows, now| {
            managers::check(rows, of)?;
            let changed = destinations::change(rows, now, of.tenant, of.destination, change)?;
            change_headers(rows, now, of.destination, headers);
            Ok(changed)
        })
    }

    async fn header_names(
        &self,
        destinations: &[DestinationId],
    ) -> Result<Vec<Vec<String>>, CatalogError> {
        let names = |rows: &Rows| {
            let names = destinations.iter().map(|id| header_names(rows, *id));
            names.collect()
        };
        Ok(self.read(names))
    }

    async fn secrets(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<Vec<Secret>, CatalogError> {
        self.look(|rows, now| {
            destinations::read(rows, tenant, destination)?;
            let found = live(rows, now, destination);
            Ok(found.filter_map(SecretRow::shown).collect())
        })
    }

    async fn rotate_secret(
        &self,
        of: Managed<'_>,
        new: &NewSecret,
        overlap: Duration,
    ) -> Result<Secret, CatalogError> {
        self.change(|rows, now| rotate(rows, now, of, new, overlap))
    }

    async fn delete_secret(&self, of: Managed<'_>, secret: SecretId) -> Result<(), CatalogError> {
        self.change(|rows, now| delete(rows, now, of, secret))
    }

    async fn sealed_under_others(
        &self,
        key: &str,
        after: Option<SecretId>,
        limit: u32,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        let page = |rows: &Rows| {
            let found = (rows.secrets.iter())
                .filter(|(id, row)| Some(**id) > after && row.sealed.sealed.key != key)
                .map(|(_, row)| row.sealed.clone());
            found
                .take(usize::try_from(limit).unwrap_or(usize::MAX))
                .collect()
        };
        Ok(self.read(page))
    }

    async fn reseal(&self, resealed: &[Resealed]) -> Result<u32, StoreError> {
        Ok(self.step(|rows, _| reseal(rows, resealed)))
    }

    async fn forget_expired(&self, limit: u32) -> Result<u32, StoreError> {
        Ok(self.step(|rows, now| forget_expired(rows, now, limit)))
    }

    async fn keys_in_use(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let counted = |rows: &Rows| {
            let mut keys = std::collections::BTreeMap::new();
            for row in rows.secrets.values() {
                *keys.entry(row.sealed.sealed.key.clone()).or_default() += 1;
            }
            keys.into_iter().collect()
        };
        Ok(self.read(counted))
    }
}

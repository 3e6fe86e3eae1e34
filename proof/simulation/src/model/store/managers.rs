//! Who manages a destination from outside.

use async_trait::async_trait;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, Destination, Found, HAS_ONE, HeldDestination, Hold, MAX_ROWS, Managed, Manager,
    Managers, NOT_RELEASED, NewDestination, NewSecret, SealedKind, SealedSecret,
};

use super::rows::{ManagerRow, Rows};
use super::{ModelStore, destinations, secrets};

fn of_resource<'a>(
    rows: &'a Rows,
    tenant: TenantId,
    resource: &str,
) -> Option<(DestinationId, &'a ManagerRow)> {
    let mut all = rows.managers.iter();
    let found = all.find(|(_, row)| row.tenant == tenant && row.resource == resource);
    found.map(|(id, row)| (*id, row))
}

fn find(rows: &Rows, tenant: TenantId, resource: &str, name: &str) -> Option<Found> {
    if let Some((id, row)) = of_resource(rows, tenant, resource) {
        let hold = row.uid.clone().map_or(Hold::Released, Hold::Held);
        return Some(Found { id, hold });
    }
    let mut of_name = rows.destinations.iter().filter(|(id, row)| {
        row.tenant == tenant
            && row.name == name
            && row.deleted_at.is_none()
            && !rows.managers.contains_key(*id)
    });
    of_name.next().map(|(id, _)| Found {
        id: *id,
        hold: Hold::Unmanaged,
    })
}

fn take_over(
    rows: &mut Rows,
    tenant: TenantId,
    id: DestinationId,
    manager: &Manager,
) -> Result<(), CatalogError> {
    let row = rows.managers.get_mut(&id).filter(|row| {
        row.tenant == tenant
            && row.resource == manager.resource
            && (row.uid.as_ref()).is_none_or(|uid| *uid == manager.uid)
    });
    let row = row.ok_or_else(|| CatalogError::Conflict(NOT_RELEASED.to_owned()))?;
    row.uid = Some(manager.uid.clone());
    Ok(())
}

fn holder(rows: &Rows, tenant: TenantId, id: DestinationId) -> Option<Manager> {
    let row = rows.managers.get(&id).filter(|row| row.tenant == tenant)?;
    Some(Manager {
        resource: row.resource.clone(),
        uid: row.uid.clone()?,
    })
}

/// Refuses a change of what is not there, or held by somebody else.
pub(super) fn check(rows: &Rows, of: Managed<'_>) -> Result<(), CatalogError> {
    destinations::read(rows, of.tenant, of.destination)?;
    of.check(holder(rows, of.tenant, of.destination).as_ref())
}

#[async_trait]
impl Managers for ModelStore {
    async fn create_managed(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        sealed: &[NewSecret],
        manager: &Manager,
    ) -> Result<Destination, CatalogError> {
        self.step(|rows, now| {
            if of_resource(rows, tenant, &manager.resource).is_some() {
                return Err(CatalogError::Conflict(HAS_ONE.to_owned()));
            }
            let created = destinations::create(rows, now, tenant, new)?;
            for secret in sealed {
                secrets::insert(rows, now, secret);
            }
            let row = ManagerRow {
                tenant,
                resource: manager.resource.clone(),
                uid: Some(manager.uid.clone()),
            };
            rows.managers.insert(new.id, row);
            Ok(created)
        })
    }

    async fn find_managed(
        &self,
        tenant: TenantId,
        resource: &str,
        name: &str,
    ) -> Result<Option<Found>, CatalogError> {
        Ok(self.read(|rows| find(rows, tenant, resource, name)))
    }

    async fn manager(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Option<Manager>, CatalogError> {
        Ok(self.read(|rows| holder(rows, tenant, id)))
    }

    async fn take_over(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        self.step(|rows, _| take_over(rows, tenant, id, manager))
    }

    async fn release(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        self.step(|rows, _| {
            let held = ManagerRow {
                tenant,
                resource: manager.resource.clone(),
                uid: Some(manager.uid.clone()),
            };
            if let Some(row) = rows.managers.get_mut(&id).filter(|row| **row == held) {
                row.uid = None;
            }
        });
        Ok(())
    }

    async fn discard(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        self.change(|rows, now| {
            check(rows, Managed::by(tenant, id, manager))?;
            destinations::delete(rows, now, tenant, id)
        })
    }

    async fn held(
        &self,
        after: Option<DestinationId>,
    ) -> Result<Vec<HeldDestination>, CatalogError> {
        Ok(self.read(|rows| {
            let held = rows
                .managers
                .iter()
                .filter(|(id, row)| row.uid.is_some() && after.is_none_or(|after| **id > after));
            let brief = held.filter_map(|(id, row)| {
                let destination = rows.destinations.get(id)?;
                let health = rows.health.get(id);
                let next_look_at = destination.pacing.next_look_at;
                Some(HeldDestination {
                    id: *id,
                    resource: row.resource.clone(),
                    state: destination.state,
                    breaker_is_open: health.is_some_and(|health| health.opened_at.is_some()),
                    has_work: next_look_at.is_some_and(|at| at < Timestamp::MAX),
                })
            });
            brief.take(MAX_ROWS).collect()
        }))
    }

    async fn signing_secrets(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Vec<SealedSecret>, CatalogError> {
        let mut found = self.look(|rows, now| secrets::of_destination(rows, now, id));
        found.retain(|one| one.place.tenant == tenant && one.place.kind != SealedKind::Headers);
        Ok(found)
    }
}

//! Who manages a destination from outside.

use async_trait::async_trait;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, Destination, Found, HAS_ONE, HeldDestination, Hold, MAX_ROWS, Managed, Manager,
    Managers, NOT_RELEASED, NewDestination, NewSecret, SealedSecret,
};
use rusqlite::{Connection, Transaction};

use super::fault::Fault;
use super::rows::{all, execute, first, word};
use super::{SqliteStore, destinations, secrets};

const INSERT: &str = "
    -- create_managed
    insert into destination_managers (destination_id, tenant_id, resource, uid)
    values (?1, ?2, ?3, ?4)
    on conflict (tenant_id, resource) do nothing";

const OF_RESOURCE: &str = "
    -- find_managed: of the resource
    select destination_id, uid from destination_managers where tenant_id = ?1 and resource = ?2";

const OF_NAME: &str = "
    -- find_managed: of its name
    select d.id from destinations d
    where d.tenant_id = ?1 and d.name = ?2 and d.deleted_at is null
        and not exists (select 1 from destination_managers m where m.destination_id = d.id)
    order by d.id limit 1";

const MANAGER: &str = "
    -- manager
    select resource, uid from destination_managers
    where destination_id = ?1 and tenant_id = ?2 and uid is not null";

const TAKE_OVER: &str = "
    -- take_over
    update destination_managers set uid = ?4
    where destination_id = ?1 and tenant_id = ?2 and resource = ?3 and (uid is null or uid = ?4)";

const RELEASE: &str = "
    -- release_managed
    update destination_managers set uid = null
    where destination_id = ?1 and tenant_id = ?2 and resource = ?3 and uid = ?4";

/// `next_look_at` is null where the last run found nothing, and at the end of time where
/// a limit of 0 stops it.
const HELD: &str = "
    -- held
    select m.destination_id, m.resource, d.state, h.opened_at is not null,
        coalesce(p.next_look_at < 9223372036854775807, 0)
    from destination_managers m
    join destinations d on d.id = m.destination_id
    left join health h on h.destination_id = m.destination_id
    left join pacing p on p.destination_id = m.destination_id
    where m.uid is not null and m.destination_id > ?1
    order by m.destination_id
    limit ?2";

fn held(
    connection: &Connection,
    after: Option<DestinationId>,
) -> Result<Vec<HeldDestination>, Fault> {
    let after = after.map_or_else(String::new, |after| after.to_string());
    let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
    all(connection, HELD, (after, limit), |row| {
        Ok(HeldDestination {
            id: word(row, 0, ("destination_managers", "destination_id"))?,
            resource: row.get(1)?,
            state: word(row, 2, ("destinations", "state"))?,
            breaker_is_open: row.get(3)?,
            has_work: row.get(4)?,
        })
    })
}

/// Refuses a change of what is not there, or held by somebody else. In the
/// transaction of the change, which is the only one that writes.
pub(super) fn check(tx: &Transaction<'_>, of: Managed<'_>) -> Result<(), Fault> {
    secrets::is_there(tx, of.tenant, of.destination)?;
    let holder = holder(tx, of.tenant, of.destination)?;
    Ok(of.check(holder.as_ref())?)
}

fn holder(
    connection: &Connection,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<Manager>, Fault> {
    let key = (id.to_string(), tenant.to_string());
    first(connection, MANAGER, key, |row| {
        Ok(Manager {
            resource: row.get(0)?,
            uid: row.get(1)?,
        })
    })
}

#[async_trait]
impl Managers for SqliteStore {
    async fn create_managed(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        sealed: &[NewSecret],
        manager: &Manager,
    ) -> Result<Destination, CatalogError> {
        let (new, sealed, manager) = (new.clone(), sealed.to_vec(), manager.clone());
        let step = move |tx: &Transaction<'_>, now| {
            let created = secrets::create_destination_with(tx, now, tenant, &new, &sealed)?;
            match execute(tx, INSERT, row(tenant, new.id, &manager))? {
                0 => Err(CatalogError::Conflict(HAS_ONE.to_owned()).into()),
                _ => Ok(created),
            }
        };
        Ok(self.write(step).await?)
    }

    async fn find_managed(
        &self,
        tenant: TenantId,
        resource: &str,
        name: &str,
    ) -> Result<Option<Found>, CatalogError> {
        let (resource, name) = (resource.to_owned(), name.to_owned());
        Ok(self
            .read(move |tx| find(tx, tenant, &resource, &name))
            .await?)
    }

    async fn manager(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Option<Manager>, CatalogError> {
        Ok(self.read(move |tx| holder(tx, tenant, id)).await?)
    }

    async fn take_over(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        let row = row(tenant, id, manager);
        let step = move |tx: &Transaction<'_>, _| match execute(tx, TAKE_OVER, row)? {
            0 => Err(CatalogError::Conflict(NOT_RELEASED.to_owned()).into()),
            _ => Ok(()),
        };
        Ok(self.write(step).await?)
    }

    async fn release(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        let row = row(tenant, id, manager);
        let step = move |tx: &Transaction<'_>, _| execute(tx, RELEASE, row).map(drop);
        Ok(self.write(step).await?)
    }

    async fn discard(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        let manager = manager.clone();
        let step = move |tx: &Transaction<'_>, now| {
            check(tx, Managed::by(tenant, id, &manager))?;
            destinations::delete(tx, now, tenant, id)
        };
        Ok(self.write(step).await?)
    }

    async fn held(
        &self,
        after: Option<DestinationId>,
    ) -> Result<Vec<HeldDestination>, CatalogError> {
        Ok(self.read(move |tx| held(tx, after)).await?)
    }

    async fn sealed_secrets(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Vec<SealedSecret>, CatalogError> {
        let step = move |tx: &Transaction<'_>, now| sealed_secrets(tx, now, tenant, id);
        Ok(self.look(step).await?)
    }
}

fn row(tenant: TenantId, id: DestinationId, manager: &Manager) -> (String, String, String, String) {
    let (resource, uid) = (manager.resource.clone(), manager.uid.clone());
    (id.to_string(), tenant.to_string(), resource, uid)
}

fn find(
    connection: &Connection,
    tenant: TenantId,
    resource: &str,
    name: &str,
) -> Result<Option<Found>, Fault> {
    let column = ("destination_managers", "destination_id");
    let managed = first(
        connection,
        OF_RESOURCE,
        (tenant.to_string(), resource),
        |row| {
            let uid: Option<String> = row.get(1)?;
            Ok(Found {
                id: word(row, 0, column)?,
                hold: uid.map_or(Hold::Released, Hold::Held),
            })
        },
    )?;
    if managed.is_some() {
        return Ok(managed);
    }
    first(connection, OF_NAME, (tenant.to_string(), name), |row| {
        Ok(Found {
            id: word(row, 0, ("destinations", "id"))?,
            hold: Hold::Unmanaged,
        })
    })
}

fn sealed_secrets(
    connection: &Connection,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Vec<SealedSecret>, Fault> {
    let mut found = secrets::of_destination(connection, now, id)?;
    found.retain(|one| one.place.tenant == tenant);
    Ok(found)
}

//! Who manages a destination from outside.

use async_trait::async_trait;
use domain::ids::{DestinationId, TenantId};
use engine::ports::{
    CatalogError, Destination, Found, HAS_ONE, HeldDestination, Hold, MAX_ROWS, Managed, Manager,
    Managers, NOT_RELEASED, NewDestination, NewSecret, SealedSecret,
};
use sqlx::PgPool;
use uuid::Uuid;

use super::failure::{Failure, retried};
use super::rows::word;
use super::secrets::{self, answered};
use super::{PostgresStore, catalog};

#[async_trait]
impl Managers for PostgresStore {
    async fn create_managed(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        sealed: &[NewSecret],
        manager: &Manager,
    ) -> Result<Destination, CatalogError> {
        let step = || create(&self.pool, tenant, new, sealed, manager);
        answered(retried(step).await?)
    }

    async fn find_managed(
        &self,
        tenant: TenantId,
        resource: &str,
        name: &str,
    ) -> Result<Option<Found>, CatalogError> {
        Ok(retried(|| find(&self.pool, tenant, resource, name)).await?)
    }

    async fn manager(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Option<Manager>, CatalogError> {
        Ok(retried(|| manager(&self.pool, tenant, id)).await?)
    }

    async fn take_over(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        Ok(retried(|| take_over(&self.pool, tenant, id, manager)).await?)
    }

    async fn release(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        Ok(retried(|| release(&self.pool, tenant, id, manager)).await?)
    }

    async fn discard(
        &self,
        tenant: TenantId,
        id: DestinationId,
        manager: &Manager,
    ) -> Result<(), CatalogError> {
        let of = Managed::by(tenant, id, manager);
        Ok(retried(|| catalog::delete_destination(&self.pool, of)).await?)
    }

    async fn held(
        &self,
        after: Option<DestinationId>,
    ) -> Result<Vec<HeldDestination>, CatalogError> {
        Ok(retried(|| held(&self.pool, after)).await?)
    }

    async fn sealed_secrets(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Vec<SealedSecret>, CatalogError> {
        Ok(retried(|| sealed_secrets(&self.pool, tenant, id)).await?)
    }
}

async fn create(
    pool: &PgPool,
    tenant: TenantId,
    new: &NewDestination,
    sealed: &[NewSecret],
    manager: &Manager,
) -> Result<Option<Destination>, Failure> {
    let mut transaction = pool.begin().await?;
    catalog::create_destination(&mut transaction, tenant, new).await?;
    for secret in sealed {
        secrets::insert(&mut transaction, secret).await?;
    }
    let held = sqlx::query(
        "-- create_managed
        insert into destination_managers (destination_id, tenant_id, resource, uid)
        values ($1, $2, $3, $4)
        on conflict (tenant_id, resource) do nothing",
    )
    .bind(new.id.0)
    .bind(tenant.0)
    .bind(&manager.resource)
    .bind(&manager.uid)
    .execute(&mut *transaction)
    .await?;
    if held.rows_affected() == 0 {
        return Err(Failure::Conflict(HAS_ONE));
    }
    let created = catalog::destination(&mut *transaction, tenant, new.id).await?;
    transaction.commit().await?;
    Ok(created)
}

async fn find(
    pool: &PgPool,
    tenant: TenantId,
    resource: &str,
    name: &str,
) -> Result<Option<Found>, Failure> {
    let found: Option<(Uuid, bool, Option<String>)> = sqlx::query_as(
        "-- find_managed
        select m.destination_id, true as managed, m.uid
        from destination_managers m
        where m.tenant_id = $1 and m.resource = $2
        union all
        (
            select d.id, false, null
            from destinations d
            where d.tenant_id = $1 and d.name = $3 and d.deleted_at is null
                and not exists (
                    select from destination_managers m where m.destination_id = d.id
                )
            order by d.id
            limit 1
        )
        order by managed desc
        limit 1",
    )
    .bind(tenant.0)
    .bind(resource)
    .bind(name)
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|(id, managed, uid)| Found {
        id: DestinationId(id),
        hold: match (managed, uid) {
            (false, _) => Hold::Unmanaged,
            (true, Some(uid)) => Hold::Held(uid),
            (true, None) => Hold::Released,
        },
    }))
}

async fn manager(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<Manager>, Failure> {
    let found: Option<(String, String)> = sqlx::query_as(
        "-- manager
        select resource, uid from destination_managers
        where destination_id = $1 and tenant_id = $2 and uid is not null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|(resource, uid)| Manager { resource, uid }))
}

async fn take_over(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
    manager: &Manager,
) -> Result<(), Failure> {
    let taken = sqlx::query(
        "-- take_over
        update destination_managers set uid = $4
        where destination_id = $1 and tenant_id = $2 and resource = $3
            and (uid is null or uid = $4)",
    )
    .bind(id.0)
    .bind(tenant.0)
    .bind(&manager.resource)
    .bind(&manager.uid)
    .execute(pool)
    .await?;
    match taken.rows_affected() {
        0 => Err(Failure::Conflict(NOT_RELEASED)),
        _ => Ok(()),
    }
}

async fn release(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
    manager: &Manager,
) -> Result<(), Failure> {
    sqlx::query(
        "-- release_managed
        update destination_managers set uid = null
        where destination_id = $1 and tenant_id = $2 and resource = $3 and uid = $4",
    )
    .bind(id.0)
    .bind(tenant.0)
    .bind(&manager.resource)
    .bind(&manager.uid)
    .execute(pool)
    .await?;
    Ok(())
}

/// `next_look_at` is null where the last run found nothing, and at the end of time where
/// a limit of 0 stops it.
async fn held(
    pool: &PgPool,
    after: Option<DestinationId>,
) -> Result<Vec<HeldDestination>, Failure> {
    let rows: Vec<(Uuid, String, String, bool, bool)> = sqlx::query_as(
        "-- held
        select m.destination_id, m.resource, d.state, h.opened_at is not null,
            coalesce(isfinite(p.next_look_at), false)
        from destination_managers m
        join destinations d on d.id = m.destination_id
        left join health h on h.destination_id = m.destination_id
        left join pacing p on p.destination_id = m.destination_id
        where m.uid is not null and m.destination_id > $1
        order by m.destination_id
        limit $2",
    )
    .bind(after.map_or(Uuid::nil(), |after| after.0))
    .bind(i64::try_from(MAX_ROWS).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await?;
    let read = |(id, resource, state, breaker_is_open, has_work): (_, _, String, _, _)| {
        Ok(HeldDestination {
            id: DestinationId(id),
            resource,
            state: word("destinations", "state", id, &state)?,
            breaker_is_open,
            has_work,
        })
    };
    rows.into_iter().map(read).collect()
}

async fn sealed_secrets(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Vec<SealedSecret>, Failure> {
    let rows: Vec<secrets::Row> = sqlx::query_as(
        "-- sealed_secrets
        select id, tenant_id, destination_id, kind, key_id, sealed,
            micros(expires_at) as expires_at
        from destination_secrets
        where destination_id = $1 and tenant_id = $2
            and (expires_at is null or expires_at > clock_timestamp())
        order by created_at desc, id desc",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(secrets::Row::sealed).collect()
}

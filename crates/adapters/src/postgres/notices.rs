//! Addresses of people, and what they have yet to be told.
//!
//! Whoever claims a digest, ends one or removes an address locks the address
//! first, and then its notices. The relay only shares the address, so that no
//! notice is left for one that is gone.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::ids::{DestinationId, NoticeAddressId, TenantId};
use domain::notices::{Digest, Line, NoticeAddress, NoticeForm, notices};
use domain::operations::OperationalEvent;
use domain::policy::InvalidSettings;
use domain::time::{Timestamp, micros};
use engine::ports::{
    ClaimedDigest, DigestLease, MAX_DIGEST, MAX_LINES, MAX_NOTICE_ADDRESSES, NewNoticeAddress,
    Notices, Sealed, StoreError,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};
use super::rows::{count, word};
use crate::row::row;

#[async_trait]
impl Notices for PostgresStore {
    async fn claim_digest(
        &self,
        forms: &[NoticeForm],
        lease: Duration,
    ) -> Result<Option<ClaimedDigest>, StoreError> {
        Ok(retried(|| claim(&self.pool, forms, lease)).await?)
    }

    async fn digest_told(&self, lease: DigestLease) -> Result<(), StoreError> {
        Ok(retried(|| told(&self.pool, lease)).await?)
    }

    async fn digest_untold(
        &self,
        lease: DigestLease,
        again_in: Duration,
    ) -> Result<(), StoreError> {
        Ok(retried(|| untold(&self.pool, lease, again_in)).await?)
    }
}

row! {
    /// A row of `notice_addresses`.
    struct AddressRow {
        id: Uuid,
        tenant_id: Uuid,
        scope: String,
        form: String,
        shown: String,
        event_types: Vec<String>,
        every_seconds: i32,
    }
}

impl AddressRow {
    fn into_domain(self) -> Result<NoticeAddress, Failure> {
        const TABLE: &str = "notice_addresses";
        let id = self.id;
        Ok(NoticeAddress {
            id: NoticeAddressId(id),
            tenant: TenantId(self.tenant_id),
            scope: word(TABLE, "scope", id, &self.scope)?,
            form: word(TABLE, "form", id, &self.form)?,
            shown: self.shown,
            event_types: self.event_types,
            every: Duration::from_secs(count(i64::from(self.every_seconds)).into()),
        })
    }
}

/// Leaves a notice of these for each address that is told.
pub(super) async fn leave(
    connection: &mut PgConnection,
    events: &[OperationalEvent],
) -> Result<(), Failure> {
    let rows: Vec<AddressRow> = sqlx::query_as(
        "-- relay_operational_events: addresses
        select a.id, a.tenant_id, a.scope, a.form, a.shown, a.event_types, a.every_seconds
        from notice_addresses a
        where a.tenant_id = any ($1) or a.scope = 'installation'
        order by a.id
        for key share",
    )
    .bind(events.iter().map(|one| one.tenant.0).collect::<Vec<_>>())
    .fetch_all(&mut *connection)
    .await?;
    let addresses: Result<Vec<_>, _> = rows.into_iter().map(AddressRow::into_domain).collect();
    let (to, of): (Vec<Uuid>, Vec<i64>) = (notices(events, &addresses?).into_iter())
        .map(|(to, event)| (to.0, event))
        .unzip();
    if to.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- relay_operational_events: notices
        insert into notices (address_id, operational_event_id)
        select * from unnest($1::uuid[], $2::bigint[])
        on conflict do nothing",
    )
    .bind(to)
    .bind(of)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn of_tenant(
    pool: &PgPool,
    tenant: TenantId,
) -> Result<Vec<NoticeAddress>, Failure> {
    let rows: Vec<AddressRow> = sqlx::query_as(
        "-- addresses
        select a.id, a.tenant_id, a.scope, a.form, a.shown, a.event_types, a.every_seconds
        from notice_addresses a
        where a.tenant_id = $1
        order by a.position
        limit $2",
    )
    .bind(tenant.0)
    .bind(i64::from(MAX_NOTICE_ADDRESSES))
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(AddressRow::into_domain).collect()
}

/// The tenant is locked: of two registrations at once, one counts the other, and
/// none comes after the tenant's end.
pub(super) async fn register(
    pool: &PgPool,
    tenant: TenantId,
    new: &NewNoticeAddress,
) -> Result<NoticeAddress, Failure> {
    let mut transaction = pool.begin().await?;
    let found: Option<Uuid> = sqlx::query_scalar(
        "-- register_address: lock_tenant
        select t.id from tenants t where t.id = $1 and t.deleted_at is null for no key update",
    )
    .bind(tenant.0)
    .fetch_optional(&mut *transaction)
    .await?;
    found.ok_or(Failure::NotFound("tenant"))?;
    let others: i64 = sqlx::query_scalar(
        "-- register_address: others
        select count(*) from notice_addresses a where a.tenant_id = $1",
    )
    .bind(tenant.0)
    .fetch_one(&mut *transaction)
    .await?;
    if count(others) >= MAX_NOTICE_ADDRESSES {
        return Err(Failure::Invalid(InvalidSettings {
            field: "address",
            problem: format!("the tenant has {MAX_NOTICE_ADDRESSES} addresses already"),
        }));
    }
    let types: Vec<&str> = new.event_types.iter().map(|one| one.as_str()).collect();
    let sealed = new.sealed.as_ref();
    let row: AddressRow = sqlx::query_as(
        "-- register_address
        insert into notice_addresses as a
            (id, tenant_id, scope, form, shown, key_id, sealed, event_types, every_seconds)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        returning a.id, a.tenant_id, a.scope, a.form, a.shown, a.event_types, a.every_seconds",
    )
    .bind(new.id.0)
    .bind(tenant.0)
    .bind(new.scope.as_str())
    .bind(new.form.as_str())
    .bind(&new.shown)
    .bind(sealed.map(|one| one.key.as_str()))
    .bind(sealed.map(|one| one.bytes.as_ref()))
    .bind(types)
    .bind(i32::try_from(new.every.as_secs()).unwrap_or(i32::MAX))
    .fetch_one(&mut *transaction)
    .await?;
    transaction.commit().await?;
    row.into_domain()
}

/// How many are gone: one or none.
pub(super) async fn remove(
    pool: &PgPool,
    tenant: TenantId,
    id: NoticeAddressId,
) -> Result<u64, Failure> {
    let mut transaction = pool.begin().await?;
    let done = sqlx::query(
        "-- remove_address
        delete from notice_addresses a where a.id = $1 and a.tenant_id = $2",
    )
    .bind(id.0)
    .bind(tenant.0)
    .execute(&mut *transaction)
    .await?;
    if done.rows_affected() > 0 {
        sqlx::query(
            "-- remove_address: notices
            delete from notices n where n.address_id = $1",
        )
        .bind(id.0)
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(done.rows_affected())
}

row! {
    /// An address that is due, as it is when it is claimed now.
    struct DueRow {
        key_id: Option<String>,
        sealed: Option<Vec<u8>>,
        failures: i32,
        lease: i64,
        ..address: AddressRow,
    }
}

async fn claim(
    pool: &PgPool,
    forms: &[NoticeForm],
    lease: Duration,
) -> Result<Option<ClaimedDigest>, Failure> {
    let mut transaction = pool.begin().await?;
    let found: Option<DueRow> = sqlx::query_as(
        "-- claim_digest
        with due as materialized (
            select a.id
            from notice_addresses a
            where a.not_before <= clock_timestamp() and a.form = any ($2)
                and exists (select from notices n where n.address_id = a.id)
            order by a.not_before
            limit 1
            for no key update skip locked
        )
        update notice_addresses a
        set lease = a.lease + 1,
            not_before = clock_timestamp() + $1::bigint * interval '1 microsecond'
        from due
        where a.id = due.id
        returning a.id, a.tenant_id, a.scope, a.form, a.shown, a.event_types, a.every_seconds,
            a.key_id, a.sealed, a.failures, a.lease",
    )
    .bind(micros(lease))
    .bind(forms.iter().map(|form| form.as_str()).collect::<Vec<_>>())
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(found) = found else {
        transaction.commit().await?;
        return Ok(None);
    };
    let (id, number) = (found.address.id, found.lease);
    take(&mut transaction, id, number).await?;
    let digest = digest(&mut transaction, id, number).await?;
    transaction.commit().await?;
    let sealed = found.key_id.zip(found.sealed).map(|(key, bytes)| Sealed {
        key,
        bytes: Bytes::from(bytes),
    });
    Ok(Some(ClaimedDigest {
        lease: DigestLease {
            address: NoticeAddressId(id),
            number,
        },
        address: found.address.into_domain()?,
        sealed,
        failures: count(i64::from(found.failures)),
        digest,
    }))
}

async fn take(connection: &mut PgConnection, id: Uuid, number: i64) -> Result<(), Failure> {
    sqlx::query(
        "-- claim_digest: take
        update notices n set lease = $2
        where n.address_id = $1 and n.operational_event_id = any (array(
            select o.operational_event_id from notices o
            where o.address_id = $1
            order by o.operational_event_id
            limit $3
        ))",
    )
    .bind(id)
    .bind(number)
    .bind(i64::from(MAX_DIGEST))
    .execute(connection)
    .await?;
    Ok(())
}

row! {
    struct LineRow {
        id: i64,
        created_at: i64,
        event_type: String,
        destination_id: Option<Uuid>,
        name: String,
        tenant: String,
        details: String,
    }
}

async fn digest(connection: &mut PgConnection, id: Uuid, number: i64) -> Result<Digest, Failure> {
    let counts: Vec<(String, i64)> = sqlx::query_as(
        "-- claim_digest: counts
        select o.event_type, count(*)
        from notices n
        join operational_events o on o.id = n.operational_event_id
        where n.address_id = $1 and n.lease = $2
        group by o.event_type
        order by count(*) desc, o.event_type",
    )
    .bind(id)
    .bind(number)
    .fetch_all(&mut *connection)
    .await?;
    let newest: Vec<LineRow> = sqlx::query_as(
        "-- claim_digest: newest
        select o.id, micros(o.created_at) as created_at, o.event_type, o.destination_id,
            coalesce(d.name, '') as name, coalesce(t.name, '') as tenant, o.details
        from notices n
        join operational_events o on o.id = n.operational_event_id
        left join destinations d on d.id = o.destination_id
        left join tenants t on t.id = o.tenant_id
        where n.address_id = $1 and n.lease = $2
        order by n.operational_event_id desc
        limit $3",
    )
    .bind(id)
    .bind(number)
    .bind(i64::from(MAX_LINES))
    .fetch_all(&mut *connection)
    .await?;
    let more: bool = sqlx::query_scalar(
        "-- claim_digest: more
        select exists (
            select from notices n where n.address_id = $1 and n.lease is distinct from $2
        )",
    )
    .bind(id)
    .bind(number)
    .fetch_one(connection)
    .await?;
    let counted = |(event_type, number)| (event_type, u64::from(count(number)));
    Ok(Digest {
        counts: counts.into_iter().map(counted).collect(),
        newest: newest.into_iter().map(Line::from).collect(),
        more,
    })
}

impl From<LineRow> for Line {
    fn from(row: LineRow) -> Self {
        Self {
            id: row.id,
            at: Timestamp::from_micros(row.created_at),
            event_type: row.event_type,
            destination: row.destination_id.map(DestinationId),
            name: row.name,
            tenant: row.tenant,
            details: row.details,
        }
    }
}

async fn told(pool: &PgPool, lease: DigestLease) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    let done = sqlx::query(
        "-- digest_told
        update notice_addresses a
        set failures = 0,
            not_before = clock_timestamp() + a.every_seconds * interval '1 second'
        where a.id = $1 and a.lease = $2",
    )
    .bind(lease.address.0)
    .bind(lease.number)
    .execute(&mut *transaction)
    .await?;
    if done.rows_affected() > 0 {
        sqlx::query(
            "-- digest_told: notices
            delete from notices n where n.address_id = $1 and n.lease = $2",
        )
        .bind(lease.address.0)
        .bind(lease.number)
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(())
}

async fn untold(pool: &PgPool, lease: DigestLease, again_in: Duration) -> Result<(), Failure> {
    sqlx::query(
        "-- digest_untold
        update notice_addresses a
        set failures = a.failures + 1,
            not_before = clock_timestamp() + $3::bigint * interval '1 microsecond'
        where a.id = $1 and a.lease = $2",
    )
    .bind(lease.address.0)
    .bind(lease.number)
    .bind(micros(again_in))
    .execute(pool)
    .await?;
    Ok(())
}

/// Rows that a claim has locked just now are passed by.
pub(super) async fn drop_old(pool: &PgPool, kept: Duration, limit: u32) -> Result<u32, Failure> {
    let done = sqlx::query(
        "-- drop_notices
        with old as materialized (
            select n.address_id, n.operational_event_id
            from notices n
            where n.created_at < clock_timestamp() - $1::bigint * interval '1 microsecond'
            order by n.created_at
            limit $2
            for update skip locked
        )
        delete from notices n using old
        where n.address_id = old.address_id
            and n.operational_event_id = old.operational_event_id",
    )
    .bind(micros(kept))
    .bind(i64::from(limit))
    .execute(pool)
    .await?;
    Ok(u32::try_from(done.rows_affected()).unwrap_or(u32::MAX))
}

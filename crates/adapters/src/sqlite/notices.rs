//! Addresses of people, and what they have yet to be told.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::ids::{NoticeAddressId, TenantId};
use domain::notices::{Digest, Line, NoticeAddress, NoticeForm, notices};
use domain::operations::{OperationalEvent, OperationalScope};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, ClaimedDigest, DigestLease, MAX_DIGEST, MAX_LINES, MAX_NOTICE_ADDRESSES,
    NewNoticeAddress, Notices, Sealed, StoreError,
};
use rusqlite::{Connection, Row, Transaction};

use super::SqliteStore;
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_word, time, word};

const TABLE: &str = "notice_addresses";

const OF_TENANT: &str = "
    -- addresses
    select id, tenant_id, scope, form, shown, event_types, every_seconds
    from notice_addresses indexed by notice_addresses_of_tenant
    where tenant_id = ?1 order by position limit ?2";

const OF_ALL: &str = "
    -- relay_operational_events: addresses that are told of everybody's
    select id, tenant_id, scope, form, shown, event_types, every_seconds
    from notice_addresses indexed by notice_addresses_of_all
    where scope = 'installation' order by position";

const LEAVE: &str = "
    -- relay_operational_events: a notice
    insert into notices (address_id, operational_event_id, created_at) values (?1, ?2, ?3)
    on conflict do nothing";

const COUNT: &str = "
    -- register_address: is the tenant there, and how many has it
    select
        exists (select 1 from tenants where id = ?1 and deleted_at is null),
        (select count(*) from notice_addresses where tenant_id = ?1)";

const REGISTER: &str = "
    -- register_address
    insert into notice_addresses
        (id, tenant_id, scope, form, shown, key_id, sealed, event_types, every_seconds,
            not_before, created_at)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)";

const REMOVE: &str = "
    -- remove_address
    delete from notice_addresses where id = ?1 and tenant_id = ?2";

const REMOVE_NOTICES: &str = "
    -- remove_address: what it was to be told
    delete from notices where address_id = ?1";

const DUE: &str = "
    -- claim_digest: who is due and has something to be told
    select id, tenant_id, scope, form, shown, event_types, every_seconds, key_id, sealed,
        failures, lease
    from notice_addresses a indexed by notice_addresses_due
    where not_before <= ?1 and form in (select value from json_each(?2))
        and exists (select 1 from notices n where n.address_id = a.id)
    order by not_before limit 1";

const CLAIM: &str = "
    -- claim_digest: the address
    update notice_addresses set lease = ?2, not_before = ?3 where id = ?1";

const TAKE: &str = "
    -- claim_digest: its oldest notices
    update notices set lease = ?2
    where address_id = ?1 and operational_event_id in (
        select operational_event_id from notices
        where address_id = ?1 order by operational_event_id limit ?3
    )";

const COUNTS: &str = "
    -- claim_digest: how many of each type
    select o.event_type, count(*)
    from notices n
    join operational_events o on o.id = n.operational_event_id
    where n.address_id = ?1 and n.lease = ?2
    group by o.event_type order by count(*) desc, o.event_type";

const NEWEST: &str = "
    -- claim_digest: the newest
    select o.id, o.created_at, o.event_type, o.destination_id, coalesce(d.name, ''),
        coalesce(t.name, ''), o.details
    from notices n
    join operational_events o on o.id = n.operational_event_id
    left join destinations d on d.id = o.destination_id
    left join tenants t on t.id = o.tenant_id
    where n.address_id = ?1 and n.lease = ?2
    order by n.operational_event_id desc limit ?3";

const LEFT: &str = "
    -- claim_digest: whether more wait
    select 1 from notices where address_id = ?1 and lease is not ?2 limit 1";

const TOLD: &str = "
    -- digest_told
    update notice_addresses set failures = 0, not_before = ?3 + every_seconds * 1000000
    where id = ?1 and lease = ?2";

const OVER: &str = "
    -- digest_told: its notices
    delete from notices where address_id = ?1 and lease = ?2";

const UNTOLD: &str = "
    -- digest_untold
    update notice_addresses set failures = failures + 1, not_before = ?3
    where id = ?1 and lease = ?2";

const DROP: &str = "
    -- drop_notices
    delete from notices where (address_id, operational_event_id) in (
        select address_id, operational_event_id
        from notices indexed by notices_by_age
        where created_at < ?1 order by created_at limit ?2
    )";

#[async_trait]
impl Notices for SqliteStore {
    async fn claim_digest(
        &self,
        forms: &[NoticeForm],
        lease: Duration,
    ) -> Result<Option<ClaimedDigest>, StoreError> {
        let forms: Vec<&str> = forms.iter().map(|form| form.as_str()).collect();
        let forms = serde_json::json!(forms).to_string();
        let step = move |tx: &Transaction<'_>, now: Timestamp| claim(tx, now, &forms, lease);
        Ok(self.write(step).await?)
    }

    async fn digest_told(&self, lease: DigestLease) -> Result<(), StoreError> {
        Ok(self.write(move |tx, now| told(tx, now, lease)).await?)
    }

    async fn digest_untold(
        &self,
        lease: DigestLease,
        again_in: Duration,
    ) -> Result<(), StoreError> {
        let step = move |tx: &Transaction<'_>, now: Timestamp| {
            let (address, again_at) = (lease.address.to_string(), now + again_in);
            execute(tx, UNTOLD, (address, lease.number, again_at.as_micros()))?;
            Ok(())
        };
        Ok(self.write(step).await?)
    }
}

pub(super) fn drop_old(
    tx: &Transaction<'_>,
    now: Timestamp,
    kept: Duration,
    limit: u32,
) -> Result<u32, Fault> {
    let dropped = execute(tx, DROP, ((now - kept).as_micros(), limit))?;
    Ok(u32::try_from(dropped).unwrap_or(u32::MAX))
}

/// Leaves a notice of these for each address that is told.
pub(super) fn leave(
    tx: &Transaction<'_>,
    now: Timestamp,
    events: &[OperationalEvent],
) -> Result<(), Fault> {
    let mut addresses = all(tx, OF_ALL, [], address)?;
    let tenants: BTreeSet<TenantId> = events.iter().map(|one| one.tenant).collect();
    for tenant in tenants {
        let own = of_tenant(tx, tenant)?.into_iter();
        addresses.extend(own.filter(|one| one.scope == OperationalScope::Tenant));
    }
    for (to, event) in notices(events, &addresses) {
        execute(tx, LEAVE, (to.to_string(), event, now.as_micros()))?;
    }
    Ok(())
}

pub(super) fn of_tenant(
    connection: &Connection,
    tenant: TenantId,
) -> Result<Vec<NoticeAddress>, Fault> {
    let key = (tenant.to_string(), MAX_NOTICE_ADDRESSES);
    all(connection, OF_TENANT, key, address)
}

pub(super) fn register(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewNoticeAddress,
) -> Result<NoticeAddress, Fault> {
    let key = tenant.to_string();
    let found = first(tx, COUNT, [&key], |row| {
        Ok((row.get::<_, bool>(0)?, row.get::<_, u32>(1)?))
    })?;
    let (is_there, others) = found.unwrap_or_default();
    if !is_there {
        return Err(CatalogError::NotFound("tenant").into());
    }
    if others >= MAX_NOTICE_ADDRESSES {
        let problem = format!("the tenant has {MAX_NOTICE_ADDRESSES} addresses already");
        let field = "address".to_owned();
        return Err(CatalogError::Invalid { field, problem }.into());
    }
    let types = serde_json::to_string(&new.event_types)
        .map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let sealed = new.sealed.as_ref();
    let row = (
        new.id.to_string(),
        &key,
        new.scope.as_str(),
        new.form.as_str(),
        &new.shown,
        sealed.map(|one| one.key.as_str()),
        sealed.map(|one| one.bytes.as_ref()),
        types,
        u32::try_from(new.every.as_secs()).unwrap_or(u32::MAX),
        now.as_micros(),
    );
    execute(tx, REGISTER, row)?;
    (of_tenant(tx, tenant)?.into_iter())
        .find(|one| one.id == new.id)
        .ok_or_else(|| CatalogError::NotFound("address").into())
}

pub(super) fn remove(
    tx: &Transaction<'_>,
    tenant: TenantId,
    id: NoticeAddressId,
) -> Result<(), Fault> {
    if execute(tx, REMOVE, (id.to_string(), tenant.to_string()))? == 0 {
        return Err(CatalogError::NotFound("address").into());
    }
    execute(tx, REMOVE_NOTICES, [id.to_string()])?;
    Ok(())
}

fn claim(
    tx: &Transaction<'_>,
    now: Timestamp,
    forms: &str,
    lease: Duration,
) -> Result<Option<ClaimedDigest>, Fault> {
    let Some(mut claimed) = first(tx, DUE, (now.as_micros(), forms), due)? else {
        return Ok(None);
    };
    let id = claimed.address.id.to_string();
    let number = claimed.lease.number;
    execute(tx, CLAIM, (&id, number, (now + lease).as_micros()))?;
    execute(tx, TAKE, (&id, number, MAX_DIGEST))?;
    claimed.digest = Digest {
        counts: all(tx, COUNTS, (&id, number), |row| {
            Ok((row.get(0)?, u64::from(row.get::<_, u32>(1)?)))
        })?,
        newest: all(tx, NEWEST, (&id, number, MAX_LINES), line)?,
        more: first(tx, LEFT, (&id, number), |_| Ok(()))?.is_some(),
    };
    Ok(Some(claimed))
}

fn told(tx: &Transaction<'_>, now: Timestamp, lease: DigestLease) -> Result<(), Fault> {
    let id = lease.address.to_string();
    if execute(tx, TOLD, (&id, lease.number, now.as_micros()))? > 0 {
        execute(tx, OVER, (&id, lease.number))?;
    }
    Ok(())
}

fn address(row: &Row<'_>) -> Result<NoticeAddress, Fault> {
    let types: String = row.get(5)?;
    let event_types = serde_json::from_str(&types).map_err(|error| StoreError::Corrupt {
        table: TABLE,
        column: "event_types",
        row: types.clone(),
        problem: error.to_string(),
    })?;
    Ok(NoticeAddress {
        id: word(row, 0, (TABLE, "id"))?,
        tenant: word(row, 1, (TABLE, "tenant_id"))?,
        scope: word(row, 2, (TABLE, "scope"))?,
        form: word(row, 3, (TABLE, "form"))?,
        shown: row.get(4)?,
        event_types,
        every: Duration::from_secs(row.get::<_, u32>(6)?.into()),
    })
}

/// As it is when it is claimed now.
fn due(row: &Row<'_>) -> Result<ClaimedDigest, Fault> {
    let address = address(row)?;
    let (key, bytes): (Option<String>, Option<Vec<u8>>) = (row.get(7)?, row.get(8)?);
    let sealed = key.zip(bytes).map(|(key, bytes)| Sealed {
        key,
        bytes: Bytes::from(bytes),
    });
    Ok(ClaimedDigest {
        lease: DigestLease {
            address: address.id,
            number: row.get::<_, i64>(10)? + 1,
        },
        address,
        sealed,
        failures: row.get(9)?,
        digest: Digest::default(),
    })
}

fn line(row: &Row<'_>) -> Result<Line, Fault> {
    Ok(Line {
        id: row.get(0)?,
        at: time(row, 1)?,
        event_type: row.get(2)?,
        destination: maybe_word(row, 3, ("operational_events", "destination_id"))?,
        name: row.get(4)?,
        tenant: row.get(5)?,
        details: row.get(6)?,
    })
}

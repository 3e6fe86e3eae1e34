//! API keys.

use std::time::Duration;

use async_trait::async_trait;
use domain::access::{KeyId, Scope, Scopes};
use domain::ids::TenantId;
use domain::time::{Timestamp, micros};
use engine::ports::{
    ApiKey, CatalogError, Credential, KeyUse, Keys, MAX_KEYS, NewKey, StoreError, USE_NOTED_EVERY,
};
use rusqlite::{Row, Transaction, params};

use super::SqliteStore;
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_time, time, word};

const IN_FORCE: &str = "
    -- create_key: keys in force
    select (select count(*) from api_keys
        where tenant_id = ?1 and revoked_at is null
            and (expires_at is null or expires_at > ?2))
    from tenants where id = ?1 and deleted_at is null";

const INSERT: &str = "
    -- create_key
    insert into api_keys (id, tenant_id, name, digest, may_ingest, may_manage, may_read, may_admin,
        may_platform, may_read_payloads, created_at, expires_at)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

const KEYS: &str = "
    -- keys
    select id, tenant_id, name, may_ingest, may_manage, may_read, may_admin, may_platform,
        may_read_payloads, created_at, expires_at, last_used_at, revoked_at
    from api_keys where tenant_id = ?1 order by created_at desc, id desc limit ?2";

const REVOKE: &str = "
    -- revoke_key
    update api_keys set revoked_at = coalesce(revoked_at, ?3) where id = ?1 and tenant_id = ?2";

const CREDENTIAL: &str = "
    -- credentials
    select k.tenant_id, k.digest, k.expires_at, k.may_ingest, k.may_manage, k.may_read,
        k.may_admin, k.may_platform, k.may_read_payloads,
        coalesce(n.ingest_per_second, t.tenant_ingest_per_second)
    from api_keys k
    join tenants n on n.id = k.tenant_id
    join tiers t on t.name = n.tier
    where k.id = ?1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > ?2)";

const NOTE_USE: &str = "
    -- note_keys_used
    update api_keys set last_used_at = ?2
    where id = ?1 and (last_used_at is null or last_used_at <= ?3)";

#[async_trait]
impl Keys for SqliteStore {
    async fn create_key(&self, tenant: TenantId, new: &NewKey) -> Result<ApiKey, CatalogError> {
        let new = new.clone();
        Ok(self
            .write(move |tx, now| create(tx, now, tenant, &new))
            .await?)
    }

    async fn keys(&self, tenant: TenantId, limit: u32) -> Result<Vec<ApiKey>, CatalogError> {
        Ok(self
            .read(move |tx| all(tx, KEYS, (tenant.to_string(), limit), key))
            .await?)
    }

    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<(), CatalogError> {
        let step = move |tx: &Transaction<'_>, now: Timestamp| {
            let row = (id.to_string(), tenant.to_string(), now.as_micros());
            match execute(tx, REVOKE, row)? {
                0 => Err(CatalogError::NotFound("key").into()),
                _ => Ok(()),
            }
        };
        Ok(self.write(step).await?)
    }

    async fn credentials(&self, ids: &[KeyId]) -> Result<Vec<(KeyId, Credential)>, CatalogError> {
        let ids = ids.to_vec();
        let found = self.look(move |tx, now| {
            let found = ids.iter().map(|&id| {
                let found = credential(tx, now, id)?;
                Ok(found.map(|credential| (id, credential)))
            });
            found.filter_map(Result::transpose).collect()
        });
        Ok(found.await?)
    }

    async fn note_keys_used(&self, uses: &[KeyUse]) -> Result<(), CatalogError> {
        let uses = uses.to_vec();
        Ok(self.write(move |tx, now| note(tx, now, &uses)).await?)
    }
}

fn create(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewKey,
) -> Result<ApiKey, Fault> {
    let in_force = first(tx, IN_FORCE, (tenant.to_string(), now.as_micros()), |row| {
        Ok(row.get::<_, u32>(0)?)
    })?;
    if in_force.ok_or(CatalogError::NotFound("tenant"))? >= MAX_KEYS {
        return Err(CatalogError::Invalid {
            field: "tenant".to_owned(),
            problem: format!("has {MAX_KEYS} keys in force; revoke one first"),
        }
        .into());
    }
    let expires_at = new.expires_in.map(|good_for| now + good_for);
    let may = |scope| new.scopes.contains(scope);
    let row = params![
        new.id.to_string(),
        tenant.to_string(),
        new.name,
        new.digest,
        may(Scope::Ingest),
        may(Scope::Manage),
        may(Scope::Read),
        may(Scope::Admin),
        may(Scope::Platform),
        may(Scope::ReadPayloads),
        now.as_micros(),
        expires_at.map(Timestamp::as_micros),
    ];
    execute(tx, INSERT, row)?;
    Ok(ApiKey {
        id: new.id,
        tenant,
        name: new.name.clone(),
        scopes: new.scopes,
        created_at: now,
        expires_at,
        last_used_at: None,
        revoked_at: None,
    })
}

fn key(row: &Row<'_>) -> Result<ApiKey, Fault> {
    Ok(ApiKey {
        id: word(row, 0, ("api_keys", "id"))?,
        tenant: word(row, 1, ("api_keys", "tenant_id"))?,
        name: row.get(2)?,
        scopes: scopes(row, 3)?,
        created_at: time(row, 9)?,
        expires_at: maybe_time(row, 10)?,
        last_used_at: maybe_time(row, 11)?,
        revoked_at: maybe_time(row, 12)?,
    })
}

/// The four columns of scopes, the first of them at `first`.
/// The columns of all scopes, the first of them at `first`.
pub(super) fn scopes(row: &Row<'_>, first: usize) -> Result<Scopes, Fault> {
    let mut scopes = Vec::with_capacity(Scope::ALL.len());
    for (offset, scope) in Scope::ALL.into_iter().enumerate() {
        if row.get(first + offset)? {
            scopes.push(scope);
        }
    }
    Ok(scopes.into_iter().collect())
}

fn credential(
    tx: &Transaction<'_>,
    now: Timestamp,
    id: KeyId,
) -> Result<Option<Credential>, Fault> {
    first(tx, CREDENTIAL, (id.to_string(), now.as_micros()), |row| {
        let digest: Vec<u8> = row.get(1)?;
        Ok(Credential {
            tenant: word(row, 0, ("api_keys", "tenant_id"))?,
            digest: digest.try_into().map_err(|_bytes| StoreError::Corrupt {
                table: "api_keys",
                column: "digest",
                row: id.to_string(),
                problem: "not of 32 bytes".to_owned(),
            })?,
            expires_in: maybe_time(row, 2)?.map(|at| at.since(now)),
            scopes: scopes(row, 3)?,
            ingest_per_second: row.get(9)?,
        })
    })
}

fn note(tx: &Transaction<'_>, now: Timestamp, uses: &[KeyUse]) -> Result<(), Fault> {
    for one in uses {
        let used_at = now.as_micros() - micros(one.ago.min(Duration::from_secs(86_400)));
        let row = (
            one.key.to_string(),
            used_at,
            used_at - micros(USE_NOTED_EVERY),
        );
        execute(tx, NOTE_USE, row)?;
    }
    Ok(())
}

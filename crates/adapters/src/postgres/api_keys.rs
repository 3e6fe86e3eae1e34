//! API keys.

use std::time::Duration;

use async_trait::async_trait;
use domain::access::{KeyId, Scope, Scopes};
use domain::ids::TenantId;
use domain::time::{Timestamp, micros};
use engine::ports::{
    ApiKey, CatalogError, Credential, KeyUse, Keys, MAX_KEYS, NewKey, StoreError, USE_NOTED_EVERY,
};
use sqlx::PgPool;
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};
use super::rows::{count, time, word};
use crate::row::row;

#[async_trait]
impl Keys for PostgresStore {
    async fn create_key(&self, tenant: TenantId, new: &NewKey) -> Result<ApiKey, CatalogError> {
        match retried(|| create(&self.pool, tenant, new)).await? {
            Created::Key(key) => Ok(key),
            Created::TooMany => Err(CatalogError::Invalid {
                field: "tenant".to_owned(),
                problem: format!("has {MAX_KEYS} keys in force; revoke one first"),
            }),
        }
    }

    async fn keys(&self, tenant: TenantId, limit: u32) -> Result<Vec<ApiKey>, CatalogError> {
        Ok(retried(|| keys(&self.pool, tenant, limit)).await?)
    }

    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<(), CatalogError> {
        match retried(|| revoke(&self.pool, tenant, id)).await? {
            0 => Err(CatalogError::NotFound("key")),
            _ => Ok(()),
        }
    }

    async fn credentials(&self, ids: &[KeyId]) -> Result<Vec<(KeyId, Credential)>, CatalogError> {
        Ok(retried(|| credentials(&self.pool, ids)).await?)
    }

    async fn note_keys_used(&self, uses: &[KeyUse]) -> Result<(), CatalogError> {
        Ok(retried(|| note(&self.pool, uses)).await?)
    }
}

enum Created {
    Key(ApiKey),
    TooMany,
}

async fn create(pool: &PgPool, tenant: TenantId, new: &NewKey) -> Result<Created, Failure> {
    let mut transaction = pool.begin().await?;
    // Two that add a key at once take turns, or both would count the same.
    let found: Option<i32> = sqlx::query_scalar(
        "-- create_key: the tenant
        select 1 from tenants where id = $1 and deleted_at is null for no key update",
    )
    .bind(tenant.0)
    .fetch_optional(&mut *transaction)
    .await?;
    found.ok_or(Failure::NotFound("tenant"))?;
    let in_force: i64 = sqlx::query_scalar(
        "-- create_key: keys in force
        select count(*) from api_keys
        where tenant_id = $1 and revoked_at is null
            and (expires_at is null or expires_at > clock_timestamp())",
    )
    .bind(tenant.0)
    .fetch_one(&mut *transaction)
    .await?;
    if in_force >= i64::from(MAX_KEYS) {
        return Ok(Created::TooMany);
    }
    let may = |scope| new.scopes.contains(scope);
    let (created_at, expires_at): (i64, Option<i64>) = sqlx::query_as(
        "-- create_key
        insert into api_keys (
            id, tenant_id, name, digest, may_ingest, may_manage, may_read, may_admin,
            may_platform, may_read_payloads, created_at, expires_at
        )
        select $1, $2, $3, $4, $5, $6, $7, $8, $10, $11, c.now, c.now + $9 * interval '1 microsecond'
        from (select clock_timestamp() as now) c
        returning micros(created_at), micros(expires_at)",
    )
    .bind(new.id.to_string())
    .bind(tenant.0)
    .bind(&new.name)
    .bind(&new.digest[..])
    .bind(may(Scope::Ingest))
    .bind(may(Scope::Manage))
    .bind(may(Scope::Read))
    .bind(may(Scope::Admin))
    .bind(new.expires_in.map(micros))
    .bind(may(Scope::Platform))
    .bind(may(Scope::ReadPayloads))
    .fetch_one(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(Created::Key(ApiKey {
        id: new.id,
        tenant,
        name: new.name.clone(),
        scopes: new.scopes,
        created_at: Timestamp::from_micros(created_at),
        expires_at: time(expires_at),
        last_used_at: None,
        revoked_at: None,
    }))
}

row! {
    struct Row {
        id: String,
        tenant_id: Uuid,
        name: String,
        may: Vec<bool>,
        created_at: i64,
        expires_at: Option<i64>,
        last_used_at: Option<i64>,
        revoked_at: Option<i64>,
    }
}

async fn keys(pool: &PgPool, tenant: TenantId, limit: u32) -> Result<Vec<ApiKey>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(
        "-- keys
        select id, tenant_id, name,
            array[
                may_ingest, may_manage, may_read, may_admin, may_platform, may_read_payloads
            ] as may,
            micros(created_at) as created_at, micros(expires_at) as expires_at,
            micros(last_used_at) as last_used_at, micros(revoked_at) as revoked_at
        from api_keys where tenant_id = $1
        order by api_keys.created_at desc, id desc limit $2",
    )
    .bind(tenant.0)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(Row::key).collect()
}

impl Row {
    fn key(self) -> Result<ApiKey, Failure> {
        Ok(ApiKey {
            id: word("api_keys", "id", &self.id, &self.id)?,
            tenant: TenantId(self.tenant_id),
            name: self.name,
            scopes: scopes(&self.may),
            created_at: Timestamp::from_micros(self.created_at),
            expires_at: time(self.expires_at),
            last_used_at: time(self.last_used_at),
            revoked_at: time(self.revoked_at),
        })
    }
}

pub(super) fn scopes(may: &[bool]) -> Scopes {
    let each = Scope::ALL.into_iter().zip(may);
    each.filter(|(_, may)| **may)
        .map(|(scope, _)| scope)
        .collect()
}

async fn revoke(pool: &PgPool, tenant: TenantId, id: KeyId) -> Result<u64, Failure> {
    let revoked = sqlx::query(
        "-- revoke_key
        update api_keys set revoked_at = coalesce(revoked_at, clock_timestamp())
        where id = $1 and tenant_id = $2",
    )
    .bind(id.to_string())
    .bind(tenant.0)
    .execute(pool)
    .await?;
    Ok(revoked.rows_affected())
}

fn of_32_bytes(id: KeyId, digest: Vec<u8>) -> Result<[u8; 32], Failure> {
    digest.try_into().map_err(|_bytes| {
        Failure::Corrupt(StoreError::Corrupt {
            table: "api_keys",
            column: "digest",
            row: id.to_string(),
            problem: "not of 32 bytes".to_owned(),
        })
    })
}

async fn credentials(pool: &PgPool, ids: &[KeyId]) -> Result<Vec<(KeyId, Credential)>, Failure> {
    type Found = (i64, Uuid, Vec<u8>, Vec<bool>, Option<i64>, Option<i32>);
    let texts: Vec<String> = ids.iter().map(KeyId::to_string).collect();
    let found: Vec<Found> = sqlx::query_as(
        "-- credentials
        select n.place, k.tenant_id, k.digest,
            array[
                k.may_ingest, k.may_manage, k.may_read, k.may_admin, k.may_platform,
                k.may_read_payloads
            ],
            micros(k.expires_at) - micros(c.now),
            coalesce(o.ingest_per_second, t.tenant_ingest_per_second)
        from (select clock_timestamp() as now) c
        cross join unnest($1::text[]) with ordinality as n (id, place)
        join api_keys k on k.id = any (array[n.id]) and k.revoked_at is null
            and (k.expires_at is null or k.expires_at > c.now)
        join tenants o on o.id = any (array[k.tenant_id])
        join tiers t on t.name = o.tier",
    )
    .bind(texts)
    .fetch_all(pool)
    .await?;
    let found = found
        .into_iter()
        .filter_map(|(place, of, digest, may, left, ingest)| {
            let id = *ids.get(usize::try_from(place - 1).ok()?)?;
            Some(of_32_bytes(id, digest).map(|digest| {
                let credential = Credential {
                    tenant: TenantId(of),
                    digest,
                    scopes: scopes(&may),
                    expires_in: left
                        .map(|left| Duration::from_micros(u64::try_from(left).unwrap_or(0))),
                    ingest_per_second: ingest.map(|most| count(i64::from(most))),
                };
                (id, credential)
            }))
        });
    found.collect()
}

/// In the order of ids: two that note at once cannot wait for each other in a
/// ring.
async fn note(pool: &PgPool, uses: &[KeyUse]) -> Result<(), Failure> {
    sqlx::query(
        "-- note_keys_used
        with clock as materialized (select clock_timestamp() as now)
        update api_keys k set last_used_at = u.at
        from (
            select s.id, max(clock.now - s.ago * interval '1 microsecond') as at
            from clock, unnest($1::text[], $2::bigint[]) as s (id, ago)
            join (
                select l.id from api_keys l where l.id = any ($1) order by l.id for no key update
            ) l on l.id = s.id
            group by s.id
        ) u
        where k.id = u.id
            and (k.last_used_at is null
                or k.last_used_at <= u.at - $3::bigint * interval '1 microsecond')",
    )
    .bind(
        uses.iter()
            .map(|one| one.key.to_string())
            .collect::<Vec<_>>(),
    )
    .bind(uses.iter().map(|one| micros(one.ago)).collect::<Vec<_>>())
    .bind(micros(USE_NOTED_EVERY))
    .execute(pool)
    .await?;
    Ok(())
}

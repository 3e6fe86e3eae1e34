//! Who has the dashboard open.

use async_trait::async_trait;
use domain::access::{KeyId, LinkId, Scope};
use domain::ids::TenantId;
use domain::time::{Timestamp, micros};
use engine::ports::{
    BehindSession, CatalogError, FORGOTTEN_AT_ONCE, Link, MAX_SESSIONS, NewSession, Session,
    Sessions,
};
use sqlx::PgPool;
use std::time::Duration;
use uuid::Uuid;

use super::PostgresStore;
use super::api_keys::scopes;
use super::failure::{Failure, retried};
use super::rows::word;

#[async_trait]
impl Sessions for PostgresStore {
    async fn begin_session(&self, new: &NewSession) -> Result<Timestamp, CatalogError> {
        Ok(retried(|| begin(&self.pool, new)).await?)
    }

    async fn session(&self, digest: [u8; 32]) -> Result<Option<Session>, CatalogError> {
        Ok(retried(|| session(&self.pool, digest)).await?)
    }

    async fn use_once(&self, once: [u8; 32], new: &NewSession) -> Result<bool, CatalogError> {
        Ok(retried(|| use_once(&self.pool, once, new)).await?)
    }

    async fn move_session(&self, digest: [u8; 32], tenant: TenantId) -> Result<(), CatalogError> {
        let moving = || async {
            sqlx::query("-- move_session\nupdate sessions set tenant_id = $2 where digest = $1")
                .bind(&digest[..])
                .bind(tenant.0)
                .execute(&self.pool)
                .await?;
            Ok(())
        };
        Ok(retried(moving).await?)
    }

    async fn end_session(&self, digest: [u8; 32]) -> Result<(), CatalogError> {
        let ending = || async {
            sqlx::query("-- end_session\ndelete from sessions where digest = $1")
                .bind(&digest[..])
                .execute(&self.pool)
                .await?;
            Ok(())
        };
        Ok(retried(ending).await?)
    }

    async fn links(&self, tenant: TenantId, limit: u32) -> Result<Vec<Link>, CatalogError> {
        Ok(retried(|| links(&self.pool, tenant, limit)).await?)
    }

    async fn end_link(&self, tenant: TenantId, id: LinkId) -> Result<(), CatalogError> {
        Ok(retried(|| end_link(&self.pool, tenant, id)).await?)
    }
}

async fn begin(pool: &PgPool, new: &NewSession) -> Result<Timestamp, Failure> {
    sqlx::query(
        "-- begin_session: those that are over
        delete from sessions where digest in (
            select s.digest from sessions s where s.expires_at <= clock_timestamp()
            limit $1 for update skip locked
        )",
    )
    .bind(i64::from(FORGOTTEN_AT_ONCE))
    .execute(pool)
    .await?;
    insert(pool, new, None)
        .await?
        .ok_or(Failure::Conflict(FULL))
}

const FULL: &str = "the tenant has too many sessions and links already";

async fn use_once(pool: &PgPool, once: [u8; 32], new: &NewSession) -> Result<bool, Failure> {
    Ok(insert(pool, new, Some(once)).await?.is_some())
}

/// Until when it is good. With `once`, only where this has just been used up: by one
/// statement, so that of two the later finds nothing to delete.
async fn insert(
    pool: &PgPool,
    new: &NewSession,
    once: Option<[u8; 32]>,
) -> Result<Option<Timestamp>, Failure> {
    let (key, configured) = match new.behind {
        BehindSession::Key(id) => (Some(id.to_string()), None),
        BehindSession::Configured(digest) => (None, Some(digest.to_vec())),
    };
    let may = |scope| new.scopes.contains(scope);
    // Two at once may both be the last: the bound is there against floods.
    let begun: Option<i64> = sqlx::query_scalar(
        "-- begin_session
        with used as (
            delete from sessions
            where digest = $14 and kind = 'once' and expires_at > clock_timestamp()
            returning digest
        )
        insert into sessions (
            digest, kind, tenant_id, key_id, configured_digest,
            may_ingest, may_manage, may_read, may_admin, created_at, expires_at,
            name, link_digest, may_platform, may_read_payloads
        )
        select $1, $2, $3, $4, $5, $6, $7, $8, $9, c.now, c.now + $10 * interval '1 microsecond',
            $12, $13, $15, $16
        from (select clock_timestamp() as now) c
        where (select count(*) from sessions s where s.tenant_id = $3 and s.kind = $2) < $11
            and ($14::bytea is null or exists (select from used))
        returning micros(expires_at)",
    )
    .bind(&new.digest[..])
    .bind(new.kind.as_str())
    .bind(new.tenant.0)
    .bind(key)
    .bind(configured)
    .bind(may(Scope::Ingest))
    .bind(may(Scope::Manage))
    .bind(may(Scope::Read))
    .bind(may(Scope::Admin))
    .bind(micros(new.good_for))
    .bind(i64::from(MAX_SESSIONS))
    .bind(&new.name)
    .bind(new.opened_by.map(|digest| digest.to_vec()))
    .bind(once.map(|digest| digest.to_vec()))
    .bind(may(Scope::Platform))
    .bind(may(Scope::ReadPayloads))
    .fetch_optional(pool)
    .await?;
    Ok(begun.map(Timestamp::from_micros))
}

type Found = (
    String,
    Uuid,
    Option<String>,
    Option<Vec<u8>>,
    Vec<bool>,
    i64,
    Option<Vec<u8>>,
);

async fn session(pool: &PgPool, digest: [u8; 32]) -> Result<Option<Session>, Failure> {
    let found: Option<Found> = sqlx::query_as(
        "-- session
        select s.kind, s.tenant_id, s.key_id, s.configured_digest,
            array[
                s.may_ingest, s.may_manage, s.may_read, s.may_admin, s.may_platform,
                s.may_read_payloads
            ],
            micros(s.expires_at) - micros(c.now), s.link_digest
        from (select clock_timestamp() as now) c
        join sessions s on s.digest = $1 and s.expires_at > c.now
        where (s.key_id is null or exists (
            select from api_keys k
            where k.id = s.key_id and k.revoked_at is null
                and (k.expires_at is null or k.expires_at > c.now)
        ))
        -- Asked at every look, so that no session outlives a link that ends while
        -- it opens one.
        and (s.link_digest is null or exists (
            select from sessions l where l.digest = s.link_digest and l.kind = 'link'
        ))",
    )
    .bind(&digest[..])
    .fetch_optional(pool)
    .await?;
    let Some((kind, tenant, key, configured, may, left, link)) = found else {
        return Ok(None);
    };
    Ok(Some(Session {
        kind: word("sessions", "kind", tenant, &kind)?,
        tenant: TenantId(tenant),
        behind: behind(key, configured)?,
        scopes: scopes(&may),
        left: Duration::from_micros(left.max(0).unsigned_abs()),
        opened_by: link.and_then(|digest| digest.try_into().ok()),
    }))
}

fn behind(key: Option<String>, configured: Option<Vec<u8>>) -> Result<BehindSession, Failure> {
    Ok(match key {
        Some(id) => BehindSession::Key(word::<KeyId>("sessions", "key_id", &id, &id)?),
        None => {
            let digest = configured.and_then(|digest| digest.try_into().ok());
            BehindSession::Configured(digest.unwrap_or_default())
        }
    })
}

type LinkRow = (
    Vec<u8>,
    String,
    Option<String>,
    Option<Vec<u8>>,
    Vec<bool>,
    i64,
    i64,
);

async fn links(pool: &PgPool, tenant: TenantId, limit: u32) -> Result<Vec<Link>, Failure> {
    let rows: Vec<LinkRow> = sqlx::query_as(
        "-- links
        select s.digest, s.name, s.key_id, s.configured_digest,
            array[
                s.may_ingest, s.may_manage, s.may_read, s.may_admin, s.may_platform,
                s.may_read_payloads
            ],
            micros(s.created_at), micros(s.expires_at)
        from (select clock_timestamp() as now) c
        join sessions s on s.tenant_id = $1 and s.kind = 'link' and s.expires_at > c.now
        where s.key_id is null or exists (
            select from api_keys k
            where k.id = s.key_id and k.revoked_at is null
                and (k.expires_at is null or k.expires_at > c.now)
        )
        order by s.created_at desc, s.digest limit $2",
    )
    .bind(tenant.0)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let link = |(digest, name, key, configured, may, created_at, expires_at): LinkRow| {
        Ok(Link {
            id: LinkId::of(digest.try_into().unwrap_or_default()),
            tenant,
            name,
            behind: behind(key, configured)?,
            scopes: scopes(&may),
            created_at: Timestamp::from_micros(created_at),
            expires_at: Timestamp::from_micros(expires_at),
        })
    };
    rows.into_iter().map(link).collect()
}

async fn end_link(pool: &PgPool, tenant: TenantId, id: LinkId) -> Result<(), Failure> {
    let ended: i64 = sqlx::query_scalar(
        "-- end_link
        with link as (
            delete from sessions
            where tenant_id = $1 and kind = 'link' and substring(digest from 1 for 8) = $2
            returning digest
        ), opened as (
            delete from sessions s using link l
            where s.tenant_id = $1 and s.link_digest = l.digest
        )
        select count(*) from link",
    )
    .bind(tenant.0)
    .bind(&id.prefix()[..])
    .fetch_one(pool)
    .await?;
    match ended {
        0 => Err(Failure::NotFound("link")),
        _ => Ok(()),
    }
}

//! Who has the dashboard open.

use async_trait::async_trait;
use domain::access::{KeyId, LinkId, Scope, Scopes};
use domain::ids::TenantId;
use domain::time::Timestamp;
use engine::ports::{
    BehindSession, CatalogError, FORGOTTEN_AT_ONCE, Link, MAX_SESSIONS, NewSession, Session,
    Sessions,
};
use rusqlite::{Row, Transaction, params};

use super::SqliteStore;
use super::api_keys::scopes;
use super::fault::Fault;
use super::rows::{all, execute, first, parse, time, word};

const FORGET: &str = "
    -- begin_session: those that are over
    delete from sessions where digest in (
        select digest from sessions indexed by sessions_by_end where expires_at <= ?1 limit ?2
    )";

const HAS: &str = "
    -- begin_session: how many there are
    select count(*) from sessions where tenant_id = ?1 and kind = ?2";

const BEGIN: &str = "
    -- begin_session
    insert into sessions (digest, kind, tenant_id, key_id, configured_digest, may_ingest,
        may_manage, may_read, may_admin, may_platform, may_read_payloads, created_at, expires_at,
        name, link_digest)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

const SESSION: &str = "
    -- session
    select s.kind, s.tenant_id, s.key_id, s.configured_digest, s.may_ingest, s.may_manage,
        s.may_read, s.may_admin, s.may_platform, s.may_read_payloads, s.expires_at,
        s.link_digest
    from sessions s
    where s.digest = ?1 and s.expires_at > ?2
        and (s.key_id is null or exists (
            select 1 from api_keys k
            where k.id = s.key_id and k.revoked_at is null
                and (k.expires_at is null or k.expires_at > ?2)
        ))
        and (s.link_digest is null or exists (
            select 1 from sessions l where l.digest = s.link_digest and l.kind = 'link'
        ))";

const USE: &str = "
    -- use_once
    delete from sessions where digest = ?1 and kind = 'once' and expires_at > ?2";

const MOVE: &str = "
    -- move_session
    update sessions set tenant_id = ?2 where digest = ?1";

const END: &str = "
    -- end_session
    delete from sessions where digest = ?1";

const LINKS: &str = "
    -- links
    select s.key_id, s.configured_digest, s.may_ingest, s.may_manage, s.may_read, s.may_admin,
        s.may_platform, s.may_read_payloads, s.digest, s.tenant_id, s.name, s.created_at, s.expires_at
    from sessions s
    where s.tenant_id = ?1 and s.kind = 'link' and s.expires_at > ?2
        and (s.key_id is null or exists (
            select 1 from api_keys k
            where k.id = s.key_id and k.revoked_at is null
                and (k.expires_at is null or k.expires_at > ?2)
        ))
    order by s.created_at desc, s.digest limit ?3";

const END_OPENED: &str = "
    -- end_link: what it opened
    delete from sessions
    where tenant_id = ?1 and link_digest in (
        select l.digest from sessions l
        where l.tenant_id = ?1 and l.kind = 'link' and substr(l.digest, 1, 8) = ?2
    )";

const END_LINK: &str = "
    -- end_link
    delete from sessions
    where tenant_id = ?1 and kind = 'link' and substr(digest, 1, 8) = ?2";

#[async_trait]
impl Sessions for SqliteStore {
    async fn begin_session(&self, new: &NewSession) -> Result<Timestamp, CatalogError> {
        let new = new.clone();
        Ok(self.write(move |tx, now| begin(tx, now, &new)).await?)
    }

    async fn session(&self, digest: [u8; 32]) -> Result<Option<Session>, CatalogError> {
        let step = move |tx: &Transaction<'_>, now: Timestamp| {
            first(tx, SESSION, (digest, now.as_micros()), |row| {
                session(row, now)
            })
        };
        Ok(self.look(step).await?)
    }

    async fn use_once(&self, once: [u8; 32], new: &NewSession) -> Result<bool, CatalogError> {
        let new = new.clone();
        let step = move |tx: &Transaction<'_>, now: Timestamp| match execute(
            tx,
            USE,
            (once, now.as_micros()),
        )? {
            0 => Ok(false),
            _ => begin(tx, now, &new).map(|_until| true),
        };
        Ok(self.write(step).await?)
    }

    async fn move_session(&self, digest: [u8; 32], tenant: TenantId) -> Result<(), CatalogError> {
        let step = move |tx: &Transaction<'_>, _now: Timestamp| {
            execute(tx, MOVE, (digest, tenant.to_string()))
        };
        Ok(self.write(step).await.map(drop)?)
    }

    async fn end_session(&self, digest: [u8; 32]) -> Result<(), CatalogError> {
        let step = move |tx: &Transaction<'_>, _now: Timestamp| execute(tx, END, [digest]);
        Ok(self.write(step).await.map(drop)?)
    }

    async fn links(&self, tenant: TenantId, limit: u32) -> Result<Vec<Link>, CatalogError> {
        let step = move |tx: &Transaction<'_>, now: Timestamp| {
            let of = (tenant.to_string(), now.as_micros(), limit);
            all(tx, LINKS, of, link)
        };
        Ok(self.look(step).await?)
    }

    async fn end_link(&self, tenant: TenantId, id: LinkId) -> Result<(), CatalogError> {
        let step = move |tx: &Transaction<'_>, _now: Timestamp| {
            let (tenant, prefix) = (tenant.to_string(), id.prefix());
            execute(tx, END_OPENED, (&tenant, prefix))?;
            match execute(tx, END_LINK, (&tenant, prefix))? {
                0 => Err(CatalogError::NotFound("link").into()),
                _ => Ok(()),
            }
        };
        Ok(self.write(step).await?)
    }
}

fn begin(tx: &Transaction<'_>, now: Timestamp, new: &NewSession) -> Result<Timestamp, Fault> {
    execute(tx, FORGET, (now.as_micros(), FORGOTTEN_AT_ONCE))?;
    let tenant = new.tenant.to_string();
    let has: Option<u32> = first(tx, HAS, [tenant.as_str(), new.kind.as_str()], |row| {
        Ok(row.get(0)?)
    })?;
    if has.unwrap_or(0) >= MAX_SESSIONS {
        let problem = format!("the tenant has {MAX_SESSIONS} sessions and links already");
        return Err(CatalogError::Conflict(problem).into());
    }
    let (key, configured) = match new.behind {
        BehindSession::Key(id) => (Some(id.to_string()), None),
        BehindSession::Configured(digest) => (None, Some(digest)),
    };
    let may = |scope| new.scopes.contains(scope);
    let expires_at = now + new.good_for;
    let row = params![
        new.digest,
        new.kind.as_str(),
        tenant,
        key,
        configured,
        may(Scope::Ingest),
        may(Scope::Manage),
        may(Scope::Read),
        may(Scope::Admin),
        may(Scope::Platform),
        may(Scope::ReadPayloads),
        now.as_micros(),
        expires_at.as_micros(),
        new.name,
        new.opened_by,
    ];
    execute(tx, BEGIN, row)?;
    Ok(expires_at)
}

fn session(row: &Row<'_>, now: Timestamp) -> Result<Session, Fault> {
    let (behind, scopes) = rights(row, 2)?;
    Ok(Session {
        kind: word(row, 0, ("sessions", "kind"))?,
        tenant: word(row, 1, ("sessions", "tenant_id"))?,
        behind,
        scopes,
        left: time(row, 10)?.since(now),
        opened_by: row.get(11)?,
    })
}

/// What it stands on and what it may do, from the column `at` on.
fn rights(row: &Row<'_>, at: usize) -> Result<(BehindSession, Scopes), Fault> {
    let key: Option<String> = row.get(at)?;
    let key = key.map(|key| parse::<KeyId>(&key, ("sessions", "key_id")));
    let configured: Option<[u8; 32]> = row.get(at + 1)?;
    let behind = match key.transpose()? {
        Some(id) => BehindSession::Key(id),
        None => BehindSession::Configured(configured.unwrap_or_default()),
    };
    Ok((behind, scopes(row, at + 2)?))
}

fn link(row: &Row<'_>) -> Result<Link, Fault> {
    let (behind, scopes) = rights(row, 0)?;
    Ok(Link {
        id: LinkId::of(row.get(8)?),
        tenant: word(row, 9, ("sessions", "tenant_id"))?,
        name: row.get(10)?,
        behind,
        scopes,
        created_at: time(row, 11)?,
        expires_at: time(row, 12)?,
    })
}

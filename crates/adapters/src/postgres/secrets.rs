//! Secrets, headers and whatever else a destination shows: sealed rows. What a change of them does to permits is
//! the triggers' business: it bumps the epoch.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use domain::ids::{DestinationId, SecretId, TenantId};
use domain::signature::MAX_LIVE_SECRETS;
use domain::time::{Timestamp, micros};
use engine::ports::{
    CatalogError, Destination, DestinationChange, Managed, NewDestination, NewSecret, Place,
    Resealed, Sealed, SealedKind, SealedSecret, Secret, Shown, SingleChange, StoreError, Target,
    TokenNote, TokenTrouble,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::rows::{count, time, word};
use super::{catalog, holder};
use crate::row::row;

row! {
    pub(super) struct Row {
        id: Uuid,
        tenant_id: Uuid,
        destination_id: Uuid,
        kind: String,
        key_id: String,
        sealed: Vec<u8>,
        expires_at: Option<i64>,
    }
}

impl Row {
    pub(super) fn sealed(self) -> Result<SealedSecret, Failure> {
        Ok(SealedSecret {
            place: Place {
                tenant: TenantId(self.tenant_id),
                destination: DestinationId(self.destination_id),
                secret: SecretId(self.id),
                kind: word("destination_secrets", "kind", self.id, &self.kind)?,
            },
            sealed: Sealed {
                key: self.key_id,
                bytes: Bytes::from(self.sealed),
            },
            expires_at: time(self.expires_at),
        })
    }
}

/// Reads what these targets sign with and add. After the targets, and in a
/// later statement: of a change in between, it is the new secrets that come
/// with the old epoch, and under the old epoch nothing can be started any more.
pub(super) async fn attach(pool: &PgPool, targets: &mut [Target]) -> Result<(), Failure> {
    let ids: Vec<Uuid> = targets.iter().map(|target| target.destination.0).collect();
    let rows: Vec<Row> = sqlx::query_as(
        "-- targets: secrets
        select id, tenant_id, destination_id, kind, key_id, sealed,
            micros(expires_at) as expires_at
        from destination_secrets
        where destination_id = any ($1)
            and (expires_at is null or expires_at > clock_timestamp())
        order by destination_id, created_at desc, id desc",
    )
    .bind(ids)
    .fetch_all(pool)
    .await?;
    let mut found: HashMap<Uuid, Vec<SealedSecret>> = HashMap::new();
    for row in rows {
        let of = found.entry(row.destination_id).or_default();
        of.push(row.sealed()?);
    }
    for target in targets {
        target.secrets = found.remove(&target.destination.0).unwrap_or_default();
    }
    Ok(())
}

pub(super) async fn create_destination_with(
    pool: &PgPool,
    tenant: TenantId,
    new: &NewDestination,
    secrets: &[NewSecret],
) -> Result<Option<Destination>, Failure> {
    let mut transaction = pool.begin().await?;
    catalog::create_destination(&mut transaction, tenant, new).await?;
    for secret in secrets {
        insert(&mut transaction, secret).await?;
    }
    let created = catalog::destination(&mut *transaction, tenant, new.id).await?;
    transaction.commit().await?;
    Ok(created)
}

pub(super) async fn change_destination_with(
    pool: &PgPool,
    of: Managed<'_>,
    change: &DestinationChange,
    singles: &[SingleChange],
) -> Result<Option<Destination>, Failure> {
    let (tenant, id) = (of.tenant, of.destination);
    if let Some(limits) = &change.limits {
        limits.validate().map_err(Failure::Invalid)?;
    }
    let mut transaction = pool.begin().await?;
    catalog::lock_tier(&mut transaction, tenant).await?;
    holder::check(&mut transaction, of).await?;
    catalog::update(&mut transaction, tenant, id, change).await?;
    if !singles.is_empty() {
        bump_epoch(&mut transaction, id).await?;
    }
    for single in singles {
        sqlx::query(
            "-- change_destination: what it has one of
            delete from destination_secrets where destination_id = $1 and kind = $2",
        )
        .bind(id.0)
        .bind(single.kind().as_str())
        .execute(&mut *transaction)
        .await?;
        if let Some(new) = single.set() {
            insert(&mut transaction, new).await?;
        }
    }
    let changed = catalog::destination(&mut *transaction, tenant, id).await?;
    transaction.commit().await?;
    Ok(changed)
}

/// Has all workers read its target again.
async fn bump_epoch(
    connection: &mut PgConnection,
    destination: DestinationId,
) -> Result<(), Failure> {
    sqlx::query(
        "-- change of secrets: epoch
        update destinations set epoch = epoch + 1 where id = $1",
    )
    .bind(destination.0)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn insert(connection: &mut PgConnection, new: &NewSecret) -> Result<i64, Failure> {
    let created_at = sqlx::query_scalar(
        "-- insert a secret
        insert into destination_secrets (
            id, tenant_id, destination_id, kind, key_id, sealed, shown
        )
        values ($1, $2, $3, $4, $5, $6, $7)
        returning micros(created_at)",
    )
    .bind(new.place.secret.0)
    .bind(new.place.tenant.0)
    .bind(new.place.destination.0)
    .bind(new.place.kind.as_str())
    .bind(&new.sealed.key)
    .bind(new.sealed.bytes.as_ref())
    .bind(&new.shown)
    .fetch_one(connection)
    .await?;
    Ok(created_at)
}

row! {
    struct SingleRow {
        destination_id: Uuid,
        kind: String,
        shown: Option<String>,
        trouble: Option<String>,
        troubled_at: Option<i64>,
    }
}

pub(super) async fn shown(
    pool: &PgPool,
    destinations: &[DestinationId],
) -> Result<Vec<Shown>, Failure> {
    let ids: Vec<Uuid> = destinations.iter().map(|id| id.0).collect();
    let rows: Vec<SingleRow> = sqlx::query_as(
        "-- shown
        select destination_id, kind, shown, trouble, micros(troubled_at) as troubled_at
        from destination_secrets
        where destination_id = any ($1) and kind in ('headers', 'client_certificate', 'oauth2')",
    )
    .bind(&ids)
    .fetch_all(pool)
    .await?;
    let mut found: HashMap<Uuid, Shown> = HashMap::new();
    for row in rows {
        let id = row.destination_id;
        let kind: SealedKind = word("destination_secrets", "kind", id, &row.kind)?;
        let of = found.entry(id).or_default();
        of.add(kind, row.shown.as_deref().unwrap_or_default())
            .map_err(|malformed| {
                Failure::Corrupt(StoreError::Corrupt {
                    table: "destination_secrets",
                    column: "shown",
                    row: id.to_string(),
                    problem: malformed.to_string(),
                })
            })?;
        if let (Some(words), Some(at)) = (row.trouble, time(row.troubled_at)) {
            of.token_trouble = Some(TokenTrouble { words, at });
        }
    }
    Ok(ids
        .iter()
        .map(|id| found.remove(id).unwrap_or_default())
        .collect())
}

/// Why destinations get no tokens, of those that do not.
pub(super) async fn token_troubles(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashMap<DestinationId, TokenTrouble>, Failure> {
    let rows: Vec<(Uuid, String, i64)> = sqlx::query_as(
        "-- survey: why there is no token
        select destination_id, trouble, micros(troubled_at) from destination_secrets
        where destination_id = any ($1) and kind = 'oauth2' and trouble is not null",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let trouble = |(id, words, at)| {
        let at = Timestamp::from_micros(at);
        (DestinationId(id), TokenTrouble { words, at })
    };
    Ok(rows.into_iter().map(trouble).collect())
}

/// What workers say of their requests for tokens.
pub(super) async fn note_tokens(pool: &PgPool, notes: &[TokenNote]) -> Result<(), Failure> {
    let ids: Vec<Uuid> = notes.iter().map(|note| note.secret.0).collect();
    let troubles: Vec<Option<&str>> = notes.iter().map(|note| note.trouble.as_deref()).collect();
    sqlx::query(
        "-- note_tokens
        with n as materialized (
            select n.id, n.trouble
            from unnest($1::uuid[], $2::text[]) as n (id, trouble)
        ),
        known as materialized (
            select s.id, n.trouble
            from destination_secrets s
            join n on n.id = s.id
            where s.kind = 'oauth2' and (n.trouble is not null or s.trouble is not null)
            order by s.id
            for no key update of s
        )
        update destination_secrets s
        set trouble = k.trouble,
            troubled_at = case when k.trouble is not null then clock_timestamp() end
        from known k
        where s.id = k.id",
    )
    .bind(ids)
    .bind(troubles)
    .execute(pool)
    .await?;
    Ok(())
}

row! {
    struct SecretRow {
        id: Uuid,
        kind: String,
        shown: Option<String>,
        created_at: i64,
        expires_at: Option<i64>,
    }
}

/// The secrets that sign; `None` if there is no such destination.
pub(super) async fn secrets(
    pool: &PgPool,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<Option<Vec<Secret>>, Failure> {
    let there: Option<bool> = sqlx::query_scalar(
        "-- secrets: whose
        select true from destinations
        where id = $1 and tenant_id = $2 and deleted_at is null",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    if there.is_none() {
        return Ok(None);
    }
    let rows: Vec<SecretRow> = sqlx::query_as(
        "-- secrets
        select id, kind, shown, micros(created_at) as created_at,
            micros(expires_at) as expires_at
        from destination_secrets
        where destination_id = $1 and tenant_id = $2 and kind in ('hmac', 'ed25519')
            and (expires_at is null or expires_at > clock_timestamp())
        order by created_at desc, id desc",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .fetch_all(pool)
    .await?;
    let shown = rows.into_iter().map(|row| {
        Ok(Secret {
            id: SecretId(row.id),
            kind: word("destination_secrets", "kind", row.id, &row.kind)?,
            public_key: row.shown,
            created_at: Timestamp::from_micros(row.created_at),
            expires_at: time(row.expires_at),
        })
    });
    shown.collect::<Result<_, _>>().map(Some)
}

async fn live(connection: &mut PgConnection, destination: DestinationId) -> Result<usize, Failure> {
    let live: i64 = sqlx::query_scalar(
        "-- live secrets
        select count(*) from destination_secrets
        where destination_id = $1 and kind in ('hmac', 'ed25519')
            and (expires_at is null or expires_at > clock_timestamp())",
    )
    .bind(destination.0)
    .fetch_one(connection)
    .await?;
    Ok(count(live) as usize)
}

pub(super) async fn rotate_secret(
    pool: &PgPool,
    of: Managed<'_>,
    new: &NewSecret,
    overlap: Duration,
) -> Result<Secret, Failure> {
    let destination = of.destination;
    let SealedKind::Signs(kind) = new.place.kind else {
        return Err(Failure::NotFound("secret"));
    };
    let mut transaction = pool.begin().await?;
    holder::check(&mut transaction, of).await?;
    bump_epoch(&mut transaction, destination).await?;
    sqlx::query(
        "-- rotate_secret
        with ends as materialized (select from_micros(micros(clock_timestamp()) + $2) as at)
        update destination_secrets s set expires_at = ends.at
        from ends
        where s.destination_id = $1 and s.kind in ('hmac', 'ed25519')
            and (s.expires_at is null or s.expires_at > ends.at)",
    )
    .bind(destination.0)
    .bind(micros(overlap))
    .execute(&mut *transaction)
    .await?;
    if live(&mut transaction, destination).await? >= MAX_LIVE_SECRETS {
        return Err(Failure::Conflict(engine::sealing::TOO_MANY));
    }
    let created_at = insert(&mut transaction, new).await?;
    transaction.commit().await?;
    Ok(Secret {
        id: new.place.secret,
        kind,
        public_key: new.shown.clone(),
        created_at: Timestamp::from_micros(created_at),
        expires_at: None,
    })
}

pub(super) async fn delete_secret(
    pool: &PgPool,
    of: Managed<'_>,
    secret: SecretId,
) -> Result<(), Failure> {
    let destination = of.destination;
    let mut transaction = pool.begin().await?;
    holder::check(&mut transaction, of).await?;
    bump_epoch(&mut transaction, destination).await?;
    let deleted = sqlx::query(
        "-- delete_secret
        delete from destination_secrets
        where id = $1 and destination_id = $2 and kind in ('hmac', 'ed25519')",
    )
    .bind(secret.0)
    .bind(destination.0)
    .execute(&mut *transaction)
    .await?;
    if deleted.rows_affected() == 0 {
        return Err(Failure::NotFound("secret"));
    }
    if live(&mut transaction, destination).await? == 0 {
        return Err(Failure::Conflict(engine::sealing::LAST_ONE));
    }
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn sealed_under_others(
    pool: &PgPool,
    key: &str,
    after: Option<SecretId>,
    limit: u32,
) -> Result<Vec<SealedSecret>, Failure> {
    // Two ranges and not `<>`, which no index answers.
    let rows: Vec<Row> = sqlx::query_as(
        "-- sealed_under_others
        select id, tenant_id, destination_id, kind, key_id, sealed,
            micros(expires_at) as expires_at
        from destination_secrets
        where (key_id < $1 or key_id > $1)
            and id > coalesce($2, '00000000-0000-0000-0000-000000000000'::uuid)
        union all
        select id, tenant_id, id, 'notice', key_id, sealed, null
        from notice_addresses
        where sealed is not null and (key_id < $1 or key_id > $1)
            and id > coalesce($2, '00000000-0000-0000-0000-000000000000'::uuid)
        order by id
        limit $3",
    )
    .bind(key)
    .bind(after.map(|after| after.0))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(Row::sealed).collect()
}

pub(super) async fn reseal(pool: &PgPool, resealed: &[Resealed]) -> Result<u32, Failure> {
    let ids: Vec<Uuid> = resealed.iter().map(|one| one.secret.0).collect();
    let from: Vec<&[u8]> = resealed.iter().map(|one| one.from.bytes.as_ref()).collect();
    let to: Vec<&[u8]> = resealed.iter().map(|one| one.to.bytes.as_ref()).collect();
    let keys: Vec<&str> = resealed.iter().map(|one| one.to.key.as_str()).collect();
    let done = sqlx::query(
        "-- reseal
        with r as materialized (
            select *
            from unnest($1::uuid[], $2::bytea[], $3::bytea[], $4::text[])
                as r (id, was, sealed, key_id)
        ),
        of_notices as (
            update notice_addresses a set sealed = r.sealed, key_id = r.key_id
            from r
            where a.id = r.id and a.sealed = r.was
            returning a.id
        ),
        of_destinations as (
            update destination_secrets s set sealed = r.sealed, key_id = r.key_id
            from r
            where s.id = r.id and s.sealed = r.was
            returning s.id
        )
        select id from of_notices union all select id from of_destinations",
    )
    .bind(ids)
    .bind(from)
    .bind(to)
    .bind(keys)
    .execute(pool)
    .await?;
    Ok(u32::try_from(done.rows_affected()).unwrap_or(u32::MAX))
}

pub(super) async fn forget_expired(pool: &PgPool, limit: u32) -> Result<u32, Failure> {
    let done = sqlx::query(
        "-- forget_expired
        delete from destination_secrets where id in (
            select id from destination_secrets where expires_at <= clock_timestamp()
            order by expires_at limit $1
        )",
    )
    .bind(i64::from(limit))
    .execute(pool)
    .await?;
    Ok(u32::try_from(done.rows_affected()).unwrap_or(u32::MAX))
}

pub(super) async fn keys_in_use(pool: &PgPool) -> Result<Vec<(String, u64)>, Failure> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "-- keys_in_use
        select key_id, count(*)
        from (
            select key_id from destination_secrets
            union all
            select key_id from notice_addresses where sealed is not null
        ) as used
        group by key_id order by key_id",
    )
    .fetch_all(pool)
    .await?;
    let counted = |(key, number)| (key, i64::cast_unsigned(number));
    Ok(rows.into_iter().map(counted).collect())
}

/// What a failed step says to those who ask.
pub(super) fn answered<T>(found: Option<T>) -> Result<T, CatalogError> {
    found.ok_or(CatalogError::NotFound("destination"))
}

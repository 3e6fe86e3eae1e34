//! Secrets, headers and whatever else a destination shows: sealed rows. What a change of them does to permits is
//! the triggers' business: it bumps the epoch.

use std::time::Duration;

use bytes::Bytes;
use domain::ids::{DestinationId, SecretId, TenantId};
use domain::signature::MAX_LIVE_SECRETS;
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, Destination, DestinationChange, NewDestination, NewSecret, Place, Resealed,
    Sealed, SealedKind, SealedSecret, Secret, Shown, SingleChange, StoreError, TokenNote,
    TokenTrouble,
};
use engine::sealing::{LAST_ONE, TOO_MANY};
use rusqlite::{Connection, Row, Transaction};

use super::destinations;
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_time, time, word};

const OF_DESTINATION: &str = "
    -- targets: secrets
    select id, tenant_id, destination_id, kind, key_id, sealed, expires_at
    from destination_secrets
    where destination_id = ?1 and (expires_at is null or expires_at > ?2)
    order by created_at desc, id desc";

const INSERT: &str = "
    -- insert a secret
    insert into destination_secrets (
        id, tenant_id, destination_id, kind, key_id, sealed, shown, created_at
    )
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const IS_THERE: &str = "
    -- secrets: whose
    select 1 from destinations where id = ?1 and tenant_id = ?2 and deleted_at is null";

/// The triggers do the rest, as for a change of the URL.
pub(super) const BUMP_EPOCH: &str = "
    -- change of secrets: epoch
    insert into limit_changes (destination_id, deleted_at, revokes) values (?1, null, 1)";

const DELETE_SINGLE: &str = "
    -- change_destination: what it has one of
    delete from destination_secrets where destination_id = ?1 and kind = ?2";

const SHOWN: &str = "
    -- shown
    select kind, shown, trouble, troubled_at from destination_secrets
    where destination_id = ?1 and kind in ('headers', 'client_certificate', 'oauth2')";

const TROUBLE: &str = "
    -- survey: why there is no token
    select trouble, troubled_at from destination_secrets
    where destination_id = ?1 and kind = 'oauth2' and trouble is not null";

const NOTE_TROUBLE: &str = "
    -- note_tokens
    update destination_secrets set trouble = ?2, troubled_at = ?3
    where id = ?1 and kind = 'oauth2' and (?2 is not null or trouble is not null)";

const SECRETS: &str = "
    -- secrets
    select id, kind, shown, created_at, expires_at from destination_secrets
    where destination_id = ?1 and kind in ('hmac', 'ed25519')
        and (expires_at is null or expires_at > ?2)
    order by created_at desc, id desc";

const ROTATE: &str = "
    -- rotate_secret
    update destination_secrets set expires_at = ?2
    where destination_id = ?1 and kind in ('hmac', 'ed25519')
        and (expires_at is null or expires_at > ?2)";

const LIVE: &str = "
    -- live secrets
    select count(*) from destination_secrets
    where destination_id = ?1 and kind in ('hmac', 'ed25519')
        and (expires_at is null or expires_at > ?2)";

const DELETE: &str = "
    -- delete_secret
    delete from destination_secrets
    where id = ?1 and destination_id = ?2 and kind in ('hmac', 'ed25519')";

/// Two ranges and not `<>`, which no index answers.
const UNDER_OTHERS: &str = "
    -- sealed_under_others
    select id, tenant_id, destination_id, kind, key_id, sealed, expires_at
    from destination_secrets
    where (key_id < ?1 or key_id > ?1) and id > ?2
    union all
    select id, tenant_id, id, 'notice', key_id, sealed, null
    from notice_addresses
    where sealed is not null and (key_id < ?1 or key_id > ?1) and id > ?2
    order by id limit ?3";

const RESEAL: &str = "
    -- reseal
    update destination_secrets set sealed = ?3, key_id = ?4 where id = ?1 and sealed = ?2";

const RESEAL_NOTICE: &str = "
    -- reseal: the URL of an address
    update notice_addresses set sealed = ?3, key_id = ?4 where id = ?1 and sealed = ?2";

const FORGET: &str = "
    -- forget_expired
    delete from destination_secrets where id in (
        select id from destination_secrets where expires_at <= ?1
        order by expires_at limit ?2
    )";

const KEYS: &str = "
    -- keys_in_use
    select key_id, count(*)
    from (
        select key_id from destination_secrets
        union all
        select key_id from notice_addresses where sealed is not null
    )
    group by key_id order by key_id";

/// What a destination signs with and adds.
pub(super) fn of_destination(
    connection: &Connection,
    now: Timestamp,
    destination: DestinationId,
) -> Result<Vec<SealedSecret>, Fault> {
    let key = (destination.to_string(), now.as_micros());
    all(connection, OF_DESTINATION, key, sealed)
}

fn sealed(row: &Row<'_>) -> Result<SealedSecret, Fault> {
    let bytes: Vec<u8> = row.get(5)?;
    Ok(SealedSecret {
        place: Place {
            secret: word(row, 0, ("destination_secrets", "id"))?,
            tenant: word(row, 1, ("destination_secrets", "tenant_id"))?,
            destination: word(row, 2, ("destination_secrets", "destination_id"))?,
            kind: word(row, 3, ("destination_secrets", "kind"))?,
        },
        sealed: Sealed {
            key: row.get(4)?,
            bytes: Bytes::from(bytes),
        },
        expires_at: maybe_time(row, 6)?,
    })
}

pub(super) fn create_destination_with(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewDestination,
    secrets: &[NewSecret],
) -> Result<Destination, Fault> {
    let created = destinations::create(tx, now, tenant, new)?;
    for secret in secrets {
        insert(tx, now, secret)?;
    }
    Ok(created)
}

pub(super) fn change_destination_with(
    tx: &Transaction<'_>,
    now: Timestamp,
    (tenant, id): (TenantId, DestinationId),
    change: &DestinationChange,
    singles: &[SingleChange],
) -> Result<Destination, Fault> {
    let changed = destinations::change(tx, now, tenant, id, change)?;
    if !singles.is_empty() {
        bump_epoch(tx, now, id)?;
    }
    for single in singles {
        let key = (id.to_string(), single.kind().as_str());
        execute(tx, DELETE_SINGLE, key)?;
        if let Some(new) = single.set() {
            insert(tx, now, new)?;
        }
    }
    Ok(changed)
}

pub(super) fn is_there(
    connection: &Connection,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<(), Fault> {
    let key = (destination.to_string(), tenant.to_string());
    let there = first(connection, IS_THERE, key, |_| Ok(()))?;
    there.ok_or_else(|| CatalogError::NotFound("destination").into())
}

/// Has the worker read the target again.
fn bump_epoch(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: DestinationId,
) -> Result<(), Fault> {
    let bump = || execute(tx, BUMP_EPOCH, [destination.to_string()]);
    destinations::dated(tx, now, bump).map(drop)
}

fn insert(tx: &Transaction<'_>, now: Timestamp, new: &NewSecret) -> Result<(), Fault> {
    let row = (
        new.place.secret.to_string(),
        new.place.tenant.to_string(),
        new.place.destination.to_string(),
        new.place.kind.as_str(),
        &new.sealed.key,
        new.sealed.bytes.as_ref(),
        &new.shown,
        now.as_micros(),
    );
    execute(tx, INSERT, row).map(drop)
}

pub(super) fn shown(
    connection: &Connection,
    destinations: &[DestinationId],
) -> Result<Vec<Shown>, Fault> {
    destinations
        .iter()
        .map(|id| shown_of(connection, *id))
        .collect()
}

fn shown_of(connection: &Connection, id: DestinationId) -> Result<Shown, Fault> {
    let mut all = Shown::default();
    let rows = all_of(connection, id)?;
    for (kind, text, trouble) in rows {
        let text = text.unwrap_or_default();
        all.add(kind, &text).map_err(|malformed| {
            Fault::from(StoreError::Corrupt {
                table: "destination_secrets",
                column: "shown",
                row: id.to_string(),
                problem: malformed.to_string(),
            })
        })?;
        all.token_trouble = all.token_trouble.or(trouble);
    }
    Ok(all)
}

type ShownRow = (SealedKind, Option<String>, Option<TokenTrouble>);

fn all_of(connection: &Connection, id: DestinationId) -> Result<Vec<ShownRow>, Fault> {
    all(connection, SHOWN, [id.to_string()], |row| {
        let kind = word(row, 0, ("destination_secrets", "kind"))?;
        let words: Option<String> = row.get(2)?;
        let trouble = words.zip(maybe_time(row, 3)?);
        let trouble = trouble.map(|(words, at)| TokenTrouble { words, at });
        Ok((kind, row.get(1)?, trouble))
    })
}

pub(super) fn token_trouble(
    connection: &Connection,
    id: DestinationId,
) -> Result<Option<TokenTrouble>, Fault> {
    first(connection, TROUBLE, [id.to_string()], |row| {
        Ok(TokenTrouble {
            words: row.get(0)?,
            at: time(row, 1)?,
        })
    })
}

pub(super) fn note_tokens(
    tx: &Transaction<'_>,
    now: Timestamp,
    notes: &[TokenNote],
) -> Result<(), Fault> {
    for note in notes {
        let at = note.trouble.as_ref().map(|_| now.as_micros());
        execute(
            tx,
            NOTE_TROUBLE,
            (note.secret.to_string(), &note.trouble, at),
        )?;
    }
    Ok(())
}

pub(super) fn secrets(
    connection: &Connection,
    now: Timestamp,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<Vec<Secret>, Fault> {
    is_there(connection, tenant, destination)?;
    let key = (destination.to_string(), now.as_micros());
    all(connection, SECRETS, key, |row| {
        Ok(Secret {
            id: word(row, 0, ("destination_secrets", "id"))?,
            kind: word(row, 1, ("destination_secrets", "kind"))?,
            public_key: row.get(2)?,
            created_at: time(row, 3)?,
            expires_at: maybe_time(row, 4)?,
        })
    })
}

fn live(tx: &Transaction<'_>, now: Timestamp, of: DestinationId) -> Result<usize, Fault> {
    let key = (of.to_string(), now.as_micros());
    let live: Option<u32> = first(tx, LIVE, key, |row| Ok(row.get(0)?))?;
    Ok(live.unwrap_or(0) as usize)
}

pub(super) fn rotate_secret(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: DestinationId,
    new: &NewSecret,
    overlap: Duration,
) -> Result<Secret, Fault> {
    let SealedKind::Signs(kind) = new.place.kind else {
        return Err(CatalogError::NotFound("secret").into());
    };
    bump_epoch(tx, now, destination)?;
    let ends = (now + overlap).as_micros();
    execute(tx, ROTATE, (destination.to_string(), ends))?;
    if live(tx, now, destination)? >= MAX_LIVE_SECRETS {
        return Err(CatalogError::Conflict(TOO_MANY.to_owned()).into());
    }
    insert(tx, now, new)?;
    Ok(Secret {
        id: new.place.secret,
        kind,
        public_key: new.shown.clone(),
        created_at: now,
        expires_at: None,
    })
}

pub(super) fn delete_secret(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: DestinationId,
    secret: SecretId,
) -> Result<(), Fault> {
    bump_epoch(tx, now, destination)?;
    let key = (secret.to_string(), destination.to_string());
    if execute(tx, DELETE, key)? == 0 {
        return Err(CatalogError::NotFound("secret").into());
    }
    match live(tx, now, destination)? {
        0 => Err(CatalogError::Conflict(LAST_ONE.to_owned()).into()),
        _ => Ok(()),
    }
}

pub(super) fn sealed_under_others(
    connection: &Connection,
    key: &str,
    after: Option<SecretId>,
    limit: u32,
) -> Result<Vec<SealedSecret>, Fault> {
    let after = after.map(|after| after.to_string()).unwrap_or_default();
    all(connection, UNDER_OTHERS, (key, after, limit), sealed)
}

pub(super) fn reseal(tx: &Transaction<'_>, resealed: &[Resealed]) -> Result<u32, Fault> {
    let mut done = 0;
    for one in resealed {
        let row = (
            one.secret.to_string(),
            one.from.bytes.as_ref(),
            one.to.bytes.as_ref(),
            &one.to.key,
        );
        // Of one of the two: ids are never given twice.
        done += execute(tx, RESEAL, row.clone())? + execute(tx, RESEAL_NOTICE, row)?;
    }
    Ok(u32::try_from(done).unwrap_or(u32::MAX))
}

pub(super) fn forget_expired(
    tx: &Transaction<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<u32, Fault> {
    let done = execute(tx, FORGET, (now.as_micros(), limit))?;
    Ok(u32::try_from(done).unwrap_or(u32::MAX))
}

pub(super) fn keys_in_use(connection: &Connection) -> Result<Vec<(String, u64)>, Fault> {
    all(connection, KEYS, [], |row| {
        let secrets: u32 = row.get(1)?;
        Ok((row.get(0)?, u64::from(secrets)))
    })
}

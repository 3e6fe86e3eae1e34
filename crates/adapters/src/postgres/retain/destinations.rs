//! Deleted destinations of which nothing is left.

use std::time::Duration;

use domain::time::micros;
use sqlx::PgConnection;
use sqlx::postgres::PgQueryResult;
use uuid::Uuid;

use super::{Stepped, Turn};
use crate::postgres::failure::Failure;
use crate::postgres::tenants;
use crate::row::row;

/// Destinations that one step looks at: each is looked for in every day of the
/// ledger.
const AT_ONCE: i64 = 100;

row! {
    /// One that was deleted long enough ago.
    struct Deleted {
        id: Uuid,
        deleted_at: i64,
        /// Something is left in the ledger.
        is_in_ledger: bool,
        /// It has been taken for drained, but an attempt waits that was committed late.
        waits: bool,
    }
}

/// Goes on from where the walk is.
pub(super) async fn step(
    connection: &mut PgConnection,
    turn: &Turn,
    deleted_for: Duration,
    limit: i64,
) -> Result<Stepped, Failure> {
    let at_once = limit.min(AT_ONCE);
    let examined = examine(connection, turn, deleted_for, at_once).await?;
    let ids = |which: fn(&&Deleted) -> bool| -> Vec<Uuid> {
        examined.iter().filter(which).map(|one| one.id).collect()
    };
    give_back(connection, &ids(|one| one.waits)).await?;
    let over = ids(|one| !one.is_in_ledger);
    let places = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let mut stepped = Stepped {
        examined: places(examined.len()),
        more: places(examined.len()) >= at_once,
        // Each round begins at the first: what had to stay is among all of them.
        left_at: Some(0),
        ..Stepped::default()
    };
    if !forget(connection, &over, limit).await? {
        // The next step comes to the same ones.
        stepped.more = true;
        return Ok(stepped);
    }
    stepped.removed = places(over.len());
    if let Some(last) = examined.last() {
        stepped.last_at = Some(last.deleted_at);
        stepped.last_event = Some(last.id);
    }
    Ok(stepped)
}

async fn examine(
    connection: &mut PgConnection,
    turn: &Turn,
    deleted_for: Duration,
    limit: i64,
) -> Result<Vec<Deleted>, Failure> {
    Ok(sqlx::query_as(
        "-- retain: destinations
        with examined as materialized (
            select d.id, d.deleted_at, d.drained_at
            from destinations d
            where d.deleted_at is not null
                and (d.deleted_at, d.id) > (from_micros($1), $2)
                and d.deleted_at <= clock_timestamp() - $3::bigint * interval '1 microsecond'
            order by d.deleted_at, d.id
            limit $4
        )
        select x.id, micros(x.deleted_at) as deleted_at,
            exists (
                select from ledger a
                where hash_of(a.destination_id) = hash_of(x.id) and a.destination_id = x.id
                offset 0
            )
            or exists (
                select from deliveries a
                where a.destination_id = x.id and a.permit is null and a.due_at is null
                offset 0
            )
            or exists (
                select from deliveries a
                where a.destination_id = x.id and a.permit is null and a.due_at is not null
                offset 0
            )
            or exists (
                select from deliveries a
                where a.destination_id = x.id and a.permit is not null and a.carried_by is null
                offset 0
            )
            or exists (
                select from deliveries a
                where a.destination_id = x.id and a.carried_by is not null
                offset 0
            ) as is_in_ledger,
            x.drained_at is not null and (
                exists (
                    select from deliveries a
                    where a.destination_id = x.id and a.permit is null and a.due_at is null
                    offset 0
                )
                or exists (
                    select from deliveries a
                    where a.destination_id = x.id and a.permit is null and a.due_at is not null
                    offset 0
                )
            ) as waits
        from examined x
        order by x.deleted_at, x.id",
    )
    .bind(turn.after_at)
    .bind(turn.after_event)
    .bind(micros(deleted_for))
    .bind(limit)
    .fetch_all(connection)
    .await?)
}

/// The reaper looks at them again.
async fn give_back(connection: &mut PgConnection, destinations: &[Uuid]) -> Result<(), Failure> {
    if destinations.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- retain: give_back
        update destinations d set drained_at = null where d.id = any ($1)",
    )
    .bind(destinations)
    .execute(connection)
    .await?;
    Ok(())
}

/// What else is known of a destination, and may be many rows: so many of them go in
/// one step.
const LONG: [&str; 4] = [
    "-- retain: forget_history
    delete from limit_history where id = any (array(
        select h.id from unnest($1) as o (id)
        cross join lateral (
            select h.id from limit_history h where h.destination_id = o.id limit $2
        ) h
        limit $2
    ))",
    "-- retain: forget_smart_history
    delete from smart_history where id = any (array(
        select h.id from unnest($1) as o (id)
        cross join lateral (
            select h.id from smart_history h where h.destination_id = o.id limit $2
        ) h
        limit $2
    ))",
    "-- retain: forget_starts
    delete from start_buckets b
    using (
        select b.destination_id, b.period, b.ends_at, b.shard
        from unnest($1) as o (id)
        cross join lateral (
            select b.destination_id, b.period, b.ends_at, b.shard
            from start_buckets b where b.destination_id = o.id limit $2
        ) b
        limit $2
    ) x
    where b.destination_id = x.destination_id and b.period = x.period
        and b.ends_at = x.ends_at and b.shard = x.shard",
    "-- retain: forget_tallies
    delete from tallies t
    using (
        select t.destination_id, t.slot, t.ends_at
        from unnest($1) as o (id)
        cross join lateral (
            select t.destination_id, t.slot, t.ends_at
            from tallies t where t.destination_id = o.id limit $2
        ) t
        limit $2
    ) x
    where t.destination_id = x.destination_id and t.slot = x.slot and t.ends_at = x.ends_at",
];

/// The rest, a row or few of each; the destination itself at the end.
const SHORT: [&str; 12] = [
    "-- retain: forget_pacing\ndelete from pacing where destination_id = any ($1)",
    "-- retain: forget_health\ndelete from health where destination_id = any ($1)",
    "-- retain: forget_times\ndelete from response_times where destination_id = any ($1)",
    "-- retain: forget_smart\ndelete from smart_limits where destination_id = any ($1)",
    "-- retain: forget_watch\ndelete from watches where destination_id = any ($1)",
    "-- retain: forget_tally_mark\ndelete from tally_marks where destination_id = any ($1)",
    "-- retain: forget_mark\ndelete from destination_marks where destination_id = any ($1)",
    "-- retain: forget_requests\ndelete from limit_requests where destination_id = any ($1)",
    "-- retain: forget_groups\ndelete from limit_group_members where destination_id = any ($1)",
    "-- retain: forget_replays\ndelete from replays where destination_id = any ($1)",
    "-- retain: forget_secrets\ndelete from destination_secrets where destination_id = any ($1)",
    "-- retain: forget_destinations\ndelete from destinations where id = any ($1)",
];

/// Whether they are gone; else there is more of them than one step deletes.
async fn forget(
    connection: &mut PgConnection,
    destinations: &[Uuid],
    limit: i64,
) -> Result<bool, Failure> {
    if destinations.is_empty() {
        return Ok(true);
    }
    let removed = |done: PgQueryResult| i64::try_from(done.rows_affected()).unwrap_or(i64::MAX);
    for sql in LONG {
        let deleting = sqlx::query(sql).bind(destinations).bind(limit);
        if removed(deleting.execute(&mut *connection).await?) >= limit {
            return Ok(false);
        }
    }
    let of: Vec<Uuid> = sqlx::query_scalar(
        "-- retain: whose they were
        select distinct d.tenant_id from destinations d where d.id = any ($1)",
    )
    .bind(destinations)
    .fetch_all(&mut *connection)
    .await?;
    for sql in SHORT {
        let deleting = sqlx::query(sql).bind(destinations);
        deleting.execute(&mut *connection).await?;
    }
    tenants::forget(connection, &of).await?;
    Ok(true)
}

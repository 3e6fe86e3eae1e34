//! How much response times differ, as workers say; see
//! [`engine::ports::Store::report_spreads`].

use std::collections::BTreeMap;
use std::time::Duration;

use domain::ids::DestinationId;
use domain::margin::{Measured, Spread};
use domain::time::{Timestamp, micros};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::connect::BEGIN_UNFLUSHED;
use super::failure::Failure;

/// The columns of a row: the shortest and when it was said, and the 99th percentile.
/// `array[null, null, null, null]` where there is none.
pub(super) type Ends = Vec<Option<i64>>;

/// What they say; `None` where there is no row.
fn measured(ends: &[Option<i64>]) -> Option<Measured> {
    let [least, least_at, most, most_at] = ends else {
        return None;
    };
    let end = |micros: i64, at: i64| (micros, Timestamp::from_micros(at));
    Some(Measured::of_micros(
        end((*least)?, (*least_at)?),
        end((*most)?, (*most_at)?),
    ))
}

/// How much they differ by now.
pub(super) fn spread(ends: &[Option<i64>], now: i64) -> Option<Spread> {
    measured(ends)?.spread(Timestamp::from_micros(now))
}

/// Joins what is said with what is known. What is not known yet is inserted first: who
/// comes second waits for it, and joins it too. Rows are taken in the order of their ids.
/// A report is said again, so it does not wait for the disk.
pub(super) async fn report(
    pool: &PgPool,
    spreads: &[(DestinationId, Spread)],
) -> Result<(), Failure> {
    let said: BTreeMap<Uuid, Spread> = (spreads.iter())
        .map(|(destination, spread)| (destination.0, *spread))
        .collect();
    if said.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = said.keys().copied().collect();
    let mut transaction = pool.begin_with(BEGIN_UNFLUSHED).await?;
    insert_first(&mut transaction, &said).await?;
    let rows: Vec<(Uuid, Ends, i64)> = sqlx::query_as(
        "-- report_spreads: known
        with known as materialized (
            select r.*
            from response_times r
            where r.destination_id = any ($1)
            order by r.destination_id
            for update
        )
        select k.destination_id,
            array[k.least_micros, micros(k.least_at), k.most_micros, micros(k.most_at)],
            micros(clock_timestamp())
        from known k",
    )
    .bind(&ids)
    .fetch_all(&mut *transaction)
    .await?;
    let joined: Vec<(Uuid, Measured)> = (rows.iter())
        .filter_map(|(destination, ends, now)| {
            let (known, said) = (measured(ends)?, said.get(destination)?);
            Some((*destination, known.and(*said, Timestamp::from_micros(*now))))
        })
        .collect();
    let column =
        |of: fn(&Measured) -> i64| -> Vec<i64> { joined.iter().map(|(_, one)| of(one)).collect() };
    sqlx::query(
        "-- report_spreads: joined
        update response_times r
        set least_micros = n.least, least_at = from_micros(n.least_at),
            most_micros = n.most, most_at = from_micros(n.most_at)
        from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
            as n (id, least, least_at, most, most_at)
        where r.destination_id = any (array[n.id])",
    )
    .bind(joined.iter().map(|(id, _)| *id).collect::<Vec<Uuid>>())
    .bind(column(|one| micros(one.least.0)))
    .bind(column(|one| one.least.1.as_micros()))
    .bind(column(|one| micros(one.most.0)))
    .bind(column(|one| one.most.1.as_micros()))
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

/// Of those of which nothing is known.
async fn insert_first(
    connection: &mut PgConnection,
    said: &BTreeMap<Uuid, Spread>,
) -> Result<(), Failure> {
    let ids: Vec<Uuid> = said.keys().copied().collect();
    let column = |of: fn(&Spread) -> Duration| -> Vec<i64> {
        said.values().map(|one| micros(of(one))).collect()
    };
    sqlx::query(
        "-- report_spreads: first
        insert into response_times (destination_id, least_micros, least_at, most_micros, most_at)
        select n.id, n.least, c.now, n.most, c.now
        from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as n (id, least, most)
        join destinations d on d.id = any (array[n.id]) and d.deleted_at is null
        cross join (select clock_timestamp() as now) c
        order by n.id
        on conflict (destination_id) do nothing",
    )
    .bind(ids)
    .bind(column(|one| one.least))
    .bind(column(|one| one.most))
    .execute(connection)
    .await?;
    Ok(())
}

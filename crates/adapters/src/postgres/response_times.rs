//! How much response times differ, as workers say; see
//! [`engine::ports::Store::report_spreads`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::ids::DestinationId;
use domain::margin::{Measured, Spread};
use domain::time::{Timestamp, micros};
use sqlx::PgPool;
use uuid::Uuid;

use super::failure::Failure;

/// A worker's report is said again: it does not wait for the disk.
const BEGIN: &str = "begin; set local synchronous_commit = off";

#[derive(sqlx::FromRow)]
struct KnownRow {
    now: i64,
    destination_id: Option<Uuid>,
    least_micros: Option<i64>,
    least_at: Option<i64>,
    most_micros: Option<i64>,
    most_at: Option<i64>,
}

impl KnownRow {
    fn measured(&self) -> Option<(Uuid, Measured)> {
        let end = |micros: i64, at: i64| (duration(micros), Timestamp::from_micros(at));
        let measured = Measured {
            least: end(self.least_micros?, self.least_at?),
            most: end(self.most_micros?, self.most_at?),
        };
        Some((self.destination_id?, measured))
    }
}

/// Joins what is said with what is known.
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
    let mut transaction = pool.begin_with(BEGIN).await?;
    let rows: Vec<KnownRow> = sqlx::query_as(
        "-- report_spreads: known
        with known as materialized (
            select r.destination_id, r.least_micros, micros(r.least_at) as least_at,
                r.most_micros, micros(r.most_at) as most_at
            from response_times r
            where r.destination_id = any ($1)
            order by r.destination_id
            for update
        )
        select micros(clock_timestamp()) as now, k.*
        from (values (true)) as one (row)
        left join known k on true",
    )
    .bind(&ids)
    .fetch_all(&mut *transaction)
    .await?;
    let now = rows.first().map_or(0, |row| row.now);
    let now = Timestamp::from_micros(now);
    let known: HashMap<Uuid, Measured> = rows.iter().filter_map(KnownRow::measured).collect();
    let joined: Vec<Measured> = (said.iter())
        .map(|(destination, said)| match known.get(destination) {
            Some(known) => known.and(*said, now),
            None => Measured::first(*said, now),
        })
        .collect();
    let column = |of: fn(&Measured) -> i64| joined.iter().map(of).collect::<Vec<i64>>();
    sqlx::query(
        "-- report_spreads: write
        insert into response_times (destination_id, least_micros, least_at, most_micros, most_at)
        select n.id, n.least, from_micros(n.least_at), n.most, from_micros(n.most_at)
        from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
            as n (id, least, least_at, most, most_at)
        join destinations d on d.id = n.id and d.deleted_at is null
        order by n.id
        on conflict (destination_id) do update
        set least_micros = excluded.least_micros, least_at = excluded.least_at,
            most_micros = excluded.most_micros, most_at = excluded.most_at",
    )
    .bind(&ids)
    .bind(column(|one| micros(one.least.0)))
    .bind(column(|one| one.least.1.as_micros()))
    .bind(column(|one| micros(one.most.0)))
    .bind(column(|one| one.most.1.as_micros()))
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

/// The spread of these two columns; none where there is no row.
pub(super) fn spread(least_micros: Option<i64>, most_micros: Option<i64>) -> Option<Spread> {
    least_micros.zip(most_micros).map(|(least, most)| Spread {
        least: duration(least),
        most: duration(most),
    })
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
}

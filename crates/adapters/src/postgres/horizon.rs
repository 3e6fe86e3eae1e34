//! The horizon: the attempt from which on admission has to look, so that it costs
//! the same however many days are kept.
//!
//! Below it everything is over, and has been for longer than any limit counts.
//! That stays true without anybody seeing to it: what is over stays over, a retry
//! and a replay are new attempts, and new ids are larger than all that were given.
//! A horizon that was read some time ago is therefore lower than need be, and
//! never wrong.
//!
//! It is moved up to what was found by two looks with an hour between them. So an
//! insert that was under way at the first is seen by the second; and a clock that
//! is ahead for a moment, by which nothing counts any more, moves nothing. Down it
//! moves at once: somebody has restored old attempts, or set some to `waiting`.

use std::time::Duration;

use domain::time::micros;
use sqlx::{AssertSqlSafe, PgConnection};

use super::failure::{Failure, in_words};
use crate::row::row;

/// Limits count starts of the last day, and the largest safety margin makes
/// that two; whatever the ages, no attempt that is younger goes.
pub(super) const COUNTED: Duration = Duration::from_secs(3 * 86_400);

/// Between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_secs(3_600);

/// Whether it is time for a look.
pub(super) async fn is_due(connection: &mut PgConnection) -> Result<bool, Failure> {
    Ok(sqlx::query_scalar(
        "-- raise_horizon: is_due
        select (
                o.seen_at not between clock_timestamp() - $1::bigint * interval '1 microsecond'
                    and clock_timestamp()
            ) is not false
        from attempts_horizon o where o.id = 1",
    )
    .bind(micros(BETWEEN_LOOKS))
    .fetch_one(connection)
    .await?)
}

/// Looks, and moves the horizon up to what the look before has found as well: the
/// oldest day in which something is not over or counts, and no further than ids
/// were given. Reads a few index pages of each day. Where it is not yet due,
/// nothing.
pub(super) async fn raise(connection: &mut PgConnection) -> Result<(), Failure> {
    if !is_due(connection).await? {
        return Ok(());
    }
    let seen = look(connection).await?;
    sqlx::query(
        "-- raise_horizon
        update attempts_horizon o
        set attempt_id = case
                when $1 < o.attempt_id then $1
                when o.seen_at <= clock_timestamp() - $2::bigint * interval '1 microsecond'
                then greatest(o.attempt_id, least(o.seen, $1, given.first_of_day))
                else o.attempt_id
            end,
            seen = $1, seen_at = clock_timestamp()
        from (
            select (coalesce(pg_sequence_last_value('attempts_id_seq'), 0) >> 36) << 36
                as first_of_day
        ) given",
    )
    .bind(seen)
    .bind(micros(BETWEEN_LOOKS))
    .execute(connection)
    .await?;
    Ok(())
}

row! {
    /// A day of attempts, attached or not.
    struct Day {
        /// Quoted, as statements need it.
        table: String,
        /// The smallest id that it can hold.
        lowest: i64,
    }
}

/// The smallest id of the oldest day in which something is not over or counts. No
/// day counts as young, whether it is there or not, before three have passed.
async fn look(connection: &mut PgConnection) -> Result<i64, Failure> {
    let (days, youngest) = days(connection).await?;
    for day in days {
        match is_needed(connection, &day).await {
            Ok(false) => {}
            Ok(true) => return Ok(day.lowest),
            // It is being dropped, or somebody keeps it locked. To be low is right.
            Err(Failure::Database(error)) => {
                let (day, lowest, error) = (day.table, day.lowest, in_words(&error));
                tracing::warn!(error, day, "the horizon stays below a day");
                return Ok(lowest);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(youngest)
}

/// The days of which nothing that started can count, the oldest first, and the
/// first id after them. Also those that are detached: they may come back.
async fn days(connection: &mut PgConnection) -> Result<(Vec<Day>, i64), Failure> {
    let days = sqlx::query_as(
        "-- raise_horizon: days
        select c.oid::regclass::text as table, l.lowest
        from pg_class p
        join pg_class c on c.relnamespace = p.relnamespace and c.relkind = 'r'
            and starts_with(c.relname, 'ledger_')
        cross join lateral (select partition_day(c.relname) as day) d
        cross join lateral (select first_attempt_id(d.day) as lowest) l
        where p.oid = 'ledger'::regclass
            and d.day < utc_day(clock_timestamp() - $1::bigint * interval '1 microsecond')
        order by l.lowest",
    )
    .bind(micros(COUNTED))
    .fetch_all(&mut *connection)
    .await?;
    let youngest = sqlx::query_scalar(
        "-- raise_horizon: youngest
        select first_attempt_id(utc_day(clock_timestamp() - $1::bigint * interval '1 microsecond'))",
    )
    .bind(micros(COUNTED))
    .fetch_one(connection)
    .await?;
    Ok((days, youngest))
}

async fn is_needed(connection: &mut PgConnection, day: &Day) -> Result<bool, Failure> {
    let (table, not_over) = (&day.table, NOT_OVER);
    let sql = format!(
        "-- raise_horizon: is_needed
        select {not_over}
            or exists (
                select from {table}
                where coalesce(finished_at, started_at)
                    >= (select clock_timestamp() - $1::bigint * interval '1 microsecond')
            )"
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(micros(COUNTED))
        .bind(day.lowest)
        .fetch_one(connection)
        .await?)
}

/// Whether an attempt is owed whose day in the ledger begins with the id `$2`.
pub(super) const NOT_OVER: &str = "exists (
        select from deliveries where id >= $2 and id < $2 + (1::bigint << 36)
    )";

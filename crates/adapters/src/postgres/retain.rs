//! Retention: what is over and old goes, a bounded step at a time.
//!
//! A step is one transaction, but for that of days. It takes the one turn and
//! the walk that is due, looks at rows from where the walk is, deletes those
//! that may go, and notes how far it came.

use std::time::Duration;

use domain::retention::Retention;
use domain::time::{Timestamp, micros};
use engine::ports::{PUT_OFF, RetainRules, Retained, Walk};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::days::{self, DayAges};
use super::failure::{Failure, in_words};
use super::rows::{count, word};
use crate::row::row;

mod destinations;
mod walks;

/// One step of the walk that is due.
pub(super) async fn retain(pool: &PgPool, rules: &RetainRules) -> Result<Retained, Failure> {
    let mut transaction = pool.begin().await?;
    let Some(turn) = turn(&mut transaction).await? else {
        transaction.commit().await?;
        return Ok(Retained::default());
    };
    let retained = match word("retention_walks", "name", &turn.name, &turn.name) {
        Ok(Walk::Days) => {
            lease(&mut transaction, &turn).await?;
            transaction.commit().await?;
            whole_days(pool, &turn, rules).await
        }
        Ok(walk) => match row_by_row(&mut transaction, walk, &turn, rules).await {
            Ok(retained) => {
                transaction.commit().await?;
                Ok(retained)
            }
            Err(failure) => {
                transaction.rollback().await?;
                Err(failure)
            }
        },
        Err(failure) => {
            transaction.rollback().await?;
            Err(failure)
        }
    };
    if retained.is_err() {
        put_off(pool, &turn, rules).await;
    }
    retained
}

row! {
    /// Where a walk is.
    struct Turn {
        now: i64,
        name: String,
        after_id: i64,
        after_at: i64,
        after_event: Uuid,
    }
}

async fn turn(connection: &mut PgConnection) -> Result<Option<Turn>, Failure> {
    Ok(sqlx::query_as(
        "-- retain: turn
        with turn as materialized (
            select t.id from retention_turn t
            where t.due_at <= clock_timestamp()
            for update skip locked
        )
        select micros(clock_timestamp()) as now, w.name, w.after_id,
            micros(w.after_at) as after_at, w.after_event
        from turn cross join retention_walks w
        where w.due_at <= clock_timestamp()
        order by w.due_at, w.name
        limit 1",
    )
    .fetch_optional(connection)
    .await?)
}

async fn row_by_row(
    connection: &mut PgConnection,
    walk: Walk,
    turn: &Turn,
    rules: &RetainRules,
) -> Result<Retained, Failure> {
    let cutoff = Cutoffs::at(Timestamp::from_micros(turn.now), rules);
    let limit = i64::from(rules.limit);
    let stepped = walks::step(connection, walk, turn, &cutoff, rules.deleted_for, limit).await?;
    rest(connection, turn, &stepped, rules).await?;
    Ok(stepped.retained(walk))
}

/// Outside of any transaction, as detaching a partition has to be.
async fn whole_days(pool: &PgPool, turn: &Turn, rules: &RetainRules) -> Result<Retained, Failure> {
    let step = days::step(pool, &DayAges::of(&rules.keep), turn.after_id).await?;
    let places = |names: &[String]| i64::try_from(names.len()).unwrap_or(i64::MAX);
    let removed = places(&step.kept.dropped);
    let stepped = Stepped {
        examined: removed + places(&step.kept.left),
        removed,
        more: step.more,
        last_id: step.last,
        // A round looks at all that are old.
        left_id: Some(0),
        ..Stepped::default()
    };
    rest(&mut *pool.acquire().await?, turn, &stepped, rules).await?;
    Ok(stepped.retained(Walk::Days))
}

/// What is over since before then may go; in microseconds.
struct Cutoffs {
    ledger: Option<i64>,
    dead_letters: Option<i64>,
    /// Of those that go with their day, if they can.
    rows_of_payloads: Option<i64>,
    rows_of_ledger: Option<i64>,
}

impl Cutoffs {
    fn at(now: Timestamp, rules: &RetainRules) -> Self {
        let Retention {
            payloads,
            ledger,
            dead_letters,
        } = rules.keep;
        // What Postgres can say; nothing is older.
        let micros = |cutoff: Timestamp| cutoff.as_micros().max(0);
        let later = now - rules.day_goes_first;
        Self {
            ledger: ledger.cutoff(now).map(micros),
            dead_letters: dead_letters.cutoff(now).map(micros),
            rows_of_payloads: payloads.cutoff(later).map(micros),
            rows_of_ledger: ledger.cutoff(later).map(micros),
        }
    }
}

row! {
    /// What became of a step, and how far it came.
    #[derive(Default)]
    struct Stepped {
        examined: i64,
        removed: i64,
        more: bool,
        last_id: Option<i64>,
        last_at: Option<i64>,
        last_event: Option<Uuid>,
        /// Before the first row that had to stay.
        left_id: Option<i64>,
        left_at: Option<i64>,
    }
}

impl Stepped {
    fn retained(&self, walk: Walk) -> Retained {
        Retained {
            walk: Some(walk),
            examined: count(self.examined),
            removed: count(self.removed),
            more: self.more,
        }
    }
}

/// Nobody else takes a turn meanwhile, or this one until it must have ended or
/// died.
async fn lease(connection: &mut PgConnection, turn: &Turn) -> Result<(), Failure> {
    set_due(connection, turn, PUT_OFF, PUT_OFF).await
}

/// After a step that failed: the others get their turn, after a pause.
async fn put_off(pool: &PgPool, turn: &Turn, rules: &RetainRules) {
    let set = async {
        let mut connection = pool.acquire().await?;
        let now: i64 = sqlx::query_scalar("-- retain: now\nselect micros(clock_timestamp())")
            .fetch_one(&mut *connection)
            .await?;
        let took = Timestamp::from_micros(now).since(Timestamp::from_micros(turn.now));
        set_due(&mut connection, turn, PUT_OFF, took * rules.pause_factor).await
    };
    // It is due still, then, as if it had not been tried.
    if let Err(Failure::Database(error)) = set.await {
        let error = in_words(&error);
        tracing::warn!(error, walk = turn.name, "a walk that failed is not put off");
    }
}

async fn set_due(
    connection: &mut PgConnection,
    turn: &Turn,
    walk: Duration,
    any: Duration,
) -> Result<(), Failure> {
    sqlx::query(
        "-- retain: set_due
        with turn as (
            update retention_turn t
            set due_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
        )
        update retention_walks w
        set due_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
        where w.name = $1",
    )
    .bind(&turn.name)
    .bind(micros(walk))
    .bind(micros(any))
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes how far the walk came, and when its next step and anybody's are due.
/// One that is through begins anew when its round has become old, at the first
/// row that had to stay: before it there are none, but perhaps very many that
/// vacuum has not taken out of the index yet.
async fn rest(
    connection: &mut PgConnection,
    turn: &Turn,
    stepped: &Stepped,
    rules: &RetainRules,
) -> Result<(), Failure> {
    sqlx::query(
        "-- retain: rest
        with clock as materialized (select clock_timestamp() as now),
        turn as (
            update retention_turn t
            set due_at = c.now + (c.now - from_micros($10)) * $11::bigint
            from clock c
        ),
        round as materialized (
            select w.name, c.now,
                not $2 and w.began_at <= c.now - $7::bigint * interval '1 microsecond' as is_over,
                coalesce(w.left_id, $8) as left_id,
                coalesce(w.left_at, from_micros($9)) as left_at
            from retention_walks w cross join clock c
            where w.name = $1
        )
        update retention_walks w
        set after_id = coalesce(case when r.is_over then r.left_id end, $3, w.after_id),
            after_at = coalesce(case when r.is_over then r.left_at end, from_micros($4), w.after_at),
            -- All that came at once with the first that had to stay.
            after_event = case when r.is_over and r.left_at is not null
                then '00000000-0000-0000-0000-000000000000'
                else coalesce($5, w.after_event) end,
            left_id = case when not r.is_over then r.left_id end,
            left_at = case when not r.is_over then r.left_at end,
            began_at = case when r.is_over then r.now else w.began_at end,
            due_at = case when $2 then r.now
                else r.now + $6::bigint * interval '1 microsecond' end
        from round r
        where w.name = r.name",
    )
    .bind(&turn.name)
    .bind(stepped.more)
    .bind(stepped.last_id)
    .bind(stepped.last_at)
    .bind(stepped.last_event)
    .bind(micros(rules.rest))
    .bind(micros(rules.again))
    .bind(stepped.left_id)
    .bind(stepped.left_at)
    .bind(turn.now)
    .bind(i64::from(rules.pause_factor))
    .execute(connection)
    .await?;
    Ok(())
}

//! The partitions of attempts and events, one a day: made ahead, and dropped as
//! a whole once they are old and nothing in them is needed.
//!
//! A day goes in three steps, each of which can be the last before a crash: it
//! is detached, concurrently, which waits for those who still read it and keeps
//! nobody else waiting; it is looked through once more, now that nobody can
//! write to it; and it is dropped, or attached again. What is found half done is
//! finished first. A day in which something is needed stays as it is: its other
//! rows go one by one.

use std::time::Duration;

use domain::retention::{Kept, Retention};
use domain::time::micros;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use super::failure::{Failure, in_words};
use super::horizon::{self, COUNTED, NOT_OVER};
use crate::row::row;

/// Days after today that have their partitions. So many may pass with nobody
/// there who makes more before an event has nowhere to go.
pub(super) const DAYS_AHEAD: i32 = 3;

/// Days that one step looks at, the oldest first, each in both tables.
const DAYS_A_STEP: i64 = 4;

/// No day of events goes while a row of the outbox is older: relays are behind,
/// and its event may be of an old day.
const OUTBOX_BEHIND: Duration = Duration::from_secs(3_600);

/// How long what is over is kept; `None` is for ever.
#[derive(Debug, Clone, Copy)]
pub struct DayAges {
    /// Events, from the end of their day.
    pub events: Option<Duration>,
    /// Attempts, from when they ended.
    pub attempts: Option<Duration>,
    /// Dead letters that can be replayed, from when they died.
    pub dead_letters: Option<Duration>,
}

impl DayAges {
    /// Those that are configured.
    #[must_use]
    pub fn of(keep: &Retention) -> Self {
        let age = |kept: Kept| match kept {
            Kept::For(age) => Some(age),
            Kept::Forever => None,
        };
        Self {
            events: age(keep.payloads),
            attempts: age(keep.ledger),
            dead_letters: age(keep.dead_letters),
        }
    }
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaysKept {
    /// Partitions that were made.
    pub made: i32,
    /// Partitions that are gone.
    pub dropped: Vec<String>,
    /// Partitions that are old, but still needed or still read.
    pub left: Vec<String>,
}

/// What a step did, and where the next goes on.
#[derive(Debug, Default)]
pub(super) struct DaysStep {
    pub(super) kept: DaysKept,
    /// The end of the last day that it looked at, in days since 1970; `None` if
    /// it could look at none, or not at all that it was to look at.
    pub(super) last: Option<i64>,
    /// There may be more that are old.
    pub(super) more: bool,
}

/// What the session is told that detaches and drops. It may wait for readers
/// while everybody else goes on; a lock it does not wait for, since others would
/// wait behind it. Whether a day ended late is asked of a summary of its pages,
/// which takes a bitmap scan; a planner that may read the whole day does so.
const PATIENCE: &str = "-- keep_days: patience
    set statement_timeout = '15s';
    set lock_timeout = '1s';
    set plan_cache_mode = auto;
    set enable_bitmapscan = on";

/// Makes the days that are missing; how many partitions that were.
pub(super) async fn make(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar(
        "-- make_days
        select ensure_days($1)",
    )
    .bind(DAYS_AHEAD)
    .fetch_one(connection)
    .await
}

/// The same where the last of them is missing, which costs a look in the
/// catalog. What goes wrong is told and left to the next call: there are days
/// left until it matters, and whoever calls has other things to do.
pub(super) async fn make_if_missing(pool: &PgPool) {
    let made: Result<Option<i32>, sqlx::Error> = sqlx::query_scalar(
        "-- make_days
        select ensure_days($1)
        where not has_day(utc_day(clock_timestamp()) + $1)
            or coalesce(pg_sequence_last_value('attempts_id_seq'), 0)
                >= first_attempt_id(utc_day(clock_timestamp()) + $1 + 1)",
    )
    .bind(DAYS_AHEAD)
    .fetch_optional(pool)
    .await;
    if let Err(error) = made {
        let error = in_words(&error);
        tracing::error!(error, "no partitions for the days that come");
    }
}

/// Makes those that somebody needs now; what goes wrong is told.
pub(super) async fn make_owed(pool: &PgPool) {
    let made = async { make(&mut *pool.acquire().await?).await };
    if let Err(error) = made.await {
        let error = in_words(&error);
        tracing::error!(error, "no partition for what is owed");
    }
}

/// Whether events and attempts of today have somewhere to go.
pub(super) async fn has_today(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- ready: has_today
        select has_day(utc_day(clock_timestamp()))",
    )
    .fetch_one(pool)
    .await
}

/// A whole round: steps until none is left that is old and was not looked at.
pub(super) async fn keep_days(pool: &PgPool, ages: &DayAges) -> Result<DaysKept, Failure> {
    let (mut kept, mut after) = (DaysKept::default(), 0);
    loop {
        let step = step(pool, ages, after).await?;
        kept.made += step.kept.made;
        kept.dropped.extend(step.kept.dropped);
        kept.left.extend(step.kept.left);
        match step.last {
            Some(last) if step.more => after = last,
            _ => return Ok(kept),
        }
    }
}

/// One step: makes the days that come, finishes what was left half done, drops days
/// that are over, of those that ended after `after`, and raises the horizon. One
/// process at a time drops; the others do not. Repeating it does what is left; a
/// crash leaves at most one detached day, which the next step finds.
pub(super) async fn step(pool: &PgPool, ages: &DayAges, after: i64) -> Result<DaysStep, Failure> {
    let mut step = DaysStep::default();
    step.kept.made = make(&mut *pool.acquire().await?).await?;
    let days = old(&mut *pool.acquire().await?, ages, after).await?;
    let due = horizon::is_due(&mut *pool.acquire().await?).await;
    if days.is_empty() && !due.unwrap_or(false) {
        return Ok(step);
    }
    // Closed afterwards: its settings and its lock are nobody else's.
    let mut connection = pool.acquire().await?.detach();
    let done = with_patience(&mut connection, ages, days, &mut step).await;
    connection.close().await?;
    done.map(|()| step)
}

async fn with_patience(
    connection: &mut PgConnection,
    ages: &DayAges,
    days: Vec<Day>,
    step: &mut DaysStep,
) -> Result<(), Failure> {
    sqlx::raw_sql(PATIENCE).execute(&mut *connection).await?;
    if !days.is_empty() {
        drop_days(connection, ages, days, step).await?;
    }
    // Low is right: retention goes on without it.
    if let Err(Failure::Database(error)) = horizon::raise(connection).await {
        let error = in_words(&error);
        tracing::warn!(error, "the horizon stays where it is");
    }
    Ok(())
}

async fn drop_days(
    connection: &mut PgConnection,
    ages: &DayAges,
    days: Vec<Day>,
    step: &mut DaysStep,
) -> Result<(), Failure> {
    let ours: bool = sqlx::query_scalar(
        "-- keep_days: turn
        select pg_try_advisory_lock('attempts'::regclass::oid::integer, 'events'::regclass::oid::integer)",
    )
    .fetch_one(&mut *connection)
    .await?;
    if !ours {
        return Ok(());
    }
    let whole = days.iter().filter(|day| !day.detached && !day.pending);
    let last = whole.map(|day| day.ends).max();
    let more = days.iter().any(|day| day.place >= DAYS_A_STEP);
    for day in days {
        match day.forget(connection, ages).await {
            Ok(true) => step.kept.dropped.push(day.name),
            Ok(false) => step.kept.left.push(day.name),
            // Somebody reads it. It stays for now, and so do younger ones: only
            // one day of a table can be half detached.
            Err(failure) if is_busy(&failure) => {
                step.kept.left.push(day.name);
                return Ok(());
            }
            // Something of a user's depends on it, say: no reason for younger
            // ones to stay.
            Err(Failure::Database(sqlx::Error::Database(error))) => {
                let (name, error) = (&day.name, error.message());
                tracing::error!(day = name, error, "a day that is over cannot be dropped");
                step.kept.left.push(day.name);
            }
            Err(failure) => return Err(failure),
        }
    }
    (step.last, step.more) = (last, more);
    Ok(())
}

/// A timeout of a lock or of a statement.
fn is_busy(failure: &Failure) -> bool {
    let Failure::Database(sqlx::Error::Database(error)) = failure else {
        return false;
    };
    matches!(error.code().as_deref(), Some("55P03" | "57014"))
}

row! {
    /// The table of a day, all of which is older than its age.
    #[derive(Debug)]
    struct Day {
        /// Without its schema, which is the parent's.
        name: String,
        /// Both quoted, as statements need them.
        parent_table: String,
        table: String,
        /// How it is attached, as `attach partition` has it.
        bounds: String,
        /// It is none of the parent's partitions any more.
        detached: bool,
        /// Its detaching was interrupted.
        pending: bool,
        /// The day, for events.
        day: Option<String>,
        /// Its end, in days since 1970.
        ends: i64,
        /// Of its day among those to go, from 1 on.
        place: i64,
    }
}

/// Days to go, the oldest first; before them what was left half done.
async fn old(
    connection: &mut PgConnection,
    ages: &DayAges,
    after: i64,
) -> Result<Vec<Day>, Failure> {
    let attempts = ages.attempts.map(|age| age.max(COUNTED));
    Ok(sqlx::query_as(
        "-- keep_days: old
        with ages as (
            select t.parent, p.relnamespace as home, p.oid,
                clock_timestamp() - t.age * interval '1 microsecond' as cut
            from (values ('ledger', $1::bigint), ('events', $2::bigint)) as t (parent, age)
            join pg_class p on p.oid = to_regclass(t.parent)
        ),
        days as (
            select a.parent, a.cut, c.relname::text as name,
                a.oid::regclass::text as parent_table, c.oid::regclass::text as table,
                day_bounds(c.relname) as bounds,
                i.inhrelid is null as detached, coalesce(i.inhdetachpending, false) as pending,
                partition_day(c.relname) as day
            from ages a
            join pg_class c on c.relnamespace = a.home and c.relkind = 'r'
                and starts_with(c.relname, a.parent || '_')
                and partition_day(c.relname) is not null
            left join pg_inherits i on i.inhrelid = c.oid
        ),
        ended as (
            select d.*, e.ends,
                dense_rank() over (order by not (d.detached or d.pending), e.ends) as place
            from days d
            cross join lateral (select d.day + 1 as ends) e
            where d.detached or d.pending
                or (e.ends <= utc_day(d.cut) and e.ends > date '1970-01-01' + $4::bigint::integer)
        )
        select e.name, e.parent_table, e.table, e.bounds, e.detached, e.pending,
            case e.parent when 'events' then to_char(e.day, 'YYYY-MM-DD') end as day,
            (e.ends - date '1970-01-01')::bigint as ends, e.place
        from ended e
        where e.place <= $3
        order by not (e.detached or e.pending), e.ends, e.parent",
    )
    .bind(attempts.map(micros))
    .bind(ages.events.map(micros))
    .bind(DAYS_A_STEP)
    .bind(after)
    .fetch_all(connection)
    .await?)
}

impl Day {
    /// Drops it, if nothing in it is needed; whether it is gone.
    async fn forget(&self, connection: &mut PgConnection, ages: &DayAges) -> Result<bool, Failure> {
        let (parent, table) = (&self.parent_table, &self.table);
        if self.pending {
            let finalize = format!("alter table {parent} detach partition {table} finalize");
            execute(connection, finalize).await?;
        } else if !self.detached {
            if self.is_needed(connection, ages).await? {
                return Ok(false);
            }
            let detach = format!("alter table {parent} detach partition {table} concurrently");
            execute(connection, detach).await?;
        }
        // Between the look and the detaching somebody may have come to need it.
        if self.is_needed(connection, ages).await? {
            let bounds = &self.bounds;
            let attach = format!("alter table {parent} attach partition {table} {bounds}");
            execute(connection, attach).await?;
            return Ok(false);
        }
        execute(connection, format!("drop table {table}")).await?;
        Ok(true)
    }

    async fn is_needed(
        &self,
        connection: &mut PgConnection,
        ages: &DayAges,
    ) -> Result<bool, Failure> {
        match &self.day {
            Some(day) => needs_event_of(connection, day).await,
            None => self.has_needed_attempt(connection, ages).await,
        }
    }

    /// Something that is not over, a dead letter that can be replayed or that a
    /// running replay may come to, or what ended later than the day did and so is
    /// not old yet.
    async fn has_needed_attempt(
        &self,
        connection: &mut PgConnection,
        ages: &DayAges,
    ) -> Result<bool, Failure> {
        let (table, not_over) = (&self.table, NOT_OVER);
        let sql = format!(
            "-- keep_days: has_needed_attempt
            select {not_over}
                or exists (
                    select from {table} a
                    where a.dead_letter and a.replayed_at is null
                        and ($3::bigint is null or coalesce(a.finished_at, a.started_at)
                            >= clock_timestamp() - $3 * interval '1 microsecond'
                        or exists (
                            select from replays r
                            where r.state = 'running' and r.destination_id = a.destination_id
                                and (r.attempt_id is null or r.attempt_id = a.id)
                                and coalesce(a.finished_at, a.started_at)
                                    >= coalesce(r.died_from, '-infinity')
                                and coalesce(a.finished_at, a.started_at) < r.died_before
                        ))
                )
                or $1::bigint is null
                or exists (
                    select from {table}
                    where coalesce(finished_at, started_at)
                        >= (select clock_timestamp() - $1 * interval '1 microsecond')
                )"
        );
        let attempts = ages.attempts.map(|age| micros(age.max(COUNTED)));
        Ok(sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(attempts)
            .bind((self.ends - 1) << 36)
            .bind(ages.dead_letters.map(micros))
            .fetch_one(connection)
            .await?)
    }
}

/// Whether an attempt that is not over, a dead letter that can be replayed, or a
/// row of the outbox may need an event of that day. Dead letters are over when
/// their own walk says so, whatever their age: until then they are replayed.
/// Reads all that is pending, row by row: once for each day that is over.
async fn needs_event_of(connection: &mut PgConnection, day: &str) -> Result<bool, Failure> {
    Ok(sqlx::query_scalar(
        "-- keep_days: needs_event_of
        select coalesce((
                select o.created_at < clock_timestamp() - $2::bigint * interval '1 microsecond'
                from outbox o order by o.position limit 1
            ), false)
            or exists (
                select from deliveries a where event_day(a.event_id) = $1::text::date
            )
            or exists (
                select from ledger a
                where a.dead_letter and a.replayed_at is null
                    and event_day(a.event_id) = $1::text::date
            )",
    )
    .bind(day)
    .bind(micros(OUTBOX_BEHIND))
    .fetch_one(connection)
    .await?)
}

/// A statement of its own, outside any transaction.
async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), Failure> {
    let sql = AssertSqlSafe(format!("-- keep_days\n{sql}"));
    sqlx::raw_sql(sql).execute(connection).await?;
    Ok(())
}

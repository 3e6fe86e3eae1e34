//! What nobody came back for. Every row is locked, skipping those that are
//! held, and rechecked by the lock itself: a row that moved on meanwhile no
//! longer matches.

use std::time::Duration;

use domain::admission::MAX_REQUEST_TIMEOUT;
use domain::attempt::follow_up::{self, after_unknown};
use domain::ids::DestinationId;
use domain::limit::Period;
use domain::retry::DEFAULT_MAX_TRIES;
use domain::time::{Timestamp, micros};
use engine::ports::{
    DRAINED_AFTER, NO_OUTCOME_IN_TIME, PutOff, REAP_PART_BOUND, ReapRules, Reaped, StoreError,
    WORKER_IS_GONE, Wakes,
};
use sqlx::postgres::PgQueryResult;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::connect::BEGIN_HURRIED;
use super::days;
use super::expire::expire;
use super::failure::{Failure, retried};
use super::fold;
use super::id_range::IdRange;
use super::over::moving;
use super::record::{Retry, insert_retries};
use super::rows::{count, integer};
use super::tenants;
use crate::row::row;

/// How long a worker that is gone is remembered.
const FORGET_WORKERS_AFTER: Duration = Duration::from_secs(3_600);

/// Deleted destinations that one pass looks at.
const TO_DRAIN: i64 = 200;

/// One pass, at most `limit` rows of each kind. Each part has a transaction and a
/// time of its own: what one of them meets does not undo what the others do.
pub(super) async fn reap(
    pool: &PgPool,
    rules: &ReapRules,
    limit: u32,
) -> Result<Reaped, StoreError> {
    let mut pass = Pass {
        pool,
        rules,
        limit,
        reaped: Reaped::default(),
        wakes: Wakes::default(),
    };
    let mut ended = pass.urgent().await;
    if rules.everything && ended.is_ok() {
        ended = pass.rest().await;
    }
    let mut reaped = pass.reaped;
    reaped.wakes = pass.wakes.into_vec();
    match ended {
        Ok(()) => Ok(reaped),
        Err(failure) => reaped.cut_short_by(failure.into()),
    }
}

struct Pass<'p> {
    pool: &'p PgPool,
    rules: &'p ReapRules,
    limit: u32,
    reaped: Reaped,
    wakes: Wakes,
}

impl Pass<'_> {
    async fn urgent(&mut self) -> Result<(), Failure> {
        let found = match look_at_urgent(self.pool, self.rules).await {
            Ok(found) => found,
            // Each part looks for itself, in its own time.
            Err(failure) => {
                self.put_off("the look for what is over", failure)?;
                [true; 2]
            }
        };
        self.parts(Part::URGENT, found).await
    }

    /// After what limits wait for, which nothing that is met here holds up in this pass.
    async fn rest(&mut self) -> Result<(), Failure> {
        let found = match look_at_rest(self.pool).await {
            // The part that meets the same says so, and the others go on.
            Err(failure) if failure.is_of_its_own() => {
                let problem = StoreError::from(failure);
                tracing::debug!(%problem, "each part of reaping looks for itself");
                [true; 6]
            }
            found => found?,
        };
        self.parts(Part::REST, found).await
    }

    /// Those of which something was found.
    async fn parts<const N: usize>(
        &mut self,
        parts: [Part; N],
        found: [bool; N],
    ) -> Result<(), Failure> {
        for (part, is_found) in parts.into_iter().zip(found) {
            if is_found {
                self.part(part).await?;
            }
        }
        Ok(())
    }

    async fn part(&mut self, part: Part) -> Result<(), Failure> {
        match retried(|| in_bound(self.pool, part, self.rules, self.limit)).await {
            Ok(done) => {
                for destination in &done.freed {
                    self.wakes.now(DestinationId(*destination));
                }
                match part {
                    Part::Permits => self.reaped.expired_permits = done.rows,
                    Part::Starts => self.reaped.unknown_starts = done.rows,
                    Part::Deleted => self.reaped.cancelled = done.rows,
                    Part::Expired => self.reaped.expired = done.rows,
                    Part::Tenants | Part::Keys | Part::Workers | Part::Buckets => {}
                }
                self.reaped.more |= done.more;
                Ok(())
            }
            Err(failure) => {
                // Where it is to end; the next pass finds it.
                if failure.is_without_a_day() {
                    days::make_owed(self.pool).await;
                }
                self.put_off(part.as_str(), failure)
            }
        }
    }

    /// What has met something of its own costs the others nothing. Anything else ends the pass.
    fn put_off(&mut self, part: &'static str, failure: Failure) -> Result<(), Failure> {
        if !failure.is_of_its_own() {
            return Err(failure);
        }
        self.reaped.put_off.push(PutOff {
            part,
            problem: StoreError::from(failure).to_string(),
        });
        Ok(())
    }
}

/// What a pass consists of, in this order.
#[derive(Debug, Clone, Copy)]
enum Part {
    Permits,
    Starts,
    Tenants,
    Deleted,
    Expired,
    Keys,
    Workers,
    Buckets,
}

impl Part {
    /// For these limits wait.
    const URGENT: [Self; 2] = [Self::Permits, Self::Starts];

    const REST: [Self; 6] = [
        Self::Tenants,
        Self::Deleted,
        Self::Expired,
        Self::Keys,
        Self::Workers,
        Self::Buckets,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Permits => "expired permits",
            Self::Starts => "starts without an outcome",
            Self::Tenants => "deleted tenants",
            Self::Deleted => "deleted destinations",
            Self::Expired => "expired attempts",
            Self::Keys => "idempotency keys",
            Self::Workers => "workers that are gone",
            Self::Buckets => "buckets of starts",
        }
    }
}

/// Which of [`Part::URGENT`] would find something, by one statement that needs no transaction:
/// most passes find nothing.
async fn look_at_urgent(pool: &PgPool, rules: &ReapRules) -> Result<[bool; 2], Failure> {
    let look = of_start(&of_permit(LOOK_AT_URGENT, "$3"));
    let found: (bool, bool) = sqlx::query_as(AssertSqlSafe(look))
        .bind(micros(rules.start_timeout))
        .bind(micros(rules.heartbeat_timeout))
        .bind(micros(rules.permit_grace))
        .fetch_one(pool)
        .await?;
    Ok(found.into())
}

const LOOK_AT_URGENT: &str = "-- reap: look at what limits wait for
    with clock as materialized (select clock_timestamp() as now),
    lapsed as materialized (
        {lapsed}
    )
    select coalesce(bool_or({permit_is_over}), false),
        coalesce(bool_or(a.state = 'started' and {start_is_over}), false) or exists (
            select from deliveries a where a.carried_by is not null and {start_is_over}
        )
    from deliveries a where a.permit is not null and a.carried_by is null";

/// Which of [`Part::REST`] may find something: by one statement in place of six transactions.
/// Where somebody holds a lock on one of their tables it soon gives up.
async fn look_at_rest(pool: &PgPool) -> Result<[bool; 6], Failure> {
    let mut transaction = pool.begin_with(BEGIN_HURRIED).await?;
    let found: (bool, bool, bool, bool, bool, bool) = sqlx::query_as(LOOK_AT_REST)
        .bind(micros(FORGET_WORKERS_AFTER))
        .bind(Period::ALL.map(Period::as_str).as_slice())
        .bind(bucket_ages().as_slice())
        .fetch_one(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(found.into())
}

const LOOK_AT_REST: &str = "-- reap: look at the rest
    with clock as materialized (select clock_timestamp() as now)
    select
        exists (
            select from tenants n where n.deleted_at is not null and n.emptied_at is null
        ),
        exists (
            select from destinations d where d.deleted_at is not null and d.drained_at is null
        ),
        exists (
            select from deliveries a
            where a.permit is null and a.expires_at <= (select now from clock)
        ),
        exists (
            select from idempotency_keys k where k.expires_at <= (select now from clock)
        ),
        exists (
            select from workers w
            where w.seen_at < (select now from clock) - $1::bigint * interval '1 microsecond'
        ),
        exists (
            select from unnest($2::text[], $3::bigint[]) as n (period, age)
            cross join lateral (
                select from start_buckets b
                where b.period = n.period
                    and micros(b.ends_at) < micros((select now from clock)) - n.age
                -- Or the primary key would do as well, and all of it would be read.
                order by micros(b.ends_at)
                limit 1
            ) o
        )";

/// Whether what is held is a permit that nobody may use any more.
const PERMIT_IS_OVER: &str = "a.state = 'admitted'
                and a.deadline < (select now from clock)
                    - {grace}::bigint * interval '1 microsecond'";

/// Whether what has started may have been left alone: longer ago than `$1`, or by a worker
/// that has been silent for longer than `$2`.
const START_IS_OVER: &str = "(
                    a.claimed_at < (select now from clock) - $1::bigint * interval '1 microsecond'
                    or a.worker_id = any ((select ids from lapsed)::uuid[])
                )";

/// Workers that are silent. What went longer ago has no start that is not too old as well.
const LAPSED: &str = "select coalesce(array_agg(w.id), '{}') as ids from workers w
        where w.seen_at < (select now from clock) - $2::bigint * interval '1 microsecond'
            and w.seen_at > (select now from clock) - $1::bigint * interval '1 microsecond'
                - $2::bigint * interval '1 microsecond' - interval '1 minute'";

/// The statement, with the grace of a permit bound there.
fn of_permit(statement: &str, grace: &str) -> String {
    let text = statement.replace("{permit_is_over}", PERMIT_IS_OVER);
    text.replace("{grace}", grace)
}

/// The statement, with what is known of starts.
fn of_start(statement: &str) -> String {
    let text = statement.replace("{start_is_over}", START_IS_OVER);
    text.replace("{lapsed}", LAPSED)
}

/// What one part did.
#[derive(Default)]
struct Done {
    rows: u32,
    /// Whose admission may go on.
    freed: Vec<Uuid>,
    /// Though `rows` does not say so.
    more: bool,
}

impl Done {
    fn of(rows: u32) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }
}

async fn in_bound(
    pool: &PgPool,
    part: Part,
    rules: &ReapRules,
    limit: u32,
) -> Result<Done, Failure> {
    let bound = REAP_PART_BOUND.as_millis();
    let begin = format!("begin; set local statement_timeout = {bound}");
    let mut transaction = pool.begin_with(AssertSqlSafe(begin)).await?;
    let done = match part {
        Part::Permits => expire_permits(&mut transaction, rules, limit).await?,
        Part::Starts => give_up_starts(&mut transaction, rules, limit).await?,
        Part::Tenants => Done {
            more: tenants::empty(&mut transaction).await?,
            ..Done::default()
        },
        Part::Deleted => drain_deleted(&mut transaction, limit).await?,
        Part::Expired => Done::of(expire(&mut transaction, limit).await?),
        Part::Keys => forget_keys(&mut transaction, limit).await?,
        Part::Workers => forget_workers(&mut transaction).await?,
        Part::Buckets => forget_buckets(&mut transaction, limit).await?,
    };
    transaction.commit().await?;
    Ok(done)
}

/// Permits past their deadline wait again.
async fn expire_permits(
    connection: &mut PgConnection,
    rules: &ReapRules,
    limit: u32,
) -> Result<Done, Failure> {
    let expired: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(of_permit(
        "-- reap: expire_permits
        with clock as materialized (select clock_timestamp() as now),
        locked as materialized (
            select a.id from deliveries a
            where a.permit is not null and a.carried_by is null and {permit_is_over}
            order by a.deadline
            limit $2
            for update skip locked
        )
        update deliveries a
        set state = 'waiting', due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        from locked l
        where a.id = any (array[l.id])
        returning a.destination_id",
        "$1",
    )))
    .bind(micros(rules.permit_grace))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    Ok(Done {
        rows: u32::try_from(expired.len()).unwrap_or(u32::MAX),
        freed: expired,
        more: false,
    })
}

row! {
    /// A start that was given up.
    struct GivenUp {
        now: i64,
        id: i64,
        event_id: Uuid,
        destination_id: Uuid,
        tenant_id: Uuid,
        try_number: i32,
        tries_before: i32,
        expires_at: Option<i64>,
        payload_bytes: i32,
        batch_limit: Option<i32>,
        max_tries: i32,
        /// It was not alone.
        is_batch: bool,
        claimed_at: i64,
        started_at: i64,
        to_fold: bool,
        destination_is_gone: bool,
    }
}

impl GivenUp {
    fn start(&self) -> follow_up::GivenUp {
        let number = |number: i32| count(i64::from(number));
        follow_up::GivenUp {
            try_number: number(self.try_number),
            tries_before: number(self.tries_before),
            max_tries: number(self.max_tries),
            is_batch: self.is_batch,
            batch_limit: self.batch_limit.map(number),
            destination_is_gone: self.destination_is_gone,
        }
    }

    fn followed_by(&self, retry: &follow_up::Retry) -> Retry {
        Retry {
            event: self.event_id,
            destination: self.destination_id,
            tenant: self.tenant_id,
            try_number: integer(retry.try_number),
            tries_before: self.tries_before,
            expires_at: self.expires_at,
            payload_bytes: self.payload_bytes,
            batch_limit: retry.batch_limit.map(integer),
            // What is given up may have been sent: it is the replay's.
            replay: None,
            urgent: false,
            due_at: retry.due_at.as_micros(),
            created_at: self.now,
        }
    }
}

const GIVE_UP_STARTS: &str = "-- reap: give_up_starts
    with clock as materialized (select clock_timestamp() as now),
    living as materialized (
        select coalesce(array_agg(w.id), '{}') as ids from workers w
        where w.seen_at >= (select now from clock) - $2::bigint * interval '1 microsecond'
    ),
    lapsed as materialized (
        {lapsed}
    ),
    started as materialized (
        select x.id from (
            select a.id, a.claimed_at from deliveries a
            where a.permit is not null and a.carried_by is null and a.state = 'started'
                and {start_is_over}
            union all
            select a.id, a.claimed_at from deliveries a
            where a.carried_by is not null and {start_is_over}
        ) x
        order by x.claimed_at, x.id
        limit $3
    ),
    locked as materialized (
        select a.id, a.coarse and not a.folded as to_fold,
            coalesce((d.retry_policy ->> 'max_tries')::integer, $4) as max_tries,
            (a.carried_by is not null or a.batch_size is not null)
                and a.batch_limit is distinct from 1 as is_batch,
            d.deleted_at is not null as destination_is_gone,
            (a.worker_id = any ((select ids from living)::uuid[])) is not true
                as worker_is_gone
        from started s
        join deliveries a on a.id = any (array[s.id])
        join destinations d on d.id = any (array[a.destination_id])
        where a.state = 'started'
            and (
                a.claimed_at < (select now from clock) - $1::bigint * interval '1 microsecond'
                or (a.worker_id = any ((select ids from living)::uuid[])) is not true
            )
        order by a.claimed_at, a.id
        limit $3
        for update of a skip locked
    ),
    gone as (
        delete from deliveries a using locked l
        where a.id = any (array[l.id])
        returning a.*, l.to_fold, l.max_tries, l.is_batch, l.destination_is_gone,
            case when l.worker_is_gone then $5 else $6 end as problem
    ),
    written as (
        insert into ledger ({kept}, {started}, started_at, counted_at, folded, state, error)
        select {kept}, {started}, started_at,
            case when by_response then started_at + $7::bigint * interval '1 microsecond' end,
            folded or coarse, 'unknown', problem
        from gone
    )
    select (select micros(now) from clock) as now, a.id, a.event_id, a.destination_id,
        a.tenant_id, a.try_number, a.tries_before, micros(a.expires_at) as expires_at,
        a.payload_bytes, a.batch_limit, a.max_tries, a.is_batch,
        micros(a.claimed_at) as claimed_at,
        micros(a.started_at) as started_at, a.to_fold, a.destination_is_gone
    from gone a";

/// Starts whose workers are gone, or that are too old, become unknown: in the
/// order in which they started.
async fn mark_unknown(
    connection: &mut PgConnection,
    rules: &ReapRules,
    limit: u32,
) -> Result<Vec<GivenUp>, Failure> {
    let mut rows: Vec<GivenUp> = sqlx::query_as(moving(&of_start(GIVE_UP_STARTS)))
        .bind(micros(rules.start_timeout))
        .bind(micros(rules.heartbeat_timeout))
        .bind(i64::from(limit))
        .bind(integer(DEFAULT_MAX_TRIES))
        .bind(WORKER_IS_GONE)
        .bind(NO_OUTCOME_IN_TIME)
        .bind(micros(MAX_REQUEST_TIMEOUT))
        .fetch_all(connection)
        .await?;
    // They come in any order.
    rows.sort_unstable_by_key(|row| (row.claimed_at, row.id));
    Ok(rows)
}

/// These are dead letters.
async fn end(connection: &mut PgConnection, last: &[i64]) -> Result<(), Failure> {
    if last.is_empty() {
        return Ok(());
    }
    sqlx::query(IdRange::of(last).told(
        "-- reap: end
        update ledger a set dead_letter = true where a.id {in_days} and a.id = any ($1)",
    ))
    .bind(last)
    .execute(connection)
    .await?;
    Ok(())
}

/// Each of them is followed by a retry, if there may be one.
async fn give_up_starts(
    connection: &mut PgConnection,
    rules: &ReapRules,
    limit: u32,
) -> Result<Done, Failure> {
    let rows = mark_unknown(connection, rules, limit).await?;
    let (mut last, mut retries) = (Vec::new(), Vec::new());
    for row in &rows {
        let next = after_unknown(&row.start(), Timestamp::from_micros(row.now));
        if next.dead_letter {
            last.push(row.id);
        }
        retries.extend(next.retry.map(|retry| row.followed_by(&retry)));
    }
    end(connection, &last).await?;
    insert_retries(connection, &retries).await?;
    let folds = (rows.iter().filter(|row| row.to_fold)).map(|row| {
        let started_at = Timestamp::from_micros(row.started_at);
        (DestinationId(row.destination_id), started_at)
    });
    fold::add_starts(connection, folds, fold::shard(None)).await?;
    Ok(Done {
        rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        freed: rows.iter().map(|row| row.destination_id).collect(),
        more: false,
    })
}

/// The backlog of deleted destinations, a step of it: of those first that were
/// deleted first, and of none that has been drained.
async fn drain_deleted(connection: &mut PgConnection, limit: u32) -> Result<Done, Failure> {
    let cancelled = sqlx::query(moving(
        "-- reap: cancel_deleted
        with deleted as materialized (
            select d.id from destinations d
            where d.deleted_at is not null and d.drained_at is null
            order by d.deleted_at, d.id
            limit $2
        ),
        backlog as materialized (
            select b.id
            from deleted d
            cross join lateral (
                (
                    select a.id from deliveries a
                    where a.destination_id = d.id and a.permit is null and a.due_at is null
                    order by a.id + 0 limit $1
                )
                union all
                (
                    select a.id from deliveries a
                    where a.destination_id = d.id and a.permit is null and a.due_at is not null
                    order by a.urgent desc, a.due_at limit $1
                )
            ) b
            limit $1
        ),
        locked as materialized (
            select a.id from backlog b
            join deliveries a on a.id = any (array[b.id])
            where a.state = 'waiting'
            order by b.id
            for update of a skip locked
        ),
        gone as (
            delete from deliveries a using locked l where a.id = any (array[l.id]) returning a.*
        )
        insert into ledger ({kept}, state) select {kept}, 'cancelled' from gone",
    ))
    .bind(i64::from(limit))
    .bind(TO_DRAIN)
    .execute(&mut *connection)
    .await?;
    let drained = mark_drained(connection).await?;
    Ok(Done {
        rows: moved(&cancelled),
        more: drained >= TO_DRAIN,
        ..Done::default()
    })
}

/// Those of which nothing waits, has a permit or is under way, and that were
/// deleted long enough ago, are not looked at again. How many.
async fn mark_drained(connection: &mut PgConnection) -> Result<i64, Failure> {
    let drained = sqlx::query(
        "-- reap: mark_drained
        with deleted as materialized (
            select d.id from destinations d
            where d.deleted_at is not null and d.drained_at is null
            order by d.deleted_at, d.id
            limit $1
        ),
        empty as materialized (
            select d.id from deleted d
            where not exists (
                    select from deliveries a
                    where a.destination_id = d.id and a.permit is null and a.due_at is null
                    offset 0
                )
                and not exists (
                    select from deliveries a
                    where a.destination_id = d.id and a.permit is null and a.due_at is not null
                    offset 0
                )
                and not exists (
                    select from deliveries a
                    where a.destination_id = d.id and a.permit is not null
                        and a.carried_by is null
                    offset 0
                )
                and not exists (
                    select from deliveries a
                    where a.destination_id = d.id and a.carried_by is not null
                    offset 0
                )
        ),
        locked as materialized (
            select d.id from destinations d
            where d.id in (select id from empty) and d.drained_at is null
                and d.deleted_at < clock_timestamp() - $2::bigint * interval '1 microsecond'
            order by d.id
            for no key update skip locked
        )
        update destinations d set drained_at = clock_timestamp()
        from locked l
        where d.id = l.id",
    )
    .bind(TO_DRAIN)
    .bind(micros(DRAINED_AFTER))
    .execute(connection)
    .await?;
    Ok(i64::from(moved(&drained)))
}

fn moved(done: &PgQueryResult) -> u32 {
    u32::try_from(done.rows_affected()).unwrap_or(u32::MAX)
}

/// How long a bucket of each period is kept, in microseconds: what no window can reach any
/// more is older. A margin of 1 makes a period twice as long, so it is two periods and a
/// minute.
fn bucket_ages() -> [i64; Period::ALL.len()] {
    Period::ALL.map(|period| micros(period.duration() * 2 + Duration::from_secs(60)))
}

/// Buckets that no window can reach any more.
async fn forget_buckets(connection: &mut PgConnection, limit: u32) -> Result<Done, Failure> {
    let periods = Period::ALL.map(Period::as_str);
    let forgotten = sqlx::query(
        "-- reap: forget_buckets
        with old as materialized (
            select o.destination_id, o.period, o.ends_at, o.shard
            from unnest($1::text[], $2::bigint[]) as n (period, age)
            cross join lateral (
                select b.destination_id, b.period, b.ends_at, b.shard
                from start_buckets b
                where b.period = n.period
                    and micros(b.ends_at) < micros(clock_timestamp()) - n.age
                order by micros(b.ends_at)
                limit $3
                for update skip locked
            ) o
        )
        delete from start_buckets b
        using old o
        where b.destination_id = any (array[o.destination_id]) and b.period = any (array[o.period])
            and b.ends_at = o.ends_at and b.shard = o.shard",
    )
    .bind(periods.as_slice())
    .bind(bucket_ages().as_slice())
    .bind(i64::from(limit))
    .execute(connection)
    .await?;
    Ok(Done {
        more: moved(&forgotten) >= limit,
        ..Done::default()
    })
}

/// Idempotency keys that have expired.
async fn forget_keys(connection: &mut PgConnection, limit: u32) -> Result<Done, Failure> {
    let forgotten = sqlx::query(
        "-- reap: forget_keys
        with old as materialized (
            select k.tenant_id, k.key from idempotency_keys k
            where k.expires_at <= clock_timestamp()
            order by k.expires_at
            limit $1
            for update skip locked
        )
        delete from idempotency_keys k
        using old o
        where k.tenant_id = any (array[o.tenant_id]) and k.key = any (array[o.key])",
    )
    .bind(i64::from(limit))
    .execute(connection)
    .await?;
    Ok(Done {
        more: moved(&forgotten) >= limit,
        ..Done::default()
    })
}

/// Workers long gone.
async fn forget_workers(connection: &mut PgConnection) -> Result<Done, Failure> {
    sqlx::query(
        "-- reap: forget_workers
        delete from workers w
        where w.seen_at < clock_timestamp() - $1::bigint * interval '1 microsecond'",
    )
    .bind(micros(FORGET_WORKERS_AFTER))
    .execute(connection)
    .await?;
    Ok(Done::default())
}

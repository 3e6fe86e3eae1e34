//! Handshakes: who is asked, and what is allowed by it; see
//! [`engine::ports::Handshakes`] and [`engine::ports::HandshakeBook`].

use async_trait::async_trait;
use domain::handshake::{ASKED_AT_ONCE, ASKING, Answer, LONGEST_PAUSE, Standing, asked_rate};
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use domain::watch::News;
use engine::ports::{
    CatalogError, HandshakeBook, HandshakeRecorded, HandshakeView, Handshakes, Question, Questions,
    StoreError, Told,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};
use super::rows::{LimitColumns, count, integer, time, word};
use crate::row::row;

#[async_trait]
impl Handshakes for PostgresStore {
    async fn take_handshakes(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Questions, StoreError> {
        let after = after.map_or(Uuid::nil(), |tenant| tenant.0);
        Ok(retried(|| take(&self.pool, after, limit)).await?)
    }

    async fn record_handshake(
        &self,
        question: &Question,
        answer: &Answer,
    ) -> Result<HandshakeRecorded, StoreError> {
        Ok(retried(|| record(&self.pool, question, answer)).await?)
    }
}

row! {
    struct DueRow {
        id: Uuid,
        tenant_id: Uuid,
        url: String,
        asks: bool,
        numbers: Vec<Option<i32>>,
        unlimited: bool,
        shape: Option<String>,
        tier_numbers: Vec<Option<i32>>,
        tier_unlimited: bool,
        tier_shape: Option<String>,
    }
}

impl DueRow {
    fn question(self) -> Result<Question, Failure> {
        let columns = |table, numbers, unlimited, shape| LimitColumns {
            table,
            row: &self.id,
            numbers,
            unlimited,
            shape,
            safety_margin: None,
            margin_cap: None,
            count: None,
        };
        let shape = self.shape.as_deref();
        let own = columns("destinations", &self.numbers, self.unlimited, shape).settings()?;
        let (numbers, shape) = (&self.tier_numbers, self.tier_shape.as_deref());
        let tier = columns("tiers", numbers, self.tier_unlimited, shape).settings()?;
        Ok(Question {
            destination: DestinationId(self.id),
            tenant: TenantId(self.tenant_id),
            url: self.url.clone(),
            per_minute: asked_rate(&own.or_tier(&tier)),
            identity: None,
        })
    }
}

/// From one tenant to the next, past all that its neighbours have. By the time of the
/// statement, which an index can be asked for, and not by that of the clock.
const TAKE: &str = "-- take_handshakes
        with clock as materialized (select clock_timestamp() as now), in_turn as materialized (
            select h.destination_id
            from (
                select from handshakes
                where next_ask_at <= statement_timestamp()
                    and coalesce(asking_until, 'epoch') <= statement_timestamp()
                order by next_ask_at limit 1
            ) anybody
            cross join (values
                ($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid),
                ('00000000-0000-0000-0000-000000000000', $4)
            ) part (beyond, upto)
            cross join lateral (
                with recursive tenants (tenant_id) as (
                    (
                        select h.tenant_id from handshakes h
                        where h.tenant_id > part.beyond and h.tenant_id <= part.upto
                        order by h.tenant_id limit 1
                    )
                    union all
                    select n.tenant_id from tenants t
                    cross join lateral (
                        select h.tenant_id from handshakes h
                        where h.tenant_id > t.tenant_id and h.tenant_id <= part.upto
                        order by h.tenant_id limit 1
                    ) n
                )
                select tenant_id from tenants
            ) t
            cross join lateral (
                select h.destination_id from handshakes h
                where h.tenant_id = t.tenant_id and h.next_ask_at <= statement_timestamp()
                    and coalesce(h.asking_until, 'epoch') <= statement_timestamp()
                order by h.next_ask_at
                limit greatest($5 - (
                    select count(*) from handshakes u
                    where u.tenant_id = t.tenant_id and u.asking_until > statement_timestamp()
                ), 0)
            ) h
            limit $1
        ), due as materialized (
            select h.destination_id from in_turn i
            join handshakes h on h.destination_id = any (array[i.destination_id])
            where coalesce(h.asking_until, 'epoch') <= statement_timestamp()
            for update of h skip locked
        )
        update handshakes h
        set asking_until = case when d.state <> 'disabled'
                then clock.now + make_interval(secs => $2) end,
            next_ask_at = case when d.state <> 'disabled' then h.next_ask_at
                else clock.now + make_interval(secs => $3) end
        from clock, due, destinations d
        join tenants n on n.id = d.tenant_id
        join tiers t on t.name = n.tier
        where h.destination_id = due.destination_id and d.id = h.destination_id
        returning d.id, d.tenant_id, d.url, d.state <> 'disabled' as asks,
            array[
                d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day,
                d.burst, d.max_in_flight
            ] as numbers,
            d.unlimited, d.shape,
            array[
                t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day,
                t.burst, t.max_in_flight
            ] as tier_numbers,
            t.unlimited as tier_unlimited, t.shape as tier_shape";

async fn take(pool: &PgPool, after: Uuid, limit: u32) -> Result<Questions, Failure> {
    let mut rows: Vec<DueRow> = sqlx::query_as(TAKE)
        .bind(i64::from(limit))
        .bind(ASKING.as_secs_f64())
        .bind(LONGEST_PAUSE.as_secs_f64())
        .bind(after)
        .bind(i64::from(ASKED_AT_ONCE))
        .fetch_all(pool)
        .await?;
    rows.sort_by_key(|row| (row.tenant_id <= after, row.tenant_id));
    let turn = rows.last().map(|row| TenantId(row.tenant_id));
    let asked = rows.into_iter().filter(|row| row.asks);
    Ok(Questions {
        taken: asked.map(DueRow::question).collect::<Result<_, _>>()?,
        turn,
    })
}

row! {
    struct StandingRow {
        now: i64,
        next_ask_at: Option<i64>,
        asked_at: Option<i64>,
        outcome: Option<String>,
        problem: Option<String>,
        allowed_until: Option<i64>,
        failures: Option<i32>,
        allowed_per_minute: Option<i32>,
        tenant_id: Uuid,
        handshake: String,
    }
}

impl StandingRow {
    /// `None` where nobody is asked.
    fn standing(&self, id: DestinationId) -> Result<Option<Standing>, Failure> {
        let Some(next_ask_at) = self.next_ask_at else {
            return Ok(None);
        };
        let outcome = self.outcome.as_deref();
        let outcome = outcome.map(|text| word("handshakes", "outcome", id, text));
        let number = |number: i32| count(i64::from(number));
        Ok(Some(Standing {
            next_ask_at: Timestamp::from_micros(next_ask_at),
            asked_at: time(self.asked_at),
            outcome: outcome.transpose()?,
            problem: self.problem.clone(),
            allowed_until: time(self.allowed_until),
            failures: self.failures.map_or(0, number),
            allowed_per_minute: self.allowed_per_minute.map(number),
        }))
    }
}

/// The tier first, as in [`lock_tier`](super::catalog::lock_tier): what is allowed is a limit.
/// Then the destination: a change of its URL holds it, and then the handshake.
async fn record(
    pool: &PgPool,
    question: &Question,
    answer: &Answer,
) -> Result<HandshakeRecorded, Failure> {
    let id = question.destination;
    let mut transaction = pool.begin().await?;
    sqlx::query(
        "-- record_handshake: lock_tier
        select lock_tiers_of(array[d.tenant_id]) from destinations d where d.id = $1",
    )
    .bind(id.0)
    .execute(&mut *transaction)
    .await?;
    let is_there: Option<i32> = sqlx::query_scalar(
        "-- record_handshake: lock
        select 1 from destinations d
        where d.id = $1 and d.url = $2 and d.handshake <> 'none' and d.deleted_at is null
        for no key update",
    )
    .bind(id.0)
    .bind(&question.url)
    .fetch_optional(&mut *transaction)
    .await?;
    let row = match is_there {
        Some(_) => read(&mut transaction, id).await?,
        None => None,
    };
    let Some(row) = row else {
        return Ok(HandshakeRecorded::default());
    };
    let Some(before) = row.standing(id)? else {
        return Ok(HandshakeRecorded::default());
    };
    let after = before
        .clone()
        .after(answer, Timestamp::from_micros(row.now));
    write(&mut transaction, id, &after).await?;
    let changed = after.allowed_per_minute != before.allowed_per_minute;
    if changed {
        allow(&mut transaction, id, after.allowed_per_minute).await?;
    }
    let told = after.news(&before).map(|event_type| Told {
        destination: Some(id),
        tenant: TenantId(row.tenant_id),
        news: News {
            event_type,
            details: after.details(),
        },
    });
    if let Some(told) = &told {
        note(&mut transaction, told).await?;
    }
    transaction.commit().await?;
    Ok(HandshakeRecorded { changed, told })
}

async fn read(
    connection: &mut PgConnection,
    id: DestinationId,
) -> Result<Option<StandingRow>, Failure> {
    Ok(sqlx::query_as(
        "-- record_handshake: read
        select micros(clock_timestamp()) as now, micros(h.next_ask_at) as next_ask_at,
            micros(h.asked_at) as asked_at, h.outcome, h.problem,
            micros(h.allowed_until) as allowed_until, h.failures, d.allowed_per_minute,
            d.tenant_id, d.handshake
        from destinations d
        join handshakes h on h.destination_id = d.id
        where d.id = $1
        for update of h",
    )
    .bind(id.0)
    .fetch_optional(connection)
    .await?)
}

async fn write(
    connection: &mut PgConnection,
    id: DestinationId,
    after: &Standing,
) -> Result<(), Failure> {
    sqlx::query(
        "-- record_handshake: write
        update handshakes h
        set next_ask_at = from_micros($2), asking_until = null, asked_at = from_micros($3),
            outcome = $4, problem = $5, allowed_until = from_micros($6), failures = $7
        where h.destination_id = $1",
    )
    .bind(id.0)
    .bind(after.next_ask_at.as_micros())
    .bind(after.asked_at.map(Timestamp::as_micros))
    .bind(after.outcome.map(|outcome| outcome.as_str()))
    .bind(&after.problem)
    .bind(after.allowed_until.map(Timestamp::as_micros))
    .bind(integer(after.failures))
    .execute(connection)
    .await?;
    Ok(())
}

/// The triggers do the rest.
async fn allow(
    connection: &mut PgConnection,
    id: DestinationId,
    per_minute: Option<u32>,
) -> Result<(), Failure> {
    sqlx::query(
        "-- record_handshake: allow
        update destinations d set allowed_per_minute = $2 where d.id = $1",
    )
    .bind(id.0)
    .bind(per_minute.map(integer))
    .execute(connection)
    .await?;
    Ok(())
}

async fn note(connection: &mut PgConnection, told: &Told) -> Result<(), Failure> {
    sqlx::query(
        "-- record_handshake: note
        insert into operational_events (event_type, destination_id, tenant_id, details)
        values ($1, $2, $3, $4)",
    )
    .bind(told.news.event_type.as_str())
    .bind(told.destination.map(|id| id.0))
    .bind(told.tenant.0)
    .bind(&told.news.details)
    .execute(connection)
    .await?;
    Ok(())
}

#[async_trait]
impl HandshakeBook for PostgresStore {
    async fn handshake(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<HandshakeView, CatalogError> {
        let found = retried(|| view(&self.pool, tenant, destination)).await?;
        found.ok_or(CatalogError::NotFound("destination"))
    }

    async fn ask_now(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        self.handshake(tenant, destination).await?;
        Ok(retried(|| ask_now(&self.pool, destination)).await?)
    }
}

async fn view(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<HandshakeView>, Failure> {
    let row: Option<StandingRow> = sqlx::query_as(
        "-- handshake
        select micros(clock_timestamp()) as now, micros(h.next_ask_at) as next_ask_at,
            micros(h.asked_at) as asked_at, h.outcome, h.problem,
            micros(h.allowed_until) as allowed_until, h.failures, d.allowed_per_minute,
            d.tenant_id, d.handshake
        from destinations d
        left join handshakes h on h.destination_id = d.id
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    let view = |row: StandingRow| {
        Ok(HandshakeView {
            handshake: word("destinations", "handshake", id, &row.handshake)?,
            standing: row.standing(id)?,
        })
    };
    row.map(view).transpose()
}

async fn ask_now(pool: &PgPool, id: DestinationId) -> Result<(), Failure> {
    sqlx::query(
        "-- ask_now
        update handshakes h set next_ask_at = 'epoch' where h.destination_id = $1",
    )
    .bind(id.0)
    .execute(pool)
    .await?;
    Ok(())
}

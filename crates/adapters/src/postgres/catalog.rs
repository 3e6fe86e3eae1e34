//! Destinations, as their owners see and change them. What a change does to
//! permits, history and marks is the triggers' business.

use domain::ceiling::Ceiling;
use domain::external_id::ExternalId;
use domain::filter::Filter;
use domain::handshake::Handshake;
use domain::ids::{DestinationId, TenantId};
use domain::limit::Count;
use domain::limit_group::GroupName;
use domain::policy::LimitSettings;
use domain::time::{Timestamp, micros};
use engine::ports::{
    COUNTED_AFTER_DELETION, Destination, DestinationChange, Managed, NewDestination,
    too_many_destinations,
};
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::holder;
use super::response_times::{Ends, spread};
use super::rows::{LimitColumns, integer, word};
use crate::row::row;

row! {
    struct Row {
        id: Uuid,
        external_id: Option<String>,
        tenant_id: Uuid,
        name: String,
        url: String,
        event_types: Vec<String>,
        filter: Option<String>,
        state: String,
        numbers: Vec<Option<i32>>,
        unlimited: bool,
        shape: Option<String>,
        safety_margin: Option<f64>,
        margin_cap: Option<f64>,
        count: Option<String>,
        tier_numbers: Vec<Option<i32>>,
        tier_unlimited: bool,
        tier_shape: Option<String>,
        ceiling_per_second: Option<f64>,
        ceiling_numbers: Vec<Option<i32>>,
        granted_per_second: Option<f64>,
        granted_numbers: Vec<Option<i32>>,
        response_times: Ends,
        now: i64,
        pass_traceparent: bool,
        handshake: String,
        limit_group: Option<String>,
        created_at: i64,
    }
}

impl Row {
    fn destination(self) -> Result<Destination, Failure> {
        let own = LimitColumns {
            table: "destinations",
            row: &self.id,
            numbers: &self.numbers,
            unlimited: self.unlimited,
            shape: self.shape.as_deref(),
            safety_margin: self.safety_margin,
            margin_cap: self.margin_cap,
            count: self.count.as_deref(),
        };
        let tier = LimitColumns {
            table: "tiers",
            row: &self.id,
            numbers: &self.tier_numbers,
            unlimited: self.tier_unlimited,
            shape: self.tier_shape.as_deref(),
            safety_margin: None,
            margin_cap: None,
            count: None,
        };
        let (limits, tier) = (own.settings()?, tier.settings()?);
        let most = ceiling(self.ceiling_per_second, &self.ceiling_numbers);
        let granted = ceiling(self.granted_per_second, &self.granted_numbers);
        Ok(Destination {
            id: DestinationId(self.id),
            external_id: self.external_id.map(ExternalId::kept),
            tenant: TenantId(self.tenant_id),
            state: word("destinations", "state", self.id, &self.state)?,
            limits,
            effective: limits.or_tier(&tier),
            ceiling: most,
            own_ceiling: most.or_of_tier(&tier, &[granted, Ceiling::of_own(&limits)]),
            lasting_ceiling: most.or_of_tier(&tier, &[granted]),
            spread: spread(&self.response_times, self.now),
            pass_traceparent: self.pass_traceparent,
            handshake: word("destinations", "handshake", self.id, &self.handshake)?,
            limit_group: self.limit_group.map(GroupName::kept),
            created_at: Timestamp::from_micros(self.created_at),
            name: self.name,
            url: self.url,
            event_types: self.event_types,
            filter: self.filter.as_deref().map(Filter::stored),
        })
    }
}

/// The numbers are how many at once and in flight, events and bytes of a batch, and seconds of
/// an age.
fn ceiling(per_second: Option<f64>, numbers: &[Option<i32>]) -> Ceiling {
    let number = |at: usize| u32::try_from((*numbers.get(at)?)?).ok();
    Ceiling {
        per_second,
        at_once: number(0),
        max_in_flight: number(1),
        batch_events: number(2),
        batch_bytes: number(3),
        age_seconds: number(4),
    }
}

macro_rules! select {
    ($name:literal, $where:literal) => {
        concat!(
            "-- ",
            $name,
            "
    select d.id, d.external_id, d.tenant_id, d.name, d.url, d.event_types, d.filter::text as filter,
        d.state,
        array[
            d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day,
            d.burst, d.max_in_flight, d.allowed_per_minute
        ] as numbers,
        d.unlimited, d.shape, d.safety_margin, d.margin_cap, d.count,
        array[
            t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day,
            t.burst, t.max_in_flight
        ] as tier_numbers,
        t.unlimited as tier_unlimited, t.shape as tier_shape,
        c.per_second as ceiling_per_second,
        array[c.at_once, c.in_flight, c.batch_events, c.batch_bytes, c.age_seconds]
            as ceiling_numbers,
        d.granted_per_second,
        array[d.granted_at_once, d.granted_in_flight] as granted_numbers,
        array[r.least_micros, micros(r.least_at), r.most_micros, micros(r.most_at)]
            as response_times,
        micros(clock_timestamp()) as now,
        d.pass_traceparent, d.handshake, d.limit_group, micros(d.created_at) as created_at
    from destinations d
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    cross join lateral ceiling_of(d, t) c
    left join response_times r on r.destination_id = d.id
    ",
            $where
        )
    };
}

/// Up to `limit` destinations from one id to another, which may be one and the
/// same: so that the plan, which is made once for all, reads no more by the index.
const READ: &str = select!(
    "destinations",
    "where d.tenant_id = $1 and d.deleted_at is null
        and d.id between $2 and $4
    order by d.id
    limit $3"
);

const READ_OF: &str = select!(
    "destinations_of",
    "where d.tenant_id = $1 and d.deleted_at is null
        and d.id = any ($2) order by d.id"
);

/// These, of whichever tenant.
const OF_ALL: &str = select!(
    "destinations: of all",
    "where d.id = any ($1) and d.deleted_at is null"
);

/// Whichever tenant's they are, in no order; those that are gone are left out.
pub(super) async fn of_all(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<Destination>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(OF_ALL).bind(ids).fetch_all(pool).await?;
    rows.into_iter().map(Row::destination).collect()
}

/// The smallest id after this one. After the largest, which nobody gives, that one.
pub(super) fn first_after(after: Option<Uuid>) -> Uuid {
    after.map_or(Uuid::nil(), |after| {
        Uuid::from_u128(after.as_u128().saturating_add(1))
    })
}

pub(super) async fn destinations(
    pool: &PgPool,
    tenant: TenantId,
    after: Option<DestinationId>,
    limit: u32,
) -> Result<Vec<Destination>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(READ)
        .bind(tenant.0)
        .bind(first_after(after.map(|after| after.0)))
        .bind(i64::from(limit))
        .bind(Uuid::max())
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(Row::destination).collect()
}

pub(super) async fn destinations_of(
    pool: &PgPool,
    tenant: TenantId,
    ids: &[DestinationId],
) -> Result<Vec<Destination>, Failure> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows: Vec<Row> = sqlx::query_as(READ_OF)
        .bind(tenant.0)
        .bind(ids)
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(Row::destination).collect()
}

pub(super) async fn destination(
    executor: impl PgExecutor<'_>,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<Destination>, Failure> {
    let row: Option<Row> = sqlx::query_as(READ)
        .bind(tenant.0)
        .bind(id.0)
        .bind(1_i64)
        .bind(id.0)
        .fetch_optional(executor)
        .await?;
    row.map(Row::destination).transpose()
}

/// Which one its platform calls so.
pub(super) async fn called(
    pool: &PgPool,
    tenant: TenantId,
    id: &ExternalId,
) -> Result<Option<DestinationId>, Failure> {
    let found: Option<Uuid> = sqlx::query_scalar(
        "-- destination_called
        select d.id from destinations d
        where d.tenant_id = $1 and d.external_id = $2 and d.deleted_at is null",
    )
    .bind(tenant.0)
    .bind(id.as_str())
    .fetch_optional(pool)
    .await?;
    Ok(found.map(DestinationId))
}

pub(super) async fn create(
    pool: &PgPool,
    tenant: TenantId,
    new: &NewDestination,
) -> Result<(), Failure> {
    let mut connection = pool.acquire().await?;
    create_destination(&mut connection, tenant, new).await
}

pub(super) async fn create_destination(
    connection: &mut PgConnection,
    tenant: TenantId,
    new: &NewDestination,
) -> Result<(), Failure> {
    check_room(&mut *connection, tenant).await?;
    new.limits.validate().map_err(Failure::Invalid)?;
    let numbers = numbers(&new.limits);
    let created = sqlx::query(
        "-- create_destination
        insert into destinations (
            id, tenant_id, name, url, event_types,
            limit_per_second, limit_per_minute, limit_per_hour, limit_per_day,
            burst, max_in_flight, unlimited, shape, safety_margin, pass_traceparent, external_id,
            margin_cap, count, filter, handshake, limit_group
        )
        select $1, n.id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
            $17, $18, $19::text::jsonb, $20, $21
        from tenants n where n.id = $2 and n.deleted_at is null",
    )
    .bind(new.id.0)
    .bind(tenant.0)
    .bind(&new.name)
    .bind(&new.url)
    .bind(&new.event_types)
    .bind(numbers[0])
    .bind(numbers[1])
    .bind(numbers[2])
    .bind(numbers[3])
    .bind(numbers[4])
    .bind(numbers[5])
    .bind(new.limits.unlimited)
    .bind(new.limits.shape.map(|shape| shape.as_str()))
    .bind(new.limits.safety_margin)
    .bind(new.pass_traceparent)
    .bind(new.external_id.as_ref().map(ExternalId::as_str))
    .bind(new.limits.margin_cap)
    .bind(new.limits.count.map(Count::as_str))
    .bind(new.filter.as_ref().map(Filter::to_string))
    .bind(new.handshake.as_str())
    .bind(new.limit_group.as_ref().map(GroupName::as_str))
    .execute(connection)
    .await?;
    match created.rows_affected() {
        0 => Err(Failure::NotFound("tenant")),
        _ => Ok(()),
    }
}

/// Whether the tenant may have one more: counts up to its bound, along two indexes.
async fn check_room(connection: &mut PgConnection, tenant: TenantId) -> Result<(), Failure> {
    let bound: Option<(i32, i64)> = sqlx::query_as(
        "-- create_destination: check_room
        select m.most, l.count + g.count
        from tenants n
        join tiers t on t.name = n.tier
        cross join lateral (
            select most_destinations(t.tenant_max_destinations, n.granted_destinations) as most
        ) m
        cross join lateral (
            select count(*) as count from (
                select from destinations d
                where d.tenant_id = n.id and d.deleted_at is null
                limit m.most
            ) x
        ) l
        cross join lateral (
            select count(*) as count from (
                select from destinations d
                where d.tenant_id = n.id
                    and d.deleted_at > clock_timestamp() - $2::bigint * interval '1 microsecond'
                limit m.most
            ) x
        ) g
        where n.id = $1 and m.most is not null",
    )
    .bind(tenant.0)
    .bind(micros(COUNTED_AFTER_DELETION))
    .fetch_optional(connection)
    .await?;
    match bound {
        Some((most, has)) if has >= i64::from(most) => {
            Err(Failure::Refused(too_many_destinations()))
        }
        _ => Ok(()),
    }
}

/// The integer columns of limits, in the order of the statements.
pub(super) fn numbers(limits: &LimitSettings) -> [Option<i32>; 6] {
    [
        limits.per_second,
        limits.per_minute,
        limits.per_hour,
        limits.per_day,
        limits.burst,
        limits.max_in_flight,
    ]
    .map(|number| number.map(integer))
}

/// Against change, before the destination is locked: a change of the tier locks its
/// destinations after the tier, so two that meet wait for each other and not in a
/// circle. The trigger takes the same lock, too late for that; a user's own SQL is
/// left to it.
pub(super) async fn lock_tier(
    connection: &mut PgConnection,
    tenant: TenantId,
) -> Result<(), Failure> {
    sqlx::query(
        "-- change_destination: lock_tier
        select lock_tiers_of(array[$1::uuid])",
    )
    .bind(tenant.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// The destination as it is after the change; `None` if there is none.
pub(super) async fn change_destination(
    pool: &PgPool,
    of: Managed<'_>,
    change: &DestinationChange,
) -> Result<Option<Destination>, Failure> {
    let (tenant, id) = (of.tenant, of.destination);
    if let Some(limits) = &change.limits {
        limits.validate().map_err(Failure::Invalid)?;
    }
    let mut transaction = pool.begin().await?;
    lock_tier(&mut transaction, tenant).await?;
    holder::check(&mut transaction, of).await?;
    update(&mut transaction, tenant, id, change).await?;
    let changed = destination(&mut *transaction, tenant, id).await?;
    transaction.commit().await?;
    Ok(changed)
}

pub(super) async fn update(
    connection: &mut PgConnection,
    tenant: TenantId,
    id: DestinationId,
    change: &DestinationChange,
) -> Result<(), Failure> {
    let limits = change.limits.unwrap_or_default();
    let numbers = numbers(&limits);
    sqlx::query(
        "-- change_destination
        update destinations d
        set name = coalesce($3, d.name),
            url = coalesce($4, d.url),
            event_types = coalesce($5, d.event_types),
            state = coalesce($6, d.state),
            limit_per_second = case when $7 then $8 else d.limit_per_second end,
            limit_per_minute = case when $7 then $9 else d.limit_per_minute end,
            limit_per_hour = case when $7 then $10 else d.limit_per_hour end,
            limit_per_day = case when $7 then $11 else d.limit_per_day end,
            burst = case when $7 then $12 else d.burst end,
            max_in_flight = case when $7 then $13 else d.max_in_flight end,
            unlimited = case when $7 then $14 else d.unlimited end,
            shape = case when $7 then $15 else d.shape end,
            safety_margin = case when $7 then $16 else d.safety_margin end,
            pass_traceparent = coalesce($17, d.pass_traceparent),
            external_id = coalesce($18, d.external_id),
            margin_cap = case when $7 then $19 else d.margin_cap end,
            count = case when $7 then $20 else d.count end,
            filter = case when $21 then $22::text::jsonb else d.filter end,
            handshake = coalesce($23, d.handshake),
            limit_group = case when $24 then $25 else d.limit_group end
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .bind(&change.name)
    .bind(&change.url)
    .bind(&change.event_types)
    .bind(change.state.map(|state| state.as_str()))
    .bind(change.limits.is_some())
    .bind(numbers[0])
    .bind(numbers[1])
    .bind(numbers[2])
    .bind(numbers[3])
    .bind(numbers[4])
    .bind(numbers[5])
    .bind(limits.unlimited)
    .bind(limits.shape.map(|shape| shape.as_str()))
    .bind(limits.safety_margin)
    .bind(change.pass_traceparent)
    .bind(change.external_id.as_ref().map(ExternalId::as_str))
    .bind(limits.margin_cap)
    .bind(limits.count.map(Count::as_str))
    .bind(change.filter.is_some())
    .bind(change.filter.iter().flatten().next().map(Filter::to_string))
    .bind(change.handshake.map(Handshake::as_str))
    .bind(change.limit_group.is_some())
    .bind(
        change
            .limit_group
            .iter()
            .flatten()
            .next()
            .map(GroupName::as_str),
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn delete_destination(pool: &PgPool, of: Managed<'_>) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    lock_tier(&mut transaction, of.tenant).await?;
    holder::check(&mut transaction, of).await?;
    sqlx::query(
        "-- delete_destination
        update destinations d set deleted_at = clock_timestamp()
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(of.destination.0)
    .bind(of.tenant.0)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

//! Destinations under admission: locked, and then read.

use std::collections::{HashMap, HashSet};

use domain::admission::Meter;
use domain::batch::BatchRules;
use domain::destination::in_force;
use domain::health::is_failing;
use domain::ids::{DestinationId, Epoch, TenantId};
use domain::limit_group::GroupName;
use domain::policy::Policy;
use domain::smart::Effective;
use domain::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Failure;
use super::id_range::IdRange;
use super::response_times::{Ends, spread};
use super::rows::{LimitColumns, age, batch_settings, count, time, word};
use crate::row::row;

/// Locks the rows that nobody else holds. `for no key update`, because
/// attempts' foreign keys hold `for key share` while an ingest is open, and
/// that must not hide the destination.
pub(super) async fn lock(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashSet<Uuid>, Failure> {
    let locked: Vec<Uuid> = sqlx::query_scalar(
        "-- admit: lock
        select d.id from destinations d
        where d.id = any ($1)
        order by d.id
        for no key update skip locked",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(locked.into_iter().collect())
}

/// A destination's row, its tier's and its pacing's, as of now.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) id: DestinationId,
    pub(super) tenant: TenantId,
    /// Of all its tenant's destinations together.
    pub(super) tenant_max_in_flight: Option<u32>,
    pub(super) deleted: bool,
    pub(super) epoch: Epoch,
    pub(super) policy: Policy,
    pub(super) last_permit: i64,
    pub(super) meter: Meter,
    /// The meter is of another epoch.
    pub(super) recount: bool,
    pub(super) first_after: i64,
    pub(super) held_until: Option<Timestamp>,
    pub(super) deferred_until: Option<Timestamp>,
    /// The breaker is open.
    pub(super) probing: bool,
    /// Its last tries have failed.
    pub(super) failing: bool,
    /// Its requests are batches.
    pub(super) batch: Option<BatchRules>,
    /// Its starts count for that group as well.
    pub(super) limit_group: Option<GroupName>,
    /// Of its row and of its pacing's, if there is one: another one after each change.
    pub(super) versions: (i64, Option<i64>),
}

/// What is known before anything is counted.
pub(super) struct Known {
    /// The clock.
    pub(super) now: Timestamp,
    /// No attempt of another day waits, is under way or counts. One that was added
    /// since may; the wake that follows it comes after.
    pub(super) open: IdRange,
    /// The destinations that are there.
    pub(super) found: HashMap<DestinationId, Found>,
}

row! {
    struct DestinationRow {
        now: i64,
        horizon: i64,
        given: i64,
        id: Option<Uuid>,
        tenant_id: Option<Uuid>,
        tenant_max_in_flight: Option<i32>,
        state: Option<String>,
        deleted: bool,
        epoch: Option<i64>,
        numbers: Vec<Option<i32>>,
        unlimited: Option<bool>,
        shape: Option<String>,
        safety_margin: Option<f64>,
        margin_cap: Option<f64>,
        count: Option<String>,
        tier_numbers: Vec<Option<i32>>,
        tier_unlimited: Option<bool>,
        tier_shape: Option<String>,
        last_permit: i64,
        missing_micro: i64,
        meter_as_of: Option<i64>,
        recount: bool,
        first_after: i64,
        held_until: Option<i64>,
        deferred_until: Option<i64>,
        probing: bool,
        failures: i32,
        smart_per_second: Option<f64>,
        smart_max_in_flight: Option<i32>,
        batch: Vec<Option<i32>>,
        max_age_ms: Option<i64>,
        response_times: Ends,
        limit_group: Option<String>,
        version: Option<i64>,
        pacing_version: Option<i64>,
    }
}

/// The destinations that are there, locked or not.
pub(super) async fn read_destinations(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Known, Failure> {
    let rows: Vec<DestinationRow> = sqlx::query_as(
        "-- admit: read_destinations
        with clock as materialized (select micros(clock_timestamp()) as now)
        select clock.now,
            (select o.attempt_id from attempts_horizon o where o.id = 1) as horizon,
            coalesce(pg_sequence_last_value('attempts_id_seq'), 0) as given,
            d.id, d.tenant_id,
            coalesce(n.max_in_flight, t.tenant_max_in_flight) as tenant_max_in_flight,
            d.state, d.deleted_at is not null as deleted, d.epoch,
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
            coalesce(p.last_permit, 0) as last_permit,
            coalesce(p.meter_missing_micro, 0) as missing_micro,
            micros(p.meter_as_of) as meter_as_of,
            p.meter_epoch is distinct from d.epoch as recount,
            coalesce(p.first_after, 0) as first_after,
            micros(greatest(p.held_until, h.held_until)) as held_until,
            -- a change lifts it: it leaves nothing planned
            micros(
                case when p.next_look_at is not null then p.deferred_until end
            ) as deferred_until,
            h.opened_at is not null as probing, coalesce(h.failures, 0) as failures,
            s.per_second as smart_per_second, s.max_in_flight as smart_max_in_flight,
            array[d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms] as batch,
            coalesce(d.max_age_ms, d.tier_age_ms) as max_age_ms,
            array[r.least_micros, micros(r.least_at), r.most_micros, micros(r.most_at)]
                as response_times,
            d.limit_group, d.xmin::text::bigint as version,
            p.xmin::text::bigint as pacing_version
        from clock
        left join destinations d on d.id = any ($1)
        left join tenants n on n.id = any (array[d.tenant_id])
        left join tiers t on t.name = n.tier
        left join pacing p on p.destination_id = any (array[d.id])
        left join health h on h.destination_id = any (array[d.id])
        left join smart_limits s on s.destination_id = any (array[d.id])
        left join response_times r on r.destination_id = any (array[d.id])",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let (now, horizon, given) =
        (rows.first()).map_or((0, 0, 0), |row| (row.now, row.horizon, row.given));
    let found = (rows.into_iter())
        .filter_map(|row| row.id.map(|id| found(id, &row)))
        .map(|found| found.map(|found| (found.id, found)))
        .collect::<Result<_, _>>()?;
    Ok(Known {
        now: Timestamp::from_micros(now),
        open: IdRange::known_open(horizon, given),
        found,
    })
}

fn found(id: Uuid, row: &DestinationRow) -> Result<Found, Failure> {
    let own = LimitColumns {
        table: "destinations",
        row: &id,
        numbers: &row.numbers,
        unlimited: row.unlimited.unwrap_or_default(),
        shape: row.shape.as_deref(),
        safety_margin: row.safety_margin,
        margin_cap: row.margin_cap,
        count: row.count.as_deref(),
    };
    let tier = LimitColumns {
        table: "tiers",
        row: &id,
        numbers: &row.tier_numbers,
        unlimited: row.tier_unlimited.unwrap_or_default(),
        shape: row.tier_shape.as_deref(),
        safety_margin: None,
        margin_cap: None,
        count: None,
    };
    let smart = Effective {
        per_second: row.smart_per_second,
        max_in_flight: (row.smart_max_in_flight).map(|most| count(i64::from(most))),
    };
    let configured = own.settings()?.or_tier(&tier.settings()?).policy();
    let spread = spread(&row.response_times, row.now);
    let state = row.state.as_deref().unwrap_or_default();
    let state = word("destinations", "state", id, state)?;
    let tenant_max_in_flight = row.tenant_max_in_flight.map(i64::from);
    Ok(Found {
        id: DestinationId(id),
        tenant: TenantId(row.tenant_id.unwrap_or_default()),
        tenant_max_in_flight: tenant_max_in_flight.map(count),
        deleted: row.deleted,
        epoch: Epoch(row.epoch.unwrap_or_default()),
        policy: in_force(configured.measured(spread), smart, state),
        last_permit: row.last_permit,
        meter: Meter {
            missing_micro: row.missing_micro,
            as_of: row
                .meter_as_of
                .map_or(Timestamp::MIN, Timestamp::from_micros),
        },
        recount: row.recount,
        first_after: row.first_after,
        held_until: time(row.held_until),
        deferred_until: time(row.deferred_until),
        probing: row.probing,
        failing: is_failing(count(i64::from(row.failures)), row.probing),
        batch: (batch_settings(&row.batch).rules()).map(|rules| rules.within(age(row.max_age_ms))),
        limit_group: row.limit_group.clone().map(GroupName::kept),
        versions: (row.version.unwrap_or_default(), row.pacing_version),
    })
}

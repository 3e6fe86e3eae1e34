//! The watch of tenants: a page of them in each step, after the destinations.

use std::collections::{BTreeMap, HashMap};

use domain::health::{Slot, Tally};
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use domain::watch::{
    DEFAULT_SUCCESS_WITHIN, MAX_COUNTED_DESTINATIONS, RefusedFor, TenantAlerts, TenantSight,
    TenantWatch,
};
use engine::ports::{
    DEFAULT_TENANT, MAX_TALLIES, TenantAlertsChange, TenantAlertsView, Told, WatchRules,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::super::failure::Failure;
use super::super::rows::{count, integer, time};
use super::{TENANTS, end_turn, note, take_turn};
use crate::row::row;

/// One step, if one is due; whether the round goes on.
pub(super) async fn step(
    connection: &mut PgConnection,
    rules: &WatchRules,
) -> Result<(Vec<Told>, bool), Failure> {
    let Some(after) = take_turn(connection, TENANTS).await? else {
        return Ok((Vec::new(), false));
    };
    add_up_rejected(connection).await?;
    let mut passed = passed(connection, after, rules.tenants).await?;
    let full = u32::try_from(passed.len()).is_ok_and(|length| length >= rules.tenants);
    let refusing = refusing(connection).await?;
    let mut news = Vec::new();
    for one in passed.iter_mut().filter(|one| !one.deleted) {
        news.extend(one.judge(&refusing, rules));
    }
    write(connection, &passed, rules).await?;
    note(connection, &news).await?;
    let last = passed.last().map(|last| last.watched.id);
    let pause = if full {
        rules.pace
    } else {
        rules.tenants_every
    };
    end_turn(connection, TENANTS, last.filter(|_| full), pause).await?;
    Ok((news, full))
}

/// Rows that relays under way hold are not there yet: another step's.
async fn add_up_rejected(connection: &mut PgConnection) -> Result<(), Failure> {
    sqlx::query(
        "-- watch tenants: add_up_rejected
        with taken as materialized (
            delete from outbox_rejected_tallies t
            where t.id in (select id from outbox_rejected_tallies order by id limit $1)
            returning t.tenant_id, t.rejected
        )
        insert into tenant_watches as w (tenant_id, rejected)
        select t.tenant_id, sum(t.rejected)::bigint
        from taken t
        group by t.tenant_id
        order by t.tenant_id
        on conflict (tenant_id) do update set rejected = w.rejected + excluded.rejected",
    )
    .bind(i64::from(MAX_TALLIES))
    .execute(connection)
    .await?;
    Ok(())
}

row! {
    /// A tenant's settings and what is remembered of it.
    struct WatchedRow {
        id: Uuid,
        alert_success_percent: Option<i32>,
        alert_success_seconds: Option<i32>,
        alert_success_least: Option<i32>,
        success_low_since: Option<i64>,
        destinations_high_since: Option<i64>,
        backlog_high_since: Option<i64>,
        refused_since: Option<i64>,
        rejected: i64,
        rejected_told_at: Option<i64>,
    }
}

/// The columns of a [`WatchedRow`].
const WATCHED: &str = "n.id, n.alert_success_percent, n.alert_success_seconds,
            n.alert_success_least,
            micros(w.success_low_since) as success_low_since,
            micros(w.destinations_high_since) as destinations_high_since,
            micros(w.backlog_high_since) as backlog_high_since,
            micros(w.refused_since) as refused_since,
            coalesce(w.rejected, 0) as rejected,
            micros(w.rejected_told_at) as rejected_told_at";

impl WatchedRow {
    fn view(&self) -> TenantAlertsView {
        let set = |number: Option<i32>| number.map(|number| count(number.into()));
        TenantAlertsView {
            settings: TenantAlerts::of(
                set(self.alert_success_percent),
                set(self.alert_success_seconds),
                set(self.alert_success_least),
            ),
            watch: TenantWatch {
                success_low_since: time(self.success_low_since),
                destinations_high_since: time(self.destinations_high_since),
                backlog_high_since: time(self.backlog_high_since),
                refused_since: time(self.refused_since),
                rejected: self.rejected.unsigned_abs(),
                rejected_told_at: time(self.rejected_told_at),
            },
        }
    }
}

row! {
    /// A tenant that the round passes, and what is found of it.
    struct PassedRow {
        now: i64,
        deleted: bool,
        remembered: bool,
        succeeded: i64,
        failed: i64,
        destinations: i64,
        most: Option<i32>,
        pending: Option<i64>,
        bound: Option<i64>,
        refuses: bool,
        ..watched: WatchedRow,
    }
}

struct Passed {
    watched: WatchedRow,
    now: Timestamp,
    deleted: bool,
    remembered: bool,
    sight: TenantSight,
    watch: TenantWatch,
}

impl From<PassedRow> for Passed {
    fn from(row: PassedRow) -> Self {
        let backlog = row.pending.zip(row.bound);
        let sight = TenantSight {
            succeeded: row.succeeded.unsigned_abs(),
            failed: row.failed.unsigned_abs(),
            destinations: count(row.destinations),
            most_destinations: row.most.map(|most| count(most.into())),
            backlog: backlog.map(|(pending, bound)| (pending.unsigned_abs(), bound.unsigned_abs())),
            refused: row.refuses.then_some(RefusedFor::Tenant),
        };
        Self {
            now: Timestamp::from_micros(row.now),
            deleted: row.deleted,
            remembered: row.remembered,
            watch: row.watched.view().watch,
            watched: row.watched,
            sight,
        }
    }
}

async fn passed(
    connection: &mut PgConnection,
    after: Option<Uuid>,
    page: u32,
) -> Result<Vec<Passed>, Failure> {
    let sql = format!(
        "-- watch tenants: passed
        select {WATCHED}, micros(c.now) as now, n.deleted_at is not null as deleted,
            w.tenant_id is not null as remembered, s.succeeded, s.failed, l.destinations,
            m.most, b.pending, b.bound,
            b.refused_at is not null as refuses
        from (
            select n.* from tenants n
            where n.id > coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid)
            order by n.id limit $2
        ) n
        cross join (select clock_timestamp() as now) c
        join tiers t on t.name = n.tier
        cross join lateral (
            select most_destinations(t.tenant_max_destinations, n.granted_destinations) as most
        ) m
        left join tenant_watches w on w.tenant_id = n.id
        left join backlog_standings b on b.scope = 'tenant' and b.id = n.id
        cross join lateral (
            select coalesce(sum(x.succeeded), 0)::bigint as succeeded,
                coalesce(sum(x.failed), 0)::bigint as failed
            from tenant_tallies x
            where x.tenant_id = n.id and x.ends_at >
                c.now - coalesce(n.alert_success_seconds, $3) * interval '1 second'
        ) s
        cross join lateral (
            select count(*) as destinations from (
                select from destinations d
                where d.tenant_id = n.id and d.deleted_at is null
                    and m.most <= $4
                limit m.most
            ) x
        ) l
        order by n.id"
    );
    let within = i32::try_from(DEFAULT_SUCCESS_WITHIN.as_secs()).unwrap_or(i32::MAX);
    let rows: Vec<PassedRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(after)
        .bind(i64::from(page))
        .bind(within)
        .bind(i64::from(MAX_COUNTED_DESTINATIONS))
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(Passed::from).collect())
}

/// Backlogs that refuse, of destinations and of all.
#[derive(Default)]
struct Refusing {
    all: bool,
    of: HashMap<Uuid, Uuid>,
}

/// As many as are ever told of.
async fn refusing(connection: &mut PgConnection) -> Result<Refusing, Failure> {
    let rows: Vec<(Uuid, Option<Uuid>)> = sqlx::query_as(
        "-- watch tenants: refusing
        select b.id, b.tenant_id from backlog_standings b
        where b.scope <> 'tenant' and b.refused_at is not null
        order by b.pending",
    )
    .fetch_all(connection)
    .await?;
    let mut refusing = Refusing::default();
    for (id, tenant) in rows {
        match tenant {
            // The longest is the last.
            Some(tenant) => _ = refusing.of.insert(tenant, id),
            None => refusing.all = true,
        }
    }
    Ok(refusing)
}

impl Passed {
    fn judge(&mut self, refusing: &Refusing, rules: &WatchRules) -> Vec<Told> {
        let tenant = TenantId(self.watched.id);
        let of_all = refusing.all && tenant == DEFAULT_TENANT;
        let of_one = refusing.of.get(&tenant.0).copied();
        let others = (of_all.then_some(RefusedFor::All))
            .or(of_one.map(|id| RefusedFor::Destination(DestinationId(id))));
        let sight = TenantSight {
            refused: self.sight.refused.or(others),
            ..self.sight
        };
        let settings = self.watched.view().settings;
        let mut news = self.watch.look(&settings, &sight, self.now);
        let rejected = (self.watch).tell_rejected(rules.dead_letters_every, self.now);
        news.extend(rejected.map(|news| (None, news)));
        let told = |(destination, news)| Told {
            destination,
            tenant,
            news,
        };
        news.into_iter().map(told).collect()
    }

    fn is_forgotten(&self, rules: &WatchRules) -> bool {
        self.deleted || self.watch.is_well(rules.dead_letters_every, self.now)
    }
}

/// What is remembered from now on: nothing of those that are well.
async fn write(
    connection: &mut PgConnection,
    passed: &[Passed],
    rules: &WatchRules,
) -> Result<(), Failure> {
    let (forgotten, kept): (Vec<&Passed>, Vec<&Passed>) =
        passed.iter().partition(|one| one.is_forgotten(rules));
    let forgotten = forgotten.iter().filter(|one| one.remembered);
    sqlx::query(
        "-- watch tenants: forget
        delete from tenant_watches w where w.tenant_id = any ($1)",
    )
    .bind(forgotten.map(|one| one.watched.id).collect::<Vec<_>>())
    .execute(&mut *connection)
    .await?;
    if kept.is_empty() {
        return Ok(());
    }
    let at = |time: fn(&TenantWatch) -> Option<Timestamp>| {
        let time = |one: &&Passed| time(&one.watch).map(Timestamp::as_micros);
        kept.iter().map(time).collect::<Vec<_>>()
    };
    let rejected = |one: &&Passed| i64::try_from(one.watch.rejected).unwrap_or(i64::MAX);
    sqlx::query(
        "-- watch tenants: remember
        insert into tenant_watches as w (tenant_id, success_low_since, destinations_high_since,
            backlog_high_since, refused_since, rejected, rejected_told_at)
        select n.id, from_micros(n.success), from_micros(n.destinations), from_micros(n.backlog),
            from_micros(n.refused), n.rejected, from_micros(n.told)
        from unnest(
            $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[]
        ) as n (id, success, destinations, backlog, refused, rejected, told)
        on conflict (tenant_id) do update
        set success_low_since = excluded.success_low_since,
            destinations_high_since = excluded.destinations_high_since,
            backlog_high_since = excluded.backlog_high_since,
            refused_since = excluded.refused_since, rejected = excluded.rejected,
            rejected_told_at = excluded.rejected_told_at",
    )
    .bind(kept.iter().map(|one| one.watched.id).collect::<Vec<_>>())
    .bind(at(|watch| watch.success_low_since))
    .bind(at(|watch| watch.destinations_high_since))
    .bind(at(|watch| watch.backlog_high_since))
    .bind(at(|watch| watch.refused_since))
    .bind(kept.iter().map(rejected).collect::<Vec<_>>())
    .bind(at(|watch| watch.rejected_told_at))
    .execute(connection)
    .await?;
    Ok(())
}

/// Adds what came of requests to the slots of their tenants, by tenant and end.
pub(in super::super) async fn add(
    connection: &mut PgConnection,
    slots: BTreeMap<(Uuid, i64), Tally>,
) -> Result<(), Failure> {
    if slots.is_empty() {
        return Ok(());
    }
    let of = |number: fn(&Tally) -> u64| {
        let number = |tally| i64::try_from(number(tally)).unwrap_or(i64::MAX);
        slots.values().map(number).collect::<Vec<_>>()
    };
    sqlx::query(
        "-- tally: add_tenants
        insert into tenant_tallies as t (tenant_id, ends_at, succeeded, failed)
        select n.id, from_micros(n.ends_at), n.succeeded, n.failed
        from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])
            as n (id, ends_at, succeeded, failed)
        on conflict (tenant_id, ends_at) do update
        set succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed",
    )
    .bind(slots.keys().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(
        slots
            .keys()
            .map(|(_, ends_at)| *ends_at)
            .collect::<Vec<_>>(),
    )
    .bind(of(|tally| tally.succeeded))
    .bind(of(|tally| tally.failed))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes slots that are older than the longest time that can be set.
pub(in super::super) async fn trim(
    connection: &mut PgConnection,
    now: Timestamp,
    most: u32,
) -> Result<(), Failure> {
    sqlx::query(
        "-- tally: trim_tenants
        delete from tenant_tallies t
        using (
            select o.tenant_id, o.ends_at from tenant_tallies o
            where micros(o.ends_at) < $1 order by micros(o.ends_at) limit $2
        ) x
        where t.tenant_id = x.tenant_id and t.ends_at = x.ends_at",
    )
    .bind((now - Slot::Minutes.kept()).as_micros())
    .bind(i64::from(most))
    .execute(connection)
    .await?;
    Ok(())
}

pub(in super::super) async fn alerts(
    pool: &PgPool,
    tenant: TenantId,
) -> Result<TenantAlertsView, Failure> {
    let sql = format!(
        "-- tenant_alerts
        select {WATCHED}
        from tenants n left join tenant_watches w on w.tenant_id = n.id
        where n.id = $1"
    );
    let row: Option<WatchedRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(tenant.0)
        .fetch_optional(pool)
        .await?;
    row.map(|row| row.view()).ok_or(Failure::NotFound("tenant"))
}

pub(in super::super) async fn change(
    pool: &PgPool,
    tenant: TenantId,
    change: &TenantAlertsChange,
) -> Result<u64, Failure> {
    let set = |number: Option<Option<u32>>| number.flatten().map(integer);
    let done = sqlx::query(
        "-- change_tenant_alerts
        update tenants n
        set alert_success_percent = case when $2 then $3 else n.alert_success_percent end,
            alert_success_seconds = case when $4 then $5 else n.alert_success_seconds end,
            alert_success_least = case when $6 then $7 else n.alert_success_least end
        where n.id = $1 and n.deleted_at is null",
    )
    .bind(tenant.0)
    .bind(change.success_percent.is_some())
    .bind(set(change.success_percent))
    .bind(change.success_seconds.is_some())
    .bind(set(change.success_seconds))
    .bind(change.success_least.is_some())
    .bind(set(change.success_least))
    .execute(pool)
    .await?;
    Ok(done.rows_affected())
}

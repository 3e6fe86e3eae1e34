//! Destinations that the watch passes by, and what it remembers of them.

use domain::health::HoldReason;
use domain::time::Timestamp;
use domain::watch::{AlertSettings, Short, Shortfall, Sight, Watch, is_looked_at};
use engine::ports::{Told, WatchRules};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::failure::Failure;
use super::super::rows::{count, time, word};
use super::told;
use crate::row::row;

/// Each step of the walk finds the smallest destination after the last one
/// that has work, or of which something is remembered.
const WALK: &str = "-- watch: passed
    with recursive clock as materialized (select clock_timestamp() as now),
    walk (id, step) as (
        select coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid), 0
        union all
        select
            least(
                (
                    select a.destination_id from deliveries a
                    where a.permit is null and a.due_at is null and a.destination_id > w.id
                    order by a.destination_id limit 1
                ),
                (
                    select a.destination_id from deliveries a
                    where a.permit is null and a.due_at is not null and a.destination_id > w.id
                    order by a.destination_id limit 1
                ),
                (
                    select r.destination_id from watches r
                    where r.destination_id > w.id
                    order by r.destination_id limit 1
                )
            ),
            w.step + 1
        from walk w
        where w.id is not null and w.step < $2
    )
    select micros(clock.now) as now, w.id, d.tenant_id,
        d.id is null or d.deleted_at is not null as gone,
        d.alert_backlog, d.alert_under_delivery_seconds, h.held_for,
        r.destination_id is not null as remembered,
        micros(r.backlog_high_since) as backlog_high_since,
        micros(r.short_since) as short_since, micros(r.short_seen_at) as short_seen_at,
        r.short_for, coalesce(r.short_told, false) as short_told,
        coalesce(r.dead_letters, 0) as dead_letters,
        micros(r.dead_letters_told_at) as dead_letters_told_at,
        (
            select micros(a.created_at) from deliveries a
            where a.destination_id = w.id and a.permit is null and a.due_at is null
                and a.id + 0 > coalesce(p.first_after, 0)
            order by a.id + 0 limit 1
        ) as first_since,
        (
            select micros(a.due_at) from deliveries a
            where a.destination_id = w.id and a.permit is null and a.due_at is not null
                and a.urgent
            order by a.due_at limit 1
        ) as urgent_since,
        (
            select micros(a.due_at) from deliveries a
            where a.destination_id = w.id and a.permit is null and not a.urgent
                and a.due_at <= clock.now
            order by a.due_at limit 1
        ) as due_since
    from walk w
    cross join clock
    left join destinations d on d.id = w.id
    left join watches r on r.destination_id = w.id
    left join health h on h.destination_id = w.id
    left join pacing p on p.destination_id = w.id
    where w.step > 0 and w.id is not null
    order by w.id";

row! {
    struct Row {
        now: i64,
        id: Uuid,
        tenant_id: Option<Uuid>,
        gone: bool,
        alert_backlog: Option<i32>,
        alert_under_delivery_seconds: Option<i32>,
        held_for: Option<String>,
        remembered: bool,
        first_since: Option<i64>,
        urgent_since: Option<i64>,
        due_since: Option<i64>,
        ..watch: WatchRow,
    }
}

row! {
    /// The columns of `watches`.
    pub(in super::super) struct WatchRow {
        backlog_high_since: Option<i64>,
        short_since: Option<i64>,
        short_seen_at: Option<i64>,
        short_for: Option<String>,
        short_told: bool,
        dead_letters: i64,
        dead_letters_told_at: Option<i64>,
    }
}

impl WatchRow {
    pub(in super::super) fn watch(&self, id: Uuid) -> Result<Watch, Failure> {
        let short = match (self.short_since, self.short_seen_at, &self.short_for) {
            (Some(since), Some(seen_at), Some(reason)) => Some(Short {
                since: Timestamp::from_micros(since),
                seen_at: Timestamp::from_micros(seen_at),
                reason: word::<Shortfall>("watches", "short_for", id, reason)?,
                told: self.short_told,
            }),
            _ => None,
        };
        Ok(Watch {
            backlog_high_since: time(self.backlog_high_since),
            short,
            dead_letters: u64::try_from(self.dead_letters).unwrap_or(0),
            dead_letters_told_at: time(self.dead_letters_told_at),
        })
    }
}

/// A destination that the watch passes by.
pub(super) struct Passed {
    pub(super) id: Uuid,
    tenant: Uuid,
    /// Deleted: nothing is remembered of it any more.
    gone: bool,
    settings: AlertSettings,
    pub(super) held_for: Option<HoldReason>,
    remembered: bool,
    watch: Watch,
    /// Since when the first of what is due waits.
    pub(super) oldest: Option<Timestamp>,
}

impl Passed {
    pub(super) fn is_looked_at(&self, rules: &WatchRules, now: Timestamp) -> bool {
        is_looked_at(self.remembered, self.oldest, (rules.patience, now))
    }

    pub(super) fn count_up_to(&self) -> u32 {
        match self.gone {
            true => 0,
            false => self.watch.count_up_to(&self.settings),
        }
    }

    /// What this look comes to.
    pub(super) fn judge(&mut self, sight: &Sight, rules: &WatchRules, now: Timestamp) -> Vec<Told> {
        if self.gone {
            self.watch = Watch::default();
            return Vec::new();
        }
        let mut news = (self.watch).look(&self.settings, sight, (rules.patience, now));
        news.extend(self.watch.tell_dead_letters(rules.dead_letters_every, now));
        let told = |news| told(self.id, self.tenant, news);
        news.into_iter().map(told).collect()
    }
}

/// The next destinations of the round, and the clock.
pub(super) async fn passed(
    connection: &mut PgConnection,
    after: Option<Uuid>,
    limit: u32,
) -> Result<(Timestamp, Vec<Passed>), Failure> {
    let rows: Vec<Row> = sqlx::query_as(WALK)
        .bind(after)
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .fetch_all(connection)
        .await?;
    let now = Timestamp::from_micros(rows.first().map_or(0, |row| row.now));
    let page: Result<Vec<Passed>, Failure> = rows.into_iter().map(Row::into_passed).collect();
    Ok((now, page?))
}

impl Row {
    fn into_passed(self) -> Result<Passed, Failure> {
        let number = |set: Option<i32>| set.map(|set| count(i64::from(set)));
        let held_for = (self.held_for.as_deref())
            .map(|reason| word("health", "held_for", self.id, reason))
            .transpose()?;
        let since = [self.first_since, self.urgent_since, self.due_since];
        let first = since.into_iter().flatten().min();
        Ok(Passed {
            id: self.id,
            tenant: self.tenant_id.unwrap_or_default(),
            gone: self.gone,
            settings: AlertSettings::of(
                number(self.alert_backlog),
                number(self.alert_under_delivery_seconds),
                None,
            ),
            held_for,
            remembered: self.remembered,
            watch: self.watch.watch(self.id)?,
            oldest: time(first),
        })
    }
}

/// What is remembered from now on: nothing of those that are well.
pub(super) async fn write(
    connection: &mut PgConnection,
    page: &[Passed],
    rules: &WatchRules,
    now: Timestamp,
) -> Result<(), Failure> {
    let is_well = |one: &&Passed| one.watch.is_well(rules.dead_letters_every, now);
    let (well, kept): (Vec<&Passed>, Vec<&Passed>) = page.iter().partition(is_well);
    let well: Vec<Uuid> = (well.iter().filter(|one| one.remembered))
        .map(|one| one.id)
        .collect();
    if !well.is_empty() {
        sqlx::query(
            "-- watch: forget
            delete from watches w where w.destination_id = any ($1)",
        )
        .bind(well)
        .execute(&mut *connection)
        .await?;
    }
    if kept.is_empty() {
        return Ok(());
    }
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let short = |one: &&Passed| one.watch.short;
    sqlx::query(
        "-- watch: remember
        insert into watches (
            destination_id, tenant_id, backlog_high_since, short_since, short_seen_at, short_for,
            short_told, dead_letters, dead_letters_told_at
        )
        select n.destination_id, n.tenant_id, from_micros(n.backlog_high_since),
            from_micros(n.short_since), from_micros(n.short_seen_at), n.short_for, n.short_told,
            n.dead_letters, from_micros(n.dead_letters_told_at)
        from unnest(
            $1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
            $7::boolean[], $8::bigint[], $9::bigint[]
        ) as n (
            destination_id, tenant_id, backlog_high_since, short_since, short_seen_at, short_for,
            short_told, dead_letters, dead_letters_told_at
        )
        on conflict (destination_id) do update
        set backlog_high_since = excluded.backlog_high_since, short_since = excluded.short_since,
            short_seen_at = excluded.short_seen_at, short_for = excluded.short_for,
            short_told = excluded.short_told, dead_letters = excluded.dead_letters,
            dead_letters_told_at = excluded.dead_letters_told_at",
    )
    .bind(of(&kept, |one| one.id))
    .bind(of(&kept, |one| one.tenant))
    .bind(of(&kept, |one| micros(one.watch.backlog_high_since)))
    .bind(of(&kept, |one| micros(short(one).map(|short| short.since))))
    .bind(of(&kept, |one| {
        micros(short(one).map(|short| short.seen_at))
    }))
    .bind(of(&kept, |one| {
        short(one).map(|short| short.reason.as_str())
    }))
    .bind(of(&kept, |one| short(one).is_some_and(|short| short.told)))
    .bind(of(&kept, |one| {
        i64::try_from(one.watch.dead_letters).unwrap_or(i64::MAX)
    }))
    .bind(of(&kept, |one| micros(one.watch.dead_letters_told_at)))
    .execute(connection)
    .await?;
    Ok(())
}

/// A column.
fn of<T>(rows: &[&Passed], column: impl Fn(&&Passed) -> T) -> Vec<T> {
    rows.iter().map(column).collect()
}

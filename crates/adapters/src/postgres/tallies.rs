//! What came of requests, counted; see [`engine::ports::Tallies`].
//!
//! Whoever has the turn's row goes on with the round, in one transaction: what is
//! counted, up to where, and what owners are told are committed together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use domain::health::{FAILING_PERCENT, Failing, LATENCY_BOUNDS, LastDay, Slot, Tally, Took};
use domain::ids::{DestinationId, TenantId};
use domain::time::{Timestamp, micros};
use engine::ports::{
    CatalogError, GLANCE_ANSWERS, GLANCE_SAMPLE, MAX_GLANCED, Outcomes, StoreError, TALLIED_BEFORE,
    Tallied, TalliedSlot, Tallies, TallyRules, Told, lately,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};
use super::overview::{answers, now};
use super::rows::{count, time};
use super::watch::{note, tenants};
use crate::row::row;

#[async_trait]
impl Tallies for PostgresStore {
    async fn tally(&self, rules: &TallyRules) -> Result<Tallied, StoreError> {
        Ok(retried(|| step(&self.pool, rules)).await?)
    }

    async fn tallied(
        &self,
        destination: DestinationId,
        slot: Slot,
        since: Timestamp,
    ) -> Result<Vec<TalliedSlot>, CatalogError> {
        Ok(retried(|| tallied(&self.pool, destination, slot, since)).await?)
    }

    async fn outcomes(
        &self,
        destinations: &[DestinationId],
    ) -> Result<Vec<Outcomes>, CatalogError> {
        let asked = &destinations[..destinations.len().min(MAX_GLANCED)];
        Ok(retried(|| outcomes(&self.pool, asked)).await?)
    }
}

async fn step(pool: &PgPool, rules: &TallyRules) -> Result<Tallied, Failure> {
    let mut transaction = pool.begin().await?;
    let Some((now, after, was_cut)) = take_turn(&mut transaction).await? else {
        transaction.commit().await?;
        return Ok(Tallied::default());
    };
    let mut passed = passed(&mut transaction, after, rules.page).await?;
    let full = u32::try_from(passed.len()).is_ok_and(|length| length >= rules.page);
    let mut looks = 0;
    let fits = |one: &Passed| {
        looks += u32::from(one.is_due());
        looks <= rules.looks
    };
    let kept = passed.iter().map(fits).take_while(|fits| *fits).count();
    let more = full || kept < passed.len();
    passed.truncate(kept);
    let next = passed.last().map(|last| last.id).filter(|_| more);
    passed.retain(Passed::is_due);

    let until = now - rules.settled;
    let (counted, is_cut) = add(&mut transaction, &mut passed, (until, rules.starts)).await?;
    let news = look(&mut transaction, &mut passed, (rules.told_after, now)).await?;
    write(&mut transaction, &passed).await?;
    note(&mut transaction, &news).await?;
    trim(&mut transaction, now, rules.trimmed).await?;
    tenants::trim(&mut transaction, now, rules.trimmed).await?;
    // At the end of a round that leaves something the next one begins soon.
    let is_cut = is_cut || was_cut;
    let pause = if more || is_cut {
        rules.pace
    } else {
        rules.every
    };
    end_turn(&mut transaction, (next, is_cut && more), pause).await?;
    transaction.commit().await?;
    Ok(Tallied {
        stepped: true,
        more: more || is_cut,
        counted,
        news,
    })
}

/// The time, how far the round has come, and whether it leaves something, if a step is
/// due and nobody takes it.
async fn take_turn(
    connection: &mut PgConnection,
) -> Result<Option<(Timestamp, Option<Uuid>, bool)>, Failure> {
    let turn: Option<(i64, Option<Uuid>, bool)> = sqlx::query_as(
        "-- tally: take_turn
        select micros(clock_timestamp()), t.after, t.is_cut from tally_turn t
        where t.id = 1 and t.due_at <= clock_timestamp()
        for update skip locked",
    )
    .fetch_optional(connection)
    .await?;
    Ok(turn.map(|(now, after, is_cut)| (Timestamp::from_micros(now), after, is_cut)))
}

async fn end_turn(
    connection: &mut PgConnection,
    (next, is_cut): (Option<Uuid>, bool),
    pause: Duration,
) -> Result<(), Failure> {
    sqlx::query(
        "-- tally: end_turn
        update tally_turn t
        set after = $1, is_cut = $3,
            due_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
        where t.id = 1",
    )
    .bind(next)
    .bind(micros(pause))
    .bind(is_cut)
    .execute(connection)
    .await?;
    Ok(())
}

row! {
    /// A destination that the round passes.
    #[derive(Debug)]
    struct Passed {
        id: Uuid,
        tenant_id: Uuid,
        /// Every start before that is counted.
        until: i64,
        looked_at: Option<i64>,
        failures: i32,
        alert_failing_percent: Option<i32>,
        failing_since: Option<i64>,
        failing_told: bool,
        last_failed_at: Option<i64>,
        last_failed_status: Option<i32>,
    }
}

impl Passed {
    /// Whether it may have started something, or its owner may have to be told.
    fn is_due(&self) -> bool {
        let admitted = self
            .looked_at
            .is_some_and(|at| at >= self.until - micros(TALLIED_BEFORE));
        admitted || self.failing_since.is_some()
    }
}

async fn passed(
    connection: &mut PgConnection,
    after: Option<Uuid>,
    page: u32,
) -> Result<Vec<Passed>, Failure> {
    Ok(sqlx::query_as(
        "-- tally: passed
        select d.id, d.tenant_id, micros(greatest(
                coalesce(m.until, d.created_at),
                clock_timestamp() - $3 * interval '1 microsecond'
            )) as until,
            micros(p.looked_at) as looked_at, coalesce(h.failures, 0) as failures,
            d.alert_failing_percent, micros(m.failing_since) as failing_since,
            coalesce(m.failing_told, false) as failing_told,
            micros(m.last_failed_at) as last_failed_at, m.last_failed_status
        from (
            select d.id, d.tenant_id, d.created_at, d.alert_failing_percent from destinations d
            where d.deleted_at is null
                and d.id > coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid)
            order by d.id limit $2
        ) d
        left join pacing p on p.destination_id = d.id
        left join health h on h.destination_id = d.id
        left join tally_marks m on m.destination_id = d.id
        order by d.id",
    )
    .bind(after)
    .bind(i64::from(page))
    .bind(micros(Slot::Hour.kept()))
    .fetch_all(connection)
    .await?)
}

row! {
    struct Counted {
        id: Uuid,
        until: i64,
        /// There may be more.
        is_cut: bool,
        /// Nothing that it has begun is over, if none is counted.
        ends_at: i64,
        /// How long these took to be answered, by [`LATENCY_BOUNDS`]; `None` if they were not.
        bucket: Option<i32>,
        succeeded: i64,
        failed: i64,
        refused: i64,
        unknown: i64,
        last_failed_at: Option<i64>,
        last_failed_status: Option<i32>,
    }
}

/// Up to the first that has no outcome yet, and at most `$4` of each.
///
/// What is under way was claimed at the edge or later, and so started there: all that is
/// counted is in the ledger. What is found is read once, in one pass over all destinations:
/// joined to their edges again, it would be read as often as there are destinations, for the
/// planner expects a few rows of it and not thousands.
const COUNT: &str = "-- tally: count
    with open as materialized (
        -- Of what has no outcome yet the start may not be known, but that it is no
        -- earlier than its claim.
        select n.id, n.until as since, o.since is not null as is_open,
            greatest(from_micros(n.until), least(from_micros($3), o.since)) as until
        from unnest($1::uuid[], $2::bigint[]) as n (id, until)
        cross join lateral (
            select min(a.claimed_at) as since from deliveries a
            where a.destination_id = n.id and a.permit is not null and a.state = 'started'
                and a.carried_by is null
        ) o
    ),
    found as (
        select n.id, n.is_open, n.until, x.started_at, x.state, x.status, x.finished_at
        from open n
        left join lateral (
            select * from (
                (
                    select a.started_at, a.state, a.status, a.finished_at from ledger a
                    where a.destination_id = n.id and not a.folded and a.carried_by is null
                        and a.started_at >= from_micros(n.since)
                        and a.started_at < n.until
                    order by a.started_at, a.id limit $4
                )
                union all
                (
                    select a.started_at, a.state, a.status, a.finished_at from ledger a
                    where a.destination_id = n.id and a.folded and a.carried_by is null
                        and a.started_at >= from_micros(n.since)
                        and a.started_at < n.until
                    order by a.started_at, a.id limit $4
                )
            ) y
            order by y.started_at limit $4
        ) x on true
    ),
    edged as (
        select f.id, f.is_open, f.started_at, f.state, f.status, f.finished_at,
            count(f.started_at) over of_one >= $4 as is_cut,
            least(
                f.until,
                case when count(f.started_at) over of_one >= $4
                    -- The last ones of the same instant may be cut off.
                    then greatest(
                        max(f.started_at) over of_one,
                        min(f.started_at) over of_one + interval '1 microsecond')
                end
            ) as until
        from found f
        window of_one as (partition by f.id)
    )
    select e.id, micros(e.until) as until, e.is_cut,
        coalesce((micros(e.started_at) / $5 + 1) * $5, 0) as ends_at,
        case when e.state in ('succeeded', 'failed') and e.status is not null
            then width_bucket(micros(e.finished_at) - micros(e.started_at), $6::bigint[])
        end as bucket,
        count(*) filter (where e.state = 'succeeded') as succeeded,
        count(*) filter (where e.state = 'failed' and e.status is distinct from 429) as failed,
        count(*) filter (where e.state = 'failed' and e.status = 429) as refused,
        count(*) filter (where e.state not in ('succeeded', 'failed')) as unknown,
        micros(max(e.started_at) filter (
            where e.state = 'failed' and e.status is distinct from 429)) as last_failed_at,
        (array_agg(e.status order by e.started_at desc) filter (
            where e.state = 'failed' and e.status is distinct from 429))[1] as last_failed_status
    from edged e
    -- What is open holds the count where it is, also if nothing is before it.
    where e.started_at < e.until or (e.started_at is null and e.is_open)
    group by 1, 2, 3, 4, 5";

/// Counts what has started at these before `until`: how many that were, and whether
/// there may be more.
async fn add(
    connection: &mut PgConnection,
    passed: &mut [Passed],
    (until, starts): (Timestamp, u32),
) -> Result<(u64, bool), Failure> {
    let rows: Vec<Counted> = sqlx::query_as(COUNT)
        .bind(passed.iter().map(|one| one.id).collect::<Vec<_>>())
        .bind(passed.iter().map(|one| one.until).collect::<Vec<_>>())
        .bind(until.as_micros())
        .bind(i64::from(starts.max(2)))
        .bind(micros(Slot::Minutes.length()))
        .bind(LATENCY_BOUNDS.as_slice())
        .fetch_all(&mut *connection)
        .await?;
    let mut of: HashMap<Uuid, &mut Passed> = HashMap::new();
    let found: HashSet<Uuid> = rows.iter().map(|row| row.id).collect();
    for one in passed.iter_mut() {
        // Nothing more of it is looked for, once it has long been idle.
        if !found.contains(&one.id) && one.until < (until - TALLIED_BEFORE).as_micros() {
            one.until = until.as_micros();
        }
        of.insert(one.id, one);
    }
    let mut slots: Slots = BTreeMap::new();
    let mut of_tenants: BTreeMap<(Uuid, i64), Tally> = BTreeMap::new();
    let mut counted = 0;
    for row in &rows {
        let tally = tally([row.succeeded, row.failed, row.refused, row.unknown]);
        counted += tally.requests();
        let last = Timestamp::from_micros(row.ends_at - 1);
        for slot in Slot::ALL.into_iter().filter(|_| tally.requests() > 0) {
            let key = (row.id, slot, slot.end_of(last).as_micros());
            let (all, took) = slots.entry(key).or_default();
            *all += tally;
            let bucket = row.bucket.and_then(|bucket| usize::try_from(bucket).ok());
            if let Some(bucket) = bucket {
                took.add_to(bucket, tally.requests());
            }
        }
        if let Some(one) = of.get_mut(&row.id) {
            if tally.requests() > 0 {
                let key = (one.tenant_id, row.ends_at);
                *of_tenants.entry(key).or_default() += tally;
            }
            one.until = row.until;
            if row.last_failed_at > one.last_failed_at {
                one.last_failed_at = row.last_failed_at;
                one.last_failed_status = row.last_failed_status;
            }
        }
    }
    add_slots(&mut *connection, slots).await?;
    tenants::add(connection, of_tenants).await?;
    Ok((counted, rows.iter().any(|row| row.is_cut)))
}

/// Of the four columns of a tally.
fn tally(numbers: [i64; 4]) -> Tally {
    let [succeeded, failed, refused, unknown] = numbers.map(i64::unsigned_abs);
    Tally {
        succeeded,
        failed,
        refused,
        unknown,
    }
}

/// What is added, by destination, slot and its end.
type Slots = BTreeMap<(Uuid, Slot, i64), (Tally, Took)>;

/// As an array of Postgres is written: `unnest` would flatten arrays in an array.
fn latencies(took: &Took) -> String {
    let counts: Vec<String> = took.counts().iter().map(u64::to_string).collect();
    format!("{{{}}}", counts.join(","))
}

async fn add_slots(connection: &mut PgConnection, slots: Slots) -> Result<(), Failure> {
    if slots.is_empty() {
        return Ok(());
    }
    let of = |number: fn(&Tally) -> u64| {
        let number = |(tally, _): &(Tally, Took)| i64::try_from(number(tally)).unwrap_or(i64::MAX);
        slots.values().map(number).collect::<Vec<_>>()
    };
    sqlx::query(
        "-- tally: add
        insert into tallies as t
            (destination_id, slot, ends_at, succeeded, failed, refused, unknown, latencies)
        select n.id, n.slot, from_micros(n.ends_at), n.succeeded, n.failed, n.refused, n.unknown,
            n.latencies::bigint[]
        from unnest(
            $1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::text[]
        ) as n (id, slot, ends_at, succeeded, failed, refused, unknown, latencies)
        on conflict (destination_id, slot, ends_at) do update
        set succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
            refused = t.refused + excluded.refused, unknown = t.unknown + excluded.unknown,
            latencies = (
                select coalesce(
                    array_agg(coalesce(x.has, 0) + coalesce(x.adds, 0) order by x.place), '{}')
                from unnest(t.latencies, excluded.latencies) with ordinality as x (has, adds, place)
            )",
    )
    .bind(slots.keys().map(|(id, ..)| *id).collect::<Vec<_>>())
    .bind(
        slots
            .keys()
            .map(|(_, slot, _)| slot.as_str())
            .collect::<Vec<_>>(),
    )
    .bind(
        slots
            .keys()
            .map(|(.., ends_at)| *ends_at)
            .collect::<Vec<_>>(),
    )
    .bind(of(|tally| tally.succeeded))
    .bind(of(|tally| tally.failed))
    .bind(of(|tally| tally.refused))
    .bind(of(|tally| tally.unknown))
    .bind(
        slots
            .values()
            .map(|(_, took)| latencies(took))
            .collect::<Vec<_>>(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Who begins to fail, and who has recovered, of those of whom it may be so.
async fn look(
    connection: &mut PgConnection,
    passed: &mut [Passed],
    (told_after, now): (Duration, Timestamp),
) -> Result<Vec<Told>, Failure> {
    let since = now - GLANCE_ANSWERS;
    let may_fail = |one: &&mut Passed| {
        let failed_lately = one.last_failed_at.is_some_and(|at| at > since.as_micros());
        failed_lately || one.failing_since.is_some() || one.failures > 0
    };
    let mut asked: Vec<&mut Passed> = passed.iter_mut().filter(may_fail).collect();
    let ids: Vec<Uuid> = asked.iter().map(|one| one.id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut answers = answers(connection, &ids, (since, GLANCE_SAMPLE)).await?;
    let mut news = Vec::new();
    for one in &mut asked {
        let found = answers.remove(&one.id).unwrap_or_default();
        let lately = lately(&found);
        let before = time(one.failing_since).map(|since| Failing {
            since,
            told: one.failing_told,
        });
        let percent = one
            .alert_failing_percent
            .map_or(FAILING_PERCENT, |set| count(set.into()));
        let in_a_row = count(one.failures.into());
        let (failing, told) =
            Failing::look(before, &lately, (in_a_row, percent), (told_after, now));
        one.failing_since = failing.map(|failing| failing.since.as_micros());
        one.failing_told = failing.is_some_and(|failing| failing.told);
        news.extend(told.map(|news| Told {
            destination: Some(DestinationId(one.id)),
            tenant: TenantId(one.tenant_id),
            news,
        }));
    }
    Ok(news)
}

async fn write(connection: &mut PgConnection, passed: &[Passed]) -> Result<(), Failure> {
    sqlx::query(
        "-- tally: mark
        insert into tally_marks as m
            (destination_id, until, last_failed_at, last_failed_status, failing_since, failing_told)
        select n.id, from_micros(n.until), from_micros(n.last_failed_at), n.status,
            from_micros(n.failing_since), n.told
        from unnest(
            $1::uuid[], $2::bigint[], $3::bigint[], $4::integer[], $5::bigint[], $6::boolean[]
        ) as n (id, until, last_failed_at, status, failing_since, told)
        on conflict (destination_id) do update
        set until = excluded.until, last_failed_at = excluded.last_failed_at,
            last_failed_status = excluded.last_failed_status,
            failing_since = excluded.failing_since, failing_told = excluded.failing_told
        where (m.until, m.last_failed_at, m.failing_since, m.failing_told) is distinct from
            (excluded.until, excluded.last_failed_at, excluded.failing_since,
                excluded.failing_told)",
    )
    .bind(passed.iter().map(|one| one.id).collect::<Vec<_>>())
    .bind(passed.iter().map(|one| one.until).collect::<Vec<_>>())
    .bind(
        passed
            .iter()
            .map(|one| one.last_failed_at)
            .collect::<Vec<_>>(),
    )
    .bind(
        passed
            .iter()
            .map(|one| one.last_failed_status)
            .collect::<Vec<_>>(),
    )
    .bind(
        passed
            .iter()
            .map(|one| one.failing_since)
            .collect::<Vec<_>>(),
    )
    .bind(
        passed
            .iter()
            .map(|one| one.failing_told)
            .collect::<Vec<_>>(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn trim(connection: &mut PgConnection, now: Timestamp, limit: u32) -> Result<(), Failure> {
    sqlx::query(
        "-- tally: trim
        delete from tallies t
        using (
            select o.destination_id, o.slot, o.ends_at
            from unnest($1::text[], $2::bigint[]) as n (slot, before)
            cross join lateral (
                select t.destination_id, t.slot, t.ends_at from tallies t
                where t.slot = n.slot and micros(t.ends_at) < n.before
                order by micros(t.ends_at) limit $3
            ) o
        ) x
        where t.destination_id = x.destination_id and t.slot = x.slot and t.ends_at = x.ends_at",
    )
    .bind(Slot::ALL.map(Slot::as_str).as_slice())
    .bind(
        Slot::ALL
            .map(|slot| (now - slot.kept()).as_micros())
            .as_slice(),
    )
    .bind(i64::from(limit))
    .execute(connection)
    .await?;
    Ok(())
}

async fn tallied(
    pool: &PgPool,
    destination: DestinationId,
    slot: Slot,
    since: Timestamp,
) -> Result<Vec<TalliedSlot>, Failure> {
    let rows: Vec<(i64, i64, i64, i64, i64, Vec<i64>)> = sqlx::query_as(
        "-- tallied
        select micros(t.ends_at), t.succeeded, t.failed, t.refused, t.unknown, t.latencies
        from tallies t
        where t.destination_id = $1 and t.slot = $2 and t.ends_at > from_micros($3)
        order by t.ends_at",
    )
    .bind(destination.0)
    .bind(slot.as_str())
    .bind(since.as_micros())
    .fetch_all(pool)
    .await?;
    let slot = |(ends_at, succeeded, failed, refused, unknown, took): (_, _, _, _, _, Vec<_>)| {
        TalliedSlot {
            ends_at: Timestamp::from_micros(ends_at),
            tally: tally([succeeded, failed, refused, unknown]),
            took: Took::of(took.into_iter().map(i64::unsigned_abs)),
        }
    };
    Ok(rows.into_iter().map(slot).collect())
}

row! {
    struct OutcomesRow {
        id: Uuid,
        last_failed_at: Option<i64>,
        last_failed_status: Option<i32>,
        hour: [i64; 4],
        day: [i64; 4],
    }
}

async fn outcomes(pool: &PgPool, asked: &[DestinationId]) -> Result<Vec<Outcomes>, Failure> {
    let now = now(pool).await?;
    let day = LastDay::before(now);
    let rows: Vec<OutcomesRow> = sqlx::query_as(
        "-- outcomes
        select n.id, micros(m.last_failed_at) as last_failed_at, m.last_failed_status, s.hour, s.day
        from unnest($1::uuid[]) with ordinality as n (id, place)
        left join tally_marks m on m.destination_id = n.id
        cross join lateral (
            select array[
                    coalesce(sum(x.succeeded) filter (where x.is_of_hour), 0),
                    coalesce(sum(x.failed) filter (where x.is_of_hour), 0),
                    coalesce(sum(x.refused) filter (where x.is_of_hour), 0),
                    coalesce(sum(x.unknown) filter (where x.is_of_hour), 0)
                ]::bigint[] as hour,
                array[
                    coalesce(sum(x.succeeded) filter (where not x.is_of_hour), 0),
                    coalesce(sum(x.failed) filter (where not x.is_of_hour), 0),
                    coalesce(sum(x.refused) filter (where not x.is_of_hour), 0),
                    coalesce(sum(x.unknown) filter (where not x.is_of_hour), 0)
                ]::bigint[] as day
            from (
                select t.*, true as is_of_hour from tallies t
                where t.destination_id = n.id and t.slot = 'minutes'
                    and t.ends_at > from_micros($2)
                union all
                select t.*, false from tallies t
                where t.destination_id = n.id and t.slot = 'minutes'
                    and t.ends_at > from_micros($3) and t.ends_at <= from_micros($4)
                union all
                select t.*, false from tallies t
                where t.destination_id = n.id and t.slot = 'hour'
                    and t.ends_at > from_micros($4)
            ) x
        ) s
        order by n.place",
    )
    .bind(asked.iter().map(|id| id.0).collect::<Vec<_>>())
    .bind((now - Slot::Hour.length()).as_micros())
    .bind(day.since.as_micros())
    .bind(day.hours_from.as_micros())
    .fetch_all(pool)
    .await?;
    let outcomes = |row: OutcomesRow| Outcomes {
        destination: DestinationId(row.id),
        hour: tally(row.hour),
        day: tally(row.day),
        last_failure: time(row.last_failed_at).map(|at| {
            let status = row.last_failed_status;
            (at, status.and_then(|status| u16::try_from(status).ok()))
        }),
    };
    Ok(rows.into_iter().map(outcomes).collect())
}

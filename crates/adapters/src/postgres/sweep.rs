//! Destinations that need a look.
//!
//! A walk from destination to destination over the indexes of what waits: it
//! costs a part of an index probe for each that has little work, a few reads for
//! each that has much, and nothing for the rest.

use domain::ids::DestinationId;
use domain::time::{Timestamp, micros};
use engine::ports::{Mark, Sweep, SweepPage, Wake};
use sqlx::PgPool;
use uuid::Uuid;

use super::failure::Failure;

/// Each step of the walk reads the next eight rows of each of the indexes, and so
/// finds all destinations up to the last one that each of them has come to: many
/// at once where each has one retry that waits, at least one where each has a
/// million.
const WALK: &str = "-- sweep
    with recursive clock as materialized (select clock_timestamp() as now),
    walk (ids, last, step) as (
        select '{}'::uuid[], coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid), 0
        union all
        select found.ids, found.ids[cardinality(found.ids)], w.step + cardinality(found.ids)
        from walk w
        cross join lateral (
            select
                array(
                    select a.destination_id from attempts a
                    where a.state = 'waiting' and a.due_at is null and a.destination_id > w.last
                        and a.id >= (select o.attempt_id from attempts_horizon o where o.id = 1)
                    order by a.destination_id limit 8
                ) as first,
                array(
                    select a.destination_id from attempts a
                    where a.state = 'waiting' and a.due_at is not null and a.destination_id > w.last
                        and a.id >= (select o.attempt_id from attempts_horizon o where o.id = 1)
                    order by a.destination_id limit 8
                ) as due,
                case when $3 then array(
                    select a.destination_id from attempts a
                    where a.state = 'admitted' and a.destination_id > w.last
                        and a.id >= (select o.attempt_id from attempts_horizon o where o.id = 1)
                    order by a.destination_id limit 8
                ) end as admitted
            offset 0
        ) next
        cross join lateral (
            select array(
                select distinct n.id from unnest(next.first || next.due || next.admitted) n (id)
                where n.id <= least(next.first[8], next.due[8], next.admitted[8])
                    or least(next.first[8], next.due[8], next.admitted[8]) is null
                order by n.id
            ) as ids
            offset 0
        ) found
        where w.step < $2 and w.last is not null
    ),
    page as materialized (
        select n.id from walk w cross join lateral unnest(w.ids) n (id)
        order by n.id limit $2
    ),
    whole as materialized (
        select (select p.id from page p order by p.id desc limit 1) as last,
            (select count(*) from page) >= $2 as is_full
    )
    select micros(clock.now) as now, w.id, whole.is_full,
        coalesce(d.state = 'active' and d.deleted_at is null, false) as awake,
        l.overdue,
        coalesce(case when $3 or l.overdue then (
            select true from attempts a
            where a.destination_id = w.id and a.state = 'waiting' and a.due_at is null
                and a.id >= (select o.attempt_id from attempts_horizon o where o.id = 1)
            order by a.id + 0 limit 1
        ) end, false) as has_first,
        case when $3 or l.overdue then (
            select micros(a.due_at) from attempts a
            where a.destination_id = w.id and a.state = 'waiting' and a.due_at is not null
                and a.id >= (select o.attempt_id from attempts_horizon o where o.id = 1)
            order by a.due_at limit 1
        ) end as due_at,
        $3 and exists (
            select from attempts a
            where a.destination_id = w.id and a.state = 'admitted'
                and a.id >= (select o.attempt_id from attempts_horizon o where o.id = 1)
        ) as has_permits
    from page w
    cross join clock
    cross join whole
    left join destinations d on d.id = w.id
    left join pacing p on p.destination_id = w.id
    cross join lateral (
        select p.next_look_at is null
            or p.next_look_at < clock.now - $4::bigint * interval '1 microsecond' as overdue
    ) l
    where $3 or l.overdue or w.id = whole.last
    order by w.id";

#[derive(sqlx::FromRow)]
struct Visited {
    now: i64,
    id: Uuid,
    /// There may be more after this page.
    is_full: bool,
    awake: bool,
    overdue: bool,
    /// These two are read only where it is overdue, or everything is asked for.
    has_first: bool,
    due_at: Option<i64>,
    /// Read only where everything is asked for.
    has_permits: bool,
}

/// One page.
pub(super) async fn sweep(pool: &PgPool, sweep: &Sweep) -> Result<SweepPage, Failure> {
    let visited = match sweep.only_marks {
        true => Vec::new(),
        false => visit(pool, sweep).await?,
    };
    let next = (visited.last())
        .filter(|last| last.is_full)
        .map(|last| DestinationId(last.id));
    let mut wakes: Vec<Wake> = (visited.iter())
        .filter_map(|visited| visited.wake(sweep.everything))
        .collect();
    let mut marks = Vec::new();
    if sweep.after.is_none() {
        marks = read_marks(pool, sweep.limit).await?;
        for mark in &marks {
            wakes.retain(|wake| wake.destination != mark.destination);
            wakes.push(Wake::unblocked(mark.destination));
        }
    }
    Ok(SweepPage { wakes, marks, next })
}

async fn visit(pool: &PgPool, sweep: &Sweep) -> Result<Vec<Visited>, Failure> {
    let visited = sqlx::query_as(WALK)
        .bind(sweep.after.map(|after| after.0))
        .bind(i32::try_from(sweep.limit).unwrap_or(i32::MAX))
        .bind(sweep.everything)
        .bind(micros(sweep.overdue));
    Ok(visited.fetch_all(pool).await?)
}

impl Visited {
    fn wake(&self, everything: bool) -> Option<Wake> {
        let now = Timestamp::from_micros(self.now);
        let destination = DestinationId(self.id);
        let due_at = self.due_at.map(Timestamp::from_micros);
        let due = self.has_first || due_at.is_some_and(|due_at| due_at <= now);
        if !self.awake {
            return None;
        }
        match due_at {
            _ if due => (everything || self.overdue).then(|| Wake::now(destination)),
            _ if !everything => None,
            // The run that follows publishes them again, or sees when they end.
            _ if self.has_permits => Some(Wake::now(destination)),
            due_at => due_at.map(|due_at| Wake::after(destination, due_at.since(now))),
        }
    }
}

/// Marks, the oldest first.
async fn read_marks(pool: &PgPool, limit: u32) -> Result<Vec<Mark>, Failure> {
    let marks: Vec<(Uuid, i64)> = sqlx::query_as(
        "-- sweep: read_marks
        select m.destination_id, m.version from destination_marks m
        order by m.version
        limit $1",
    )
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let mark = |(destination, version)| Mark {
        destination: DestinationId(destination),
        version,
    };
    Ok(marks.into_iter().map(mark).collect())
}

/// Forgets marks that were not made again since.
pub(super) async fn clear_marks(pool: &PgPool, marks: &[Mark]) -> Result<(), Failure> {
    sqlx::query(
        "-- clear_marks
        delete from destination_marks m
        using unnest($1::uuid[], $2::bigint[]) as n (destination_id, version)
        where m.destination_id = n.destination_id and m.version = n.version",
    )
    .bind(
        marks
            .iter()
            .map(|mark| mark.destination.0)
            .collect::<Vec<_>>(),
    )
    .bind(marks.iter().map(|mark| mark.version).collect::<Vec<_>>())
    .execute(pool)
    .await?;
    Ok(())
}

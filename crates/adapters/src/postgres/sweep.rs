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
use crate::row::row;

/// Each step of the walk reads the next few rows of each of the indexes. So it
/// finds all destinations up to the last one that each of them has come to: many
/// at once where each has one retry that waits, at least one where each has a
/// million; the next step reads twice as many rows as this one has found. And it
/// knows of each what waits first, since the indexes are in that order. Only who is
/// due is returned, and the last of the page.
const WALK: &str = "-- sweep
    with recursive clock as materialized (select clock_timestamp() as now),
    walk (ids, firsts, due_at, has_permits, last, step, reads) as (
        select '{}'::uuid[], '{}'::bigint[], '{}'::timestamptz[], '{}'::boolean[],
            coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid), 0, 8
        union all
        select found.ids, found.firsts, found.due_at, found.has_permits,
            found.ids[cardinality(found.ids)], w.step + cardinality(found.ids),
            least(2 * cardinality(found.ids), 64)
        from walk w
        cross join lateral (
            select array_agg(n.destination_id) as ids, array_agg(n.first) as firsts
            from (
                select a.destination_id, a.id + 0 as first from deliveries a
                where a.permit is null and a.due_at is null and a.destination_id > w.last
                order by a.destination_id, a.id + 0 limit w.reads
            ) n
        ) first
        cross join lateral (
            select array_agg(n.destination_id) as ids, array_agg(n.due_at) as due_at
            from (
                select a.destination_id, a.due_at from deliveries a
                where a.permit is null and a.due_at is not null and a.destination_id > w.last
                order by a.destination_id, a.urgent desc, a.due_at limit w.reads
            ) n
        ) due
        cross join lateral (
            select array_agg(n.destination_id) as ids
            from (
                select a.destination_id from deliveries a
                where $3 and a.permit is not null and a.carried_by is null
                and a.state = 'admitted' and a.destination_id > w.last
                order by a.destination_id limit w.reads
            ) n
        ) admitted
        cross join lateral (
            select array_agg(n.id order by n.id) as ids,
                array_agg(n.first order by n.id) as firsts,
                array_agg(n.due_at order by n.id) as due_at,
                array_agg(n.has_permits order by n.id) as has_permits
            from (
                select n.id, min(n.first) as first, min(n.due_at) as due_at,
                    bool_or(n.is_admitted) as has_permits
                from (
                    select n.id, n.first, null::timestamptz as due_at, false as is_admitted
                    from unnest(first.ids, first.firsts) n (id, first)
                    union all
                    select n.id, null, n.due_at, false from unnest(due.ids, due.due_at) n (id, due_at)
                    union all
                    select n.id, null, null, true from unnest(admitted.ids) n (id)
                ) n
                where (n.id <= least(first.ids[w.reads], due.ids[w.reads], admitted.ids[w.reads])) is not false
                group by n.id
            ) n
        ) found
        where w.step < $2 and w.last is not null
    ),
    page as materialized (
        select n.id, n.first, n.due_at, n.has_permits
        from walk w
        cross join lateral unnest(w.ids, w.firsts, w.due_at, w.has_permits)
            n (id, first, due_at, has_permits)
        order by n.id limit $2
    ),
    whole as materialized (
        select (select p.id from page p order by p.id desc limit 1) as last,
            (select count(*) from page) >= $2 as is_full
    )
    select micros(clock.now) as now, w.id, whole.is_full,
        coalesce(d.state = 'active' and d.deleted_at is null, false) as awake,
        l.overdue, w.first is not null as has_first, micros(w.due_at) as due_at, w.has_permits,
        case when w.first <= p.first_after then w.first end as late
    from page w
    cross join clock
    cross join whole
    left join destinations d on d.id = any (array[w.id])
    left join pacing p on p.destination_id = any (array[w.id])
    cross join lateral (
        select p.next_look_at is null
            or p.next_look_at < clock.now - $4::bigint * interval '1 microsecond' as overdue
    ) l
    where $3 or w.id = whole.last or w.first <= p.first_after
        or l.overdue and (w.first is not null or w.due_at <= clock.now)
    order by w.id";

row! {
    struct Visited {
        now: i64,
        id: Uuid,
        /// There may be more after this page.
        is_full: bool,
        awake: bool,
        overdue: bool,
        has_first: bool,
        due_at: Option<i64>,
        /// Read only where everything is asked for.
        has_permits: bool,
        /// The first attempt that waits, where the cursor has passed it.
        late: Option<i64>,
    }
}

/// One page.
pub(super) async fn sweep(pool: &PgPool, sweep: &Sweep) -> Result<SweepPage, Failure> {
    let visited = match sweep.only_marks {
        true => Vec::new(),
        false => visit(pool, sweep).await?,
    };
    let late = lower_cursors(pool, &visited).await?;
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
    Ok(SweepPage {
        wakes,
        marks,
        late,
        next,
    })
}

/// Where the server believes that next to nothing waits, it would rather read and
/// sort all of it: at each step, and its belief is a minute old.
const BEGIN: &str = "begin; set local enable_sort = off";

async fn visit(pool: &PgPool, sweep: &Sweep) -> Result<Vec<Visited>, Failure> {
    let mut transaction = pool.begin_with(BEGIN).await?;
    let visited = sqlx::query_as(WALK)
        .bind(sweep.after.map(|after| after.0))
        .bind(i32::try_from(sweep.limit).unwrap_or(i32::MAX))
        .bind(sweep.everything)
        .bind(micros(sweep.overdue));
    let visited = visited.fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(visited)
}

/// Ids are given before the commit. A commit that was held up for longer than the
/// cursor waits, by a standby that stalls or a client that is slow, shows attempts that
/// the cursor has passed, and no run would ever read them. The cursor is a hint: it goes
/// back to what really waits. Under the destination's lock, or a run that has locked and read it
/// before would write it back; where a run has the lock, the next sweep comes soon.
/// How many were lowered.
async fn lower_cursors(pool: &PgPool, visited: &[Visited]) -> Result<u32, Failure> {
    let (ids, firsts): (Vec<Uuid>, Vec<i64>) = (visited.iter())
        .filter_map(|one| one.late.map(|first| (one.id, first)))
        .unzip();
    if ids.is_empty() {
        return Ok(0);
    }
    let lowered = sqlx::query(
        "-- sweep: lower_cursors
        with locked as materialized (
            select d.id, n.first
            from unnest($1::uuid[], $2::bigint[]) as n (id, first)
            join destinations d on d.id = any (array[n.id])
            order by n.id
            for no key update of d skip locked
        )
        update pacing p set first_after = l.first - 1
        from locked l
        where p.destination_id = any (array[l.id]) and p.first_after >= l.first",
    )
    .bind(ids)
    .bind(firsts)
    .execute(pool)
    .await?;
    Ok(u32::try_from(lowered.rows_affected()).unwrap_or(u32::MAX))
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
            _ if self.late.is_some() => Some(Wake::now(destination)),
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
        with locked as materialized (
            -- In the order in which a change marks them.
            select m.destination_id, m.version
            from unnest($1::uuid[], $2::bigint[]) as n (destination_id, version)
            join destination_marks m
                on m.destination_id = n.destination_id and m.version = n.version
            order by m.destination_id
            for update of m
        )
        delete from destination_marks m
        using locked l
        where m.destination_id = l.destination_id and m.version = l.version",
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

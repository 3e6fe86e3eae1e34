//! The move: from dead letters to waiting attempts.

use domain::replay::Step;
use domain::time::Timestamp;
use engine::ports::MAX_EXAMINED;
use sqlx::PgConnection;

use super::{Reached, Running};
use crate::postgres::failure::Failure;
use crate::postgres::rows::count;
use crate::row::row;

/// What one replay's step came to.
pub(super) struct Moved {
    /// Dead letters moved.
    pub(super) count: u32,
    /// There is nothing left to look at.
    pub(super) all: bool,
}

row! {
    struct Row {
        examined: i64,
        picked: i64,
        moved: i64,
        last_at: Option<i64>,
        last_id: Option<i64>,
    }
}

/// Looks at a bounded number of dead letters from where the last step stopped,
/// takes up to `$9` that match, and moves those that still are dead letters
/// when they are locked.
const MOVE: &str = "-- advance_replays: move
    with examined as materialized (
        select a.id, a.event_id, a.status, coalesce(a.finished_at, a.started_at) as died
        from ledger a
        where a.destination_id = $1 and a.dead_letter and a.replayed_at is null
            and coalesce(a.finished_at, a.started_at) >= from_micros($2)
            and coalesce(a.finished_at, a.started_at) < from_micros($3)
            and (coalesce(a.finished_at, a.started_at), a.id + 0) > (from_micros($4), $5)
        order by coalesce(a.finished_at, a.started_at), a.id + 0
        limit $8
    ),
    picked as materialized (
        select x.id, x.died
        from examined x
        cross join lateral (
            select e.event_type from events e
            where e.id = x.event_id and e.day = event_day(x.event_id)
            limit 1
        ) e
        where ($6::bigint is null or x.id = $6)
            and ($7::integer is null or x.status = $7)
            and ($10::text is null or e.event_type = $10)
        order by x.died, x.id
        limit $9
    ),
    locked as materialized (
        select a.id
        from picked p join ledger a on a.id = any (array[p.id])
        where a.dead_letter and a.replayed_at is null
        order by p.id
        for update of a
    ),
    marked as (
        update ledger a set replayed_at = from_micros($11)
        from locked l
        where a.id = any (array[l.id])
        returning a.event_id, a.destination_id, a.tenant_id, a.try_number, a.payload_bytes
    ),
    added as (
        insert into deliveries (
            event_id, destination_id, tenant_id, try_number, tries_before, due_at, created_at,
            replay_id, expires_at, payload_bytes, urgent
        )
        select m.event_id, m.destination_id, m.tenant_id, m.try_number + 1, m.try_number,
            from_micros($11), from_micros($11), $12,
            from_micros($11)
                + coalesce(d.max_age_ms, d.tier_age_ms) * interval '1 millisecond',
            m.payload_bytes, e.urgent
        from marked m
        join destinations d on d.id = any (array[m.destination_id])
        cross join lateral (
            select e.urgent from events e
            where e.id = m.event_id and e.day = event_day(m.event_id)
            limit 1
        ) e
        returning 1
    )
    select (select count(*) from examined) as examined, (select count(*) from picked) as picked,
        (select count(*) from added) as moved, micros(last.died) as last_at, last.id as last_id
    from (values (1)) as one
    left join lateral (
        -- Those after the last one picked are looked at again, if any was left.
        select l.died, l.id from (
            (select x.died, x.id from examined x
                where (select count(*) from picked) < $9
                order by x.died desc, x.id desc limit 1)
            union all
            (select p.died, p.id from picked p
                where (select count(*) from picked) >= $9
                order by p.died desc, p.id desc limit 1)
        ) l
    ) last on true";

/// Moves what the step allows, and remembers how far it came.
pub(super) async fn take(
    connection: &mut PgConnection,
    replay: &Running,
    step: Step,
    now: Timestamp,
) -> Result<Moved, Failure> {
    if step.count == 0 {
        remember(connection, replay, Reached::Nothing, step.paced_at(0), 0).await?;
        return Ok(Moved {
            count: 0,
            all: false,
        });
    }
    let row: Row = sqlx::query_as(MOVE)
        .bind(replay.destination_id)
        .bind(replay.died_from.unwrap_or(0))
        .bind(replay.died_before)
        .bind(replay.after_at.unwrap_or(0))
        .bind(replay.after_id.unwrap_or(0))
        .bind(replay.attempt_id)
        .bind(replay.status)
        .bind(i64::from(MAX_EXAMINED))
        .bind(i64::from(step.count))
        .bind(replay.event_type.as_deref())
        .bind(now.as_micros())
        .bind(replay.id)
        .fetch_one(&mut *connection)
        .await?;
    let moved = count(row.moved);
    let last = row.last_at.zip(row.last_id);
    let last = last.map_or(Reached::Nothing, |(at, id)| Reached::DeadLetter(at, id));
    remember(connection, replay, last, step.paced_at(moved), moved).await?;
    let all = row.examined < i64::from(MAX_EXAMINED) && row.picked < i64::from(step.count);
    if all {
        end(connection, replay, "completed").await?;
    }
    Ok(Moved { count: moved, all })
}

pub(super) async fn remember(
    connection: &mut PgConnection,
    replay: &Running,
    last: Reached,
    paced_at: Timestamp,
    moved: u32,
) -> Result<(), Failure> {
    let (dead, event) = match last {
        Reached::Nothing => (None, None),
        Reached::DeadLetter(at, id) => (Some((at, id)), None),
        Reached::Event(id) => (None, Some(id)),
    };
    sqlx::query(
        "-- advance_replays: remember
        update replays r
        set after_at = coalesce(from_micros($2), r.after_at), after_id = coalesce($3, r.after_id),
            after_event = coalesce($6, r.after_event), paced_at = from_micros($4),
            looked_at = clock_timestamp(), done = r.done + $5, total = greatest(r.total, r.done + $5)
        where r.id = $1",
    )
    .bind(replay.id)
    .bind(dead.map(|(at, _)| at))
    .bind(dead.map(|(_, id)| id))
    .bind(paced_at.as_micros())
    .bind(i64::from(moved))
    .bind(event)
    .execute(connection)
    .await?;
    Ok(())
}

/// Ends one.
pub(super) async fn end(
    connection: &mut PgConnection,
    replay: &Running,
    state: &'static str,
) -> Result<(), Failure> {
    sqlx::query(
        "-- advance_replays: end
        update replays r set state = $2, finished_at = clock_timestamp() where r.id = $1",
    )
    .bind(replay.id)
    .bind(state)
    .execute(connection)
    .await?;
    Ok(())
}

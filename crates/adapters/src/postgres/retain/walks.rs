//! The walks that go row by row.
//!
//! Each statement decides on one snapshot: what makes an attempt of an event
//! that has none left that is not over begins from a row that this snapshot sees
//! as not over, or as a dead letter that can be replayed.

use std::time::Duration;

use domain::search::first_at;
use domain::time::Timestamp;
use engine::ports::Walk;
use sqlx::PgConnection;
use sqlx::postgres::PgQueryResult;

use super::{Cutoffs, Stepped, Turn, destinations};
use crate::postgres::failure::Failure;

/// Bytes of payloads that one step deletes, but for the first: each 2 KiB are a
/// row of their own, and all of them are to be gone well before a statement's
/// time is over, on a slow disk too.
const STEP_BYTES: i64 = 16 << 20;

pub(super) async fn step(
    connection: &mut PgConnection,
    walk: Walk,
    turn: &Turn,
    cutoff: &Cutoffs,
    deleted_for: Duration,
    limit: i64,
) -> Result<Stepped, Failure> {
    let since = match walk {
        Walk::Events => cutoff.rows_of_payloads,
        Walk::DeadLetters => cutoff.dead_letters,
        Walk::Attempts => cutoff.rows_of_ledger,
        Walk::LimitHistory | Walk::Records => cutoff.ledger,
        // The walk itself knows since when.
        Walk::Destinations => {
            return destinations::step(connection, turn, deleted_for, limit).await;
        }
        Walk::Days => None,
    };
    let Some(since) = since else {
        return Ok(Stepped::default());
    };
    match walk {
        Walk::Attempts => by_id(connection, ATTEMPTS, turn, since, limit).await,
        Walk::LimitHistory => by_id(connection, LIMIT_HISTORY, turn, since, limit).await,
        Walk::DeadLetters => {
            dead_letters(connection, turn, (since, cutoff.rows_of_ledger), limit).await
        }
        Walk::Events => events(connection, turn, since, limit).await,
        Walk::Records => records(connection, since, limit).await,
        Walk::Days | Walk::Destinations => Ok(Stepped::default()),
    }
}

/// The oldest rows of the ledger, up to the first that is young. Those that
/// have ended go; a dead letter that can be replayed is another walk's.
const ATTEMPTS: &str = "-- retain: attempts
    with examined as materialized (
        select a.id, a.created_at from attempts a where a.id > $1 order by a.id limit $3
    ),
    old as materialized (
        select x.id from examined x
        where x.id < coalesce(
            (select min(y.id) from examined y where y.created_at >= from_micros($2)),
            9223372036854775807
        )
    ),
    locked as materialized (
        select a.id
        from old x join ledger a on a.id = any (array[x.id])
        where greatest(a.created_at, a.started_at, a.finished_at) < from_micros($2)
            and not (a.dead_letter and a.replayed_at is null)
        order by x.id
        for update of a skip locked
    ),
    gone as (
        delete from ledger a using locked l where a.id = any (array[l.id]) returning a.id
    )
    select count(x.id) as examined, count(g.id) as removed, count(x.id) >= $3 as more,
        max(x.id) as last_id, min(x.id) filter (where g.id is null) - 1 as left_id,
        null::bigint as last_at, null::uuid as last_event, null::bigint as left_at
    from old x left join gone g on g.id = x.id";

/// What was in force from the cut on stays: of each destination the last entry
/// before it. So does whatever a start that is left was made under, for the audit
/// judges it by that.
const LIMIT_HISTORY: &str = "-- retain: limit_history
    with examined as materialized (
        select h.id, h.in_force_from from limit_history h where h.id > $1 order by h.id limit $3
    ),
    old as materialized (
        select x.id from examined x
        where x.id < coalesce(
            (select min(y.id) from examined y where y.in_force_from >= from_micros($2)),
            9223372036854775807
        )
    ),
    superseded as materialized (
        select h.id
        from old x
        join limit_history h on h.id = x.id
        cross join lateral (
            select min(later.in_force_from) as at from limit_history later
            where later.destination_id = h.destination_id
                and later.in_force_from >= h.in_force_from and later.id > h.id
        ) next
        where next.at < from_micros($2)
            and not exists (
                select from starts a
                where a.destination_id = h.destination_id and a.carried_by is null
                    and not a.folded and a.started_at < next.at + interval '500 milliseconds'
                offset 0
            )
            and not exists (
                select from starts a
                where a.destination_id = h.destination_id and a.carried_by is null
                    and a.folded and a.started_at < next.at + interval '500 milliseconds'
                offset 0
            )
    ),
    gone as (
        delete from limit_history h using superseded s where h.id = s.id returning h.id
    )
    select count(x.id) as examined, count(g.id) as removed, count(x.id) >= $3 as more,
        max(x.id) as last_id, min(x.id) filter (where g.id is null) - 1 as left_id,
        null::bigint as last_at, null::uuid as last_event, null::bigint as left_at
    from old x left join gone g on g.id = x.id";

async fn by_id(
    connection: &mut PgConnection,
    sql: &'static str,
    turn: &Turn,
    since: i64,
    limit: i64,
) -> Result<Stepped, Failure> {
    Ok(sqlx::query_as(sql)
        .bind(turn.after_id)
        .bind(since)
        .bind(limit)
        .fetch_one(connection)
        .await?)
}

/// Those that died first, but none that a running replay may still come to.
/// Which are older than the ledger as well go; the others stay in it as what they
/// are besides, attempts that failed.
const DEAD_LETTERS: &str = "-- retain: dead_letters
    with examined as materialized (
        select a.id, a.destination_id, coalesce(a.finished_at, a.started_at) as died
        from ledger a
        where a.dead_letter and a.replayed_at is null
            and micros(coalesce(a.finished_at, a.started_at)) < $1
            and (micros(coalesce(a.finished_at, a.started_at)), (a.id + 0)) > ($4, $5)
        order by micros(coalesce(a.finished_at, a.started_at)), a.id + 0
        limit $3
    ),
    locked as materialized (
        select a.id, x.died
        from examined x join ledger a on a.id = any (array[x.id])
        where a.dead_letter and a.replayed_at is null
            and not exists (
                select from replays r
                where r.state = 'running' and r.destination_id = x.destination_id
                    and (r.attempt_id is null or r.attempt_id = x.id)
                    and x.died >= coalesce(r.died_from, '-infinity') and x.died < r.died_before
            )
        order by x.id
        for update of a skip locked
    ),
    gone as (
        delete from ledger a using locked l
        where a.id = l.id and l.died < from_micros($2)
        returning a.id
    ),
    ended as (
        update ledger a set dead_letter = false
        from locked l
        where a.id = l.id and (l.died < from_micros($2)) is not true
        returning a.id
    ),
    done as (select g.id from gone g union all select e.id from ended e)
    select count(x.id) as examined, count(d.id) as removed, count(x.id) >= $3 as more,
        micros((array_agg(x.died order by x.died desc, x.id desc))[1]) as last_at,
        (array_agg(x.id order by x.died desc, x.id desc))[1] as last_id,
        micros((array_agg(x.died order by x.died, x.id) filter (where d.id is null))[1])
            as left_at,
        (array_agg(x.id order by x.died, x.id) filter (where d.id is null))[1] - 1 as left_id,
        null::uuid as last_event
    from examined x left join done d on d.id = x.id";

async fn dead_letters(
    connection: &mut PgConnection,
    turn: &Turn,
    (since, ledger): (i64, Option<i64>),
    limit: i64,
) -> Result<Stepped, Failure> {
    Ok(sqlx::query_as(DEAD_LETTERS)
        .bind(since)
        .bind(ledger)
        .bind(limit)
        .bind(turn.after_at)
        .bind(turn.after_id)
        .fetch_one(connection)
        .await?)
}

/// The oldest events, up to the first that is young, and until their payloads are many
/// bytes. One with an attempt that is not over, or a dead letter that can be replayed,
/// stays. Ids say times, so days are walked along their keys, and only events without a
/// day have an index by age. One whose id says an earlier time than its creation, as its
/// giver may choose, is in nobody's way: it is passed, and stays until it is old.
const EVENTS: &str = "-- retain: events
    with examined as materialized (
        select e.id, e.at, e.created_at, e.bytes from (
            (
                select e.id, event_at(e.id) as at, e.created_at,
                    octet_length(e.payload)::bigint as bytes
                from events e
                where e.day > date '1970-01-01' and e.id >= $6
                    and (event_at(e.id), e.id) > (from_micros($1), $2)
                order by e.id
                limit $4
            )
            union all
            (
                select e.id, e.created_at, e.created_at, octet_length(e.payload)::bigint
                from events e
                where e.day = date '1970-01-01'
                    and (e.created_at, e.id) > (from_micros($1), $2)
                order by e.created_at, e.id
                limit $4
            )
        ) e
        order by e.at, e.id
        limit $4
    ),
    aged as (
        select x.*, bool_or(least(x.at, x.created_at) >= from_micros($3))
            over (order by x.at, x.id) as is_young
        from examined x
    ),
    summed as materialized (
        select x.id, x.at, x.created_at,
            sum(x.bytes) over (order by x.at, x.id) - x.bytes as before
        from aged x
        where not x.is_young
    ),
    taken as materialized (
        select s.id, s.at, s.created_at from summed s where s.before < $5
    ),
    unneeded as materialized (
        select x.id
        from taken x
        -- One lookup for each, whatever the statistics say.
        where x.created_at < from_micros($3)
            and not exists (select from deliveries_of(x.id) offset 0)
            and not exists (
                select from ledger_of(x.id) a
                where a.dead_letter and a.replayed_at is null
                offset 0
            )
    ),
    gone as (
        delete from events e using unneeded u
        where e.id = u.id and e.day = event_day(u.id)
        returning e.id
    )
    select count(x.id) as examined, count(g.id) as removed,
        count(x.id) >= $4 or count(x.id) < (select count(*) from summed) as more,
        micros(max(x.at)) as last_at,
        (array_agg(x.id order by x.at desc, x.id desc))[1] as last_event,
        micros(min(x.at) filter (where g.id is null)) as left_at,
        null::bigint as last_id, null::bigint as left_id
    from taken x left join gone g on g.id = x.id";

async fn events(
    connection: &mut PgConnection,
    turn: &Turn,
    since: i64,
    limit: i64,
) -> Result<Stepped, Failure> {
    Ok(sqlx::query_as(EVENTS)
        .bind(turn.after_at)
        .bind(turn.after_event)
        .bind(since)
        .bind(limit)
        .bind(STEP_BYTES)
        .bind(first_at(Timestamp::from_micros(turn.after_at)).0)
        .fetch_one(connection)
        .await?)
}

/// Replays that are over, and rows of the outbox that nobody came back for.
async fn records(
    connection: &mut PgConnection,
    since: i64,
    limit: i64,
) -> Result<Stepped, Failure> {
    let removed = |done: PgQueryResult| i64::try_from(done.rows_affected()).unwrap_or(i64::MAX);
    let replays = sqlx::query(
        "-- retain: replays
        with old as materialized (
            select r.id from replays r
            where r.finished_at < from_micros($1)
            order by r.finished_at
            limit $2
            for update skip locked
        )
        delete from replays r using old where r.id = old.id",
    )
    .bind(since)
    .bind(limit)
    .execute(&mut *connection)
    .await?;
    let rejected = sqlx::query(
        "-- retain: rejected
        with oldest as materialized (
            select o.position, o.rejected_at from outbox_rejected o order by o.position limit $2
        )
        delete from outbox_rejected o using oldest x
        where o.position = x.position and x.rejected_at < from_micros($1)",
    )
    .bind(since)
    .bind(limit)
    .execute(&mut *connection)
    .await?;
    let (replays, rejected) = (removed(replays), removed(rejected));
    Ok(Stepped {
        examined: replays.max(rejected),
        removed: replays + rejected,
        more: replays.max(rejected) >= limit,
        ..Stepped::default()
    })
}

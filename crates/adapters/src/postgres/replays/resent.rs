//! Events, whatever became of them, that are sent to a destination again.
//!
//! Their replay's row says which: the count when it begins and each step read it there.
//! Steps of one destination take turns, so that two replays never send the same event
//! twice at once; against replays of dead letters each dead letter is locked, and counts
//! as replayed.

use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId, ReplayId, TenantId};
use domain::replay::{ReplaySource, Step};
use domain::search::{IDS_BEFORE, IdRange, Sought, first_at};
use domain::time::Timestamp;
use engine::ports::{
    MAX_EVENTS_COUNTED, MAX_EVENTS_STEP, NewReplay, Resendable, ResentEvents, no_event_by,
};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::moves::{Moved, end, remember};
use super::{Reached, Running};
use crate::postgres::failure::Failure;
use crate::postgres::found_events::sought;
use crate::postgres::rows::count;
use crate::row::row;

/// Whether the event `e` is sent again by the replay `r` to its destination `d`. No attempt
/// of it is older than its id, whatever the clocks say, by a day: no other day is asked.
const WANTED: &str = "e.created_at >= r.died_from and e.created_at < r.died_before
            and (r.event_type is null or e.event_type = r.event_type)
            and (r.event_text is null or strpos(e.id::text, r.event_text) > 0)
            and not exists (
                select from deliveries_of(e.id) a where a.destination_id = r.destination_id
            )
            and (not r.only_missed or not exists (
                select from ledger_of(e.id) a
                where a.destination_id = r.destination_id and a.state = 'succeeded'
                    and a.id >= first_attempt_id(e.day - 1)
            ))
            and ((r.status is null and r.attempt_state is null) or exists (
                select from ledger_of(e.id) a
                where a.destination_id = r.destination_id
                    and a.id >= first_attempt_id(e.day - 1)
                    and (r.status is null or a.status = r.status or a.status / 100 = r.status)
                    and (r.attempt_state is null or a.state = r.attempt_state)
            ))
            and (
                r.event_id is not null
                or (
                    not e.directed and d.filter is null
                    and subscribes(d.event_types, e.event_type)
                )
                or exists (
                    select from ledger_of(e.id) a
                    where a.destination_id = r.destination_id
                        and a.id >= first_attempt_id(e.day - 1)
                )
            )";

/// A tenant's events in the order of their ids: those whose ids say times from `$3` to
/// `$4`, and beside them the few whose ids say none from `$5` to `$6`; after `$7`, so
/// many as `$8`.
const EXAMINED: &str = "
        select e.id, e.day from (
            (
                select e.id, e.day from events e
                where e.tenant_id = $2 and e.day > date '1970-01-01'
                    and e.id >= $3 and e.id < $4 and e.id > $7
                order by e.id limit $8
            )
            union all
            (
                select e.id, e.day from events e
                where e.tenant_id = $2 and e.day = date '1970-01-01'
                    and e.id >= $5 and e.id < $6 and e.id > $7
                order by e.id limit $8
            )
        ) e
        order by e.id limit $8";

const INSERT: &str = "-- create_replay: of events
    insert into replays (
        id, tenant_id, destination_id, source, event_id, only_missed, event_type, died_from,
        died_before, share, total, created_at, attempt_state, status, event_text
    )
    select $1, $2, d.id, $3, $5, $6, $7, from_micros($8),
        least(from_micros($9), clock.now), $10, 0, clock.now, $11, $12, $13
    from (select clock_timestamp() as now) clock cross join destinations d
    where d.id = $4 and d.tenant_id = $2 and d.deleted_at is null
        and ($5::uuid is null or exists (
            select from events e
            where e.id = $5 and e.day = event_day($5) and e.tenant_id = $2
        ))";

/// Where a replay looks.
struct Looked {
    timed: IdRange,
    any: IdRange,
}

impl Looked {
    /// By the one event, or by what ids of those from then until then have in them.
    fn at(
        event: Option<EventId>,
        letters: Option<&str>,
        (since, until): (Option<Timestamp>, Option<Timestamp>),
    ) -> Self {
        match event.map(IdRange::only) {
            Some(one) => Self {
                timed: one,
                any: one,
            },
            None => {
                let any = letters.map_or(IdRange::ALL, IdRange::of_letters);
                Self {
                    timed: IdRange::between(since, until).and(any),
                    any,
                }
            }
        }
    }
}

/// Begins one.
pub(super) async fn create(
    pool: &PgPool,
    tenant: TenantId,
    new: &NewReplay,
    destination: DestinationId,
    (event, which): (Option<EventId>, Option<&ResentEvents>),
) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    let text = letters(&mut transaction, tenant, which).await?;
    let until = which.and_then(|which| which.until);
    let since = which.map(|which| which.since);
    let status = which.and_then(|which| which.status);
    let created = sqlx::query(INSERT)
        .bind(new.id.0)
        .bind(tenant.0)
        .bind(ReplaySource::Events.as_str())
        .bind(destination.0)
        .bind(event.map(|event| event.0))
        .bind(which.is_some_and(|which| which.only_missed))
        .bind(which.and_then(|which| which.event_type.as_deref()))
        .bind(since.map_or(0, Timestamp::as_micros))
        .bind(until.map(Timestamp::as_micros))
        .bind(new.share)
        .bind(
            which
                .and_then(|which| which.state)
                .map(AttemptState::as_str),
        )
        .bind(status.map(|status| i32::from(status.number())))
        .bind(&text)
        .execute(&mut *transaction)
        .await?;
    if created.rows_affected() == 0 {
        let lives = lives(&mut transaction, tenant, destination).await?;
        return Err(Failure::NotFound(match lives {
            true => "event",
            false => "destination",
        }));
    }
    let looked = Looked::at(event, text.as_deref(), (since, until));
    total(&mut transaction, tenant, new.id, (&looked, since)).await?;
    skipped(&mut transaction, new.id, &looked).await?;
    transaction.commit().await?;
    Ok(())
}

/// How many match at each destination of `$1`, as a replay with the columns of `r` would find.
fn resendable_events() -> String {
    format!(
        "-- resendable
        with examined as materialized ({EXAMINED}),
        since_then as materialized (
            select e.* from examined x
            cross join lateral (
                select e.id, e.day, e.created_at, e.event_type, e.directed from events e
                where e.id = x.id and e.day = x.day limit 1
            ) e
            where e.created_at >= from_micros($9)
        )
        select d.id, (select count(*) from examined) as examined, (
            select count(*) from since_then e
            cross join (
                select d.id as destination_id, from_micros($9) as died_from,
                    least(from_micros($10), statement_timestamp()) as died_before,
                    $11::text as event_type, $12::text as event_text,
                    $13::boolean as only_missed, $14::integer as status,
                    $15::text as attempt_state, null::uuid as event_id
            ) r
            where {WANTED}
        ) as wanted
        from destinations d
        where d.id = any ($1) and d.tenant_id = $2 and d.deleted_at is null"
    )
}

/// All of its statements see the same.
const BEGIN_READING: &str = "begin isolation level repeatable read, read only";

/// Counts what would be of it, as of one time, and begins nothing.
pub(in crate::postgres) async fn resendable(
    pool: &PgPool,
    tenant: TenantId,
    to: &[DestinationId],
    which: &ResentEvents,
) -> Result<Resendable, Failure> {
    let mut transaction = pool.begin_with(BEGIN_READING).await?;
    let text = letters(&mut transaction, tenant, Some(which)).await?;
    let Looked { timed, any } = Looked::at(None, text.as_deref(), (Some(which.since), which.until));
    // Those that are counted when it begins, and the older ids that are left out there.
    let begins = first_at(which.since - IDS_BEFORE);
    let older = Looked {
        timed: timed.below(Some(begins)),
        any: any.below(Some(begins)),
    };
    let each = Resendable::events_each(to.len());
    let ids: Vec<Uuid> = to.iter().map(|id| id.0).collect();
    let mut found = Resendable::default();
    for (looked, after, most, is_older) in [
        (Looked { timed, any }, begins.0, each, false),
        (older, Uuid::nil(), MAX_EVENTS_COUNTED, true),
    ] {
        let counted: Vec<(Uuid, i64, i64)> = sqlx::query_as(AssertSqlSafe(resendable_events()))
            .bind(&ids)
            .bind(tenant.0)
            .bind(looked.timed.from.0)
            .bind(looked.timed.before.0)
            .bind(looked.any.from.0)
            .bind(looked.any.before.0)
            .bind(after)
            .bind(i64::from(most))
            .bind(which.since.as_micros())
            .bind(which.until.map(Timestamp::as_micros))
            .bind(which.event_type.as_deref())
            .bind(&text)
            .bind(which.only_missed)
            .bind(which.status.map(|status| i32::from(status.number())))
            .bind(which.state.map(AttemptState::as_str))
            .fetch_all(&mut *transaction)
            .await?;
        for (id, examined, wanted) in counted {
            *found.counts.entry(DestinationId(id)).or_default() += wanted.unsigned_abs();
            found.is_part |= !is_older && examined >= i64::from(most);
        }
    }
    transaction.commit().await?;
    Ok(found)
}

/// What the ids have in them, where that is asked for.
async fn letters(
    connection: &mut PgConnection,
    tenant: TenantId,
    which: Option<&ResentEvents>,
) -> Result<Option<String>, Failure> {
    let Some(text) = which.and_then(|which| which.text.as_deref()) else {
        return Ok(None);
    };
    let sought = sought(connection, tenant, Some(text)).await?;
    let letters = sought.and_then(Sought::letters);
    let unknown = || Failure::Refused(no_event_by(text));
    letters.map(Some).ok_or_else(unknown)
}

async fn lives(
    connection: &mut PgConnection,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<bool, Failure> {
    Ok(sqlx::query_scalar(
        "-- create_replay: is it the destination that is missing
        select exists (
            select from destinations d
            where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null
        )",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .fetch_one(connection)
    .await?)
}

/// How many match, of the first so many. Ids that are older than `since` are left out:
/// few events are accepted long after them, and they would be all that is counted.
async fn total(
    connection: &mut PgConnection,
    tenant: TenantId,
    replay: ReplayId,
    (Looked { timed, any }, since): (&Looked, Option<Timestamp>),
) -> Result<(), Failure> {
    let sql = format!(
        "-- create_replay: how many events match
        with examined as materialized ({EXAMINED})
        update replays set total = (
            select count(*) from examined x
            join events e on e.id = x.id and e.day = x.day
            cross join replays r
            join destinations d on d.id = r.destination_id
            where r.id = $1 and {WANTED}
        )
        where id = $1"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(replay.0)
        .bind(tenant.0)
        .bind(timed.from.0)
        .bind(timed.before.0)
        .bind(any.from.0)
        .bind(any.before.0)
        .bind(since.map_or(Uuid::nil(), |since| first_at(since - IDS_BEFORE).0))
        .bind(i64::from(MAX_EVENTS_COUNTED))
        .execute(connection)
        .await?;
    Ok(())
}

/// How many events have left nothing but attempts, of the first so many attempts.
async fn skipped(
    connection: &mut PgConnection,
    replay: ReplayId,
    Looked { timed, .. }: &Looked,
) -> Result<(), Failure> {
    sqlx::query(
        "-- create_replay: how many payloads are gone
        update replays r set skipped = (
            select count(*) from (
                select a.event_id, bool_or(a.state = 'succeeded') as has_succeeded, bool_or(
                    (r.status is null or a.status = r.status or a.status / 100 = r.status)
                    and (r.attempt_state is null or a.state = r.attempt_state)
                ) is true as was_so from (
                    select a.event_id, a.state, a.status from ledger a
                    where hash_of(a.destination_id) = hash_of(r.destination_id)
                        and a.destination_id = r.destination_id and a.tenant_id = r.tenant_id
                        and a.id >= first_attempt_id(utc_day(r.died_from))
                        and a.id + 0 >= first_attempt_id(utc_day(r.died_from))
                    order by a.id + 0
                    limit $4
                ) a
                group by a.event_id
            ) x
            where x.event_id >= $2 and x.event_id < $3
                and (r.event_text is null or strpos(x.event_id::text, r.event_text) > 0)
                and not exists (
                    select from events e
                    where e.id = x.event_id and e.day = event_day(x.event_id)
                )
                -- A first attempt is among these; what followed has an index.
                and (x.was_so or exists (
                    select from ledger a
                    where a.event_id = x.event_id and a.due_at is not null
                        and a.destination_id = r.destination_id
                        and (r.status is null or a.status = r.status or a.status / 100 = r.status)
                        and (r.attempt_state is null or a.state = r.attempt_state)
                ))
                and (not r.only_missed or not (x.has_succeeded or exists (
                    select from ledger a
                    where a.event_id = x.event_id and a.due_at is not null
                        and a.destination_id = r.destination_id and a.state = 'succeeded'
                )))
        )
        where r.id = $1 and r.event_id is null",
    )
    .bind(replay.0)
    .bind(timed.from.0)
    .bind(timed.before.0)
    .bind(i64::from(MAX_EVENTS_COUNTED))
    .execute(connection)
    .await?;
    Ok(())
}

row! {
    struct Row {
        examined: i64,
        picked: i64,
        moved: i64,
        last: Option<Uuid>,
    }
}

/// Looks at a bounded number of events from where the last step stopped, and takes up
/// to `$9` of them. One whose dead letter another replay takes meanwhile is that one's.
fn moved() -> String {
    format!(
        "-- advance_replays: send again
    with examined as materialized ({EXAMINED}),
    picked as materialized (
        select e.id, e.day from examined x
        join events e on e.id = x.id and e.day = x.day
        cross join replays r
        join destinations d on d.id = r.destination_id
        where r.id = $1 and {WANTED}
        order by e.id
        limit $9
    ),
    known as materialized (
        select p.id, p.day, coalesce(t.tries, 0) as tries, t.is_dead
        from picked p cross join lateral (
            select max(a.try_number) as tries,
                coalesce(bool_or(a.dead_letter and a.replayed_at is null), false) as is_dead
            from ledger_of(p.id) a where a.destination_id = $10
        ) t
    ),
    locked as materialized (
        select a.id from known k
        cross join lateral (select o.id from ledger_of(k.id) o where o.destination_id = $10) o
        join ledger a on a.id = any (array[o.id])
        where k.is_dead and a.dead_letter and a.replayed_at is null
        order by o.id
        for update of a
    ),
    marked as (
        update ledger a set replayed_at = from_micros($11)
        from locked l
        where a.id = any (array[l.id])
        returning a.event_id
    ),
    added as (
        insert into deliveries (
            event_id, destination_id, tenant_id, try_number, tries_before, due_at, created_at,
            replay_id, expires_at, payload_bytes, urgent
        )
        select k.id, d.id, d.tenant_id, k.tries + 1, k.tries, from_micros($11),
            from_micros($11), $1,
            from_micros($11)
                + coalesce(d.max_age_ms, d.tier_age_ms) * interval '1 millisecond',
            octet_length(e.payload), e.urgent
        from known k
        join events e on e.id = k.id and e.day = k.day
        join destinations d on d.id = $10
        where not k.is_dead or k.id in (select m.event_id from marked m)
        order by k.id
        returning 1
    )
    select (select count(*) from examined) as examined, (select count(*) from picked) as picked,
        (select count(*) from added) as moved,
        case when (select count(*) from picked) < $9
            then (select x.id from examined x order by x.id desc limit 1)
            else (select p.id from picked p order by p.id desc limit 1) end as last"
    )
}

/// Sends again what the step allows, and remembers how far it came.
pub(super) async fn take(
    connection: &mut PgConnection,
    replay: &Running,
    step: Step,
    now: Timestamp,
) -> Result<Moved, Failure> {
    if step.count == 0 || !is_our_turn(connection, replay).await? {
        remember(connection, replay, Reached::Nothing, step.paced_at(0), 0).await?;
        return Ok(Moved {
            count: 0,
            all: false,
        });
    }
    let time = Timestamp::from_micros;
    let looked = Looked::at(
        replay.event_id.map(EventId),
        replay.event_text.as_deref(),
        (replay.died_from.map(time), Some(time(replay.died_before))),
    );
    let row: Row = sqlx::query_as(AssertSqlSafe(moved()))
        .bind(replay.id)
        .bind(replay.tenant_id)
        .bind(looked.timed.from.0)
        .bind(looked.timed.before.0)
        .bind(looked.any.from.0)
        .bind(looked.any.before.0)
        .bind(replay.after_event.unwrap_or_default())
        .bind(i64::from(MAX_EVENTS_STEP))
        .bind(i64::from(step.count))
        .bind(replay.destination_id)
        .bind(now.as_micros())
        .fetch_one(&mut *connection)
        .await?;
    let moved = count(row.moved);
    let reached = row.last.map_or(Reached::Nothing, Reached::Event);
    remember(connection, replay, reached, step.paced_at(moved), moved).await?;
    let all = row.examined < i64::from(MAX_EVENTS_STEP) && row.picked < i64::from(step.count);
    if all {
        say_if_it_is_gone(connection, replay).await?;
        end(connection, replay, "completed").await?;
    }
    Ok(Moved { count: moved, all })
}

/// Nobody else sends events to this destination again just now, until our commit.
async fn is_our_turn(connection: &mut PgConnection, replay: &Running) -> Result<bool, Failure> {
    Ok(sqlx::query_scalar(
        "-- advance_replays: one after the other
        select pg_try_advisory_xact_lock(hashtextextended($1::uuid::text, 0))",
    )
    .bind(replay.destination_id)
    .fetch_one(connection)
    .await?)
}

/// Retention came before the one event that it is of.
async fn say_if_it_is_gone(connection: &mut PgConnection, replay: &Running) -> Result<(), Failure> {
    sqlx::query(
        "-- advance_replays: it is gone
        update replays r set skipped = 1
        where r.id = $1 and r.event_id is not null and r.done = 0 and not exists (
            select from events e where e.id = r.event_id and e.day = event_day(r.event_id)
        )",
    )
    .bind(replay.id)
    .execute(connection)
    .await?;
    Ok(())
}

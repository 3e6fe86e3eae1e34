//! What a decided run writes: permits on the rows, what the next run has to
//! know, and starts that it folded on the side.

use std::collections::HashSet;

use domain::admission::Meter;
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};
use uuid::Uuid;

use super::failure::Failure;
use super::fold;
use super::plan::Plan;

/// Where the next run goes on from. It asks for the clock and a column of each plan.
macro_rules! remember {
    () => {
        "insert into pacing (
            destination_id, last_permit, meter_missing_micro, meter_as_of, meter_epoch,
            looked_at, next_look_at, first_after
        )
        select n.id, n.last_permit, n.missing_micro, from_micros(n.as_of), n.epoch, from_micros($1),
            case n.next_look_at when 9223372036854775807 then 'infinity'
                else from_micros(n.next_look_at) end,
            n.first_after
        from unnest(
            $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[]
        ) as n (id, last_permit, missing_micro, as_of, next_look_at, first_after, epoch)
        on conflict (destination_id) do update
        set last_permit = excluded.last_permit,
            meter_missing_micro = excluded.meter_missing_micro,
            meter_as_of = excluded.meter_as_of,
            meter_epoch = excluded.meter_epoch,
            looked_at = excluded.looked_at,
            next_look_at = excluded.next_look_at,
            first_after = excluded.first_after"
    };
}

const REMEMBER: &str = concat!("-- admit: remember\n        ", remember!());

const MARK: &str = concat!(
    "-- admit: mark
        with picked as materialized (
            select a.id, n.number, n.epoch, n.not_before, n.deadline, n.coarse, n.crowded,
                n.by_response
            from unnest(
                $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
                $14::boolean[], $15::boolean[], $16::boolean[]
            ) as n (id, number, epoch, not_before, deadline, coarse, crowded, by_response)
            join deliveries a on a.id = any (array[n.id])
            where a.state = 'waiting'
            order by n.id
            for update of a skip locked
        ),
        marked as (
            update deliveries a
            set state = 'admitted', permit = p.number, epoch = p.epoch,
                not_before = from_micros(p.not_before), deadline = from_micros(p.deadline),
                coarse = p.coarse, crowded = p.crowded, by_response = p.by_response,
                admitted_at = from_micros($1)
            from picked p
            where a.id = any (array[p.id])
            returning a.id
        ),
        remembered as (
        ",
    remember!(),
    "
        )
        select m.id from marked m"
);

/// One statement is one transaction, which does not wait for the disk. `unchanged` locks, and
/// what it has locked it looks at once more as it is by then. No cursor passes what was not
/// marked.
const MARK_UNCHANGED: &str = "-- admit: mark
    with unflushed as materialized (
        select set_config('synchronous_commit', 'off', true) as is_set
    ),
    unchanged as materialized (
        select n.*
        from unflushed u
        cross join unnest(
            $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]
        ) as n (
            id, last_permit, missing_micro, as_of, next_look_at, first_after, epoch,
            first_kept, picks, version, pacing_version
        )
        join destinations d on d.id = any (array[n.id])
        join pacing p on p.destination_id = any (array[n.id])
        where u.is_set = 'off'
            and d.xmin::text::bigint = n.version
            and p.xmin::text::bigint = n.pacing_version
        order by n.id
        for no key update of d, p skip locked
    ),
    picked as materialized (
        select a.id, n.number, n.epoch, n.not_before, n.deadline, n.coarse, n.crowded,
            n.by_response
        from unnest(
            $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
            $18::boolean[], $19::boolean[], $20::boolean[]
        ) as n (id, number, epoch, not_before, deadline, coarse, crowded, by_response)
        join deliveries a on a.id = any (array[n.id])
        where a.state = 'waiting' and a.destination_id in (select u.id from unchanged u)
        order by n.id
        for update of a skip locked
    ),
    marked as (
        update deliveries a
        set state = 'admitted', permit = p.number, epoch = p.epoch,
            not_before = from_micros(p.not_before), deadline = from_micros(p.deadline),
            coarse = p.coarse, crowded = p.crowded, by_response = p.by_response,
            admitted_at = from_micros($1)
        from picked p
        where a.id = any (array[p.id])
        returning a.id, a.destination_id
    ),
    counted as materialized (
        select m.destination_id, count(*) as marked from marked m group by m.destination_id
    ),
    remembered as (
        update pacing p
        set last_permit = u.last_permit,
            meter_missing_micro = u.missing_micro,
            meter_as_of = from_micros(u.as_of),
            meter_epoch = u.epoch,
            looked_at = from_micros($1),
            next_look_at = case u.next_look_at when 9223372036854775807 then 'infinity'
                else from_micros(u.next_look_at) end,
            first_after = case
                when u.picks = coalesce(c.marked, 0) then u.first_after
                else u.first_kept
            end
        from unchanged u
        left join counted c on c.destination_id = u.id
        where p.destination_id = any (array[u.id])
    )
    select u.id, null::bigint from unchanged u
    union all
    select null::uuid, m.id from marked m";

/// Marks the picks and writes down what the next run has to know; returns the picks that
/// were still there to be marked. It is one statement where all of them were, as nearly
/// always.
pub(super) async fn mark(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<HashSet<AttemptId>, Failure> {
    if plans.is_empty() {
        return Ok(HashSet::new());
    }
    let picks = Picks::of(plans);
    let picked: HashSet<AttemptId> = picks.ids.iter().copied().map(AttemptId).collect();
    if picked.is_empty() {
        remembering(REMEMBER, plans, &picked, now)
            .execute(connection)
            .await?;
        return Ok(picked);
    }
    let marked = remembering(MARK, plans, &picked, now)
        .bind(picks.ids)
        .bind(picks.numbers)
        .bind(picks.epochs)
        .bind(picks.not_befores)
        .bind(picks.deadlines)
        .bind(picks.coarse)
        .bind(picks.crowded)
        .bind(picks.by_response)
        .try_map(|row: PgRow| row.try_get(0).map(AttemptId))
        .fetch_all(&mut *connection)
        .await?;
    let marked: HashSet<AttemptId> = marked.into_iter().collect();
    if marked.len() < picked.len() {
        // No cursor passes what was not marked.
        remembering(REMEMBER, plans, &marked, now)
            .execute(connection)
            .await?;
    }
    Ok(marked)
}

/// Marks and remembers as [`mark`] does, but only of destinations that nobody holds and
/// whose versions are those that were read: so whatever was decided on is as it was, and
/// stays so until this has been committed. Whose it was still, and what was marked.
pub(super) async fn mark_unchanged(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<(HashSet<DestinationId>, HashSet<AttemptId>), Failure> {
    if plans.is_empty() {
        return Ok(Default::default());
    }
    let picks = Picks::of(plans);
    let all: HashSet<AttemptId> = picks.ids.iter().copied().map(AttemptId).collect();
    let none = HashSet::new();
    let version = |plan: &Plan| plan.read.versions;
    let rows: Vec<(Option<Uuid>, Option<i64>)> = remembering(MARK_UNCHANGED, plans, &all, now)
        .bind(of(plans, |plan| plan.cursor(&none, now)))
        .bind(of(plans, |plan| plan.decided.permits.len() as i64))
        .bind(of(plans, |plan| version(plan).0))
        .bind(of(plans, |plan| version(plan).1))
        .bind(picks.ids)
        .bind(picks.numbers)
        .bind(picks.epochs)
        .bind(picks.not_befores)
        .bind(picks.deadlines)
        .bind(picks.coarse)
        .bind(picks.crowded)
        .bind(picks.by_response)
        .try_map(|row: PgRow| Ok((row.try_get(0)?, row.try_get(1)?)))
        .fetch_all(connection)
        .await?;
    let (mut unchanged, mut marked) = (HashSet::new(), HashSet::new());
    for (destination, attempt) in rows {
        unchanged.extend(destination.map(DestinationId));
        marked.extend(attempt.map(AttemptId));
    }
    Ok((unchanged, marked))
}

/// The columns of all permits.
#[derive(Default)]
struct Picks {
    ids: Vec<i64>,
    numbers: Vec<i64>,
    epochs: Vec<i64>,
    not_befores: Vec<i64>,
    deadlines: Vec<i64>,
    coarse: Vec<bool>,
    crowded: Vec<bool>,
    by_response: Vec<bool>,
}

impl Picks {
    fn of(plans: &[Plan]) -> Self {
        let mut picks = Self::default();
        for plan in plans {
            for permit in &plan.decided.permits {
                picks.ids.push(permit.attempt.0);
                picks.numbers.push(permit.number.0);
                picks.epochs.push(permit.epoch.0);
                picks.not_befores.push(permit.not_before.as_micros());
                picks.deadlines.push(permit.deadline.as_micros());
                picks.coarse.push(plan.decided.is_coarse);
                picks.crowded.push(plan.decided.wakes(permit.number));
                picks.by_response.push(plan.decided.by_response);
            }
        }
        picks
    }
}

/// The statement with what [`remember!`] asks for, if these are marked.
fn remembering(
    statement: &'static str,
    plans: &[Plan],
    marked: &HashSet<AttemptId>,
    now: Timestamp,
) -> Query<'static, Postgres, PgArguments> {
    let meter = |plan: &Plan| plan.decided.decision.meter;
    let next_look_at = |plan: &Plan| plan.decided.next_look_at.map(Timestamp::as_micros);
    let as_of = |meter: Meter| (meter.as_of > Timestamp::MIN).then(|| meter.as_of.as_micros());
    sqlx::query(statement)
        .bind(now.as_micros())
        .bind(of(plans, |plan| plan.read.candidate.destination.0))
        .bind(of(plans, |plan| plan.decided.last_permit.0))
        .bind(of(plans, |plan| meter(plan).missing_micro))
        .bind(of(plans, |plan| as_of(meter(plan))))
        .bind(of(plans, next_look_at))
        .bind(of(plans, |plan| plan.cursor(marked, now)))
        .bind(of(plans, |plan| plan.read.candidate.epoch.0))
}

/// Folds final starts that a newly coarse limit found unfolded.
pub(super) async fn fold_starts(
    connection: &mut PgConnection,
    plans: &[Plan],
) -> Result<(), Failure> {
    let ids: Vec<i64> = (plans.iter())
        .flat_map(|plan| plan.to_fold().iter().map(|attempt| attempt.0))
        .collect();
    if ids.is_empty() {
        return Ok(());
    }
    // `num_nulls`: by a plain `is null` the ids are looked for among all starts, thousands of
    // times thousands, since the planner expects few.
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(
        "-- admit: fold_starts
        with final as materialized (
            select a.id
            from unnest($1::bigint[]) as n (id)
            join ledger a on a.id = any (array[n.id])
            where not a.folded and a.started_at is not null and num_nulls(a.carried_by) = 1
            order by n.id
            for update of a skip locked
        )
        update ledger a set folded = true
        from final f
        where a.id = any (array[f.id])
        returning a.destination_id, micros(a.started_at)",
    )
    .bind(ids)
    .fetch_all(&mut *connection)
    .await?;
    let starts = (rows.into_iter())
        .map(|(destination, start)| (DestinationId(destination), Timestamp::from_micros(start)));
    fold::add_starts(connection, starts, fold::shard(None)).await
}

/// A column of all plans.
fn of<T>(plans: &[Plan], column: impl Fn(&Plan) -> T) -> Vec<T> {
    plans.iter().map(column).collect()
}

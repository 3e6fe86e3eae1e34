//! What a decided run writes: permits on the rows, what the next run has to
//! know, and starts that it folded on the side.

use std::collections::HashSet;

use domain::admission::Meter;
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::admit::Plan;
use super::failure::Failure;
use super::fold;

/// What was marked.
pub(super) struct Marked {
    /// The destinations of which nobody else had admitted anything meanwhile.
    pub(super) destinations: HashSet<DestinationId>,
    /// The picks that were still there to be marked.
    pub(super) attempts: HashSet<AttemptId>,
}

/// `ours` are the destinations that are as they were read: nobody holds their
/// rows, the epoch is that of the limits that were read, and no run has been
/// remembered since. The locks recheck all that on the latest versions, so of
/// two runs that read the same the second finds another version and marks
/// nothing. They last until the marks are committed, so a change of limits comes
/// before them, and is seen, or after, and takes them back. `for no key update`,
/// because a user's own foreign keys hold `for key share` while a transaction is
/// open, and that must not hide the destination.
///
/// A cursor does not move past what could not be marked.
///
/// `(… in (select …)) is true`: hashed once, whatever the planner thinks of how
/// many there are; as a join it may go through all of them for each. And a lock
/// within a subquery keeps the planner from reading a whole day instead, which its
/// statistics say is empty.
///
/// An admission does not wait for the disk. A server that crashes may forget
/// it, with its permits still on their way: their rows wait again, so the claim
/// refuses them. And a claim does wait: in the order of the log its admission
/// comes first, so what has started keeps its permit, its meter and its cursor.
const MARK: &str = "-- admit: mark
    with commits as materialized (select set_config('synchronous_commit', 'off', true)),
    ours as materialized (
        select n.id, n.last_permit, n.missing_micro, n.as_of, n.meter_epoch, n.next_look_at,
            n.first_after, n.kept_after, n.given
        from unnest(
            $1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[]
        ) as n (
            id, meter_epoch, version, last_permit, missing_micro, as_of, next_look_at,
            first_after, kept_after, given
        )
        join destinations d on d.id = n.id and d.epoch = n.meter_epoch
        join pacing p on p.destination_id = n.id and p.xmin = n.version::xid
        order by n.id
        for no key update of d, p skip locked
    ),
    picked as materialized (
        select a.id, n.number, n.epoch, n.not_before, n.deadline, n.coarse, n.crowded
        from (
            select * from unnest(
                $11::bigint[], $12::uuid[], $13::bigint[], $14::bigint[], $15::bigint[],
                $16::bigint[], $17::boolean[], $18::boolean[]
            ) as n (id, destination_id, number, epoch, not_before, deadline, coarse, crowded)
            where (n.destination_id in (select o.id from ours o)) is true
            order by n.id
        ) n
        cross join lateral (
            select a.id from attempts a
            where a.id = n.id and a.state || '' = 'waiting'
            for update skip locked
        ) a
    ),
    marked as (
        update attempts a
        set state = 'admitted', permit = p.number, epoch = p.epoch,
            not_before = from_micros(p.not_before), deadline = from_micros(p.deadline),
            coarse = p.coarse, crowded = p.crowded, admitted_at = from_micros($19)
        from picked p
        where a.id = p.id
        returning a.id, a.destination_id
    ),
    counted as (select m.destination_id, count(*) as marked from marked m group by 1),
    remembered as (
        update pacing p
        set last_permit = o.last_permit, meter_missing_micro = o.missing_micro,
            meter_as_of = from_micros(o.as_of), meter_epoch = o.meter_epoch,
            looked_at = from_micros($19),
            next_look_at = case o.next_look_at when 9223372036854775807 then 'infinity'
                else from_micros(o.next_look_at) end,
            first_after = case when coalesce(c.marked, 0) = o.given then o.first_after
                else o.kept_after end
        from ours o
        left join counted c on c.destination_id = o.id
        where p.destination_id = o.id
    )
    select o.id as destination_id, null as attempt_id from ours o cross join commits
    union all
    select null, m.id from marked m";

/// Marks the picks, and writes down what the next run has to know, of those
/// destinations that are as they were read.
pub(super) async fn mark(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<Marked, Failure> {
    let (mut ids, mut destinations, mut numbers, mut epochs) = (vec![], vec![], vec![], vec![]);
    let (mut not_befores, mut deadlines) = (vec![], vec![]);
    let (mut coarse, mut crowded) = (vec![], vec![]);
    for plan in plans {
        for (_, permit) in plan.picks() {
            ids.push(permit.attempt.0);
            destinations.push(permit.destination.0);
            numbers.push(permit.number.0);
            epochs.push(permit.epoch.0);
            not_befores.push(permit.not_before.as_micros());
            deadlines.push(permit.deadline.as_micros());
            coarse.push(plan.destination.policy.is_coarse());
            crowded.push(plan.decision.crowded);
        }
    }
    let given = |plan: &Plan| i64::from(plan.given());
    let last_permit = |plan: &Plan| plan.destination.last_permit + given(plan);
    let as_of = |meter: Meter| (meter.as_of > Timestamp::MIN).then(|| meter.as_of.as_micros());
    let rows: Vec<(Option<Uuid>, Option<i64>)> = sqlx::query_as(MARK)
        .bind(of(plans, |plan| plan.destination.id.0))
        .bind(of(plans, |plan| plan.destination.epoch.0))
        .bind(of(plans, |plan| plan.destination.version.clone()))
        .bind(of(plans, last_permit))
        .bind(of(plans, |plan| plan.decision.meter.missing_micro))
        .bind(of(plans, |plan| as_of(plan.decision.meter)))
        .bind(of(plans, |plan| plan.next_look_at(now)))
        .bind(of(plans, |plan| plan.cursor(now)))
        .bind(of(plans, |plan| plan.destination.first_after))
        .bind(of(plans, given))
        .bind(ids)
        .bind(destinations)
        .bind(numbers)
        .bind(epochs)
        .bind(not_befores)
        .bind(deadlines)
        .bind(coarse)
        .bind(crowded)
        .bind(now.as_micros())
        .fetch_all(connection)
        .await?;
    let destinations = rows.iter().filter_map(|(id, _)| id.map(DestinationId));
    let attempts = rows.iter().filter_map(|(_, id)| id.map(AttemptId));
    Ok(Marked {
        destinations: destinations.collect(),
        attempts: attempts.collect(),
    })
}

/// Folds final starts that a newly coarse limit found unfolded. Each once, by
/// its row; in a transaction of its own, for a run reads rows and buckets in one
/// snapshot.
pub(super) async fn fold_starts(
    connection: &mut PgConnection,
    plans: &[Plan],
) -> Result<(), Failure> {
    let ids: Vec<i64> = (plans.iter())
        .flat_map(|plan| plan.reading.to_fold.iter().map(|attempt| attempt.0))
        .collect();
    if ids.is_empty() {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(
        "-- admit: fold_starts
        with final as materialized (
            select a.id
            from unnest($1::bigint[]) as n (id)
            join attempts a on a.id = n.id
            where not a.folded and a.started_at is not null and a.carried_by is null
                and a.state <> 'started'
            order by a.id
            for update of a skip locked
        )
        update attempts a set folded = true
        from final f
        where a.id = f.id
        returning a.destination_id, micros(a.started_at)",
    )
    .bind(ids)
    .fetch_all(&mut *transaction)
    .await?;
    let starts = (rows.into_iter())
        .map(|(destination, start)| (DestinationId(destination), Timestamp::from_micros(start)));
    fold::add_starts(&mut transaction, starts, fold::shard(None)).await?;
    transaction.commit().await?;
    Ok(())
}

/// A column of all plans.
fn of<T>(plans: &[Plan], column: impl Fn(&Plan) -> T) -> Vec<T> {
    plans.iter().map(column).collect()
}

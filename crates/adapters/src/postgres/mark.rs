//! What a decided run writes: permits on the rows, what the next run has to
//! know, and starts that it folded on the side.

use std::collections::HashSet;

use domain::admission::Meter;
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Failure;
use super::fold;
use super::plan::Plan;

const MARK_ADMITTED: &str = "-- admit: mark_admitted
    with picked as materialized (
        select a.id, n.number, n.epoch, n.not_before, n.deadline, n.coarse, n.crowded,
            n.by_response
        from unnest(
            $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
            $6::boolean[], $7::boolean[], $9::boolean[]
        ) as n (id, number, epoch, not_before, deadline, coarse, crowded, by_response)
        join deliveries a on a.id = any (array[n.id])
        where a.state = 'waiting'
        order by n.id
        for update of a skip locked
    )
    update deliveries a
    set state = 'admitted', permit = p.number, epoch = p.epoch,
        not_before = from_micros(p.not_before), deadline = from_micros(p.deadline),
        coarse = p.coarse, crowded = p.crowded, by_response = p.by_response,
        admitted_at = from_micros($8)
    from picked p
    where a.id = any (array[p.id])
    returning a.id";

/// Marks the picks; returns those that were still there to be marked.
pub(super) async fn mark_admitted(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<HashSet<AttemptId>, Failure> {
    let (mut ids, mut numbers, mut epochs) = (vec![], vec![], vec![]);
    let (mut not_befores, mut deadlines) = (vec![], vec![]);
    let (mut coarse, mut crowded, mut by_response) = (vec![], vec![], vec![]);
    for plan in plans {
        for permit in &plan.decided.permits {
            ids.push(permit.attempt.0);
            numbers.push(permit.number.0);
            epochs.push(permit.epoch.0);
            not_befores.push(permit.not_before.as_micros());
            deadlines.push(permit.deadline.as_micros());
            coarse.push(plan.decided.is_coarse);
            by_response.push(plan.decided.by_response);
            crowded.push(plan.decided.wakes(permit.number));
        }
    }
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let marked: Vec<i64> = sqlx::query_scalar(MARK_ADMITTED)
        .bind(ids)
        .bind(numbers)
        .bind(epochs)
        .bind(not_befores)
        .bind(deadlines)
        .bind(coarse)
        .bind(crowded)
        .bind(now.as_micros())
        .bind(by_response)
        .fetch_all(connection)
        .await?;
    Ok(marked.into_iter().map(AttemptId).collect())
}

/// Writes down what the next run has to know.
pub(super) async fn remember(
    connection: &mut PgConnection,
    plans: &[Plan],
    marked: &HashSet<AttemptId>,
    now: Timestamp,
) -> Result<(), Failure> {
    if plans.is_empty() {
        return Ok(());
    }
    let meter = |plan: &Plan| plan.decided.decision.meter;
    let next_look_at = |plan: &Plan| plan.decided.next_look_at.map(Timestamp::as_micros);
    let as_of = |meter: Meter| (meter.as_of > Timestamp::MIN).then(|| meter.as_of.as_micros());
    sqlx::query(
        "-- admit: remember
        insert into pacing (
            destination_id, last_permit, meter_missing_micro, meter_as_of, meter_epoch,
            looked_at, next_look_at, first_after
        )
        select n.id, n.last_permit, n.missing_micro, from_micros(n.as_of), n.epoch, from_micros($8),
            case n.next_look_at when 9223372036854775807 then 'infinity'
                else from_micros(n.next_look_at) end,
            n.first_after
        from unnest(
            $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[]
        ) as n (id, last_permit, missing_micro, as_of, next_look_at, first_after, epoch)
        on conflict (destination_id) do update
        set last_permit = excluded.last_permit,
            meter_missing_micro = excluded.meter_missing_micro,
            meter_as_of = excluded.meter_as_of,
            meter_epoch = excluded.meter_epoch,
            looked_at = excluded.looked_at,
            next_look_at = excluded.next_look_at,
            first_after = excluded.first_after",
    )
    .bind(of(plans, |plan| plan.read.candidate.destination.0))
    .bind(of(plans, |plan| plan.decided.last_permit.0))
    .bind(of(plans, |plan| meter(plan).missing_micro))
    .bind(of(plans, |plan| as_of(meter(plan))))
    .bind(of(plans, next_look_at))
    .bind(of(plans, |plan| plan.cursor(marked, now)))
    .bind(of(plans, |plan| plan.read.candidate.epoch.0))
    .bind(now.as_micros())
    .execute(connection)
    .await?;
    Ok(())
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

//! What a decided run writes: permits on the rows, what the next run has to
//! know, and starts that it folded on the side.

use std::collections::HashSet;

use domain::admission::Meter;
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::admit::Plan;
use super::failure::Failure;
use super::fold;

/// Marks the picks, and writes down what the next run has to know; returns those
/// that were still there to be marked. One statement; where a cursor passes what is
/// marked, it has to be known first what was, and it is two.
pub(super) async fn carry_out(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<HashSet<AttemptId>, Failure> {
    if plans.is_empty() {
        return Ok(HashSet::new());
    }
    let all = (plans.iter())
        .flat_map(Plan::picks)
        .map(|(_, permit)| permit.attempt)
        .collect();
    let cursors = |marked: &HashSet<AttemptId>| of(plans, |plan| plan.cursor(marked, now));
    let picks = Picks::of(plans);
    let after_none = cursors(&HashSet::new());
    if cursors(&all) == after_none {
        return write(connection, picks, (plans, after_none), now).await;
    }
    let marked = write(connection, picks, (&[], Vec::new()), now).await?;
    let after_marked = cursors(&marked);
    write(connection, Picks::default(), (plans, after_marked), now).await?;
    Ok(marked)
}

/// Permits, column by column.
#[derive(Default)]
struct Picks {
    ids: Vec<i64>,
    numbers: Vec<i64>,
    epochs: Vec<i64>,
    not_befores: Vec<i64>,
    deadlines: Vec<i64>,
    coarse: Vec<bool>,
    crowded: Vec<bool>,
}

impl Picks {
    fn of(plans: &[Plan]) -> Self {
        let mut picks = Self::default();
        for plan in plans {
            for (_, permit) in plan.picks() {
                picks.ids.push(permit.attempt.0);
                picks.numbers.push(permit.number.0);
                picks.epochs.push(permit.epoch.0);
                picks.not_befores.push(permit.not_before.as_micros());
                picks.deadlines.push(permit.deadline.as_micros());
                picks.coarse.push(plan.destination.policy.is_coarse());
                picks.crowded.push(plan.decision.crowded);
            }
        }
        picks
    }
}

async fn write(
    connection: &mut PgConnection,
    picks: Picks,
    (plans, cursors): (&[Plan], Vec<i64>),
    now: Timestamp,
) -> Result<HashSet<AttemptId>, Failure> {
    let last_permit = |plan: &Plan| plan.destination.last_permit + i64::from(plan.given());
    let as_of = |meter: Meter| (meter.as_of > Timestamp::MIN).then(|| meter.as_of.as_micros());
    let marked: Vec<i64> = sqlx::query_scalar(
        "-- admit: carry_out
        with picked as materialized (
            select a.id, n.number, n.epoch, n.not_before, n.deadline, n.coarse, n.crowded
            from unnest(
                $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                $6::boolean[], $7::boolean[]
            ) as n (id, number, epoch, not_before, deadline, coarse, crowded)
            join attempts a on a.id = n.id
            -- `|| ''`: see the claim.
            where a.state || '' = 'waiting'
            order by a.id
            for update of a skip locked
        ),
        remembered as (
            insert into pacing (
                destination_id, last_permit, meter_missing_micro, meter_as_of, meter_epoch,
                looked_at, next_look_at, first_after
            )
            select n.id, n.last_permit, n.missing_micro, from_micros(n.as_of), n.epoch,
                from_micros($8),
                case n.next_look_at when 9223372036854775807 then 'infinity'
                    else from_micros(n.next_look_at) end,
                n.first_after
            from unnest(
                $9::uuid[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
                $14::bigint[], $15::bigint[]
            ) as n (id, last_permit, missing_micro, as_of, next_look_at, first_after, epoch)
            on conflict (destination_id) do update
            set last_permit = excluded.last_permit,
                meter_missing_micro = excluded.meter_missing_micro,
                meter_as_of = excluded.meter_as_of,
                meter_epoch = excluded.meter_epoch,
                looked_at = excluded.looked_at,
                next_look_at = excluded.next_look_at,
                first_after = excluded.first_after
        )
        update attempts a
        set state = 'admitted', permit = p.number, epoch = p.epoch,
            not_before = from_micros(p.not_before), deadline = from_micros(p.deadline),
            coarse = p.coarse, crowded = p.crowded, admitted_at = from_micros($8)
        from picked p
        where a.id = p.id
        returning a.id",
    )
    .bind(picks.ids)
    .bind(picks.numbers)
    .bind(picks.epochs)
    .bind(picks.not_befores)
    .bind(picks.deadlines)
    .bind(picks.coarse)
    .bind(picks.crowded)
    .bind(now.as_micros())
    .bind(of(plans, |plan| plan.destination.id.0))
    .bind(of(plans, last_permit))
    .bind(of(plans, |plan| plan.decision.meter.missing_micro))
    .bind(of(plans, |plan| as_of(plan.decision.meter)))
    .bind(of(plans, |plan| plan.next_look_at(now)))
    .bind(cursors)
    .bind(of(plans, |plan| plan.destination.epoch.0))
    .fetch_all(connection)
    .await?;
    Ok(marked.into_iter().map(AttemptId).collect())
}

/// Folds final starts that a newly coarse limit found unfolded.
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

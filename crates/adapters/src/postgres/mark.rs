//! What a decided run writes: permits on the rows, what the next run has to
//! know, and starts that it folded on the side.

use std::collections::HashSet;

use domain::admission::Meter;
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, FromRow, PgConnection};
use uuid::Uuid;

use super::failure::Failure;
use super::fold;
use super::plan::Plan;
use super::rows::Statement;

/// What was picked, column by column.
#[derive(Default)]
pub(super) struct Picks {
    ids: Vec<i64>,
    destinations: Vec<Uuid>,
    numbers: Vec<i64>,
    epochs: Vec<i64>,
    not_befores: Vec<i64>,
    deadlines: Vec<i64>,
    coarse: Vec<bool>,
    crowded: Vec<bool>,
    by_response: Vec<bool>,
}

/// What a statement binds from `$1` on, the clock as the last of it.
pub(super) const PICKS_BOUND: usize = 10;

impl Picks {
    pub(super) fn of(plans: &[Plan]) -> Self {
        let mut picks = Self::default();
        for plan in plans {
            for permit in &plan.decided.permits {
                picks.ids.push(permit.attempt.0);
                picks.destinations.push(permit.destination.0);
                picks.numbers.push(permit.number.0);
                picks.epochs.push(permit.epoch.0);
                picks.not_befores.push(permit.not_before.as_micros());
                picks.deadlines.push(permit.deadline.as_micros());
                picks.coarse.push(plan.decided.is_coarse);
                picks.by_response.push(plan.decided.by_response);
                picks.crowded.push(plan.decided.wakes(permit.number));
            }
        }
        picks
    }

    /// This text with them bound.
    pub(super) fn bound_to<O>(self, text: String, now: Timestamp) -> Statement<O>
    where
        O: for<'r> FromRow<'r, PgRow>,
    {
        sqlx::query_as(AssertSqlSafe(text))
            .bind(self.ids)
            .bind(self.destinations)
            .bind(self.numbers)
            .bind(self.epochs)
            .bind(self.not_befores)
            .bind(self.deadlines)
            .bind(self.coarse)
            .bind(self.crowded)
            .bind(self.by_response)
            .bind(now.as_micros())
    }
}

/// The part of a statement that locks those picks that still wait; `joined` may leave some
/// out.
pub(super) fn picked(joined: &str) -> String {
    format!(
        "select a.id, n.number, n.epoch, n.not_before, n.deadline, n.coarse, n.crowded,
            n.by_response
        from unnest(
            $1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::boolean[], $8::boolean[], $9::boolean[]
        ) as n (
            id, destination_id, number, epoch, not_before, deadline, coarse, crowded, by_response
        ){joined}
        join deliveries a on a.id = any (array[n.id])
        where a.state = 'waiting'
        order by n.id
        for update of a skip locked"
    )
}

/// The part that marks what is `picked`.
pub(super) const MARKED: &str = "update deliveries a
        set state = 'admitted', permit = p.number, epoch = p.epoch,
            not_before = from_micros(p.not_before), deadline = from_micros(p.deadline),
            coarse = p.coarse, crowded = p.crowded, by_response = p.by_response,
            admitted_at = from_micros($10)
        from picked p
        where a.id = any (array[p.id])
        returning a.id, a.destination_id";

/// Marks the picks; returns those that were still there to be marked.
pub(super) async fn mark_admitted(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<HashSet<AttemptId>, Failure> {
    let picks = Picks::of(plans);
    if picks.ids.is_empty() {
        return Ok(HashSet::new());
    }
    let picked = picked("");
    let text = format!(
        "-- admit: mark_admitted\n    with picked as materialized ({picked})\n    {MARKED}"
    );
    let marked: Vec<(i64, Uuid)> = picks.bound_to(text, now).fetch_all(connection).await?;
    Ok(marked.into_iter().map(|(id, _)| AttemptId(id)).collect())
}

/// The part of a statement that writes down what the next run has to know, of the plans
/// that are `joined`. It is bound [`bind_notes`] from `$first` on, and the clock as `$now`.
pub(super) fn remembered((first, now): (usize, usize), cursor: &str, joined: &str) -> String {
    let arrays: Vec<String> = (["uuid"].iter().chain(&["bigint"; 6]).enumerate())
        .map(|(number, of)| format!("${}::{of}[]", first + number))
        .collect();
    let arrays = arrays.join(", ");
    format!(
        "insert into pacing (
            destination_id, last_permit, meter_missing_micro, meter_as_of, meter_epoch,
            looked_at, next_look_at, first_after
        )
        select n.id, n.last_permit, n.missing_micro, from_micros(n.as_of), n.epoch,
            from_micros(${now}),
            case n.next_look_at when 9223372036854775807 then 'infinity'
                else from_micros(n.next_look_at) end,
            {cursor}
        from unnest({arrays})
            as n (id, last_permit, missing_micro, as_of, next_look_at, first_after, epoch){joined}
        on conflict (destination_id) do update
        set last_permit = excluded.last_permit,
            meter_missing_micro = excluded.meter_missing_micro,
            meter_as_of = excluded.meter_as_of,
            meter_epoch = excluded.meter_epoch,
            looked_at = excluded.looked_at,
            next_look_at = excluded.next_look_at,
            first_after = excluded.first_after"
    )
}

/// Binds what the next run has to know; the cursor of first attempts is this one.
pub(super) fn bind_notes<O>(
    statement: Statement<O>,
    plans: &[Plan],
    cursor: impl Fn(&Plan) -> i64,
) -> Statement<O> {
    let meter = |plan: &Plan| plan.decided.decision.meter;
    let next_look_at = |plan: &Plan| plan.decided.next_look_at.map(Timestamp::as_micros);
    let as_of = |meter: Meter| (meter.as_of > Timestamp::MIN).then(|| meter.as_of.as_micros());
    statement
        .bind(of(plans, |plan| plan.read.candidate.destination.0))
        .bind(of(plans, |plan| plan.decided.last_permit.0))
        .bind(of(plans, |plan| meter(plan).missing_micro))
        .bind(of(plans, |plan| as_of(meter(plan))))
        .bind(of(plans, next_look_at))
        .bind(of(plans, cursor))
        .bind(of(plans, |plan| plan.read.candidate.epoch.0))
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
    let remembered = remembered((1, 8), "n.first_after", "");
    let text = AssertSqlSafe(format!("-- admit: remember\n    {remembered}"));
    let statement: Statement<(Uuid,)> = sqlx::query_as(text);
    bind_notes(statement, plans, |plan| plan.cursor(marked, now))
        .bind(now.as_micros())
        .fetch_all(connection)
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
pub(super) fn of<T>(plans: &[Plan], column: impl Fn(&Plan) -> T) -> Vec<T> {
    plans.iter().map(column).collect()
}

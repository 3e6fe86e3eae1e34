//! Scheduler runs: lock, then read, then decide, then mark.
//!
//! The lock and the reading are two statements. In one, the reading would be
//! of the snapshot from before the lock, and two schedulers that met would
//! both admit the same free places.

use std::collections::{HashMap, HashSet};

use domain::admission::{Blocked, Decision, Look, Meter, admit as decide};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::Permit;
use domain::policy::{Policy, Rate};
use domain::share::share;
use domain::time::Timestamp;
use engine::ports::{Admitted, Run, RunResult};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::fold;
use super::rows::{LimitColumns, time};
use super::usage::{self, Question, Reading, Waiting};

/// How old a first attempt has to be for the cursor to pass it. Ids are given
/// before the commit, so an attempt with a smaller id may become visible later
/// than one with a larger; by then every transaction of ours has long ended
/// (`statement_timeout`, `idle_in_transaction_session_timeout`).
const CURSOR_AGE_MICROS: i64 = 30_000_000;

/// One batch of runs.
pub(super) async fn admit(pool: &PgPool, runs: &[Run], room: u32) -> Result<Admitted, Failure> {
    let ids: Vec<Uuid> = runs.iter().map(|run| run.destination.0).collect();
    let mut transaction = pool.begin().await?;
    let locked = lock(&mut transaction, &ids).await?;
    let (now, mut found) = read_destinations(&mut transaction, &ids).await?;
    let mut plans = plans(&mut transaction, runs, &locked, &mut found, now).await?;
    decide_all(&mut plans, room, now);
    let marked = mark_admitted(&mut transaction, &plans, now).await?;
    remember(&mut transaction, &plans, &marked, now).await?;
    fold_starts(&mut transaction, &plans).await?;
    transaction.commit().await?;

    let mut decided: HashMap<DestinationId, RunResult> = (plans.into_iter())
        .map(|plan| (plan.destination.id, plan.result(&marked, now)))
        .collect();
    let result = |run: &Run| match decided.remove(&run.destination) {
        Some(result) => result,
        // Somebody else's lock, or the same destination twice in one batch.
        None if locked.contains(&run.destination.0) => gone_or_skipped(&found, run),
        None if found.contains_key(&run.destination) => RunResult::Skipped,
        None => RunResult::Gone,
    };
    Ok(Admitted {
        now,
        results: runs.iter().map(result).collect(),
    })
}

fn gone_or_skipped(found: &HashMap<DestinationId, Found>, run: &Run) -> RunResult {
    match found.get(&run.destination) {
        Some(destination) if destination.deleted => RunResult::Gone,
        _ => RunResult::Skipped,
    }
}

/// Locks the rows that nobody else holds. `for no key update`, because
/// attempts' foreign keys hold `for key share` while an ingest is open, and
/// that must not hide the destination.
async fn lock(connection: &mut PgConnection, ids: &[Uuid]) -> Result<HashSet<Uuid>, Failure> {
    let locked: Vec<Uuid> = sqlx::query_scalar(
        "-- admit: lock
        select d.id from destinations d
        where d.id = any ($1)
        order by d.id
        for no key update skip locked",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(locked.into_iter().collect())
}

/// A destination's row, its tier's and its pacing's, as of now.
#[derive(Clone)]
struct Found {
    id: DestinationId,
    deleted: bool,
    epoch: Epoch,
    policy: Policy,
    last_permit: i64,
    meter: Meter,
    first_after: i64,
    held_until: Option<Timestamp>,
}

#[derive(sqlx::FromRow)]
struct DestinationRow {
    now: i64,
    id: Option<Uuid>,
    state: Option<String>,
    deleted: bool,
    epoch: Option<i64>,
    numbers: Vec<Option<i32>>,
    unlimited: Option<bool>,
    shape: Option<String>,
    safety_margin: Option<f64>,
    tier_numbers: Vec<Option<i32>>,
    tier_unlimited: Option<bool>,
    tier_shape: Option<String>,
    last_permit: i64,
    missing_micro: i64,
    meter_as_of: Option<i64>,
    first_after: i64,
    held_until: Option<i64>,
}

/// The destinations that are there, locked or not, and the clock.
async fn read_destinations(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<(Timestamp, HashMap<DestinationId, Found>), Failure> {
    let rows: Vec<DestinationRow> = sqlx::query_as(
        "-- admit: read_destinations
        with clock as materialized (select micros(clock_timestamp()) as now)
        select clock.now, d.id, d.state, d.deleted_at is not null as deleted, d.epoch,
            array[
                d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day,
                d.burst, d.max_in_flight
            ] as numbers,
            d.unlimited, d.shape, d.safety_margin,
            array[
                t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day,
                t.burst, t.max_in_flight
            ] as tier_numbers,
            t.unlimited as tier_unlimited, t.shape as tier_shape,
            coalesce(p.last_permit, 0) as last_permit,
            coalesce(p.meter_missing_micro, 0) as missing_micro,
            micros(p.meter_as_of) as meter_as_of,
            coalesce(p.first_after, 0) as first_after,
            micros(p.held_until) as held_until
        from clock
        left join destinations d on d.id = any ($1)
        left join tenants n on n.id = d.tenant_id
        left join tiers t on t.name = n.tier
        left join pacing p on p.destination_id = d.id",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let now = Timestamp::from_micros(rows.first().map_or(0, |row| row.now));
    let found = (rows.into_iter())
        .filter_map(|row| row.id.map(|id| found(id, &row)))
        .map(|found| found.map(|found| (found.id, found)))
        .collect::<Result<_, _>>()?;
    Ok((now, found))
}

fn found(id: Uuid, row: &DestinationRow) -> Result<Found, Failure> {
    let own = LimitColumns {
        table: "destinations",
        row: &id,
        numbers: &row.numbers,
        unlimited: row.unlimited.unwrap_or_default(),
        shape: row.shape.as_deref(),
        safety_margin: row.safety_margin.unwrap_or_default(),
    };
    let tier = LimitColumns {
        table: "tiers",
        row: &id,
        numbers: &row.tier_numbers,
        unlimited: row.tier_unlimited.unwrap_or_default(),
        shape: row.tier_shape.as_deref(),
        safety_margin: 0.0,
    };
    let mut policy = own.settings()?.or_tier(&tier.settings()?).policy();
    if row.state.as_deref() != Some("active") {
        policy.rate = Rate::Paused;
    }
    Ok(Found {
        id: DestinationId(id),
        deleted: row.deleted,
        epoch: Epoch(row.epoch.unwrap_or_default()),
        policy,
        last_permit: row.last_permit,
        meter: Meter {
            missing_micro: row.missing_micro,
            as_of: row
                .meter_as_of
                .map_or(Timestamp::MIN, Timestamp::from_micros),
        },
        first_after: row.first_after,
        held_until: time(row.held_until),
    })
}

/// One destination's run in the making.
struct Plan {
    destination: Found,
    republish: bool,
    reading: Reading,
    decision: Decision,
}

/// The plans of those that are locked and there, with nothing decided yet.
async fn plans(
    connection: &mut PgConnection,
    runs: &[Run],
    locked: &HashSet<Uuid>,
    found: &mut HashMap<DestinationId, Found>,
    now: Timestamp,
) -> Result<Vec<Plan>, Failure> {
    let mut once = HashSet::new();
    let ours: Vec<(&Run, Found)> = (runs.iter())
        .filter(|run| locked.contains(&run.destination.0) && once.insert(run.destination))
        .filter_map(|run| Some((run, found.get(&run.destination)?.clone())))
        .filter(|(_, destination)| !destination.deleted)
        .collect();
    let question = |(_, destination): &'_ (&Run, Found)| destination.id;
    let questions: Vec<Question<'_>> = (ours.iter())
        .map(|ours| Question {
            destination: question(ours),
            policy: &ours.1.policy,
            first_after: ours.1.first_after,
            meter: ours.1.meter,
            held_until: ours.1.held_until,
        })
        .collect();
    let mut readings = usage::read(connection, &questions, now).await?;
    Ok((ours.into_iter())
        .filter_map(|(run, destination)| {
            let reading = readings.remove(&destination.id)?;
            let decision = decide(
                &destination.policy,
                &reading.usage,
                &reading.backlog,
                0,
                now,
            );
            Some(Plan {
                destination,
                republish: run.republish,
                reading,
                decision,
            })
        })
        .collect())
}

/// Decides each for itself and, if that is more than there is room for, again
/// with its share.
fn decide_all(plans: &mut [Plan], room: u32, now: Timestamp) {
    for plan in plans.iter_mut() {
        plan.decide(u32::MAX, now);
    }
    let asks: Vec<u32> = plans.iter().map(Plan::given).collect();
    if asks.iter().fold(0_u32, |sum, ask| sum.saturating_add(*ask)) <= room {
        return;
    }
    for (plan, places) in plans.iter_mut().zip(share(room, &asks)) {
        if places < plan.given() {
            plan.decide(places, now);
        }
    }
}

impl Plan {
    fn decide(&mut self, places: u32, now: Timestamp) {
        let (policy, reading) = (&self.destination.policy, &self.reading);
        self.decision = decide(policy, &reading.usage, &reading.backlog, places, now);
    }

    fn given(&self) -> u32 {
        u32::try_from(self.decision.slots.len()).unwrap_or(u32::MAX)
    }

    /// Who gets which slot, with the numbers after the last one given.
    fn picks(&self) -> impl Iterator<Item = (&Waiting, Permit)> {
        let slots = self.reading.waiting.iter().zip(&self.decision.slots);
        let numbers = self.destination.last_permit + 1..;
        slots.zip(numbers).map(|((waiting, slot), number)| {
            let permit = Permit {
                destination: self.destination.id,
                attempt: waiting.attempt,
                number: PermitNumber(number),
                epoch: self.destination.epoch,
                not_before: slot.not_before,
                deadline: slot.deadline,
            };
            (waiting, permit)
        })
    }

    /// The cursor after this run: past the first attempts that were admitted,
    /// none of them left out, as long as they are old enough.
    fn cursor(&self, marked: &HashSet<AttemptId>, now: Timestamp) -> i64 {
        let mut firsts: Vec<&Waiting> = self
            .reading
            .waiting
            .iter()
            .filter(|waiting| waiting.first)
            .collect();
        firsts.sort_unstable_by_key(|waiting| waiting.attempt);
        let passed = firsts.into_iter().take_while(|waiting| {
            marked.contains(&waiting.attempt) && now.micros_since(waiting.since) > CURSOR_AGE_MICROS
        });
        let last = passed.last().map(|waiting| waiting.attempt.0);
        last.unwrap_or(self.destination.first_after)
    }

    /// When to look again, as `pacing.next_look_at` says it.
    fn next_look_at(&self) -> Option<i64> {
        match self.decision.look {
            Look::At { at, .. } => Some(at.as_micros()),
            // Only a change can help, and a change leaves a mark.
            Look::Idle if self.decision.blocked == Some(Blocked::Paused) => Some(i64::MAX),
            Look::Idle => None,
        }
    }

    fn result(self, marked: &HashSet<AttemptId>, now: Timestamp) -> RunResult {
        let mut permits: Vec<Permit> = (self.reading.outstanding.iter().copied())
            .filter(|permit| self.republish && permit.deadline > now)
            .collect();
        let picks = self.picks().map(|(_, permit)| permit);
        permits.extend(picks.filter(|permit| marked.contains(&permit.attempt)));
        RunResult::Decided {
            permits,
            look: self.decision.look,
            blocked: self.decision.blocked,
        }
    }
}

/// Marks the picks; returns those that were still there to be marked.
async fn mark_admitted(
    connection: &mut PgConnection,
    plans: &[Plan],
    now: Timestamp,
) -> Result<HashSet<AttemptId>, Failure> {
    let (mut ids, mut numbers, mut epochs) = (vec![], vec![], vec![]);
    let (mut not_befores, mut deadlines) = (vec![], vec![]);
    let (mut coarse, mut crowded) = (vec![], vec![]);
    for plan in plans {
        for (_, permit) in plan.picks() {
            ids.push(permit.attempt.0);
            numbers.push(permit.number.0);
            epochs.push(permit.epoch.0);
            not_befores.push(permit.not_before.as_micros());
            deadlines.push(permit.deadline.as_micros());
            coarse.push(plan.destination.policy.is_coarse());
            crowded.push(plan.decision.crowded);
        }
    }
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let marked: Vec<i64> = sqlx::query_scalar(
        "-- admit: mark_admitted
        with picked as materialized (
            select a.id, n.number, n.epoch, n.not_before, n.deadline, n.coarse, n.crowded
            from unnest(
                $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                $6::boolean[], $7::boolean[]
            ) as n (id, number, epoch, not_before, deadline, coarse, crowded)
            join attempts a on a.id = n.id
            where a.state = 'waiting'
            order by a.id
            for update of a skip locked
        )
        update attempts a
        set state = 'admitted', permit = p.number, epoch = p.epoch,
            not_before = from_micros(p.not_before), deadline = from_micros(p.deadline),
            coarse = p.coarse, crowded = p.crowded, admitted_at = from_micros($8)
        from picked p
        where a.id = p.id
        returning a.id",
    )
    .bind(ids)
    .bind(numbers)
    .bind(epochs)
    .bind(not_befores)
    .bind(deadlines)
    .bind(coarse)
    .bind(crowded)
    .bind(now.as_micros())
    .fetch_all(connection)
    .await?;
    Ok(marked.into_iter().map(AttemptId).collect())
}

/// Writes down what the next run has to know.
async fn remember(
    connection: &mut PgConnection,
    plans: &[Plan],
    marked: &HashSet<AttemptId>,
    now: Timestamp,
) -> Result<(), Failure> {
    if plans.is_empty() {
        return Ok(());
    }
    let last_permit = |plan: &Plan| plan.destination.last_permit + i64::from(plan.given());
    let as_of = |meter: Meter| (meter.as_of > Timestamp::MIN).then(|| meter.as_of.as_micros());
    sqlx::query(
        "-- admit: remember
        insert into pacing (
            destination_id, last_permit, meter_missing_micro, meter_as_of, looked_at,
            next_look_at, first_after
        )
        select n.id, n.last_permit, n.missing_micro, from_micros(n.as_of), from_micros($7),
            case n.next_look_at when 9223372036854775807 then 'infinity'
                else from_micros(n.next_look_at) end,
            n.first_after
        from unnest(
            $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]
        ) as n (id, last_permit, missing_micro, as_of, next_look_at, first_after)
        on conflict (destination_id) do update
        set last_permit = excluded.last_permit,
            meter_missing_micro = excluded.meter_missing_micro,
            meter_as_of = excluded.meter_as_of,
            looked_at = excluded.looked_at,
            next_look_at = excluded.next_look_at,
            first_after = excluded.first_after",
    )
    .bind(
        plans
            .iter()
            .map(|plan| plan.destination.id.0)
            .collect::<Vec<_>>(),
    )
    .bind(plans.iter().map(last_permit).collect::<Vec<_>>())
    .bind(
        plans
            .iter()
            .map(|plan| plan.decision.meter.missing_micro)
            .collect::<Vec<_>>(),
    )
    .bind(
        plans
            .iter()
            .map(|plan| as_of(plan.decision.meter))
            .collect::<Vec<_>>(),
    )
    .bind(plans.iter().map(Plan::next_look_at).collect::<Vec<_>>())
    .bind(
        plans
            .iter()
            .map(|plan| plan.cursor(marked, now))
            .collect::<Vec<_>>(),
    )
    .bind(now.as_micros())
    .execute(connection)
    .await?;
    Ok(())
}

/// Folds final starts that a newly coarse limit found unfolded.
async fn fold_starts(connection: &mut PgConnection, plans: &[Plan]) -> Result<(), Failure> {
    let ids: Vec<i64> = (plans.iter())
        .flat_map(|plan| plan.reading.to_fold.iter().map(|attempt| attempt.0))
        .collect();
    if ids.is_empty() {
        return Ok(());
    }
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(
        "-- admit: fold_starts
        with final as materialized (
            select a.id from attempts a
            where a.id = any ($1) and not a.folded and a.started_at is not null
                and a.state <> 'started'
            order by a.id
            for update skip locked
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

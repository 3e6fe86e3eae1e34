//! What outcomes make of their destinations' health, in the transaction that
//! records them.
//!
//! Only destinations that fail, or that have something to remember, come here.
//! Locks are taken in the order of the triggers: destinations before health.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::health::{BreakerSettings, Health, Hold, Observation, Verdict};
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{HealthChange, HealthEvent, Wake};
use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Failure;
use super::rows::{count, integer, word};
use crate::row::row;

/// The answers of a batch that may matter, by destination.
pub(super) type Seen = BTreeMap<Uuid, Vec<Observation>>;

/// What they came to.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) health: HashMap<Uuid, Health>,
    pub(super) changes: Vec<HealthChange>,
    /// Whose permits are to be returned.
    pub(super) held: Vec<Uuid>,
}

row! {
    /// A destination's settings and what was remembered of it.
    pub(super) struct Row {
        id: Uuid,
        tenant_id: Uuid,
        breaker_failures: Option<i32>,
        breaker_failing_for_seconds: Option<i32>,
        breaker_disable_after_seconds: Option<i32>,
        failures: Option<i32>,
        failing_since: Option<i64>,
        last_failed_at: Option<i64>,
        refusals: Option<i32>,
        held_since: Option<i64>,
        held_until: Option<i64>,
        held_for: Option<String>,
        opened_at: Option<i64>,
        probes: Option<i32>,
        disabled_for: Option<String>,
    }
}

impl Row {
    pub(super) fn id(&self) -> DestinationId {
        DestinationId(self.id)
    }

    pub(super) fn settings(&self) -> BreakerSettings {
        let number = |set: i32| count(i64::from(set));
        let seconds = |set: i32| Duration::from_secs(number(set).into());
        let default = BreakerSettings::default();
        BreakerSettings {
            failures: self.breaker_failures.map_or(default.failures, number),
            failing_for: (self.breaker_failing_for_seconds).map_or(default.failing_for, seconds),
            disable_after: (self.breaker_disable_after_seconds)
                .map_or(default.disable_after, seconds),
        }
    }

    pub(super) fn health(&self) -> Result<Health, Failure> {
        let number = |number: Option<i32>| count(i64::from(number.unwrap_or(0)));
        let hold = match (self.held_since, self.held_until, &self.held_for) {
            (Some(since), Some(until), Some(reason)) => Some(Hold {
                since: Timestamp::from_micros(since),
                until: Timestamp::from_micros(until),
                reason: word("health", "held_for", self.id, reason)?,
            }),
            _ => None,
        };
        let disabled = self.disabled_for.as_deref();
        Ok(Health {
            failures: number(self.failures),
            failing_since: self.failing_since.map(Timestamp::from_micros),
            last_failed_at: self.last_failed_at.map(Timestamp::from_micros),
            refusals: number(self.refusals),
            hold,
            opened_at: self.opened_at.map(Timestamp::from_micros),
            probes: number(self.probes),
            disabled: disabled
                .map(|reason| word("health", "disabled_for", self.id, reason))
                .transpose()?,
        })
    }
}

/// Judges, and carries it out, but for [`return_admitted`].
pub(super) async fn judge(connection: &mut PgConnection, seen: &Seen) -> Result<Judged, Failure> {
    if seen.is_empty() {
        return Ok(Judged::default());
    }
    let ids: Vec<Uuid> = seen.keys().copied().collect();
    let (now, rows) = read(connection, &ids).await?;
    if verdicts(&rows, seen, now)?
        .iter()
        .any(|(_, one)| one.disable.is_some())
    {
        lock_destinations(connection, &rows).await?;
    }
    lock(connection, &ids).await?;
    let (now, rows) = read(connection, &ids).await?;
    let verdicts = verdicts(&rows, seen, now)?;
    let held = pick(&verdicts, |one| one.held && one.disable.is_none());
    let disabled = pick(&verdicts, |one| one.disable.is_some());
    write(connection, &verdicts, now).await?;
    let changes = note(connection, &verdicts).await?;
    disable(connection, &disabled).await?;
    Ok(Judged {
        held,
        changes,
        health: (verdicts.into_iter())
            .map(|(row, one)| (row.id, one.health))
            .collect(),
    })
}

fn verdicts<'a>(
    rows: &'a [Row],
    seen: &Seen,
    now: Timestamp,
) -> Result<Vec<(&'a Row, Verdict)>, Failure> {
    let verdict = |row: &'a Row| {
        let observations = seen.get(&row.id).map_or(&[][..], Vec::as_slice);
        Ok((
            row,
            row.health()?.observe(&row.settings(), observations, now),
        ))
    };
    rows.iter().map(verdict).collect()
}

fn pick(verdicts: &[(&Row, Verdict)], which: impl Fn(&Verdict) -> bool) -> Vec<Uuid> {
    let picked = verdicts.iter().filter(|(_, verdict)| which(verdict));
    picked.map(|(row, _)| row.id).collect()
}

async fn read(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<(Timestamp, Vec<Row>), Failure> {
    let now: i64 = sqlx::query_scalar(
        "-- record_outcomes: clock
        select micros(clock_timestamp())",
    )
    .fetch_one(&mut *connection)
    .await?;
    let rows = sqlx::query_as(
        "-- record_outcomes: read_health
        select d.id, d.tenant_id, d.breaker_failures, d.breaker_failing_for_seconds,
            d.breaker_disable_after_seconds, h.failures,
            micros(h.failing_since) as failing_since,
            micros(h.last_failed_at) as last_failed_at, h.refusals,
            micros(h.held_since) as held_since,
            micros(h.held_until) as held_until, h.held_for, micros(h.opened_at) as opened_at,
            h.probes, h.disabled_for
        from unnest($1::uuid[]) as n (id)
        cross join lateral (
            select d.id, d.tenant_id, d.breaker_failures, d.breaker_failing_for_seconds,
                d.breaker_disable_after_seconds
            from destinations d
            where d.id = n.id and d.deleted_at is null
            limit 1
        ) d
        left join health h on h.destination_id = any (array[d.id])
        order by d.id",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok((Timestamp::from_micros(now), rows))
}

/// Before one is disabled: its trigger would wait for whoever changes it. The tiers come
/// first, as in [`lock_tier`](super::catalog::lock_tier), of all of them.
async fn lock_destinations(connection: &mut PgConnection, rows: &[Row]) -> Result<(), Failure> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let tenants: Vec<Uuid> = rows.iter().map(|row| row.tenant_id).collect();
    sqlx::query("-- record_outcomes: lock_tiers\nselect lock_tiers_of($1)")
        .bind(tenants)
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "-- record_outcomes: lock_destinations
        select d.id from destinations d
        where d.id = any ($1)
        order by d.id
        for no key update",
    )
    .bind(ids)
    .execute(connection)
    .await?;
    Ok(())
}

/// So that of two batches one counts after the other.
async fn lock(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), Failure> {
    sqlx::query(
        "-- record_outcomes: add_health
        insert into health (destination_id)
        select n.id from unnest($1::uuid[]) as n (id)
        order by n.id
        on conflict do nothing",
    )
    .bind(ids)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "-- record_outcomes: lock_health
        select h.destination_id from health h
        where h.destination_id = any ($1)
        order by h.destination_id
        for update",
    )
    .bind(ids)
    .execute(connection)
    .await?;
    Ok(())
}

/// What is remembered from now on: nothing of those that are well.
async fn write(
    connection: &mut PgConnection,
    verdicts: &[(&Row, Verdict)],
    now: Timestamp,
) -> Result<(), Failure> {
    let well = pick(verdicts, |one| one.health.is_well(now));
    sqlx::query(
        "-- record_outcomes: forget_health
        delete from health h where h.destination_id = any ($1)",
    )
    .bind(well)
    .execute(&mut *connection)
    .await?;
    let kept: Vec<(Uuid, Health)> = (verdicts.iter())
        .filter(|(_, one)| !one.health.is_well(now))
        .map(|(row, one)| (row.id, one.health))
        .collect();
    if kept.is_empty() {
        return Ok(());
    }
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    sqlx::query(
        "-- record_outcomes: write_health
        insert into health (
            destination_id, failures, failing_since, last_failed_at, refusals, held_since,
            held_until, held_for, opened_at, probes, disabled_for
        )
        select n.id, n.failures, from_micros(n.failing_since), from_micros(n.last_failed_at),
            n.refusals, from_micros(n.held_since), from_micros(n.held_until), n.held_for,
            from_micros(n.opened_at), n.probes, n.disabled_for
        from unnest(
            $1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::integer[],
            $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::integer[], $11::text[]
        ) as n (
            id, failures, failing_since, last_failed_at, refusals, held_since, held_until,
            held_for, opened_at, probes, disabled_for
        )
        on conflict (destination_id) do update
        set failures = excluded.failures, failing_since = excluded.failing_since,
            last_failed_at = excluded.last_failed_at, refusals = excluded.refusals,
            held_since = excluded.held_since, held_until = excluded.held_until,
            held_for = excluded.held_for, opened_at = excluded.opened_at,
            probes = excluded.probes, disabled_for = excluded.disabled_for",
    )
    .bind(of(&kept, |(id, _)| *id))
    .bind(of(&kept, |(_, health)| integer(health.failures)))
    .bind(of(&kept, |(_, health)| micros(health.failing_since)))
    .bind(of(&kept, |(_, health)| micros(health.last_failed_at)))
    .bind(of(&kept, |(_, health)| integer(health.refusals)))
    .bind(of(&kept, |(_, health)| {
        micros(health.hold.map(|hold| hold.since))
    }))
    .bind(of(&kept, |(_, health)| micros(health.held_until())))
    .bind(of(&kept, |(_, health)| {
        health.hold.map(|hold| hold.reason.as_str())
    }))
    .bind(of(&kept, |(_, health)| micros(health.opened_at)))
    .bind(of(&kept, |(_, health)| integer(health.probes)))
    .bind(of(&kept, |(_, health)| {
        health.disabled.map(|reason| reason.as_str())
    }))
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes down what operators must know.
async fn note(
    connection: &mut PgConnection,
    verdicts: &[(&Row, Verdict)],
) -> Result<Vec<HealthChange>, Failure> {
    let news: Vec<(&Row, HealthEvent, String)> = (verdicts.iter())
        .flat_map(|(row, verdict)| {
            let events = HealthEvent::of(verdict);
            events.map(|event| (*row, event, event.details(&verdict.health)))
        })
        .collect();
    if news.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query(
        "-- record_outcomes: note
        insert into operational_events (event_type, destination_id, tenant_id, details)
        select n.event_type, n.destination_id, n.tenant_id, n.details
        from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[])
            as n (event_type, destination_id, tenant_id, details)",
    )
    .bind(of(&news, |(_, event, _)| event.as_str()))
    .bind(of(&news, |(row, _, _)| row.id))
    .bind(of(&news, |(row, _, _)| row.tenant_id))
    .bind(of(&news, |(_, _, details)| details.clone()))
    .execute(connection)
    .await?;
    let change = |(row, what, _): &(&Row, HealthEvent, String)| HealthChange {
        destination: DestinationId(row.id),
        what: *what,
    };
    Ok(news.iter().map(change).collect())
}

/// The triggers do the rest: revoke, mark, write history.
async fn disable(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), Failure> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- record_outcomes: disable
        update destinations d set state = 'disabled'
        where d.id = any ($1) and d.state <> 'disabled' and d.deleted_at is null",
    )
    .bind(ids)
    .execute(connection)
    .await?;
    Ok(())
}

/// Permits that a hold outlives wait again. One whose row somebody holds is
/// left: its claim is under way, or finds the hold. The last lock that is taken:
/// a change of the destination revokes them after all else.
pub(super) async fn return_admitted(
    connection: &mut PgConnection,
    held: &[Uuid],
) -> Result<Vec<Wake>, Failure> {
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let mut returned: Vec<Uuid> = sqlx::query_scalar(
        "-- record_outcomes: return_admitted
        with locked as materialized (
            select a.id from deliveries a
            where a.destination_id = any ($1) and a.permit is not null and a.carried_by is null
                and a.state = 'admitted'
            order by a.id + 0
            for update skip locked
        )
        update deliveries a
        set state = 'waiting', due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        from locked l
        where a.id = any (array[l.id])
        returning a.destination_id",
    )
    .bind(held)
    .fetch_all(connection)
    .await?;
    returned.sort_unstable();
    returned.dedup();
    // The floor of the last run counted them.
    let wake = |id| Wake::unblocked(DestinationId(id));
    Ok(returned.into_iter().map(wake).collect())
}

/// A column.
fn of<R, T>(rows: &[R], column: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(column).collect()
}

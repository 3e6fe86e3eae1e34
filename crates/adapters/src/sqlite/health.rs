//! What outcomes make of their destinations' health, in the transaction that
//! records them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::health::{BreakerSettings, Health, Hold, Observation, Verdict};
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{HealthChange, HealthEvent, Wake};
use rusqlite::{Connection, Row, Transaction};

use super::claim::give_back;
use super::destinations::dated;
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_time, parse};

/// The answers of a batch that may matter, by destination.
pub(super) type Seen = BTreeMap<DestinationId, Vec<Observation>>;

/// What they came to.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) health: HashMap<DestinationId, Health>,
    pub(super) changes: Vec<HealthChange>,
    pub(super) wakes: Vec<Wake>,
}

const READ: &str = "
    -- health: the settings, and what is remembered
    select d.tenant_id, d.breaker_failures, d.breaker_disable_after_seconds,
        coalesce(h.failures, 0), coalesce(h.refusals, 0), h.held_since, h.held_until, h.held_for,
        h.opened_at, coalesce(h.probes, 0), h.disabled_for, d.breaker_failing_for_seconds,
        h.failing_since, h.last_failed_at
    from destinations d
    left join health h on h.destination_id = d.id
    where d.id = ?1 and d.deleted_at is null";

const FORGET: &str = "
    -- health: nothing to remember
    delete from health where destination_id = ?1";

const WRITE: &str = "
    -- health: what to remember
    insert into health (destination_id, failures, refusals, held_since, held_until, held_for,
        opened_at, probes, disabled_for, failing_since, last_failed_at)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    on conflict (destination_id) do update
    set failures = excluded.failures, refusals = excluded.refusals,
        held_since = excluded.held_since, held_until = excluded.held_until,
        held_for = excluded.held_for, opened_at = excluded.opened_at, probes = excluded.probes,
        disabled_for = excluded.disabled_for, failing_since = excluded.failing_since,
        last_failed_at = excluded.last_failed_at";

const NOTE: &str = "
    -- health: what operators must know
    insert into operational_events (event_type, destination_id, tenant_id, details, created_at)
    values (?1, ?2, ?3, ?4, ?5)";

const DISABLE: &str = "
    -- health: the triggers do the rest
    update destinations set state = 'disabled'
    where id = ?1 and state <> 'disabled' and deleted_at is null";

const ADMITTED: &str = "
    -- health: permits that a hold outlives
    select id, permit from deliveries indexed by deliveries_held
    where destination_id = ?1 and permit is not null and carried_by is null
        and state = 'admitted'";

/// A destination's settings and what is remembered of it.
pub(super) struct Remembered {
    tenant: String,
    pub(super) settings: BreakerSettings,
    pub(super) health: Health,
}

/// `None` if the destination is gone.
pub(super) fn read(
    connection: &Connection,
    destination: DestinationId,
) -> Result<Option<Remembered>, Fault> {
    first(connection, READ, [destination.to_string()], remembered)
}

fn remembered(row: &Row<'_>) -> Result<Remembered, Fault> {
    let default = BreakerSettings::default();
    let seconds = |column: usize, default: Duration| -> Result<Duration, Fault> {
        let set: Option<u32> = row.get(column)?;
        Ok(set.map_or(default, |set| Duration::from_secs(set.into())))
    };
    let disabled: Option<String> = row.get(10)?;
    let reason: Option<String> = row.get(7)?;
    let hold = match (maybe_time(row, 5)?, maybe_time(row, 6)?, reason) {
        (Some(since), Some(until), Some(reason)) => Some(Hold {
            since,
            until,
            reason: parse(&reason, ("health", "held_for"))?,
        }),
        _ => None,
    };
    Ok(Remembered {
        tenant: row.get(0)?,
        settings: BreakerSettings {
            failures: row.get::<_, Option<u32>>(1)?.unwrap_or(default.failures),
            failing_for: seconds(11, default.failing_for)?,
            disable_after: seconds(2, default.disable_after)?,
        },
        health: Health {
            failures: row.get(3)?,
            failing_since: maybe_time(row, 12)?,
            last_failed_at: maybe_time(row, 13)?,
            refusals: row.get(4)?,
            hold,
            opened_at: maybe_time(row, 8)?,
            probes: row.get(9)?,
            disabled: disabled
                .map(|reason| parse(&reason, ("health", "disabled_for")))
                .transpose()?,
        },
    })
}

/// Judges, and carries it out.
pub(super) fn judge(tx: &Transaction<'_>, now: Timestamp, seen: &Seen) -> Result<Judged, Fault> {
    let mut judged = Judged::default();
    for (destination, observations) in seen {
        let Some(remembered) = read(tx, *destination)? else {
            continue;
        };
        let health = remembered.health;
        let verdict = health.observe(&remembered.settings, observations, now);
        write(tx, *destination, &verdict.health, now)?;
        for what in HealthEvent::of(&verdict) {
            let details = what.details(&verdict.health);
            let row = (
                what.as_str(),
                destination.to_string(),
                &remembered.tenant,
                details,
                now.as_micros(),
            );
            execute(tx, NOTE, row)?;
            judged.changes.push(HealthChange {
                destination: *destination,
                what,
            });
        }
        carry_out(tx, now, *destination, &verdict, &mut judged.wakes)?;
        judged.health.insert(*destination, verdict.health);
    }
    Ok(judged)
}

fn write(
    tx: &Transaction<'_>,
    destination: DestinationId,
    health: &Health,
    now: Timestamp,
) -> Result<(), Fault> {
    let destination = destination.to_string();
    if health.is_well(now) {
        execute(tx, FORGET, [destination])?;
        return Ok(());
    }
    let row = (
        destination,
        health.failures,
        health.refusals,
        health.hold.map(|hold| hold.since.as_micros()),
        health.held_until().map(Timestamp::as_micros),
        health.hold.map(|hold| hold.reason.as_str()),
        health.opened_at.map(Timestamp::as_micros),
        health.probes,
        health.disabled.map(|reason| reason.as_str()),
        health.failing_since.map(Timestamp::as_micros),
        health.last_failed_at.map(Timestamp::as_micros),
    );
    execute(tx, WRITE, row)?;
    Ok(())
}

fn carry_out(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: DestinationId,
    verdict: &Verdict,
    wakes: &mut Vec<Wake>,
) -> Result<(), Fault> {
    let key = destination.to_string();
    if verdict.disable.is_some() {
        dated(tx, now, || execute(tx, DISABLE, [&key]))?;
    } else if verdict.held {
        let admitted: Vec<(i64, i64)> =
            all(tx, ADMITTED, [&key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (id, number) in &admitted {
            give_back(tx, (*id, *number, &key))?;
        }
        if !admitted.is_empty() {
            // The floor of the last run counted them.
            wakes.push(Wake::unblocked(destination));
        }
    }
    Ok(())
}

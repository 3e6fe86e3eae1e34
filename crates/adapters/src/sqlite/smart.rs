//! What outcomes make of effective limits, in the transaction that records
//! them, and what people see of it; see [`engine::ports::SmartBook`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use domain::health::Health;
use domain::ids::{DestinationId, TenantId};
use domain::smart::{Ceiling, Effective, Sample, SmartDelivery, Verdict};
use domain::time::Timestamp;
use engine::ports::{CatalogError, SMART_HISTORY_DAYS, SmartBook, SmartChange, SmartView};
use rusqlite::{Row, Transaction};

use super::SqliteStore;
use super::destinations::not_found;
use super::fault::Fault;
use super::rows::{all, execute, first, settings, tier_settings, time, word};
use crate::smart_memory;

/// The answers of a batch, by destination.
pub(super) type Samples = BTreeMap<DestinationId, Vec<Sample>>;

const READ: &str = "
    -- smart: the limits, and what is remembered
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin, d.margin_cap, d.count,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight, s.memory, s.begun_at,
        d.allowed_per_minute
    from smart_limits s
    join destinations d on d.id = s.destination_id
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    where s.destination_id = ?1";

const WRITE: &str = "
    -- smart: what is in force, and what to remember
    update smart_limits set per_second = ?2, max_in_flight = ?3, reason = ?4, memory = ?5
    where destination_id = ?1";

const NOTE: &str = "
    -- smart: history
    insert into smart_history (destination_id, in_force_from, per_second, max_in_flight, reason)
    values (?1, ?2, ?3, ?4, ?5)";

const FORGET: &str = "
    -- smart: what is old of history
    delete from smart_history
    where destination_id = ?1
        -- What was in force then stays.
        and in_force_from < (
            select max(o.in_force_from) from smart_history o
            where o.destination_id = ?1 and o.in_force_from < ?2
        )";

const VIEW: &str = "
    -- smart_delivery
    select d.smart_delivery, s.per_second, s.max_in_flight, coalesce(s.reason, 'configured')
    from destinations d
    left join smart_limits s on s.destination_id = d.id
    where d.id = ?1 and d.tenant_id = ?2 and d.deleted_at is null";

const SET: &str = "
    -- set_smart_delivery: the trigger does the rest
    update destinations set smart_delivery = ?3
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const HISTORY: &str = "
    -- smart_history
    select in_force_from, per_second, max_in_flight, reason from smart_history
    where destination_id = ?1 and in_force_from < ?2
    order by in_force_from desc, id desc limit ?3";

/// Judges, and writes it down.
pub(super) fn judge(
    tx: &Transaction<'_>,
    now: Timestamp,
    samples: &Samples,
    health: &HashMap<DestinationId, Health>,
) -> Result<(), Fault> {
    for (destination, of_one) in samples {
        let read = first(tx, READ, [destination.to_string()], |row| {
            let policy = settings(row, (0, 21))?
                .or_tier(&tier_settings(row, 11)?)
                .policy();
            let memory: Option<String> = row.get(19)?;
            Ok((policy, memory, time(row, 20)?))
        })?;
        let Some((policy, memory, begun_at)) = read else {
            continue;
        };
        let Some(ceiling) = Ceiling::of(&policy) else {
            continue;
        };
        let smart = smart_memory::read(memory.as_deref(), &ceiling, begun_at);
        let held_until = health.get(destination).and_then(Health::held_until);
        let verdict = smart.observe(&ceiling, of_one, (now, held_until));
        let effective = verdict.smart.effective(&ceiling);
        write(tx, now, *destination, (effective, &verdict))?;
    }
    Ok(())
}

fn write(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: DestinationId,
    (effective, verdict): (Effective, &Verdict),
) -> Result<(), Fault> {
    let key = destination.to_string();
    let Effective {
        per_second,
        max_in_flight,
    } = effective;
    let reason = verdict.smart.reason.as_str();
    let memory = smart_memory::write(&verdict.smart);
    execute(tx, WRITE, (&key, per_second, max_in_flight, reason, memory))?;
    if verdict.is_news {
        let at = now.as_micros();
        execute(tx, NOTE, (&key, at, per_second, max_in_flight, reason))?;
        let kept = Duration::from_secs(u64::from(SMART_HISTORY_DAYS) * 86_400);
        execute(tx, FORGET, (&key, (now - kept).as_micros()))?;
    }
    Ok(())
}

#[async_trait]
impl SmartBook for SqliteStore {
    async fn smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<SmartView, CatalogError> {
        let key = (destination.to_string(), tenant.to_string());
        Ok(self
            .look(move |tx, _| first(tx, VIEW, key.clone(), view)?.ok_or_else(not_found))
            .await?)
    }

    async fn set_smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        to: SmartDelivery,
    ) -> Result<(), CatalogError> {
        let is_on = to == SmartDelivery::On;
        let row = (destination.to_string(), tenant.to_string(), is_on);
        Ok(self
            .write(move |tx, _| match execute(tx, SET, row)? {
                0 => Err(not_found()),
                _ => Ok(()),
            })
            .await?)
    }

    async fn smart_history(
        &self,
        destination: DestinationId,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SmartChange>, CatalogError> {
        let key = (destination.to_string(), until.as_micros(), limit);
        Ok(self
            .look(move |tx, _| all(tx, HISTORY, key.clone(), change))
            .await?)
    }
}

fn effective(row: &Row<'_>, first: usize) -> Result<Effective, Fault> {
    Ok(Effective {
        per_second: row.get(first)?,
        max_in_flight: row.get(first + 1)?,
    })
}

fn view(row: &Row<'_>) -> Result<SmartView, Fault> {
    let is_on: bool = row.get(0)?;
    Ok(SmartView {
        delivery: match is_on {
            true => SmartDelivery::On,
            false => SmartDelivery::Off,
        },
        effective: effective(row, 1)?,
        reason: word(row, 3, ("smart_limits", "reason"))?,
    })
}

fn change(row: &Row<'_>) -> Result<SmartChange, Fault> {
    Ok(SmartChange {
        in_force_from: time(row, 0)?,
        effective: effective(row, 1)?,
        reason: word(row, 3, ("smart_history", "reason"))?,
    })
}

//! Changes of limits: what the triggers do, whoever changes a row.

use std::time::Duration;

use domain::batch::BatchSettings;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, Epoch, TenantId};
use domain::limit::Shape;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{CatalogError, LimitHistory};

use super::rows::{Attempt, DestinationRow, Rows};

/// Refuses what the constraints refuse.
pub(super) fn check(limits: &LimitSettings) -> Result<(), CatalogError> {
    limits.validate().map_err(|invalid| CatalogError::Invalid {
        field: invalid.field.to_owned(),
        problem: invalid.problem,
    })
}

/// What is in force at a destination now. A deleted one takes no starts: it is
/// disabled for good.
fn in_force(rows: &Rows, id: DestinationId, from: Timestamp) -> Option<LimitHistory> {
    let row = rows.destinations.get(&id)?;
    Some(LimitHistory {
        in_force_from: from,
        effective: rows.effective(row),
        state: match row.deleted_at {
            None => row.state,
            Some(_) => DestinationState::Disabled,
        },
    })
}

/// Writes what is in force now into limit history; the entry's number.
pub(super) fn write_history(rows: &mut Rows, now: Timestamp, id: DestinationId) -> i64 {
    rows.last_history += 1;
    let latest = (rows.ledger.starts_of(id, now))
        .map(|(started_at, _)| started_at)
        .max();
    // The transaction holds the row meanwhile.
    let after = |start: Timestamp| start.min(now + rows.head_start) + Duration::from_micros(1);
    let from = latest.map_or(now, after);
    if let Some(entry) = in_force(rows, id, from)
        && let Some(row) = rows.destinations.get_mut(&id)
    {
        row.changing_until = from;
        row.history.push(entry);
    }
    rows.last_history
}

/// Whether a change revokes whatever the limits say, because the destination
/// is another one now (its URL, its tenant, that it is gone).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Besides {
    Nothing,
    Revokes,
}

/// Carries out a change that has been written to the rows: revokes, writes
/// history, leaves a mark. Does nothing where nothing changed.
pub(super) fn carry_out(rows: &mut Rows, now: Timestamp, id: DestinationId, besides: Besides) {
    let Some(after) = in_force(rows, id, now) else {
        return;
    };
    let last = (rows.destinations.get(&id)).and_then(|row| row.history.last().cloned());
    let Some(before) = last else { return };
    let changed = before.effective != after.effective || before.state != after.state;
    if !changed && besides == Besides::Nothing {
        return;
    }
    if besides == Besides::Revokes || revokes(&before, &after) {
        revoke(rows, now, id);
    }
    let version = write_history(rows, now, id);
    rows.marks.insert(id, version);
    if let Some(row) = rows.destinations.get_mut(&id) {
        row.pacing.next_look_at = None;
    }
}

fn revoke(rows: &mut Rows, now: Timestamp, id: DestinationId) {
    let mut gone = false;
    if let Some(row) = rows.destinations.get_mut(&id) {
        row.epoch = Epoch(row.epoch.0 + 1);
        gone = row.deleted_at.is_some();
    }
    let permits = rows.ledger.permits_of(id);
    let admitted: Vec<_> = permits.map(|permit| permit.attempt).collect();
    for attempt in admitted {
        rows.ledger
            .change(now, attempt, |row: &mut Attempt| match gone {
                true => row.cancel(),
                false => row.wait_again(),
            });
    }
}

/// Sets what requests look like; see [`engine::ports::Backlog::set_batch_settings`].
pub(super) fn set_batches(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
    settings: &BatchSettings,
) -> Result<(), CatalogError> {
    let living = |row: &&mut DestinationRow| row.tenant == tenant && row.deleted_at.is_none();
    let row = rows.destinations.get_mut(&id).filter(living);
    let row = row.ok_or(CatalogError::NotFound("destination"))?;
    let valid = settings.validate(row.max_age);
    valid.map_err(|invalid| CatalogError::Invalid {
        field: invalid.field.to_owned(),
        problem: invalid.problem,
    })?;
    let before = std::mem::replace(&mut row.batches, *settings);
    if before.max_events.is_some() != settings.max_events.is_some() {
        carry_out(rows, now, id, Besides::Revokes);
    }
    Ok(())
}

/// Whether not everything that was allowed is allowed still: the view
/// `limit_changes`, in Rust. Says yes where it is not sure.
fn revokes(before: &LimitHistory, after: &LimitHistory) -> bool {
    let active = DestinationState::Active;
    let (old, new) = (&before.effective, &after.effective);
    let keeps = before.state == active
        && after.state == active
        && new.safety_margin <= old.safety_margin
        && new.policy().max_in_flight >= old.policy().max_in_flight
        && (new.unlimited || (!old.unlimited && raises(old, new)));
    !keeps
}

/// Whether no limit is lower, and the shape allows as much.
fn raises(old: &LimitSettings, new: &LimitSettings) -> bool {
    let limits = || old.limits().into_iter().zip(new.limits());
    let no_lower = limits().all(|((_, old), (_, new))| match (old, new) {
        (_, None) => true,
        (Some(old), Some(new)) => new >= old,
        (None, Some(_)) => false,
    });
    let same_shape = old.shape.unwrap_or_default() == new.shape.unwrap_or_default();
    let plain = new.shape.unwrap_or_default() == Shape::SlidingWindow
        && new.burst.is_none()
        && old.burst.is_none();
    // A bucket is refilled by the shortest limit that is set.
    let same_limits = || limits().all(|((_, old), (_, new))| old.is_none() == new.is_none());
    no_lower && same_shape && (plain || (keeps_burst(old, new) && same_limits()))
}

fn keeps_burst(old: &LimitSettings, new: &LimitSettings) -> bool {
    match (old.burst, new.burst) {
        (Some(old), Some(new)) => new >= old,
        (None, Some(_)) => false,
        (None, None) => true,
        (Some(old), None) => {
            let shortest = new.limits().into_iter().find_map(|(_, max)| max);
            new.shape != Some(Shape::TokenBucket) || shortest.is_none_or(|max| old <= max)
        }
    }
}

/// Sets a tier's limits; see [`super::ModelStore::change_tier`].
pub(super) fn change_tier(
    rows: &mut Rows,
    now: Timestamp,
    name: &str,
    limits: LimitSettings,
) -> Result<(), CatalogError> {
    check(&limits)?;
    let tier = rows.tiers.get_mut(name);
    *tier.ok_or(CatalogError::NotFound("tier"))? = limits;
    let tenants = rows.tenants.iter().filter(|(_, tier)| *tier == name);
    let tenants: Vec<_> = tenants.map(|(tenant, _)| *tenant).collect();
    carry_out_for(rows, now, &tenants);
    Ok(())
}

/// Moves a tenant; see [`super::ModelStore::change_tenant_tier`].
pub(super) fn change_tenant_tier(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    tier: &str,
) -> Result<(), CatalogError> {
    if !rows.tiers.contains_key(tier) {
        return Err(CatalogError::NotFound("tier"));
    }
    let row = rows.tenants.get_mut(&tenant);
    tier.clone_into(row.ok_or(CatalogError::NotFound("tenant"))?);
    carry_out_for(rows, now, &[tenant]);
    Ok(())
}

/// Of all their destinations that are not deleted, in id order.
fn carry_out_for(rows: &mut Rows, now: Timestamp, tenants: &[TenantId]) {
    let affected: Vec<_> = (rows.destinations.iter())
        .filter(|(_, row)| row.deleted_at.is_none() && tenants.contains(&row.tenant))
        .map(|(id, _)| *id)
        .collect();
    for id in affected {
        carry_out(rows, now, id, Besides::Nothing);
    }
}

/// Holds; see [`super::ModelStore::hold`]. A hold is never shortened.
pub(super) fn hold(rows: &mut Rows, id: DestinationId, until: Timestamp) {
    if let Some(row) = rows.destinations.get_mut(&id) {
        row.pacing.held_until = row.pacing.held_until.max(Some(until));
    }
}

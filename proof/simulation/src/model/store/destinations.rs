//! Destinations, as their owners see them.

use std::collections::btree_map::Entry;
use std::ops::Bound;

use domain::batch::BatchSettings;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, Epoch, TenantId};
use domain::retry::RetrySettings;
use domain::time::Timestamp;
use engine::ports::{CatalogError, Destination, DestinationChange, NewDestination};

use super::change::{Besides, carry_out, check, write_history};
use super::rows::{DestinationRow, Pacing, Rows};
use super::{health, secrets, smart};

const NOT_FOUND: CatalogError = CatalogError::NotFound("destination");

/// Creates one; see [`engine::ports::Catalog::create_destination`].
pub(super) fn create(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    new: &NewDestination,
) -> Result<Destination, CatalogError> {
    check(&new.limits)?;
    let invalid = |field: &str, problem: &str| CatalogError::Invalid {
        field: field.to_owned(),
        problem: problem.to_owned(),
    };
    if !rows.tenants.contains_key(&tenant) {
        return Err(invalid("tenant_id", "names what does not exist"));
    }
    let Entry::Vacant(place) = rows.destinations.entry(new.id) else {
        return Err(invalid("id", "is there already"));
    };
    place.insert(DestinationRow {
        tenant,
        name: new.name.clone(),
        url: new.url.clone(),
        event_types: new.event_types.clone(),
        state: DestinationState::Active,
        limits: new.limits,
        epoch: Epoch::default(),
        created_at: now,
        deleted_at: None,
        changing_until: now,
        history: Vec::new(),
        pacing: Pacing::default(),
        retry: RetrySettings::default(),
        max_age: None,
        batches: BatchSettings::default(),
        pass_traceparent: new.pass_traceparent,
    });
    write_history(rows, now, new.id);
    read(rows, tenant, new.id)
}

/// Reads one; see [`engine::ports::Catalog::destination`].
pub(super) fn read(
    rows: &Rows,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Destination, CatalogError> {
    let row = rows.living(id).filter(|row| row.tenant == tenant);
    Ok(view(rows, id, row.ok_or(NOT_FOUND)?))
}

fn view(rows: &Rows, id: DestinationId, row: &DestinationRow) -> Destination {
    Destination {
        id,
        tenant: row.tenant,
        name: row.name.clone(),
        url: row.url.clone(),
        event_types: row.event_types.clone(),
        state: row.state,
        limits: row.limits,
        effective: rows.effective(row),
        pass_traceparent: row.pass_traceparent,
        created_at: row.created_at,
    }
}

/// Reads a page; see [`engine::ports::Catalog::destinations`].
pub(super) fn page(
    rows: &Rows,
    tenant: TenantId,
    after: Option<DestinationId>,
    limit: u32,
) -> Vec<Destination> {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    rows.destinations
        .range((after, Bound::Unbounded))
        .filter(|(_, row)| row.tenant == tenant && row.deleted_at.is_none())
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|(id, row)| view(rows, *id, row))
        .collect()
}

/// The row, if it is the tenant's and not deleted.
fn own(
    rows: &mut Rows,
    tenant: TenantId,
    id: DestinationId,
) -> Result<&mut DestinationRow, CatalogError> {
    let row = rows.destinations.get_mut(&id);
    row.filter(|row| row.tenant == tenant && row.deleted_at.is_none())
        .ok_or(NOT_FOUND)
}

/// Changes one; see [`engine::ports::Catalog::change_destination`].
pub(super) fn change(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
    change: &DestinationChange,
) -> Result<Destination, CatalogError> {
    let row = own(rows, tenant, id)?;
    let limits = change.limits.unwrap_or(row.limits);
    check(&limits)?;
    row.limits = limits;
    let is_moved = change.url.as_ref().is_some_and(|url| *url != row.url);
    let passes = change.pass_traceparent.unwrap_or(row.pass_traceparent);
    let besides = match is_moved || passes != row.pass_traceparent {
        true => Besides::Revokes,
        false => Besides::Nothing,
    };
    row.pass_traceparent = passes;
    let set = |column: &mut String, value: &Option<String>| {
        if let Some(value) = value {
            column.clone_from(value);
        }
    };
    set(&mut row.name, &change.name);
    set(&mut row.url, &change.url);
    if let Some(types) = &change.event_types {
        row.event_types.clone_from(types);
    }
    let was_active = row.state == DestinationState::Active;
    row.state = change.state.unwrap_or(row.state);
    let is_active_again = !was_active && row.state == DestinationState::Active;
    if is_moved {
        smart::begin_anew(rows, now, id);
    }
    if is_moved || is_active_again {
        health::forget(rows, id);
    }
    carry_out(rows, now, id, besides);
    read(rows, tenant, id)
}

/// Deletes one; see [`engine::ports::Catalog::delete_destination`].
pub(super) fn delete(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
) -> Result<(), CatalogError> {
    own(rows, tenant, id)?.deleted_at = Some(now);
    health::forget(rows, id);
    rows.news.forget(id);
    smart::begin_anew(rows, now, id);
    secrets::forget(rows, id);
    rows.managers.remove(&id);
    carry_out(rows, now, id, Besides::Revokes);
    Ok(())
}

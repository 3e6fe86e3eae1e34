//! Cancelling what has not started, one or a step of a backlog.

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{CancelFrom, CancelStep, CancelledOne, CancelledStep, CatalogError, Wake};
use rusqlite::Transaction;

use super::fault::Fault;
use super::lines;
use super::over;
use super::rows::{all, first, time, word};

const ATTEMPT: &str = "
    -- cancel_attempt
    select destination_id, state from attempts where id = ?1 and tenant_id = ?2";

const KNOWN: &str = "
    -- cancel_step: is it the tenant's, deleted or not
    select 1 from destinations where id = ?1 and tenant_id = ?2";

const FIRST: &str = "
    -- cancel_step: first attempts
    select a.id, 0, e.created_at < ?4 and (?5 is null or e.event_type = ?5)
    from json_each(line(?1, ?3, ?6)) l
    cross join deliveries a on a.id = l.value
    join events e on e.id = a.event_id
    where a.permit is null and a.due_at is null and ?2 is not null
    order by l.key";

const ADMITTED: &str = "
    -- cancel_step: what is admitted
    select a.id, 0, e.created_at < ?4 and (?5 is null or e.event_type = ?5)
    from deliveries a indexed by deliveries_held
    join events e on e.id = a.event_id
    where a.destination_id = ?1 and a.permit is not null and a.carried_by is null
        and a.state = 'admitted' and a.id > ?3 and ?2 is not null
    order by a.id limit ?6";

const DUE: &str = "
    -- cancel_step: the others
    select a.id, a.due_at, e.created_at < ?4 and (?5 is null or e.event_type = ?5)
    from (
        select * from (
            select id, event_id, due_at from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
                and urgent = 1 and (due_at, id) > (?2, ?3)
            order by due_at, id limit ?6
        )
        union all
        select * from (
            select id, event_id, due_at from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
                and urgent = 0 and (due_at, id) > (?2, ?3)
            order by due_at, id limit ?6
        )
    ) a
    join events e on e.id = a.event_id
    order by a.due_at, a.id limit ?6";

/// One attempt; see [`engine::ports::Backlog::cancel_attempt`].
pub(super) fn attempt(
    tx: &Transaction<'_>,
    tenant: TenantId,
    attempt: AttemptId,
) -> Result<CancelledOne, Fault> {
    let found = first(tx, ATTEMPT, (attempt.0, tenant.to_string()), |row| {
        let destination: DestinationId = word(row, 0, ("attempts", "destination_id"))?;
        let state: AttemptState = word(row, 1, ("attempts", "state"))?;
        Ok((destination, state))
    })?;
    let (destination, state) = found.ok_or(CatalogError::NotFound("attempt"))?;
    match state {
        state if state.can_be_cancelled() => {}
        AttemptState::Cancelled => return Ok(CancelledOne::Cancelled(None)),
        other => return Ok(CancelledOne::TooLate(other)),
    }
    over::cancel(tx, attempt)?;
    let freed = state == AttemptState::Admitted;
    let wake = freed.then(|| Wake::unblocked(destination));
    Ok(CancelledOne::Cancelled(wake))
}

/// A step of a backlog; see [`engine::ports::Backlog::cancel_step`].
pub(super) fn step(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    step: &CancelStep,
) -> Result<CancelledStep, Fault> {
    let key = step.destination.to_string();
    let known = first(tx, KNOWN, (&key, tenant.to_string()), |_| Ok(()))?;
    known.ok_or(CatalogError::NotFound("destination"))?;
    let accepted_before = step.accepted_before.unwrap_or(now);
    let (sql, at, id) = match step.from {
        CancelFrom::First(id) => (FIRST, Timestamp::from_micros(0), id),
        CancelFrom::Admitted(id) => (ADMITTED, Timestamp::from_micros(0), id),
        CancelFrom::Due(at, id) => (DUE, at, id),
    };
    let params = (
        &key,
        at.as_micros(),
        id.0,
        accepted_before.as_micros(),
        &step.event_type,
        step.limit,
    );
    lines::tidy(tx, &key, (id.0, step.limit))?;
    let candidates = all(tx, sql, params, |row| {
        Ok((
            AttemptId(row.get(0)?),
            time(row, 1)?,
            row.get::<_, bool>(2)?,
        ))
    })?;
    let mut cancelled = 0_u32;
    for (id, ..) in candidates.iter().filter(|(_, _, matches)| *matches) {
        cancelled += u32::from(over::cancel(tx, *id)?);
    }
    let more = candidates.len() >= step.limit as usize;
    let freed = matches!(step.from, CancelFrom::Admitted(_)) && cancelled > 0;
    Ok(CancelledStep {
        cancelled,
        accepted_before,
        next: match candidates.last().filter(|_| more) {
            Some((id, at, _)) => Some(step.from.at(*at, *id)),
            None => step.from.next_part(),
        },
        wakes: (freed.then(|| Wake::unblocked(step.destination)).into_iter()).collect(),
    })
}

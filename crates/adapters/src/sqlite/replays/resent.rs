//! Events, whatever became of them, that are sent to a destination again. Their replay's
//! row says which: the count when it begins and each step read it there.

use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId, TenantId};
use domain::replay::{ReplaySource, ReplayState, Step};
use domain::search::{IDS_BEFORE, IdRange, Sought, SoughtStatus, first_at};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, MAX_EVENTS_COUNTED, MAX_EVENTS_STEP, NewReplay, Resendable, ResentEvents,
    no_event_by,
};
use rusqlite::Transaction;

use super::moves::{Moved, end};
use super::{LIVES, Running, number};
use crate::sqlite::fault::Fault;
use crate::sqlite::found_events::sought;
use crate::sqlite::rows::{all, execute, first};

const INSERT: &str = "
    -- create_replay: of events
    insert into replays (
        id, tenant_id, destination_id, source, event_id, only_missed, event_type, died_from,
        died_before, share, total, created_at, attempt_state, status, event_text
    )
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11, ?12, ?13, ?14)";

const EVENT: &str = "
    -- create_replay: is it the tenant's
    select 1 from events where id = ?1 and tenant_id = ?2";

/// Whether the event `e` is sent again by `r` to its destination `d`.
const WANTED: &str = "e.created_at >= r.died_from and e.created_at < r.died_before
    and (r.event_type is null or e.event_type is r.event_type)
    and (r.event_text is null or instr(e.id, r.event_text) > 0)
    and not exists (
        select 1 from deliveries a indexed by deliveries_of_event
        where a.event_id = e.id and a.destination_id = r.destination_id
    )
    and (r.only_missed = 0 or not exists (
        select 1 from ledger a indexed by ledger_of_event
        where a.event_id = e.id and a.destination_id = r.destination_id
            and a.state = 'succeeded'
    ))
    and ((r.status is null and r.attempt_state is null) or exists (
        select 1 from ledger a indexed by ledger_of_event
        where a.event_id = e.id and a.destination_id = r.destination_id
            and (r.status is null or a.status = r.status or a.status / 100 = r.status)
            and (r.attempt_state is null or a.state = r.attempt_state)
    ))
    and (
        r.event_id is not null
        or (
            e.directed = 0 and d.filter is null
            and subscribes(d.event_types, e.event_type)
        )
        or exists (
            select 1 from ledger a indexed by ledger_of_event
            where a.event_id = e.id and a.destination_id = r.destination_id
        )
    )";

/// Events from `?2` on and before `?3`, after `?4`; whether each is sent again.
fn events_of_replay() -> String {
    format!(
        "
    select e.id as id, {WANTED} as wanted
    from replays r
    cross join destinations d on d.id = r.destination_id
    cross join events e indexed by events_of_tenant on e.tenant_id = r.tenant_id
    where r.id = ?1 and e.id >= ?2 and e.id < ?3 and e.id > ?4
    order by e.id limit ?5"
    )
}

/// Which a replay that is not there would look at.
const EXAMINED: &str = "
    -- resendable: events in the order of their ids
    select id, created_at from events indexed by events_of_tenant
    where tenant_id = ?1 and id >= ?2 and id < ?3 and id > ?4
    order by id limit ?5";

/// How many of the events `?1` it would send to the destination `?2`.
fn events_of_none() -> String {
    format!(
        "
    -- resendable
    select count(*)
    from json_each(?1) x
    cross join events e on e.id = x.value
    cross join (
        select ?2 as destination_id, ?3 as died_from, ?4 as died_before, ?5 as event_type,
            ?6 as event_text, ?7 as only_missed, ?8 as status, ?9 as attempt_state,
            null as event_id
    ) r
    cross join destinations d on d.id = r.destination_id
    where {WANTED}"
    )
}

const SKIPPED: &str = "
    -- create_replay: how many payloads are gone
    update replays as r set skipped = (
        select count(distinct x.event_id) from (
            select a.event_id, a.created_at from ledger a indexed by ledger_of_destination
            where a.destination_id = r.destination_id
            order by a.id desc limit ?4
        ) x
        where x.created_at >= r.died_from and x.event_id >= ?2 and x.event_id < ?3
            and not exists (select 1 from events e where e.id = x.event_id)
            and (r.event_text is null or instr(x.event_id, r.event_text) > 0)
            and ((r.status is null and r.attempt_state is null) or exists (
                select 1 from ledger a indexed by ledger_of_event
                where a.event_id = x.event_id and a.destination_id = r.destination_id
                    and (r.status is null or a.status = r.status or a.status / 100 = r.status)
                    and (r.attempt_state is null or a.state = r.attempt_state)
            ))
            and (r.only_missed = 0 or not exists (
                select 1 from ledger a indexed by ledger_of_event
                where a.event_id = x.event_id and a.destination_id = r.destination_id
                    and a.state = 'succeeded'
            ))
    )
    where r.id = ?1 and r.event_id is null";

const MARK: &str = "
    -- advance_replays: its dead letter is replayed
    update ledger set replayed_at = ?3
    where event_id = ?1 and destination_id = ?2 and dead_letter = 1 and replayed_at is null";

const ADD: &str = "
    -- advance_replays: send again
    insert into deliveries (
        event_id, destination_id, tenant_id, try_number, tries_before, due_at, created_at,
        replay_id, expires_at, payload_bytes, urgent
    )
    select e.id, d.id, e.tenant_id, t.tries + 1, t.tries, ?4, ?4, ?3,
        ?4 + coalesce(d.max_age_ms, d.tier_age_ms) * 1000, length(e.payload), e.urgent
    from events e
    join destinations d on d.id = ?2
    join (
        select coalesce(max(try_number), 0) as tries
        from ledger indexed by ledger_of_event
        where event_id = ?1 and destination_id = ?2
    ) t
    where e.id = ?1";

const REMEMBER: &str = "
    -- advance_replays: how far it came
    update replays
    set after_event = coalesce(?2, after_event), paced_at = ?3, looked_at = ?5, done = done + ?4,
        total = max(total, done + ?4)
    where id = ?1";

const GONE: &str = "
    -- advance_replays: retention came before the one event that it is of
    update replays set skipped = 1
    where id = ?1 and event_id is not null and done = 0
        and not exists (select 1 from events e where e.id = replays.event_id)";

/// Where a replay looks: by the one event, or by what ids of those from then until then have
/// in them.
fn looked_at(
    event: Option<EventId>,
    letters: Option<&str>,
    (since, until): (Option<i64>, i64),
) -> IdRange {
    if let Some(event) = event {
        return IdRange::only(event);
    }
    let until = Some(Timestamp::from_micros(until));
    let between = IdRange::between(since.map(Timestamp::from_micros), until);
    letters.map_or(between, |letters| between.and(IdRange::of_letters(letters)))
}

/// Begins one at a destination that is there.
pub(super) fn create(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewReplay,
    destination: DestinationId,
    (event, which): (Option<EventId>, Option<&ResentEvents>),
) -> Result<(), Fault> {
    let (key, owner) = (new.id.to_string(), tenant.to_string());
    if let Some(event) = event {
        let found = first(tx, EVENT, (event.to_string(), &owner), |_| Ok(()))?;
        found.ok_or(CatalogError::NotFound("event"))?;
    }
    let text = letters(tx, now, tenant, which)?;
    let since = which.map_or(0, |which| which.since.as_micros());
    let until = which.and_then(|which| which.until).unwrap_or(now).min(now);
    let row = (
        &key,
        &owner,
        destination.to_string(),
        ReplaySource::Events.as_str(),
        event.map(|event| event.to_string()),
        which.is_some_and(|which| which.only_missed),
        which.and_then(|which| which.event_type.as_deref()),
        since,
        until.as_micros(),
        new.share,
        now.as_micros(),
        which
            .and_then(|which| which.state)
            .map(AttemptState::as_str),
        (which.and_then(|which| which.status)).map(SoughtStatus::number),
        &text,
    );
    execute(tx, INSERT, row)?;
    let span = (Some(since), until.as_micros());
    let ids = looked_at(event, text.as_deref(), span);
    let (from, before) = (ids.from.to_string(), ids.before.to_string());
    let examined = events_of_replay();
    let total = format!(
        "-- create_replay: how many events match
        update replays set total = (select count(*) from ({examined}) where wanted) where id = ?1"
    );
    // Few events are accepted long after their ids were given; those before would be all
    // that is counted.
    let first = which.map(|which| first_at(which.since - IDS_BEFORE).to_string());
    let after = first.unwrap_or_default();
    execute(
        tx,
        &total,
        (&key, &from, &before, &after, MAX_EVENTS_COUNTED),
    )?;
    execute(tx, SKIPPED, (&key, &from, &before, MAX_EVENTS_COUNTED))?;
    Ok(())
}

/// Counts what would be of it; see [`engine::ports::Backlog::resendable`].
pub(in crate::sqlite) fn resendable(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    to: &[DestinationId],
    which: &ResentEvents,
) -> Result<Resendable, Fault> {
    let text = letters(tx, now, tenant, Some(which))?;
    let until = which.until.unwrap_or(now).min(now);
    let span = (Some(which.since.as_micros()), until.as_micros());
    let ids = looked_at(None, text.as_deref(), span);
    // Those that are counted when it begins, and the older ids that are left out there.
    let begins = first_at(which.since - IDS_BEFORE);
    let each = Resendable::events_each(to.len());
    let timed = examined_of(tx, tenant, ids, (&begins.to_string(), each))?;
    let older = ids.below(Some(begins));
    let older = examined_of(tx, tenant, older, ("", MAX_EVENTS_COUNTED))?;
    let mut found = Resendable::default();
    let is_part = timed.len() >= each as usize;
    // Of the older ones few were accepted since then: they are found here, once for all
    // destinations.
    let since = which.since.as_micros();
    let events = timed.into_iter().chain(older);
    let events = events.filter(|(_, created_at)| *created_at >= since);
    let events: Vec<String> = events.map(|(id, _)| id).collect();
    let events = serde_json::Value::from(events).to_string();
    let (owner, sql) = (tenant.to_string(), events_of_none());
    for to in to {
        let key = to.to_string();
        if first(tx, LIVES, (&key, &owner), |_| Ok(()))?.is_none() {
            continue;
        }
        let params = (
            &events,
            &key,
            since,
            until.as_micros(),
            &which.event_type,
            &text,
            which.only_missed,
            which.status.map(SoughtStatus::number),
            which.state.map(AttemptState::as_str),
        );
        let wanted = first(tx, &sql, params, |row| number(row, 0))?;
        found.counts.insert(*to, wanted.unwrap_or(0));
        found.is_part = is_part;
    }
    Ok(found)
}

/// Up to so many of a tenant's after that one, each with when it was accepted.
fn examined_of(
    tx: &Transaction<'_>,
    tenant: TenantId,
    ids: IdRange,
    (after, most): (&str, u32),
) -> Result<Vec<(String, i64)>, Fault> {
    let params = (
        tenant.to_string(),
        ids.from.to_string(),
        ids.before.to_string(),
        after,
        most,
    );
    all(tx, EXAMINED, params, |row| Ok((row.get(0)?, row.get(1)?)))
}

/// What the ids have in them, where that is asked for.
fn letters(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    which: Option<&ResentEvents>,
) -> Result<Option<String>, Fault> {
    let Some(text) = which.and_then(|which| which.text.as_deref()) else {
        return Ok(None);
    };
    let letters = sought(tx, now, tenant, Some(text))?.and_then(Sought::letters);
    letters.map(Some).ok_or_else(|| no_event_by(text).into())
}

/// Sends again what the step allows, and remembers how far it came.
pub(super) fn take(
    tx: &Transaction<'_>,
    now: Timestamp,
    replay: &Running,
    step: Step,
) -> Result<Moved, Fault> {
    let mut moved = Moved {
        count: 0,
        all: false,
    };
    let mut last = None;
    if step.count > 0 {
        let examined = examined(tx, replay)?;
        moved.all = examined.len() < MAX_EVENTS_STEP as usize;
        let to = replay.destination.to_string();
        for (id, wanted) in examined {
            if moved.count >= step.count {
                moved.all = false;
                break;
            }
            if wanted {
                execute(tx, MARK, (&id, &to, now.as_micros()))?;
                execute(tx, ADD, (&id, &to, &replay.id, now.as_micros()))?;
                moved.count += 1;
            }
            last = Some(id);
        }
    }
    let paced_at = step.paced_at(moved.count).as_micros();
    let remembered = (&replay.id, last, paced_at, moved.count, now.as_micros());
    execute(tx, REMEMBER, remembered)?;
    if moved.all {
        execute(tx, GONE, [&replay.id])?;
        end(tx, now, replay, ReplayState::Completed)?;
    }
    Ok(moved)
}

fn examined(tx: &Transaction<'_>, replay: &Running) -> Result<Vec<(String, bool)>, Fault> {
    let span = (replay.died_from, replay.died_before);
    let ids = looked_at(replay.event, replay.event_text.as_deref(), span);
    let params = (
        &replay.id,
        ids.from.to_string(),
        ids.before.to_string(),
        replay.after_event.as_deref().unwrap_or_default(),
        MAX_EVENTS_STEP,
    );
    let events = events_of_replay();
    let sql = format!("-- advance_replays: events from where the last step stopped{events}");
    all(tx, &sql, params, |row| Ok((row.get(0)?, row.get(1)?)))
}

//! Events, whatever became of them, that are sent to a destination again. Their replay's
//! row says which, and each step reads it there; before it begins, parameters say the same.

use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId, TenantId};
use domain::replay::{ReplaySource, ReplayState, Step};
use domain::search::{IDS_BEFORE, IdRange, Sought, SoughtStatus, first_at};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, MAX_EVENTS_COUNTED, NewReplay, Resendable, ResentEvents, no_event_by,
};
use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::moves::{Moved, end};
use super::{Counted, LIVES, Running, STEP_EXAMINED};
use crate::sqlite::fault::Fault;
use crate::sqlite::found_events::sought;
use crate::sqlite::rows::{all, execute, first};

const INSERT: &str = "
    -- create_replay: of events
    insert into replays (
        tenant_id, destination_id, died_from, died_before, event_type, event_text, only_missed,
        status, attempt_state, event_id, id, source, share, total, skipped, created_at
    )
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

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

/// The row of a replay that is not there: [`OfEvents::columns`].
const NOT_BEGUN: &str = "(
        select ?1 as tenant_id, ?2 as destination_id, ?3 as died_from, ?4 as died_before,
            ?5 as event_type, ?6 as event_text, ?7 as only_missed, ?8 as status,
            ?9 as attempt_state, ?10 as event_id
    ) r
    cross join destinations d on d.id = r.destination_id";

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
    -- resendable, create_replay: events in the order of their ids
    select id, created_at from events indexed by events_of_tenant
    where tenant_id = ?1 and id >= ?2 and id < ?3 and id > ?4
    order by id limit ?5";

/// How many of the events `?11` it would send.
fn events_of_none() -> String {
    format!(
        "
    -- resendable, create_replay: how many are sent
    select count(*)
    from json_each(?11) x
    cross join events e on e.id = x.value
    cross join {NOT_BEGUN}
    where {WANTED}"
    )
}

/// Of the ids from `?11` on and before `?12`, among the last `?13` deliveries.
fn skipped() -> String {
    format!(
        "
    -- create_replay: how many payloads are gone
    select count(distinct x.event_id)
    from {NOT_BEGUN}
    cross join (
        select a.event_id, a.created_at from ledger a indexed by ledger_of_destination
        where a.destination_id = ?2
        order by a.id desc limit ?13
    ) x
    where x.created_at >= r.died_from and x.event_id >= ?11 and x.event_id < ?12
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
        ))"
    )
}

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

/// Which events a replay is of, as the columns of its row say it.
pub(super) struct OfEvents {
    tenant: String,
    to: String,
    since: i64,
    until: i64,
    event_type: Option<String>,
    text: Option<String>,
    only_missed: bool,
    status: Option<u16>,
    state: Option<&'static str>,
    event: Option<String>,
    /// Where they are looked for.
    ids: IdRange,
    /// Ids up to this one are left out when they are counted: few events are accepted long
    /// after their ids were given, and those before would be all that is counted.
    after: String,
}

impl OfEvents {
    /// Of the one event, or of those that match.
    pub(super) fn by(
        tx: &Transaction<'_>,
        now: Timestamp,
        (tenant, to): (TenantId, DestinationId),
        (event, which): (Option<EventId>, Option<&ResentEvents>),
    ) -> Result<Self, Fault> {
        let owner = tenant.to_string();
        if let Some(event) = event {
            let found = first(tx, EVENT, (event.to_string(), &owner), |_| Ok(()))?;
            found.ok_or(CatalogError::NotFound("event"))?;
        }
        let text = letters(tx, now, tenant, which)?;
        let since = which.map_or(0, |which| which.since.as_micros());
        let until = which.and_then(|which| which.until).unwrap_or(now).min(now);
        let until = until.as_micros();
        let after = which.map(|which| first_at(which.since - IDS_BEFORE).to_string());
        Ok(Self {
            ids: looked_at(event, text.as_deref(), (Some(since), until)),
            after: after.unwrap_or_default(),
            tenant: owner,
            to: to.to_string(),
            since,
            until,
            event_type: which.and_then(|which| which.event_type.clone()),
            text,
            only_missed: which.is_some_and(|which| which.only_missed),
            status: (which.and_then(|which| which.status)).map(SoughtStatus::number),
            state: (which.and_then(|which| which.state)).map(AttemptState::as_str),
            event: event.map(|event| event.to_string()),
        })
    }

    /// `?1` to `?10` of the statements.
    fn columns(&self) -> [&dyn ToSql; 10] {
        [
            &self.tenant,
            &self.to,
            &self.since,
            &self.until,
            &self.event_type,
            &self.text,
            &self.only_missed,
            &self.status,
            &self.state,
            &self.event,
        ]
    }

    /// The same, and what else a statement has.
    fn and<'a>(&'a self, others: &[&'a dyn ToSql]) -> Vec<&'a dyn ToSql> {
        [&self.columns()[..], others].concat()
    }
}

/// How many it is of.
pub(super) fn count(tx: &Transaction<'_>, of: &OfEvents) -> Result<Counted, Fault> {
    let examined = examined_of(tx, of, of.ids, (&of.after, MAX_EVENTS_COUNTED))?;
    let total = wanted_of(tx, of, &ids_of(examined.into_iter()))?;
    if of.event.is_some() {
        return Ok(Counted { total, skipped: 0 });
    }
    let (from, before) = (of.ids.from.to_string(), of.ids.before.to_string());
    let params = of.and(&[&from, &before, &MAX_EVENTS_COUNTED]);
    let skipped = first(tx, &skipped(), &params[..], |row| Ok(row.get(0)?))?;
    Ok(Counted {
        total,
        skipped: skipped.unwrap_or(0),
    })
}

/// Begins one at a destination that is there.
pub(super) fn create(
    tx: &Transaction<'_>,
    now: Timestamp,
    (new, counted): (&NewReplay, Counted),
    of: &OfEvents,
) -> Result<(), Fault> {
    let (key, source, now) = (
        new.id.to_string(),
        ReplaySource::Events.as_str(),
        now.as_micros(),
    );
    let Counted { total, skipped } = counted;
    let row = of.and(&[&key, &source, &new.share, &total, &skipped, &now]);
    execute(tx, INSERT, &row[..])?;
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
    // To one after the other.
    let nobody_yet = DestinationId(Uuid::nil());
    let mut of = OfEvents::by(tx, now, (tenant, nobody_yet), (None, Some(which)))?;
    // Those that are counted when it begins, and the older ids that are left out there.
    let begins = first_at(which.since - IDS_BEFORE);
    let each = Resendable::events_each(to.len());
    let timed = examined_of(tx, &of, of.ids, (&of.after, each))?;
    let older = of.ids.below(Some(begins));
    let older = examined_of(tx, &of, older, ("", MAX_EVENTS_COUNTED))?;
    let mut found = Resendable::default();
    let is_part = timed.len() >= each as usize;
    // Of the older ones few were accepted since then: they are found here, once for all
    // destinations.
    let events = timed.into_iter().chain(older);
    let events = ids_of(events.filter(|(_, created_at)| *created_at >= of.since));
    for to in to {
        of.to = to.to_string();
        if first(tx, LIVES, (&of.to, &of.tenant), |_| Ok(()))?.is_none() {
            continue;
        }
        let wanted = wanted_of(tx, &of, &events)?;
        found.counts.insert(*to, wanted.unsigned_abs());
        found.is_part = is_part;
    }
    Ok(found)
}

/// An event's id, and when it was accepted.
type Accepted = (String, i64);

/// Up to so many of the tenant's after that one.
fn examined_of(
    tx: &Transaction<'_>,
    of: &OfEvents,
    ids: IdRange,
    (after, most): (&str, u32),
) -> Result<Vec<Accepted>, Fault> {
    let params = (
        &of.tenant,
        ids.from.to_string(),
        ids.before.to_string(),
        after,
        most,
    );
    all(tx, EXAMINED, params, |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The ids of these, as JSON.
fn ids_of(events: impl Iterator<Item = Accepted>) -> String {
    let ids: Vec<String> = events.map(|(id, _)| id).collect();
    serde_json::Value::from(ids).to_string()
}

/// How many of the events with these ids are sent.
fn wanted_of(tx: &Transaction<'_>, of: &OfEvents, events: &str) -> Result<i64, Fault> {
    let params = of.and(&[&events]);
    let wanted = first(tx, &events_of_none(), &params[..], |row| Ok(row.get(0)?))?;
    Ok(wanted.unwrap_or(0))
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
        examined: 0,
        all: false,
    };
    let mut last = None;
    if step.count > 0 {
        let examined = examined(tx, replay)?;
        moved.all = examined.len() < STEP_EXAMINED as usize;
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
            moved.examined += 1;
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
        STEP_EXAMINED,
    );
    let events = events_of_replay();
    let sql = format!("-- advance_replays: events from where the last step stopped{events}");
    all(tx, &sql, params, |row| Ok((row.get(0)?, row.get(1)?)))
}

//! Starts that are batches: what waits behind each leader starts with it, in
//! the transaction that claims.

use bytes::Bytes;
use domain::batch::{BatchRules, Line, Room};
use domain::ids::AttemptId;
use domain::permit::Permit;
use domain::time::Timestamp;
use domain::trace::TraceContext;
use domain::turns::Lane;
use engine::ports::{Claims, Member, Start};
use rusqlite::{Row, Transaction};

use super::claim::{Claimer, claim_with};
use super::fault::Fault;
use super::rows::{all, batch_settings, execute, first, time, word};

const LEADER: &str = "
    -- claim_batches: the leader, and its destination's rules
    select d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms,
        a.urgent, a.due_at is null, a.batch_limit, length(e.payload)
    from deliveries a
    join destinations d on d.id = a.destination_id
    join events e on e.id = a.event_id
    where a.id = ?1";

const FIRSTS: &str = "
    -- claim_batches: first attempts
    select a.id, length(e.payload), a.expires_at is null or a.expires_at > ?2
    from json_each(line(?1, ?4, ?3)) l
    cross join deliveries a on a.id = l.value
    join events e on e.id = a.event_id
    where a.permit is null and a.due_at is null
    order by l.key";

const DUE: &str = "
    -- claim_batches: what is due, of one class
    select a.id, length(e.payload) from deliveries a indexed by deliveries_due
    join events e on e.id = a.event_id
    where a.destination_id = ?1 and a.permit is null and a.due_at is not null
        and a.urgent = ?5 and a.due_at <= ?2 and a.batch_limit is ?4
        and (a.expires_at is null or a.expires_at > ?2)
    order by a.due_at, a.id limit ?3";

const CARRY: &str = "
    -- claim_batches: it starts with its leader
    update deliveries
    set (state, worker_id, permit, epoch, claimed_at, started_at, carried_by, coarse, crowded)
    = (
        select 'started', l.worker_id, l.permit, l.epoch, l.claimed_at, l.started_at, l.id, 0, 0
        from deliveries l where l.id = ?2
    )
    where id = ?1 and state = 'waiting'";

const LEADS: &str = "
    -- claim_batches: how many its request has
    update deliveries set batch_size = ?2 where id = ?1";

const MEMBER: &str = "
    -- claim_batches: what is sent of it
    select a.id, a.event_id, a.try_number, a.tries_before, e.event_type, e.content_type,
        e.payload, e.created_at, e.trace
    from deliveries a join events e on e.id = a.event_id
    where a.id = ?1";

/// Claims; see [`engine::ports::Store::claim_batches`].
pub(super) fn claim_batches(
    tx: &Transaction<'_>,
    by: &Claimer,
    permits: &[Permit],
) -> Result<Claims, Fault> {
    let now = by.now;
    claim_with(tx, by, permits, |permit, _, _: &Start| {
        let mut members = vec![read_member(tx, permit.attempt)?];
        for carried in to_carry(tx, now, permit)? {
            execute(tx, CARRY, (carried.0, permit.attempt.0))?;
            members.push(read_member(tx, carried)?);
        }
        let events = u32::try_from(members.len()).unwrap_or(u32::MAX);
        if events > 1 {
            execute(tx, LEADS, (permit.attempt.0, events))?;
        }
        Ok(members)
    })
}

/// What a leader's batch holds beside it.
fn to_carry(
    tx: &Transaction<'_>,
    now: Timestamp,
    permit: &Permit,
) -> Result<Vec<AttemptId>, Fault> {
    let leader = first(tx, LEADER, [permit.attempt.0], |row| {
        let rules: Option<BatchRules> = batch_settings(row, 0)?.rules();
        let limit: Option<u32> = row.get(5)?;
        let lane = Lane::of(row.get(3)?, row.get(4)?);
        Ok((rules, lane, limit, row.get::<_, u32>(6)?))
    })?;
    let Some((Some(rules), lane, limit, bytes)) = leader else {
        return Ok(Vec::new());
    };
    let mut room = Room::beside(&rules, limit, bytes);
    let mut carried = Vec::new();
    for line in Line::of(lane, limit).into_iter().flatten() {
        if room.events() == 0 {
            break;
        }
        let key = permit.destination.to_string();
        let class = match line {
            Line::Firsts => {
                let next = firsts(tx, now, &key, room.events())?;
                carried.extend(fits(next, &mut room));
                continue;
            }
            Line::Urgent | Line::Due => None,
            Line::Class(limit) => Some(limit),
        };
        let is_urgent = line == Line::Urgent;
        let params = (key, now.as_micros(), room.events(), class, is_urgent);
        let next = all(tx, DUE, params, |row| {
            Ok((AttemptId(row.get(0)?), row.get(1)?))
        })?;
        carried.extend(fits(next, &mut room));
    }
    Ok(carried)
}

/// Those that find room, one after the other.
fn fits(next: Vec<(AttemptId, u32)>, room: &mut Room) -> impl Iterator<Item = AttemptId> {
    let fits = next.into_iter().take_while(|(_, bytes)| room.take(*bytes));
    fits.map(|(id, _)| id)
}

/// The first so many that are not too old, and how large they are.
fn firsts(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: &str,
    most: u32,
) -> Result<Vec<(AttemptId, u32)>, Fault> {
    let (mut found, mut after) = (Vec::new(), AttemptId(0));
    let wanted = most as usize;
    while found.len() < wanted {
        let asked = (destination, now.as_micros(), most, after.0);
        let page = all(tx, FIRSTS, asked, |row| {
            Ok((AttemptId(row.get(0)?), row.get(1)?, row.get::<_, bool>(2)?))
        })?;
        let Some((last, ..)) = page.last() else {
            break;
        };
        after = *last;
        let fresh = page.into_iter().filter(|(_, _, fresh)| *fresh);
        found.extend(fresh.map(|(id, bytes, _)| (id, bytes)));
    }
    found.truncate(wanted);
    Ok(found)
}

fn read_member(tx: &Transaction<'_>, attempt: AttemptId) -> Result<Member, Fault> {
    let member = first(tx, MEMBER, [attempt.0], member)?;
    Ok(member.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
}

fn member(row: &Row<'_>) -> Result<Member, Fault> {
    let trace: Option<String> = row.get(8)?;
    Ok(Member {
        trace: trace.as_deref().and_then(TraceContext::from_stored),
        attempt: AttemptId(row.get(0)?),
        event: word(row, 1, ("attempts", "event_id"))?,
        try_number: row.get(2)?,
        tries_before: row.get(3)?,
        event_type: row.get(4)?,
        content_type: row.get(5)?,
        payload: Bytes::from(row.get::<_, Vec<u8>>(6)?),
        accepted_at: time(row, 7)?,
    })
}

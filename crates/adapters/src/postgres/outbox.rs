//! The outbox: users' rows become events, exactly once.
//!
//! One transaction locks a lane, reads its first rows, accepts them as ingest
//! does, and deletes them: a relay that dies in the middle has done nothing.
//! Payloads that are too large are never read.

use std::collections::HashSet;

use domain::event::{MAX_DESTINATIONS, MAX_PAYLOAD_BYTES, NewEvent, Timing};
use domain::ids::{DestinationId, EventId, TenantId};
use domain::outbox::{OutboxRow, accepted_or_why};
use domain::time::Timestamp;
use engine::ports::{Acceptance, DEFAULT_TENANT, Lane, Relayed};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::days::DAYS_AHEAD;
use super::failure::Failure;
use super::ingest;
use crate::row::row;

/// Why a row is refused whose id is of a day that has no partition.
const NO_DAY: &str = "event_id: of version 7, and its time is older than the events that are \
    kept, or in the future";

/// The most payload bytes that one step takes.
const MAX_BYTES: i64 = 16 * 1024 * 1024;

/// One step: the first rows of the next lane that nobody holds.
pub(super) async fn relay(pool: &PgPool, after: Lane, limit: u32) -> Result<Relayed, Failure> {
    let mut transaction = pool.begin().await?;
    let Some(lane) = lock_lane(&mut transaction, after).await? else {
        transaction.commit().await?;
        return Ok(Relayed::default());
    };
    let positions = lock_rows(&mut transaction, lane, limit).await?;
    let rows = read(&mut transaction, &positions).await?;
    let mut relayed = Relayed {
        lane: Some(Lane(u16::try_from(lane).unwrap_or_default())),
        ..Relayed::default()
    };
    let mut rejected: Vec<(i64, String)> = Vec::new();
    let mut events: Vec<(i64, NewEvent)> = Vec::new();
    for row in rows {
        let (position, now) = (row.position, Timestamp::from_micros(row.now));
        match accepted_or_why(row.into_domain(), now) {
            Ok(event) => events.push((position, event)),
            Err(reason) => rejected.push((position, reason)),
        }
    }
    let nowhere = without_a_day(&mut transaction, &events).await?;
    events.retain(|(position, event)| {
        let has_day = !nowhere.contains(&event.id.0);
        if !has_day {
            rejected.push((*position, NO_DAY.to_owned()));
        }
        has_day
    });
    let (of_events, events): (Vec<i64>, Vec<NewEvent>) = events.into_iter().unzip();
    let answers = ingest::accept_within(&mut transaction, &events).await?;
    let taken = taken_by_others(&mut transaction, &events, &answers).await?;
    // The others have gone to none yet: they are the next step's.
    let left = of_events.get(answers.len()..).unwrap_or_default().to_vec();
    for ((position, event), answer) in of_events.into_iter().zip(&events).zip(answers) {
        match why_not(&answer, taken.contains(&event.id.0)) {
            Some(reason) => rejected.push((position, reason)),
            None => {
                relayed.accepted += 1;
                relayed
                    .destinations
                    .extend_from_slice(answer.destinations());
            }
        }
    }
    relayed.rejected = u32::try_from(rejected.len()).unwrap_or(u32::MAX);
    reject(&mut transaction, &rejected).await?;
    let done: Vec<i64> = (positions.into_iter())
        .filter(|position| !left.contains(position))
        .collect();
    delete(&mut transaction, &done).await?;
    transaction.commit().await?;
    relayed.destinations.sort_unstable();
    relayed.destinations.dedup();
    Ok(relayed)
}

/// Why a row is not accepted, by the answer to its event and whether that is another
/// tenant's: beginning with the column's name.
fn why_not(answer: &Acceptance, is_anothers: bool) -> Option<String> {
    let reason = match answer {
        _ if is_anothers => {
            "event_id: another tenant has an event of this id: leave it out, or give another one"
        }
        Acceptance::UnknownDestination => "destination_id: the tenant has no such destination",
        Acceptance::DisabledDestination => "destination_id: the destination is disabled",
        Acceptance::TooManyDestinations => {
            return Some(format!(
                "event_type: more than {MAX_DESTINATIONS} destinations subscribe to it: use \
                several types, or name one destination_id"
            ));
        }
        _ => return None,
    };
    Some(reason.to_owned())
}

/// Those of these ids whose day has no partition, after making those that are
/// missing between others: while nobody was there, nobody made any. What is
/// older than every day that is kept, or newer than those made ahead, is
/// refused: an old event may have been delivered and dropped.
async fn without_a_day(
    connection: &mut PgConnection,
    events: &[(i64, NewEvent)],
) -> Result<HashSet<Uuid>, Failure> {
    let ids: Vec<Uuid> = events.iter().map(|(_, event)| event.id.0).collect();
    let nowhere: Vec<Uuid> = sqlx::query_scalar(
        "-- relay: without_a_day
        with days as materialized (
            select distinct event_day(n.id) as day from unnest($1::uuid[]) as n (id)
        ),
        missing as materialized (
            select d.day from days d where not ensure_event_day(d.day, $2)
        )
        select n.id from unnest($1::uuid[]) as n (id)
        where event_day(n.id) in (select m.day from missing m)",
    )
    .bind(ids)
    .bind(DAYS_AHEAD)
    .fetch_all(connection)
    .await?;
    Ok(nowhere.into_iter().collect())
}

/// Those of these events that are another tenant's: accepted without a destination,
/// as if they had been here before. To a client that says nothing; a row of the
/// outbox would be gone without a word.
async fn taken_by_others(
    connection: &mut PgConnection,
    events: &[NewEvent],
    answers: &[Acceptance],
) -> Result<HashSet<Uuid>, Failure> {
    let nowhere = |answer: &Acceptance| matches!(answer, Acceptance::Accepted(destinations) if destinations.is_empty());
    let (ids, tenants): (Vec<Uuid>, Vec<Uuid>) = (events.iter().zip(answers))
        .filter(|(_, answer)| nowhere(answer))
        .map(|(event, _)| (event.id.0, event.tenant.0))
        .unzip();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let taken: Vec<Uuid> = sqlx::query_scalar(
        "-- relay: taken_by_others
        select n.id from unnest($1::uuid[], $2::uuid[]) as n (id, tenant_id)
        cross join lateral (
            select e.tenant_id from events e
            where e.id = n.id and e.day = event_day(n.id)
            limit 1
        ) e
        where e.tenant_id <> n.tenant_id",
    )
    .bind(ids)
    .bind(tenants)
    .fetch_all(connection)
    .await?;
    Ok(taken.into_iter().collect())
}

/// The next lane with rows that nobody holds, after the last one, so that none
/// is starved by a busy one.
async fn lock_lane(connection: &mut PgConnection, after: Lane) -> Result<Option<i16>, Failure> {
    Ok(sqlx::query_scalar(
        "-- relay: lock_lane
        select l.lane
        from outbox_lanes l
        where exists (select from outbox o where o.lane = l.lane)
        order by l.lane <= $1, l.lane
        limit 1
        for update of l skip locked",
    )
    .bind(i16::try_from(after.0).unwrap_or(i16::MAX))
    .fetch_optional(connection)
    .await?)
}

/// The positions of the lane's first rows, as many as one step takes. In a
/// statement after the lock: what the relay before us deleted is gone.
async fn lock_rows(
    connection: &mut PgConnection,
    lane: i16,
    limit: u32,
) -> Result<Vec<i64>, Failure> {
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "-- relay: lock_rows
        select o.position,
            coalesce(octet_length(o.payload), 0)::bigint
                + coalesce(octet_length(o.payload_bytes), 0)::bigint
        from outbox o
        where o.lane = $1
        order by o.position
        limit $2
        for update skip locked",
    )
    .bind(lane)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    let mut sum = 0_i64;
    let largest = i64::try_from(MAX_PAYLOAD_BYTES).unwrap_or(i64::MAX);
    let fits = |(_, bytes): &(i64, i64)| {
        // One that is too large is not read.
        sum = sum.saturating_add((*bytes).min(largest));
        sum <= MAX_BYTES
    };
    let rows = rows.into_iter().take_while(fits);
    Ok(rows.map(|(position, _)| position).collect())
}

row! {
    struct Row {
        position: i64,
        event_id: Uuid,
        tenant_id: Option<Uuid>,
        destination_id: Option<Uuid>,
        event_type: Option<String>,
        content_type: Option<String>,
        payload: Option<Vec<u8>>,
        payload_length: i64,
        payloads: i32,
        deliver_at: Option<i64>,
        expires_at: Option<i64>,
        urgent: Option<bool>,
        now: i64,
    }
}

impl Row {
    fn into_domain(self) -> OutboxRow {
        OutboxRow {
            id: EventId(self.event_id),
            tenant: self.tenant_id.map_or(DEFAULT_TENANT, TenantId),
            destination: self.destination_id.map(DestinationId),
            event_type: self.event_type,
            content_type: self.content_type,
            payload: self.payload.map(bytes::Bytes::from),
            payload_bytes: u64::try_from(self.payload_length).unwrap_or_default(),
            payloads: u32::try_from(self.payloads).unwrap_or_default(),
            timing: Timing {
                deliver_at: self.deliver_at.map(Timestamp::from_micros),
                expires_at: self.expires_at.map(Timestamp::from_micros),
                urgent: self.urgent.unwrap_or_default(),
            },
        }
    }
}

async fn read(connection: &mut PgConnection, positions: &[i64]) -> Result<Vec<Row>, Failure> {
    Ok(sqlx::query_as(
        "-- relay: read
        select o.position, coalesce(o.event_id, new_event_id()) as event_id, o.tenant_id,
            o.destination_id, o.event_type, o.content_type,
            case when l.length <= $2 then coalesce(o.payload_bytes, convert_to(o.payload, 'UTF8'))
            end as payload,
            l.length as payload_length, num_nonnulls(o.payload, o.payload_bytes) as payloads,
            micros(t.deliver_at) as deliver_at,
            micros(t.expires_at) as expires_at, o.urgent,
            micros(clock_timestamp()) as now
        from outbox o
        cross join lateral (
            select coalesce(octet_length(o.payload_bytes), octet_length(o.payload), 0)::bigint
                as length
        ) l
        -- What is infinite has no microseconds.
        cross join lateral (
            select case when isfinite(o.deliver_at) then o.deliver_at
                    when o.deliver_at > now() then timestamptz '9999-01-01 00:00:00+00' end,
                case when isfinite(o.expires_at) then o.expires_at
                    when o.expires_at < now() then timestamptz '1970-01-01 00:00:00+00' end
        ) t (deliver_at, expires_at)
        where o.position = any ($1)
        order by o.position",
    )
    .bind(positions)
    .bind(i64::try_from(MAX_PAYLOAD_BYTES).unwrap_or(i64::MAX))
    .fetch_all(connection)
    .await?)
}

async fn reject(connection: &mut PgConnection, rows: &[(i64, String)]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        // Of no tenant that there is, the installation's own is told.
        "-- relay: reject
        with rejected as (
            insert into outbox_rejected (
                position, event_id, tenant_id, destination_id, event_type, content_type, payload,
                payload_bytes, deliver_at, expires_at, urgent, created_at, reason
            )
            select o.position, o.event_id, o.tenant_id, o.destination_id, o.event_type,
                o.content_type, o.payload, o.payload_bytes, o.deliver_at, o.expires_at,
                o.urgent, o.created_at, n.reason
            from unnest($1::bigint[], $2::text[]) as n (position, reason)
            join outbox o on o.position = n.position
            returning tenant_id
        )
        insert into outbox_rejected_tallies (tenant_id, rejected)
        select coalesce(n.id, $3), count(*)
        from rejected r left join tenants n on n.id = r.tenant_id
        group by 1",
    )
    .bind(rows.iter().map(|row| row.0).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.1.as_str()).collect::<Vec<_>>())
    .bind(DEFAULT_TENANT.0)
    .execute(connection)
    .await?;
    Ok(())
}

async fn delete(connection: &mut PgConnection, positions: &[i64]) -> Result<(), Failure> {
    sqlx::query(
        "-- relay: delete
        delete from outbox o where o.position = any ($1)",
    )
    .bind(positions)
    .execute(connection)
    .await?;
    Ok(())
}

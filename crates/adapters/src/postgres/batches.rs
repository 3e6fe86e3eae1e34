//! Starts that are batches: what waits behind each leader is locked first, and
//! then the leaders are claimed as ever, in the same transaction.
//!
//! Nothing here waits for a lock: rows that somebody holds are left out. The
//! clock that counts is the claim's, after all else has been read.

use std::collections::HashMap;

use bytes::Bytes;
use domain::batch::{BatchRules, Line, MAX_READ, Room};
use domain::ids::{AttemptId, EventId, WorkerId};
use domain::permit::Permit;
use domain::time::{Timestamp, micros};
use domain::trace::TraceContext;
use domain::turns::Lane;
use engine::ports::{ClaimAnswer, Claims, MAX_HEAD_START, Member, StoreError};
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;
use uuid::Uuid;

use super::claim::{Claimed, answered, claim_on, destinations, read_on};
use super::failure::Failure;
use super::rows::{batch_settings, count, integer, keys};
use crate::row::row;

/// A leader whose slot is further ahead than this beyond the head start will be
/// answered that it is early: nothing is composed for it.
const SOON_MICROS: i64 = 50_000;

/// Claims batches; the answers are in the order of the permits.
pub(super) async fn claim_batches(
    pool: &PgPool,
    worker: WorkerId,
    permits: &[Permit],
) -> Result<Claims, Failure> {
    let asked_at = Instant::now();
    let mut transaction = pool.begin().await?;
    let leaders = lock_leaders(&mut transaction, permits).await?;
    let carried = lock_carried(&mut transaction, &leaders).await?;
    let mut members = read_members(&mut transaction, &carried).await?;
    let composed_for = asked_at.elapsed();
    let rows = claim_on(&mut *transaction, worker, permits).await?;
    let started: Vec<(i64, i64)> = (carried.into_iter())
        .filter(|(_, leader)| rows.iter().any(|row| row.has_started(*leader)))
        .collect();
    carry(&mut transaction, worker, &started).await?;
    transaction.commit().await?;
    let found = read_on(pool, rows).await;
    let mut batches: HashMap<i64, Vec<Member>> = HashMap::new();
    for (id, leader) in &started {
        let batch = batches.entry(*leader).or_default();
        batch.extend(members.remove(id));
    }
    let leaders = found.rows.iter().filter_map(Claimed::leader);
    let mut leaders: HashMap<i64, Member> = leaders.collect();
    let mut claims = answered(pool, permits, found).await?;
    for (permit, answer) in permits.iter().zip(&mut claims.answers) {
        if let ClaimAnswer::Started(start) = answer {
            let id = permit.attempt.0;
            start.members = leaders.remove(&id).into_iter().collect();
            start
                .members
                .extend(batches.remove(&id).unwrap_or_default());
        }
    }
    Ok(Claims {
        composed_for,
        ..claims
    })
}

row! {
    /// A leader that may start, as it was locked.
    struct Leader {
        now: i64,
        id: i64,
        destination_id: Uuid,
        urgent: bool,
        first: bool,
        batch_limit: Option<i32>,
        bytes: i32,
        batch: Vec<Option<i32>>,
    }
}

/// In the order of their slots: what waits goes to the first of them.
async fn lock_leaders(
    connection: &mut PgConnection,
    permits: &[Permit],
) -> Result<Vec<Leader>, Failure> {
    let (ids, numbers) = keys(permits.iter().map(|permit| (permit.attempt, permit.number)));
    let mut leaders: Vec<(i64, Leader)> = sqlx::query_as(
        "-- claim_batches: leaders
        with clock as materialized (select clock_timestamp() as now)
        select micros((select now from clock)) as now, a.id, a.destination_id,
            a.urgent, a.due_at is null as first, a.batch_limit,
            octet_length(e.payload) as bytes,
            array[d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms] as batch
        from unnest($1::bigint[], $2::bigint[], $4::uuid[]) as n (id, number, destination_id)
        join deliveries a on a.id = n.id and a.permit = n.number
            and a.destination_id = n.destination_id
        join destinations d on d.id = a.destination_id
        cross join lateral (
            select e.payload from events e
            where e.id = a.event_id and e.day = event_day(a.event_id)
            limit 1
        ) e
        where a.state = 'admitted' and d.epoch = a.epoch and d.state = 'active'
            and d.deleted_at is null
            and a.not_before <= (select now from clock) + $3::bigint * interval '1 microsecond'
            and a.deadline >= (select now from clock)
        order by a.id
        for update of a skip locked",
    )
    .bind(ids)
    .bind(numbers)
    .bind(micros(MAX_HEAD_START) + SOON_MICROS)
    .bind(destinations(permits))
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|leader: Leader| (leader.id, leader))
    .collect();
    let slot = |id: i64| permits.iter().position(|permit| permit.attempt.0 == id);
    leaders.sort_by_key(|(id, _)| slot(*id));
    Ok(leaders.into_iter().map(|(_, leader)| leader).collect())
}

/// Up to where a line was taken: when it was due, and its id.
type Taken = HashMap<(Uuid, Line), (i64, i64)>;

/// What the leaders carry, each with its leader, in order.
async fn lock_carried(
    connection: &mut PgConnection,
    leaders: &[Leader],
) -> Result<Vec<(i64, i64)>, Failure> {
    let mut taken = Taken::new();
    let mut carried = Vec::new();
    for leader in leaders {
        let Some(rules) = batch_settings(&leader.batch).rules() else {
            continue;
        };
        for id in fill(connection, leader, &rules, &mut taken).await? {
            carried.push((id, leader.id));
        }
    }
    Ok(carried)
}

async fn fill(
    connection: &mut PgConnection,
    leader: &Leader,
    rules: &BatchRules,
    taken: &mut Taken,
) -> Result<Vec<i64>, Failure> {
    let limit = leader.batch_limit.map(|limit| count(i64::from(limit)));
    let mut room = Room::beside(rules, limit, count(i64::from(leader.bytes)));
    let mut ids = Vec::new();
    let lane = Lane::of(leader.urgent, leader.first);
    for line in Line::of(lane, limit).into_iter().flatten() {
        if room.events() == 0 {
            break;
        }
        let key = (leader.destination_id, line);
        // From the front, as the scheduler reckons: what is due before the
        // leader itself (its permit was returned, or it was locked when others
        // went) has been promised to it and has nobody else.
        let after = taken.get(&key).copied().unwrap_or_default();
        for (id, due_at, bytes) in lock_line(connection, leader, line, room, after).await? {
            if !room.take(count(i64::from(bytes))) {
                break;
            }
            taken.insert(key, (due_at, id));
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The next in a line, locked: ids, when they were due, and their bytes.
async fn lock_line(
    connection: &mut PgConnection,
    leader: &Leader,
    line: Line,
    room: Room,
    (due_at, id): (i64, i64),
) -> Result<Vec<(i64, i64, i32)>, Failure> {
    let (sql, limit) = match line {
        Line::Firsts => (FIRSTS, None),
        Line::Urgent | Line::Due => (DUE, None),
        Line::Class(limit) => (DUE, Some(integer(limit))),
    };
    Ok(sqlx::query_as(sql)
        .bind(leader.destination_id)
        .bind(i64::from(room.events()))
        .bind(leader.now)
        .bind(id)
        .bind(due_at)
        .bind(limit)
        .bind(i64::from(MAX_READ))
        .bind(line == Line::Urgent)
        .fetch_all(connection)
        .await?)
}

const FIRSTS: &str = "-- claim_batches: first attempts
    select a.id, 0::bigint as due_at, octet_length(e.payload) as bytes
    from deliveries a
    cross join lateral (
        select e.payload from events e
        where e.id = a.event_id and e.day = event_day(a.event_id)
        limit 1
    ) e
    where a.destination_id = $1 and a.permit is null and a.due_at is null
        and a.id + 0 > greatest($4, coalesce(
            (select p.first_after from pacing p where p.destination_id = $1), 0))
        and (a.expires_at is null or a.expires_at > from_micros($3))
        and $5::bigint is not null and $6::integer is null and $7::bigint > 0
        and not $8
    order by a.id + 0
    limit $2
    for update of a skip locked";

/// A class may stand behind others: it is looked for as far as a run reads.
const DUE: &str = "-- claim_batches: what is due
    select a.id, micros(x.due_at) as due_at, octet_length(e.payload) as bytes
    from (
        select a.id, a.due_at, a.batch_limit from deliveries a
        where a.destination_id = $1 and a.permit is null and a.urgent = $8
            and a.due_at <= from_micros($3) and (a.due_at, a.id) > (from_micros($5), $4)
        order by a.due_at, a.id
        limit $7
    ) x
    join deliveries a on a.id = x.id
    cross join lateral (
        select e.payload from events e
        where e.id = a.event_id and e.day = event_day(a.event_id)
        limit 1
    ) e
    where a.permit is null and a.due_at = x.due_at
        and a.batch_limit is not distinct from $6
        and (a.expires_at is null or a.expires_at > from_micros($3))
    order by x.due_at, x.id
    limit $2
    for update of a skip locked";

/// What is sent of those that are carried.
async fn read_members(
    connection: &mut PgConnection,
    carried: &[(i64, i64)],
) -> Result<HashMap<i64, Member>, Failure> {
    if carried.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<MemberRow> = sqlx::query_as(
        "-- claim_batches: what is sent
        select a.id, a.event_id, a.try_number, a.tries_before, e.event_type, e.content_type,
            e.payload, micros(e.created_at) as accepted_at, e.trace
        from unnest($1::bigint[]) as n (id)
        join deliveries a on a.id = n.id
        cross join lateral (
            select e.event_type, e.content_type, e.payload, e.created_at, e.trace from events e
            where e.id = a.event_id and e.day = event_day(a.event_id)
            limit 1
        ) e",
    )
    .bind(carried.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    Ok((rows.into_iter())
        .map(|row| (row.id, row.into_member()))
        .collect())
}

row! {
    struct MemberRow {
        id: i64,
        event_id: Uuid,
        try_number: i32,
        tries_before: i32,
        event_type: Option<String>,
        content_type: String,
        payload: Vec<u8>,
        accepted_at: i64,
        trace: Option<String>,
    }
}

impl MemberRow {
    fn into_member(self) -> Member {
        Member {
            attempt: AttemptId(self.id),
            event: EventId(self.event_id),
            try_number: count(i64::from(self.try_number)),
            tries_before: count(i64::from(self.tries_before)),
            event_type: self.event_type,
            content_type: self.content_type,
            payload: Bytes::from(self.payload),
            accepted_at: Timestamp::from_micros(self.accepted_at),
            trace: self.trace.as_deref().and_then(TraceContext::from_stored),
        }
    }
}

/// They start with their leaders. Locked by us and still waiting: all of them,
/// or there is a bug and nothing may be sent.
async fn carry(
    connection: &mut PgConnection,
    worker: WorkerId,
    carried: &[(i64, i64)],
) -> Result<(), Failure> {
    if carried.is_empty() {
        return Ok(());
    }
    let (ids, leaders): (Vec<i64>, Vec<i64>) = carried.iter().copied().unzip();
    let done = sqlx::query(
        "-- claim_batches: carry
        with heads as (
            update deliveries l set batch_size = c.events
            from (
                select n.leader as id, count(*)::integer + 1 as events
                from unnest($3::bigint[]) as n (leader) group by n.leader
            ) c
            where l.id = c.id
        )
        update deliveries a
        set state = 'started', worker_id = $1, permit = l.permit, epoch = l.epoch,
            claimed_at = l.claimed_at, started_at = l.started_at, carried_by = l.id,
            coarse = false, crowded = false
        from unnest($2::bigint[], $3::bigint[]) as n (id, leader)
        join deliveries l on l.id = n.leader
        where a.id = n.id and a.state = 'waiting'",
    )
    .bind(worker.0)
    .bind(ids)
    .bind(leaders)
    .execute(connection)
    .await?;
    match usize::try_from(done.rows_affected()) {
        Ok(rows) if rows == carried.len() => Ok(()),
        _ => Err(Failure::Corrupt(StoreError::Unavailable(
            "what was locked for a batch is not there".to_owned(),
        ))),
    }
}

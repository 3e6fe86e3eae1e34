//! Starts that are batches: what waits behind each leader is locked first, and
//! then the leaders are claimed as ever, in the same transaction.
//!
//! Nothing here waits for a row: those that somebody holds are left out. The
//! clock that counts is the claim's, after all else has been read.
//!
//! Nothing starts before its event and those that it carries have been read. A leader that
//! needs events of days which are not named is put off: a further transaction names them.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use domain::batch::{BatchRules, Line, MAX_READ, Room};
use domain::ids::{AttemptId, EventId, WorkerId};
use domain::permit::Permit;
use domain::time::{Timestamp, micros};
use domain::trace::TraceContext;
use domain::turns::Lane;
use engine::ports::{ClaimAnswer, Claims, MAX_HEAD_START, Member, StoreError};
use sqlx::{Connection, PgConnection, PgPool};
use tokio::time::Instant;
use uuid::Uuid;

use super::claim::{Found, answered, claim_on, days_of, destinations, key, not_read};
use super::connect::BEGIN_HURRIED;
use super::event_days::EventDays;
use super::failure::Failure;
use super::rows::{batch_settings, count, integer, keys};
use crate::row::row;

/// A leader whose slot is further ahead than this beyond the head start will be
/// answered that it is early: nothing is composed for it.
const SOON_MICROS: i64 = 50_000;

/// How often those are asked for again whose events, or their members' events, turn out to be
/// of days that were not named: by their leaders, and by each of their lines.
const OTHER_DAYS: usize = 4;

/// Claims batches; the answers are in the order of the permits.
pub(super) async fn claim_batches(
    pool: &PgPool,
    worker: WorkerId,
    permits: &[Permit],
) -> Result<Claims, Failure> {
    let mut composer = Composer {
        asked_at: Instant::now(),
        worker,
        days: days_of(permits),
        found: Found::default(),
        batches: HashMap::new(),
    };
    // One connection for all: what has started does not wait for another.
    let mut connection = pool.acquire().await?;
    let mut left = composer.compose(&mut connection, permits).await?;
    for _ in 0..OTHER_DAYS {
        if left.is_empty() || composer.found.is_to_be_sent() {
            break;
        }
        match composer.compose(&mut connection, &left).await {
            Ok(still) => left = still,
            Err(failure) => {
                not_read(&failure, &left);
                break;
            }
        }
    }
    drop(connection);
    composer.found.leave(&left);
    composer.answer(pool, permits).await
}

/// Batches, from one transaction to the next.
struct Composer {
    asked_at: Instant,
    worker: WorkerId,
    /// Where events are looked for.
    days: EventDays,
    found: Found,
    /// What the leaders carry that have started.
    batches: HashMap<i64, Vec<Member>>,
}

impl Composer {
    /// Composes and claims. Gives those that need days which are named only from now on: they
    /// are as they were.
    async fn compose(
        &mut self,
        connection: &mut PgConnection,
        permits: &[Permit],
    ) -> Result<Vec<Permit>, Failure> {
        let mut transaction = match self.found.has_starts() {
            true => connection.begin_with(BEGIN_HURRIED).await?,
            false => connection.begin().await?,
        };
        let leaders = lock_leaders(&mut transaction, permits, &self.days).await?;
        let carried = lock_carried(&mut transaction, &leaders, &self.days).await?;
        let mut members = read_members(&mut transaction, &carried.rows, &self.days).await?;
        if self.found.is_to_be_sent() {
            return Ok(permits.to_vec());
        }
        let composed_for = self.asked_at.elapsed();
        let (put_off, ready): (Vec<Permit>, Vec<Permit>) = (permits.iter().copied())
            .partition(|permit| carried.put_off.contains(&permit.attempt.0));
        let rows = claim_on(&mut *transaction, self.worker, &ready, &self.days).await?;
        let started: Vec<(i64, i64)> = (carried.rows.into_iter())
            .filter(|(_, leader)| rows.iter().any(|row| row.has_started(*leader)))
            .collect();
        carry(&mut transaction, self.worker, &started).await?;
        transaction.commit().await?;
        for (id, leader) in &started {
            let batch = self.batches.entry(*leader).or_default();
            batch.extend(members.remove(id));
        }
        let mut elsewhere = self.found.add(rows, composed_for, &mut self.days);
        elsewhere.extend(put_off.iter().map(key));
        for day in carried.other_days {
            self.days.add(day);
        }
        Ok(self.found.left(permits, &elsewhere))
    }

    async fn answer(mut self, pool: &PgPool, permits: &[Permit]) -> Result<Claims, Failure> {
        let mut leaders = self.found.leaders();
        let mut claims = answered(pool, permits, self.found).await?;
        for (permit, answer) in permits.iter().zip(&mut claims.answers) {
            if let ClaimAnswer::Started(start) = answer {
                let id = permit.attempt.0;
                start.members = leaders.remove(&id).into_iter().collect();
                start
                    .members
                    .extend(self.batches.remove(&id).unwrap_or_default());
            }
        }
        Ok(claims)
    }
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

/// In the order of their slots: what waits goes to the first of them. Those whose events are
/// of other days carry nothing yet: the claim will say that they are elsewhere.
async fn lock_leaders(
    connection: &mut PgConnection,
    permits: &[Permit],
    days: &EventDays,
) -> Result<Vec<Leader>, Failure> {
    let (ids, numbers) = keys(permits.iter().map(|permit| (permit.attempt, permit.number)));
    let mut leaders: Vec<(i64, Leader)> = sqlx::query_as(days.named(
        "-- claim_batches: leaders
        with clock as materialized (select clock_timestamp() as now)
        select micros((select now from clock)) as now, a.id, a.destination_id,
            a.urgent, a.due_at is null as first, a.batch_limit,
            octet_length(e.payload) as bytes,
            array[d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms] as batch
        from unnest($1::bigint[], $2::bigint[], $4::uuid[]) as n (id, number, destination_id)
        join deliveries a on a.id = any (array[n.id]) and a.permit = n.number
            and a.destination_id = any (array[n.destination_id])
        join destinations d on d.id = any (array[a.destination_id])
        cross join lateral (
            select e.payload from events e
            where e.id = a.event_id and e.day = event_day(a.event_id) and e.day {in_days}
            limit 1
        ) e
        where a.state = 'admitted' and d.epoch = a.epoch and d.state = 'active'
            and d.deleted_at is null
            and a.not_before <= (select now from clock) + $3::bigint * interval '1 microsecond'
            and a.deadline >= (select now from clock)
        order by n.id
        for update of a skip locked",
    ))
    .bind(ids)
    .bind(numbers)
    .bind(micros(MAX_HEAD_START) + SOON_MICROS)
    .bind(destinations(permits))
    .persistent(days.are_usual())
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

/// What the leaders carry.
#[derive(Default)]
struct Carried {
    /// Each with its leader, in order.
    rows: Vec<(i64, i64)>,
    /// Leaders that would carry events of other days.
    put_off: HashSet<i64>,
    /// These days, counted from 1970.
    other_days: Vec<i32>,
}

async fn lock_carried(
    connection: &mut PgConnection,
    leaders: &[Leader],
    days: &EventDays,
) -> Result<Carried, Failure> {
    let mut taken = Taken::new();
    let mut carried = Carried::default();
    for leader in leaders {
        let Some(rules) = batch_settings(&leader.batch).rules() else {
            continue;
        };
        let filled = fill(connection, leader, &rules, &taken, days).await?;
        if filled.other_days.is_empty() {
            taken.extend(filled.taken);
            let rows = filled.ids.into_iter().map(|id| (id, leader.id));
            carried.rows.extend(rows);
        } else {
            carried.put_off.insert(leader.id);
            carried.other_days.extend(filled.other_days);
        }
    }
    Ok(carried)
}

/// What one leader carries.
#[derive(Default)]
struct Filled {
    ids: Vec<i64>,
    taken: Taken,
    /// The days of events that were not looked for.
    other_days: Vec<i32>,
}

async fn fill(
    connection: &mut PgConnection,
    leader: &Leader,
    rules: &BatchRules,
    taken: &Taken,
    days: &EventDays,
) -> Result<Filled, Failure> {
    let limit = leader.batch_limit.map(|limit| count(i64::from(limit)));
    let mut room = Room::beside(rules, limit, count(i64::from(leader.bytes)));
    let mut filled = Filled::default();
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
        for next in lock_line(connection, leader, line, room, after, days).await? {
            let bytes = next.bytes.unwrap_or_default();
            if !room.take(count(i64::from(bytes))) {
                break;
            }
            filled.taken.insert(key, (next.due_at, next.id));
            filled.ids.push(next.id);
            filled.other_days.extend(next.other_day);
        }
    }
    Ok(filled)
}

row! {
    /// The next in a line, as it was locked: its event is as large, or of another day, counted
    /// from 1970.
    struct Next {
        id: i64,
        due_at: i64,
        bytes: Option<i32>,
        other_day: Option<i32>,
    }
}

async fn lock_line(
    connection: &mut PgConnection,
    leader: &Leader,
    line: Line,
    room: Room,
    (due_at, id): (i64, i64),
    days: &EventDays,
) -> Result<Vec<Next>, Failure> {
    let (sql, limit) = match line {
        Line::Firsts => (FIRSTS, None),
        Line::Urgent | Line::Due => (DUE, None),
        Line::Class(limit) => (DUE, Some(integer(limit))),
    };
    Ok(sqlx::query_as(days.named(sql))
        .bind(leader.destination_id)
        .bind(i64::from(room.events()))
        .bind(leader.now)
        .bind(id)
        .bind(due_at)
        .bind(limit)
        .bind(i64::from(MAX_READ))
        .bind(line == Line::Urgent)
        .persistent(days.are_usual())
        .fetch_all(connection)
        .await?)
}

/// An event that is gone is carried by nobody; one that was not looked for may be there.
///
/// `offset 0`, here and in [`DUE`]: so an event's day is computed once, and not where it is named.
const FIRSTS: &str = "-- claim_batches: first attempts
    select a.id, 0::bigint as due_at, octet_length(e.payload) as bytes,
        case when not l.day {in_days} then l.day - date '1970-01-01' end as other_day
    from deliveries a
    cross join lateral (select event_day(a.event_id) as day offset 0) l
    left join lateral (
        select e.payload from events e
        where e.id = a.event_id and e.day = l.day and e.day {in_days}
        limit 1
    ) e on true
    where a.destination_id = $1 and a.permit is null and a.due_at is null
        and a.id + 0 > greatest($4, coalesce(
            (select p.first_after from pacing p where p.destination_id = $1), 0))
        and (a.expires_at is null or a.expires_at > from_micros($3))
        and $5::bigint is not null and $6::integer is null and $7::bigint > 0
        and not $8
        and (e.payload is not null or not l.day {in_days})
    order by a.id + 0
    limit $2
    for update of a skip locked";

/// A class may stand behind others: it is looked for as far as a run reads.
const DUE: &str = "-- claim_batches: what is due
    select a.id, micros(x.due_at) as due_at, octet_length(e.payload) as bytes,
        case when not l.day {in_days} then l.day - date '1970-01-01' end as other_day
    from (
        select a.id, a.due_at, a.batch_limit from deliveries a
        where a.destination_id = $1 and a.permit is null and a.urgent = $8
            and a.due_at <= from_micros($3) and (a.due_at, a.id) > (from_micros($5), $4)
        order by a.due_at, a.id
        limit $7
    ) x
    join deliveries a on a.id = any (array[x.id])
    cross join lateral (select event_day(a.event_id) as day offset 0) l
    left join lateral (
        select e.payload from events e
        where e.id = a.event_id and e.day = l.day and e.day {in_days}
        limit 1
    ) e on true
    where a.permit is null and a.due_at = x.due_at
        and a.batch_limit is not distinct from $6
        and (a.expires_at is null or a.expires_at > from_micros($3))
        and (e.payload is not null or not l.day {in_days})
    order by x.due_at, x.id
    limit $2
    for update of a skip locked";

/// What is sent of those that are carried.
async fn read_members(
    connection: &mut PgConnection,
    carried: &[(i64, i64)],
    days: &EventDays,
) -> Result<HashMap<i64, Member>, Failure> {
    if carried.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<MemberRow> = sqlx::query_as(days.named(
        "-- claim_batches: what is sent
        select a.id, a.event_id, a.try_number, a.tries_before, e.event_type, e.content_type,
            e.payload, micros(e.created_at) as accepted_at, e.trace
        from unnest($1::bigint[]) as n (id)
        join deliveries a on a.id = any (array[n.id])
        cross join lateral (
            select e.event_type, e.content_type, e.payload, e.created_at, e.trace from events e
            where e.id = a.event_id and e.day = event_day(a.event_id) and e.day {in_days}
            limit 1
        ) e",
    ))
    .bind(carried.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .persistent(days.are_usual())
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
            where l.id = any (array[c.id])
        )
        update deliveries a
        set state = 'started', worker_id = $1, permit = l.permit, epoch = l.epoch,
            claimed_at = l.claimed_at, started_at = l.started_at, carried_by = l.id,
            coarse = false, crowded = false
        from unnest($2::bigint[], $3::bigint[]) as n (id, leader)
        join deliveries l on l.id = any (array[n.leader])
        where a.id = any (array[n.id]) and a.state = 'waiting'",
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

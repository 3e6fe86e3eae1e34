//! Starts: claimed, or permits handed back; and where requests go.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::time::Duration;

use bytes::Bytes;
use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::promptness;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, PermitNumber, WorkerId};
use domain::permit::Permit;
use domain::time::{Timestamp, micros};
use domain::trace::TraceContext;
use engine::ports::{
    ClaimAnswer, Claims, Deferral, HEARTBEAT_TIMEOUT, MAX_HEAD_START, MAX_REQUEST_TIMEOUT, Member,
    Outcome, SendReport, Start, Target, Wake, Wakes,
};
use sqlx::{Connection, PgConnection, PgExecutor, PgPool};
use tokio::time::Instant;
use uuid::Uuid;

use super::connect::{BEGIN_HURRIED, BEGIN_UNFLUSHED};
use super::event_days::EventDays;
use super::failure::Failure;
use super::record::Coarse;
use super::rows::{count, keys};
use super::{record, secrets};
use crate::lost::no_event;
use crate::row::row;
use crate::stored_policy;

/// Where these destinations' requests go now.
pub(super) async fn targets(
    pool: &PgPool,
    destinations: &[DestinationId],
) -> Result<Vec<Target>, Failure> {
    let ids: Vec<Uuid> = destinations.iter().map(|id| id.0).collect();
    let rows: Vec<(Uuid, i64, String, bool, bool, bool)> = sqlx::query_as(
        "-- targets
        select d.id, d.epoch, d.url, d.batch_max_events is not null, d.pass_traceparent,
            d.handshake <> 'none'
        from destinations d
        where d.id = any ($1) and d.deleted_at is null",
    )
    .bind(ids)
    .fetch_all(pool)
    .await?;
    let mut targets: Vec<_> = (rows.into_iter())
        .map(
            |(id, epoch, url, batches, pass_traceparent, names_origin)| Target {
                destination: DestinationId(id),
                epoch: Epoch(epoch),
                url,
                timeout: MAX_REQUEST_TIMEOUT,
                batches,
                pass_traceparent,
                names_origin,
                identity: None,
                secrets: Vec::new(),
            },
        )
        .collect();
    secrets::attach(pool, &mut targets).await?;
    Ok(targets)
}

row! {
    /// A row that carries the permit's number, as it was locked.
    pub(super) struct Claimed {
        now: i64,
        id: Option<i64>,
        number: Option<i64>,
        destination_id: Option<Uuid>,
        answer: Option<String>,
        not_before: Option<i64>,
        event_id: Option<Uuid>,
        try_number: Option<i32>,
        tries_before: Option<i32>,
        retry_policy: Option<String>,
        content_type: Option<String>,
        payload: Option<Vec<u8>>,
        event_type: Option<String>,
        accepted_at: Option<i64>,
        trace: Option<String>,
        worker_id: Uuid,
        event_day: Option<i32>,
    }
}

/// One statement. Rows are locked, skipping those that somebody holds: a
/// statement that waited would keep a clock from before the wait. The lock
/// rechecks the state and the number on the row's latest version, so a
/// revocation that has just been committed is seen, and one that is under way
/// holds the row. The clock is read once, when the first row is judged. What a
/// worker may not start moves back like what is late: nobody else would.
///
/// A slot that opens within the head start is claimed as of the slot: the claim is
/// ahead of the clock then, and whoever dates a change waits for it (`note_change`).
/// The deadline is later than any slot, so the latest start is no earlier than the
/// claim ([`domain::admission::latest_start`]).
///
/// `limit 1` around an event, here and elsewhere: so it is looked up by its key
/// in the one partition of its day. As a plain join the planner may read the
/// whole index of a day that its statistics say is empty.
///
/// Events are looked for in the days that are named alone ([`EventDays`]): each day that is
/// kept would be opened and locked by each claim. What would start, but has its event
/// elsewhere, stays admitted, and is claimed again with that day: nothing has started before
/// its event can be read.
const CLAIM: &str = "-- claim_starts
    with clock as materialized (select clock_timestamp() as now),
    locked as materialized (
        select a.id, a.permit, a.destination_id, a.event_id, a.try_number, a.tries_before,
            a.not_before, a.deadline, d.retry_policy, event_day(a.event_id) as day,
            case
                when a.epoch <> n.epoch or d.epoch <> a.epoch
                    or d.state <> 'active' or d.deleted_at is not null
                    or greatest(p.held_until, h.held_until)
                        > greatest((select now from clock), a.not_before)
                    or a.deadline < (select now from clock)
                    or not exists (
                        select from workers w
                        where w.id = $1 and not w.retired
                            and w.seen_at >= (select now from clock)
                                - $5::bigint * interval '1 microsecond'
                    )
                then 'returned'
                when a.not_before > (select now from clock) + $6::bigint * interval '1 microsecond'
                then 'early'
                else 'started'
            end as answer
        from unnest($2::bigint[], $3::bigint[], $4::bigint[], $7::uuid[])
            as n (id, number, epoch, destination_id)
        join deliveries a on a.id = any (array[n.id]) and a.permit = n.number
            and a.destination_id = any (array[n.destination_id])
        join destinations d on d.id = any (array[a.destination_id])
        left join pacing p on p.destination_id = any (array[a.destination_id])
        left join health h on h.destination_id = any (array[a.destination_id])
        where a.state = 'admitted'
        order by n.id
        for update of a skip locked
    ),
    started as (
        update deliveries a
        set state = 'started', worker_id = $1,
            claimed_at = greatest((select now from clock), l.not_before),
            -- When it is sent is not known yet: it is counted at its latest start.
            started_at = least(
                greatest((select now from clock), l.not_before)
                    + $8::bigint * interval '1 microsecond',
                l.deadline)
        from locked l
        where a.id = any (array[l.id]) and l.answer = 'started' and l.day {in_days}
    ),
    returned as (
        update deliveries a
        set state = 'waiting', due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        from locked l
        where a.id = any (array[l.id]) and l.answer = 'returned'
    )
    select micros(clock.now) as now, l.id, l.permit as number, l.destination_id,
        case
            when l.answer = 'started' and not l.day {in_days} then 'elsewhere'
            else l.answer
        end as answer,
        micros(l.not_before) as not_before, l.event_id, l.try_number, l.tries_before,
        l.retry_policy::text as retry_policy, e.content_type, e.payload, e.event_type,
        micros(e.created_at) as accepted_at, e.trace, $1::uuid as worker_id,
        l.day - date '1970-01-01' as event_day
    from clock
    left join locked l on true
    left join lateral (
        select e.content_type, e.payload, e.event_type, e.created_at, e.trace from events e
        where e.id = l.event_id and e.day = l.day and e.day {in_days}
        limit 1
    ) e on l.answer = 'started'";

/// Claims starts; the answers are in the order of the permits.
pub(super) async fn claim_starts(
    pool: &PgPool,
    worker: WorkerId,
    permits: &[Permit],
) -> Result<Claims, Failure> {
    let asked_at = Instant::now();
    let mut days = days_of(permits);
    let mut found = Found::default();
    // One connection for both: what has started does not wait for another.
    let mut connection = pool.acquire().await?;
    let rows = claim_on(&mut *connection, worker, permits, &days).await?;
    let elsewhere = found.add(rows, Duration::ZERO, &mut days);
    let left = found.left(permits, &elsewhere);
    if !left.is_empty() {
        let read_for = asked_at.elapsed();
        let claimed = match found.has_starts() {
            true => claim_hurried(&mut connection, worker, &left, &days).await,
            false => claim_on(&mut *connection, worker, &left, &days).await,
        };
        match claimed {
            Ok(rows) => {
                found.add(rows, read_for, &mut days);
            }
            Err(failure) => {
                not_read(&failure, &left);
                found.leave(&left);
            }
        }
    }
    drop(connection);
    answered(pool, permits, found).await
}

/// The days that nearly all events of these are of.
pub(super) fn days_of(permits: &[Permit]) -> EventDays {
    let ids: Vec<i64> = permits.iter().map(|permit| permit.attempt.0).collect();
    EventDays::of(&ids)
}

/// The statement.
pub(super) async fn claim_on(
    executor: impl PgExecutor<'_>,
    worker: WorkerId,
    permits: &[Permit],
    days: &EventDays,
) -> Result<Vec<Claimed>, Failure> {
    let (ids, numbers) = keys(permits.iter().map(|permit| (permit.attempt, permit.number)));
    let epochs: Vec<i64> = permits.iter().map(|permit| permit.epoch.0).collect();
    Ok(sqlx::query_as(days.named(CLAIM))
        .bind(worker.0)
        .bind(ids)
        .bind(numbers)
        .bind(epochs)
        .bind(micros(HEARTBEAT_TIMEOUT))
        .bind(micros(MAX_HEAD_START))
        .bind(destinations(permits))
        .bind(micros(MAX_CLAIM_TO_SEND))
        .persistent(days.are_usual())
        .fetch_all(executor)
        .await?)
}

/// The same where others have started, and are not sent before this has ended.
async fn claim_hurried(
    connection: &mut PgConnection,
    worker: WorkerId,
    permits: &[Permit],
    days: &EventDays,
) -> Result<Vec<Claimed>, Failure> {
    let mut transaction = connection.begin_with(BEGIN_HURRIED).await?;
    let rows = claim_on(&mut *transaction, worker, permits, days).await?;
    transaction.commit().await?;
    Ok(rows)
}

/// Why they are left ([`Found::leave`]).
pub(super) fn not_read(failure: &Failure, permits: &[Permit]) {
    let permits = permits.len();
    tracing::warn!(
        ?failure,
        permits,
        "starts with events of other days not claimed"
    );
}

/// An attempt and the number of its permit.
pub(super) type Key = (i64, i64);

/// What was claimed, by one statement after the other.
#[derive(Default)]
pub(super) struct Found {
    /// By the clock of the first that has started anything.
    now: Timestamp,
    composed_for: Duration,
    /// When that one was answered.
    started_at: Option<Instant>,
    rows: Vec<Claimed>,
    /// Admitted, by what was read last.
    unread: HashSet<Key>,
}

impl Found {
    /// What a statement has answered that was sent so long after the call. Gives those whose
    /// events are elsewhere, and adds their days to those that are named.
    pub(super) fn add(
        &mut self,
        rows: Vec<Claimed>,
        composed_for: Duration,
        days: &mut EventDays,
    ) -> HashSet<Key> {
        if let (false, Some(row)) = (self.has_starts(), rows.first()) {
            self.now = Timestamp::from_micros(row.now);
            self.composed_for = composed_for;
        }
        let mut elsewhere = HashSet::new();
        for row in rows {
            match (row.elsewhere(), row.id, row.number) {
                (Some(day), Some(id), Some(number)) => {
                    days.add(day);
                    elsewhere.insert((id, number));
                }
                _ => self.rows.push(row),
            }
        }
        let started = |row: &Claimed| row.answer.as_deref() == Some("started");
        if !self.has_starts() && self.rows.iter().any(started) {
            self.started_at = Some(Instant::now());
        }
        elsewhere
    }

    /// Whether anything has started.
    pub(super) fn has_starts(&self) -> bool {
        self.started_at.is_some()
    }

    /// Whether what has started has waited for others as long as any start may.
    pub(super) fn is_to_be_sent(&self) -> bool {
        let is_late = |at: Instant| at.elapsed() >= promptness::AT_LEAST;
        self.started_at.is_some_and(is_late)
    }

    /// Those to ask for again. What was early too, where there are any: its slot may have come
    /// within the head start of the clock that they are answered by.
    pub(super) fn left(&self, permits: &[Permit], elsewhere: &HashSet<Key>) -> Vec<Permit> {
        if elsewhere.is_empty() {
            return Vec::new();
        }
        let is_early = |row: &&Claimed| row.answer.as_deref() == Some("early");
        let early: HashSet<Key> = (self.rows.iter().filter(is_early))
            .filter_map(|row| row.id.zip(row.number))
            .collect();
        let is_left = |permit: &Permit| {
            [elsewhere, &early]
                .iter()
                .any(|of| of.contains(&key(permit)))
        };
        permits.iter().copied().filter(is_left).collect()
    }

    /// These stay admitted, and are asked for again.
    pub(super) fn leave(&mut self, permits: &[Permit]) {
        self.unread.extend(permits.iter().map(key));
    }

    /// What has started, as the leaders of their batches.
    pub(super) fn leaders(&self) -> HashMap<i64, Member> {
        self.rows.iter().filter_map(Claimed::leader).collect()
    }
}

/// What the rows come to, once they are committed.
pub(super) async fn answered(
    pool: &PgPool,
    permits: &[Permit],
    found: Found,
) -> Result<Claims, Failure> {
    let (lost, rows): (Vec<Claimed>, Vec<Claimed>) =
        found.rows.into_iter().partition(Claimed::is_lost);
    let given_back = end_lost(pool, &lost).await;
    let mut wakes = Wakes::default();
    let mut answers: HashMap<Key, ClaimAnswer> = HashMap::new();
    for row in rows {
        let (Some(id), Some(number)) = (row.id, row.number) else {
            continue;
        };
        if let (Some("returned"), Some(destination)) = (row.answer.as_deref(), row.destination_id) {
            wakes.now(DestinationId(destination));
        }
        answers.insert((id, number), row.into_answer(found.now));
    }
    let missing: Vec<&Permit> = permits
        .iter()
        .filter(|permit| !answers.contains_key(&key(permit)))
        .filter(|permit| !found.unread.contains(&key(permit)))
        .collect();
    // The claim is committed: an error from here on must not lose the starts.
    let mut held = (still_admitted(pool, &missing).await)
        .unwrap_or_else(|_unknown| missing.iter().map(|permit| key(permit)).collect());
    held.extend(found.unread);
    let answer = |permit: &Permit| match answers.entry(key(permit)) {
        // Named twice in one batch: it starts once.
        Entry::Occupied(once) if matches!(once.get(), ClaimAnswer::Started(_)) => once.remove(),
        Entry::Occupied(answer) => answer.get().clone(),
        Entry::Vacant(_) if held.contains(&key(permit)) => ClaimAnswer::Skipped,
        Entry::Vacant(_) => ClaimAnswer::Refused,
    };
    Ok(Claims {
        now: found.now,
        answers: permits.iter().map(answer).collect(),
        wakes: [wakes.into_vec(), given_back].concat(),
        composed_for: found.composed_for,
    })
}

/// Whose they are, as their messages say. A row of another destination is not theirs:
/// its payload would go to that one's URL, under that one's signature.
pub(super) fn destinations<'a>(permits: impl IntoIterator<Item = &'a Permit>) -> Vec<Uuid> {
    let of = |permit: &Permit| permit.destination.0;
    permits.into_iter().map(of).collect()
}

pub(super) fn key(permit: &Permit) -> Key {
    (permit.attempt.0, permit.number.0)
}

/// Ends starts that have nothing to send, each as what was not sent.
/// They are refused whatever becomes of this; if it fails, the reaper ends them,
/// as what nobody knows.
async fn end_lost(pool: &PgPool, lost: &[Claimed]) -> Vec<Wake> {
    let Some(first) = lost.first() else {
        return Vec::new();
    };
    let outcomes: Vec<Outcome> = (lost.iter()).filter_map(Claimed::not_sent).collect();
    let attempts: Vec<AttemptId> = outcomes.iter().map(|outcome| outcome.attempt).collect();
    tracing::error!(?attempts, "attempts whose events are gone are not sent");
    let worker = WorkerId(first.worker_id);
    let recorded = record::record_outcomes(pool, &Coarse::default(), worker, &outcomes).await;
    match recorded {
        Ok(recorded) => recorded.wakes,
        Err(failure) => {
            tracing::warn!(?failure, ?attempts, "what was not sent is not recorded");
            Vec::new()
        }
    }
}

impl Claimed {
    /// Whether it has started, and its event was not found in its day. Nothing deletes one
    /// that is needed; if somebody has, an empty request would be the worst of it.
    fn is_lost(&self) -> bool {
        self.answer.as_deref() == Some("started") && self.payload.is_none()
    }

    /// The day of its event, counted from 1970, if it has not started because that day was
    /// not named.
    fn elsewhere(&self) -> Option<i32> {
        self.event_day
            .filter(|_| self.answer.as_deref() == Some("elsewhere"))
    }

    fn not_sent(&self) -> Option<Outcome> {
        Some(no_event(
            AttemptId(self.id?),
            PermitNumber(self.number?),
            DestinationId(self.destination_id?),
        ))
    }

    /// Whether this is that attempt's, and it has started.
    pub(super) fn has_started(&self, attempt: i64) -> bool {
        self.id == Some(attempt) && self.answer.as_deref() == Some("started")
    }

    fn trace(&self) -> Option<TraceContext> {
        self.trace.as_deref().and_then(TraceContext::from_stored)
    }

    /// It as the leader of its batch, if it has started.
    fn leader(&self) -> Option<(i64, Member)> {
        let id = self.id.filter(|id| self.has_started(*id))?;
        let member = Member {
            attempt: AttemptId(id),
            event: EventId(self.event_id?),
            try_number: count(i64::from(self.try_number?)),
            tries_before: count(i64::from(self.tries_before?)),
            event_type: self.event_type.clone(),
            content_type: self.content_type.clone()?,
            payload: Bytes::from(self.payload.clone()?),
            accepted_at: Timestamp::from_micros(self.accepted_at?),
            trace: self.trace(),
        };
        Some((id, member))
    }

    /// `now` is the clock that all answers are given with.
    fn into_answer(self, now: Timestamp) -> ClaimAnswer {
        let not_before = Timestamp::from_micros(self.not_before.unwrap_or(0));
        match (self.answer.as_deref(), self.event_id) {
            (Some("started"), Some(event)) => ClaimAnswer::Started(Start {
                claimed_at: Timestamp::from_micros(self.now).max(not_before),
                event: EventId(event),
                try_number: count(i64::from(self.try_number.unwrap_or(1))),
                tries_before: count(i64::from(self.tries_before.unwrap_or(0))),
                retry: stored_policy::for_start(self.retry_policy.as_deref()),
                trace: self.trace(),
                content_type: self.content_type.unwrap_or_default(),
                payload: Bytes::from(self.payload.unwrap_or_default()),
                members: Vec::new(),
            }),
            (Some("early"), _) => ClaimAnswer::Early(not_before.since(now)),
            _ => ClaimAnswer::Refused,
        }
    }
}

/// Those of these permits whose rows are admitted under their numbers: they
/// were not claimed, so somebody holds their rows.
async fn still_admitted(pool: &PgPool, permits: &[&Permit]) -> Result<HashSet<Key>, Failure> {
    if permits.is_empty() {
        return Ok(HashSet::new());
    }
    let (ids, numbers) = keys(permits.iter().map(|permit| (permit.attempt, permit.number)));
    let rows: Vec<Key> = sqlx::query_as(
        "-- claim_starts: still_admitted
        select a.id, a.permit
        from unnest($1::bigint[], $2::bigint[], $3::uuid[]) as n (id, number, destination_id)
        join deliveries a on a.id = any (array[n.id]) and a.permit = n.number
            and a.destination_id = any (array[n.destination_id])
        where a.state = 'admitted'",
    )
    .bind(ids)
    .bind(numbers)
    .bind(destinations(permits.iter().copied()))
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().collect())
}

/// Admits nothing for a while; see [`engine::ports::Store::defer`]. Waits for no
/// run that has the row.
pub(super) async fn defer(pool: &PgPool, deferrals: &[Deferral]) -> Result<(), Failure> {
    let destinations: Vec<Uuid> = deferrals.iter().map(|one| one.destination.0).collect();
    let lasts: Vec<i64> = deferrals.iter().map(|one| micros(one.lasts)).collect();
    sqlx::query(
        "-- defer
        with locked as materialized (
            select p.destination_id, n.lasts
            from unnest($1::uuid[], $2::bigint[]) as n (id, lasts)
            join pacing p on p.destination_id = any (array[n.id])
            for update of p skip locked
        )
        update pacing p
        set deferred_until = clock_timestamp() + l.lasts * interval '1 microsecond'
        from locked l
        where p.destination_id = any (array[l.destination_id])",
    )
    .bind(destinations)
    .bind(lasts)
    .execute(pool)
    .await?;
    Ok(())
}

/// Notes sends that have no answer yet; see [`engine::ports::Store::report_sends`]. What
/// somebody holds is left: most likely its outcome is being recorded.
///
/// It does not wait for the disk, so that it holds its rows for a moment only: their
/// outcomes are next. A server that crashes may forget it, and then counts its starts at
/// their latest again, which costs pace until the outcomes are there. What was planned on
/// a start that was reported comes after the report in the log: none of it is kept if the
/// report is not.
pub(super) async fn report_sends(
    pool: &PgPool,
    worker: WorkerId,
    sends: &[SendReport],
) -> Result<(), Failure> {
    let (ids, numbers) = keys(sends.iter().map(|sent| (sent.attempt, sent.number)));
    let after: Vec<i64> = sends.iter().map(|sent| micros(sent.sent_after)).collect();
    let mut transaction = pool.begin_with(BEGIN_UNFLUSHED).await?;
    sqlx::query(REPORT)
        .bind(worker.0)
        .bind(ids)
        .bind(numbers)
        .bind(after)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}

const REPORT: &str = "-- report_sends
    with locked as materialized (
        select a.id, n.sent_after
        from unnest($2::bigint[], $3::bigint[], $4::bigint[]) as n (id, number, sent_after)
        join deliveries a on a.id = any (array[n.id]) and a.permit = n.number
        where a.worker_id = $1 and a.state = 'started'
        order by n.id
        for update of a skip locked
    )
    update deliveries a
    set started_at = least(
        a.started_at, a.claimed_at + l.sent_after * interval '1 microsecond')
    from locked l
    where a.id = any (array[l.id])";

/// Hands back permits unused. One whose row is held is left: it is being
/// claimed or revoked, or it expires.
pub(super) async fn release_permits(
    pool: &PgPool,
    permits: &[Permit],
) -> Result<Vec<Wake>, Failure> {
    let (ids, numbers) = keys(permits.iter().map(|permit| (permit.attempt, permit.number)));
    let released: Vec<Uuid> = sqlx::query_scalar(
        "-- release_permits
        with locked as materialized (
            select a.id
            from unnest($1::bigint[], $2::bigint[], $3::uuid[]) as n (id, number, destination_id)
            join deliveries a on a.id = any (array[n.id]) and a.permit = n.number
                and a.destination_id = any (array[n.destination_id])
            where a.state = 'admitted'
            order by n.id
            for update of a skip locked
        )
        update deliveries a
        set state = 'waiting', due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        from locked l
        where a.id = any (array[l.id])
        returning a.destination_id",
    )
    .bind(ids)
    .bind(numbers)
    .bind(destinations(permits))
    .fetch_all(pool)
    .await?;
    let mut wakes = Wakes::default();
    for destination in released {
        wakes.now(DestinationId(destination));
    }
    Ok(wakes.into_vec())
}

//! Starts: claimed, or permits handed back; and where requests go.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::time::Duration;

use bytes::Bytes;
use domain::admission::MAX_CLAIM_TO_SEND;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, PermitNumber, WorkerId};
use domain::permit::Permit;
use domain::time::{Timestamp, micros};
use domain::trace::TraceContext;
use engine::ports::{
    ClaimAnswer, Claims, Deferral, HEARTBEAT_TIMEOUT, MAX_HEAD_START, MAX_REQUEST_TIMEOUT, Member,
    NextTry, Outcome, SendReport, Start, Target, Wake, Wakes,
};
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use super::connect::BEGIN_UNFLUSHED;
use super::failure::Failure;
use super::id_range::IdRange;
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
/// Events are looked for in the days of these attempts alone ([`IdRange::of_events`]): each
/// day that is kept would be opened and locked by each claim. [`read_on`] reads the others.
const CLAIM: &str = "-- claim_starts
    with clock as materialized (select clock_timestamp() as now),
    locked as materialized (
        select a.id, a.permit, a.destination_id, a.event_id, a.try_number, a.tries_before,
            a.not_before, a.deadline, d.retry_policy,
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
        join deliveries a on a.id = n.id and a.permit = n.number
            and a.destination_id = n.destination_id
        join destinations d on d.id = a.destination_id
        left join pacing p on p.destination_id = a.destination_id
        left join health h on h.destination_id = a.destination_id
        where a.state = 'admitted'
        order by a.id
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
        where a.id = l.id and l.answer = 'started'
    ),
    returned as (
        update deliveries a
        set state = 'waiting', due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        from locked l
        where a.id = l.id and l.answer = 'returned'
    )
    select micros(clock.now) as now, l.id, l.permit as number, l.destination_id, l.answer,
        micros(l.not_before) as not_before, l.event_id, l.try_number, l.tries_before,
        l.retry_policy::text as retry_policy, e.content_type, e.payload, e.event_type,
        micros(e.created_at) as accepted_at, e.trace, $1::uuid as worker_id
    from clock
    left join locked l on true
    left join lateral (
        select e.content_type, e.payload, e.event_type, e.created_at, e.trace from events e
        where e.id = l.event_id and e.day = event_day(l.event_id) and e.day {in_days}
        limit 1
    ) e on l.answer = 'started'";

/// What was accepted before, on whatever day.
const OTHER_DAYS: &str = "-- claim_starts: events of other days
    select e.id, e.content_type, e.payload, e.event_type, micros(e.created_at) as accepted_at,
        e.trace
    from unnest($1::uuid[]) as n (id)
    cross join lateral (
        select e.id, e.content_type, e.payload, e.event_type, e.created_at, e.trace
        from events e
        where e.id = n.id and e.day = event_day(n.id)
        limit 1
    ) e";

row! {
    /// An event as a start needs it.
    struct Accepted {
        id: Uuid,
        content_type: String,
        payload: Vec<u8>,
        event_type: Option<String>,
        accepted_at: i64,
        trace: Option<String>,
    }
}

/// Claims starts; the answers are in the order of the permits.
pub(super) async fn claim_starts(
    pool: &PgPool,
    worker: WorkerId,
    permits: &[Permit],
) -> Result<Claims, Failure> {
    let rows = claim_on(pool, worker, permits).await?;
    let found = read_on(pool, rows).await;
    answered(pool, permits, found).await
}

/// The statement.
pub(super) async fn claim_on(
    executor: impl PgExecutor<'_>,
    worker: WorkerId,
    permits: &[Permit],
) -> Result<Vec<Claimed>, Failure> {
    let (ids, numbers) = keys(permits.iter().map(|permit| (permit.attempt, permit.number)));
    let epochs: Vec<i64> = permits.iter().map(|permit| permit.epoch.0).collect();
    Ok(sqlx::query_as(IdRange::of(&ids).of_events(CLAIM))
        .bind(worker.0)
        .bind(ids)
        .bind(numbers)
        .bind(epochs)
        .bind(micros(HEARTBEAT_TIMEOUT))
        .bind(micros(MAX_HEAD_START))
        .bind(destinations(permits))
        .bind(micros(MAX_CLAIM_TO_SEND))
        .fetch_all(executor)
        .await?)
}

/// What was claimed, with its events.
pub(super) struct Found {
    pub(super) rows: Vec<Claimed>,
    lack: Lack,
}

/// Why an event is not here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// It is nowhere.
    Gone,
    /// It may be where nobody could look.
    Unread,
}

/// Reads the events of days that the statement does not name, once it is committed: those
/// of retries and replays of what was accepted before.
pub(super) async fn read_on(pool: &PgPool, mut rows: Vec<Claimed>) -> Found {
    let without = rows.iter().filter(|row| row.is_lost());
    let ids: HashSet<Uuid> = without.filter_map(|row| row.event_id).collect();
    if ids.is_empty() {
        let lack = Lack::Gone;
        return Found { rows, lack };
    }
    let read: Result<Vec<Accepted>, sqlx::Error> = sqlx::query_as(OTHER_DAYS)
        .bind(ids.into_iter().collect::<Vec<_>>())
        .fetch_all(pool)
        .await;
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            tracing::warn!(%error, "events of other days could not be read");
            let lack = Lack::Unread;
            return Found { rows, lack };
        }
    };
    let events: HashMap<Uuid, Accepted> =
        (read.into_iter()).map(|event| (event.id, event)).collect();
    for row in rows.iter_mut().filter(|row| row.is_lost()) {
        if let Some(event) = row.event_id.and_then(|id| events.get(&id)) {
            row.content_type = Some(event.content_type.clone());
            row.payload = Some(event.payload.clone());
            row.event_type.clone_from(&event.event_type);
            row.accepted_at = Some(event.accepted_at);
            row.trace.clone_from(&event.trace);
        }
    }
    let lack = Lack::Gone;
    Found { rows, lack }
}

/// What the rows come to, once they are committed.
pub(super) async fn answered(
    pool: &PgPool,
    permits: &[Permit],
    Found { rows, lack }: Found,
) -> Result<Claims, Failure> {
    let now = Timestamp::from_micros(rows.first().map_or(0, |row| row.now));
    let (lost, rows): (Vec<Claimed>, Vec<Claimed>) = rows.into_iter().partition(Claimed::is_lost);
    let given_back = end_lost(pool, &lost, lack).await;
    let mut wakes = Wakes::default();
    let mut answers: HashMap<(i64, i64), ClaimAnswer> = HashMap::new();
    for row in rows {
        let (Some(id), Some(number)) = (row.id, row.number) else {
            continue;
        };
        if let (Some("returned"), Some(destination)) = (row.answer.as_deref(), row.destination_id) {
            wakes.now(DestinationId(destination));
        }
        answers.insert((id, number), row.into_answer(now));
    }
    let missing: Vec<&Permit> = permits
        .iter()
        .filter(|permit| !answers.contains_key(&key(permit)))
        .collect();
    // The claim is committed: an error from here on must not lose the starts.
    let held = (still_admitted(pool, &missing).await)
        .unwrap_or_else(|_unknown| missing.iter().map(|permit| key(permit)).collect());
    let answer = |permit: &Permit| match answers.entry(key(permit)) {
        // Named twice in one batch: it starts once.
        Entry::Occupied(once) if matches!(once.get(), ClaimAnswer::Started(_)) => once.remove(),
        Entry::Occupied(answer) => answer.get().clone(),
        Entry::Vacant(_) if held.contains(&key(permit)) => ClaimAnswer::Skipped,
        Entry::Vacant(_) => ClaimAnswer::Refused,
    };
    Ok(Claims {
        now,
        answers: permits.iter().map(answer).collect(),
        wakes: [wakes.into_vec(), given_back].concat(),
        composed_for: Duration::ZERO,
    })
}

/// Whose they are, as their messages say. A row of another destination is not theirs:
/// its payload would go to that one's URL, under that one's signature.
pub(super) fn destinations<'a>(permits: impl IntoIterator<Item = &'a Permit>) -> Vec<Uuid> {
    let of = |permit: &Permit| permit.destination.0;
    permits.into_iter().map(of).collect()
}

fn key(permit: &Permit) -> (i64, i64) {
    (permit.attempt.0, permit.number.0)
}

/// Ends starts that have nothing to send, each as what was not sent. Those whose events could
/// not be read wait again.
/// They are refused whatever becomes of this; if it fails, the reaper ends them,
/// as what nobody knows.
async fn end_lost(pool: &PgPool, lost: &[Claimed], lack: Lack) -> Vec<Wake> {
    let Some(first) = lost.first() else {
        return Vec::new();
    };
    let outcomes: Vec<Outcome> = (lost.iter()).filter_map(|row| row.not_sent(lack)).collect();
    let attempts: Vec<AttemptId> = outcomes.iter().map(|outcome| outcome.attempt).collect();
    if lack == Lack::Gone {
        tracing::error!(?attempts, "attempts whose events are gone are not sent");
    }
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
    /// Whether it has started, and its event was not found. Nothing deletes one
    /// that is needed; if somebody has, an empty request would be the worst of it.
    fn is_lost(&self) -> bool {
        self.answer.as_deref() == Some("started") && self.payload.is_none()
    }

    fn not_sent(&self, lack: Lack) -> Option<Outcome> {
        let gone = no_event(
            AttemptId(self.id?),
            PermitNumber(self.number?),
            DestinationId(self.destination_id?),
        );
        Some(match lack {
            Lack::Gone => gone,
            Lack::Unread => Outcome {
                error: Some("its event could not be read".into()),
                next: NextTry::Again,
                ..gone
            },
        })
    }

    /// Whether this is that attempt's, and it has started.
    pub(super) fn has_started(&self, attempt: i64) -> bool {
        self.id == Some(attempt) && self.answer.as_deref() == Some("started")
    }

    fn trace(&self) -> Option<TraceContext> {
        self.trace.as_deref().and_then(TraceContext::from_stored)
    }

    /// It as the leader of its batch, if it has started.
    pub(super) fn leader(&self) -> Option<(i64, Member)> {
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

    fn into_answer(self, now: Timestamp) -> ClaimAnswer {
        let not_before = Timestamp::from_micros(self.not_before.unwrap_or(0));
        match (self.answer.as_deref(), self.event_id) {
            (Some("started"), Some(event)) => ClaimAnswer::Started(Start {
                claimed_at: now.max(not_before),
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
async fn still_admitted(
    pool: &PgPool,
    permits: &[&Permit],
) -> Result<HashSet<(i64, i64)>, Failure> {
    if permits.is_empty() {
        return Ok(HashSet::new());
    }
    let (ids, numbers) = keys(permits.iter().map(|permit| (permit.attempt, permit.number)));
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "-- claim_starts: still_admitted
        select a.id, a.permit
        from unnest($1::bigint[], $2::bigint[], $3::uuid[]) as n (id, number, destination_id)
        join deliveries a on a.id = n.id and a.permit = n.number
            and a.destination_id = n.destination_id
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
            join pacing p on p.destination_id = n.id
            for update of p skip locked
        )
        update pacing p
        set deferred_until = clock_timestamp() + l.lasts * interval '1 microsecond'
        from locked l
        where p.destination_id = l.destination_id",
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
        join deliveries a on a.id = n.id and a.permit = n.number
        where a.worker_id = $1 and a.state = 'started'
        order by a.id
        for update of a skip locked
    )
    update deliveries a
    set started_at = least(
        a.started_at, a.claimed_at + l.sent_after * interval '1 microsecond')
    from locked l
    where a.id = l.id";

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
            join deliveries a on a.id = n.id and a.permit = n.number
                and a.destination_id = n.destination_id
            where a.state = 'admitted'
            order by a.id
            for update of a skip locked
        )
        update deliveries a
        set state = 'waiting', due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        from locked l
        where a.id = l.id
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

//! Outcomes: what became of starts, the retries that follow, and the starts
//! that coarse limits count.
//!
//! Those from which nothing follows, successes of destinations that are well, are
//! recorded by one statement, also where coarse limits count them; workers hand in
//! successes by themselves (`plain_outcomes_apart`), and those of destinations that are
//! remembered are left over. For all else the lock and what is decided by it are two
//! statements, and all of it is one commit: a row that the reaper has just made `unknown`
//! has a retry that the snapshot of the locking statement does not see.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};

use domain::attempt::AttemptState;
use domain::attempt::follow_up::{self, follow_up};
use domain::health::Health;
use domain::ids::{AttemptId, DestinationId, WorkerId};
use domain::time::{Timestamp, micros};
use engine::ports::{Outcome, Recorded, Wakes};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::fold;
use super::health::{self, Seen};
use super::id_range::IdRange;
use super::over::moving;
use super::rows::{count, integer, keys};
use super::smart::{self, Samples};
use crate::row::row;

/// Whether outcomes of coarse limits have come lately. The plain statement counts their
/// starts only then: to be ready for it costs a batch some 40 µs. What it leaves out else
/// is recorded as anything is, so what is wrong here costs time and nothing more.
#[derive(Debug, Default)]
pub(super) struct Coarse {
    /// Batches that are ready for another.
    left: AtomicU32,
}

/// Batches that are ready for another after one with a coarse limit.
const AFTER_COARSE: u32 = 1_000;

impl Coarse {
    /// One of them has come.
    fn met(&self) {
        self.left.store(AFTER_COARSE, Ordering::Relaxed);
    }

    /// Whether the next batch is ready for one.
    fn is_near(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        (self.left)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }
}

/// Records outcomes of one worker's starts.
pub(super) async fn record_outcomes(
    pool: &PgPool,
    coarse: &Coarse,
    worker: WorkerId,
    outcomes: &[Outcome],
) -> Result<Recorded, Failure> {
    let plain = record_plain(pool, coarse, worker, outcomes).await?;
    let left: Vec<&Outcome> = (outcomes.iter())
        .filter(|outcome| !plain.recorded.contains(&outcome.attempt))
        .collect();
    let rest = match left.is_empty() {
        true => Ok(Recorded::default()),
        false => record_any(pool, coarse, worker, &left).await,
    };
    let mut recorded = match rest {
        Ok(recorded) => recorded,
        Err(failure) if plain.recorded.is_empty() => return Err(failure),
        // What is recorded has its wakes, which an error would lose. The others come
        // again by themselves, and then say what is wrong with them.
        Err(failure) => {
            tracing::debug!(?failure, outcomes = left.len(), "left over");
            Recorded {
                skipped: left.iter().map(|outcome| outcome.attempt).collect(),
                ..Recorded::default()
            }
        }
    };
    recorded.wakes.extend(plain.wakes.into_vec());
    Ok(recorded)
}

/// Records outcomes from which something may follow.
async fn record_any(
    pool: &PgPool,
    coarse: &Coarse,
    worker: WorkerId,
    outcomes: &[&Outcome],
) -> Result<Recorded, Failure> {
    let mut transaction = pool.begin().await?;
    let locked = lock(&mut transaction, worker, outcomes).await?;
    if locked.iter().any(|row| row.to_fold) {
        coarse.met();
    }
    let mut steps = Steps::default();
    let mut rows: HashMap<i64, Started> = (locked.into_iter()).map(|row| (row.id, row)).collect();
    let mut missing = Vec::new();
    let mut done = HashSet::new();
    let mut ended = Vec::new();
    for outcome in outcomes {
        match rows.remove(&outcome.attempt.0) {
            Some(row) => {
                done.insert(outcome.attempt);
                ended.push((*outcome, row));
            }
            None if done.contains(&outcome.attempt) => {}
            None => missing.push(*outcome),
        }
    }
    let judged = health::judge(&mut transaction, &seen(&ended)).await?;
    smart::judge(&mut transaction, &samples(&ended), &judged.health).await?;
    let returned = health::return_admitted(&mut transaction, &judged.held).await?;
    for (outcome, row) in &ended {
        steps.add(outcome, row, judged.health.get(&row.destination_id));
    }
    steps.update(&mut transaction).await?;
    insert_retries(&mut transaction, &steps.retries).await?;
    cancel_retries(&mut transaction, &steps.cancelled).await?;
    fold::add_starts(&mut transaction, steps.folds, fold::shard(Some(worker.0))).await?;
    transaction.commit().await?;
    let mut wakes = steps.wakes.into_vec();
    wakes.extend(returned);
    Ok(Recorded {
        skipped: still_open(pool, worker, &missing).await?,
        wakes,
        health: judged.changes,
    })
}

const RECORD_PLAIN: &str = "-- record_outcomes: record_plain
    with locked as materialized (
        select a.id, n.state, n.elapsed, n.status, n.error, n.response_body,
            n.response_headers, n.arrives_within,
            least(a.started_at, a.claimed_at + n.sent_after * interval '1 microsecond')
                as sent_at
        from unnest(
            $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::integer[], $7::text[],
            $8::bytea[], $9::text[], $10::bigint[], $11::bigint[]
        ) as n (
            id, number, state, elapsed, status, error, response_body, response_headers,
            sent_after, arrives_within
        )
        join deliveries a on a.id = any (array[n.id]) and a.permit = n.number
        where a.worker_id = $1 and a.state = 'started' {and_not_coarse}
            and not exists (
                select from health h where h.destination_id = a.destination_id offset 0
            )
            and not exists (
                select from smart_limits s where s.destination_id = a.destination_id offset 0
            )
        order by n.id
        for update of a skip locked
    ),
    gone as (
        delete from deliveries a using locked l
        where a.id = any (array[l.id])
        returning a.*, l.state as ended, l.sent_at,
            l.sent_at + l.elapsed * interval '1 microsecond' as ended_at,
            a.claimed_at + l.arrives_within * interval '1 microsecond' as arrived_by,
            l.status as answered, l.error as problem, l.response_body as body,
            l.response_headers as headers
    ){and_counted}
    insert into ledger (
        {kept}, {started}, folded, state, started_at, finished_at, counted_at, status, error,
        response_body, response_headers
    )
    select {kept}, {started}, folded or coarse, ended, sent_at, ended_at,
        case when by_response then arrived_by end, answered, problem, body, headers
    from gone
    returning id, destination_id, crowded, coarse";

/// What it counts of coarse limits. That waits for whoever adds to the same buckets, after
/// all else that the statement does.
const COUNTED: &str = "(
            select destination_id, micros(sent_at) from gone where coarse and not folded
        )";

/// The statement with this part, which counts what coarse limits count; without one it
/// leaves that out.
fn plain_statement(counting: Option<&str>) -> AssertSqlSafe<String> {
    let (not_coarse, counted) = match counting {
        Some(counting) => ("", format!(",\n    counted as ({counting})")),
        None => ("and (a.folded or not a.coarse)", String::new()),
    };
    let text = RECORD_PLAIN.replace("{and_not_coarse}", not_coarse);
    moving(&text.replace("{and_counted}", &counted))
}

/// What was recorded by one statement.
#[derive(Default)]
struct Plain {
    recorded: HashSet<AttemptId>,
    wakes: Wakes,
}

/// Records outcomes from which nothing follows: no retry, nothing to be remembered of a
/// destination. What the statement finds to be of another kind is left: all of a
/// destination that is remembered, for its answers are judged in their order. And
/// everything is left where an outcome is not plain itself: others of its destination may
/// come before it.
async fn record_plain(
    pool: &PgPool,
    coarse: &Coarse,
    worker: WorkerId,
    outcomes: &[Outcome],
) -> Result<Plain, Failure> {
    if !outcomes.iter().all(Outcome::is_plain) {
        return Ok(Plain::default());
    }
    // Of several for one attempt the first counts.
    let mut known = HashSet::new();
    let plain: Vec<&Outcome> = (outcomes.iter())
        .filter(|outcome| known.insert(outcome.attempt))
        .collect();
    let (ids, numbers) = keys(plain.iter().map(|one| (one.attempt, one.number)));
    let counting = (coarse.is_near()).then(|| fold::count_of(COUNTED, 12));
    let mut query = sqlx::query_as(plain_statement(counting.as_deref()))
        .bind(worker.0)
        .bind(ids)
        .bind(numbers)
        .bind(of(&plain, |one| one.kind.state().as_str()))
        .bind(of(&plain, |one| micros(one.elapsed)))
        .bind(of(&plain, |one| one.status.map(i32::from)))
        .bind(of(&plain, |one| one.error.as_deref()))
        .bind(of(&plain, |one| body(one)))
        .bind(of(&plain, |one| one.response_headers.as_text()))
        .bind(of(&plain, |one| micros(one.sent_after)))
        .bind(of(&plain, |one| micros(one.arrives_within())));
    if counting.is_some() {
        let (periods, widths) = fold::periods();
        let shard = fold::shard(Some(worker.0));
        query = query.bind(shard).bind(periods).bind(widths);
    }
    let rows: Vec<(i64, Uuid, bool, bool)> = query.fetch_all(pool).await?;
    let mut plain = Plain::default();
    for (id, destination, is_crowded, is_coarse) in rows {
        if is_coarse {
            coarse.met();
        }
        plain.recorded.insert(AttemptId(id));
        if is_crowded {
            plain.wakes.now(DestinationId(destination));
        }
    }
    Ok(plain)
}

/// The beginning of the response, if there is any.
fn body(outcome: &Outcome) -> Option<&[u8]> {
    (!outcome.response_body.is_empty()).then_some(&outcome.response_body[..])
}

/// A column of all.
fn of<'a, T>(outcomes: &[&'a Outcome], column: impl Fn(&'a Outcome) -> T) -> Vec<T> {
    outcomes.iter().map(|outcome| column(outcome)).collect()
}

/// The answers that may matter: of destinations that did not just succeed, or
/// that have something to remember.
fn seen(ended: &[(&Outcome, Started)]) -> Seen {
    let matters =
        |(outcome, row): &&(&Outcome, Started)| row.remembered || !outcome.is_unremarkable();
    let mut seen: Seen = (ended.iter().filter(matters))
        .map(|(_, row)| (row.destination_id, Vec::new()))
        .collect();
    for (outcome, row) in ended {
        if let Some(of_one) = seen.get_mut(&row.destination_id) {
            of_one.extend(outcome.observation(row.claimed_at()));
        }
    }
    seen
}

/// The answers of destinations with smart delivery.
fn samples(ended: &[(&Outcome, Started)]) -> Samples {
    let mut samples = Samples::new();
    for (outcome, row) in ended.iter().filter(|(_, row)| row.smart) {
        let sample = outcome.sample(row.claimed_at());
        let of_one = samples.entry(row.destination_id).or_default();
        of_one.extend(sample);
    }
    samples
}

row! {
    /// A start of ours, locked.
    struct Started {
        now: i64,
        id: i64,
        event_id: Uuid,
        destination_id: Uuid,
        tenant_id: Uuid,
        try_number: i32,
        tries_before: i32,
        expires_at: Option<i64>,
        payload_bytes: i32,
        batch_limit: Option<i32>,
        replay_id: Option<Uuid>,
        urgent: bool,
        was_unknown: bool,
        dead_letter: bool,
        to_fold: bool,
        crowded: bool,
        claimed_at: i64,
        /// The latest that it may be.
        started_at: i64,
        /// Its destination has something to remember.
        remembered: bool,
        /// Its destination has smart delivery.
        smart: bool,
    }
}

/// `limit 1` around an attempt, and `offset 0` in what is asked of its destination: so each
/// is looked up by its key. As a plain join all that lie between the first and the last of
/// these ids may be read, for that range names the days, and all that is remembered.
async fn lock(
    connection: &mut PgConnection,
    worker: WorkerId,
    outcomes: &[&Outcome],
) -> Result<Vec<Started>, Failure> {
    let (ids, numbers) = keys(outcomes.iter().map(|one| (one.attempt, one.number)));
    Ok(sqlx::query_as(IdRange::of(&ids).told(
        "-- record_outcomes: lock
        with clock as materialized (select micros(clock_timestamp()) as now)
        select (select now from clock) as now, a.id, a.event_id, a.destination_id, a.tenant_id,
            a.try_number, a.tries_before, micros(a.expires_at) as expires_at,
            a.payload_bytes, a.batch_limit, a.replay_id, a.urgent,
            a.state = 'unknown' as was_unknown, a.dead_letter, a.coarse and not a.folded as to_fold,
            a.crowded, micros(a.claimed_at) as claimed_at,
            micros(a.started_at) as started_at,
            exists (
                select from health h where h.destination_id = a.destination_id offset 0
            ) as remembered,
            exists (
                select from smart_limits s where s.destination_id = a.destination_id offset 0
            ) as smart
        from unnest($2::bigint[], $3::bigint[]) as n (id, number)
        cross join lateral (
            select a.id, a.event_id, a.destination_id, a.tenant_id, a.try_number, a.tries_before,
                a.expires_at, a.payload_bytes, a.batch_limit, a.replay_id, a.urgent, a.state,
                a.dead_letter, a.coarse, a.folded, a.crowded, a.claimed_at, a.started_at
            from attempts a
            where a.id = n.id and a.permit = n.number and a.id {in_days}
                and a.worker_id = $1 and a.state in ('started', 'unknown')
            limit 1
            for update skip locked
        ) a
        order by n.id",
    ))
    .bind(worker.0)
    .bind(ids)
    .bind(numbers)
    .fetch_all(connection)
    .await?)
}

impl Started {
    fn claimed_at(&self) -> Timestamp {
        Timestamp::from_micros(self.claimed_at)
    }

    fn start(&self) -> follow_up::Started {
        follow_up::Started {
            state: match self.was_unknown {
                true => AttemptState::Unknown,
                false => AttemptState::Started,
            },
            claimed_at: self.claimed_at(),
            latest: Timestamp::from_micros(self.started_at),
            try_number: count(i64::from(self.try_number)),
            batch_limit: self.batch_limit.map(|limit| count(i64::from(limit))),
            dead_letter: self.dead_letter,
        }
    }
}

/// A new attempt that follows another.
pub(super) struct Retry {
    pub(super) event: Uuid,
    pub(super) destination: Uuid,
    pub(super) tenant: Uuid,
    pub(super) try_number: i32,
    pub(super) tries_before: i32,
    pub(super) expires_at: Option<i64>,
    pub(super) payload_bytes: i32,
    pub(super) batch_limit: Option<i32>,
    /// Whose first try it is.
    pub(super) replay: Option<Uuid>,
    pub(super) urgent: bool,
    pub(super) due_at: i64,
    pub(super) created_at: i64,
}

/// What one batch comes to.
#[derive(Default)]
struct Steps {
    ids: Vec<i64>,
    states: Vec<&'static str>,
    started: Vec<i64>,
    finished: Vec<i64>,
    /// When they were at their receivers, at the latest.
    arrived: Vec<i64>,
    statuses: Vec<Option<i32>>,
    errors: Vec<Option<String>>,
    bodies: Vec<Option<Vec<u8>>>,
    headers: Vec<Option<String>>,
    dead_letters: Vec<bool>,
    retries: Vec<Retry>,
    /// Retries of these are cancelled: event, destination, attempt.
    cancelled: Vec<(Uuid, Uuid, i64)>,
    folds: Vec<(DestinationId, Timestamp)>,
    wakes: Wakes,
}

impl Steps {
    fn add(&mut self, outcome: &Outcome, row: &Started, health: Option<&Health>) {
        let now = Timestamp::from_micros(row.now);
        let next = follow_up(outcome, &row.start(), now, health);
        let destination = DestinationId(row.destination_id);
        self.ids.push(row.id);
        self.states.push(outcome.kind.state().as_str());
        self.started.push(next.started_at.as_micros());
        self.finished.push(next.finished_at.as_micros());
        let arrived_by = row.claimed_at() + outcome.arrives_within();
        self.arrived.push(arrived_by.as_micros());
        self.statuses.push(outcome.status.map(i32::from));
        self.errors
            .push(outcome.error.as_deref().map(str::to_owned));
        self.bodies.push(body(outcome).map(<[u8]>::to_vec));
        let headers = outcome.response_headers.as_text();
        self.headers.push(headers.map(str::to_owned));
        self.dead_letters.push(next.dead_letter);
        if row.to_fold {
            self.folds.push((destination, next.started_at));
        }
        if row.crowded {
            self.wakes.now(destination);
        }
        if next.calls_off_retry {
            self.cancelled
                .push((row.event_id, row.destination_id, row.id));
        }
        let Some(retry) = next.retry else {
            return;
        };
        self.wakes.after(destination, retry.due_at.since(now));
        self.retries.push(Retry {
            event: row.event_id,
            destination: row.destination_id,
            tenant: row.tenant_id,
            try_number: integer(retry.try_number),
            tries_before: row.tries_before,
            expires_at: row.expires_at,
            payload_bytes: row.payload_bytes,
            batch_limit: retry.batch_limit.map(integer),
            replay: row.replay_id.filter(|_| retry.in_its_place),
            urgent: row.urgent && retry.in_its_lane,
            due_at: retry.due_at.as_micros(),
            created_at: next.finished_at.as_micros(),
        });
    }

    async fn update(&mut self, connection: &mut PgConnection) -> Result<(), Failure> {
        if self.ids.is_empty() {
            return Ok(());
        }
        sqlx::query(moving(&IdRange::of(&self.ids).named(
            "-- record_outcomes: update
            with n as materialized (
                select * from unnest(
                    $1::bigint[], $2::text[], $3::bigint[], $4::integer[], $5::text[],
                    $6::bytea[], $7::text[], $8::boolean[], $9::bigint[], $10::bigint[]
                ) as n (
                    id, ended, ended_at, answered, problem, body, headers, died, sent_at, arrived_by
                )
            ),
            gone as (
                delete from deliveries a using n where a.id = any (array[n.id]) returning a.*, n.ended,
                    n.ended_at, n.answered, n.problem, n.body, n.headers, n.died, n.sent_at,
                    n.arrived_by
            ),
            written as (
                insert into ledger (
                    {kept}, {started}, folded, state, started_at, finished_at, counted_at, status,
                    error, response_body, response_headers, dead_letter
                )
                select {kept}, {started}, folded or coarse, ended, from_micros(sent_at),
                    from_micros(ended_at), case when by_response then from_micros(arrived_by) end,
                    answered, problem, body, headers, died
                from gone
            )
            -- What was unknown until now.
            update ledger a
            set state = n.ended, finished_at = from_micros(n.ended_at), status = n.answered,
                error = n.problem, response_body = n.body,
                response_headers = n.headers, dead_letter = n.died,
                folded = a.folded or a.coarse, started_at = from_micros(n.sent_at)
            from n
            where a.id {in_days} and a.id = any ($1) and n.id = a.id",
        )))
        .bind(&self.ids)
        .bind(&self.states)
        .bind(&self.finished)
        .bind(&self.statuses)
        .bind(&self.errors)
        .bind(&self.bodies)
        .bind(&self.headers)
        .bind(&self.dead_letters)
        .bind(&self.started)
        .bind(&self.arrived)
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// A column of them.
fn each<T>(retries: &[Retry], of: impl Fn(&Retry) -> T) -> Vec<T> {
    retries.iter().map(of).collect()
}

/// Adds retries, each a new waiting attempt.
pub(super) async fn insert_retries(
    connection: &mut PgConnection,
    retries: &[Retry],
) -> Result<(), Failure> {
    if retries.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- insert_retries
        insert into deliveries (
            event_id, destination_id, tenant_id, try_number, due_at, created_at, tries_before,
            expires_at, payload_bytes, batch_limit, replay_id, urgent
        )
        select n.event_id, n.destination_id, n.tenant_id, n.try_number, from_micros(n.due_at),
            from_micros(n.created_at), n.tries_before, from_micros(n.expires_at),
            n.payload_bytes, n.batch_limit, n.replay_id, n.urgent
        from unnest(
            $1::uuid[], $2::uuid[], $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[],
            $7::integer[], $8::bigint[], $9::integer[], $10::integer[], $11::uuid[], $12::boolean[]
        ) as n (
            event_id, destination_id, tenant_id, try_number, due_at, created_at, tries_before,
            expires_at, payload_bytes, batch_limit, replay_id, urgent
        )",
    )
    .bind(each(retries, |retry| retry.event))
    .bind(each(retries, |retry| retry.destination))
    .bind(each(retries, |retry| retry.tenant))
    .bind(each(retries, |retry| retry.try_number))
    .bind(each(retries, |retry| retry.due_at))
    .bind(each(retries, |retry| retry.created_at))
    .bind(each(retries, |retry| retry.tries_before))
    .bind(each(retries, |retry| retry.expires_at))
    .bind(each(retries, |retry| retry.payload_bytes))
    .bind(each(retries, |retry| retry.batch_limit))
    .bind(each(retries, |retry| retry.replay))
    .bind(each(retries, |retry| retry.urgent))
    .execute(connection)
    .await?;
    Ok(())
}

/// Cancels what followed these attempts and has not started. A retry that is
/// being claimed or revoked right now is skipped and may go out: the receiver
/// knows the event's id.
async fn cancel_retries(
    connection: &mut PgConnection,
    succeeded: &[(Uuid, Uuid, i64)],
) -> Result<(), Failure> {
    if succeeded.is_empty() {
        return Ok(());
    }
    sqlx::query(moving(
        "-- record_outcomes: cancel_retries
        with locked as materialized (
            select a.id
            from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as n (event_id, destination_id, id)
            join deliveries a on a.event_id = any (array[n.event_id])
                and a.destination_id = any (array[n.destination_id])
                and a.id + 0 > n.id and num_nonnulls(a.due_at) > 0
            where a.state in ('waiting', 'admitted')
            order by a.id + 0
            for update of a skip locked
        ),
        gone as (
            delete from deliveries a using locked l where a.id = any (array[l.id]) returning a.*
        )
        insert into ledger ({kept}, state) select {kept}, 'cancelled' from gone",
    ))
    .bind(succeeded.iter().map(|one| one.0).collect::<Vec<_>>())
    .bind(succeeded.iter().map(|one| one.1).collect::<Vec<_>>())
    .bind(succeeded.iter().map(|one| one.2).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// Those of these outcomes whose rows could still take them: somebody holds
/// the rows.
async fn still_open(
    pool: &PgPool,
    worker: WorkerId,
    outcomes: &[&Outcome],
) -> Result<Vec<AttemptId>, Failure> {
    if outcomes.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, numbers) = keys(outcomes.iter().map(|one| (one.attempt, one.number)));
    let ids: Vec<i64> = sqlx::query_scalar(
        "-- record_outcomes: still_open
        select a.id
        from unnest($2::bigint[], $3::bigint[]) as n (id, number)
        join attempts a on a.id = any (array[n.id]) and a.permit = n.number
        where a.worker_id = $1 and a.state in ('started', 'unknown')
        order by n.id",
    )
    .bind(worker.0)
    .bind(ids)
    .bind(numbers)
    .fetch_all(pool)
    .await?;
    Ok(ids.into_iter().map(AttemptId).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_after_a_coarse_one_are_ready_for_another() {
        let coarse = Coarse::default();
        assert!(!coarse.is_near());
        coarse.met();
        for _ in 0..AFTER_COARSE {
            assert!(coarse.is_near());
        }
        assert!(!coarse.is_near());
    }

    #[test]
    fn what_is_coarse_is_counted_or_left_out() {
        let text = |counting| plain_statement(counting).0;
        let left_out = |text: &str| text.contains("not a.coarse");
        let counted = |text: &str| text.contains("counted as (counting)");
        let (with, without) = (text(Some("counting")), text(None));
        assert!(counted(&with) && !left_out(&with), "{with}");
        assert!(left_out(&without) && !counted(&without), "{without}");
    }
}

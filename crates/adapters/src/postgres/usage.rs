//! What destinations use of their limits and what waits there, all read in one
//! statement: one snapshot, so no permit slips from one list to another.

use std::collections::HashMap;
use std::time::Duration;

use domain::admission::{
    Backlog, Bucket, CoarseStarts, LOOK_AFTER_EXPIRED, Meter, Outstanding, Usage, newest_starts,
    read_ahead,
};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::limit::{Limit, Period};
use domain::permit::Permit;
use domain::policy::{Policy, Rate};
use domain::time::Timestamp;
use domain::turns::in_turn;
use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Failure;
use super::rows::{count, integer, time};

/// Starts of a coarse limit that are in no bucket and yet final: above this
/// many they are folded before anything is admitted.
const MAX_UNFOLDED: usize = 5_000;

/// Above this many they are folded on the side, so that runs stay cheap.
const FOLD_FROM: usize = 200;

/// What to read for one destination.
pub(super) struct Question<'a> {
    pub(super) destination: DestinationId,
    pub(super) policy: &'a Policy,
    /// The cursor of first attempts.
    pub(super) first_after: i64,
    /// The number of the next permit.
    pub(super) number: i64,
    pub(super) meter: Meter,
    pub(super) recount: bool,
    pub(super) held_until: Option<Timestamp>,
    pub(super) probing: bool,
}

/// What was read for one destination.
pub(super) struct Reading {
    pub(super) usage: Usage,
    pub(super) backlog: Backlog,
    /// Permits that may still start, in slot order.
    pub(super) outstanding: Vec<Permit>,
    /// What waits and is due, in the order to be admitted, as many as
    /// `backlog.due`.
    pub(super) waiting: Vec<Waiting>,
    /// Final starts that are in no bucket, to be folded now.
    pub(super) to_fold: Vec<AttemptId>,
}

/// An attempt that is due.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) attempt: AttemptId,
    /// From when on it has waited; of a first attempt, no earlier than any with
    /// a smaller id.
    pub(super) since: Timestamp,
    /// It is read by the cursor.
    pub(super) first: bool,
}

/// A destination's answer: parallel arrays.
#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    permit_attempts: Vec<i64>,
    permit_numbers: Vec<i64>,
    permit_epochs: Vec<i64>,
    not_befores: Vec<i64>,
    deadlines: Vec<i64>,
    in_flight: i64,
    starts: Vec<i64>,
    bucket_periods: Vec<String>,
    bucket_ends: Vec<i64>,
    bucket_starts: Vec<i64>,
    unfolded_ids: Vec<i64>,
    unfolded_starts: Vec<i64>,
    unfolded_final: Vec<bool>,
    first_ids: Vec<i64>,
    first_since: Vec<i64>,
    first_expired: Vec<bool>,
    due_ids: Vec<i64>,
    due_since: Vec<i64>,
    due_expired: Vec<bool>,
    next_due: Option<i64>,
}

/// Reads them all. `now` is the store's clock, read after the locks.
pub(super) async fn read(
    connection: &mut PgConnection,
    questions: &[Question<'_>],
    now: Timestamp,
) -> Result<HashMap<DestinationId, Reading>, Failure> {
    let scopes: Vec<Scope> = (questions.iter())
        .map(|question| Scope::of(question.policy, question.recount, now))
        .collect();
    let rows = fetch(connection, questions, &scopes, now).await?;
    let mut rows: HashMap<Uuid, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
    let asked = questions.iter().zip(&scopes);
    Ok(asked
        .filter_map(|(question, scope)| {
            let row = rows.remove(&question.destination.0)?;
            Some((question.destination, reading(row, question, scope, now)))
        })
        .collect())
}

/// How far back each list has to go.
struct Scope {
    /// The largest limit that is counted start by start; 0 for none.
    exact_max: i32,
    exact_since: i64,
    ahead: i32,
    /// From when on buckets count, by period, where its limit is coarse.
    coarse_since: [Option<i64>; 4],
}

impl Scope {
    fn of(policy: &Policy, recount: bool, now: Timestamp) -> Self {
        let windows: &[Limit] = match &policy.rate {
            Rate::Limited(limited) => &limited.windows,
            Rate::Paused | Rate::Unlimited => &[],
        };
        let since = |limit: &Limit| (now - policy.stretched(limit.period)).as_micros();
        let exact = newest_starts(policy, recount);
        let coarse = |period: Period| {
            let of_period = |limit: &&Limit| limit.period == period && limit.is_coarse();
            windows.iter().find(of_period).map(since)
        };
        Self {
            exact_max: integer(exact.map_or(0, |newest| newest.count)),
            exact_since: (now - exact.map_or(Duration::ZERO, |newest| newest.period)).as_micros(),
            ahead: integer(read_ahead(policy)),
            coarse_since: Period::ALL.map(coarse),
        }
    }

    fn coarse_since(&self) -> Option<i64> {
        self.coarse_since.iter().flatten().min().copied()
    }
}

/// One row per destination; each list is bounded by the limits, none by the
/// backlog.
const USAGE: &str = "-- admit: usage
    select r.id,
        o.permit_attempts, o.permit_numbers, o.permit_epochs, o.not_befores, o.deadlines,
        f.in_flight, s.starts,
        b.bucket_periods, b.bucket_ends, b.bucket_starts,
        u.unfolded_ids, u.unfolded_starts, u.unfolded_final,
        w.first_ids, w.first_since, w.first_expired, d.due_ids, d.due_since, d.due_expired,
        (
            select micros(a.due_at) from attempts a
            where a.destination_id = r.id and a.state = 'waiting'
                and a.due_at > from_micros($10)
            order by a.due_at limit 1
        ) as next_due
    from unnest(
        $1::uuid[], $2::integer[], $3::bigint[], $4::integer[], $5::bigint[],
        $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $11::bigint[]
    ) as r (
        id, exact_max, exact_since, ahead, first_after,
        second_since, minute_since, hour_since, day_since, coarse_since
    )
    cross join lateral (
        select
            coalesce(array_agg(a.id order by a.not_before, a.permit), '{}') as permit_attempts,
            coalesce(array_agg(a.permit order by a.not_before, a.permit), '{}') as permit_numbers,
            coalesce(array_agg(a.epoch order by a.not_before, a.permit), '{}') as permit_epochs,
            coalesce(array_agg(micros(a.not_before) order by a.not_before, a.permit), '{}')
                as not_befores,
            coalesce(array_agg(micros(a.deadline) order by a.not_before, a.permit), '{}')
                as deadlines
        from attempts a
        where a.destination_id = r.id and a.state = 'admitted'
    ) o
    cross join lateral (
        select count(*) as in_flight from attempts a
        where a.destination_id = r.id and a.state = 'started'
    ) f
    cross join lateral (
        select coalesce(array_agg(micros(x.started_at)), '{}') as starts
        from (
            select y.started_at from (
                (
                    select a.started_at from attempts a
                    where a.destination_id = r.id and not a.folded
                        and a.started_at > from_micros(r.exact_since)
                    order by a.started_at desc limit r.exact_max
                )
                union all
                (
                    select a.started_at from attempts a
                    where a.destination_id = r.id and a.folded
                        and a.started_at > from_micros(r.exact_since)
                    order by a.started_at desc limit r.exact_max
                )
            ) y
            order by y.started_at desc limit r.exact_max
        ) x
    ) s
    cross join lateral (
        select
            coalesce(array_agg(x.period), '{}') as bucket_periods,
            coalesce(array_agg(micros(x.ends_at)), '{}') as bucket_ends,
            coalesce(array_agg(x.starts), '{}') as bucket_starts
        from (
            select p.period, b.ends_at, sum(b.starts)::bigint as starts
            from (values
                ('second', r.second_since), ('minute', r.minute_since),
                ('hour', r.hour_since), ('day', r.day_since)
            ) as p (period, since)
            join start_buckets b on b.destination_id = r.id and b.period = p.period
                and b.ends_at > from_micros(p.since)
            where p.since is not null
            group by p.period, b.ends_at
        ) x
    ) b
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as unfolded_ids,
            coalesce(array_agg(micros(x.started_at)), '{}') as unfolded_starts,
            coalesce(array_agg(x.state <> 'started'), '{}') as unfolded_final
        from (
            select a.id, a.started_at, a.state from attempts a
            where a.destination_id = r.id and not a.folded
                and a.started_at > from_micros(r.coarse_since)
            order by a.started_at
            limit case when r.coarse_since is null then 0 else f.in_flight + $12 + 1 end
        ) x
    ) u
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as first_ids,
            coalesce(array_agg(micros(x.created_at)), '{}') as first_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($10), false)), '{}')
                as first_expired
        from (
            select a.id, a.created_at, a.expires_at from attempts a
            where a.destination_id = r.id and a.state = 'waiting' and a.due_at is null
                and a.id + 0 > r.first_after
            order by a.id + 0 limit r.ahead
        ) x
    ) w
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as due_ids,
            coalesce(array_agg(micros(x.due_at)), '{}') as due_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($10), false)), '{}')
                as due_expired
        from (
            select a.id, a.due_at, a.expires_at from attempts a
            where a.destination_id = r.id and a.state = 'waiting'
                and a.due_at <= from_micros($10)
            order by a.due_at, a.id limit r.ahead
        ) x
    ) d";

async fn fetch(
    connection: &mut PgConnection,
    questions: &[Question<'_>],
    scopes: &[Scope],
    now: Timestamp,
) -> Result<Vec<Row>, Failure> {
    let coarse = |period: usize| -> Vec<Option<i64>> {
        scopes
            .iter()
            .map(|scope| scope.coarse_since[period])
            .collect()
    };
    Ok(sqlx::query_as(USAGE)
        .bind(
            questions
                .iter()
                .map(|q| q.destination.0)
                .collect::<Vec<_>>(),
        )
        .bind(
            scopes
                .iter()
                .map(|scope| scope.exact_max)
                .collect::<Vec<_>>(),
        )
        .bind(
            scopes
                .iter()
                .map(|scope| scope.exact_since)
                .collect::<Vec<_>>(),
        )
        .bind(scopes.iter().map(|scope| scope.ahead).collect::<Vec<_>>())
        .bind(questions.iter().map(|q| q.first_after).collect::<Vec<_>>())
        .bind(coarse(0))
        .bind(coarse(1))
        .bind(coarse(2))
        .bind(coarse(3))
        .bind(now.as_micros())
        .bind(scopes.iter().map(Scope::coarse_since).collect::<Vec<_>>())
        .bind(i64::try_from(MAX_UNFOLDED).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?)
}

fn reading(row: Row, question: &Question<'_>, scope: &Scope, now: Timestamp) -> Reading {
    let outstanding = permits(&row, question.destination);
    let waiting = merged(&row, question.number, scope.ahead);
    let expired = row.first_expired.iter().chain(&row.due_expired);
    let reaped_by = (expired.clone().any(|expired| *expired)).then(|| now + LOOK_AFTER_EXPIRED);
    let finals = row
        .unfolded_final
        .iter()
        .filter(|is_final| **is_final)
        .count();
    let fold_from = if finals > FOLD_FROM { MAX_UNFOLDED } else { 0 };
    let to_fold: Vec<AttemptId> = (row.unfolded_ids.iter().zip(&row.unfolded_final))
        .filter(|(_, is_final)| **is_final)
        .map(|(id, _)| AttemptId(*id))
        .take(fold_from)
        .collect();
    let usage = Usage {
        outstanding: (outstanding.iter())
            .map(|permit| Outstanding {
                not_before: permit.not_before,
                deadline: permit.deadline,
            })
            .collect(),
        in_flight: count(row.in_flight),
        starts: row
            .starts
            .iter()
            .copied()
            .map(Timestamp::from_micros)
            .collect(),
        coarse: coarse_starts(&row, scope),
        incomplete: finals > MAX_UNFOLDED,
        meter: question.meter,
        recount: question.recount,
        held_until: question.held_until,
        probing: question.probing,
    };
    let backlog = Backlog {
        due: u32::try_from(waiting.len()).unwrap_or(u32::MAX),
        next_due: time(row.next_due).into_iter().chain(reaped_by).min(),
    };
    Reading {
        usage,
        backlog,
        outstanding,
        waiting,
        to_fold,
    }
}

fn permits(row: &Row, destination: DestinationId) -> Vec<Permit> {
    let columns = (row.permit_attempts.iter())
        .zip(&row.permit_numbers)
        .zip(&row.permit_epochs)
        .zip(row.not_befores.iter().zip(&row.deadlines));
    columns
        .map(
            |(((attempt, number), epoch), (not_before, deadline))| Permit {
                destination,
                attempt: AttemptId(*attempt),
                number: PermitNumber(*number),
                epoch: Epoch(*epoch),
                not_before: Timestamp::from_micros(*not_before),
                deadline: Timestamp::from_micros(*deadline),
            },
        )
        .collect()
}

/// First attempts and due ones in turn, without those that are too old. First
/// attempts stay in the order of their ids whatever their times say (two
/// ingests at once may disagree): what is cut off here comes after all that is
/// kept, so the cursor, which knows ids, cannot pass it.
fn merged(row: &Row, number: i64, ahead: i32) -> Vec<Waiting> {
    let list = |ids: &[i64], since: &[i64], expired: &[bool], first| -> Vec<Waiting> {
        let waiting = |(id, since): (&i64, &i64)| Waiting {
            attempt: AttemptId(*id),
            since: Timestamp::from_micros(*since),
            first,
        };
        let fresh = ids.iter().zip(since).zip(expired);
        let fresh = fresh.filter(|(_, expired)| !**expired);
        fresh.map(|(row, _)| waiting(row)).collect()
    };
    let mut firsts = list(&row.first_ids, &row.first_since, &row.first_expired, true);
    let mut latest = Timestamp::MIN;
    for first in &mut firsts {
        latest = latest.max(first.since);
        first.since = latest;
    }
    let due = list(&row.due_ids, &row.due_since, &row.due_expired, false);
    in_turn(firsts, due, number, usize::try_from(ahead).unwrap_or(0))
}

fn coarse_starts(row: &Row, scope: &Scope) -> Vec<CoarseStarts> {
    let mut coarse: Vec<CoarseStarts> = (Period::ALL.into_iter().zip(scope.coarse_since))
        .filter_map(|(period, since)| {
            let since = since?;
            let unfolded = row.unfolded_starts.iter().filter(|start| **start > since);
            Some(CoarseStarts {
                period,
                buckets: Vec::new(),
                unfolded: unfolded.copied().map(Timestamp::from_micros).collect(),
            })
        })
        .collect();
    let buckets = (row.bucket_periods.iter()).zip(row.bucket_ends.iter().zip(&row.bucket_starts));
    for (period, (ends_at, starts)) in buckets {
        let Some(of_period) = coarse.iter_mut().find(|c| c.period.as_str() == period) else {
            continue;
        };
        of_period.buckets.push(Bucket {
            ends_at: Timestamp::from_micros(*ends_at),
            starts: count(*starts),
        });
    }
    coarse
}

//! What destinations use of their limits and what waits there, all read in one
//! statement: one snapshot, so no permit slips from one list to another.

use std::collections::HashMap;
use std::sync::Arc;

use domain::admission::{
    Backlog, Bucket, CoarseStarts, Group, Meter, Newest, Outstanding, Usage, newest_claims,
    newest_starts, next_due, read_ahead,
};
use domain::batch::{self, BatchRules, Leader, Lines, openings};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::limit::{Count, Limit, Period};
use domain::permit::Permit;
use domain::policy::{Policy, Rate};
use domain::time::Timestamp;
use domain::turns::{Lane, Lanes, in_turn};
use sqlx::PgConnection;
use uuid::Uuid;

use super::destinations::Found;
use super::failure::Failure;
use super::id_range::IdRange;
use super::limit_group::{self, Groups};
use super::rows::{count, integer, time};
use crate::row::row;

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
    pub(super) deferred_until: Option<Timestamp>,
    pub(super) probing: bool,
    pub(super) batch: Option<BatchRules>,
    pub(super) group: Option<&'a Arc<Group>>,
}

impl<'a> Question<'a> {
    /// For what admits at this destination.
    pub(super) fn of(destination: &'a Found, groups: &'a Groups) -> Self {
        Self {
            destination: destination.id,
            policy: &destination.policy,
            first_after: destination.first_after,
            number: destination.last_permit + 1,
            meter: destination.meter,
            recount: destination.recount,
            held_until: destination.held_until,
            deferred_until: destination.deferred_until,
            probing: destination.probing,
            batch: destination.batch,
            group: limit_group::of(groups, destination),
        }
    }
}

/// What was read for one destination.
pub(super) struct Reading {
    pub(super) usage: Usage,
    pub(super) backlog: Backlog,
    /// Permits that may still start, in slot order.
    pub(super) outstanding: Vec<Permit>,
    /// What waits and is due, in the order to be admitted, as many as
    /// `backlog.due`; where requests are batches, what opens them.
    pub(super) waiting: Vec<Waiting>,
    /// The earliest first attempt that waits for a batch: the cursor stops there.
    pub(super) first_left: Option<AttemptId>,
    /// The earliest first attempt that waits at all, and since when: where
    /// requests are batches, the cursor comes up to it.
    pub(super) first_waiting: Option<(AttemptId, Timestamp)>,
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

row! {
    /// A destination's answer: parallel arrays.
    struct Row {
        id: Uuid,
        permit_attempts: Vec<i64>,
        permit_numbers: Vec<i64>,
        permit_epochs: Vec<i64>,
        not_befores: Vec<i64>,
        deadlines: Vec<i64>,
        permit_urgent: Vec<bool>,
        permit_firsts: Vec<bool>,
        permit_bytes: Vec<i32>,
        permit_limits: Vec<Option<i32>>,
        in_flight: i64,
        starts: Vec<i64>,
        claims: Vec<i64>,
        bucket_periods: Vec<String>,
        bucket_ends: Vec<i64>,
        bucket_starts: Vec<i64>,
        unfolded_ids: Vec<i64>,
        unfolded_starts: Vec<i64>,
        unfolded_final: Vec<bool>,
        urgent_ids: Vec<i64>,
        urgent_since: Vec<i64>,
        urgent_expired: Vec<bool>,
        urgent_bytes: Vec<i32>,
        first_ids: Vec<i64>,
        first_since: Vec<i64>,
        first_expired: Vec<bool>,
        first_bytes: Vec<i32>,
        due_ids: Vec<i64>,
        due_since: Vec<i64>,
        due_expired: Vec<bool>,
        due_bytes: Vec<i32>,
        due_limits: Vec<Option<i32>>,
        next_due: Option<i64>,
    }
}

/// Reads them all. `now` is the store's clock, read after the locks; all that
/// counts or waits is of the days that are `open`.
pub(super) async fn read(
    connection: &mut PgConnection,
    questions: &[Question<'_>],
    (now, open): (Timestamp, IdRange),
) -> Result<HashMap<DestinationId, Reading>, Failure> {
    let scopes: Vec<Scope> = (questions.iter())
        .map(|question| Scope::of(question, now))
        .collect();
    let rows = fetch(connection, questions, &scopes, (now, open)).await?;
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
    starts: Most,
    claims: Most,
    ahead: i32,
    /// Permits that one run may give.
    most: u32,
    /// From when on buckets count, by period, where its limit is coarse.
    coarse_since: [Option<i64>; 4],
}

/// The newest starts, so many after then; 0 for none.
struct Most {
    count: i32,
    since: i64,
}

impl Most {
    fn of(newest: Option<Newest>, now: Timestamp) -> Self {
        newest.map_or(Self { count: 0, since: 0 }, |newest| Self {
            count: integer(newest.count),
            since: (now - newest.period).as_micros(),
        })
    }
}

impl Scope {
    fn of(question: &Question<'_>, now: Timestamp) -> Self {
        let (policy, recount) = (question.policy, question.recount);
        let windows: &[Limit] = match &policy.rate {
            Rate::Limited(limited) => &limited.windows,
            Rate::Paused | Rate::Unlimited => &[],
        };
        let since = |limit: &Limit| (now - policy.stretched(*limit)).as_micros();
        let alone = read_ahead(policy);
        let most = question
            .group
            .map_or(alone, |group| Group::read_ahead(&group.limits, alone));
        let ahead = question.batch.map_or(most, |rules| rules.read_ahead(most));
        let coarse = |period: Period| {
            let of_period = |limit: &&Limit| limit.period == period && limit.is_coarse();
            windows.iter().find(of_period).map(since)
        };
        Self {
            starts: Most::of(newest_starts(policy), now),
            claims: Most::of(newest_claims(policy, recount), now),
            ahead: integer(ahead),
            most,
            coarse_since: Period::ALL.map(coarse),
        }
    }

    fn coarse_since(&self) -> Option<i64> {
        self.coarse_since.iter().flatten().min().copied()
    }
}

/// One row per destination; each list is bounded by the limits, none by the
/// backlog. What is owed and what is over are read by one statement: an attempt that ends
/// meanwhile is in one of them. No day of the ledger that counts no more is asked for any,
/// and nothing is admitted that would end in one of them: its start would not be counted.
///
/// `id | 0`: of a plain bound the planner may make a walk along all ids since the horizon.
const USAGE: &str = "-- admit: usage
    select r.id,
        h.permit_attempts, h.permit_numbers, h.permit_epochs, h.not_befores, h.deadlines,
        h.permit_urgent, h.permit_firsts, h.permit_bytes, h.permit_limits,
        cardinality(h.flying_starts)::bigint as in_flight, s.starts, c.claims,
        b.bucket_periods, b.bucket_ends, b.bucket_starts,
        u.unfolded_ids, u.unfolded_starts, u.unfolded_final,
        v.urgent_ids, v.urgent_since, v.urgent_expired, v.urgent_bytes,
        w.first_ids, w.first_since, w.first_expired, w.first_bytes,
        d.due_ids, d.due_since, d.due_expired, d.due_bytes, d.due_limits,
        (
            select micros(a.due_at) from deliveries a
            where a.destination_id = r.id and a.permit is null and not a.urgent
                and (a.id | 0) >= $15 and a.due_at > from_micros($10)
            order by a.due_at limit 1
        ) as next_due
    from unnest(
        $1::uuid[], $2::integer[], $3::bigint[], $4::integer[], $5::bigint[],
        $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $11::bigint[],
        $13::integer[], $14::bigint[], $16::boolean[]
    ) as r (
        id, exact_max, exact_since, ahead, first_after,
        second_since, minute_since, hour_since, day_since, coarse_since,
        claims_max, claims_since, by_response
    )
    cross join lateral (
        select
            coalesce(array_agg(x.id) filter (where not x.flies), '{}') as permit_attempts,
            coalesce(array_agg(x.permit) filter (where not x.flies), '{}') as permit_numbers,
            coalesce(array_agg(x.epoch) filter (where not x.flies), '{}') as permit_epochs,
            coalesce(array_agg(micros(x.not_before)) filter (where not x.flies), '{}')
                as not_befores,
            coalesce(array_agg(micros(x.deadline)) filter (where not x.flies), '{}')
                as deadlines,
            coalesce(array_agg(x.urgent) filter (where not x.flies), '{}') as permit_urgent,
            coalesce(array_agg(x.due_at is null) filter (where not x.flies), '{}')
                as permit_firsts,
            coalesce(array_agg(x.payload_bytes) filter (where not x.flies), '{}')
                as permit_bytes,
            coalesce(array_agg(x.batch_limit) filter (where not x.flies), '{}')
                as permit_limits,
            coalesce(array_agg(x.id) filter (where x.flies), '{}') as flying_ids,
            coalesce(array_agg(micros(x.started_at)) filter (where x.flies), '{}')
                as flying_starts,
            coalesce(array_agg(micros(x.claimed_at)) filter (where x.flies), '{}')
                as flying_claims
        from (
            select a.id, a.permit, a.epoch, a.not_before, a.deadline, a.due_at, a.payload_bytes,
                a.batch_limit, a.urgent, a.started_at, a.claimed_at, a.state = 'started' as flies
            from deliveries a
            where a.destination_id = r.id and a.permit is not null and a.carried_by is null
            order by a.not_before, a.permit
        ) x
    ) h
    cross join lateral (
        select coalesce(array_agg(x.started_at), '{}') as starts
        from (
            select y.started_at from (
                select f.started_at from unnest(h.flying_starts) as f (started_at)
                where f.started_at > r.exact_since and not r.by_response
                union all
                (
                    select micros(a.started_at) from ledger a
                    where not r.by_response
                        and a.destination_id = r.id and not a.folded and a.carried_by is null
                        and a.started_at > from_micros(r.exact_since) and a.id {in_days}
                    order by a.started_at desc limit r.exact_max
                )
                union all
                (
                    select micros(a.started_at) from ledger a
                    where not r.by_response
                        and a.destination_id = r.id and a.folded and a.carried_by is null
                        and a.started_at > from_micros(r.exact_since) and a.id {in_days}
                    order by a.started_at desc limit r.exact_max
                )
                union all
                -- Where answers count: their ends, and what had its permit before they did.
                (
                    select micros(a.counted_at) from ledger a
                    where r.by_response and a.destination_id = r.id and a.carried_by is null
                        and a.counted_at > from_micros(r.exact_since) and a.id {in_days}
                    order by a.counted_at desc limit r.exact_max
                )
                union all
                (
                    -- The newest of all are enough: what is older than as many as the
                    -- limit is not among its latest ends.
                    select micros(n.started_at) from (
                        (
                            select a.started_at, a.counted_at from ledger a
                            where r.by_response and a.destination_id = r.id
                                and not a.folded and a.carried_by is null
                                and a.started_at > from_micros(r.exact_since) and a.id {in_days}
                            order by a.started_at desc limit r.exact_max
                        )
                        union all
                        (
                            select a.started_at, a.counted_at from ledger a
                            where r.by_response and a.destination_id = r.id
                                and a.folded and a.carried_by is null
                                and a.started_at > from_micros(r.exact_since) and a.id {in_days}
                            order by a.started_at desc limit r.exact_max
                        )
                    ) n
                    where n.counted_at is null
                )
            ) y
            order by y.started_at desc limit r.exact_max
        ) x
    ) s
    cross join lateral (
        select coalesce(array_agg(x.claimed_at order by x.claimed_at desc), '{}') as claims
        from (
            select y.claimed_at from (
                select f.started_at, f.claimed_at
                from unnest(h.flying_starts, h.flying_claims) as f (started_at, claimed_at)
                where f.started_at > r.claims_since
                union all
                (
                    select micros(a.started_at), micros(a.claimed_at) from ledger a
                    where a.destination_id = r.id and not a.folded and a.carried_by is null
                        and a.started_at > from_micros(r.claims_since) and a.id {in_days}
                    order by a.started_at desc limit r.claims_max
                )
                union all
                (
                    select micros(a.started_at), micros(a.claimed_at) from ledger a
                    where a.destination_id = r.id and a.folded and a.carried_by is null
                        and a.started_at > from_micros(r.claims_since) and a.id {in_days}
                    order by a.started_at desc limit r.claims_max
                )
            ) y
            order by y.started_at desc limit r.claims_max
        ) x
    ) c
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
            coalesce(array_agg(x.started_at), '{}') as unfolded_starts,
            coalesce(array_agg(x.is_final), '{}') as unfolded_final
        from (
            select y.id, y.started_at, y.is_final
            from (
                select f.id, f.started_at, false as is_final
                from unnest(h.flying_ids, h.flying_starts) as f (id, started_at)
                where f.started_at > r.coarse_since
                union all
                (
                    select a.id, micros(a.started_at), true from ledger a
                    where a.destination_id = r.id and not a.folded and a.carried_by is null
                        and a.started_at > from_micros(r.coarse_since) and a.id {in_days}
                    order by a.started_at
                    limit case when r.coarse_since is null then 0 else $12 + 1 end
                )
            ) y
            order by y.started_at
        ) x
    ) u
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as urgent_ids,
            coalesce(array_agg(micros(x.due_at)), '{}') as urgent_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($10), false)), '{}')
                as urgent_expired,
            coalesce(array_agg(x.payload_bytes), '{}') as urgent_bytes
        from (
            select a.id, a.due_at, a.expires_at, a.payload_bytes from deliveries a
            where a.destination_id = r.id and a.permit is null and a.due_at is not null
                and a.urgent and (a.id | 0) >= $15
            order by a.due_at, a.id limit r.ahead
        ) x
    ) v
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as first_ids,
            coalesce(array_agg(micros(x.created_at)), '{}') as first_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($10), false)), '{}')
                as first_expired,
            coalesce(array_agg(x.payload_bytes), '{}') as first_bytes
        from (
            select a.id, a.created_at, a.expires_at, a.payload_bytes from deliveries a
            where a.destination_id = r.id and a.permit is null and a.due_at is null
                and a.id + 0 > greatest(r.first_after, $15 - 1)
            order by a.id + 0 limit r.ahead
        ) x
    ) w
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as due_ids,
            coalesce(array_agg(micros(x.due_at)), '{}') as due_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($10), false)), '{}')
                as due_expired,
            coalesce(array_agg(x.payload_bytes), '{}') as due_bytes,
            coalesce(array_agg(x.batch_limit), '{}') as due_limits
        from (
            select a.id, a.due_at, a.expires_at, a.payload_bytes, a.batch_limit from deliveries a
            where a.destination_id = r.id and a.permit is null and not a.urgent
                and a.due_at <= from_micros($10) and (a.id | 0) >= $15
            order by a.due_at, a.id limit r.ahead
        ) x
    ) d";

async fn fetch(
    connection: &mut PgConnection,
    questions: &[Question<'_>],
    scopes: &[Scope],
    (now, open): (Timestamp, IdRange),
) -> Result<Vec<Row>, Failure> {
    let coarse = |period: usize| -> Vec<Option<i64>> {
        scopes
            .iter()
            .map(|scope| scope.coarse_since[period])
            .collect()
    };
    let newest = |most: fn(&Scope) -> &Most| -> (Vec<i32>, Vec<i64>) {
        (scopes.iter().map(most))
            .map(|most| (most.count, most.since))
            .unzip()
    };
    let (starts, starts_since) = newest(|scope| &scope.starts);
    let (claims, claims_since) = newest(|scope| &scope.claims);
    Ok(sqlx::query_as(open.told(USAGE))
        .bind(
            questions
                .iter()
                .map(|q| q.destination.0)
                .collect::<Vec<_>>(),
        )
        .bind(starts)
        .bind(starts_since)
        .bind(scopes.iter().map(|scope| scope.ahead).collect::<Vec<_>>())
        .bind(questions.iter().map(|q| q.first_after).collect::<Vec<_>>())
        .bind(coarse(0))
        .bind(coarse(1))
        .bind(coarse(2))
        .bind(coarse(3))
        .bind(now.as_micros())
        .bind(scopes.iter().map(Scope::coarse_since).collect::<Vec<_>>())
        .bind(i64::try_from(MAX_UNFOLDED).unwrap_or(i64::MAX))
        .bind(claims)
        .bind(claims_since)
        .bind(open.first())
        .bind(
            (questions.iter())
                .map(|q| q.policy.count == Count::Response)
                .collect::<Vec<_>>(),
        )
        .fetch_all(connection)
        .await?)
}

fn reading(row: Row, question: &Question<'_>, scope: &Scope, now: Timestamp) -> Reading {
    let outstanding = permits(&row, question.destination);
    let due = match &question.batch {
        Some(rules) => batched(&row, rules, (question.number, scope), now),
        None => Due::of(merged(&row, question.number, scope.ahead)),
    };
    let mut expired = (row.urgent_expired.iter())
        .chain(&row.first_expired)
        .chain(&row.due_expired);
    let some_are_too_old = expired.any(|expired| *expired);
    let times = time(row.next_due).into_iter().chain(due.next_due);
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
        starts: timestamps(&row.starts),
        claims: timestamps(&row.claims),
        coarse: coarse_starts(&row, scope),
        incomplete: finals > MAX_UNFOLDED,
        meter: question.meter,
        recount: question.recount,
        held_until: question.held_until,
        deferred_until: question.deferred_until,
        probing: question.probing,
        group: question.group.cloned(),
    };
    let backlog = Backlog {
        due: u32::try_from(due.waiting.len()).unwrap_or(u32::MAX),
        urgent: u32::try_from(row.urgent_ids.len()).unwrap_or(u32::MAX),
        next_due: next_due(times, some_are_too_old, now),
    };
    Reading {
        usage,
        backlog,
        outstanding,
        waiting: due.waiting,
        first_left: due.first_left,
        first_waiting: due.first_waiting,
        to_fold,
    }
}

fn timestamps(micros: &[i64]) -> Vec<Timestamp> {
    micros.iter().copied().map(Timestamp::from_micros).collect()
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

/// What a run may admit.
struct Due {
    waiting: Vec<Waiting>,
    first_left: Option<AttemptId>,
    first_waiting: Option<(AttemptId, Timestamp)>,
    /// When the next batch is due.
    next_due: Option<Timestamp>,
}

impl Due {
    const fn of(waiting: Vec<Waiting>) -> Self {
        Self {
            waiting,
            first_left: None,
            first_waiting: None,
            next_due: None,
        }
    }
}

/// The lanes in turn, without those that are too old. First
/// attempts stay in the order of their ids whatever their times say (two
/// ingests at once may disagree): what is cut off here comes after all that is
/// kept, so the cursor, which knows ids, cannot pass it.
fn merged(row: &Row, number: i64, ahead: i32) -> Vec<Waiting> {
    let lanes = fresh(row).map(|lane| lane.into_iter().map(|fresh| fresh.waiting).collect());
    in_turn(lanes, number, usize::try_from(ahead).unwrap_or(0))
}

/// One that is not too old, and what batches go by.
struct Fresh {
    waiting: Waiting,
    bytes: u32,
    limit: Option<u32>,
}

impl Fresh {
    const fn in_line(&self) -> batch::Waiting {
        batch::Waiting {
            since: self.waiting.since,
            bytes: self.bytes,
            limit: self.limit,
        }
    }
}

fn fresh(row: &Row) -> Lanes<Vec<Fresh>> {
    Lanes {
        urgent: urgent(row),
        firsts: firsts(row),
        others: due(row),
    }
}

fn urgent(row: &Row) -> Vec<Fresh> {
    let rows = (row.urgent_ids.iter().zip(&row.urgent_since))
        .zip(row.urgent_expired.iter().zip(&row.urgent_bytes));
    rows.filter(|(_, (expired, _))| !**expired)
        .map(|((id, since), (_, bytes))| Fresh {
            waiting: Waiting {
                attempt: AttemptId(*id),
                since: Timestamp::from_micros(*since),
                first: false,
            },
            bytes: count(i64::from(*bytes)),
            limit: None,
        })
        .collect()
}

fn firsts(row: &Row) -> Vec<Fresh> {
    let rows = (row.first_ids.iter().zip(&row.first_since))
        .zip(row.first_expired.iter().zip(&row.first_bytes));
    let mut latest = Timestamp::MIN;
    rows.filter(|(_, (expired, _))| !**expired)
        .map(|((id, since), (_, bytes))| {
            latest = latest.max(Timestamp::from_micros(*since));
            Fresh {
                waiting: Waiting {
                    attempt: AttemptId(*id),
                    since: latest,
                    first: true,
                },
                bytes: count(i64::from(*bytes)),
                limit: None,
            }
        })
        .collect()
}

fn due(row: &Row) -> Vec<Fresh> {
    let rows = (row.due_ids.iter().zip(&row.due_since))
        .zip(row.due_expired.iter().zip(&row.due_bytes))
        .zip(&row.due_limits);
    rows.filter(|((_, (expired, _)), _)| !**expired)
        .map(|(((id, since), (_, bytes)), limit)| Fresh {
            waiting: Waiting {
                attempt: AttemptId(*id),
                since: Timestamp::from_micros(*since),
                first: false,
            },
            bytes: count(i64::from(*bytes)),
            limit: limit.map(|limit| count(i64::from(limit))),
        })
        .collect()
}

/// What opens batches that are due.
fn batched(row: &Row, rules: &BatchRules, (number, scope): (i64, &Scope), now: Timestamp) -> Due {
    let fresh = fresh(row);
    let in_line = |list: &[Fresh]| list.iter().map(Fresh::in_line).collect();
    let ahead = usize::try_from(scope.ahead).unwrap_or(0);
    let lines = Lines {
        waiting: Lanes {
            urgent: in_line(&fresh.urgent),
            firsts: in_line(&fresh.firsts),
            others: in_line(&fresh.others),
        },
        promised: promised(row, now),
        cut: [&row.urgent_ids, &row.first_ids, &row.due_ids]
            .iter()
            .any(|ids| ids.len() >= ahead),
    };
    let openings = openings(rules, &lines, (number, scope.most), now);
    let opens = |place| {
        let lane = Lane::First;
        openings.leaders.contains(&Leader { lane, place })
    };
    let left = fresh
        .firsts
        .iter()
        .enumerate()
        .find(|(place, _)| !opens(*place));
    let leader = |leader: &Leader| fresh.of(leader.lane)[leader.place].waiting;
    Due {
        first_left: left.map(|(_, fresh)| fresh.waiting.attempt),
        // Also one that is too old: until it has been reaped, it waits.
        first_waiting: (row.first_ids.iter().zip(&row.first_since).next())
            .map(|(id, since)| (AttemptId(*id), Timestamp::from_micros(*since))),
        waiting: openings.leaders.iter().map(leader).collect(),
        next_due: openings.next_due,
    }
}

/// The permits that may still start, as leaders.
fn promised(row: &Row, now: Timestamp) -> Vec<(Lane, batch::Waiting)> {
    let lanes = (row.permit_urgent.iter().zip(&row.permit_firsts))
        .map(|(urgent, first)| Lane::of(*urgent, *first));
    let permits = (lanes.zip(&row.not_befores))
        .zip(row.permit_bytes.iter().zip(&row.permit_limits))
        .zip(&row.deadlines)
        .filter(|(_, deadline)| **deadline >= now.as_micros())
        .map(|(permit, _)| permit);
    let leader = |((lane, not_before), (bytes, limit)): ((Lane, &i64), (&i32, &Option<i32>))| {
        let waiting = batch::Waiting {
            since: Timestamp::from_micros(*not_before),
            bytes: count(i64::from(*bytes)),
            limit: limit.map(|limit| count(i64::from(limit))),
        };
        (lane, waiting)
    };
    permits.map(leader).collect()
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

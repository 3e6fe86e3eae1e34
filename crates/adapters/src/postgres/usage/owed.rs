//! What is owed: what has a permit or is under way, and what waits. Every run reads it.

use uuid::Uuid;

use super::statement::Part;
use crate::row::row;

row! {
    /// Of one destination: parallel arrays.
    pub(super) struct Owed {
        pub(super) id: Uuid,
        pub(super) permit_attempts: Vec<i64>,
        pub(super) permit_numbers: Vec<i64>,
        pub(super) permit_epochs: Vec<i64>,
        pub(super) not_befores: Vec<i64>,
        pub(super) deadlines: Vec<i64>,
        pub(super) permit_urgent: Vec<bool>,
        pub(super) permit_firsts: Vec<bool>,
        pub(super) permit_bytes: Vec<i32>,
        pub(super) permit_limits: Vec<Option<i32>>,
        pub(super) in_flight: i64,
        pub(super) wakes: bool,
        pub(super) urgent_ids: Vec<i64>,
        pub(super) urgent_since: Vec<i64>,
        pub(super) urgent_expired: Vec<bool>,
        pub(super) urgent_bytes: Vec<i32>,
        pub(super) first_ids: Vec<i64>,
        pub(super) first_since: Vec<i64>,
        pub(super) first_expired: Vec<bool>,
        pub(super) first_bytes: Vec<i32>,
        pub(super) due_ids: Vec<i64>,
        pub(super) due_since: Vec<i64>,
        pub(super) due_expired: Vec<bool>,
        pub(super) due_bytes: Vec<i32>,
        pub(super) due_limits: Vec<Option<i32>>,
        pub(super) next_due: Option<i64>,
    }
}

/// `id | 0`: of a plain bound the planner may make a walk along all ids since the horizon.
const COLUMNS: &str = "r.id,
        h.permit_attempts, h.permit_numbers, h.permit_epochs, h.not_befores, h.deadlines,
        h.permit_urgent, h.permit_firsts, h.permit_bytes, h.permit_limits,
        cardinality(h.flying_starts)::bigint as in_flight, h.wakes,
        v.urgent_ids, v.urgent_since, v.urgent_expired, v.urgent_bytes,
        w.first_ids, w.first_since, w.first_expired, w.first_bytes,
        d.due_ids, d.due_since, d.due_expired, d.due_bytes, d.due_limits,
        (
            select micros(a.due_at) from deliveries a
            where a.destination_id = r.id and a.permit is null and not a.urgent
                and (a.id | 0) >= $5 and a.due_at > from_micros($4)
            order by a.due_at limit 1
        ) as next_due";

const LISTS: &str = "
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
                as flying_claims,
            coalesce(bool_or(x.crowded), false) as wakes
        from (
            select a.id, a.permit, a.epoch, a.not_before, a.deadline, a.due_at, a.payload_bytes,
                a.batch_limit, a.urgent, a.started_at, a.claimed_at, a.crowded,
                a.state = 'started' as flies
            from deliveries a
            where a.destination_id = r.id and a.permit is not null and a.carried_by is null
            order by a.not_before, a.permit
        ) x
    ) h
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as urgent_ids,
            coalesce(array_agg(micros(x.due_at)), '{}') as urgent_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($4), false)), '{}')
                as urgent_expired,
            coalesce(array_agg(x.payload_bytes), '{}') as urgent_bytes
        from (
            select a.id, a.due_at, a.expires_at, a.payload_bytes from deliveries a
            where a.destination_id = r.id and a.permit is null and a.due_at is not null
                and a.urgent and (a.id | 0) >= $5
            order by a.due_at, a.id limit r.ahead
        ) x
    ) v
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as first_ids,
            coalesce(array_agg(micros(x.created_at)), '{}') as first_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($4), false)), '{}')
                as first_expired,
            coalesce(array_agg(x.payload_bytes), '{}') as first_bytes
        from (
            select a.id, a.created_at, a.expires_at, a.payload_bytes from deliveries a
            where a.destination_id = r.id and a.permit is null and a.due_at is null
                and a.id + 0 > greatest(r.first_after, $5 - 1)
            order by a.id + 0 limit r.ahead
        ) x
    ) w
    cross join lateral (
        select
            coalesce(array_agg(x.id), '{}') as due_ids,
            coalesce(array_agg(micros(x.due_at)), '{}') as due_since,
            coalesce(array_agg(coalesce(x.expires_at <= from_micros($4), false)), '{}')
                as due_expired,
            coalesce(array_agg(x.payload_bytes), '{}') as due_bytes,
            coalesce(array_agg(x.batch_limit), '{}') as due_limits
        from (
            select a.id, a.due_at, a.expires_at, a.payload_bytes, a.batch_limit from deliveries a
            where a.destination_id = r.id and a.permit is null and not a.urgent
                and a.due_at <= from_micros($4) and (a.id | 0) >= $5
            order by a.due_at, a.id limit r.ahead
        ) x
    ) d";

/// Asks `$1` to `$5`: the destinations, how many to read ahead, the cursors, now, and the
/// first id that counts.
pub(super) fn part() -> Part {
    Part {
        columns: COLUMNS,
        arrays: "$1::uuid[], $2::integer[], $3::bigint[]",
        names: "id, ahead, first_after",
        lists: LISTS,
    }
}

//! All the rest that may count: the ends of answers, claims, and coarse buckets with what
//! is in none yet. Few destinations need any of it, and it is most of the nodes of a plan:
//! each list has one for each index of each day, and beginning a statement costs all of
//! them, whatever their limits are.

use super::owed::Owed;
use super::statement::Part;
use crate::row::row;

row! {
    /// Of one destination.
    pub(super) struct Everything {
        pub(super) starts: Vec<i64>,
        ..pub(super) owed: Owed,
        ..pub(super) rest: Rest,
    }
}

row! {
    /// What neither of the others has; nothing where it is not asked for.
    #[derive(Default)]
    pub(super) struct Rest {
        pub(super) answers: Vec<i64>,
        pub(super) claims: Vec<i64>,
        pub(super) bucket_periods: Vec<String>,
        pub(super) bucket_ends: Vec<i64>,
        pub(super) bucket_starts: Vec<i64>,
        pub(super) unfolded_ids: Vec<i64>,
        pub(super) unfolded_starts: Vec<i64>,
        pub(super) unfolded_final: Vec<bool>,
    }
}

/// The answers: their ends, and what had its permit before they counted.
const LISTS: &str = "
    cross join lateral (
        select coalesce(array_agg(x.ended_at), '{}') as answers
        from (
            select y.ended_at from (
                (
                    select micros(a.counted_at) as ended_at from ledger a
                    where a.destination_id = r.id and a.carried_by is null
                        and a.counted_at > from_micros(r.answers_since) and a.id {in_days}
                    order by a.counted_at desc limit r.answers_max
                )
                union all
                (
                    -- The newest of all are enough: what is older than as many as the
                    -- limit is not among its latest ends.
                    select micros(n.started_at) from (
                        (
                            select a.started_at, a.counted_at from ledger a
                            where a.destination_id = r.id
                                and not a.folded and a.carried_by is null
                                and a.started_at > from_micros(r.answers_since) and a.id {in_days}
                            order by a.started_at desc limit r.answers_max
                        )
                        union all
                        (
                            select a.started_at, a.counted_at from ledger a
                            where a.destination_id = r.id
                                and a.folded and a.carried_by is null
                                and a.started_at > from_micros(r.answers_since) and a.id {in_days}
                            order by a.started_at desc limit r.answers_max
                        )
                    ) n
                    where n.counted_at is null
                )
            ) y
            order by y.ended_at desc limit r.answers_max
        ) x
    ) e
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
                    limit case when r.coarse_since is null then 0 else $13 + 1 end
                )
            ) y
            order by y.started_at
        ) x
    ) u";

/// Asks `$8` to `$17`: from when on buckets of each period count, and any of them; the most
/// that are in no bucket; the newest so many claims, after then; the same of answers.
pub(super) fn part() -> Part {
    Part {
        columns: ", e.answers, c.claims, b.bucket_periods, b.bucket_ends, b.bucket_starts,
        u.unfolded_ids, u.unfolded_starts, u.unfolded_final",
        arrays: ", $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
        $14::integer[], $15::bigint[], $16::integer[], $17::bigint[]",
        names: ", second_since, minute_since, hour_since, day_since, coarse_since,
        claims_max, claims_since, answers_max, answers_since",
        lists: LISTS,
    }
}

//! The newest starts, for windows that count them one by one: those under way, which
//! [`super::owed`] lists, and those that are over.

use super::owed::Owed;
use super::statement::Part;
use crate::row::row;

row! {
    /// Of one destination.
    pub(super) struct Starts {
        pub(super) starts: Vec<i64>,
        ..pub(super) owed: Owed,
    }
}

/// Also those in buckets: the limit may have been coarse a moment ago.
const LISTS: &str = "
    cross join lateral (
        select coalesce(array_agg(x.started_at), '{}') as starts
        from (
            select y.started_at from (
                select f.started_at from unnest(h.flying_starts) as f (started_at)
                where f.started_at > r.exact_since
                union all
                (
                    select micros(a.started_at) from ledger a
                    where a.destination_id = r.id and not a.folded and a.carried_by is null
                        and a.started_at > from_micros(r.exact_since) and a.id {in_days}
                    order by a.started_at desc limit r.exact_max
                )
                union all
                (
                    select micros(a.started_at) from ledger a
                    where a.destination_id = r.id and a.folded and a.carried_by is null
                        and a.started_at > from_micros(r.exact_since) and a.id {in_days}
                    order by a.started_at desc limit r.exact_max
                )
            ) y
            order by y.started_at desc limit r.exact_max
        ) x
    ) s";

/// Asks `$6` and `$7`: the newest so many, after then.
pub(super) fn part() -> Part {
    Part {
        columns: ", s.starts",
        arrays: ", $6::integer[], $7::bigint[]",
        names: ", exact_max, exact_since",
        lists: LISTS,
    }
}

//! What a destination uses of its limits, and what waits there: what a run
//! reads before it decides.
//!
//! All of it is read in the transaction that admits, so no permit slips from
//! one list to another. The cost is bounded by the limits and by what a run
//! can admit, never by the backlog.

use std::time::Duration;

use domain::admission::{
    Bucket, CoarseStarts, Newest, Outstanding, Usage, newest_claims, newest_starts,
};
use domain::limit::Count;
use domain::policy::{Limited, Policy, Rate};
use domain::time::Timestamp;
use rusqlite::{Row, Transaction};

use super::buckets::{Buckets, fold_rows};
use super::fault::Fault;
use super::rows::{all, first, time};

/// Starts of a coarse limit that are over and may stay in no bucket. When there are more, a
/// limit has just become coarse, and runs fold as many each until that is done.
const UNFOLDED_MAX: usize = 5_000;

const OUTSTANDING: &str = "
    -- admit: permits that may still start
    select not_before, deadline, crowded from deliveries indexed by deliveries_held
    where destination_id = ?1 and state = 'admitted' and permit is not null
        and carried_by is null";

const IN_FLIGHT: &str = "
    -- admit: attempts in flight
    select count(*), coalesce(max(crowded), 0) from deliveries indexed by deliveries_held
    where destination_id = ?1 and state = 'started' and permit is not null
        and carried_by is null";

const STARTS: &str = "
    -- admit: the newest starts of what is over
    select started_at from ledger indexed by ledger_starts
    where destination_id = ?1 and folded = ?2 and started_at > ?3 and carried_by is null
    order by started_at desc limit ?4";

const UNDER_WAY: &str = "
    -- admit: the newest starts of what is under way
    select started_at from deliveries indexed by deliveries_held
    where destination_id = ?1 and state = 'started' and started_at > ?2
        and permit is not null and carried_by is null
    order by started_at desc limit ?3";

/// Where answers count: their ends.
const ANSWERS: &str = "
    -- admit: the newest answers
    select counted_at from ledger indexed by ledger_answers
    where destination_id = ?1 and counted_at > ?2 and carried_by is null
    order by counted_at desc limit ?3";

/// What had its permit before they did, and is over. The newest of all are enough: what
/// is older than as many as the limit is not among its latest ends.
const UNCOUNTED: &str = "
    -- admit: the newest starts that count as such
    select started_at from (
        select started_at, counted_at from ledger indexed by ledger_starts
        where destination_id = ?1 and folded = ?2 and started_at > ?3 and carried_by is null
        order by started_at desc limit ?4
    )
    where counted_at is null";

/// The table is asked for each of them, so only where something counts claims.
const CLAIMS: &str = "
    -- admit: when the newest starts of what is over were claimed
    select started_at, claimed_at from ledger indexed by ledger_starts
    where destination_id = ?1 and folded = ?2 and started_at > ?3 and carried_by is null
    order by started_at desc limit ?4";

const CLAIMS_UNDER_WAY: &str = "
    -- admit: when the newest starts of what is under way were claimed
    select started_at, claimed_at from deliveries indexed by deliveries_held
    where destination_id = ?1 and state = 'started' and started_at > ?2
        and permit is not null and carried_by is null
    order by started_at desc limit ?3";

const BUCKETS: &str = "
    -- admit: folded starts
    select ends_at, sum(starts) from start_buckets
    where destination_id = ?1 and period = ?2 and ends_at > ?3
    group by ends_at";

/// The statements of a run that meet the ledger, for the test of what they
/// cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 9] = [
    OUTSTANDING,
    IN_FLIGHT,
    STARTS,
    UNDER_WAY,
    ANSWERS,
    UNCOUNTED,
    CLAIMS,
    CLAIMS_UNDER_WAY,
    BUCKETS,
];

/// Fills in what the rows say; `usage` has the meter and the hold already.
pub(super) fn read_usage(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: &str,
    policy: &Policy,
    usage: &mut Usage,
) -> Result<(), Fault> {
    let mut wakes = false;
    usage.outstanding = all(tx, OUTSTANDING, [destination], |row| {
        wakes |= row.get::<_, bool>(2)?;
        Ok(Outstanding {
            not_before: time(row, 0)?,
            deadline: time(row, 1)?,
        })
    })?;
    let in_flight = first(tx, IN_FLIGHT, [destination], |row| {
        Ok((row.get::<_, u32>(0)?, row.get::<_, bool>(1)?))
    })?;
    let (in_flight, flying_wakes) = in_flight.unwrap_or_default();
    usage.in_flight = in_flight;
    usage.wakes = wakes || flying_wakes;
    usage.starts = match policy.count {
        Count::Start => newest(newest_starts(policy), now, |place, since, count| {
            starts(tx, destination, place, since, count)
        })?,
        Count::Response => answers(tx, destination, newest_starts(policy), now)?,
    };
    let claimed = newest(
        newest_claims(policy, usage.recount),
        now,
        |place, since, count| claims(tx, destination, place, since, count),
    )?;
    usage.claims = claimed
        .into_iter()
        .map(|(_, claimed_at)| claimed_at)
        .collect();
    usage.claims.sort_unstable_by(|a, b| b.cmp(a));
    let Rate::Limited(limited) = &policy.rate else {
        return Ok(());
    };
    if let Some(longest) = longest_coarse(limited, policy) {
        read_coarse(tx, now, destination, (limited, policy), longest, usage)?;
    }
    Ok(())
}

/// How far back the coarse windows look; `None` where there are none.
fn longest_coarse(limited: &Limited, policy: &Policy) -> Option<Duration> {
    (limited.windows.iter())
        .filter(|limit| limit.is_coarse())
        .map(|limit| policy.stretched(*limit))
        .max()
}

/// Where starts stand.
#[derive(Debug, Clone, Copy)]
enum Starts {
    UnderWay,
    /// Over, and in its buckets or in none.
    Over {
        folded: bool,
    },
}

impl Starts {
    const ALL: [Self; 3] = [
        Self::UnderWay,
        Self::Over { folded: false },
        Self::Over { folded: true },
    ];
}

/// The newest of all.
fn newest<T: Ord>(
    asked: Option<Newest>,
    now: Timestamp,
    read: impl Fn(Starts, Timestamp, usize) -> Result<Vec<T>, Fault>,
) -> Result<Vec<T>, Fault> {
    let Some(asked) = asked else {
        return Ok(Vec::new());
    };
    let (since, count) = (now - asked.period, asked.count as usize);
    let mut starts = Vec::new();
    for place in Starts::ALL {
        starts.extend(read(place, since, count)?);
    }
    starts.sort_unstable_by(|a, b| b.cmp(a));
    starts.truncate(count);
    Ok(starts)
}

/// Starts, and when they were claimed.
fn claims(
    tx: &Transaction<'_>,
    destination: &str,
    place: Starts,
    since: Timestamp,
    count: usize,
) -> Result<Vec<(Timestamp, Timestamp)>, Fault> {
    let (since, count) = (since.as_micros(), i64::try_from(count).unwrap_or(i64::MAX));
    let read = |row: &Row<'_>| Ok((time(row, 0)?, time(row, 1)?));
    match place {
        Starts::UnderWay => all(tx, CLAIMS_UNDER_WAY, (destination, since, count), read),
        Starts::Over { folded } => all(tx, CLAIMS, (destination, folded, since, count), read),
    }
}

/// The ends of answers, and starts that count as such.
fn answers(
    tx: &Transaction<'_>,
    destination: &str,
    asked: Option<Newest>,
    now: Timestamp,
) -> Result<Vec<Timestamp>, Fault> {
    let Some(asked) = asked else {
        return Ok(Vec::new());
    };
    let since = (now - asked.period).as_micros();
    let of = (destination, since, asked.count);
    let mut ends = all(tx, ANSWERS, of, |row| time(row, 0))?;
    for folded in [false, true] {
        let of = (destination, folded, since, asked.count);
        ends.extend(all(tx, UNCOUNTED, of, |row| time(row, 0))?);
    }
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ends.truncate(asked.count as usize);
    Ok(ends)
}

fn starts(
    tx: &Transaction<'_>,
    destination: &str,
    place: Starts,
    since: Timestamp,
    count: usize,
) -> Result<Vec<Timestamp>, Fault> {
    let (since, count) = (since.as_micros(), i64::try_from(count).unwrap_or(i64::MAX));
    let read = |row: &Row<'_>| time(row, 0);
    match place {
        Starts::UnderWay => all(tx, UNDER_WAY, (destination, since, count), read),
        Starts::Over { folded } => all(tx, STARTS, (destination, folded, since, count), read),
    }
}

fn read_coarse(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: &str,
    (limited, policy): (&Limited, &Policy),
    longest: Duration,
    usage: &mut Usage,
) -> Result<(), Fault> {
    let since = now - longest;
    let over = Starts::Over { folded: false };
    let mut unfolded = starts(tx, destination, over, since, UNFOLDED_MAX + 1)?;
    if unfolded.len() > UNFOLDED_MAX {
        let mut buckets = Buckets::default();
        fold_rows(tx, destination, since, UNFOLDED_MAX, &mut buckets)?;
        buckets.write(tx)?;
        unfolded = starts(tx, destination, over, since, UNFOLDED_MAX + 1)?;
        usage.incomplete = unfolded.len() > UNFOLDED_MAX;
    }
    unfolded.extend(starts(
        tx,
        destination,
        Starts::UnderWay,
        since,
        usize::MAX,
    )?);
    for limit in limited.windows.iter().filter(|limit| limit.is_coarse()) {
        let since = now - policy.stretched(*limit);
        let params = (destination, limit.period.as_str(), since.as_micros());
        let buckets = all(tx, BUCKETS, params, |row| {
            Ok(Bucket {
                ends_at: time(row, 0)?,
                starts: row.get(1)?,
            })
        })?;
        let in_period = unfolded.iter().copied().filter(|start| *start > since);
        usage.coarse.push(CoarseStarts {
            period: limit.period,
            buckets,
            unfolded: in_period.collect(),
        });
    }
    Ok(())
}

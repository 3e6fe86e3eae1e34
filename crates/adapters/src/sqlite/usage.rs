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
use rusqlite::Transaction;

use super::buckets::{Buckets, fold_rows};
use super::fault::Fault;
use super::rows::{all, first, time};

/// Starts of a coarse limit that may stay in no bucket, beside those in
/// flight. When there are more, a limit has just become coarse, and runs fold
/// as many each until that is done.
const UNFOLDED_MAX: usize = 5_000;

const OUTSTANDING: &str = "
    -- admit: permits that may still start
    select not_before, deadline from attempts indexed by attempts_admitted
    where destination_id = ?1 and state = 'admitted'";

const IN_FLIGHT: &str = "
    -- admit: attempts in flight
    select count(*) from attempts indexed by attempts_in_flight
    where destination_id = ?1 and state = 'started' and carried_by is null";

const STARTS: &str = "
    -- admit: the newest starts
    select started_at from attempts indexed by attempts_starts
    where destination_id = ?1 and folded = ?2 and started_at > ?3 and carried_by is null
    order by started_at desc limit ?4";

/// Where answers count: their ends.
const ANSWERS: &str = "
    -- admit: the newest answers
    select counted_at from attempts indexed by attempts_answers
    where destination_id = ?1 and counted_at > ?2 and carried_by is null
    order by counted_at desc limit ?3";

/// What had its permit before they did, and is over. The newest of all are enough: what
/// is older than as many as the limit is not among its latest ends.
const UNCOUNTED: &str = "
    -- admit: the newest starts that count as such
    select started_at from (
        select started_at, counted_at, state from attempts indexed by attempts_starts
        where destination_id = ?1 and folded = ?2 and started_at > ?3 and carried_by is null
        order by started_at desc limit ?4
    )
    where counted_at is null and state <> 'started'";

/// The table is asked for each of them, so only where something counts claims.
const CLAIMS: &str = "
    -- admit: when the newest starts were claimed
    select started_at, claimed_at from attempts indexed by attempts_starts
    where destination_id = ?1 and folded = ?2 and started_at > ?3 and carried_by is null
    order by started_at desc limit ?4";

const BUCKETS: &str = "
    -- admit: folded starts
    select ends_at, sum(starts) from start_buckets
    where destination_id = ?1 and period = ?2 and ends_at > ?3
    group by ends_at";

/// The statements of a run that meet the ledger, for the test of what they
/// cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 7] = [
    OUTSTANDING,
    IN_FLIGHT,
    STARTS,
    ANSWERS,
    UNCOUNTED,
    CLAIMS,
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
    usage.outstanding = all(tx, OUTSTANDING, [destination], |row| {
        Ok(Outstanding {
            not_before: time(row, 0)?,
            deadline: time(row, 1)?,
        })
    })?;
    usage.in_flight = first(tx, IN_FLIGHT, [destination], |row| Ok(row.get(0)?))?.unwrap_or(0);
    usage.starts = match policy.count {
        Count::Start => newest(newest_starts(policy), now, |folded, since, count| {
            starts(tx, destination, folded, since, count)
        })?,
        Count::Response => answers(tx, destination, newest_starts(policy), now)?,
    };
    let claimed = newest(
        newest_claims(policy, usage.recount),
        now,
        |folded, since, count| claims(tx, destination, folded, since, count),
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

/// The newest of what is folded and what is not.
fn newest<T: Ord>(
    asked: Option<Newest>,
    now: Timestamp,
    read: impl Fn(bool, Timestamp, usize) -> Result<Vec<T>, Fault>,
) -> Result<Vec<T>, Fault> {
    let Some(asked) = asked else {
        return Ok(Vec::new());
    };
    let (since, count) = (now - asked.period, asked.count as usize);
    let mut starts = read(false, since, count)?;
    starts.extend(read(true, since, count)?);
    starts.sort_unstable_by(|a, b| b.cmp(a));
    starts.truncate(count);
    Ok(starts)
}

/// Starts, and when they were claimed.
fn claims(
    tx: &Transaction<'_>,
    destination: &str,
    folded: bool,
    since: Timestamp,
    count: usize,
) -> Result<Vec<(Timestamp, Timestamp)>, Fault> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let params = (destination, folded, since.as_micros(), count);
    all(tx, CLAIMS, params, |row| Ok((time(row, 0)?, time(row, 1)?)))
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
    folded: bool,
    since: Timestamp,
    count: usize,
) -> Result<Vec<Timestamp>, Fault> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let params = (destination, folded, since.as_micros(), count);
    all(tx, STARTS, params, |row| time(row, 0))
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
    let in_flight = usize::try_from(usage.in_flight).unwrap_or(usize::MAX);
    let most = UNFOLDED_MAX.saturating_add(in_flight);
    let mut unfolded = starts(tx, destination, false, since, most + 1)?;
    if unfolded.len() > most {
        // Final rows for certain: there are more than are in flight.
        let mut buckets = Buckets::default();
        fold_rows(tx, destination, since, UNFOLDED_MAX, &mut buckets)?;
        buckets.write(tx)?;
        unfolded = starts(tx, destination, false, since, most + 1)?;
        usage.incomplete = unfolded.len() > most;
    }
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

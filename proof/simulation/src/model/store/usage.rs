//! What a destination uses of its limits: what a run reads before it decides.

use std::time::Duration;

use domain::admission::{Bucket, CoarseStarts, Outstanding, Usage, newest_starts};
use domain::ids::{AttemptId, DestinationId};
use domain::policy::{Limited, Policy, Rate};
use domain::time::Timestamp;

use super::indexes::{Folded, Indexes};
use super::rows::Rows;

/// Starts of a coarse limit that may stay in no bucket, beside those in
/// flight; runs fold as many each until that is done. As in the drivers.
const UNFOLDED_MAX: usize = 5_000;

/// What the rows say; the meter and the hold are given.
pub(super) fn read_usage(
    rows: &mut Rows,
    now: Timestamp,
    destination: DestinationId,
    policy: &Policy,
    remembered: Usage,
) -> Usage {
    let mut usage = remembered;
    let outstanding = rows.ledger.permits_of(destination);
    usage.outstanding = outstanding
        .map(|permit| Outstanding {
            not_before: permit.not_before,
            deadline: permit.deadline,
        })
        .collect();
    usage.in_flight = rows.ledger.in_flight(destination);
    if let Some(newest) = newest_starts(policy, usage.recount)
        && let Some(indexes) = rows.ledger.indexes(destination)
    {
        let (since, count) = (now - newest.period, newest.count as usize);
        let newest = |folded| indexes.starts(folded, since).rev().take(count);
        let starts = newest(Folded::No).chain(newest(Folded::Yes));
        usage.starts = starts.map(|(started_at, _)| started_at).collect();
        usage.starts.sort_unstable_by(|a, b| b.cmp(a));
        usage.starts.truncate(count);
    }
    let Rate::Limited(limited) = &policy.rate else {
        return usage;
    };
    if let Some(longest) = longest_coarse(limited, policy) {
        let since = now - longest;
        let in_flight = usize::try_from(usage.in_flight).unwrap_or(usize::MAX);
        let most = UNFOLDED_MAX.saturating_add(in_flight);
        usage.incomplete = !fold_down_to(rows, now, destination, since, most);
        if let Some(indexes) = rows.ledger.indexes(destination) {
            usage.coarse = coarse_starts(indexes, now, limited, policy);
        }
    }
    usage
}

/// How far back the coarse windows look; `None` where there are none.
fn longest_coarse(limited: &Limited, policy: &Policy) -> Option<Duration> {
    (limited.windows.iter())
        .filter(|limit| limit.is_coarse())
        .map(|limit| policy.stretched(limit.period))
        .max()
}

/// Folds the oldest final starts after `since`, up to [`UNFOLDED_MAX`] of them,
/// if more than `most` are in no bucket. Whether no more than `most` are left.
fn fold_down_to(
    rows: &mut Rows,
    now: Timestamp,
    destination: DestinationId,
    since: Timestamp,
    most: usize,
) -> bool {
    let unfolded = |rows: &Rows| -> Vec<(Timestamp, AttemptId)> {
        let indexes = rows.ledger.indexes(destination).into_iter();
        let starts = indexes.flat_map(|indexes| indexes.starts(Folded::No, since));
        starts.collect()
    };
    let starts = unfolded(rows);
    if starts.len() <= most {
        return true;
    }
    let is_final = |id: &AttemptId| rows.ledger.get(*id).is_some_and(|row| row.state.is_final());
    let to_fold = starts.into_iter().filter(|(_, id)| is_final(id));
    let to_fold: Vec<_> = to_fold.take(UNFOLDED_MAX).collect();
    for (started_at, id) in to_fold {
        rows.ledger.change(now, id, |row| row.folded = true);
        rows.ledger.add_to_buckets(destination, started_at);
    }
    unfolded(rows).len() <= most
}

fn coarse_starts(
    indexes: &Indexes,
    now: Timestamp,
    limited: &Limited,
    policy: &Policy,
) -> Vec<CoarseStarts> {
    let coarse = limited.windows.iter().filter(|limit| limit.is_coarse());
    let of = |period| {
        let since = now - policy.stretched(period);
        let after = Timestamp::from_micros(since.as_micros().saturating_add(1));
        let buckets = indexes
            .buckets
            .range((period, after)..=(period, Timestamp::MAX))
            .map(|((_, ends_at), starts)| Bucket {
                ends_at: *ends_at,
                starts: *starts,
            });
        let unfolded = indexes.starts(Folded::No, since);
        CoarseStarts {
            period,
            buckets: buckets.collect(),
            unfolded: unfolded.map(|(started_at, _)| started_at).collect(),
        }
    };
    coarse.map(|limit| of(limit.period)).collect()
}

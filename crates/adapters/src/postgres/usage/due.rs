//! What a run may admit of what waits: the lanes in turn, or what opens batches.

use domain::batch::{self, BatchRules, Leader, Lines, openings};
use domain::ids::AttemptId;
use domain::time::Timestamp;
use domain::turns::{Lane, Lanes, in_turn};

use super::owed::Owed;
use super::{Scope, Waiting};
use crate::postgres::rows::count;

/// What a run may admit.
pub(super) struct Due {
    pub(super) waiting: Vec<Waiting>,
    pub(super) first_left: Option<AttemptId>,
    pub(super) first_waiting: Option<(AttemptId, Timestamp)>,
    /// When the next batch is due.
    pub(super) next_due: Option<Timestamp>,
}

impl Due {
    pub(super) const fn of(waiting: Vec<Waiting>) -> Self {
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
pub(super) fn merged(row: &Owed, number: i64, ahead: i32) -> Vec<Waiting> {
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

fn fresh(row: &Owed) -> Lanes<Vec<Fresh>> {
    Lanes {
        urgent: urgent(row),
        firsts: firsts(row),
        others: due(row),
    }
}

fn urgent(row: &Owed) -> Vec<Fresh> {
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

fn firsts(row: &Owed) -> Vec<Fresh> {
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

fn due(row: &Owed) -> Vec<Fresh> {
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
pub(super) fn batched(
    row: &Owed,
    rules: &BatchRules,
    (number, scope): (i64, &Scope),
    now: Timestamp,
) -> Due {
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
fn promised(row: &Owed, now: Timestamp) -> Vec<(Lane, batch::Waiting)> {
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

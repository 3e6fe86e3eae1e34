//! One destination's rows, in the orders in which they are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, PermitNumber};
use domain::limit::Period;
use domain::time::{Timestamp, micros};

use super::rows::Attempt;

/// One destination's rows, in the orders in which they are asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Indexes {
    pub(super) all: BTreeSet<AttemptId>,
    /// First attempts that wait and were never admitted.
    pub(super) first: BTreeSet<AttemptId>,
    /// Of these, what admission does not see: it went past them before they were
    /// committed.
    pub(super) passed: BTreeSet<AttemptId>,
    /// All others that wait, by when they are due.
    pub(super) due: BTreeSet<(Timestamp, AttemptId)>,
    /// Permits by slot.
    pub(super) admitted: BTreeSet<(Timestamp, PermitNumber, AttemptId)>,
    /// Dead letters that were not replayed, by when they died.
    pub(super) dead: BTreeSet<(Timestamp, AttemptId)>,
    /// What has started, carried or not.
    pub(super) started: BTreeSet<AttemptId>,
    pub(super) in_flight: u32,
    /// What is in no bucket, and what is in one.
    starts: [BTreeSet<(Timestamp, AttemptId)>; 2],
    /// Folded starts by period and end of the bucket.
    pub(super) buckets: BTreeMap<(Period, Timestamp), u32>,
}

impl Indexes {
    /// The starts after `since` that are folded or not, the earliest first.
    pub(super) fn starts(
        &self,
        folded: Folded,
        since: Timestamp,
    ) -> impl DoubleEndedIterator<Item = (Timestamp, AttemptId)> {
        let after = Bound::Excluded((since, AttemptId(i64::MAX)));
        let of = &self.starts[folded as usize];
        of.range((after, Bound::Unbounded)).copied()
    }

    /// Adds a start to a bucket of each period. Its row has to be marked as
    /// folded in the same step.
    pub(super) fn add_to_buckets(&mut self, started_at: Timestamp) {
        for period in Period::ALL {
            let key = (period, bucket_end(period, started_at));
            *self.buckets.entry(key).or_default() += 1;
        }
    }

    /// First attempts that wait and that admission sees.
    pub(super) fn seen_first(&self) -> impl Iterator<Item = AttemptId> {
        self.first.difference(&self.passed).copied()
    }

    /// Whether a first attempt waits that admission does not see.
    pub(super) fn hides_first(&self) -> bool {
        !self.first.is_disjoint(&self.passed)
    }

    /// What waits, is admitted or has started.
    pub(super) fn pending(&self) -> u64 {
        let waiting = self.first.len() + self.due.len();
        (waiting + self.admitted.len() + self.started.len()) as u64
    }

    /// Whether something waits or is admitted.
    pub(super) fn has_work(&self) -> bool {
        !(self.first.is_empty() && self.due.is_empty() && self.admitted.is_empty())
    }

    /// Puts a row into the indexes of its state, or takes it out.
    pub(super) fn put(&mut self, row: &Attempt, how: Put) {
        match (row.state, row.due_at, &row.permit) {
            (AttemptState::Waiting, None, _) => how.apply(&mut self.first, row.id),
            (AttemptState::Waiting, Some(due_at), _) => how.apply(&mut self.due, (due_at, row.id)),
            (AttemptState::Admitted, _, Some(permit)) => {
                let key = (permit.not_before, permit.number, row.id);
                how.apply(&mut self.admitted, key);
            }
            (AttemptState::Started, ..) => {
                how.apply(&mut self.started, row.id);
                match how {
                    // One that is carried is no start.
                    _ if row.carried_by.is_some() => {}
                    Put::In => self.in_flight += 1,
                    Put::Out => self.in_flight -= 1,
                }
            }
            _ => {}
        }
        if let Some(died_at) = row.died_at().filter(|_| row.is_open_dead_letter()) {
            how.apply(&mut self.dead, (died_at, row.id));
        }
        // One that is carried is no start.
        if let Some(started_at) = row.started_at.filter(|_| row.carried_by.is_none()) {
            let starts = &mut self.starts[usize::from(row.folded)];
            how.apply(starts, (started_at, row.id));
        }
    }
}

/// Which starts: an index of [`Indexes::starts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folded {
    No = 0,
    Yes = 1,
}

/// Into an index, or out of it.
#[derive(Clone, Copy)]
pub(super) enum Put {
    In,
    Out,
}

impl Put {
    pub(super) fn apply<T: Ord>(self, index: &mut BTreeSet<T>, key: T) {
        match self {
            Self::In => index.insert(key),
            Self::Out => index.remove(&key),
        };
    }
}

/// The end, exclusive, of the bucket that contains a start.
fn bucket_end(period: Period, started_at: Timestamp) -> Timestamp {
    let bucket = micros(period.bucket());
    let number = started_at.as_micros().div_euclid(bucket) + 1;
    Timestamp::from_micros(number.saturating_mul(bucket))
}

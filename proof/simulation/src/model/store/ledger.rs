//! The attempts and their indexes. Every change of a row goes through
//! [`Ledger::change`], so that an index always says what the rows say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId};
use domain::permit::Permit;
use domain::time::Timestamp;

use super::indexes::{Folded, Indexes, Put};
use super::rows::Attempt;

/// A change of an attempt's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Whose.
    pub attempt: AttemptId,
    /// At which destination.
    pub destination: DestinationId,
    /// What it was; `None` for a new row.
    pub from: Option<AttemptState>,
    /// What it is.
    pub to: AttemptState,
    /// When, by the store's clock.
    pub at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ledger {
    attempts: BTreeMap<AttemptId, Attempt>,
    by_destination: BTreeMap<DestinationId, Indexes>,
    /// Admitted rows by deadline.
    pub(super) by_deadline: BTreeSet<(Timestamp, AttemptId)>,
    /// Started rows by start.
    pub(super) in_flight: BTreeSet<(Timestamp, AttemptId)>,
    /// Waiting rows that expire, by when they do.
    pub(super) expiring: BTreeSet<(Timestamp, AttemptId)>,
    /// Destinations where something waits or is admitted.
    pub(super) busy: BTreeSet<DestinationId>,
    /// Dead letters that nobody has counted yet.
    pub(super) tallies: BTreeMap<DestinationId, u64>,
    last_id: i64,
    transitions: Option<Vec<Transition>>,
}

impl Ledger {
    pub(super) fn note_transitions(&mut self) {
        self.transitions.get_or_insert_default();
    }

    pub(super) fn take_transitions(&mut self) -> Vec<Transition> {
        let taken = self.transitions.as_mut();
        taken.map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn get(&self, id: AttemptId) -> Option<&Attempt> {
        self.attempts.get(&id)
    }

    pub(super) fn attempts(&self) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.attempts.values()
    }

    /// Attempts after this one, in creation order.
    pub(super) fn after(&self, after: AttemptId) -> impl Iterator<Item = &Attempt> {
        let after = (Bound::Excluded(after), Bound::Unbounded);
        self.attempts.range(after).map(|(_, row)| row)
    }

    pub(super) fn indexes(&self, destination: DestinationId) -> Option<&Indexes> {
        self.by_destination.get(&destination)
    }

    pub(super) fn indexes_mut(&mut self) -> impl Iterator<Item = &mut Indexes> {
        self.by_destination.values_mut()
    }

    pub(super) fn attempts_of(
        &self,
        destination: DestinationId,
    ) -> impl DoubleEndedIterator<Item = &Attempt> {
        let indexes = self.indexes(destination).into_iter();
        let ids = indexes.flat_map(|indexes| indexes.all.iter());
        ids.filter_map(|id| self.attempts.get(id))
    }

    /// A destination's attempts before `before`, the newest first.
    pub(super) fn newest_of(
        &self,
        destination: DestinationId,
        before: AttemptId,
    ) -> impl Iterator<Item = &Attempt> {
        let indexes = self.indexes(destination).into_iter();
        let ids = indexes.flat_map(move |indexes| indexes.all.range(..before).rev());
        ids.filter_map(|id| self.attempts.get(id))
    }

    pub(super) fn starts_of(
        &self,
        destination: DestinationId,
        since: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, AttemptId)> {
        let of = |indexes: &Indexes| {
            let unfolded = indexes.starts(Folded::No, since);
            let mut starts: Vec<_> = unfolded.chain(indexes.starts(Folded::Yes, since)).collect();
            starts.sort_unstable();
            starts
        };
        let starts = self.indexes(destination).map(of);
        starts.unwrap_or_default().into_iter()
    }

    pub(super) fn waiting(&self, destination: DestinationId) -> usize {
        let waiting = |indexes: &Indexes| indexes.first.len() + indexes.due.len();
        self.indexes(destination).map_or(0, waiting)
    }

    pub(super) fn in_flight(&self, destination: DestinationId) -> u32 {
        self.indexes(destination).map_or(0, |of| of.in_flight)
    }

    pub(super) fn permits_of(&self, destination: DestinationId) -> impl Iterator<Item = &Permit> {
        let indexes = self.indexes(destination).into_iter();
        let admitted = indexes.flat_map(|indexes| indexes.admitted.iter());
        admitted.filter_map(|(_, _, id)| self.attempts.get(id)?.permit.as_ref())
    }

    /// Gives an id.
    pub(super) fn next_id(&mut self) -> AttemptId {
        self.last_id += 1;
        AttemptId(self.last_id)
    }

    /// Adds a row, with the next id.
    pub(super) fn insert(&mut self, at: Timestamp, row: Attempt) -> AttemptId {
        let id = self.next_id();
        self.put_in(at, Attempt { id, ..row });
        id
    }

    /// Adds a row that has its id.
    pub(super) fn put_in(&mut self, at: Timestamp, row: Attempt) {
        let id = row.id;
        let destination = row.destination;
        self.by_destination
            .entry(destination)
            .or_default()
            .all
            .insert(id);
        self.put(&row, Put::In);
        self.note(&row, None, at);
        self.attempts.insert(id, row);
    }

    /// Admission has gone past this first attempt before it was there.
    pub(super) fn pass(&mut self, destination: DestinationId, id: AttemptId) {
        let indexes = self.by_destination.entry(destination).or_default();
        indexes.passed.insert(id);
    }

    /// Admission goes back to what waits first.
    pub(super) fn go_back(&mut self, destination: DestinationId) {
        if let Some(indexes) = self.by_destination.get_mut(&destination) {
            indexes.passed.clear();
        }
    }

    /// Changes a row, if it is there.
    pub(super) fn change(
        &mut self,
        at: Timestamp,
        id: AttemptId,
        change: impl FnOnce(&mut Attempt),
    ) {
        let Some(mut row) = self.attempts.remove(&id) else {
            return;
        };
        self.put(&row, Put::Out);
        let (from, was_dead) = (row.state, row.dead_letter);
        change(&mut row);
        self.put(&row, Put::In);
        if row.dead_letter && !was_dead {
            *self.tallies.entry(row.destination).or_default() += 1;
        }
        if row.state != from {
            self.note(&row, Some(from), at);
        }
        self.attempts.insert(id, row);
    }

    /// Adds a row's start to a bucket of each period; see
    /// [`Indexes::add_to_buckets`].
    pub(super) fn add_to_buckets(&mut self, destination: DestinationId, started_at: Timestamp) {
        let indexes = self.by_destination.entry(destination).or_default();
        indexes.add_to_buckets(started_at);
    }

    /// Whether it is final since before `before`, or forgotten.
    pub(super) fn ended_before(&self, id: AttemptId, before: Timestamp) -> bool {
        self.get(id).is_none_or(|row| {
            let last = row.finished_at.max(row.started_at).max(row.admitted_at);
            row.state.is_final() && last.unwrap_or(row.created_at) < before
        })
    }

    /// Forgets a row. What was folded stays in its buckets.
    pub(super) fn remove(&mut self, id: AttemptId) {
        let Some(row) = self.attempts.remove(&id) else {
            return;
        };
        self.put(&row, Put::Out);
        if let Some(indexes) = self.by_destination.get_mut(&row.destination) {
            indexes.all.remove(&id);
        }
    }

    fn put(&mut self, row: &Attempt, how: Put) {
        let indexes = self.by_destination.entry(row.destination).or_default();
        indexes.put(row, how);
        let busy = match indexes.has_work() {
            true => Put::In,
            false => Put::Out,
        };
        busy.apply(&mut self.busy, row.destination);
        match (row.state, &row.permit, row.started_at) {
            (AttemptState::Admitted, Some(permit), _) => {
                how.apply(&mut self.by_deadline, (permit.deadline, row.id));
            }
            (AttemptState::Started, _, Some(started_at)) => {
                how.apply(&mut self.in_flight, (started_at, row.id));
            }
            (AttemptState::Waiting, ..) => {
                if let Some(at) = row.expires_at {
                    how.apply(&mut self.expiring, (at, row.id));
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, row: &Attempt, from: Option<AttemptState>, at: Timestamp) {
        if let Some(transitions) = &mut self.transitions {
            transitions.push(Transition {
                attempt: row.id,
                destination: row.destination,
                from,
                to: row.state,
                at,
            });
        }
    }
}

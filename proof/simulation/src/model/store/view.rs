//! What may be read of the rows: by the steps, and by invariants.

use domain::batch::BatchRules;
use domain::compliance::InForce;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::LimitHistory;

use super::rows::{Attempt, DestinationRow, EventRow, Rows};

impl Rows {
    /// All attempts, in creation order.
    pub fn attempts(&self) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.ledger.attempts()
    }

    /// One attempt.
    #[must_use]
    pub fn attempt(&self, id: AttemptId) -> Option<&Attempt> {
        self.ledger.get(id)
    }

    /// An attempt that is not over, or a dead letter that can be replayed, and
    /// whose event is not there.
    #[must_use]
    pub fn orphan(&self) -> Option<AttemptId> {
        let mut needing = (self.ledger.attempts())
            .filter(|row| !row.state.is_final() || row.is_open_dead_letter());
        let orphan = needing.find(|row| !self.events.contains_key(&row.event));
        orphan.map(|row| row.id)
    }

    /// A destination's attempts, in creation order.
    pub fn attempts_of(
        &self,
        destination: DestinationId,
    ) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.ledger.attempts_of(destination)
    }

    /// A destination's starts after `since`, the earliest first.
    pub fn starts_of(
        &self,
        destination: DestinationId,
        since: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, AttemptId)> {
        self.ledger.starts_of(destination, since)
    }

    /// When a destination is looked at next, as its last run planned.
    #[must_use]
    pub fn next_look_at(&self, destination: DestinationId) -> Option<Timestamp> {
        self.destinations.get(&destination)?.pacing.next_look_at
    }

    /// How many attempts of a destination wait, due or not.
    #[must_use]
    pub fn waiting(&self, destination: DestinationId) -> usize {
        self.ledger.waiting(destination)
    }

    /// How many attempts are in flight at a destination.
    #[must_use]
    pub fn in_flight(&self, destination: DestinationId) -> u32 {
        self.ledger.in_flight(destination)
    }

    /// The permits of a destination that may still start, by slot.
    pub fn permits_of(&self, destination: DestinationId) -> impl Iterator<Item = &Permit> {
        self.ledger.permits_of(destination)
    }

    /// Destinations where something waits or is admitted, in id order.
    pub fn busy(&self) -> impl Iterator<Item = DestinationId> {
        self.ledger.busy.iter().copied()
    }

    /// All events, in id order.
    pub fn events(&self) -> impl Iterator<Item = (EventId, &EventRow)> {
        self.events.iter().map(|(id, event)| (*id, event))
    }

    /// One event.
    #[must_use]
    pub fn event(&self, id: EventId) -> Option<&EventRow> {
        self.events.get(&id)
    }

    /// All destinations in id order, deleted ones too.
    pub fn destinations(&self) -> impl Iterator<Item = DestinationId> {
        self.destinations.keys().copied()
    }

    /// What was in force from when on at a destination, for the judge.
    #[must_use]
    pub fn in_force(&self, destination: DestinationId) -> Vec<InForce> {
        let entry =
            |entry: LimitHistory| InForce::new(entry.in_force_from, &entry.effective, entry.state);
        self.history(destination).into_iter().map(entry).collect()
    }

    /// Limit history in the order of its times.
    pub(super) fn history(&self, destination: DestinationId) -> Vec<LimitHistory> {
        let row = self.destinations.get(&destination);
        let mut history = row.map(|row| row.history.clone()).unwrap_or_default();
        history.sort_by_key(|entry| entry.in_force_from);
        history
    }

    /// What its requests are batches by; `None` if they are not.
    #[must_use]
    pub fn batches(&self, id: DestinationId) -> Option<BatchRules> {
        self.destinations.get(&id)?.batches.rules()
    }

    /// Whether a run at `now` has left both first attempts and others that it
    /// could have admitted, and nothing that is too old stood before them.
    #[must_use]
    pub fn both_wait(&self, id: DestinationId, now: Timestamp) -> bool {
        // More than a run looks at.
        const LOOKED_AT: usize = 600;
        let Some(of) = self.ledger.indexes(id) else {
            return false;
        };
        let fresh = |id: AttemptId| {
            let row = self.ledger.get(id);
            row.is_some_and(|row| row.expires_at.is_none_or(|at| at > now))
        };
        let due = of.due.range(..=(now, AttemptId(i64::MAX)));
        let mut others = due.map(|(_, id)| *id).take(LOOKED_AT).peekable();
        let mut firsts = of.seen_first().take(LOOKED_AT).peekable();
        firsts.peek().is_some() && others.peek().is_some() && firsts.chain(others).all(fresh)
    }

    /// How many of these permits were given at `now` to first attempts, and how
    /// many to others.
    #[must_use]
    pub fn turns(&self, permits: &[Permit], now: Timestamp) -> (usize, usize) {
        let rows = permits
            .iter()
            .filter_map(|one| self.ledger.get(one.attempt));
        let given = rows.filter(|row| row.admitted_at == Some(now));
        let (firsts, others): (Vec<_>, Vec<_>) = given.partition(|row| row.due_at.is_none());
        (firsts.len(), others.len())
    }

    /// The dead letters of a destination that were replayed, and the attempts
    /// that replays have made: event and try, in order.
    #[must_use]
    pub fn replayed(&self, id: DestinationId) -> [Vec<(EventId, u32)>; 2] {
        let (mut dead, mut made) = (Vec::new(), Vec::new());
        for row in self.ledger.attempts_of(id) {
            if row.replayed_at.is_some() {
                dead.push((row.event, row.try_number));
            }
            if row.replay.is_some() {
                made.push((row.event, row.tries_before));
            }
        }
        dead.sort_unstable();
        made.sort_unstable();
        [dead, made]
    }

    /// Whose a destination is, deleted or not.
    #[must_use]
    pub fn tenant_of(&self, id: DestinationId) -> Option<TenantId> {
        self.destinations.get(&id).map(|row| row.tenant)
    }

    /// A destination that is not deleted.
    pub(super) fn living(&self, id: DestinationId) -> Option<&DestinationRow> {
        (self.destinations.get(&id)).filter(|row| row.deleted_at.is_none())
    }

    /// Its limits, with the tier's where they inherit.
    pub(super) fn effective(&self, row: &DestinationRow) -> LimitSettings {
        let tier = self.tenants.get(&row.tenant);
        let tier = tier.and_then(|tier| self.tiers.get(tier));
        tier.map_or(row.limits, |tier| row.limits.or_tier(tier))
    }

    /// See [`super::ModelStore::forget_finished`].
    pub(super) fn forget_finished(&mut self, before: Timestamp) -> usize {
        let ledger = &mut self.ledger;
        let mut forgotten = 0;
        self.events.retain(|_, event| {
            let is_over = event.created_at < before
                && (event.attempts.iter()).all(|id| ledger.ended_before(*id, before));
            if is_over {
                forgotten += event.attempts.len();
                event.attempts.iter().for_each(|id| ledger.remove(*id));
            }
            !is_over
        });
        forgotten
    }
}

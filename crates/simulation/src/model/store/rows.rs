//! The tables, row by row.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use domain::admission::Meter;
use domain::attempt::AttemptState;
use domain::compliance::InForce;
use domain::destination::DestinationState;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, TenantId, WorkerId};
use domain::limit::Shape;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{DEFAULT_TENANT, LimitHistory};

use super::ledger::Ledger;

/// An attempt's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// Which event.
    pub event: EventId,
    /// To whom.
    pub destination: DestinationId,
    /// Which try.
    pub try_number: u32,
    /// Where it stands.
    pub state: AttemptState,
    /// `None`: a first attempt that was never admitted. Else when a retry is
    /// due, or the creation of one whose permit was returned.
    pub due_at: Option<Timestamp>,
    /// The permit that it has, or that it started under.
    pub permit: Option<Permit>,
    /// A coarse limit counts its start, so its outcome folds it.
    pub coarse: bool,
    /// Its start is in a bucket.
    pub folded: bool,
    /// Its outcome makes room that somebody waits for.
    pub crowded: bool,
    /// Who claimed it.
    pub worker: Option<WorkerId>,
    /// When its event was accepted, or the try before it ended.
    pub created_at: Timestamp,
    /// When it got its last permit.
    pub admitted_at: Option<Timestamp>,
    /// When it was claimed.
    pub started_at: Option<Timestamp>,
    /// When its outcome was there.
    pub finished_at: Option<Timestamp>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// Why it failed.
    pub error: Option<String>,
    /// The beginning of the response body.
    pub response_body: Bytes,
    /// It failed, and its event's tries are used up.
    pub dead_letter: bool,
}

impl Attempt {
    /// A waiting row; the ledger gives the id.
    pub(super) fn waiting(event: EventId, destination: DestinationId, at: Timestamp) -> Self {
        Self {
            id: AttemptId(0),
            event,
            destination,
            try_number: 1,
            state: AttemptState::Waiting,
            due_at: None,
            permit: None,
            coarse: false,
            folded: false,
            crowded: false,
            worker: None,
            created_at: at,
            admitted_at: None,
            started_at: None,
            finished_at: None,
            status: None,
            error: None,
            response_body: Bytes::new(),
            dead_letter: false,
        }
    }

    /// When it could have started at the earliest.
    #[must_use]
    pub fn waits_since(&self) -> Timestamp {
        self.due_at.unwrap_or(self.created_at)
    }

    /// Whether its outcome has to fold its start.
    pub(super) fn is_to_fold(&self) -> bool {
        self.coarse && !self.folded
    }

    /// Its permit ends unused.
    pub(super) fn wait_again(&mut self) {
        self.state = AttemptState::Waiting;
        self.due_at = Some(self.waits_since());
        self.permit = None;
    }

    /// Taken back before it started.
    pub(super) fn cancel(&mut self) {
        self.state = AttemptState::Cancelled;
        self.permit = None;
    }
}

/// An event's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its type.
    pub event_type: Option<String>,
    /// The payload's media type.
    pub content_type: String,
    /// The payload.
    pub payload: Bytes,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Its attempts, in creation order.
    pub attempts: Vec<AttemptId>,
}

/// A destination's row, and what admission remembers of it.
#[derive(Debug, Clone)]
pub(super) struct DestinationRow {
    pub(super) tenant: TenantId,
    pub(super) name: String,
    pub(super) url: String,
    pub(super) event_types: Vec<String>,
    pub(super) state: DestinationState,
    pub(super) limits: LimitSettings,
    pub(super) epoch: Epoch,
    pub(super) created_at: Timestamp,
    pub(super) deleted_at: Option<Timestamp>,
    /// What was in force from when on, in the order in which it was written:
    /// after a step of the clock not that of the times.
    pub(super) history: Vec<LimitHistory>,
    pub(super) pacing: Pacing,
}

/// What admission remembers of a destination.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pacing {
    pub(super) last_permit: i64,
    pub(super) meter: Meter,
    /// The epoch at which that was its level; `None` before the first run.
    pub(super) meter_epoch: Option<Epoch>,
    pub(super) next_look_at: Option<Timestamp>,
    pub(super) held_until: Option<Timestamp>,
}

/// A worker's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerRow {
    pub(super) places: u32,
    pub(super) seen_at: Timestamp,
    pub(super) retired: bool,
}

/// The whole store.
#[derive(Debug)]
pub struct Rows {
    pub(super) tiers: BTreeMap<String, LimitSettings>,
    /// Each tenant's tier.
    pub(super) tenants: BTreeMap<TenantId, String>,
    pub(super) destinations: BTreeMap<DestinationId, DestinationRow>,
    pub(super) events: BTreeMap<EventId, EventRow>,
    pub(super) ledger: Ledger,
    pub(super) workers: BTreeMap<WorkerId, WorkerRow>,
    /// Changes that have yet to be looked at: the last entry of limit history.
    pub(super) marks: BTreeMap<DestinationId, i64>,
    /// Entries of limit history so far.
    pub(super) last_history: i64,
    /// Destinations that somebody's transaction holds.
    pub(super) locked: BTreeSet<DestinationId>,
}

impl Default for Rows {
    /// As the migrations leave it: three tiers and the default tenant.
    fn default() -> Self {
        let tier = |per_second, burst| LimitSettings {
            per_second: Some(per_second),
            burst: Some(burst),
            shape: Some(Shape::TokenBucket),
            ..LimitSettings::default()
        };
        let tiers = [
            ("free", tier(2, 10)),
            ("standard", tier(10, 50)),
            ("enterprise", tier(100, 500)),
        ];
        Self {
            tiers: tiers.map(|(name, tier)| (name.to_owned(), tier)).into(),
            tenants: [(DEFAULT_TENANT, "standard".to_owned())].into(),
            destinations: BTreeMap::new(),
            events: BTreeMap::new(),
            ledger: Ledger::default(),
            workers: BTreeMap::new(),
            marks: BTreeMap::new(),
            last_history: 0,
            locked: BTreeSet::new(),
        }
    }
}

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

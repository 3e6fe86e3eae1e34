//! The tables, row by row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use domain::admission::Meter;
use domain::attempt::AttemptState;
use domain::batch::BatchSettings;
use domain::destination::DestinationState;
use domain::health::Health;
use domain::ids::{
    AttemptId, DestinationId, Epoch, EventId, ReplayId, SecretId, TenantId, WorkerId,
};
use domain::limit::Shape;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::retry::RetrySettings;
use domain::time::Timestamp;
use domain::trace::TraceContext;
use engine::ports::{BreakerChange, DEFAULT_TENANT, LimitHistory, SealedSecret, SmartChange};
use uuid::Uuid;

use super::backpressure::Standings;
use super::keys::Keys;
use super::ledger::Ledger;
use super::operations::News;
use super::replays::ReplayRow;
use super::retain::Walks;
use super::smart::SmartRow;

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
    /// Tries before the last replay.
    pub tries_before: u32,
    /// Not admitted from then on.
    pub expires_at: Option<Timestamp>,
    /// The replay that made it.
    pub replay: Option<Uuid>,
    /// When it was replayed, as a dead letter.
    pub replayed_at: Option<Timestamp>,
    /// Of its event's payload.
    pub payload_bytes: u32,
    /// The attempt in whose request it was sent.
    pub carried_by: Option<AttemptId>,
    /// It was not alone: how many events were in the request that it led.
    pub batch_size: Option<u32>,
    /// The largest batch that it may be in.
    pub batch_limit: Option<u32>,
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
            tries_before: 0,
            expires_at: None,
            replay: None,
            replayed_at: None,
            payload_bytes: 0,
            carried_by: None,
            batch_size: None,
            batch_limit: None,
        }
    }

    /// When it could have started at the earliest.
    #[must_use]
    pub fn waits_since(&self) -> Timestamp {
        self.due_at.unwrap_or(self.created_at)
    }

    /// When it was given up, if it is a dead letter.
    #[must_use]
    pub fn died_at(&self) -> Option<Timestamp> {
        (self.finished_at.or(self.started_at)).filter(|_| self.dead_letter)
    }

    /// Whether it can be replayed.
    #[must_use]
    pub fn is_open_dead_letter(&self) -> bool {
        self.dead_letter && self.replayed_at.is_none()
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

    /// Too old to start.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.state = AttemptState::Expired;
        self.dead_letter = true;
        self.finished_at = Some(now);
        self.error = Some("it was older than the destination's max_age".to_owned());
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
    /// The trace that it belongs to.
    pub trace: Option<TraceContext>,
    /// Its attempts, in creation order.
    pub attempts: Vec<AttemptId>,
}

/// A destination's row, and what admission remembers of it.
#[derive(Debug, Clone, PartialEq)]
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
    /// A change of it waits until then for a start that is dated ahead.
    pub(super) changing_until: Timestamp,
    /// What was in force from when on, in the order in which it was written:
    /// after a step of the clock not that of the times.
    pub(super) history: Vec<LimitHistory>,
    pub(super) pacing: Pacing,
    pub(super) retry: RetrySettings,
    pub(super) max_age: Option<Duration>,
    pub(super) batches: BatchSettings,
    pub(super) pass_traceparent: bool,
}

/// What admission remembers of a destination.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Pacing {
    pub(super) last_permit: i64,
    pub(super) meter: Meter,
    /// The epoch at which that was its level; `None` before the first run.
    pub(super) meter_epoch: Option<Epoch>,
    pub(super) next_look_at: Option<Timestamp>,
    pub(super) held_until: Option<Timestamp>,
    pub(super) deferred_until: Option<Timestamp>,
}

/// A secret's row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SecretRow {
    pub(super) sealed: SealedSecret,
    pub(super) shown: Option<String>,
    pub(super) created_at: Timestamp,
}

/// Who manages a destination from outside; without a uid nobody does any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagerRow {
    pub(super) tenant: TenantId,
    pub(super) resource: String,
    pub(super) uid: Option<String>,
}

/// A worker's row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WorkerRow {
    pub(super) places: u32,
    pub(super) seen_at: Timestamp,
    pub(super) retired: bool,
}

/// The whole store.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    pub(super) tiers: BTreeMap<String, LimitSettings>,
    /// Each tenant's tier.
    pub(super) tenants: BTreeMap<TenantId, String>,
    /// Tenants that are bounded in what they have queued and in flight.
    pub(super) tenant_max_in_flight: BTreeMap<TenantId, u32>,
    pub(super) destinations: BTreeMap<DestinationId, DestinationRow>,
    pub(super) secrets: BTreeMap<SecretId, SecretRow>,
    /// Of destinations that a resource manages, or did.
    pub(super) managers: BTreeMap<DestinationId, ManagerRow>,
    pub(super) events: BTreeMap<EventId, EventRow>,
    pub(super) keys: Keys,
    pub(super) ledger: Ledger,
    pub(super) workers: BTreeMap<WorkerId, WorkerRow>,
    /// Changes that have yet to be looked at: the last entry of limit history.
    pub(super) marks: BTreeMap<DestinationId, i64>,
    /// Of destinations that have something to remember.
    pub(super) health: BTreeMap<DestinationId, Health>,
    /// What their breakers are set to, where it is not the default.
    pub(super) breakers: BTreeMap<DestinationId, BreakerChange>,
    /// Of destinations with smart delivery.
    pub(super) smart: BTreeMap<DestinationId, SmartRow>,
    /// What their effective limits were, in order.
    pub(super) smart_history: BTreeMap<DestinationId, Vec<SmartChange>>,
    /// What operators must know.
    pub(super) news: News,
    /// Entries of limit history so far.
    pub(super) last_history: i64,
    /// Destinations that somebody's transaction holds.
    pub(super) locked: BTreeSet<DestinationId>,
    pub(super) replays: BTreeMap<ReplayId, ReplayRow>,
    /// Where backlogs stood when they were last counted.
    pub(super) standings: Standings,
    /// How far retention has come.
    pub(super) walks: Walks,
    /// See [`engine::ports::Store::head_start`].
    pub(super) head_start: Duration,
    /// What admissions that are not on the disk yet have changed, in order.
    pub(super) unflushed: Vec<Unflushed>,
    /// Single rows that somebody's transaction holds.
    pub(super) held: BTreeSet<AttemptId>,
    /// Whose retirement whoever claims has not seen.
    pub(super) seen_alive: Option<WorkerId>,
}

/// A destination and its picks as they were before an admission.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unflushed {
    pub(super) destination: DestinationId,
    pub(super) pacing: Pacing,
    pub(super) attempts: Vec<Attempt>,
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
            tenant_max_in_flight: BTreeMap::new(),
            destinations: BTreeMap::new(),
            managers: BTreeMap::new(),
            secrets: BTreeMap::new(),
            events: BTreeMap::new(),
            keys: Keys::default(),
            ledger: Ledger::default(),
            workers: BTreeMap::new(),
            marks: BTreeMap::new(),
            last_history: 0,
            locked: BTreeSet::new(),
            replays: BTreeMap::new(),
            standings: Standings::default(),
            walks: Walks::default(),
            health: BTreeMap::new(),
            breakers: BTreeMap::new(),
            smart: BTreeMap::new(),
            smart_history: BTreeMap::new(),
            news: News::default(),
            head_start: Duration::ZERO,
            unflushed: Vec::new(),
            held: BTreeSet::new(),
            seen_alive: None,
        }
    }
}

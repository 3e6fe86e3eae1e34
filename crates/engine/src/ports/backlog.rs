//! The same store, as seen by those who look after what waits at a
//! destination and what died there.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::attempt::AttemptState;
use domain::batch::BatchSettings;
pub use domain::cancel::CancelFrom;
use domain::ids::{AttemptId, DestinationId, EventId, ReplayId, TenantId};
use domain::replay::{MAX_RUNNING, ReplaySource, ReplayState};
use domain::retry::RetrySettings;
use domain::search::SoughtStatus;
use domain::time::Timestamp;

use super::catalog::AttemptView;
use super::error::CatalogError;
use super::schedule::Wake;

/// Retry rules, cancelling, dead letters and replays. Every method is one
/// transaction and checks the tenant in its own query.
#[async_trait]
pub trait Backlog: Send + Sync {
    /// A destination's retry rules, as they are set.
    async fn retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<RetryRules, CatalogError>;

    /// Sets all of a destination's retry rules. Revokes nothing: the policy
    /// holds for every try that starts from then on, the age for every event
    /// that is accepted from then on.
    async fn set_retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        rules: &RetryRules,
    ) -> Result<(), CatalogError>;

    /// A destination's batches, as they are set.
    async fn batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<BatchSettings, CatalogError>;

    /// Sets all of them. To turn batches on or off revokes, for it changes what
    /// requests look like; a change of the numbers holds for every batch that is
    /// composed from then on. Refused where events would be too old before
    /// their batch is due, and so is an age of [`Backlog::set_retry_rules`]. The age of a tier
    /// that comes to be less bounds the wait ([`domain::batch::BatchRules::within`]).
    async fn set_batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        settings: &BatchSettings,
    ) -> Result<(), CatalogError>;

    /// Cancels one attempt that has not started; a permit that it has ends
    /// with it. One that has started is left alone, and said so. Idempotent.
    async fn cancel_attempt(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<CancelledOne, CatalogError>;

    /// One bounded step of cancelling a backlog. What has started goes on; a
    /// row that somebody holds, for it is being claimed at this instant, is
    /// left alone. A step that is repeated finds what is left. Cancelled rows
    /// lose their permits in the same commit, so nothing of them can start.
    async fn cancel_step(
        &self,
        tenant: TenantId,
        step: &CancelStep,
    ) -> Result<CancelledStep, CatalogError>;

    /// A page of dead letters that were not replayed, those that died last
    /// first, after a position. Examines at most [`MAX_EXAMINED`] rows: a page
    /// may hold fewer than `limit`, or none, and still have a `next`.
    async fn dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterPosition>,
        limit: u32,
    ) -> Result<DeadLetterPage, CatalogError>;

    /// One dead letter, replayed or not.
    async fn dead_letter(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<DeadLetter, CatalogError>;

    /// Begins a replay of all dead letters that match now, or of events. It is carried out
    /// by [`super::Replays`]. An id that is there already is `Invalid`, and so is, by the
    /// name `replays`, one more where [`MAX_RUNNING`] of the tenant run: requests at once may
    /// each begin one beyond. To count what matches
    /// it looks at [`MAX_COUNTED`] dead letters at most, or [`MAX_EVENTS_COUNTED`] events.
    async fn create_replay(
        &self,
        tenant: TenantId,
        new: &NewReplay,
    ) -> Result<Replay, CatalogError>;

    /// How many events a replay of [`Which::Events`] would be of now, at each of these
    /// destinations. Begins none. It looks at [`Resendable::events_each`] events whose ids say
    /// that time, and at [`MAX_EVENTS_COUNTED`] whose ids are older: few of those were
    /// accepted since then. Destinations that are gone, or another tenant's, are left out.
    async fn resendable(
        &self,
        tenant: TenantId,
        to: &[DestinationId],
        which: &ResentEvents,
    ) -> Result<Resendable, CatalogError>;

    /// Which have dead letters that match, of the tenant's next `limit`
    /// destinations after `after` in id order: what a replay of all of them is
    /// of. The filter's `destination` does not count. Examines at most
    /// [`MAX_EXAMINED_EACH`] dead letters of each; one that has more in the
    /// filter's times is named although none of those match.
    async fn destinations_with_dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<DestinationPage, CatalogError>;

    /// A page of replays, the newest first, those older than `after`, without
    /// what became of their attempts.
    async fn replays(
        &self,
        tenant: TenantId,
        after: Option<ReplayId>,
        limit: u32,
    ) -> Result<Vec<ReplayProgress>, CatalogError>;

    /// How far a replay is.
    async fn replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError>;

    /// Ends a replay: nothing more is moved. What it has moved stays in the
    /// backlog. One that has ended is left as it is.
    async fn cancel_replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError>;
}

/// Rows that one call looks at, beside those it answers: what bounds a filter
/// that hardly anything matches.
pub const MAX_EXAMINED: u32 = 5_000;

/// The same for each of many destinations.
pub const MAX_EXAMINED_EACH: u32 = 200;

/// At so many events one step of a replay looks, and so many are counted when it begins:
/// all of a tenant's are in question, and the attempts of each are looked at.
pub const MAX_EVENTS_STEP: u32 = 1_000;
/// See [`MAX_EVENTS_STEP`].
pub const MAX_EVENTS_COUNTED: u32 = 10_000;

/// At so many dead letters a replay looks when it begins, to count those that match: the
/// event of each is read.
pub const MAX_COUNTED: u32 = 20_000;

/// A destination's retry rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetryRules {
    /// What is tried again, when, and how often.
    pub policy: RetrySettings,
    /// How old an event may become before it starts; whole milliseconds.
    pub max_age: Option<Duration>,
}

/// What became of one cancelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelledOne {
    /// It is cancelled, now or before; whom to wake, if it had a permit.
    Cancelled(Option<Wake>),
    /// It has started, or ended, as this says.
    TooLate(AttemptState),
}

/// One step of cancelling a backlog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelStep {
    /// Whose.
    pub destination: DestinationId,
    /// Only events of this type.
    pub event_type: Option<String>,
    /// Only events accepted before; `None` for now.
    pub accepted_before: Option<Timestamp>,
    /// Where the last step stopped.
    pub from: CancelFrom,
    /// Rows to look at, at most.
    pub limit: u32,
}

/// What one step of cancelling did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledStep {
    /// Attempts cancelled.
    pub cancelled: u32,
    /// The time that "now" stood for: for the steps that follow.
    pub accepted_before: Timestamp,
    /// Where to go on; `None` after the last.
    pub next: Option<CancelFrom>,
    /// Whom to wake: permits ended.
    pub wakes: Vec<Wake>,
}

/// Which dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetterFilter {
    /// Of this destination.
    pub destination: Option<DestinationId>,
    /// Of this type.
    pub event_type: Option<String>,
    /// Whose last answer had this status.
    pub status: Option<u16>,
    /// That died at this time or later.
    pub died_from: Option<Timestamp>,
    /// That died before.
    pub died_before: Option<Timestamp>,
}

/// Where a page of dead letters ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterPosition {
    /// When the last one died.
    pub died_at: Timestamp,
    /// Which it was.
    pub attempt: AttemptId,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetterPage {
    /// Those that died last first.
    pub dead_letters: Vec<DeadLetter>,
    /// Where to go on; `None` after the last.
    pub next: Option<DeadLetterPosition>,
}

/// Some of a tenant's destinations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DestinationPage {
    /// In id order: few, or none, of those that were looked at.
    pub destinations: Vec<DestinationId>,
    /// The last one looked at; `None` if there is none after it.
    pub next: Option<DestinationId>,
}

impl DestinationPage {
    /// Of up to `limit` that were looked at, in id order, those that were wanted.
    #[must_use]
    pub fn of(looked_at: Vec<(DestinationId, bool)>, limit: u32) -> Self {
        let full = looked_at.len() >= limit as usize;
        let last = looked_at.last().filter(|_| full);
        Self {
            next: last.map(|(id, _)| *id),
            destinations: (looked_at.into_iter())
                .filter_map(|(id, wanted)| wanted.then_some(id))
                .collect(),
        }
    }
}

/// An event that was given up at a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The attempt that was the last: why (`error`), and the last response.
    pub attempt: AttemptView,
    /// The event's type.
    pub event_type: Option<String>,
    /// When it was given up: at its outcome, or, where nobody knows that, at
    /// its start.
    pub died_at: Timestamp,
    /// When it was replayed.
    pub replayed_at: Option<Timestamp>,
}

/// A replay to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct NewReplay {
    /// Its id, given by us.
    pub id: ReplayId,
    /// What it is of.
    pub which: Which,
    /// Which part of the destination's limit it may use; above 0, at most 1.
    pub share: f64,
}

/// What a replay is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// This one.
    One(AttemptId),
    /// Those of a destination that match. Its own `destination` counts, and
    /// not the filter's.
    Matching(DestinationId, DeadLetterFilter),
    /// This event, whatever became of it there, and whether or not it was for it.
    Event(DestinationId, EventId),
    /// Events that are the destination's and match.
    Events(DestinationId, ResentEvents),
}

/// Which events are sent to a destination again. Its own are those that have been sent
/// there, or waited for it, and, unless it has a filter, those for whoever subscribes to a
/// type to which it subscribes now: filters are asked when an event is accepted. What still waits, or is under way, is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResentEvents {
    /// Accepted then or later.
    pub since: Timestamp,
    /// Accepted before; the beginning of the replay if absent, and at the latest.
    pub until: Option<Timestamp>,
    /// Of this type.
    pub event_type: Option<String>,
    /// Those only of which no delivery to it has succeeded: what it has missed.
    pub only_missed: bool,
    /// Those only of which an attempt there ended so.
    pub state: Option<AttemptState>,
    /// Those only of which an attempt there was answered so, the same attempt as above.
    pub status: Option<SoughtStatus>,
    /// Those only whose ids have this in them, or the one that it stands for as an
    /// idempotency key. Refused by the name `text` if it can be neither.
    pub text: Option<String>,
}

/// How many events would be sent again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resendable {
    /// To each destination that is there: how many of those that were looked at.
    pub counts: BTreeMap<DestinationId, u64>,
    /// There are events whose ids say that time and that were not looked at: more may match.
    pub is_part: bool,
}

impl Resendable {
    /// At so many events a store looks for each of so many destinations: for all of them
    /// together at about as many as for one.
    #[must_use]
    pub fn events_each(destinations: usize) -> u32 {
        let destinations = u32::try_from(destinations).unwrap_or(u32::MAX);
        (MAX_EVENTS_COUNTED / destinations.max(1)).max(1)
    }

    /// Nothing of it all matches.
    #[must_use]
    pub fn is_none(&self) -> bool {
        !self.is_part && self.counts.values().all(|count| *count == 0)
    }
}

/// The refusal of one more replay than may run at once.
#[must_use]
pub fn too_many_replays() -> CatalogError {
    CatalogError::Invalid {
        field: "replays".to_owned(),
        problem: format!(
            "{MAX_RUNNING} of the tenant run, as many as may at once: wait until some have \
             ended, or cancel some"
        ),
    }
}

/// The refusal of a text by which no event can be found.
#[must_use]
pub fn no_event_by(text: &str) -> CatalogError {
    CatalogError::Invalid {
        field: "text".to_owned(),
        problem: format!("{text:?} is no part of an event's id, and no idempotency key of one"),
    }
}

/// A replay as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// How far it is.
    pub progress: ReplayProgress,
    /// How many of those that it has moved wait, or have a permit, or are under
    /// way.
    pub pending: u64,
    /// How many were delivered at their first try.
    pub succeeded: u64,
    /// How many failed at their first try: they are tried again, or are dead
    /// letters again.
    pub failed: u64,
}

/// How far a replay is, as its row alone says.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayProgress {
    /// Its id.
    pub id: ReplayId,
    /// To whom.
    pub destination: DestinationId,
    /// What it is of.
    pub source: ReplaySource,
    /// The one event that it is of.
    pub event: Option<EventId>,
    /// Its part of the limit.
    pub share: f64,
    /// Whether it goes on.
    pub state: ReplayState,
    /// How many matched when it began, as far as they were counted; more if more were
    /// moved.
    pub total: u64,
    /// How many it has moved into the backlog.
    pub done: u64,
    /// Of events: how many more would match, of whatever type, whose payloads are no longer
    /// kept and which cannot be sent again. Counted when it began, as far as `total` is.
    pub skipped: u64,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl std::ops::Deref for Replay {
    type Target = ReplayProgress;

    fn deref(&self) -> &ReplayProgress {
        &self.progress
    }
}

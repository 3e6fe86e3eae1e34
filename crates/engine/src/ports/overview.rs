//! The same store, as the dashboard looks at it.

use std::time::Duration;

use async_trait::async_trait;
use domain::attempt::AttemptState;
use domain::explain::Measured;
use domain::health::{LATELY, Lately};
use domain::ids::{AttemptId, DestinationId, EventId, ReplayId, TenantId};
use domain::redaction::{Redaction, Shown};
use domain::search::SoughtStatus;
use domain::time::Timestamp;

use super::catalog::{AttemptView, Destination};
use super::error::CatalogError;
use super::health::HealthView;

/// What people who watch ask of a store. Reads only, on the side: nothing on
/// the way of an event waits for it, and each answer examines a bounded number
/// of rows, however long the ledger is.
#[async_trait]
pub trait Overview: Send + Sync {
    /// The store's clock.
    async fn now(&self) -> Result<Timestamp, CatalogError>;

    /// Whose this is, deleted or not; `None` if there is no such thing. One read by
    /// the thing's own key. For operators alone: it says what exists.
    async fn tenant_of(&self, thing: Thing) -> Result<Option<TenantId>, CatalogError>;

    /// Up to `limit` of the tenant's destinations whose name, URL or id has
    /// this text in it, in id order, after `after`. Looks through the tenant's
    /// destinations, and at nothing else.
    async fn find_destinations(
        &self,
        tenant: TenantId,
        text: &str,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<DestinationId>, CatalogError>;

    /// Up to `limit` of the tenant's destinations that need somebody, those first that
    /// harm most: with an open breaker, disabled, failing for [`FAILS_FOR`] or longer or
    /// by the last look of the tally, told of by the watch, held, paused.
    async fn troubled_destinations(
        &self,
        tenant: TenantId,
        limit: u32,
    ) -> Result<Troubled, CatalogError>;

    /// A page of the destinations of all tenants, in the order of
    /// [`Self::troubled_destinations`], those that need nobody last; with how many
    /// there are. A fixed number of statements, however many tenants or destinations.
    /// For operators alone.
    async fn all_destinations(&self, wanted: &WantedOfAll)
    -> Result<AllDestinations, CatalogError>;

    /// What people call these destinations, deleted or not, in no order; those that are
    /// forgotten are left out. [`MAX_NAMED`] at most. Whoever asks has their ids from
    /// what he may see.
    async fn names(&self, destinations: &[DestinationId]) -> Result<Vec<Called>, CatalogError>;

    /// What these destinations did lately, in the order of the ids. At most
    /// [`MAX_GLANCED`].
    async fn glance(&self, destinations: &[DestinationId]) -> Result<Vec<Glance>, CatalogError>;

    /// How many attempts of a destination started in each `step`, from `since`
    /// on; steps without any are left out. Counts at most [`MAX_CHARTED`]
    /// starts, the newest.
    async fn starts(
        &self,
        destination: DestinationId,
        since: Timestamp,
        step: Duration,
    ) -> Result<Vec<StartsAt>, CatalogError>;

    /// The outcomes of the newest starts of a destination since then, the newest
    /// first: [`MAX_CHARTED_ANSWERS`] at most.
    async fn answers(
        &self,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<Answered>, CatalogError>;

    /// One attempt of the tenant's, with what its request was made of.
    async fn requested(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<Requested, CatalogError>;

    /// The attempts of a destination that started last, the newest first.
    async fn last_started(
        &self,
        destination: DestinationId,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError>;

    /// What an event of the tenant's carries, for as long as payloads are kept, and the
    /// rules of its type, from one snapshot.
    async fn payload(&self, tenant: TenantId, id: EventId) -> Result<Payload, CatalogError>;

    /// A page of the tenant's events, the newest first by their ids, those before
    /// `before`. Examines at most [`MAX_EVENTS_EXAMINED`] of them and no other tenant's: a
    /// page may hold fewer than `limit`, or none, and still have a `next`. Those outside of
    /// the filter's times are not examined, as far as [`domain::search::IdRange`] knows.
    async fn find_events(
        &self,
        tenant: TenantId,
        filter: &EventFilter,
        before: Option<EventId>,
        limit: u32,
    ) -> Result<EventPage, CatalogError>;

    /// A page of the tenant's attempts, the newest first by their ids, those before
    /// `before`, of all its destinations or of one. Reads [`MAX_ATTEMPTS_EXAMINED`] of them,
    /// or five of each destination, at most: a page may hold fewer than `limit`, or none,
    /// and still have a `next`. Of more than [`MAX_PLACES`] destinations it reads nothing:
    /// then one must be named. Where the filter's text stands for one event, it reads that
    /// event's attempts alone, for as long as the event is kept.
    async fn find_attempts(
        &self,
        tenant: TenantId,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, CatalogError>;
}

/// The most destinations that are glanced at together.
pub const MAX_GLANCED: usize = 100;

/// A destination needs somebody that has failed for so long: one that fails now and
/// then has succeeded before.
pub const FAILS_FOR: Duration = Duration::from_secs(2);

/// How far back a glance goes for its rate.
pub const GLANCE_RATE: Duration = Duration::from_secs(10);

/// How far back it goes for answers and latencies.
pub const GLANCE_ANSWERS: Duration = LATELY;

/// The newest starts that its answers and latencies are taken from.
pub const GLANCE_SAMPLE: u32 = 200;

/// The most starts that a glance counts.
pub const GLANCE_STARTS: u32 = 50_000;

/// The most starts that one chart counts.
pub const MAX_CHARTED: u32 = 200_000;

/// The most outcomes that one chart of latencies is drawn from.
pub const MAX_CHARTED_ANSWERS: u32 = 20_000;

/// The most events that one page examines.
pub const MAX_EVENTS_EXAMINED: u32 = 2_000;

/// The most attempts that one page reads.
pub const MAX_ATTEMPTS_EXAMINED: u32 = 5_000;

/// The most destinations whose attempts are looked for together.
pub const MAX_PLACES: u32 = 1_000;

/// Ids of attempts are in the order of their creation, but for what transactions that
/// are open at once may differ by.
pub const ATTEMPTS_IN_ORDER: Duration = Duration::from_secs(60);

/// What belongs to a tenant, and has an id of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// A destination.
    Destination(DestinationId),
    /// An event.
    Event(EventId),
    /// An attempt, dead or not.
    Attempt(AttemptId),
    /// A replay of dead letters.
    Replay(ReplayId),
}

/// Destinations that need somebody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Troubled {
    /// The first of them.
    pub first: Vec<DestinationId>,
    /// How many there are.
    pub count: u64,
}

/// The most destinations of all tenants on one page, and how many may come before it:
/// whoever looks further than that says what he looks for.
pub const MAX_OF_ALL: u32 = MAX_GLANCED as u32;
/// See [`MAX_OF_ALL`].
pub const MAX_SKIPPED: u32 = 100_000;

/// The most destinations whose names are asked for together: as many as a page has
/// rows.
pub const MAX_NAMED: usize = 1_000;

/// What people call a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// Which.
    pub destination: DestinationId,
    /// Its name; its URL, where it has none.
    pub name: String,
    /// Its tenant's name.
    pub tenant_name: String,
}

/// Which destinations of all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WantedOfAll {
    /// With this text in their name, URL or id, or in their tenant's name or id; all
    /// where it is empty.
    pub text: String,
    /// In this state.
    pub state: Option<TroubleState>,
    /// So many come before the page; [`MAX_SKIPPED`] at most.
    pub skip: u32,
    /// On the page; [`MAX_OF_ALL`] at most.
    pub limit: u32,
}

/// What destinations are picked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleState {
    /// They need somebody, for whatever reason.
    Attention,
    /// Their breaker is open, or nothing has succeeded for [`FAILS_FOR`] or longer.
    Failing,
    /// The receiver asked to wait, or refused.
    Held,
    /// Their owner has paused them.
    Paused,
    /// They are disabled.
    Disabled,
}

impl TroubleState {
    /// Each of them.
    pub const ALL: [Self; 5] = [
        Self::Attention,
        Self::Failing,
        Self::Held,
        Self::Paused,
        Self::Disabled,
    ];

    /// How it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Failing => "failing",
            Self::Held => "held",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
        }
    }
}

/// A page of the destinations of all tenants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AllDestinations {
    /// The page, those first that harm most.
    pub page: Vec<OfTenant>,
    /// How many there are that were asked for; 0 beyond the last page.
    pub matching: u64,
    /// How many there are at all.
    pub count: u64,
    /// How many of all are [`TroubleState::Failing`].
    pub failing: u64,
}

/// A destination, and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct OfTenant {
    /// The destination.
    pub destination: Destination,
    /// Its tenant's name.
    pub tenant_name: String,
    /// Its health.
    pub health: HealthView,
}

/// What a destination did lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    /// Which.
    pub destination: DestinationId,
    /// Starts within [`GLANCE_RATE`].
    pub starts: u32,
    /// The newest [`GLANCE_SAMPLE`] starts within [`GLANCE_ANSWERS`] that have
    /// an outcome.
    pub answers: Vec<Answered>,
}

impl Glance {
    /// What came of its requests.
    #[must_use]
    pub fn lately(&self) -> Lately {
        lately(&self.answers)
    }

    /// What its backlog drains by.
    #[must_use]
    pub fn measured(&self) -> Measured {
        let ended = self.answers.iter().filter(|one| one.state.was_sent());
        let took = ended.map(|one| one.latency);
        Measured::of(took, (self.starts, GLANCE_RATE))
    }
}

/// What these answers come to.
#[must_use]
pub fn lately(answers: &[Answered]) -> Lately {
    let outcome = |one: &Answered| (one.started_at, one.state, one.status);
    Lately::of(answers.iter().map(outcome))
}

/// One outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// When its attempt started.
    pub started_at: Timestamp,
    /// What it was.
    pub state: AttemptState,
    /// The HTTP status.
    pub status: Option<u16>,
    /// From its start to its outcome.
    pub latency: Duration,
}

/// An attempt, and what its request was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    /// The attempt.
    pub attempt: AttemptView,
    /// When it was claimed: the time that its request was signed with.
    pub claimed_at: Option<Timestamp>,
    /// Where it went: the URL that its destination had then. `None` before it was claimed,
    /// and where that is not kept.
    pub url: Option<String>,
    /// The payload's media type; `None` once the event is no longer kept.
    pub content_type: Option<String>,
    /// The payload's size.
    pub payload_bytes: u32,
    /// It went out in one request with others.
    pub in_batch: bool,
}

/// Starts in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartsAt {
    /// Where the step begins: a multiple of its length.
    pub from: Timestamp,
    /// How many.
    pub starts: u32,
}

/// What an event carries. People are shown [`Payload::shown`] of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Its media type.
    pub content_type: String,
    /// As it was accepted.
    pub bytes: Vec<u8>,
    /// What the catalogue says of its type: JSON pointers to what is not shown.
    pub redact: Vec<String>,
}

impl Payload {
    /// What people are shown, whoever they are.
    #[must_use]
    pub fn shown(self) -> Shown {
        Redaction::shown_by(&self.redact, self.bytes)
    }
}

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Of this type.
    pub event_type: Option<String>,
    /// With an attempt in this state.
    pub state: Option<AttemptState>,
    /// With an attempt that was answered so; and in this state, if one is given.
    pub status: Option<SoughtStatus>,
    /// With an attempt at this destination; and in this state, and answered so, if they are
    /// given.
    pub destination: Option<DestinationId>,
    /// Accepted then or later.
    pub since: Option<Timestamp>,
    /// Accepted before.
    pub until: Option<Timestamp>,
    /// As [`domain::search::Sought`] takes it.
    pub text: Option<String>,
}

/// Which attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttemptFilter {
    /// At this destination.
    pub destination: Option<DestinationId>,
    /// Of an event of this type, which is kept.
    pub event_type: Option<String>,
    /// In this state.
    pub state: Option<AttemptState>,
    /// Answered so.
    pub status: Option<SoughtStatus>,
    /// What is known of its event, as [`domain::search::Sought`] takes it.
    pub text: Option<String>,
    /// Created then or later.
    pub since: Option<Timestamp>,
    /// Created before.
    pub until: Option<Timestamp>,
}

/// A page of attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttemptPage {
    /// The newest first.
    pub attempts: Vec<AttemptView>,
    /// Where to go on; `None` after the last.
    pub next: Option<AttemptId>,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventPage {
    /// The newest first.
    pub events: Vec<FoundEvent>,
    /// Where to go on; `None` after the last.
    pub next: Option<EventId>,
}

/// An event in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEvent {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: Option<String>,
    /// The payload's size.
    pub payload_bytes: u32,
    /// Its first attempts go before those of other events.
    pub urgent: bool,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// How many attempts it has.
    pub attempts: u32,
    /// How many of them are in the state that was asked for, at the destination if one
    /// was; `None` without a state.
    pub matching: Option<u32>,
    /// How many destinations these are for.
    pub destinations: u32,
    /// One of them; `None` if there is none.
    pub destination: Option<DestinationId>,
    /// When the first of those that wait is due, of those that wait for a time.
    pub due_at: Option<Timestamp>,
    /// When the first of those that wait is not sent any more.
    pub expires_at: Option<Timestamp>,
    /// Where the newest of them stands; `None` if it has none.
    pub last: Option<AttemptState>,
}

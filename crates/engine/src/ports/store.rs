//! The truth: events, attempts, limits, and what may start.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::admission::{Blocked, Look};
pub use domain::attempt::outcome::{NextTry, Outcome, Speaks};
use domain::event::NewEvent;
use domain::health::HealthChange;
use domain::ids::{AttemptId, DestinationId, EventId, PermitNumber, WorkerId};
use domain::margin::Spread;
use domain::permit::Permit;
use domain::retry::RetrySettings;
use domain::share::Room;
pub use domain::share::{Fleet, Given};
use domain::time::Timestamp;
use domain::trace::TraceContext;

use super::error::StoreError;
use super::schedule::Wake;
use super::sender::Target;

/// The store, as the loops see it. Every method is one batch and one atomic
/// step: a crash half-way leaves all of it or nothing.
///
/// All times are of the store's own clock; where the store is a database, isolation is
/// read committed, and every decision is made on rows that were read *after* they were
/// locked, or that are the same when they are locked. Contention is an
/// answer ([`RunResult::Skipped`], [`ClaimAnswer::Skipped`]), not an error.
///
/// An empty batch touches nothing, but is asked all the same and answers the
/// time: that makes a new process's connections and statements ready.
#[async_trait]
pub trait Store: Send + Sync {
    /// Accepts events: each with one waiting attempt per destination of its
    /// audience, all in one commit. When this returns `Ok`, every
    /// [`Acceptance::Accepted`] is durable. One event's refusal does not touch
    /// the others. The answers are in the order of `events`.
    ///
    /// There may be fewer answers than events, but at least one, where there are more than
    /// [`MIN_DELIVERIES`] of them, or of destinations that are named or subscribe, or more than
    /// [`MIN_PAYLOAD_BYTES`]: of the others nothing is written yet, so that a step stays short;
    /// ask again with them. It never takes many more than [`MAX_DELIVERIES`]. An event
    /// with more than [`domain::event::MAX_DESTINATIONS`] subscribers is refused, whatever
    /// their filters say, and so is one that nobody's filter takes and that is for
    /// [`domain::event::Audience::SomeSubscriber`].
    ///
    /// A retry after an error may find that the first try was committed; the
    /// event id is the key, and an id that is there already is answered as
    /// accepted without a second attempt, for where it went; also when all of
    /// these destinations are gone. Another tenant is not told where.
    ///
    /// An event's idempotency key is taken in the same commit. Of several with
    /// one key, in one batch or in many at once, one is accepted; the others
    /// wait for it, and are [`Acceptance::Repeated`] if they ask for the same
    /// and [`Acceptance::KeyReused`] if not. A key is known before anything
    /// else is looked at: what a repeated request is answered does not depend
    /// on what has become of the destination. An event that is refused takes
    /// no key. Expired keys are free; [`Store::reap`] deletes them.
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError>;

    /// One scheduler run for many destinations: reads the limits as they are now and the
    /// usage, decides by `domain::admission::round`, and marks the chosen attempts
    /// `admitted` with number, epoch, slot and deadline. One that somebody holds, or has
    /// changed meanwhile, is skipped.
    ///
    /// `room` bounds the permits of all of them together, shared max-min
    /// fairly between tenants and then between a tenant's destinations
    /// (`domain::share`); so does each tenant's `max_in_flight`, by what `room`
    /// says that it has. Repeating it is harmless: it counts what the
    /// first try admitted. A crash after it leaves permits that a run after
    /// the lapsed lease returns again ([`Run::republish`]) or that expire.
    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError>;

    /// Where these destinations' requests go now, with the epoch at which that
    /// is true. Destinations that are gone are left out. Reads only.
    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError>;

    /// Claims starts: a compare-and-set on state, permit number, epoch,
    /// destination state, hold and time, one statement for all. Each permit is
    /// answered, in order. `claimed_at` is the instant of the claim, or the slot
    /// where that is at most [`Store::head_start`] ahead. The start, which is the
    /// request's first byte, is not known yet: until it is reported or recorded it
    /// is [`domain::admission::latest_start`].
    ///
    /// *Late, stale or held*: the row goes back to waiting only if it is still
    /// `admitted` under this very number. After an error the caller must not
    /// send: the claim may have been committed, and then becomes `unknown`.
    ///
    /// Refuses all permits of a worker that is unknown, has retired or whose
    /// heartbeat has lapsed; their rows go back to waiting too. Whoever is
    /// refused acknowledges the message, so nobody would start that permit
    /// any more: left admitted, it would block its place up to its deadline.
    /// It is safe, because the row moves in a committed update, without a
    /// start; and a copy of the message finds another number.
    ///
    /// A permit that is named twice starts once; before its slot, each is told
    /// that it is early.
    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError>;

    /// The same where requests are batches: beside each permit's attempt, its
    /// *leader*, the request carries what waits behind it, by the destination's
    /// [`domain::batch`] rules, and [`Start::members`] has all of them. What is
    /// carried becomes `started` in the same commit, under the leader's number
    /// and at its time, but is no start: no limit counts it, and nothing of it
    /// is in flight beside its leader. From then on it is recorded, given up and
    /// tried again like any other row.
    ///
    /// A leader that may not start leaves the others waiting. Rows that
    /// somebody holds are left out, and so is what is too old. At most
    /// [`MAX_BATCHES`] permits.
    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError>;

    /// How long before its slot a permit may be claimed: the claim is then dated
    /// *at* the slot, so that one which is asked for a little early uses the limit
    /// to the full. At most [`MAX_HEAD_START`]. Nothing may be sent before that,
    /// and a change that revokes is dated after every claim that came before it.
    fn head_start(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether outcomes from which nothing follows ([`Outcome::is_plain`]) cost
    /// less in a call of their own, because a call that has others takes more
    /// statements for all.
    fn plain_outcomes_apart(&self) -> bool {
        false
    }

    /// Whether two commits of events are written at once. Where there is one writer, the
    /// second would wait for all of the first.
    fn accepts_side_by_side(&self) -> bool {
        false
    }

    /// Hands back permits unused: rows that are still `admitted` under the
    /// given numbers wait again. Idempotent. Returns whom to wake.
    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError>;

    /// Admits nothing of these destinations for so long: a worker has no place
    /// for them. It binds admission alone; a permit that is out may start. Of
    /// two, the one that was written last holds. One whose row is locked is left
    /// out, and is then admitted sooner, which costs a permit. Idempotent but
    /// for the time that passes.
    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError>;

    /// Says when these requests of this worker were sent, which have no answer
    /// yet: so a receiver that is slow to answer does not cost its limit. Applies to
    /// rows that are `started` under the number and worker; an outcome says the same,
    /// and makes it superfluous. Whatever is lost of it, or skipped because somebody
    /// holds the row, is counted at its latest start until the outcome is there.
    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError>;

    /// Says how much the response times of these destinations differ, as one worker has
    /// measured them: the margin of their windows from the next run on, where none is
    /// set. What is known of others is joined with it ([`domain::margin::Measured`]). A
    /// destination that is gone is left out, and what is lost is said again soon.
    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Result<(), StoreError>;

    /// Records outcomes of starts that this worker claimed, adds the retries,
    /// folds coarse starts, and carries out what `domain::health` makes of the
    /// answers, in one commit: a hold is in force from then on, and permits
    /// that are out wait again; a destination that is given up is disabled. A
    /// success of a destination that is well writes nothing of this. Where all are
    /// plain ([`Outcome::is_plain`]), such successes may be recorded before the
    /// others, in a commit of their own; if the others then fail, they are
    /// reported as skipped.
    ///
    /// Applies only to rows that are `started` or `unknown` under the given
    /// number and worker; one that finds its row `unknown` overwrites it and,
    /// if it succeeded, cancels a retry that has not started. Idempotent by
    /// row state: a repeated outcome changes nothing. Rows that are locked by
    /// somebody else are reported in [`Recorded::skipped`], to be sent again.
    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError>;

    /// Puts right what nobody came back for, at most `limit` rows of each
    /// kind: permits past their deadline wait again; starts whose worker's
    /// heartbeat lapsed, or that are older than `rules.start_timeout`, become
    /// `unknown`, say why ([`WORKER_IS_GONE`], [`NO_OUTCOME_IN_TIME`]) and are
    /// followed by a retry, in the order of their starts and then of their ids,
    /// unless the destination is deleted or the tries are used up; waiting
    /// attempts of deleted destinations are cancelled, and one of which nothing
    /// has been left for [`DRAINED_AFTER`] is not looked at again; those that are past
    /// their destination's `max_age` or their event's `expires_at` become `expired`, and
    /// dead letters ([`TOO_OLD`]).
    /// Each row is locked and rechecked; a skipped one is left. And it deletes
    /// what nobody needs any more, such as expired idempotency keys.
    ///
    /// Each of these parts is a transaction of its own with a bound of its own:
    /// one that runs out of it is named in [`Reaped::put_off`], has done nothing,
    /// and is tried again the next time. The others go on. Where the store fails, the pass
    /// ends: as an error if no part has done anything, and otherwise as
    /// [`Reaped::cut_short`], so that whoever the parts before have freed is woken.
    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError>;

    /// One page of destinations, after `after` in id order, that need a look:
    /// with due work that nobody has looked at for longer than planned by
    /// `overdue` (or all with waiting or admitted attempts when `everything`:
    /// to rebuild a lost schedule: at once where there are permits, which may
    /// have to be published again); and, on the first page, the marks that
    /// changes left, each with a wake, whatever became of its destination.
    /// Reads only; costs nothing for idle destinations.
    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError>;

    /// Returns when a change may have left a mark, so that a sweep need not
    /// wait out its pause. A hint: it may return for nothing, and it may never
    /// return.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    /// Forgets marks whose destinations have been woken, unless they were
    /// marked again since.
    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError>;

    /// Says that a worker lives, or, with no places, that it retires. Returns
    /// the store's time. A worker whose heartbeat is older than `heartbeat_timeout`
    /// does not count, and its late heartbeat does not revive its claims.
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Timestamp, StoreError>;

    /// The fleet as it is now. Reads only.
    async fn fleet(&self) -> Result<Fleet, StoreError>;
}

/// How old a worker's heartbeat may be before its starts are given up and its
/// claims refused.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest [`Store::head_start`]: a change that revokes is in force so much later at
/// most, and a place is held for it. Longer than a timer is late and a claim takes.
pub const MAX_HEAD_START: Duration = Duration::from_millis(25);

/// Why a start is unknown whose worker's heartbeat has lapsed.
pub const WORKER_IS_GONE: &str = "the worker was gone before it recorded an outcome";

/// Why an attempt has expired: it was not admitted in its time.
pub const TOO_OLD: &str = "it was past the destination's max_age or its own expires_at";

/// Why a start is unknown that its worker, which lives, was too slow with.
pub const NO_OUTCOME_IN_TIME: &str = "no outcome was recorded in time";

/// The most rows in one statement. Above it, statements gain nothing and hold
/// their locks for longer.
pub const MAX_ROWS: usize = 1_000;

/// About as many deliveries one [`Store::accept_events`] adds, whoever's: as many as a full
/// batch of events for one destination each, and others wait for either.
pub const MAX_DELIVERIES: usize = MAX_ROWS;

/// As many deliveries every store adds in one such step, and as many events. A store with
/// one writer adds few more, since everybody waits for it.
pub const MIN_DELIVERIES: usize = 100;

/// The same of payloads, bytes.
pub const MIN_PAYLOAD_BYTES: usize = 256 * 1024;

/// The most permits of one [`Store::claim_batches`]: what is composed at once
/// stays within so many times [`domain::batch::MAX_BYTES`].
pub const MAX_BATCHES: usize = 16;

/// The answer for one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// Durable; its attempts wait at these destinations (none, where nobody
    /// subscribes to its type, or no filter takes it).
    Accepted(Vec<DestinationId>),
    /// The tenant has no such destination.
    UnknownDestination,
    /// The destination is disabled.
    DisabledDestination,
    /// More than [`domain::event::MAX_DESTINATIONS`] destinations subscribe to its
    /// type.
    TooManyDestinations,
    /// Nobody who subscribes to its type takes it, and somebody has to.
    NoSubscriber,
    /// The tenant has used the idempotency key before, for the same: nothing
    /// new was written, the answer is that event's.
    Repeated {
        /// The event that the key stands for.
        event: EventId,
        /// Where it went.
        destinations: Vec<DestinationId>,
    },
    /// The tenant has used the idempotency key before, for something else.
    KeyReused,
}

impl Acceptance {
    /// Where the event that is durable now goes; none if none is.
    #[must_use]
    pub fn destinations(&self) -> &[DestinationId] {
        match self {
            Self::Accepted(destinations) | Self::Repeated { destinations, .. } => destinations,
            Self::UnknownDestination
            | Self::DisabledDestination
            | Self::TooManyDestinations
            | Self::NoSubscriber
            | Self::KeyReused => &[],
        }
    }
}

/// A destination to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Which.
    pub destination: DestinationId,
    /// The previous lease lapsed: return its admitted permits that still have
    /// time, so that they are published again.
    pub republish: bool,
}

/// What [`Store::admit`] did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Admitted {
    /// The store's clock, read before what is used.
    pub now: Timestamp,
    /// One result per run, in the order of the runs.
    pub results: Vec<RunResult>,
    /// The new permits of each tenant.
    pub given: Vec<Given>,
}

/// What became of one run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunResult {
    /// Somebody holds the row, or has changed it meanwhile: nothing is known. Not the same
    /// as empty.
    Skipped,
    /// There is no such destination any more.
    Gone,
    /// It was decided.
    Decided {
        /// To be published, in slot order; republished ones first.
        permits: Vec<Permit>,
        /// When to look again.
        look: Look,
        /// What holds the rest of the backlog.
        blocked: Option<Blocked>,
        /// Its last tries have failed ([`domain::health::is_failing`]).
        failing: bool,
    },
}

/// What [`Store::claim_starts`] answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claims {
    /// The store's clock at the claim.
    pub now: Timestamp,
    /// One answer per permit, in order.
    pub answers: Vec<ClaimAnswer>,
    /// Destinations whose rows went back to waiting.
    pub wakes: Vec<Wake>,
    /// How long the call took before it read that clock, at least: it waited for its
    /// turn, and of batches what they carry is read first. Measured by the caller's side.
    pub composed_for: Duration,
}

/// What became of one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every answer is a start: a box would be one more allocation for each"
)]
pub enum ClaimAnswer {
    /// It has started: send now.
    Started(Start),
    /// The slot has not come yet: ask again after so long.
    Early(Duration),
    /// The row is locked by somebody else: ask again, until the deadline.
    Skipped,
    /// Late, stale, revoked or held: the permit is over.
    Refused,
}

/// All that a sender needs beside the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// When it was claimed, by the store's clock; or its slot, if that is ahead.
    pub claimed_at: Timestamp,
    /// The event.
    pub event: EventId,
    /// Which try this is: 1 is the first.
    pub try_number: u32,
    /// Tries before the event's last replay: the policy counts from there.
    pub tries_before: u32,
    /// The destination's retry policy, as it is now.
    pub retry: RetrySettings,
    /// The payload's media type.
    pub content_type: String,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// The trace that the event belongs to.
    pub trace: Option<TraceContext>,
    /// All that the request carries, the leader first; empty where it is not a
    /// batch.
    pub members: Vec<Member>,
}

/// One event of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The attempt.
    pub attempt: AttemptId,
    /// The event.
    pub event: EventId,
    /// Which try this is: 1 is the first.
    pub try_number: u32,
    /// Tries before the event's last replay.
    pub tries_before: u32,
    /// The event's type.
    pub event_type: Option<String>,
    /// The payload's media type.
    pub content_type: String,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// When the event was accepted.
    pub accepted_at: Timestamp,
    /// The trace that the event belongs to.
    pub trace: Option<TraceContext>,
}

/// A request that was sent and has no answer yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendReport {
    /// The attempt; of a batch, its leader.
    pub attempt: AttemptId,
    /// The permit that it was claimed under.
    pub number: PermitNumber,
    /// Whose it is.
    pub destination: DestinationId,
    /// As [`Outcome::sent_after`].
    pub sent_after: Duration,
}

/// Nothing is to be admitted of a destination for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deferral {
    /// Whose permits found no place.
    pub destination: DestinationId,
    /// From now on, by the store's clock.
    pub lasts: Duration,
}

/// What [`Store::record_outcomes`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Outcomes whose rows were locked: record them again.
    pub skipped: Vec<AttemptId>,
    /// Retries to wake for, destinations that were short of places, and those
    /// whose permits a hold took back.
    pub wakes: Vec<Wake>,
    /// What operators must know; it is written down already.
    pub health: Vec<HealthChange>,
}

/// When the reaper gives something up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReapRules {
    /// A worker whose heartbeat is older than this is gone.
    pub heartbeat_timeout: Duration,
    /// A start older than this is given up even if its worker lives: the
    /// total timeout of a request and ten seconds.
    pub start_timeout: Duration,
    /// How long after its permit's deadline a row is moved back.
    pub permit_grace: Duration,
    /// Beside permits and starts that are over, for which limits wait, what nobody waits
    /// for: what is deleted, too old or only to be forgotten.
    pub everything: bool,
}

/// What [`Store::reap`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Permits that ended unused.
    pub expired_permits: u32,
    /// Starts that became `unknown`.
    pub unknown_starts: u32,
    /// Attempts cancelled because their destination is gone.
    pub cancelled: u32,
    /// Attempts that grew too old while they waited: dead letters now.
    pub expired: u32,
    /// Parts that met a lock or their bound, and what they said.
    pub put_off: Vec<PutOff>,
    /// A part that has no count of its own, such as what is only forgotten, may
    /// have more to do.
    pub more: bool,
    /// Whom to wake.
    pub wakes: Vec<Wake>,
    /// The store failed before the last part, and this is what it said.
    pub cut_short: Option<String>,
}

impl Reaped {
    /// What a pass comes to that the store has ended: an error if it has done nothing.
    pub fn cut_short_by(mut self, error: StoreError) -> Result<Self, StoreError> {
        if self == Self::default() {
            return Err(error);
        }
        self.cut_short = Some(error.to_string());
        Ok(self)
    }

    /// Whether some part may have more to do: it moved as many as it may.
    #[must_use]
    pub fn is_full(&self, limit: u32) -> bool {
        let most = self.expired_permits.max(self.unknown_starts);
        self.more || most.max(self.cancelled).max(self.expired) >= limit
    }
}

/// A part of [`Store::reap`] that has done nothing this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOff {
    /// Which.
    pub part: &'static str,
    /// Why.
    pub problem: String,
}

/// The longest that one part of [`Store::reap`] may take, where the store can end
/// it: many times what a full step takes, and so little that a loop which meets it
/// still comes round.
pub const REAP_PART_BOUND: Duration = Duration::from_secs(1);

/// How long a deleted destination is looked at at least: whatever read its row
/// before it was deleted has long committed what it makes of it, and the longest
/// request is over and recorded. What commits later still is found by retention
/// ([`Retain`](super::Retain)).
pub const DRAINED_AFTER: Duration = Duration::from_secs(120);

/// One page of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// The last destination of the page before.
    pub after: Option<DestinationId>,
    /// Destinations on a page.
    pub limit: u32,
    /// How long past its planned look a destination may be.
    pub overdue: Duration,
    /// All destinations with work, looked at or not.
    pub everything: bool,
    /// Only what has changed, no destination for its work.
    pub only_marks: bool,
}

/// What one page of a sweep found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepPage {
    /// Whom to wake.
    pub wakes: Vec<Wake>,
    /// Marks to clear after waking.
    pub marks: Vec<Mark>,
    /// Destinations with attempts whose commit came so late that admission had gone
    /// past them. It goes back to them now.
    pub late: u32,
    /// Where the next page begins; `None` after the last.
    pub next: Option<DestinationId>,
}

/// A change of a destination's limits or state that has yet to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Whose.
    pub destination: DestinationId,
    /// Which change: a later one is another mark.
    pub version: i64,
}

/// A sign of life of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub worker: WorkerId,
    /// How many attempts it can have in hand; 0 retires it.
    pub places: u32,
}

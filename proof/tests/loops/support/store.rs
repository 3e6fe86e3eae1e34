//! A store that answers what a test scripts, and keeps one rule by itself: a
//! permit number starts once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::admission::{Blocked, Look};
use domain::event::NewEvent;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, PermitNumber, TenantId, WorkerId};
use domain::margin::Spread;
use domain::permit::Permit;
use domain::retry::RetrySettings;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Admitted, ClaimAnswer, Claims, Deferral, Fleet, Given, Heartbeat, Mark, Member,
    Outcome, ReapRules, Reaped, Recorded, Run, RunResult, SealedSecret, SendReport, Start, Store,
    StoreError, Sweep, SweepPage, Target, Wake,
};
use futures_util::FutureExt;
use tokio::time::Instant;
use uuid::Uuid;

use super::script::Script;
use super::{Event, Journal};

/// What the store's clock says when a world begins.
pub(crate) const T0: Timestamp = Timestamp::from_millis(1_800_000_000_000);

type Answer<A> = Result<A, StoreError>;

pub(crate) struct FakeStore {
    journal: Arc<Journal>,
    began: Instant,
    stepped: Mutex<Duration>,
    started: Mutex<HashSet<PermitNumber>>,
    head_start: Mutex<Duration>,
    /// Whether it has plain outcomes in calls of their own.
    pub(crate) plain_apart: AtomicBool,
    /// Whether it writes two commits of events at once.
    pub(crate) side_by_side: AtomicBool,
    /// So many events in each request; 0 for no batches.
    pub(crate) batches: AtomicUsize,
    /// What composing the request of a batch takes.
    pub(crate) composing: Mutex<Duration>,
    pub(crate) admit: Script<(Vec<Run>, u32), Answer<Vec<RunResult>>>,
    pub(crate) fleet: Script<(), Answer<Fleet>>,
    pub(crate) targets: Script<(), Answer<Epoch>>,
    /// What every target signs with.
    pub(crate) secrets: Mutex<Vec<SealedSecret>>,
    /// What to answer, or `None` for *started, once*.
    pub(crate) claim: Script<Permit, Option<Answer<ClaimAnswer>>>,
    pub(crate) release: Script<Vec<Permit>, Answer<Vec<Wake>>>,
    pub(crate) report: Script<Vec<SendReport>, Answer<()>>,
    pub(crate) record: Script<Vec<Outcome>, Answer<Recorded>>,
    pub(crate) heartbeat: Script<Heartbeat, Answer<()>>,
    pub(crate) spreads: Script<Vec<(DestinationId, Spread)>, Answer<()>>,
    pub(crate) reap: Script<ReapRules, Answer<Reaped>>,
    pub(crate) sweep: Script<Sweep, Answer<SweepPage>>,
    pub(crate) clear_marks: Script<(), Answer<()>>,
    pub(crate) accept: Script<Vec<NewEvent>, Answer<Vec<Acceptance>>>,
}

impl FakeStore {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        let fleet = Fleet {
            now: T0,
            workers: 1,
            places: 1_000,
            outstanding: 0,
            loads: Vec::new(),
        };
        let wakes_of = |permits: Vec<Permit>| {
            let mut destinations: Vec<_> = permits.iter().map(|p| p.destination).collect();
            destinations.dedup();
            Ok(destinations.into_iter().map(Wake::now).collect())
        };
        Self {
            journal,
            began: Instant::now(),
            stepped: Mutex::default(),
            started: Mutex::default(),
            head_start: Mutex::default(),
            plain_apart: AtomicBool::default(),
            side_by_side: AtomicBool::default(),
            batches: AtomicUsize::default(),
            composing: Mutex::default(),
            admit: Script::new(|(runs, _): (Vec<Run>, u32)| {
                Ok(vec![decided(&[], Look::Idle); runs.len()])
            }),
            fleet: Script::new(move |()| Ok(fleet.clone())),
            targets: Script::new(|()| Ok(Epoch(1))),
            secrets: Mutex::default(),
            claim: Script::new(|_| None),
            release: Script::new(wakes_of),
            report: Script::new(|_| Ok(())),
            record: Script::new(|_| Ok(Recorded::default())),
            heartbeat: Script::new(|_| Ok(())),
            spreads: Script::new(|_| Ok(())),
            reap: Script::new(|_| Ok(Reaped::default())),
            sweep: Script::new(|_| Ok(SweepPage::default())),
            clear_marks: Script::new(|()| Ok(())),
            accept: Script::new(|events: Vec<NewEvent>| {
                Ok(vec![Acceptance::Accepted(Vec::new()); events.len()])
            }),
        }
    }

    /// The store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        T0 + self.began.elapsed() + *self.stepped.lock().unwrap()
    }

    /// Steps that clock forward.
    pub(crate) fn steps_by(&self, step: Duration) {
        *self.stepped.lock().unwrap() += step;
    }

    /// Starts permits so long before their slots, dated to them.
    pub(crate) fn has_head_start(&self, head_start: Duration) {
        *self.head_start.lock().unwrap() = head_start;
    }

    fn start(&self, permit: &Permit, now: Timestamp) -> ClaimAnswer {
        if !self.started.lock().unwrap().insert(permit.number) {
            return ClaimAnswer::Refused;
        }
        ClaimAnswer::Started(Start {
            claimed_at: now.max(permit.not_before),
            event: EventId(Uuid::from_u128(permit.attempt.0.unsigned_abs().into())),
            try_number: 1,
            tries_before: 0,
            retry: RetrySettings::default(),
            content_type: "application/json".to_owned(),
            payload: Bytes::from_static(b"{}"),
            members: Vec::new(),
            trace: None,
        })
    }
}

/// A payload that takes time to be put into its batch: the clock goes on when it is
/// let go of, for composing a request awaits nothing.
struct Slow(Duration);

impl AsRef<[u8]> for Slow {
    fn as_ref(&self) -> &[u8] {
        b"{}"
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _advanced = tokio::time::advance(self.0).now_or_never();
    }
}

/// The events of a batch: the leader's, and those of attempts after it.
pub(crate) fn member(permit: &Permit, place: usize) -> Member {
    let attempt = AttemptId(permit.attempt.0 + i64::try_from(place).unwrap());
    Member {
        attempt,
        event: EventId(Uuid::from_u128(attempt.0.unsigned_abs().into())),
        try_number: 1,
        tries_before: 0,
        event_type: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{}"),
        accepted_at: T0,
        trace: None,
    }
}

/// Whose every permit is.
const TENANT: TenantId = TenantId(Uuid::from_u128(1));

/// A run that was decided so.
pub(crate) fn decided(permits: &[Permit], look: Look) -> RunResult {
    RunResult::Decided {
        permits: permits.to_vec(),
        look,
        blocked: None,
        failing: false,
    }
}

/// The same of a destination whose last tries have failed.
pub(crate) fn decided_failing(permits: &[Permit], look: Look) -> RunResult {
    RunResult::Decided {
        permits: permits.to_vec(),
        look,
        blocked: None,
        failing: true,
    }
}

/// The same of one that is given nothing, for the fleet has no place.
pub(crate) fn decided_short_of_places(look: Look) -> RunResult {
    RunResult::Decided {
        permits: Vec::new(),
        look,
        blocked: Some(Blocked::Places),
        failing: false,
    }
}

/// A start of this try.
pub(crate) fn started(try_number: u32) -> ClaimAnswer {
    ClaimAnswer::Started(Start {
        claimed_at: T0,
        event: EventId(Uuid::from_u128(1)),
        try_number,
        tries_before: 0,
        retry: RetrySettings::default(),
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{}"),
        members: Vec::new(),
        trace: None,
    })
}

/// It is not there.
pub(crate) fn store_away() -> StoreError {
    StoreError::Unavailable("away".to_owned())
}

/// A row says what it must not.
pub(crate) fn corrupt() -> StoreError {
    StoreError::Corrupt {
        table: "attempts",
        column: "state",
        row: "1".to_owned(),
        problem: "nonsense".to_owned(),
    }
}

#[async_trait]
impl Store for FakeStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Answer<Vec<Acceptance>> {
        self.journal.note(Event::Accept(events.len()));
        self.accept.ask(events.to_vec()).await
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Answer<Admitted> {
        let (now, room) = (self.now(), room.left());
        if runs.is_empty() {
            self.journal.note(Event::Nothing("admit"));
            return Ok(Admitted {
                now,
                ..Admitted::default()
            });
        }
        self.journal.note(Event::Admit(runs.to_vec(), room));
        let results = self.admit.ask((runs.to_vec(), room)).await?;
        let now = self.now();
        let permits = |result: &RunResult| match result {
            RunResult::Decided { permits, .. } => (TENANT, permits.len() as u32),
            RunResult::Skipped | RunResult::Gone => (TENANT, 0),
        };
        let given = Given::by_tenant(results.iter().map(permits));
        Ok(Admitted {
            now,
            results,
            given,
        })
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Answer<Vec<Target>> {
        if destinations.is_empty() {
            self.journal.note(Event::Nothing("targets"));
            return Ok(Vec::new());
        }
        self.journal.note(Event::Targets(destinations.to_vec()));
        let epoch = self.targets.ask(()).await?;
        let target = |destination: &DestinationId| Target {
            destination: *destination,
            epoch,
            // Another epoch, another URL.
            url: format!("https://example.com/{}", epoch.0),
            timeout: Duration::from_secs(15),
            batches: self.batches.load(Ordering::SeqCst) > 0,
            secrets: self.secrets.lock().unwrap().clone(),
            pass_traceparent: false,
            names_origin: false,
            identity: None,
        };
        Ok(destinations.iter().map(target).collect())
    }

    async fn claim_batches(&self, worker: WorkerId, permits: &[Permit]) -> Answer<Claims> {
        self.journal
            .note(Event::ClaimBatches(worker, permits.to_vec()));
        let now = self.now();
        let size = self.batches.load(Ordering::SeqCst);
        let answers = permits.iter().map(|permit| {
            let mut answer = self.start(permit, now);
            if let ClaimAnswer::Started(start) = &mut answer {
                start.members = (0..size).map(|place| member(permit, place)).collect();
                if let Some(last) = start.members.last_mut() {
                    let composing = *self.composing.lock().unwrap();
                    last.payload = Bytes::from_owner(Slow(composing));
                }
            }
            answer
        });
        Ok(Claims {
            now,
            answers: answers.collect(),
            wakes: Vec::new(),
            composed_for: Duration::ZERO,
        })
    }

    async fn claim_starts(&self, worker: WorkerId, permits: &[Permit]) -> Answer<Claims> {
        self.journal.note(match permits {
            [] => Event::Nothing("claim_starts"),
            _ => Event::Claim(worker, permits.to_vec()),
        });
        let mut answers = Vec::new();
        let now = self.now();
        for permit in permits {
            let scripted = self.claim.ask(*permit).await;
            answers.push(scripted.unwrap_or_else(|| Ok(self.start(permit, now)))?);
        }
        let wakes = Vec::new();
        Ok(Claims {
            now,
            answers,
            wakes,
            composed_for: Duration::ZERO,
        })
    }

    fn head_start(&self) -> Duration {
        *self.head_start.lock().unwrap()
    }

    fn plain_outcomes_apart(&self) -> bool {
        self.plain_apart.load(Ordering::SeqCst)
    }

    fn accepts_side_by_side(&self) -> bool {
        self.side_by_side.load(Ordering::SeqCst)
    }

    async fn release_permits(&self, permits: &[Permit]) -> Answer<Vec<Wake>> {
        self.journal.note(Event::Release(permits.to_vec()));
        self.release.ask(permits.to_vec()).await
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Answer<()> {
        self.journal.note(Event::Defer(deferrals.to_vec()));
        Ok(())
    }

    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Answer<()> {
        self.journal
            .note(Event::ReportSends(worker, sends.to_vec()));
        self.report.ask(sends.to_vec()).await
    }

    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Answer<()> {
        self.journal.note(Event::ReportSpreads(spreads.to_vec()));
        self.spreads.ask(spreads.to_vec()).await
    }

    async fn record_outcomes(&self, worker: WorkerId, outcomes: &[Outcome]) -> Answer<Recorded> {
        if outcomes.is_empty() {
            self.journal.note(Event::Nothing("record_outcomes"));
            return Ok(Recorded::default());
        }
        let outcomes = outcomes.to_vec();
        self.journal.note(Event::Record(worker, outcomes.clone()));
        self.record.ask(outcomes).await
    }

    async fn reap(&self, rules: &ReapRules, _limit: u32) -> Answer<Reaped> {
        self.journal.note(Event::Reap(*rules));
        self.reap.ask(*rules).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Answer<SweepPage> {
        self.journal.note(Event::Sweep(*sweep));
        self.sweep.ask(*sweep).await
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Answer<()> {
        self.journal.note(Event::ClearMarks(marks.to_vec()));
        self.clear_marks.ask(()).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Answer<Timestamp> {
        self.journal.note(Event::Heartbeat(*heartbeat));
        self.heartbeat.ask(*heartbeat).await?;
        self.journal.note(Event::Beaten(*heartbeat));
        Ok(self.now())
    }

    async fn fleet(&self) -> Answer<Fleet> {
        self.journal.note(Event::Fleet);
        self.fleet.ask(()).await
    }
}

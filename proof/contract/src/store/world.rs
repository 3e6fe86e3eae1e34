//! The world of one test: a fresh store, its back doors, and the verbs that
//! the tests are written in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::admission::{Blocked, Look};
use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::health::Signal;
use domain::ids::{DestinationId, EventId, TenantId, WorkerId};
use domain::limit::{Count, Shape};
use domain::limit_group::GroupName;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::response_headers::ResponseHeaders;
use domain::share::Room;
use domain::time::Timestamp;
use uuid::Uuid;

use crate::stalled::stalled;
use engine::ports::{
    Acceptance, AttemptView, Catalog, ClaimAnswer, Claims, DEFAULT_TENANT, Handshakes, HealthBook,
    Heartbeat, LedgerRow, Managers, NewDestination, NextTry, Outcome, Recorded, Run, RunResult,
    SecretStore, Speaks, Start, Store, TokenBook,
};

/// What a test may do to a store beside its ports.
#[async_trait]
pub trait Backdoor: Send + Sync {
    /// Runs one statement on a connection of its own, as a user's SQL tool
    /// does; the constraint's message if it is refused.
    async fn sql(&self, statement: &str) -> Result<(), String>;

    /// Returns once the store's clock is `at` or later.
    async fn pass_until(&self, at: Timestamp);
}

/// A fresh store, and what tests do to it.
pub struct World {
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// The same store.
    pub catalog: Arc<dyn Catalog>,
    /// The same store.
    pub secrets: Arc<dyn SecretStore>,
    /// The same store.
    pub handshakes: Arc<dyn Handshakes>,
    /// The same store.
    pub managers: Arc<dyn Managers>,
    /// The same store.
    pub tokens: Arc<dyn TokenBook>,
    door: Arc<dyn Backdoor>,
    ids: AtomicU64,
}

impl World {
    /// A world around a fresh, migrated store.
    pub fn new<S>(store: Arc<S>, door: Arc<dyn Backdoor>) -> Self
    where
        S: Store + Catalog + SecretStore + Handshakes + Managers + TokenBook + 'static,
    {
        Self {
            store: Arc::clone(&store) as Arc<dyn Store>,
            catalog: Arc::clone(&store) as Arc<dyn Catalog>,
            secrets: Arc::clone(&store) as Arc<dyn SecretStore>,
            handshakes: Arc::clone(&store) as Arc<dyn Handshakes>,
            managers: Arc::clone(&store) as Arc<dyn Managers>,
            tokens: store,
            door,
            ids: AtomicU64::new(1),
        }
    }

    /// Its health book.
    pub fn health(&self) -> &dyn HealthBook {
        &*self.catalog
    }

    /// The store's clock.
    pub async fn now(&self) -> Timestamp {
        self.store.fleet().await.unwrap().now
    }

    /// Lets so much of the store's time pass.
    pub async fn pass(&self, duration: Duration) {
        let until = self.now().await + duration;
        self.pass_until(until).await;
    }

    /// Lets the store's time pass until `at`.
    pub async fn pass_until(&self, at: Timestamp) {
        self.door.pass_until(at).await;
    }

    /// Runs a user's SQL.
    pub async fn sql(&self, statement: &str) {
        self.door.sql(statement).await.unwrap();
    }

    /// Runs a user's SQL that must be refused; what the store says.
    pub async fn refused_sql(&self, statement: &str) -> String {
        self.door.sql(statement).await.unwrap_err()
    }

    /// Runs the first of these that the store understands: where its dialects differ.
    pub async fn either_sql(&self, statements: [&str; 2]) {
        if self.door.sql(statements[0]).await.is_err() {
            self.sql(statements[1]).await;
        }
    }

    /// An id that no other thing in this world has; later ones are greater.
    pub fn id(&self) -> Uuid {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        Uuid::from_u128((0x01f0_0000_0000_7000_8000 << 48) | u128::from(number))
    }

    /// An id of an event that is given now: unlike [`World::id`] it says so.
    pub async fn dated_id(&self) -> EventId {
        self.id_of(self.now().await)
    }

    /// An id of an event that was given then.
    pub fn id_of(&self, at: Timestamp) -> EventId {
        let millis = at.as_micros().unsigned_abs() / 1_000;
        let number = self.id().as_u128() & u128::from(u64::MAX >> 2);
        let id = (u128::from(millis) << 80) | (0x7000_8000 << 48) | number;
        EventId(Uuid::from_u128(id))
    }

    /// Ids of events of three days: of today, of the day after tomorrow, which is made ahead, and
    /// of the day that [`World::id`] says. Of days before the store was made there are none.
    pub async fn ids_of_three_days(&self) -> [EventId; 3] {
        let now = self.now().await;
        let ahead = now + Duration::from_secs(2 * 86_400);
        [self.id_of(now), self.id_of(ahead), EventId(self.id())]
    }

    /// A destination in the making: unless told otherwise unlimited.
    pub fn destination(&self) -> DestinationBuilder<'_> {
        let new = NewDestination {
            external_id: None,
            id: DestinationId(self.id()),
            name: String::new(),
            url: "https://receiver.example/hooks".to_owned(),
            event_types: Vec::new(),
            filter: None,
            limits: LimitSettings::EXACT,
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: None,
        };
        DestinationBuilder { world: self, new }
    }

    /// An event for one destination.
    pub fn event(&self, destination: DestinationId) -> NewEvent {
        NewEvent {
            id: EventId(self.id()),
            tenant: DEFAULT_TENANT,
            audience: Audience::Destination(destination),
            event_type: None,
            content_type: "application/json".to_owned(),
            payload: Bytes::from_static(b"{\"order\": 1}"),
            idempotency: None,
            trace: None,
            timing: Timing::default(),
        }
    }

    /// Accepts `count` events for a destination, in one batch.
    pub async fn accept(&self, destination: DestinationId, count: usize) -> Vec<EventId> {
        self.accept_for(DEFAULT_TENANT, destination, count).await
    }

    /// The same for another tenant's.
    pub async fn accept_for(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        count: usize,
    ) -> Vec<EventId> {
        let event = |_| NewEvent {
            tenant,
            ..self.event(destination)
        };
        let events: Vec<_> = (0..count).map(event).collect();
        for batch in events.chunks(engine::ports::MIN_DELIVERIES) {
            for answer in self.store.accept_events(batch).await.unwrap() {
                assert_eq!(answer, Acceptance::Accepted(vec![destination]));
            }
        }
        events.iter().map(|event| event.id).collect()
    }

    /// A new worker that lives.
    pub async fn worker(&self) -> WorkerId {
        let worker = WorkerId(self.id());
        self.beat(worker).await;
        worker
    }

    /// A sign of life of a worker.
    pub async fn beat(&self, worker: WorkerId) {
        let heartbeat = Heartbeat { worker, places: 10 };
        self.store.heartbeat(&heartbeat).await.unwrap();
    }

    /// One run of one destination, with room for plenty.
    pub async fn decide(&self, destination: DestinationId) -> (Vec<Permit>, Look, Option<Blocked>) {
        self.run(destination, false).await
    }

    /// The permits of one run that follows a lapsed lease.
    pub async fn readmit(&self, destination: DestinationId) -> Vec<Permit> {
        self.run(destination, true).await.0
    }

    async fn run(
        &self,
        destination: DestinationId,
        republish: bool,
    ) -> (Vec<Permit>, Look, Option<Blocked>) {
        let run = Run {
            destination,
            republish,
        };
        let admitted = self.store.admit(&[run], &Room::of(10_000)).await.unwrap();
        assert_eq!(admitted.results.len(), 1, "one result per run");
        match admitted.results.into_iter().next() {
            Some(RunResult::Decided {
                permits,
                look,
                blocked,
                ..
            }) => (permits, look, blocked),
            other => panic!("expected a decision, got {other:?}"),
        }
    }

    /// The permits of one run.
    pub async fn admit(&self, destination: DestinationId) -> Vec<Permit> {
        self.decide(destination).await.0
    }

    /// Claims as the worker would.
    pub async fn claim(&self, worker: WorkerId, permits: &[Permit]) -> Claims {
        let claims = self.store.claim_starts(worker, permits).await.unwrap();
        assert_eq!(claims.answers.len(), permits.len(), "one answer per permit");
        claims
    }

    /// Waits for each slot and starts it.
    pub async fn start(&self, worker: WorkerId, permits: &[Permit]) -> Vec<Start> {
        let mut starts = Vec::new();
        // What opens together is claimed together, as a worker does.
        for together in permits.chunk_by(|a, b| a.not_before == b.not_before) {
            self.pass_until(together[0].not_before).await;
            self.beat(worker).await;
            let claims = self.claim(worker, together).await;
            for (permit, answer) in together.iter().zip(claims.answers) {
                match answer {
                    ClaimAnswer::Started(start) => starts.push(start),
                    ClaimAnswer::Refused if claims.now > permit.deadline => stalled(),
                    other => panic!("expected a start, got {other:?}"),
                }
            }
        }
        starts
    }

    /// The outcome of a start under this permit.
    pub fn outcome(&self, permit: &Permit, kind: OutcomeKind, next: NextTry) -> Outcome {
        let succeeded = kind == OutcomeKind::Succeeded;
        Outcome {
            attempt: permit.attempt,
            number: permit.number,
            destination: permit.destination,
            kind,
            sent_after: Duration::ZERO,
            elapsed: Duration::from_millis(40),
            status: Some(if succeeded { 200 } else { 503 }),
            error: (!succeeded).then(|| "the receiver answered 503".into()),
            response_body: Bytes::from_static(b"ok"),
            response_headers: ResponseHeaders::kept(
                (200, b"ok"),
                [("retry-after", b"3".as_slice())],
            ),
            next,
            signal: Signal::default(),
            speaks: Speaks::ForRequest,
            may_arrive: false,
        }
    }

    /// Records one outcome.
    pub async fn record(
        &self,
        worker: WorkerId,
        permit: &Permit,
        kind: OutcomeKind,
        next: NextTry,
    ) -> Recorded {
        let outcome = self.outcome(permit, kind, next);
        let recorded = self.store.record_outcomes(worker, &[outcome]).await;
        recorded.unwrap()
    }

    /// Records that all of them succeeded.
    pub async fn finish(&self, worker: WorkerId, permits: &[Permit]) -> Recorded {
        let succeeded = |permit| self.outcome(permit, OutcomeKind::Succeeded, NextTry::None);
        let outcomes: Vec<_> = permits.iter().map(succeeded).collect();
        let recorded = self.store.record_outcomes(worker, &outcomes).await;
        recorded.unwrap()
    }

    /// Runs a destination until `until`: admit, start, finish. How often it
    /// started.
    pub async fn drive(&self, destination: DestinationId, until: Timestamp) -> usize {
        let worker = self.worker().await;
        let mut started = 0;
        while self.now().await < until {
            let permits = self.admit(destination).await;
            started += self.start(worker, &permits).await.len();
            self.finish(worker, &permits).await;
            self.beat(worker).await;
            self.pass(Duration::from_millis(30)).await;
        }
        started
    }

    /// A destination's attempts in creation order.
    pub async fn attempts(&self, destination: DestinationId) -> Vec<AttemptView> {
        let newest_first = self
            .catalog
            .attempts(DEFAULT_TENANT, destination, None, 1_000);
        let mut attempts = newest_first.await.unwrap();
        attempts.reverse();
        attempts
    }

    /// The states of a destination's attempts in creation order.
    pub async fn states(&self, destination: DestinationId) -> Vec<AttemptState> {
        let attempts = self.attempts(destination).await;
        attempts.iter().map(|attempt| attempt.state).collect()
    }

    /// A destination's whole ledger.
    pub async fn ledger(&self, destination: DestinationId) -> Vec<LedgerRow> {
        let (since, until) = (Timestamp::from_micros(0), Timestamp::from_millis(1 << 42));
        let ledger = self
            .catalog
            .ledger(destination, since, until, None, 100_000);
        ledger.await.unwrap()
    }

    /// A destination's starts, the earliest first.
    pub async fn starts(&self, destination: DestinationId) -> Vec<Timestamp> {
        let ledger = self.ledger(destination).await;
        ledger.iter().filter_map(|row| row.started_at).collect()
    }

    /// How many attempts wait.
    pub async fn backlog(&self, destination: DestinationId) -> u32 {
        let backlogs = self.catalog.backlogs(&[destination], 10_000).await;
        backlogs.unwrap()[0]
    }
}

/// A destination in the making.
pub struct DestinationBuilder<'a> {
    world: &'a World,
    new: NewDestination,
}

impl DestinationBuilder<'_> {
    /// Whether its receiver is asked first.
    #[must_use]
    pub fn handshake(mut self, handshake: Handshake) -> Self {
        self.new.handshake = handshake;
        self
    }

    /// Starts per second.
    #[must_use]
    pub fn per_second(mut self, max: u32) -> Self {
        self.new.limits.per_second = Some(max);
        self
    }

    /// The margin of its windows; `None` to measure it.
    #[must_use]
    pub fn margin(mut self, part: Option<f64>) -> Self {
        self.new.limits.safety_margin = part;
        self
    }

    /// Requests count until their answers.
    #[must_use]
    pub fn by_response(mut self) -> Self {
        self.new.limits.count = Some(Count::Response);
        self
    }

    /// Starts per minute.
    #[must_use]
    pub fn per_minute(mut self, max: u32) -> Self {
        self.new.limits.per_minute = Some(max);
        self
    }

    /// No rate limit.
    #[must_use]
    pub fn unlimited(mut self) -> Self {
        self.new.limits.unlimited = true;
        self
    }

    /// How the limit spreads its starts.
    #[must_use]
    pub fn shape(mut self, shape: Shape) -> Self {
        self.new.limits.shape = Some(shape);
        self
    }

    /// A bucket's capacity.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        self.new.limits.burst = Some(burst);
        self
    }

    /// Attempts queued and in flight at once.
    #[must_use]
    pub fn max_in_flight(mut self, max: u32) -> Self {
        self.new.limits.max_in_flight = Some(max);
        self
    }

    /// What it subscribes to.
    #[must_use]
    pub fn event_types(mut self, types: &[&str]) -> Self {
        self.new.event_types = types.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// The limit group that it is in.
    #[must_use]
    pub fn group(mut self, name: &GroupName) -> Self {
        self.new.limit_group = Some(name.clone());
        self
    }

    /// What would be created.
    #[must_use]
    pub fn build(self) -> NewDestination {
        self.new
    }

    /// Creates it.
    pub async fn create(self) -> DestinationId {
        self.create_for(DEFAULT_TENANT).await
    }

    /// Creates it for another tenant.
    pub async fn create_for(self, tenant: TenantId) -> DestinationId {
        let created = self.world.catalog.create_destination(tenant, &self.new);
        created.await.unwrap().id
    }
}

/// The most of `starts` (in order) in any half-open window of `period`.
pub(super) fn most_in_any(period: Duration, starts: &[Timestamp]) -> usize {
    let in_window_up_to = |last: &Timestamp| {
        let in_window = |start: &&Timestamp| **start > *last - period && *start <= last;
        starts.iter().filter(in_window).count()
    };
    starts.iter().map(in_window_up_to).max().unwrap_or(0)
}

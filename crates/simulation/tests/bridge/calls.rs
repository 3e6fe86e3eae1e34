//! The calls of a store, as they are drawn and as they are made.

use std::time::Duration;

use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::destination::DestinationState;
use domain::event::{Audience, NewEvent};
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use engine::ports::{
    Acceptance, Admitted, Catalog, ClaimAnswer, Claims, DEFAULT_TENANT, DestinationChange, Fleet,
    HEARTBEAT_TIMEOUT, Heartbeat, NextTry, Outcome, ReapRules, Reaped, Recorded, Run, RunResult,
    Store, Sweep, SweepPage, Wake,
};
use prop::sample::{Index, select};
use proptest::prelude::{Just, Strategy, any, prop};
use uuid::Uuid;

/// A driver, as its callers and its users have it.
pub(crate) trait Driver: Store + Catalog {}
impl<T: Store + Catalog> Driver for T {}

/// A call as it is drawn: what it is about are places in lists of what there
/// is by then.
#[derive(Debug, Clone)]
pub(crate) enum Drawn {
    Accept(Vec<(Index, bool)>),
    Admit { runs: Vec<(Index, bool)>, room: u32 },
    Claim { worker: Index, permits: Vec<Index> },
    Release(Vec<Index>),
    Record(Vec<(Index, usize)>),
    Reap { unknown: bool, expired: bool },
    Sweep { everything: bool },
    Beat { worker: Index, places: u32 },
    Limits(Index, LimitSettings),
    State(Index, DestinationState),
    Delete(Index),
}

/// A call as it is made.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Accept(Vec<NewEvent>),
    Admit(Vec<Run>, u32),
    Claim(WorkerId, Vec<Permit>),
    Release(Vec<Permit>),
    Record(WorkerId, Vec<Outcome>),
    Reap(ReapRules),
    Sweep(Sweep),
    Beat(Heartbeat),
    Change(DestinationId, DestinationChange),
    Delete(DestinationId),
}

/// What it answered; what went wrong in words.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Accepted(Vec<Acceptance>),
    Admitted(Admitted),
    Claims(Claims),
    Woken(Vec<Wake>),
    Recorded(Recorded),
    Reaped(Reaped),
    Swept(SweepPage),
    Fleet(Fleet),
    /// Its limits and state then are in the rows.
    Changed,
    Deleted,
    Failed(String),
}

/// Limits that start much at once, and such that bind.
pub(crate) fn limits() -> impl Strategy<Value = LimitSettings> {
    let per_second = select(vec![None, Some(0), Some(3), Some(40), Some(400), Some(400)]);
    let per_minute = select(vec![None, None, Some(20), Some(300)]);
    let in_flight = select(vec![None, None, None, Some(3)]);
    (per_second, per_minute, in_flight).prop_map(|(per_second, per_minute, max_in_flight)| {
        LimitSettings {
            per_second,
            per_minute,
            max_in_flight,
            unlimited: per_second.is_none() && per_minute.is_none(),
            ..LimitSettings::default()
        }
    })
}

fn some<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(of, 1..6)
}

/// Any call.
pub(crate) fn calls() -> impl Strategy<Value = Drawn> {
    let one = any::<Index>;
    let rarely = || prop::bool::weighted(0.15);
    let states = [
        DestinationState::Active,
        DestinationState::Active,
        DestinationState::Paused,
    ];
    proptest::prop_oneof![
        5 => some((one(), rarely())).prop_map(Drawn::Accept),
        8 => (some((one(), rarely())), select(vec![4, 1_000]))
            .prop_map(|(runs, room)| Drawn::Admit { runs, room }),
        9 => (one(), some(one())).prop_map(|(worker, permits)| Drawn::Claim { worker, permits }),
        1 => some(one()).prop_map(Drawn::Release),
        6 => some((one(), 0..8_usize)).prop_map(Drawn::Record),
        2 => (rarely(), any::<bool>()).prop_map(|(unknown, expired)| Drawn::Reap { unknown, expired }),
        1 => any::<bool>().prop_map(|everything| Drawn::Sweep { everything }),
        2 => (one(), select(vec![50, 50, 50, 50, 50, 50, 0]))
            .prop_map(|(worker, places)| Drawn::Beat { worker, places }),
        1 => (one(), limits()).prop_map(|(which, limits)| Drawn::Limits(which, limits)),
        1 => (one(), select(states.to_vec())).prop_map(|(which, state)| Drawn::State(which, state)),
        1 => prop::strategy::Union::new_weighted(vec![
            (4, Just(None).boxed()),
            (1, one().prop_map(Some).boxed()),
        ])
        .prop_map(|which| which.map_or(Drawn::Sweep { everything: true }, Drawn::Delete)),
    ]
}

/// What calls can be about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) destinations: Vec<DestinationId>,
    pub(crate) workers: Vec<WorkerId>,
    /// The latest permits, stale ones too.
    pub(crate) permits: Vec<Permit>,
    /// The latest starts, with those that are over.
    pub(crate) started: Vec<(WorkerId, Permit)>,
    /// Which worker makes all the claims; none: each is drawn.
    pub(crate) claimer: Option<WorkerId>,
    last_event: Option<NewEvent>,
    ids: u128,
}

/// How many permits and starts calls are about.
const LATEST: usize = 12;

fn latest<T>(of: &[T]) -> &[T] {
    &of[of.len().saturating_sub(LATEST)..]
}

fn picked<T: Copy>(of: &[T], indexes: Vec<Index>) -> Vec<T> {
    let of = latest(of);
    let indexes = indexes.into_iter().filter(|_| !of.is_empty());
    indexes.map(|index| of[index.index(of.len())]).collect()
}

impl Known {
    /// An id that was not there before; later ones are greater, as ours are.
    pub(crate) fn id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128((0x01f1_u128 << 112) | self.ids)
    }

    fn destination(&self, index: Index) -> DestinationId {
        *index.get(&self.destinations)
    }

    /// The call that is drawn.
    pub(crate) fn resolve(&mut self, drawn: Drawn) -> Call {
        match drawn {
            Drawn::Accept(events) => {
                let event = |(to, repeated)| self.event(to, repeated);
                Call::Accept(events.into_iter().map(event).collect())
            }
            Drawn::Admit { runs, room } => {
                let run = |(which, republish)| Run {
                    destination: self.destination(which),
                    republish,
                };
                let mut runs: Vec<Run> = runs.into_iter().map(run).collect();
                runs.sort_by_key(|run| run.destination);
                runs.dedup_by_key(|run| run.destination);
                Call::Admit(runs, room)
            }
            Drawn::Claim { worker, permits } => {
                let worker = self.claimer.unwrap_or(*worker.get(&self.workers));
                Call::Claim(worker, picked(&self.permits, permits))
            }
            Drawn::Release(permits) => Call::Release(picked(&self.permits, permits)),
            Drawn::Record(outcomes) => self.record(outcomes),
            Drawn::Reap { unknown, expired } => Call::Reap(ReapRules {
                heartbeat_timeout: HEARTBEAT_TIMEOUT,
                start_timeout: Duration::from_secs(if unknown { 0 } else { 40 }),
                permit_grace: Duration::from_secs(if expired { 0 } else { 40 }),
            }),
            Drawn::Sweep { everything } => Call::Sweep(Sweep {
                after: None,
                limit: 100,
                overdue: Duration::ZERO,
                everything,
            }),
            Drawn::Beat { worker, places } => Call::Beat(Heartbeat {
                worker: *worker.get(&self.workers),
                // Somebody has to be left.
                places: places.max(u32::from(self.workers.len() == 1)),
            }),
            Drawn::Limits(which, limits) => {
                let change = DestinationChange {
                    limits: Some(limits),
                    ..DestinationChange::default()
                };
                Call::Change(self.destination(which), change)
            }
            Drawn::State(which, state) => {
                let change = DestinationChange {
                    state: Some(state),
                    ..DestinationChange::default()
                };
                Call::Change(self.destination(which), change)
            }
            Drawn::Delete(which) => Call::Delete(self.destination(which)),
        }
    }

    /// A new event, or the last one again.
    fn event(&mut self, to: Index, repeated: bool) -> NewEvent {
        if let (true, Some(last)) = (repeated, &self.last_event) {
            return last.clone();
        }
        let event = NewEvent {
            id: EventId(self.id()),
            tenant: DEFAULT_TENANT,
            audience: Audience::Destination(self.destination(to)),
            event_type: None,
            content_type: "text/plain".to_owned(),
            payload: Bytes::from_static(b"hello"),
        };
        self.last_event = Some(event.clone());
        event
    }

    /// All by the worker that started the first.
    fn record(&self, outcomes: Vec<(Index, usize)>) -> Call {
        let (indexes, kinds): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
        let started = picked(&self.started, indexes);
        let worker = (started.first()).map_or(self.workers[0], |(worker, _)| *worker);
        let outcomes = started.iter().zip(kinds);
        let outcomes = outcomes.map(|((_, permit), kind)| outcome(permit, kind));
        Call::Record(worker, outcomes.collect())
    }

    /// What the answers add to it.
    pub(crate) fn learn(&mut self, call: &Call, answer: &Answer) {
        match (call, answer) {
            (_, Answer::Admitted(admitted)) => {
                for result in &admitted.results {
                    if let RunResult::Decided { permits, .. } = result {
                        self.permits.extend(permits);
                    }
                }
            }
            (Call::Claim(worker, permits), Answer::Claims(claims)) => {
                for (permit, answer) in permits.iter().zip(&claims.answers) {
                    if matches!(answer, ClaimAnswer::Started(_)) {
                        self.started.push((*worker, *permit));
                    }
                }
            }
            (Call::Beat(Heartbeat { worker, places: 0 }), _) if self.workers.len() > 1 => {
                self.workers.retain(|one| one != worker);
            }
            (Call::Delete(id), Answer::Deleted) => self.destinations.retain(|one| one != id),
            _ => {}
        }
    }
}

fn outcome(permit: &Permit, kind: usize) -> Outcome {
    let hour = Duration::from_secs(3_600);
    let (kind, next) = match kind {
        0 => (OutcomeKind::Failed, NextTry::RetryAfter(hour)),
        1 => (OutcomeKind::Failed, NextTry::DeadLetter),
        2 => (OutcomeKind::NotSent, NextTry::Again),
        3 => (OutcomeKind::Failed, NextTry::RetryAfter(Duration::ZERO)),
        _ => (OutcomeKind::Succeeded, NextTry::None),
    };
    let failed = kind != OutcomeKind::Succeeded;
    Outcome {
        attempt: permit.attempt,
        number: permit.number,
        destination: permit.destination,
        kind,
        elapsed: Duration::from_micros(10),
        status: Some(if failed { 500 } else { 200 }),
        error: failed.then(|| "it said so".to_owned()),
        response_body: Bytes::new(),
        next,
    }
}

/// Makes a call.
pub(crate) async fn ask(driver: &(impl Driver + ?Sized), call: &Call) -> Answer {
    let tenant = DEFAULT_TENANT;
    let failed = |error: &dyn std::fmt::Display| Answer::Failed(error.to_string());
    macro_rules! answer {
        ($call:expr, $of:expr) => {
            $call.await.map_or_else(|error| failed(&error), $of)
        };
    }
    match call {
        Call::Accept(events) => answer!(driver.accept_events(events), Answer::Accepted),
        Call::Admit(runs, room) => answer!(driver.admit(runs, *room), Answer::Admitted),
        Call::Claim(by, permits) => answer!(driver.claim_starts(*by, permits), Answer::Claims),
        Call::Release(permits) => answer!(driver.release_permits(permits), Answer::Woken),
        Call::Record(by, outcomes) => {
            answer!(driver.record_outcomes(*by, outcomes), Answer::Recorded)
        }
        Call::Reap(rules) => answer!(driver.reap(rules, 1_000), Answer::Reaped),
        Call::Sweep(sweep) => answer!(driver.sweep(sweep), Answer::Swept),
        Call::Beat(heartbeat) => answer!(driver.heartbeat(heartbeat), Answer::Fleet),
        Call::Change(id, change) => {
            answer!(driver.change_destination(tenant, *id, change), |_| {
                Answer::Changed
            })
        }
        Call::Delete(id) => {
            answer!(driver.delete_destination(tenant, *id), |()| Answer::Deleted)
        }
    }
}

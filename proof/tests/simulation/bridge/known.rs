//! What calls can be about, and how the drawn ones become calls on that.

use std::time::Duration;

use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::event::{Audience, NewEvent, Timing};
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use engine::ports::{
    ClaimAnswer, DEFAULT_TENANT, DestinationChange, HEARTBEAT_TIMEOUT, Heartbeat, NextTry, Outcome,
    ReapRules, Run, RunResult, Sweep,
};
use proptest::prelude::prop::sample::Index;
use uuid::Uuid;

use super::calls::{Answer, Call, Drawn};

/// What calls can be about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) destinations: Vec<DestinationId>,
    pub(crate) workers: Vec<WorkerId>,
    /// The latest permits, stale ones too.
    pub(crate) permits: Vec<Permit>,
    /// The latest starts, with those that are over.
    pub(crate) started: Vec<(WorkerId, Permit)>,
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
                let worker = *worker.get(&self.workers);
                Call::Claim(worker, picked(&self.permits, permits))
            }
            Drawn::Release(permits) => Call::Release(picked(&self.permits, permits)),
            Drawn::Record(outcomes) => self.record(outcomes),
            Drawn::Reap { unknown, expired } => Call::Reap(ReapRules {
                heartbeat_timeout: HEARTBEAT_TIMEOUT,
                start_timeout: Duration::from_secs(if unknown { 0 } else { 40 }),
                permit_grace: Duration::from_secs(if expired { 0 } else { 40 }),
                everything: true,
            }),
            Drawn::Sweep { everything } => Call::Sweep(Sweep {
                after: None,
                limit: 100,
                overdue: Duration::ZERO,
                everything,
                only_marks: false,
            }),
            Drawn::Beat { worker, places } => Call::Beat(Heartbeat {
                worker: *worker.get(&self.workers),
                // Somebody has to be left.
                places: places.max(u32::from(self.workers.len() == 1)),
            }),
            Drawn::Fleet => Call::Fleet,
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
            idempotency: None,
            trace: None,
            timing: Timing::default(),
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
        sent_after: Duration::ZERO,
        elapsed: Duration::from_micros(10),
        status: Some(if failed { 500 } else { 200 }),
        error: failed.then(|| "it said so".into()),
        response_body: Bytes::new(),
        response_headers: domain::response_headers::ResponseHeaders::default(),
        next,
        signal: domain::health::Signal::default(),
        speaks: engine::ports::Speaks::ForRequest,
        may_arrive: false,
    }
}

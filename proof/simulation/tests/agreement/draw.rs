//! What is done to both stores, drawn.

use std::time::Duration;

use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::event::{Audience, Idempotency, NewEvent};
use domain::health::Signal;
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::share::Room;
use engine::ports::{
    Backpressure as _, DEFAULT_TENANT, HEARTBEAT_TIMEOUT, Heartbeat, NextTry, Outcome, ReapRules,
    Run, Store as _, Sweep,
};
use rand::RngExt as _;
use uuid::Uuid;

use super::{Pair, both};

impl Pair {
    /// One drawn step.
    pub(crate) async fn step(&mut self) {
        match self.below(108) {
            0..12 => self.accept().await,
            12..38 => self.admit().await,
            38..62 => self.claim().await,
            62..64 => self.release().await,
            64..78 => self.record().await,
            78..82 => self.reap().await,
            82..85 => self.sweep().await,
            85..89 => self.beat().await,
            89..93 => self.change().await,
            93 => self.replace().await,
            _ if self.one_in(2) => self.other().await,
            _ => self.pass().await,
        }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound)
    }

    pub(super) fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn millis(&mut self, bound: usize) -> Duration {
        let micros = self.below(bound * 1_000);
        Duration::from_micros(u64::try_from(micros).unwrap())
    }

    pub(super) fn id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }

    pub(super) fn destination(&mut self) -> DestinationId {
        let index = self.below(self.destinations.len());
        self.destinations[index]
    }

    fn worker(&mut self) -> WorkerId {
        let index = self.below(self.workers.len());
        self.workers[index]
    }

    async fn pass(&mut self) {
        let by = match self.below(12) {
            0 => self.millis(4_000),
            _ => self.millis(120),
        };
        tokio::time::advance(by).await;
    }

    pub(super) async fn enlist(&mut self) {
        let worker = WorkerId(self.id());
        self.workers.push(worker);
        let heartbeat = Heartbeat { worker, places: 9 };
        both!(self, heartbeat(&heartbeat)).unwrap();
    }

    async fn beat(&mut self) {
        for worker in self.workers.clone() {
            if !self.one_in(12) {
                let places = u32::from(!self.one_in(40)) * 7;
                let heartbeat = Heartbeat { worker, places };
                both!(self, heartbeat(&heartbeat)).unwrap();
            }
        }
        let dead = self.workers.len() > 6;
        if dead || self.one_in(6) {
            let oldest = usize::from(dead);
            self.workers.drain(..oldest);
            self.enlist().await;
        }
        both!(self, fleet()).unwrap();
    }

    async fn accept(&mut self) {
        let mut events = Vec::new();
        for _ in 0..=self.below(12) {
            let to_one = Audience::Destination(self.destination());
            let repeated = self.one_in(15);
            let id = if repeated {
                Uuid::from_u128(self.ids)
            } else {
                self.id()
            };
            events.push(NewEvent {
                id: EventId(id),
                tenant: DEFAULT_TENANT,
                audience: if self.one_in(4) {
                    Audience::Subscribers
                } else {
                    to_one
                },
                event_type: Some(["a", "b"][self.below(2)].to_owned()),
                content_type: "text/plain".to_owned(),
                payload: Bytes::from_static(b"hello"),
                idempotency: self.one_in(4).then(|| Idempotency {
                    key: ["one", "two", "three"][self.below(3)].to_owned(),
                    digest: [u8::from(self.one_in(9)); 32],
                    kept_for: Duration::from_secs(4),
                }),
                trace: None,
            });
        }
        both!(self, accept_events(&events)).unwrap();
        if self.one_in(5) {
            both!(self, repeated(&events)).unwrap();
        }
    }

    async fn admit(&mut self) {
        let mut runs = Vec::new();
        for _ in 0..=self.below(3) {
            runs.push(Run {
                destination: self.destination(),
                republish: self.one_in(5),
            });
        }
        let room = Room::of(if self.one_in(4) { 6 } else { 1_000 });
        let admitted = both!(self, admit(&runs, &room)).unwrap();
        self.note_permits(&admitted.results);
    }

    /// Some of the latest permits, twice the same and stale ones among them.
    fn some_permits(&mut self) -> Vec<Permit> {
        let mut permits = Vec::new();
        for _ in 0..self.below(12) {
            if self.permits.is_empty() {
                break;
            }
            let index = self.below(self.permits.len());
            // Those that start are over: most are drawn once.
            permits.push(match self.one_in(10) {
                true => self.permits[index],
                false => self.permits.swap_remove(index),
            });
        }
        permits
    }

    async fn claim(&mut self) {
        let (worker, permits) = (self.worker(), self.some_permits());
        let claims = match self.one_in(2) {
            true => both!(self, claim_starts(worker, &permits)).unwrap(),
            false => both!(self, claim_batches(worker, &permits)).unwrap(),
        };
        self.note_starts(worker, &permits, &claims.answers);
    }

    async fn release(&mut self) {
        let permits = self.some_permits();
        both!(self, release_permits(&permits)).unwrap();
    }

    async fn record(&mut self) {
        let other = self.worker();
        let mut outcomes = Vec::new();
        let mut worker = other;
        for _ in 0..self.below(10) {
            if self.started.is_empty() {
                break;
            }
            let index = self.below(self.started.len());
            let (of, permit) = match self.one_in(8) {
                true => self.started[index],
                false => self.started.swap_remove(index),
            };
            worker = if self.one_in(20) { other } else { of };
            outcomes.push(self.outcome(&permit));
        }
        both!(self, record_outcomes(worker, &outcomes)).unwrap();
    }

    fn outcome(&mut self, permit: &Permit) -> Outcome {
        let after = self.millis(3_000);
        let (kind, next) = match self.below(8) {
            0 => (OutcomeKind::Failed, NextTry::RetryAfter(after)),
            1 => (OutcomeKind::Failed, NextTry::DeadLetter),
            2 => (OutcomeKind::NotSent, NextTry::Again),
            3 => (OutcomeKind::Failed, NextTry::RetryAfter(Duration::ZERO)),
            _ => (OutcomeKind::Succeeded, NextTry::None),
        };
        let failed = kind != OutcomeKind::Succeeded;
        let refused = self.one_in(3);
        let signal = Signal {
            wait: (failed && self.one_in(3)).then(|| Duration::from_millis(700)),
            dice: u16::try_from(self.below(60_000)).unwrap(),
        };
        Outcome {
            attempt: permit.attempt,
            number: permit.number,
            destination: permit.destination,
            kind,
            elapsed: self.millis(500),
            status: Some(match (failed, refused) {
                (true, true) => 429,
                (true, false) => 500,
                (false, _) => 200,
            }),
            error: failed.then(|| "it said so".into()),
            response_body: Bytes::from_static(if failed { b"" } else { b"ok" }),
            next,
            signal,
            speaks: engine::ports::Speaks::ForRequest,
        }
    }

    async fn reap(&mut self) {
        let rules = ReapRules {
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            start_timeout: Duration::from_secs(if self.one_in(3) { 1 } else { 40 }),
            permit_grace: self.millis(200),
        };
        let limit = if self.one_in(3) { 2 } else { 1_000 };
        both!(self, reap(&rules, limit)).unwrap();
    }

    async fn sweep(&mut self) {
        let sweep = Sweep {
            after: self.page.next,
            limit: 1 + u32::try_from(self.below(4)).unwrap(),
            overdue: self.millis(300),
            everything: self.one_in(3),
            only_marks: self.one_in(4),
        };
        self.page = both!(self, sweep(&sweep)).unwrap();
        if self.one_in(2) {
            both!(self, clear_marks(&self.page.marks)).unwrap();
        }
    }
}

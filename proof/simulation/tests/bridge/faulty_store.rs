//! Faults planted in front of a store, for the bridge to find.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::share::Room;
use engine::ports::{
    Acceptance, Admitted, Catalog, ClaimAnswer, Claims, Deferral, Fleet, Heartbeat, Mark, Outcome,
    ReapRules, Reaped, Recorded, Run, SendReport, Start, Store, StoreError, Sweep, SweepPage,
    Target, Wake,
};

use super::calls::Driver;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A permit that started starts again.
    StartsTwice,
    /// Of the events of one call, the last is lost.
    LosesEvent,
    /// An outcome is answered and not recorded.
    LosesOutcome,
    /// What was handed back wakes nobody.
    LosesWakes,
}

/// A store with a fault.
pub(crate) struct Faulty<D> {
    pub(crate) inner: D,
    pub(crate) fault: Fault,
    /// What each permit was answered that started.
    pub(crate) started: Mutex<BTreeMap<PermitKey, Start>>,
}

/// Attempt and number.
pub(crate) type PermitKey = (i64, i64);

impl<D> Faulty<D> {
    pub(crate) fn new(inner: D, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            started: Mutex::default(),
        }
    }

    fn claimed(&self, permits: &[Permit], claims: &mut Claims) {
        let mut started = self.started.lock().unwrap();
        for (permit, answer) in permits.iter().zip(&mut claims.answers) {
            let key = (permit.attempt.0, permit.number.0);
            match answer {
                ClaimAnswer::Started(start) => {
                    started.insert(key, start.clone());
                }
                _ => {
                    if let Some(start) = started.get(&key) {
                        *answer = ClaimAnswer::Started(start.clone());
                    }
                }
            }
        }
    }
}

#[async_trait]
impl<D: Driver> Store for Faulty<D> {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        if self.fault == Fault::LosesEvent && events.len() > 1 {
            let (last, first) = events.split_last().unwrap();
            let mut answers = self.inner.store().accept_events(first).await?;
            let domain::event::Audience::Destination(to) = last.audience else {
                return self.inner.store().accept_events(events).await;
            };
            answers.push(Acceptance::Accepted(vec![to]));
            return Ok(answers);
        }
        self.inner.store().accept_events(events).await
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        self.inner.store().admit(runs, room).await
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        self.inner.store().targets(destinations).await
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let mut claims = self.inner.store().claim_starts(worker, permits).await?;
        if self.fault == Fault::StartsTwice {
            self.claimed(permits, &mut claims);
        }
        Ok(claims)
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        self.inner.store().claim_batches(worker, permits).await
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        let wakes = self.inner.store().release_permits(permits).await?;
        Ok(match self.fault {
            Fault::LosesWakes => Vec::new(),
            _ => wakes,
        })
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        self.inner.store().defer(deferrals).await
    }

    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError> {
        self.inner.store().report_sends(worker, sends).await
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        let recorded = match self.fault {
            Fault::LosesOutcome => &outcomes[..outcomes.len() / 2],
            _ => outcomes,
        };
        self.inner.store().record_outcomes(worker, recorded).await
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        self.inner.store().reap(rules, limit).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        self.inner.store().sweep(sweep).await
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        self.inner.store().clear_marks(marks).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Fleet, StoreError> {
        self.inner.store().heartbeat(heartbeat).await
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        self.inner.store().fleet().await
    }
}

impl<D: Driver> Driver for Faulty<D> {
    fn store(&self) -> &dyn Store {
        self
    }

    fn catalog(&self) -> &dyn Catalog {
        self.inner.catalog()
    }
}

//! Faults planted in front of a store, for the bridge to find.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::WorkerId;
use domain::permit::Permit;
use engine::ports::{
    Acceptance, Catalog, ClaimAnswer, Claims, Outcome, Recorded, Start, Store, StoreError,
    StoreLayer, Wake,
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
impl<D: Driver> StoreLayer for Faulty<D> {
    fn under(&self) -> Option<&dyn Store> {
        Some(self.inner.store())
    }

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

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        let wakes = self.inner.store().release_permits(permits).await?;
        Ok(match self.fault {
            Fault::LosesWakes => Vec::new(),
            _ => wakes,
        })
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
}

impl<D: Driver> Driver for Faulty<D> {
    fn store(&self) -> &dyn Store {
        self
    }

    fn catalog(&self) -> &dyn Catalog {
        self.inner.catalog()
    }
}

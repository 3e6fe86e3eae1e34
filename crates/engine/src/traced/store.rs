//! The port, passed on: what is traced is noted after the step.

use std::time::Duration;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::{DestinationId, WorkerId};
use domain::margin::Spread;
use domain::permit::Permit;
use domain::share::Room;
use domain::time::Timestamp;
use tokio::time::Instant;

use super::TracedStore;
use crate::ports::{
    Acceptance, Admitted, Claims, Deferral, Fleet, Heartbeat, Mark, Outcome, ReapRules, Reaped,
    Recorded, Run, SendReport, Store, StoreError, Sweep, SweepPage, Target, Wake,
};

#[async_trait]
impl Store for TracedStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        let traced: Vec<NewEvent> = events.iter().map(|event| self.traced(event)).collect();
        let began = Instant::now();
        let answers = self.inner.accept_events(&traced).await?;
        self.note_ingest(began, events, &traced, &answers);
        Ok(answers)
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        let began = Instant::now();
        let admitted = self.inner.admit(runs, room).await?;
        self.note_admission(began, &admitted);
        Ok(admitted)
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        self.inner.targets(destinations).await
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let asked = Instant::now();
        let mut claims = self.inner.claim_starts(worker, permits).await?;
        self.note_claims(asked, permits, &mut claims);
        Ok(claims)
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let asked = Instant::now();
        let mut claims = self.inner.claim_batches(worker, permits).await?;
        self.note_claims(asked, permits, &mut claims);
        Ok(claims)
    }

    fn head_start(&self) -> Duration {
        self.inner.head_start()
    }

    fn plain_outcomes_apart(&self) -> bool {
        self.inner.plain_outcomes_apart()
    }

    fn accepts_side_by_side(&self) -> bool {
        self.inner.accepts_side_by_side()
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        self.inner.release_permits(permits).await
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        self.inner.defer(deferrals).await
    }

    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError> {
        self.inner.report_sends(worker, sends).await
    }

    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Result<(), StoreError> {
        self.inner.report_spreads(spreads).await
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        let began = Instant::now();
        let recorded = self.inner.record_outcomes(worker, outcomes).await?;
        self.note_outcomes(began, outcomes, &recorded);
        Ok(recorded)
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        self.inner.reap(rules, limit).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        self.inner.sweep(sweep).await
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        self.inner.clear_marks(marks).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Timestamp, StoreError> {
        self.inner.heartbeat(heartbeat).await
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        self.inner.fleet().await
    }
}

//! A store in front of another one, or in the place of one of which little is asked.

use std::time::Duration;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::{DestinationId, WorkerId};
use domain::margin::Spread;
use domain::permit::Permit;
use domain::share::Room;
use domain::time::Timestamp;

use super::error::StoreError;
use super::schedule::Wake;
use super::sender::Target;
use super::store::{
    Acceptance, Admitted, Claims, Deferral, Fleet, Heartbeat, Mark, Outcome, ReapRules, Reaped,
    Recorded, Run, SendReport, Store, Sweep, SweepPage,
};

/// Makes a [`Store`] of what changes some of its methods: all others are those of the
/// store under it, or fail where there is none. So a method that is new to the port is no
/// matter of the faults, fakes and traps that do not ask for it.
///
/// A store that ships is none: what it leaves out has to be an error of the compiler.
#[async_trait]
pub trait StoreLayer: Send + Sync {
    /// The store under it.
    fn under(&self) -> Option<&dyn Store> {
        None
    }

    /// See [`Store::accept_events`].
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        asked(self.under())?.accept_events(events).await
    }

    /// See [`Store::admit`].
    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        asked(self.under())?.admit(runs, room).await
    }

    /// See [`Store::targets`].
    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        asked(self.under())?.targets(destinations).await
    }

    /// See [`Store::claim_starts`].
    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        asked(self.under())?.claim_starts(worker, permits).await
    }

    /// See [`Store::claim_batches`].
    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        asked(self.under())?.claim_batches(worker, permits).await
    }

    /// See [`Store::head_start`].
    fn head_start(&self) -> Duration {
        self.under().map_or(Duration::ZERO, Store::head_start)
    }

    /// See [`Store::plain_outcomes_apart`].
    fn plain_outcomes_apart(&self) -> bool {
        self.under().is_some_and(Store::plain_outcomes_apart)
    }

    /// See [`Store::accepts_side_by_side`].
    fn accepts_side_by_side(&self) -> bool {
        self.under().is_some_and(Store::accepts_side_by_side)
    }

    /// See [`Store::release_permits`].
    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        asked(self.under())?.release_permits(permits).await
    }

    /// See [`Store::defer`].
    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        asked(self.under())?.defer(deferrals).await
    }

    /// See [`Store::report_sends`].
    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError> {
        asked(self.under())?.report_sends(worker, sends).await
    }

    /// See [`Store::report_spreads`].
    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Result<(), StoreError> {
        asked(self.under())?.report_spreads(spreads).await
    }

    /// See [`Store::record_outcomes`].
    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        asked(self.under())?.record_outcomes(worker, outcomes).await
    }

    /// See [`Store::reap`].
    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        asked(self.under())?.reap(rules, limit).await
    }

    /// See [`Store::sweep`].
    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        asked(self.under())?.sweep(sweep).await
    }

    /// See [`Store::changed`].
    async fn changed(&self) {
        match self.under() {
            Some(store) => store.changed().await,
            None => std::future::pending().await,
        }
    }

    /// See [`Store::clear_marks`].
    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        asked(self.under())?.clear_marks(marks).await
    }

    /// See [`Store::heartbeat`].
    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Timestamp, StoreError> {
        asked(self.under())?.heartbeat(heartbeat).await
    }

    /// See [`Store::fleet`].
    async fn fleet(&self) -> Result<Fleet, StoreError> {
        asked(self.under())?.fleet().await
    }
}

fn asked(under: Option<&dyn Store>) -> Result<&dyn Store, StoreError> {
    under.ok_or_else(|| StoreError::Unavailable("nobody asks that of this store".to_owned()))
}

#[async_trait]
impl<T: StoreLayer> Store for T {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        StoreLayer::accept_events(self, events).await
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        StoreLayer::admit(self, runs, room).await
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        StoreLayer::targets(self, destinations).await
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        StoreLayer::claim_starts(self, worker, permits).await
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        StoreLayer::claim_batches(self, worker, permits).await
    }

    fn head_start(&self) -> Duration {
        StoreLayer::head_start(self)
    }

    fn plain_outcomes_apart(&self) -> bool {
        StoreLayer::plain_outcomes_apart(self)
    }

    fn accepts_side_by_side(&self) -> bool {
        StoreLayer::accepts_side_by_side(self)
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        StoreLayer::release_permits(self, permits).await
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        StoreLayer::defer(self, deferrals).await
    }

    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError> {
        StoreLayer::report_sends(self, worker, sends).await
    }

    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Result<(), StoreError> {
        StoreLayer::report_spreads(self, spreads).await
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        StoreLayer::record_outcomes(self, worker, outcomes).await
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        StoreLayer::reap(self, rules, limit).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        StoreLayer::sweep(self, sweep).await
    }

    async fn changed(&self) {
        StoreLayer::changed(self).await;
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        StoreLayer::clear_marks(self, marks).await
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Timestamp, StoreError> {
        StoreLayer::heartbeat(self, heartbeat).await
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        StoreLayer::fleet(self).await
    }
}

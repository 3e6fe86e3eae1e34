//! What owners do: they change limits, pause, delete.

use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::policy::{LimitSettings, Policy, Rate};
use engine::ports::{Catalog, DEFAULT_TENANT, DestinationChange};

use super::{World, destination};
use crate::scenario::spreads_otherwise;

/// The tier of the default tenant.
const TIER: &str = "standard";

impl World<'_> {
    pub(super) async fn change_limits(&self, of: DestinationId, limits: &LimitSettings) {
        let before = self.effective(of).await;
        let change = DestinationChange {
            limits: Some(*limits),
            ..DestinationChange::default()
        };
        let store = &self.parts.store;
        let changed = store.change_destination(DEFAULT_TENANT, of, &change).await;
        if let (Some(before), Ok(changed)) = (before, changed) {
            self.count_change(&before, limits, &changed.effective);
        }
        self.read_history(of);
    }

    /// Lifts all limits behind the witness's back.
    pub(super) async fn lift_limits(&self, of: DestinationId) {
        let limits = LimitSettings {
            unlimited: true,
            ..LimitSettings::default()
        };
        let change = DestinationChange {
            limits: Some(limits),
            ..DestinationChange::default()
        };
        let store = &self.parts.store;
        let lifted = store.change_destination(DEFAULT_TENANT, of, &change).await;
        lifted.expect("no limits are valid limits");
    }

    async fn effective(&self, of: DestinationId) -> Option<LimitSettings> {
        let destination = self.parts.store.destination(DEFAULT_TENANT, of).await;
        destination.ok().map(|destination| destination.effective)
    }

    fn count_change(&self, before: &LimitSettings, own: &LimitSettings, after: &LimitSettings) {
        let counts = &self.parts.around.counts;
        let (from, to) = (before.policy(), after.policy());
        if own.inherits() {
            counts.note("limits set to NULL");
        }
        if to.rate == Rate::Paused {
            counts.note("limit set to 0");
        }
        if spreads_otherwise(before, after) {
            counts.note("shape changed");
        }
        if per_second(&to) > per_second(&from) {
            counts.note("limit raised");
        }
        if per_second(&to) < per_second(&from) {
            counts.note("limit lowered");
        }
    }

    pub(super) async fn change_tier(&self, limits: LimitSettings) {
        if self.parts.store.change_tier(TIER, limits).is_ok() {
            self.parts.around.counts.note("tier changed");
        }
        for of in 0..self.scenario.destinations.len() {
            self.read_history(destination(of));
        }
    }

    pub(super) async fn change_state(&self, of: DestinationId, state: DestinationState) {
        if state != DestinationState::Active {
            self.parts.around.counts.note("destination paused");
        }
        let change = DestinationChange {
            state: Some(state),
            ..DestinationChange::default()
        };
        // It may have been deleted.
        let store = &self.parts.store;
        let _ = store.change_destination(DEFAULT_TENANT, of, &change).await;
        // To resume is to forget a hold.
        let held_until = store.read(|rows| rows.held_until(of));
        self.parts.witness.held(of, held_until);
        self.read_history(of);
    }

    pub(super) async fn delete(&mut self, of: DestinationId) {
        let store = &self.parts.store;
        if store.delete_destination(DEFAULT_TENANT, of).await.is_ok() {
            self.parts.around.counts.note("destination deleted");
            self.deleted.push(of);
        }
        self.read_history(of);
    }
}

/// The fastest rate that a policy allows in the long run.
pub(super) fn per_second(policy: &Policy) -> f64 {
    match &policy.rate {
        Rate::Paused => 0.0,
        Rate::Unlimited => f64::INFINITY,
        Rate::Limited(limited) => limited.per_second(),
    }
}

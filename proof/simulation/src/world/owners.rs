//! What owners do: they change limits, pause, delete.

use domain::batch::BatchSettings;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, ReplayId};
use domain::policy::{LimitSettings, Policy, Rate};
use domain::smart::SmartDelivery;
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{
    Backlog as _, CancelFrom, CancelStep, Catalog as _, DEFAULT_TENANT, DEFAULT_TIER,
    DeadLetterFilter, DestinationChange, NewReplay, RetryRules, SmartBook as _, Tenants as _,
    TierChange, Which,
};
use uuid::Uuid;

use super::{World, destination};
use crate::sabotage::Sabotage;
use crate::scenario::{What, spreads_otherwise};

impl World<'_> {
    pub(super) async fn change_limits(&self, of: DestinationId, limits: &LimitSettings) {
        let before = self.effective(of).await;
        let change = DestinationChange {
            limits: Some(*limits),
            ..DestinationChange::default()
        };
        let store = self.parts.store.shipped();
        let changed = store.change_destination(DEFAULT_TENANT, of, &change).await;
        if let (Some(before), Ok(changed)) = (before, changed) {
            self.count_change(&before, limits, &changed.effective);
        }
        self.read_history(of);
    }

    /// Other limits are in force than the witness knows.
    pub(super) async fn sabotage_limits(&self, of: DestinationId, limits: &LimitSettings) {
        let changed = match self.parts.around.sabotage {
            Some(Sabotage::LiftsLimits) => LimitSettings {
                unlimited: true,
                ..LimitSettings::default()
            },
            Some(Sabotage::DropsMargins) => LimitSettings {
                safety_margin: Some(0.0),
                ..*limits
            },
            _ => return,
        };
        self.change_unseen(of, changed).await;
    }

    /// Changes limits behind the witness's back.
    async fn change_unseen(&self, of: DestinationId, limits: LimitSettings) {
        let change = DestinationChange {
            limits: Some(limits),
            ..DestinationChange::default()
        };
        let store = self.parts.store.shipped();
        let changed = store.change_destination(DEFAULT_TENANT, of, &change).await;
        changed.expect("they are valid limits");
    }

    async fn effective(&self, of: DestinationId) -> Option<LimitSettings> {
        let destination = self
            .parts
            .store
            .shipped()
            .destination(DEFAULT_TENANT, of)
            .await;
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
        let change = TierChange {
            // A tier has none.
            limits: Some(LimitSettings {
                safety_margin: Some(0.0),
                ..limits
            }),
            ..TierChange::default()
        };
        let store = self.parts.store.shipped();
        if store.change_tier(DEFAULT_TIER, &change).await.is_ok() {
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
        let store = self.parts.store.shipped();
        let _ = store.change_destination(DEFAULT_TENANT, of, &change).await;
        // To resume is to forget a hold.
        let held_until = self.parts.store.held_until(of);
        self.parts.witness.held(of, held_until);
        self.read_history(of);
    }

    pub(super) async fn turn_smart(&self, of: DestinationId, to: SmartDelivery) {
        let store = self.parts.store.shipped();
        // It may have been deleted.
        let set = store.set_smart_delivery(DEFAULT_TENANT, of, to).await;
        if set.is_ok() && to == SmartDelivery::On {
            self.parts.around.counts.note("smart delivery turned on");
        }
    }

    pub(super) async fn set_batches(&self, to: &What) {
        let What::Batches {
            destination: of,
            max_events,
            max_bytes,
            max_wait_ms,
        } = to
        else {
            return;
        };
        let of = destination(*of);
        let settings = BatchSettings {
            max_events: (*max_events > 0).then_some(*max_events),
            max_bytes: Some(*max_bytes),
            max_wait_ms: Some(*max_wait_ms),
        };
        let store = self.parts.store.shipped();
        // It may have been deleted, or its events may not become so old.
        let set = store.set_batch_settings(DEFAULT_TENANT, of, &settings);
        let set = set.await;
        if set.is_ok() {
            self.parts.around.counts.note("batches set");
        }
        self.read_history(of);
    }

    pub(super) async fn delete(&mut self, of: DestinationId) {
        let store = self.parts.store.shipped();
        if store.delete_destination(DEFAULT_TENANT, of).await.is_ok() {
            self.parts.around.counts.note("destination deleted");
            self.deleted.push(of);
            // It has left its limit group.
            self.read_members().await;
        }
        self.read_history(of);
    }
}

/// The parts of a backlog that are cancelled in one step.
const CANCEL_STEP: u32 = 7;

impl World<'_> {
    /// Cancels all that has not started, step by step.
    pub(super) async fn cancel(&mut self, of: DestinationId) {
        let mut step = CancelStep {
            destination: of,
            event_type: None,
            accepted_before: None,
            from: CancelFrom::BEGIN,
            limit: CANCEL_STEP,
        };
        let mut any = false;
        let store = Arc::clone(&self.parts.store);
        let store = store.shipped();
        while let Ok(done) = store.cancel_step(DEFAULT_TENANT, &step).await {
            any |= done.cancelled > 0;
            step.accepted_before = Some(done.accepted_before);
            match done.next {
                Some(next) => step.from = next,
                None => break,
            }
            // Others get their turn between two steps.
            tokio::task::yield_now().await;
        }
        if any {
            self.parts.around.counts.note("backlog cancelled");
            self.cancelled.insert(of);
        }
    }

    /// Events that come from now on live so long.
    pub(super) async fn set_age(&self, of: DestinationId, max_age_ms: u64) {
        let rules = RetryRules {
            max_age: (max_age_ms > 0).then(|| Duration::from_millis(max_age_ms)),
            ..RetryRules::default()
        };
        // It may have been deleted.
        let store = self.parts.store.shipped();
        let _ = store.set_retry_rules(DEFAULT_TENANT, of, &rules).await;
    }

    /// Begins a replay of all dead letters.
    pub(super) async fn replay(&mut self, of: DestinationId, number: u32, share_percent: u32) {
        let id = ReplayId(Uuid::from_u128(u128::from(number)));
        let new = NewReplay {
            id,
            which: Which::Matching(of, DeadLetterFilter::default()),
            share: f64::from(share_percent) / 100.0,
        };
        let store = self.parts.store.shipped();
        if let Ok(replay) = store.create_replay(DEFAULT_TENANT, &new).await {
            if replay.total > 0 {
                self.parts.around.counts.note("replay begun");
            }
            self.replays.push(id);
        }
    }

    /// Ends all replays: what is left of them would go on for long.
    pub(super) async fn end_replays(&mut self) {
        for id in std::mem::take(&mut self.replays) {
            let _ = self
                .parts
                .store
                .shipped()
                .cancel_replay(DEFAULT_TENANT, id)
                .await;
        }
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

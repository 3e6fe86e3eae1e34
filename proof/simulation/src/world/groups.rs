//! A limit that some destinations have together: what its owner does, and what is judged
//! of it at the end.

use domain::compliance::{InForce, judge_sends};
use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::limit_group::{GroupLimits, GroupName};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{Catalog as _, DEFAULT_TENANT, DestinationChange, GroupPast, LimitGroups as _};

use super::{World, destination};
use crate::sabotage::Sabotage;
use crate::scenario::What;

/// All the time there is.
const ALWAYS: (Timestamp, Timestamp) = (Timestamp::MIN, Timestamp::MAX);

/// More than all members can start.
const LIFTED: GroupLimits = GroupLimits {
    per_second: Some(2_000),
    per_minute: None,
    per_hour: None,
    per_day: None,
};

fn name() -> GroupName {
    GroupName::kept("together".to_owned())
}

/// What a group allows, as what one destination does.
fn policy(from: Timestamp, limits: &GroupLimits) -> InForce {
    let settings = LimitSettings {
        per_second: limits.per_second,
        per_minute: limits.per_minute,
        per_hour: limits.per_hour,
        per_day: limits.per_day,
        ..LimitSettings::EXACT
    };
    InForce::new(from, &settings, DestinationState::Active)
}

impl World<'_> {
    pub(super) async fn begin_in_group(&self, what: &What) {
        match what {
            What::GroupLimits { limits } => self.change_group(limits).await,
            What::Joins { destination: of } => {
                self.set_group(destination(*of), Some(name()), "limit group joined")
                    .await;
            }
            What::Leaves { destination: of } => self.leave(destination(*of)).await,
            _ => {}
        }
    }

    async fn change_group(&self, limits: &GroupLimits) {
        let (store, name) = (self.parts.store.shipped(), name());
        let before = store.limit_group(DEFAULT_TENANT, &name).await;
        let set = store.put_limit_group(DEFAULT_TENANT, &name, limits).await;
        if set.is_ok() && before.is_ok() {
            self.parts.around.counts.note("limit of a group changed");
        }
        let past = self.past_of_group().await;
        let allowed = past.allowed.iter();
        let history = allowed.map(|(from, limits)| policy(*from, limits));
        self.parts.witness.group_allows(history.collect());
        if self.parts.around.sabotage == Some(Sabotage::LiftsGroups) {
            let lifted = store.put_limit_group(DEFAULT_TENANT, &name, &LIFTED);
            lifted.await.expect("they are valid limits");
        }
    }

    async fn leave(&self, of: DestinationId) {
        self.set_group(of, None, "limit group left").await;
    }

    async fn set_group(&self, of: DestinationId, group: Option<GroupName>, called: &'static str) {
        let store = self.parts.store.shipped();
        let change = DestinationChange {
            limit_group: Some(group.clone()),
            ..DestinationChange::default()
        };
        let before = store.destination(DEFAULT_TENANT, of).await;
        let changes = before.is_ok_and(|before| before.limit_group != group);
        // It may have been deleted, or there may be no group.
        let changed = store.change_destination(DEFAULT_TENANT, of, &change).await;
        if changed.is_ok() && changes {
            self.parts.around.counts.note(called);
        }
        self.read_members().await;
        self.read_history(of);
    }

    /// Tells the witness who is in the group, and who has been.
    pub(super) async fn read_members(&self) {
        let past = self.past_of_group().await;
        self.parts.witness.group_has(past.members);
    }

    async fn past_of_group(&self) -> GroupPast {
        let (store, name) = (self.parts.store.shipped(), name());
        let past = store.limit_group_past(DEFAULT_TENANT, &name, ALWAYS);
        past.await.unwrap_or_default()
    }

    /// Takes everybody out: what is left drains by each destination's own limits.
    pub(super) async fn dissolve_group(&self) {
        if !self.has_group() {
            return;
        }
        for of in self.living() {
            self.leave(of).await;
        }
    }

    /// Whether its scenario has one.
    fn has_group(&self) -> bool {
        let mut operations = self.scenario.operations.iter();
        operations.any(|operation| matches!(operation.what, What::GroupLimits { .. }))
    }

    /// Judges the ledger of the whole group, as the audit does.
    pub(super) async fn judge_group(&self) {
        if !self.has_group() {
            return;
        }
        let (store, name) = (self.parts.store.shipped(), name());
        let starts = store.limit_group_starts(DEFAULT_TENANT, &name, ALWAYS, None, u32::MAX);
        let starts = starts.await.unwrap_or_default();
        let verdict = judge_sends(&self.parts.witness.group_allowed(), &starts);
        let judged = promises::no_window_of_sends_is_over(&verdict);
        let judged = judged.map_err(|broken| broken.of("the limit group"));
        self.parts.witness.note(judged);
    }
}

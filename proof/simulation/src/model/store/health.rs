//! What outcomes make of their destinations' health, and what people see of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use domain::destination::DestinationState;
use domain::health::{BreakerSettings, Observation, is_failing};
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    BreakerChange, CatalogError, HealthBook, HealthChange, HealthEvent, HealthView, Managed,
    OperationalEvent, Outcome, Wake,
};

use super::ModelStore;
use super::change::{Besides, carry_out};
use super::managers;
use super::rows::{Attempt, Rows};

/// What a batch came to.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) changes: Vec<HealthChange>,
    pub(super) wakes: Vec<Wake>,
}

impl Rows {
    /// Nothing of it starts before that.
    #[must_use]
    pub fn held_until(&self, id: DestinationId) -> Option<Timestamp> {
        let pacing = (self.destinations.get(&id)).and_then(|row| row.pacing.held_until);
        let health = (self.health.get(&id)).and_then(|health| health.held_until());
        pacing.max(health)
    }

    /// Nothing of it is admitted before that, though what has a permit may start.
    pub(super) fn deferred_until(&self, id: DestinationId) -> Option<Timestamp> {
        // A change lifts it: it leaves nothing planned.
        (self.destinations.get(&id))
            .filter(|row| row.pacing.next_look_at.is_some())
            .and_then(|row| row.pacing.deferred_until)
    }

    /// Whether its breaker is open, or half open.
    #[must_use]
    pub fn is_probing(&self, id: DestinationId) -> bool {
        (self.health.get(&id)).is_some_and(|health| health.opened_at.is_some())
    }

    /// Whether its last tries have failed.
    pub(super) fn is_failing(&self, id: DestinationId) -> bool {
        (self.health.get(&id))
            .is_some_and(|health| is_failing(health.failures, health.opened_at.is_some()))
    }

    pub(super) fn breaker_settings(&self, id: DestinationId) -> BreakerSettings {
        let default = BreakerSettings::default();
        let set = self.breakers.get(&id).copied().unwrap_or_default();
        let seconds = |set: Option<Option<u32>>, default: Duration| {
            (set.flatten()).map_or(default, |seconds| Duration::from_secs(seconds.into()))
        };
        BreakerSettings {
            failures: set.failures.flatten().unwrap_or(default.failures),
            failing_for: seconds(set.failing_for_seconds, default.failing_for),
            disable_after: seconds(set.disable_after_seconds, default.disable_after),
        }
    }
}

/// Judges, and carries it out.
pub(super) fn judge(rows: &mut Rows, now: Timestamp, ended: &[(&Outcome, Attempt)]) -> Judged {
    let mut judged = Judged::default();
    let matters = |(outcome, _): &&(&Outcome, Attempt)| {
        !outcome.is_unremarkable() || rows.health.contains_key(&outcome.destination)
    };
    let seen: BTreeSet<DestinationId> = (ended.iter().filter(matters))
        .map(|(outcome, _)| outcome.destination)
        .filter(|id| rows.living(*id).is_some())
        .collect();
    for id in seen {
        let observations: Vec<Observation> = (ended.iter())
            .filter(|(outcome, _)| outcome.destination == id)
            .filter_map(|(outcome, row)| outcome.observation(row.started_at?))
            .collect();
        judge_one(rows, now, id, &observations, &mut judged);
    }
    judged
}

fn judge_one(
    rows: &mut Rows,
    now: Timestamp,
    id: DestinationId,
    observations: &[Observation],
    judged: &mut Judged,
) {
    let before = rows.health.get(&id).copied().unwrap_or_default();
    let verdict = before.observe(&rows.breaker_settings(id), observations, now);
    match verdict.health.is_well(now) {
        true => rows.health.remove(&id),
        false => rows.health.insert(id, verdict.health),
    };
    let tenant = rows.living(id).map(|row| row.tenant);
    for what in HealthEvent::of(&verdict) {
        judged.changes.push(HealthChange {
            destination: id,
            what,
        });
        let tenant = tenant.unwrap_or(engine::ports::DEFAULT_TENANT);
        let news = (what.as_str(), what.details(&verdict.health));
        rows.news.note(now, (id, tenant), news);
    }
    if verdict.disable.is_some() {
        if let Some(row) = rows.destinations.get_mut(&id) {
            row.state = DestinationState::Disabled;
        }
        carry_out(rows, now, id, Besides::Nothing);
    } else if verdict.held && !rows.locked.contains(&id) {
        let admitted: Vec<_> = (rows.ledger.permits_of(id))
            .map(|permit| permit.attempt)
            .collect();
        for attempt in &admitted {
            rows.ledger.change(now, *attempt, Attempt::wait_again);
        }
        if !admitted.is_empty() {
            judged.wakes.push(Wake::unblocked(id));
        }
    }
}

/// What the trigger does when another URL is set, when it becomes active, and
/// when it is deleted.
pub(super) fn forget(rows: &mut Rows, id: DestinationId) {
    rows.health.remove(&id);
}

pub(super) fn own(rows: &Rows, tenant: TenantId, id: DestinationId) -> Result<(), CatalogError> {
    let found = rows.living(id).is_some_and(|row| row.tenant == tenant);
    found
        .then_some(())
        .ok_or(CatalogError::NotFound("destination"))
}

fn resume(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
) -> Result<(), CatalogError> {
    own(rows, tenant, id)?;
    if (rows.destinations.get(&id)).is_some_and(|row| row.state == DestinationState::Paused) {
        managers::check(rows, Managed::by_nobody(tenant, id))?;
    }
    if let Some(row) = rows.destinations.get_mut(&id) {
        row.state = DestinationState::Active;
        row.pacing.next_look_at = None;
    }
    carry_out(rows, now, id, Besides::Nothing);
    forget(rows, id);
    Ok(())
}

#[async_trait]
impl HealthBook for ModelStore {
    async fn health(
        &self,
        tenant: TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<HealthView>, CatalogError> {
        let view = |rows: &Rows, now, id: DestinationId| HealthView {
            destination: id,
            now,
            health: rows.health.get(&id).copied().unwrap_or_default(),
            settings: rows.breaker_settings(id),
            failing_percent: rows.news.alerts_of(id).failing_percent,
        };
        Ok(self.look(|rows, now| {
            (destinations.iter())
                .filter(|id| own(rows, tenant, **id).is_ok())
                .map(|id| view(rows, now, *id))
                .collect()
        }))
    }

    async fn resume(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        self.change(|rows, now| resume(rows, now, tenant, destination))
    }

    async fn change_breaker(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &BreakerChange,
    ) -> Result<(), CatalogError> {
        self.step(|rows, _| {
            own(rows, tenant, destination)?;
            let set: &mut BTreeMap<_, BreakerChange> = &mut rows.breakers;
            let set = set.entry(destination).or_default();
            set.failures = change.failures.or(set.failures);
            set.failing_for_seconds = change.failing_for_seconds.or(set.failing_for_seconds);
            set.disable_after_seconds = change.disable_after_seconds.or(set.disable_after_seconds);
            Ok(())
        })
    }

    async fn operational_events(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let events = |rows: &Rows| -> Vec<OperationalEvent> {
            let later = rows.news.events.iter().filter(|one| one.id > after);
            later.take(limit).cloned().collect()
        };
        Ok(self.read(events))
    }
}

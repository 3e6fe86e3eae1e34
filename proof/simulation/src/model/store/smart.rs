//! What outcomes make of effective limits, and what people see of it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, TenantId};
use domain::policy::{Policy, Rate};
use domain::smart::{Ceiling, Effective, Reason, Sample, Smart, SmartDelivery};
use domain::time::Timestamp;
use engine::ports::{CatalogError, Outcome, SmartBook, SmartChange, SmartView};

use super::ModelStore;
use super::health::own;
use super::rows::{Attempt, DestinationRow, Rows};

/// A destination with smart delivery.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SmartRow {
    begun_at: Timestamp,
    effective: Effective,
    /// What the law remembers.
    smart: Option<Smart>,
}

impl SmartRow {
    fn new(begun_at: Timestamp) -> Self {
        Self {
            begun_at,
            effective: Effective::default(),
            smart: None,
        }
    }
}

impl Rows {
    /// What is lowered of a destination's limits.
    #[must_use]
    pub fn lowered(&self, id: DestinationId) -> Effective {
        (self.smart.get(&id)).map_or_else(Effective::default, |row| row.effective)
    }

    /// Whether smart delivery, which is on, has ever lowered them.
    #[must_use]
    pub fn was_lowered(&self, id: DestinationId) -> bool {
        let history = self.smart_history.get(&id).into_iter().flatten();
        self.smart.contains_key(&id)
            && history
                .into_iter()
                .any(|change| change.effective != Effective::default())
    }

    /// What a run goes by: the limits in force, and as slow as smart delivery
    /// has made them.
    pub(super) fn policy_of(&self, id: DestinationId, row: &DestinationRow) -> Policy {
        let mut policy = self.effective(row).policy().slowed(self.lowered(id));
        if row.state != DestinationState::Active {
            policy.rate = Rate::Paused;
        }
        policy
    }
}

/// Judges, and writes it down.
pub(super) fn judge(rows: &mut Rows, now: Timestamp, ended: &[(&Outcome, Attempt)]) {
    let mut samples: BTreeMap<DestinationId, Vec<Sample>> = BTreeMap::new();
    for (outcome, row) in ended {
        let sample = row.started_at.and_then(|at| outcome.sample(at));
        if rows.smart.contains_key(&outcome.destination) {
            samples
                .entry(outcome.destination)
                .or_default()
                .extend(sample);
        }
    }
    for (id, of_one) in samples {
        let policy = rows.living(id).map(|row| rows.effective(row).policy());
        let held_until = rows.health.get(&id).and_then(|one| one.held_until());
        let (Some(ceiling), Some(row)) = (
            policy.and_then(|policy| Ceiling::of(&policy)),
            rows.smart.get_mut(&id),
        ) else {
            continue;
        };
        let smart = row
            .smart
            .unwrap_or_else(|| Smart::new(&ceiling, row.begun_at));
        let verdict = smart.observe(&ceiling, &of_one, (now, held_until));
        let effective = verdict.smart.effective(&ceiling);
        row.effective = effective;
        row.smart = Some(verdict.smart);
        if verdict.is_news {
            note(rows, now, id, (effective, verdict.smart.reason));
        }
    }
}

fn note(
    rows: &mut Rows,
    now: Timestamp,
    id: DestinationId,
    (effective, reason): (Effective, Reason),
) {
    rows.smart_history.entry(id).or_default().push(SmartChange {
        in_force_from: now,
        effective,
        reason,
    });
}

/// What the trigger does when another URL is set, and when it is deleted.
pub(super) fn begin_anew(rows: &mut Rows, now: Timestamp, id: DestinationId) {
    if rows.smart.remove(&id).is_none() {
        return;
    }
    if rows.living(id).is_some() {
        rows.smart.insert(id, SmartRow::new(now));
    }
    note(rows, now, id, (Effective::default(), Reason::Configured));
}

fn set(rows: &mut Rows, now: Timestamp, id: DestinationId, to: SmartDelivery) {
    let is_on = rows.smart.contains_key(&id);
    match to {
        SmartDelivery::On if !is_on => rows.smart.insert(id, SmartRow::new(now)),
        SmartDelivery::Off if is_on => rows.smart.remove(&id),
        _ => return,
    };
    note(rows, now, id, (Effective::default(), Reason::Configured));
    if let Some(row) = rows.destinations.get_mut(&id) {
        row.pacing.next_look_at = None;
    }
}

#[async_trait]
impl SmartBook for ModelStore {
    async fn smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<SmartView, CatalogError> {
        self.read(|rows| {
            own(rows, tenant, destination)?;
            let row = rows.smart.get(&destination);
            Ok(SmartView {
                delivery: match row {
                    Some(_) => SmartDelivery::On,
                    None => SmartDelivery::Off,
                },
                effective: rows.lowered(destination),
                reason: (row.and_then(|row| row.smart))
                    .map_or(Reason::Configured, |smart| smart.reason),
            })
        })
    }

    async fn set_smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        to: SmartDelivery,
    ) -> Result<(), CatalogError> {
        self.step(|rows, now| {
            own(rows, tenant, destination)?;
            set(rows, now, destination, to);
            Ok(())
        })
    }

    async fn smart_history(
        &self,
        destination: DestinationId,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SmartChange>, CatalogError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(self.read(|rows| {
            let history = rows.smart_history.get(&destination);
            let before =
                (history.into_iter().flatten().rev()).filter(|change| change.in_force_from < until);
            before.take(limit).copied().collect()
        }))
    }
}

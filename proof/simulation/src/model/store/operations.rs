//! What operators must know: who is told, what was relayed, and when alerts are
//! raised.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, TenantId};
use domain::operations::{OperationalDestination, OperationalEvent, first_deliveries};
use domain::time::Timestamp;
use domain::watch::{AlertSettings, Watch};
use engine::ports::{
    Acceptance, AlertsChange, AlertsView, CatalogError, MAX_OPERATIONAL, MAX_ROWS, Operations,
    OperationsBook, Registration, RelayedOperations, StoreError, WatchRules, Watched,
};

use super::ModelStore;
use super::health::own;
use super::ingest::accept_events;
use super::rows::Rows;
use super::watch;

/// All tables of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct News {
    /// In order; relayed are those up to [`News::relayed`].
    pub(super) events: Vec<OperationalEvent>,
    last: i64,
    /// Relays take the oldest, so this is a beginning of all.
    relayed: i64,
    /// In the order of registration.
    told: Vec<OperationalDestination>,
    last_position: i64,
    alerts: BTreeMap<DestinationId, AlertsChange>,
    pub(super) watches: BTreeMap<DestinationId, Watch>,
    /// How far the watch's round has come, and when its next step is due.
    pub(super) turn: (Option<DestinationId>, Timestamp),
}

impl Default for News {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            last: 0,
            relayed: 0,
            told: Vec::new(),
            last_position: 0,
            alerts: BTreeMap::new(),
            watches: BTreeMap::new(),
            turn: (None, Timestamp::MIN),
        }
    }
}

impl News {
    /// Writes down what operators must know.
    pub(super) fn note(
        &mut self,
        now: Timestamp,
        (destination, tenant): (DestinationId, TenantId),
        (event_type, details): (&str, String),
    ) {
        self.last += 1;
        self.events.push(OperationalEvent {
            id: self.last,
            created_at: now,
            event_type: event_type.to_owned(),
            destination,
            tenant,
            details,
        });
    }

    /// What the trigger does when a destination is deleted.
    pub(super) fn forget(&mut self, destination: DestinationId) {
        self.told.retain(|one| one.destination != destination);
    }

    pub(super) fn alerts_of(&self, id: DestinationId) -> domain::watch::AlertSettings {
        let set = self.alerts.get(&id).copied().unwrap_or_default();
        AlertSettings::of(
            set.backlog.flatten(),
            set.under_delivery_seconds.flatten(),
            set.failing_percent.flatten(),
        )
    }
}

impl Rows {
    /// What operators must know, in order.
    #[must_use]
    pub fn news(&self) -> &[OperationalEvent] {
        &self.news.events
    }

    /// What was not relayed yet, in order.
    pub fn news_to_relay(&self) -> impl Iterator<Item = &OperationalEvent> {
        let relayed = self.news.relayed;
        self.news.events.iter().filter(move |one| one.id > relayed)
    }

    /// Those that are told, in the order of registration.
    #[must_use]
    pub fn told(&self) -> &[OperationalDestination] {
        &self.news.told
    }

    /// Whether it takes events: neither deleted nor disabled.
    #[must_use]
    pub fn takes(&self, id: DestinationId) -> bool {
        let disabled = domain::destination::DestinationState::Disabled;
        self.living(id).is_some_and(|row| row.state != disabled)
    }

    /// What the watch remembers of a destination.
    #[must_use]
    pub fn watch(&self, id: DestinationId) -> Watch {
        self.news.watches.get(&id).copied().unwrap_or_default()
    }

    /// Destinations with an alert that was raised and has not ended.
    pub fn destinations_with_alerts(&self) -> impl Iterator<Item = DestinationId> {
        let watches = self.news.watches.iter().filter(|(id, watch)| {
            let is_short = watch.short.is_some_and(|short| short.told);
            self.living(**id).is_some() && (is_short || watch.backlog_high_since.is_some())
        });
        watches.map(|(id, _)| *id)
    }

    /// Dead letters of which nobody was told yet.
    #[must_use]
    pub fn untold_dead_letters(&self, id: DestinationId) -> u64 {
        self.watch(id).dead_letters + self.ledger.tallies.get(&id).copied().unwrap_or(0)
    }
}

fn relay(rows: &mut Rows, now: Timestamp, limit: u32) -> RelayedOperations {
    let batch: Vec<_> = rows.news_to_relay().take(limit as usize).cloned().collect();
    let told = rows.news.told.clone();
    let (taken, events) = first_deliveries(&batch, &told, MAX_ROWS);
    let relayed = u32::try_from(taken).unwrap_or(u32::MAX);
    let mut done = RelayedOperations {
        relayed,
        more: taken < batch.len() || (relayed > 0 && relayed >= limit),
        ..RelayedOperations::default()
    };
    for answer in accept_events(rows, now, &events) {
        if let Acceptance::Accepted(destinations) = answer {
            done.accepted += 1;
            done.destinations.extend(destinations);
        }
    }
    if let Some(last) = batch[..taken].last() {
        rows.news.relayed = last.id;
    }
    done.destinations.sort_unstable();
    done.destinations.dedup();
    done
}

fn trim(rows: &mut Rows, now: Timestamp, kept: Duration, limit: u32) -> u32 {
    let news = &mut rows.news;
    let (relayed, before) = (news.relayed, now - kept);
    let mut looked = 0;
    let length = news.events.len();
    news.events.retain(|one| {
        looked += 1;
        looked > limit || one.id > relayed || one.created_at >= before
    });
    u32::try_from(length - news.events.len()).unwrap_or(u32::MAX)
}

#[async_trait]
impl Operations for ModelStore {
    async fn relay_operational_events(&self, limit: u32) -> Result<RelayedOperations, StoreError> {
        Ok(self.step(|rows, now| relay(rows, now, limit)))
    }

    async fn watch(&self, rules: &WatchRules) -> Result<Watched, StoreError> {
        Ok(self.step(|rows, now| watch::step(rows, now, rules)))
    }

    async fn trim_operational_events(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        Ok(self.step(|rows, now| trim(rows, now, kept, limit)))
    }
}

fn register(
    rows: &mut Rows,
    tenant: TenantId,
    id: DestinationId,
    registration: &Registration,
) -> Result<OperationalDestination, CatalogError> {
    own(rows, tenant, id)?;
    let news = &mut rows.news;
    let others = news.told.iter().filter(|one| one.destination != id);
    let others = others.filter(|one| one.tenant == tenant).count();
    if others >= MAX_OPERATIONAL as usize {
        return Err(CatalogError::Invalid {
            field: "id".to_owned(),
            problem: format!("the tenant has {MAX_OPERATIONAL} operational destinations already"),
        });
    }
    let known = news.told.iter().position(|one| one.destination == id);
    let position = match known {
        Some(place) => news.told[place].position,
        None => {
            news.last_position += 1;
            news.last_position
        }
    };
    let row = OperationalDestination {
        destination: id,
        tenant,
        scope: registration.scope,
        event_types: (registration.event_types.iter())
            .map(|one| one.as_str().to_owned())
            .collect(),
        position,
    };
    news.forget(id);
    let place = news.told.partition_point(|one| one.position < position);
    news.told.insert(place, row.clone());
    Ok(row)
}

#[async_trait]
impl OperationsBook for ModelStore {
    async fn register_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        registration: &Registration,
    ) -> Result<OperationalDestination, CatalogError> {
        self.step(|rows, _| register(rows, tenant, destination, registration))
    }

    async fn unregister_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        self.step(|rows, _| {
            let told = &mut rows.news.told;
            let before = told.len();
            told.retain(|one| one.destination != destination || one.tenant != tenant);
            match told.len() < before {
                true => Ok(()),
                false => Err(CatalogError::NotFound("operational destination")),
            }
        })
    }

    async fn operational_destinations(
        &self,
        tenant: TenantId,
    ) -> Result<Vec<OperationalDestination>, CatalogError> {
        let of_tenant = |one: &&OperationalDestination| one.tenant == tenant;
        Ok(self.read(|rows| rows.told().iter().filter(of_tenant).cloned().collect()))
    }

    async fn recent_operational_events(
        &self,
        tenant: Option<TenantId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        let is_asked = |one: &&OperationalEvent| {
            tenant.is_none_or(|tenant| one.tenant == tenant)
                && before.is_none_or(|before| one.id < before)
        };
        Ok(self.read(|rows| {
            let newest = rows.news().iter().rev().filter(is_asked);
            newest.take(limit as usize).cloned().collect()
        }))
    }

    async fn alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<AlertsView, CatalogError> {
        self.read(|rows| {
            own(rows, tenant, destination)?;
            Ok(AlertsView {
                failing_since: None,
                settings: rows.news.alerts_of(destination),
                watch: rows.watch(destination),
            })
        })
    }

    async fn change_alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &AlertsChange,
    ) -> Result<(), CatalogError> {
        self.step(|rows, _| {
            own(rows, tenant, destination)?;
            let set = rows.news.alerts.entry(destination).or_default();
            set.backlog = change.backlog.or(set.backlog);
            set.under_delivery_seconds =
                change.under_delivery_seconds.or(set.under_delivery_seconds);
            set.failing_percent = change.failing_percent.or(set.failing_percent);
            Ok(())
        })
    }
}

//! What operators must know: who is told, what there was, and when.

use std::collections::{BTreeSet, HashMap};

use domain::ids::DestinationId;
use domain::operations::{
    OperationalDestination, OperationalEvent, OperationalScope, OperationalType,
};
use domain::watch::{
    MAX_BACKLOG, MAX_SUCCESS_LEAST, MAX_SUCCESS_WITHIN, MAX_UNDER_DELIVERY, MIN_SUCCESS_WITHIN,
};
use engine::ports::{
    AlertsChange, AlertsView, Called, DEFAULT_TENANT, Registration, TenantAlertsChange,
    TenantAlertsView,
};

use super::{Service, ServiceError, rules};

/// Operational events that are looked through for those of one type, at most.
const MAX_EXAMINED: u32 = 5_000;

/// Of these, so many are read at once.
const READ: u32 = 1_000;

/// Which operational events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedOperations {
    pub scope: OperationalScope,
    /// Of this type alone.
    pub event_type: Option<OperationalType>,
    /// Only those before the one of this id.
    pub before: Option<i64>,
    pub limit: u32,
}

/// A page of operational events.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundOperations {
    /// The newest first.
    pub events: Vec<OperationalEvent>,
    /// The `before` of the next page; `None` after the last.
    pub next: Option<i64>,
}

/// A page in the making.
struct Picked {
    wanted: WantedOperations,
    events: Vec<OperationalEvent>,
    /// Those from here on were looked through.
    before: Option<i64>,
    examined: u32,
}

impl Picked {
    const fn of(wanted: WantedOperations) -> Self {
        Self {
            wanted,
            events: Vec::new(),
            before: wanted.before,
            examined: 0,
        }
    }

    /// The page, if it is done after these, which are all of at most `read`.
    fn add(&mut self, found: Vec<OperationalEvent>, read: u32) -> Option<FoundOperations> {
        let is_last = found.len() < read as usize;
        self.examined = self.examined.saturating_add(read);
        for event in found {
            self.before = Some(event.id);
            let of_type = |one: OperationalType| event.event_type == one.as_str();
            if self.wanted.event_type.is_none_or(of_type) {
                self.events.push(event);
            }
            if self.events.len() >= self.wanted.limit as usize {
                return Some(self.page(self.before));
            }
        }
        match is_last {
            true => Some(self.page(None)),
            false => (self.examined >= MAX_EXAMINED).then(|| self.page(self.before)),
        }
    }

    fn page(&mut self, next: Option<i64>) -> FoundOperations {
        FoundOperations {
            events: std::mem::take(&mut self.events),
            next,
        }
    }
}

impl Service {
    /// Makes a destination an operational one, or changes what it is told of.
    pub async fn register_operational(
        &self,
        id: DestinationId,
        registration: Registration,
    ) -> Result<OperationalDestination, ServiceError> {
        self.may_register(registration.scope, &registration.event_types)?;
        let book = &self.operations;
        Ok(book
            .register_operational(self.tenant, id, &registration)
            .await?)
    }

    /// Of whom this destination is told by now: of its tenant, where it is told nothing.
    /// Whoever changes that must be allowed to say it.
    pub async fn told_of(&self, id: DestinationId) -> Result<OperationalScope, ServiceError> {
        let all = self.operational_destinations().await?;
        let found = all.iter().find(|one| one.destination == id);
        Ok(found.map_or(OperationalScope::Tenant, |one| one.scope))
    }

    pub async fn unregister_operational(&self, id: DestinationId) -> Result<(), ServiceError> {
        let book = &self.operations;
        Ok(book.unregister_operational(self.tenant, id).await?)
    }

    pub async fn operational_destinations(
        &self,
    ) -> Result<Vec<OperationalDestination>, ServiceError> {
        Ok(self
            .operations
            .operational_destinations(self.tenant)
            .await?)
    }

    /// A page, the newest first: of this tenant, or of all. Those of one type are picked
    /// from the newest `MAX_EXAMINED`, so that a rare type costs no more than that: a
    /// page may hold fewer than were asked for, or none, and still have a next one.
    pub async fn operational_events(
        &self,
        wanted: WantedOperations,
    ) -> Result<FoundOperations, ServiceError> {
        rules::page(wanted.limit)?;
        self.may_ask_for(wanted.scope)?;
        let tenant = match wanted.scope {
            OperationalScope::Tenant => Some(self.tenant),
            OperationalScope::Installation => None,
        };
        let read = wanted.event_type.map_or(wanted.limit, |_| READ);
        let mut picked = Picked::of(wanted);
        loop {
            let book = &self.reading.operations_book;
            let page = book.recent_operational_events(tenant, picked.before, read);
            if let Some(found) = picked.add(page.await?, read) {
                return Ok(found);
            }
        }
    }

    /// What people call the destinations of these events.
    pub async fn names_of(
        &self,
        events: &[OperationalEvent],
    ) -> Result<HashMap<DestinationId, Called>, ServiceError> {
        let ids: BTreeSet<_> = (events.iter())
            .filter_map(|event| event.destination)
            .collect();
        let ids: Vec<_> = ids.into_iter().collect();
        let called = self.reading.overview.names(&ids).await?;
        Ok(called
            .into_iter()
            .map(|one| (one.destination, one))
            .collect())
    }

    pub async fn alerts(&self, id: DestinationId) -> Result<AlertsView, ServiceError> {
        Ok(self.operations.alerts(self.tenant, id).await?)
    }

    pub async fn change_alerts(
        &self,
        id: DestinationId,
        change: AlertsChange,
    ) -> Result<AlertsView, ServiceError> {
        let longest = u32::try_from(MAX_UNDER_DELIVERY.as_secs()).unwrap_or(u32::MAX);
        let numbers = [
            ("backlog", change.backlog, MAX_BACKLOG),
            (
                "under_delivery_seconds",
                change.under_delivery_seconds,
                longest,
            ),
            ("failing_percent", change.failing_percent, 100),
        ];
        for (field, number, most) in numbers {
            if number.flatten().is_some_and(|number| number > most) {
                return Err(ServiceError::invalid(
                    field,
                    format!("must be at most {most}"),
                ));
            }
        }
        let book = &self.operations;
        book.change_alerts(self.tenant, id, &change).await?;
        self.alerts(id).await
    }

    pub async fn tenant_alerts(&self) -> Result<TenantAlertsView, ServiceError> {
        Ok(self.operations.tenant_alerts(self.tenant).await?)
    }

    pub async fn change_tenant_alerts(
        &self,
        change: TenantAlertsChange,
    ) -> Result<TenantAlertsView, ServiceError> {
        let seconds = |of: std::time::Duration| u32::try_from(of.as_secs()).unwrap_or(u32::MAX);
        let within = seconds(MIN_SUCCESS_WITHIN)..=seconds(MAX_SUCCESS_WITHIN);
        let numbers = [
            ("success_percent", change.success_percent, 0..=100),
            ("success_seconds", change.success_seconds, within),
            ("success_least", change.success_least, 1..=MAX_SUCCESS_LEAST),
        ];
        for (field, number, range) in numbers {
            if number
                .flatten()
                .is_some_and(|number| !range.contains(&number))
            {
                let problem = format!("must be {} to {}", range.start(), range.end());
                return Err(ServiceError::invalid(field, problem));
            }
        }
        let book = &self.operations;
        book.change_tenant_alerts(self.tenant, &change).await?;
        self.tenant_alerts().await
    }

    /// Whether somebody may be told of this scope and these types.
    pub(super) fn may_register(
        &self,
        scope: OperationalScope,
        event_types: &[OperationalType],
    ) -> Result<(), ServiceError> {
        if event_types.len() > OperationalType::ALL.len() {
            let problem = "must name each type once";
            return Err(ServiceError::invalid("event_types", problem));
        }
        self.may_ask_for(scope)
    }

    /// The default tenant is the installation's own; nobody else is told of
    /// other tenants.
    fn may_ask_for(&self, scope: OperationalScope) -> Result<(), ServiceError> {
        match scope {
            OperationalScope::Installation if self.tenant != DEFAULT_TENANT => {
                let problem = "installation is for the default tenant only";
                Err(ServiceError::invalid("scope", problem))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::TenantId;
    use domain::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    /// From this id down, so many; those whose ids are multiples of 400 are of a breaker.
    fn events(from: i64, count: u32) -> Vec<OperationalEvent> {
        let one = |id: i64| OperationalEvent {
            id,
            created_at: Timestamp::from_millis(id),
            event_type: match id % 400 {
                0 => OperationalType::BreakerOpened.as_str().to_owned(),
                _ => OperationalType::DeadLetters.as_str().to_owned(),
            },
            destination: Some(DestinationId(Uuid::nil())),
            tenant: TenantId(Uuid::nil()),
            details: String::new(),
        };
        let ids = (0..i64::from(count)).map(|place| from - place);
        ids.filter(|id| *id > 0).map(one).collect()
    }

    /// The pages that are made of a store with events of these ids.
    fn pages(newest: i64, wanted: WantedOperations) -> Vec<FoundOperations> {
        let read = wanted.event_type.map_or(wanted.limit, |_| READ);
        let mut pages = Vec::new();
        let mut next = Some(newest + 1);
        while let Some(before) = next {
            let mut picked = Picked::of(WantedOperations {
                before: Some(before),
                ..wanted
            });
            let page = loop {
                let from = picked.before.unwrap() - 1;
                if let Some(page) = picked.add(events(from, read), read) {
                    break page;
                }
            };
            next = page.next;
            pages.push(page);
        }
        pages
    }

    fn ids(pages: &[FoundOperations]) -> Vec<i64> {
        let all = pages.iter().flat_map(|page| &page.events);
        all.map(|event| event.id).collect()
    }

    #[test]
    fn those_of_one_type_are_picked_in_pages_none_twice_and_none_left_out() {
        let wanted = |event_type, limit| WantedOperations {
            scope: OperationalScope::Tenant,
            event_type,
            before: None,
            limit,
        };
        let opened = Some(OperationalType::BreakerOpened);
        let expected: Vec<i64> = (1..=30).rev().map(|place| place * 400).collect();
        for limit in [1, 3, 100] {
            let found = pages(12_345, wanted(opened, limit));
            assert_eq!(ids(&found), expected, "{limit} on a page");
            let most = found.iter().map(|page| page.events.len()).max();
            assert!(most <= Some(limit as usize));
        }
        // What one request looks through is bounded: three of these for all.
        assert_eq!(pages(12_345, wanted(opened, 100)).len(), 3);
        let none = pages(12_345, wanted(Some(OperationalType::BacklogHigh), 100));
        assert_eq!((ids(&none).len(), none.len()), (0, 3));
        // All of them, as before.
        let all = pages(250, wanted(None, 100));
        assert_eq!(ids(&all), (1..=250).rev().collect::<Vec<_>>());
        assert_eq!(all.len(), 3);
    }
}

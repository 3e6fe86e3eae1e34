//! What operators must know: who is told, what there was, and when.

use std::collections::{BTreeSet, HashMap};

use domain::ids::DestinationId;
use domain::operations::{
    OperationalDestination, OperationalEvent, OperationalScope, OperationalType,
};
use domain::watch::{MAX_BACKLOG, MAX_UNDER_DELIVERY};
use engine::ports::{AlertsChange, AlertsView, Called, DEFAULT_TENANT, Registration};

use super::{Service, ServiceError, rules};

impl Service {
    /// Makes a destination an operational one, or changes what it is told of.
    pub async fn register_operational(
        &self,
        id: DestinationId,
        registration: Registration,
    ) -> Result<OperationalDestination, ServiceError> {
        self.may_ask_for(registration.scope)?;
        if registration.event_types.len() > OperationalType::ALL.len() {
            let problem = "must name each type once";
            return Err(ServiceError::invalid("event_types", problem));
        }
        let book = &self.operations;
        Ok(book
            .register_operational(self.tenant, id, &registration)
            .await?)
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

    /// A page, the newest first: of this tenant, or of all.
    pub async fn operational_events(
        &self,
        scope: OperationalScope,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, ServiceError> {
        rules::page(limit)?;
        self.may_ask_for(scope)?;
        let tenant = match scope {
            OperationalScope::Tenant => Some(self.tenant),
            OperationalScope::Installation => None,
        };
        let book = &self.reading.operations_book;
        Ok(book
            .recent_operational_events(tenant, before, limit)
            .await?)
    }

    /// What people call the destinations of these events.
    pub async fn names_of(
        &self,
        events: &[OperationalEvent],
    ) -> Result<HashMap<DestinationId, Called>, ServiceError> {
        let ids: BTreeSet<_> = events.iter().map(|event| event.destination).collect();
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

//! Destinations that a resource of Kubernetes manages: what the operator does
//! with them, and what nobody else does.
//!
//! The rules are those of the API, and the functions too: the operator calls
//! them through [`Service::for_manager`].

use std::time::Duration;

use domain::destination::DestinationState;
use domain::ids::{DestinationId, TenantId};
use domain::limit_group::GroupName;
use domain::signature::SigningSecret;
use domain::time::Timestamp;
use engine::ports::{
    Found, HealthView, HeldDestination, LedgerRow, MAX_ROWS, Managed, Manager, SealedKind,
    SealedSecret,
};
use subtle::ConstantTimeEq;

use super::credentials::{CertificateDraft, ClientDraft, Wanted};
use super::{Service, ServiceError};

/// How far a backlog is counted.
const COUNTED: u32 = 100_000;

/// Starts that a rate is taken from, about; and over how long at least and at most.
const STARTS: f64 = 100.0;
const SPAN_SECONDS: (f64, f64) = (10.0, 3_600.0);

/// Rows of a ledger that are read for it, at most.
const ROWS: u32 = 500;

/// Pages of what resources hold that are read at a time: more resources than an API server
/// keeps of one kind. The others have their turn.
const MAX_PAGES: usize = 200;

/// How a managed destination fares.
#[derive(Debug, Clone, PartialEq)]
pub struct Fares {
    pub state: DestinationState,
    pub health: HealthView,
    pub backlog: u32,
    pub starts_per_second: f64,
    /// By its own limits and those of its group; `None` for any number.
    pub allowed_per_second: Option<f64>,
    /// The limit group that it is in.
    pub limit_group: Option<GroupName>,
}

impl Service {
    /// The same for a manager of destinations: what it creates is held by it, and
    /// what it holds only it can change.
    #[must_use]
    pub fn for_manager(&self, tenant: TenantId, manager: Manager) -> Self {
        Self {
            manager: Some(manager),
            ..self.of(tenant, None)
        }
    }

    /// A destination that is to be changed: the store refuses it if somebody else
    /// manages it.
    pub(super) const fn managed(&self, destination: DestinationId) -> Managed<'_> {
        Managed {
            tenant: self.tenant,
            destination,
            by: self.manager.as_ref(),
        }
    }

    /// All that resources hold, whose ever it is, in brief.
    pub async fn held(&self) -> Result<Vec<HeldDestination>, ServiceError> {
        let mut held = Vec::new();
        for _page in 0..MAX_PAGES {
            let after = held.last().map(|last: &HeldDestination| last.id);
            let page = self.managers.held(after).await?;
            let is_last = page.len() < MAX_ROWS;
            held.extend(page);
            if is_last {
                break;
            }
        }
        Ok(held)
    }

    /// What the manager has, may have, or finds in its way.
    pub async fn find_managed(&self, name: &str) -> Result<Option<Found>, ServiceError> {
        let manager = self.manager()?;
        let found = self
            .managers
            .find_managed(self.tenant, &manager.resource, name);
        Ok(found.await?)
    }

    /// Holds what was released by a resource of the same name.
    pub async fn take_over(&self, id: DestinationId) -> Result<(), ServiceError> {
        let manager = self.manager()?;
        Ok(self.managers.take_over(self.tenant, id, manager).await?)
    }

    /// Lets go of what the manager holds.
    pub async fn release(&self, id: DestinationId) -> Result<(), ServiceError> {
        let manager = self.manager()?;
        Ok(self.managers.release(self.tenant, id, manager).await?)
    }

    fn manager(&self) -> Result<&Manager, ServiceError> {
        let missing = || ServiceError::Internal("nobody manages here".to_owned());
        self.manager.as_ref().ok_or_else(missing)
    }

    /// Whether this secret signs, and will go on to: what was rotated out has an
    /// end. What does not open is none.
    pub async fn signs_with(&self, id: DestinationId, text: &str) -> Result<bool, ServiceError> {
        let wanted = SigningSecret::parse(text)
            .map_err(|problem| ServiceError::invalid("secret", problem.to_string()))?;
        let kind = SealedKind::Signs(wanted.kind());
        let sealed = self.managers.sealed_secrets(self.tenant, id).await?;
        let is_it = |one: &SealedSecret| {
            let opened = self.signing.vault.open(&one.place, &one.sealed);
            opened.is_ok_and(|opened| opened.ct_eq(wanted.expose().as_bytes()).into())
        };
        let mut stays =
            (sealed.iter()).filter(|one| one.place.kind == kind && one.expires_at.is_none());
        Ok(stays.any(is_it))
    }

    /// Whether these are what it shows to be let in, and all of it. What the API would
    /// refuse is not: whoever sets it is told.
    pub async fn shows(
        &self,
        id: DestinationId,
        url: &str,
        shown: (Option<CertificateDraft>, Option<ClientDraft>),
    ) -> Result<bool, ServiceError> {
        let wanted = Wanted {
            headers: None,
            certificate: Some(shown.0),
            client: Some(shown.1),
        };
        match self.singles_that_differ(id, (url, wanted)).await {
            Ok(differ) => Ok(differ.is_empty()),
            Err(ServiceError::Invalid { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// How it fares: a few reads, bounded however much waits.
    pub async fn fares(&self, id: DestinationId) -> Result<Fares, ServiceError> {
        let destination = self.destination(id).await?.destination;
        let health = self.health(id).await?.view;
        let backlog = self.catalog.backlogs(&[id], COUNTED).await?;
        let group = self.group_of(&destination).await?;
        let own = destination.effective.policy().starts_per_second();
        let together = group.and_then(|group| group.limits.starts_per_second());
        let allowed = own.into_iter().chain(together).reduce(f64::min);
        let rate = allowed.unwrap_or(f64::MAX).max(f64::MIN_POSITIVE);
        let span = (STARTS / rate).clamp(SPAN_SECONDS.0, SPAN_SECONDS.1);
        let since = health.now - Duration::from_secs_f64(span);
        let rows = self
            .catalog
            .ledger(id, since, health.now, None, ROWS)
            .await?;
        Ok(Fares {
            state: destination.state,
            health,
            backlog: backlog.first().copied().unwrap_or(0),
            starts_per_second: rate_of(&rows, since, health.now),
            allowed_per_second: allowed,
            limit_group: destination.limit_group,
        })
    }
}

/// Starts per second, of a ledger that was read from `since` on: to its last row
/// where there are more than were read.
fn rate_of(rows: &[LedgerRow], since: Timestamp, now: Timestamp) -> f64 {
    let starts: Vec<Timestamp> = rows.iter().filter_map(|row| row.started_at).collect();
    let is_all = starts.len() < ROWS as usize;
    let until = starts.last().copied().filter(|_| !is_all).unwrap_or(now);
    let seconds = until.since(since).as_secs_f64();
    if seconds <= 0.0 {
        return 0.0;
    }
    starts.len() as f64 / seconds
}

#[cfg(test)]
mod tests {
    use domain::attempt::AttemptState;
    use domain::ids::AttemptId;

    use super::*;

    fn ledger(starts: u32, millis_apart: u64, since: Timestamp) -> Vec<LedgerRow> {
        let row = |n: u32| LedgerRow {
            attempt: AttemptId(i64::from(n)),
            due_at: since,
            started_at: Some(since + Duration::from_millis(millis_apart) * n),
            finished_at: None,
            state: AttemptState::Started,
            status: None,
        };
        (1..=starts).map(row).collect()
    }

    #[test]
    fn a_rate_is_of_the_time_that_was_read() {
        let since = Timestamp::from_micros(1_000_000_000);
        let now = since + Duration::from_secs(10);
        let near = |rate: f64, expected: f64| assert!((rate - expected).abs() < 0.01, "{rate}");
        near(rate_of(&[], since, now), 0.0);
        near(rate_of(&ledger(50, 100, since), since, now), 5.0);
        // A thousand a second fill the page within half a second.
        near(rate_of(&ledger(ROWS, 1, since), since, now), 1_000.0);
        near(rate_of(&[], now, now), 0.0);
    }
}

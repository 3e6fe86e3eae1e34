//! Destinations' health, as their owners see it; and how outcomes become it.

use async_trait::async_trait;
use domain::attempt::OutcomeKind;
use domain::health::{Answer, BreakerSettings, DisableReason, Health, Observation};
use domain::ids::{DestinationId, TenantId};
pub use domain::operations::OperationalEvent;
use domain::time::Timestamp;

use super::catalog::CatalogError;
use super::store::{NextTry, Outcome, Speaks};

/// The part of [`super::Catalog`] that is about how destinations answer. The
/// loops do not need it: outcomes write it and admission reads it, in the store.
#[async_trait]
pub trait HealthBook: Send + Sync {
    /// The health of these destinations, in the order of the ids; those that
    /// the tenant does not have are left out. Reads only.
    async fn health(
        &self,
        tenant: TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<HealthView>, CatalogError>;

    /// The owner says that the destination is well: forgets its hold, its
    /// breaker and its failures, and makes it active. Its backlog drains at its
    /// limit. Repeating it changes nothing. Refused (`Conflict`) where a
    /// [`Manager`](super::Manager) holds it and has paused it.
    async fn resume(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError>;

    /// Sets what `change` names of the breaker and leaves the rest. In force
    /// from the next outcome on.
    async fn change_breaker(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &BreakerChange,
    ) -> Result<(), CatalogError>;

    /// What operators must know, the oldest first: up to `limit` after the one
    /// of id `after`, of all tenants.
    async fn operational_events(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError>;
}

/// The health of one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthView {
    /// Whose.
    pub destination: DestinationId,
    /// The store's clock.
    pub now: Timestamp,
    /// What is remembered.
    pub health: Health,
    /// What it is judged by.
    pub settings: BreakerSettings,
    /// It fails when so many of a hundred answers are failures; 0 for never.
    pub failing_percent: u32,
}

/// What to change of a breaker: the outer `None` leaves it as it is, the inner
/// sets the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BreakerChange {
    /// So many failures in a row open it; 0 for never.
    pub failures: Option<Option<u32>>,
    /// If they go on for so many seconds at least; 0 for at once.
    pub failing_for_seconds: Option<Option<u32>>,
    /// Open for so many seconds, the destination is disabled; 0 for at once.
    pub disable_after_seconds: Option<Option<u32>>,
}

/// What became of a destination by its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthChange {
    /// Whose.
    pub destination: DestinationId,
    /// What.
    pub what: HealthEvent,
}

/// What operators are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthEvent {
    /// The breaker holds the backlog.
    BreakerOpened,
    /// A probe succeeded.
    BreakerClosed,
    /// It takes nothing any more, until its owner says otherwise.
    Disabled(DisableReason),
}

impl HealthEvent {
    /// The word, as in SQL, JSON and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BreakerOpened => "breaker_opened",
            Self::BreakerClosed => "breaker_closed",
            Self::Disabled(_) => "destination_disabled",
        }
    }

    /// All that this verdict brings, in the order in which it came.
    pub fn of(verdict: &domain::health::Verdict) -> impl Iterator<Item = Self> {
        let events = [
            verdict.opened.then_some(Self::BreakerOpened),
            verdict.closed.then_some(Self::BreakerClosed),
            verdict.disable.map(Self::Disabled),
        ];
        events.into_iter().flatten()
    }

    /// What is written beside it, as JSON.
    #[must_use]
    pub fn details(self, health: &Health) -> String {
        let (failures, probes) = (health.failures, health.probes);
        match self {
            Self::BreakerOpened => format!(r#"{{"failures":{failures}}}"#),
            Self::BreakerClosed => "{}".to_owned(),
            Self::Disabled(reason) => {
                format!(r#"{{"reason":"{reason}","failures":{failures},"failed_probes":{probes}}}"#)
            }
        }
    }
}

impl Outcome {
    /// What the destination's health makes of this outcome; `None` if nothing
    /// was sent, or another attempt speaks for the request.
    #[must_use]
    pub fn observation(&self, started_at: Timestamp) -> Option<Observation> {
        let (kind, status) = self.of_request()?;
        let succeeded = match kind {
            OutcomeKind::Succeeded => true,
            OutcomeKind::Failed => false,
            OutcomeKind::NotSent => return None,
        };
        Some(Observation {
            started_at,
            finished_at: started_at + self.elapsed,
            answer: Answer::of(succeeded, status),
            signal: self.signal,
        })
    }

    /// What became of the request; `None` if another attempt led it.
    pub(super) fn of_request(&self) -> Option<(OutcomeKind, Option<u16>)> {
        match self.speaks {
            Speaks::ForRequest => Some((self.kind, self.status)),
            Speaks::ForParts { taken: true } => Some((OutcomeKind::Succeeded, None)),
            Speaks::ForParts { taken: false } => Some((OutcomeKind::Failed, None)),
            Speaks::Carried | Speaks::Apart => None,
        }
    }

    /// Whether a destination that is well stays as it is.
    #[must_use]
    pub fn is_unremarkable(&self) -> bool {
        let failed = |(kind, _): (OutcomeKind, _)| kind == OutcomeKind::Failed;
        !self.of_request().is_some_and(failed) && self.signal.wait.is_none()
    }

    /// The class that what follows this outcome comes back in, after one of
    /// class `limit`.
    #[must_use]
    pub const fn next_limit(&self, limit: Option<u32>) -> Option<u32> {
        match self.next {
            NextTry::Split { limit, .. } | NextTry::RetryHalved { limit, .. } => Some(limit),
            _ => limit,
        }
    }

    /// The number of the try that follows try `try_number`, and when it is due;
    /// `None` if none does. One that was refused with a 429 waits for the hold
    /// that this began, and keeps its try for as long as its destination's
    /// health says so.
    #[must_use]
    pub fn next_try(
        &self,
        try_number: u32,
        (started_at, now): (Timestamp, Timestamp),
        health: Option<&Health>,
    ) -> Option<(u32, Timestamp)> {
        let delay = match self.next {
            NextTry::None | NextTry::DeadLetter => return None,
            NextTry::Again => return Some((try_number, now)),
            NextTry::Split { delay, .. } => {
                return Some((try_number, started_at + self.elapsed + delay));
            }
            NextTry::RetryAfter(delay) | NextTry::RetryHalved { delay, .. } => delay,
        };
        // What one event was answered began no hold.
        let of_all = matches!(self.speaks, Speaks::ForRequest | Speaks::Carried);
        let refused = of_all && Answer::of(false, self.status) == Answer::Refused;
        let spared = health.filter(|health| refused && health.spares_tries());
        match spared.and_then(Health::held_until) {
            Some(until) => Some((try_number, until.max(now))),
            None => Some((
                try_number.saturating_add(1),
                started_at + self.elapsed + delay,
            )),
        }
    }
}

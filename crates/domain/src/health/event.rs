//! What a verdict tells operators.

use super::{DisableReason, DisabledSoon, Health, Verdict};
use crate::ids::DestinationId;
use crate::operations::rfc3339;

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
    /// It fails on, and will be disabled.
    DisabledSoon(DisabledSoon),
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
            Self::DisabledSoon(_) => "destination_disabled_soon",
            Self::Disabled(_) => "destination_disabled",
        }
    }

    /// All that this verdict brings, in the order in which it came.
    pub fn of(verdict: &Verdict) -> impl Iterator<Item = Self> {
        let still_open = verdict.health.opened_at.is_some() && verdict.disable.is_none();
        let events = [
            verdict.opened.then_some(Self::BreakerOpened),
            verdict.closed.then_some(Self::BreakerClosed),
            (verdict.disabled_soon.filter(|_| still_open)).map(Self::DisabledSoon),
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
            Self::DisabledSoon(DisabledSoon {
                percent,
                disabled_at,
            }) => format!(
                r#"{{"percent":{percent},"disabled_at":"{}","failed_probes":{probes}}}"#,
                rfc3339(disabled_at)
            ),
            Self::Disabled(reason) => {
                format!(r#"{{"reason":"{reason}","failures":{failures},"failed_probes":{probes}}}"#)
            }
        }
    }
}

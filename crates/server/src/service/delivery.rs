//! How a destination's requests are made: what is tried again, and what goes together.

use std::time::Duration;

use domain::batch::BatchSettings;
use domain::ids::DestinationId;
use domain::retry::{MAX_DELAY, RetrySettings};
use engine::ports::RetryRules;

use super::{Service, ServiceError};

/// All retry rules and batches of a destination, as somebody wants them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryDraft {
    pub policy: RetrySettings,
    pub max_age_ms: Option<u64>,
    pub batches: BatchSettings,
}

impl DeliveryDraft {
    /// Refuses nonsense by the name of its field, before anything is written.
    pub fn checked(self) -> Result<(RetryRules, BatchSettings), ServiceError> {
        let rules = rules(self.policy, self.max_age_ms)?;
        check_batches(&self.batches, rules.max_age)?;
        Ok((rules, self.batches))
    }
}

/// Retry rules that can be set.
pub(super) fn rules(
    policy: RetrySettings,
    max_age_ms: Option<u64>,
) -> Result<RetryRules, ServiceError> {
    let policy = policy.completed();
    (policy.validate()).map_err(|invalid| ServiceError::invalid(invalid.field, invalid.problem))?;
    let max_age = max_age_ms.map(Duration::from_millis);
    if max_age.is_some_and(|age| age.is_zero() || age > MAX_DELAY) {
        let problem = "must be between 1 and 30 days of milliseconds";
        return Err(ServiceError::invalid("max_age_ms", problem));
    }
    Ok(RetryRules { policy, max_age })
}

/// Batches that can be set; beside events that may become so old, if that is known.
pub(super) fn check_batches(
    batches: &BatchSettings,
    max_age: Option<Duration>,
) -> Result<(), ServiceError> {
    (batches.validate(max_age))
        .map_err(|invalid| ServiceError::invalid(invalid.field, invalid.problem))
}

impl Service {
    /// Sets both, each only where it is another one: batches that are turned on or off
    /// take back what is admitted.
    ///
    /// The store holds each against the other that is there. Of the two orders one passes:
    /// a wait that is too long for the age of before is above the wait of before, which then
    /// is short enough for the new age.
    pub async fn set_delivery(
        &self,
        id: DestinationId,
        draft: DeliveryDraft,
    ) -> Result<(), ServiceError> {
        let max_age_ms = draft.max_age_ms;
        let wanted = draft.checked()?;
        self.check_delivery(id, &wanted).await?;
        let (rules, batches) = wanted;
        let (now, batches_now) = (self.retry_rules(id).await?, self.batches(id).await?);
        let batches_first = batches.validate(now.max_age).is_ok();
        let other_batches = batches != batches_now;
        if other_batches && batches_first {
            self.set_batches(id, batches).await?;
        }
        if rules != now {
            self.set_retry_rules(id, rules.policy, max_age_ms).await?;
        }
        if other_batches && !batches_first {
            self.set_batches(id, batches).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_together_is_refused_before_anything_is_written() {
        let draft = |max_age_ms, max_wait_ms| DeliveryDraft {
            max_age_ms,
            batches: BatchSettings {
                max_events: Some(10),
                max_wait_ms,
                ..BatchSettings::default()
            },
            ..DeliveryDraft::default()
        };
        assert!(draft(None, Some(60_000)).checked().is_ok());
        assert!(draft(Some(60_001), Some(60_000)).checked().is_ok());
        for (max_age_ms, max_wait_ms, field) in [
            (Some(60_000), Some(60_000), "max_wait_ms"),
            (Some(0), None, "max_age_ms"),
            (None, Some(60_001), "max_wait_ms"),
        ] {
            let refused = draft(max_age_ms, max_wait_ms).checked().unwrap_err();
            assert!(refused.is_of(field), "{field}: {refused}");
        }
    }
}

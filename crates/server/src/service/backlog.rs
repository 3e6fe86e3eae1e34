//! Retry rules, cancelling and dead letters.

use std::str::FromStr;

use domain::attempt::AttemptState;
use domain::batch::BatchSettings;
use domain::ids::{AttemptId, DestinationId};
use domain::retry::RetrySettings;
use domain::time::Timestamp;
use engine::ports::{
    Backlog, CancelFrom, CancelStep, CancelledOne, DeadLetter, DeadLetterFilter, DeadLetterPage,
    DeadLetterPosition, RetryRules, Schedule, Wake,
};

use super::{Service, ServiceError, delivery, rules};

/// Rows that one step of cancelling looks at.
const CANCEL_STEP: u32 = 1_000;

/// Steps in one request: its bound.
const CANCEL_STEPS: u32 = 20;

/// What is wrong with a cursor.
const BAD_CURSOR: &str = "must be the next of the answer before";

/// Which part of a backlog is to be cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CancelDraft {
    pub event_type: Option<String>,
    pub accepted_before: Option<Timestamp>,
    /// The `next` of the request before.
    pub after: Option<CancelCursor>,
}

/// What one request cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelledPart {
    pub cancelled: u32,
    pub accepted_before: Timestamp,
    /// Where to go on; `None` when it is done.
    pub next: Option<CancelCursor>,
}

/// Where cancelling goes on, as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelCursor(pub CancelFrom);

impl std::fmt::Display for CancelCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            CancelFrom::First(id) => write!(f, "first:{id}"),
            CancelFrom::Admitted(id) => write!(f, "admitted:{id}"),
            CancelFrom::Due(at, id) => write!(f, "due:{}:{id}", at.as_micros()),
        }
    }
}

impl FromStr for CancelCursor {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse::<i64>().map_err(|_not_a_number| BAD_CURSOR);
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["first", id] => Ok(Self(CancelFrom::First(AttemptId(number(id)?)))),
            ["admitted", id] => Ok(Self(CancelFrom::Admitted(AttemptId(number(id)?)))),
            ["due", at, id] => {
                let at = rules::time(at).ok_or(BAD_CURSOR)?;
                Ok(Self(CancelFrom::Due(at, AttemptId(number(id)?))))
            }
            _ => Err(BAD_CURSOR),
        }
    }
}

impl Service {
    pub(super) fn backlog(&self) -> &dyn Backlog {
        self.backlog.as_ref()
    }

    pub async fn retry_rules(&self, id: DestinationId) -> Result<RetryRules, ServiceError> {
        Ok((self.reading.backlog).retry_rules(self.tenant, id).await?)
    }

    /// Sets all retry rules; what it answers is what holds.
    pub async fn set_retry_rules(
        &self,
        id: DestinationId,
        policy: RetrySettings,
        max_age_ms: Option<u64>,
    ) -> Result<RetryRules, ServiceError> {
        let rules = delivery::rules(policy, max_age_ms)?;
        self.check_age_ceiling(id, rules.max_age).await?;
        (self.backlog())
            .set_retry_rules(self.tenant, id, &rules)
            .await?;
        Ok(rules)
    }

    pub async fn batches(&self, id: DestinationId) -> Result<BatchSettings, ServiceError> {
        Ok((self.reading.backlog)
            .batch_settings(self.tenant, id)
            .await?)
    }

    /// Sets all of its batches; what it answers is what holds.
    pub async fn set_batches(
        &self,
        id: DestinationId,
        settings: BatchSettings,
    ) -> Result<BatchSettings, ServiceError> {
        delivery::check_batches(&settings, None)?;
        self.check_batch_ceiling(id, &settings).await?;
        (self.backlog())
            .set_batch_settings(self.tenant, id, &settings)
            .await?;
        // What waits may be due now.
        self.wake_freed(&[Wake::now(id)]).await;
        Ok(settings)
    }

    /// Cancels one attempt that has not started.
    pub async fn cancel_attempt(&self, id: AttemptId) -> Result<(), ServiceError> {
        match self.backlog().cancel_attempt(self.tenant, id).await? {
            CancelledOne::Cancelled(wake) => {
                self.wake_freed(wake.as_slice()).await;
                Ok(())
            }
            CancelledOne::TooLate(state) => Err(too_late(state)),
        }
    }

    /// Cancels what matches of a backlog, as much as fits into one request.
    pub async fn cancel_backlog(
        &self,
        destination: DestinationId,
        draft: CancelDraft,
    ) -> Result<CancelledPart, ServiceError> {
        rules::wanted_type(draft.event_type.as_deref())?;
        let mut step = CancelStep {
            destination,
            event_type: draft.event_type,
            accepted_before: draft.accepted_before,
            from: draft.after.map_or(CancelFrom::BEGIN, |after| after.0),
            limit: CANCEL_STEP,
        };
        let mut cancelled = 0_u32;
        let mut steps = 0;
        loop {
            let done = self.backlog().cancel_step(self.tenant, &step).await?;
            self.wake_freed(&done.wakes).await;
            cancelled = cancelled.saturating_add(done.cancelled);
            steps += 1;
            step.accepted_before = Some(done.accepted_before);
            if let Some(next) = done.next.filter(|_| steps < CANCEL_STEPS) {
                step.from = next;
                continue;
            }
            return Ok(CancelledPart {
                cancelled,
                accepted_before: done.accepted_before,
                next: done.next.map(CancelCursor),
            });
        }
    }

    /// A page of dead letters, those that died last first.
    pub async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: Option<DeadLetterPosition>,
        limit: u32,
    ) -> Result<DeadLetterPage, ServiceError> {
        rules::page(limit)?;
        rules::wanted_type(filter.event_type.as_deref())?;
        let page = (self.reading.backlog).dead_letters(self.tenant, &filter, after, limit);
        Ok(page.await?)
    }

    pub async fn dead_letter(&self, id: AttemptId) -> Result<DeadLetter, ServiceError> {
        Ok(self.reading.backlog.dead_letter(self.tenant, id).await?)
    }

    /// Permits ended: their places are free. The sweep would notice later.
    async fn wake_freed(&self, wakes: &[Wake]) {
        let schedule: &dyn Schedule = self.schedule.as_ref();
        if !wakes.is_empty()
            && let Err(error) = schedule.wake(wakes).await
        {
            tracing::debug!(%error, "wake after cancelling failed; the sweep will");
        }
    }
}

/// Why one that has started, or is over, is not cancelled.
#[must_use]
pub fn too_late(state: AttemptState) -> ServiceError {
    ServiceError::Conflict(format!(
        "it is {} and cannot be cancelled any more",
        state.as_str()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for from in [
            CancelFrom::BEGIN,
            CancelFrom::Admitted(AttemptId(7)),
            CancelFrom::Due(Timestamp::from_micros(-5), AttemptId(i64::MAX)),
        ] {
            let text = CancelCursor(from).to_string();
            assert_eq!(text.parse(), Ok(CancelCursor(from)));
        }
        for bad in ["", "first", "first:x", "due:1", "other:1", "first:1:2"] {
            assert!(bad.parse::<CancelCursor>().is_err(), "{bad}");
        }
    }
}

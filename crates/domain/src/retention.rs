//! How long things are kept once nothing needs them any more.
//!
//! Three ages, each of what is *over*: an attempt that waits, has a permit or
//! is in flight is never too old, and neither is the event that it needs.

use std::time::Duration;

use crate::event::IDEMPOTENCY_KEY_KEPT;
use crate::limit::Period;
use crate::policy::MAX_SAFETY_MARGIN;
use crate::time::Timestamp;

const DAY: Duration = Duration::from_secs(86_400);

/// The shortest age of payloads: longer than an idempotency key stands for its
/// event, so that a repeated request finds it.
pub const MIN_PAYLOADS: Duration = Duration::from_secs(25 * 3_600);

/// The shortest age of the ledger. Windows reach back a day, and the largest
/// safety margin makes that two; what they count must be there.
pub const MIN_LEDGER: Duration = Duration::from_secs(3 * 86_400);

/// The shortest age of dead letters: somebody has to notice and replay them.
pub const MIN_DEAD_LETTERS: Duration = Duration::from_secs(3_600);

/// The longest age that is not for ever: beyond it, it is a typing error.
pub const MAX_AGE: Duration = Duration::from_secs(36_525 * 86_400);

/// How long what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Events with their payloads, from when they were accepted. One that is
    /// still to be delivered, or that a dead letter can be replayed with, stays.
    pub payloads: Kept,
    /// Attempts, from when they ended, and what the audit judges them by.
    pub ledger: Kept,
    /// Dead letters, from when they were given up. Until then they can be
    /// replayed: their attempt and their event stay. Afterwards they are failed
    /// attempts like others.
    pub dead_letters: Kept,
}

/// How long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// At least so long.
    For(Duration),
    /// Nothing is deleted.
    Forever,
}

impl Default for Retention {
    /// A week of payloads, thirty days of what became of them.
    fn default() -> Self {
        Self {
            payloads: Kept::For(7 * DAY),
            ledger: Kept::For(30 * DAY),
            dead_letters: Kept::For(30 * DAY),
        }
    }
}

impl Retention {
    /// Nothing is deleted.
    pub const FOREVER: Self = Self {
        payloads: Kept::Forever,
        ledger: Kept::Forever,
        dead_letters: Kept::Forever,
    };

    /// Refuses ages that are too short to be safe, or a typing error.
    pub fn validate(&self) -> Result<(), InvalidRetention> {
        let ages = [
            (Age::Payloads, self.payloads, MIN_PAYLOADS),
            (Age::Ledger, self.ledger, MIN_LEDGER),
            (Age::DeadLetters, self.dead_letters, MIN_DEAD_LETTERS),
        ];
        for (age, kept, least) in ages {
            if let Kept::For(kept) = kept
                && !(least..=MAX_AGE).contains(&kept)
            {
                return Err(InvalidRetention { age, least });
            }
        }
        Ok(())
    }
}

impl Kept {
    /// What is over since before then may go; nothing, where all is kept.
    #[must_use]
    pub fn cutoff(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::For(age) => Some(now - age),
            Self::Forever => None,
        }
    }
}

/// One of the ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// [`Retention::payloads`].
    Payloads,
    /// [`Retention::ledger`].
    Ledger,
    /// [`Retention::dead_letters`].
    DeadLetters,
}

/// An age that cannot be obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be at least {} hours and at most a hundred years, or forever", least.as_secs() / 3_600)]
pub struct InvalidRetention {
    /// Which.
    pub age: Age,
    /// The shortest that it may be.
    pub least: Duration,
}

const _: () = assert!(MIN_PAYLOADS.as_secs() > IDEMPOTENCY_KEY_KEPT.as_secs());

// The ledger holds whatever a window can reach.
const _: () = assert!(
    MIN_LEDGER.as_secs() as f64
        > Period::Day.duration().as_secs() as f64 * (1.0 + MAX_SAFETY_MARGIN) + 3_600.0
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_by_default_is_allowed() {
        assert_eq!(Retention::default().validate(), Ok(()));
        assert_eq!(Retention::FOREVER.validate(), Ok(()));
    }

    #[test]
    fn an_age_that_is_too_short_or_too_long_is_refused_by_its_name() {
        let short = |kept: Duration| Kept::For(kept - Duration::from_secs(1));
        let base = Retention::default();
        let cases = [
            (
                Age::Payloads,
                Retention {
                    payloads: short(MIN_PAYLOADS),
                    ..base
                },
            ),
            (
                Age::Ledger,
                Retention {
                    ledger: short(MIN_LEDGER),
                    ..base
                },
            ),
            (
                Age::DeadLetters,
                Retention {
                    dead_letters: short(MIN_DEAD_LETTERS),
                    ..base
                },
            ),
            (
                Age::Ledger,
                Retention {
                    ledger: Kept::For(MAX_AGE + DAY),
                    ..base
                },
            ),
        ];
        for (age, retention) in cases {
            assert_eq!(retention.validate().map_err(|error| error.age), Err(age));
        }
        let least = Retention {
            payloads: Kept::For(MIN_PAYLOADS),
            ledger: Kept::For(MIN_LEDGER),
            dead_letters: Kept::For(MIN_DEAD_LETTERS),
        };
        assert_eq!(least.validate(), Ok(()));
        let refused = cases[1].1.validate().map_err(|error| error.to_string());
        let expected = "must be at least 72 hours and at most a hundred years, or forever";
        assert_eq!(refused, Err(expected.to_owned()));
    }

    #[test]
    fn nothing_is_too_old_where_all_is_kept() {
        let now = Timestamp::from_millis(1_000_000);
        assert_eq!(Kept::Forever.cutoff(now), None);
        let second = Kept::For(Duration::from_secs(1));
        assert_eq!(second.cutoff(now), Some(Timestamp::from_millis(999_000)));
    }
}

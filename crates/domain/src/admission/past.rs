//! How much of what is over a run is decided from: few need all of it.

#[cfg(doc)]
use super::Usage;
use super::{newest_claims, newest_starts};
use crate::limit::Count;
use crate::policy::Policy;

/// How much of what is over a store has to read for a run, the least first: each has all
/// that those before it have. What is owed it reads in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Past {
    /// Nothing: only what has a permit or is under way counts.
    Nothing,
    /// The newest starts ([`newest_starts`]).
    Starts,
    /// Also the ends of answers, claims ([`newest_claims`]) and coarse buckets.
    Everything,
}

impl Past {
    /// What [`Usage`] needs for this policy, after a change if [`Usage::recount`] says so.
    #[must_use]
    pub fn of(policy: &Policy, recount: bool) -> Self {
        if policy.is_coarse() || newest_claims(policy, recount).is_some() {
            return Self::Everything;
        }
        match (newest_starts(policy), policy.count) {
            (None, _) => Self::Nothing,
            (Some(_), Count::Start) => Self::Starts,
            (Some(_), Count::Response) => Self::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{EXACT_MAX, Shape};
    use crate::policy::LimitSettings;
    use crate::smart::Effective;

    const SECOND: LimitSettings = LimitSettings {
        per_second: Some(10),
        ..LimitSettings::EXACT
    };
    const UNLIMITED: LimitSettings = LimitSettings {
        unlimited: true,
        ..LimitSettings::EXACT
    };

    #[test]
    fn plain_windows_need_the_newest_starts() {
        let exact = LimitSettings {
            per_minute: Some(EXACT_MAX),
            per_day: Some(50),
            ..SECOND
        };
        for settings in [SECOND, exact] {
            assert_eq!(Past::of(&settings.policy(), false), Past::Starts);
            assert_eq!(Past::of(&settings.policy(), true), Past::Starts);
        }
    }

    #[test]
    fn what_no_window_counts_needs_nothing_that_is_over() {
        let paused = LimitSettings {
            per_second: Some(0),
            ..SECOND
        };
        for settings in [paused, UNLIMITED] {
            assert_eq!(Past::of(&settings.policy(), false), Past::Nothing);
        }
    }

    #[test]
    fn buckets_answers_and_claims_need_everything() {
        let coarse = LimitSettings {
            per_minute: Some(EXACT_MAX + 1),
            ..SECOND
        };
        let answers = LimitSettings {
            count: Some(Count::Response),
            ..SECOND
        };
        for settings in [coarse, answers] {
            assert_eq!(Past::of(&settings.policy(), false), Past::Everything);
        }
        let bucket = LimitSettings {
            shape: Some(Shape::TokenBucket),
            burst: Some(3),
            ..SECOND
        };
        // After a change what was claimed before it counts: whether anything was, of what
        // is unlimited.
        for settings in [bucket, UNLIMITED] {
            assert_eq!(Past::of(&settings.policy(), true), Past::Everything);
            assert!(Past::of(&settings.policy(), false) < Past::Everything);
        }
        let slowed = SECOND.policy().slowed(Effective {
            per_second: Some(5.0),
            max_in_flight: None,
        });
        assert_eq!(Past::of(&slowed, false), Past::Everything);
    }
}

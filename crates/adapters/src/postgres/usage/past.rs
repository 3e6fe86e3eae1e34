//! How much of what is over a run is decided from: few need all of it.

use super::Scope;

/// How much of what is over has to be read, the least first: each has all that those before
/// it have. What is owed is read in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Past {
    /// Nothing: only what has a permit or is under way counts.
    Nothing,
    /// The newest starts.
    Starts,
    /// Also the ends of answers, claims and coarse buckets.
    Everything,
}

impl Scope {
    /// What its lists need. By the lists themselves, and not by the policy again: a text
    /// that lacked a list would read as if nothing of it had started.
    pub(super) fn past(&self) -> Past {
        let Self {
            starts,
            answers,
            claims,
            ..
        } = self;
        if answers.count > 0 || claims.count > 0 || self.coarse_since().is_some() {
            Past::Everything
        } else if starts.count > 0 {
            Past::Starts
        } else {
            Past::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::admission::Meter;
    use domain::ids::DestinationId;
    use domain::limit::{Count, EXACT_MAX, Shape};
    use domain::policy::{LimitSettings, Policy};
    use domain::smart::Effective;
    use domain::time::Timestamp;
    use uuid::Uuid;

    use super::super::Question;
    use super::*;

    const SECOND: LimitSettings = LimitSettings {
        per_second: Some(10),
        ..LimitSettings::EXACT
    };
    const UNLIMITED: LimitSettings = LimitSettings {
        unlimited: true,
        ..LimitSettings::EXACT
    };

    /// What a run needs for this policy, after a change if `recount` says so.
    fn needed(policy: &Policy, recount: bool) -> Past {
        let question = Question {
            destination: DestinationId(Uuid::nil()),
            policy,
            first_after: 0,
            number: 1,
            meter: Meter::default(),
            recount,
            held_until: None,
            deferred_until: None,
            probing: false,
            batch: None,
            group: None,
        };
        Scope::of(&question, Timestamp::from_millis(0)).past()
    }

    #[test]
    fn plain_windows_need_the_newest_starts() {
        let exact = LimitSettings {
            per_minute: Some(EXACT_MAX),
            per_day: Some(50),
            ..SECOND
        };
        for settings in [SECOND, exact] {
            assert_eq!(needed(&settings.policy(), false), Past::Starts);
            assert_eq!(needed(&settings.policy(), true), Past::Starts);
        }
    }

    #[test]
    fn what_no_window_counts_needs_nothing_that_is_over() {
        let paused = LimitSettings {
            per_second: Some(0),
            ..SECOND
        };
        for settings in [paused, UNLIMITED] {
            assert_eq!(needed(&settings.policy(), false), Past::Nothing);
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
            assert_eq!(needed(&settings.policy(), false), Past::Everything);
        }
        let bucket = LimitSettings {
            shape: Some(Shape::TokenBucket),
            burst: Some(3),
            ..SECOND
        };
        // After a change what was claimed before it counts: whether anything was, of what
        // is unlimited.
        for settings in [bucket, UNLIMITED] {
            assert_eq!(needed(&settings.policy(), true), Past::Everything);
            assert!(needed(&settings.policy(), false) < Past::Everything);
        }
        let slowed = SECOND.policy().slowed(Effective {
            per_second: Some(5.0),
            max_in_flight: None,
        });
        assert_eq!(needed(&slowed, false), Past::Everything);
    }
}

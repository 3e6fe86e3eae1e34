//! How the receivers of a run answer.

mod nonsense;

use std::time::Duration;

use bytes::Bytes;
use domain::retry::{DEFAULT_MAX_TRIES, RetrySettings};
use engine::ports::BreakerChange;
use http::StatusCode;
use server::receiver::{Behaviour, Told};
use uuid::Uuid;

/// So many failures in a row open a breaker that is on.
const BREAKER_FAILURES: u32 = 5;

/// If they go on for so long: less than usual, for a storm is short.
const BREAKER_FAILING_FOR_SECONDS: u32 = 1;

/// One that does not come back is disabled by the first probe that fails: it comes
/// half a minute after the breaker opened.
const DISABLE_AFTER_SECONDS: u32 = 20;

/// For which part of the storm a receiver that fails for a while does so.
const ILL: std::ops::Range<f64> = 0.1..0.45;

/// What `Retry-After` asks for.
const ASKED_SECONDS: u32 = 5;

/// How a destination answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// 204 at once.
    Polite,
    /// Every so many requests one 503.
    Flaky(u64),
    /// 500 always, with its breaker off: its events end as dead letters, and soon,
    /// so that there is something to replay.
    Broken,
    /// Every so many requests one 410, which disables it until its owner
    /// resumes it.
    Leaving(u64),
    /// 500 for a part of the storm, with its breaker on.
    Ill,
    /// 500 after so many requests, with its breaker on; it never comes back, and
    /// nobody resumes it.
    Dying(u64),
    /// Every so many requests one 429 or, in turn, one 503, with a `Retry-After`.
    Asking(u64),
    /// Three of four requests get what nobody can mean; see [`nonsense`].
    Hostile,
    /// So many in each second, and 429 to any other; with smart delivery.
    Capable(u32),
}

impl Manners {
    /// What is tried again and when, where it is not the usual.
    pub(crate) fn retries(self) -> Option<RetrySettings> {
        (self == Self::Broken).then(|| RetrySettings {
            max_tries: Some(DEFAULT_MAX_TRIES),
            delays_ms: Some(vec![200]),
            ..RetrySettings::default()
        })
    }

    /// When its breaker opens, and when it is disabled: never, but where it fails
    /// long enough to tell its failures from those of links that break.
    pub(crate) fn breaker(self) -> BreakerChange {
        let failures = match self {
            Self::Ill | Self::Dying(_) => BREAKER_FAILURES,
            _ => 0,
        };
        BreakerChange {
            failures: Some(Some(failures)),
            failing_for_seconds: Some(Some(BREAKER_FAILING_FOR_SECONDS)),
            disable_after_seconds: self.is_doomed().then_some(Some(DISABLE_AFTER_SECONDS)),
        }
    }

    /// Whether it ends disabled.
    pub(crate) const fn is_doomed(self) -> bool {
        matches!(self, Self::Dying(_))
    }

    /// What the receiver does by itself.
    pub(crate) const fn behaviour(self) -> Behaviour {
        match self {
            Self::Capable(per_second) => Behaviour::TakeAtMost { per_second },
            _ => Behaviour::ACCEPT,
        }
    }

    /// What it answers to its request of this number, which carries these events,
    /// after this part of the storm; `None` is what it does by itself.
    pub(crate) fn answer(self, request: u64, part: f64, events: &[Uuid]) -> Option<Told> {
        match self {
            Self::Polite | Self::Capable(_) => None,
            Self::Flaky(every) => request
                .is_multiple_of(every)
                .then_some(StatusCode::SERVICE_UNAVAILABLE.into()),
            Self::Broken => Some(StatusCode::INTERNAL_SERVER_ERROR.into()),
            Self::Leaving(every) => request
                .is_multiple_of(every)
                .then_some(StatusCode::GONE.into()),
            Self::Ill => ILL
                .contains(&part)
                .then_some(StatusCode::INTERNAL_SERVER_ERROR.into()),
            Self::Dying(after) => {
                (request > after).then_some(StatusCode::INTERNAL_SERVER_ERROR.into())
            }
            Self::Hostile => nonsense::answer(request, events),
            Self::Asking(every) => request.is_multiple_of(every).then(|| Told {
                status: match (request / every).is_multiple_of(2) {
                    true => StatusCode::SERVICE_UNAVAILABLE,
                    false => StatusCode::TOO_MANY_REQUESTS,
                },
                retry_after: Some(ASKED_SECONDS.into()),
                body: Bytes::new(),
            }),
        }
    }
}

/// Which part of `length` has passed, of a storm that may not have begun.
pub(crate) fn part(passed: Option<Duration>, length: Duration) -> f64 {
    passed.map_or(0.0, |passed| {
        passed.as_secs_f64() / length.as_secs_f64().max(1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(manners: Manners, requests: u64) -> Vec<Option<u16>> {
        let answers = (1..=requests).map(|n| manners.answer(n, 0.0, &[]));
        answers
            .map(|told| told.map(|told| told.status.as_u16()))
            .collect()
    }

    #[test]
    fn a_flaky_destination_fails_now_and_then() {
        let answers = statuses(Manners::Flaky(3), 4);
        assert_eq!(answers, [None, None, Some(503), None]);
    }

    #[test]
    fn one_that_asks_says_for_how_long() {
        let answers = statuses(Manners::Asking(2), 4);
        assert_eq!(answers, [None, Some(429), None, Some(503)]);
        let asked = Manners::Asking(2).answer(2, 0.0, &[]);
        let asked = asked.and_then(|told| told.retry_after);
        assert_eq!(asked, Some(ASKED_SECONDS.into()));
    }

    #[test]
    fn one_is_ill_for_a_while_and_another_to_the_end() {
        let ill = |part| Manners::Ill.answer(1, part, &[]).is_some();
        assert_eq!([0.0, 0.2, 0.5, 3.0].map(ill), [false, true, false, false]);
        assert_eq!(statuses(Manners::Dying(1), 3), [None, Some(500), Some(500)]);
        let length = Duration::from_secs(100);
        assert_eq!(
            part(None, length).total_cmp(&0.0),
            std::cmp::Ordering::Equal
        );
        let half = part(Some(length / 2), length);
        assert_eq!(half.total_cmp(&0.5), std::cmp::Ordering::Equal);
    }

    #[test]
    fn only_those_that_fail_for_long_have_a_breaker() {
        let opens = |manners: Manners| manners.breaker().failures != Some(Some(0));
        assert!(opens(Manners::Ill) && opens(Manners::Dying(1)));
        assert!(!opens(Manners::Flaky(1)) && !opens(Manners::Broken));
        assert!(Manners::Dying(1).is_doomed() && !Manners::Ill.is_doomed());
    }
}

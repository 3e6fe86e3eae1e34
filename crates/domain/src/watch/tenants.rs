//! What operators must know of a tenant as a whole.
//!
//! Like the watch of a destination: a look is a [`TenantSight`], what is remembered is
//! a [`TenantWatch`], and each alert is raised once and ended once. Between the mark
//! that raises one and the mark that ends it, it stays as it was.

use std::time::Duration;

use super::{News, news, quoted};
use crate::backpressure::high_mark;
use crate::ids::DestinationId;
use crate::operations::OperationalType;
use crate::time::Timestamp;

/// Of a hundred answers, so many successes are enough, unless set.
pub const DEFAULT_SUCCESS_PERCENT: u32 = 50;

/// Within this time, unless set.
pub const DEFAULT_SUCCESS_WITHIN: Duration = Duration::from_secs(3_600);

/// The shortest that can be set: answers are counted in slots of so long.
pub const MIN_SUCCESS_WITHIN: Duration = Duration::from_secs(300);

/// The longest: slots are kept for so long.
pub const MAX_SUCCESS_WITHIN: Duration = Duration::from_secs(86_400);

/// Fewer answers than these say nothing, unless set.
pub const DEFAULT_SUCCESS_LEAST: u32 = 20;

/// The most that can be set.
pub const MAX_SUCCESS_LEAST: u32 = 1_000_000;

/// A tenant is near a bound from so many per cent of it on.
pub const NEAR_PERCENT: u64 = 90;

/// And no more below so many.
pub const FAR_PERCENT: u64 = 80;

/// Destinations are counted up to so many: of a larger bound nobody is told, rather
/// than that a look reads a million rows.
pub const MAX_COUNTED_DESTINATIONS: u32 = 100_000;

/// When operators are told of how a tenant's requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantAlerts {
    /// When fewer of a hundred answers are successes; 0 for never.
    pub success_percent: u32,
    /// Of the answers within this time.
    pub success_within: Duration,
    /// If there are so many.
    pub success_least: u32,
}

impl Default for TenantAlerts {
    fn default() -> Self {
        Self {
            success_percent: DEFAULT_SUCCESS_PERCENT,
            success_within: DEFAULT_SUCCESS_WITHIN,
            success_least: DEFAULT_SUCCESS_LEAST,
        }
    }
}

impl TenantAlerts {
    /// What the store's columns say, with defaults where they are null.
    #[must_use]
    pub fn of(percent: Option<u32>, seconds: Option<u32>, least: Option<u32>) -> Self {
        let default = Self::default();
        let within = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            success_percent: percent.unwrap_or(default.success_percent),
            success_within: within.unwrap_or(default.success_within),
            success_least: least.unwrap_or(default.success_least),
        }
    }
}

/// What a look at a tenant finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantSight {
    /// How many requests succeeded, within the time that is set.
    pub succeeded: u64,
    /// How many failed; a 429 is no failure.
    pub failed: u64,
    /// How many destinations it has, counted up to [`MAX_COUNTED_DESTINATIONS`].
    pub destinations: u32,
    /// How many it may have.
    pub most_destinations: Option<u32>,
    /// Its pending attempts, as last counted, and how many may be pending: `None`
    /// where there are too few to be told of.
    pub backlog: Option<(u64, u64)>,
    /// Its events are refused, for this backlog.
    pub refused: Option<RefusedFor>,
}

/// Whose backlog is too long to take more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    /// That of one of its destinations.
    Destination(DestinationId),
    /// The tenant's.
    Tenant,
    /// That of all together: the installation's own tenant is told.
    All,
}

impl RefusedFor {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Destination(_) => "destination",
            Self::Tenant => "tenant",
            Self::All => "all",
        }
    }
}

/// What is remembered of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantWatch {
    /// Too few of its requests succeed since then.
    pub success_low_since: Option<Timestamp>,
    /// It has nearly as many destinations as it may have.
    pub destinations_high_since: Option<Timestamp>,
    /// Its backlog is nearly so long that its events are refused, or longer.
    pub backlog_high_since: Option<Timestamp>,
    /// Its events are refused.
    pub refused_since: Option<Timestamp>,
    /// Rows of the outbox that were rejected, and that operators do not know of yet.
    pub rejected: u64,
    /// When they were last told of some.
    pub rejected_told_at: Option<Timestamp>,
}

impl TenantWatch {
    /// Whether there is nothing to remember at `now`, if rejected rows are told of once
    /// in `interval`.
    #[must_use]
    pub fn is_well(&self, interval: Duration, now: Timestamp) -> bool {
        let raised = [
            self.success_low_since,
            self.destinations_high_since,
            self.backlog_high_since,
            self.refused_since,
        ];
        let quiet = (self.rejected_told_at).is_none_or(|told| now.since(told) >= interval);
        raised.iter().all(Option::is_none) && self.rejected == 0 && quiet
    }

    /// What a look comes to: news of the tenant, or of one of its destinations.
    pub fn look(
        &mut self,
        settings: &TenantAlerts,
        sight: &TenantSight,
        now: Timestamp,
    ) -> Vec<(Option<DestinationId>, News)> {
        let refused = match sight.refused {
            Some(RefusedFor::Destination(id)) => Some(id),
            _ => None,
        };
        let of_it = [
            self.look_at_success(settings, sight, now),
            self.look_at_destinations(sight, now),
            self.look_at_backlog(sight, now),
        ];
        let mut news: Vec<_> = (of_it.into_iter().flatten())
            .map(|one| (None, one))
            .collect();
        news.extend(self.look_at_refusal(sight, now).map(|one| (refused, one)));
        news
    }

    /// Ends when half as many fail as the threshold allows, or nothing is answered.
    fn look_at_success(
        &mut self,
        settings: &TenantAlerts,
        sight: &TenantSight,
        now: Timestamp,
    ) -> Option<News> {
        let threshold = u64::from(settings.success_percent);
        let answered = sight.succeeded.saturating_add(sight.failed);
        // Of a hundred times as many answers, so many may fail.
        let allowed = answered.saturating_mul(100_u64.saturating_sub(threshold));
        let failed = sight.failed.saturating_mul(100);
        let enough = answered >= u64::from(settings.success_least.max(1));
        let counts = format!(
            r#""threshold":{threshold},"answered":{answered},"failed":{},"seconds":{}"#,
            sight.failed,
            settings.success_within.as_secs()
        );
        match self.success_low_since {
            None if threshold > 0 && enough && failed > allowed => {
                self.success_low_since = Some(now);
                news(OperationalType::SuccessLow, format!("{{{counts}}}"))
            }
            Some(since) if threshold == 0 || failed <= allowed / 2 => {
                self.success_low_since = None;
                let since = quoted(since);
                let details = format!(r#"{{{counts},"since":{since}}}"#);
                news(OperationalType::SuccessNormal, details)
            }
            _ => None,
        }
    }

    fn look_at_destinations(&mut self, sight: &TenantSight, now: Timestamp) -> Option<News> {
        let has = u64::from(sight.destinations);
        let most = (sight.most_destinations).filter(|most| *most <= MAX_COUNTED_DESTINATIONS);
        let since = &mut self.destinations_high_since;
        let raised = mark(since, most.map(|most| (has, most.into())), now)?;
        let most = most.map_or("null".to_owned(), |most| most.to_string());
        let counts = format!(r#""destinations":{has},"most":{most}"#);
        match raised {
            Mark::Raised => news(OperationalType::DestinationsHigh, format!("{{{counts}}}")),
            Mark::Ended(since) => news(
                OperationalType::DestinationsNormal,
                format!(r#"{{{counts},"since":{}}}"#, quoted(since)),
            ),
        }
    }

    fn look_at_backlog(&mut self, sight: &TenantSight, now: Timestamp) -> Option<News> {
        let refused_from = |(pending, bound)| (pending, high_mark(bound));
        // One that is too short to be told of is far from every bound.
        let (pending, mark_at) = sight.backlog.map_or((0, 1), refused_from);
        let raised = mark(&mut self.backlog_high_since, Some((pending, mark_at)), now)?;
        match raised {
            Mark::Raised => news(
                OperationalType::TenantBacklogHigh,
                format!(r#"{{"backlog":{pending},"refused_above":{mark_at}}}"#),
            ),
            Mark::Ended(since) => news(
                OperationalType::TenantBacklogNormal,
                format!(r#"{{"backlog":{pending},"since":{}}}"#, quoted(since)),
            ),
        }
    }

    fn look_at_refusal(&mut self, sight: &TenantSight, now: Timestamp) -> Option<News> {
        match (self.refused_since, sight.refused) {
            (None, Some(whose)) => {
                self.refused_since = Some(now);
                let details = format!(r#"{{"backlog_of":"{}"}}"#, whose.as_str());
                news(OperationalType::IngestRefused, details)
            }
            (Some(since), None) => {
                self.refused_since = None;
                let details = format!(r#"{{"since":{}}}"#, quoted(since));
                news(OperationalType::IngestAccepted, details)
            }
            _ => None,
        }
    }

    /// News of rejected rows, if there are some and the last are `interval` ago.
    pub fn tell_rejected(&mut self, interval: Duration, now: Timestamp) -> Option<News> {
        let last = self.rejected_told_at;
        let due = last.is_none_or(|told| now.since(told) >= interval);
        if self.rejected == 0 || !due {
            return None;
        }
        let count = std::mem::take(&mut self.rejected);
        self.rejected_told_at = Some(now);
        let since = last.map_or("null".to_owned(), quoted);
        let details = format!(r#"{{"count":{count},"since":{since}}}"#);
        news(OperationalType::OutboxRejected, details)
    }
}

enum Mark {
    Raised,
    Ended(Timestamp),
}

/// Whether so many of so many are near, where it was not so before; or no more. Of no
/// bound nothing is near.
fn mark(since: &mut Option<Timestamp>, of: Option<(u64, u64)>, now: Timestamp) -> Option<Mark> {
    let reaches = |percent: u64| {
        of.is_some_and(|(has, most)| has.saturating_mul(100) >= most.saturating_mul(percent))
    };
    match *since {
        None if reaches(NEAR_PERCENT) => {
            *since = Some(now);
            Some(Mark::Raised)
        }
        Some(began) if !reaches(FAR_PERCENT) => {
            *since = None;
            Some(Mark::Ended(began))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_micros(minute * 60_000_000)
    }

    fn answered(succeeded: u64, failed: u64) -> TenantSight {
        TenantSight {
            succeeded,
            failed,
            ..TenantSight::default()
        }
    }

    /// The types of the news of one look, by the default settings.
    fn look(watch: &mut TenantWatch, sight: &TenantSight, minute: i64) -> Vec<OperationalType> {
        let news = watch.look(&TenantAlerts::default(), sight, at(minute));
        news.into_iter().map(|(_, news)| news.event_type).collect()
    }

    #[test]
    fn few_answers_are_no_alarm_and_an_episode_is_told_of_once() {
        let mut watch = TenantWatch::default();
        assert_eq!(look(&mut watch, &answered(0, 19), 0), []);
        // Half is enough.
        assert_eq!(look(&mut watch, &answered(10, 10), 1), []);
        let low = [OperationalType::SuccessLow];
        assert_eq!(look(&mut watch, &answered(9, 11), 2), low);
        assert_eq!(watch.success_low_since, Some(at(2)));
        assert!(!watch.is_well(MINUTE, at(2)));
        // Better than the threshold is not well yet: it fails half as much first.
        assert_eq!(look(&mut watch, &answered(60, 40), 3), []);
        assert_eq!(look(&mut watch, &answered(74, 26), 4), []);
        let normal = [OperationalType::SuccessNormal];
        assert_eq!(look(&mut watch, &answered(75, 25), 5), normal);
        assert_eq!(look(&mut watch, &answered(51, 49), 6), []);
        assert!(watch.is_well(MINUTE, at(6)));
    }

    #[test]
    fn an_episode_ends_when_nothing_is_answered_any_more() {
        let mut watch = TenantWatch::default();
        assert_eq!(look(&mut watch, &answered(0, 20), 0).len(), 1);
        // Fewer than the least: what they say is still bad.
        assert_eq!(look(&mut watch, &answered(0, 1), 1), []);
        let normal = [OperationalType::SuccessNormal];
        assert_eq!(look(&mut watch, &answered(0, 0), 2), normal);
    }

    #[test]
    fn a_threshold_says_what_is_enough() {
        let strict = TenantAlerts::of(Some(99), Some(600), Some(100));
        assert_eq!(strict.success_within, Duration::from_secs(600));
        let mut watch = TenantWatch::default();
        assert!(watch.look(&strict, &answered(99, 1), at(0)).is_empty());
        let told = watch.look(&strict, &answered(98, 2), at(1));
        let details = r#"{"threshold":99,"answered":100,"failed":2,"seconds":600}"#;
        assert_eq!(told[0].1.details, details);
        // Never: what was raised ends.
        let never = TenantAlerts::of(Some(0), None, None);
        let told = watch.look(&never, &answered(0, 100), at(2));
        assert_eq!(told[0].1.event_type, OperationalType::SuccessNormal);
        assert!(watch.look(&never, &answered(0, 100), at(3)).is_empty());
        // At a hundred a single failure is one too many.
        let all = TenantAlerts::of(Some(100), None, Some(1));
        assert_eq!(watch.look(&all, &answered(999, 1), at(4)).len(), 1);
        assert!(watch.look(&all, &answered(999, 1), at(5)).is_empty());
    }

    fn with(destinations: u32, most: Option<u32>) -> TenantSight {
        TenantSight {
            destinations,
            most_destinations: most,
            ..TenantSight::default()
        }
    }

    #[test]
    fn many_destinations_are_told_of_at_nine_tenths_and_end_below_eight() {
        let mut watch = TenantWatch::default();
        assert_eq!(look(&mut watch, &with(89, Some(100)), 0), []);
        let high = [OperationalType::DestinationsHigh];
        assert_eq!(look(&mut watch, &with(90, Some(100)), 1), high);
        for destinations in [100, 89, 80] {
            assert_eq!(look(&mut watch, &with(destinations, Some(100)), 2), []);
        }
        let normal = [OperationalType::DestinationsNormal];
        assert_eq!(look(&mut watch, &with(79, Some(100)), 3), normal);
        // A larger bound is a way out as well, and so is none.
        assert_eq!(look(&mut watch, &with(95, Some(100)), 4), high);
        assert_eq!(look(&mut watch, &with(95, None), 5), normal);
        assert_eq!(look(&mut watch, &with(100_000, Some(100_001)), 6), []);
    }

    #[test]
    fn a_backlog_is_near_before_events_are_refused() {
        let backlog = |pending| TenantSight {
            backlog: pending,
            ..TenantSight::default()
        };
        let mut watch = TenantWatch::default();
        // Of a bound of 1,000, events are refused above 800.
        assert_eq!(look(&mut watch, &backlog(Some((719, 1_000))), 0), []);
        let told = watch.look(
            &TenantAlerts::default(),
            &backlog(Some((720, 1_000))),
            at(1),
        );
        let details = r#"{"backlog":720,"refused_above":800}"#;
        assert_eq!(told[0].1.details, details);
        assert_eq!(look(&mut watch, &backlog(Some((640, 1_000))), 2), []);
        let normal = [OperationalType::TenantBacklogNormal];
        assert_eq!(look(&mut watch, &backlog(None), 3), normal);
    }

    #[test]
    fn refused_events_are_told_of_with_the_destination_whose_backlog_it_is() {
        let refused = |whose| TenantSight {
            refused: whose,
            ..TenantSight::default()
        };
        let id = DestinationId(Uuid::from_u128(7));
        let mut watch = TenantWatch::default();
        let sight = refused(Some(RefusedFor::Destination(id)));
        let told = watch.look(&TenantAlerts::default(), &sight, at(0));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].0, Some(id));
        assert_eq!(told[0].1.details, r#"{"backlog_of":"destination"}"#);
        // The same episode, whosever it is.
        assert_eq!(look(&mut watch, &refused(Some(RefusedFor::Tenant)), 1), []);
        let accepted = [OperationalType::IngestAccepted];
        assert_eq!(look(&mut watch, &refused(None), 2), accepted);
        let told = watch.look(
            &TenantAlerts::default(),
            &refused(Some(RefusedFor::All)),
            at(3),
        );
        assert_eq!(told[0].0, None);
    }

    #[test]
    fn rejected_rows_are_told_of_at_once_and_then_in_numbers() {
        let mut watch = TenantWatch {
            rejected: 3,
            ..TenantWatch::default()
        };
        let told = watch.tell_rejected(5 * MINUTE, at(0)).unwrap();
        assert_eq!(told.details, r#"{"count":3,"since":null}"#);
        watch.rejected += 2;
        assert_eq!(watch.tell_rejected(5 * MINUTE, at(4)), None);
        assert!(!watch.is_well(5 * MINUTE, at(4)));
        let told = watch.tell_rejected(5 * MINUTE, at(5)).unwrap();
        assert!(told.details.starts_with(r#"{"count":2,"since":"1970-"#));
        assert_eq!(watch.tell_rejected(5 * MINUTE, at(20)), None);
        assert!(watch.is_well(5 * MINUTE, at(20)));
    }
}

//! Replays: at which pace dead letters, or events whatever became of them, go back into
//! the backlog.
//!
//! A replay uses a *share* of its destination's limit, or of its limit group's where that
//! is lower. What it has moved waits like everything else, so the limiter alone decides
//! when it starts; the pace only sees to it that no more than about a second's worth at
//! the share waits at any time, so that a replay of a million dead letters neither fills
//! the backlog nor crowds out what is new.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limit_group::GroupLimits;
use crate::policy::{Policy, Rate};
use crate::time::Timestamp;

/// The share of the limit that a replay uses if nothing is said.
pub const DEFAULT_SHARE: f64 = 0.5;

/// What a replay's share is of where no rate limits: starts per second.
pub const UNLIMITED_PER_SECOND: f64 = 1_000.0;

/// The most replays of one tenant that run at once. Each step of all replays moves a few of
/// them (32 in 200 ms), so the last of these has its turn within some seconds; and one
/// command for very many destinations does not fill the table that each step sorts.
pub const MAX_RUNNING: u32 = 1_000;

/// The most dead letters that one step moves.
pub const MAX_STEP: u32 = 500;

/// A step that comes at most this late takes nothing from the share.
pub const MAX_STEP_DELAY: Duration = Duration::from_millis(500);

/// What a replay is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplaySource {
    /// Dead letters: each is replayed once.
    DeadLetters,
    /// Events, whatever became of them: they are sent again (resent).
    Events,
}

impl ReplaySource {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::DeadLetters, Self::Events];

    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeadLetters => "dead_letters",
            Self::Events => "events",
        }
    }
}

/// The text says nothing that a replay can be of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown source of a replay {0:?}")]
pub struct UnknownReplaySource(pub String);

impl FromStr for ReplaySource {
    type Err = UnknownReplaySource;
    fn from_str(text: &str) -> Result<Self, UnknownReplaySource> {
        let found = Self::ALL.into_iter().find(|source| source.as_str() == text);
        found.ok_or_else(|| UnknownReplaySource(text.to_owned()))
    }
}

/// How far a replay has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// It moves dead letters, or waits to.
    Running,
    /// All that matched when it was created were looked at.
    Completed,
    /// Its owner ended it, or the destination is gone. What it had moved stays.
    Cancelled,
}

impl ReplayState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Running, Self::Completed, Self::Cancelled];

    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The text is no state of a replay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown replay state {0:?}")]
pub struct UnknownReplayState(pub String);

impl FromStr for ReplayState {
    type Err = UnknownReplayState;
    fn from_str(text: &str) -> Result<Self, UnknownReplayState> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| UnknownReplayState(text.to_owned()))
    }
}

/// One step of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How many dead letters to move, at most.
    pub count: u32,
    /// From where the pace of the next step is counted if none is moved; each
    /// that is moved adds [`Step::each`].
    pub paced_from: Timestamp,
    /// What one of them takes at the share.
    pub each: Duration,
}

impl Step {
    /// The pace after `moved` were moved.
    #[must_use]
    pub fn paced_at(&self, moved: u32) -> Timestamp {
        self.paced_from + self.each.saturating_mul(moved)
    }
}

/// What a replay's pace is by: its part of what its destination may start.
#[derive(Debug, Clone, Copy)]
pub struct Pace<'a> {
    /// What limits the destination.
    pub policy: &'a Policy,
    /// What its limit group allows, if it is in one.
    pub group: Option<&'a GroupLimits>,
    /// Which part of that the replay may use; from 0 to 1.
    pub share: f64,
}

impl Pace<'_> {
    /// Starts per second.
    fn rate(&self) -> f64 {
        let own = match &self.policy.rate {
            Rate::Paused => 0.0,
            Rate::Unlimited => UNLIMITED_PER_SECOND,
            Rate::Limited(limited) => limited.per_second().min(UNLIMITED_PER_SECOND),
        };
        let group = self.group.and_then(GroupLimits::starts_per_second);
        own.min(group.unwrap_or(own)) * self.share.clamp(0.0, 1.0)
    }

    /// About how long so many dead letters take; `None` while it is paused.
    ///
    /// ```
    /// use domain::limit_group::GroupLimits;
    /// use domain::policy::LimitSettings;
    /// use domain::replay::Pace;
    /// use std::time::Duration;
    ///
    /// let policy = LimitSettings { per_second: Some(10), ..LimitSettings::EXACT }.policy();
    /// let alone = Pace { policy: &policy, group: None, share: 0.5 };
    /// assert_eq!(alone.takes(100), Some(Duration::from_secs(20)));
    /// let group = |max| GroupLimits { per_second: Some(max), ..GroupLimits::default() };
    /// assert_eq!(Pace { group: Some(&group(2)), ..alone }.takes(100), Some(Duration::from_secs(100)));
    /// assert_eq!(Pace { group: Some(&group(0)), ..alone }.takes(100), None);
    /// ```
    #[must_use]
    pub fn takes(&self, dead_letters: u64) -> Option<Duration> {
        let seconds = dead_letters as f64 / self.rate();
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// How many dead letters may be moved now, with `waiting` of this replay's
    /// attempts still to start. `paced_at` is what the last step left; `None`
    /// before the first.
    ///
    /// ```
    /// use domain::policy::LimitSettings;
    /// use domain::replay::Pace;
    /// use domain::time::Timestamp;
    ///
    /// let policy = LimitSettings { per_second: Some(100), ..Default::default() }.policy();
    /// let pace = Pace { policy: &policy, group: None, share: 0.5 };
    /// let now = Timestamp::from_millis(1_000_000);
    /// // A second's worth at half of the limit, and then 50 a second.
    /// let first = pace.step(None, 0, now);
    /// assert_eq!(first.count, 50);
    /// let later = Timestamp::from_millis(1_000_100);
    /// assert_eq!(pace.step(Some(first.paced_at(50)), 0, later).count, 5);
    /// ```
    #[must_use]
    pub fn step(&self, paced_at: Option<Timestamp>, waiting: u32, now: Timestamp) -> Step {
        let per_second = self.rate();
        if per_second <= 0.0 {
            return Step {
                count: 0,
                paced_from: now,
                each: Duration::ZERO,
            };
        }
        // No slower than one in a hundred days: that is a pause in all but name.
        let each = Duration::from_secs_f64((1.0 / per_second).min(8_640_000.0));
        // What was not used is kept for a second; or, where one takes about that long
        // or longer, for one and until somebody comes to look.
        let kept = (each + MAX_STEP_DELAY).max(Duration::from_secs(1));
        let paced_from = paced_at.unwrap_or(Timestamp::MIN).max(now - kept).min(now);
        let earned = now.since(paced_from).as_micros() / each.as_micros().max(1);
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        let worth = (per_second as u32).max(1);
        Step {
            count: earned.min(worth.saturating_sub(waiting)).min(MAX_STEP),
            paced_from,
            each,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LimitSettings;
    use proptest::prelude::*;

    fn policy(per_second: Option<u32>, per_hour: Option<u32>) -> Policy {
        let settings = LimitSettings {
            per_second,
            per_hour,
            unlimited: per_second.is_none() && per_hour.is_none(),
            ..LimitSettings::EXACT
        };
        settings.policy()
    }

    fn alone(policy: &Policy, share: f64) -> Pace<'_> {
        Pace {
            policy,
            group: None,
            share,
        }
    }

    proptest! {
        /// Looked at whenever: no second's worth more than the share, in any
        /// span, and never more than a second's worth waits.
        #[test]
        fn a_replay_keeps_to_its_share(
            per_second in prop::option::of(1..5_000_u32),
            per_hour in prop::option::of(1..100_000_u32),
            share in 0.01..=1.0_f64,
            pauses in prop::collection::vec((0..5_000_u64, 0..=100_u32), 1..60),
        ) {
            let policy = policy(per_second, per_hour);
            let limit = match &policy.rate {
                Rate::Limited(limited) => limited.per_second().min(UNLIMITED_PER_SECOND),
                _ => UNLIMITED_PER_SECOND,
            };
            let worth = ((limit * share) as u32).max(1);
            let began = Timestamp::from_millis(1_000_000_000);
            let (mut now, mut paced_at) = (began, None);
            let (mut waiting, mut moved) = (0_u32, 0_u64);
            for (pause_ms, started_percent) in pauses {
                now = now + Duration::from_millis(pause_ms);
                waiting -= waiting * started_percent / 100;
                let step = alone(&policy, share).step(paced_at, waiting, now);
                waiting += step.count;
                moved += u64::from(step.count);
                paced_at = Some(step.paced_at(step.count));
                prop_assert!(waiting <= worth, "{waiting} wait");
                let spent = now.since(began).as_secs_f64();
                let most = spent * limit * share + f64::from(worth) + 1.0;
                prop_assert!(moved as f64 <= most * 1.000_1, "{moved} of {most}");
            }
        }

        /// As long as what was moved starts, the share is used.
        #[test]
        fn a_replay_uses_its_share(per_second in 1..1_000_u32, share in 0.05..=1.0_f64) {
            let policy = policy(Some(per_second), None);
            let (mut now, mut paced_at) = (Timestamp::from_millis(1_000_000_000), None);
            let mut moved = 0_u32;
            for _ in 0..400 {
                let step = alone(&policy, share).step(paced_at, 0, now);
                moved += step.count;
                paced_at = Some(step.paced_at(step.count));
                now = now + Duration::from_millis(250);
            }
            let share = 100.0 * f64::from(per_second) * share;
            prop_assert!(f64::from(moved) >= share * 0.99 - 1.0, "{moved} of {share}");
        }
    }

    #[test]
    fn a_member_replays_no_faster_than_its_group_allows() {
        let group = GroupLimits {
            per_second: Some(4),
            ..GroupLimits::default()
        };
        let now = Timestamp::from_millis(5_000);
        for (own, first) in [(None, 4), (Some(100), 4), (Some(3), 3)] {
            let own = policy(own, None);
            let pace = Pace {
                group: Some(&group),
                ..alone(&own, 1.0)
            };
            assert_eq!(pace.step(None, 0, now).count, first);
        }
    }

    #[test]
    fn a_paused_destination_replays_nothing() {
        let now = Timestamp::from_millis(5_000);
        let paused = policy(Some(0), None);
        assert_eq!(alone(&paused, 1.0).step(None, 0, now).count, 0);
    }
}

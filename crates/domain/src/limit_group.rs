//! Limit groups: one limit that several destinations have together, such as those of one
//! host, or of one customer's account.
//!
//! A start of a member counts for its own limits and for its group's. A group has sliding
//! windows and nothing else: no bucket, no `max_in_flight`, and no limit above
//! [`EXACT_MAX`], because what its members started is counted start by start. It can only
//! make its members slower, so a tier's ceiling has nothing to add to it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::external_id::stands_in_paths;
use crate::limit::{EXACT_MAX, Limit, Period};
use crate::policy::{InvalidSettings, LimitSettings, at_most, column, columns};

/// The most destinations that a group may have at once, those that left it within
/// [`REMEMBERED`] included: a run of a member reads what each of them uses.
pub const MAX_MEMBERS: u32 = 100;

/// The most groups of one tenant.
pub const MAX_GROUPS: u32 = 1_000;

/// For how long a member that left may still count: no window is longer, with the largest
/// margin that there is.
pub const REMEMBERED: std::time::Duration = std::time::Duration::from_secs(2 * 86_400);

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 100;

/// What a tenant calls a group of its own. It stands in paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(String);

/// What was given is no name of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 100 letters, digits and - . _ ~ : @ +")]
pub struct InvalidGroupName;

impl GroupName {
    /// What a store keeps: its own constraints hold.
    #[must_use]
    pub const fn kept(text: String) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = InvalidGroupName;

    fn from_str(text: &str) -> Result<Self, InvalidGroupName> {
        match stands_in_paths(text, MAX_NAME_BYTES) {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidGroupName),
        }
    }
}

impl TryFrom<String> for GroupName {
    type Error = InvalidGroupName;

    fn try_from(text: String) -> Result<Self, InvalidGroupName> {
        text.parse()
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> Self {
        name.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a group's row says, column by column: `None` does not limit, and 0 pauses all of
/// its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupLimits {
    /// Starts per second.
    pub per_second: Option<u32>,
    /// Starts per minute.
    pub per_minute: Option<u32>,
    /// Starts per hour.
    pub per_hour: Option<u32>,
    /// Starts per day.
    pub per_day: Option<u32>,
}

impl GroupLimits {
    /// The four with their periods, the shortest first.
    #[must_use]
    pub const fn columns(&self) -> [(Period, Option<u32>); 4] {
        [
            (Period::Second, self.per_second),
            (Period::Minute, self.per_minute),
            (Period::Hour, self.per_hour),
            (Period::Day, self.per_day),
        ]
    }

    /// Whether nothing of its members starts.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.columns().iter().any(|(_, max)| *max == Some(0))
    }

    /// Its windows, the shortest first; none where it pauses.
    pub fn windows(&self) -> impl Iterator<Item = Limit> + use<> {
        let paused = self.is_paused();
        let columns = self.columns().into_iter().filter(move |_| !paused);
        columns.filter_map(|(period, max)| Limit::new(max?, period))
    }

    /// Refuses nonsense, naming the column. The stores' constraints say the same.
    ///
    /// # Errors
    ///
    /// Which column, and what is wrong with it.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        const _: () = assert!(EXACT_MAX == 2_000, "the text says so");
        let too_large = "must be at most 2000: a group's starts are counted one by one";
        at_most(columns(self.columns()), EXACT_MAX, too_large)?;
        match self.columns().iter().all(|(_, max)| max.is_none()) {
            true => Err(InvalidSettings {
                field: column(Period::Second),
                problem: "set at least one limit: a group without any limits nothing".to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// The same as the settings of a destination: by these all that its members start is
    /// judged. One without any, which was deleted, limits nothing.
    #[must_use]
    pub fn as_settings(&self) -> LimitSettings {
        LimitSettings {
            per_second: self.per_second,
            per_minute: self.per_minute,
            per_hour: self.per_hour,
            per_day: self.per_day,
            unlimited: *self == Self::default(),
            ..LimitSettings::EXACT
        }
    }

    /// What its members together, and so one of them, may start per second in the long run;
    /// `None` for any number. A measured margin takes up to a hundredth of it, which is not
    /// in it.
    #[must_use]
    pub fn starts_per_second(&self) -> Option<f64> {
        self.as_settings().policy().starts_per_second()
    }

    /// Whether all that `before` allowed is allowed still. The stores' triggers say the
    /// same: permits that are out may stay.
    #[must_use]
    pub fn is_pure_raise_of(&self, before: &Self) -> bool {
        let most = |max: Option<u32>| max.unwrap_or(u32::MAX);
        (self.columns().iter().zip(before.columns()))
            .all(|((_, after), (_, before))| most(*after) >= most(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_in_a_path_as_it_is() {
        for good in ["acme", "api.example.com", "cust:12@eu-1", &"x".repeat(100)] {
            assert_eq!(good.parse::<GroupName>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "ä", ".", "..", &"x".repeat(101)] {
            assert_eq!(bad.parse::<GroupName>(), Err(InvalidGroupName), "{bad}");
        }
    }

    #[test]
    fn a_group_needs_a_limit_that_can_be_counted_one_by_one() {
        let per_second = |max| GroupLimits {
            per_second: Some(max),
            ..GroupLimits::default()
        };
        assert!(per_second(2_000).validate().is_ok());
        let field = |limits: GroupLimits| limits.validate().unwrap_err().field;
        assert_eq!(field(per_second(2_001)), "limit_per_second");
        assert_eq!(field(GroupLimits::default()), "limit_per_second");
        let daily = GroupLimits {
            per_day: Some(100_000),
            ..per_second(5)
        };
        assert_eq!(field(daily), "limit_per_day");
    }

    #[test]
    fn zero_pauses_and_is_no_window() {
        let paused = GroupLimits {
            per_second: Some(5),
            per_day: Some(0),
            ..GroupLimits::default()
        };
        assert!(paused.validate().is_ok() && paused.is_paused());
        assert_eq!(paused.windows().count(), 0);
    }

    #[test]
    fn a_deleted_group_limits_nothing_and_the_slowest_limit_is_the_rate() {
        assert_eq!(GroupLimits::default().starts_per_second(), None);
        let limits = GroupLimits {
            per_second: Some(5),
            per_minute: Some(60),
            ..GroupLimits::default()
        };
        assert_eq!(limits.starts_per_second(), Some(1.0));
        let paused = GroupLimits {
            per_day: Some(0),
            ..limits
        };
        assert_eq!(paused.starts_per_second(), Some(0.0));
    }

    #[test]
    fn a_raise_takes_nothing_away() {
        let limits = |per_second, per_hour| GroupLimits {
            per_second,
            per_hour,
            ..GroupLimits::default()
        };
        let before = limits(Some(5), None);
        assert!(limits(Some(5), None).is_pure_raise_of(&before));
        assert!(limits(Some(6), None).is_pure_raise_of(&before));
        assert!(!limits(Some(4), None).is_pure_raise_of(&before));
        assert!(!limits(Some(6), Some(2_000)).is_pure_raise_of(&before));
        assert!(!limits(Some(0), None).is_pure_raise_of(&before));
    }
}

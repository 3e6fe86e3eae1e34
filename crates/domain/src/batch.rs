//! Batches: several events of one destination in one request.
//!
//! A destination that wants them gets up to N events or B bytes in a request,
//! and none waits longer than T for others to join it. A batch is **one**
//! start: the attempt that has the permit, its *leader*, is what a limit
//! counts; the others are *carried* by it. They never have a permit of their
//! own, and what they are recorded as is each one's own business.
//!
//! Which wait for which is said by classes. A batch that fails for good is
//! split before it is given up: its events come back in a class of its own,
//! half as large ([`after_failure`]), until one is alone, and only that one
//! can become a dead letter.

mod answer;
mod failure;
mod openings;
mod request;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use answer::{Answer, Malformed, Said, answers};
pub use failure::{AfterBatch, after_failure, half};
pub use openings::{LOOK_WHEN_CUT, Leader, Lines, Openings, Waiting, openings};
pub use request::{CONTENT_TYPE, Item, body, id};

use crate::policy::InvalidSettings;
use crate::turns::Lane;

/// The most events in one request.
pub const MAX_EVENTS: u32 = 500;

/// The most bytes of payload in one request, and what is taken where nothing
/// is set. One event that is larger goes alone.
pub const MAX_BYTES: u32 = 1_000_000;

/// The longest that an event waits for others.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// How long it waits where nothing is set.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// Rows of one kind that a run reads of a destination that wants batches: it
/// has to see what its batches would hold.
pub const MAX_READ: u32 = 5_000;

/// What a destination's owner has set; what is `None` is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchSettings {
    /// Events in one request, at most; `None` for no batches.
    pub max_events: Option<u32>,
    /// Bytes of their payloads; default [`MAX_BYTES`].
    pub max_bytes: Option<u32>,
    /// How long an event waits for others, in milliseconds; default
    /// [`DEFAULT_WAIT`].
    pub max_wait_ms: Option<u32>,
}

/// What is in force at a destination that wants batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRules {
    /// Events in one request, at most.
    pub max_events: u32,
    /// Bytes of their payloads, at most.
    pub max_bytes: u32,
    /// How long an event waits for others; see [`within`](Self::within).
    pub max_wait: Duration,
}

impl BatchSettings {
    /// Refuses nonsense by the name of its field. `max_age` is how old the
    /// destination's events may become.
    pub fn validate(&self, max_age: Option<Duration>) -> Result<(), InvalidSettings> {
        let refuse = |field, problem: &str| {
            Err(InvalidSettings {
                field,
                problem: problem.to_owned(),
            })
        };
        const _: () = assert!(
            MAX_EVENTS == 500 && MAX_BYTES == 1_000_000,
            "the text says so"
        );
        if (self.max_events).is_some_and(|events| !(1..=MAX_EVENTS).contains(&events)) {
            return refuse("max_events", "must be between 1 and 500");
        }
        if (self.max_bytes).is_some_and(|bytes| !(1..=MAX_BYTES).contains(&bytes)) {
            return refuse("max_bytes", "must be between 1 and 1000000");
        }
        if (self.max_wait_ms).is_some_and(|wait| u128::from(wait) > MAX_WAIT.as_millis()) {
            return refuse("max_wait_ms", "must be at most 60000");
        }
        // Each would be too old before its batch is due.
        let waits = self.rules().map(|rules| rules.max_wait);
        match (waits, max_age) {
            (Some(wait), Some(age)) if wait >= age => refuse(
                "max_wait_ms",
                "must be less than the retry rules' max_age_ms",
            ),
            _ => Ok(()),
        }
    }

    /// What is in force; `None` for one event a request.
    #[must_use]
    pub fn rules(&self) -> Option<BatchRules> {
        let wait = self
            .max_wait_ms
            .map(|wait| Duration::from_millis(wait.into()));
        Some(BatchRules {
            max_events: self.max_events?.clamp(1, MAX_EVENTS),
            max_bytes: self.max_bytes.unwrap_or(MAX_BYTES).clamp(1, MAX_BYTES),
            max_wait: wait.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT),
        })
    }
}

impl BatchRules {
    /// The same where events may become this old: none waits for others for more than half of
    /// that. An owner may set a wait that is longer than half of it, and it is cut to that: an
    /// event that waits for nearly all of its age has no time left to be sent. A tier's age may
    /// come to be less than the wait, and then each would be too old before its batch is due.
    #[must_use]
    pub fn within(self, max_age: Option<Duration>) -> Self {
        let half = max_age.map_or(MAX_WAIT, |age| age / 2);
        Self {
            max_wait: self.max_wait.min(half),
            ..self
        }
    }

    /// How many waiting attempts of one kind a store has to read for one run
    /// that would read `ahead` without batches.
    #[must_use]
    pub fn read_ahead(&self, ahead: u32) -> u32 {
        ahead
            .saturating_mul(self.max_events)
            .min(MAX_READ)
            .max(ahead)
    }
}

/// Whose turn it is to fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// What is in the urgent lane.
    Urgent,
    /// First attempts that were never admitted, by their ids.
    Firsts,
    /// What is due and in no class, by when it is.
    Due,
    /// What is due and in this class.
    Class(u32),
}

impl Line {
    /// From which lines a leader's batch is filled, one after the other. What is urgent goes
    /// with its like alone: a batch is answered as a whole, and as late as its slowest event.
    #[must_use]
    pub const fn of(lane: Lane, limit: Option<u32>) -> [Option<Self>; 2] {
        match (limit, lane) {
            (Some(limit), _) => [Some(Self::Class(limit)), None],
            (None, Lane::Urgent) => [Some(Self::Urgent), None],
            (None, Lane::First) => [Some(Self::Firsts), Some(Self::Due)],
            (None, Lane::Other) => [Some(Self::Due), Some(Self::Firsts)],
        }
    }

    /// The lane that it is a part of.
    #[must_use]
    pub const fn lane(self) -> Lane {
        match self {
            Self::Urgent => Lane::Urgent,
            Self::Firsts => Lane::First,
            Self::Due | Self::Class(_) => Lane::Other,
        }
    }
}

/// What still fits into a batch beside its leader.
///
/// ```
/// use domain::batch::{BatchSettings, Room};
/// let settings = BatchSettings { max_events: Some(3), max_bytes: Some(100), ..Default::default() };
/// let mut room = Room::beside(&settings.rules().unwrap(), None, 40);
/// assert!(room.take(50));
/// assert!(!room.take(11), "101 bytes");
/// assert!(!room.take(1), "what comes after it waits for its turn");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    events: u32,
    bytes: u32,
}

impl Room {
    /// Beside a leader of so many bytes, in a class or in none.
    #[must_use]
    pub fn beside(rules: &BatchRules, limit: Option<u32>, bytes: u32) -> Self {
        let most = limit.map_or(rules.max_events, |limit| limit.min(rules.max_events));
        Self {
            events: most.saturating_sub(1),
            bytes: rules.max_bytes.saturating_sub(bytes),
        }
    }

    /// Takes the next in line, if it fits. The first that does not ends the
    /// batch: none is overtaken.
    pub const fn take(&mut self, bytes: u32) -> bool {
        if self.events == 0 || bytes > self.bytes {
            self.events = 0;
            return false;
        }
        self.events -= 1;
        self.bytes -= bytes;
        true
    }

    /// How many more it takes, at most.
    #[must_use]
    pub const fn events(&self) -> u32 {
        if self.bytes == 0 { 0 } else { self.events }
    }
}

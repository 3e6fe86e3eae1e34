//! What is checked: which bounds, of both models.
//!
//! One pair of bounds that is large in everything has more states than
//! anybody can count. So each entry is large in one thing, and a situation has
//! to be reached in one of them.

use crate::admission::{self, Admission};
use crate::answers::{self, Answers};
use crate::check::{Report, check};
use crate::groups::{self, Groups};
use crate::schedule::{self, Left, WakeProtocol};
use crate::sends::{self, Sends};

/// How much is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// In continuous integration: well under a minute.
    Usual,
    /// That and larger bounds.
    Deeper,
}

/// What was searched under this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The bounds in words.
    pub name: &'static str,
    /// What was found.
    pub report: Report,
}

/// The cores of the machines that run it.
const THREADS: usize = 2;

/// Checks the admission protocol.
#[must_use]
pub fn admission(depth: Depth) -> Vec<Part> {
    parts(depth, ADMISSION, |bounds| {
        check(Admission::new(bounds), THREADS)
    })
}

/// Checks what a start is.
#[must_use]
pub fn sends(depth: Depth) -> Vec<Part> {
    parts(depth, SENDS, |bounds| check(Sends::new(bounds), THREADS))
}

/// Checks what an answer is, where these count.
#[must_use]
pub fn answers(depth: Depth) -> Vec<Part> {
    parts(depth, ANSWERS, |bounds| {
        check(Answers::new(bounds), THREADS)
    })
}

/// Checks limits that destinations have together.
#[must_use]
pub fn groups(depth: Depth) -> Vec<Part> {
    parts(depth, GROUPS, |bounds| check(Groups::new(bounds), THREADS))
}

/// Checks the wake protocol.
#[must_use]
pub fn schedule(depth: Depth) -> Vec<Part> {
    parts(depth, SCHEDULE, |bounds| {
        check(WakeProtocol::new(bounds), THREADS)
    })
}

/// An entry of the suite: its name, from which depth on, its bounds.
type Entry<Bounds> = (&'static str, Depth, Bounds);

fn parts<Bounds: Copy>(
    depth: Depth,
    entries: &[Entry<Bounds>],
    check: impl Fn(Bounds) -> Report,
) -> Vec<Part> {
    let taken = entries.iter().filter(|(_, of, _)| depth.includes(*of));
    let part = |(name, _, bounds): &Entry<Bounds>| Part {
        name,
        report: check(*bounds),
    };
    taken.map(part).collect()
}

impl Depth {
    fn includes(self, of: Self) -> bool {
        self == Self::Deeper || of == Self::Usual
    }
}

/// Three events, a limit of two, and nothing else.
const EVENTS: admission::Bounds = admission::Bounds {
    events: 3,
    tries: 1,
    permits: 1,
    copies: 1,
    limits: &[2],
    changes: 0,
    unlocked: false,
};

const GROUPS: &[Entry<groups::Bounds>] = &[
    (
        "two members at one a second, one of which joins or leaves",
        Depth::Usual,
        groups::Bounds {
            attempts: [2, 1],
            group: 1,
            own: 2,
            changes: 1,
        },
    ),
    (
        "two members at two a second, each at one",
        Depth::Usual,
        groups::Bounds {
            attempts: [2, 1],
            group: 2,
            own: 1,
            changes: 0,
        },
    ),
    (
        "two members at two a second, with more to send, that join and leave",
        Depth::Deeper,
        groups::Bounds {
            attempts: [2, 2],
            group: 2,
            own: 2,
            changes: 1,
        },
    ),
];

const ADMISSION: &[Entry<admission::Bounds>] = &[
    ("three events at two a second", Depth::Usual, EVENTS),
    (
        "two events, the limit raised, lowered and paused",
        Depth::Usual,
        admission::Bounds {
            events: 2,
            limits: &[2, 1, 0],
            changes: 2,
            ..EVENTS
        },
    ),
    (
        "one event, retried, with messages twice",
        Depth::Usual,
        admission::Bounds {
            events: 1,
            tries: 2,
            copies: 2,
            limits: &[1],
            ..EVENTS
        },
    ),
    (
        "one event, retried and admitted again, at one a second",
        Depth::Usual,
        admission::Bounds {
            events: 1,
            tries: 2,
            permits: 2,
            limits: &[1],
            ..EVENTS
        },
    ),
    (
        "two events, admitted again, at one a second",
        Depth::Usual,
        admission::Bounds {
            events: 2,
            permits: 2,
            limits: &[1],
            ..EVENTS
        },
    ),
    (
        "one event admitted again, the limit changed, with messages twice",
        Depth::Usual,
        admission::Bounds {
            events: 1,
            permits: 2,
            copies: 2,
            limits: &[1, 0, 2],
            changes: 2,
            ..EVENTS
        },
    ),
    (
        "two events read without a lock, the limit lowered",
        Depth::Usual,
        admission::Bounds {
            events: 2,
            limits: &[2, 1],
            changes: 1,
            unlocked: true,
            ..EVENTS
        },
    ),
    (
        "two events read without a lock, the limit raised and lowered",
        Depth::Deeper,
        admission::Bounds {
            events: 2,
            limits: &[2, 1],
            changes: 2,
            unlocked: true,
            ..EVENTS
        },
    ),
    (
        "three events read without a lock",
        Depth::Deeper,
        admission::Bounds {
            unlocked: true,
            ..EVENTS
        },
    ),
    (
        "two events, retried",
        Depth::Deeper,
        admission::Bounds {
            events: 2,
            tries: 2,
            ..EVENTS
        },
    ),
    (
        "three events, the limit changed",
        Depth::Deeper,
        admission::Bounds {
            limits: &[2, 1],
            changes: 1,
            ..EVENTS
        },
    ),
    (
        "two events, admitted again, the limit changed",
        Depth::Deeper,
        admission::Bounds {
            events: 2,
            permits: 2,
            limits: &[2, 1],
            changes: 1,
            ..EVENTS
        },
    ),
];

const SENDS: &[Entry<sends::Bounds>] = &[
    (
        "two requests at one a second",
        Depth::Usual,
        sends::Bounds {
            events: 2,
            limit: 1,
        },
    ),
    (
        "three requests at two a second",
        Depth::Deeper,
        sends::Bounds {
            events: 3,
            limit: 2,
        },
    ),
];

const ANSWERS: &[Entry<answers::Bounds>] = &[(
    "two requests at one a second",
    Depth::Usual,
    answers::Bounds {
        events: 2,
        limit: 1,
    },
)];

/// Two schedulers and one event.
const ONE_EVENT: schedule::Bounds = schedule::Bounds {
    schedulers: 2,
    left: Left {
        arrivals: 1,
        retries: 0,
        changes: 0,
        losses: 0,
    },
};

const fn left(arrivals: u8, retries: u8, changes: u8, losses: u8) -> Left {
    Left {
        arrivals,
        retries,
        changes,
        losses,
    }
}

const fn one_scheduler(left: Left) -> schedule::Bounds {
    schedule::Bounds {
        schedulers: 1,
        left,
    }
}

const fn two_schedulers(left: Left) -> schedule::Bounds {
    schedule::Bounds { left, ..ONE_EVENT }
}

const SCHEDULE: &[Entry<schedule::Bounds>] = &[
    (
        "two schedulers, a retry",
        Depth::Usual,
        two_schedulers(left(1, 1, 0, 0)),
    ),
    (
        "two schedulers, two events",
        Depth::Usual,
        two_schedulers(left(2, 0, 0, 0)),
    ),
    (
        "two schedulers, a change",
        Depth::Usual,
        two_schedulers(left(1, 0, 1, 0)),
    ),
    (
        "two schedulers, a loss",
        Depth::Usual,
        two_schedulers(left(1, 0, 0, 1)),
    ),
    (
        "three events for two places",
        Depth::Usual,
        one_scheduler(left(3, 0, 0, 0)),
    ),
    ("two losses", Depth::Usual, one_scheduler(left(1, 0, 0, 2))),
    (
        "a pause, resumed",
        Depth::Usual,
        one_scheduler(left(2, 0, 2, 0)),
    ),
    (
        "a pause, resumed, and a loss",
        Depth::Deeper,
        one_scheduler(left(1, 0, 2, 1)),
    ),
    (
        "a retry, a change and a loss",
        Depth::Deeper,
        one_scheduler(left(1, 1, 1, 1)),
    ),
    (
        "two schedulers, a retry and a loss",
        Depth::Deeper,
        two_schedulers(left(1, 1, 0, 1)),
    ),
    (
        "two schedulers, two events, a change",
        Depth::Deeper,
        two_schedulers(left(2, 0, 1, 0)),
    ),
];

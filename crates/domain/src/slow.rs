//! Slow receivers: what makes one, and what it may have of a worker.
//!
//! It is about places, not about success: a receiver that answers 500 at once
//! holds a place for as short a time as one that answers 200. A place of one that
//! hangs is its until a timeout, where it is another's for milliseconds. So
//! destinations are of three [`Standing`]s, by what became of their attempts at a
//! worker, and share its places by these ([`Shares`]).
//!
//! ```text
//!              an attempt ends in time                  turned away
//!   new ──────────────────────────────► prompt ── again in a tenth of a second
//!    │                                   ▲  │
//!    │   an attempt hangs, or            │  │ the same
//!    └── nothing comes back for 2 s ──► hung ┘ ── later each time, with its [`Crowd`]
//! ```

mod crowd;
mod places;

use std::time::Duration;

pub use crowd::Crowd;
pub use places::{LINE, STILL, Shares, places_of_the_slow, seats};

use crate::attempt::OutcomeKind;
use crate::attempt::outcome::Outcome;

/// An attempt that held its place for so long counts as one that hung, however
/// it ended. A third of the default timeout; common receivers are done in one.
pub const HUNG: Duration = Duration::from_secs(5);

/// How long nothing may come back from a destination while something is in
/// flight. Then it counts as hung, until something does: with a burst of fifty
/// in flight, the first timeout comes too late to notice.
pub const SILENCE: Duration = Duration::from_secs(2);

/// The first and the longest pause before a destination that got no place is
/// looked at again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The longest pause of one that nobody knows here: another worker may know it
/// well, and the pause is everybody's.
const PAUSE_OF_NEW: Duration = Duration::from_secs(4);

/// The pause of one that answers: it came at a bad moment, and is not to blame.
const PAUSE_OF_PROMPT: Duration = Duration::from_millis(100);

/// How long a message waits for the connection of one of its permits: enough for a
/// receiver that is far away.
const DIAL_GRACE: Duration = Duration::from_millis(250);

/// An outcome that took as long as this and is no answer can wait for others.
const NOBODY_WAITS_AFTER: Duration = Duration::from_secs(1);

/// Who may have which places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It lets go of its places soon.
    Prompt,
    /// Nobody knows yet.
    New,
    /// It keeps them until a timeout takes them away.
    Hung,
}

impl Standing {
    /// Of a destination whose last attempt ended like this, if one has ended, and
    /// from which nothing has come back for so long while something is in flight;
    /// `None` if nothing is.
    #[must_use]
    pub fn of(last: Option<Held>, silent_for: Option<Duration>) -> Self {
        let is_silent = silent_for.is_some_and(|silent| silent >= SILENCE);
        match last.map(Held::is_hung) {
            _ if is_silent => Self::Hung,
            None => Self::New,
            Some(false) => Self::Prompt,
            Some(true) => Self::Hung,
        }
    }

    /// Whether a place comes before the connection, so that no more of them
    /// connect than have places.
    #[must_use]
    pub const fn takes_its_place_first(self) -> bool {
        matches!(self, Self::Hung)
    }

    /// Whether it may stand in line for a place, and have what is set aside for
    /// those that have nothing in flight.
    #[must_use]
    pub const fn is_known_to_answer(self) -> bool {
        matches!(self, Self::Prompt)
    }

    /// How long it may take to connect before it waits apart from its message, which
    /// carries permits of others, too.
    #[must_use]
    pub const fn dial_grace(self) -> Duration {
        match self {
            Self::Prompt | Self::New => DIAL_GRACE,
            Self::Hung => Duration::ZERO,
        }
    }

    /// When to look again at one that got no place, so many times in a row before:
    /// later each time unless it answers, since each look costs those who do have a
    /// place. Those that hang are a crowd.
    pub fn pause(self, turned_away: u32, crowd: &mut Crowd) -> Pause {
        let (least, most) = match self {
            Self::Prompt => {
                return Pause {
                    lasts: PAUSE_OF_PROMPT,
                    defers: false,
                };
            }
            Self::New => (Duration::ZERO, PAUSE_OF_NEW),
            Self::Hung => (crowd.in_vain(), PAUSE.1),
        };
        let doubled = PAUSE.0 * 2_u32.pow(turned_away.min(4));
        Pause {
            lasts: doubled.min(most).max(least),
            defers: true,
        }
    }
}

/// When to look again at one that got no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Pause {
    /// So much later.
    pub lasts: Duration,
    /// And nothing is admitted of it before.
    pub defers: bool,
}

/// How a place was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// For so long.
    pub time: Duration,
    /// Until our patience ended it.
    pub timed_out: bool,
}

impl Held {
    /// Whether it was kept from others.
    #[must_use]
    pub fn is_hung(self) -> bool {
        self.timed_out || self.time >= HUNG
    }
}

/// Whether an outcome can wait a moment to be recorded with others of its kind: it
/// says nothing that anybody has to know at once. No answer came, or not all of
/// one, and it was long in coming.
#[must_use]
pub fn can_wait(outcome: &Outcome) -> bool {
    outcome.kind == OutcomeKind::Failed
        && outcome.elapsed >= NOBODY_WAITS_AFTER
        && outcome.status.is_none_or(|status| status < 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn held(seconds: u64, timed_out: bool) -> Option<Held> {
        Some(Held {
            time: Duration::from_secs(seconds),
            timed_out,
        })
    }

    #[test]
    fn the_last_attempt_decides() {
        for (last, standing) in [
            (None, Standing::New),
            (held(0, false), Standing::Prompt),
            (held(4, false), Standing::Prompt),
            (held(5, false), Standing::Hung),
            (held(1, true), Standing::Hung),
        ] {
            assert_eq!(Standing::of(last, None), standing, "{last:?}");
        }
    }

    #[test]
    fn silence_is_noticed_before_the_first_timeout() {
        let just_not = SILENCE - Duration::from_millis(1);
        let prompt = held(0, false);
        assert_eq!(Standing::of(prompt, Some(just_not)), Standing::Prompt);
        assert_eq!(Standing::of(prompt, Some(SILENCE)), Standing::Hung);
        assert_eq!(Standing::of(None, Some(SILENCE)), Standing::Hung);
    }

    #[test]
    fn who_is_turned_away_comes_back_later_each_time() {
        let mut crowd = Crowd::default();
        let mut pauses = |standing: Standing| -> Vec<u64> {
            (0..7)
                .map(|times| standing.pause(times, &mut crowd).lasts.as_secs())
                .collect()
        };
        assert_eq!(pauses(Standing::New), [1, 2, 4, 4, 4, 4, 4]);
        assert_eq!(pauses(Standing::Hung), [1, 2, 4, 8, 15, 15, 15]);
        (0..1_000).for_each(|_| _ = crowd.in_vain());
        let of_many = Standing::Hung.pause(0, &mut crowd);
        assert_eq!(of_many.lasts.as_secs(), 60, "all the others come in vain");
        assert!(of_many.defers);
        let prompt = Standing::Prompt.pause(9, &mut crowd);
        assert_eq!((prompt.lasts, prompt.defers), (PAUSE_OF_PROMPT, false));
    }

    #[test]
    fn who_hangs_keeps_no_message_and_nobody_does_for_long() {
        assert_eq!(Standing::Prompt.dial_grace(), DIAL_GRACE);
        assert_eq!(Standing::New.dial_grace(), DIAL_GRACE);
        assert_eq!(Standing::Hung.dial_grace(), Duration::ZERO);
    }
}

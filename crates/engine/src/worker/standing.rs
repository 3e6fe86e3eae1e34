//! What a worker knows of a destination, by what became of its attempts here:
//! pure, and told the time.
//!
//! It is about places, not about success: a receiver that answers 500 at once
//! holds a place for as short a time as one that answers 200.

use std::time::Duration;

use tokio::time::Instant;

use super::crowd::Crowd;

/// An attempt that held its place for so long counts as one that hung, however
/// it ended. A third of the default timeout; common receivers are done in one.
pub(super) const HUNG: Duration = Duration::from_secs(5);

/// How long nothing may come back from a destination while something is in
/// flight. Then it counts as hung, until something does: with a burst of fifty
/// in flight, the first timeout comes too late to notice.
pub(super) const SILENCE: Duration = Duration::from_secs(2);

/// The first and the longest pause before a destination that got no place is
/// looked at again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The longest pause of one that nobody knows here: another worker may know it
/// well, and the pause is everybody's.
const PAUSE_OF_NEW: Duration = Duration::from_secs(4);

/// The pause of one that answers: it came at a bad moment, and is not to blame.
const PAUSE_OF_PROMPT: Duration = Duration::from_millis(100);

/// Who may have which places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It lets go of its places soon.
    Prompt,
    /// Nobody knows yet.
    New,
    /// It keeps them until a timeout takes them away.
    Hung,
}

/// One destination's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    in_flight: u32,
    /// What its last attempt did, if one has ended.
    hung: Option<bool>,
    /// Since when nothing has come back, while something is in flight.
    silent_since: Instant,
    /// How often in a row it got no place.
    turned_away: u32,
}

impl Record {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            in_flight: 0,
            hung: None,
            silent_since: now,
            turned_away: 0,
        }
    }

    pub(super) fn standing(&self, now: Instant) -> Standing {
        if self.in_flight > 0 && now.duration_since(self.silent_since) >= SILENCE {
            return Standing::Hung;
        }
        match self.hung {
            None => Standing::New,
            Some(false) => Standing::Prompt,
            Some(true) => Standing::Hung,
        }
    }

    /// One of its attempts took a place.
    pub(super) fn took(&mut self, now: Instant) {
        if self.in_flight == 0 {
            self.silent_since = now;
        }
        self.in_flight += 1;
        self.turned_away = 0;
    }

    /// It let go of the place; `held` is `None` if nothing was tried in it.
    pub(super) fn let_go(&mut self, held: Option<Held>, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(held) = held {
            self.silent_since = now;
            self.hung = Some(held.is_hung());
        }
    }

    /// There was no place for it. Returns when to look again: later each time
    /// unless it answers, since each look costs those who do have a place. Those
    /// that hang are a crowd.
    pub(super) fn turned_away(&mut self, crowd: &mut Crowd, now: Instant) -> Pause {
        let (least, most) = match self.standing(now) {
            Standing::Prompt => {
                return Pause {
                    lasts: PAUSE_OF_PROMPT,
                    defers: false,
                };
            }
            Standing::New => (Duration::ZERO, PAUSE_OF_NEW),
            Standing::Hung => (crowd.in_vain(), PAUSE.1),
        };
        let doubled = PAUSE.0 * 2_u32.pow(self.turned_away.min(4));
        self.turned_away = self.turned_away.saturating_add(1);
        Pause {
            lasts: doubled.min(most).max(least),
            defers: true,
        }
    }

    /// Nothing of it is in flight.
    pub(super) fn is_alone(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether forgetting it would lose nothing but a good name.
    pub(super) fn is_idle(&self) -> bool {
        self.is_alone() && self.hung != Some(true)
    }
}

/// When to look again at one that got no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) lasts: Duration,
    /// And nothing is admitted of it before.
    pub(super) defers: bool,
}

/// How a place was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) time: Duration,
    pub(super) timed_out: bool,
}

impl Held {
    pub(super) fn is_hung(self) -> bool {
        self.timed_out || self.time >= HUNG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Option<Held> = Some(Held {
        time: Duration::from_millis(20),
        timed_out: false,
    });

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_last_attempt_decides() {
        let now = Instant::now();
        let mut record = Record::new(now);
        assert_eq!(record.standing(now), Standing::New);
        for (time, timed_out, standing) in [
            (seconds(0), false, Standing::Prompt),
            (seconds(4), false, Standing::Prompt),
            (seconds(5), false, Standing::Hung),
            (seconds(1), false, Standing::Prompt),
            (seconds(1), true, Standing::Hung),
        ] {
            record.took(now);
            record.let_go(Some(Held { time, timed_out }), now);
            assert_eq!(record.standing(now), standing, "{time:?} {timed_out}");
        }
    }

    #[test]
    fn a_place_in_which_nothing_was_tried_says_nothing() {
        let now = Instant::now();
        let mut record = Record::new(now);
        record.took(now);
        record.let_go(None, now);
        assert_eq!(record.standing(now + seconds(9)), Standing::New);
    }

    #[test]
    fn silence_is_noticed_before_the_first_timeout() {
        let now = Instant::now();
        let mut record = Record::new(now);
        record.took(now);
        record.let_go(SOON, now);
        // Idle for long, and then two at once.
        let later = now + seconds(100);
        record.took(later);
        record.took(later + seconds(1));
        assert_eq!(record.standing(later + seconds(1)), Standing::Prompt);
        assert_eq!(record.standing(later + seconds(2)), Standing::Hung);
        // Slow and steady: something comes back now and then.
        record.let_go(SOON, later + seconds(2));
        assert_eq!(record.standing(later + seconds(3)), Standing::Prompt);
        record.let_go(SOON, later + seconds(4));
        assert_eq!(record.standing(later + seconds(60)), Standing::Prompt);
    }

    #[test]
    fn who_is_turned_away_comes_back_later_each_time() {
        let now = Instant::now();
        let mut crowd = Crowd::new();
        let mut record = Record::new(now);
        let pauses: Vec<_> = (0..7)
            .map(|_| record.turned_away(&mut crowd, now).lasts.as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 4, 4, 4, 4], "nobody knows it here");
        let mut record = Record::new(now);
        record.let_go(
            Some(Held {
                time: HUNG,
                timed_out: true,
            }),
            now,
        );
        let pauses: Vec<_> = (0..7)
            .map(|_| record.turned_away(&mut crowd, now).lasts.as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 15, 15, 15]);
        record.took(now);
        let again = record.turned_away(&mut crowd, now);
        assert_eq!((again.lasts.as_secs(), again.defers), (1, true));
        (0..1_000).for_each(|_| _ = crowd.in_vain());
        let of_many = record.turned_away(&mut crowd, now);
        assert_eq!(of_many.lasts.as_secs(), 60, "all the others come in vain");
        record.let_go(SOON, now);
        let prompt = record.turned_away(&mut crowd, now);
        assert_eq!((prompt.lasts, prompt.defers), (PAUSE_OF_PROMPT, false));
    }
}

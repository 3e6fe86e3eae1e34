//! What a worker knows of a destination, by what became of its attempts here.
//! What that makes of it is [`domain::slow`]'s to say.

use domain::slow::{Crowd, Held, Pause, Standing};
use tokio::time::Instant;

/// One destination's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    in_flight: u32,
    /// How its last attempt used its place, if one has ended.
    last: Option<Held>,
    /// Since when nothing has come back, while something is in flight.
    silent_since: Instant,
    /// How often in a row it got no place.
    turned_away: u32,
}

impl Record {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            in_flight: 0,
            last: None,
            silent_since: now,
            turned_away: 0,
        }
    }

    pub(super) fn standing(&self, now: Instant) -> Standing {
        let is_out = self.in_flight > 0;
        let silent_for = is_out.then(|| now.duration_since(self.silent_since));
        Standing::of(self.last, silent_for)
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
            self.last = Some(held);
        }
    }

    /// There was no place for it. Returns when to look again.
    pub(super) fn turned_away(&mut self, crowd: &mut Crowd, now: Instant) -> Pause {
        let pause = self.standing(now).pause(self.turned_away, crowd);
        if pause.defers {
            self.turned_away = self.turned_away.saturating_add(1);
        }
        pause
    }

    /// Nothing of it is in flight.
    pub(super) fn is_alone(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether forgetting it would lose nothing but a good name.
    pub(super) fn is_idle(&self) -> bool {
        self.is_alone() && !self.last.is_some_and(Held::is_hung)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOON: Option<Held> = Some(Held {
        time: Duration::from_millis(20),
        timed_out: false,
    });

    const HUNG: Option<Held> = Some(Held {
        time: Duration::from_secs(1),
        timed_out: true,
    });

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_last_attempt_decides() {
        let now = Instant::now();
        let mut record = Record::new(now);
        assert_eq!(record.standing(now), Standing::New);
        for (held, standing) in [
            (SOON, Standing::Prompt),
            (HUNG, Standing::Hung),
            (SOON, Standing::Prompt),
        ] {
            record.took(now);
            record.let_go(held, now);
            assert_eq!(record.standing(now), standing, "{held:?}");
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
    fn a_place_ends_the_row_of_times_that_there_was_none() {
        let now = Instant::now();
        let mut crowd = Crowd::default();
        let mut record = Record::new(now);
        record.let_go(HUNG, now);
        let mut pause = |record: &mut Record| record.turned_away(&mut crowd, now).lasts.as_secs();
        let pauses = [(); 4].map(|()| pause(&mut record));
        assert_eq!(pauses, [1, 2, 4, 8]);
        record.took(now);
        assert_eq!(pause(&mut record), 1);
    }

    #[test]
    fn one_that_answers_is_not_counted_as_turned_away() {
        let now = Instant::now();
        let mut crowd = Crowd::default();
        let mut record = Record::new(now);
        record.let_go(SOON, now);
        (0..5).for_each(|_| _ = record.turned_away(&mut crowd, now));
        record.let_go(HUNG, now);
        let first = record.turned_away(&mut crowd, now);
        assert_eq!(first.lasts.as_secs(), 1);
    }
}

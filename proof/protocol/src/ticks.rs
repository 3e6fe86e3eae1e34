//! Time as the models have it: whole ticks from now. The shipped functions are asked with
//! the instants that these stand for.

use std::time::Duration;

use domain::time::{Timestamp, micros};

/// "Now" as the shipped functions see it; any instant does.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// What a tick of a model stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick(pub(crate) Duration);

impl Tick {
    /// A duration in ticks, of which it must be a whole number.
    pub(crate) const fn count(self, duration: Duration) -> i8 {
        let ticks = duration.as_micros() / self.0.as_micros();
        assert!(duration.as_micros().is_multiple_of(self.0.as_micros()));
        assert!(ticks < 100);
        ticks as i8
    }

    /// So many ticks from now.
    pub(crate) fn at(self, ticks: i8) -> Timestamp {
        let away = self.0 * u32::from(ticks.unsigned_abs());
        match ticks < 0 {
            true => NOW - away,
            false => NOW + away,
        }
    }

    /// Ticks from now. Every time in a model is a whole number of them.
    pub(crate) fn from_now(self, at: Timestamp) -> i8 {
        let (away, tick) = (at.micros_since(NOW), micros(self.0));
        assert!(away % tick == 0, "{at:?} lies between two ticks");
        i8::try_from(away / tick).expect("a deadline is at most a lead and a grace ahead")
    }
}

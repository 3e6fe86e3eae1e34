//! Time in a model: whole ticks from now, of a length that each model chooses.

use std::time::Duration;

use domain::time::Timestamp;

/// "Now" as the shipped functions see it; any instant does.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// The ticks of one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks(pub(crate) Duration);

impl Ticks {
    /// A duration in ticks, of which it must be a whole number.
    pub(crate) const fn of(self, duration: Duration) -> i8 {
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

    /// Ticks from now. Every time in a model is a whole number of them, and near.
    pub(crate) fn until(self, at: Timestamp) -> i8 {
        let micros = at.micros_since(NOW);
        let tick = domain::time::micros(self.0);
        assert!(micros % tick == 0, "{at:?} lies between two ticks");
        i8::try_from(micros / tick).expect("what a model plans is near")
    }
}

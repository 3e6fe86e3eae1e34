//! How long those that hang keep away when they are many: pure.
//!
//! A few thousand that hang ask for a few dozen places, each of which is taken for
//! seconds. Each that comes in vain costs an admission, a message and two
//! statements, and those that answer pay for it. So the longer they come in vain,
//! the later they come again, until one in six or so finds a place; and the sooner
//! they find one, the sooner they come.

use std::time::Duration;

/// The shortest and the longest time that one keeps away.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// One that comes in vain adds half a per cent.
const IN_VAIN: f64 = 1.005;

/// One that finds a place takes away three.
const FOUND: f64 = 0.97;

/// All of a worker's that hang.
#[derive(Debug)]
pub struct Crowd {
    pause: Duration,
}

impl Default for Crowd {
    fn default() -> Self {
        Self { pause: PAUSE.0 }
    }
}

impl Crowd {
    /// One came and found a place.
    pub fn found(&mut self) {
        self.pause = self.pause.mul_f64(FOUND).max(PAUSE.0);
    }

    /// One came in vain. Returns how long it keeps away, at least.
    pub fn in_vain(&mut self) -> Duration {
        self.pause = self.pause.mul_f64(IN_VAIN).min(PAUSE.1);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many each second for a quarter of an hour, of which `places` find one;
    /// how long they keep away then.
    fn after_a_while(crowd: &mut Crowd, members: f64, places: u32) -> f64 {
        for _second in 0..900 {
            let come = (members / crowd.pause.as_secs_f64()) as u32;
            (0..come.min(places)).for_each(|_| crowd.found());
            (0..come.saturating_sub(places)).for_each(|_| _ = crowd.in_vain());
        }
        crowd.pause.as_secs_f64()
    }

    #[test]
    fn a_large_crowd_keeps_away_and_a_small_one_does_not() {
        let mut crowd = Crowd::default();
        let of_3_000 = after_a_while(&mut crowd, 3_000.0, 10);
        // 60 come each second.
        assert!((40.0..=60.0).contains(&of_3_000), "{of_3_000}");
        let of_200 = after_a_while(&mut crowd, 200.0, 10);
        assert!((1.0..8.0).contains(&of_200), "{of_200}");
        let of_9 = after_a_while(&mut crowd, 9.0, 10);
        assert!((of_9 - 1.0).abs() < f64::EPSILON, "{of_9}");
    }

    #[test]
    fn a_hundred_in_vain_are_no_crowd() {
        let mut crowd = Crowd::default();
        let last = (0..100).map(|_| crowd.in_vain()).last();
        assert!(last < Some(Duration::from_secs(2)), "{last:?}");
    }
}

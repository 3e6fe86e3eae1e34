//! Whether 503s say that it was too much, or are the noise of a receiver that
//! fails now and then, whatever it is asked for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::watch::{Answer, Sample};
use crate::time::Timestamp;

/// Up to this part of all answers, 503s are noise.
const NOISE: f64 = 0.01;

/// What the noise makes of a number of answers lies within so many of its
/// standard deviations, and so many answers more: three in a row are enough. A
/// second is judged again and again, so chance has more throws there.
const DEVIATIONS: f64 = 1.5;
const DEVIATIONS_OF_A_SECOND: f64 = 3.0;
const FEW: f64 = 2.0;

/// After so long, answers count for half: two in a hundred are told from noise by
/// a thousand answers and more. What comes at once is judged by the last second.
const HALF_LIFE: Duration = Duration::from_secs(120);

/// Whether so many 503s among the answers of a second are overload.
pub(super) fn is_overload_of_a_second(unavailable: f64, asked: f64) -> bool {
    unavailable > most(asked, DEVIATIONS_OF_A_SECOND)
}

/// The most that noise comes to.
fn most(asked: f64, deviations: f64) -> f64 {
    let expected = asked * NOISE;
    expected + deviations * expected.sqrt() + FEW
}

/// The answers since the last cut, the late ones for more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    as_of: Timestamp,
    asked: f64,
    unavailable: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            as_of: Timestamp::MIN,
            asked: 0.0,
            unavailable: 0.0,
        }
    }
}

impl Noise {
    /// Counts these, recorded at `now`.
    pub(super) fn count(&mut self, samples: &[Sample], now: Timestamp) {
        if samples.is_empty() {
            return;
        }
        let halves = now.since(self.as_of).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let left = 0.5_f64.powf(halves);
        self.asked *= left;
        self.unavailable *= left;
        self.as_of = now.max(self.as_of);
        for one in samples {
            self.asked += 1.0;
            self.unavailable += f64::from(u8::from(one.answer == Answer::Unavailable));
        }
    }

    /// More than noise can come to.
    pub(super) fn is_overload(&self) -> bool {
        self.unavailable > most(self.asked, DEVIATIONS)
    }

    /// More than noise comes to on average: no reason for a cut, nor for more.
    pub(super) fn is_suspicious(&self) -> bool {
        self.unavailable > self.asked * NOISE + 1.0
    }
}

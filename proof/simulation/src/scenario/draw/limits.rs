//! Limits of all kinds.

use domain::limit::{Count, Shape};
use domain::policy::{LimitSettings, Rate};
use rand::RngExt;

use super::Draw;

/// Nothing set: the tier's.
pub(super) const NONE: LimitSettings = LimitSettings {
    safety_margin: None,
    ..LimitSettings::EXACT
};

impl Draw<'_> {
    /// Limits that a few minutes of backlog can be judged by.
    pub(super) fn steady(&mut self) -> LimitSettings {
        match self.rng.random_range(0..10) {
            0..4 => LimitSettings {
                per_second: Some(self.rng.random_range(1..8)),
                ..NONE
            },
            4 => LimitSettings {
                per_second: Some(self.rng.random_range(10..30)),
                ..NONE
            },
            5 => LimitSettings {
                per_minute: Some(self.rng.random_range(60..300)),
                ..NONE
            },
            6 => LimitSettings {
                per_second: Some(5),
                per_minute: Some(self.rng.random_range(60..250)),
                ..NONE
            },
            7 => LimitSettings {
                per_second: Some(self.rng.random_range(2..6)),
                shape: Some(Shape::TokenBucket),
                burst: Some(self.rng.random_range(1..12)),
                ..NONE
            },
            8 => LimitSettings {
                per_second: Some(self.rng.random_range(1..6)),
                shape: Some(Shape::LeakyBucket),
                ..NONE
            },
            _ => LimitSettings {
                per_minute: Some(self.rng.random_range(2_001..2_400)),
                ..NONE
            },
        }
    }

    /// Any limits, the tier's and none included.
    pub(super) fn any_limits(&mut self) -> LimitSettings {
        let limits = match self.rng.random_range(0..20) {
            0..10 => self.steady(),
            10..13 => NONE,
            13 => LimitSettings {
                unlimited: true,
                max_in_flight: Some(self.rng.random_range(1..6)),
                ..NONE
            },
            14 | 15 => LimitSettings {
                per_second: Some(6),
                burst: Some(self.rng.random_range(1..6)),
                ..NONE
            },
            16 => LimitSettings {
                per_second: Some(4),
                per_minute: Some(100),
                per_hour: Some(self.rng.random_range(100..2_000)),
                ..NONE
            },
            17 => LimitSettings {
                per_second: Some(0),
                ..NONE
            },
            18 => LimitSettings {
                per_second: Some(3),
                per_minute: Some(100),
                shape: Some(Shape::TokenBucket),
                burst: Some(9),
                ..NONE
            },
            _ => LimitSettings {
                per_minute: Some(self.rng.random_range(10..50)),
                safety_margin: Some(0.1),
                ..NONE
            },
        };
        let few = self.rng.random_bool(0.15);
        let counts_answers = self.rng.random_bool(0.15);
        LimitSettings {
            count: counts_answers.then_some(Count::Response),
            max_in_flight: few.then_some(2).or(limits.max_in_flight),
            ..limits
        }
    }
}

/// A third more than these limits could start in this time.
pub(super) fn enough_for(limits: &LimitSettings, lasts_ms: u64) -> u32 {
    let policy = limits.policy();
    let Rate::Limited(limited) = policy.rate else {
        return 0;
    };
    let starts = limited.per_second() * lasts_ms as f64 / 1_000.0;
    (starts * 1.34) as u32 + 40
}

//! What a trial's destinations are.

use std::time::Duration;

use domain::limit::Shape;
use domain::policy::LimitSettings;
use http::StatusCode;

use crate::receiver::Behaviour;

/// One destination to be.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For people.
    pub name: String,
    /// Its limits.
    pub limits: LimitSettings,
    /// How its receiver behaves.
    pub behaviour: Behaviour,
    /// How many events it is flooded with.
    pub events: u32,
}

impl Plan {
    /// A destination that answers at once, flooded for so many seconds at
    /// `per_second` and a little more, so that it never runs dry.
    #[must_use]
    pub fn flooded(name: &str, limits: LimitSettings, per_second: u32, seconds: u32) -> Self {
        let backlog = per_second.saturating_mul(seconds);
        Self {
            name: name.to_owned(),
            limits,
            behaviour: Behaviour::ACCEPT,
            events: backlog + backlog / 4 + 20,
        }
    }

    /// The same, answering after this long.
    #[must_use]
    pub fn answering_after(mut self, after: Duration) -> Self {
        self.behaviour = Behaviour::Answer {
            status: StatusCode::NO_CONTENT,
            after,
        };
        self
    }

    /// The same, never answering.
    #[must_use]
    pub fn never_answering(mut self) -> Self {
        self.behaviour = Behaviour::NeverAnswer;
        self
    }

    /// The same, taking so many in a second and answering 429 to the others.
    #[must_use]
    pub fn taking_at_most(mut self, per_second: u32) -> Self {
        self.behaviour = Behaviour::TakeAtMost { per_second };
        self
    }

    /// The same, with events beyond the rate: for a burst at the beginning.
    #[must_use]
    pub fn and_a_burst_of(mut self, events: u32) -> Self {
        self.events += events;
        self
    }
}

/// So many per second, and nothing else.
#[must_use]
pub fn per_second(limit: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(limit),
        ..LimitSettings::default()
    }
}

/// The demo's destinations, flooded for so many seconds. The fourth is the
/// one whose limit changes in mid-run.
#[must_use]
pub fn plans_for_demo(seconds: u32) -> Vec<Plan> {
    let per_minute = LimitSettings {
        per_minute: Some(300),
        ..LimitSettings::default()
    };
    let both = LimitSettings {
        per_minute: Some(100),
        ..per_second(10)
    };
    let bucket = LimitSettings {
        shape: Some(Shape::TokenBucket),
        burst: Some(50),
        ..per_second(10)
    };
    vec![
        Plan::flooded("2/s", per_second(2), 2, seconds),
        Plan::flooded("10/s", per_second(10), 10, seconds),
        Plan::flooded("100/s", per_second(100), 100, seconds),
        Plan::flooded("20/s, then 50/s", per_second(20), 50, seconds),
        Plan::flooded("300/min", per_minute, 5, seconds).and_a_burst_of(300),
        Plan::flooded("10/s and 100/min", both, 10, seconds),
        Plan::flooded("bucket 10/s, 50", bucket, 10, seconds).and_a_burst_of(50),
        Plan::flooded("10/s, slow", per_second(10), 10, seconds)
            .answering_after(Duration::from_secs(2)),
        Plan::flooded("2/s, silent", per_second(2), 2, seconds).never_answering(),
    ]
}

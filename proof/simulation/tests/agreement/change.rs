//! Changes of destinations and their limits, drawn.

use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::limit::Shape;
use domain::policy::LimitSettings;
use engine::ports::{Catalog as _, DEFAULT_TENANT, DestinationChange, NewDestination};
use rand::RngExt as _;

use super::{Pair, both};

impl Pair {
    pub(super) async fn create(&mut self) {
        let types: &[&str] = [&[][..], &["a"], &["a", "*"]][self.below(3)];
        let new = NewDestination {
            id: DestinationId(self.id()),
            name: String::new(),
            url: "https://receiver.example/".to_owned(),
            event_types: types.iter().map(|name| (*name).to_owned()).collect(),
            limits: self.limits(),
            pass_traceparent: false,
        };
        if both!(self, create_destination(DEFAULT_TENANT, &new)).is_ok() {
            self.destinations.push(new.id);
        } else if self.destinations.is_empty() {
            Box::pin(self.create()).await;
        }
    }

    /// A change of a destination, sensible or not.
    pub(super) async fn change(&mut self) {
        let id = self.destination();
        let states = [
            DestinationState::Active,
            DestinationState::Active,
            DestinationState::Paused,
            DestinationState::Disabled,
        ];
        let mut change = DestinationChange::default();
        match self.below(6) {
            0 => {
                change.url =
                    Some(["https://a.example/", "https://b.example/"][self.below(2)].into())
            }
            1 => change.state = Some(states[self.below(4)]),
            2 => change.event_types = Some(vec!["b".to_owned()]),
            3 => change.limits = self.nudged(id).await,
            _ => change.limits = Some(self.limits()),
        }
        if self.one_in(2) {
            change.state = Some(DestinationState::Active);
        }
        let _ = both!(self, change_destination(DEFAULT_TENANT, id, &change));
    }

    /// The limits as they are, with one of them set anew: often a pure raise.
    async fn nudged(&mut self, id: DestinationId) -> Option<LimitSettings> {
        let mut limits = both!(self, destination(DEFAULT_TENANT, id)).ok()?.limits;
        let drawn = self.limits();
        match self.below(5) {
            0 => limits.per_second = drawn.per_second,
            1 => limits.per_minute = drawn.per_minute,
            2 => limits.burst = drawn.burst,
            3 => limits.max_in_flight = drawn.max_in_flight,
            _ => limits.safety_margin = drawn.safety_margin,
        }
        Some(limits)
    }

    /// One destination goes, another comes.
    pub(super) async fn replace(&mut self) {
        let id = self.destination();
        let _ = both!(self, delete_destination(DEFAULT_TENANT, id));
        self.create().await;
        let old = self.destinations.len().saturating_sub(5);
        self.destinations.drain(..old);
    }

    fn limits(&mut self) -> LimitSettings {
        let mut maybe = |values: &[u32], nothing: usize| {
            let index = self.random.random_range(0..values.len() + nothing);
            values.get(index).copied()
        };
        let shapes = [Shape::SlidingWindow, Shape::TokenBucket, Shape::LeakyBucket];
        LimitSettings {
            per_second: maybe(&[0, 3, 10, 40, 400], 2),
            per_minute: maybe(&[20, 200, 3_000], 4),
            per_hour: maybe(&[500, 5_000], 6),
            per_day: maybe(&[9_000], 9),
            burst: maybe(&[1, 4, 30], 4),
            max_in_flight: maybe(&[2, 60], 3),
            shape: maybe(&[0, 1, 2], 2).map(|shape| shapes[shape as usize]),
            unlimited: maybe(&[1], 7).is_some(),
            safety_margin: f64::from(maybe(&[5, 20], 5).unwrap_or(0)) / 100.0,
        }
    }
}

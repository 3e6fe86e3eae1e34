//! The destinations of a run, and which faults may befall which of them.

use domain::limit::Shape;
use domain::policy::LimitSettings;
use domain::retry::{DEFAULT_MAX_TRIES, RetrySettings};
use http::StatusCode;
use server::trial::per_second;

/// One destination to be.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) limits: LimitSettings,
    /// Starts a second that its limits allow in the long run: its share of the
    /// events.
    pub(crate) weight: f64,
    pub(crate) manners: Manners,
    /// Behind a proxy of its own.
    pub(crate) proxied: bool,
    /// Whether a fault may delete it.
    pub(crate) mortal: bool,
    /// Whether faults may change its limits, cancel its backlog and let its
    /// events grow old.
    pub(crate) changeable: bool,
}

/// How a destination answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// 204 at once.
    Polite,
    /// Every so many requests one 503.
    Flaky(u64),
    /// 500 always, with its breaker off: its events end as dead letters, and soon,
    /// so that there is something to replay.
    Broken,
}

impl Manners {
    /// What is tried again and when, where it is not the usual.
    pub(crate) fn retries(self) -> Option<RetrySettings> {
        (self == Self::Broken).then(|| RetrySettings {
            max_tries: Some(DEFAULT_MAX_TRIES),
            delays_ms: Some(vec![200]),
            ..RetrySettings::default()
        })
    }

    /// What it answers to its request of this number; `None` is its usual.
    pub(crate) fn answer(self, request: u64) -> Option<StatusCode> {
        match self {
            Self::Polite => None,
            Self::Flaky(every) => request
                .is_multiple_of(every)
                .then_some(StatusCode::SERVICE_UNAVAILABLE),
            Self::Broken => Some(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// Destinations by number, for faults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cast {
    pub(crate) proxied: Vec<u32>,
    pub(crate) changed: Vec<u32>,
    pub(crate) deleted: Vec<u32>,
}

impl Cast {
    /// That of [`destinations`] at this scale.
    pub(crate) fn new(scale: u32) -> Self {
        let destinations = destinations(scale);
        let numbers = |wanted: fn(&Destination) -> bool| {
            (0_u32..)
                .zip(&destinations)
                .filter(|(_, one)| wanted(one))
                .map(|(number, _)| number)
                .collect()
        };
        Self {
            proxied: numbers(|one| one.proxied),
            changed: numbers(|one| one.changeable),
            deleted: numbers(|one| one.mortal),
        }
    }
}

/// All of them: about 500 starts a second times `scale`.
pub(crate) fn destinations(scale: u32) -> Vec<Destination> {
    let plain = |name: &str, limit: u32| Destination {
        name: name.to_owned(),
        limits: per_second(limit * scale),
        weight: f64::from(limit * scale),
        manners: Manners::Polite,
        proxied: false,
        mortal: false,
        changeable: false,
    };
    let many = |count: u32, limit: u32| (0..count).map(move |n| (format!("{limit}/s {n}"), limit));
    let mut all: Vec<Destination> = (many(6, 5).chain(many(4, 10)).chain(many(3, 40)))
        .map(|(name, limit)| plain(&name, limit))
        .collect();
    all.push(plain("100/s", 100));
    all.extend((0..4).map(|n| Destination {
        changeable: true,
        ..plain(&format!("changing {n}"), 15)
    }));
    all.extend((0..4).map(|n| Destination {
        proxied: true,
        ..plain(&format!("behind a proxy {n}"), 20)
    }));
    all.extend((0..2).map(|n| Destination {
        mortal: true,
        ..plain(&format!("to be deleted {n}"), 5)
    }));
    all.push(Destination {
        manners: Manners::Flaky(7),
        ..plain("flaky", 10)
    });
    all.push(Destination {
        manners: Manners::Broken,
        // A handful of events, however long the run: each is tried eight times.
        weight: 0.2,
        ..plain("broken", 10)
    });
    all.extend(shaped(scale).map(|(name, limits, rate)| Destination {
        limits,
        weight: rate * f64::from(scale),
        ..plain(name, 1)
    }));
    all
}

/// Other periods and shapes, with what they allow a second.
fn shaped(scale: u32) -> impl Iterator<Item = (&'static str, LimitSettings, f64)> {
    let minute = |limit: u32| LimitSettings {
        per_minute: Some(limit * scale),
        ..LimitSettings::default()
    };
    let shape = |shape, burst| LimitSettings {
        shape: Some(shape),
        burst,
        ..per_second(10 * scale)
    };
    [
        ("300/min", minute(300), 5.0),
        (
            "10/s and 400/min",
            LimitSettings {
                per_second: Some(10 * scale),
                ..minute(400)
            },
            6.0,
        ),
        ("token bucket", shape(Shape::TokenBucket, Some(50)), 10.0),
        ("leaky bucket", shape(Shape::LeakyBucket, Some(1)), 10.0),
        (
            "window with burst",
            shape(Shape::SlidingWindow, Some(3)),
            9.0,
        ),
    ]
    .into_iter()
}

/// So many events each, by weight: at least one, together about `events`.
pub(crate) fn shares(destinations: &[Destination], events: u64) -> Vec<u64> {
    let total: f64 = destinations.iter().map(|one| one.weight).sum();
    let share = |one: &Destination| (events as f64 * one.weight / total).ceil();
    destinations
        .iter()
        .map(|one| share(one).max(1.0) as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_all_events_and_a_broken_destination_gets_few() {
        for (scale, events) in [(1, 50_000), (2, 1_000_000)] {
            let destinations = destinations(scale);
            let shares = shares(&destinations, events);
            let total: u64 = shares.iter().sum();
            assert!((events..events + 100).contains(&total), "{total}");
            let broken = destinations
                .iter()
                .position(|one| one.manners == Manners::Broken);
            assert!((1..500).contains(&shares[broken.unwrap()]));
        }
    }

    #[test]
    fn settings_are_valid_and_every_group_of_the_cast_has_somebody() {
        for one in destinations(1) {
            one.limits.validate().unwrap();
        }
        let cast = Cast::new(1);
        let groups = [&cast.proxied, &cast.changed, &cast.deleted];
        assert_eq!(groups.map(Vec::len), [4, 4, 2]);
    }

    #[test]
    fn a_flaky_destination_fails_now_and_then() {
        let answers: Vec<_> = (1..=7)
            .map(|n| Manners::Flaky(7).answer(n).is_some())
            .collect();
        assert_eq!(answers, [false, false, false, false, false, false, true]);
    }
}

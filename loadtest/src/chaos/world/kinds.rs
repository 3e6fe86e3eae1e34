//! Destinations with limits of other shapes, and those that operators have.

use domain::limit::Shape;
use domain::operations::{OperationalScope, OperationalType};
use domain::policy::LimitSettings;
use engine::ports::Registration;
use server::trial::per_second;

use super::{Manners, QUIET};

/// Who is told of what happens: one of everything, one that fails now and then of
/// some of what happens to its tenant's, and one of all that happens to another's.
pub(super) fn told() -> impl Iterator<Item = (&'static str, usize, Manners, Registration)> {
    let everything = Registration {
        scope: OperationalScope::Installation,
        event_types: Vec::new(),
    };
    let some = Registration {
        scope: OperationalScope::Tenant,
        event_types: vec![
            OperationalType::DestinationDisabled,
            OperationalType::BacklogHigh,
            OperationalType::BacklogNormal,
            OperationalType::DeadLetters,
        ],
    };
    let own = Registration {
        scope: OperationalScope::Tenant,
        event_types: Vec::new(),
    };
    [
        ("told of some, flaky", 0, Manners::Flaky(7), some),
        ("told of everything", 0, Manners::Polite, everything),
        ("quiet, told of its own", QUIET, Manners::Polite, own),
    ]
    .into_iter()
}

/// Other periods and shapes, with what they allow a second.
pub(super) fn shaped(scale: u32) -> impl Iterator<Item = (&'static str, LimitSettings, f64)> {
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

//! What a response says about its destination.

use domain::health::Signal;
use domain::time::Timestamp;

use crate::ports::Response;

/// What the store is told of it, with a throw of `dice`. `at` is when the
/// response came.
pub(super) fn heard(
    response: Option<&Response>,
    at: Timestamp,
    dice: impl FnOnce() -> u16,
) -> Signal {
    let wait = response.and_then(|response| {
        let seconds = at.as_micros().div_euclid(1_000_000);
        response.signals.wait(response.status, seconds)
    });
    let succeeded = response.is_some_and(|response| (200..300).contains(&response.status));
    let disable = response.is_some_and(|response| response.signals.disables());
    match (succeeded, wait) {
        (true, None) => Signal {
            disable,
            ..Signal::default()
        },
        (_, wait) => Signal {
            wait,
            disable,
            dice: dice(),
        },
    }
}

//! What is recorded of an attempt whose event is not there.

use std::time::Duration;

use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::health::Signal;
use domain::ids::{AttemptId, DestinationId, PermitNumber};
use domain::response_headers::ResponseHeaders;
use engine::ports::{NextTry, Outcome, Speaks};

/// It was not sent, and nobody tries again or replays it: there is nothing to send.
pub(crate) fn no_event(
    attempt: AttemptId,
    number: PermitNumber,
    destination: DestinationId,
) -> Outcome {
    Outcome {
        attempt,
        number,
        destination,
        kind: OutcomeKind::NotSent,
        sent_after: Duration::ZERO,
        elapsed: Duration::ZERO,
        status: None,
        error: Some("its event is gone".into()),
        response_body: Bytes::new(),
        response_headers: ResponseHeaders::default(),
        next: NextTry::None,
        signal: Signal::default(),
        speaks: Speaks::default(),
        may_arrive: false,
    }
}

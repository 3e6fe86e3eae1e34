//! What is counted of each delivery. A macro looks its metric up in the recorder each time,
//! by name and labels; these are asked for once for each worker.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use metrics::{Counter, Histogram, counter, histogram};

/// The metrics of one worker's deliveries whose labels are known beforehand.
pub(super) struct Meters {
    ahead: Histogram,
    took: Histogram,
    outcomes: Outcomes,
    responses: Responses,
}

/// A counter for each kind.
struct Outcomes {
    succeeded: Counter,
    failed: Counter,
    not_sent: Counter,
}

/// A counter for each class of statuses, and one for no answer.
struct Responses {
    none: Counter,
    too_many: Counter,
    success: Counter,
    redirect: Counter,
    refusal: Counter,
    failure: Counter,
    other: Counter,
}

impl Meters {
    /// Of the recorder that is installed by now.
    pub(super) fn new() -> Self {
        let outcome = |kind: OutcomeKind| {
            let outcome = kind.state().as_str();
            counter!("paceline_attempts_total", "outcome" => outcome)
        };
        let class = |class: &'static str| counter!("paceline_responses_total", "class" => class);
        Self {
            ahead: histogram!("paceline_permit_ahead_seconds"),
            took: histogram!("paceline_delivery_seconds"),
            outcomes: Outcomes {
                succeeded: outcome(OutcomeKind::Succeeded),
                failed: outcome(OutcomeKind::Failed),
                not_sent: outcome(OutcomeKind::NotSent),
            },
            responses: Responses {
                none: class("none"),
                too_many: class("429"),
                success: class("2xx"),
                redirect: class("3xx"),
                refusal: class("4xx"),
                failure: class("5xx"),
                other: class("other"),
            },
        }
    }

    /// How long before its slot a permit was in hand.
    pub(super) fn ahead(&self, time_left: Duration) {
        self.ahead.record(time_left);
    }

    /// What became of one attempt.
    pub(super) fn outcome(&self, kind: OutcomeKind) {
        let outcomes = &self.outcomes;
        let outcome = match kind {
            OutcomeKind::Succeeded => &outcomes.succeeded,
            OutcomeKind::Failed => &outcomes.failed,
            OutcomeKind::NotSent => &outcomes.not_sent,
        };
        outcome.increment(1);
    }

    /// One request that was sent: how it was answered, and when.
    pub(super) fn response(&self, status: Option<u16>, elapsed: Duration) {
        let responses = &self.responses;
        let class = match status {
            None => &responses.none,
            Some(429) => &responses.too_many,
            Some(200..300) => &responses.success,
            Some(300..400) => &responses.redirect,
            Some(400..500) => &responses.refusal,
            Some(500..600) => &responses.failure,
            Some(_) => &responses.other,
        };
        class.increment(1);
        self.took.record(elapsed);
    }
}

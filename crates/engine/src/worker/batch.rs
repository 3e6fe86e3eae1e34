//! A start that carries several events: one request, and an outcome for each.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::batch::{self, Answer, Item, Said, answers};
use domain::health::Signal;
use domain::ids::{AttemptId, EventId};
use domain::permit::Permit;
use domain::response_headers::ResponseHeaders;

use crate::ports::{
    BATCH_BODY_BYTES, Member, NextTry, Outcome, Request, Response, STORED_BODY_BYTES, Speaks, Start,
};
use crate::worker::not_done::NotDone;
use crate::worker::targets::Addressee;
use crate::worker::tries::Tries;

/// What has to be known of a batch until its answer is there; not what is sent.
pub(super) struct Batch {
    permit: Permit,
    /// The leader first.
    events: Vec<Sent>,
}

struct Sent {
    attempt: AttemptId,
    event: EventId,
    tries: Tries,
}

impl Batch {
    pub(super) fn of(permit: Permit, start: &Start) -> Self {
        let sent = |member: &Member| Sent {
            attempt: member.attempt,
            event: member.event,
            tries: Tries::of_member(member, &start.retry),
        };
        Self {
            permit,
            events: start.members.iter().map(sent).collect(),
        }
    }

    fn size(&self) -> u32 {
        u32::try_from(self.events.len()).unwrap_or(u32::MAX)
    }

    /// The outcome of each, the leader's first. `jitter` is for all of them:
    /// what failed together comes back together.
    pub(super) fn outcomes(
        &self,
        result: Result<Response, NotDone>,
        elapsed: Duration,
        jitter: f64,
    ) -> Vec<Outcome> {
        let mut outcomes = match &result {
            Err(NotDone::NotSent(why)) => self.not_sent(why, false),
            Err(NotDone::Unread { why, may_arrive }) => self.not_sent(why, *may_arrive),
            Err(NotDone::Send(error)) => self.failed(None, &error.to_string(), jitter),
            Ok(response) if response.status == 207 => self.in_parts(&response.body, jitter),
            Ok(response) if (200..300).contains(&response.status) => self.each(|_| Outcome {
                kind: OutcomeKind::Succeeded,
                status: Some(response.status),
                ..self.blank()
            }),
            Ok(response) => {
                let error = format!("the receiver answered {}", response.status);
                self.failed(Some(response.status), &error, jitter)
            }
        };
        for outcome in &mut outcomes {
            outcome.elapsed = elapsed;
        }
        // Once is enough: it is the same for all.
        if let (Some(leader), Ok(response)) = (outcomes.first_mut(), result) {
            let most = response.body.len().min(STORED_BODY_BYTES);
            leader.response_body = response.body.slice(..most);
            leader.response_headers = response.headers;
        }
        outcomes
    }

    fn blank(&self) -> Outcome {
        Outcome {
            attempt: self.permit.attempt,
            number: self.permit.number,
            destination: self.permit.destination,
            kind: OutcomeKind::Failed,
            sent_after: Duration::ZERO,
            elapsed: Duration::ZERO,
            status: None,
            error: None,
            response_body: Bytes::new(),
            response_headers: ResponseHeaders::default(),
            next: NextTry::None,
            signal: Signal::default(),
            speaks: Speaks::ForRequest,
            may_arrive: false,
        }
    }

    /// One for each, of which the leader's speaks for the request.
    fn each(&self, outcome: impl Fn(&Sent) -> Outcome) -> Vec<Outcome> {
        let of = |sent: &Sent| Outcome {
            attempt: sent.attempt,
            speaks: match sent.attempt == self.permit.attempt {
                true => Speaks::ForRequest,
                false => Speaks::Carried,
            },
            ..outcome(sent)
        };
        self.events.iter().map(of).collect()
    }

    fn not_sent(&self, why: &str, may_arrive: bool) -> Vec<Outcome> {
        self.each(|_| Outcome {
            kind: OutcomeKind::NotSent,
            error: Some(why.into()),
            next: NextTry::Again,
            may_arrive,
            ..self.blank()
        })
    }

    /// All of it failed.
    fn failed(&self, status: Option<u16>, error: &str, jitter: f64) -> Vec<Outcome> {
        self.each(|sent| {
            let (next, error) = sent.tries.after_batch(status, jitter, self.size(), error);
            Outcome {
                status,
                error: Some(error.into()),
                next,
                ..self.blank()
            }
        })
    }

    /// Each by its own answer; one of which nothing is said was taken, unless the
    /// answer was longer than what was read of it.
    fn in_parts(&self, body: &[u8], jitter: f64) -> Vec<Outcome> {
        let cut = body.len() >= BATCH_BODY_BYTES;
        let ids: Vec<EventId> = self.events.iter().map(|sent| sent.event).collect();
        let answers = match answers(Said { body, cut }, &ids) {
            Ok(answers) => answers,
            Err(malformed) => {
                return self.failed(None, &format!("exchange failed: {malformed}"), jitter);
            }
        };
        let taken = |answer: &Option<Answer>| match answer {
            Some(answer) => answer.is_success(),
            None => !cut,
        };
        let any = answers.iter().any(taken);
        let each = self.events.iter().zip(answers);
        each.map(|(sent, answer)| self.part(sent, (answer, cut), (jitter, any)))
            .collect()
    }

    fn part(
        &self,
        sent: &Sent,
        (answer, cut): (Option<Answer>, bool),
        (jitter, taken): (f64, bool),
    ) -> Outcome {
        let blank = Outcome {
            attempt: sent.attempt,
            speaks: match sent.attempt == self.permit.attempt {
                true => Speaks::ForParts { taken },
                false => Speaks::Apart,
            },
            ..self.blank()
        };
        match answer {
            Some(answer) if !answer.is_success() => {
                let said = answer.error.map(|error| format!(": {error}"));
                let said = said.unwrap_or_default();
                let error = format!("the receiver answered {} for it{said}", answer.status);
                let status = Some(answer.status);
                // As if it had been alone.
                let (next, error) = sent.tries.after_batch(status, jitter, 1, &error);
                Outcome {
                    status,
                    error: Some(error.into()),
                    next,
                    ..blank
                }
            }
            // Whether it was taken is what we did not read.
            None if cut => {
                let error = "exchange failed: the list of results is too long";
                let (next, error) = sent.tries.after_batch(None, jitter, 1, error);
                Outcome {
                    error: Some(error.into()),
                    next,
                    ..blank
                }
            }
            answer => Outcome {
                kind: OutcomeKind::Succeeded,
                status: Some(answer.map_or(207, |answer| answer.status)),
                ..blank
            },
        }
    }
}

/// One body of all, under one id and one signature.
pub(super) fn request(
    permit: Permit,
    start: Start,
    addressee: &Addressee,
    timeout: Duration,
) -> Request {
    let body = batch::body(start.members.iter().map(|member| Item {
        event: member.event,
        try_number: member.try_number,
        event_type: member.event_type.as_deref(),
        accepted_at: member.accepted_at,
        content_type: &member.content_type,
        payload: &member.payload,
    }));
    let id = batch::id(start.members.iter().map(|member| member.event));
    let sent_at_seconds = start.claimed_at.as_micros().div_euclid(1_000_000);
    let signature = (addressee.signer).sign(start.claimed_at, &id, sent_at_seconds, &body);
    Request {
        attempt: permit.attempt,
        event: start.event,
        batch: Some(id),
        try_number: start.try_number,
        sent_at_seconds,
        signature,
        headers: Arc::clone(&addressee.headers),
        token: None,
        trace: start.trace.filter(|_| addressee.target.pass_traceparent),
        content_type: batch::CONTENT_TYPE.to_owned(),
        payload: body.into(),
        timeout,
    }
}

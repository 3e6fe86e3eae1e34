//! Traces: the store's port, wrapped, so that every step of an event becomes a
//! span of one trace, in whatever process it happens.
//!
//! ```text
//!  API        ingest ──────────┐ the context is stored with the event
//!  scheduler      admission ◄──┤ looked up, beside the path
//!  worker             permit ──► attempt ──► outcome
//! ```
//!
//! The spans' ids follow from the trace, the attempt and the number of its
//! permit (`domain::trace::Step`): the permit that goes from the scheduler to
//! the worker carries the trace, although nothing was added to it. Not wrapped,
//! nothing of this costs anything.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use domain::event::NewEvent;
use domain::ids::{AttemptId, EventId};
use domain::permit::Permit;
use domain::trace::{SpanId, Step, TraceContext, TraceId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::ports::{
    Acceptance, Admitted, ClaimAnswer, Claims, Facts, NextTry, Outcome, Recorded, RunResult, Span,
    Spans, Start, Store, TraceBook,
};

mod admissions;
mod store;

pub use admissions::Admissions;
use admissions::Given;

/// Runs whose permits wait to be looked up; what is above is not traced.
const ADMISSIONS: usize = 256;

/// Starts whose outcomes are awaited, at most: more than a worker has places,
/// each with a full batch only in theory.
const STARTS: usize = 131_072;

/// The part of the traces that begin here which is recorded: of others, those
/// who began them decide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Every trace.
    pub const ALL: Self = Self(1.0);

    /// From nothing, 0, to all, 1.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// By the last bits of its id, which are random: whoever is asked says the same.
    fn takes(self, trace: TraceId) -> bool {
        const BITS: u32 = 52;
        let low = trace.0.get() & ((1 << BITS) - 1);
        let bound = self.0 * (1_u64 << BITS) as f64;
        u64::try_from(low).is_ok_and(|low| (low as f64) < bound)
    }
}

/// A store whose steps are traced.
pub struct TracedStore {
    inner: Arc<dyn Store>,
    spans: Arc<dyn Spans>,
    share: Share,
    given: mpsc::Sender<Given>,
    started: Mutex<HashMap<AttemptId, Started>>,
}

/// A start, until its outcome is recorded.
struct Started {
    /// Of the attempt's span.
    context: TraceContext,
    parent: SpanId,
    began: Instant,
    facts: Facts,
}

/// What a claim is of.
struct Claim<'a> {
    permit: &'a Permit,
    /// It itself, or what it carries.
    attempt: AttemptId,
    event: EventId,
    try_number: u32,
    /// When the permit could have started, or was asked for.
    began: Instant,
    answered: Instant,
}

impl TracedStore {
    /// The store, and what looks up whom its permits were given to: run it once.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Store>,
        book: Arc<dyn TraceBook>,
        spans: Arc<dyn Spans>,
        share: Share,
    ) -> (Self, Admissions) {
        let (given, runs) = mpsc::channel(ADMISSIONS);
        let admissions = Admissions::new(book, Arc::clone(&spans), runs);
        let store = Self {
            inner,
            spans,
            share,
            given,
            started: Mutex::default(),
        };
        (store, admissions)
    }

    /// The event where its trace goes on here. One that nobody records is
    /// stored only if it came from outside.
    fn traced(&self, event: &NewEvent) -> NewEvent {
        let begun = TraceContext::begun_by(event.id);
        let trace = match &event.trace {
            Some(given) if !is_own(given, event.id) => Some(given.clone()),
            own => match begun.map(|begun| (self.share.takes(begun.trace()), begun)) {
                Some((true, begun)) => Some(begun.sampled(true)),
                _ => own.clone(),
            },
        };
        let trace = trace.map(|context| match context.is_sampled() {
            true => context.at(Step::Ingest(event.id)),
            false => context,
        });
        NewEvent {
            trace,
            ..event.clone()
        }
    }

    fn note_ingest(
        &self,
        began: Instant,
        came: &[NewEvent],
        went: &[NewEvent],
        all: &[Acceptance],
    ) {
        let ended = Instant::now();
        for ((came, went), acceptance) in came.iter().zip(went).zip(all) {
            let sampled = went.trace.as_ref().filter(|trace| trace.is_sampled());
            let (Some(context), Acceptance::Accepted(_)) = (sampled, acceptance) else {
                continue;
            };
            let given = came.trace.as_ref().filter(|given| !is_own(given, came.id));
            self.spans.record(Span {
                context: context.clone(),
                parent: given.map(TraceContext::span),
                step: Step::Ingest(went.id),
                began,
                ended,
                facts: Facts {
                    tenant: Some(went.tenant),
                    event: Some(went.id),
                    ..Facts::default()
                },
            });
        }
    }

    fn note_admission(&self, began: Instant, admitted: &Admitted) {
        let permits = admitted.results.iter().flat_map(|result| match result {
            RunResult::Decided { permits, .. } => permits.as_slice(),
            RunResult::Skipped | RunResult::Gone => &[],
        });
        let permits: Vec<Permit> = permits.copied().collect();
        if !permits.is_empty() {
            // Full: admission goes on, untraced.
            let _ = self.given.try_send(Given {
                began,
                ended: Instant::now(),
                permits,
            });
        }
    }

    fn note_claims(&self, asked: Instant, permits: &[Permit], claims: &mut Claims) {
        let answered = Instant::now();
        for (permit, answer) in permits.iter().zip(&mut claims.answers) {
            if let ClaimAnswer::Started(start) = answer {
                let since_slot = claims.now.since(permit.not_before);
                let slot = answered.checked_sub(since_slot).unwrap_or(asked);
                self.note_start(permit, start, (asked.min(slot), answered));
            }
        }
    }

    /// From here on the start's trace is where its attempt is: what the
    /// receiver does follows from that.
    fn note_start(
        &self,
        permit: &Permit,
        start: &mut Start,
        (began, answered): (Instant, Instant),
    ) {
        let of = |attempt, event, try_number| Claim {
            permit,
            attempt,
            event,
            try_number,
            began,
            answered,
        };
        for member in &mut start.members {
            let claim = of(member.attempt, member.event, member.try_number);
            member.trace = self.begun(&claim, member.trace.take());
        }
        start.trace = match start.members.first() {
            Some(leader) => leader.trace.clone(),
            None => {
                let claim = of(permit.attempt, start.event, start.try_number);
                self.begun(&claim, start.trace.take())
            }
        };
    }

    fn begun(&self, claim: &Claim<'_>, trace: Option<TraceContext>) -> Option<TraceContext> {
        let trace = match trace {
            Some(trace) if trace.is_sampled() => trace,
            unrecorded => return unrecorded,
        };
        let (attempt, number) = (claim.attempt, claim.permit.number);
        let facts = Facts {
            event: Some(claim.event),
            destination: Some(claim.permit.destination),
            attempt: Some(attempt),
            permit: Some(number),
            try_number: Some(claim.try_number),
            ..Facts::default()
        };
        // What a batch carries had no permit of its own.
        let parent = match attempt == claim.permit.attempt {
            false => trace.span(),
            true => {
                let context = trace.at(Step::Permit(attempt, number));
                let permit = context.span();
                self.spans.record(Span {
                    context,
                    parent: Some(trace.at(Step::Admission(attempt, number)).span()),
                    step: Step::Permit(attempt, number),
                    began: claim.began,
                    ended: claim.answered,
                    facts,
                });
                permit
            }
        };
        let context = trace.at(Step::Attempt(attempt, number));
        let started = Started {
            context: context.clone(),
            parent,
            began: claim.answered,
            facts,
        };
        let mut all = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < STARTS {
            all.insert(attempt, started);
        }
        Some(context)
    }

    fn note_outcomes(&self, began: Instant, outcomes: &[Outcome], recorded: &Recorded) {
        let ended = Instant::now();
        let skipped: HashSet<AttemptId> = recorded.skipped.iter().copied().collect();
        for outcome in outcomes {
            let started = match skipped.contains(&outcome.attempt) {
                true => None,
                false => (self.started.lock().unwrap_or_else(PoisonError::into_inner))
                    .remove(&outcome.attempt),
            };
            let Some(started) = started else {
                continue;
            };
            let facts = Facts {
                status: outcome.status,
                outcome: Some(outcome.kind.state().as_str()),
                dead_letter: outcome.next == NextTry::DeadLetter,
                ..started.facts
            };
            let step = Step::Outcome(outcome.attempt, outcome.number);
            let last = Span {
                context: started.context.at(step),
                parent: Some(started.context.span()),
                step,
                began,
                ended,
                facts,
            };
            self.spans.record(Span {
                context: started.context,
                parent: Some(started.parent),
                step: Step::Attempt(outcome.attempt, outcome.number),
                began: started.began,
                ended: started.began + outcome.elapsed,
                facts,
            });
            self.spans.record(last);
        }
    }
}

/// Begun for this event, and not by whoever sent it.
fn is_own(trace: &TraceContext, event: EventId) -> bool {
    trace.trace().0.get() == event.0.as_u128()
}

//! Spans: what became of an event where, for those who trace.

use async_trait::async_trait;
use domain::ids::{AttemptId, DestinationId, EventId, PermitNumber, TenantId};
use domain::trace::{SpanId, Step, TraceContext};
use tokio::time::Instant;

use super::error::StoreError;

/// Takes spans that are over. It never waits and never fails: what it has no
/// room for is dropped.
pub trait Spans: Send + Sync {
    /// One that is over.
    fn record(&self, span: Span);
}

/// The store, asked which traces attempts belong to. Nobody asks unless traces
/// are recorded.
#[async_trait]
pub trait TraceBook: Send + Sync {
    /// The traces of these attempts; those of events without one are left out.
    /// At most [`super::MAX_ROWS`]. Reads only.
    async fn traces(&self, attempts: &[AttemptId]) -> Result<Vec<Traced>, StoreError>;
}

/// An attempt whose event belongs to a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// Which.
    pub attempt: AttemptId,
    /// Its event.
    pub event: EventId,
    /// The trace, where the event was taken in.
    pub trace: TraceContext,
}

/// One step of an event that is over. Ids and numbers: no text that a client or
/// a receiver wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace, and its own id.
    pub context: TraceContext,
    /// What it follows from; `None` where the trace begins.
    pub parent: Option<SpanId>,
    /// Of what.
    pub step: Step,
    /// When it began.
    pub began: Instant,
    /// When it was over.
    pub ended: Instant,
    /// What is known of it.
    pub facts: Facts,
}

/// What is known of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Whose the event is.
    pub tenant: Option<TenantId>,
    /// The event.
    pub event: Option<EventId>,
    /// Where it goes.
    pub destination: Option<DestinationId>,
    /// The attempt.
    pub attempt: Option<AttemptId>,
    /// The number of its permit.
    pub permit: Option<PermitNumber>,
    /// Which try: 1 is the first.
    pub try_number: Option<u32>,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// The word of the outcome.
    pub outcome: Option<&'static str>,
    /// Whether that is why nothing follows.
    pub dead_letter: bool,
}

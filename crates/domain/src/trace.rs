//! The trace that an event belongs to, as W3C Trace Context writes it.
//!
//! Owns the two headers, `traceparent` and `tracestate`: what is read is checked
//! to the letter, and what is written is made of numbers and of checked text, so
//! nothing that a client sends can become another header. A trace that begins
//! here has its event's id, and the spans of an event have ids that follow from
//! it: processes that never talk about a trace agree on it.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

use sha2::{Digest, Sha256};

use crate::ids::{AttemptId, EventId, PermitNumber};

mod state;

/// The longest context that is kept, in bytes: both headers and a space.
pub const MAX_STORED_BYTES: usize = 55 + 1 + state::MAX_BYTES;

/// Part of `trace-flags`: somebody records this trace.
const SAMPLED: u8 = 0b01;

/// The flags that we know; others must not be passed on.
const KNOWN_FLAGS: u8 = 0b11;

/// The length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;

/// One span within one trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub NonZeroU64);

/// One trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub NonZeroU128);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A place in a trace: what comes next has this span as its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace: TraceId,
    span: SpanId,
    flags: u8,
    /// What other systems say of it, passed on as it came.
    state: Option<String>,
}

/// What a client says of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Incoming {
    /// Nothing.
    #[default]
    Absent,
    /// Something that is no trace: a new one takes its place.
    Malformed,
    /// This.
    Given(TraceContext),
}

impl Incoming {
    /// From the values of the headers. There is one `traceparent`; the values of
    /// `tracestate` count as one list, and if that is malformed as none.
    pub fn of<'a>(
        mut parents: impl Iterator<Item = &'a [u8]>,
        states: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let Some(parent) = parents.next() else {
            return Self::Absent;
        };
        let parent = match parents.next() {
            None => std::str::from_utf8(parent).ok(),
            Some(_) => None,
        };
        match parent.and_then(TraceContext::parse) {
            Some(context) => Self::Given(TraceContext {
                state: state::joined(states),
                ..context
            }),
            None => Self::Malformed,
        }
    }

    /// The trace that this event belongs to.
    #[must_use]
    pub fn context(self, event: EventId) -> Option<TraceContext> {
        match self {
            Self::Absent => None,
            Self::Malformed => TraceContext::begun_by(event),
            Self::Given(context) => Some(context),
        }
    }
}

impl TraceContext {
    /// From a `traceparent`. One of a later version is read like ours, and
    /// passed on as ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        let part = |from: usize, to: usize| {
            let part = bytes.get(from..to)?;
            part.iter().all(lower).then(|| &text[from..to])
        };
        let version = part(0, 2)?;
        let later = bytes.get(PARENT_BYTES);
        let fits = match version {
            "ff" => false,
            "00" => later.is_none(),
            _ => later.is_none_or(|byte| *byte == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
        if !fits || !dashes {
            return None;
        }
        let trace = u128::from_str_radix(part(3, 35)?, 16).ok()?;
        let span = u64::from_str_radix(part(36, 52)?, 16).ok()?;
        let flags = u8::from_str_radix(part(53, 55)?, 16).ok()?;
        Some(Self {
            trace: TraceId(NonZeroU128::new(trace)?),
            span: SpanId(NonZeroU64::new(span)?),
            flags: flags & KNOWN_FLAGS,
            state: None,
        })
    }

    /// A trace that begins with this event, and that nobody records. Its id is
    /// the event's. `None` for the nil id.
    #[must_use]
    pub fn begun_by(event: EventId) -> Option<Self> {
        let trace = TraceId(NonZeroU128::new(event.0.as_u128())?);
        Some(Self {
            trace,
            span: Step::Ingest(event).span(trace),
            flags: 0,
            state: None,
        })
    }

    /// The same, recorded or not.
    #[must_use]
    pub fn sampled(self, is_sampled: bool) -> Self {
        let flags = match is_sampled {
            true => self.flags | SAMPLED,
            false => self.flags & !SAMPLED,
        };
        Self { flags, ..self }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn at(&self, step: Step) -> Self {
        Self {
            span: step.span(self.trace),
            ..self.clone()
        }
    }

    /// Whether somebody records it.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Its trace.
    #[must_use]
    pub const fn trace(&self) -> TraceId {
        self.trace
    }

    /// Its span.
    #[must_use]
    pub const fn span(&self) -> SpanId {
        self.span
    }

    /// The value of `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }

    /// The value of `tracestate`, if there is one.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// As stores keep it: one text, at most [`MAX_STORED_BYTES`].
    #[must_use]
    pub fn stored(&self) -> String {
        match &self.state {
            Some(state) => format!("{} {state}", self.traceparent()),
            None => self.traceparent(),
        }
    }

    /// From what a store kept; anybody may have written it.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        let (parent, state) = match text.split_once(' ') {
            Some((parent, state)) => (parent, state::joined(std::iter::once(state.as_bytes()))),
            None => (text, None),
        };
        Some(Self {
            state,
            ..Self::parse(parent)?
        })
    }
}

/// What a span is of. Its id follows from this and the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The event was taken in.
    Ingest(EventId),
    /// The permit was given.
    Admission(AttemptId, PermitNumber),
    /// The permit, until it was started.
    Permit(AttemptId, PermitNumber),
    /// The request.
    Attempt(AttemptId, PermitNumber),
    /// Its outcome was recorded.
    Outcome(AttemptId, PermitNumber),
}

impl Step {
    /// The id of the span: 64 bits of SHA-256.
    #[must_use]
    pub fn span(self, trace: TraceId) -> SpanId {
        let mut digest = Sha256::new();
        digest.update(self.as_str());
        digest.update(trace.0.get().to_be_bytes());
        match self {
            Self::Ingest(event) => digest.update(event.0.as_bytes()),
            Self::Admission(attempt, number)
            | Self::Permit(attempt, number)
            | Self::Attempt(attempt, number)
            | Self::Outcome(attempt, number) => {
                digest.update(attempt.0.to_be_bytes());
                digest.update(number.0.to_be_bytes());
            }
        }
        let digest: [u8; 32] = digest.finalize().into();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        SpanId(NonZeroU64::new(u64::from_be_bytes(first)).unwrap_or(NonZeroU64::MIN))
    }

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingest(_) => "ingest",
            Self::Admission(..) => "admission",
            Self::Permit(..) => "permit",
            Self::Attempt(..) => "attempt",
            Self::Outcome(..) => "outcome",
        }
    }
}

#[cfg(test)]
mod tests;

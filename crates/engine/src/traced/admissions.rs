//! Admissions: whose traces they belong to is looked up beside the path, so that
//! no run waits for it.

use std::collections::HashMap;
use std::sync::Arc;

use domain::ids::AttemptId;
use domain::permit::Permit;
use domain::trace::Step;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ports::{Facts, MAX_ROWS, Span, Spans, TraceBook, Traced};

/// The permits of one call.
pub(super) struct Given {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) permits: Vec<Permit>,
}

/// Looks up whom permits were given to.
pub struct Admissions {
    book: Arc<dyn TraceBook>,
    spans: Arc<dyn Spans>,
    runs: mpsc::Receiver<Given>,
}

impl Admissions {
    pub(super) fn new(
        book: Arc<dyn TraceBook>,
        spans: Arc<dyn Spans>,
        runs: mpsc::Receiver<Given>,
    ) -> Self {
        Self { book, spans, runs }
    }

    /// Until `shutdown`, and then what is there.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                given = self.runs.recv() => match given {
                    Some(given) => self.tick(given).await,
                    // Nobody admits any more; whoever runs it waits for the end.
                    None => shutdown.cancelled().await,
                },
            }
        }
        self.runs.close();
        while let Some(given) = self.runs.recv().await {
            self.tick(given).await;
        }
    }

    /// One call's permits.
    async fn tick(&self, given: Given) {
        for permits in given.permits.chunks(MAX_ROWS) {
            let attempts: Vec<AttemptId> = permits.iter().map(|permit| permit.attempt).collect();
            match self.book.traces(&attempts).await {
                Ok(traces) => self.note(&given, permits, traces),
                Err(error) => tracing::debug!(%error, "admissions not traced"),
            }
        }
    }

    fn note(&self, given: &Given, permits: &[Permit], traces: Vec<Traced>) {
        let of: HashMap<AttemptId, Traced> = (traces.into_iter())
            .map(|traced| (traced.attempt, traced))
            .collect();
        for permit in permits {
            let traced = of.get(&permit.attempt);
            let Some(traced) = traced.filter(|traced| traced.trace.is_sampled()) else {
                continue;
            };
            let step = Step::Admission(permit.attempt, permit.number);
            self.spans.record(Span {
                context: traced.trace.at(step),
                parent: Some(traced.trace.span()),
                step,
                began: given.began,
                ended: given.ended,
                facts: Facts {
                    event: Some(traced.event),
                    destination: Some(permit.destination),
                    attempt: Some(permit.attempt),
                    permit: Some(permit.number),
                    ..Facts::default()
                },
            });
        }
    }
}

//! Traces of a process: its parts, wrapped, and what sends the spans.

use std::sync::Arc;

use adapters::otlp::OtlpSpans;
use engine::ports::{Spans, Store};
use engine::traced::{Admissions, TracedStore};

use crate::config::TracesConfig;
use crate::parts::Parts;

/// What records and sends the traces of one process.
pub struct Tracing {
    spans: Arc<OtlpSpans>,
    /// To be run; taken once.
    pub admissions: Option<Admissions>,
}

impl Tracing {
    /// Wraps the store, if traces are wanted.
    pub fn wrap(
        config: Option<&TracesConfig>,
        role: &'static str,
        parts: &mut Parts,
    ) -> anyhow::Result<Option<Self>> {
        let Some(config) = config else {
            return Ok(None);
        };
        let Some(options) = config.otlp(role)? else {
            return Ok(None);
        };
        let spans =
            OtlpSpans::start(options).map_err(|error| TracesConfig::refused(&error.to_string()))?;
        let spans = Arc::new(spans);
        let (store, admissions) = TracedStore::new(
            Arc::clone(&parts.store),
            Arc::clone(&parts.stored) as _,
            Arc::clone(&spans) as Arc<dyn Spans>,
            config.share(),
        );
        parts.store = Arc::new(store) as Arc<dyn Store>;
        Ok(Some(Self {
            spans,
            admissions: Some(admissions),
        }))
    }

    /// Sends the last spans: after everything that records has ended.
    pub async fn end(self) {
        // It waits for a thread.
        let ended = tokio::task::spawn_blocking(move || self.spans.end()).await;
        if ended.is_err() {
            tracing::warn!("the last spans were not sent");
        }
    }
}

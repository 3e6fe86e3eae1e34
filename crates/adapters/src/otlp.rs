//! Spans, to a collector: OTLP as protobuf over HTTP, in batches, by a thread of
//! its own.
//!
//! It promises that whoever records never waits: the queue is bounded, and what
//! finds no room is dropped; that a collector which is slow, broken or away costs
//! spans and nothing else; and that what is there when the process ends is still
//! sent, within [`GOODBYE`]. It sends ids, numbers and words of our own.

mod collector;

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use domain::trace::{Step, TraceContext};
use engine::ports::{Facts, Span, Spans};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};
use tokio::time::Instant;
use url::Url;

use collector::Collector;

/// Spans that may wait: a few seconds of a busy process, some 8 MiB.
const QUEUE_SPANS: usize = 16_384;

/// Spans in one request.
const BATCH_SPANS: usize = 512;

/// How long spans wait for company.
const LINGER: Duration = Duration::from_secs(1);

/// How long one request to the collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long the end of a process waits for the last spans.
pub const GOODBYE: Duration = Duration::from_secs(3);

/// Where spans go, and who sends them.
#[derive(Debug, Clone)]
pub struct OtlpOptions {
    /// The collector; `/v1/traces` is added to it.
    pub endpoint: Url,
    /// Sent with every request; values are secrets.
    pub headers: Vec<(String, String)>,
    /// The `service.name`.
    pub service: String,
    /// The `service.namespace`-like word of the process: its role.
    pub role: &'static str,
    /// The `service.version`.
    pub version: &'static str,
}

/// Why spans cannot be sent at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OtlpError(String);

/// Sends spans.
#[derive(Debug)]
pub struct OtlpSpans {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl OtlpSpans {
    /// Starts its thread; within a runtime, on which it dials. Dials nothing yet.
    ///
    /// # Errors
    /// What is wrong with the endpoint; never its text.
    pub fn start(options: OtlpOptions) -> Result<Self, OtlpError> {
        let collector = Collector::new(&options.endpoint, TIMEOUT)?;
        let mut endpoint = options.endpoint;
        let path = format!("{}/v1/traces", endpoint.path().trim_end_matches('/'));
        endpoint.set_path(&path);
        let headers: HashMap<String, String> = options.headers.into_iter().collect();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_endpoint(endpoint.as_str())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(TIMEOUT)
            .with_headers(headers)
            .build()
            .map_err(|_detail| OtlpError("the exporter could not be made".to_owned()))?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS)
            .with_max_export_batch_size(BATCH_SPANS)
            .with_scheduled_delay(LINGER)
            .build();
        let mut processor = BatchSpanProcessor::new(exporter, config);
        let resource = Resource::builder_empty()
            .with_service_name(options.service)
            .with_attribute(KeyValue::new("service.version", options.version))
            .with_attribute(KeyValue::new("paceline.role", options.role))
            .build();
        processor.set_resource(&resource);
        Ok(Self {
            processor,
            scope: InstrumentationScope::builder("paceline").build(),
        })
    }

    /// Sends what is there and ends the thread. Blocks for [`GOODBYE`] at most;
    /// what is recorded afterwards is dropped.
    pub fn end(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(GOODBYE) {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

impl Spans for OtlpSpans {
    fn record(&self, span: Span) {
        self.processor.on_end(data(span, now(), self.scope.clone()));
    }
}

/// The wall clock's time of the runtime's now.
fn now() -> (SystemTime, Instant) {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the edge: collectors want times of day"
    )]
    let wall = SystemTime::now();
    (wall, Instant::now())
}

fn data(span: Span, (wall, now): (SystemTime, Instant), scope: InstrumentationScope) -> SpanData {
    let at = |instant: Instant| {
        let ago = now.saturating_duration_since(instant);
        wall.checked_sub(ago).unwrap_or(wall)
    };
    let failed = span
        .facts
        .outcome
        .is_some_and(|outcome| outcome != "succeeded");
    SpanData {
        span_context: context(&span.context),
        parent_span_id: (span.parent).map_or(SpanId::INVALID, |parent| {
            SpanId::from_bytes(parent.0.get().to_be_bytes())
        }),
        // Every step may be another process's.
        parent_span_is_remote: span.parent.is_some(),
        span_kind: kind(span.step),
        name: span.step.as_str().into(),
        start_time: at(span.began),
        end_time: at(span.ended.max(span.began)),
        attributes: attributes(&span.facts),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: match failed {
            true => Status::error(""),
            false => Status::Unset,
        },
        instrumentation_scope: scope,
    }
}

fn context(context: &TraceContext) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(context.trace().0.get().to_be_bytes()),
        SpanId::from_bytes(context.span().0.get().to_be_bytes()),
        TraceFlags::SAMPLED,
        false,
        // Other systems' words stay where they were read.
        TraceState::default(),
    )
}

const fn kind(step: Step) -> SpanKind {
    match step {
        Step::Ingest(_) => SpanKind::Server,
        Step::Permit(..) => SpanKind::Consumer,
        Step::Attempt(..) => SpanKind::Client,
        Step::Admission(..) | Step::Outcome(..) => SpanKind::Internal,
    }
}

fn attributes(facts: &Facts) -> Vec<KeyValue> {
    let text = |key: &'static str, id: Option<String>| Some(KeyValue::new(key, id?));
    let number = |key: &'static str, number: Option<i64>| Some(KeyValue::new(key, number?));
    let dead_letter = KeyValue::new("paceline.dead_letter", true);
    [
        text("paceline.tenant.id", facts.tenant.map(|id| id.to_string())),
        text("paceline.event.id", facts.event.map(|id| id.to_string())),
        text(
            "paceline.destination.id",
            facts.destination.map(|id| id.to_string()),
        ),
        number("paceline.attempt.id", facts.attempt.map(|id| id.0)),
        number(
            "paceline.permit.number",
            facts.permit.map(|permit| permit.0),
        ),
        number("paceline.attempt.try", facts.try_number.map(i64::from)),
        number("http.response.status_code", facts.status.map(i64::from)),
        text("paceline.outcome", facts.outcome.map(str::to_owned)),
        facts.dead_letter.then_some(dead_letter),
    ]
    .into_iter()
    .flatten()
    .collect()
}

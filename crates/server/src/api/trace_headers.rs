//! The headers `traceparent` and `tracestate` of those who hand events in: the
//! trace that these belong to. Whatever they hold, a request is not refused for
//! it: what is malformed is taken for a trace that begins here.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use domain::trace::Incoming;
use http::HeaderValue;
use http::request::Parts;
use utoipa::IntoParams;

/// What a request says of its trace.
pub(super) struct TraceHeader(pub(super) Incoming);

/// The headers, as documented.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "for the documentation; they are read as bytes")]
pub(super) struct TraceHeaders {
    /// The trace that the request belongs to, by W3C Trace Context; one that is
    /// malformed is replaced by a new one.
    traceparent: Option<String>,
    /// What other systems say of that trace, passed on as it is.
    tracestate: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for TraceHeader {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let values = |name| parts.headers.get_all(name).iter();
        let parents = values("traceparent").map(HeaderValue::as_bytes);
        let states = values("tracestate").map(HeaderValue::as_bytes);
        Ok(Self(Incoming::of(parents, states)))
    }
}

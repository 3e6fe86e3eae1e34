//! What went wrong, as `application/problem+json` (RFC 9457).

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use domain::access::Scope;
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::request_id;
use crate::service::ServiceError;

/// The longest detail, in bytes. It may repeat what was sent, and a body is not
/// to be answered with twice its size.
const MAX_DETAIL_BYTES: usize = 500;

/// The longest name of a field, in bytes: the sender's fields are named, too.
const MAX_FIELD_BYTES: usize = 200;

/// A problem: what went wrong, and where. Small: it is in the way back of nearly
/// every function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem, for programs.
    #[serde(rename = "type")]
    #[schema(example = "urn:paceline:problem:invalid-field")]
    pub kind: String,
    /// Names the kind of problem, for people.
    #[schema(value_type = String)]
    pub title: Box<str>,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
    /// The field at fault, such as `limits.per_second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub field: Option<Box<str>>,
    /// In so many seconds it may go better; the same as the header
    /// `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// The request's id, the same as the header `X-Request-Id`: the server's log has
    /// it. Absent from what is said of one of many events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub request_id: Option<Box<str>>,
}

impl Problem {
    fn new(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:paceline:problem:{kind}"),
            title: title.into(),
            status: status.as_u16(),
            detail: cut(detail.into(), MAX_DETAIL_BYTES),
            field: None,
            retry_after_seconds: None,
            request_id: None,
        }
    }

    fn after(mut self, wait: Duration) -> Self {
        let seconds = u64::try_from(wait.as_millis().div_ceil(1_000));
        self.retry_after_seconds = Some(seconds.unwrap_or(u64::MAX).max(1));
        self
    }

    fn of(mut self, field: impl Into<String>) -> Self {
        self.field = Some(cut(field.into(), MAX_FIELD_BYTES).into());
        self
    }

    /// The body is not JSON at all.
    #[must_use]
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "malformed-body",
            "The body is not JSON",
            detail,
        )
    }

    /// The body was not sent as JSON.
    #[must_use]
    pub fn not_json() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "The body must be JSON",
            "send the header Content-Type: application/json",
        )
    }

    /// The body was not sent as lines of JSON.
    #[must_use]
    pub fn not_ndjson() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "The body must be NDJSON",
            "send the header Content-Type: application/x-ndjson, and one JSON object on each line",
        )
    }

    pub(super) fn too_many_lines(most: u32) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "Too large",
            format!("must have at most {most} lines; the first {most} were read"),
        )
    }

    pub(super) fn too_slow_body(patience: std::time::Duration) -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            "Not done in time",
            format!("the body did not come within {} s", patience.as_secs()),
        )
    }

    /// A field is wrong.
    #[must_use]
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid-field",
            "A field is invalid",
            problem,
        )
        .of(field)
    }

    /// A field, or the body, is too large.
    #[must_use]
    pub fn too_large(field: impl Into<String>, max_bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "Too large",
            format!("must be at most {max_bytes} bytes"),
        )
        .of(field)
    }

    /// No key, or a wrong one.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "No valid API key",
            "send the header Authorization: Bearer KEY",
        )
    }

    /// What is there already excludes it.
    #[must_use]
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "conflict",
            "It is in another state",
            detail,
        )
    }

    /// A key that may not do this.
    #[must_use]
    pub fn forbidden(missing: Scope) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "The API key may not do this",
            format!("the key lacks the scope {missing}"),
        )
    }

    /// A route whose description asks for no scope is for nobody.
    pub(super) fn undescribed() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "The API key may not do this",
            "no key may: the route asks for no scope",
        )
    }

    /// Too much of one tenant at once: others are not kept from anything.
    #[must_use]
    pub fn busy(detail: impl Into<String>) -> Self {
        let (status, kind) = (StatusCode::TOO_MANY_REQUESTS, "busy");
        let title = "Too much of this tenant at once";
        Self::new(status, kind, title, detail).after(Duration::from_secs(1))
    }

    /// Too much at once; nothing was written.
    #[must_use]
    pub fn overloaded(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "Too much at once",
            detail,
        )
    }

    /// A shard that nothing could be sent to.
    #[must_use]
    pub fn shard_away(shard: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "shard-away",
            "A shard is away",
            format!(
                "the shard {shard} cannot be reached; nothing was done there; tenants of other \
                 shards are served"
            ),
        )
    }

    /// A shard that something was sent to, and that gave no answer.
    #[must_use]
    pub fn shard_silent(shard: &str) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            "shard-silent",
            "A shard gave no answer",
            format!("the shard {shard} gave no whole answer; whether it was done is not known"),
        )
    }

    /// More requests to a shard than it is sent at once.
    #[must_use]
    pub fn shard_busy(shard: &str) -> Self {
        Self::overloaded(format!("too many requests of the shard {shard} at once"))
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too-slow",
            "Not done in time",
            "the request took too long; whether it was done is not known",
        )
    }

    pub(crate) fn no_route() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-route",
            "There is no such route",
            "/openapi.json describes all routes",
        )
    }

    pub(super) fn no_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "no-such-method",
            "The route has no such method",
            "/openapi.json describes all routes",
        )
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Invalid { field, problem } => Self::invalid(field, problem),
            ServiceError::TooLarge { field, max_bytes } => Self::too_large(field, max_bytes),
            ServiceError::KeyReused => Self::new(
                StatusCode::CONFLICT,
                "idempotency-key-reused",
                "The idempotency key was used for another request",
                "within 24 hours a key stands for one request; give another one a key of its own",
            )
            .of("idempotency_key"),
            ServiceError::Backlogged { retry_after, .. } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "backlog-full",
                "Too much is pending",
                format!("{error}; nothing was written"),
            )
            .after(retry_after),
            ServiceError::TooFast { retry_after } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-fast",
                "Too many events a second",
                format!("{error}; nothing was written"),
            )
            .after(retry_after),
            ServiceError::TooManyChanges { retry_after } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-changes",
                "Too many management calls a second",
                format!("{error}; nothing was changed"),
            )
            .after(retry_after),
            ServiceError::NotFound(what) => Self::new(
                StatusCode::NOT_FOUND,
                "not-found",
                "There is no such thing",
                format!("no such {what}"),
            ),
            ServiceError::Conflict(detail) => Self::conflict(detail),
            ServiceError::Busy(detail) => Self::busy(detail),
            ServiceError::Overloaded(detail) => Self::overloaded(detail),
            ServiceError::Unavailable(detail) => {
                tracing::warn!(%detail, "a request failed: a part is unavailable");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    "A part is unavailable",
                    "try again later; whether it was done is not known; /readyz tells which part",
                )
            }
            ServiceError::Lost(detail) => {
                tracing::warn!(%detail, "a request failed: the store is lost");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "store-lost",
                    "The store is lost",
                    "nothing is accepted until whoever runs Paceline has brought its database \
                     back and started it again; the server's log says more",
                )
            }
            ServiceError::Internal(detail) => {
                tracing::error!(%detail, "a request failed: our fault");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "Our fault",
                    "the server's log says more",
                )
            }
        }
    }
}

/// The beginning of a text that is too long, and a sign that it went on.
fn cut(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
    text
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        self.request_id = request_id::current();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

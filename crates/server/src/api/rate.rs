//! What every answer says of how fast its tenant may hand events in: the
//! fields of the IETF's draft, and those that came before it.

use http::{HeaderMap, HeaderName, HeaderValue};
use utoipa::openapi::header::Header;
use utoipa::openapi::{Object, OpenApi, Ref, RefOr, Response, Type};

use crate::api::answers::operations;
use crate::service::rate::RateStanding;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Adds them.
pub(super) fn tell(standing: &RateStanding, headers: &mut HeaderMap) {
    let RateStanding { limit, left, .. } = standing;
    let reset = standing.full_after.as_millis().div_ceil(1_000);
    let told = [
        (POLICY, format!("\"ingest\";q={limit};w=1")),
        (LIMIT, format!("\"ingest\";r={left};t={reset}")),
        (X_LIMIT, limit.to_string()),
        (X_REMAINING, left.to_string()),
        (X_RESET, reset.to_string()),
    ];
    for (name, value) in told {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

/// What each of them is, once, by the name that the description refers to.
const DESCRIBED: [(&str, Type, &str); 5] = [
    (
        "RateLimit-Policy",
        Type::String,
        "How many events a second this key's tenant may hand in, as in the IETF's draft: `\"ingest\";q=100;w=1`.",
    ),
    (
        "RateLimit",
        Type::String,
        "How many of them are left, and after how many seconds all are again: `\"ingest\";r=42;t=1`.",
    ),
    ("X-RateLimit-Limit", Type::Integer, "Events a second."),
    ("X-RateLimit-Remaining", Type::Integer, "How many are left."),
    (
        "X-RateLimit-Reset",
        Type::Integer,
        "After how many seconds all are left again.",
    ),
];

/// Adds them to the description of every answer to a key that is known and may
/// do what it asks for.
pub(super) fn describe(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    for (name, schema_type, description) in DESCRIBED {
        let mut described = Header::new(Object::with_type(schema_type));
        described.description = Some(description.to_owned());
        components.headers.insert(name.to_owned(), described.into());
    }
    for operation in operations(document) {
        for (status, response) in &mut operation.responses.responses {
            if let (false, RefOr::T(response)) = (is_before(status), response) {
                refer(response);
            }
        }
    }
}

/// Answered before it is known whose limit it is.
fn is_before(status: &str) -> bool {
    matches!(status, "401" | "403")
}

fn refer(response: &mut Response) {
    for (name, ..) in DESCRIBED {
        let header = Ref::new(format!("#/components/headers/{name}"));
        (response.headers).insert(name.to_owned(), RefOr::Ref(header));
    }
}

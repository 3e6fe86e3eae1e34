//! What every answer says of how fast its tenant may hand events in: the
//! fields of the IETF's draft, and those that came before it.

use http::{HeaderMap, HeaderName, HeaderValue};

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

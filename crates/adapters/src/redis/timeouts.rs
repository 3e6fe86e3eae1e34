//! How long Redis is waited for.

use std::time::Duration;

/// How long an answer may take before the call fails. The driver's own limit
/// of 500 ms is less than a failover or a fork of a large Redis takes.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long dialling and authenticating may take.
pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

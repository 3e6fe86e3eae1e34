//! What a receiver says about its own limits, in the headers of a response.
//!
//! Three dialects: `Retry-After` (RFC 9110), `RateLimit` with
//! `RateLimit-Policy` (the IETF draft, structured fields), and the older
//! `X-RateLimit-Remaining` with `X-RateLimit-Reset`. All of them come to one
//! answer: for how long the receiver wants to be left alone, if it does.
//!
//! Total: whatever the bytes say, the answer is nothing or a wait of at most
//! [`MAX_WAIT`]. Nonsense, zero and the past ask for nothing.

mod rate_limit;

use std::time::{Duration, UNIX_EPOCH};

use rate_limit::exhausted_for;

/// The longest wait that a receiver can ask for. An absurd value, or one that
/// is meant for somebody else, must not silence a destination for days.
pub const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// Of each header so many bytes are looked at, at most: a longer one is not
/// read at all. A date takes 29, a list of a few policies about 100.
pub const MAX_HEADER_BYTES: usize = 256;

/// From here on a number of `X-RateLimit-Reset` is a time and not a duration:
/// seconds since the Unix epoch of the year 2001, or a wait of 31 years.
const EPOCH_FROM: f64 = 1e9;

/// From here on it is in milliseconds.
const EPOCH_MILLIS_FROM: f64 = 1e12;

/// The headers of one response that matter, as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawSignals {
    /// `Retry-After`: seconds, or an HTTP date.
    pub retry_after: Option<String>,
    /// `Date`: the receiver's own clock, which its other times are by.
    pub date: Option<String>,
    /// `RateLimit`: what is left of which policy.
    pub rate_limit: Option<String>,
    /// `RateLimit-Policy`: the policies.
    pub rate_limit_policy: Option<String>,
    /// `X-RateLimit-Remaining`.
    pub remaining: Option<String>,
    /// `X-RateLimit-Reset`: seconds from now, or since the Unix epoch.
    pub reset: Option<String>,
}

impl RawSignals {
    /// Reads them by their names, in lower case. `header` answers the first
    /// value of that name, if it is text; what is too long is left out.
    pub fn read(header: impl Fn(&'static str) -> Option<String>) -> Self {
        let short = |name| header(name).filter(|text| text.len() <= MAX_HEADER_BYTES);
        Self {
            retry_after: short("retry-after"),
            date: short("date"),
            rate_limit: short("ratelimit"),
            rate_limit_policy: short("ratelimit-policy"),
            remaining: short("x-ratelimit-remaining"),
            reset: short("x-ratelimit-reset"),
        }
    }

    /// For how long the receiver that answered `status` wants to be left
    /// alone; `None` if it does not say so. `now` is when the response came, in
    /// seconds since the Unix epoch: times are read by it where the response
    /// has no date of its own.
    ///
    /// `Retry-After` counts in errors only, where it is about the next request
    /// (a 2xx or 3xx may mean something else by it), and before the others.
    /// Those count in any response, once nothing is left.
    ///
    /// ```
    /// use domain::signals::RawSignals;
    /// use std::time::Duration;
    /// let signals = RawSignals { retry_after: Some("30".into()), ..RawSignals::default() };
    /// assert_eq!(signals.wait(429, 0), Some(Duration::from_secs(30)));
    /// assert_eq!(signals.wait(200, 0), None);
    /// let exhausted = RawSignals {
    ///     rate_limit: Some("\"default\";r=0;t=7".into()),
    ///     ..RawSignals::default()
    /// };
    /// assert_eq!(exhausted.wait(200, 0), Some(Duration::from_secs(7)));
    /// ```
    #[must_use]
    pub fn wait(&self, status: u16, now: i64) -> Option<Duration> {
        let now = self.date.as_deref().and_then(date).unwrap_or(now as f64);
        let retry_after = self.retry_after.as_deref().filter(|_| status >= 400);
        retry_after
            .and_then(|text| bounded(retry_after_seconds(text, now)?))
            .or_else(|| self.draft().max(self.legacy(status, now)))
    }

    /// By `RateLimit`.
    fn draft(&self) -> Option<Duration> {
        let limit = self.rate_limit.as_deref()?;
        let policy = self.rate_limit_policy.as_deref().unwrap_or_default();
        bounded(exhausted_for(limit, policy)?)
    }

    /// By `X-RateLimit-…`. A 429 says by itself that nothing is left.
    fn legacy(&self, status: u16, now: f64) -> Option<Duration> {
        let exhausted = match self.remaining.as_deref() {
            Some(text) => number(text)? <= 0.0,
            None => status == 429,
        };
        let reset = self.reset.as_deref().filter(|_| exhausted)?;
        bounded(match number(reset)? {
            millis if millis >= EPOCH_MILLIS_FROM => millis / 1e3 - now,
            seconds if seconds >= EPOCH_FROM => seconds - now,
            seconds => seconds,
        })
    }
}

/// Seconds from now on.
fn retry_after_seconds(text: &str, now: f64) -> Option<f64> {
    number(text).or_else(|| Some(date(text)? - now))
}

/// A date in any of the three formats of HTTP, in seconds since the Unix epoch.
fn date(text: &str) -> Option<f64> {
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

/// Digits, and perhaps a fraction; however many: too large is still large.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole) && digits(fraction)).then(|| text.parse().ok())?
}

/// A wait that is one, within the bound. Shorter than a millisecond is none.
fn bounded(seconds: f64) -> Option<Duration> {
    let wait = seconds.min(MAX_WAIT.as_secs_f64());
    (wait >= 0.001).then(|| Duration::from_secs_f64(wait))
}

#[cfg(test)]
mod tests;

//! What a receiver says about its own limits, in the headers of a response.
//!
//! Five dialects: `Retry-After` (RFC 9110); the IETF draft's `RateLimit` with
//! `RateLimit-Policy`, as a list of policies (drafts 8 and later) or as a
//! dictionary (draft 7), and its separate `RateLimit-Remaining` and
//! `RateLimit-Reset` (drafts 3 to 6); and the older `X-RateLimit-…`, which some
//! write `X-Rate-Limit-…`. All of them come to one answer: for how long the
//! receiver wants to be left alone, if it does. And `webhook-delivery: disable`
//! says that it wants to be, for good.
//!
//! Total: whatever the bytes say, the answer is nothing or a wait of at most
//! [`MAX_WAIT`]. Nonsense, zero and the past ask for nothing.

mod rate_limit;

use std::time::{Duration, UNIX_EPOCH};

use rate_limit::{Members, exhausted_for, window};

/// The longest wait that a receiver can ask for. An absurd value, or one that
/// is meant for somebody else, must not silence a destination for days.
pub const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// Of each header so many bytes are looked at, at most: a longer one is not
/// read at all. A date takes 29, a list of a few policies about 100.
pub const MAX_HEADER_BYTES: usize = 256;

/// From here on a number of `X-RateLimit-Reset` or its like is a time and not a duration:
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
    /// `RateLimit`: what is left of which policy, or of the only one.
    pub rate_limit: Option<String>,
    /// `RateLimit-Policy`: the policies.
    pub rate_limit_policy: Option<String>,
    /// `RateLimit-Limit`: the quota, and perhaps its policy.
    pub rate_limit_limit: Option<String>,
    /// `RateLimit-Remaining`.
    pub rate_limit_remaining: Option<String>,
    /// `RateLimit-Reset`: seconds from now.
    pub rate_limit_reset: Option<String>,
    /// `X-RateLimit-Remaining`, or `X-Rate-Limit-Remaining`.
    pub remaining: Option<String>,
    /// `X-RateLimit-Reset`, or `X-Rate-Limit-Reset`: seconds from now, or since
    /// the Unix epoch.
    pub reset: Option<String>,
    /// `webhook-delivery`: whether it wants to be called again.
    pub delivery: Option<String>,
}

impl RawSignals {
    /// Reads them by their names, in lower case. `header` answers the values of
    /// that name which are text, in their order. Of those that are lists all count,
    /// as if they stood in one line: each limiter on the way may add its own. Of
    /// the others the first does. What is too long is left out.
    pub fn read(header: impl Fn(&'static str) -> Vec<String>) -> Self {
        let short = |text: &String| text.len() <= MAX_HEADER_BYTES;
        let first = |name| header(name).into_iter().next().filter(short);
        let all = |name| {
            let values = header(name);
            (!values.is_empty())
                .then(|| values.join(", "))
                .filter(short)
        };
        let either = |one, other| first(one).or_else(|| first(other));
        Self {
            retry_after: first("retry-after"),
            date: first("date"),
            rate_limit: all("ratelimit"),
            rate_limit_policy: all("ratelimit-policy"),
            rate_limit_limit: first("ratelimit-limit"),
            rate_limit_remaining: first("ratelimit-remaining"),
            rate_limit_reset: first("ratelimit-reset"),
            remaining: either("x-ratelimit-remaining", "x-rate-limit-remaining"),
            reset: either("x-ratelimit-reset", "x-rate-limit-reset"),
            delivery: first("webhook-delivery"),
        }
    }

    /// Whether the receiver wants no further request, whatever its status is: it
    /// answered `webhook-delivery: disable`.
    ///
    /// ```
    /// use domain::signals::RawSignals;
    /// let signals = RawSignals { delivery: Some("disable".into()), ..RawSignals::default() };
    /// assert!(signals.disables());
    /// assert!(!RawSignals::default().disables());
    /// ```
    #[must_use]
    pub fn disables(&self) -> bool {
        (self.delivery.as_deref()).is_some_and(|text| text.trim().eq_ignore_ascii_case("disable"))
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
            .or_else(|| {
                let counters = [self.members(), self.separate(), self.legacy()];
                let waits = counters.map(|counter| counter?.wait(status, now));
                waits.into_iter().fold(self.policies(), Option::max)
            })
    }

    fn policy(&self) -> &str {
        self.rate_limit_policy.as_deref().unwrap_or_default()
    }

    /// By `RateLimit`, as a list of policies.
    fn policies(&self) -> Option<Duration> {
        let limit = self.rate_limit.as_deref()?;
        bounded(exhausted_for(limit, self.policy())?)
    }

    /// By `RateLimit`, as a dictionary.
    fn members(&self) -> Option<Counter> {
        let said = Members::read(self.rate_limit.as_deref()?);
        let window = || window(&said.limit?.to_string(), self.policy());
        Some(Counter {
            remaining: said.remaining.map(|number| number as f64),
            reset: said.reset.map(|number| number as f64).or_else(window),
        })
    }

    /// By `RateLimit-Remaining` and `RateLimit-Reset`.
    fn separate(&self) -> Option<Counter> {
        let reset = self.rate_limit_reset.as_deref();
        let said = Counter::read(self.rate_limit_remaining.as_deref(), reset)?;
        let window = || window(self.rate_limit_limit.as_deref()?, self.policy());
        Some(Counter {
            reset: match reset {
                Some(_) => said.reset,
                None => window(),
            },
            ..said
        })
    }

    /// By `X-RateLimit-…`.
    fn legacy(&self) -> Option<Counter> {
        Counter::read(self.remaining.as_deref(), self.reset.as_deref())
    }
}

/// What one dialect says of the requests that are left.
struct Counter {
    /// So many are; `None` if it does not say.
    remaining: Option<f64>,
    /// When there are more: seconds from now, or since the Unix epoch.
    reset: Option<f64>,
}

impl Counter {
    /// `None` if what is left cannot be read.
    fn read(remaining: Option<&str>, reset: Option<&str>) -> Option<Self> {
        Some(Self {
            remaining: match remaining {
                Some(text) => Some(number(text)?),
                None => None,
            },
            reset: reset.and_then(number),
        })
    }

    /// A 429 says by itself that nothing is left.
    fn wait(&self, status: u16, now: f64) -> Option<Duration> {
        let exhausted = match self.remaining {
            Some(remaining) => remaining <= 0.0,
            None => status == 429,
        };
        bounded(match self.reset.filter(|_| exhausted)? {
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

//! The handshake of "HTTP 1.1 Web Hooks for Event Delivery" (CloudEvents, section 4): a
//! receiver is asked by `OPTIONS` whether it wants to be sent anything, and how much.
//!
//! Here is what a reply means, what follows from it, and when it is asked again. What a
//! receiver allows is a limit like any other ([`LimitSettings::allowed_per_minute`]): none
//! until it has answered, so nothing starts before; the lower of it and what is
//! configured afterwards.
//!
//! ```text
//!             allows                        a day later
//!   asked ─────────────► allowed, with a rate ─────────► asked again
//!     │ refuses, or cannot be reached                        │
//!     └──► nothing starts; asked again a minute later, then  │ cannot be reached:
//!          at twice the distance, up to an hour              ▼ stands for another day
//! ```
//!
//! [`LimitSettings::allowed_per_minute`]: crate::policy::LimitSettings

mod origin;
mod words;

use std::num::NonZeroU32;
use std::time::Duration;

pub use origin::{NotAnOrigin, Origin};
pub use words::{AskOutcome, Handshake};

use crate::limit::MAX_LIMIT;
use crate::operations::OperationalType;
use crate::policy::{LimitSettings, Policy, Rate};
use crate::remark::printable;
use crate::time::Timestamp;

/// How long one question may take, with its dial.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// So long nobody else asks. Longer than a question may take, and than its answer takes
/// to be written down.
pub const ASKING: Duration = Duration::from_secs(30);

/// So many receivers of one tenant are asked at once, whoever asks: those that do not answer
/// leave room for everybody else's.
pub const ASKED_AT_ONCE: u32 = 4;

/// A receiver that has allowed is asked again after that.
pub const ASK_EVERY: Duration = Duration::from_secs(24 * 3_600);

/// What it has allowed stands for so long, while it cannot be reached.
pub const STANDS_FOR: Duration = Duration::from_secs(48 * 3_600);

/// After the first question in vain; each further pause is twice as long.
pub const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// But no longer than that.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// Of a problem so many bytes are kept.
pub const MAX_PROBLEM_BYTES: usize = 300;

/// What a receiver replied, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// `WebHook-Allowed-Origin`.
    pub allowed_origin: Option<String>,
    /// `WebHook-Allowed-Rate`.
    pub allowed_rate: Option<String>,
}

/// What a question came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It may be sent so many requests a minute; `None`: as many as are configured.
    Allowed(Option<NonZeroU32>),
    /// It does not want any, or does not know the handshake; why, in words.
    Refused(String),
    /// It has not said; why, in words.
    Unreachable(String),
}

impl Reply {
    /// What it means for who asked as `origin`. Consent is the header, in an answer of
    /// 2xx: a server that answers every `OPTIONS` consents to nothing. A rate that cannot
    /// be read is no consent either: nobody knows to how much.
    ///
    /// ```
    /// use domain::handshake::{Answer, Origin, Reply};
    /// let origin: Origin = "hooks.example.com".parse()?;
    /// let reply = Reply {
    ///     status: 200,
    ///     allowed_origin: Some("hooks.example.com".into()),
    ///     allowed_rate: Some("120".into()),
    /// };
    /// assert_eq!(reply.answer(&origin), Answer::Allowed(120.try_into().ok()));
    /// # Ok::<(), domain::handshake::NotAnOrigin>(())
    /// ```
    #[must_use]
    pub fn answer(&self, origin: &Origin) -> Answer {
        let status = self.status;
        match status {
            200..=299 => {}
            429 | 500 | 502..=599 => return unreachable(&format!("it answered {status}")),
            _ => return refused(&format!("it answered {status}")),
        }
        let Some(allowed) = self.allowed_origin.as_deref().map(str::trim) else {
            return refused(&format!(
                "it answered {status} without WebHook-Allowed-Origin"
            ));
        };
        if allowed != "*" && !allowed.eq_ignore_ascii_case(origin.as_str()) {
            return refused(&format!("it allows the origin {allowed:?}, not {origin}"));
        }
        match self.allowed_rate.as_deref().map(str::trim) {
            None | Some("*") => Answer::Allowed(None),
            Some(text) => match rate(text) {
                Some(rate) => Answer::Allowed(Some(rate)),
                None => refused(&format!(
                    "its WebHook-Allowed-Rate is {text:?}, neither * nor a number above 0"
                )),
            },
        }
    }
}

fn refused(why: &str) -> Answer {
    Answer::Refused(short(why))
}

/// It has not said, and why not.
#[must_use]
pub fn unreachable(why: &str) -> Answer {
    Answer::Unreachable(short(why))
}

/// It may hold what a stranger wrote.
fn short(why: &str) -> String {
    printable(why, MAX_PROBLEM_BYTES)
}

/// Digits; however many: too large is still large.
fn rate(text: &str) -> Option<NonZeroU32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
    NonZeroU32::new(number).filter(|_| is_number)
}

/// The rate that is asked for: what is configured, in requests a minute. `None` where
/// that is no number, or none at all.
#[must_use]
pub fn asked_rate(configured: &LimitSettings) -> Option<NonZeroU32> {
    let own = LimitSettings {
        allowed_per_minute: None,
        ..*configured
    };
    let policy: Policy = own.policy();
    let Rate::Limited(limited) = &policy.rate else {
        return None;
    };
    let per_minute = (limited.per_second() * 60.0).ceil();
    NonZeroU32::new(per_minute.min(f64::from(MAX_LIMIT)) as u32)
}

/// Where a handshake stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// When the receiver is asked next.
    pub next_ask_at: Timestamp,
    /// When it was asked last.
    pub asked_at: Option<Timestamp>,
    /// What came of it.
    pub outcome: Option<AskOutcome>,
    /// Why it is not allowed.
    pub problem: Option<String>,
    /// What it has allowed stands until then.
    pub allowed_until: Option<Timestamp>,
    /// Asked in vain, in a row.
    pub failures: u32,
    /// Starts per minute; `0` is none, `None` as many as are configured.
    pub allowed_per_minute: Option<u32>,
}

impl Standing {
    /// Of a receiver that has yet to be asked.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            next_ask_at: Timestamp::from_micros(0),
            asked_at: None,
            outcome: None,
            problem: None,
            allowed_until: None,
            failures: 0,
            allowed_per_minute: Some(0),
        }
    }

    /// What this answer makes of it at `now`.
    #[must_use]
    pub fn after(self, answer: &Answer, now: Timestamp) -> Self {
        let failures = self.failures.saturating_add(1);
        let again = now + pause(failures);
        let none = Self {
            next_ask_at: again,
            asked_at: Some(now),
            failures,
            ..Self::new()
        };
        match answer {
            Answer::Allowed(rate) => Self {
                next_ask_at: now + ASK_EVERY,
                asked_at: Some(now),
                outcome: Some(AskOutcome::Allowed),
                allowed_until: Some(now + STANDS_FOR),
                allowed_per_minute: rate.map(NonZeroU32::get),
                ..Self::new()
            },
            Answer::Refused(why) => Self {
                outcome: Some(AskOutcome::Refused),
                problem: Some(why.clone()),
                ..none
            },
            Answer::Unreachable(why) => {
                let stands = self.allowed_until.filter(|until| *until > now);
                Self {
                    outcome: Some(AskOutcome::Unreachable),
                    problem: Some(why.clone()),
                    // So that it ends in time.
                    next_ask_at: stands.map_or(again, |until| again.min(until)),
                    allowed_until: stands,
                    allowed_per_minute: match stands {
                        Some(_) => self.allowed_per_minute,
                        None => Some(0),
                    },
                    ..none
                }
            }
        }
    }

    /// What operators must know of it, where it stood so before.
    #[must_use]
    pub fn news(&self, before: &Self) -> Option<OperationalType> {
        use AskOutcome::{Allowed, Refused};
        match (before.outcome, self.outcome) {
            (Some(Refused), Some(Refused)) => None,
            (_, Some(Refused)) => Some(OperationalType::HandshakeRefused),
            (Some(Refused), Some(Allowed)) => Some(OperationalType::HandshakeAllowed),
            _ => None,
        }
    }

    /// The news' details: what is allowed, or why not.
    #[must_use]
    pub fn details(&self) -> String {
        let per_minute = self.allowed_per_minute;
        serde_json::json!({ "problem": self.problem, "allowed_per_minute": per_minute }).to_string()
    }
}

impl Default for Standing {
    fn default() -> Self {
        Self::new()
    }
}

/// After so many questions in vain.
fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;

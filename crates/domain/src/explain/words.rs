//! The reasons, in a word and in a sentence.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Circumstances;
use crate::admission::Gate;
use crate::health::UnknownWord;
use crate::limit::{Limit, Period};
use crate::operations::rfc3339;
use crate::policy::Pacing;
use crate::time::Timestamp;

/// Why the next attempt is not going out now, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is going out.
    Now,
    /// It has a permit, and a worker has yet to claim it.
    Permitted,
    /// Nothing waits.
    NoWork,
    /// What waits is not due yet: it is to be tried again later.
    Backoff,
    /// Its owner has paused it.
    Paused,
    /// It is disabled.
    Disabled,
    /// One of its limits is zero.
    ZeroLimit,
    /// Its receiver has not allowed anything to be sent to it.
    NotAllowed,
    /// The receiver named a time before which it wants nothing.
    Asked,
    /// The receiver answered 429.
    Refused,
    /// The breaker is open.
    Breaker,
    /// The breaker is half open, and one attempt is under way to probe.
    Probe,
    /// A sliding window is full.
    Window,
    /// A window of its limit group is full.
    Group,
    /// A bucket, or the burst of a window, spaces its starts.
    Spacing,
    /// Smart delivery has lowered its limit.
    Smart,
    /// Its `max_in_flight` are under way.
    Concurrency,
    /// Its tenant's `max_in_flight` are under way.
    Tenant,
    /// No worker lives.
    NoWorkers,
    /// The workers' places are all taken.
    Places,
    /// It is let in by an access token, and gets none.
    NoToken,
    /// Starts that a newly coarse limit has yet to count.
    Counting,
    /// Nothing is in its way, and no scheduler has admitted it.
    Unscheduled,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Now,
        Self::Permitted,
        Self::NoWork,
        Self::Backoff,
        Self::Paused,
        Self::Disabled,
        Self::ZeroLimit,
        Self::NotAllowed,
        Self::Asked,
        Self::Refused,
        Self::Breaker,
        Self::Probe,
        Self::Window,
        Self::Group,
        Self::Spacing,
        Self::Smart,
        Self::Concurrency,
        Self::Tenant,
        Self::NoWorkers,
        Self::Places,
        Self::NoToken,
        Self::Counting,
        Self::Unscheduled,
    ];

    /// The word, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Permitted => "permitted",
            Self::NoWork => "no_work",
            Self::Backoff => "backoff",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::ZeroLimit => "zero_limit",
            Self::NotAllowed => "not_allowed",
            Self::Asked => "asked",
            Self::Refused => "refused",
            Self::Breaker => "breaker",
            Self::Probe => "probe",
            Self::Window => "window",
            Self::Group => "group",
            Self::Spacing => "spacing",
            Self::Smart => "smart",
            Self::Concurrency => "concurrency",
            Self::Tenant => "tenant",
            Self::NoWorkers => "no_workers",
            Self::Places => "places",
            Self::NoToken => "no_token",
            Self::Counting => "counting",
            Self::Unscheduled => "unscheduled",
        }
    }
}

impl Reason {
    /// A few words for people, beside which a time or a number may stand.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Now | Self::Permitted => "sending",
            Self::NoWork => "up to date",
            Self::Backoff => "to be retried",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::ZeroLimit => "paused: a limit is 0",
            Self::NotAllowed => "held: the receiver has not allowed it",
            Self::Asked => "held: the receiver asked to wait",
            Self::Refused => "held: the receiver answered 429",
            Self::Breaker => "breaker open",
            Self::Probe => "breaker open, one attempt probes",
            Self::Window | Self::Spacing => "at its limit",
            Self::Group => "its limit group is at its limit",
            Self::Smart => "slowed by smart delivery",
            Self::Concurrency => "as many in flight as may be",
            Self::Tenant => "its tenant has as many in flight as may be",
            Self::NoWorkers => "no worker lives",
            Self::Places => "waits for a worker's place",
            Self::NoToken => "gets no access token",
            Self::Counting => "earlier starts are being counted",
            Self::Unscheduled => "not scheduled yet",
        }
    }
}

impl FromStr for Reason {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        (Self::ALL.into_iter())
            .find(|one| one.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

impl Circumstances<'_> {
    pub(super) fn words(&self, reason: Reason, next_at: Option<Timestamp>) -> String {
        let at = next_at.map_or_else(String::new, rfc3339);
        let under_way = self.under_way();
        match reason {
            Reason::Now => "It is going out now: nothing is in its way.".to_owned(),
            Reason::Permitted => {
                format!("It has a permit from {at} on, and goes out when a worker claims it.")
            }
            Reason::NoWork => match self.usage.in_flight {
                0 => "Nothing waits.".to_owned(),
                in_flight => format!("Nothing waits; {in_flight} in flight have no outcome yet."),
            },
            Reason::Backoff => {
                format!("What waits is to be tried again later; the first of it is due at {at}.")
            }
            Reason::Paused => {
                "The destination is paused: its backlog waits until somebody resumes it.".to_owned()
            }
            Reason::Disabled => "The destination is disabled: it refuses events, and its backlog \
                waits until somebody resumes it."
                .to_owned(),
            Reason::ZeroLimit => self.zero_words(),
            Reason::NotAllowed => "The receiver has not allowed that anything is sent to it. It \
                is asked again at least every hour; its handshake says what it answered."
                .to_owned(),
            Reason::Asked => format!("The receiver asked for nothing before {at}."),
            Reason::Refused => format!("The receiver answered 429, so nothing starts before {at}."),
            Reason::Breaker => format!(
                "The breaker is open, since the receiver failed too often; one attempt probes it \
                 at {at}."
            ),
            Reason::Probe => "The breaker is half open: one attempt probes the receiver, and the \
                rest waits for its answer."
                .to_owned(),
            Reason::Window => format!("{} The next goes out at {at}.", self.window_words()),
            Reason::Group => format!("{} The next goes out at {at}.", self.group_words()),
            Reason::Spacing => format!("{} The next goes out at {at}.", self.spacing_words()),
            Reason::Smart => format!(
                "Smart delivery has lowered the limit to {} a second, by how the receiver \
                 answers. The next goes out at {at}.",
                (self.policy.pace).map_or(0.0, |pace| rounded(pace.per_second())),
            ),
            Reason::Concurrency => format!(
                "{under_way} attempts are queued and in flight, and max_in_flight is {}: the next \
                 goes out when one of them ends.",
                self.policy.max_in_flight
            ),
            Reason::Tenant => "Its tenant has as many attempts under way as its max_in_flight \
                allows: the next goes out when one of them ends."
                .to_owned(),
            Reason::NoWorkers => "No worker lives. Start one: `paceline worker`.".to_owned(),
            Reason::Places => "All places of the workers are taken: the next goes out when one \
                is free. More workers, or more places (--worker-places), help."
                .to_owned(),
            Reason::NoToken => format!(
                "It has no access token: {}. One is asked for again at {at}.",
                self.no_token.unwrap_or("the token server gave none")
            ),
            Reason::Counting => "A limit was just raised to one that is counted in buckets; its \
                earlier starts are being counted, which takes a moment."
                .to_owned(),
            Reason::Unscheduled => "Nothing is in its way, and no scheduler has admitted it for \
                seconds. Look whether one runs, and at its log."
                .to_owned(),
        }
    }

    /// Who goes before most of what waits.
    pub(super) fn urgent_words(&self) -> Option<String> {
        match self.backlog.urgent {
            0 => None,
            1 => Some(" One urgent event goes before other first attempts.".to_owned()),
            many => Some(format!(
                " {many} urgent events or more go before other first attempts, three of four."
            )),
        }
    }

    fn window_words(&self) -> String {
        match self.closed(|gate| matches!(gate, Gate::Window(_))) {
            Some(Gate::Window(limit)) => {
                let margin = self.policy.margin.of(limit.period.duration());
                let longer = match margin.as_micros() {
                    0 => String::new(),
                    micros => format!(", planned {} ms longer,", rounded(micros as f64 / 1_000.0)),
                };
                let open = match self.usage.unanswered(self.policy) {
                    0 => String::new(),
                    1 => " One request has no answer yet, and counts until then.".to_owned(),
                    many => format!(" {many} requests have no answer yet, and count until then."),
                };
                format!("The window of {}{longer} is full.{open}", self.whose(limit))
            }
            _ => "A window of its limits is full.".to_owned(),
        }
    }

    fn zero_words(&self) -> String {
        match &self.usage.group {
            Some(group) if group.limits.is_paused() => format!(
                "A limit of its group {} is 0, which pauses all of the group until somebody \
                 raises that limit.",
                group.name
            ),
            _ => "One of its limits is 0, which pauses it until somebody raises that limit."
                .to_owned(),
        }
    }

    fn group_words(&self) -> String {
        let closed = self.closed(|gate| matches!(gate, Gate::Group(_)));
        match (&self.usage.group, closed) {
            (Some(group), Some(Gate::Group(limit))) => format!(
                "Its limit group {} has {} for all of its members together, and that window is \
                 full.",
                group.name,
                limit_words(limit)
            ),
            _ => "A window of its limit group is full.".to_owned(),
        }
    }

    /// The limit, and that it is the receiver's.
    fn whose(&self, limit: Limit) -> String {
        let words = limit_words(limit);
        let allowed = self.policy.allowed_per_minute;
        match limit.period == Period::Minute && allowed == Some(limit.max.get()) {
            true => format!("{words}, which the receiver allows,"),
            false => words,
        }
    }

    fn spacing_words(&self) -> String {
        let pacing = match &self.policy.rate {
            crate::policy::Rate::Limited(limited) => limited.pacing,
            _ => None,
        };
        let words = |pacing: Pacing| {
            let refill = limit_words(pacing.refill);
            match pacing.burst {
                1 => format!("Its starts are spaced evenly, {refill}."),
                burst => {
                    format!("Its bucket of {burst} is empty, and is refilled at {refill}.")
                }
            }
        };
        pacing.map_or_else(String::new, words)
    }

    /// The latest of these gates, permits that are out left aside where they
    /// are what waits.
    fn closed(&self, which: impl Fn(Gate) -> bool) -> Option<Gate> {
        let openings = crate::admission::openings(self.policy, self.usage, self.now);
        (openings.into_iter())
            .filter(|opening| which(opening.gate))
            .max_by_key(|opening| opening.at)
            .map(|opening| opening.gate)
    }
}

fn limit_words(limit: Limit) -> String {
    format!("{} a {}", limit.max, limit.period)
}

fn rounded(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

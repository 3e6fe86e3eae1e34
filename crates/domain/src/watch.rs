//! The watch: which backlogs operators must know of, and who gets less than
//! its limit allows.
//!
//! A look at a destination is a [`Sight`]; what is remembered from look to
//! look is a [`Watch`], and one that is well has none. An alert is raised once
//! and ended once: a backlog at its threshold, and at half of it; a shortfall
//! when every look for so long has found one and something has waited for as
//! long, and when a look finds none. Where nothing waits for long, nothing is
//! short: at a busy destination there is always something that is due.
//! Dead letters are told of in numbers, one piece of news in an interval.

mod shortfall;
mod tenants;
mod tokens;

use std::time::Duration;

pub use shortfall::{Around, Shortfall, shortfall};
pub use tenants::{
    DEFAULT_SUCCESS_LEAST, DEFAULT_SUCCESS_PERCENT, DEFAULT_SUCCESS_WITHIN, FAR_PERCENT,
    MAX_COUNTED_DESTINATIONS, MAX_SUCCESS_LEAST, MAX_SUCCESS_WITHIN, MIN_SUCCESS_WITHIN,
    NEAR_PERCENT, RefusedFor, TenantAlerts, TenantSight, TenantWatch,
};
pub use tokens::tokens;

use crate::health::FAILING_PERCENT;
use crate::operations::{OperationalType, rfc3339};
use crate::time::Timestamp;

/// The threshold of a backlog alert, unless set.
pub const DEFAULT_BACKLOG: u32 = 10_000;

/// The largest threshold: looks count up to it.
pub const MAX_BACKLOG: u32 = 100_000;

/// How long a destination gets less than its limit allows before operators are
/// told, unless set.
pub const DEFAULT_UNDER_DELIVERY: Duration = Duration::from_secs(60);

/// The longest that can be set.
pub const MAX_UNDER_DELIVERY: Duration = Duration::from_secs(86_400);

/// Two looks that are further apart than this say nothing of the time between
/// them: a shortfall begins anew. Longer than a round of the watch takes, also
/// where very many fall behind.
pub const LONGEST_BLINK: Duration = Duration::from_secs(3_600);

/// When operators are told of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlertSettings {
    /// So many attempts wait; 0 for never.
    pub backlog: u32,
    /// For so long it gets less than its limit allows; zero for never.
    pub under_delivery: Duration,
    /// It fails when so many of a hundred answers are failures; 0 for never.
    pub failing_percent: u32,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            backlog: DEFAULT_BACKLOG,
            under_delivery: DEFAULT_UNDER_DELIVERY,
            failing_percent: FAILING_PERCENT,
        }
    }
}

impl AlertSettings {
    /// What the store's columns say, with defaults where they are null.
    #[must_use]
    pub fn of(
        backlog: Option<u32>,
        under_delivery_seconds: Option<u32>,
        failing_percent: Option<u32>,
    ) -> Self {
        let default = Self::default();
        Self {
            backlog: backlog.unwrap_or(default.backlog),
            under_delivery: under_delivery_seconds.map_or(default.under_delivery, |seconds| {
                Duration::from_secs(seconds.into())
            }),
            failing_percent: failing_percent.unwrap_or(default.failing_percent),
        }
    }
}

/// Whether a step of the watch looks at a destination that it passes by: if
/// something is remembered of it, or if it has waited for so long. What is gone
/// by then needs nobody.
#[must_use]
pub fn is_looked_at(
    remembered: bool,
    oldest: Option<Timestamp>,
    (patience, now): (Duration, Timestamp),
) -> bool {
    remembered || oldest.is_some_and(|since| now.since(since) >= patience)
}

/// What is remembered of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watch {
    /// Its backlog reached the threshold then, and operators know.
    pub backlog_high_since: Option<Timestamp>,
    /// It gets less than its limit allows.
    pub short: Option<Short>,
    /// Dead letters that operators do not know of yet.
    pub dead_letters: u64,
    /// When they were last told of some.
    pub dead_letters_told_at: Option<Timestamp>,
}

/// A shortfall that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// When a look found it first.
    pub since: Timestamp,
    /// When a look found it last.
    pub seen_at: Timestamp,
    /// Why, at the last look.
    pub reason: Shortfall,
    /// Operators know.
    pub told: bool,
}

/// What a look finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sight {
    /// How many attempts wait, counted up to [`Watch::count_up_to`].
    pub backlog: u32,
    /// Since when the first of those that are due waits.
    pub oldest: Option<Timestamp>,
    /// Why it gets less than its limit allows, if it does.
    pub shortfall: Option<Shortfall>,
}

impl Sight {
    /// For how long the first of what is due has waited.
    fn waited(&self, now: Timestamp) -> Duration {
        self.oldest.map_or(Duration::ZERO, |since| now.since(since))
    }
}

/// Something that operators must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// What.
    pub event_type: OperationalType,
    /// A JSON object.
    pub details: String,
}

impl Watch {
    /// Whether there is nothing to remember at `now`, if dead letters are told
    /// of once in `interval`.
    #[must_use]
    pub fn is_well(&self, interval: Duration, now: Timestamp) -> bool {
        let told = self.dead_letters_told_at;
        let quiet = told.is_none_or(|told_at| now.since(told_at) >= interval);
        self.backlog_high_since.is_none() && self.short.is_none() && self.dead_letters == 0 && quiet
    }

    /// How far a look has to count the backlog: 0 for not at all.
    #[must_use]
    pub fn count_up_to(&self, settings: &AlertSettings) -> u32 {
        match self.backlog_high_since {
            _ if settings.backlog == 0 => 0,
            None => settings.backlog,
            Some(_) => settings.backlog / 2 + 1,
        }
    }

    /// What a look comes to. What has waited for less than `patience` is no
    /// shortfall.
    pub fn look(
        &mut self,
        settings: &AlertSettings,
        sight: &Sight,
        (patience, now): (Duration, Timestamp),
    ) -> Vec<News> {
        let mut news = Vec::new();
        news.extend(self.look_at_backlog(settings, sight, now));
        let patience = patience.min(settings.under_delivery);
        let found = sight.shortfall.filter(|_| sight.waited(now) >= patience);
        news.extend(self.look_at_shortfall(settings, (found, sight.waited(now)), now));
        news
    }

    fn look_at_backlog(
        &mut self,
        settings: &AlertSettings,
        sight: &Sight,
        now: Timestamp,
    ) -> Option<News> {
        let threshold = settings.backlog;
        match self.backlog_high_since {
            None if threshold > 0 && sight.backlog >= threshold => {
                self.backlog_high_since = Some(now);
                let oldest = sight.oldest.map_or("null".to_owned(), quoted);
                let details = format!(
                    r#"{{"backlog_at_least":{},"threshold":{threshold},"oldest_since":{oldest}}}"#,
                    sight.backlog
                );
                news(OperationalType::BacklogHigh, details)
            }
            Some(since) if threshold == 0 || sight.backlog <= threshold / 2 => {
                self.backlog_high_since = None;
                let details = format!(r#"{{"threshold":{threshold},"since":{}}}"#, quoted(since));
                news(OperationalType::BacklogNormal, details)
            }
            _ => None,
        }
    }

    fn look_at_shortfall(
        &mut self,
        settings: &AlertSettings,
        (found, waited): (Option<Shortfall>, Duration),
        now: Timestamp,
    ) -> Option<News> {
        let found = found.filter(|_| !settings.under_delivery.is_zero());
        let before = self.short.take();
        let Some(reason) = found else {
            let told = before.filter(|short| short.told)?;
            let since = quoted(told.since);
            return news(
                OperationalType::UnderDeliveryEnded,
                format!(r#"{{"since":{since}}}"#),
            );
        };
        let watched =
            before.filter(|short| short.told || now.since(short.seen_at) <= LONGEST_BLINK);
        let since = watched.map_or(now, |short| short.since);
        let known = watched.is_some_and(|short| short.told);
        let told = known || now.since(since).min(waited) >= settings.under_delivery;
        self.short = Some(Short {
            since,
            seen_at: now,
            reason,
            told,
        });
        if known || !told {
            return None;
        }
        let details = format!(
            r#"{{"reason":"{}","since":{},"seconds":{}}}"#,
            reason.as_str(),
            quoted(since),
            now.since(since).as_secs()
        );
        news(OperationalType::UnderDelivery, details)
    }

    /// News of dead letters, if there are some and the last are `interval` ago.
    pub fn tell_dead_letters(&mut self, interval: Duration, now: Timestamp) -> Option<News> {
        let last = self.dead_letters_told_at;
        let due = last.is_none_or(|told_at| now.since(told_at) >= interval);
        if self.dead_letters == 0 || !due {
            return None;
        }
        let count = std::mem::take(&mut self.dead_letters);
        self.dead_letters_told_at = Some(now);
        let since = last.map_or("null".to_owned(), quoted);
        news(
            OperationalType::DeadLetters,
            format!(r#"{{"count":{count},"since":{since}}}"#),
        )
    }
}

fn news(event_type: OperationalType, details: String) -> Option<News> {
    Some(News {
        event_type,
        details,
    })
}

fn quoted(at: Timestamp) -> String {
    format!("\"{}\"", rfc3339(at))
}

#[cfg(test)]
mod tests;

//! Where destinations stand: one line of the overview for each.

use std::collections::HashMap;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::explain::{Explanation, Reason, drains_in, explain};
use domain::health::{DisableReason, Lately};
use domain::ids::{DestinationId, TenantId};
use domain::limit::Period;
use domain::policy::{Policy, Rate};
use domain::time::Timestamp;
use engine::ports::{
    Answered, Destination, Fleet, GLANCE_RATE, Glance, HealthView, OfTenant, Outcomes, Surveyed,
};

use super::Pages;
use super::refused::Refused;
use super::words::{self, NONE};

/// What comes sooner is here before it is read.
const SOON: Duration = Duration::from_secs(1);

/// How far a backlog is counted.
const COUNTED: u32 = 100_000;

/// One line, in words.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// When it stood so, by the store's clock.
    pub(super) at: Timestamp,
    pub(super) id: DestinationId,
    pub(super) name: String,
    /// Its tenant's name; empty where all on the page are one tenant's.
    pub(super) tenant: String,
    pub(super) url: String,
    /// `good`, `idle`, `warn` or `bad`.
    pub(super) tone: &'static str,
    pub(super) state: String,
    pub(super) limit: String,
    /// By how much its shortest window is planned longer, and why so much.
    pub(super) margin: String,
    pub(super) rate: String,
    /// Of the limit, in percent; `None` where nothing limits.
    pub(super) share: Option<u32>,
    pub(super) backlog: String,
    pub(super) drains: String,
    /// Why nobody knows, in a sentence; empty where somebody does.
    pub(super) drain_unknown: String,
    /// Of the requests of the last minutes, and of how many that is.
    pub(super) failed: String,
    pub(super) failed_of: String,
    /// Of those of the last hour, and of the last day.
    pub(super) failed_hour: String,
    pub(super) failed_day: String,
    /// When the last one failed, and how.
    pub(super) last_failure: String,
    pub(super) refused: String,
    pub(super) median: String,
    pub(super) slow: String,
    /// Why the next attempt is not going out now, and when it will.
    pub(super) why: String,
}

impl Standing {
    /// What changes, by the suffix of its name on the page.
    pub(super) fn live(&self) -> [(&'static str, String); 16] {
        let share = self
            .share
            .map_or(NONE.to_owned(), |share| format!("{share} %"));
        [
            ("state", self.state.clone()),
            ("margin", self.margin.clone()),
            ("rate", self.rate.clone()),
            ("share", share),
            ("backlog", self.backlog.clone()),
            ("drains", self.drains.clone()),
            ("drain-unknown", self.drain_unknown.clone()),
            ("failed", self.failed.clone()),
            ("failed-of", self.failed_of.clone()),
            ("failed-hour", self.failed_hour.clone()),
            ("failed-day", self.failed_day.clone()),
            ("last-failure", self.last_failure.clone()),
            ("refused", self.refused.clone()),
            ("median", self.median.clone()),
            ("slow", self.slow.clone()),
            ("why", self.why.clone()),
        ]
    }
}

/// Where these stand now, in their order.
pub(super) async fn of(
    pages: &Pages,
    tenant: TenantId,
    destinations: Vec<Destination>,
) -> Result<Vec<Standing>, Refused> {
    if destinations.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<_> = destinations.iter().map(|one| one.id).collect();
    let health = async { Ok(pages.0.catalog.health(tenant, &ids).await?) };
    with_health(pages, destinations, health).await
}

/// The same of several tenants' destinations, each with its tenant's name.
pub(super) async fn of_all(pages: &Pages, found: Vec<OfTenant>) -> Result<Vec<Standing>, Refused> {
    let names: Vec<_> = found.iter().map(|one| one.tenant_name.clone()).collect();
    let of_each = found.into_iter().map(|one| (one.destination, one.health));
    let (destinations, health) = of_each.unzip();
    let standings = of_several(pages, destinations, health).await?;
    let named = standings.into_iter().zip(names);
    let named = named.map(|(standing, tenant)| Standing { tenant, ..standing });
    Ok(named.collect())
}

/// The same without those names.
pub(super) async fn of_several(
    pages: &Pages,
    destinations: Vec<Destination>,
    health: Vec<HealthView>,
) -> Result<Vec<Standing>, Refused> {
    match destinations.is_empty() {
        true => Ok(Vec::new()),
        false => with_health(pages, destinations, async { Ok(health) }).await,
    }
}

async fn with_health(
    pages: &Pages,
    destinations: Vec<Destination>,
    health: impl Future<Output = Result<Vec<HealthView>, Refused>>,
) -> Result<Vec<Standing>, Refused> {
    let ids: Vec<_> = destinations.iter().map(|one| one.id).collect();
    let parts = &pages.0;
    // One after the other: whoever has a place among those who read has one connection.
    let fleet = parts.store.fleet().await?;
    let surveyed = parts.survey.survey_standings(&ids).await?;
    let glances = parts.overview.glance(&ids).await?;
    let outcomes = parts.tallies.outcomes(&ids).await?;
    let backlogs = parts.catalog.backlogs(&ids, COUNTED).await?;
    let health = health.await?;
    let surveyed: HashMap<_, _> = (surveyed.into_iter())
        .map(|one| (one.destination, one))
        .collect();
    let health: HashMap<_, _> = health
        .into_iter()
        .map(|one| (one.destination, one))
        .collect();
    let known = (destinations.into_iter().zip(glances))
        .zip(outcomes)
        .zip(backlogs);
    let standing = known.map(|(((destination, glance), outcomes), backlog)| {
        let seen = Seen {
            surveyed: surveyed.get(&destination.id),
            health: health.get(&destination.id),
            lately: glance.lately(),
            glance,
            outcomes,
            backlog,
            fleet: &fleet,
        };
        seen.standing(destination)
    });
    Ok(standing.collect())
}

struct Seen<'a> {
    surveyed: Option<&'a Surveyed>,
    health: Option<&'a HealthView>,
    glance: Glance,
    lately: Lately,
    outcomes: Outcomes,
    backlog: u32,
    fleet: &'a Fleet,
}

impl Seen<'_> {
    fn standing(self, destination: Destination) -> Standing {
        let now = self.fleet.now;
        let rate = f64::from(self.glance.starts) / GLANCE_RATE.as_secs_f64();
        let circumstances =
            (self.surveyed).map(|one| one.circumstances(destination.state, self.fleet, None));
        let measured = self.glance.measured();
        let drains = (circumstances.as_ref()).map(|one| drains_in(one, &measured, self.backlog));
        let explanation = circumstances.as_ref().map(explain);
        let (tone, state) = self.state(explanation.as_ref());
        let [median, slow] = latencies(&self.glance.answers);
        Standing {
            at: now,
            tone,
            state,
            limit: match &destination.limit_group {
                None => words::limits(&destination.effective),
                Some(group) => format!("{}, group {group}", words::limits(&destination.effective)),
            },
            margin: margin(&destination.policy()),
            rate: format!("{rate:.1}/s"),
            share: self
                .surveyed
                .and_then(|one| share(one, self.glance.starts, now)),
            backlog: words::count(self.backlog, COUNTED),
            drains: match (self.backlog, drains) {
                (0, _) => NONE.to_owned(),
                (_, Some(Ok(time))) => words::span(time),
                (_, _) => "unknown".to_owned(),
            },
            drain_unknown: match drains {
                Some(Err(why)) => {
                    format!("How long the backlog takes is unknown: {}.", why.words())
                }
                _ => String::new(),
            },
            failed: failed(self.lately.failed_percent()),
            failed_of: failed_of(&self.lately),
            failed_hour: failed(self.outcomes.hour.failed_percent()),
            failed_day: failed(self.outcomes.day.failed_percent()),
            last_failure: (self.last_failure())
                .map_or(NONE.to_owned(), |(how, ago)| format!("{how}, {ago} ago")),
            refused: refused(&self.glance.answers),
            median,
            slow,
            why: explanation.map_or(String::new(), |found| self.why(found)),
            id: destination.id,
            name: destination.called().to_owned(),
            tenant: String::new(),
            url: destination.url,
        }
    }

    /// What is to be said first, by what is explained.
    fn state(&self, explanation: Option<&Explanation>) -> (&'static str, String) {
        let Some(Explanation {
            reason, next_at, ..
        }) = explanation
        else {
            return ("idle", "idle".to_owned());
        };
        let fails = |view: &&HealthView| {
            (self.lately).is_failing(view.health.failures, view.failing_percent)
        };
        if is_sending(*reason)
            && let Some(view) = self.health.filter(fails)
        {
            return ("bad", self.failing(view.health.failures));
        }
        let label = reason.label();
        let next = next_at.map(|at| words::span(at.since(self.fleet.now)));
        match reason {
            Reason::NoWork if self.glance.starts == 0 => ("idle", "idle".to_owned()),
            Reason::NoWork | Reason::Now | Reason::Permitted | Reason::Window | Reason::Spacing => {
                ("good", label.to_owned())
            }
            Reason::Disabled => match self.health.and_then(|view| view.health.disabled) {
                Some(DisableReason::Gone) => ("bad", format!("{label}: gone")),
                Some(DisableReason::Failing) => ("bad", format!("{label}: failing")),
                None => ("bad", label.to_owned()),
            },
            Reason::Breaker | Reason::Probe | Reason::NoToken | Reason::NoWorkers => {
                ("bad", label.to_owned())
            }
            Reason::Backoff => {
                let count = words::count(self.backlog, COUNTED);
                let next = next.map_or(String::new(), |next| format!(", the next in {next}"));
                ("warn", format!("{count} {label}{next}"))
            }
            Reason::Asked | Reason::Refused => {
                let next = next.map_or(String::new(), |next| format!(", for {next}"));
                ("warn", format!("{label}{next}"))
            }
            _ => ("warn", label.to_owned()),
        }
    }

    /// The sentence, and how long it is until the time that it names.
    fn why(&self, found: Explanation) -> String {
        let wait = found.next_at.map(|at| at.since(self.fleet.now));
        match wait.filter(|wait| *wait >= SOON) {
            Some(wait) => format!("{} That is in {}.", found.words, words::span(wait)),
            None => found.words,
        }
    }

    /// `failing: 13 of 13, last 500 12 s ago`.
    fn failing(&self, in_a_row: u32) -> String {
        let Lately {
            failed, answered, ..
        } = self.lately;
        let many = match answered {
            0 => format!("the last {in_a_row} in a row"),
            _ => format!("{failed} of {answered}"),
        };
        let last = self.last_failure();
        let last = last.map_or(String::new(), |(how, ago)| {
            format!(", last {how} {ago} ago")
        });
        format!("failing: {many}{last}")
    }

    /// How the last request that failed did so, and how long ago it started.
    fn last_failure(&self) -> Option<(String, String)> {
        let (at, status) = self.lately.last_failure.max(self.outcomes.last_failure)?;
        let how = status.map_or("without an answer".to_owned(), |status| status.to_string());
        Some((how, words::span(self.fleet.now.since(at))))
    }
}

/// Whether what comes of its requests says more than why the next one waits.
const fn is_sending(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NoWork
            | Reason::Now
            | Reason::Permitted
            | Reason::Backoff
            | Reason::Window
            | Reason::Group
            | Reason::Spacing
            | Reason::Smart
            | Reason::Concurrency
    )
}

fn failed(percent: Option<f64>) -> String {
    percent.map_or(NONE.to_owned(), words::percent)
}

/// `100 % of 13`.
fn failed_of(lately: &Lately) -> String {
    lately.failed_percent().map_or(NONE.to_owned(), |percent| {
        format!("{} of {}", words::percent(percent), lately.answered)
    })
}

/// `4 ms, measured`.
fn margin(policy: &Policy) -> String {
    match policy.margin_in_force() {
        Some(margin) => format!("{}, {}", words::latency(margin), policy.margin),
        None => NONE.to_owned(),
    }
}

/// Which part of the limit that binds most is used, in percent: a second's by
/// the rate of [`GLANCE_RATE`], longer ones by what is in their window.
fn share(one: &Surveyed, starts: u32, now: Timestamp) -> Option<u32> {
    let Rate::Limited(limited) = &one.policy.rate else {
        return None;
    };
    let refill = limited.pacing.map(|pacing| pacing.refill);
    let used = limited.windows.iter().copied().chain(refill).map(|limit| {
        let most = f64::from(limit.max.get());
        if limit.period == Period::Second || refill == Some(limit) {
            return f64::from(starts) / GLANCE_RATE.as_secs_f64() / limit.per_second();
        }
        let since = now - one.policy.stretched(limit);
        let counted = (one.usage.coarse.iter()).find(|coarse| coarse.period == limit.period);
        let within = |at: &&Timestamp| **at > since;
        let started = match counted {
            Some(coarse) => {
                let folded = coarse
                    .buckets
                    .iter()
                    .filter(|bucket| bucket.ends_at > since);
                let folded: u32 = folded.map(|bucket| bucket.starts).sum();
                folded as usize + coarse.unfolded.iter().filter(within).count()
            }
            None => one.usage.starts.iter().filter(within).count(),
        };
        started as f64 / most
    });
    let most = used.fold(0.0, f64::max);
    Some((most * 100.0).round().min(100.0) as u32)
}

fn refused(answers: &[Answered]) -> String {
    let refused = answers.iter().filter(|one| one.status == Some(429)).count();
    match answers.len() {
        0 => NONE.to_owned(),
        all => format!("{:.1} %", refused as f64 * 100.0 / all as f64),
    }
}

/// The median and the 99th percentile, from start to outcome.
fn latencies(answers: &[Answered]) -> [String; 2] {
    // Where no connection was made there was no answer to wait for.
    let answered = |one: &&Answered| {
        one.status.is_some() && matches!(one.state, AttemptState::Succeeded | AttemptState::Failed)
    };
    let mut times: Vec<_> = answers
        .iter()
        .filter(answered)
        .map(|one| one.latency)
        .collect();
    times.sort_unstable();
    [50, 99].map(|percent| {
        let time = times.get(times.len() * percent / 100);
        time.map_or(NONE.to_owned(), |time| words::latency(*time))
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use domain::health::{BreakerSettings, FAILING_PERCENT, Health, Tally};

    use super::*;

    const WELL: HealthView = HealthView {
        destination: DestinationId(Uuid::nil()),
        now: Timestamp::from_micros(0),
        health: Health {
            failures: 0,
            failing_since: None,
            last_failed_at: None,
            refusals: 0,
            hold: None,
            opened_at: None,
            probes: 0,
            disabled: None,
        },
        settings: BreakerSettings {
            failures: 20,
            failing_for: Duration::from_secs(5),
            disable_after: Duration::from_secs(86_400),
        },
        failing_percent: FAILING_PERCENT,
    };

    fn nothing_sent() -> Glance {
        Glance {
            destination: DestinationId(Uuid::nil()),
            starts: 0,
            answers: Vec::new(),
        }
    }

    fn looked_at(fleet: &Fleet, backlog: u32) -> Seen<'_> {
        Seen {
            surveyed: None,
            health: None,
            glance: nothing_sent(),
            lately: Lately::default(),
            outcomes: Outcomes {
                destination: DestinationId(Uuid::nil()),
                hour: Tally::default(),
                day: Tally::default(),
                last_failure: None,
            },
            backlog,
            fleet,
        }
    }

    /// What is said of a destination with this backlog, where this is explained.
    fn said(reason: Reason, next: Option<Duration>, backlog: u32) -> (&'static str, String) {
        let fleet = Fleet::default();
        let seen = looked_at(&fleet, backlog);
        let next_at = next.map(|next| fleet.now + next);
        let words = String::new();
        seen.state(Some(&Explanation {
            reason,
            next_at,
            words,
        }))
    }

    #[test]
    fn a_destination_is_at_its_limit_only_where_a_limit_binds() {
        for reason in Reason::ALL {
            let (tone, state) = said(reason, Some(Duration::from_secs(3)), 7);
            let binds = matches!(reason, Reason::Window | Reason::Spacing);
            assert_eq!(state == "at its limit", binds, "{reason:?}: {state}");
            let is_calm = matches!(
                reason,
                Reason::Window | Reason::Spacing | Reason::Now | Reason::Permitted
            );
            assert_eq!(tone == "good", is_calm, "{reason:?}: {tone}");
        }
    }

    #[test]
    fn a_destination_that_fails_is_not_green() {
        let answered = |state, status| Answered {
            started_at: Timestamp::from_millis(0),
            state,
            status: Some(status),
            latency: Duration::from_millis(3),
        };
        let failed = answered(AttemptState::Failed, 500);
        let mut all = vec![failed; 13];
        let state = |answers: &[Answered]| {
            let fleet = Fleet {
                now: Timestamp::from_millis(12_000),
                ..Fleet::default()
            };
            let seen = Seen {
                lately: lately_of(answers),
                health: Some(&WELL),
                ..looked_at(&fleet, 1)
            };
            let words = String::new();
            seen.state(Some(&Explanation {
                reason: Reason::Window,
                next_at: None,
                words,
            }))
        };
        let said = ("bad", "failing: 13 of 13, last 500 12 s ago".to_owned());
        assert_eq!(state(&all), said);
        all.extend([answered(AttemptState::Succeeded, 204); 14]);
        assert_eq!(state(&all), ("good", "at its limit".to_owned()));
        // A receiver that answers 429 works.
        let busy = [answered(AttemptState::Failed, 429); 5];
        assert_eq!(state(&busy).0, "good");
        assert_eq!(failed_share(&all), "48 % of 27");
        assert_eq!(failed_share(&[]), NONE);
    }

    #[test]
    fn what_was_never_connected_to_has_no_latency() {
        let unreachable = Answered {
            started_at: Timestamp::from_millis(0),
            state: AttemptState::Failed,
            status: None,
            latency: Duration::from_micros(10),
        };
        assert_eq!(latencies(&[unreachable]), [NONE, NONE]);
    }

    fn lately_of(answers: &[Answered]) -> Lately {
        let glance = Glance {
            answers: answers.to_vec(),
            ..nothing_sent()
        };
        glance.lately()
    }

    fn failed_share(answers: &[Answered]) -> String {
        failed_of(&lately_of(answers))
    }

    #[test]
    fn what_is_to_be_retried_says_how_many_and_when() {
        let in_45_minutes = Some(Duration::from_secs(44 * 60 + 50));
        let (_, state) = said(Reason::Backoff, in_45_minutes, 1);
        assert_eq!(state, "1 to be retried, the next in 44 min 50 s");
        let (_, state) = said(Reason::Asked, Some(Duration::from_secs(9)), 1);
        assert_eq!(state, "held: the receiver asked to wait, for 9 s");
    }
}

//! Where destinations stand: one line of the overview for each.

use std::collections::HashMap;

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::explain::{Circumstances, Explanation, drains_in, explain};
use domain::health::DisableReason;
use domain::ids::{DestinationId, TenantId};
use domain::limit::Period;
use domain::policy::Rate;
use domain::time::Timestamp;
use domain::watch::{Shortfall, shortfall};
use engine::ports::{
    Answered, Destination, Fleet, GLANCE_RATE, Glance, HealthView, Surveyed, around,
};

use super::Pages;
use super::refused::Refused;
use super::words::{self, NONE};

/// How far a backlog is counted.
const COUNTED: u32 = 100_000;

/// One line, in words.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) id: DestinationId,
    pub(super) name: String,
    pub(super) url: String,
    /// `good`, `idle`, `warn` or `bad`.
    pub(super) tone: &'static str,
    pub(super) state: String,
    pub(super) limit: String,
    pub(super) rate: String,
    /// Of the limit, in percent; `None` where nothing limits.
    pub(super) share: Option<u32>,
    pub(super) backlog: String,
    pub(super) drains: String,
    pub(super) refused: String,
    pub(super) median: String,
    pub(super) slow: String,
    /// Why the next attempt is not going out now, and when it will.
    pub(super) why: String,
}

impl Standing {
    /// What changes, by the suffix of its name on the page.
    pub(super) fn live(&self) -> [(&'static str, String); 9] {
        let share = self
            .share
            .map_or(NONE.to_owned(), |share| format!("{share} %"));
        [
            ("state", self.state.clone()),
            ("rate", self.rate.clone()),
            ("share", share),
            ("backlog", self.backlog.clone()),
            ("drains", self.drains.clone()),
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
    let parts = &pages.0;
    let (fleet, surveyed, glances, backlogs, health) = tokio::try_join!(
        async { Ok::<_, Refused>(parts.store.fleet().await?) },
        async { Ok(parts.survey.survey_standings(&ids).await?) },
        async { Ok(parts.overview.glance(&ids).await?) },
        async { Ok(parts.catalog.backlogs(&ids, COUNTED).await?) },
        async { Ok(parts.catalog.health(tenant, &ids).await?) },
    )?;
    let surveyed: HashMap<_, _> = (surveyed.into_iter())
        .map(|one| (one.destination, one))
        .collect();
    let health: HashMap<_, _> = health
        .into_iter()
        .map(|one| (one.destination, one))
        .collect();
    let known = destinations.into_iter().zip(glances).zip(backlogs);
    let standing = known.map(|((destination, glance), backlog)| {
        let seen = Seen {
            surveyed: surveyed.get(&destination.id),
            health: health.get(&destination.id),
            glance,
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
    backlog: u32,
    fleet: &'a Fleet,
}

impl Seen<'_> {
    fn standing(self, destination: Destination) -> Standing {
        let now = self.fleet.now;
        let rate = f64::from(self.glance.starts) / GLANCE_RATE.as_secs_f64();
        let drains = self
            .surveyed
            .and_then(|one| drains_in(&one.policy, &one.usage, self.backlog, now));
        let (tone, state) = self.state(&destination);
        let [median, slow] = latencies(&self.glance.answers);
        Standing {
            tone,
            state,
            limit: words::limits(&destination.effective),
            rate: format!("{rate:.1}/s"),
            share: self
                .surveyed
                .and_then(|one| share(one, self.glance.starts, now)),
            backlog: words::count(self.backlog, COUNTED),
            drains: match (self.backlog, drains) {
                (0, _) => NONE.to_owned(),
                (_, Some(time)) => words::span(time),
                (_, None) => "unknown".to_owned(),
            },
            refused: refused(&self.glance.answers),
            median,
            slow,
            why: self
                .explanation(&destination)
                .map_or(String::new(), |found| found.words),
            id: destination.id,
            name: match destination.name.is_empty() {
                true => destination.url.clone(),
                false => destination.name,
            },
            url: destination.url,
        }
    }

    fn explanation(&self, destination: &Destination) -> Option<Explanation> {
        let one = self.surveyed?;
        Some(explain(&Circumstances {
            state: destination.state,
            policy: &one.policy,
            usage: &one.usage,
            backlog: &one.backlog,
            around: self.around(one),
            workers: self.fleet.workers,
            now: self.fleet.now,
        }))
    }

    fn around(&self, one: &Surveyed) -> domain::watch::Around {
        let tenant = (one.tenant, one.tenant_max_in_flight);
        around(self.fleet, (one.held_for, None), tenant)
    }

    /// What is to be said first.
    fn state(&self, destination: &Destination) -> (&'static str, String) {
        let (now, health) = (self.fleet.now, self.health.map(|view| view.health));
        let bad = |words: &str| ("bad", words.to_owned());
        match destination.state {
            DestinationState::Disabled => {
                return match health.and_then(|health| health.disabled) {
                    Some(DisableReason::Gone) => bad("disabled: gone"),
                    Some(DisableReason::Failing) => bad("disabled: failing"),
                    None => bad("disabled"),
                };
            }
            DestinationState::Paused => return ("warn", "paused".to_owned()),
            DestinationState::Active => {}
        }
        if health.is_some_and(|health| health.opened_at.is_some()) {
            return bad("breaker open");
        }
        let Some(one) = self.surveyed else {
            return ("idle", "idle".to_owned());
        };
        if let Some(until) = one.usage.held_until.filter(|until| *until > now) {
            return (
                "warn",
                format!("held for {}", words::span(until.since(now))),
            );
        }
        if one.policy.rate == Rate::Paused {
            return ("warn", "paused: limit 0".to_owned());
        }
        if let Some(short) = shortfall(&one.policy, &one.usage, &one.backlog, self.around(one), now)
            && self.backlog > 0
        {
            return ("warn", format!("slow: {}", shortfall_words(short)));
        }
        match (self.backlog, self.glance.starts) {
            (0, 0) => ("idle", "idle".to_owned()),
            (0, _) => ("good", "up to date".to_owned()),
            _ => ("good", "at its limit".to_owned()),
        }
    }
}

const fn shortfall_words(short: Shortfall) -> &'static str {
    match short {
        Shortfall::Asked => "receiver asked to wait",
        Shortfall::Refused => "receiver answers 429",
        Shortfall::Breaker => "breaker",
        Shortfall::Concurrency => "all places in flight",
        Shortfall::Tenant => "tenant's places in flight",
        Shortfall::Places => "workers are full",
        Shortfall::Smart => "smart delivery",
        Shortfall::Unclaimed => "permits unclaimed",
        Shortfall::Unscheduled => "not scheduled yet",
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
        let since = now - one.policy.stretched(limit.period);
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
    let answered =
        |one: &&Answered| matches!(one.state, AttemptState::Succeeded | AttemptState::Failed);
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

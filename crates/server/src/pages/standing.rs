//! Where destinations stand: one line of the overview for each.

use std::collections::HashMap;

use domain::attempt::AttemptState;
use domain::explain::{Circumstances, Explanation, Reason, drains_in, explain};
use domain::health::DisableReason;
use domain::ids::{DestinationId, TenantId};
use domain::limit::Period;
use domain::policy::Rate;
use domain::time::Timestamp;
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
        let circumstances = self.circumstances(&destination);
        let drains = (circumstances.as_ref()).and_then(|one| drains_in(one, self.backlog));
        let explanation = circumstances.as_ref().map(explain);
        let (tone, state) = self.state(explanation.as_ref());
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
            why: explanation.map_or(String::new(), |found| found.words),
            id: destination.id,
            name: match destination.name.is_empty() {
                true => destination.url.clone(),
                false => destination.name,
            },
            url: destination.url,
        }
    }

    fn circumstances(&self, destination: &Destination) -> Option<Circumstances<'_>> {
        let one = self.surveyed?;
        let tenant = (one.tenant, one.tenant_max_in_flight);
        Some(Circumstances {
            state: destination.state,
            policy: &one.policy,
            usage: &one.usage,
            backlog: &one.backlog,
            around: around(self.fleet, (one.held_for, None), tenant),
            workers: self.fleet.workers,
            now: self.fleet.now,
        })
    }

    /// What is to be said first, by what is explained.
    fn state(&self, explanation: Option<&Explanation>) -> (&'static str, String) {
        let Some(Explanation {
            reason, next_at, ..
        }) = explanation
        else {
            return ("idle", "idle".to_owned());
        };
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
            Reason::Breaker | Reason::Probe | Reason::NoWorkers => ("bad", label.to_owned()),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    /// What is said of a destination with this backlog, where this is explained.
    fn said(reason: Reason, next: Option<Duration>, backlog: u32) -> (&'static str, String) {
        let fleet = Fleet::default();
        let seen = Seen {
            surveyed: None,
            health: None,
            glance: Glance {
                destination: DestinationId(Uuid::nil()),
                starts: 0,
                answers: Vec::new(),
            },
            backlog,
            fleet: &fleet,
        };
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
    fn what_is_to_be_retried_says_how_many_and_when() {
        let in_45_minutes = Some(Duration::from_secs(44 * 60 + 50));
        let (_, state) = said(Reason::Backoff, in_45_minutes, 1);
        assert_eq!(state, "1 to be retried, the next in 44 min 50 s");
        let (_, state) = said(Reason::Asked, Some(Duration::from_secs(9)), 1);
        assert_eq!(state, "held: the receiver asked to wait, for 9 s");
    }
}

//! The end of a round: a closer look at the destinations that are shown.

use std::collections::HashMap;
use std::time::Duration;

use domain::admission::known_until;
use domain::compliance::{InForce, Start, judge_sends};
use domain::destination::DestinationState;
use domain::explain::{Measured, drains_in};
use domain::health::{LATELY, Lately};
use domain::ids::DestinationId;
use domain::time::Timestamp;
use domain::watch::{shortfall, tokens};

use super::round::Round;
use super::{MAX_GLANCED, NotSurveyed, Picture, Shown, SurveyLoop};
use crate::ports::{
    Fleet, GLANCE_RATE, GLANCE_SAMPLE, LedgerPosition, LedgerRow, MAX_SURVEYED, Surveyed,
};

/// Starts of one destination that are judged in a round, about.
const JUDGED: f64 = 1_000.0;

/// They are judged over so long at least and at most: more than two rounds, and
/// the longest period with an hour to spare.
const SPAN_SECONDS: (f64, f64) = (30.0, 90_000.0);

/// By what was in force so long ago and since: the longest of those spans, and the
/// longest window before it, with the largest safety margin.
const JUDGED_BY: Duration = Duration::from_secs(90_000 + 2 * 86_400);

/// Changes of limits that are read, the newest: what started before them is not
/// judged.
const MAX_CHANGES: u32 = 1_000;

/// Rows of a ledger that are read at once.
const PAGE: u32 = 1_000;

/// Pages of one ledger in a round, at most.
const PAGES: u32 = 5;

impl SurveyLoop {
    pub(super) async fn look(&self, round: &Round) -> Result<Picture, NotSurveyed> {
        let fleet = self.store.fleet().await?;
        let troubles = self.survey.survey_troubles().await?;
        let mut ids = round.shown(&self.options.asked);
        ids.truncate(MAX_SURVEYED);
        let surveyed = match ids.is_empty() {
            true => Vec::new(),
            false => self.survey.survey_standings(&ids).await?,
        };
        let ids: Vec<_> = surveyed.iter().map(|one| one.destination).collect();
        let counted = self.catalog.backlogs(&ids, self.options.counted).await?;
        let mut outcomes = HashMap::new();
        if let Some(tallies) = &self.tallies {
            for some in ids.chunks(MAX_GLANCED) {
                let found = tallies.outcomes(some).await?;
                outcomes.extend(found.into_iter().map(|one| (one.destination, one)));
            }
        }
        let oldest = round.oldest();
        let mut shown = Vec::new();
        for (one, backlog) in surveyed.iter().zip(counted) {
            let oldest = oldest.get(&one.destination).copied().flatten();
            let mut found = self.show(one, (backlog, oldest), &fleet).await?;
            found.outcomes = outcomes.remove(&one.destination);
            shown.push(found);
        }
        Ok(Picture {
            now: fleet.now,
            troubles,
            destinations: round.destinations,
            backlog: round.backlog,
            others: round.others,
            oldest: waited(round.oldest, fleet.now),
            shown,
            fleet,
        })
    }

    async fn show(
        &self,
        one: &Surveyed,
        (backlog, oldest): (u32, Option<Timestamp>),
        fleet: &Fleet,
    ) -> Result<Shown, NotSurveyed> {
        let now = fleet.now;
        let history = (self.catalog)
            .limits_within(one.destination, (now - JUDGED_BY, None), MAX_CHANGES)
            .await?;
        let set = history.last().map(|entry| entry.effective.policy());
        let allowed = set.as_ref().and_then(|policy| policy.starts_per_second());
        let in_force: Vec<InForce> = (history.iter())
            .map(|entry| InForce::new(entry.in_force_from, &entry.effective, entry.state))
            .collect();
        let rows = self.recent(one.destination, allowed, now).await?;
        let starts: Vec<Start> = (rows.iter())
            .filter_map(|row| Some((row.started_at?, row.attempt)))
            .collect();
        let verdict = judge_sends(&in_force, &starts);
        let early = (verdict.limits.iter().map(|limit| &limit.violations))
            .chain(&verdict.bucket)
            .chain([&verdict.pause]);
        Ok(Shown {
            destination: one.destination,
            tenant: one.tenant,
            backlog,
            oldest: waited(oldest, now),
            in_flight: one.usage.in_flight,
            configured: set.and_then(|policy| policy.configured_per_second()),
            effective: one.policy.starts_per_second(),
            margin: one.policy.margin_in_force(),
            tokens: tokens(&one.policy, &one.usage, now),
            // While it is paused, its policy is.
            drains_in: drains_in(
                &one.circumstances(DestinationState::Active, fleet, oldest),
                &measured(&rows, now),
                backlog,
            )
            .ok(),
            breaker_open: one.usage.probing,
            shortfall: shortfall(
                &one.policy,
                &one.usage,
                &one.backlog,
                one.around(fleet, oldest),
                now,
            ),
            lately: lately(&rows, now),
            outcomes: None,
            early_starts: early.map(|violations| violations.early_starts).sum(),
            lags: self.lags(&rows, now),
        })
    }

    /// The newest rows of a ledger that have started: about [`JUDGED`] at the
    /// limit's rate. What is left out makes a window emptier, never fuller.
    async fn recent(
        &self,
        destination: DestinationId,
        per_second: Option<f64>,
        until: Timestamp,
    ) -> Result<Vec<LedgerRow>, NotSurveyed> {
        let rate = per_second.unwrap_or(f64::MAX).max(f64::MIN_POSITIVE);
        let span = (JUDGED / rate).clamp(SPAN_SECONDS.0, SPAN_SECONDS.1);
        let since = until - Duration::from_secs_f64(span);
        let mut rows: Vec<LedgerRow> = Vec::new();
        let mut after = None;
        for _ in 0..PAGES {
            let page = self.catalog.ledger(destination, since, until, after, PAGE);
            let page = page.await?;
            let full = page.len() >= PAGE as usize;
            after = page.last().map(|last| LedgerPosition {
                started_at: last.started_at,
                attempt: last.attempt,
            });
            rows.extend(page.into_iter().filter(|row| row.started_at.is_some()));
            if !full || after.is_none_or(|last| last.started_at.is_none()) {
                break;
            }
        }
        Ok(rows)
    }

    /// How long what started since the last round had been due. Of what was claimed a
    /// moment ago it may not be known yet when it was sent: it is left to the next round.
    fn lags(&self, rows: &[LedgerRow], now: Timestamp) -> Vec<Duration> {
        let Some(last) = self.last else {
            return Vec::new();
        };
        (rows.iter())
            .filter_map(|row| Some((row.due_at, row.started_at?)))
            .filter(|(_, started_at)| (known_until(last)..known_until(now)).contains(started_at))
            .map(|(due_at, started_at)| started_at.since(due_at))
            .collect()
    }
}

fn lately(rows: &[LedgerRow], now: Timestamp) -> Lately {
    let since = now - LATELY;
    let outcome = |row: &LedgerRow| {
        row.finished_at?;
        Some((row.started_at?, row.state, row.status))
    };
    let outcomes = rows.iter().filter_map(outcome);
    Lately::of(outcomes.filter(|(started_at, ..)| *started_at > since))
}

/// What a glance measures, from the rows that were read: where these end before now,
/// for there are too many, up to where they end.
fn measured(rows: &[LedgerRow], now: Timestamp) -> Measured {
    let took = |row: &LedgerRow| Some(row.finished_at?.since(row.started_at?));
    let ended = (rows.iter().rev()).filter(|row| row.state.was_sent());
    let lately = now - LATELY;
    let ended = ended.filter(|row| row.started_at.is_some_and(|at| at > lately));
    let is_cut = rows.len() >= (PAGE * PAGES) as usize;
    let until = rows
        .last()
        .filter(|_| is_cut)
        .and_then(|row| row.started_at);
    let since = until.unwrap_or(now) - GLANCE_RATE;
    let started = rows.iter().filter(|row| row.started_at > Some(since));
    let starts = u32::try_from(started.count()).unwrap_or(u32::MAX);
    Measured::of(
        ended.filter_map(took).take(GLANCE_SAMPLE as usize),
        (starts, GLANCE_RATE),
    )
}

fn waited(oldest: Option<Timestamp>, now: Timestamp) -> Duration {
    oldest.map_or(Duration::ZERO, |since| now.since(since))
}

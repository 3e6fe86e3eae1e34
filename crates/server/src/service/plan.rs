//! What if: another limit, tried on what was recorded.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::admission::{Backlog, Usage};
use domain::destination::DestinationState;
use domain::explain::{Circumstances, Measured, Unknown, drains_in};
use domain::ids::{AttemptId, DestinationId};
use domain::margin::Spread;
use domain::policy::LimitSettings;
use domain::series::{Curve, Passage, Series};
use domain::time::Timestamp;
use domain::watch::Around;
use domain::what_if::{MAX_ARRIVALS, Receiver, Shared, Summary, arrivals, replay, summary};
use engine::ports::{Destination, LedgerPosition, LedgerRow, LimitGroup, Tier};

use super::limits::validate;
use super::{LimitsChange, Service, ServiceError, readings};

/// The longest time that is replayed.
pub const MAX_LAST: Duration = Duration::from_secs(7 * 86_400);

/// How long is replayed if nothing is said.
pub const DEFAULT_LAST: Duration = Duration::from_secs(6 * 3_600);

/// The most points of a curve.
pub const MAX_POINTS: usize = 300;

/// Rows read at once.
const PAGE: u32 = 10_000;

/// A limit that somebody thinks of, and how much of the past it is tried on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanDraft {
    /// What would be changed of the destination's settings.
    pub change: LimitsChange,
    /// The last so long.
    pub last: Duration,
}

/// What was, and what would have been.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What was replayed: `[since, until)`, by the store's clock; from the first
    /// arrival on, where that is later than asked.
    pub since: Timestamp,
    pub until: Timestamp,
    /// What is in force now, and what would be.
    pub current: LimitSettings,
    pub proposed: LimitSettings,
    /// How the recorded starts went. What already waited at `since` waits from
    /// then on.
    pub actual: Summary,
    /// How they would have gone.
    pub replayed: Summary,
    /// Starts that were answered 429.
    pub refused: u64,
    /// Those that would be; `None` where nobody knows.
    pub expected_refused: Option<u64>,
    /// How much the receiver takes, as far as it was seen.
    pub receiver: Receiver,
    /// How long after `until` the replay's last start was: zero if it kept up,
    /// `None` if it never drains.
    pub drains_in: Option<Duration>,
    /// How many wait now, and how long these take under what is proposed, if requests
    /// take as long as those that were recorded; or why nobody can say.
    pub backlog_now: u64,
    pub backlog_drains_in: Result<Duration, Unknown>,
    /// Both curves, slot by slot from `since` on; the same slots.
    pub actual_curve: Curve,
    pub replayed_curve: Curve,
}

impl Service {
    /// Replays what was recorded of a destination against limits that are
    /// proposed ([`domain::what_if`]). Changes nothing.
    pub async fn plan(
        &self,
        id: DestinationId,
        draft: PlanDraft,
        turn: &readings::Report,
    ) -> Result<Plan, ServiceError> {
        if draft.last.is_zero() || draft.last > MAX_LAST {
            return Err(ServiceError::invalid(
                "last_seconds",
                "must be between 1 s and 7 days",
            ));
        }
        let destination = self.reading.catalog.destination(self.tenant, id).await?;
        let proposed = proposed(&destination, &draft.change, &self.tier_limits().await?)?;
        let until = self.reading.store.fleet().await?.now;
        let since = until - draft.last;
        let recorded = self.recorded(id, (since, until), turn).await?;
        let group = self
            .shared(&destination, &recorded, (since, until), turn)
            .await?;
        let recorded: Vec<Passage> = recorded.into_iter().map(|(_, one)| one).collect();
        let limits = (destination.effective, proposed);
        let around = (destination.spread, group);
        let step = move || Plan::of(&recorded, limits, around, (since, until));
        // Seconds of arithmetic, for half a million arrivals.
        tokio::task::spawn_blocking(step)
            .await
            .map_err(|broken| ServiceError::Internal(broken.to_string()))
    }

    /// What the tenant's destinations inherit.
    async fn tier_limits(&self) -> Result<LimitSettings, ServiceError> {
        Ok(self
            .tier()
            .await?
            .map(|tier| tier.limits)
            .unwrap_or_default())
    }

    /// The tenant's tier; `None` if it has just gone.
    pub(super) async fn tier(&self) -> Result<Option<Tier>, ServiceError> {
        let tenant = self.tenants.tenant(self.tenant).await?;
        let tiers = self.tenants.tiers().await?;
        Ok(tiers.into_iter().find(|tier| tier.name == tenant.tier))
    }

    /// What started in a span or waits at its end; what already waited at its
    /// beginning is taken to have come then.
    async fn recorded(
        &self,
        id: DestinationId,
        (since, until): (Timestamp, Timestamp),
        turn: &readings::Report,
    ) -> Result<Vec<(AttemptId, Passage)>, ServiceError> {
        let mut recorded = Vec::new();
        let mut after = None;
        let catalog = &self.reading.catalog;
        loop {
            turn.goes_on()?;
            let page = catalog.ledger(id, since, until, after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(recorded);
            };
            after = Some(LedgerPosition {
                started_at: last.started_at,
                attempt: last.attempt,
            });
            let passage = |row: &LedgerRow| Passage {
                due_at: row.due_at.max(since),
                ..row.passage()
            };
            recorded.extend(page.iter().map(|row| (row.attempt, passage(row))));
            not_too_many(recorded.len())?;
        }
    }

    /// The destination's limit group, with what its other members started in a span.
    async fn shared(
        &self,
        destination: &Destination,
        own: &[(AttemptId, Passage)],
        within: (Timestamp, Timestamp),
        turn: &readings::Report,
    ) -> Result<Option<Shared>, ServiceError> {
        let Some(LimitGroup { name, limits, .. }) = self.group_of(destination).await? else {
            return Ok(None);
        };
        let own: HashSet<AttemptId> = own.iter().map(|(attempt, _)| *attempt).collect();
        let catalog = &self.reading.catalog;
        let (mut others, mut after) = (Vec::new(), None);
        loop {
            turn.goes_on()?;
            let page = catalog.limit_group_starts(self.tenant, &name, within, after, PAGE);
            let page = page.await?;
            let Some(last) = page.last() else {
                return Ok(Some(Shared { limits, others }));
            };
            after = Some(*last);
            let of_others = page.iter().filter(|(_, attempt)| !own.contains(attempt));
            others.extend(of_others.map(|(at, _)| *at));
            not_too_many(others.len())?;
        }
    }
}

fn not_too_many(attempts: usize) -> Result<(), ServiceError> {
    match attempts > MAX_ARRIVALS {
        true => Err(ServiceError::invalid(
            "last_seconds",
            format!("there are more than {MAX_ARRIVALS} attempts: ask for less time"),
        )),
        false => Ok(()),
    }
}

impl Plan {
    /// Pure: from what was recorded, the settings that are and would be in force, how much
    /// response times differ, and what its limit group leaves to it.
    #[must_use]
    pub fn of(
        recorded: &[Passage],
        (current, proposed): (LimitSettings, LimitSettings),
        (spread, group): (Option<Spread>, Option<Shared>),
        (since, until): (Timestamp, Timestamp),
    ) -> Self {
        // Of hours in which nothing came, nothing can be said, and a curve of them is
        // a flat line.
        let first = recorded.iter().map(|one| one.due_at).min();
        let since = first.map_or(since, |first| since.max(whole_second(first)));
        let policy = proposed.policy().measured(spread);
        let passages = replay(&policy, group.as_ref(), &arrivals(recorded), u32::MAX);
        let (actual, replayed) = (summary(recorded), summary(&passages));
        let receiver = Receiver::of(recorded);
        let last = passages.iter().filter_map(|one| one.started_at).max();
        let end = last.map_or(until, |last| until.max(last + Duration::from_micros(1)));
        let curve = |passages: &[Passage]| {
            let mut series = Series::new(since, end, MAX_POINTS);
            passages.iter().for_each(|one| series.add(one));
            series.finish()
        };
        let backlog = u32::try_from(actual.waiting).unwrap_or(u32::MAX);
        let usage = Usage {
            group: group.map(|group| Arc::new(group.of_others(until))),
            ..Usage::default()
        };
        // Places of the workers are taken not to be what it lacks.
        let measured = Measured::of(recorded.iter().filter_map(took), (0, Duration::ZERO));
        Self {
            since,
            until,
            current,
            proposed,
            refused: recorded.iter().filter(|one| one.refused).count() as u64,
            expected_refused: receiver.would_refuse(&passages),
            receiver,
            drains_in: match (replayed.waiting, last) {
                (0, Some(last)) => Some(last.since(until)),
                (0, None) => Some(Duration::ZERO),
                _ => None,
            },
            backlog_now: actual.waiting,
            backlog_drains_in: drains_in(
                &Circumstances {
                    state: DestinationState::Active,
                    policy: &policy,
                    usage: &usage,
                    backlog: &Backlog {
                        due: backlog,
                        urgent: 0,
                        next_due: None,
                    },
                    around: Around::default(),
                    no_token: None,
                    workers: 1,
                    now: until,
                },
                &measured,
                backlog,
            ),
            actual,
            replayed,
            actual_curve: curve(recorded),
            replayed_curve: curve(&passages),
        }
    }
}

fn took(one: &Passage) -> Option<Duration> {
    Some(one.finished_at?.since(one.started_at?))
}

/// The curve's slots are of the clock.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(
        at.as_micros()
            .div_euclid(1_000_000)
            .saturating_mul(1_000_000),
    )
}

/// The settings that would be in force: what its tier gives where it has none of
/// its own.
fn proposed(
    destination: &Destination,
    change: &LimitsChange,
    tier: &LimitSettings,
) -> Result<LimitSettings, ServiceError> {
    let own = change.applied_to(destination.limits);
    validate(&own)?;
    Ok(own.or_tier(tier))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six hours are asked for, and there are ten minutes.
    #[test]
    fn it_begins_with_what_was_recorded() {
        let at = |seconds: u64| Timestamp::from_millis(500) + Duration::from_secs(seconds);
        let (since, until, began) = (at(0), at(6 * 3_600), 21_000);
        let recorded: Vec<Passage> = (began..began + 600)
            .map(|second| Passage {
                due_at: at(second),
                started_at: Some(at(second)),
                finished_at: Some(at(second)),
                refused: false,
            })
            .collect();
        let ten = LimitSettings {
            per_second: Some(10),
            ..LimitSettings::default()
        };
        let plan = Plan::of(&recorded, (ten, ten), (None, None), (since, until));
        assert_eq!(
            plan.since,
            Timestamp::from_millis(0) + Duration::from_secs(began)
        );
        let sent_after = plan.actual.drained_at.unwrap().since(plan.since);
        assert_eq!(sent_after.as_secs(), 599);
        assert_eq!(
            plan.actual_curve.slots[0].due,
            u64::from(plan.actual_curve.step.as_secs() as u32)
        );
        // Of nothing it says nothing, of all that was asked for.
        assert_eq!(
            Plan::of(&[], (ten, ten), (None, None), (since, until)).since,
            since
        );
    }
}

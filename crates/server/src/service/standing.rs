//! Where a destination stands: what waits, how long that takes, and why the
//! next attempt is not going out now.

use std::collections::HashMap;
use std::time::Duration;

use domain::explain::{Explanation, Measured, Unknown, drains_in, explain};
use domain::health::Lately;
use domain::ids::DestinationId;
use domain::limit::Period;
use domain::time::Timestamp;
use engine::ports::{
    Destination, Fleet, Glance, MAX_GLANCED, MAX_SURVEYED, Outcomes, SurveyRules, Surveyed,
};
use uuid::Uuid;

use super::{Service, ServiceError, readings};

mod of_all;

pub use of_all::{StandingOfTenant, StandingsOfAll};

/// How far a backlog is counted: its first attempts, and its others.
pub const COUNTED: u32 = 100_000;

/// The most destinations on one page of standings: each costs as much as a run.
pub const MAX_STANDINGS: u32 = MAX_SURVEYED as u32;

/// How many waiting attempts one request counts: where backlogs are long, its page
/// is shorter.
const WALKED: u32 = 4 * COUNTED;

/// A page of standings.
#[derive(Debug, Clone, PartialEq)]
pub struct Standings {
    pub standings: Vec<Standing>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<DestinationId>,
}

/// Where one destination stands at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    pub destination: Destination,
    /// The store's clock.
    pub now: Timestamp,
    /// Why the next attempt is not going out now, and when it will.
    pub explanation: Explanation,
    /// How many attempts wait, counted up to [`COUNTED`].
    pub backlog: u32,
    /// Since when the first of what is due waits.
    pub oldest: Option<Timestamp>,
    /// How long the backlog takes to drain, if nothing else comes, or why nobody can
    /// say ([`drains_in`]).
    pub drains_in: Result<Duration, Unknown>,
    /// What came of its requests in the last minutes.
    pub lately: Lately,
    /// Whether it fails, by its threshold.
    pub failing: bool,
    /// What came of them in the last hour and day, and when the last one failed.
    pub outcomes: Outcomes,
    /// So many of its last requests failed, one after the other.
    pub failures_in_a_row: u32,
    /// Attempts that have started and have no outcome.
    pub in_flight: u32,
    /// Permits that may still start.
    pub permits: u32,
    /// Starts within the last second, as far as its limits look back.
    pub starts_in_last_second: u32,
    /// Starts per second that its shortest limit allows, as it is set; `None` for any
    /// number.
    pub configured_per_second: Option<f64>,
    /// And what all that is in force allows in the long run: 0 while paused, less under
    /// smart delivery.
    pub effective_per_second: Option<f64>,
    /// By how much the window of its shortest limit is planned longer than its period;
    /// `None` where it has no window.
    pub margin: Option<Duration>,
}

impl Service {
    /// Where one of the tenant's destinations stands, explained.
    pub async fn standing(&self, id: DestinationId) -> Result<Standing, ServiceError> {
        let destination = (self.reading.catalog).destination(self.tenant, id).await?;
        let found = self.stand(vec![destination], || Ok(())).await?;
        found
            .standings
            .into_iter()
            .next()
            .ok_or(ServiceError::NotFound("destination"))
    }

    /// A page of the tenant's destinations in id order, each with where it
    /// stands; at most [`MAX_STANDINGS`].
    pub async fn standings(
        &self,
        after: Option<DestinationId>,
        limit: u32,
        turn: &readings::Report,
    ) -> Result<Standings, ServiceError> {
        if !(1..=MAX_STANDINGS).contains(&limit) {
            let problem = format!("must be between 1 and {MAX_STANDINGS}");
            return Err(ServiceError::invalid("limit", problem));
        }
        let catalog = &self.reading.catalog;
        let page = catalog.destinations(self.tenant, after, limit).await?;
        let full = page.len() >= limit as usize;
        let last = page.last().filter(|_| full).map(|last| last.id);
        let mut found = self.stand(page, || turn.goes_on()).await?;
        found.next = found.next.or(last);
        Ok(found)
    }

    /// Of destinations that are known to be the tenant's.
    async fn stand(
        &self,
        destinations: Vec<Destination>,
        goes_on: impl Fn() -> Result<(), ServiceError>,
    ) -> Result<Standings, ServiceError> {
        let ids: Vec<_> = destinations.iter().map(|one| one.id).collect();
        let fleet = self.reading.store.fleet().await?;
        let surveyed = match ids.is_empty() {
            true => Vec::new(),
            false => self.reading.survey.survey_standings(&ids).await?,
        };
        let mut answered = self.answered(&ids).await?;
        let (mut standings, mut walked) = (Vec::new(), 0_u32);
        for destination in destinations {
            goes_on()?;
            // One that has just been deleted is left out.
            let of_it = |one: &&Surveyed| one.destination == destination.id;
            let Some(surveyed) = surveyed.iter().find(of_it) else {
                continue;
            };
            let waits = self.waits(destination.id).await?;
            let id = destination.id;
            // One that has just been deleted is left out here too.
            let Some(answered) = answered.remove(&id) else {
                continue;
            };
            standings.push(standing(destination, surveyed, waits, answered, &fleet));
            walked = walked.saturating_add(waits.backlog);
            if walked >= WALKED {
                let next = (ids.last() != Some(&id)).then_some(id);
                return Ok(Standings { standings, next });
            }
        }
        let next = None;
        Ok(Standings { standings, next })
    }

    /// What came of these destinations' requests.
    async fn answered(
        &self,
        ids: &[DestinationId],
    ) -> Result<HashMap<DestinationId, Answered>, ServiceError> {
        let (mut seen, mut outcomes) = (HashMap::new(), HashMap::new());
        for some in ids.chunks(MAX_GLANCED) {
            let glances = self.reading.overview.glance(some).await?;
            let of_it = |one: &Glance| (one.destination, (one.lately(), one.measured()));
            seen.extend(glances.iter().map(of_it));
            let found = self.reading.tallies.outcomes(some).await?;
            outcomes.extend(found.into_iter().map(|one| (one.destination, one)));
        }
        let health = self.reading.catalog.health(self.tenant, ids).await?;
        let answered = health.into_iter().filter_map(|view| {
            let id = view.destination;
            let (lately, measured) = seen.remove(&id)?;
            let answered = Answered {
                lately,
                measured,
                outcomes: outcomes.remove(&id)?,
                in_a_row: view.health.failures,
                failing_percent: view.failing_percent,
            };
            Some((id, answered))
        });
        Ok(answered.collect())
    }

    /// How many attempts of one destination wait, and since when.
    async fn waits(&self, id: DestinationId) -> Result<Waits, ServiceError> {
        // The walk begins after an id; the one before this is nobody's.
        let before = DestinationId(Uuid::from_u128(id.0.as_u128().saturating_sub(1)));
        let rules = SurveyRules {
            page: 1,
            far: COUNTED,
        };
        let page = (self.reading.survey)
            .survey_backlogs(Some(before), &rules)
            .await?;
        let found = page.backlogs.iter().find(|one| one.destination == id);
        Ok(found.map_or(Waits::default(), |one| Waits {
            backlog: one.waiting().min(COUNTED),
            oldest: one.oldest,
        }))
    }
}

/// What came of a destination's requests.
#[derive(Debug, Clone, Copy)]
struct Answered {
    lately: Lately,
    measured: Measured,
    outcomes: Outcomes,
    in_a_row: u32,
    failing_percent: u32,
}

/// What waits at a destination.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    backlog: u32,
    oldest: Option<Timestamp>,
}

fn standing(
    destination: Destination,
    surveyed: &Surveyed,
    waits: Waits,
    answered: Answered,
    fleet: &Fleet,
) -> Standing {
    let now = fleet.now;
    let (policy, usage) = (&surveyed.policy, &surveyed.usage);
    let circumstances = surveyed.circumstances(destination.state, fleet, waits.oldest);
    let second = now - Period::Second.duration();
    // Of a bucket, and of what is unlimited, only the claims are read.
    let within = |times: &[Timestamp]| times.iter().filter(|at| **at > second).count();
    let started = within(&usage.starts).max(within(&usage.claims));
    Standing {
        explanation: explain(&circumstances),
        backlog: waits.backlog,
        oldest: waits.oldest,
        drains_in: drains_in(&circumstances, &answered.measured, waits.backlog),
        failing: (answered.lately).is_failing(answered.in_a_row, answered.failing_percent),
        lately: answered.lately,
        outcomes: answered.outcomes,
        failures_in_a_row: answered.in_a_row,
        in_flight: usage.in_flight,
        permits: u32::try_from(usage.outstanding.len()).unwrap_or(u32::MAX),
        starts_in_last_second: u32::try_from(started).unwrap_or(u32::MAX),
        configured_per_second: destination.effective.policy().configured_per_second(),
        effective_per_second: policy.starts_per_second(),
        margin: policy.margin_in_force(),
        destination,
        now,
    }
}

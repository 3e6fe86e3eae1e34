//! Where the destinations of all tenants stand: for operators.

use std::collections::HashMap;

use engine::ports::{MAX_OF_ALL, MAX_SKIPPED, WantedOfAll};

use super::{Answered, Standing, Waits, standing};
use crate::service::{Service, ServiceError, readings};

/// How far each backlog of a page is counted: for a hundred of them, which are
/// counted together, a tenth of what one alone is counted to.
const COUNTED_OF_ALL: u32 = super::COUNTED / 10;

/// A page of them, those first that harm most.
#[derive(Debug, Clone, PartialEq)]
pub struct StandingsOfAll {
    pub page: Vec<StandingOfTenant>,
    /// How many there are that were asked for.
    pub matching: u64,
    /// How many there are at all, and how many of these fail.
    pub count: u64,
    pub failing: u64,
    /// How many come before the next page; `None` after the last.
    pub next: Option<u32>,
}

/// Where one stands, and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct StandingOfTenant {
    pub tenant_name: String,
    pub standing: Standing,
}

impl Service {
    /// A page of the destinations of all tenants. The number of statements is the same
    /// for any number of destinations.
    pub async fn standings_of_all(
        &self,
        wanted: &WantedOfAll,
        turn: &readings::Report,
    ) -> Result<StandingsOfAll, ServiceError> {
        if !(1..=MAX_OF_ALL).contains(&wanted.limit) {
            let problem = format!("must be between 1 and {MAX_OF_ALL}");
            return Err(ServiceError::invalid("limit", problem));
        }
        if wanted.skip > MAX_SKIPPED {
            let problem = format!("must be at most {MAX_SKIPPED}: say what you look for instead");
            return Err(ServiceError::invalid("skip", problem));
        }
        let found = self.reading.overview.all_destinations(wanted).await?;
        let ids: Vec<_> = found.page.iter().map(|one| one.destination.id).collect();
        turn.goes_on()?;
        let fleet = self.reading.store.fleet().await?;
        let surveyed = match ids.is_empty() {
            true => Vec::new(),
            false => self.reading.survey.survey_standings(&ids).await?,
        };
        turn.goes_on()?;
        let glances = self.reading.overview.glance(&ids).await?;
        let outcomes = self.reading.tallies.outcomes(&ids).await?;
        let catalog = &self.reading.catalog;
        let backlogs = catalog.backlogs(&ids, COUNTED_OF_ALL).await?;
        let surveyed: HashMap<_, _> = (surveyed.into_iter())
            .map(|one| (one.destination, one))
            .collect();
        let shown = found.page.len();
        let known = (found.page.into_iter().zip(glances))
            .zip(outcomes)
            .zip(backlogs);
        let page = known.filter_map(|(((one, glance), outcomes), backlog)| {
            // One that has just been deleted is left out.
            let surveyed = surveyed.get(&one.destination.id)?;
            let waits = Waits {
                backlog,
                oldest: None,
            };
            let answered = Answered {
                lately: glance.lately(),
                measured: glance.measured(),
                outcomes,
                in_a_row: one.health.health.failures,
                failing_percent: one.health.failing_percent,
            };
            Some(StandingOfTenant {
                tenant_name: one.tenant_name,
                standing: standing(one.destination, surveyed, waits, answered, &fleet),
            })
        });
        let next = wanted.skip + u32::try_from(shown).unwrap_or(MAX_OF_ALL);
        Ok(StandingsOfAll {
            page: page.collect(),
            next: (u64::from(next) < found.matching && next <= MAX_SKIPPED && shown > 0)
                .then_some(next),
            matching: found.matching,
            count: found.count,
            failing: found.failing,
        })
    }
}

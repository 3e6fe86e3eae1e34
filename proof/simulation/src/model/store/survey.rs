//! What metrics are sampled from.

use std::ops::Bound;

use async_trait::async_trait;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use domain::watch::Shortfall;
use engine::ports::{
    MAX_SURVEYED, StoreError, Survey, SurveyPage, SurveyRules, Surveyed, SurveyedBacklog, Troubles,
};

use super::ModelStore;
use super::admit::reading;
use super::rows::Rows;
use super::watch::oldest;

#[async_trait]
impl Survey for ModelStore {
    async fn survey_backlogs(
        &self,
        after: Option<DestinationId>,
        rules: &SurveyRules,
    ) -> Result<SurveyPage, StoreError> {
        Ok(self.look(|rows, now| backlogs(rows, now, after, rules)))
    }

    async fn survey_standings(
        &self,
        destinations: &[DestinationId],
    ) -> Result<Vec<Surveyed>, StoreError> {
        let first = destinations.len().min(MAX_SURVEYED);
        let ids = destinations[..first].iter();
        Ok(self.step(|rows, now| ids.filter_map(|id| standing(rows, now, *id)).collect()))
    }

    async fn survey_troubles(&self) -> Result<Troubles, StoreError> {
        Ok(self.look(|rows, _| troubles(rows)))
    }
}

fn backlogs(
    rows: &Rows,
    now: Timestamp,
    after: Option<DestinationId>,
    rules: &SurveyRules,
) -> SurveyPage {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    let busy = rows.ledger.busy.range((after, Bound::Unbounded)).copied();
    let page: Vec<_> = (busy.filter(|id| rows.waiting(*id) > 0))
        .take(rules.page as usize)
        .collect();
    let far = |waiting: usize| u32::try_from(waiting).unwrap_or(u32::MAX).min(rules.far);
    let backlog = |id: &DestinationId| {
        let tenant = rows.living(*id)?.tenant;
        let indexes = rows.ledger.indexes(*id)?;
        Some(SurveyedBacklog {
            destination: *id,
            tenant,
            firsts: far(indexes.first.len()),
            others: far(indexes.due.len()),
            oldest: oldest(rows, *id, now),
        })
    };
    let full = page.len() >= rules.page as usize;
    SurveyPage {
        backlogs: page.iter().filter_map(backlog).collect(),
        next: page.last().copied().filter(|_| full),
    }
}

fn standing(rows: &mut Rows, now: Timestamp, id: DestinationId) -> Option<Surveyed> {
    let (policy, usage, backlog) = reading(rows, now, id)?;
    let tenant = rows.tenant_of(id)?;
    let held = rows.health.get(&id).and_then(|health| health.hold);
    let held = held.filter(|hold| hold.until > now);
    Some(Surveyed {
        destination: id,
        tenant,
        tenant_max_in_flight: rows.tenant_max_in_flight.get(&tenant).copied(),
        policy,
        usage,
        backlog,
        held_for: held.map(|hold| hold.reason),
    })
}

fn troubles(rows: &Rows) -> Troubles {
    let open = (rows.health.values()).filter(|health| health.opened_at.is_some());
    let short = |reason: Shortfall| {
        let told = (rows.news.watches.values()).filter_map(|watch| watch.short);
        let told = told.filter(|short| short.told && short.reason == reason);
        let number = u32::try_from(told.count()).unwrap_or(u32::MAX);
        (number > 0).then_some((reason, number))
    };
    Troubles {
        breakers_open: u32::try_from(open.count()).unwrap_or(u32::MAX),
        short: Shortfall::ALL.into_iter().filter_map(short).collect(),
    }
}

//! The compliance report of a tenant's destinations.

use std::time::Duration;

use domain::compliance::judged_until;
use domain::ids::DestinationId;
use domain::limit_group::{GroupName, MAX_GROUPS};
use domain::time::Timestamp;

use super::{Service, ServiceError, readings};
use crate::audit::{
    Beyond, Depth, DestinationReport, GroupReport, NotExamined, Report, Span, collect, groups,
};
use engine::ports::{Destination, LimitGroup};

/// How far back a report goes if nothing is said.
pub const DEFAULT_SPAN: Duration = Duration::from_secs(3_600);

/// The longest span of a report over the API.
pub const MAX_SPAN: Duration = Duration::from_secs(31 * 86_400);

/// The most destinations on a page.
pub const MAX_REPORTS: u32 = 200;

/// The most points of a curve.
pub const MAX_POINTS: u32 = 300;

/// The most rows of the ledger that one request reads: some seconds of work.
pub const MAX_ROWS: u64 = 1_000_000;

/// The most changes of limits that it reads, the newest: 4 MB.
const MAX_LIMITS: u32 = 20_000;

/// What somebody wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComplianceDraft {
    /// [`DEFAULT_SPAN`] before `until` if absent.
    pub since: Option<Timestamp>,
    /// Half a second ago if absent, and at the latest ([`judged_until`]).
    pub until: Option<Timestamp>,
    /// Of this one only.
    pub destination: Option<DestinationId>,
    /// Else of those after this one, in id order.
    pub after: Option<DestinationId>,
    /// How many at most.
    pub limit: u32,
    /// Points of each curve.
    pub points: u32,
}

/// A page of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Compliance {
    pub report: Report,
    /// Where the next page begins; `None` after the last.
    pub next: Option<DestinationId>,
}

impl Service {
    /// Judges a page of the tenant's destinations, by the same functions as
    /// `paceline audit`. A page ends early where the next destination's ledger
    /// would make it read more than [`MAX_ROWS`]; of one that has more by itself,
    /// the newest slice is judged.
    pub async fn compliance(
        &self,
        draft: ComplianceDraft,
        turn: &readings::Report,
    ) -> Result<Compliance, ServiceError> {
        bounded("limit", draft.limit, 1, MAX_REPORTS)?;
        bounded("points", draft.points, 0, MAX_POINTS)?;
        let until = judged_until(draft.until, self.reading.store.fleet().await?.now);
        let since = draft.since.unwrap_or(until - DEFAULT_SPAN);
        if since >= until {
            let problem = "must be before until, and more than half a second ago";
            return Err(ServiceError::invalid("since", problem));
        }
        if until.since(since) > MAX_SPAN {
            let problem = "must be at most 31 days before until; `paceline audit` takes any time";
            return Err(ServiceError::invalid("since", problem));
        }
        let catalog = &self.reading.catalog;
        let page = match draft.destination {
            Some(id) => vec![catalog.destination(self.tenant, id).await?],
            None => {
                let page = catalog.destinations(self.tenant, draft.after, draft.limit);
                page.await?
            }
        };
        let full = draft.destination.is_none() && page.len() >= draft.limit as usize;
        let mut next = page.last().filter(|_| full).map(|last| last.id);
        let span = Span { since, until };
        let mut reports: Vec<DestinationReport> = Vec::new();
        let (mut read, mut limits) = (0, 0);
        let mut before = draft.after;
        for destination in &page {
            turn.goes_on()?;
            let depth = Depth {
                points: draft.points as usize,
                rows: MAX_ROWS - read.min(MAX_ROWS),
                limits: MAX_LIMITS - limits.min(MAX_LIMITS),
                beyond: Beyond::Refuse,
            };
            let books = (catalog.as_ref(), self.reading.operations_book.as_ref());
            let mut examined = collect::examine(books, destination, span, depth).await;
            // Alone on its page: of the newest that one request can read.
            if reports.is_empty() && matches!(examined, Err(NotExamined::TooLong(_))) {
                let depth = Depth {
                    beyond: Beyond::Slice,
                    ..depth
                };
                examined = collect::examine(books, destination, span, depth).await;
            }
            match examined {
                Ok(examined) => {
                    read += examined.rows;
                    limits += examined.limits;
                    reports.push(examined.report);
                }
                Err(NotExamined::Catalog(error)) => return Err(error.into()),
                Err(NotExamined::TooLong(_)) => {
                    next = before;
                    break;
                }
            }
            before = Some(destination.id);
        }
        let judged = &page[..reports.len()];
        let groups = self.groups_on(judged, &draft).await?;
        let groups = self.judged_groups(&groups, span, turn).await?;
        let report = Report::new(span, reports).with_groups(groups);
        Ok(Compliance { report, next })
    }

    /// The limit groups that a page judges. Of one that is asked for alone its own; of a page
    /// those whose first member is on it, so that each is on one of them, and on the first
    /// one those that have none any more: what was started before they left counts.
    async fn groups_on(
        &self,
        destinations: &[Destination],
        draft: &ComplianceDraft,
    ) -> Result<Vec<GroupName>, ServiceError> {
        let found = self.groups_of(destinations).await?;
        if draft.destination.is_some() {
            return Ok(found.into_iter().map(|group| group.name).collect());
        }
        let is_here = |group: &LimitGroup| {
            let first = group.members.first();
            first.is_some_and(|first| destinations.iter().any(|one| one.id == *first))
        };
        let mut named: Vec<LimitGroup> = found.into_iter().filter(is_here).collect();
        if draft.after.is_none() {
            let all = self.limit_groups(None, MAX_GROUPS).await?;
            named.extend(all.into_iter().filter(|group| group.members.is_empty()));
        }
        Ok(named.into_iter().map(|group| group.name).collect())
    }

    /// These groups, by all of their members.
    async fn judged_groups(
        &self,
        named: &[GroupName],
        span: Span,
        turn: &readings::Report,
    ) -> Result<Vec<GroupReport>, ServiceError> {
        let catalog = self.reading.catalog.as_ref();
        let (mut reports, mut left) = (Vec::new(), MAX_ROWS);
        for (name, of) in named.iter().zip((1..=named.len() as u64).rev()) {
            turn.goes_on()?;
            // Each has its share of what is read, and what those before it left.
            let judged = groups::judge(catalog, (self.tenant, name), span, left / of).await?;
            left = left.saturating_sub(judged.rows);
            reports.push(judged.report);
        }
        Ok(reports)
    }
}

pub(super) fn bounded(field: &str, value: u32, least: u32, most: u32) -> Result<(), ServiceError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => {
            let problem = format!("must be between {least} and {most}");
            Err(ServiceError::invalid(field, problem))
        }
    }
}

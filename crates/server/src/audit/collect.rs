//! Reads ledgers, page by page.

use std::time::Duration;

use anyhow::Context;
use domain::compliance::Start;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::limit::Period;
use domain::time::Timestamp;
use engine::ports::{
    Catalog, CatalogError, Destination, LedgerPosition, LedgerRow, LimitHistory, OperationsBook,
    SmartChange, Tenants,
};

use super::examine::Examination;
use super::noted::noted;
use super::report::{DestinationReport, Findings};

/// From when until when: `[since, until)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub since: Timestamp,
    pub until: Timestamp,
}

/// Rows read at once.
const PAGE: u32 = 10_000;

/// Destinations and tenants read at once.
const PAGE_OF_NAMES: u32 = 1_000;

/// How long after a span what had waited at its end is looked for.
const LATER: Duration = Duration::from_secs(86_400);

/// The most starts before a span that are read: 16 MB. A window that holds more
/// is counted from there on.
const MAX_BEFORE: u64 = 1_000_000;

/// The most changes of an effective limit that are read, the newest.
const MAX_SMART_CHANGES: u32 = 10_000;

/// The destinations asked for, whoever's they are; all of all tenants if none
/// are.
pub async fn destinations(
    catalog: &dyn Catalog,
    tenants: &dyn Tenants,
    wanted: &[DestinationId],
) -> anyhow::Result<Vec<Destination>> {
    let tenants = all_tenants(tenants).await?;
    let mut found = Vec::new();
    for id in wanted {
        let one = whosever(catalog, &tenants, *id).await;
        found.push(one.with_context(|| format!("read destination {id}"))?);
    }
    if !wanted.is_empty() {
        return Ok(found);
    }
    for tenant in tenants {
        let mut after = None;
        loop {
            let page = catalog
                .destinations(tenant, after, PAGE_OF_NAMES)
                .await
                .context("list the destinations")?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            found.extend(page);
        }
    }
    Ok(found)
}

pub(super) async fn all_tenants(tenants: &dyn Tenants) -> anyhow::Result<Vec<TenantId>> {
    let mut found: Vec<TenantId> = Vec::new();
    loop {
        let page = tenants
            .tenants(found.last().copied(), PAGE_OF_NAMES)
            .await
            .context("list the tenants")?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page.into_iter().map(|tenant| tenant.id));
    }
}

/// Those in force at `since` or later, the earliest first; `changes` have the
/// newest first.
fn in_force(mut changes: Vec<SmartChange>, since: Timestamp) -> Vec<SmartChange> {
    let later = changes.iter().position(|one| one.in_force_from <= since);
    changes.truncate(later.map_or(usize::MAX, |first| first + 1));
    changes.reverse();
    changes
}

async fn whosever(
    catalog: &dyn Catalog,
    tenants: &[TenantId],
    id: DestinationId,
) -> Result<Destination, CatalogError> {
    for tenant in tenants {
        match catalog.destination(*tenant, id).await {
            Err(CatalogError::NotFound(_)) => {}
            answer => return answer,
        }
    }
    Err(CatalogError::NotFound("destination"))
}

/// How a destination is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// How many points of its curve are shown; none for 0.
    pub points: usize,
    /// The most rows that are read.
    pub rows: u64,
    /// The most entries of its limit history.
    pub limits: u32,
    /// What becomes of a ledger, or a history, that has more.
    pub beyond: Beyond,
}

/// What is done about more rows than may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// It is refused.
    Refuse,
    /// The newest slice of the span that half of them cover is judged, and of
    /// what waits as much as the other half leaves, the oldest first.
    Slice,
}

/// Why a destination could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum NotExamined {
    /// The store could not be asked.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Its ledger, or its limit history, is longer than what may be read.
    #[error("the ledger or the limit history of this time has {0} rows or more")]
    TooLong(u64),
}

/// What was read of one destination, and how much that was.
pub struct Examined {
    pub report: DestinationReport,
    pub rows: u64,
    /// Of its limit history.
    pub limits: u32,
}

/// Reads one destination's ledger of a span page by page, with the limits that were
/// in force meanwhile, and judges it: in memory that does not grow with the ledger. By
/// destination and time, so along one index of the days that are in the span.
pub async fn examine(
    (catalog, operations): (&dyn Catalog, &dyn OperationsBook),
    destination: &Destination,
    span: Span,
    depth: Depth,
) -> Result<Examined, NotExamined> {
    let id = destination.id;
    let asked = span;
    let span = match depth.beyond {
        Beyond::Refuse => span,
        Beyond::Slice => newest_slice(catalog, id, span, depth.rows / 2).await?,
    };
    let limits = Limits::read(catalog, id, span, depth).await?;
    let since = span.since.max(limits.known_since);
    let span = Span { since, ..span };
    let changes = catalog
        .smart_history(id, span.until, MAX_SMART_CHANGES)
        .await?;
    let smart = in_force(changes, span.since);
    let mut examination = Examination::new(&limits.history, span, depth.points);
    let mut pages = Pages {
        catalog,
        destination: id,
        read: 0,
        depth,
    };
    let back = (span.since - examination.reaches_back()).max(limits.known_since);
    let most = MAX_BEFORE.min(depth.rows / 2);
    let mut before = newest_first(catalog, id, (back, span.since), most).await?;
    before.reverse();
    examination.add_before(before);
    let mut after = None;
    while let Some(rows) = pages.next((span.since, span.until), &mut after).await? {
        examination.add(&rows);
    }
    // What waited at the end and started since: first come, first served, so
    // nearly all of it comes first.
    let mut after = None;
    while let Some(rows) = pages
        .next((span.until, span.until + LATER), &mut after)
        .await?
    {
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|row| row.started_at.is_some())
            .collect();
        if !examination.add_later(&rows) {
            break;
        }
    }
    let examined = examination.finish();
    let mut stretches = examined.stretches(&smart, &[]);
    // What a member of a limit group could start depends on the others.
    stretches.retain(|_| destination.limit_group.is_none());
    if !stretches.is_empty() {
        let noted = noted(operations, destination, span).await?;
        stretches = examined.stretches(&smart, &noted);
    }
    let curve = examined.curve();
    let report = DestinationReport::from(Findings {
        id: id.to_string(),
        name: destination.name.clone(),
        span,
        judged_since: (span != asked).then_some(span.since),
        history: limits.history,
        margin: destination.policy().margin,
        verdict: examined.verdict,
        allowed: examined.allowed,
        stretches,
        smart,
        curve,
    });
    Ok(Examined {
        report,
        rows: pages.read,
        limits: limits.read,
    })
}

/// What was in force in a span.
struct Limits {
    history: Vec<LimitHistory>,
    /// Before it, limits are not known: the span has more of them than are read.
    /// What started earlier is then left out, as it may have been allowed more.
    known_since: Timestamp,
    /// How many were read.
    read: u32,
}

impl Limits {
    async fn read(
        catalog: &dyn Catalog,
        destination: DestinationId,
        span: Span,
        depth: Depth,
    ) -> Result<Self, NotExamined> {
        // Starts before the span count as well, by what was in force at their time.
        let counted_from = span.since - Period::Day.duration();
        // One at least: what is in force.
        let most = depth.limits.max(1);
        let within = (counted_from, Some(span.until));
        let history = catalog.limits_within(destination, within, most).await?;
        let read = u32::try_from(history.len()).unwrap_or(u32::MAX);
        let first = history.first().map(|entry| entry.in_force_from);
        let known_since = match first.filter(|first| read >= most && *first > counted_from) {
            Some(_) if depth.beyond == Beyond::Refuse => {
                return Err(NotExamined::TooLong(depth.limits.into()));
            }
            Some(first) => first,
            None => Timestamp::from_micros(i64::MIN),
        };
        Ok(Self {
            history,
            known_since,
            read,
        })
    }
}

/// The end of a span: from when on so many started in it, or all of it.
async fn newest_slice(
    catalog: &dyn Catalog,
    destination: DestinationId,
    span: Span,
    most: u64,
) -> Result<Span, CatalogError> {
    let newest = newest_first(catalog, destination, (span.since, span.until), most).await?;
    let since = match newest.last() {
        // Whole microseconds: what started with the last of them is in it, too.
        Some((started_at, _)) if newest.len() as u64 >= most => *started_at,
        _ => span.since,
    };
    Ok(Span { since, ..span })
}

/// The newest starts of `[since, until)`, so many at most.
async fn newest_first(
    catalog: &dyn Catalog,
    destination: DestinationId,
    (since, until): (Timestamp, Timestamp),
    most: u64,
) -> Result<Vec<Start>, CatalogError> {
    let mut found: Vec<Start> = Vec::new();
    let mut left = most;
    while left > 0 && since < until {
        let before = found.last().copied();
        let before = before.unwrap_or((until, AttemptId(i64::MIN)));
        let limit = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
        let page = catalog.starts_before(destination, since, before, limit);
        let page = page.await?;
        if page.is_empty() {
            break;
        }
        left = left.saturating_sub(page.len() as u64);
        found.extend(page);
    }
    Ok(found)
}

/// A ledger, page by page.
struct Pages<'a> {
    catalog: &'a dyn Catalog,
    destination: DestinationId,
    read: u64,
    depth: Depth,
}

impl Pages<'_> {
    /// The page after the last; `None` after all.
    async fn next(
        &mut self,
        (since, until): (Timestamp, Timestamp),
        after: &mut Option<LedgerPosition>,
    ) -> Result<Option<Vec<LedgerRow>>, NotExamined> {
        let is_slice = self.depth.beyond == Beyond::Slice;
        if is_slice && self.read >= self.depth.rows {
            return Ok(None);
        }
        let page = self
            .catalog
            .ledger(self.destination, since, until, *after, PAGE);
        let page = page.await?;
        let Some(last) = page.last() else {
            return Ok(None);
        };
        *after = Some(LedgerPosition {
            started_at: last.started_at,
            attempt: last.attempt,
        });
        self.read += page.len() as u64;
        if self.read > self.depth.rows && !is_slice {
            return Err(NotExamined::TooLong(self.depth.rows));
        }
        Ok(Some(page))
    }
}

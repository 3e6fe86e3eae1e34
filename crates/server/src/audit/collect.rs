//! Reads ledgers, page by page.

use anyhow::{Context, ensure};
use domain::compliance::InForce;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{Catalog, CatalogError, Destination, LedgerPosition, SmartChange, Tenants};

use super::report::Ledger;

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

/// The most rows of one destination: half a gigabyte of them.
const MAX_ROWS: usize = 16_000_000;

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

async fn all_tenants(tenants: &dyn Tenants) -> anyhow::Result<Vec<TenantId>> {
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

/// One destination's ledger of a span, with its whole limit history.
pub async fn ledger(
    catalog: &dyn Catalog,
    destination: DestinationId,
    span: Span,
) -> anyhow::Result<Ledger> {
    let history = catalog
        .limit_history(destination)
        .await
        .with_context(|| format!("read the limit history of {destination}"))?;
    let changes = catalog.smart_history(destination, span.until, MAX_SMART_CHANGES);
    let changes = changes
        .await
        .with_context(|| format!("read the effective limits of {destination}"))?;
    let mut ledger = Ledger {
        smart: in_force(changes, span.since),
        history: history
            .iter()
            .map(|entry| InForce::new(entry.in_force_from, &entry.effective, entry.state))
            .collect(),
        effective: history
            .iter()
            .rfind(|entry| entry.in_force_from < span.until)
            .map(|entry| (entry.effective, entry.state)),
        ..Ledger::default()
    };
    let mut after = None;
    loop {
        let rows = catalog
            .ledger(destination, span.since, span.until, after, PAGE)
            .await
            .with_context(|| format!("read the ledger of {destination}"))?;
        let Some(last) = rows.last() else { break };
        after = Some(LedgerPosition {
            started_at: last.started_at,
            attempt: last.attempt,
        });
        ledger.add(&rows);
        ensure!(
            ledger.due.len() <= MAX_ROWS,
            "the ledger of {destination} has more than {MAX_ROWS} rows: narrow it with --since"
        );
    }
    ledger.due.sort_unstable();
    Ok(ledger)
}

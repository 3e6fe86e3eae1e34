//! Limit groups, judged: what all of their members started together, by what the group
//! allowed when. The judge is that of a destination's own limits.

use std::time::Duration;

use anyhow::Context;
use domain::compliance::{InForce, Judge, Start};
use domain::destination::DestinationState;
use domain::ids::TenantId;
use domain::limit::Period;
use domain::limit_group::{GroupLimits, GroupName};
use domain::policy::LimitSettings;
use engine::ports::{Catalog, Tenants};

use super::Span;
use super::collect::all_tenants;
use super::report::GroupReport;

/// Starts read at once.
const PAGE: u32 = 10_000;

/// How much of a span one statement sorts.
const SLICE: Duration = Duration::from_secs(3_600);

/// Groups read at once.
const PAGE_OF_NAMES: u32 = 1_000;

/// All groups of all tenants, each with what it came to.
pub async fn judge_all(
    catalog: &dyn Catalog,
    tenants: &dyn Tenants,
    span: Span,
) -> anyhow::Result<Vec<GroupReport>> {
    let mut reports = Vec::new();
    for tenant in all_tenants(tenants).await? {
        let mut after: Option<GroupName> = None;
        loop {
            let page = catalog.limit_groups(tenant, after.as_ref(), PAGE_OF_NAMES);
            let page = page.await.context("list the limit groups")?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for group in &page {
                let report = judge(catalog, (tenant, &group.name), span).await;
                let report = report.with_context(|| format!("judge group {}", group.name))?;
                reports.push(report);
            }
        }
    }
    Ok(reports)
}

/// What is allowed, as limits of a destination are written down.
fn settings(limits: &GroupLimits) -> LimitSettings {
    LimitSettings {
        per_second: limits.per_second,
        per_minute: limits.per_minute,
        per_hour: limits.per_hour,
        per_day: limits.per_day,
        // All absent: one that was deleted limits nothing.
        unlimited: *limits == GroupLimits::default(),
        ..LimitSettings::EXACT
    }
}

async fn judge(
    catalog: &dyn Catalog,
    (tenant, name): (TenantId, &GroupName),
    span: Span,
) -> anyhow::Result<GroupReport> {
    // Starts before the span are in windows of it.
    let back = span.since - Period::Day.duration();
    let past = catalog.limit_group_past(tenant, name, (back, span.until));
    let past = past.await?;
    let history: Vec<InForce> = (past.allowed.iter())
        .map(|(from, limits)| InForce::new(*from, &settings(limits), DestinationState::Active))
        .collect();
    // What it allowed before is not known.
    let known = past.allowed.first().map_or(span.since, |(from, _)| *from);
    let mut judge = Judge::of_sends(&history);
    let earliest = (past.members.iter().map(|member| member.from)).min();
    let first = earliest.unwrap_or(span.until).max(back).max(known);
    let mut from = first.min(span.until);
    while from < span.until {
        let edge = match from < span.since {
            true => span.since,
            false => span.until,
        };
        let until = (from + SLICE).min(edge);
        let mut after: Option<Start> = None;
        loop {
            let page = catalog.limit_group_starts(tenant, name, (from, until), after, PAGE);
            let page = page.await?;
            for start in &page {
                match from < span.since {
                    true => judge.before(*start),
                    false => judge.push(*start),
                }
            }
            match page.len() >= PAGE as usize {
                true => after = page.last().copied(),
                false => break,
            }
        }
        from = until;
    }
    let now = past.allowed.last().map(|(_, limits)| settings(limits));
    Ok(GroupReport::new(
        tenant,
        name,
        now.as_ref(),
        &judge.finish(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_group_limits_nothing_and_one_of_zero_pauses() {
        let rate = |limits: GroupLimits| settings(&limits).policy().rate;
        assert_eq!(
            rate(GroupLimits::default()),
            domain::policy::Rate::Unlimited
        );
        let zero = GroupLimits {
            per_second: Some(0),
            ..GroupLimits::default()
        };
        assert_eq!(rate(zero), domain::policy::Rate::Paused);
    }
}

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
    use domain::compliance::judge_sends;
    use domain::ids::AttemptId;
    use domain::time::Timestamp;
    use engine::ports::DEFAULT_TENANT;

    use super::*;
    use crate::audit::Report;
    use crate::audit::render::{Format, render};

    #[test]
    fn a_group_over_its_limit_is_named_and_the_whole_is_not_compliant() {
        let two = GroupLimits {
            per_second: Some(2),
            ..GroupLimits::default()
        };
        let history = [InForce::new(
            Timestamp::from_millis(0),
            &settings(&two),
            DestinationState::Active,
        )];
        let at = |ms| (Timestamp::from_millis(ms), AttemptId(ms));
        let report = |starts: &[Start]| {
            let verdict = judge_sends(&history, starts);
            let (tenant, name) = (DEFAULT_TENANT, GroupName::kept("acme".to_owned()));
            let group = GroupReport::new(tenant, &name, Some(&settings(&two)), &verdict);
            let span = Span {
                since: Timestamp::from_millis(0),
                until: Timestamp::from_millis(9_000),
            };
            Report::new(span, Vec::new()).with_groups(vec![group])
        };
        let kept = report(&[at(1_000), at(1_500), at(2_000)]);
        assert!(kept.compliant);
        let over = report(&[at(1_000), at(1_500), at(1_900)]);
        assert!(!over.compliant);
        for (format, named) in [
            (
                Format::Table,
                "over: group acme second: 3 starts where 2 were allowed",
            ),
            (Format::Json, "\"name\": \"acme\""),
            (Format::Html, "1 limit groups were over a limit"),
        ] {
            let text = render(&over, format).unwrap();
            assert!(text.contains(named), "{text}");
        }
    }

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

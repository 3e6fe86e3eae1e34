//! Limit groups, judged: what all of their members started together, by what the group
//! allowed when. The judge is that of a destination's own limits.

use std::time::Duration;

use anyhow::Context;
use domain::compliance::{InForce, Judge, Start, reaches_back};
use domain::destination::DestinationState;
use domain::ids::TenantId;
use domain::limit::Period;
use domain::limit_group::{GroupLimits, GroupName};
use domain::time::Timestamp;
use engine::ports::{Catalog, CatalogError, GroupPast, Tenants};

use super::Span;
use super::collect::all_tenants;
use super::report::GroupReport;

/// Starts read at once.
const PAGE: u32 = 10_000;

/// How much of a span one statement sorts at first; twice as much after one that found
/// little.
const SLICE: Duration = Duration::from_secs(3_600);

/// A statement that finds little costs as much as reading so many starts.
const OF_ONE_STATEMENT: u64 = 100;

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
                let judged = judge(catalog, (tenant, &group.name), span, u64::MAX).await;
                let judged = judged.with_context(|| format!("judge group {}", group.name))?;
                reports.push(judged.report);
            }
        }
    }
    Ok(reports)
}

/// A group's report, and the starts that were read for it.
#[derive(Debug)]
pub struct Judged {
    pub report: GroupReport,
    pub rows: u64,
}

/// Judges one by all that its members started, whatever page they are on. It reads no more
/// than `rows` starts, at least one, and asks no more often than these pay for: of one that
/// has more the beginning of the span is judged, and the report says until when.
pub async fn judge(
    catalog: &dyn Catalog,
    (tenant, name): (TenantId, &GroupName),
    span: Span,
    rows: u64,
) -> Result<Judged, CatalogError> {
    // Starts before the span are in windows of it.
    let back = span.since - Period::Day.duration();
    let past = catalog.limit_group_past(tenant, name, (back, span.until));
    let past = past.await?;
    let history = history(&past);
    // What it allowed before is not known.
    let known = past.allowed.first().map_or(span.since, |(from, _)| *from);
    let back = span.since - reaches_back(&history, (span.since, span.until));
    let mut judge = Judge::of_sends(&history);
    let earliest = (past.members.iter().map(|member| member.from)).min();
    let first = earliest.unwrap_or(span.until).max(back).max(known);
    let (mut from, mut read) = (first.min(span.until), 0);
    let mut slice = SLICE;
    while from < span.until && read < rows {
        let edge = match from < span.since {
            true => span.since,
            false => span.until,
        };
        let until = (from + slice).min(edge);
        let mut after: Option<Start> = None;
        loop {
            let most = u64::from(PAGE).min(rows.saturating_sub(read)).max(1) as u32;
            let page = catalog.limit_group_starts(tenant, name, (from, until), after, most);
            let page = page.await?;
            read += OF_ONE_STATEMENT.max(page.len() as u64);
            slice = match page.len() < most as usize / 4 {
                true => slice * 2,
                false => SLICE,
            };
            for start in &page {
                match from < span.since {
                    true => judge.before(*start),
                    false => judge.push(*start),
                }
            }
            after = page.last().copied();
            if page.len() < most as usize || read >= rows {
                break;
            }
        }
        // Of a slice that was not read to its end, up to the last start of it.
        from = match after {
            Some((last, _)) if read >= rows => last,
            _ => until,
        };
    }
    let now = past.allowed.last().map(|(_, limits)| limits.as_settings());
    let report = GroupReport::new(tenant, name, now.as_ref(), &judge.finish());
    Ok(Judged {
        report: report.judged_until((from < span.until).then_some(from.max(span.since))),
        rows: read,
    })
}

/// What was in force when, as a destination's history.
fn history(past: &GroupPast) -> Vec<InForce> {
    let entry = |(from, limits): &(Timestamp, GroupLimits)| {
        InForce::new(*from, &limits.as_settings(), DestinationState::Active)
    };
    past.allowed.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use domain::compliance::judge_sends;
    use domain::ids::AttemptId;
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
            &two.as_settings(),
            DestinationState::Active,
        )];
        let at = |ms| (Timestamp::from_millis(ms), AttemptId(ms));
        let report = |starts: &[Start]| {
            let verdict = judge_sends(&history, starts);
            let (tenant, name) = (DEFAULT_TENANT, GroupName::kept("acme".to_owned()));
            let group = GroupReport::new(tenant, &name, Some(&two.as_settings()), &verdict);
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
            (Format::Csv, ",1,1,1000 1500 1900,false,acme"),
            (Format::Html, "1 limit groups were over a limit"),
        ] {
            let text = render(&over, format).unwrap();
            assert!(text.contains(named), "{text}");
        }
    }
}

//! Was any window over its limit, and was the limit used? The audit of what
//! happened lately, by the same function as `/v1/compliance`.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Html;
use domain::ids::DestinationId;
use serde::Deserialize;

use super::Asked;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::Visitor;
use super::words::{self, NONE};
use crate::audit::DestinationReport;
use crate::audit::report::WindowReport;
use crate::service::compliance::ComplianceDraft;

/// Destinations on a page.
const LINES: u32 = 20;

const PERIODS: [(&str, u64); 3] = [("5m", 300), ("1h", 3_600), ("24h", 86_400)];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    period: String,
    after: String,
}

struct Line {
    id: String,
    name: String,
    limit: String,
    is_compliant: bool,
    starts: String,
    /// Of the first rule: aligned, sliding, and the bound.
    aligned: String,
    sliding: String,
    bound: String,
    share: String,
    violations: Vec<String>,
    /// From when on, where not all of the period was judged.
    judged_since: Option<String>,
    /// When it got less than its limit allows although it had work, and why.
    short: Vec<String>,
}

#[derive(askama::Template)]
#[template(path = "audit.html")]
struct Page {
    frame: Frame,
    period: &'static str,
    periods: Vec<&'static str>,
    is_compliant: bool,
    lines: Vec<Line>,
    next: Option<DestinationId>,
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let named = |(name, _): &&(&str, u64)| *name == wanted.period;
    let (period, seconds) = *PERIODS.iter().find(named).unwrap_or(&PERIODS[0]);
    let until = pages.0.overview.now().await?;
    let draft = ComplianceDraft {
        since: Some(until - Duration::from_secs(seconds)),
        until: Some(until),
        destination: None,
        after: wanted.after.parse().ok(),
        limit: LINES,
        points: 0,
    };
    let service = pages.service(visitor.tenant());
    let (turn, _wanted) = service.report().await?;
    let found = service.compliance(draft, &turn).await?;
    let mut lines: Vec<_> = found.report.destinations.into_iter().map(line).collect();
    // What is wrong comes first.
    lines.sort_by_key(|line| line.is_compliant);
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Audit", "/dashboard/audit")).await?,
        period,
        periods: PERIODS.map(|(name, _)| name).to_vec(),
        is_compliant: lines.iter().all(|line| line.is_compliant),
        lines,
        next: found.next,
    })
}

fn line(report: DestinationReport) -> Line {
    let rule = report.rules.first();
    let window =
        |one: Option<&WindowReport>| one.map_or(NONE.to_owned(), |one| one.starts.to_string());
    let violations = report.rules.iter().flat_map(|rule| &rule.violations);
    Line {
        limit: report.limit_words(),
        judged_since: report.judged_since,
        is_compliant: report.compliant,
        starts: words::count(u32::try_from(report.starts).unwrap_or(u32::MAX), u32::MAX),
        aligned: window(rule.and_then(|rule| rule.largest_aligned.as_ref())),
        sliding: window(rule.and_then(|rule| rule.largest_sliding.as_ref())),
        bound: (rule.and_then(|rule| rule.bound))
            .map_or(NONE.to_owned(), |bound| bound.to_string()),
        share: match report.share.allowed {
            0 => NONE.to_owned(),
            _ => format!("{} %", report.share.percent),
        },
        violations: violations
            .map(|one| {
                let ids: Vec<_> = one.attempts.iter().map(i64::to_string).collect();
                format!(
                    "{} starts where {} are allowed, until {}: attempts {}",
                    one.starts,
                    one.bound,
                    one.ends_at,
                    ids.join(", ")
                )
            })
            .collect(),
        short: (report.under_delivery.stretches.iter())
            .map(|one| {
                format!(
                    "{} to {}: {} starts with {} waiting, because of {}",
                    one.from, one.until, one.starts, one.backlog, one.reason
                )
            })
            .collect(),
        name: match report.name.is_empty() {
            true => report.id.clone(),
            false => report.name,
        },
        id: report.id,
    }
}

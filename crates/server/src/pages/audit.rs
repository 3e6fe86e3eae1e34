//! Was any window over its limit, and was the limit used? The audit of what
//! happened lately, by the same functions as `paceline audit`.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Html;
use domain::compliance::InForce;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::Destination;
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::Visitor;
use super::words::{self, NONE};
use super::{Asked, Pages};
use crate::audit::{DestinationReport, Ledger, Span};

/// Destinations on a page.
const LINES: u32 = 20;

/// Starts of one destination that a page judges. The command judges all.
const JUDGED: u32 = 20_000;

const PERIODS: [(&str, u64); 3] = [("5m", 300), ("1h", 3_600), ("24h", 86_400)];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    period: String,
    after: String,
}

struct Line {
    id: DestinationId,
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
    /// From when on, where that is not the whole period.
    judged_from: Option<String>,
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
    let span = Span {
        since: until - Duration::from_secs(seconds),
        until,
    };
    let after = wanted.after.parse().ok();
    let page = pages
        .0
        .catalog
        .destinations(visitor.tenant(), after, LINES)
        .await?;
    let next = page
        .last()
        .filter(|_| page.len() >= LINES as usize)
        .map(|last| last.id);
    let mut lines = Vec::with_capacity(page.len());
    for destination in page {
        lines.push(line(&pages, destination, span).await?);
    }
    // What is wrong comes first.
    lines.sort_by_key(|line| line.is_compliant);
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Audit", "/dashboard/audit")).await?,
        period,
        periods: PERIODS.map(|(name, _)| name).to_vec(),
        is_compliant: lines.iter().all(|line| line.is_compliant),
        lines,
        next,
    })
}

async fn line(pages: &Pages, destination: Destination, span: Span) -> Result<Line, Refused> {
    let (ledger, span) = ledger(pages, destination.id, span).await?;
    let id = destination.id;
    let report = DestinationReport::new(id.to_string(), destination.name, &ledger, span.0);
    let rule = report.rules.first();
    let window = |one: Option<&crate::audit::report::WindowReport>| {
        one.map_or(NONE.to_owned(), |one| one.starts.to_string())
    };
    let violations = report.rules.iter().flat_map(|rule| &rule.violations);
    Ok(Line {
        id,
        limit: words::limits(&destination.effective),
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
        judged_from: span.1.map(words::time),
        name: match report.name.is_empty() {
            true => destination.url,
            false => report.name,
        },
    })
}

/// The ledger of the end of the span: as much as a page judges, and from when on
/// if that is not all.
async fn ledger(
    pages: &Pages,
    id: DestinationId,
    span: Span,
) -> Result<(Ledger, (Span, Option<Timestamp>)), Refused> {
    let history = pages.0.catalog.limit_history(id).await?;
    // By the minute, the newest first, as far as the bound goes.
    let minute = Duration::from_secs(60);
    let counted = pages.0.overview.starts(id, span.since, minute).await?;
    let (mut sum, mut from) = (0_u32, None);
    for one in counted.iter().rev() {
        sum = sum.saturating_add(one.starts);
        if sum > JUDGED {
            from = Some(one.from + minute);
            break;
        }
    }
    let since = from.map_or(span.since, |from| from.max(span.since));
    let rows = pages
        .0
        .catalog
        .ledger(id, since, span.until, None, JUDGED * 2)
        .await?;
    let mut ledger = Ledger {
        effective: history.last().map(|entry| (entry.effective, entry.state)),
        history: (history.iter())
            .map(|entry| InForce::new(entry.in_force_from, &entry.effective, entry.state))
            .collect(),
        ..Ledger::default()
    };
    ledger.add(&rows);
    ledger.due.sort_unstable();
    let span = Span { since, ..span };
    Ok((ledger, (span, from)))
}

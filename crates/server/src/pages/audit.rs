//! Was any window over its limit, and was the limit used? The audit of what
//! happened lately, by the same function as `/v1/compliance`.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Html;
use domain::ids::DestinationId;
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::Visitor;
use super::words::{self, NONE};
use super::{Asked, Pages};
use crate::audit::report::{RuleReport, WindowReport};
use crate::audit::{DestinationReport, GroupReport};
use crate::service::compliance::{ComplianceDraft, MAX_REPORTS, MAX_ROWS};

/// Lines that are shown at first: those that were over, then those that got less than
/// they might have, then the others.
const LINES: usize = 20;

/// So many times [`MAX_REPORTS`] destinations are judged for one page: a thousand, some
/// tenths of a second of work where their ledgers are short. Long ones end it sooner.
const ROUNDS: usize = 5;

const PERIODS: [(&str, u64); 3] = [("5m", 300), ("1h", 3_600), ("24h", 86_400)];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    period: String,
    after: String,
    /// All lines.
    all: bool,
}

struct Line {
    /// Of a destination; a limit group has no page.
    id: Option<String>,
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
    /// The same of its end.
    judged_until: Option<String>,
    /// How long it got less than its limit allows although it had work.
    short_seconds: f64,
    /// When it got less than its limit allows although it had work, and why.
    short: Vec<String>,
}

#[derive(askama::Template)]
#[template(path = "audit.html")]
struct Page {
    frame: Frame,
    period: &'static str,
    periods: Vec<&'static str>,
    judged: usize,
    /// How many of its destinations were over.
    over: usize,
    groups: usize,
    groups_over: usize,
    lines: Vec<Line>,
    /// Those that are not shown.
    more: usize,
    after: String,
    next: Option<DestinationId>,
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Query(wanted): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let named = |(name, _): &&(&str, u64)| *name == wanted.period;
    let (period, seconds) = *PERIODS.iter().find(named).unwrap_or(&PERIODS[0]);
    let (found, next) = judged(&pages, &visitor, (seconds, &wanted.after)).await?;
    let (judged, groups) = (found.destinations.len(), found.limit_groups.len());
    let groups_over = found.limit_groups.iter().filter(|one| !one.compliant);
    let groups_over = groups_over.count();
    let mut lines: Vec<Line> = (found.limit_groups.into_iter().map(line_of_group))
        .chain(found.destinations.into_iter().map(line))
        .collect();
    let over = lines.iter().filter(|one| !one.is_compliant).count();
    // What is wrong comes first.
    lines.sort_by(|one, other| {
        let by_verdict = one.is_compliant.cmp(&other.is_compliant);
        by_verdict.then_with(|| other.short_seconds.total_cmp(&one.short_seconds))
    });
    // Nobody is kept from seeing one that was over.
    let shown = match wanted.all {
        true => lines.len(),
        false => LINES.max(over).min(lines.len()),
    };
    let more = lines.split_off(shown).len();
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Audit", "/dashboard/audit")).await?,
        period,
        periods: PERIODS.map(|(name, _)| name).to_vec(),
        judged,
        over: over - groups_over,
        groups,
        groups_over,
        lines,
        more,
        after: wanted.after,
        next,
    })
}

/// What is known of a tenant's destinations, and of their groups.
#[derive(Default)]
struct Found {
    destinations: Vec<DestinationReport>,
    limit_groups: Vec<GroupReport>,
}

/// The tenant's destinations after one, in id order, as far as one page looks; and
/// where the next one begins.
async fn judged(
    pages: &Pages,
    visitor: &Visitor,
    (seconds, after): (u64, &str),
) -> Result<(Found, Option<DestinationId>), Refused> {
    let until = pages.0.overview.now().await?;
    let service = pages.service(visitor.tenant());
    let (turn, _wanted) = service.report().await?;
    let (mut all, mut starts) = (Found::default(), 0);
    let mut next = after.parse().ok();
    for _round in 0..ROUNDS {
        let draft = ComplianceDraft {
            since: Some(until - Duration::from_secs(seconds)),
            until: Some(until),
            destination: None,
            after: next,
            limit: MAX_REPORTS,
            points: 0,
        };
        let found = service.compliance(draft, &turn).await?;
        let each = found.report.destinations.iter();
        starts += each.map(|one| one.starts).sum::<u64>();
        all.destinations.extend(found.report.destinations);
        all.limit_groups.extend(found.report.limit_groups);
        next = found.next;
        if next.is_none() || starts >= MAX_ROWS {
            break;
        }
    }
    Ok((all, next))
}

/// How its rules were kept, and nothing else.
fn kept((is_compliant, starts): (bool, u64), rules: &[RuleReport]) -> Line {
    let rule = rules.first();
    let window =
        |one: Option<&WindowReport>| one.map_or(NONE.to_owned(), |one| one.starts.to_string());
    let violations = rules.iter().flat_map(|rule| &rule.violations);
    Line {
        id: None,
        name: String::new(),
        limit: String::new(),
        judged_since: None,
        judged_until: None,
        short: Vec::new(),
        short_seconds: 0.0,
        share: NONE.to_owned(),
        is_compliant,
        starts: words::count(u32::try_from(starts).unwrap_or(u32::MAX), u32::MAX),
        aligned: window(rule.and_then(|rule| rule.largest_aligned.as_ref())),
        sliding: window(rule.and_then(|rule| rule.largest_sliding.as_ref())),
        bound: (rule.and_then(|rule| rule.bound))
            .map_or(NONE.to_owned(), |bound| bound.to_string()),
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
    }
}

/// How much of its limit was used is not said: nobody knows what its members had to send.
fn line_of_group(report: GroupReport) -> Line {
    Line {
        name: format!("group {}", report.name),
        limit: report.limit_in_force,
        judged_until: report.judged_until,
        ..kept((report.compliant, report.starts), &report.rules)
    }
}

fn line(report: DestinationReport) -> Line {
    Line {
        limit: report.limit_words(),
        share: match report.share.allowed {
            0 => NONE.to_owned(),
            _ => format!("{} %", report.share.percent),
        },
        short_seconds: report.under_delivery.seconds,
        short: (report.under_delivery.stretches.iter())
            .map(|one| {
                format!(
                    "{} to {}: {} starts with {} waiting, because of {}",
                    one.from, one.until, one.starts, one.backlog, one.reason
                )
            })
            .collect(),
        judged_since: report.judged_since,
        name: match report.name.is_empty() {
            true => report.id.clone(),
            false => report.name,
        },
        id: Some(report.id),
        ..kept((report.compliant, report.starts), &report.rules)
    }
}

//! A report as a table, as JSON, as CSV, as a page.

use anyhow::Context;
use clap::ValueEnum;

use super::html::{html, stretch};
use super::report::{DestinationReport, GroupReport, Report, RuleReport, WindowReport};
use crate::output;

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs, with everything in it.
    Json,
    /// One row per destination and rule.
    Csv,
    /// One page with charts, which needs nothing else.
    Html,
}

/// The most attempt ids in a line for people.
const SHOWN_ATTEMPTS: usize = 20;

/// The most times of under-delivery of a destination, for people.
const SHOWN_STRETCHES: usize = 5;

/// The report as text.
pub fn render(report: &Report, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(table(report)),
        Format::Json => serde_json::to_string_pretty(report).context("print as JSON"),
        Format::Csv => csv(report),
        Format::Html => Ok(html(report)),
    }
}

fn table(report: &Report) -> String {
    let header = [
        "DESTINATION",
        "LIMIT",
        "STARTS",
        "OF POSSIBLE",
        "WINDOW",
        "ALIGNED",
        "SLIDING",
        "BOUND",
        "MARGIN",
        "OVER",
    ];
    let rows =
        (report.destinations.iter()).flat_map(|one| rows_of(&one.rules).map(|rule| row(one, rule)));
    let groups = (report.limit_groups.iter())
        .flat_map(|one| rows_of(&one.rules).map(|rule| group_row(one, rule)));
    let mut text = output::table(&header, rows.chain(groups)).to_string();
    for group in &report.limit_groups {
        for rule in &group.rules {
            text.push_str(&violations(&group.label(), rule));
        }
    }
    for destination in &report.destinations {
        for rule in &destination.rules {
            text.push_str(&violations(label(destination), rule));
        }
        text.push_str(&shortfalls(destination));
        text.push_str(&effective_limits(destination));
    }
    text.push_str(&verdict(report));
    text
}

fn row(destination: &DestinationReport, rule: Option<&RuleReport>) -> Vec<String> {
    let share = &destination.share;
    let whose = vec![
        label(destination).to_owned(),
        destination.limit_words(),
        destination.starts.to_string(),
        format!("{}% of {}", share.percent, share.allowed),
    ];
    kept(whose, rule)
}

/// How much of its limit was used is not said: nobody knows what its members had to send.
fn group_row(group: &GroupReport, rule: Option<&RuleReport>) -> Vec<String> {
    let whose = vec![
        group.label(),
        group.limit_in_force.clone(),
        group.starts.to_string(),
        String::new(),
    ];
    kept(whose, rule)
}

/// And how the rule was kept.
fn kept(mut whose: Vec<String>, rule: Option<&RuleReport>) -> Vec<String> {
    let starts = |window: Option<&WindowReport>| {
        window
            .map(|window| window.starts.to_string())
            .unwrap_or_default()
    };
    whose.extend([
        rule.map(|rule| rule.rule).unwrap_or_default().to_owned(),
        starts(rule.and_then(|rule| rule.largest_aligned.as_ref())),
        starts(rule.and_then(|rule| rule.largest_sliding.as_ref())),
        rule.and_then(|rule| rule.bound)
            .map(|bound| bound.to_string())
            .unwrap_or_default(),
        rule.map(margin).unwrap_or_default(),
        rule.map(|rule| rule.early_starts.to_string())
            .unwrap_or_default(),
    ]);
    whose
}

/// `4 ms`; nothing of what is no window.
pub(super) fn margin(rule: &RuleReport) -> String {
    let millis = |seconds: f64| format!("{} ms", (seconds * 1e6).round() / 1e3);
    rule.margin_seconds.map_or(String::new(), millis)
}

/// Safe between tags and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

pub(super) fn label(destination: &DestinationReport) -> &str {
    if destination.name.is_empty() {
        &destination.id
    } else {
        &destination.name
    }
}

fn violations(whose: &str, rule: &RuleReport) -> String {
    let lines = rule.violations.iter().map(|violation| {
        let shown: Vec<String> = (violation.attempts.iter().take(SHOWN_ATTEMPTS))
            .map(i64::to_string)
            .collect();
        let more = if violation.attempts.len() > shown.len() {
            " …"
        } else {
            ""
        };
        format!(
            "\nover: {} {}: {} starts where {} were allowed, until {}; attempts {}{more}",
            whose,
            rule.rule,
            violation.starts,
            violation.bound,
            violation.ends_at,
            shown.join(" "),
        )
    });
    lines.collect()
}

/// Where it had a backlog and got less than its limit allowed.
fn shortfalls(destination: &DestinationReport) -> String {
    let short = &destination.under_delivery;
    let shown = short.stretches.iter().take(SHOWN_STRETCHES);
    let lines = shown.map(|one| format!("\nshort: {} {}", label(destination), stretch(one)));
    let more = match short.stretches.len().saturating_sub(SHOWN_STRETCHES) {
        0 => String::new(),
        more => format!("\nshort: {} and {more} times more", label(destination)),
    };
    lines.chain([more]).collect()
}

/// How low smart delivery went, and why it is where it is.
fn effective_limits(destination: &DestinationReport) -> String {
    let entries = &destination.smart_delivery;
    let Some(last) = entries.last() else {
        return String::new();
    };
    let rates = entries
        .iter()
        .filter_map(|entry| entry.limit.effective_per_second);
    let lowest = rates.reduce(f64::min);
    let words = |rate: Option<f64>| {
        rate.map_or("as configured".to_owned(), |rate| format!("{rate}/second"))
    };
    format!(
        "\nsmart delivery: {}: {} changes, lowest {}, last {} ({}) from {}",
        label(destination),
        entries.len(),
        words(lowest),
        words(last.limit.effective_per_second),
        last.limit.reason.as_str(),
        last.in_force_from,
    )
}

fn verdict(report: &Report) -> String {
    let count = report.destinations.len();
    let broken = report
        .destinations
        .iter()
        .filter(|destination| !destination.compliant)
        .count();
    let groups = report.limit_groups.iter();
    let broken_groups = groups.filter(|group| !group.compliant).count();
    let verdict = if report.compliant {
        "compliant: no window was over its limit".to_owned()
    } else if broken_groups > 0 {
        format!(
            "NOT compliant: {broken} of {count} destinations and {broken_groups} limit groups were \
             over a limit"
        )
    } else {
        format!("NOT compliant: {broken} of {count} destinations were over a limit")
    };
    format!(
        "\n{verdict} ({count} destinations, {} to {})",
        report.since, report.until
    )
}

fn csv(report: &Report) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "destination_id",
        "name",
        "limit_in_force",
        "starts",
        "allowed_starts",
        "share_percent",
        "rule",
        "largest_aligned",
        "largest_sliding",
        "largest_sliding_ends_at",
        "bound",
        "margin_seconds",
        "under_delivery_seconds",
        "early_starts",
        "violations",
        "attempts",
        "compliant",
        "limit_group",
    ])?;
    for destination in &report.destinations {
        for rule in rows_of(&destination.rules) {
            writer.write_record(record(&Whose::of(destination), rule))?;
        }
    }
    for group in &report.limit_groups {
        for rule in rows_of(&group.rules) {
            writer.write_record(record(&Whose::of_group(group), rule))?;
        }
    }
    let bytes = writer.into_inner().context("write CSV")?;
    let text = String::from_utf8(bytes).context("write CSV")?;
    Ok(text.trim_end().to_owned())
}

/// A row for each rule, and one for whoever has none.
fn rows_of(rules: &[RuleReport]) -> impl Iterator<Item = Option<&RuleReport>> {
    let none = rules.is_empty().then_some(None);
    none.into_iter().chain(rules.iter().map(Some))
}

/// Whose row it is; what is not said of a limit group is empty.
#[derive(Default)]
struct Whose {
    id: String,
    name: String,
    limit: String,
    starts: String,
    allowed: String,
    percent: String,
    under_delivery: String,
    is_compliant: bool,
    group: String,
}

impl Whose {
    fn of(destination: &DestinationReport) -> Self {
        Self {
            id: destination.id.clone(),
            name: as_text(&destination.name),
            limit: destination.limit_in_force.clone(),
            starts: destination.starts.to_string(),
            allowed: destination.share.allowed.to_string(),
            percent: destination.share.percent.to_string(),
            under_delivery: destination.under_delivery.seconds.to_string(),
            is_compliant: destination.compliant,
            group: String::new(),
        }
    }

    fn of_group(group: &GroupReport) -> Self {
        Self {
            limit: group.limit_in_force.clone(),
            starts: group.starts.to_string(),
            is_compliant: group.compliant,
            group: as_text(&group.name),
            ..Self::default()
        }
    }
}

fn record(whose: &Whose, rule: Option<&RuleReport>) -> [String; 18] {
    let of = |value: Option<String>| value.unwrap_or_default();
    let sliding = rule.and_then(|rule| rule.largest_sliding.as_ref());
    let aligned = rule.and_then(|rule| rule.largest_aligned.as_ref());
    let attempts = rule.map(|rule| {
        let all = rule
            .violations
            .iter()
            .flat_map(|violation| &violation.attempts);
        all.map(i64::to_string).collect::<Vec<_>>().join(" ")
    });
    [
        whose.id.clone(),
        whose.name.clone(),
        whose.limit.clone(),
        whose.starts.clone(),
        whose.allowed.clone(),
        whose.percent.clone(),
        of(rule.map(|rule| rule.rule.to_owned())),
        of(aligned.map(|window| window.starts.to_string())),
        of(sliding.map(|window| window.starts.to_string())),
        of(sliding.map(|window| window.ends_at.clone())),
        of(rule
            .and_then(|rule| rule.bound)
            .map(|bound| bound.to_string())),
        of(rule
            .and_then(|rule| rule.margin_seconds)
            .map(|seconds| seconds.to_string())),
        whose.under_delivery.clone(),
        of(rule.map(|rule| rule.early_starts.to_string())),
        of(rule.map(|rule| rule.violations.len().to_string())),
        of(attempts),
        rule.map_or(whose.is_compliant, |rule| rule.early_starts == 0)
            .to_string(),
        whose.group.clone(),
    ]
}

/// A name that a spreadsheet does not take for a formula: tenants choose names,
/// and operators open reports.
fn as_text(name: &str) -> String {
    match name.starts_with(['=', '+', '-', '@']) {
        true => format!("'{name}"),
        false => name.to_owned(),
    }
}

//! The report at a terminal.

use server::output::{self, or_dash};

use super::metrics::meaning;
use super::report::{Ended, Report, number};
use super::side_by_side::Way;

/// The whole report as text.
pub(crate) fn table(report: &Report) -> String {
    let mut parts = vec![heading(report), figures(report)];
    if !report.processes.is_empty() {
        parts.push(processes(report));
    }
    if !report.destinations.is_empty() {
        parts.push(destinations(report));
    }
    if !report.statements.is_empty() {
        parts.push(statements(report));
    }
    if !report.side_by_side.is_empty() {
        parts.push(side_by_side(&report.side_by_side));
    }
    let notes = report.notes.iter().map(|note| format!("note: {note}"));
    parts.extend(Some(notes.collect::<Vec<_>>().join("\n")).filter(|notes| !notes.is_empty()));
    parts.join("\n\n")
}

/// What was tried, and how it ended.
pub(crate) fn heading(report: &Report) -> String {
    let settings = &report.settings;
    let shape = serde_json::to_value(settings.shape).unwrap_or_default();
    let ended = match report.ended {
        Ended::Drained => "drained",
        Ended::Undrained => "not drained when the patience was over",
        Ended::Interrupted => "interrupted",
    };
    format!(
        "{} on {}: {}/s for {} s to {} destinations, limit {}, {} bytes; {ended} ({})",
        shape.as_str().unwrap_or_default(),
        report.system,
        number(settings.rate.0),
        number(report.load_seconds),
        number(settings.destinations.into()),
        settings.limit,
        number(settings.payload_bytes.into()),
        report.machine,
    )
}

fn figures(report: &Report) -> String {
    let plain = report.in_order().filter(|(name, _)| !name.contains('.'));
    let rows =
        plain.map(|(name, value)| vec![name.to_owned(), number(value), meaning(name).to_owned()]);
    output::table(&["figure", "measured", ""], rows).to_string()
}

fn processes(report: &Report) -> String {
    let header = [
        "process",
        "CPU s",
        "in the kernel %",
        "CPU µs per delivery",
        "peak RSS MiB",
    ];
    let rows = report.processes.iter().map(|process| {
        vec![
            process.name.clone(),
            number(process.cpu_seconds),
            number(process.in_kernel_percent),
            number(process.cpu_us_per_delivery),
            number(process.peak_rss_mib),
        ]
    });
    output::table(&header, rows).to_string()
}

fn destinations(report: &Report) -> String {
    let header = [
        "worst destinations",
        "window",
        "limit",
        "at receiver",
        "in ledger",
        "early arrivals",
        "early starts",
        "share %",
        "arrivals",
    ];
    let rows = report.destinations.iter().take(10).map(|one| {
        vec![
            one.destination.to_string(),
            format!("{} s", one.period_seconds),
            or_dash(one.bound),
            one.worst_at_receiver.to_string(),
            or_dash(one.worst_at_sender),
            one.at_receiver.early_arrivals.to_string(),
            one.early_starts.to_string(),
            (one.share_percent).map_or("–".to_owned(), |share| format!("{share:.1}")),
            one.arrivals.to_string(),
        ]
    });
    output::table(&header, rows).to_string()
}

/// Ways to limit the same traffic.
pub(crate) fn side_by_side(ways: &[Way]) -> String {
    let rows = ways.iter().map(|way| way_cells(way).to_vec());
    output::table(&WAY_HEADER, rows).to_string()
}

/// What is said of a way to limit.
pub(crate) const WAY_HEADER: [&str; 5] = [
    "the same traffic under",
    "promised",
    "worst at sender",
    "worst at receiver",
    "last start after s",
];

/// One way to limit, for a table.
pub(crate) fn way_cells(way: &Way) -> [String; 5] {
    [
        way.name.clone(),
        or_dash(way.promised),
        way.worst_at_sender.to_string(),
        way.worst_at_receiver.to_string(),
        number(way.last_start_seconds),
    ]
}

fn statements(report: &Report) -> String {
    let delivered = report.metric("delivered").unwrap_or(0.0).max(1.0);
    let header = [
        "statement",
        "calls",
        "rows",
        "µs per delivery",
        "WAL bytes per delivery",
    ];
    let rows = report.statements.iter().map(|one| {
        vec![
            one.name.clone(),
            number(one.calls as f64),
            number(one.rows as f64),
            number(one.total_ms * 1_000.0 / delivered),
            number(one.wal_bytes as f64 / delivered),
        ]
    });
    output::table(&header, rows).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::gathering;
    use super::super::gathering::tests::evidence;
    use super::*;

    #[test]
    fn the_table_has_the_figures_and_the_notes() {
        let text = table(&gathering::report(evidence()));
        let expected = [
            "constant on embedded: 100/s for 2 s to 20 destinations, limit unlimited",
            "not drained",
            "accepted events that had not arrived at the end",
            "150,000",
            "note: a <note> & more",
        ];
        for part in expected {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}

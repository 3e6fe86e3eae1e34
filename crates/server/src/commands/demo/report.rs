//! What the demo prints at its end.

use std::io::Write;

use comfy_table::CellAlignment;

use crate::output;
use crate::trial::{DestinationVerdict, TrialVerdict, WindowVerdict};

/// Prints the verdict; returns whether the demo passed: no window over, neither at a
/// receiver nor in the ledger, each share at least `least_share` percent, every
/// signature verified.
pub(super) fn print(verdict: &TrialVerdict, least_share: u64, json: bool) -> anyhow::Result<bool> {
    let under: Vec<_> = verdict.under_delivered(least_share).collect();
    let passed = verdict.is_kept() && under.is_empty() && verdict.bad_signatures == 0;
    let mut out = std::io::stdout().lock();
    if json {
        let report = serde_json::json!({
            "passed": passed,
            "destinations": verdict.destinations,
            "bad_signatures": verdict.bad_signatures,
            "stalls": verdict.stalls,
        });
        writeln!(out, "{report:#}")?;
        return Ok(passed);
    }
    writeln!(
        out,
        "\nWhat the receivers saw, beside the ledger:\n{}\n{LEGEND}\n",
        draw(verdict, least_share)
    )?;
    for line in lines(verdict, least_share) {
        writeln!(out, "{line}")?;
    }
    let starts: u64 = verdict.destinations.iter().map(|one| one.starts).sum();
    if passed {
        writeln!(
            out,
            "{starts} starts, no window over its limit at any receiver, every limit used to at \
             least {least_share} %,\nevery signature verified."
        )?;
    } else {
        writeln!(out, "The demo FAILED.")?;
    }
    Ok(passed)
}

/// What the columns are.
const LEGEND: &str = "\
at receiver: the most arrivals in any window of the whole period, by the receiver's own clock.
That is the promise; it decides. in ledger: the same of starts, by the ledger of the sender.";

/// What went wrong, and what was the receivers' own fault.
fn lines(verdict: &TrialVerdict, least_share: u64) -> Vec<String> {
    let mut lines: Vec<_> = excuse(verdict).into_iter().collect();
    for one in &verdict.destinations {
        let (name, received) = (&one.name, &one.at_receiver);
        for over in &received.over {
            lines.push(format!("OVER at the receiver: {name}: {over}"));
        }
        if one.early_starts > 0 {
            let attempts = &one.violating_attempts;
            lines.push(format!("OVER in the ledger: {name}: attempts {attempts:?}"));
        }
    }
    for one in verdict.under_delivered(least_share) {
        let (name, starts, allowed) = (&one.name, one.starts, one.allowed);
        lines.push(format!(
            "UNDER: {name}: {starts} starts, {allowed} were allowed"
        ));
    }
    if verdict.bad_signatures > 0 {
        lines.push(format!("UNSIGNED: {} requests", verdict.bad_signatures));
    }
    lines
}

/// Windows that held more because the receivers themselves stood still.
fn excuse(verdict: &TrialVerdict) -> Option<String> {
    let excused = (verdict.destinations.iter()).filter(|one| one.at_receiver.explained > 0);
    let names: Vec<_> = excused.map(|one| one.name.as_str()).collect();
    let stalls = verdict.stalls;
    (!names.is_empty()).then(|| {
        format!(
            "The receivers stood still themselves {} times, for {} ms at most. What lay in their \
             sockets meanwhile\nwas read late; that explains windows of: {}.",
            stalls.times,
            stalls.longest_ms,
            names.join("; ")
        )
    })
}

fn draw(verdict: &TrialVerdict, least_share: u64) -> String {
    let mut rows = Vec::new();
    for one in &verdict.destinations {
        if one.windows.is_empty() {
            rows.push(cells(one, None, least_share));
        }
        for (index, window) in one.windows.iter().enumerate() {
            let mut cells = cells(one, Some(window), least_share);
            if index > 0 {
                cells[0] = String::new();
            }
            rows.push(cells);
        }
    }
    let header = [
        "limit",
        "window",
        "allowed",
        "at receiver",
        "in ledger",
        "starts",
        "arrived",
        "share",
        "verdict",
    ];
    let mut table = output::table(&header, rows.into_iter().map(Vec::from));
    for column in table.column_iter_mut().skip(2).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn cells(
    one: &DestinationVerdict,
    window: Option<&WindowVerdict>,
    least_share: u64,
) -> [String; 9] {
    let of = |value: fn(&WindowVerdict) -> String| window.map_or("–".to_owned(), value);
    let verdict = if !one.is_kept() {
        "over"
    } else if one.is_under(least_share) {
        "under"
    } else if one.at_receiver.explained > 0 {
        "explained"
    } else {
        "kept"
    };
    [
        one.name.clone(),
        of(|window| window.period.to_string()),
        of(|window| {
            window
                .bound
                .map_or("–".to_owned(), |bound| bound.to_string())
        }),
        of(|window| window.largest_at_receiver.to_string()),
        of(|window| window.largest_sliding.to_string()),
        one.starts.to_string(),
        one.arrivals.to_string(),
        format!("{} %", one.share_percent),
        verdict.to_owned(),
    ]
}

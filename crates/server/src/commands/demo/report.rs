//! What the demo prints at its end.

use std::io::Write;

use comfy_table::CellAlignment;

use crate::output;
use crate::trial::{DestinationVerdict, TrialVerdict, WindowVerdict};

/// Prints the verdict; returns whether the demo passed: no window over, each
/// share at least `least_share` percent, every signature verified.
pub(super) fn print(verdict: &TrialVerdict, least_share: u64, json: bool) -> anyhow::Result<bool> {
    let under: Vec<_> = verdict.under_delivered(least_share).collect();
    let passed = verdict.is_kept() && under.is_empty() && verdict.bad_signatures == 0;
    let mut out = std::io::stdout().lock();
    if json {
        let report = serde_json::json!({
            "passed": passed,
            "destinations": verdict.destinations,
            "bad_signatures": verdict.bad_signatures,
        });
        writeln!(out, "{report:#}")?;
        return Ok(passed);
    }
    writeln!(
        out,
        "\nThe audit, beside what the receivers saw:\n{}",
        draw(verdict, least_share)
    )?;
    for one in verdict
        .destinations
        .iter()
        .filter(|one| one.early_starts > 0)
    {
        let attempts = &one.violating_attempts;
        writeln!(out, "OVER: {}: attempts {attempts:?}", one.name)?;
    }
    for one in &under {
        let (starts, allowed) = (one.starts, one.allowed);
        writeln!(
            out,
            "UNDER: {}: {starts} starts, {allowed} were allowed",
            one.name
        )?;
    }
    if verdict.bad_signatures > 0 {
        writeln!(out, "UNSIGNED: {} requests", verdict.bad_signatures)?;
    }
    let starts: u64 = verdict.destinations.iter().map(|one| one.starts).sum();
    if passed {
        writeln!(
            out,
            "\nallowed, aligned, sliding: the most starts in one window, by the ledger. At the \
             receiver the network moves\narrivals together or apart; the ledger's windows are \
             the promise.\n\n{starts} starts, no window over its limit, every limit used to at \
             least {least_share} %, every signature verified."
        )?;
    } else {
        writeln!(out, "\nThe demo FAILED.")?;
    }
    Ok(passed)
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
        "aligned",
        "sliding",
        "at receiver",
        "starts",
        "arrived",
        "share",
        "verdict",
    ];
    let mut table = output::table(&header, rows.into_iter().map(Vec::from));
    for column in table.column_iter_mut().skip(2).take(7) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn cells(
    one: &DestinationVerdict,
    window: Option<&WindowVerdict>,
    least_share: u64,
) -> [String; 10] {
    let of = |value: fn(&WindowVerdict) -> String| window.map_or("–".to_owned(), value);
    let verdict = if one.early_starts > 0 {
        "over"
    } else if one.is_under(least_share) {
        "under"
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
        of(|window| window.largest_aligned.to_string()),
        of(|window| window.largest_sliding.to_string()),
        of(|window| window.largest_at_receiver.to_string()),
        one.starts.to_string(),
        one.arrivals.to_string(),
        format!("{} %", one.share_percent),
        verdict.to_owned(),
    ]
}

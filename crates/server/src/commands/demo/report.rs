//! What the demo prints at its end.

use std::io::Write;

use comfy_table::CellAlignment;

use super::Shown;
use crate::output;
use crate::trial::{DestinationVerdict, TrialVerdict, WindowVerdict};

/// Prints the verdict; returns whether the demo passed: no window over, neither at a
/// receiver nor in the ledger, each share at least `least_share` percent, every
/// signature verified.
pub(super) fn print(shown: &Shown, least_share: u64, json: bool) -> anyhow::Result<bool> {
    let verdict = &shown.verdict;
    let under: Vec<_> = verdict.under_delivered(least_share).collect();
    let passed = verdict.is_kept() && under.is_empty() && verdict.bad_signatures == 0;
    let mut out = std::io::stdout().lock();
    if json {
        let report = serde_json::json!({
            "passed": passed,
            "destinations": verdict.destinations,
            "bad_signatures": verdict.bad_signatures,
            "stalls": verdict.stalls,
            "classic": shown.classic,
        });
        writeln!(out, "{report:#}")?;
        return Ok(passed);
    }
    writeln!(
        out,
        "\nWhat the receivers saw, beside the ledger:\n{}\n{LEGEND}\n",
        draw(shown, least_share)
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
That is the promise; it decides. In brackets, as they were read, where the receiver stood still.
in ledger: the same of starts, by the ledger of the sender. classic: at receivers of the same kind,
under the formula allow = rate_limit - attempts_still_in_queue, which bounds no window.";

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
        let (name, started, allowed) = (&one.name, one.had_started, one.allowed);
        lines.push(format!(
            "UNDER: {name}: {started:.1} starts on average over its last period, {allowed:.1} were allowed"
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
             sockets meanwhile\nwas read late, in windows of: {}.",
            stalls.times,
            stalls.longest_ms,
            names.join("; ")
        )
    })
}

fn draw(shown: &Shown, least_share: u64) -> String {
    let mut rows = Vec::new();
    for one in &shown.verdict.destinations {
        let classic = shown.classic.get(&one.name);
        let classic = classic.map(|classic| classic.largest_at_receiver);
        if one.windows.is_empty() {
            rows.push(cells(one, (None, classic), least_share));
        }
        for (index, window) in one.windows.iter().enumerate() {
            let mut cells = cells(one, (Some(window), classic), least_share);
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
        "classic",
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

/// In brackets what was read, where stalls moved it together.
fn at_receiver(window: &WindowVerdict) -> String {
    match (window.largest_at_receiver, window.largest_as_read) {
        (came, read) if came == read => came.to_string(),
        (came, read) => format!("({read}) {came}"),
    }
}

fn cells(
    one: &DestinationVerdict,
    (window, classic): (Option<&WindowVerdict>, Option<u64>),
    least_share: u64,
) -> [String; 10] {
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
        of(at_receiver),
        of(|window| window.largest_sliding.to_string()),
        classic.map_or("–".to_owned(), |most| most.to_string()),
        one.starts.to_string(),
        one.arrivals.to_string(),
        format!("{:.1} %", one.share_percent.min(100.0)),
        verdict.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use domain::compliance::{InForce, Stall, Stalls, USUAL_MARGIN};
    use domain::destination::DestinationState;
    use domain::ids::DestinationId;
    use domain::time::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::receiver::Arrival;
    use crate::trial::{Ahead, Ledger, Plan, Receivers, StoodStill, WHOLE_WINDOWS, per_second};

    /// A destination of 2/s whose requests were read then, at a receiver that stood still
    /// for 50 ms from the beginning on.
    fn shown(read_ms: &[u64]) -> Shown {
        let plan = Plan::flooded("2/s", per_second(2), 2, 1);
        let at = Timestamp::from_millis;
        let in_force = InForce::new(at(0), &plan.limits, DestinationState::Active);
        let ledger = Ledger {
            history: vec![in_force],
            rows: Vec::new(),
        };
        let arrivals: Vec<_> = (read_ms.iter())
            .map(|ms| Arrival {
                destination: 0,
                event: None,
                at_us: ms * 1_000,
                body_bytes: 2,
            })
            .collect();
        let stall = Stall {
            from: at(0),
            until: at(0) + Duration::from_millis(50),
        };
        let stalls = Stalls::longer_than(USUAL_MARGIN, [stall]);
        let receivers = Receivers {
            stalls: &stalls,
            ahead: Ahead::default(),
            window_percent: WHOLE_WINDOWS,
        };
        let one = DestinationVerdict::new(
            (&plan, DestinationId(Uuid::nil())),
            &ledger,
            (receivers, &arrivals.iter().collect::<Vec<_>>()),
            (at(0), at(0)),
        );
        Shown {
            verdict: TrialVerdict {
                destinations: vec![one],
                bad_signatures: 0,
                stalls: StoodStill::from(&stalls),
            },
            classic: BTreeMap::new(),
        }
    }

    #[test]
    fn a_window_that_is_over_at_the_receiver_fails_and_is_named() {
        let over = shown(&[50, 50, 990]);
        assert!(!over.verdict.is_kept());
        let line = "OVER at the receiver: 2/s: 3 arrivals within 1 s, 2 allowed, until 0.99 s";
        assert_eq!(lines(&over.verdict, 0), [line]);
        assert!(draw(&over, 0).contains("over"));
    }

    #[test]
    fn what_the_receiver_held_up_itself_is_said_and_fails_nothing() {
        let held = shown(&[50, 50, 1_000, 1_000]);
        assert!(held.verdict.is_kept());
        let said = lines(&held.verdict, 0).concat();
        assert!(said.starts_with("The receivers stood still themselves 1 times, for 50 ms"));
        assert!(said.ends_with("in windows of: 2/s."), "{said}");
        let drawn = draw(&held, 0);
        assert!(
            drawn.contains("explained") && drawn.contains("(4) 2"),
            "{drawn}"
        );
    }
}

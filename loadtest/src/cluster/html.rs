//! The report as one page that needs nothing else, drawn like that of a run.

use std::fmt::Write;

use super::report::{RULES, Report};
use crate::run::charts::{self, Line, escaped};
use crate::run::html::{STYLE, table};

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let title = escaped(&report.heading());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1><p>{}.</p>",
        escaped(&report.verdict())
    );
    if let Some(curve) = curve(report) {
        let _ = write!(page, "<h2>Starts per second, all destinations</h2>{curve}");
    }
    let timeline = report.timeline.iter().map(|entry| {
        let at = format!("{:.1} s", entry.at_ms as f64 / 1_000.0);
        [at, entry.what.words()]
    });
    page.push_str(&table(
        "What happened to the cluster",
        &["At", ""],
        timeline,
    ));
    let counts = report
        .rows()
        .map(|(name, count)| [name.to_owned(), count.to_string()]);
    page.push_str(&table("Events", &["", "Count"], counts.into_iter()));
    page.push_str(&table("Limits", &RULES, report.rules().into_iter()));
    page.push_str("</body></html>\n");
    page
}

/// What all destinations started in each second, and what they were allowed.
fn curve(report: &Report) -> Option<String> {
    let curves: Vec<_> = report
        .destinations
        .iter()
        .filter_map(|one| one.curve.as_ref())
        .collect();
    let step = curves.iter().map(|curve| curve.step_seconds).max()?;
    let points = curves.iter().map(|curve| curve.points.len()).max()?;
    let sum = |of: fn(&super::ledger::Point) -> f64| {
        // A chart has a value for each second.
        let seconds = 0..points * usize::try_from(step).unwrap_or(1);
        let at = |second: usize| {
            let values = curves.iter().filter_map(|curve| {
                let every = usize::try_from(curve.step_seconds).unwrap_or(1).max(1);
                curve.points.get(second / every).map(of)
            });
            values.sum()
        };
        seconds.map(at).collect()
    };
    Some(charts::lines(&[
        Line {
            name: "starts",
            values: sum(|point| point.starts_per_second),
        },
        Line {
            name: "limits",
            values: sum(|point| point.limit_per_second.unwrap_or(0.0)),
        },
    ]))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{fault, report};
    use super::super::timeline::Answer;
    use super::*;
    use crate::run::html::tests::is_well_formed;

    #[test]
    fn the_page_is_well_formed_and_has_the_timeline() {
        let page = page(&report(vec![fault(Answer::Refused)], 0, true));
        is_well_formed(&page).unwrap();
        for part in [
            "limits held, and nothing was lost",
            "evict pod worker-1: refused by a disruption budget",
            "load &lt;0&gt;",
            "<svg",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }
}

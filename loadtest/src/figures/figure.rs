//! One figure: what was measured, and whether it holds.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;
use server::output;

/// A figure, measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// What, in a few words.
    pub(crate) name: String,
    /// In `unit`; not a number where it could not be measured.
    pub(crate) measured: f64,
    /// What it is measured in.
    pub(crate) unit: &'static str,
    /// In words, such as `≤ 3`.
    pub(crate) threshold: String,
    /// Whether it holds.
    pub(crate) passed: bool,
}

impl Figure {
    /// Holds if it is at most so much.
    pub(crate) fn at_most(
        name: impl Into<String>,
        measured: f64,
        most: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            measured,
            unit,
            threshold: format!("≤ {most}"),
            passed: measured <= most,
        }
    }

    /// Holds whatever it is: what the others are of.
    pub(crate) fn noted(name: impl Into<String>, measured: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            measured,
            unit,
            threshold: "–".to_owned(),
            passed: true,
        }
    }

    /// Does not hold, by a rule of somebody else's: `threshold` says which.
    pub(crate) fn missed(
        name: impl Into<String>,
        measured: f64,
        threshold: impl Into<String>,
        unit: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            measured,
            unit,
            threshold: threshold.into(),
            passed: false,
        }
    }

    /// Could not be measured, which is no pass.
    pub(crate) fn not_measured(name: &str, why: &anyhow::Error) -> Self {
        Self::missed(format!("{name}: {why:#}"), f64::NAN, "measured", "")
    }

    /// Holds if it is at least so much.
    pub(crate) fn at_least(
        name: impl Into<String>,
        measured: f64,
        least: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            measured,
            unit,
            threshold: format!("≥ {least}"),
            passed: measured >= least,
        }
    }
}

impl Figure {
    fn value(&self) -> String {
        if self.measured.is_nan() {
            "–".to_owned()
        } else {
            format!("{:.2}", self.measured)
        }
    }
}

/// What a figure is called that holds, or does not.
pub(crate) const fn verdict(passed: bool) -> &'static str {
    if passed { "holds" } else { "MISSED" }
}

/// A line by itself, while others are still measured.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, threshold) = (&self.name, &self.threshold);
        let (value, unit, verdict) = (self.value(), self.unit, verdict(self.passed));
        write!(f, "{name}: {value} {unit} ({threshold}): {verdict}")
    }
}

/// Shows them, for people or for programs. The exit code fails where one does not
/// hold.
pub(crate) fn show(figures: &[Figure], json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::json(&figures)?;
    } else {
        output::line(&table(figures))?;
    }
    let passed = figures.iter().all(|figure| figure.passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// For people.
fn table(figures: &[Figure]) -> String {
    let header = ["figure", "measured", "unit", "threshold", "verdict"];
    let rows = figures.iter().map(|figure| {
        vec![
            figure.name.clone(),
            figure.value(),
            figure.unit.to_owned(),
            figure.threshold.clone(),
            verdict(figure.passed).to_owned(),
        ]
    });
    output::table(&header, rows).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_itself_holds_and_beyond_it_does_not() {
        let most = |measured| Figure::at_most("a", measured, 2.0, "ms").passed;
        let least = |measured| Figure::at_least("a", measured, 2.0, "%").passed;
        assert_eq!([most(2.0), most(2.1), most(f64::NAN)], [true, false, false]);
        assert_eq!([least(2.0), least(1.9)], [true, false]);
    }

    #[test]
    fn what_was_not_measured_is_a_row_that_missed() {
        let why = anyhow::anyhow!("no servers").context("start the roles");
        let figure = Figure::not_measured("idle", &why);
        assert!(!figure.passed);
        let table = table(&[Figure::at_most("a", 1.0, 2.0, "ms"), figure]);
        let row = table.lines().find(|line| line.contains("idle")).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        let expected = "idle: start the roles: no servers – measured MISSED";
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn a_figure_is_a_line_too() {
        let line = Figure::at_most("p99", 12.34, 10.0, "ms").to_string();
        assert_eq!(line, "p99: 12.34 ms (≤ 10): MISSED");
    }
}

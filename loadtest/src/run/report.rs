//! What a run showed, as it is written down.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::database::Statement;
use super::judging::Judged;
use super::settings::Settings;
use super::side_by_side::Way;

/// The version of the format. Reports of another one are refused.
pub(crate) const FORMAT: u32 = 1;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) format: u32,
    /// `embedded`, `distributed` or a URL.
    pub(crate) system: String,
    /// Its cores, and what they are.
    pub(crate) machine: String,
    pub(crate) began_at_unix_ms: i64,
    pub(crate) settings: Settings,
    pub(crate) ended: Ended,
    /// How long the load lasted.
    pub(crate) load_seconds: f64,
    /// Every figure by its name; one that was not measured is absent.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// What happened in each second.
    pub(crate) seconds: Vec<Second>,
    pub(crate) processes: Vec<Process>,
    /// The worst destinations.
    pub(crate) destinations: Vec<Judged>,
    /// How many destinations were judged.
    pub(crate) judged: u64,
    /// The statements that took the longest.
    pub(crate) statements: Vec<Statement>,
    /// What the first destination's traffic comes to under other ways to limit it,
    /// in virtual time; none where it has no limit.
    #[serde(default)]
    pub(crate) side_by_side: Vec<Way>,
    /// What was done in mid-run, and what could not be measured.
    pub(crate) notes: Vec<String>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ended {
    /// Everything that was accepted was delivered.
    Drained,
    /// Not everything was, when the patience was over.
    Undrained,
    /// By a signal.
    Interrupted,
}

/// One second of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Second {
    /// Events that were due in it.
    pub(crate) offered: u64,
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    /// Accepted and not yet delivered at its end.
    pub(crate) backlog: u64,
    /// From accepted to the first byte, of those that arrived in it.
    pub(crate) p99_ms: f64,
}

/// What one process cost; several with one name are one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) cpu_seconds: f64,
    /// The part of it that the kernel spent.
    pub(crate) in_kernel_percent: f64,
    pub(crate) cpu_us_per_delivery: f64,
    pub(crate) peak_rss_mib: f64,
}

impl Report {
    /// One figure, if it was measured.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }

    /// The figures in the order in which they are shown.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&str, f64)> {
        let known = super::metrics::METRICS.iter().map(|metric| metric.name);
        let of_processes = self.metrics.keys().map(String::as_str);
        let of_processes = of_processes.filter(|name| name.contains('.'));
        known
            .chain(of_processes)
            .filter_map(|name| Some((name, self.metric(name)?)))
    }
}

/// A number for people: thousands are told apart, and small ones have digits.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let left = whole.len() - place;
        let after_digit = grouped.ends_with(|before: char| before.is_ascii_digit());
        if after_digit && left % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let part = part.trim_end_matches('0');
    if part.is_empty() {
        grouped
    } else {
        format!("{grouped}.{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        let cases = [
            (0.0, "0"),
            (0.256, "0.26"),
            (9.5, "9.5"),
            (12.34, "12.3"),
            (999.6, "1,000"),
            (15_000.0, "15,000"),
            (-1_234_567.0, "-1,234,567"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}

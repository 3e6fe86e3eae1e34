//! The metrics of this program: their names, kinds and meanings, once.
//!
//! Whoever counts does so where it happens, by name; here the names get the
//! text that `/metrics` shows, and what is counted begins at zero, so that an
//! alert tells nothing yet from nothing at all. `docs/operations.md` has the
//! same list.

mod list;

use engine::ports::Walk;
use engine::roles::{LoopKind, Role};
use metrics::Label;

pub use list::METRICS;

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// Which roles have it.
    pub of: Of,
    /// What `/metrics` says of it.
    pub help: &'static str,
}

/// What kind of metric it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Without labels.
    Counter,
    /// One for each of these values of one label.
    Counters(&'static str, &'static [&'static str]),
    Gauge,
    Histogram,
}

/// Which roles have a metric, `serve` all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    All,
    Api,
    Scheduler,
    Worker,
    /// Stands before several installations, so not in `serve`.
    Router,
    /// Runs on Kubernetes only, so not in `serve`.
    Operator,
    /// Wherever the relay runs.
    Relay,
}

impl Of {
    fn has(self, role: Role) -> bool {
        match self {
            Self::All => true,
            Self::Api => role.has(LoopKind::Ingest),
            Self::Scheduler => role.has(LoopKind::Scheduler),
            Self::Worker => role.has(LoopKind::Worker),
            Self::Router => role == Role::Router,
            Self::Operator => role == Role::Operator,
            Self::Relay => role.has(LoopKind::Relay),
        }
    }
}

/// What retention walks through.
const WALKS: [&str; Walk::ALL.len()] = {
    let mut words = [""; Walk::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = Walk::ALL[at].as_str();
        at += 1;
    }
    words
};

/// Describes the metrics of a role, and begins what it counts at zero. Call it
/// once, after the recorder is installed.
pub fn describe(role: Role) {
    for metric in METRICS.iter().filter(|metric| metric.of.has(role)) {
        let Metric { name, help, .. } = *metric;
        match metric.kind {
            Kind::Counter => {
                metrics::describe_counter!(name, help);
                metrics::counter!(name).increment(0);
            }
            Kind::Counters(label, values) => {
                metrics::describe_counter!(name, help);
                for value in values {
                    let labels = vec![Label::from_static_parts(label, value)];
                    metrics::counter!(name, labels).increment(0);
                }
            }
            Kind::Gauge => metrics::describe_gauge!(name, help),
            Kind::Histogram => {
                metrics::describe_histogram!(name, help);
                if !list::BY_REQUEST.contains(&name) {
                    drop(metrics::histogram!(name));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../docs/operations.md");

    #[test]
    fn every_metric_has_a_row_in_the_page_of_operations_and_every_row_a_metric() {
        let listed: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(listed.len(), METRICS.len(), "each is listed once");
        let rows = PAGE.lines().filter(|line| line.starts_with("| `paceline_"));
        let names = rows.flat_map(|row| {
            let cell = row.trim_start_matches("| ").split(" |").next();
            cell.unwrap_or("").split(", ").map(|name| {
                let name = name.trim_matches('`');
                name.split('{').next().unwrap_or(name)
            })
        });
        assert_eq!(names.collect::<BTreeSet<_>>(), listed);
    }

    #[test]
    fn names_end_in_what_they_are() {
        for metric in METRICS {
            let counts = matches!(metric.kind, Kind::Counter | Kind::Counters(..));
            assert_eq!(metric.name.ends_with("_total"), counts, "{}", metric.name);
            assert!(!metric.help.is_empty() && !metric.help.ends_with('.'));
        }
    }
}

//! Thresholds: `NAME OP NUMBER`, such as `p99_ms<10`, over a report's figures.

use std::fmt;
use std::str::FromStr;

use server::trial::Over;

use super::metrics::{is_known, names};
use super::report::{Report, number};

/// One threshold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Threshold {
    name: String,
    operator: Operator,
    bound: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    AtMost,
    AtLeast,
    Below,
    Above,
    Equal,
}

/// As they are written, those of two characters first.
const OPERATORS: [(&str, Operator); 5] = [
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("==", Operator::Equal),
    ("<", Operator::Below),
    (">", Operator::Above),
];

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = OPERATORS.iter().find_map(|(written, operator)| {
            let (name, bound) = text.split_once(written)?;
            Some((name.trim(), *operator, bound.trim()))
        });
        let expected = || format!("{text}: expected a name, one of <= >= == < >, and a number");
        let (name, operator, bound) = split.ok_or_else(expected)?;
        if !is_known(name) {
            return Err(format!(
                "no figure is called {name:?}; there are {}",
                names()
            ));
        }
        let bound: f64 = bound.parse().or(Err(expected()))?;
        if !bound.is_finite() {
            return Err(expected());
        }
        Ok(Self {
            name: name.to_owned(),
            operator,
            bound,
        })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.allowed())
    }
}

impl Threshold {
    /// The figure that it is about.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What that may be, such as `<= 2`.
    pub(crate) fn allowed(&self) -> String {
        let written = OPERATORS
            .iter()
            .find(|(_, operator)| *operator == self.operator);
        let written = written.map_or("", |(written, _)| written);
        format!("{written} {}", self.bound)
    }

    fn holds(&self, value: f64) -> bool {
        match self.operator {
            Operator::AtMost => value <= self.bound,
            Operator::AtLeast => value >= self.bound,
            Operator::Below => value < self.bound,
            Operator::Above => value > self.bound,
            Operator::Equal => (value - self.bound).abs() < f64::EPSILON,
        }
    }
}

/// What does not hold of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Broken {
    /// A threshold.
    Crossed {
        threshold: Threshold,
        /// `None` where it was not measured.
        measured: Option<f64>,
    },
    /// A place at a receiver.
    Over { destination: u32, over: Over },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crossed {
                threshold,
                measured: Some(value),
            } => write!(f, "crossed: {threshold}: it is {}", number(*value)),
            Self::Crossed {
                threshold,
                measured: None,
            } => write!(f, "crossed: {threshold}: it was not measured"),
            Self::Over { destination, over } => {
                write!(f, "over at the receiver: destination {destination}: {over}")
            }
        }
    }
}

/// What holds of every run, asked for or not, where it was measured: no limit broken, by
/// the receivers' clock or by the ledger, no failure that no receiver caused, nothing that
/// waits while it could go, and nothing left behind when a load is over.
const ALWAYS: [(&str, Operator, f64); 5] = [
    ("early_arrivals", Operator::AtMost, 0.0),
    ("early_starts", Operator::AtMost, 0.0),
    ("unfounded_failures", Operator::AtMost, 0.0),
    ("stalled_seconds", Operator::Below, 1.0),
    ("stragglers_seconds", Operator::AtMost, 2.0),
];

/// Each of [`ALWAYS`] that does not hold, and each place at a receiver that was over.
pub(crate) fn broken(report: &Report) -> Vec<Broken> {
    let all = ALWAYS.map(|(name, operator, bound)| Threshold {
        name: name.to_owned(),
        operator,
        bound,
    });
    let measured: Vec<_> = (all.into_iter())
        .filter(|one| report.metric(&one.name).is_some())
        .collect();
    let mut broken = crossed(&measured, report);
    for one in &report.destinations {
        broken.extend(one.at_receiver.over.iter().map(|over| Broken::Over {
            destination: one.destination,
            over: over.clone(),
        }));
    }
    broken
}

/// Each threshold that does not hold. One whose figure was not measured does not hold.
pub(crate) fn crossed(thresholds: &[Threshold], report: &Report) -> Vec<Broken> {
    let judged = thresholds.iter().filter_map(|threshold| {
        let measured = report.metric(&threshold.name);
        let holds = measured.is_some_and(|value| threshold.holds(value));
        (!holds).then(|| Broken::Crossed {
            threshold: threshold.clone(),
            measured,
        })
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::super::gathering;
    use super::super::gathering::tests::evidence;
    use super::*;

    fn lines(broken: &[Broken]) -> Vec<String> {
        broken.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_operator_holds_on_its_side() {
        let holds = |text: &str, value| text.parse::<Threshold>().unwrap().holds(value);
        assert_eq!(
            [holds("p99_ms<10", 9.9), holds("p99_ms<10", 10.0)],
            [true, false]
        );
        assert_eq!(
            [holds("p99_ms <= 10", 10.0), holds("p99_ms<=10", 10.1)],
            [true, false]
        );
        assert_eq!(
            [holds("p99_ms>1", 1.0), holds("p99_ms>1", 1.1)],
            [false, true]
        );
        assert_eq!(
            [holds("p99_ms>=1", 1.0), holds("p99_ms>=1", 0.9)],
            [true, false]
        );
        assert_eq!(
            [holds("lost==0", 0.0), holds("lost==0", 1.0)],
            [true, false]
        );
        assert!(!holds("p99_ms<10", f64::NAN));
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        let error = "p98_ms<10".parse::<Threshold>().unwrap_err();
        assert!(
            error.contains("p99_ms") && error.contains("peak_rss_mib.PROCESS"),
            "{error}"
        );
        for text in [
            "",
            "p99_ms",
            "p99_ms<",
            "p99_ms<x",
            "p99_ms=10",
            "<10",
            "p99_ms<inf",
        ] {
            assert!(text.parse::<Threshold>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_always_holds_is_asked_of_what_was_measured() {
        let mut report = gathering::report(evidence());
        for (name, _, _) in ALWAYS {
            assert!(is_known(name), "{name}");
            report.metrics.remove(name);
        }
        assert!(broken(&report).is_empty());
        report.metrics.insert("unfounded_failures".to_owned(), 94.0);
        report.metrics.insert("stragglers_seconds".to_owned(), 31.0);
        assert_eq!(
            lines(&broken(&report)),
            [
                "crossed: unfounded_failures <= 0: it is 94",
                "crossed: stragglers_seconds <= 2: it is 31",
            ]
        );
    }

    #[test]
    fn a_line_for_each_that_is_crossed_or_was_not_measured() {
        let report = gathering::report(evidence());
        let thresholds = [
            "lost==0",
            "delivered>=2",
            "quiet_p99_ms<5",
            "cpu_us_per_delivery.serve<130",
        ];
        let thresholds: Vec<Threshold> = thresholds
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        assert_eq!(
            lines(&crossed(&thresholds, &report)),
            [
                "crossed: lost == 0: it is 1",
                "crossed: quiet_p99_ms < 5: it was not measured",
                "crossed: cpu_us_per_delivery.serve < 130: it is 150,000",
            ]
        );
    }
}

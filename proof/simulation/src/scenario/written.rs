//! A scenario written down as Rust, to be kept as a regression test.

use std::fmt::{self, Write};

use domain::policy::LimitSettings;

use super::{Scenario, What};

impl Scenario {
    /// The scenario as an expression, to be kept as a regression test.
    #[must_use]
    pub fn as_rust(&self) -> String {
        let mut rust = String::new();
        // Writing into a string cannot fail.
        let _ = self.write_rust(&mut rust);
        rust
    }

    fn write_rust(&self, rust: &mut String) -> fmt::Result {
        writeln!(rust, "Scenario {{")?;
        writeln!(rust, "    seed: {},", self.seed)?;
        writeln!(rust, "    mood: Mood::{:?},", self.mood)?;
        writeln!(rust, "    destinations: vec![")?;
        for limits in &self.destinations {
            writeln!(rust, "        {},", Limits(limits))?;
        }
        writeln!(rust, "    ],")?;
        writeln!(rust, "    schedulers: {},", self.schedulers)?;
        writeln!(rust, "    workers: {},", self.workers)?;
        writeln!(rust, "    operations: vec![")?;
        for operation in &self.operations {
            let (number, at_ms) = (operation.number, operation.at_ms);
            let what = Expression(&operation.what);
            writeln!(
                rust,
                "        Operation {{ number: {number}, at_ms: {at_ms}, what: {what} }},"
            )?;
        }
        writeln!(rust, "    ],")?;
        writeln!(rust, "    lasts_ms: {},", self.lasts_ms)?;
        writeln!(rust, "}}")
    }
}

/// Limits as Rust, without what is not set.
struct Limits<'a>(&'a LimitSettings);

impl fmt::Display for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.0;
        f.write_str("LimitSettings { ")?;
        let columns = [
            ("per_second", limits.per_second),
            ("per_minute", limits.per_minute),
            ("per_hour", limits.per_hour),
            ("per_day", limits.per_day),
            ("burst", limits.burst),
            ("max_in_flight", limits.max_in_flight),
        ];
        for (name, value) in columns {
            if let Some(value) = value {
                write!(f, "{name}: Some({value}), ")?;
            }
        }
        if let Some(shape) = limits.shape {
            write!(f, "shape: Some(Shape::{shape:?}), ")?;
        }
        if limits.unlimited {
            f.write_str("unlimited: true, ")?;
        }
        if let Some(margin) = limits.safety_margin {
            write!(f, "safety_margin: Some({margin:?}), ")?;
        }
        if let Some(cap) = limits.margin_cap {
            write!(f, "margin_cap: Some({cap:?}), ")?;
        }
        if let Some(count) = limits.count {
            write!(f, "count: Some(Count::{count:?}), ")?;
        }
        f.write_str("..LimitSettings::default() }")
    }
}

/// What happens as Rust.
struct Expression<'a>(&'a What);

impl fmt::Display for Expression<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            What::Limits {
                destination,
                limits,
            } => {
                let limits = Limits(limits);
                write!(
                    f,
                    "What::Limits {{ destination: {destination}, limits: {limits} }}"
                )
            }
            What::Tier { limits } => {
                write!(f, "What::Tier {{ limits: {} }}", Limits(limits))
            }
            What::GroupLimits { limits } => write!(f, "What::GroupLimits {{ limits: {limits:?} }}"),
            what => f.write_str(&qualified(&format!("What::{what:?}"))),
        }
    }
}

/// What `Debug` writes, with the types of the enums in front of their
/// variants.
fn qualified(debug: &str) -> String {
    [
        ("process: ", "process: Process::"),
        ("point: ", "point: Point::"),
        ("behaviour: ", "behaviour: Behaviour::"),
        ("fault: ", "fault: Fault::"),
        ("state: ", "state: DestinationState::"),
        ("to: ", "to: SmartDelivery::"),
        ("condition: ", "condition: Condition::"),
        ("Before(", "Before(Site::"),
        ("After(", "After(Site::"),
    ]
    .iter()
    .fold(debug.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Point, Process};
    use crate::site::Site;

    #[test]
    fn an_operation_is_written_as_rust() {
        let kill = What::Kill {
            process: Process::Scheduler(1),
            point: Point::After(Site::Admit),
            down_ms: 5,
        };
        assert_eq!(
            Expression(&kill).to_string(),
            "What::Kill { process: Process::Scheduler(1), \
             point: Point::After(Site::Admit), down_ms: 5 }"
        );
        let limits = What::Limits {
            destination: 2,
            limits: LimitSettings {
                per_hour: Some(0),
                ..LimitSettings::default()
            },
        };
        assert_eq!(
            Expression(&limits).to_string(),
            "What::Limits { destination: 2, \
             limits: LimitSettings { per_hour: Some(0), ..LimitSettings::default() } }"
        );
    }
}

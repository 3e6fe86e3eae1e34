//! Runs the checker and says what it found.

use std::collections::BTreeSet;
use std::fmt::{self, Debug, Display};
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

/// What a whole search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// States, each counted once.
    pub unique_states: usize,
    /// Steps from the first state to the furthest.
    pub depth: usize,
    /// Each property and whether it holds, in the model's order.
    pub verdicts: Vec<Verdict>,
}

/// One property of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The property.
    pub name: &'static str,
    /// What is asked of it.
    pub asked: Asked,
    /// Whether it is so.
    pub holds: bool,
    /// The steps to a state where it does not hold, if there is one.
    pub trace: Option<String>,
}

/// What is asked of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// That it holds in every state.
    Always,
    /// That it holds in some state.
    Sometimes,
}

impl Verdict {
    fn add(&mut self, other: &Self) {
        self.holds = match self.asked {
            Asked::Always => self.holds && other.holds,
            Asked::Sometimes => self.holds || other.holds,
        };
        if self.trace.is_none() {
            self.trace.clone_from(&other.trace);
        }
    }

    /// Whether it must always hold and does not.
    #[must_use]
    pub fn is_violated(&self) -> bool {
        self.asked == Asked::Always && !self.holds
    }
}

impl Report {
    /// What several searches of one model found, with different bounds: what
    /// must always hold has to hold in each, what must be reached in one.
    #[must_use]
    pub fn of_all<'a>(reports: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self {
            unique_states: 0,
            depth: 0,
            verdicts: Vec::new(),
        };
        for report in reports {
            all.unique_states += report.unique_states;
            all.depth = all.depth.max(report.depth);
            if all.verdicts.is_empty() {
                all.verdicts.clone_from(&report.verdicts);
            }
            for (one, other) in all.verdicts.iter_mut().zip(&report.verdicts) {
                one.add(other);
            }
        }
        all
    }

    /// Whether every property holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
    }
}

/// Searches every state of the model, breadth first.
pub fn check<M>(model: M, threads: usize) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let properties = model.properties();
    // Not before every state has been seen, whatever was found until then.
    let never = HasDiscoveries::AllOf(BTreeSet::from(["no property has this name"]));
    let checker = (model.checker())
        .threads(threads)
        .finish_when(never)
        .spawn_bfs()
        .join();
    let mut found = checker.discoveries();
    let verdicts = (properties.iter())
        .map(|property| {
            let path = found.remove(property.name);
            let asked = match property.expectation {
                Expectation::Sometimes => Asked::Sometimes,
                Expectation::Always | Expectation::Eventually => Asked::Always,
            };
            Verdict {
                name: property.name,
                asked,
                holds: path.is_some() == (asked == Asked::Sometimes),
                trace: (path.filter(|_| asked == Asked::Always)).map(|path| trace(&path)),
            }
        })
        .collect();
    Report {
        unique_states: checker.unique_state_count(),
        depth: checker.max_depth(),
        verdicts,
    }
}

/// The fewest steps after which `property` does not hold, one a line, and the
/// state they lead to; `None` if it always holds.
pub fn shortest_counterexample<M>(model: &M, property: &'static str) -> Option<String>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let mut shortest: Option<Path<M::State, M::Action>> = None;
    loop {
        let checker = (model.clone().checker())
            .finish_when(HasDiscoveries::AllOf(BTreeSet::from([property])))
            // The checker keeps the last counterexample of a block of states,
            // not the first: look again for one that is shorter.
            .target_max_depth(
                shortest
                    .as_ref()
                    .map_or(0, |path| path.clone().into_actions().len() + 1),
            )
            .spawn_bfs()
            .join();
        match checker.discovery(property) {
            Some(path) => shortest = Some(path),
            None => return shortest.map(|path| trace(&path)),
        }
    }
}

fn trace<State, Action>(path: &Path<State, Action>) -> String
where
    State: Clone + Debug + PartialEq,
    Action: Clone + Debug + PartialEq,
{
    let mut lines: Vec<String> = (path.clone().into_actions().iter())
        .map(|action| format!("  {action:?}"))
        .collect();
    lines.push(format!("  => {:?}", path.last_state()));
    lines.join("\n")
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in &self.verdicts {
            let word = match (verdict.asked, verdict.holds) {
                (Asked::Always, true) => "holds   ",
                (Asked::Always, false) => "VIOLATED",
                (Asked::Sometimes, true) => "reached ",
                (Asked::Sometimes, false) => "NEVER   ",
            };
            writeln!(f, "  {word}  {}", verdict.name)?;
            if let Some(trace) = &verdict.trace {
                writeln!(f, "{trace}")?;
            }
        }
        Ok(())
    }
}

//! Roles, loops, and which role runs which: the table that [`super`] begins with.

use std::time::Duration;

use crate::scheduler::SchedulerOptions;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Serve,
    /// Takes events in.
    Api,
    /// Takes, admits, publishes, finishes; repairs.
    Scheduler,
    /// Delivers.
    Worker,
    /// Makes destinations what resources of Kubernetes say. It has no loop of the
    /// engine.
    Operator,
    /// Passes requests on to the API of the shard whose they are. It has no loop of the
    /// engine either, and no store.
    Router,
}

impl Role {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Serve,
        Self::Api,
        Self::Scheduler,
        Self::Worker,
        Self::Operator,
        Self::Router,
    ];

    /// The word, as on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Api => "api",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Operator => "operator",
            Self::Router => "router",
        }
    }

    /// Whether its processes run this loop.
    #[must_use]
    pub fn has(self, kind: LoopKind) -> bool {
        kind.roles().contains(&self)
    }

    /// The schedulers of one process. A run waits for the store nearly all of its
    /// time, and whoever is woken during it waits for its end. Two share the work as
    /// two processes would: one takes what comes while the other waits. Embedded, the
    /// store takes one writer at a time.
    #[must_use]
    pub fn schedulers(self) -> Vec<SchedulerOptions> {
        let one = SchedulerOptions::default();
        let idle = SECOND_IDLES;
        match self {
            Self::Scheduler => vec![one, SchedulerOptions { idle, ..one }],
            Self::Serve => vec![one],
            Self::Api | Self::Worker | Self::Operator | Self::Router => Vec::new(),
        }
    }
}

/// How long the second scheduler of a process waits before it looks at the schedule
/// again: the first looks often enough while both are idle.
const SECOND_IDLES: Duration = Duration::from_secs(2);

/// The loops of the engine, in the order in which they are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoopKind {
    /// Many requests, one commit.
    Ingest,
    /// Has backlogs counted, for whoever refuses events.
    Backpressure,
    /// Seals secrets anew. It runs where secrets are made: there are few of these
    /// processes, and they have the time.
    Resealing,
    /// Rows that users wrote become events.
    Relay,
    /// What is over and old goes.
    Retention,
    /// What operators must know reaches them.
    Notifier,
    /// What metrics say of the store.
    Survey,
    /// What came of each destination's requests.
    Tally,
    /// Take, admit, publish, finish.
    Scheduler,
    /// What crashed goes on.
    Reaper,
    /// What was forgotten is looked at.
    Sweep,
    /// Dead letters go out again.
    Replay,
    /// Receivers are asked whether they want to be sent anything.
    Handshake,
    /// People are told what operators must know, where messages can be sent.
    Notices,
    /// Receive, wait, claim, acknowledge, send, record.
    Worker,
}

impl LoopKind {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Ingest,
        Self::Backpressure,
        Self::Resealing,
        Self::Relay,
        Self::Retention,
        Self::Notifier,
        Self::Survey,
        Self::Tally,
        Self::Scheduler,
        Self::Reaper,
        Self::Sweep,
        Self::Replay,
        Self::Handshake,
        Self::Notices,
        Self::Worker,
    ];

    /// The word, as in the table and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Backpressure => "backpressure",
            Self::Resealing => "resealing",
            Self::Relay => "relay",
            Self::Retention => "retention",
            Self::Notifier => "notifier",
            Self::Survey => "survey",
            Self::Tally => "tally",
            Self::Scheduler => "scheduler",
            Self::Reaper => "reaper",
            Self::Sweep => "sweep",
            Self::Replay => "replay",
            Self::Handshake => "handshake",
            Self::Notices => "notices",
            Self::Worker => "worker",
        }
    }

    /// The roles that run it.
    #[must_use]
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Ingest | Self::Backpressure | Self::Resealing => &[Role::Serve, Role::Api],
            Self::Relay => &[Role::Serve, Role::Api, Role::Scheduler],
            Self::Retention
            | Self::Notifier
            | Self::Survey
            | Self::Tally
            | Self::Scheduler
            | Self::Reaper
            | Self::Sweep
            | Self::Replay => &[Role::Serve, Role::Scheduler],
            Self::Handshake | Self::Notices | Self::Worker => &[Role::Serve, Role::Worker],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = include_str!("../roles.rs");
    const PAGE: &str = include_str!("../../../../docs/operations.md");

    /// The roles that a table's row ticks, and the loops that it names: by the first
    /// word of each of its names.
    fn row(line: &str) -> Option<(Vec<LoopKind>, Vec<Role>)> {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let names = cells.next()?.replace(" and ", ", ");
        let kind = |name: &str| {
            let word = name.split_whitespace().next()?;
            LoopKind::ALL.into_iter().find(|kind| kind.as_str() == word)
        };
        let kinds = names.split(',').filter_map(kind).collect();
        let ticks = Role::ALL.into_iter().zip(cells);
        let roles = ticks.filter_map(|(role, cell)| (cell == "✓").then_some(role));
        Some((kinds, roles.collect()))
    }

    /// What the first table after this heading says of each loop.
    fn table<'a>(text: &'a str, heading: &str) -> Vec<(LoopKind, Vec<Role>)> {
        let (_, rest) = text.split_once(heading).expect("the heading is there");
        let is_row = |line: &&'a str| line.trim_start_matches("//! ").starts_with('|');
        let lines = rest.lines().skip_while(|line| !is_row(line));
        let rows = lines.take_while(is_row).filter_map(row);
        let mut said: Vec<_> = rows
            .flat_map(|(kinds, roles)| kinds.into_iter().map(move |kind| (kind, roles.clone())))
            .collect();
        said.sort_by_key(|(kind, _)| *kind);
        said
    }

    #[test]
    fn the_tables_say_which_loops_a_role_has() {
        let true_table: Vec<_> = (LoopKind::ALL.into_iter())
            .map(|kind| (kind, kind.roles().to_vec()))
            .collect();
        assert_eq!(table(HERE, "//! chaos."), true_table, "roles.rs");
        assert_eq!(table(PAGE, "## Roles"), true_table, "docs/operations.md");
    }

    /// One alone is held up by each of its runs.
    #[test]
    fn who_schedules_over_servers_has_a_second_one_that_is_seldom_awake() {
        let [one, second] = Role::Scheduler.schedulers()[..] else {
            panic!("not two");
        };
        assert_eq!(one.idle, SchedulerOptions::default().idle);
        assert!(second.idle >= one.idle * 4, "idle it costs next to nothing");
        assert_eq!(Role::Serve.schedulers().len(), 1);
        for role in Role::ALL {
            let schedules = !role.schedulers().is_empty();
            assert_eq!(schedules, role.has(LoopKind::Scheduler), "{role:?}");
        }
    }
}

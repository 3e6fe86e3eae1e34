//! `loadtest windows`: the worst window of the whole period at an independent receiver,
//! and the share of the limit meanwhile, for many limits and receivers, in both sizes.
//!
//! Each is a run of `loadtest run`, whose receiver is a process of its own, with a
//! backlog from the first moment to the last. One that is over its limit at the receiver,
//! or that gets less of it than it should, fails. `--runs` makes all of them again and
//! again, and shows the worst of each. `--faults` has a fault in the middle of each, on
//! real servers.

mod faults;
mod measured;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use serde::Serialize;
use server::trial::WHOLE_WINDOWS;
use tokio::process::Command;

use crate::apart::Running;
use crate::run::report::Report;
use crate::run::settings::{Limit, Size};
use measured::{Measured, show};

/// How much longer than the measurement the backlog lasts, in seconds.
const SPARE_SECONDS: f64 = 20.0;

/// Places of a worker: enough for a thousand a second that take two seconds each.
const PLACES: &str = "4096";

/// Requests in flight that a destination has in any case.
const USUAL_IN_FLIGHT: f64 = 50.0;

/// Measures the worst windows at receivers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each is measured; one per minute, a minute longer.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(3..=600))]
    seconds: u32,
    /// Only these sizes; by default both.
    #[arg(long, value_enum, value_delimiter = ',')]
    sizes: Vec<Size>,
    /// Only these limits, such as `10/s,100/min`; by default all.
    #[arg(long, value_delimiter = ',')]
    limits: Vec<Limit>,
    /// Only receivers that take this long, in milliseconds; by default 0, 50 and 2,000.
    #[arg(long, value_delimiter = ',')]
    answer_ms: Vec<u64>,
    /// Scheduler processes of the distributed size; a list, such as `1,2,3`, is measured
    /// with each number of workers.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    schedulers: Vec<u32>,
    /// Worker processes of the distributed size; a list is measured with each number of
    /// schedulers.
    #[arg(long, value_delimiter = ',', default_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: Vec<u32>,
    /// How often all of them are measured, one round after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The distributed size through faults, one in the middle of each run: `kill -9` of a
    /// worker and of a scheduler, SIGSTOP of a worker, half of every limit by SQL, the loss
    /// of all jobs in Redis, and the queue deleted. Needs servers (`scripts/with-servers`).
    #[arg(long, conflicts_with_all = ["windows", "least_share"])]
    faults: bool,
    /// Judge windows of this part of each period, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = WHOLE_WINDOWS)]
    #[arg(value_parser = clap::value_parser!(u32).range(50..=100))]
    windows: u32,
    /// How much of its limit each must get, in percent; of a limit per minute one more.
    #[arg(long, value_name = "PERCENT", default_value_t = 98.5)]
    least_share: f64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// How many processes of each role the distributed size has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Roles {
    schedulers: u32,
    workers: u32,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Cell {
    size: Size,
    /// `None` where one process is all of them.
    roles: Option<Roles>,
    limit: Limit,
    destinations: u32,
    answer_ms: u64,
}

impl Cell {
    /// Schedulers and workers, for people.
    fn processes(&self) -> String {
        self.roles.map_or("–".to_owned(), |roles| {
            format!("{} + {}", roles.schedulers, roles.workers)
        })
    }

    /// How many may start in a second on average.
    fn per_second(&self) -> f64 {
        match self.limit {
            Limit::Per(max, period) => f64::from(max) / period.duration().as_secs_f64(),
            Limit::Unlimited => 0.0,
        }
    }

    /// Requests in flight that leave the limit to decide.
    fn at_once(&self) -> f64 {
        let busy = self.per_second() * (self.answer_ms as f64 / 1_000.0 + 1.0) * 1.5;
        busy.max(USUAL_IN_FLIGHT).ceil()
    }
}

/// Runs them one after the other, and prints one table; of several rounds, the worst of
/// each too. Each says its row as it ends, and one that fails leaves the others.
pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    if args.faults {
        return faults::run(&args, &program).await;
    }
    let cells = args.cells();
    ensure!(!cells.is_empty(), "nothing is left to measure");
    let mut measured = Vec::new();
    for run in 1..=args.runs {
        for cell in cells.iter().copied() {
            let one = match args.measure((run, cell), &program).await {
                Ok(report) => Measured::new((run, cell), args.windows, &report),
                Err(error) => Measured::failed((run, cell), args.windows, format!("{error:#}")),
            };
            say(&one.line(args.least_share))?;
            measured.push(one);
        }
    }
    show(&measured, args.least_share, args.json)
}

/// To whoever waits for the table.
fn say(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr().lock(), "{text}").context("print")
}

impl Args {
    fn cells(&self) -> Vec<Cell> {
        let mut kinds = Vec::new();
        for limit in ["1/s", "10/s", "100/s", "1000/s", "100/min"] {
            kinds.extend([0, 50, 2_000].map(|answer_ms| (limit, 1, answer_ms)));
        }
        kinds.push(("5/s", 200, 0));
        let mut cells = Vec::new();
        for (size, roles) in self.places() {
            let cell = |(limit, destinations, answer_ms): &(&str, u32, u64)| {
                Some(Cell {
                    size,
                    roles,
                    limit: limit.parse().ok()?,
                    destinations: *destinations,
                    answer_ms: *answer_ms,
                })
            };
            cells.extend(kinds.iter().filter_map(cell));
        }
        cells.retain(|cell| {
            let limit = self.limits.is_empty() || self.limits.contains(&cell.limit);
            limit && (self.answer_ms.is_empty() || self.answer_ms.contains(&cell.answer_ms))
        });
        cells
    }

    /// Each size, the distributed one with each number of its processes.
    fn places(&self) -> Vec<(Size, Option<Roles>)> {
        let sizes = match self.sizes.as_slice() {
            [] => &[Size::Embedded, Size::Distributed],
            some => some,
        };
        let mut places = Vec::new();
        for size in sizes.iter().copied() {
            if size == Size::Embedded {
                places.push((size, None));
                continue;
            }
            for schedulers in self.schedulers.iter().copied() {
                places.extend(self.workers.iter().copied().map(|workers| {
                    let roles = Roles {
                        schedulers,
                        workers,
                    };
                    (size, Some(roles))
                }));
            }
        }
        places
    }

    /// Makes one run. Whether limits held is for us to say, and its exit code does.
    async fn measure(&self, (run, cell): (u32, Cell), program: &PathBuf) -> anyhow::Result<Report> {
        let arguments = self.arguments(cell);
        let name = arguments.join(" ");
        let of = self.runs;
        say(&format!("{run} of {of}: loadtest run {name}"))?;
        // Its own: no other run's report is taken for this one's.
        let folder = tempfile::tempdir().context("make a folder for a report")?;
        let summary = folder.path().join("report.json");
        let ours = std::env::current_exe().context("find this program")?;
        let mut command = Command::new(ours);
        command.arg("--program").arg(program).arg("run");
        command.args(&arguments).arg("--summary").arg(&summary);
        command.env("PACELINE_WORKER_PLACES", PLACES);
        let status = Running::start(&mut command)?.end().await?;
        ensure!(
            matches!(status.code(), Some(0 | 1)),
            "{name}: it ended with {status}"
        );
        let text = std::fs::read_to_string(&summary);
        let text = text.with_context(|| format!("{name}: it left no report"))?;
        serde_json::from_str(&text).context("read a run's report")
    }

    /// How long one is measured, in seconds.
    fn length(&self, limit: Limit) -> u32 {
        let more = match limit {
            Limit::Per(_, period) if period.duration().as_secs() > 1 => period.duration().as_secs(),
            Limit::Per(..) | Limit::Unlimited => 0,
        };
        self.seconds + u32::try_from(more).unwrap_or(u32::MAX >> 1)
    }

    /// A backlog at once, which is not drained when the time is over.
    fn arguments(&self, cell: Cell) -> Vec<String> {
        let seconds = self.length(cell.limit);
        let backlog = match cell.limit {
            Limit::Per(max, _) => {
                f64::from(max) + cell.per_second() * (f64::from(seconds) + SPARE_SECONDS)
            }
            Limit::Unlimited => 0.0,
        };
        let events = (backlog * f64::from(cell.destinations)).ceil();
        let mut flags = vec![
            ("--size", cell.size.name().to_owned()),
            ("--shape", "import".to_owned()),
            ("--rate", "0".to_owned()),
            ("--seconds", "1".to_owned()),
            ("--drain-seconds", seconds.to_string()),
            ("--events", events.to_string()),
            ("--destinations", cell.destinations.to_string()),
            ("--hot", cell.destinations.to_string()),
            ("--limit", cell.limit.to_string()),
            ("--answer-ms", cell.answer_ms.to_string()),
            ("--max-in-flight", cell.at_once().to_string()),
            ("--windows", self.windows.to_string()),
        ];
        if let Some(roles) = cell.roles {
            flags.push(("--schedulers", roles.schedulers.to_string()));
            flags.push(("--workers", roles.workers.to_string()));
        }
        let words = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]);
        words.collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    pub(super) fn args(words: &[&str]) -> Args {
        let program = std::iter::once("windows");
        Cli::parse_from(program.chain(words.iter().copied())).args
    }

    #[test]
    fn all_limits_and_receivers_in_both_sizes() {
        assert_eq!(args(&[]).cells().len(), 2 * (5 * 3 + 1));
        let some = [
            "--sizes",
            "embedded",
            "--limits",
            "10/s,5/s",
            "--answer-ms",
            "0",
        ];
        let cells = args(&some).cells();
        let shown: Vec<_> = (cells.iter())
            .map(|cell| (cell.limit.to_string(), cell.destinations))
            .collect();
        assert_eq!(shown, [("10/s".to_owned(), 1), ("5/s".to_owned(), 200)]);
    }

    #[test]
    fn there_is_a_backlog_to_the_end_and_room_for_it_in_flight() {
        let of = |limit: &str, answer_ms: &str| {
            let some = [
                "--sizes",
                "embedded",
                "--limits",
                limit,
                "--answer-ms",
                answer_ms,
            ];
            let args = args(&some);
            let cells = args.cells();
            let words = args.arguments(cells[0]);
            let value = |flag: &str| {
                let place = words.iter().position(|word| word == flag).unwrap();
                words[place + 1].clone()
            };
            ["--events", "--drain-seconds", "--max-in-flight"].map(value)
        };
        assert_eq!(of("1000/s", "2000"), ["81000", "60", "4500"]);
        assert_eq!(of("100/min", "0"), ["334", "120", "50"]);
    }

    #[test]
    fn every_number_of_schedulers_meets_every_number_of_workers() {
        let some = ["--limits", "5/s", "--schedulers", "1,3", "--workers", "1,2"];
        let args = args(&some);
        let roles = |cell: &Cell| (cell.roles).map(|roles| (roles.schedulers, roles.workers));
        let shown: Vec<_> = args.cells().iter().map(roles).collect();
        let each = [(1, 1), (1, 2), (3, 1), (3, 2)].map(Some);
        assert_eq!(shown[0], None, "embedded, once");
        assert_eq!(shown[1..], each);
        let words = args.arguments(args.cells()[4]).join(" ");
        assert!(words.ends_with("--schedulers 3 --workers 2"), "{words}");
        let embedded = args.arguments(args.cells()[0]).join(" ");
        assert!(!embedded.contains("--workers"), "{embedded}");
    }
}

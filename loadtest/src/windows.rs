//! `loadtest windows`: the worst window of the whole period at an independent receiver,
//! and the share of the limit meanwhile, for many limits and receivers, in both sizes.
//!
//! Each is a run of `loadtest run`, whose receiver is a process of its own, with a
//! backlog from the first moment to the last. One that is over its limit at the receiver,
//! or that gets less of it than it should, fails.

use std::io::Write;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, ensure};
use serde::Serialize;
use server::output;
use server::trial::WHOLE_WINDOWS;
use tempfile::TempDir;
use tokio::process::Command;

use crate::run::report::Report;
use crate::run::settings::{Limit, Size};

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
    /// Scheduler processes of the distributed size.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    schedulers: u32,
    /// Worker processes of the distributed size.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,
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

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    size: Size,
    limit: Limit,
    destinations: u32,
    answer_ms: u64,
}

/// What it came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Measured {
    size: Size,
    limit: Limit,
    destinations: u32,
    answer_ms: u64,
    /// What a window may hold.
    allowed: Option<u64>,
    /// The fullest one at a receiver, less what its own stalls explain.
    at_receiver: u64,
    /// The fullest one of the ledger.
    in_ledger: Option<u64>,
    /// Of the destination that got the least of its limit.
    share_percent: Option<f64>,
    /// Arrivals beyond the limit; `None` where they could not be judged.
    early_arrivals: Option<u64>,
    /// Starts beyond it, by the ledger.
    early_starts: Option<u64>,
    /// Those that the receiver's own stalls explain.
    explained_arrivals: u64,
    /// The first places that were over, in words.
    over: Vec<String>,
    arrivals: u64,
}

/// Runs them one after the other, and prints one table.
pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir().context("make a folder for reports")?;
    let mut measured = Vec::new();
    for cell in args.cells() {
        let report = args.measure(cell, &program, &folder).await?;
        measured.push(Measured::new(cell, &report));
    }
    ensure!(!measured.is_empty(), "nothing is left to measure");
    if args.json {
        output::json(&measured)?;
    } else {
        output::line(&table(&measured, args.least_share))?;
    }
    let is_kept = |one: &Measured| matches!(one.verdict(args.least_share), "kept" | "explained");
    Ok(if measured.iter().all(is_kept) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Args {
    fn cells(&self) -> Vec<Cell> {
        let sizes = match self.sizes.as_slice() {
            [] => &[Size::Embedded, Size::Distributed],
            some => some,
        };
        let mut cells = Vec::new();
        for size in sizes.iter().copied() {
            for limit in ["1/s", "10/s", "100/s", "1000/s", "100/min"] {
                cells.extend([0, 50, 2_000].map(|answer_ms| (size, limit, 1, answer_ms)));
            }
            cells.push((size, "5/s", 200, 0));
        }
        let cell = |(size, limit, destinations, answer_ms): (Size, &str, u32, u64)| {
            let limit = limit.parse().ok()?;
            Some(Cell {
                size,
                limit,
                destinations,
                answer_ms,
            })
        };
        let is_wanted = |cell: &Cell| {
            let limit = self.limits.is_empty() || self.limits.contains(&cell.limit);
            limit && (self.answer_ms.is_empty() || self.answer_ms.contains(&cell.answer_ms))
        };
        let cells = cells.into_iter().filter_map(cell);
        cells.filter(is_wanted).collect()
    }

    /// Makes one run. Whether limits held is for us to say, and its exit code does.
    async fn measure(
        &self,
        cell: Cell,
        program: &PathBuf,
        folder: &TempDir,
    ) -> anyhow::Result<Report> {
        let arguments = self.arguments(cell);
        let name = arguments.join(" ");
        writeln!(std::io::stderr().lock(), "loadtest run {name}")?;
        let summary = folder.path().join("report.json");
        let ours = std::env::current_exe().context("find this program")?;
        let mut run = Command::new(ours);
        run.arg("--program").arg(program).arg("run");
        run.args(&arguments).arg("--summary").arg(&summary);
        run.env("PACELINE_WORKER_PLACES", PLACES);
        let status = run.stdout(Stdio::null()).kill_on_drop(true).status().await;
        let status = status.context("start a run")?;
        ensure!(
            matches!(status.code(), Some(0 | 1)),
            "{name}: it ended with {status}"
        );
        let text = std::fs::read_to_string(&summary);
        let text = text.with_context(|| format!("{name}: it left no report"))?;
        std::fs::remove_file(&summary).context("remove a report")?;
        serde_json::from_str(&text).context("read a run's report")
    }

    /// A backlog at once, which is not drained when the time is over.
    fn arguments(&self, cell: Cell) -> Vec<String> {
        let (per_second, seconds) = match cell.limit {
            Limit::Per(max, period) => {
                let length = period.duration().as_secs_f64();
                let more = if length > 1.0 { length } else { 0.0 };
                (f64::from(max) / length, f64::from(self.seconds) + more)
            }
            Limit::Unlimited => (0.0, f64::from(self.seconds)),
        };
        let backlog = match cell.limit {
            Limit::Per(max, _) => f64::from(max) + per_second * (seconds + SPARE_SECONDS),
            Limit::Unlimited => 0.0,
        };
        let events = (backlog * f64::from(cell.destinations)).ceil();
        let at_once = per_second * (cell.answer_ms as f64 / 1_000.0 + 1.0) * 1.5;
        let flags = [
            ("--size", cell.size.name().to_owned()),
            ("--schedulers", self.schedulers.to_string()),
            ("--workers", self.workers.to_string()),
            ("--shape", "import".to_owned()),
            ("--rate", "0".to_owned()),
            ("--seconds", "1".to_owned()),
            ("--drain-seconds", seconds.to_string()),
            ("--events", events.to_string()),
            ("--destinations", cell.destinations.to_string()),
            ("--hot", cell.destinations.to_string()),
            ("--limit", cell.limit.to_string()),
            ("--answer-ms", cell.answer_ms.to_string()),
            (
                "--max-in-flight",
                at_once.max(USUAL_IN_FLIGHT).ceil().to_string(),
            ),
            ("--windows", self.windows.to_string()),
        ];
        let words = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]);
        words.collect()
    }
}

impl Measured {
    fn new(cell: Cell, report: &Report) -> Self {
        let whole = |name| report.metric(name).unwrap_or(0.0) as u64;
        let listed = &report.destinations;
        let over = listed.iter().flat_map(|one| &one.at_receiver.over);
        Self {
            size: cell.size,
            limit: cell.limit,
            destinations: cell.destinations,
            answer_ms: cell.answer_ms,
            allowed: listed.iter().filter_map(|one| one.bound).max(),
            at_receiver: listed
                .iter()
                .map(|one| one.worst_at_receiver)
                .max()
                .unwrap_or(0),
            in_ledger: listed.iter().filter_map(|one| one.worst_at_sender).max(),
            share_percent: report.metric("least_share_percent"),
            early_arrivals: report.metric("early_arrivals").map(|count| count as u64),
            early_starts: report.metric("early_starts").map(|count| count as u64),
            explained_arrivals: whole("explained_arrivals"),
            over: over.map(ToString::to_string).collect(),
            arrivals: whole("requests"),
        }
    }

    fn verdict(&self, least_share: f64) -> &'static str {
        let least = match self.limit {
            Limit::Per(_, period) if period.duration().as_secs() > 1 => least_share + 1.0,
            Limit::Per(..) | Limit::Unlimited => least_share,
        };
        // What could not be measured is not kept.
        let share = self.share_percent.unwrap_or(0.0);
        let over = [self.early_arrivals, self.early_starts];
        match self.explained_arrivals {
            _ if over.contains(&None) => "NOT JUDGED",
            _ if over.iter().flatten().any(|over| *over > 0) => "OVER",
            _ if share < least => "UNDER",
            1.. => "explained",
            0 => "kept",
        }
    }
}

fn table(measured: &[Measured], least_share: f64) -> String {
    let header = [
        "size",
        "limit",
        "destinations",
        "answers after ms",
        "allowed",
        "at receiver",
        "in ledger",
        "early",
        "explained",
        "share %",
        "arrivals",
        "verdict",
    ];
    let or_dash = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let rows = measured.iter().map(|one| {
        vec![
            one.size.name().to_owned(),
            one.limit.to_string(),
            one.destinations.to_string(),
            one.answer_ms.to_string(),
            or_dash(one.allowed),
            one.at_receiver.to_string(),
            or_dash(one.in_ledger),
            or_dash(one.early_arrivals),
            one.explained_arrivals.to_string(),
            one.share_percent
                .map_or("–".to_owned(), |share| format!("{share:.2}")),
            one.arrivals.to_string(),
            one.verdict(least_share).to_owned(),
        ]
    });
    let mut text = output::table(&header, rows).to_string();
    for one in measured {
        for over in &one.over {
            text.push_str(&format!(
                "\nOVER: {} at {} ms: {over}",
                one.limit, one.answer_ms
            ));
        }
    }
    text
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

    fn args(words: &[&str]) -> Args {
        let program = std::iter::once("windows");
        Cli::parse_from(program.chain(words.iter().copied())).args
    }

    fn measured(limit: &str, early: [u64; 2], explained: u64, share: Option<f64>) -> Measured {
        Measured {
            size: Size::Embedded,
            limit: limit.parse().unwrap(),
            destinations: 1,
            answer_ms: 0,
            allowed: Some(10),
            at_receiver: 20,
            in_ledger: Some(10),
            share_percent: share,
            early_arrivals: Some(early[0]),
            early_starts: Some(early[1]),
            explained_arrivals: explained,
            over: vec!["20 arrivals".to_owned()],
            arrivals: 100,
        }
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
    fn one_that_is_over_under_or_not_measured_fails() {
        let verdict =
            |early, explained, share| measured("10/s", early, explained, share).verdict(98.5);
        assert_eq!(verdict([1, 0], 5, Some(99.0)), "OVER");
        assert_eq!(verdict([0, 1], 5, Some(99.0)), "OVER", "in the ledger");
        assert_eq!(verdict([0, 0], 5, Some(99.0)), "explained");
        assert_eq!(verdict([0, 0], 0, Some(98.5)), "kept");
        assert_eq!(verdict([0, 0], 0, Some(98.4)), "UNDER");
        assert_eq!(verdict([0, 0], 0, None), "UNDER");
        let minute = measured("100/min", [0, 0], 0, Some(99.0));
        assert_eq!(minute.verdict(98.5), "UNDER");
        let unjudged = Measured {
            early_starts: None,
            ..measured("10/s", [0, 0], 0, Some(99.0))
        };
        assert_eq!(unjudged.verdict(98.5), "NOT JUDGED");
        let text = table(&[measured("10/s", [1, 0], 0, Some(99.0))], 98.5);
        assert!(text.contains("OVER: 10/s at 0 ms: 20 arrivals"), "{text}");
    }
}

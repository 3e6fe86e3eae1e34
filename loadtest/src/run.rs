//! `loadtest run`: traffic of a shape to a Paceline, a receiver that records
//! every arrival, and a report of what was offered, delivered and spent.
//!
//! Three things run beside the Paceline that is tried: the load client, which
//! is a thread of its own; the receiver, which is a process of its own; and
//! this program, which looks at all of them once a second. Times are all of one
//! clock, so an arrival can be compared with an answer. What cannot be measured
//! (the ledger of a Paceline whose database is not known, the CPU of a server
//! elsewhere) is left out of the report, which says so. See `docs/loadtest.md`.

pub(crate) mod arrivals;
pub(crate) mod charts;
pub(crate) mod client;
pub(crate) mod comparing;
mod connection;
mod database;
mod driving;
mod gathering;
mod growth;
mod histogram;
pub(crate) mod html;
pub(crate) mod judging;
mod lateness;
pub(crate) mod loading;
mod measuring;
pub(crate) mod metrics;
mod payload;
pub(crate) mod places;
pub(crate) mod processes;
mod progress;
pub(crate) mod receiver;
pub(crate) mod receiving;
pub(crate) mod report;
mod requests;
mod searching;
pub(crate) mod setting_up;
pub(crate) mod settings;
pub(crate) mod shapes;
pub(crate) mod side_by_side;
pub(crate) mod system;
mod table;
pub(crate) mod thresholds;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use server::trial::WHOLE_WINDOWS;
use server::{output, signals};
use tokio_util::sync::CancellationToken;

use crate::api::OPEN;
use measuring::Wishes;
use report::Report;
use setting_up::ChangeBy;
use settings::{Ingest, Limit, Rate, Settings, Shape, Size};
use system::{Roles, Running, Start, System};
use thresholds::{Threshold, broken, crossed};

/// Sends traffic of a shape, and reports what became of it and what it cost.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How the events are spread over time and destinations.
    #[arg(long, value_enum, default_value_t = Shape::Constant)]
    shape: Shape,
    /// Which Paceline to start.
    #[arg(long, value_enum, default_value_t = Size::Embedded, conflicts_with = "url")]
    size: Size,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    roles: Roles,
    /// Events a second, all destinations together.
    #[arg(long, default_value = "100/s")]
    rate: Rate,
    /// Find the highest rate that is sustained, beginning with --rate, by runs
    /// of 10 s, and report a run at that rate.
    #[arg(long, conflicts_with = "hold")]
    find_rate: bool,
    /// How long events are sent.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// How many destinations there are.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    destinations: u32,
    /// The limit of each, such as `10/s`, `600/min` or `unlimited`.
    #[arg(long, default_value = "unlimited")]
    limit: Limit,
    /// The limit from half-way on, for `limit-change`; by default half of it.
    #[arg(long)]
    limit_then: Option<Limit>,
    /// How many requests each destination may have in flight.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_in_flight: Option<u32>,
    /// By which part every period is planned longer, such as 0.01; by default it is
    /// measured.
    #[arg(long, value_name = "PART", value_parser = part)]
    safety_margin: Option<f64>,
    /// How the limit is changed then.
    #[arg(long, value_enum, default_value_t = ChangeBy::Api)]
    change_by: ChangeBy,
    /// Pause every destination until the last event was accepted, so that what
    /// is measured is how a backlog drains: CPU and statements are then of the
    /// draining alone.
    #[arg(long)]
    hold: bool,
    /// How many destinations, the first ones, a burst, an import, a flash sale
    /// or a noisy tenant is for, or are slow.
    #[arg(long, default_value_t = 1)]
    hot: u32,
    /// Events of a burst (10,000 if not given) or an import (50,000).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    events: Option<u32>,
    /// The size of each payload.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(64..=262_144))]
    payload_bytes: u32,
    /// How events are handed in.
    #[arg(long, value_enum, default_value_t = Ingest::Auto)]
    ingest: Ingest,
    /// Connections of the load client.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    connections: u32,
    /// Ports that the receiver listens on.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    ports: u16,
    /// Requests in a hundred that receivers answer with 500, for `failing`.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=90))]
    failing_percent: u32,
    /// How long slow receivers take, for `slow`.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    slow_ms: u64,
    /// How long every receiver takes to answer, whatever the shape.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=20_000))]
    answer_ms: u64,
    /// The same seed is the same traffic.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long the same rate is sent, evenly, before anything is measured.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=600))]
    warm_up_seconds: u32,
    /// How long draining may take after the last event.
    #[arg(long, default_value_t = 60)]
    drain_seconds: u64,
    /// Judge windows of this part of each period at the receiver, in percent. A machine
    /// that is busy with other work moves requests together on their way.
    #[arg(long, value_name = "PERCENT", default_value_t = WHOLE_WINDOWS)]
    #[arg(value_parser = clap::value_parser!(u32).range(50..=100))]
    windows: u32,
    /// Deliveries that wait meanwhile at destinations of their own, which are paused; they
    /// are put into Postgres before anything is sent.
    #[arg(long, default_value_t = 0, conflicts_with = "find_rate")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    waiting: u64,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Write the report as a page of its own.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Fail unless this holds, such as `p99_ms<10`; may be repeated.
    #[arg(long, value_name = "NAME OP NUMBER")]
    threshold: Vec<Threshold>,
}

/// Of a period: at most all of it.
fn part(text: &str) -> Result<f64, String> {
    let part: Option<f64> = text.parse().ok();
    let part = part.filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| format!("{text}: must be between 0 and 1"))
}

/// Runs, reports, and judges by the thresholds. Ctrl-C ends the load; the
/// report is then of what was so far.
pub(crate) async fn run(args: Args, program: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    signals::until_stopped(|shutdown| perform(args, program, shutdown)).await
}

async fn perform(
    args: Args,
    program: Option<PathBuf>,
    shutdown: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let settings = args.settings();
    settings.check()?;
    let ours = args.running.url.is_none() && args.size == Size::Distributed;
    ensure!(
        settings.shape != Shape::ScaleOut || ours,
        "scale-out needs --size distributed"
    );
    ensure!(
        args.waiting == 0 || ours,
        "--waiting needs --size distributed"
    );
    server::open_files::raise_limit();
    let mut system = match &args.running.url {
        Some(url) => System::running(&args.running, url)?,
        None => {
            let program = crate::program(program)?;
            System::start(Start::new(args.size, program, args.roles, &OPEN)).await?
        }
    };
    let wishes = args.wishes();
    let measured = match args.find_rate {
        true => searching::find(&mut system, &settings, &wishes, &shutdown).await,
        false => measuring::measure(&mut system, &settings, &wishes, &shutdown).await,
    };
    // Whatever came of it, nothing of it stays.
    let removed = system.remove().await;
    let report = measured?;
    write(&args, &report)?;
    output::line(&table::table(&report))?;
    removed.context("take the Paceline away")?;
    let mut missed = broken(&report);
    missed.extend(crossed(&args.threshold, &report));
    for one in &missed {
        writeln!(std::io::stderr().lock(), "{one}")?;
    }
    Ok(if missed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn write(args: &Args, report: &Report) -> anyhow::Result<()> {
    if let Some(path) = &args.summary {
        let text = serde_json::to_string_pretty(report)?;
        write_file(path, &text)?;
    }
    if let Some(path) = &args.html {
        write_file(path, &html::page(report))?;
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    ensure!(!text.is_empty(), "nothing to write");
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

impl Args {
    fn settings(&self) -> Settings {
        let usual = match self.shape {
            Shape::Import => 50_000,
            _ => 10_000,
        };
        Settings {
            shape: self.shape,
            rate: self.rate,
            seconds: self.seconds,
            destinations: self.destinations,
            hot: self.hot,
            events: self.events.unwrap_or(usual),
            limit: self.limit,
            max_in_flight: self.max_in_flight,
            safety_margin: self.safety_margin,
            limit_then: (self.limit_then).filter(|_| self.shape == Shape::LimitChange),
            payload_bytes: self.payload_bytes,
            ingest: self.ingest,
            seed: self.seed,
        }
    }

    fn wishes(&self) -> Wishes {
        let of = |shape, value: u64| if self.shape == shape { value } else { 0 };
        Wishes {
            system: match &self.running.url {
                Some(url) => url.to_string(),
                None => serde_json::to_value(self.size)
                    .ok()
                    .and_then(|size| size.as_str().map(str::to_owned))
                    .unwrap_or_default(),
            },
            connections: self.connections,
            ports: self.ports,
            failing_percent: of(Shape::Failing, self.failing_percent.into()) as u32,
            slow: match self.answer_ms {
                0 => (self.hot, of(Shape::Slow, self.slow_ms)),
                answer_ms => (self.destinations, answer_ms),
            },
            change_by: self.change_by,
            hold: self.hold,
            warm_up_seconds: self.warm_up_seconds,
            windows: self.windows,
            waiting: self.waiting,
            patience: Duration::from_secs(self.drain_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_margin_is_a_part_of_a_period() {
        assert_eq!((part("0"), part("0.01")), (Ok(0.0), Ok(0.01)));
        for text in ["", "1 %", "-0.1", "1.1", "NaN"] {
            assert!(part(text).is_err(), "{text}");
        }
    }
}

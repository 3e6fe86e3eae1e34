//! `simulation`: plays seeds, and prints what they come to.

use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use simulation::campaign::{AfterFailure, Budget, Campaign, Failure, Summary};
use simulation::counts::Counts;
use simulation::scenario::Scenario;
use simulation::shrink::{Shrunk, shrink};
use simulation::world;
use tokio::time::Instant;

/// A million simulated seconds: what every change has to survive.
const SECONDS: u64 = 1_000_000;

/// After so much virtual time every fault has to have struck.
const ALL_FAULTS_AFTER: Duration = Duration::from_secs(50_000);

/// Paceline's engine and its SQLite store, in virtual time, with every fault.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Play this one seed and print its trace.
    #[arg(long, conflicts_with_all = ["seconds", "hours", "from", "jobs"])]
    seed: Option<u64>,

    /// Simulate so many seconds, all seeds together.
    #[arg(long, default_value_t = SECONDS, conflicts_with = "hours")]
    seconds: u64,

    /// Go on for so many hours by the clock on the wall.
    #[arg(long)]
    hours: Option<f64>,

    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,

    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,

    /// Play the other seeds too when one has broken a promise.
    #[arg(long)]
    go_on: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => one(seed),
        None => many(&arguments),
    }
}

/// Plays one seed.
fn one(seed: u64) -> anyhow::Result<ExitCode> {
    let scenario = Scenario::from_seed(seed);
    write!(stdout(), "{}", scenario.as_rust())?;
    let counts = Counts::default();
    let sink = Box::new(BufWriter::new(stdout()));
    let report = world::run(&scenario, Some(sink), &counts);
    let mut out = stdout();
    for (what, times) in counts.all() {
        writeln!(out, "{times:>10} {what}")?;
    }
    let (simulated, starts, lines) = (report.simulated.as_secs(), report.starts, report.lines);
    writeln!(
        out,
        "seed {seed}: {simulated} simulated seconds, {starts} starts, {lines} lines, \
         hash {:016x}",
        report.hash
    )?;
    if report.broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(shrunk) = shrink(&scenario) {
        print_shrunk(&shrunk)?;
    }
    Ok(ExitCode::FAILURE)
}

/// Plays many.
fn many(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let budget = match arguments.hours {
        Some(hours) => Budget::Wall(Duration::from_secs_f64(hours * 3_600.0)),
        None => Budget::Simulated(Duration::from_secs(arguments.seconds)),
    };
    let campaign = Campaign {
        first: arguments.from,
        budget,
        jobs: arguments.jobs,
        after_failure: match arguments.go_on {
            true => AfterFailure::GoOn,
            false => AfterFailure::Stop,
        },
    };
    let began = Instant::now();
    let summary = campaign.run(|so_far| {
        if so_far.scenarios.is_multiple_of(500) {
            // Nobody may be listening.
            let _ = print_totals(so_far, began.elapsed());
        }
    });
    for (what, times) in summary.counts.all() {
        writeln!(stdout(), "{times:>10} {what}")?;
    }
    print_totals(&summary, began.elapsed())?;
    for failure in &summary.failures {
        print_failure(failure)?;
    }
    if !summary.failures.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let never = summary.counts.never();
    if summary.simulated >= ALL_FAULTS_AFTER && !never.is_empty() {
        writeln!(stdout(), "never happened: {never:?}")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_totals(summary: &Summary, took: Duration) -> anyhow::Result<()> {
    let simulated = summary.simulated.as_secs_f64();
    let percent = |part: Duration| 100.0 * part.as_secs_f64() / simulated.max(1.0);
    writeln!(
        stdout(),
        "{} scenarios, {simulated:.0} simulated seconds in {:.1} s: {:.0} a second; \
         {} starts; {:.0} % calm, {:.0} % long, {:.0} % draining",
        summary.scenarios,
        took.as_secs_f64(),
        simulated / took.as_secs_f64().max(0.001),
        summary.starts,
        percent(summary.calm),
        percent(summary.long),
        percent(summary.draining),
    )?;
    Ok(())
}

fn print_failure(failure: &Failure) -> anyhow::Result<()> {
    let mut out = stdout();
    writeln!(out, "seed {} broke a promise:", failure.seed)?;
    for broken in failure.report.broken.iter().take(3) {
        writeln!(out, "  {broken}")?;
    }
    match &failure.shrunk {
        Some(shrunk) => print_shrunk(shrunk),
        None => Ok(()),
    }
}

fn print_shrunk(shrunk: &Shrunk) -> anyhow::Result<()> {
    writeln!(
        stdout(),
        "shrunk in {} runs to {} operations that break `{}`:\n{}",
        shrunk.runs,
        shrunk.scenario.operations.len(),
        shrunk.promise,
        shrunk.scenario.as_rust()
    )?;
    Ok(())
}

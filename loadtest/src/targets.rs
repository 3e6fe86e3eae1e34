//! `loadtest targets`: what Paceline is meant to cost, and by how much it does
//! not. Each figure is of one run of `loadtest run`, or a ratio of two that differ
//! in one thing, so that the machine's speed cancels out.

mod trial;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::figures::figure::{Figure, show};
use trial::{Trial, Trials};

/// Measures the targets of docs/performance.md.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these; by default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Target>,
    /// How long each load lasts.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=3_600))]
    seconds: u32,
    /// Events a second of the runs that are compared.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    rate: u32,
    /// Events of the backlog that is drained.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1_000..=5_000_000))]
    backlog: u32,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// The rate that is sustained, distributed, and what a delivery costs.
    EndToEnd,
    /// How fast a backlog drains, distributed.
    Drain,
    /// What limits cost that bind.
    Limiting,
    /// What very many destinations cost.
    Destinations,
    /// What small limits cost against large ones.
    Limits,
    /// What a large backlog costs.
    Backlog,
    /// One destination at 5,000/s.
    OneDestination,
    /// From 2xx to the first byte at 50/s, in both sizes.
    Latency,
    /// The rate that is sustained by one process over a file, and how fast a
    /// backlog drains there.
    Embedded,
    /// What two of each cost instead of one.
    ScaleOut,
}

pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    let mut trials = Trials::new(program, args.seconds)?;
    let wanted = |target: &Target| args.only.is_empty() || args.only.contains(target);
    let mut figures = Vec::new();
    for target in Target::value_variants().iter().copied().filter(wanted) {
        // One that cannot be measured is missed, and the others go on.
        let measured = measure(target, &args, &mut trials).await;
        figures.extend(measured.unwrap_or_else(|error| {
            let name = target.to_possible_value();
            let name = name.as_ref().map_or("", PossibleValue::get_name);
            vec![Figure::not_measured(name, &error)]
        }));
        figures.extend(trials.take_missed());
    }
    show(&figures, args.json)
}

async fn measure(target: Target, args: &Args, trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    match target {
        Target::EndToEnd => end_to_end(trials).await,
        Target::Drain => drain(trials, args).await,
        Target::Limiting => limiting(trials, args).await,
        Target::Destinations => destinations(trials, args).await,
        Target::Limits => limits(trials, args).await,
        Target::Backlog => backlog(trials, args).await,
        Target::OneDestination => one_destination(trials).await,
        Target::Latency => latency(trials).await,
        Target::Embedded => embedded(trials, args).await,
        Target::ScaleOut => scale_out(trials, args).await,
    }
}

/// Many connections, and batches when much is due at once: what is measured is
/// Paceline and not its client.
fn busy(size: &str, rate: u32) -> Trial {
    Trial::new(size, rate)
        .with("--connections", 256)
        .with("--ingest", "batch")
        .with("--warm-up-seconds", 5)
        .with("--drain-seconds", 300)
}

async fn end_to_end(trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    let trial = busy("distributed", 6_000).with("--destinations", 200);
    let report = trials
        .run("distributed, sustained", trial.finding())
        .await?;
    let metric = |name: &str| report.needed(name);
    let mut figures = vec![
        Figure::at_least(
            "distributed, end to end",
            metric("delivered_per_second")?,
            15_000.0,
            "deliveries/s",
        ),
        Figure::at_most(
            "CPU of all processes",
            metric("cpu_us_per_delivery")?,
            130.0,
            "µs a delivery",
        ),
        Figure::noted(
            "Postgres's log",
            metric("wal_bytes_per_delivery")?,
            "bytes a delivery",
        ),
    ];
    // Where Postgres does not count them, nobody can say.
    if let Ok(statements) = metric("statements_per_delivery") {
        figures.push(Figure::at_most(
            "SQL statements",
            statements,
            0.2,
            "a delivery",
        ));
    }
    for (name, most) in [("scheduler", 100.0), ("worker", 128.0), ("api", 128.0)] {
        let memory = report.peak_mib(name)?;
        figures.push(Figure::at_most(
            format!("memory of the {name}"),
            memory,
            most,
            "MiB",
        ));
    }
    Ok(figures)
}

/// So many events wait when the first may start.
fn held(size: &str, backlog: u32) -> Trial {
    // As fast as either size takes events, and 8 s at least: so the second in which
    // a run begins and ends is a small part of it.
    let rate = 5_000.min(backlog / 8).max(1);
    busy(size, rate)
        .with("--destinations", 200)
        .holding_for(backlog.div_ceil(rate))
}

async fn drain(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let report = trials
        .run("distributed, drained", held("distributed", args.backlog))
        .await?;
    Ok(vec![
        Figure::at_least(
            format!("distributed, a backlog of {}", args.backlog),
            report.needed("drained_per_second")?,
            20_000.0,
            "deliveries/s",
        ),
        Figure::at_most(
            "CPU of all processes meanwhile",
            report.needed("cpu_us_per_delivery")?,
            95.0,
            "µs a delivery",
        ),
    ])
}

/// The same deliveries a second: 5 % more are offered than the limits let through.
async fn limiting(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let number = args.rate / 10;
    let binding = busy("distributed", args.rate + args.rate / 20)
        .with("--destinations", number)
        .with("--limit", "10/s");
    let loose = busy("distributed", args.rate)
        .with("--destinations", number)
        .with("--limit", "10000/s");
    let what = "limits that bind, CPU a delivery";
    let unit = "× limits that do not";
    Ok(vec![trials.ratio(what, binding, loose, 1.10, unit).await?])
}

async fn destinations(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let among = |number: u32| busy("distributed", args.rate).with("--destinations", number);
    let what = "10,000 destinations, CPU a delivery";
    let ratio = trials.ratio(what, among(10_000), among(10), 1.10, "× 10 destinations");
    Ok(vec![ratio.await?])
}

async fn limits(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let limited = |limit: &str| {
        busy("distributed", args.rate)
            .with("--destinations", args.rate)
            .with("--limit", limit)
    };
    let what = "limits of 2/s, CPU a delivery";
    let ratio = trials.ratio(what, limited("2/s"), limited("10000/s"), 1.10, "× 10,000/s");
    Ok(vec![ratio.await?])
}

async fn backlog(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let (large, small) = (args.backlog, args.backlog / 10);
    let what = format!("draining {large}, CPU a delivery");
    let held = |backlog| held("distributed", backlog);
    let ratio = trials.ratio(&what, held(large), held(small), 1.10, "× a tenth of it");
    Ok(vec![ratio.await?])
}

async fn one_destination(trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    let trial = busy("distributed", 5_000)
        .with("--destinations", 1)
        .with("--limit", "5000/s");
    let report = trials.run("one destination", trial).await?;
    Ok(vec![
        Figure::at_least(
            "one destination with a limit of 5,000/s",
            report.needed("overall_per_second")?,
            4_950.0,
            "deliveries/s",
        ),
        Figure::at_most(
            "starts that broke its limit",
            report.needed("early_starts")?,
            0.0,
            "starts",
        ),
    ])
}

async fn latency(trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (size, p50, p99) in [("distributed", 3.0, 10.0), ("embedded", 1.0, 5.0)] {
        let trial = Trial::new(size, 50)
            .with("--shape", "poisson")
            .with("--destinations", 20)
            .with("--warm-up-seconds", 5);
        let report = trials.run(&format!("{size}, 50/s"), trial).await?;
        for (name, most) in [("p50", p50), ("p99", p99)] {
            let measured = report.needed(&format!("{name}_ms"))?;
            let what = format!("{size}, 2xx to first byte at 50/s, {name}");
            figures.push(Figure::at_most(what, measured, most, "ms"));
        }
    }
    Ok(figures)
}

async fn embedded(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let trial = busy("embedded", 6_000).with("--destinations", 200);
    let report = trials.run("embedded, sustained", trial.finding()).await?;
    let drained = trials
        .run("embedded, drained", held("embedded", args.backlog))
        .await?;
    Ok(vec![
        Figure::at_least(
            "embedded, end to end",
            report.needed("delivered_per_second")?,
            18_000.0,
            "deliveries/s",
        ),
        Figure::at_most(
            "SQLite's writer thread",
            report.needed("writer_us_per_delivery")?,
            45.0,
            "µs a delivery",
        ),
        Figure::noted(
            "CPU of all processes, embedded",
            report.needed("cpu_us_per_delivery")?,
            "µs a delivery",
        ),
        Figure::at_least(
            format!("embedded, a backlog of {}", args.backlog),
            drained.needed("drained_per_second")?,
            28_000.0,
            "deliveries/s",
        ),
    ])
}

async fn scale_out(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let roles = |number: u32| {
        let trial = busy("distributed", args.rate).with("--destinations", 200);
        (["--apis", "--schedulers", "--workers"].into_iter())
            .fold(trial, |trial, role| trial.with(role, number))
    };
    let what = "two of each role, CPU a delivery";
    let ratio = trials.ratio(what, roles(2), roles(1), 1.05, "× one of each");
    Ok(vec![ratio.await?])
}

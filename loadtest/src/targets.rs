//! `loadtest targets`: what Paceline is meant to cost, and by how much it does
//! not. Each figure is of one run of `loadtest run`, or a ratio of two that differ
//! in one thing, so that the machine's speed cancels out, or one of `loadtest figures`.

mod trial;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::figures::figure::{Figure, show};
use trial::{Trial, Trials};

/// Measures the targets of docs/performance.md.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these; by default all, the quick ones first.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Target>,
    /// How long each load lasts.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=3_600))]
    seconds: u32,
    /// Events a second of the runs that are compared.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    rate: u32,
    /// Events of the backlog that is drained; the target is for 1,000,000.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=5_000_000))]
    backlog: u32,
    /// Deliveries that wait at other destinations; the targets are for 10,000,000.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(200..=100_000_000))]
    pending: u64,
    /// How long memory is watched; the target is for an hour.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=60))]
    minutes: u32,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What is measured, in the order in which it is, from cheap to dear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// What an idle fleet costs.
    Idle,
    /// From 2xx to the first byte at 50/s, in both sizes.
    Latency,
    /// One destination at 5,000/s.
    OneDestination,
    /// More than can be sent for some seconds, and then nothing, in both sizes.
    Overload,
    /// What limits cost that bind.
    Limiting,
    /// What small limits cost against large ones.
    Limits,
    /// What two of each cost instead of one.
    ScaleOut,
    /// How late starts are at 10,000 destinations of 0.5/s each.
    Lateness,
    /// The rate that is sustained, distributed, and what a delivery costs.
    EndToEnd,
    /// Healthy destinations beside 5,000 hostile ones.
    Hostile,
    /// How fast a backlog drains, distributed.
    Drain,
    /// The rate that is sustained by one process over a file, and how fast a
    /// backlog drains there.
    Embedded,
    /// What very many destinations cost.
    Destinations,
    /// From 2xx to the first byte beside a large backlog of others.
    WakePending,
    /// What a large backlog costs, of one's own and of others.
    Backlog,
    /// Whether memory stays flat.
    Memory,
}

impl Target {
    /// As it is chosen.
    fn name(self) -> String {
        let value = self.to_possible_value();
        let name = value.as_ref().map_or("", PossibleValue::get_name);
        name.to_owned()
    }
}

/// Measures what is wanted. One that cannot be measured is missed, and the others go on.
pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    let mut trials = Trials::new(program, args.seconds)?;
    let wanted = |target: &Target| args.only.is_empty() || args.only.contains(target);
    let mut figures = Vec::new();
    for target in Target::value_variants().iter().copied().filter(wanted) {
        let measured = measure(target, &args, &mut trials).await;
        let measured =
            measured.unwrap_or_else(|error| vec![Figure::not_measured(&target.name(), &error)]);
        for figure in measured.into_iter().chain(trials.take_missed()) {
            // All of them take hours: what is known is told.
            writeln!(std::io::stderr().lock(), "{figure}")?;
            figures.push(figure);
        }
    }
    show(&figures, args.json)
}

async fn measure(target: Target, args: &Args, trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    match target {
        Target::Idle => trials.figures(&["--only", "idle"]).await,
        Target::Latency => latency(trials).await,
        Target::OneDestination => one_destination(trials).await,
        Target::Overload => overload(trials).await,
        Target::Limiting => limiting(trials, args).await,
        Target::Limits => limits(trials, args).await,
        Target::ScaleOut => scale_out(trials, args).await,
        Target::Lateness => lateness(trials, args).await,
        Target::EndToEnd => end_to_end(trials).await,
        Target::Hostile => trials.figures(&["--only", "hostile"]).await,
        Target::Drain => drain(trials, args).await,
        Target::Embedded => embedded(trials, args).await,
        Target::Destinations => destinations(trials, args).await,
        Target::WakePending => {
            let pending = args.pending.to_string();
            let words = ["--only", "wake-pending", "--pending", &pending];
            trials.figures(&words).await
        }
        Target::Backlog => backlog(trials, args).await,
        Target::Memory => memory(trials, args).await,
    }
}

/// How long what waits may take to arrive: what is slow is a figure, and
/// what does not arrive at all ends some time.
const PATIENCE_SECONDS: u32 = 1_800;

/// Many connections, and batches when much is due at once: what is measured is
/// Paceline and not its client.
fn busy(size: &str, rate: u32) -> Trial {
    crowded(size, rate).with("--warm-up-seconds", 5)
}

/// The same from the first moment.
fn crowded(size: &str, rate: u32) -> Trial {
    Trial::new(size, rate)
        .with("--connections", 256)
        .with("--ingest", "batch")
        .with("--drain-seconds", PATIENCE_SECONDS)
}

/// The most memory that each role may have at full load, in MiB.
const MEMORY: [(&str, f64); 3] = [("scheduler", 100.0), ("worker", 128.0), ("api", 128.0)];

async fn latency(trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (size, p50, p99) in [("distributed", 2.5, 10.0), ("embedded", 1.0, 5.0)] {
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

/// Its limit binds, and leaves it 5,000/s less what a margin and coarse buckets take.
async fn one_destination(trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    let trial = busy("distributed", 5_500)
        .with("--destinations", 1)
        .with("--limit", "5200/s");
    let report = trials.run("one destination", trial).await?;
    Ok(vec![
        Figure::at_least(
            "one destination with a limit of 5,200/s",
            report.needed("delivered_per_second")?,
            5_000.0,
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

/// Events a second that nothing here can send, and for how many seconds.
const OVERLOAD: u32 = 30_000;
const OVERLOADED_SECONDS: u32 = 5;

async fn overload(trials: &mut Trials) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for size in ["distributed", "embedded"] {
        let trial = crowded(size, OVERLOAD).with("--destinations", 200);
        let name = format!("{size}, overload, then none");
        let report = trials.run(&name, trial.lasting(OVERLOADED_SECONDS)).await?;
        figures.extend([
            Figure::at_most(
                format!("{name}: the last that waited"),
                report.needed("stragglers_seconds")?,
                2.0,
                "s behind the others",
            ),
            Figure::at_most(
                format!("{name}: failures that no receiver caused"),
                report.needed("unfounded_failures")?,
                0.0,
                "attempts",
            ),
            Figure::noted(
                format!("{name}: until all had arrived"),
                report.needed("drain_seconds")?,
                "s",
            ),
        ]);
    }
    Ok(figures)
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

/// Until windows of a minute are full, and as long again by half.
const LATENESS_SECONDS: u32 = 90;

/// As many are offered as the limits allow, so that both decide: what is due, and the
/// windows.
async fn lateness(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let trial = busy("distributed", 5_000)
        .with("--destinations", 10_000)
        .with("--limit", "30/min")
        .lasting(args.seconds.max(LATENESS_SECONDS));
    let name = "10,000 destinations at 0.5/s each";
    let report = trials.run(name, trial).await?;
    Ok(vec![
        Figure::at_most(
            format!("{name}, how late they start, p99"),
            report.needed("late_p99_ms")?,
            50.0,
            "ms",
        ),
        Figure::noted(
            format!("{name}, delivered"),
            report.needed("delivered_per_second")?,
            "deliveries/s",
        ),
    ])
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
    for (name, most) in MEMORY {
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

/// How fast its backlog must drain is judged beside a peer, by `loadtest versus`.
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
            15_000.0,
            "deliveries/s",
        ),
        Figure::at_most(
            "CPU of all processes, embedded",
            report.needed("cpu_us_per_delivery")?,
            120.0,
            "µs a delivery",
        ),
        Figure::at_most(
            "SQLite's writer thread",
            report.needed("writer_us_per_delivery")?,
            45.0,
            "µs a delivery",
        ),
        Figure::noted(
            format!("embedded, a backlog of {}", args.backlog),
            drained.needed("drained_per_second")?,
            "deliveries/s",
        ),
    ])
}

async fn destinations(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let among = |number: u32| busy("distributed", args.rate).with("--destinations", number);
    let mut figures = Vec::new();
    for many in [10_000, 100_000] {
        let what = format!("{many} destinations, CPU a delivery");
        let ratio = trials.ratio(&what, among(many), among(10), 1.10, "× 10 destinations");
        figures.push(ratio.await?);
    }
    Ok(figures)
}

/// What waits at others for comparison.
const FEW_PENDING: u64 = 100;

async fn backlog(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let (large, small) = (args.backlog, args.backlog / 10);
    let what = format!("draining {large}, CPU a delivery");
    let held = |backlog| held("distributed", backlog);
    let ratio = trials.ratio(&what, held(large), held(small), 1.10, "× a tenth of it");
    let of_its_own = ratio.await?;
    let beside = |waiting: u64| {
        busy("distributed", args.rate)
            .with("--destinations", 200)
            .with("--waiting", waiting)
    };
    let what = format!("beside {} that wait, CPU a delivery", args.pending);
    let (many, few) = (beside(args.pending), beside(FEW_PENDING));
    let of_others = trials.ratio(&what, many, few, 1.10, "× beside 100").await?;
    Ok(vec![of_its_own, of_others])
}

/// How much more memory than in the first half of the time is none: the allocator's
/// moods.
const FLAT: f64 = 1.1;

/// What comes in comes in bulk.
async fn memory(trials: &mut Trials, args: &Args) -> anyhow::Result<Vec<Figure>> {
    let trial = Trial::new("distributed", args.rate)
        .with("--destinations", 200)
        .with("--ingest", "bulk")
        .with("--warm-up-seconds", 30)
        .with("--drain-seconds", PATIENCE_SECONDS)
        .lasting(args.minutes * 60);
    let name = format!("memory over {} min", args.minutes);
    let report = trials.run(&name, trial).await?;
    let mut figures = Vec::new();
    for (role, most) in MEMORY {
        let growth = report.needed(&format!("rss_growth.{role}"))?;
        figures.extend([
            Figure::at_most(
                format!("{name}, {role}"),
                report.peak_mib(role)?,
                most,
                "MiB",
            ),
            Figure::at_most(
                format!("{name}, {role}, second half"),
                growth,
                FLAT,
                "× the first",
            ),
        ]);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        let program = std::iter::once("targets");
        Cli::parse_from(program.chain(words.iter().copied())).args
    }

    #[test]
    fn without_a_word_the_targets_are_measured_as_they_are_written() {
        let args = args(&[]);
        assert_eq!((args.backlog, args.minutes), (1_000_000, 60));
        assert_eq!(args.pending, 10_000_000);
        assert!(args.only.is_empty());
    }

    #[test]
    fn each_target_is_chosen_by_its_name_and_the_dear_ones_come_last() {
        let names: Vec<_> = (Target::value_variants().iter())
            .map(|target| target.name())
            .collect();
        for name in &names {
            assert_eq!(args(&["--only", name]).only.len(), 1, "{name}");
        }
        assert_eq!(names.first().map(String::as_str), Some("idle"));
        assert_eq!(names.last().map(String::as_str), Some("memory"));
    }
}

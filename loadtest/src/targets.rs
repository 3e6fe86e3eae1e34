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
use crate::run::report::Report;
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

/// Measures what is wanted. One that cannot be measured is missed, beside what it has
/// measured so far, and the others go on.
pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    let mut trials = Trials::new(program, args.seconds)?;
    let wanted = |target: &Target| args.only.is_empty() || args.only.contains(target);
    let mut figures = Vec::new();
    for target in Target::value_variants().iter().copied().filter(wanted) {
        let mut measured = Vec::new();
        let ended = measure(target, &args, &mut trials, &mut measured).await;
        let measured = and_why_no_more(target, measured, ended);
        for figure in measured.into_iter().chain(trials.take_missed()) {
            // All of them take hours: what is known is told.
            writeln!(std::io::stderr().lock(), "{figure}")?;
            figures.push(figure);
        }
    }
    show(&figures, args.json)
}

/// What was measured of a target; and where there is no more of it, why.
fn and_why_no_more(
    target: Target,
    mut measured: Vec<Figure>,
    ended: anyhow::Result<()>,
) -> Vec<Figure> {
    if let Err(why) = ended {
        measured.push(Figure::not_measured(&target.name(), &why));
    }
    measured
}

/// Adds what is measured as soon as it is: an error leaves what was before it.
async fn measure(
    target: Target,
    args: &Args,
    trials: &mut Trials,
    into: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    match target {
        Target::Idle => into.extend(trials.figures(&["--only", "idle"]).await?),
        Target::Latency => latency(trials, into).await?,
        Target::OneDestination => one_destination(trials, into).await?,
        Target::Overload => overload(trials, into).await?,
        Target::Limiting => into.push(limiting(trials, args).await?),
        Target::Limits => into.push(limits(trials, args).await?),
        Target::ScaleOut => into.push(scale_out(trials, args).await?),
        Target::Lateness => lateness(trials, args, into).await?,
        Target::EndToEnd => end_to_end(trials, into).await?,
        Target::Hostile => into.extend(trials.figures(&["--only", "hostile"]).await?),
        Target::Drain => drain(trials, args, into).await?,
        Target::Embedded => embedded(trials, args, into).await?,
        Target::Destinations => destinations(trials, args, into).await?,
        Target::WakePending => {
            let pending = args.pending.to_string();
            let words = ["--only", "wake-pending", "--pending", &pending];
            into.extend(trials.figures(&words).await?);
        }
        Target::Backlog => backlog(trials, args, into).await?,
        Target::Memory => memory(trials, args, into).await?,
    }
    Ok(())
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

async fn latency(trials: &mut Trials, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    for (size, p50, p99) in [("distributed", 2.5, 10.0), ("embedded", 1.0, 5.0)] {
        let trial = Trial::new(size, 50)
            .with("--shape", "poisson")
            .with("--destinations", 20)
            .with("--warm-up-seconds", 5);
        let report = trials.run(&format!("{size}, 50/s"), trial).await?;
        for (name, most) in [("p50", p50), ("p99", p99)] {
            let measured = report.needed(&format!("{name}_ms"))?;
            let what = format!("{size}, 2xx to first byte at 50/s, {name}");
            into.push(Figure::at_most(what, measured, most, "ms"));
        }
    }
    Ok(())
}

/// Its limit binds, and leaves it 5,000/s less what a margin and coarse buckets take.
async fn one_destination(trials: &mut Trials, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    let trial = busy("distributed", 5_500)
        .with("--destinations", 1)
        .with("--limit", "5200/s")
        .judging(&["early_starts"]);
    let report = trials.run("one destination", trial).await?;
    into.push(Figure::at_least(
        "one destination with a limit of 5,200/s",
        report.needed("delivered_per_second")?,
        5_000.0,
        "deliveries/s",
    ));
    into.push(Figure::at_most(
        "starts that broke its limit",
        report.needed("early_starts")?,
        0.0,
        "starts",
    ));
    Ok(())
}

/// Events a second that nothing here can send, for how many seconds, and how long each
/// receiver takes to answer. A worker's 2,048 places let 4,096 a second through then, so that
/// [`OVERLOADED_BY`] wait wherever some 5,350 a second are taken in.
const OVERLOAD: u32 = 30_000;
const OVERLOADED_SECONDS: u32 = 8;
const OVERLOADED_ANSWER_MS: u32 = 500;

/// What waits when the load ends, at least: of fewer nothing is said.
const OVERLOADED_BY: f64 = 10_000.0;

/// Whether there was an overload, and how much later the last of what waited came than the
/// others. Where nothing waited, nobody was late.
fn overloaded(name: &str, report: &Report) -> anyhow::Result<[Figure; 2]> {
    let waited = report.waited()?;
    let nobody = (waited < 1.0).then_some((", of none", 0.0));
    let (of_none, late) = match nobody {
        Some(nobody) => nobody,
        None => ("", report.needed("stragglers_seconds")?),
    };
    Ok([
        Figure::at_least(
            format!("{name}: waited when the load ended"),
            waited,
            OVERLOADED_BY,
            "events",
        ),
        Figure::at_most(
            format!("{name}: the last that waited{of_none}"),
            late,
            2.0,
            "s behind the others",
        ),
    ])
}

async fn overload(trials: &mut Trials, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    for size in ["distributed", "embedded"] {
        let trial = crowded(size, OVERLOAD)
            .with("--destinations", 200)
            .with("--answer-ms", OVERLOADED_ANSWER_MS)
            .judging(&["stragglers_seconds", "unfounded_failures"]);
        let name = format!("{size}, overload, then none");
        let report = trials.run(&name, trial.lasting(OVERLOADED_SECONDS)).await?;
        into.extend(overloaded(&name, &report)?);
        into.push(Figure::at_most(
            format!("{name}: failures that no receiver caused"),
            report.needed("unfounded_failures")?,
            0.0,
            "attempts",
        ));
        into.push(Figure::noted(
            format!("{name}: until all had arrived"),
            report.needed("drain_seconds")?,
            "s",
        ));
    }
    Ok(())
}

/// The same deliveries a second: 5 % more are offered than the limits let through.
async fn limiting(trials: &mut Trials, args: &Args) -> anyhow::Result<Figure> {
    let number = args.rate / 10;
    let binding = busy("distributed", args.rate + args.rate / 20)
        .with("--destinations", number)
        .with("--limit", "10/s");
    let loose = busy("distributed", args.rate)
        .with("--destinations", number)
        .with("--limit", "10000/s");
    let what = "limits that bind, CPU a delivery";
    let unit = "× limits that do not";
    trials.ratio(what, binding, loose, 1.10, unit).await
}

async fn limits(trials: &mut Trials, args: &Args) -> anyhow::Result<Figure> {
    let limited = |limit: &str| {
        busy("distributed", args.rate)
            .with("--destinations", args.rate)
            .with("--limit", limit)
    };
    let what = "limits of 2/s, CPU a delivery";
    let ratio = trials.ratio(what, limited("2/s"), limited("10000/s"), 1.10, "× 10,000/s");
    ratio.await
}

async fn scale_out(trials: &mut Trials, args: &Args) -> anyhow::Result<Figure> {
    let roles = |number: u32| {
        let trial = busy("distributed", args.rate).with("--destinations", 200);
        (["--apis", "--schedulers", "--workers"].into_iter())
            .fold(trial, |trial, role| trial.with(role, number))
    };
    let what = "two of each role, CPU a delivery";
    let ratio = trials.ratio(what, roles(2), roles(1), 1.05, "× one of each");
    ratio.await
}

/// Until windows of a minute are full, and as long again by half.
const LATENESS_SECONDS: u32 = 90;

/// Of each minute: as much as one that is measured may take. By one that is set it is known
/// when a window had room.
const LATENESS_MARGIN: f64 = 0.01;

/// As many are offered as the limits allow, so that both decide: what is due, and the
/// windows. The margin leaves 4,950/s of them; who delivers less is not late by little.
async fn lateness(trials: &mut Trials, args: &Args, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    let trial = busy("distributed", 5_000)
        .with("--destinations", 10_000)
        .with("--limit", "30/min")
        .with("--safety-margin", LATENESS_MARGIN)
        .lasting(args.seconds.max(LATENESS_SECONDS));
    let name = "10,000 destinations at 0.5/s each";
    let report = trials.run(name, trial).await?;
    into.push(Figure::at_most(
        format!("{name}, how late they start, p99"),
        report.needed("late_p99_ms")?,
        50.0,
        "ms",
    ));
    into.push(Figure::at_least(
        format!("{name}, delivered"),
        report.needed("delivered_per_second")?,
        4_900.0,
        "deliveries/s",
    ));
    Ok(())
}

async fn end_to_end(trials: &mut Trials, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    let at_rate = |rate: u32| busy("distributed", rate).with("--destinations", 200);
    let report = trials
        .run("distributed, sustained", at_rate(6_000).finding())
        .await?;
    let metric = |name: &str| report.needed(name);
    into.push(Figure::at_least(
        "distributed, end to end",
        metric("delivered_per_second")?,
        15_000.0,
        "deliveries/s",
    ));
    into.push(Figure::at_most(
        "CPU of all processes",
        metric("cpu_us_per_delivery")?,
        130.0,
        "µs a delivery",
    ));
    into.push(Figure::noted(
        "Postgres's log",
        metric("wal_bytes_per_delivery")?,
        "bytes a delivery",
    ));
    // Where Postgres does not count them, nobody can say.
    if let Ok(statements) = metric("statements_per_delivery") {
        let figure = Figure::at_most("SQL statements", statements, 0.2, "a delivery");
        into.push(figure);
    }
    // The system that the rate was found on was overloaded for it, and keeps some of that.
    let fresh = at_rate(report.settings.rate.0 as u32);
    let report = trials.run("distributed, at that rate", fresh).await?;
    for (name, most) in MEMORY {
        let memory = report.peak_mib(name)?;
        let name = format!("memory of the {name} at that rate");
        into.push(Figure::at_most(name, memory, most, "MiB"));
    }
    Ok(())
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

async fn drain(trials: &mut Trials, args: &Args, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    let report = trials
        .run("distributed, drained", held("distributed", args.backlog))
        .await?;
    into.push(Figure::at_least(
        format!("distributed, a backlog of {}", args.backlog),
        report.needed("drained_per_second")?,
        20_000.0,
        "deliveries/s",
    ));
    into.push(Figure::at_most(
        "CPU of all processes meanwhile",
        report.needed("cpu_us_per_delivery")?,
        95.0,
        "µs a delivery",
    ));
    Ok(())
}

/// How fast its backlog must drain is judged beside a peer, by `loadtest versus`.
async fn embedded(trials: &mut Trials, args: &Args, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    let trial = busy("embedded", 6_000).with("--destinations", 200);
    let report = trials.run("embedded, sustained", trial.finding()).await?;
    into.push(Figure::at_least(
        "embedded, end to end",
        report.needed("delivered_per_second")?,
        15_000.0,
        "deliveries/s",
    ));
    into.push(Figure::at_most(
        "CPU of all processes, embedded",
        report.needed("cpu_us_per_delivery")?,
        120.0,
        "µs a delivery",
    ));
    into.push(Figure::at_most(
        "SQLite's writer thread",
        report.needed("writer_us_per_delivery")?,
        45.0,
        "µs a delivery",
    ));
    let drained = trials
        .run("embedded, drained", held("embedded", args.backlog))
        .await?;
    into.push(Figure::noted(
        format!("embedded, a backlog of {}", args.backlog),
        drained.needed("drained_per_second")?,
        "deliveries/s",
    ));
    Ok(())
}

async fn destinations(
    trials: &mut Trials,
    args: &Args,
    into: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    let among = |number: u32| busy("distributed", args.rate).with("--destinations", number);
    for many in [10_000, 100_000] {
        let what = format!("{many} destinations, CPU a delivery");
        let ratio = trials.ratio(&what, among(many), among(10), 1.10, "× 10 destinations");
        into.push(ratio.await?);
    }
    Ok(())
}

/// What waits at others for comparison.
const FEW_PENDING: u64 = 100;

async fn backlog(trials: &mut Trials, args: &Args, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    let (large, small) = (args.backlog, args.backlog / 10);
    let what = format!("draining {large}, CPU a delivery");
    let held = |backlog| held("distributed", backlog);
    let ratio = trials.ratio(&what, held(large), held(small), 1.10, "× a tenth of it");
    into.push(ratio.await?);
    let beside = |waiting: u64| {
        busy("distributed", args.rate)
            .with("--destinations", 200)
            .with("--waiting", waiting)
    };
    let what = format!("beside {} that wait, CPU a delivery", args.pending);
    let (many, few) = (beside(args.pending), beside(FEW_PENDING));
    into.push(trials.ratio(&what, many, few, 1.10, "× beside 100").await?);
    Ok(())
}

/// How much more memory than in the first tenth of the time is none: the allocator's
/// moods.
const FLAT: f64 = 1.1;

/// What comes in comes in bulk: the events of five seconds in a body.
async fn memory(trials: &mut Trials, args: &Args, into: &mut Vec<Figure>) -> anyhow::Result<()> {
    let trial = Trial::new("distributed", args.rate)
        .with("--destinations", 200)
        .with("--shape", "waves")
        .with("--ingest", "bulk")
        .with("--warm-up-seconds", 30)
        .with("--drain-seconds", PATIENCE_SECONDS)
        .lasting(args.minutes * 60);
    let name = format!("memory over {} min", args.minutes);
    let report = trials.run(&name, trial).await?;
    for (role, most) in MEMORY {
        let peak = report.peak_mib(role)?;
        into.push(Figure::at_most(
            format!("{name}, {role}"),
            peak,
            most,
            "MiB",
        ));
        into.push(Figure::at_most(
            format!("{name}, {role}, last tenth"),
            report.needed(&format!("rss_growth.{role}"))?,
            FLAT,
            "× the first",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::run::report::Ended;

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
    fn an_error_leaves_what_was_measured_before_it() {
        let before = || vec![Figure::noted("10,000 destinations", 1.0, "×")];
        let why = anyhow::anyhow!("the run ended without a report");
        let figures = and_why_no_more(Target::Destinations, before(), Err(why));
        let rows: Vec<_> = (figures.iter())
            .map(|one| (one.name.as_str(), one.passed))
            .collect();
        let missed = "destinations: the run ended without a report";
        assert_eq!(rows, [("10,000 destinations", true), (missed, false)]);
        assert_eq!(and_why_no_more(Target::Idle, before(), Ok(())).len(), 1);
    }

    #[test]
    fn an_overload_is_one_if_much_waits_and_of_nothing_nobody_is_late() {
        let rows = |delivered_per_second, late: Option<f64>| {
            let mut metrics = vec![
                ("accepted", 150_000.0),
                ("delivered_per_second", delivered_per_second),
            ];
            metrics.extend(late.map(|late| ("stragglers_seconds", late)));
            let figures = overloaded("o", &trial::tests::report(Ended::Drained, &metrics));
            figures.map(|figures| figures.map(|one| (one.name, one.measured, one.passed)))
        };
        let waited = || "o: waited when the load ended".to_owned();
        let last = |of_none: &str| format!("o: the last that waited{of_none}");
        // In two seconds.
        let rows_of_some = rows(70_000.0, Some(31.0)).unwrap();
        assert_eq!(
            rows_of_some,
            [(waited(), 10_000.0, true), (last(""), 31.0, false)]
        );
        let rows_of_none = rows(75_000.0, None).unwrap();
        assert_eq!(
            rows_of_none,
            [(waited(), 0.0, false), (last(", of none"), 0.0, true)]
        );
        assert!(
            rows(74_000.0, None).is_err(),
            "some waited, and nobody looked"
        );
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

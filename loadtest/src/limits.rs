//! Many limited destinations with backlog, several schedulers and workers.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use server::trial::{Distributed, Plan, Roles, Servers, TrialVerdict, per_second};
use tokio::time::Instant;

use crate::faults;

/// Delivers to many limited destinations and judges.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long to measure; the flood lasts for a little more.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: u32,
    /// Scheduler processes.
    #[arg(long, default_value_t = 3)]
    schedulers: usize,
    /// Worker processes.
    #[arg(long, default_value_t = 5)]
    workers: usize,
    /// Destinations by limit, as COUNTxPER_SECOND.
    #[arg(long, value_delimiter = ',', default_value = "200x5,20x50,1x1000")]
    destinations: Vec<Group>,
    /// Kill processes and take the schedule and the queue away in mid-run.
    #[arg(long)]
    faults: bool,
    /// How long draining may take after the measurement.
    #[arg(long, default_value_t = 120)]
    drain_seconds: u64,
    /// The least share of a limit that a destination may get, in per cent;
    /// not judged with faults.
    #[arg(long, default_value_t = 99)]
    share_percent: u64,
}

/// So many destinations with the same limit.
#[derive(Debug, Clone, Copy)]
struct Group {
    count: u32,
    per_second: u32,
}

impl std::str::FromStr for Group {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |part: &str| part.parse().or(Err(format!("{text}: expected 200x5")));
        let (count, limit) = text
            .split_once('x')
            .ok_or(format!("{text}: expected 200x5"))?;
        Ok(Self {
            count: parse(count)?,
            per_second: parse(limit)?,
        })
    }
}

/// What one run showed.
#[derive(Debug, Serialize)]
struct Report {
    passed: bool,
    destinations: usize,
    events: u64,
    /// Arrivals too early by any rule, by the receivers' clock, that no stall of theirs
    /// explains.
    early_arrivals: u64,
    /// Starts too early by any rule, by the ledger.
    early_starts: u64,
    /// The smallest share of its limits that any destination got while
    /// measured, in per cent.
    least_share_percent: f64,
    /// Destinations below the share asked for.
    under_delivered: usize,
    /// Different events that arrived.
    events_arrived: u64,
    /// Requests beyond one per event.
    extra_requests: u64,
    /// Attempts recorded as unknown: the most that extra requests may be.
    unknown: u64,
    /// Attempts that still waited at the end.
    left: u64,
    /// From the flood's end until nothing waited.
    drained_seconds: f64,
}

pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    let roles = Roles {
        schedulers: args.schedulers,
        workers: args.workers,
    };
    let servers = Servers::from_environment()?;
    let mut stage = Distributed::set_up(program, servers, roles, plans(&args)).await?;
    let report = measure(&args, &mut stage).await;
    stage.strike().await?;
    let report = report?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    Ok(if report.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn measure(args: &Args, stage: &mut Distributed) -> anyhow::Result<Report> {
    stage
        .trial
        .flood(&stage.ingest)
        .await
        .context("flood the destinations")?;
    let flooded = Instant::now();
    let length = Duration::from_secs(args.seconds.into());
    if args.faults {
        faults::perform(stage, length).await?;
    }
    tokio::time::sleep_until(flooded + length).await;
    let trial = &stage.trial;
    let measured = trial.judge(trial.now().await?).await?;
    let left = trial.drain(Duration::from_secs(args.drain_seconds)).await?;
    let drained = flooded.elapsed();
    let whole = trial.judge(trial.now().await?).await?;
    Ok(report(args, &measured, &whole, left, drained))
}

fn plans(args: &Args) -> Vec<Plan> {
    let mut plans = Vec::new();
    for group in &args.destinations {
        for number in 0..group.count {
            let limit = group.per_second;
            let name = format!("{limit}/s {number}");
            plans.push(Plan::flooded(&name, per_second(limit), limit, args.seconds));
        }
    }
    plans
}

fn report(
    args: &Args,
    measured: &TrialVerdict,
    whole: &TrialVerdict,
    left: u64,
    drained: Duration,
) -> Report {
    let sum = |value: fn(&server::trial::DestinationVerdict) -> u64| {
        whole.destinations.iter().map(value).sum::<u64>()
    };
    let events = sum(|one| one.events);
    let events_arrived = sum(|one| one.events_arrived);
    let extra_requests = sum(|one| one.arrivals) - events_arrived;
    let unknown = sum(|one| one.unknown);
    let early_arrivals = sum(|one| one.at_receiver.early_arrivals);
    let early_starts = sum(|one| one.early_starts);
    let kept = early_arrivals == 0 && early_starts == 0;
    let under_delivered = measured.under_delivered(args.share_percent).count();
    let shares = measured.destinations.iter().map(|one| one.share_percent);
    let explained = if args.faults {
        extra_requests <= unknown
    } else {
        extra_requests == 0 && under_delivered == 0
    };
    Report {
        passed: kept && events_arrived == events && left == 0 && explained,
        destinations: whole.destinations.len(),
        events,
        early_arrivals,
        early_starts,
        least_share_percent: shares.fold(100.0, f64::min),
        under_delivered,
        events_arrived,
        extra_requests,
        unknown,
        left,
        drained_seconds: drained.as_secs_f64(),
    }
}

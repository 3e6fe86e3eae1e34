//! Many limited destinations with backlog, several schedulers and workers.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::ingest::{Ingest, IngestOptions};
use serde::Serialize;
use server::edge::Mint;
use server::trial::{Children, Plan, Roles, SharedParts, Trial, TrialVerdict, per_second};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::faults;

/// How long the workers may take to show themselves.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let parse = |part: &str| part.parse().map_err(|_| format!("{text}: expected 200x5"));
        let (count, limit) = text.split_once('x').ok_or(format!("{text}: expected 200x5"))?;
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
    /// Starts too early by any rule.
    early_starts: u64,
    /// The smallest share of its limits that any destination got while
    /// measured, in per cent.
    least_share_percent: u64,
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
    let mint = Mint::from_system()?;
    let shared = SharedParts::make(&mint).await?;
    let report = measure(&args, program, &shared).await;
    shared.remove().await?;
    let report = report?;
    let passed = report.passed;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(
    args: &Args,
    program: PathBuf,
    shared: &SharedParts,
) -> anyhow::Result<Report> {
    let parts = shared.connect().await?;
    let (store, catalog) = (Arc::clone(&parts.store), Arc::clone(&parts.catalog));
    let mut trial = Trial::set_up(store, catalog, plans(args)).await?;
    let roles = Roles {
        schedulers: args.schedulers,
        workers: args.workers,
    };
    let mut children = Children::start(program, shared.environment(), roles)?;
    children.wait_for_workers(parts.store.as_ref(), PATIENCE).await?;
    let shutdown = CancellationToken::new();
    let (ingest, back) = Ingest::new(
        Arc::clone(&parts.store),
        Arc::clone(&parts.schedule),
        IngestOptions::default(),
    );
    let ingesting = tokio::spawn(back.run(shutdown.clone()));
    trial.flood(&ingest).await.context("flood the destinations")?;
    let flooded = Instant::now();
    let length = Duration::from_secs(args.seconds.into());
    if args.faults {
        faults::perform(&mut children, shared, length).await?;
    }
    tokio::time::sleep_until(flooded + length).await;
    let until = trial.now().await?;
    let measured = trial.judge(until).await?;
    let left = drain(&trial, Duration::from_secs(args.drain_seconds)).await?;
    let drained = flooded.elapsed();
    let end = trial.now().await?;
    let whole = trial.judge(end).await?;
    shutdown.cancel();
    ingesting.await.context("ingest")?;
    children.stop().await?;
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

/// Waits until nothing waits and nothing is in flight; returns what is left.
async fn drain(trial: &Trial, patience: Duration) -> anyhow::Result<u64> {
    let events: u64 = trial.placed.iter().map(|one| u64::from(one.plan.events)).sum();
    let began = Instant::now();
    loop {
        let left: u64 = trial.backlogs().await?.into_iter().map(u64::from).sum();
        let arrived = trial.receiver.total() >= events;
        if (left == 0 && arrived) || began.elapsed() > patience {
            // The last outcomes are being recorded.
            tokio::time::sleep(Duration::from_millis(500)).await;
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
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
    let early_starts = sum(|one| one.early_starts);
    let under_delivered = measured.under_delivered(args.share_percent).count();
    let shares = measured.destinations.iter().map(|one| one.share_percent);
    let explained = if args.faults {
        extra_requests <= unknown
    } else {
        extra_requests == 0 && under_delivered == 0
    };
    Report {
        passed: early_starts == 0 && events_arrived == events && left == 0 && explained,
        destinations: whole.destinations.len(),
        events,
        early_starts,
        least_share_percent: shares.min().unwrap_or(100),
        under_delivered,
        events_arrived,
        extra_requests,
        unknown,
        left,
        drained_seconds: drained.as_secs_f64(),
    }
}

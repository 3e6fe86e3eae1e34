//! The scheduler alone: the real loop, on a real Redis or in process, with very
//! many destinations that always have work and each keep a slow limit.
//!
//! What decides is the real `admit`, over a ledger in memory; workers take no
//! time and permits go nowhere. So what is measured is what one scheduler and
//! its schedule come to, and Postgres is not in it: its cost for each start is
//! in docs/performance.md.

mod ledger;

use std::sync::Arc;
use std::time::Duration;

use adapters::in_process::InProcessSchedule;
use adapters::redis::RedisSchedule;
use anyhow::{Context, ensure};
use clap::Args as ClapArgs;
use engine::ports::{Schedule, Wake};
use engine::scheduler::{Scheduler, SchedulerOptions};
use redis::Client;
use serde::Serialize;
use server::output;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::run::metrics::per_mille;
use crate::run::places::server_at;
use crate::run::processes::{Used, Watched, look};
use crate::run::report::number;
use crate::run::settings::Limit;
use ledger::{Ledger, Nowhere, destination};

/// The wakes of one call while the schedule is filled.
const FILL: usize = 10_000;

/// Very many destinations on one scheduler or several, without workers.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Args {
    /// Destinations that always have work.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    destinations: u32,
    /// The limit of each, evenly spaced.
    #[arg(long, value_name = "N/PERIOD", default_value = "1/min")]
    limit: Limit,
    /// How long is measured, once each destination has had its first start.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Schedulers, all in this process.
    #[arg(long, value_name = "N", default_value_t = 1)]
    schedulers: u32,
    /// Shards of the schedule.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: u16,
    /// The Redis whose jobs these are, under a prefix of their own; the schedule
    /// is in process without.
    #[arg(
        long,
        value_name = "URL",
        env = "PACELINE_TEST_REDIS_URL",
        hide_env_values = true
    )]
    redis_url: Option<String>,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Report {
    destinations: u32,
    limit: String,
    schedulers: u32,
    shards: u16,
    /// `redis` or `in-process`.
    schedule: &'static str,
    seconds: f64,
    /// What the limits come to.
    allowed_per_second: f64,
    starts_per_second: f64,
    /// Destinations in each call of `admit`.
    runs_per_tick: f64,
    runs_per_start: f64,
    /// How much later than its limit allowed a start was planned.
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    /// Of this process, by start.
    scheduler_cpu_us_per_start: f64,
    /// Of Redis, by start; absent where it is not on this machine.
    redis_cpu_us_per_start: Option<f64>,
    /// With the ledger in memory.
    scheduler_mib: f64,
    redis_mib: Option<f64>,
}

/// Runs it and prints the report as JSON.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let spacing = spacing(args.limit).context("a scheduler alone needs a limit")?;
    let prefix = format!("loadtest-{}", std::process::id());
    let schedule: Arc<dyn Schedule> = match &args.redis_url {
        Some(url) => Arc::new(RedisSchedule::connect(url, &prefix, args.shards).await?),
        None => Arc::new(InProcessSchedule::new()),
    };
    let measured = measure(&args, spacing, schedule).await;
    if let Some(url) = &args.redis_url {
        clear(url, &prefix, args.shards)?;
    }
    output::line(&serde_json::to_string_pretty(&measured?)?)?;
    Ok(())
}

/// Between two starts of one destination.
fn spacing(limit: Limit) -> Option<Duration> {
    match limit {
        Limit::Unlimited => None,
        Limit::Per(max, period) => Some(period.duration() / max),
    }
}

async fn measure(
    args: &Args,
    spacing: Duration,
    schedule: Arc<dyn Schedule>,
) -> anyhow::Result<Report> {
    let ledger = Arc::new(Ledger::new(
        args.destinations,
        args.limit.settings(),
        spacing,
    ));
    fill(schedule.as_ref(), args.destinations, spacing).await?;
    let shutdown = CancellationToken::new();
    let tasks = TaskTracker::new();
    for _ in 0..args.schedulers {
        let scheduler = Scheduler::new(
            ledger.clone(),
            schedule.clone(),
            Arc::new(Nowhere),
            SchedulerOptions::default(),
        );
        tasks.spawn(scheduler.run(shutdown.clone()));
    }
    sleep(spacing).await;
    let mut watched = vec![Watched::tree("scheduler", std::process::id())];
    watched.extend((args.redis_url.as_deref()).and_then(|url| server_at("redis", url)));
    let before = look(&watched);
    let seconds = ledger.measure(Duration::from_secs(args.seconds)).await;
    let after = look(&watched);
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
    let seen = ledger.seen();
    ensure!(seen.starts > 0, "nothing was started");
    let used = |name: &str, of: fn(&Used) -> f64| -> Option<(f64, f64)> {
        Some((of(before.get(name)?), of(after.get(name)?)))
    };
    let each = |name| {
        let (before, after) = used(name, Used::cpu_seconds)?;
        Some((after - before) * 1_000_000.0 / seen.starts as f64)
    };
    let mib = |name| used(name, |used| used.resident_mib).map(|(_, after)| after);
    let late = |of| per_mille(&seen.late_us, of) as f64 / 1_000.0;
    Ok(Report {
        destinations: args.destinations,
        limit: args.limit.to_string(),
        schedulers: args.schedulers,
        shards: args.shards,
        schedule: args.redis_url.as_ref().map_or("in-process", |_| "redis"),
        seconds,
        allowed_per_second: f64::from(args.destinations) / spacing.as_secs_f64(),
        starts_per_second: seen.starts as f64 / seconds,
        runs_per_tick: seen.runs as f64 / seen.ticks.max(1) as f64,
        runs_per_start: seen.runs as f64 / seen.starts as f64,
        late_p50_ms: late(500),
        late_p99_ms: late(990),
        late_max_ms: late(1_000),
        scheduler_cpu_us_per_start: each("scheduler").unwrap_or(0.0),
        redis_cpu_us_per_start: each("redis"),
        scheduler_mib: mib("scheduler").unwrap_or(0.0),
        redis_mib: mib("redis"),
    })
}

/// A job for each, spread evenly over what is between two of its starts.
async fn fill(schedule: &dyn Schedule, count: u32, spacing: Duration) -> anyhow::Result<()> {
    let numbers: Vec<u32> = (0..count).collect();
    for chunk in numbers.chunks(FILL) {
        let wake = |number: &u32| {
            let after = spacing.mul_f64(f64::from(*number) / f64::from(count));
            Wake::after(destination(*number), after)
        };
        let wakes: Vec<Wake> = chunk.iter().map(wake).collect();
        schedule.wake(&wakes).await.context("fill the schedule")?;
        let filled = f64::from(chunk[0]) + chunk.len() as f64;
        if filled as u32 % (count / 10).max(1) < FILL as u32 {
            output::line(&format!("{} of {count} jobs", number(filled)))?;
        }
    }
    Ok(())
}

/// Takes the jobs away.
fn clear(url: &str, prefix: &str, shards: u16) -> anyhow::Result<()> {
    let mut connection = Client::open(url)?.get_connection()?;
    for shard in 0..shards {
        let keys = ["jobs", "lease", "woken", "floor", "life"];
        let keys = keys.map(|key| format!("{prefix}:{{{shard}}}:{key}"));
        redis::cmd("UNLINK").arg(&keys).exec(&mut connection)?;
    }
    Ok(())
}

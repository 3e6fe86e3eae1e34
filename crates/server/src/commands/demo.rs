//! `paceline demo`: it all, on this machine, in under a minute.
//!
//! Local receivers, destinations with different limits, a flood, one limit
//! changed in mid-run by SQL, and at the end what the receivers themselves saw,
//! beside the ledger. Exits 1 if any window was over its limit, at a receiver or in the
//! ledger, or if a destination with backlog got fewer starts than `--least-share` of
//! what its limits allowed, rounded down. For comparison the same flood then goes
//! through the classic formula for some seconds; nothing depends on what comes of it.

mod ports;
mod report;
mod stage;
mod table;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::signals;
use crate::trial::{
    Classic, LEAST_SHARE_PERCENT, Plan, TrialVerdict, WHOLE_WINDOWS, classic, plans_for_demo,
};
use ports::Ports;
use stage::Stage;

/// Between two updates of the live table.
const REFRESH: Duration = Duration::from_secs(1);

/// How long the same flood goes through the classic limiter afterwards.
const CLASSIC: Duration = Duration::from_secs(6);

/// How much waits at each destination while the demo stays.
const STAY_BACKLOG_SECONDS: u32 = 60;

/// Show it all on this machine.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long to deliver.
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(5..=600))]
    seconds: u32,

    /// How much of what its limits allow each destination must get at least,
    /// in percent, rounded down. A machine that is busy with other work gets
    /// less of it done in time.
    #[arg(long, value_name = "PERCENT", default_value_t = LEAST_SHARE_PERCENT)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=100))]
    least_share: u64,

    /// Judge windows of this part of each period at the receivers, in percent. A
    /// machine that is busy with other work moves requests together on their way, by
    /// more than any margin.
    #[arg(long, value_name = "PERCENT", default_value_t = WHOLE_WINDOWS)]
    #[arg(value_parser = clap::value_parser!(u32).range(50..=100))]
    windows: u32,

    /// Print the report as JSON, and nothing else.
    #[arg(long)]
    json: bool,

    /// Go on delivering after the report, and serving the dashboard, until it is
    /// stopped.
    #[arg(long, conflicts_with_all = ["json", "distributed"])]
    stay: bool,

    /// Over Postgres, Redis and RabbitMQ with two schedulers and three workers
    /// as separate processes, instead of in one process over a SQLite file.
    /// Takes the three servers from PACELINE_DATABASE_URL,
    /// PACELINE_SCHEDULE_URL and PACELINE_QUEUE_URL and works in a database, a
    /// prefix and a queue of its own.
    #[arg(long)]
    distributed: bool,

    #[command(flatten)]
    ports: Ports,
}

impl Args {
    /// The plans whose limits stay what they are.
    fn plain(&self) -> Vec<Plan> {
        let mut plans = plans_for_demo(self.seconds);
        plans.retain(|plan| !changes(plan));
        plans
    }
}

/// What came of it.
struct Shown {
    verdict: TrialVerdict,
    /// What the classic limiter gave receivers like these, by their names.
    classic: BTreeMap<String, Classic>,
}

/// Runs the demo. Ctrl-C ends it early and leaves nothing behind.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    signals::until_stopped(|shutdown| async move {
        let plans = plans_for_demo(args.seconds);
        let mut stage = Stage::set_up(args.distributed, args.ports, plans).await?;
        let verdict = tokio::select! {
            biased;
            () = shutdown.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
            verdict = perform(&args, &mut stage) => verdict,
        };
        let passed = match &verdict {
            Ok(shown) => report::print(shown, args.least_share, args.json),
            Err(_) => Ok(false),
        };
        if args.stay && verdict.is_ok() {
            stay(&stage, &shutdown).await?;
        }
        stage.strike().await.context("clean up")?;
        verdict?;
        let passed = passed?;
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
    .await
}

/// Floods, watches, changes a limit half-way, and judges.
async fn perform(args: &Args, stage: &mut Stage) -> anyhow::Result<Shown> {
    let mut table = table::Table::new(args.json);
    table.intro(stage.parts(), args.seconds)?;
    if let Some(moved) = stage.moved() {
        table.say(moved)?;
    }
    if let Some(dashboard) = stage.dashboard() {
        table.say(&format!("Dashboard, while it runs: {dashboard}"))?;
    }
    stage.flood().await.context("flood the destinations")?;
    let began = Instant::now();
    let length = Duration::from_secs(args.seconds.into());
    let mut changed = false;
    while began.elapsed() < length {
        let next = (began.elapsed() + REFRESH).min(length);
        tokio::time::sleep_until(began + next).await;
        if !changed && began.elapsed() >= length / 2 {
            changed = true;
            change_a_limit(stage, &mut table).await?;
        }
        table.update(stage.trial(), began.elapsed()).await?;
    }
    let until = stage.trial().now().await?;
    let judged = stage.trial().judge_windows_of(args.windows, until).await;
    let verdict = judged.context("judge the receivers and the ledger")?;
    let said = format!(
        "And for {} s through the classic formula.",
        CLASSIC.as_secs()
    );
    table.say(&said)?;
    let classic = classic(&args.plain(), CLASSIC).await?;
    Ok(Shown { verdict, classic })
}

/// Goes on until it is stopped.
async fn stay(stage: &Stage, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let dashboard = stage.dashboard().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nIt goes on. Dashboard: {dashboard}\nCtrl-C ends it.")?;
    drop(out);
    loop {
        stage.refill(STAY_BACKLOG_SECONDS).await?;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(REFRESH) => {}
        }
    }
}

/// Whether the limit of this one is changed in mid-run.
fn changes(plan: &Plan) -> bool {
    plan.name.contains("then")
}

/// The user's way to change a limit: one update.
async fn change_a_limit(stage: &mut Stage, table: &mut table::Table) -> anyhow::Result<()> {
    let changing = (stage.trial().placed.iter())
        .find(|placed| changes(&placed.plan))
        .context("the demo has a destination whose limit changes")?;
    let sql = format!(
        "update destinations set limit_per_second = 50 where id = '{}'",
        changing.id
    );
    stage.sql(&sql).await.context("change a limit by SQL")?;
    table.say(&format!("SQL> {sql};"))
}

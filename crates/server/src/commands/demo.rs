//! `paceline demo`: it all, on this machine, in under a minute.
//!
//! Local receivers, destinations with different limits, a flood, one limit
//! changed in mid-run by SQL, and at the end the audit beside what the
//! receivers themselves saw. Exits 1 if any window was over its limit, or if a
//! destination with backlog got fewer starts than 98 % of what its limits
//! allowed, rounded down.

mod report;
mod stage;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

use crate::signals;
use crate::trial::{Plan, plans_for_demo};
use stage::Stage;

/// Between two updates of the live table.
const REFRESH: Duration = Duration::from_secs(1);

/// Show it all on this machine.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long to deliver.
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(5..=600))]
    seconds: u32,

    /// Print the report as JSON, and nothing else.
    #[arg(long)]
    json: bool,

    /// Over Postgres, Redis and RabbitMQ with two schedulers and three workers
    /// as separate processes, instead of in one process over a SQLite file.
    /// Takes the three servers from PACELINE_DATABASE_URL,
    /// PACELINE_SCHEDULE_URL and PACELINE_QUEUE_URL and works in a database, a
    /// prefix and a queue of its own.
    #[arg(long)]
    distributed: bool,
}

/// Runs the demo.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plans = plans_for_demo(args.seconds);
    signals::until_stopped(|shutdown| async move {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(ExitCode::FAILURE),
            ended = perform(&args, plans) => ended,
        }
    })
    .await
}

async fn perform(args: &Args, plans: Vec<Plan>) -> anyhow::Result<ExitCode> {
    let mut stage = Stage::set_up(args.distributed, plans).await?;
    let mut table = table::Table::new(args.json);
    table.intro(stage.parts(), args.seconds)?;
    stage.flood().await.context("flood the destinations")?;
    let began = Instant::now();
    let length = Duration::from_secs(args.seconds.into());
    let mut changed = false;
    while began.elapsed() < length {
        let next = (began.elapsed() + REFRESH).min(length);
        tokio::time::sleep_until(began + next).await;
        if !changed && began.elapsed() >= length / 2 {
            changed = true;
            change_a_limit(&mut stage, &mut table).await?;
        }
        table.update(stage.trial(), began.elapsed()).await?;
    }
    let until = stage.trial().now().await?;
    let verdict = stage
        .trial()
        .judge(until)
        .await
        .context("judge the ledger")?;
    stage.strike().await.context("clean up")?;
    let passed = report::print(&verdict, args.json)?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The user's way to change a limit: one update.
async fn change_a_limit(stage: &mut Stage, table: &mut table::Table) -> anyhow::Result<()> {
    let changing = (stage.trial().placed.iter())
        .find(|placed| placed.plan.name.contains("then"))
        .context("the demo has a destination whose limit changes")?;
    let sql = format!(
        "update destinations set limit_per_second = 50 where id = '{}'",
        changing.id
    );
    stage.sql(&sql).await.context("change a limit by SQL")?;
    table.say(&format!("SQL> {sql};"))
}

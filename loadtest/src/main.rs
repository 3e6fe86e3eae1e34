//! The load test: bombards a Paceline with attempts and compares the starts
//! with the limits.
//!
//! - `limits`: many destinations with backlog on real servers, with several
//!   schedulers and workers as processes, optionally with faults in mid-run;
//!   judged by the ledger and by the receivers.
//! - `backlog`: whether the API's latency and memory stay flat while one
//!   destination has a large backlog.
//! - `scheduler`: the scheduler alone, with very many destinations.
//! - `figures`: the figures of RELIABILITY.md that a load test can measure.
//! - `targets`: what a delivery is meant to cost and costs, run by run.
//! - `windows`: the worst window at receivers and the share of the limit, for many
//!   limits and receivers, in both sizes.
//! - `versus`: beside a peer, BullMQ, by turns: how fast and how dear a backlog drains,
//!   and how a limit is kept and used.
//! - `chaos`: a whole Paceline that is killed, frozen, cut off and confused by
//!   a plan that a seed decides; judged from logs. `judge` reads them again.
//! - `run`: traffic of a shape against one that is started or runs already, and
//!   a report of what was delivered and what it cost. `compare` shows two
//!   reports beside each other; `side-by-side`, the same traffic under other ways
//!   to limit it, in virtual time.
//! - `cluster`: traffic to one on Kubernetes while its pods are evicted, deleted
//!   and killed, and whether limits held and nothing was lost.
//! - `failures`: the table of failures and of what exercises them.
//!
//! Traffic goes to receivers on the loopback, bounded in count and time.

mod apart;
mod api;
mod backlog;
mod chaos;
#[cfg(feature = "k8s")]
mod cluster;
mod failures;
mod faults;
mod figures;
mod limits;
mod ordered;
mod process;
mod run;
mod scheduler;
mod servers;
mod targets;
mod versus;
mod windows;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use server::signals::until_told;

/// Bombards a Paceline with attempts and compares the starts with the limits.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version)]
struct Cli {
    /// The `paceline` program to start roles from; by default the one beside
    /// this program.
    #[arg(long, value_name = "FILE", global = true)]
    program: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Traffic of a shape, and what became of it and what it cost.
    Run(Box<run::Args>),
    /// Two reports of runs beside each other.
    Compare(run::comparing::Args),
    /// The same traffic under other ways to limit it, in virtual time.
    SideBySide(run::side_by_side::Args),
    /// Events to a Paceline on Kubernetes while its pods are ended.
    #[cfg(feature = "k8s")]
    Cluster(Box<cluster::Args>),
    /// Many limited destinations, several schedulers and workers.
    Limits(limits::Args),
    /// One destination with a large backlog: the API's latency and memory.
    Backlog(backlog::Args),
    /// Very many destinations on the scheduler alone, without workers.
    Scheduler(scheduler::Args),
    /// The figures of RELIABILITY.md.
    Figures(figures::Args),
    /// The targets of docs/performance.md, each met or missed by so much.
    Targets(targets::Args),
    /// The worst window at receivers, for many limits and receivers.
    Windows(windows::Args),
    /// Beside a peer, by turns: a backlog that drains, and limits.
    Versus(versus::Args),
    /// Kill, freeze, cut off and confuse a whole Paceline, and judge the logs.
    Chaos(chaos::Args),
    /// Judge the logs of a chaos run again.
    Judge(chaos::JudgeArgs),
    /// Write the table of failures, or compare it with the document.
    Failures(failures::Args),
    /// A process of a chaos run.
    #[command(hide = true)]
    Role(chaos::role::Args),
    /// `paceline serve`, so that a test of `run` needs no other program.
    #[command(hide = true)]
    Serve(Box<server::commands::serve::Args>),
    /// The receiver of a run.
    #[command(hide = true)]
    Receive(run::receiver::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    match cli.command {
        Command::Run(args) => run::run(*args, cli.program).await,
        Command::Compare(args) => run::comparing::run(&args),
        Command::SideBySide(args) => run::side_by_side::run(args).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "k8s")]
        Command::Cluster(args) => cluster::run(*args).await,
        Command::Limits(args) => {
            until_told(Box::pin(limits::run(args, program(cli.program)?))).await
        }
        Command::Backlog(args) => {
            until_told(Box::pin(backlog::run(args, program(cli.program)?))).await
        }
        Command::Scheduler(args) => scheduler::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Figures(args) => {
            until_told(Box::pin(figures::run(args, program(cli.program)?))).await
        }
        Command::Targets(args) => {
            until_told(Box::pin(targets::run(args, program(cli.program)?))).await
        }
        Command::Windows(args) => {
            until_told(Box::pin(windows::run(args, program(cli.program)?))).await
        }
        Command::Versus(args) => versus::run(args, program(cli.program)?).await,
        Command::Chaos(args) => chaos::run(args).await,
        Command::Judge(args) => chaos::judge_again(args),
        Command::Failures(args) => failures::run(&args),
        Command::Role(args) => chaos::role::run(args).await,
        Command::Serve(args) => server::commands::serve::run(*args).await,
        Command::Receive(args) => run::receiver::run(args).await,
    }
}

/// The `paceline` to start roles from.
fn program(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let program = match given {
        Some(program) => program,
        None => std::env::current_exe()
            .context("find this program")?
            .with_file_name("paceline"),
    };
    ensure!(
        program.is_file(),
        "no program at {}: build it first with `cargo build --release`",
        program.display()
    );
    Ok(program)
}

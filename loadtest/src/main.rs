//! The load test: bombards a Paceline with attempts and compares the starts
//! with the limits.
//!
//! - `limits`: many destinations with backlog on real servers, with several
//!   schedulers and workers as processes, optionally with faults in mid-run;
//!   judged by the ledger and by the receivers.
//! - `backlog`: whether the API's latency and memory stay flat while one
//!   destination has a large backlog.
//! - `figures`: the figures of RELIABILITY.md that a load test can measure.
//!
//! Traffic goes to receivers on the loopback, bounded in count and time.

mod api;
mod backlog;
mod faults;
mod figures;
mod limits;
mod process;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

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
    /// Many limited destinations, several schedulers and workers.
    Limits(limits::Args),
    /// One destination with a large backlog: the API's latency and memory.
    Backlog(backlog::Args),
    /// The figures of RELIABILITY.md.
    Figures(figures::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let program = match cli.program {
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
    match cli.command {
        Command::Limits(args) => limits::run(args, program).await,
        Command::Backlog(args) => backlog::run(args, program).await,
        Command::Figures(args) => figures::run(args, program).await,
    }
}

//! `paceline completions SHELL` and `paceline man DIR`: what a package installs.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Which shell's.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Debug, Clone, clap::Args)]
pub struct ManArgs {
    /// Where to write them; made if it is not there.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Prints the script.
pub fn run(args: &Args) -> ExitCode {
    clap_complete::generate(
        args.shell,
        &mut Cli::command(),
        "paceline",
        &mut io::stdout(),
    );
    ExitCode::SUCCESS
}

/// Writes a page for each command.
pub fn run_man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let context = || format!("write man pages into {}", args.directory.display());
    fs::create_dir_all(&args.directory).with_context(context)?;
    clap_mangen::generate_to(Cli::command(), &args.directory).with_context(context)?;
    let pages = fs::read_dir(&args.directory).with_context(context)?.count();
    output::line(&format!("{pages} files in {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

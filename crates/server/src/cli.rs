//! The command line: one enum, one sibling file per command.
//!
//! Exit codes: 0 done; 1 it failed, or drained uncleanly, or (for `audit` and
//! `demo`) a limit was broken; 2 the configuration is wrong, or an audit could
//! not be made.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    api, attempt, audit, completions, dead_letters, demo, destination, event, event_type, import,
    key, limit_group, limit_request, link, listen, login, migrate, operations, operator, plan,
    router, scheduler, secret_key, serve, tenant, tier, top, worker,
};
use crate::config::{ConfigError, LogConfig, unknown};
use crate::{commands, logging, open_files};

/// What a wrong flag, variable or value exits with.
pub const EXIT_CONFIG: u8 = 2;

/// Delivers webhooks to every destination at exactly the rate it allows.
#[derive(Debug, Parser)]
#[command(name = "paceline", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub log: LogConfig,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything in one process; by default over one SQLite file.
    Serve(serve::Args),
    /// Run the HTTP API only.
    Api(api::Args),
    /// Run a scheduler only: take, admit, publish, finish.
    Scheduler(scheduler::Args),
    /// Run a worker only: receive, claim, send, record.
    Worker(worker::Args),
    /// Run an operator only: Destination resources of Kubernetes.
    Operator(operator::Args),
    /// Run a router only: before several shards, each with tenants of its own.
    Router(router::Args),
    /// Print the definition of the Destination resource, for Kubernetes.
    Crd,
    /// Bring the database's schema up to this binary's.
    Migrate(migrate::Args),
    /// Judge the ledger: was any window over its limit?
    Audit(audit::Args),
    /// Try another limit on what was recorded, over the API.
    Plan(plan::Args),
    /// Watch destinations: backlogs, rates and what binds, over the API.
    Top(top::Args),
    /// Show it all on this machine: receivers, limits, a flood and its audit.
    Demo(demo::Args),
    /// Keep where an API is, and a key to it, as a profile.
    Login(login::Login),
    /// Forget a profile.
    Logout(login::Logout),
    /// Create, look at and change destinations, over the API.
    #[command(subcommand)]
    Destination(destination::Command),
    /// Send and look at events, over the API.
    #[command(subcommand)]
    Event(event::Command),
    /// Describe the types that events have, and what of their payloads is not shown, over
    /// the API.
    #[command(subcommand)]
    EventType(event_type::Command),
    /// Limits that several destinations have together, over the API.
    #[command(subcommand)]
    LimitGroup(limit_group::Command),
    /// Send new events to a program that is being written, over the API.
    Listen(listen::Args),
    /// Look at attempts and take them back, over the API.
    #[command(subcommand)]
    Attempt(attempt::Command),
    /// Look at dead letters and replay them, over the API.
    #[command(subcommand)]
    DeadLetters(dead_letters::Command),
    /// Look at replays and end them, over the API.
    #[command(subcommand)]
    Replay(dead_letters::ReplayCommand),
    /// See what operators must know, and who is told, over the API.
    #[command(subcommand)]
    Operations(operations::Command),
    /// Create, look at and change tenants, over the API.
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Create, list and revoke the API keys of tenants, over the API.
    #[command(subcommand)]
    Key(key::Command),
    /// Give, list and revoke links to tenants' pages, over the API.
    #[command(subcommand)]
    Link(link::Command),
    /// Ask for what is above a ceiling, and decide on it, over the API.
    #[command(subcommand)]
    LimitRequest(limit_request::Command),
    /// Look at and change plan tiers, over the API.
    #[command(subcommand)]
    Tier(tier::Command),
    /// Take over what another service has, over the API.
    #[command(subcommand)]
    Import(import::Command),
    /// Make, look at and change the keys that secrets are sealed under.
    #[command(subcommand)]
    SecretKey(secret_key::Command),
    /// Print a completion script.
    Completions(completions::Args),
    /// Write man pages.
    Man(completions::ManArgs),
}

/// Parses, runs, and turns every end into an exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(refused) => return refuse(&refused),
    };
    let environment = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    if let Err(error) = unknown::refuse_unknown(&Cli::command(), environment) {
        return fail(&error.into());
    }
    let quiet = matches!(cli.command, Command::Demo(_));
    if let Err(error) = logging::start(&cli.log, quiet) {
        return fail(&error.into());
    }
    open_files::raise_limit();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("start the runtime")),
    };
    let ended = runtime.block_on(run(cli.command));
    // Blocking work that a second signal left behind must not hold the process.
    runtime.shutdown_background();
    ended.unwrap_or_else(|error| fail(&error))
}

/// The arguments and the environment, as a command.
pub fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => commands::serve::run(args).await,
        Command::Api(args) => commands::api::run(args).await,
        Command::Scheduler(args) => commands::scheduler::run(args).await,
        Command::Worker(args) => commands::worker::run(args).await,
        Command::Operator(args) => commands::operator::run(args).await,
        Command::Router(args) => commands::router::run(args).await,
        Command::Crd => commands::crd::run(),
        Command::Migrate(args) => commands::migrate::run(args).await,
        Command::Audit(args) => commands::audit::run(args).await,
        Command::Plan(args) => commands::plan::run(args).await,
        Command::Top(args) => commands::top::run(args).await,
        Command::Demo(args) => commands::demo::run(args).await,
        Command::Login(args) => commands::login::login(args).await,
        Command::Logout(args) => commands::login::logout(&args),
        Command::Destination(command) => commands::destination::run(command).await,
        Command::Event(command) => commands::event::run(command).await,
        Command::EventType(command) => commands::event_type::run(command).await,
        Command::LimitGroup(command) => commands::limit_group::run(command).await,
        Command::Listen(args) => commands::listen::run(args).await,
        Command::Attempt(command) => commands::attempt::run(command).await,
        Command::DeadLetters(command) => commands::dead_letters::run(command).await,
        Command::Replay(command) => commands::dead_letters::run_replay(command).await,
        Command::Operations(command) => commands::operations::run(command).await,
        Command::Tenant(command) => commands::tenant::run(command).await,
        Command::Key(command) => commands::key::run(command).await,
        Command::LimitRequest(command) => commands::limit_request::run(command).await,
        Command::Link(command) => commands::link::run(command).await,
        Command::Tier(command) => commands::tier::run(command).await,
        Command::Import(command) => commands::import::run(command).await,
        Command::SecretKey(command) => commands::secret_key::run(command).await,
        Command::Completions(args) => Ok(commands::completions::run(&args)),
        Command::Man(args) => commands::completions::run_man(&args),
    }
}

/// Prints what clap refused, with the variable that stands for the flag: the
/// value may well have come from there.
fn refuse(error: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to fail: there is nobody to tell.
    let _ = error.print();
    if let Some(variable) = variable_of(error) {
        let _ = writeln!(
            std::io::stderr().lock(),
            "\nThe flag's variable is {variable}."
        );
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_CONFIG))
}

fn variable_of(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = flag
        .split([' ', '[', '='])
        .next()?
        .strip_prefix("--")?
        .to_owned();
    unknown::arguments(&Cli::command())
        .into_iter()
        .find(|argument| argument.flag == flag)
        .map(|argument| argument.variable)
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
    if error.downcast_ref::<ConfigError>().is_some() {
        ExitCode::from(EXIT_CONFIG)
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_refused_value_names_its_variable() {
        let error = parse(["paceline", "worker", "--worker-places", "many"]).unwrap_err();
        assert_eq!(
            variable_of(&error).as_deref(),
            Some("PACELINE_WORKER_PLACES")
        );
        assert_eq!(error.exit_code(), i32::from(EXIT_CONFIG));
    }

    /// Every command below this one, with its name in full.
    fn leaves(command: &clap::Command, name: &str, found: &mut Vec<(String, clap::Command)>) {
        for below in command.get_subcommands() {
            let name = format!("{name} {}", below.get_name());
            match below.has_subcommands() {
                true => leaves(below, &name, found),
                false => found.push((name, below.clone())),
            }
        }
    }

    /// `top` redraws a screen, and has nothing to print for a program.
    #[test]
    fn every_command_that_asks_the_api_prints_a_table_or_json() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "paceline", &mut found);
        let asking = found.iter().filter(|(name, command)| {
            let asks = command.get_arguments().any(|one| one.get_id() == "url");
            asks && name != "paceline top"
        });
        let mut count = 0;
        for (name, command) in asking {
            let output = command.get_arguments().find(|one| one.get_id() == "output");
            let output = output.unwrap_or_else(|| panic!("{name} has no --output"));
            let words: Vec<_> = (output.get_possible_values().iter())
                .map(|word| word.get_name().to_owned())
                .collect();
            assert_eq!(words, ["table", "json"], "{name}");
            count += 1;
        }
        assert!(count >= 40, "{count}");
    }
}

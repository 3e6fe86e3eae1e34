//! A role of Paceline, started from the load test itself: the same code as the
//! `paceline` program's, with a log of sends and, where the environment says
//! so, a crash point.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use engine::roles::Role;
use server::cli::{self, Command};
use server::logging;
use server::parts::Parts;
use server::role::{self, RoleConfig};

use super::crash::{Trap, VARIABLE};
use super::log::{Appender, Folder};
use super::wrapped::{
    LoggedSender, TrappedOperations, TrappedQueue, TrappedSchedule, TrappedStore,
};

/// The variable that names the folder of the logs.
pub(crate) const LOGS: &str = "CHAOS_LOGS";

/// Which role; everything else is in the environment, as for `paceline`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    role: String,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let cli = cli::parse(["paceline", args.role.as_str()])?;
    logging::start(&cli.log, false)?;
    let (role, config): (Role, RoleConfig) = match cli.command {
        Command::Api(args) => (Role::Api, args.into()),
        Command::Scheduler(args) => (Role::Scheduler, args.into()),
        Command::Worker(args) => (Role::Worker, args.into()),
        _ => bail!("{} is no role of a run", args.role),
    };
    let trap = match std::env::var(VARIABLE) {
        Ok(text) => Some(text.parse::<Trap>()?),
        Err(_) => None,
    };
    let folder = std::env::var(LOGS).with_context(|| format!("{LOGS} is not set"))?;
    let name = format!("{}{}.jsonl", Folder::SENDS, std::process::id());
    let log = Arc::new(Folder(folder.into()).appender(&name)?);
    role::run_with(role, config, |parts| wrapped(parts, log, trap)).await
}

fn wrapped(parts: Parts, log: Arc<Appender>, trap: Option<Trap>) -> Parts {
    let sender = Arc::new(LoggedSender {
        sender: Arc::clone(&parts.sender),
        log,
        trap: trap.clone(),
    });
    let Some(trap) = trap else {
        return Parts { sender, ..parts };
    };
    Parts {
        sender,
        operations: Arc::new(TrappedOperations(parts.operations, trap.clone())),
        store: Arc::new(TrappedStore(parts.store, trap.clone())),
        schedule: Arc::new(TrappedSchedule(parts.schedule, trap.clone())),
        queue: (parts.queue).map(|queue| Arc::new(TrappedQueue(queue, trap)) as _),
        ..parts
    }
}

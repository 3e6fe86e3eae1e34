//! The chaos run: processes and servers that are killed, frozen, cut off and
//! confused by a plan that a seed decides, and a judge that reads the logs
//! afterwards.
//!
//! Two of the API, two schedulers and three workers are started from this very
//! program, over private servers; a client posts events to the API, receivers
//! take them. Between each process and each server, between the client and the
//! API, and before some receivers there is a proxy. When the storm is over,
//! everything is healed and drained, the ledger is written to the logs, and
//! [`judge`] decides. See `docs/chaos.md`.

mod abilities;
mod batch;
mod client;
mod crash;
mod diary;
mod draw;
pub(crate) mod fault;
mod health;
mod judge;
mod keeper;
mod ledger;
mod log;
mod news;
mod outbox;
mod plan;
mod processes;
mod proxy;
mod receivers;
pub(crate) mod role;
mod secrets;
mod servers;
mod setting;
mod stage;
mod storm;
mod summary;
pub(crate) mod world;
mod wrapped;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use server::signals;

use abilities::Abilities;
use judge::Evidence;
use log::Folder;
pub(crate) use log::boottime_us;
use plan::{Wishes, plan};
use stage::Stage;
pub(crate) use storm::write_event;
use summary::Summary;
use world::Cast;

/// What a run exits with that could not be made, or was interrupted.
const EXIT_NO_RUN: u8 = 2;

/// Which part of the time the faults take; the rest is for healing and
/// draining.
const STORM_SHARE: f64 = 0.65;

/// Events a second for which the destinations' limits are enough at scale 1.
const EVENTS_PER_SECOND: u64 = 200;

/// Kills, freezes, cuts off and confuses a whole Paceline, and judges.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Decides the faults, their times and the events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// About how long it takes, in seconds.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(20..=36_000))]
    seconds: u64,
    /// Events that are posted.
    #[arg(long, default_value_t = 50_000)]
    events: u64,
    /// Faults.
    #[arg(long, default_value_t = 60)]
    faults: usize,
    /// At least so many of the faults are kills.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// Half an hour, 1,000,000 events, 300 faults, at least 200 of them kills.
    #[arg(long)]
    long: bool,
    /// Kinds of faults to leave out, or the beginnings of their names, such as
    /// `clock` or `disk-full`.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// How long draining may get nowhere, in seconds: longer than the minute for
    /// which admission is frozen after a step of the clock.
    #[arg(long, default_value_t = 120)]
    drain_seconds: u64,
    /// Keep the logs here; otherwise they are kept only if the judge finds
    /// something.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
}

impl Args {
    fn resolved(mut self) -> Self {
        if self.long {
            self.seconds = 1_800;
            self.events = 1_000_000;
            self.faults = self.faults.max(300);
            self.kills = self.kills.max(200);
            self.drain_seconds = self.drain_seconds.max(300);
        }
        self
    }

    fn storm(&self) -> Duration {
        Duration::from_secs(self.seconds).mul_f64(STORM_SHARE)
    }

    /// By how much the destinations' limits are multiplied.
    fn scale(&self) -> u32 {
        u32::try_from(self.events.div_ceil(self.seconds * EVENTS_PER_SECOND)).unwrap_or(u32::MAX)
    }

    fn is_without(&self, kind: &str) -> bool {
        self.without
            .iter()
            .any(|one| kind.starts_with(one.as_str()))
    }
}

/// Judges the logs of an earlier run again.
#[derive(Debug, clap::Args)]
pub(crate) struct JudgeArgs {
    /// The folder that the run named.
    logs: PathBuf,
}

/// Runs, judges, and says so: 0 sound, 1 not sound, 2 no run.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let args = args.resolved();
    let ended = signals::until_stopped(async |shutdown| {
        let abilities = Abilities::find().await;
        require(&args, &abilities)?;
        let folder = make_logs(&args)?;
        let planned = plan(&Wishes {
            seed: args.seed,
            faults: args.faults,
            kills: args.kills,
            length: args.storm(),
            without: args.without.clone(),
            cast: Cast::new(args.scale()),
        });
        let stage = Stage {
            seed: args.seed,
            events: args.events,
            scale: args.scale(),
            length: args.storm(),
            drain: Duration::from_secs(args.drain_seconds),
            folder: folder.clone(),
            shutdown: shutdown.clone(),
        };
        stage.play(abilities, &planned).await?;
        ensure!(!shutdown.is_cancelled(), "interrupted: nothing to judge");
        let passed = pronounce(&folder, &args.without)?;
        if passed && args.logs.is_none() {
            std::fs::remove_dir_all(&folder.0).context("remove the logs")?;
        }
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
    .await;
    Ok(ended.unwrap_or_else(|error| {
        complain(&format!("no run: {error:#}"));
        ExitCode::from(EXIT_NO_RUN)
    }))
}

/// Judges an earlier run.
pub(crate) fn judge_again(args: JudgeArgs) -> anyhow::Result<ExitCode> {
    let passed = pronounce(&Folder(args.logs), &[])?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What the machine cannot do has to be left out by name.
fn require(args: &Args, abilities: &Abilities) -> anyhow::Result<()> {
    ensure!(
        abilities.faketime.is_some() || args.is_without("clock-forward"),
        "steps of the store's clock need libfaketime (`apt-get install libfaketime`), or leave \
         them out by `--without clock`"
    );
    ensure!(
        abilities.mount.is_some() || args.is_without("disk-full"),
        "a full disk needs the right to mount a tmpfs, or leave it out by `--without disk-full`"
    );
    Ok(())
}

fn make_logs(args: &Args) -> anyhow::Result<Folder> {
    let folder = match &args.logs {
        Some(folder) => folder.clone(),
        None => tempfile::Builder::new()
            .prefix("paceline-chaos-logs.")
            .tempdir()?
            .keep(),
    };
    std::fs::create_dir_all(&folder).context("make a folder for the logs")?;
    let is_empty = std::fs::read_dir(&folder)?.next().is_none();
    ensure!(is_empty, "{} has something in it", folder.display());
    complain(&format!("seed {}, logs in {}", args.seed, folder.display()));
    Ok(Folder(folder))
}

fn pronounce(folder: &Folder, without: &[String]) -> anyhow::Result<bool> {
    let evidence = Evidence::read(folder)?;
    let judgement = judge::judge(&evidence);
    let summary = Summary::new(&evidence, &judgement, without);
    summary.print()?;
    Ok(summary.passed)
}

fn complain(words: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

//! `loadtest versus`: beside a peer, BullMQ, by turns on the same machine, with the same
//! events, the same receiver and as many requests in flight.
//!
//! Two things are measured: how fast a backlog drains without a limit and what that
//! costs, and how a limit is kept and used while a backlog waits behind it. Both sides
//! are led by the same code ([`turn`]) and judged by what the receiver saw
//! ([`judging`]). What must come of it is a verdict beside it ([`report`]). Servers are of
//! this run alone. See `docs/loadtest.md`.

mod bullmq;
mod installing;
mod judging;
mod paceline;
mod redis_server;
mod report;
mod side;
mod turn;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use domain::limit::Period;
use server::trial::Servers;
use server::{output, signals};
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::api::OPEN;
use crate::run::processes::machine;
use crate::run::receiver;
use crate::run::receiving::Receiving;
use crate::run::settings::{Ingest, Limit, Rate, Settings, Shape, Size};
use crate::run::system::{Roles, Start};
use crate::servers::PrivateServers;
use bullmq::{BullMq, Workers};
use installing::Installed;
use paceline::Paceline;
use redis_server::{Fsync, Redis};
use report::{Outcome, Part, Report, Turned};
use side::{Side, Who, urls};
use turn::Turn;

/// Arrivals that the receiver keeps beyond two for each event.
const SPARE: usize = 10_000;

/// How much longer than the measurement a limit's backlog lasts.
const SPARE_SECONDS: f64 = 5.0;

/// The most events that both are warmed up with.
const MAX_WARM_UP: u32 = 5_000;

/// Measures Paceline and BullMQ by turns.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Only these sizes of Paceline; by default both. BullMQ is the same beside each.
    #[arg(long, value_enum, value_delimiter = ',')]
    sizes: Vec<Size>,
    /// Only these parts; by default both.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Turns of each side; who begins changes from pair to pair.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=25))]
    pairs: u32,
    /// Events of the backlog that is drained.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    events: u32,
    /// Destinations that they are for.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    destinations: u32,
    /// The size of each payload.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(64..=262_144))]
    payload_bytes: u32,
    /// Limits, each of one destination: so many a second or a minute.
    #[arg(long, value_delimiter = ',', default_values = ["100/s", "1000/s"], value_parser = short)]
    limits: Vec<Limit>,
    /// How long each limit is measured.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Requests that each side may have in flight.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=8_192))]
    in_flight: u32,
    /// Worker processes of BullMQ.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    peer_processes: u32,
    /// When the Redis of both has on the disk what it was told.
    #[arg(long, value_enum, default_value_t = Fsync::Everysec)]
    redis_fsync: Fsync,
    /// How long a backlog may take to drain.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    drain_seconds: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// How a backlog drains.
    Drain,
    /// How limits are kept and used.
    Limits,
}

/// A limit whose windows are worth waiting for.
fn short(text: &str) -> Result<Limit, String> {
    match text.parse()? {
        limit @ Limit::Per(1..=100_000, Period::Second | Period::Minute) => Ok(limit),
        _ => Err(format!(
            "{text}: expected 1/s to 100000/s, or the same a minute"
        )),
    }
}

/// Runs until all pairs are measured. Ctrl-C ends the turn; the report is then of the
/// pairs that are whole.
pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    signals::until_stopped(|shutdown| perform(args, program, shutdown)).await
}

async fn perform(
    args: Args,
    program: PathBuf,
    shutdown: CancellationToken,
) -> anyhow::Result<ExitCode> {
    args.check()?;
    server::open_files::raise_limit();
    let peer = tokio::select! {
        biased;
        () = shutdown.cancelled() => anyhow::bail!("interrupted"),
        peer = installing::install() => peer?,
    };
    let servers = PrivateServers::start_these(args.servers()).await?;
    let versus = Versus::new(args, program, peer, &servers);
    let measured = match versus {
        Ok(versus) => versus.measure(&shutdown).await,
        Err(error) => Err(error),
    };
    // Whatever came of it, nothing of it stays.
    let removed = servers.remove().await;
    let (report, json) = measured?;
    if json {
        output::json(&report)?;
    } else {
        output::line(&report::table(&report))?;
    }
    removed.context("take the servers away")?;
    let is_whole = !shutdown.is_cancelled();
    Ok(if is_whole && report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        for limit in self.limits.iter().filter(|_| self.wants(Kind::Limits)) {
            if let Limit::Per(_, period) = limit {
                let least = 2 * period.duration().as_secs();
                ensure!(
                    u64::from(self.seconds) >= least,
                    "--seconds must be at least {least} for a limit of {limit}: two of its periods"
                );
            }
        }
        ensure!(
            self.destinations <= self.events,
            "--destinations must not exceed --events"
        );
        ensure!(
            self.peer_processes <= self.in_flight,
            "--peer-processes must not exceed --in-flight"
        );
        Ok(())
    }

    fn wants(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.contains(&kind)
    }

    fn sizes(&self) -> Vec<Size> {
        match self.sizes.as_slice() {
            [] => vec![Size::Embedded, Size::Distributed],
            some => some.to_vec(),
        }
    }

    fn parts(&self) -> Vec<Part> {
        let drain = Part::Drain {
            events: self.events,
        };
        let drain = Some(drain).filter(|_| self.wants(Kind::Drain));
        let limits = self.limits.iter().copied().map(Part::Limit);
        let limits = limits.filter(|_| self.wants(Kind::Limits));
        drain.into_iter().chain(limits).collect()
    }

    /// Which servers are started; none is all of them.
    fn servers(&self) -> &'static [&'static str] {
        if self.sizes().contains(&Size::Distributed) {
            &[]
        } else {
            &["redis"]
        }
    }

    /// The traffic of a part: all of it waits.
    fn settings(&self, part: Part) -> Settings {
        let (destinations, events, limit) = match part {
            Part::Drain { events } => (self.destinations, events, Limit::Unlimited),
            Part::Limit(limit) => (1, self.backlog(limit), limit),
        };
        Settings {
            shape: Shape::Import,
            rate: Rate(0.0),
            seconds: 1,
            destinations,
            hot: destinations,
            events,
            limit,
            limit_then: None,
            max_in_flight: None,
            safety_margin: None,
            payload_bytes: self.payload_bytes,
            ingest: Ingest::Auto,
            seed: 1,
        }
    }

    /// Events that last for longer than a limit is measured, whoever lets them through.
    fn backlog(&self, limit: Limit) -> u32 {
        let Limit::Per(max, period) = limit else {
            return self.events;
        };
        let length = period.duration().as_secs_f64();
        let periods = (f64::from(self.seconds) + SPARE_SECONDS) / length + 1.0;
        // A window may be twice as full as it should be.
        (f64::from(max) * (periods + 1.0)).ceil() as u32
    }

    /// Events of the warming up. Of a limit, half a window.
    fn warm_up(&self, part: Part) -> u32 {
        match part {
            Part::Drain { events } => (events / 10).clamp(1, MAX_WARM_UP),
            Part::Limit(Limit::Per(max, _)) => (max / 2).clamp(1, MAX_WARM_UP),
            Part::Limit(Limit::Unlimited) => 1,
        }
    }
}

/// What all turns have in common.
struct Versus {
    args: Args,
    program: PathBuf,
    peer: Installed,
    redis: Redis,
    /// None where nobody needs them.
    servers: Option<Servers>,
}

impl Versus {
    fn new(
        args: Args,
        program: PathBuf,
        peer: Installed,
        servers: &PrivateServers,
    ) -> anyhow::Result<Self> {
        let all = args.servers().is_empty();
        Ok(Self {
            args,
            program,
            peer,
            redis: Redis {
                url: servers.url("redis")?,
            },
            servers: all.then(|| servers.servers()).transpose()?,
        })
    }

    async fn measure(&self, shutdown: &CancellationToken) -> anyhow::Result<(Report, bool)> {
        self.redis.keep(self.args.redis_fsync).await?;
        let mut notes = self.notes().await?;
        let turns = self.turns(shutdown).await?;
        if shutdown.is_cancelled() {
            notes.push("interrupted: the figures are of the pairs that were whole".to_owned());
        }
        let report = Report {
            machine: machine(),
            notes,
            rows: report::rows(&turns),
            turns,
        };
        Ok((report, self.args.json))
    }

    async fn turns(&self, shutdown: &CancellationToken) -> anyhow::Result<Vec<Turned>> {
        let mut turns = Vec::new();
        for (size, part) in self.course() {
            for pair in 0..self.args.pairs {
                for who in Who::in_turn(pair) {
                    let Some(outcome) = self.turn(size, part, who, shutdown).await? else {
                        return Ok(turns);
                    };
                    let turned = Turned {
                        size,
                        part,
                        pair,
                        who,
                        outcome,
                    };
                    let line = turned.in_short(self.args.pairs);
                    writeln!(std::io::stderr().lock(), "{line}").context("show the progress")?;
                    turns.push(turned);
                }
            }
        }
        Ok(turns)
    }

    fn course(&self) -> Vec<(Size, Part)> {
        let parts = self.args.parts();
        let of = |size| parts.iter().map(move |part| (size, *part));
        self.args.sizes().into_iter().flat_map(of).collect()
    }

    /// `None` if it was interrupted.
    async fn turn(
        &self,
        size: Size,
        part: Part,
        who: Who,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Option<Outcome>> {
        let settings = self.args.settings(part);
        let mut receiving = Receiving::start(&receiver::Args {
            ports: 1,
            capacity: settings.events as usize * 2 + SPARE,
            failing_percent: 0,
            slow_destinations: 0,
            slow_ms: 0,
        })
        .await?;
        if shutdown.is_cancelled() {
            return Ok(None);
        }
        // Not interrupted: what has started half-way could not be taken away.
        let urls = urls(&receiving, &settings);
        let mut side = self.start(size, who, &settings, urls).await?;
        let mut turn = Turn {
            side: side.as_mut(),
            receiving: &mut receiving,
            settings: &settings,
            warm_up: self.args.warm_up(part),
            patience: Duration::from_secs(self.args.drain_seconds),
        };
        let led = async {
            Ok(Some(match part {
                Part::Drain { .. } => Outcome::Drained(turn.drain().await?),
                Part::Limit(_) => Outcome::Limited(turn.limit(self.args.seconds).await?),
            }))
        };
        let outcome: anyhow::Result<_> = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(None),
            outcome = led => outcome,
        };
        let removed = side.remove().await;
        let outcome = outcome.with_context(|| format!("{}, {part}", who.name()))?;
        removed.with_context(|| format!("take {} away", who.name()))?;
        Ok(outcome)
    }

    async fn start(
        &self,
        size: Size,
        who: Who,
        settings: &Settings,
        urls: Vec<String>,
    ) -> anyhow::Result<Box<dyn Side>> {
        let in_flight = self.args.in_flight;
        match who {
            Who::Paceline => {
                let roles = Roles {
                    apis: 1,
                    schedulers: 1,
                    workers: 1,
                };
                let mut start = Start::new(size, self.program.clone(), roles, &OPEN);
                start.servers.clone_from(&self.servers);
                let places = ("PACELINE_WORKER_PLACES".to_owned(), in_flight.to_string());
                start.environment.push(places);
                Ok(Box::new(Paceline::start(start, settings, &urls).await?))
            }
            Who::BullMq => {
                let workers = Workers {
                    processes: self.args.peer_processes,
                    in_flight,
                };
                let (folder, redis) = (&self.peer.folder, self.redis.clone());
                let peer = BullMq::start(folder, redis, workers, settings.limit, urls);
                Ok(Box::new(peer.await?))
            }
        }
    }

    /// What a reader of the figures has to know.
    async fn notes(&self) -> anyhow::Result<Vec<String>> {
        let args = &self.args;
        let (peer, processes) = (&self.peer, args.peer_processes);
        let redis = self.redis.kept().await?;
        let mut notes = vec![
            format!(
                "BullMQ {} on node {} and Redis {}: {processes} worker processes, one queue for \
                 all destinations, what is done removed at once",
                peer.bullmq,
                peer.node,
                self.redis.version().await?
            ),
            format!(
                "each side has at most {} requests in flight, each with a signature, over kept \
                 connections, some of which Paceline opens ahead; payloads are of {} bytes",
                args.in_flight, args.payload_bytes
            ),
            format!(
                "what BullMQ was given and has done is in Redis with {redis}: {}",
                kept_so(args.redis_fsync)
            ),
        ];
        let sizes = args.sizes();
        if sizes.contains(&Size::Embedded) {
            notes.push(
                "Paceline, embedded, keeps all of it in a SQLite file with synchronous full, \
                 and a ledger of what it has sent"
                    .to_owned(),
            );
        }
        if let Some(servers) = &self.servers {
            let postgres = postgres(&servers.database).await?;
            notes.push(format!(
                "Paceline, distributed, keeps all of it in Postgres with {postgres}, and a ledger \
                 of what it has sent; its schedule is in the same Redis"
            ));
        }
        Ok(notes)
    }
}

/// What a crash of the machine takes with it.
fn kept_so(fsync: Fsync) -> &'static str {
    match fsync {
        Fsync::Always => "a crash of the machine loses nothing that was answered",
        Fsync::Everysec => "a crash of the machine loses up to a second or two of it",
        Fsync::No => "a crash of the machine loses what the system had not written yet",
    }
}

/// How safe Postgres's writes are, as it says itself.
async fn postgres(url: &str) -> anyhow::Result<String> {
    let mut connection = PgConnection::connect(url).await?;
    let mut said = Vec::new();
    for (name, show) in [
        ("fsync", "show fsync"),
        ("synchronous_commit", "show synchronous_commit"),
    ] {
        let value: String = sqlx::query_scalar(show).fetch_one(&mut connection).await?;
        said.push(format!("{name} {value}"));
    }
    connection.close().await?;
    Ok(said.join(" and "))
}

#[cfg(test)]
mod tests;

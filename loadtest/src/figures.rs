//! The figures of RELIABILITY.md that a load test can measure, each by itself,
//! on real servers and real processes of its own.
//!
//! A figure is measured at the receiver or read from the ledger, never from
//! the program's own metrics. One that misses its threshold fails the run; one
//! that cannot be measured is an error, never a pass.

mod change;
pub(crate) mod figure;
mod hostile;
mod idle;
mod neighbours;
mod nuisance;
pub(crate) mod pending;
mod rebuild;
mod receiver_limit;
mod restart;
pub(crate) mod shares;
mod stage;
mod stuck;
mod tenants;
mod wake;
mod wiped;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _, ValueEnum};
use server::trial::Servers;

use figure::Figure;
use hostile::Coming;
use stage::Context;
pub(crate) use stage::free_address;

use crate::run::settings::Size;

/// Measures the figures of RELIABILITY.md.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Only these; by default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Name>,
    /// Of `neighbours`, only the attacks that have this in their name, such as `backlog`;
    /// may be repeated.
    #[arg(long = "attack", value_name = "TEXT")]
    attacks: Vec<String>,
    /// Of `neighbours`, only these sizes: `embedded` is on SQLite, `distributed` on
    /// Postgres; by default both.
    #[arg(long, value_enum, value_delimiter = ',')]
    sizes: Vec<Size>,
    /// Attempts that wait at other destinations, for `wake-pending`; the
    /// figure is for 10,000,000.
    #[arg(long, default_value_t = 10_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(200..=100_000_000))]
    pending: u64,
    /// Deliveries that wait at the start, for `rebuild`; the figure is for 1,000,000.
    #[arg(long, default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    waiting: u32,
    /// Destinations with work, for `stuck`.
    #[arg(long, default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    destinations: u32,
    /// Destinations that never answer, drip or send a gibibyte, for `hostile`
    /// and `hostile-at-once`.
    #[arg(long, default_value_t = 5_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(3..=100_000))]
    hostile_destinations: u32,
    /// Seconds between two events for each of them, for `hostile`.
    #[arg(long, default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3_600))]
    hostile_every: u32,
    /// How long shares of limits are measured.
    #[arg(long, default_value_t = 62)]
    #[arg(value_parser = clap::value_parser!(u32).range(20..=3_600))]
    seconds: u32,
    /// Requests in each measurement of a latency; of `neighbours` there are 20 a second.
    #[arg(long, default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=10_000))]
    requests: u32,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// A measurement: one or more figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// From 2xx to the first byte at the receiver, on an idle system.
    Wake,
    /// The same beside a large backlog of others.
    WakePending,
    /// The first start after every job of the schedule was lost.
    Wiped,
    /// Destinations that nobody looks at after faults.
    Stuck,
    /// The first delivery after each server was killed and is back.
    Restart,
    /// The start of an embedded Paceline at which many deliveries wait.
    Rebuild,
    /// A limit that is changed by SQL.
    Change,
    /// The share of limits.
    Shares,
    /// The share of limits while workers stall.
    Stalled,
    /// A receiver that answers 429 far below the configured limit.
    ReceiverLimit,
    /// A greedy tenant beside a small one.
    Tenants,
    /// What an idle system costs.
    Idle,
    /// Healthy destinations beside receivers that never answer, drip or flood,
    /// each of which gets an event now and then.
    Hostile,
    /// The same when ten events for each of them come at the same instant: what
    /// they cost, and what the machine cannot start at once.
    HostileAtOnce,
    /// Healthy destinations beside one that takes five seconds, with a backlog.
    Slow,
    /// A tenant that posts and one that reads, beside one that attacks, on both
    /// stores.
    Neighbours,
}

pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    let context = Context {
        servers: Servers::from_environment()?,
        program,
    };
    let figures = measure_all(&args, &context).await?;
    figure::show(&figures, args.json)
}

/// What these words after `loadtest figures` ask for, such as `--only idle`, on these
/// servers.
pub(crate) async fn measured(
    words: &[&str],
    servers: Servers,
    program: PathBuf,
) -> anyhow::Result<Vec<Figure>> {
    measure_all(&parsed(words)?, &Context { servers, program }).await
}

fn parsed(words: &[&str]) -> anyhow::Result<Args> {
    let command = Args::augment_args(clap::Command::new("figures").no_binary_name(true));
    let matches = command.try_get_matches_from(words.iter().copied())?;
    Ok(Args::from_arg_matches(&matches)?)
}

async fn measure_all(args: &Args, context: &Context) -> anyhow::Result<Vec<Figure>> {
    server::open_files::raise_limit();
    let wanted = |name: &Name| args.only.is_empty() || args.only.contains(name);
    let mut figures = Vec::new();
    for name in Name::value_variants().iter().copied().filter(wanted) {
        figures.extend(measure(name, args, context).await?);
    }
    Ok(figures)
}

async fn measure(name: Name, args: &Args, context: &Context) -> anyhow::Result<Vec<Figure>> {
    Ok(match name {
        Name::Wake => wake::idle(context, args.requests).await?,
        Name::WakePending => vec![wake::pending(context, args.requests, args.pending).await?],
        Name::Wiped => vec![wiped::measure(context).await?],
        Name::Stuck => vec![stuck::measure(context, args.destinations).await?],
        Name::Restart => restart::measure(context).await?,
        Name::Rebuild => rebuild::measure(&context.program, args.waiting).await?,
        Name::Change => change::measure(context).await?,
        Name::Shares => shares::undisturbed(context, args.seconds).await?,
        Name::Stalled => shares::stalled(context, args.seconds).await?,
        Name::ReceiverLimit => receiver_limit::measure(context).await?,
        Name::Tenants => tenants::measure(context).await?,
        Name::Idle => idle::measure(context).await?,
        Name::Hostile => {
            let (requests, destinations) = (args.requests, args.hostile_destinations);
            let every = Duration::from_secs(args.hostile_every.into());
            hostile::measure(context, requests, destinations, Coming::Spread(every)).await?
        }
        Name::HostileAtOnce => {
            let (requests, destinations) = (args.requests, args.hostile_destinations);
            hostile::measure(context, requests, destinations, Coming::AtOnce).await?
        }
        Name::Neighbours => {
            let wanted = neighbours::Wanted {
                posts: args.requests,
                attacks: &args.attacks,
                sizes: &args.sizes,
            };
            neighbours::measure(&context.program, &wanted).await?
        }
        Name::Slow => hostile::beside_a_slow_one(context, args.requests).await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_figures_and_leave_the_rest_as_it_is() {
        let args = parsed(&["--only", "wake-pending", "--pending", "1000"]).unwrap();
        assert_eq!((args.only, args.pending), (vec![Name::WakePending], 1_000));
        let args = parsed(&["--only", "hostile"]).unwrap();
        assert_eq!(args.hostile_destinations, 5_000);
        assert!(parsed(&["--only", "nothing"]).is_err());
    }
}

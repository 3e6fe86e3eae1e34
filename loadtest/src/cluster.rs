//! `loadtest cluster`: events to a Paceline on Kubernetes while its pods are
//! evicted, deleted and killed, and whether limits held and nothing was lost.
//!
//! Verdicts are not ours: limits are judged by `/v1/compliance` of the Paceline
//! that is tried, and what became of each event is read from its attempts. What
//! was done to the cluster, and what its Deployments and autoscalers did, is a
//! timeline beside them. Bounded in count and time; what was scaled is scaled
//! back, also after a Ctrl-C. See `docs/loadtest.md`.

mod access;
mod fault;
mod hands;
mod html;
mod ledger;
mod report;
mod timeline;
mod traffic;
mod watching;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use server::client::{Client as Paceline, ClientConfig};
use server::{output, signals};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::run::settings::{Limit, Rate};
use access::Access;
use fault::Fault;
use hands::Hands;
use report::{Ended, Report, Settings};
use timeline::Timeline;
use traffic::Traffic;

/// The most faults of a run.
const MAX_FAULTS: usize = 100;

/// The most events of a run: what became of each is read back over the API.
const MAX_EVENTS: f64 = 200_000.0;

/// Sends events to a Paceline on Kubernetes while its pods are ended, and
/// judges whether limits held and nothing was lost.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    paceline: ClientConfig,
    #[command(flatten)]
    access: Access,
    /// A receiver as workers reach it; destinations add their number to it.
    #[arg(long, value_name = "URL", default_value = "http://receiver:8080")]
    to: url::Url,
    /// What is done to the cluster, and when: `10s evict SELECTOR [COUNT]`,
    /// `delete` or `kill` alike, or `10s scale DEPLOYMENT REPLICAS`; may be
    /// repeated.
    #[arg(long, value_name = "WHEN WHAT WHOM")]
    fault: Vec<Fault>,
    /// Events a second, all destinations together.
    #[arg(long, default_value = "20/s")]
    rate: Rate,
    /// How long events are sent.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// How many destinations there are.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=200))]
    destinations: u32,
    /// The limit of each, such as `10/s` or `600/min`.
    #[arg(long, default_value = "5/s")]
    limit: Limit,
    /// How long draining may take after the last event.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    drain_seconds: u64,
    /// Which pods a fault is for, where more match: the same seed, the same choice.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Write the report as a page of its own.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs, reports, and fails unless all held.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    signals::until_stopped(|shutdown| perform(args, shutdown)).await
}

async fn perform(args: Args, shutdown: CancellationToken) -> anyhow::Result<ExitCode> {
    args.check()?;
    let cluster = args.access.connect().await?;
    let paceline = Arc::new(Paceline::new(&args.paceline)?);
    let timeline = Timeline::begin();
    let mut hands = Hands::new(&cluster, timeline.clone(), args.seed);
    let mut traffic = Traffic::set_up(Arc::clone(&paceline), &args).await?;
    let since = traffic.store_time().await?;
    let course = async {
        // A fault's time is of the load, which begins now.
        let began = Instant::now();
        let faults = strike(&mut hands, &args.fault, began, &shutdown);
        let (sent, ()) = tokio::join!(traffic.send(began, &shutdown), faults);
        sent?;
        Ok(traffic.drain(args.patience(), &shutdown).await)
    };
    let ended: anyhow::Result<Ended> = tokio::select! {
        biased;
        ended = course => ended,
        never = watching::watch(&cluster, timeline.clone()) => match never {},
    };
    // Whatever came of it, the cluster is as large as it was.
    hands.scale_back().await;
    let ended = ended?;
    let judged = ledger::judge(&paceline, &traffic, &since).await?;
    let report = Report::new(args.settings(&paceline), ended, judged, &timeline);
    args.write(&report)?;
    output::line(&report.table())?;
    Ok(match report.troubles().is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Does what is to be done, each at its time.
async fn strike(hands: &mut Hands, faults: &[Fault], began: Instant, shutdown: &CancellationToken) {
    let mut faults: Vec<_> = faults.iter().collect();
    faults.sort_by_key(|fault| fault.after);
    for fault in faults {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = sleep_until(began + fault.after) => {}
        }
        hands.strike(fault).await;
    }
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.fault.len() <= MAX_FAULTS,
            "more than {MAX_FAULTS} faults"
        );
        ensure!(
            f64::from(self.seconds) * self.rate.0 <= MAX_EVENTS,
            "more than {MAX_EVENTS} events"
        );
        ensure!(self.rate.0 > 0.0, "--rate 0 leaves nothing to send");
        let end = Duration::from_secs(self.seconds.into());
        for fault in &self.fault {
            ensure!(
                fault.after <= end,
                "{fault}: the last event is sent before, at --seconds {}",
                self.seconds
            );
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    fn settings(&self, paceline: &Paceline) -> Settings {
        Settings {
            url: paceline.url().to_string(),
            namespace: self.access.namespace.clone(),
            rate: self.rate,
            seconds: self.seconds,
            destinations: self.destinations,
            limit: self.limit,
            faults: self.fault.iter().map(Fault::to_string).collect(),
        }
    }

    fn write(&self, report: &Report) -> anyhow::Result<()> {
        if let Some(path) = &self.summary {
            let text = serde_json::to_string_pretty(report)?;
            std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        }
        if let Some(path) = &self.html {
            let page = html::page(report);
            std::fs::write(path, page).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

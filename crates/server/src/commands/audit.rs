//! `paceline audit`: reads the store and judges the ledger. Exits with 0 if
//! every limit was kept, with 1 if not, with 2 if it could not tell.

use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::DateTime;
use domain::compliance::judged_until;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Catalog, OperationsBook};

use crate::audit::html::MAX_CHARTED;
use crate::audit::render::{Format, render};
use crate::audit::{Beyond, Depth, Report, Span, collect, groups};
use crate::cli::EXIT_CONFIG;
use crate::config::StoreConfig;
use crate::progress::{Measure, Progress};
use crate::{output, parts};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub store: StoreConfig,

    /// Whose ledger; repeatable. All if none is named.
    #[arg(long = "destination", value_name = "ID")]
    pub destinations: Vec<DestinationId>,

    /// From when: a time such as 2026-01-31T12:00:00Z, or how long ago, such as
    /// 1h. Starts before it are not looked at. All if absent.
    #[arg(long, value_name = "WHEN")]
    pub since: Option<When>,

    /// Until when, exclusive. Half a second ago if absent, and at the latest:
    /// until then it is known when requests were sent.
    #[arg(long, value_name = "WHEN")]
    pub until: Option<When>,

    /// How many points of each curve JSON has: starts against the limit,
    /// latency, backlog. None for 0.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub points: u16,

    /// How to print.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub output: Format,
}

/// Points of each chart of a page.
const CHART_POINTS: usize = 240;

/// A time, or how long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    At(Timestamp),
    Ago(Duration),
}

impl FromStr for When {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = DateTime::parse_from_rfc3339(text) {
            return Ok(Self::At(Timestamp::from_micros(time.timestamp_micros())));
        }
        match humantime::parse_duration(text) {
            Ok(ago) => Ok(Self::Ago(ago)),
            Err(_) => Err("expected a time (2026-01-31T12:00:00Z) or how long ago (1h)".to_owned()),
        }
    }
}

impl When {
    /// The time that is meant, if it is `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => now - ago,
        }
    }
}

/// Judges and prints.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match audit(&args).await {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // 1 would say that a limit was broken.
        Err(error) => {
            writeln!(std::io::stderr().lock(), "error: {error:#}").context("print the error")?;
            Ok(ExitCode::from(EXIT_CONFIG))
        }
    }
}

async fn audit(args: &Args) -> anyhow::Result<bool> {
    let stored = parts::open_to_read(&args.store).await?;
    stored.ready().await.context("read the store")?;
    // Ledgers are written by the store's clock, so "now" is the store's too.
    let now = stored.fleet().await.context("read the store's clock")?.now;
    let span = Span {
        since: args
            .since
            .map_or(Timestamp::from_micros(0), |when| when.resolve(now)),
        until: judged_until(args.until.map(|when| when.resolve(now)), now),
    };
    ensure!(
        span.since < span.until,
        "--since must be before --until, and more than half a second ago"
    );
    let mut reports = Vec::new();
    let depth = Depth {
        points: match args.output {
            Format::Html => CHART_POINTS,
            _ => args.points.into(),
        },
        rows: u64::MAX,
        limits: u32::MAX,
        beyond: Beyond::Refuse,
    };
    let (wanted, stored) = (&args.destinations, stored.as_ref());
    let destinations = collect::destinations(stored, stored, wanted).await?;
    let mut charted = 0;
    let all = Measure::Things(destinations.len() as u64);
    let progress = Progress::begin("destinations", all, watched(args.output));
    for (number, destination) in destinations.iter().enumerate() {
        progress.at(number as u64);
        let books: (&dyn Catalog, &dyn OperationsBook) = (stored, stored);
        let examined = collect::examine(books, destination, span, depth).await;
        let examined =
            examined.with_context(|| format!("read the ledger of {}", destination.id))?;
        let mut report = examined.report;
        // A page has charts of so many: of the others, only what they sum to is
        // kept.
        let wanted = !report.compliant || report.under_delivery.seconds > 0.0;
        match args.output == Format::Html && charted >= MAX_CHARTED && !wanted {
            true => report.curve = None,
            false => charted += usize::from(report.curve.is_some()),
        }
        reports.push(report);
    }
    drop(progress);
    // A group is judged with all of its members.
    let groups = match wanted.is_empty() {
        true => groups::judge_all(stored, stored, span).await?,
        false => Vec::new(),
    };
    let report = Report::new(span, reports).with_groups(groups);
    output::line(&render(&report, args.output)?)?;
    Ok(report.compliant)
}

/// Whether somebody may watch: a long ledger takes minutes.
const fn watched(format: Format) -> output::Format {
    match format {
        Format::Json => output::Format::Json,
        Format::Table | Format::Csv | Format::Html => output::Format::Table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_relative_to_now() {
        let now = Timestamp::from_millis(10_000);
        let resolved = |text: &str| text.parse::<When>().map(|when| when.resolve(now));
        assert_eq!(resolved("4s"), Ok(Timestamp::from_millis(6_000)));
        assert_eq!(
            resolved("1970-01-01T00:00:01+00:00"),
            Ok(Timestamp::from_millis(1_000))
        );
        assert!(resolved("yesterday").is_err());
    }
}

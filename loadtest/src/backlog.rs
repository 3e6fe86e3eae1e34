//! Whether the API stays as quick and as small while one destination has a
//! large backlog.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::ingest::{Ingest, IngestOptions};
use serde::Serialize;
use server::edge::Mint;
use server::trial::{Plan, Servers, SharedParts, Trial, per_second};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Client};
use crate::process::{percentile, resident_mib};

/// Measures the API before and under a backlog.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Attempts in the backlog.
    #[arg(long, default_value_t = 1_000_000)]
    events: u32,
    /// Requests in each measurement.
    #[arg(long, default_value_t = 2_000)]
    requests: u32,
    /// Where the API listens.
    #[arg(long, default_value = "127.0.0.1:18087")]
    listen: String,
}

/// The API at one size of backlog.
#[derive(Debug, Serialize)]
struct Measured {
    backlog: u32,
    /// `POST /v1/events`, until 202.
    post_p50_ms: f64,
    post_p99_ms: f64,
    /// `GET /v1/destinations/{id}/attempts`.
    list_p50_ms: f64,
    list_p99_ms: f64,
    /// Resident memory of the `serve` process.
    resident_mib: f64,
    /// Starts in ten seconds at the destination with the backlog (10/s).
    starts_in_ten_seconds: u64,
}

pub(crate) async fn run(args: Args, program: PathBuf) -> anyhow::Result<ExitCode> {
    let mint = Mint::from_system()?;
    let shared = SharedParts::make(Servers::from_environment()?, &mint).await?;
    let measured = measure(&args, program, &shared).await;
    shared.remove().await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(&measured?)?)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    args: &Args,
    program: PathBuf,
    shared: &SharedParts,
) -> anyhow::Result<[Measured; 2]> {
    let parts = shared.connect().await?;
    let plan = Plan::flooded("10/s", per_second(10), 10, 12);
    let mut trial = Trial::set_up(&parts, &shared.vault()?, vec![plan]).await?;
    let mut serve = Api::start("serve", program, shared, &args.listen)?;
    let process = serve.child.id().context("paceline serve ended")?;
    let (ingest, back) = Ingest::new(
        Arc::clone(&parts.store),
        Arc::clone(&parts.schedule),
        IngestOptions::default(),
    );
    let shutdown = CancellationToken::new();
    let ingesting = tokio::spawn(back.run(shutdown.clone()));
    let mut at = Vec::new();
    for events in [150, args.events] {
        trial.placed[0].plan.events = events;
        trial.flood(&ingest).await?;
        at.push(look(args, &trial, &serve.address, process).await?);
    }
    shutdown.cancel();
    ingesting.await?;
    serve.child.kill().await?;
    at.try_into().ok().context("two measurements")
}

async fn look(args: &Args, trial: &Trial, address: &str, process: u32) -> anyhow::Result<Measured> {
    let id = trial.placed[0].id;
    let before = trial.receiver.total();
    let began = Instant::now();
    let body = format!(r#"{{"destination_id":"{id}","payload":{{"order":1}}}}"#);
    let backlog = trial.backlogs().await?[0];
    let mut client = Client::dial(address).await?;
    let posts = client
        .time(args.requests, "POST", "/v1/events", &body)
        .await?;
    let path = format!("/v1/destinations/{id}/attempts?limit=50");
    let lists = client.time(args.requests / 10, "GET", &path, "").await?;
    tokio::time::sleep_until(began + Duration::from_secs(10)).await;
    Ok(Measured {
        backlog,
        post_p50_ms: percentile(&posts, 50),
        post_p99_ms: percentile(&posts, 99),
        list_p50_ms: percentile(&lists, 50),
        list_p99_ms: percentile(&lists, 99),
        resident_mib: resident_mib(process)?,
        starts_in_ten_seconds: trial.receiver.total() - before,
    })
}

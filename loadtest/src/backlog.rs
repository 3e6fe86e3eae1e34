//! Whether the API stays as quick and as small while one destination has a
//! large backlog.

use std::io::Write;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use engine::ingest::{Ingest, IngestOptions};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use server::edge::Mint;
use server::trial::{Plan, Servers, SharedParts, Trial, per_second};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The key that the API is started with.
const KEY: &str = "loadtest";

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
    let (store, catalog) = (Arc::clone(&parts.store), Arc::clone(&parts.catalog));
    let mut trial = Trial::set_up(store, catalog, vec![plan]).await?;
    let mut serve = tokio::process::Command::new(program)
        .arg("serve")
        .envs(shared.environment())
        .env("PACELINE_LISTEN", &args.listen)
        .env("PACELINE_API_KEY", KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start paceline serve")?;
    let process = serve.id().context("paceline serve ended")?;
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
        at.push(look(args, &trial, process).await?);
    }
    shutdown.cancel();
    ingesting.await?;
    serve.kill().await?;
    at.try_into().ok().context("two measurements")
}

async fn look(args: &Args, trial: &Trial, process: u32) -> anyhow::Result<Measured> {
    let id = trial.placed[0].id;
    let before = trial.receiver.total();
    let began = Instant::now();
    let body = format!(r#"{{"destination_id":"{id}","payload":{{"order":1}}}}"#);
    let backlog = trial.backlogs().await?[0];
    let mut client = Client::dial(&args.listen).await?;
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

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0.0)
}

fn resident_mib(process: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .context("read the memory of paceline serve (Linux only)")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| {
        line.trim()
            .trim_end_matches(" kB")
            .trim()
            .parse::<f64>()
            .ok()
    });
    Ok(kib.context("no VmRSS")? / 1024.0)
}

/// One keep-alive connection to the API.
struct Client {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    host: String,
}

impl Client {
    /// Dials until somebody listens.
    async fn dial(address: &str) -> anyhow::Result<Self> {
        let stream = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                if let Ok(stream) = TcpStream::connect(address).await {
                    return stream;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .context("the API does not listen")?;
        stream.set_nodelay(true)?;
        let io = TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: address.to_owned(),
        })
    }

    /// Sends so many requests, one after the other; milliseconds, sorted.
    async fn time(
        &mut self,
        requests: u32,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<Vec<f64>> {
        let mut took = Vec::new();
        for _ in 0..requests {
            let request = hyper::Request::builder()
                .method(method)
                .uri(path)
                .header("host", &self.host)
                .header("authorization", format!("Bearer {KEY}"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body.to_owned())))?;
            let began = Instant::now();
            self.sender
                .ready()
                .await
                .context("the API closed the connection")?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            response.into_body().collect().await?;
            took.push(began.elapsed().as_secs_f64() * 1_000.0);
            ensure!(status.is_success(), "{method} {path} answered {status}");
        }
        took.sort_unstable_by(f64::total_cmp);
        Ok(took)
    }
}

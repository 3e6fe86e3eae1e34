//! Healthy destinations beside thousands of hostile ones: receivers that never
//! answer, that drip one byte a second, and that send a gibibyte. And beside a
//! single slow one with a long backlog.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adapters::shell;
use anyhow::Context as _;
use engine::ports::DEFAULT_TENANT;
use server::trial::{Distributed, Plan, per_second};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::figure::Figure;
use super::stage::{Context, free_address, until};
use crate::api::{Api, Client};
use crate::process::{percentile, resident_mib};

/// Healthy destinations; events go to one after the other.
const HEALTHY: u32 = 10;

/// Events that wait at each hostile destination: more than can be tried.
const BACKLOG: u32 = 10;

/// What the single slow one takes for a request, what is allowed to it, and how
/// many events wait there.
const SLOW: Duration = Duration::from_secs(5);
const SLOW_LIMIT: u32 = 1_000;
const BEHIND_SLOW: u32 = 2_500;

/// Requests before the measured ones, without and with the hostile ones. The
/// first seconds beside them are measured: that is when nobody knows them.
const WARM_UP: u32 = 50;

const PATIENCE: Duration = Duration::from_secs(60);

/// How large a response of the third kind is.
const GIBIBYTE: u64 = 1 << 30;

/// So many hostile destinations, a third of each kind, with one start a second
/// each, beside healthy ones, on one worker.
pub(super) async fn measure(
    context: &Context,
    requests: u32,
    destinations: u32,
) -> anyhow::Result<Vec<Figure>> {
    context
        .staged((1, 1), healthy(requests), async |stage| {
            let hostile = Hostile::listen().await?;
            create(stage, hostile.address, destinations).await?;
            let program = context.program.clone();
            let api = Api::start("api", program, &stage.shared, &free_address()?)?;
            let mut client = Client::dial(&api.address).await?;
            latencies(stage, &mut client, WARM_UP).await?;
            let without = latencies(stage, &mut client, requests).await?;
            let worker = stage
                .children
                .all
                .iter()
                .find(|child| child.role == "worker");
            let worker = worker.and_then(|child| child.id()).context("no worker")?;
            let memory = Memory::watch(worker);
            flood(stage, BACKLOG).await?;
            let with = latencies(stage, &mut client, requests).await?;
            let tried = hostile.tried.load(Ordering::Relaxed);
            // Or nothing was measured.
            anyhow::ensure!(
                tried >= u64::from(destinations) / 4,
                "only {tried} were tried"
            );
            Ok(figures(destinations, (&without, &with), &memory.samples()?))
        })
        .await
}

/// One destination that takes five seconds for each request, with thousands
/// behind it, beside healthy ones, on one worker.
pub(super) async fn beside_a_slow_one(
    context: &Context,
    requests: u32,
) -> anyhow::Result<Vec<Figure>> {
    let (without, with) = context
        .staged((1, 1), healthy(requests), async |stage| {
            let hostile = Hostile::listen().await?;
            let slow = format!(
                "select gen_random_uuid(), '{}', 'hostile', 'http://{}/slow', {SLOW_LIMIT}",
                DEFAULT_TENANT.0, hostile.address
            );
            insert(stage, &slow).await?;
            let program = context.program.clone();
            let api = Api::start("api", program, &stage.shared, &free_address()?)?;
            let mut client = Client::dial(&api.address).await?;
            latencies(stage, &mut client, WARM_UP).await?;
            let without = latencies(stage, &mut client, requests).await?;
            flood(stage, BEHIND_SLOW).await?;
            let with = latencies(stage, &mut client, requests).await?;
            let tried = hostile.tried.load(Ordering::Relaxed);
            anyhow::ensure!(tried >= 10, "only {tried} requests went to the slow one");
            Ok((without, with))
        })
        .await?;
    let beside = format!("healthy 2xx to first byte, beside one that takes {SLOW:?}");
    let ratio = percentile(&with, 99) / percentile(&without, 99);
    Ok(vec![
        Figure::noted(format!("{beside}, p50"), percentile(&with, 50), "ms"),
        Figure::noted(format!("{beside}, p99"), percentile(&with, 99), "ms"),
        Figure::at_most(format!("{beside}, p99"), ratio, 1.2, "× without"),
    ])
}

/// Events go to them one by one; the receiver keeps as many arrivals.
fn healthy(requests: u32) -> Vec<Plan> {
    let plan = |number| Plan {
        events: requests + WARM_UP,
        ..Plan::flooded(&format!("healthy {number}"), per_second(1_000), 0, 0)
    };
    (0..HEALTHY).map(plan).collect()
}

fn figures(destinations: u32, (without, with): (&[f64], &[f64]), memory: &[f64]) -> Vec<Figure> {
    let ratio = |percent| percentile(with, percent) / percentile(without, percent);
    let beside = format!("healthy 2xx to first byte, beside {destinations} hostile");
    // Once the pools and the allocator have what they need.
    let (early, late) = memory.split_at(memory.len() / 2);
    let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
    vec![
        Figure::noted(format!("{beside}, p50"), percentile(with, 50), "ms"),
        Figure::noted(format!("{beside}, p99"), percentile(with, 99), "ms"),
        Figure::noted(format!("{beside}, p50"), ratio(50), "× without"),
        Figure::at_most(format!("{beside}, p99"), ratio(99), 1.2, "× without"),
        Figure::at_most("worker's memory beside them", most(memory), 256.0, "MiB"),
        Figure::at_most(
            "the same, late against early",
            most(late) / most(early),
            1.1,
            "×",
        ),
    ]
}

/// Creates them without work.
async fn create(stage: &Distributed, at: SocketAddr, destinations: u32) -> anyhow::Result<()> {
    let tenant = DEFAULT_TENANT.0;
    let rows = format!(
        "select gen_random_uuid(), '{tenant}', 'hostile',
             'http://{at}/' || (array['never', 'drip', 'flood'])[1 + number % 3], 1
         from generate_series(1, {destinations}) as number"
    );
    insert(stage, &rows).await
}

async fn insert(stage: &Distributed, rows: &str) -> anyhow::Result<()> {
    let sql =
        format!("insert into destinations (id, tenant_id, name, url, limit_per_second) {rows}");
    Ok(shell::psql(&stage.shared.database_url, &sql).await?)
}

/// Gives each of them a backlog. The sweep finds it.
async fn flood(stage: &Distributed, backlog: u32) -> anyhow::Result<()> {
    let url = &stage.shared.database_url;
    let tenant = DEFAULT_TENANT.0;
    let sql = format!(
        "with hostile as (
             select d.id as destination, new_event_id() as event
             from destinations d, generate_series(1, {backlog})
             where d.name = 'hostile'
         ), sent as (
             insert into events (id, tenant_id, content_type, payload, created_at, day)
             select event, '{tenant}', 'application/json', '{{}}', clock_timestamp(),
                 event_day(event)
             from hostile
         )
         insert into attempts (event_id, destination_id, tenant_id)
         select event, destination, '{tenant}' from hostile"
    );
    shell::psql(url, &sql).await?;
    // What autovacuum would do soon.
    Ok(shell::psql(url, "analyze attempts").await?)
}

/// Sends events to the healthy ones in turn, one at a time; milliseconds from
/// the answer to the request at the receiver, sorted.
async fn latencies(
    stage: &Distributed,
    client: &mut Client,
    requests: u32,
) -> anyhow::Result<Vec<f64>> {
    let mut took = Vec::new();
    for number in 0..requests {
        // About 20 a second, and never in step with anything that ticks.
        sleep(Duration::from_millis(37 + u64::from(number * 7 % 23))).await;
        let turn = number % HEALTHY;
        let id = stage.trial.placed[turn as usize].id;
        let body = format!(r#"{{"destination_id":"{id}","payload":{{"order":1}}}}"#);
        let before = stage.trial.receiver.total();
        client.send("POST", "/v1/events", &body).await?;
        let answered = Instant::now();
        let arrived = async || Ok(stage.trial.receiver.total() > before);
        until("it arrives", PATIENCE, arrived).await?;
        let record = stage.trial.receiver.record();
        let last = record.arrivals.last().context("it did not arrive")?;
        let at = stage.trial.receiver.started_at() + Duration::from_micros(last.at_us);
        // It may be there before the answer is.
        took.push(at.saturating_duration_since(answered).as_secs_f64() * 1_000.0);
    }
    took.sort_unstable_by(f64::total_cmp);
    Ok(took)
}

/// Samples a process's memory until it is dropped.
struct Memory {
    samples: Arc<Mutex<Vec<f64>>>,
    watching: AbortHandle,
}

impl Memory {
    fn watch(process: u32) -> Self {
        let samples = Arc::<Mutex<Vec<f64>>>::default();
        let noted = Arc::clone(&samples);
        let watching = tokio::spawn(async move {
            while let Ok(mib) = resident_mib(process) {
                noted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(mib);
                sleep(Duration::from_millis(250)).await;
            }
        });
        Self {
            samples,
            watching: watching.abort_handle(),
        }
    }

    fn samples(&self) -> anyhow::Result<Vec<f64>> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(samples.len() > 10, "memory was not measured");
        Ok(samples.clone())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// One port, three ways to be a nuisance; it ends when it is dropped.
struct Hostile {
    address: SocketAddr,
    tried: Arc<AtomicU64>,
    _serving: JoinSet<()>,
}

impl Hostile {
    async fn listen() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tried = Arc::<AtomicU64>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&tried)));
        Ok(Self {
            address,
            tried,
            _serving: serving,
        })
    }
}

async fn serve(listener: TcpListener, tried: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    tried.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(annoy(stream));
                }
            }
        }
    }
}

/// Does as its path says, until the sender has enough of it.
async fn annoy(mut stream: TcpStream) {
    let mut request = [0; 4096];
    let Ok(length) = stream.read(&mut request).await else {
        return;
    };
    let path = String::from_utf8_lossy(&request[..length.min(32)]).into_owned();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {GIBIBYTE}\r\n\r\n");
    if path.starts_with("POST /never") {
        // Until it hangs up.
        while !matches!(stream.read(&mut request).await, Ok(0) | Err(_)) {}
        return;
    }
    if path.starts_with("POST /slow") {
        sleep(SLOW).await;
        let taken = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
        // Whoever has hung up needs no answer.
        let _ = stream.write_all(taken.as_bytes()).await;
        return;
    }
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let dripping = path.starts_with("POST /drip");
    let piece = vec![b'x'; if dripping { 1 } else { 64 * 1024 }];
    while stream.write_all(&piece).await.is_ok() {
        if dripping {
            sleep(Duration::from_secs(1)).await;
        }
    }
}

//! Healthy destinations beside thousands of hostile ones: receivers that never
//! answer, that drip one byte a second, and that send a gibibyte. And beside a
//! single slow one with a long backlog.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adapters::shell;
use anyhow::Context as _;
use engine::ports::DEFAULT_TENANT;
use server::trial::{Distributed, Plan, per_second};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, interval, sleep};
use uuid::Uuid;

use super::figure::Figure;
use super::nuisance::{Hostile, SLOW};
use super::stage::{Context, free_address, until};
use crate::api::{Api, Client};
use crate::process::{percentile, resident_mib};

/// Healthy destinations; events go to one after the other.
const HEALTHY: u32 = 10;

/// Events that wait at each of them where all come at once: more than can be
/// tried.
const BACKLOG: u32 = 10;

/// What is allowed to the single slow one, and how many events wait there.
const SLOW_LIMIT: u32 = 1_000;
const BEHIND_SLOW: u32 = 2_500;

/// Requests before the measured ones, without and with the hostile ones. The
/// first seconds beside them are measured: that is when nobody knows them.
const WARM_UP: u32 = 50;

const PATIENCE: Duration = Duration::from_secs(60);

/// How the events of the hostile ones come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    /// One by one, through the API, to each destination once in this time.
    Spread(Duration),
    /// [`BACKLOG`] for each at the same instant.
    AtOnce,
}

/// So many hostile destinations, a third of each kind, with one start a second
/// each, beside healthy ones, on one worker.
pub(super) async fn measure(
    context: &Context,
    requests: u32,
    destinations: u32,
    coming: Coming,
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
            let figures = match coming {
                Coming::AtOnce => {
                    let worker = (stage.children.all.iter()).find(|child| child.role == "worker");
                    let worker = worker.and_then(|child| child.id()).context("no worker")?;
                    let memory = Memory::watch(worker);
                    flood(stage, BACKLOG).await?;
                    let with = latencies(stage, &mut client, requests).await?;
                    let kind = format!("{destinations} hostile at once");
                    let mut figures = figures(&kind, &without, &with, Some(1.2));
                    figures.extend(of_memory(&memory.samples()?));
                    figures
                }
                Coming::Spread(every) => {
                    hostile.answer_well(true);
                    let feed = Client::dial(&api.address).await?;
                    let mut feeding = JoinSet::new();
                    feeding.spawn(feed_all(feed, destinations, every));
                    let beside = latencies(stage, &mut client, requests).await?;
                    hostile.answer_well(false);
                    let with = latencies(stage, &mut client, requests).await?;
                    let kept = hostile.kept() as f64;
                    if let Some(ended) = feeding.try_join_next() {
                        ended?.context("the hostile ones got no more events")?;
                    }
                    let well = format!("{destinations} others that answer");
                    let kind = format!("{destinations} hostile");
                    let ratio = percentile(&with, 99) / percentile(&beside, 99);
                    let mut figures = figures(&well, &without, &beside, None);
                    figures.extend(self::figures(&kind, &without, &with, None));
                    figures.push(Figure::noted(
                        "requests that they keep waiting at the end",
                        kept,
                        "places",
                    ));
                    figures.push(Figure::at_most(
                        format!("the same, beside {kind}, p99"),
                        ratio,
                        1.2,
                        "× beside as many that answer",
                    ));
                    figures
                }
            };
            // Or nothing was measured.
            let tried = hostile.tried();
            let least = match coming {
                Coming::AtOnce => u64::from(destinations) / 4,
                // A healthy one's request takes at least 37 ms, and half of what
                // came meanwhile was tried.
                Coming::Spread(every) => {
                    let took = u128::from(requests) * 37;
                    let came = u128::from(destinations) * took / every.as_millis();
                    u64::try_from(came / 2).unwrap_or(u64::MAX)
                }
            };
            anyhow::ensure!(tried >= least, "only {tried} were tried");
            Ok(figures)
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
            let tried = hostile.tried();
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

/// `most`: how many times what it was without them p99 may be.
fn figures(kind: &str, without: &[f64], with: &[f64], most: Option<f64>) -> Vec<Figure> {
    let ratio = |percent| percentile(with, percent) / percentile(without, percent);
    let beside = format!("healthy 2xx to first byte, beside {kind}");
    let p99 = format!("{beside}, p99");
    let unit = "× without";
    vec![
        Figure::noted(format!("{beside}, p50"), percentile(with, 50), "ms"),
        Figure::noted(p99.clone(), percentile(with, 99), "ms"),
        Figure::noted(format!("{beside}, p50"), ratio(50), unit),
        match most {
            Some(most) => Figure::at_most(p99, ratio(99), most, unit),
            None => Figure::noted(p99, ratio(99), unit),
        },
    ]
}

fn of_memory(samples: &[f64]) -> [Figure; 2] {
    // Once the pools and the allocator have what they need.
    let (early, late) = samples.split_at(samples.len() / 2);
    let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
    let growth = most(late) / most(early);
    [
        Figure::at_most("worker's memory beside them", most(samples), 256.0, "MiB"),
        Figure::at_most("the same, late against early", growth, 1.1, "×"),
    ]
}

/// Creates them without work.
async fn create(stage: &Distributed, at: SocketAddr, destinations: u32) -> anyhow::Result<()> {
    let tenant = DEFAULT_TENANT.0;
    let rows: Vec<String> = (0..destinations)
        .map(|number| {
            let kind = ["never", "drip", "flood"][number as usize % 3];
            let id = hostile_id(number);
            format!("('{id}'::uuid, '{tenant}'::uuid, 'hostile', 'http://{at}/{kind}', 1)")
        })
        .collect();
    insert(stage, &format!("values {}", rows.join(", "))).await
}

/// The id of one of them.
fn hostile_id(number: u32) -> Uuid {
    Uuid::from_u128(0x0bad_0000_0000_7000_8000_0000_0000_0000 + u128::from(number))
}

/// Sends events to them in turn, for ever.
async fn feed_all(mut client: Client, destinations: u32, every: Duration) -> anyhow::Result<()> {
    let mut turns = interval(every / destinations);
    for number in (0..destinations).cycle() {
        turns.tick().await;
        let id = hostile_id(number);
        let body = format!(r#"{{"destination_id":"{id}","payload":{{}}}}"#);
        client.send("POST", "/v1/events", &body).await?;
    }
    Ok(())
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

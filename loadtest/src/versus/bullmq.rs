//! The peer's side: a queue and workers of BullMQ, processes of Node over a Redis.
//!
//! `loadtest/versus` is what they run. One queue is for all destinations, which is how
//! it drains fastest; a limit is the queue's own limiter.

use std::path::Path;
use std::time::Duration;

use adapters::shell;
use anyhow::{Context, ensure};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::redis_server::Redis;
use super::side::Side;
use crate::chaos::boottime_us;
use crate::ordered::Ordered;
use crate::run::processes::Watched;
use crate::run::settings::{Limit, Settings};
use crate::run::shapes;

/// How long it may take to start, or to follow one order.
const PATIENCE: Duration = Duration::from_secs(60);

/// How its workers are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workers {
    /// Processes.
    pub(super) processes: u32,
    /// Requests in flight, of all of them together.
    pub(super) in_flight: u32,
}

/// A queue with its workers.
pub(super) struct BullMq {
    redis: Redis,
    queue: Ordered,
    senders: Vec<Ordered>,
    urls: Vec<String>,
}

#[derive(Deserialize)]
struct Ready {
    ready: bool,
}

/// What an order is answered with that asks for nothing.
#[derive(Deserialize)]
struct Done {}

#[derive(Deserialize)]
struct Left {
    left: u64,
    failed: u64,
}

impl BullMq {
    /// Starts it from the folder in which it is installed.
    pub(super) async fn start(
        folder: &Path,
        redis: Redis,
        workers: Workers,
        limit: Limit,
        urls: Vec<String>,
    ) -> anyhow::Result<Self> {
        shell::redis_cli(&redis.url, &["FLUSHALL"]).await?;
        let mut common = json!({"redis": redis.url, "prefix": "versus"});
        let queue = start("the queue of BullMQ", folder, "queue.mjs", &common).await?;
        common["concurrency"] = workers.in_flight.div_ceil(workers.processes).into();
        common["limiter"] = limiter(limit);
        let mut senders = Vec::new();
        for _ in 0..workers.processes {
            senders.push(start("a worker of BullMQ", folder, "sender.mjs", &common).await?);
        }
        Ok(Self {
            redis,
            queue,
            senders,
            urls,
        })
    }

    async fn order<T: serde::de::DeserializeOwned>(&mut self, order: &Value) -> anyhow::Result<T> {
        let answered = timeout(PATIENCE, self.queue.ask(&order.to_string())).await;
        answered.context("the queue of BullMQ does not answer")?
    }
}

/// The limit as a worker of BullMQ is told it.
fn limiter(limit: Limit) -> Value {
    match limit {
        Limit::Unlimited => Value::Null,
        Limit::Per(max, period) => {
            let duration = u64::try_from(period.duration().as_millis()).unwrap_or(u64::MAX);
            json!({"max": max, "duration": duration})
        }
    }
}

async fn start(
    name: &'static str,
    folder: &Path,
    script: &str,
    options: &Value,
) -> anyhow::Result<Ordered> {
    let mut command = Command::new("node");
    command
        .arg(folder.join(script))
        .arg(options.to_string())
        .env("NODE_ENV", "production");
    let mut process = Ordered::start(name, command)?;
    let said = timeout(PATIENCE, process.answer::<Ready>()).await;
    let said = said.with_context(|| format!("{name} did not start in time"))??;
    ensure!(said.ready, "{name} is not ready");
    Ok(process)
}

#[async_trait]
impl Side for BullMq {
    async fn hold(&mut self) -> anyhow::Result<()> {
        self.order::<Done>(&json!({"order": "hold"})).await?;
        Ok(())
    }

    async fn fill(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let mut first = 0;
        for step in shapes::steps(settings) {
            let order = json!({
                "order": "add",
                "url": self.urls[step.destination as usize],
                "first": first,
                "count": step.count,
                "bytes": settings.payload_bytes,
                "sent_us": boottime_us(),
            });
            self.order::<Done>(&order).await?;
            first += step.count;
        }
        // It may have begun to write its log anew, beside which it is slower.
        self.redis.wait_for_rewrite().await
    }

    async fn go(&mut self) -> anyhow::Result<()> {
        self.order::<Done>(&json!({"order": "go"})).await?;
        Ok(())
    }

    async fn left(&mut self) -> anyhow::Result<u64> {
        let left: Left = self.order(&json!({"order": "left"})).await?;
        ensure!(left.failed == 0, "BullMQ gave up {} jobs", left.failed);
        Ok(left.left)
    }

    fn watched(&self) -> Vec<Watched> {
        let of = |name, process: &Ordered| Some(Watched::tree(name, process.process()?));
        let senders = self.senders.iter().filter_map(|one| of("workers", one));
        let others = [of("queue", &self.queue), self.redis.watched()];
        senders.chain(others.into_iter().flatten()).collect()
    }

    async fn remove(self: Box<Self>) -> anyhow::Result<()> {
        for process in self.senders.into_iter().chain([self.queue]) {
            process.kill().await?;
        }
        shell::redis_cli(&self.redis.url, &["FLUSHALL"]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_what_its_limiter_takes() {
        let told = |text: &str| limiter(text.parse().unwrap());
        assert_eq!(told("100/s"), json!({"max": 100, "duration": 1_000}));
        assert_eq!(told("600/min"), json!({"max": 600, "duration": 60_000}));
        assert_eq!(told("unlimited"), Value::Null);
    }
}

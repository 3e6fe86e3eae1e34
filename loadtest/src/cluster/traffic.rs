//! The events of a run, and the destinations that they are for.
//!
//! Open-loop: what is due is sent however the answers come. An API's pod may be
//! ended in the middle of a request, so every event has an idempotency key, and a
//! request without an answer is made again: the same event, not another one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use server::api::events::{BatchAnswer, BatchResult};
use server::api::standings::Standing;
use server::client::Client;
use server::edge::Mint;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Args;
use super::report::Ended;

/// Between two requests: what came due meanwhile goes in one.
const TICK: Duration = Duration::from_millis(100);

/// Before a request without an answer is made again.
const PAUSE: Duration = Duration::from_millis(250);

/// Between two looks at the backlog.
const LOOK: Duration = Duration::from_secs(1);

/// The most events of a request.
const MAX_BATCH: u64 = 1_000;

/// The most requests under way.
const MAX_UNDER_WAY: usize = 32;

/// What is sent, and what became of the sending.
pub(super) struct Traffic {
    client: Arc<Client>,
    pub(super) destinations: Vec<Uuid>,
    rate: f64,
    seconds: u32,
    /// How long after the last event a request is made again.
    patience: Duration,
    /// Tells the keys of this run from those of all others.
    run: Uuid,
    pub(super) offered: u64,
    /// Durable: each event with its destination.
    pub(super) accepted: Vec<(Uuid, Uuid)>,
    pub(super) refused: u64,
    /// Requests that were made again.
    pub(super) repeated: u64,
}

#[derive(Deserialize)]
struct Created {
    id: Uuid,
}

/// What became of one request.
struct Sent {
    accepted: Vec<(Uuid, Uuid)>,
    refused: u64,
    repeated: u64,
}

impl Traffic {
    /// Makes the destinations.
    pub(super) async fn set_up(client: Arc<Client>, args: &Args) -> anyhow::Result<Self> {
        let to = args.to.as_str().trim_end_matches('/');
        let mut destinations = Vec::new();
        for number in 0..args.destinations {
            let mut body = args.limit.fields();
            body["url"] = Value::from(format!("{to}/{number}"));
            body["name"] = Value::from(format!("load {number}"));
            let created: Created = client
                .send(Method::POST, "/v1/destinations", &body)
                .await
                .context("make a destination")?;
            destinations.push(created.id);
        }
        Ok(Self {
            client,
            destinations,
            rate: args.rate.0,
            seconds: args.seconds,
            patience: args.patience(),
            run: Mint::from_system()?.uuid(),
            offered: 0,
            accepted: Vec::new(),
            refused: 0,
            repeated: 0,
        })
    }

    /// Now, by the store's clock, as the API writes it.
    pub(super) async fn store_time(&self) -> anyhow::Result<String> {
        let first = self.destinations.first().context("no destination")?;
        Ok(self.standing(*first).await?.at)
    }

    /// Sends what is due until the time is over, and waits for the answers.
    pub(super) async fn send(
        &mut self,
        began: Instant,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        let end = began + Duration::from_secs(self.seconds.into());
        let all = (self.rate * f64::from(self.seconds)).round() as u64;
        let mut under_way = JoinSet::new();
        let mut next = began;
        while self.offered < all && !shutdown.is_cancelled() {
            next += TICK;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = sleep_until(next) => {}
            }
            let due = (began.elapsed().as_secs_f64() * self.rate) as u64;
            let due = due.min(all).min(self.offered + MAX_BATCH);
            if due == self.offered {
                continue;
            }
            while under_way.len() >= MAX_UNDER_WAY {
                self.count(under_way.join_next().await)?;
            }
            let events: Vec<_> = (self.offered..due)
                .map(|number| self.event(number))
                .collect();
            self.offered = due;
            let (client, gives_up) = (Arc::clone(&self.client), end + self.patience);
            under_way.spawn(hand_in(client, events, gives_up, shutdown.clone()));
        }
        while let Some(joined) = under_way.join_next().await {
            self.count(Some(joined))?;
        }
        Ok(())
    }

    fn event(&self, number: u64) -> (Uuid, Value) {
        let destinations = self.destinations.len() as u64;
        let destination = self.destinations[(number % destinations) as usize];
        let event = json!({
            "destination_id": destination,
            "type": "load.test",
            "payload": { "number": number },
            "idempotency_key": format!("{}-{number}", self.run),
        });
        (destination, event)
    }

    fn count(
        &mut self,
        joined: Option<Result<Sent, tokio::task::JoinError>>,
    ) -> anyhow::Result<()> {
        if let Some(joined) = joined {
            let sent = joined.context("send events")?;
            self.accepted.extend(sent.accepted);
            self.refused += sent.refused;
            self.repeated += sent.repeated;
        }
        Ok(())
    }

    /// Waits until nothing waits and nothing is under way.
    pub(super) async fn drain(&self, patience: Duration, shutdown: &CancellationToken) -> Ended {
        let began = Instant::now();
        loop {
            if shutdown.is_cancelled() {
                return Ended::Interrupted;
            }
            match self.is_drained().await {
                Ok(true) => return Ended::Drained,
                Ok(false) => {}
                // The API's pods may be gone, too: they come back, or time runs out.
                Err(error) => tracing::debug!(%error, "the backlog is not known"),
            }
            if began.elapsed() > patience {
                return Ended::Undrained;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    async fn is_drained(&self) -> anyhow::Result<bool> {
        for destination in &self.destinations {
            let standing = self.standing(*destination).await?;
            if standing.backlog + standing.permits + standing.in_flight > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn standing(&self, destination: Uuid) -> anyhow::Result<Standing> {
        let path = format!("/v1/destinations/{destination}/explanation");
        self.client.get(&path).await
    }
}

/// One request, until it is answered or nobody waits any more.
async fn hand_in(
    client: Arc<Client>,
    events: Vec<(Uuid, Value)>,
    gives_up: Instant,
    shutdown: CancellationToken,
) -> Sent {
    let bodies: Vec<_> = events.iter().map(|(_, event)| event).collect();
    let body = json!({ "events": bodies });
    let mut sent = Sent {
        accepted: Vec::new(),
        refused: 0,
        repeated: 0,
    };
    loop {
        let answer: anyhow::Result<BatchAnswer> =
            client.send(Method::POST, "/v1/events/batch", &body).await;
        match answer {
            Ok(answer) => {
                for ((destination, _), result) in events.iter().zip(answer.results) {
                    match result {
                        BatchResult::Accepted(event) => {
                            sent.accepted.push((event.id, *destination))
                        }
                        BatchResult::Refused { .. } => sent.refused += 1,
                    }
                }
                return sent;
            }
            Err(error) => tracing::debug!(%error, "a request is made again"),
        }
        if Instant::now() >= gives_up || shutdown.is_cancelled() {
            return sent;
        }
        sent.repeated += 1;
        sleep(PAUSE).await;
    }
}

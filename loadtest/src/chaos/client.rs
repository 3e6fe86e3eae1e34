//! The client: posts events to the API, through its proxies, and logs what it
//! was told.
//!
//! What was answered 429 or 503, or not at all, it posts again, as a client should,
//! with the same idempotency keys. It may have been accepted all the same, and
//! by another process; the judge allows one event for each payload.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::log::{Appender, Post, Said, fingerprint};

/// The key that the API is started with: the default tenant's.
pub(crate) const KEY: &str = "chaos";

/// The most events in one request.
const BATCH: usize = 20;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Each client posts so many events with its key to destinations of others.
const INTRUSIONS: u64 = 10;

/// The numbers of those begin here; the other events' are below.
const INTRUDING: u64 = 1_000_000_000;

/// An event to be posted.
struct Draft {
    number: u64,
    destination: u32,
    payload: String,
    intruding: bool,
}

/// One client; several share the log.
pub(crate) struct Client {
    /// The API's processes, tried in turn.
    pub(crate) apis: Vec<SocketAddr>,
    pub(crate) destinations: Vec<Uuid>,
    /// Of its tenant.
    pub(crate) key: String,
    pub(crate) log: Arc<Appender>,
}

/// How many of each destination's events this client posts, and how fast.
pub(crate) struct Load {
    pub(crate) seed: u64,
    pub(crate) shares: Vec<u64>,
    /// Each destination's, and the one whose events these are.
    pub(crate) tenants: Vec<usize>,
    pub(crate) tenant: usize,
    pub(crate) length: Duration,
    /// Which part of them is posted at once.
    pub(crate) at_once: f64,
    /// Numbers its events, and which of how many clients of its tenant it is.
    pub(crate) client: (u64, u64),
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    id: Option<Uuid>,
}

impl Client {
    /// Posts them all, spread over the time.
    pub(crate) async fn post(self, load: Load) -> anyhow::Result<()> {
        let mut random =
            StdRng::seed_from_u64(load.seed ^ load.client.0 ^ (load.tenant as u64) << 32);
        let drafts = drafts(&load, &mut random);
        let (began, total) = (Instant::now(), drafts.len() as f64);
        let mut connection: Option<SendRequest<Full<Bytes>>> = None;
        let (mut posted, mut turn) = (0_usize, load.client.0 as usize);
        for batch in drafts.chunks(BATCH) {
            let due = (posted as f64 / total - load.at_once).max(0.0) / (1.0 - load.at_once);
            sleep_until(began + load.length.mul_f64(due)).await;
            posted += batch.len();
            loop {
                if connection.as_ref().is_none_or(SendRequest::is_closed) {
                    turn += 1;
                    connection = self.dial(turn).await;
                }
                let Some(open) = &mut connection else {
                    // Nothing was sent: this is not an event yet.
                    sleep(Duration::from_millis(100)).await;
                    continue;
                };
                match timeout(PATIENCE, self.post_batch(open, batch)).await {
                    Ok(Ok(true)) => break,
                    // Not taken, as far as the API knows: again, later.
                    Ok(Ok(false)) => sleep(Duration::from_millis(200)).await,
                    // Perhaps taken: again, to another process.
                    Ok(Err(_)) | Err(_) => connection = None,
                }
            }
        }
        Ok(())
    }

    async fn dial(&self, turn: usize) -> Option<SendRequest<Full<Bytes>>> {
        let address = self.apis.get(turn % self.apis.len())?;
        let dialling = async {
            let stream = TcpStream::connect(address).await.ok()?;
            stream.set_nodelay(true).ok()?;
            let io = TokioIo::new(stream);
            let (sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
            tokio::spawn(connection);
            Some(sender)
        };
        timeout(Duration::from_secs(2), dialling).await.ok()?
    }

    /// Whether each event was answered for; an error if no answer came.
    async fn post_batch(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        batch: &[Draft],
    ) -> anyhow::Result<bool> {
        if connection.ready().await.is_err() {
            return Ok(false);
        }
        self.log(batch, |_| Said::Posted)?;
        let request = hyper::Request::builder()
            .method("POST")
            .uri("/v1/events/batch")
            .header("host", "api")
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", "application/json")
            .body(Full::new(self.body(batch)))?;
        let response = connection.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if matches!(status.as_u16(), 429 | 503) {
            return Ok(false);
        }
        ensure!(status.as_u16() == 202, "the API answered {status}");
        let answer: Answer = serde_json::from_slice(&body).context("read the API's answer")?;
        ensure!(
            answer.results.len() == batch.len(),
            "the API answered for others"
        );
        self.log(batch, |place| match answer.results[place].id {
            Some(id) => Said::Accepted(id),
            None => Said::Refused,
        })?;
        Ok(true)
    }

    fn log(&self, batch: &[Draft], said: impl Fn(usize) -> Said) -> anyhow::Result<()> {
        let lines: Vec<_> = (batch.iter().enumerate())
            .map(|(place, draft)| Post {
                number: draft.number,
                destination: draft.destination,
                body: fingerprint(draft.payload.as_bytes()),
                said: said(place),
                intruding: draft.intruding,
            })
            .collect();
        self.log.append_all(&lines)
    }

    fn body(&self, batch: &[Draft]) -> Bytes {
        let events: Vec<_> = (batch.iter())
            .map(|draft| {
                let (number, payload) = (draft.number, &draft.payload);
                let id = self.destinations[draft.destination as usize];
                format!(
                    r#"{{"destination_id":"{id}","idempotency_key":"event-{number}","payload":{payload}}}"#
                )
            })
            .collect();
        Bytes::from(format!(r#"{{"events":[{}]}}"#, events.join(",")))
    }
}

/// This client's part of its tenant's events and some that are not for it to post,
/// in a random order.
fn drafts(load: &Load, random: &mut StdRng) -> Vec<Draft> {
    let (client, clients) = load.client;
    let mut drafts = Vec::new();
    let mut number = 0;
    for ((destination, share), tenant) in (0_u32..).zip(&load.shares).zip(&load.tenants) {
        for _ in 0..*share {
            number += 1;
            if number % clients == client && *tenant == load.tenant {
                drafts.push(Draft::new((number, destination), false, random));
            }
        }
    }
    let others: Vec<u32> = (0_u32..)
        .zip(&load.tenants)
        .filter(|(_, tenant)| **tenant != load.tenant)
        .map(|(destination, _)| destination)
        .collect();
    let first = INTRUDING + (load.tenant as u64 * clients + client) * INTRUSIONS;
    for number in first..first + INTRUSIONS {
        if let Some(destination) = others.choose(random) {
            drafts.push(Draft::new((number, *destination), true, random));
        }
    }
    drafts.shuffle(random);
    drafts
}

impl Draft {
    fn new((number, destination): (u64, u32), intruding: bool, random: &mut StdRng) -> Self {
        Self {
            number,
            destination,
            payload: payload(number, random),
            intruding,
        }
    }
}

/// JSON whose bytes any reading and writing again would change: spaces, an
/// order of keys, digits, and letters of several bytes.
pub(super) fn payload(number: u64, random: &mut StdRng) -> String {
    let padding: String = (0..random.random_range(0..600))
        .map(|_| ['a', ' ', 'é', '→', '0', '𝄞'][random.random_range(0..6)])
        .collect();
    format!("{{ \"z\" : {number},\"b\":1.50e+1 ,\t\"a\":\"{padding}\\u0041\" }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_the_events_and_every_payload_is_json_of_its_own() {
        let mut numbers = Vec::new();
        let mut bodies = Vec::new();
        let mut intruding = Vec::new();
        for (client, tenant) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)] {
            let load = Load {
                seed: 1,
                shares: vec![10, 0, 7],
                tenants: vec![0, 0, 1],
                tenant,
                length: Duration::ZERO,
                at_once: 0.1,
                client: (client, 3),
            };
            for draft in drafts(&load, &mut StdRng::seed_from_u64(client)) {
                let json: serde_json::Value = serde_json::from_str(&draft.payload).unwrap();
                assert_ne!(
                    json.to_string(),
                    draft.payload,
                    "would not survive a parser"
                );
                let own = load.tenants[draft.destination as usize] == tenant;
                assert_eq!(own, !draft.intruding);
                match draft.intruding {
                    true => intruding.push(draft.number),
                    false => numbers.push((draft.number, draft.destination)),
                }
                bodies.push(draft.payload);
            }
        }
        numbers.sort_unstable();
        let destination = |number| if number <= 10 { 0 } else { 2 };
        let expected: Vec<_> = (1..=17)
            .map(|number| (number, destination(number)))
            .collect();
        assert_eq!(numbers, expected);
        intruding.sort_unstable();
        intruding.dedup();
        assert_eq!(intruding.len(), 60);
        bodies.sort_unstable();
        bodies.dedup();
        assert_eq!(bodies.len(), 17 + 60);
    }
}

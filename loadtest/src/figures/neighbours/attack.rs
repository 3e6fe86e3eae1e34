//! What one tenant, one receiver or one stranger does to the others.
//!
//! An attack goes on until it is dropped. It asks at a bounded pace: what is measured
//! is what its requests cost the others, not how a machine shares two cores among
//! those that use all of them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::super::nuisance::Hostile;
use crate::api::{Client, connect_from};

/// What the attackers call from: another address than their neighbours, as anybody's.
const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Clients that ask in turn.
const CLIENTS: u32 = 16;

/// Destinations that want every event.
const SUBSCRIBERS: u32 = 300;

/// Kilobytes of a head that does not end.
const HEAD: usize = 60;

/// One kind of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attack {
    /// Receivers whose answers are no text that a database takes, or no answer.
    Answers,
    /// A receiver whose queue of connections is always full.
    Dials,
    /// Text that no database takes, and bodies that are not what they say.
    Words,
    /// Heads that do not end, by the thousand.
    Sockets,
    /// Bodies that come a little at a time.
    Bodies,
    /// Keys that nobody was given.
    Keys,
    /// Pages that are watched by hundreds.
    Streams,
    /// Whatever reads most.
    Reports,
    /// Limits that change all the time.
    Changes,
    /// Destinations that are created and deleted.
    Deletions,
    /// Events for hundreds of subscribers, by the thousand.
    FanOut,
    /// A backlog as large as it is allowed, and more.
    Backlog,
}

impl Attack {
    /// Those that leave most behind come last.
    pub(super) const ALL: [Self; 12] = [
        Self::Answers,
        Self::Dials,
        Self::Words,
        Self::Sockets,
        Self::Bodies,
        Self::Keys,
        Self::Streams,
        Self::Reports,
        Self::Changes,
        Self::Deletions,
        Self::FanOut,
        Self::Backlog,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Answers => "hostile answers",
            Self::Dials => "a full accept queue",
            Self::Words => "hostile text",
            Self::Sockets => "3,000 unfinished heads",
            Self::Bodies => "64 dripping bodies",
            Self::Keys => "unknown keys",
            Self::Streams => "200 watched pages",
            Self::Reports => "reports",
            Self::Changes => "changing limits",
            Self::Deletions => "created and deleted destinations",
            Self::FanOut => "fan-out to 300 subscribers",
            Self::Backlog => "a backlog without end",
        }
    }

    /// Begins it, by a tenant that can do all that a tenant can.
    pub(super) async fn begin(self, attacker: Attacker) -> anyhow::Result<Underway> {
        let mut underway = Underway::default();
        match self {
            Self::Answers => answers(&attacker, &mut underway).await?,
            Self::Dials => dials(&attacker, &mut underway).await?,
            Self::Words => words(&attacker, &mut underway),
            Self::Sockets => {
                let head = format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(HEAD * 1_024));
                underway.hold(3_000, &attacker.address, head, None);
            }
            Self::Bodies => {
                let head = format!(
                    "POST /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
                     content-type: application/json\r\ncontent-length: 1000000\r\n\r\n",
                    attacker.address, attacker.key
                );
                underway.hold(64, &attacker.address, head, Some(vec![b' '; 4_096]));
            }
            Self::Keys => {
                let stranger = |number| Attacker {
                    key: format!("pk_nobody_{number}_{}", "x".repeat(32)),
                    ..attacker.clone()
                };
                for number in 0..8 {
                    underway.crew(stranger(number), 25, |_| ask("GET", "/v1/destinations"));
                }
            }
            Self::Streams => streams(&attacker, &mut underway).await?,
            Self::Reports => reports(&attacker, &mut underway).await?,
            Self::Changes => {
                let id = attacker.destination(&nobody(), json!({})).await?;
                let path = format!("/v1/destinations/{id}");
                underway.crew(attacker, 200, move |turn| Ask {
                    method: "PATCH",
                    path: path.clone(),
                    body: json!({"limits": {"per_second": turn % 1_000 + 1}}).to_string(),
                });
            }
            Self::Deletions => deletions(attacker, &mut underway),
            Self::FanOut => {
                let all = json!({"event_types": ["*"], "limits": {"per_minute": 1}});
                for _ in 0..SUBSCRIBERS {
                    attacker.destination(&nobody(), all.clone()).await?;
                }
                let event = json!({"type": "a.b", "payload": {}});
                let body = json!({"events": vec![event; 1_000]}).to_string();
                underway.crew(attacker, 20, move |_| post("/v1/events/batch", &body));
            }
            Self::Backlog => {
                let id = attacker.destination(&nobody(), json!({})).await?;
                let paused = json!({"state": "paused"}).to_string();
                let mut client = attacker.client().await?;
                let path = format!("/v1/destinations/{id}");
                client.send("PATCH", &path, &paused).await?;
                let event = json!({"destination_id": id, "payload": {}});
                let body = json!({"events": vec![event; 1_000]}).to_string();
                underway.crew(attacker, 50, move |_| post("/v1/events/batch", &body));
            }
        }
        Ok(underway)
    }
}

/// Where nobody listens.
fn nobody() -> String {
    "http://127.0.0.1:9/".to_owned()
}

/// A tenant with bad intentions, or a stranger.
#[derive(Clone)]
pub(super) struct Attacker {
    /// Of the API.
    pub(super) address: String,
    pub(super) key: String,
}

impl Attacker {
    async fn client(&self) -> anyhow::Result<Client> {
        let client = Client::dial_from(FROM, &self.address).await?;
        Ok(client.with_key(&self.key))
    }

    /// One of its destinations, however often it has to ask for it.
    async fn destination(&self, url: &str, mut with: Value) -> anyhow::Result<String> {
        with["url"] = url.into();
        let mut client = self.client().await?;
        loop {
            let asked = client
                .answer("POST", "/v1/destinations", &with.to_string())
                .await?;
            match asked {
                (StatusCode::TOO_MANY_REQUESTS, _) => sleep(Duration::from_millis(100)).await,
                (status, answer) => {
                    let said = String::from_utf8_lossy(&answer);
                    anyhow::ensure!(status.is_success(), "no destination: {status} {said}");
                    let created: Value = serde_json::from_slice(&answer)?;
                    let id = created["id"].as_str().context("a destination has no id")?;
                    return Ok(id.to_owned());
                }
            }
        }
    }
}

struct Ask {
    method: &'static str,
    path: String,
    body: String,
}

fn ask(method: &'static str, path: &str) -> Ask {
    Ask {
        method,
        path: path.to_owned(),
        body: String::new(),
    }
}

fn post(path: &str, body: &str) -> Ask {
    Ask {
        body: body.to_owned(),
        ..ask("POST", path)
    }
}

/// An attack that goes on. Dropped, it ends.
#[derive(Default)]
pub(super) struct Underway {
    tasks: JoinSet<()>,
    told: Arc<Told>,
    receivers: Vec<Hostile>,
    full: Vec<TcpListener>,
}

/// How its requests were answered.
#[derive(Default)]
struct Told {
    asked: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Underway {
    /// Requests so far: all, and of these those that were taken, refused, and answered
    /// by a failure or not at all. Connections that are held count as taken.
    pub(super) fn told(&self) -> [u64; 4] {
        let Told {
            asked,
            taken,
            refused,
            failed,
        } = &*self.told;
        [asked, taken, refused, failed].map(|count| count.load(Ordering::Relaxed))
    }

    /// Clients that send one request after the other, so many a second together,
    /// whatever is answered.
    fn crew(
        &mut self,
        attacker: Attacker,
        per_second: u32,
        request: impl Fn(u64) -> Ask + Send + Sync + 'static,
    ) {
        let request = Arc::new(request);
        for number in 0..CLIENTS {
            let (attacker, request) = (attacker.clone(), Arc::clone(&request));
            let told = Arc::clone(&self.told);
            self.tasks.spawn(async move {
                let mut turns = interval(Duration::from_secs(1) * CLIENTS / per_second);
                turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut client = None;
                for turn in (u64::from(number)..).step_by(CLIENTS as usize) {
                    turns.tick().await;
                    let Ask { method, path, body } = request(turn);
                    told.asked.fetch_add(1, Ordering::Relaxed);
                    let asked = async {
                        let mut one = match client.take() {
                            Some(client) => client,
                            None => attacker.client().await?,
                        };
                        let (status, _) = one.answer(method, &path, &body).await?;
                        anyhow::Ok((one, status))
                    };
                    let counted = match asked.await {
                        Ok((one, status)) => {
                            client = Some(one);
                            match status {
                                status if status.is_success() => &told.taken,
                                status if status.is_client_error() => &told.refused,
                                _ => &told.failed,
                            }
                        }
                        Err(_closed) => &told.failed,
                    };
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    /// Connections that begin with `head`, send `piece` ten times a second if there is
    /// one, and are opened again a second after they were closed.
    fn hold(&mut self, connections: u32, address: &str, head: String, piece: Option<Vec<u8>>) {
        let head = Arc::new(head);
        for number in 0..connections {
            let (address, head) = (address.to_owned(), Arc::clone(&head));
            let (piece, told) = (piece.clone(), Arc::clone(&self.told));
            self.tasks.spawn(async move {
                // Not all in the same instant.
                sleep(Duration::from_millis(u64::from(number) % 1_000)).await;
                loop {
                    told.asked.fetch_add(1, Ordering::Relaxed);
                    match connect_from(FROM, &address).await {
                        Ok(stream) => {
                            told.taken.fetch_add(1, Ordering::Relaxed);
                            // However it ended: it is opened again.
                            let _ = held(stream, &head, piece.as_deref()).await;
                        }
                        Err(_refused) => {
                            told.refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
    }
}

/// Until it is closed.
async fn held(
    mut stream: tokio::net::TcpStream,
    head: &str,
    piece: Option<&[u8]>,
) -> std::io::Result<()> {
    stream.write_all(head.as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    let read = async {
        let mut buffer = [0; 4_096];
        while reader.read(&mut buffer).await? > 0 {}
        Ok(())
    };
    let write = async {
        let Some(piece) = piece else {
            return std::future::pending().await;
        };
        loop {
            sleep(Duration::from_millis(100)).await;
            writer.write_all(piece).await?;
        }
    };
    tokio::select! {
        done = read => done,
        failed = write => failed,
    }
}

async fn answers(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let hostile = Hostile::listen().await?;
    let mut ids = Vec::new();
    for kind in ["nul", "garbage", "never", "drip", "flood"] {
        let url = format!("http://{}/{kind}", hostile.address);
        let id = attacker
            .destination(&url, json!({"unlimited": true}))
            .await?;
        if kind == "nul" {
            let batches = json!({"max_events": 10, "max_wait_ms": 100}).to_string();
            let path = format!("/v1/destinations/{id}/batches");
            attacker
                .client()
                .await?
                .send("PUT", &path, &batches)
                .await?;
        }
        ids.push(id);
    }
    underway.receivers.push(hostile);
    underway.crew(attacker.clone(), 100, move |turn| {
        let id = &ids[turn as usize % ids.len()];
        post(
            "/v1/events",
            &json!({"destination_id": id, "payload": {}}).to_string(),
        )
    });
    Ok(())
}

async fn dials(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let full = socket.listen(1)?;
    let url = format!("http://{}/", full.local_addr()?);
    // Accepted by nobody, for as long as it is there.
    underway.full.push(full);
    let id = attacker
        .destination(&url, json!({"unlimited": true}))
        .await?;
    underway.crew(attacker.clone(), 200, move |_| {
        post(
            "/v1/events",
            &json!({"destination_id": id, "payload": {}}).to_string(),
        )
    });
    Ok(())
}

fn words(attacker: &Attacker, underway: &mut Underway) {
    let texts = [
        ask("GET", "/v1/dead-letters?type=%00"),
        ask("GET", "/v1/dead-letters?after=%00"),
        ask("GET", "/v1/standings?search=%00"),
        post("/v1/replays", "{\"type\":\"\\u0000\"}"),
        post("/v1/events", "{\"type\":\"\\u0000\",\"payload\":{}}"),
        post(
            "/v1/events",
            &format!("{{\"type\":\"a\",\"payload\":{}", "[".repeat(100_000)),
        ),
        post("/v1/events/bulk", "\u{0}\n\u{0}"),
        post(
            "/v1/destinations",
            "{\"url\":\"http://\\u0000\",\"name\":\"\\u0000\"}",
        ),
    ];
    underway.crew(attacker.clone(), 200, move |turn| {
        let Ask { method, path, body } = &texts[turn as usize % texts.len()];
        Ask {
            method,
            path: path.clone(),
            body: body.clone(),
        }
    });
}

async fn streams(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let mut client = attacker.client().await?;
    let cookie = client.sign_in().await?.to_owned();
    let head = format!(
        "GET /dashboard/live HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\n\r\n",
        attacker.address
    );
    underway.hold(200, &attacker.address, head, None);
    Ok(())
}

async fn reports(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let id = attacker.destination(&nobody(), json!({})).await?;
    let mut client = attacker.client().await?;
    for limit in 1..=100 {
        let change = json!({"limits": {"per_second": limit}}).to_string();
        let path = format!("/v1/destinations/{id}");
        // As many of these as it may make: the reports read them all.
        client.answer("PATCH", &path, &change).await?;
    }
    let plan = json!({"limits": {"per_second": 5}}).to_string();
    let asks: Vec<(&'static str, String, String)> = vec![
        ("GET", "/v1/compliance".to_owned(), String::new()),
        ("GET", "/v1/standings?limit=1000".to_owned(), String::new()),
        (
            "GET",
            "/v1/dead-letters?limit=1000".to_owned(),
            String::new(),
        ),
        (
            "GET",
            format!("/v1/destinations/{id}/explanation"),
            String::new(),
        ),
        (
            "GET",
            format!("/v1/destinations/{id}/attempts?limit=1000"),
            String::new(),
        ),
        ("POST", format!("/v1/destinations/{id}/plan"), plan),
    ];
    underway.crew(attacker.clone(), 100, move |turn| {
        let (method, path, body) = asks[turn as usize % asks.len()].clone();
        Ask { method, path, body }
    });
    Ok(())
}

fn deletions(attacker: Attacker, underway: &mut Underway) {
    for _ in 0..CLIENTS {
        let (attacker, told) = (attacker.clone(), Arc::clone(&underway.told));
        underway.tasks.spawn(async move {
            loop {
                told.asked.fetch_add(1, Ordering::Relaxed);
                // Bounded by what it may ask for in a second.
                let deleted = async {
                    let id = attacker.destination(&nobody(), json!({})).await?;
                    let path = format!("/v1/destinations/{id}");
                    attacker.client().await?.send("DELETE", &path, "").await
                };
                let counted = match deleted.await {
                    Ok(()) => &told.taken,
                    Err(_) => &told.refused,
                };
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

//! Receivers that nobody wants to wait for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What the slow one takes for a request.
pub(super) const SLOW: Duration = Duration::from_secs(5);

/// How large a response of the third kind is.
const GIBIBYTE: u64 = 1 << 30;

/// One port, six ways to be a nuisance; it ends when it is dropped.
pub(super) struct Hostile {
    pub(super) address: SocketAddr,
    told: Arc<Told>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Told {
    /// Requests that have come since they turned hostile.
    tried: AtomicU64,
    /// Of those, the requests that are kept waiting now.
    kept: AtomicU64,
    /// Until they turn hostile they answer like anybody else.
    well: AtomicBool,
}

impl Hostile {
    pub(super) async fn listen() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let told = Arc::<Told>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&told)));
        Ok(Self {
            address,
            told,
            _serving: serving,
        })
    }

    /// Whether they answer well from now on, or are hostile.
    pub(super) fn answer_well(&self, well: bool) {
        self.told.well.store(well, Ordering::Relaxed);
    }

    /// How many requests have come to them while they were hostile.
    pub(super) fn tried(&self) -> u64 {
        self.told.tried.load(Ordering::Relaxed)
    }

    /// How many requests they keep waiting.
    pub(super) fn kept(&self) -> u64 {
        self.told.kept.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, told: Arc<Told>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve_one(stream, Arc::clone(&told)));
                }
            }
        }
    }
}

async fn serve_one(mut stream: TcpStream, told: Arc<Told>) {
    let mut request = [0; 4096];
    let Ok(length) = stream.read(&mut request).await else {
        return;
    };
    let path = String::from_utf8_lossy(&request[..length.min(32)]).into_owned();
    if told.well.load(Ordering::Relaxed) {
        take(stream).await;
    } else {
        told.tried.fetch_add(1, Ordering::Relaxed);
        told.kept.fetch_add(1, Ordering::Relaxed);
        annoy(stream, &path, &request[..length]).await;
        told.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn take(mut stream: TcpStream) {
    let taken = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
    // Whoever has hung up needs no answer.
    let _ = stream.write_all(taken.as_bytes()).await;
}

/// Does as its path says, until the sender has enough of it.
async fn annoy(mut stream: TcpStream, path: &str, begun: &[u8]) {
    let mut request = [0; 64];
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {GIBIBYTE}\r\n\r\n");
    if path.starts_with("POST /never") {
        // Until it hangs up.
        while !matches!(stream.read(&mut request).await, Ok(0) | Err(_)) {}
        return;
    }
    if path.starts_with("POST /nul") {
        // Whoever has hung up needs no answer.
        let _ = poison(stream, begun).await;
        return;
    }
    if path.starts_with("POST /garbage") {
        let _ = stream.write_all(b"HTTP/1.1 \0\xff\r\n\r\n").await;
        return;
    }
    if path.starts_with("POST /slow") {
        sleep(SLOW).await;
        return take(stream).await;
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

/// Answers each event of a batch with a failure that no database takes as text.
async fn poison(mut stream: TcpStream, begun: &[u8]) -> std::io::Result<()> {
    let mut request = begun.to_vec();
    let events = loop {
        if let Some(events) = batch(&request) {
            break events;
        }
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    let result = |event: &Value| json!({"id": event["id"], "status": 500, "error": "\u{0}"});
    let results: Vec<Value> = events.iter().map(result).collect();
    let body = json!({"results": results}).to_string();
    let head = format!(
        "HTTP/1.1 207 Multi-Status\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// The events of a request, once it is whole.
fn batch(request: &[u8]) -> Option<Vec<Value>> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n")?;
    serde_json::from_slice(&request[end + 4..]).ok()
}

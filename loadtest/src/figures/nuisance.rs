//! Receivers that nobody wants to wait for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What the slow one takes for a request.
pub(super) const SLOW: Duration = Duration::from_secs(5);

/// How large a response of the third kind is.
const GIBIBYTE: u64 = 1 << 30;

/// One port, four ways to be a nuisance; it ends when it is dropped.
pub(super) struct Hostile {
    pub(super) address: SocketAddr,
    tried: Arc<AtomicU64>,
    _serving: JoinSet<()>,
}

impl Hostile {
    pub(super) async fn listen() -> anyhow::Result<Self> {
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

    /// How many requests have come.
    pub(super) fn tried(&self) -> u64 {
        self.tried.load(Ordering::Relaxed)
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

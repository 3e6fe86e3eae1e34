//! A TCP proxy whose connections can be cut, or left open and dead.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone, Copy)]
enum Fate {
    Forward,
    /// Closed at both ends.
    Cut,
    /// Open at both ends, and nothing passes: a peer that vanished.
    Freeze,
}

/// Forwards to one address. What is decided concerns the connections of that
/// moment; later ones are forwarded.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    fate: watch::Sender<Fate>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (fate, _) = watch::channel(Fate::Forward);
        let fates = fate.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let (inner, _) = listener.accept().await.unwrap();
                let outer = TcpStream::connect(&address).await.unwrap();
                tokio::spawn(forward(inner, outer, fates.subscribe()));
            }
        });
        Self {
            port,
            fate,
            accepting,
        }
    }

    pub(crate) fn cut(&self) {
        self.fate.send_replace(Fate::Cut);
    }

    pub(crate) fn freeze(&self) {
        self.fate.send_replace(Fate::Freeze);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(mut inner: TcpStream, mut outer: TcpStream, mut fate: watch::Receiver<Fate>) {
    tokio::select! {
        biased;
        _ = fate.changed() => {
            if matches!(*fate.borrow(), Fate::Freeze) {
                std::future::pending::<()>().await;
            }
        }
        _ = tokio::io::copy_bidirectional(&mut inner, &mut outer) => {}
    }
}

//! Many permits at once for a receiver that nobody is connected to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adapters::http::{Dial, HttpOptions, HttpSender};
use async_trait::async_trait;
use engine::ports::{FirstByte, SendError, Sender};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::peer::{options, request, target};

/// Counts what is under way.
#[derive(Debug, Default)]
struct Counted {
    now: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl Dial for Counted {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let dialled = TcpStream::connect(address).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        dialled
    }
}

/// Answers 200 to each request, on as many connections as come.
async fn accept(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut piece = [0_u8; 4_096];
            while stream.read(&mut piece).await.is_ok_and(|read| read > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                if stream.write_all(answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// With an accept queue of 128, as most servers have: a thousand dials at once overrun it,
/// and those that find no room try again after one, three and seven seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_from_cold_does_not_overrun_the_accept_queue() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(128).unwrap();
    let target = target(1, &format!("http://{}/", listener.local_addr().unwrap()));
    let watch = Arc::new(Counted::default());
    let sender = Arc::new(HttpSender::new(HttpOptions {
        dial: Arc::<Counted>::clone(&watch),
        ..options()
    }));
    let mut sends = JoinSet::new();
    for _ in 0..1_000 {
        let (sender, target) = (Arc::clone(&sender), target.clone());
        sends.spawn(async move {
            let prepared = sender.prepare(&target).await?;
            prepared.send(request(b"{}"), FirstByte::default()).await
        });
    }
    // All of them are in line before the receiver takes the first.
    while watch.now.load(Ordering::SeqCst) == 0 && watch.most.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    tokio::spawn(accept(listener));
    while let Some(sent) = sends.join_next().await {
        assert_eq!(sent.unwrap().unwrap().status, 200);
    }
    let most = watch.most.load(Ordering::SeqCst);
    assert!(most <= 128, "{most} dials at once");
}

/// Swallows packets.
#[derive(Debug)]
struct Nowhere;

#[async_trait]
impl Dial for Nowhere {
    async fn dial(&self, _: SocketAddr) -> io::Result<TcpStream> {
        std::future::pending().await
    }
}

/// A permit is over sooner than a dial into nothing. Without the second, which is told
/// what became of the first's, such a destination would never fail.
#[tokio::test(start_paused = true)]
async fn a_dial_outlives_the_permit_that_began_it() {
    let sender = HttpSender::new(HttpOptions {
        dial: Arc::new(Nowhere),
        ..options()
    });
    let nowhere = target(1, "http://127.0.0.1:9/");
    let began = Instant::now();
    for _ in 0..2 {
        let permit = timeout(Duration::from_secs(2), sender.prepare(&nowhere)).await;
        assert!(permit.is_err(), "it says nothing yet");
    }
    let told = sender.prepare(&nowhere).await.err();
    assert_eq!(told, Some(SendError::TimedOut(Duration::from_secs(5))));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

/// One that comes back is for who waits, before it is idle.
#[tokio::test]
async fn a_connection_that_comes_back_goes_to_who_waits() {
    /// One connection, and then nothing.
    #[derive(Debug, Default)]
    struct Once(AtomicUsize);

    #[async_trait]
    impl Dial for Once {
        async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => TcpStream::connect(address).await,
                _ => std::future::pending().await,
            }
        }
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = target(1, &format!("http://{}/", listener.local_addr().unwrap()));
    tokio::spawn(accept(listener));
    let sender = HttpSender::new(HttpOptions {
        dial: Arc::new(Once::default()),
        ..options()
    });
    let first = sender.prepare(&target).await.unwrap();
    let (sent, second) = tokio::join!(
        first.send(request(b"{}"), FirstByte::default()),
        sender.prepare(&target)
    );
    assert_eq!(sent.unwrap().status, 200);
    assert_eq!(
        second
            .unwrap()
            .send(request(b"{}"), FirstByte::default())
            .await
            .unwrap()
            .status,
        200
    );
}

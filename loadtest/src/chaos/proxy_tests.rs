//! Each thing that a link can do, seen from both ends.

use std::io::ErrorKind;

use tokio::time::{Instant, timeout};

use super::*;

/// Long enough to see that nothing comes.
const A_WHILE: Duration = Duration::from_millis(200);

/// A process, the proxy, and the server's end of the same connection.
struct World {
    proxy: Proxy,
    listener: TcpListener,
    process: TcpStream,
    server: TcpStream,
}

impl World {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
        let process = TcpStream::connect(proxy.address()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        Self {
            proxy,
            listener,
            process,
            server,
        }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.process.write_all(bytes).await.unwrap();
    }

    async fn answer(&mut self, bytes: &[u8]) {
        self.server.write_all(bytes).await.unwrap();
    }
}

async fn hear(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut heard = vec![0; bytes];
    stream.read_exact(&mut heard).await.unwrap();
    heard
}

async fn hears_nothing(stream: &mut TcpStream) -> bool {
    timeout(A_WHILE, hear(stream, 1)).await.is_err()
}

async fn is_reset(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest).await;
    ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn passes_both_ways_and_ends_in_order() {
    let mut world = World::new().await;
    world.say(b"ping").await;
    assert_eq!(hear(&mut world.server, 4).await, b"ping");
    world.process.shutdown().await.unwrap();
    let mut rest = Vec::new();
    world.server.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    // The other way is still open.
    world.answer(b"pong").await;
    assert_eq!(hear(&mut world.process, 4).await, b"pong");
    drop(world.server);
    assert_eq!(world.process.read_to_end(&mut rest).await.unwrap(), 0);
}

#[tokio::test]
async fn delays_and_throttles() {
    let mut world = World::new().await;
    let latency = Duration::from_millis(80);
    world.proxy.set(Link::Latency(latency));
    let began = Instant::now();
    world.say(b"x").await;
    hear(&mut world.server, 1).await;
    world.answer(b"y").await;
    hear(&mut world.process, 1).await;
    assert!(began.elapsed() >= latency * 2);

    world.proxy.set(Link::Throttle(10_000));
    let began = Instant::now();
    world.say(&[7; 2_000]).await;
    hear(&mut world.server, 2_000).await;
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn holds_what_is_said_into_a_blackhole_until_it_passes_again() {
    let mut world = World::new().await;
    world.proxy.set(Link::Blackhole);
    world.say(b"ping").await;
    world.answer(b"pong").await;
    assert!(hears_nothing(&mut world.server).await);
    assert!(hears_nothing(&mut world.process).await);
    world.proxy.set(Link::Pass);
    assert_eq!(hear(&mut world.server, 4).await, b"ping");
    assert_eq!(hear(&mut world.process, 4).await, b"pong");
}

#[tokio::test]
async fn cuts_off_one_way_only() {
    let mut world = World::new().await;
    world.proxy.set(Link::DeafProcess);
    world.say(b"ping").await;
    assert_eq!(hear(&mut world.server, 4).await, b"ping");
    world.answer(b"pong").await;
    assert!(hears_nothing(&mut world.process).await);

    world.proxy.set(Link::DeafServer);
    assert_eq!(hear(&mut world.process, 4).await, b"pong");
    world.say(b"ping").await;
    assert!(hears_nothing(&mut world.server).await);
}

#[tokio::test]
async fn resets_what_is_open_and_serves_what_comes() {
    let mut world = World::new().await;
    // Bytes have been exchanged, so the connection is known to be served.
    world.say(b"ping").await;
    hear(&mut world.server, 4).await;
    world.proxy.reset();
    assert!(is_reset(&mut world.process).await);
    assert!(is_reset(&mut world.server).await);
    let mut again = TcpStream::connect(world.proxy.address()).await.unwrap();
    let (mut server, _) = world.listener.accept().await.unwrap();
    again.write_all(b"ping").await.unwrap();
    assert_eq!(hear(&mut server, 4).await, b"ping");
}

#[tokio::test]
async fn cuts_after_so_many_bytes() {
    let mut world = World::new().await;
    world.proxy.set(Link::CutAfter(3));
    world.say(b"ping").await;
    assert_eq!(hear(&mut world.server, 3).await, b"pin");
    assert!(is_reset(&mut world.process).await);
}

#[tokio::test]
async fn a_server_that_is_away_is_a_reset() {
    let mut world = World::new().await;
    drop(world.listener);
    let mut again = TcpStream::connect(world.proxy.address()).await.unwrap();
    assert!(is_reset(&mut again).await);
    // What was open stays so.
    world.say(b"ping").await;
    assert_eq!(hear(&mut world.server, 4).await, b"ping");
}

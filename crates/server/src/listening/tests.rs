use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use super::*;

/// Much longer than anything here takes, on a slow machine too.
const ENOUGH: Duration = Duration::from_secs(20);

/// A listener with these bounds, whose answer to `/slow` waits for the token.
struct World {
    address: std::net::SocketAddr,
    shutdown: CancellationToken,
    answer: CancellationToken,
    /// How often that was asked for.
    slow: Arc<Semaphore>,
    served: tokio::task::JoinHandle<()>,
}

impl World {
    async fn new(bounds: Bounds) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, answer) = (CancellationToken::new(), CancellationToken::new());
        let (waits, slow) = (answer.clone(), Arc::new(Semaphore::new(0)));
        let asked = Arc::clone(&slow);
        let router = Router::new()
            .route("/", get(async || "here\n"))
            .route("/large", get(async || vec![b'x'; 64 * 1024 * 1024]))
            .route(
                "/slow",
                get(async move || {
                    asked.add_permits(1);
                    waits.cancelled().await;
                    "at last\n"
                }),
            );
        let listening = Listening {
            listener,
            router,
            bounds,
            tls: None,
        };
        let served = tokio::spawn(listening.serve(shutdown.clone()));
        Self {
            address,
            shutdown,
            answer,
            slow,
            served,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn said(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }
}

/// All that comes until the other side closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    // A reset is an end as well.
    let _ = timeout(ENOUGH, stream.read_to_end(&mut all))
        .await
        .expect("it is closed");
    String::from_utf8_lossy(&all).into_owned()
}

fn quick() -> Bounds {
    Bounds {
        head: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        ..Bounds::default()
    }
}

const ONE: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn a_head_that_does_not_come_ends_and_one_that_drips_ends_too() {
    let world = World::new(quick()).await;
    let mut silent = world.connect().await;
    let mut half = world.said("GET / HTTP/1.1\r\nx: ").await;
    let mut drips = world.said("GET").await;
    let dripping = async {
        // Until it is closed: then it cannot be written any more.
        while drips.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(ENOUGH, dripping).await.expect("it is closed");
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(rest(&mut half).await, "");
}

#[tokio::test]
async fn a_connection_is_kept_for_its_next_request_but_not_for_ever() {
    let bounds = Bounds {
        idle: Duration::from_millis(1_500),
        ..quick()
    };
    let world = World::new(bounds).await;
    let mut stream = world.connect().await;
    // Apart by more than a head may take: between requests nothing is owed.
    for _ in 0..2 {
        stream.write_all(ONE.as_bytes()).await.unwrap();
        let mut answer = [0; 512];
        let length = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        sleep(Duration::from_millis(600)).await;
    }
    assert_eq!(rest(&mut stream).await, "", "still for too long");
}

#[tokio::test]
async fn a_request_may_take_longer_than_a_head() {
    let world = World::new(quick()).await;
    let mut slow = world.said("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    sleep(Duration::from_millis(700)).await;
    world.answer.cancel();
    assert!(rest(&mut slow).await.contains("at last"));
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let world = World::new(Bounds::default()).await;
    let head = format!(
        "GET / HTTP/1.1\r\nhost: x\r\nx: {}",
        "a".repeat(HEAD_BYTES + 1)
    );
    let mut large = world.said(&head).await;
    assert!(rest(&mut large).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn shutdown_waits_for_requests_and_not_for_connections() {
    let world = World::new(Bounds::default()).await;
    let mut silent = world.connect().await;
    let mut half = world.said("GET / HTTP/1.1\r\nx: ").await;
    let mut still = world.said(ONE).await;
    let mut answer = [0; 512];
    assert!(still.read(&mut answer).await.unwrap() > 0);
    let mut slow = world.said("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    // So that all of them were read.
    let mut last = world
        .said("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert!(rest(&mut last).await.contains("here"));
    sleep(Duration::from_millis(200)).await;

    world.shutdown.cancel();
    for stream in [&mut silent, &mut half, &mut still] {
        assert_eq!(rest(stream).await, "");
    }
    assert!(!world.served.is_finished(), "a request is in flight");
    world.answer.cancel();
    assert!(rest(&mut slow).await.contains("at last"));
    timeout(ENOUGH, world.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_bound_that_is_reached_closes_at_once_and_is_for_those_who_reach_it() {
    let bounds = Bounds {
        from_one_address: 3,
        ..Bounds::default()
    };
    let world = World::new(bounds).await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut stream = world.said(ONE).await;
        assert!(stream.read(&mut [0; 512]).await.unwrap() > 0);
        kept.push(stream);
    }
    let mut refused = world.connect().await;
    assert_eq!(rest(&mut refused).await, "");

    let elsewhere = tokio::net::TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = elsewhere.connect(world.address).await.unwrap();
    other.write_all(ONE.as_bytes()).await.unwrap();
    assert!(other.read(&mut [0; 512]).await.unwrap() > 0);

    kept.clear();
    let again = async {
        loop {
            let mut stream = world.connect().await;
            // Refused ones may break in the middle.
            let _ = stream.write_all(ONE.as_bytes()).await;
            if matches!(stream.read(&mut [0; 512]).await, Ok(1..)) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(ENOUGH, again).await.expect("places come back");
}

/// Sockets that are only held shut nobody out, however often they are opened again.
#[tokio::test]
async fn strangers_who_hold_all_places_give_way() {
    let world = World::new(Bounds {
        connections: 3,
        ..Bounds::default()
    })
    .await;
    let mut slow = world.said("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let _asked = world.slow.acquire().await.unwrap();
    let mut strangers = Vec::new();
    for _ in 0..10 {
        strangers.push(world.connect().await);
    }
    let mut comes = world.said(ONE).await;
    assert!(comes.read(&mut [0; 512]).await.unwrap() > 0);
    for stranger in &mut strangers[..8] {
        assert_eq!(rest(stranger).await, "");
    }
    world.answer.cancel();
    assert!(slow.read(&mut [0; 512]).await.unwrap() > 0, "it had asked");
}

/// Over what has no socket, a minute being too long to wait for: what a client sees who
/// wants a megabyte.
async fn wants_much() -> (tokio::io::DuplexStream, tokio::task::JoinHandle<()>) {
    let (mut client, server) = tokio::io::duplex(1024);
    let router = Router::new().route("/large", get(async || vec![b'x'; 1024 * 1024]));
    let connection = Connection {
        router,
        bounds: Bounds::default(),
        shutdown: CancellationToken::new(),
        place: Places::new(1, 1).take([127, 0, 0, 1].into()).unwrap(),
    };
    let spoken = tokio::spawn(connection.speak(server));
    let request = b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n";
    client.write_all(request).await.unwrap();
    (client, spoken)
}

/// A client, and the connection to it, which has taken all that it takes of an answer.
async fn filled() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let client = tokio::net::TcpSocket::new_v4().unwrap();
    // What its own kernel takes is read, as far as anybody here can tell.
    client.set_recv_buffer_size(16 * 1024).unwrap();
    let connecting = client.connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(connecting, listener.accept());
    let (client, (server, _)) = (client.unwrap(), accepted.unwrap());
    prepare(&server).unwrap();
    fill(&server).await;
    (client, server)
}

/// Writes until nothing is taken any more.
async fn fill(server: &TcpStream) {
    let much = vec![b'x'; 64 * 1024];
    let still = Duration::from_millis(200);
    loop {
        while server.try_write(&much).is_ok() {}
        if timeout(still, server.writable()).await.is_err() {
            return;
        }
    }
}

/// Or a slow client would be taken for one that reads nothing: it has to be seen with less
/// than he has to read in that time.
#[tokio::test]
async fn what_a_client_reads_is_seen_soon() {
    let (mut client, server) = filled().await;
    for _ in 0..3 {
        let (mut read, mut some) = (0, vec![0; 1024]);
        let seen = async {
            loop {
                tokio::select! {
                    biased;
                    ready = server.writable() => return ready.unwrap(),
                    () = tokio::task::yield_now() => {}
                }
                read += client.read(&mut some).await.unwrap();
            }
        };
        timeout(ENOUGH, seen).await.expect("it is seen");
        assert!(read <= PACE_BYTES, "{read}");
        fill(&server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_given_up() {
    let (_client, spoken) = wants_much().await;
    let began = Instant::now();
    timeout(Duration::from_secs(600), spoken)
        .await
        .expect("it ends")
        .unwrap();
    assert!(began.elapsed() >= STALLED);
}

/// How much of it there is for a client that takes so much each second, at most.
async fn taken(bytes: usize) -> (usize, Duration) {
    let (mut client, spoken) = wants_much().await;
    let (began, mut all, mut taken) = (Instant::now(), 0, vec![0; bytes]);
    while !spoken.is_finished() && all < 1024 * 1024 {
        sleep(Duration::from_secs(1)).await;
        match client.read_exact(&mut taken).await {
            Ok(read) => all += read,
            Err(_ended) => break,
        }
    }
    (all, began.elapsed())
}

/// A byte now and then held an answer of any size without end.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_next_to_nothing_is_given_up_and_a_slow_network_is_not() {
    let (dripped, took) = taken(10).await;
    // What is on its way is still taken when the connection has ended.
    assert!(dripped < 4 * 1024, "{dripped} bytes");
    assert!(took >= STALLED && took < STALLED * 5, "{took:?}");
    let (slow, took) = taken(2 * 1024).await;
    assert!(slow >= 1024 * 1024, "{slow} bytes in {took:?}");
}

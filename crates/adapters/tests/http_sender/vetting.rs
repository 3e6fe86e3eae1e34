//! What is connected to: the addresses that were vetted, and no other.
//!
//! A dialler that watches stands where sockets are opened. It leads public
//! addresses to a receiver on loopback, so that nothing leaves this machine.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use adapters::http::{Dial, HttpOptions, HttpSender, Policy};
use async_trait::async_trait;
use engine::ports::{FirstByte, SendError, Sender};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

use super::name_server::{NameServer, alias, is};
use super::peer::{OK, Peer, read_request, request, send, target};

const PUBLIC: &str = "93.184.215.14";
const PUBLIC_V6: &str = "2606:4700:4700::1111";
const CLOSING: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";

#[derive(Debug)]
struct Watch {
    policy: Policy,
    leads_to: SocketAddr,
    dialled: Mutex<Vec<SocketAddr>>,
}

#[async_trait]
impl Dial for Watch {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let vetted = self.policy.vet(address.ip(), address.port());
        assert_eq!(
            vetted.map(adapters::http::Vetted::address),
            Ok(address),
            "not vetted"
        );
        self.dialled.lock().unwrap().push(address);
        TcpStream::connect(self.leads_to).await
    }
}

struct World {
    peer: Peer,
    names: NameServer,
    watch: Arc<Watch>,
    sender: HttpSender,
}

impl World {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(networks: &[&str]) -> Self {
        let (peer, names) = (Peer::listen().await, NameServer::listen().await);
        let policy = Policy {
            allow_http: true,
            networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
            ..Policy::default()
        };
        let watch = Arc::new(Watch {
            policy: policy.clone(),
            leads_to: peer.address(),
            dialled: Mutex::default(),
        });
        let sender = HttpSender::new(HttpOptions {
            policy,
            name_servers: vec![names.address()],
            dial: Arc::<Watch>::clone(&watch),
            ..HttpOptions::default()
        });
        Self {
            peer,
            names,
            watch,
            sender,
        }
    }

    async fn refusal(&self, url: &str) -> String {
        match self.sender.prepare(&target(1, url)).await.err() {
            Some(SendError::Refused(why)) => why,
            other => panic!("{url}: {other:?}"),
        }
    }

    async fn is_sent(&self, url: &str) {
        let target = target(1, url);
        let (sent, _stream) = tokio::join!(send(&self.sender, &target), self.peer.answer(CLOSING));
        assert_eq!(sent.unwrap().status, 200, "{url}");
    }

    fn dialled(&self) -> Vec<String> {
        let dialled = self.watch.dialled.lock().unwrap();
        dialled.iter().map(ToString::to_string).collect()
    }
}

#[tokio::test]
async fn a_name_that_rebinds_is_refused_when_it_does() {
    let world = World::new().await;
    let rebinds = [is(&[PUBLIC]), is(&["127.0.0.1"]), is(&[PUBLIC])];
    world.names.says("rebind.example", rebinds);
    world.is_sent("http://rebind.example/").await;
    let why = world.refusal("http://rebind.example/").await;
    assert!(why.contains("loopback addresses are not allowed"), "{why}");
    // Nothing of ours: the customer reads it.
    assert!(!why.contains("127.") && !why.contains("PACELINE"), "{why}");
    world.is_sent("http://rebind.example/").await;
    assert_eq!(
        world.dialled(),
        [format!("{PUBLIC}:80"), format!("{PUBLIC}:80")]
    );
}

#[tokio::test]
async fn a_kept_connection_stays_where_it_was_vetted() {
    let world = World::new().await;
    world
        .names
        .says("kept.example", [is(&[PUBLIC]), is(&["10.0.0.1"])]);
    let target = target(1, "http://kept.example/");
    let twice = async {
        send(&world.sender, &target).await.unwrap();
        send(&world.sender, &target).await.unwrap();
    };
    let ((), _stream) = tokio::join!(twice, async {
        let mut stream = world.peer.answer(OK).await;
        read_request(&mut stream).await.unwrap();
        stream.write_all(CLOSING).await.unwrap();
        stream
    });
    assert_eq!(world.names.questions(), 2, "one lookup, of both types");
    // The next connection is a new one, and vetted anew.
    assert!(
        world
            .refusal("http://kept.example/")
            .await
            .contains("private")
    );
    assert_eq!(world.dialled(), [format!("{PUBLIC}:80")]);
}

#[tokio::test]
async fn one_inner_address_among_public_ones_refuses_the_name() {
    let many: Vec<String> = (1..=30).map(|i| format!("93.184.215.{i}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    many.push("192.168.0.1");
    for addresses in [
        &[PUBLIC, "10.0.0.1"][..],
        &["10.0.0.1", PUBLIC],
        &[PUBLIC, "::1"],
        &[PUBLIC_V6, "169.254.169.254"],
        &[PUBLIC, PUBLIC_V6, "::ffff:127.0.0.1"],
        &[PUBLIC, "64:ff9b::a00:1"],
        &many,
    ] {
        let world = World::new().await;
        world.names.says("mixed.example", [is(addresses)]);
        world.refusal("http://mixed.example/").await;
        assert_eq!(world.dialled(), [""; 0], "{addresses:?}");
    }
}

#[tokio::test]
async fn an_alias_is_judged_by_its_address() {
    let world = World::new().await;
    world.names.says(
        "inner.example",
        [alias("db.internal.example", &["10.0.0.1"])],
    );
    world
        .names
        .says("outer.example", [alias("edge.example", &[PUBLIC])]);
    assert!(
        world
            .refusal("http://inner.example/")
            .await
            .contains("private")
    );
    world.is_sent("http://outer.example/").await;
    assert_eq!(world.dialled(), [format!("{PUBLIC}:80")]);
}

#[tokio::test]
async fn addresses_in_urls_are_refused_in_every_form() {
    let world = World::new().await;
    for host in [
        "127.0.0.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "0",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "localhost",
        "hooks.localhost",
        "localhost.",
    ] {
        world.refusal(&format!("http://{host}/")).await;
    }
    world.refusal(&format!("http://{PUBLIC}:6379/")).await;
    assert_eq!(world.dialled(), [""; 0]);
    assert_eq!(world.names.questions(), 0, "names of this host ask nobody");
}

#[tokio::test]
async fn what_is_public_is_connected_to_as_it_was_vetted() {
    let world = World::new().await;
    world.names.says("both.example", [is(&[PUBLIC, PUBLIC_V6])]);
    world.names.says("six.example", [is(&[PUBLIC_V6])]);
    world.is_sent("http://both.example:8080/").await;
    world.is_sent("http://six.example/").await;
    world.is_sent(&format!("http://[::ffff:{PUBLIC}]/")).await;
    assert_eq!(
        world.dialled(),
        [
            format!("{PUBLIC}:8080"),
            format!("[{PUBLIC_V6}]:80"),
            format!("{PUBLIC}:80")
        ]
    );
}

#[tokio::test]
async fn an_operator_opens_networks_and_ports() {
    let world = World::with(&["10.0.0.0/8:9000", "192.168.1.20"]).await;
    world.names.says("app.internal", [is(&["10.1.2.3"])]);
    world
        .names
        .says("hub.internal", [is(&["192.168.1.20", PUBLIC])]);
    world.names.says("next.internal", [is(&["192.168.1.21"])]);
    world.is_sent("http://app.internal:9000/").await;
    world.is_sent("http://hub.internal/").await;
    world.refusal("http://app.internal/").await;
    world.refusal("http://next.internal/").await;
    world.refusal("http://hub.internal:9000/").await;
    assert_eq!(world.dialled(), ["10.1.2.3:9000", "192.168.1.20:80"]);
}

#[tokio::test]
async fn names_are_asked_for_as_they_are_written() {
    let world = World::new().await;
    for name in ["metrics", "nowhere.example"] {
        let error = world
            .sender
            .prepare(&target(1, &format!("http://{name}/")))
            .await
            .err();
        let expected = SendError::Connect("dns: there is no such name".to_owned());
        assert_eq!(error, Some(expected));
    }
    world.names.says("empty.example", [is(&[])]);
    let error = world
        .sender
        .prepare(&target(1, "http://empty.example/"))
        .await
        .err();
    let expected = SendError::Connect("dns: the name has no address".to_owned());
    assert_eq!(error, Some(expected));
    assert_eq!(
        world.names.asked(),
        ["empty.example", "metrics", "nowhere.example"]
    );
    assert_eq!(world.dialled(), [""; 0]);
}

#[tokio::test]
async fn a_redirect_into_the_network_is_an_answer() {
    let world = World::new().await;
    world.names.says("outer.example", [is(&[PUBLIC])]);
    let target = target(1, "http://outer.example/");
    let prepared = world.sender.prepare(&target).await.unwrap();
    let answer = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://169.254.169.254/\r\n\
        content-length: 0\r\n\r\n";
    let (sent, _stream) = tokio::join!(
        prepared.send(request(b"{}"), FirstByte::default()),
        world.peer.answer(answer)
    );
    assert_eq!(sent.unwrap().status, 307);
    assert_eq!(world.dialled(), [format!("{PUBLIC}:80")]);
}

#[tokio::test]
async fn a_name_server_that_does_not_answer_is_not_waited_for() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let sender = HttpSender::new(HttpOptions {
        name_servers: vec![silent.local_addr().unwrap()],
        ..HttpOptions::default()
    });
    let error = sender
        .prepare(&target(1, "https://example.com/"))
        .await
        .err();
    assert!(matches!(error, Some(SendError::Connect(_))), "{error:?}");
}

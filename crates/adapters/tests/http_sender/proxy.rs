//! Requests through a proxy that a listener plays.

use std::net::SocketAddr;
use std::sync::Arc;

use adapters::http::{DialThrough, HttpSender};
use engine::ports::{SendError, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::peer::{OK, Peer, options, read_request, send};

/// A sender through this proxy.
fn through(proxy: &str) -> HttpSender {
    let proxy = proxy.parse().unwrap();
    HttpSender::new(adapters::http::HttpOptions {
        dial: Arc::new(DialThrough::new(proxy)),
        ..options()
    })
}

/// By its name, which no proxy is to hear.
fn named(peer: &Peer) -> Target {
    let mut target = peer.target(1);
    target.url = format!("http://localhost:{}/hook", peer.address().port());
    target
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn join(mut from: TcpStream, to: SocketAddr) {
    let mut to = TcpStream::connect(to).await.unwrap();
    let _ = copy_bidirectional(&mut from, &mut to).await;
}

/// Reads what CONNECT asks for, and answers it with this.
async fn connect(listener: &TcpListener, answer: &str) -> (String, TcpStream) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let (head, _) = read_request(&mut stream).await.unwrap();
    stream.write_all(answer.as_bytes()).await.unwrap();
    (head, stream)
}

#[tokio::test]
async fn a_request_goes_through_connect_to_the_address_that_was_vetted() {
    let peer = Peer::listen().await;
    let (listener, address) = listen().await;
    let sender = through(&format!("http://me:p%40ss@{address}"));
    let target = named(&peer);
    let proxy = async {
        let (head, stream) =
            connect(&listener, "HTTP/1.1 200 Connection established\r\n\r\n").await;
        tokio::spawn(join(stream, peer.address()));
        head
    };
    let (sent, head, _stream) = tokio::join!(send(&sender, &target), proxy, peer.answer(OK));
    assert_eq!(sent.unwrap().status, 200);
    let address = peer.address();
    let expected = format!("CONNECT {address} HTTP/1.1\r\nhost: {address}\r\n");
    assert!(head.starts_with(&expected), "{head}");
    // me:p@ss
    assert!(
        head.contains("proxy-authorization: Basic bWU6cEBzcw==\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn a_request_goes_through_socks_to_the_address_that_was_vetted() {
    let peer = Peer::listen().await;
    let (listener, address) = listen().await;
    let sender = through(&format!("socks5://me:secret@{address}"));
    let target = named(&peer);
    let proxy = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).await.unwrap();
        let mut methods = vec![0; usize::from(greeting[1])];
        stream.read_exact(&mut methods).await.unwrap();
        assert!(greeting[0] == 5 && methods.contains(&2), "{methods:?}");
        stream.write_all(&[5, 2]).await.unwrap();
        let mut user = [0; 1 + 1 + 2 + 1 + 6];
        stream.read_exact(&mut user).await.unwrap();
        assert_eq!(&user, b"\x01\x02me\x06secret");
        stream.write_all(&[1, 0]).await.unwrap();
        // Version, connect, reserved, an IPv4 address, and a port.
        let mut wanted = [0; 10];
        stream.read_exact(&mut wanted).await.unwrap();
        stream
            .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        tokio::spawn(join(stream, peer.address()));
        wanted
    };
    let (sent, wanted, _stream) = tokio::join!(send(&sender, &target), proxy, peer.answer(OK));
    assert_eq!(sent.unwrap().status, 200);
    let [high, low] = peer.address().port().to_be_bytes();
    assert_eq!(wanted, [5, 1, 0, 1, 127, 0, 0, 1, high, low]);
}

/// What it says of a receiver is a failure, and what it says of itself is not.
#[tokio::test]
async fn a_proxy_that_is_away_is_no_receivers_failure() {
    let peer = Peer::listen().await;
    let (listener, address) = listen().await;
    let url = format!("http://{address}");
    let answered = async |answer: &str| {
        let (sender, target) = (through(&url), peer.target(1));
        let (sent, _) = tokio::join!(send(&sender, &target), connect(&listener, answer));
        sent.unwrap_err()
    };
    let answer = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    let own = answered(&answer("407 Proxy Authentication Required")).await;
    assert!(matches!(own, SendError::NoWay(_)), "{own:?}");
    // A port that it lets nobody reach is that destination's.
    for of_the_receiver in ["502 Bad Gateway", "403 Forbidden"] {
        let error = answered(&answer(of_the_receiver)).await;
        let expected = format!("tcp: the proxy answers {of_the_receiver}");
        assert_eq!(error, SendError::Connect(expected));
    }
    let nonsense = answered("SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
    assert!(matches!(nonsense, SendError::NoWay(_)), "{nonsense:?}");
    drop(listener);
    let gone = send(&through(&url), &peer.target(1)).await.unwrap_err();
    assert!(matches!(gone, SendError::NoWay(_)), "{gone:?}");
    let gone = send(&through(&format!("socks5://{address}")), &peer.target(1)).await;
    assert!(matches!(gone, Err(SendError::NoWay(_))), "{gone:?}");
}

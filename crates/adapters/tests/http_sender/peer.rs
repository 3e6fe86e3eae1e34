//! A receiver made of a listener, and the requests that go to it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use adapters::http::{HttpOptions, HttpSender, Policy};
use bytes::Bytes;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId};
use engine::ports::{FirstByte, Request, Response, SendError, Sender, Target};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use uuid::Uuid;

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Long enough that no test which passes ever waits for it.
pub(crate) const PATIENT: Duration = Duration::from_secs(30);

/// For the tests in which it is the timeout that must come.
pub(crate) const SHORT: Duration = Duration::from_millis(100);

pub(crate) fn options() -> HttpOptions {
    HttpOptions {
        policy: Policy {
            allow_http: true,
            networks: vec!["localhost:*".parse().unwrap()],
            ..Policy::default()
        },
        ..HttpOptions::default()
    }
}

pub(crate) fn sender() -> HttpSender {
    HttpSender::new(options())
}

pub(crate) fn target(destination: u128, url: &str) -> Target {
    Target {
        destination: DestinationId(Uuid::from_u128(destination)),
        epoch: Epoch(0),
        url: url.to_owned(),
        timeout: PATIENT,
        batches: false,
        secrets: Vec::new(),
        pass_traceparent: false,
        names_origin: false,
        identity: None,
    }
}

pub(crate) fn request(payload: &'static [u8]) -> Request {
    Request {
        attempt: AttemptId(7),
        event: EventId(Uuid::from_u128(0xe)),
        batch: None,
        try_number: 3,
        sent_at_seconds: 1_700_000_000,
        content_type: "application/json; charset=utf-8".to_owned(),
        payload: Bytes::from_static(payload),
        signature: None,
        token: None,
        headers: Arc::default(),
        timeout: PATIENT,
        trace: None,
    }
}

pub(crate) async fn send(sender: &HttpSender, target: &Target) -> Result<Response, SendError> {
    sender
        .prepare(target)
        .await?
        .send(request(b"{}"), FirstByte::default())
        .await
}

/// A receiver made of a listener: what it does with a connection is up to the
/// test.
pub(crate) struct Peer(TcpListener);

impl Peer {
    pub(crate) async fn listen() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub(crate) fn target(&self, destination: u128) -> Target {
        target(destination, &format!("http://{}/hook", self.address()))
    }

    pub(crate) async fn accept(&self) -> TcpStream {
        let accepted = timeout(PATIENT, self.0.accept()).await;
        accepted.expect("somebody connects").unwrap().0
    }

    /// Answers one request of a new connection with these bytes.
    pub(crate) async fn answer(&self, response: &[u8]) -> TcpStream {
        let mut stream = self.accept().await;
        read_request(&mut stream).await.unwrap();
        stream.write_all(response).await.unwrap();
        stream
    }

    /// What the sender makes of these bytes as the answer to one request.
    pub(crate) async fn provoke(&self, response: &[u8]) -> Result<Response, SendError> {
        let (sender, target) = (sender(), self.target(1));
        let (result, _stream) = tokio::join!(send(&sender, &target), async {
            let mut stream = self.answer(response).await;
            stream.shutdown().await.unwrap();
            stream
        });
        result
    }
}

/// Head and body of one request; an error if the connection ends before.
pub(crate) async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((head, body))
}

/// Waits until the other side has closed; what it still sent is discarded.
pub(crate) async fn closed(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut rest = Vec::new();
    // An error too is a close: a reset, with bytes left unread.
    let ended = timeout(PATIENT, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection stays open");
}

//! Receivers that speak HTTP/2: by frames, where it matters which, and else by h2.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adapters::http::{Dial, HttpOptions, HttpSender};
use async_trait::async_trait;
use bytes::Bytes;
use engine::ports::{FirstByte, STORED_BODY_BYTES, SendError, Sender, Target};
use futures_util::future::join_all;
use h2::server::{Connection, SendResponse};
use h2::{Reason, SendStream};
use http::request::Parts;
use http::{Method, Response, Version};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::peer::{OK, PATIENT, Peer, SHORT, closed, options, read_request, request, send, target};
use super::tls::{CERTIFICATE, server_choosing};

static BOTH: [&[u8]; 2] = [b"h2", b"http/1.1"];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Of HEADERS and DATA, and of SETTINGS that say that ours are known.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// What is set (RFC 9113, 6.5.2).
const MAX_CONCURRENT_STREAMS: u8 = 3;
const INITIAL_WINDOW_SIZE: u8 = 4;

/// Why a stream is reset (RFC 9113, 7).
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

/// `:status: 200`, as HPACK has it.
const STATUS_200: u8 = 0x88;

fn trusting() -> HttpOptions {
    HttpOptions {
        http2: true,
        extra_roots: vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()],
        ..options()
    }
}

fn to(peer: &Peer, destination: u128) -> Target {
    let url = format!("https://localhost:{}/hook", peer.address().port());
    target(destination, &url)
}

/// A receiver, who sends to it, and where.
async fn listening() -> (Peer, HttpSender, Target) {
    let peer = Peer::listen().await;
    let target = to(&peer, 1);
    (peer, HttpSender::new(trusting()), target)
}

async fn secured(peer: &Peer) -> TlsStream<TcpStream> {
    let stream = server_choosing(&BOTH).accept(peer.accept().await).await;
    let stream = stream.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(BOTH[0]));
    stream
}

/// A receiver that speaks in frames, of which it says each itself.
struct Framed(TlsStream<TcpStream>);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// Why it resets its stream.
    fn code(self) -> u32 {
        u32::from_be_bytes(self.payload.try_into().unwrap())
    }
}

impl Framed {
    /// The next connection, on which so many requests may be under way.
    async fn accept(peer: &Peer, at_once: u32) -> Self {
        let mut stream = secured(peer).await;
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        let mut framed = Self(stream);
        framed.takes(at_once).await;
        framed
    }

    async fn write(&mut self, (kind, flags, stream): (u8, u8, u32), payload: &[u8]) {
        self.try_write((kind, flags, stream), payload)
            .await
            .unwrap();
    }

    async fn try_write(
        &mut self,
        (kind, flags, stream): (u8, u8, u32),
        payload: &[u8],
    ) -> io::Result<()> {
        let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length.to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await?;
        self.0.flush().await
    }

    /// From now on so many requests at once.
    async fn takes(&mut self, at_once: u32) {
        self.set(MAX_CONCURRENT_STREAMS, at_once).await;
    }

    /// From now on this holds; waits until that is known.
    async fn set(&mut self, setting: u8, value: u32) {
        let mut payload = vec![0, setting];
        payload.extend(value.to_be_bytes());
        self.write((SETTINGS, 0, 0), &payload).await;
        loop {
            let frame = self.read().await.expect("the settings are answered");
            if (frame.kind, frame.flags) == (SETTINGS, ACK) {
                return;
            }
        }
    }

    /// The next frame, or none at the end.
    async fn read(&mut self) -> Option<Frame> {
        let reading = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let [high, middle, low, kind, flags, stream @ ..] = head;
            let length = u32::from_be_bytes([0, high, middle, low]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).await.ok()?;
            Some(Frame {
                kind,
                flags,
                stream: u32::from_be_bytes(stream),
                payload,
            })
        };
        let frame = timeout(PATIENT, reading).await.expect("a frame, or an end");
        if let Some(frame) = &frame
            && (frame.kind, frame.flags & ACK) == (SETTINGS, 0)
        {
            self.write((SETTINGS, ACK, 0), &[]).await;
        }
        frame
    }

    /// The stream of the next request, once all of that has come.
    async fn request(&mut self) -> u32 {
        loop {
            let frame = self.read().await.expect("a request");
            let ends = frame.flags & END_STREAM != 0;
            if ends && (frame.kind == DATA || frame.kind == HEADERS) {
                return frame.stream;
            }
        }
    }

    async fn answer(&mut self, stream: u32) {
        let head = (HEADERS, END_HEADERS | END_STREAM, stream);
        self.write(head, &[STATUS_200]).await;
    }

    /// Until this stream is reset; why it is.
    async fn reset(&mut self, stream: u32) -> u32 {
        loop {
            let frame = self.read().await.expect("a reset");
            if (frame.kind, frame.stream) == (RST_STREAM, stream) {
                return frame.code();
            }
        }
    }

    /// Until the other side has closed.
    async fn ended(&mut self) {
        while self.read().await.is_some() {}
    }
}

/// What h2 makes of a connection.
type Spoken = Connection<TlsStream<TcpStream>, Bytes>;

async fn spoken(peer: &Peer) -> Spoken {
    h2::server::handshake(secured(peer).await).await.unwrap()
}

/// A request with all of its body.
struct Asked {
    head: Parts,
    payload: Vec<u8>,
    respond: SendResponse<Bytes>,
}

async fn asked(connection: &mut Spoken) -> Asked {
    let accepted = timeout(PATIENT, connection.accept()).await;
    let (request, respond) = accepted.expect("a request").unwrap().unwrap();
    let (head, mut body) = request.into_parts();
    let mut payload = Vec::new();
    loop {
        let piece = tokio::select! {
            biased;
            piece = body.data() => piece,
            () = driven(connection) => panic!("the connection ends"),
        };
        match piece {
            Some(piece) => payload.extend(piece.unwrap()),
            None => break,
        }
    }
    Asked {
        head,
        payload,
        respond,
    }
}

/// Until it ends.
async fn driven(connection: &mut Spoken) {
    let _ended = poll_fn(|context| connection.poll_closed(context)).await;
}

impl Asked {
    /// The stream that it is answered on.
    fn answer(mut self, head: Response<()>, body: Bytes) -> SendStream<Bytes> {
        let mut stream = self.respond.send_response(head, false).unwrap();
        stream.send_data(body, true).unwrap();
        stream
    }
}

fn head(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

/// Counts how often somebody is dialled.
#[derive(Debug, Default)]
struct Dials(AtomicUsize);

#[async_trait]
impl Dial for Dials {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.0.fetch_add(1, Ordering::SeqCst);
        TcpStream::connect(address).await
    }
}

/// From cold: whoever waits has a part in the one dial.
#[tokio::test]
async fn ten_at_once_share_one_connection() {
    let (peer, dials) = (Peer::listen().await, Arc::new(Dials::default()));
    let sender = HttpSender::new(HttpOptions {
        dial: Arc::<Dials>::clone(&dials),
        ..trusting()
    });
    let target = to(&peer, 1);
    let serving = tokio::spawn(async move {
        let mut connection = spoken(&peer).await;
        let mut all = Vec::new();
        while all.len() < 10 {
            all.push(asked(&mut connection).await);
        }
        for asked in all {
            asked.answer(head(200), Bytes::from_static(b"ok"));
        }
        driven(&mut connection).await;
    });
    for answer in join_all((0..10).map(|_| send(&sender, &target))).await {
        let answer = answer.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
    }
    assert_eq!(dials.0.load(Ordering::SeqCst), 1);
    assert_eq!(sender.idle_connections(), 1);
    drop(sender);
    serving.await.unwrap(); // it was closed
}

#[tokio::test]
async fn a_request_is_the_same_but_for_what_names_its_receiver() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut connection = spoken(&peer).await;
        let asked = asked(&mut connection).await;
        let (head, payload) = (asked.head.clone(), asked.payload.clone());
        asked.answer(self::head(204), Bytes::new());
        driven(&mut connection).await;
        (head, payload)
    });
    let url = target.url.clone();
    assert_eq!(send(&sender, &target).await.unwrap().status, 204);
    drop(sender);
    let (head, payload) = serving.await.unwrap();
    assert_eq!((head.method, head.version), (Method::POST, Version::HTTP_2));
    assert_eq!(head.uri, url.as_str());
    assert_eq!(payload, b"{}");
    let user_agent = concat!("Paceline/", env!("CARGO_PKG_VERSION"));
    let expected = [
        ("content-type", "application/json; charset=utf-8"),
        ("content-length", "2"),
        ("user-agent", user_agent),
        ("webhook-id", "00000000-0000-0000-0000-00000000000e"),
        ("webhook-timestamp", "1700000000"),
        ("paceline-try", "3"),
    ];
    let found: BTreeMap<_, _> = (head.headers.iter())
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(found, BTreeMap::from(expected));
}

#[tokio::test]
async fn a_receiver_that_does_not_choose_it_is_sent_to_as_before() {
    for (http2, protocols) in [(true, &BOTH[1..]), (true, &BOTH[..0]), (false, &BOTH[..])] {
        let peer = Peer::listen().await;
        let sender = HttpSender::new(HttpOptions {
            http2,
            ..trusting()
        });
        let target = to(&peer, 1);
        let (response, head) = tokio::join!(send(&sender, &target), async {
            let stream = server_choosing(protocols).accept(peer.accept().await).await;
            let mut stream = stream.unwrap();
            let (head, _) = read_request(&mut stream).await.unwrap();
            stream.write_all(OK).await.unwrap();
            stream.flush().await.unwrap();
            head
        });
        assert_eq!(response.unwrap().status, 200);
        assert!(head.starts_with("POST /hook HTTP/1.1\r\nhost: localhost:"));
    }
}

/// Whether its receiver has not looked at it, and it may arrive yet.
fn may_arrive(result: &Result<engine::ports::Response, SendError>) -> bool {
    matches!(result, Err(SendError::Unread { may_arrive, .. }) if *may_arrive)
}

/// What it finishes is answered, what it does not look at any more was not sent, and the
/// next goes elsewhere.
#[tokio::test]
async fn what_a_receiver_was_to_finish_no_more_is_not_sent() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut framed = Framed::accept(&peer, 10).await;
        let first = framed.request().await.min(framed.request().await);
        let mut last = first.to_be_bytes().to_vec();
        last.extend([0_u8; 4]); // NO_ERROR
        framed.write((GOAWAY, 0, 0), &last).await;
        framed.answer(first).await;
        let mut next = Framed::accept(&peer, 10).await;
        let stream = next.request().await;
        next.answer(stream).await;
        next.ended().await;
    });
    let (one, other) = tokio::join!(send(&sender, &target), send(&sender, &target));
    let (answer, lost) = match one.is_ok() {
        true => (one, other),
        false => (other, one),
    };
    assert_eq!(answer.unwrap().status, 200);
    assert!(may_arrive(&lost), "{lost:?}");
    assert_eq!(send(&sender, &target).await.unwrap().status, 200);
    drop(sender);
    serving.await.unwrap();
}

#[tokio::test]
async fn a_stream_that_is_refused_was_not_sent_and_any_other_reset_is_a_failure() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut framed = Framed::accept(&peer, 10).await;
        for reason in [REFUSED_STREAM, INTERNAL_ERROR, CANCEL] {
            let stream = framed.request().await;
            let reset = (RST_STREAM, 0, stream);
            framed.write(reset, &reason.to_be_bytes()).await;
        }
        framed.ended().await;
    });
    // It keeps the connection.
    let other = sender.prepare(&target).await.unwrap();
    let refused = send(&sender, &target).await;
    let unread = matches!(&refused, Err(SendError::Unread { .. }));
    assert!(unread && !may_arrive(&refused), "{refused:?}");
    for _ in 0..2 {
        let reset = send(&sender, &target).await;
        assert!(matches!(reset, Err(SendError::Exchange(_))), "{reset:?}");
    }
    drop((other, sender));
    serving.await.unwrap();
}

/// Or such a receiver would be sent to for ever.
#[tokio::test]
async fn one_that_only_refuses_fails_in_the_end() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut framed = Framed::accept(&peer, 10).await;
        for number in 0..259 {
            let stream = framed.request().await;
            match number == 1 {
                true => framed.answer(stream).await,
                false => {
                    let reset = (RST_STREAM, 0, stream);
                    framed.write(reset, &REFUSED_STREAM.to_be_bytes()).await;
                }
            }
        }
        framed.ended().await;
    });
    let other = sender.prepare(&target).await.unwrap();
    let _refused = send(&sender, &target).await;
    assert_eq!(send(&sender, &target).await.unwrap().status, 200);
    for number in 0..257 {
        let refused = send(&sender, &target).await;
        match number < 256 {
            true => assert!(matches!(refused, Err(SendError::Unread { .. })), "{number}"),
            false => assert!(matches!(refused, Err(SendError::Exchange(_)))),
        }
    }
    drop((other, sender));
    serving.await.unwrap();
}

/// An answer now and then does not make up for it.
#[tokio::test]
async fn one_that_mostly_refuses_fails_in_the_end() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut framed = Framed::accept(&peer, 10).await;
        for number in 0..800 {
            let stream = framed.request().await;
            match number % 3 {
                0 => framed.answer(stream).await,
                _ => {
                    let reset = (RST_STREAM, 0, stream);
                    framed.write(reset, &REFUSED_STREAM.to_be_bytes()).await;
                }
            }
        }
        framed.ended().await;
    });
    let other = sender.prepare(&target).await.unwrap();
    let mut failures = Vec::new();
    for number in 0..800 {
        if let Err(SendError::Exchange(_)) = send(&sender, &target).await {
            failures.push(number);
        }
    }
    let first = failures.first().copied();
    assert!(first.is_some_and(|first| first > 700), "{first:?}");
    drop((other, sender));
    serving.await.unwrap();
}

/// A request that would wait for the receiver is not sent: when it left, nobody could say.
#[tokio::test]
async fn nothing_waits_on_a_connection_that_takes_no_more() {
    let (peer, sender, target) = listening().await;
    let one = sender.prepare(&target);
    let (one, mut framed) = tokio::join!(one, Framed::accept(&peer, 2));
    let other = sender.prepare(&target).await.unwrap();
    framed.takes(0).await;
    let first_byte = FirstByte::default();
    let sent = one.unwrap().send(request(b"{}"), first_byte.clone()).await;
    assert!(matches!(sent, Err(SendError::NotSent(_))), "{sent:?}");
    assert_eq!(first_byte.left_at(), None);
    framed.takes(2).await;
    let sending = other.send(request(b"{}"), FirstByte::default());
    let (answer, stream) = tokio::join!(sending, async {
        let stream = framed.request().await;
        framed.answer(stream).await;
        stream
    });
    assert_eq!(answer.unwrap().status, 200);
    assert_eq!(stream, 1, "the first that there is");
}

/// Two at once, it says: the third has a connection of its own.
#[tokio::test]
async fn more_than_a_receiver_takes_are_more_connections() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut first = Framed::accept(&peer, 2).await;
        let streams = [first.request().await, first.request().await];
        let mut second = Framed::accept(&peer, 2).await;
        let stream = second.request().await;
        second.answer(stream).await;
        for stream in streams {
            first.answer(stream).await;
        }
        first.ended().await;
        second.ended().await;
    });
    for answer in join_all((0..3).map(|_| send(&sender, &target))).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(sender.idle_connections(), 2);
    drop(sender);
    serving.await.unwrap();
}

#[tokio::test]
async fn one_that_drips_holds_no_other() {
    let (peer, sender, target) = listening().await;
    let (begins, begun) = oneshot::channel::<()>();
    let (goes_on, gone_on) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let mut framed = Framed::accept(&peer, 10).await;
        let slow = framed.request().await;
        framed
            .write((HEADERS, END_HEADERS, slow), &[STATUS_200])
            .await;
        framed.write((DATA, 0, slow), b".").await;
        begins.send(()).unwrap();
        let fast = framed.request().await;
        framed.answer(fast).await;
        gone_on.await.unwrap();
        framed.write((DATA, END_STREAM, slow), b".").await;
        framed.ended().await;
    });
    let first = sender.prepare(&target).await.unwrap();
    let second = sender.prepare(&target).await.unwrap();
    let slow = first.send(request(b"{}"), FirstByte::default());
    let fast = second.send(request(b"{}"), FirstByte::default());
    let (slow, ()) = tokio::join!(slow, async {
        begun.await.unwrap();
        assert_eq!(fast.await.unwrap().status, 200);
        goes_on.send(()).unwrap();
    });
    assert_eq!(&slow.unwrap().body[..], b"..");
    drop(sender);
    serving.await.unwrap();
}

#[tokio::test]
async fn a_dropped_send_resets_its_stream_and_no_other() {
    let (peer, sender, target) = listening().await;
    let (seen, is_seen) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut framed = Framed::accept(&peer, 10).await;
        let dropped = framed.request().await;
        seen.send(()).unwrap();
        // In whatever order they come.
        let (mut why, mut next) = (None, None);
        while why.is_none() || next.is_none() {
            let frame = framed.read().await.expect("a reset and a request");
            match (frame.kind, frame.flags & END_STREAM) {
                (RST_STREAM, _) if frame.stream == dropped => why = Some(frame.code()),
                (DATA, END_STREAM) => next = Some(frame.stream),
                _ => {}
            }
        }
        framed.answer(next.unwrap()).await;
        framed.ended().await;
        why
    });
    let dropped = sender.prepare(&target).await.unwrap();
    let other = sender.prepare(&target).await.unwrap();
    let mut sending = dropped.send(request(b"{}"), FirstByte::default());
    tokio::select! {
        biased;
        result = &mut sending => panic!("nothing was answered: {result:?}"),
        seen = is_seen => seen.unwrap(),
    }
    drop(sending);
    let answer = other.send(request(b"{}"), FirstByte::default()).await;
    assert_eq!(answer.unwrap().status, 200);
    drop(sender);
    assert_eq!(serving.await.unwrap(), Some(CANCEL));
}

/// The last one takes the connection with it.
#[tokio::test]
async fn a_connection_ends_with_its_last_request() {
    let (peer, sender, target) = listening().await;
    let prepared = sender.prepare(&target);
    let (prepared, mut framed) = tokio::join!(prepared, Framed::accept(&peer, 10));
    let mut hurried = request(b"{}");
    hurried.timeout = SHORT;
    let sending = prepared.unwrap().send(hurried, FirstByte::default());
    let (result, stream) = tokio::join!(sending, framed.request());
    assert_eq!(result, Err(SendError::TimedOut(SHORT)));
    assert_eq!(framed.reset(stream).await, CANCEL);
    closed(framed.0).await;
    assert_eq!(sender.idle_connections(), 0);
}

/// It waits in h2 for a window, and would for ever.
#[tokio::test]
async fn a_body_that_its_receiver_does_not_take_ends_with_the_answer() {
    let (peer, sender, target) = listening().await;
    let prepared = sender.prepare(&target);
    let (prepared, mut framed) = tokio::join!(prepared, Framed::accept(&peer, 4));
    drop(prepared.unwrap());
    framed.set(INITIAL_WINDOW_SIZE, 0).await;
    for number in 0..20 {
        let (answer, stream) = tokio::join!(send(&sender, &target), async {
            loop {
                let frame = framed.read().await.expect("a head");
                if frame.kind == HEADERS {
                    framed.answer(frame.stream).await;
                    return frame.stream;
                }
            }
        });
        assert_eq!(answer.unwrap().status, 200, "{number}");
        assert_eq!(framed.reset(stream).await, CANCEL, "{number}");
    }
    assert_eq!(sender.idle_connections(), 1);
}

/// Whoever had left by then is answered, and of the others nothing comes later.
#[tokio::test]
async fn nothing_leaves_late_for_a_receiver_that_stops_reading() {
    let (peer, sender, target) = listening().await;
    let prepared = sender.prepare(&target);
    let (early, mut framed) = tokio::join!(prepared, Framed::accept(&peer, 64));
    framed.set(INITIAL_WINDOW_SIZE, 1 << 30).await;
    let window = (1_u32 << 30).to_be_bytes();
    framed.write((WINDOW_UPDATE, 0, 0), &window).await;
    let long = sender.prepare(&target).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(sender.prepare(&target).await.unwrap());
    }
    drop(sender);
    let early = tokio::spawn(early.unwrap().send(request(b"{}"), FirstByte::default()));
    let early_stream = framed.request().await;
    // It reads nothing from here on.
    let (mut huge, first_byte) = (request(b""), FirstByte::default());
    huge.payload = Bytes::from(vec![b'x'; 1 << 25]);
    huge.timeout = Duration::from_secs(5);
    let long = tokio::spawn(long.send(huge, first_byte.clone()));
    while first_byte.left_at().is_none() {
        yield_now().await;
    }
    let mut sent = Vec::new();
    for (number, one) in others.into_iter().enumerate() {
        let (mut request, mut first_byte) = (request(b""), FirstByte::default());
        match number % 2 {
            0 => first_byte = first_byte.by(Instant::now() + SHORT),
            _ => request.timeout = SHORT, // it is no failure of the receiver either
        }
        sent.push((
            first_byte.clone(),
            tokio::spawn(one.send(request, first_byte)),
        ));
        sleep(SHORT / 5).await; // the network takes the first of them, perhaps
    }
    sleep(SHORT * 2).await;
    framed.answer(early_stream).await;
    assert_eq!(early.await.unwrap().unwrap().status, 200);
    let mut come = 0;
    while let Some(frame) = framed.read().await {
        come += usize::from(frame.kind == HEADERS);
        if (frame.kind == HEADERS || frame.kind == DATA) && frame.flags & END_STREAM != 0 {
            let head = (HEADERS, END_HEADERS | END_STREAM, frame.stream);
            let _closed = framed.try_write(head, &[STATUS_200]).await;
        }
    }
    let _answered = long.await.unwrap();
    let (mut left, mut begun) = (1, 0); // the long one
    for (first_byte, sent) in sent {
        match (first_byte.left_at(), sent.await.unwrap()) {
            (None, Err(SendError::NotSent(_))) => {}
            // The network may have taken that part of it which TLS had: then that is its start.
            (Some(_), Err(SendError::Exchange(_))) => begun += 1,
            (Some(_), _) => left += 1,
            (None, other) => panic!("{other:?}"),
        }
    }
    assert!((left..=left + begun).contains(&come), "{come}");
    assert!(left <= 10, "the network takes all that there is");
}

/// Nobody may be there any more, though the connection is open.
#[tokio::test]
async fn where_nothing_came_for_a_whole_time_out_the_next_goes_elsewhere() {
    let (peer, sender, target) = listening().await;
    let (answer, mut silent) = tokio::join!(send(&sender, &target), async {
        let mut framed = Framed::accept(&peer, 10).await;
        let stream = framed.request().await;
        framed.answer(stream).await;
        framed
    });
    assert_eq!(answer.unwrap().status, 200);
    let first = sender.prepare(&target).await.unwrap();
    let _other = sender.prepare(&target).await.unwrap();
    let mut hurried = request(b"{}");
    hurried.timeout = SHORT;
    let sending = first.send(hurried, FirstByte::default());
    let (result, _stream) = tokio::join!(sending, silent.request());
    assert_eq!(result, Err(SendError::TimedOut(SHORT)));
    let (answer, ()) = tokio::join!(send(&sender, &target), async {
        let mut next = Framed::accept(&peer, 10).await;
        let stream = next.request().await;
        next.answer(stream).await;
    });
    assert_eq!(answer.unwrap().status, 200);
}

/// As over HTTP/1.1: before the answer, and not before the receiver could have it.
#[tokio::test]
async fn the_first_byte_of_each_is_told_as_it_leaves() {
    let (peer, sender, target) = listening().await;
    let prepared = sender.prepare(&target);
    let (prepared, mut framed) = tokio::join!(prepared, Framed::accept(&peer, 10));
    drop(prepared.unwrap());
    for _ in 0..2 {
        let prepared = sender.prepare(&target).await.unwrap();
        let (before, first_byte) = (Instant::now(), FirstByte::default());
        let exchange = prepared.send(request(b"{}"), first_byte.clone());
        let (response, (left_at, received_at)) = tokio::join!(exchange, async {
            let stream = framed.request().await;
            let (left_at, received_at) = (first_byte.left_at(), Instant::now());
            framed.answer(stream).await;
            (left_at, received_at)
        });
        assert_eq!(response.unwrap().status, 200);
        assert!(left_at.is_some_and(|at| before <= at && at <= received_at));
        assert_eq!(first_byte.left_at(), left_at);
    }
}

#[tokio::test]
async fn a_receiver_says_the_same_of_its_limits() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut connection = spoken(&peer).await;
        for status in [429, 401, 503] {
            let asked = asked(&mut connection).await;
            let head = Response::builder()
                .status(status)
                .header("retry-after", "3");
            let head = head.header("set-cookie", "id=canary").body(()).unwrap();
            asked.answer(head, Bytes::from_static(b"later"));
        }
        driven(&mut connection).await;
    });
    for status in [429, 401, 503] {
        let answer = send(&sender, &target).await.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(answer.signals.retry_after.as_deref(), Some("3"));
        let kept = Some("retry-after: 3\nset-cookie: hidden\n");
        assert_eq!(answer.headers.as_text(), kept);
        assert_eq!(&answer.body[..], b"later");
    }
    drop(sender);
    serving.await.unwrap();
}

/// Without the connection, which others use.
#[tokio::test]
async fn a_huge_body_is_cut_and_its_stream_reset() {
    let (peer, sender, target) = listening().await;
    let serving = tokio::spawn(async move {
        let mut connection = spoken(&peer).await;
        let mut huge = asked(&mut connection).await;
        // h2 tells of no reset once all of an answer is handed to it.
        let mut stream = huge.respond.send_response(head(200), false).unwrap();
        (stream.send_data(Bytes::from(vec![b'x'; 1 << 24]), false)).unwrap();
        let next = asked(&mut connection).await;
        next.answer(head(202), Bytes::new());
        let reset = stream_reset(&mut connection, &mut stream).await;
        driven(&mut connection).await;
        reset
    });
    let answer = send(&sender, &target).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, STORED_BODY_BYTES));
    assert_eq!(sender.idle_connections(), 1);
    assert_eq!(send(&sender, &target).await.unwrap().status, 202);
    drop(sender);
    assert_eq!(serving.await.unwrap(), Reason::CANCEL);
}

/// Why the other side wants no more of this.
async fn stream_reset(connection: &mut Spoken, stream: &mut SendStream<Bytes>) -> Reason {
    tokio::select! {
        biased;
        reset = poll_fn(|context| stream.poll_reset(context)) => return reset.unwrap(),
        () = driven(connection) => {}
    }
    // What came last came before the end.
    poll_fn(|context| stream.poll_reset(context)).await.unwrap()
}

/// A header of one byte and a value of so many, as HPACK has them.
fn header(value: usize) -> Vec<u8> {
    let mut header = vec![0, 1, b'a'];
    match value.checked_sub(127) {
        None => header.push(u8::try_from(value).unwrap()),
        Some(more) => {
            let (low, high) = (more % 128, more / 128);
            header.push(127);
            header.push(u8::try_from(low + 128).unwrap());
            header.push(u8::try_from(high).unwrap());
        }
    }
    header.resize(header.len() + value, b'x');
    header
}

#[tokio::test]
async fn a_head_is_bounded_in_headers_and_in_bytes() {
    let many = header(1).repeat(101);
    let large = header(1_000).repeat(48);
    for block in [many, large] {
        let (peer, sender, target) = listening().await;
        let (answer, ()) = tokio::join!(send(&sender, &target), async {
            let mut framed = Framed::accept(&peer, 10).await;
            let stream = framed.request().await;
            let head = (HEADERS, END_STREAM, stream);
            framed.write(head, &[STATUS_200]).await;
            for piece in block.chunks(16_000) {
                let _closed = framed.try_write((CONTINUATION, 0, stream), piece).await;
            }
            let end = (CONTINUATION, END_HEADERS, stream);
            let _closed = framed.try_write(end, &[]).await;
            framed.ended().await;
        });
        assert!(matches!(answer, Err(SendError::Exchange(_))), "{answer:?}");
    }
}

/// `:status: 103`, as HPACK has it.
const EARLY_HINTS: &[u8] = &[8, 3, b'1', b'0', b'3'];

#[tokio::test]
async fn information_before_an_answer_is_passed_over() {
    let (peer, sender) = (Peer::listen().await, HttpSender::new(trusting()));
    let target = to(&peer, 1);
    let (answer, _framed) = tokio::join!(send(&sender, &target), async {
        let mut framed = Framed::accept(&peer, 10).await;
        let stream = framed.request().await;
        let head = (HEADERS, END_HEADERS, stream);
        for _ in 0..15 {
            framed.write(head, EARLY_HINTS).await;
        }
        framed.write(head, &[STATUS_200]).await;
        framed.write((DATA, END_STREAM, stream), b"ok").await;
        framed
    });
    let answer = answer.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
}

/// Heads of information without end, which h2 would keep; and frames that are no answer.
#[tokio::test]
async fn a_receiver_that_floods_is_left() {
    let floods: [((u8, u8), &[u8], &str); 4] = [
        ((HEADERS, END_HEADERS), EARLY_HINTS, "over 16 heads"),
        ((PING, 0), &[0; 8], "nobody asked for"),
        ((SETTINGS, 0), &[], "nobody asked for"),
        ((WINDOW_UPDATE, 0), &[0, 0, 0, 1], "nobody asked for"),
    ];
    for ((kind, flags), payload, why) in floods {
        let (peer, sender, target) = listening().await;
        let (answer, written) = tokio::join!(send(&sender, &target), async {
            let mut framed = Framed::accept(&peer, 10).await;
            let stream = framed.request().await;
            let stream = match kind {
                HEADERS => stream,
                _ => 0,
            };
            let mut written = 0;
            while written < 1 << 20
                && (framed.try_write((kind, flags, stream), payload).await).is_ok()
            {
                written += 1;
            }
            written
        });
        let said = answer.unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
        assert!(written < 1 << 20, "the connection stayed open");
    }
}

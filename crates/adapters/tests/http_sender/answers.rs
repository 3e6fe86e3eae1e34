//! What is sent, and what is made of what comes back.

use adapters::http::{HttpOptions, HttpSender};
use domain::signature::HeaderPrefix;
use engine::ports::{FirstByte, SendError, Sender};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::peer::{OK, Peer, options, read_request, request, sender, target};

#[tokio::test]
async fn the_payload_arrives_byte_for_byte() {
    const PAYLOAD: &[u8] = b"{ \"a\" :1e0,\"a\":\"\\u00e9\xff\0\r\n\"}\n";
    let (peer, sender) = (Peer::listen().await, sender());
    let mut target = peer.target(1);
    target.url = format!("http://{}/hook/%C3%A9?b=c&d#not-sent", peer.address());
    let exchange = async {
        let prepared = sender.prepare(&target).await.unwrap();
        prepared
            .send(request(PAYLOAD), FirstByte::default())
            .await
            .unwrap()
    };
    let (response, (head, body)) = tokio::join!(exchange, async {
        let mut stream = peer.accept().await;
        let received = read_request(&mut stream).await.unwrap();
        stream.write_all(OK).await.unwrap();
        received
    });
    assert_eq!(body, PAYLOAD);
    let expected = format!(
        "POST /hook/%C3%A9?b=c&d HTTP/1.1\r\n\
         host: {}\r\n\
         content-type: application/json; charset=utf-8\r\n\
         content-length: {}\r\n\
         user-agent: Paceline/{}\r\n\
         webhook-id: 00000000-0000-0000-0000-00000000000e\r\n\
         webhook-timestamp: 1700000000\r\n\
         paceline-try: 3\r\n\r\n",
        peer.address(),
        PAYLOAD.len(),
        env!("CARGO_PKG_VERSION"),
    );
    assert_eq!(head, expected);
    assert_eq!((response.status, &response.body[..]), (200, &b"ok"[..]));
    assert_eq!(response.signals.retry_after, None);
}

/// Beside a body, and of what is no success. What lets somebody in is only named, and what
/// is of the connection is left out.
#[tokio::test]
async fn headers_are_kept_where_an_answer_says_more_than_that_all_is_well() {
    let (peer, sender) = (Peer::listen().await, sender());
    let answers: [(&[u8], Option<&str>); 3] = [
        (b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", None),
        (OK, Some("content-length: 2\n")),
        (
            b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nSet-Cookie: id=canary\r\nVia: a\xffb\r\n\
              Connection: close\r\nContent-Length: 0\r\n\r\n",
            Some("retry-after: 3\nset-cookie: hidden\nvia: a\u{fffd}b\ncontent-length: 0\n"),
        ),
    ];
    let target = peer.target(1);
    let mut stream = None;
    for (answer, kept) in answers {
        let exchange = async {
            let prepared = sender.prepare(&target).await.unwrap();
            let sent = prepared.send(request(b"{}"), FirstByte::default());
            sent.await.unwrap()
        };
        let receive = async {
            let mut open: TcpStream = match stream.take() {
                Some(open) => open,
                None => peer.accept().await,
            };
            read_request(&mut open).await.unwrap();
            open.write_all(answer).await.unwrap();
            stream = Some(open);
        };
        let (response, ()) = tokio::join!(exchange, receive);
        assert_eq!(response.headers.as_text(), kept);
    }
}

/// Whoever looks for those of Svix finds all three of them, and no other.
#[tokio::test]
async fn the_headers_of_a_signature_begin_as_it_is_set() {
    let peer = Peer::listen().await;
    let svix = HttpSender::new(HttpOptions {
        signature_prefix: HeaderPrefix::Svix,
        ..options()
    });
    for (sender, prefix, other) in [(sender(), "webhook-", "svix-"), (svix, "svix-", "webhook-")] {
        let mut signed = request(b"{}");
        signed.signature = Some("v1,AAAA".to_owned());
        let target = peer.target(1);
        let exchange = async {
            let prepared = sender.prepare(&target).await.unwrap();
            prepared.send(signed, FirstByte::default()).await.unwrap()
        };
        let (_, head) = tokio::join!(exchange, async {
            let mut stream = peer.accept().await;
            let (head, _) = read_request(&mut stream).await.unwrap();
            stream.write_all(OK).await.unwrap();
            head
        });
        for line in [
            "id: 00000000-0000-0000-0000-00000000000e",
            "timestamp: 1700000000",
            "signature: v1,AAAA",
        ] {
            let line = format!("\r\n{prefix}{line}\r\n");
            assert!(head.contains(&line), "{line:?} is not in {head}");
        }
        assert!(!head.contains(other), "{head}");
    }
}

/// Before the answer, and not before the receiver could have it; of the second request
/// on a connection as of the first.
#[tokio::test]
async fn the_first_byte_is_told_as_it_leaves() {
    let (peer, sender) = (Peer::listen().await, sender());
    let target = peer.target(1);
    let mut stream = None;
    for _ in 0..2 {
        let prepared = sender.prepare(&target).await.unwrap();
        let (before, first_byte) = (Instant::now(), FirstByte::default());
        assert_eq!(first_byte.left_at(), None);
        let exchange = prepared.send(request(b"{}"), first_byte.clone());
        let (response, received_at) = tokio::join!(exchange, async {
            let stream = match &mut stream {
                Some(stream) => stream,
                none => none.insert(peer.accept().await),
            };
            read_request(stream).await.unwrap();
            let received_at = Instant::now();
            // Whenever it asks: it is known while the answer is still to come.
            let left_at = first_byte.left_at();
            stream.write_all(OK).await.unwrap();
            (left_at, received_at)
        });
        assert_eq!(response.unwrap().status, 200);
        let (left_at, received_at) = received_at;
        assert!(left_at.is_some_and(|at| before <= at && at <= received_at));
        assert_eq!(first_byte.left_at(), left_at);
    }
}

#[tokio::test]
async fn an_empty_payload_has_a_length() {
    let (peer, sender) = (Peer::listen().await, sender());
    let target = peer.target(1);
    let exchange = async {
        sender
            .prepare(&target)
            .await?
            .send(request(b""), FirstByte::default())
            .await
    };
    let (response, (head, _stream)) = tokio::join!(exchange, async {
        let mut stream = peer.accept().await;
        let (head, _) = read_request(&mut stream).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        (head, stream)
    });
    assert!(head.contains("\r\ncontent-length: 0\r\n"), "{head}");
    assert_eq!(response.unwrap().status, 204);
    assert_eq!(sender.idle_connections(), 1);
}

#[tokio::test]
async fn a_content_type_that_is_no_header_is_refused_unsent() {
    let (peer, sender) = (Peer::listen().await, sender());
    let prepared = sender.prepare(&peer.target(1)).await.unwrap();
    let mut injecting = request(b"{}");
    injecting.content_type = "text/plain\r\nx-injected: 1".to_owned();
    let error = prepared
        .send(injecting, FirstByte::default())
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Refused(_)), "{error}");
    assert_eq!(sender.idle_connections(), 1);
}

#[tokio::test]
async fn a_redirect_is_an_answer() {
    let (peer, elsewhere) = (Peer::listen().await, Peer::listen().await);
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://{}/\r\nretry-after: 120\r\ncontent-length: 0\r\n\r\n",
        elsewhere.address(),
    );
    let response = peer.provoke(redirect.as_bytes()).await.unwrap();
    assert_eq!(response.status, 302);
    assert_eq!(response.signals.retry_after.as_deref(), Some("120"));
    let ours = TcpStream::connect(elsewhere.address()).await.unwrap();
    let next = elsewhere.accept().await;
    assert_eq!(next.peer_addr().unwrap(), ours.local_addr().unwrap());
}

#[tokio::test]
async fn information_is_skipped() {
    let response =
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(
        Peer::listen().await.provoke(response).await.unwrap().status,
        202
    );
}

#[tokio::test]
async fn a_compressed_body_stays_compressed() {
    let mut response =
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 6\r\n\r\n".to_vec();
    response.extend_from_slice(b"\x1f\x8b\x08\0\0\0");
    let response = Peer::listen().await.provoke(&response).await.unwrap();
    assert_eq!(&response.body[..], b"\x1f\x8b\x08\0\0\0");
}

#[tokio::test]
async fn urls_are_refused_by_rule() {
    let strict = HttpSender::new(HttpOptions::default());
    for (url, why) in [
        ("", "not a URL"),
        ("/hook", "not a URL"),
        ("example.com/hook", "not a URL"),
        ("https://", "not a URL"),
        ("https://exa mple.com/", "not a URL"),
        ("https://[fe80::1%25eth0]/", "not a URL"),
        ("https://1.2.3.4.5/", "not a URL"),
        ("https://example.com:65536/", "not a URL"),
        ("https://example.com:0/", "port 0"),
        ("http://example.com/", "plain http"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("unix:/run/docker.sock", "scheme"),
        ("https://user@example.com/", "user information"),
        ("https://user:secret@example.com/", "user information"),
        ("https://:secret@example.com/", "user information"),
    ] {
        match strict.prepare(&target(1, url)).await.err() {
            Some(SendError::Refused(reason)) => {
                assert!(reason.contains(why), "{url}: {reason}");
                assert!(!reason.contains("secret"), "{url}: {reason}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn nobody_listening_is_a_connect_error() {
    let address = Peer::listen().await.address();
    let error = sender()
        .prepare(&target(1, &format!("http://{address}/")))
        .await
        .err();
    assert!(matches!(error, Some(SendError::Connect(_))), "{error:?}");
}

#[tokio::test]
async fn a_name_without_an_address_is_a_connect_error() {
    // Reserved never to exist. With or without a name server within reach.
    let error = sender()
        .prepare(&target(1, "http://nowhere.invalid/"))
        .await
        .err();
    assert!(matches!(error, Some(SendError::Connect(_))), "{error:?}");
}

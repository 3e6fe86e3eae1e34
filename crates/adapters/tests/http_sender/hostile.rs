//! Receivers that break off, flood or stall.

use engine::ports::{FirstByte, READ_BODY_BYTES, STORED_BODY_BYTES, SendError, Sender};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::peer::{Peer, SHORT, closed, read_request, request, send, sender, target};

#[tokio::test]
async fn broken_responses_are_exchange_errors() {
    let mut many_headers = b"HTTP/1.1 200 OK\r\n".to_vec();
    many_headers.extend(b"a: b\r\n".repeat(101));
    many_headers.extend(b"\r\n");
    let mut large_head = b"HTTP/1.1 200 OK\r\na: ".to_vec();
    large_head.extend(b"x".repeat(32 * 1024));
    large_head.extend(b"\r\n\r\n");
    for (name, response) in [
        ("nothing", &b""[..]),
        ("not http", b"220 mail.example.com ESMTP\r\n\r\n"),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-le"),
        (
            "half a body",
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        ),
        (
            "two lengths",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok",
        ),
        (
            "a bad chunk",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ),
        ("many headers", &many_headers),
        ("a large head", &large_head),
    ] {
        let peer = Peer::listen().await;
        let (sender, target) = (sender(), peer.target(1));
        let (result, ()) = tokio::join!(send(&sender, &target), async {
            let mut stream = peer.accept().await;
            read_request(&mut stream).await.unwrap();
            // The sender may close before all of it is written.
            let _written = stream.write_all(response).await;
            let _shut = stream.shutdown().await;
            closed(stream).await;
        });
        assert!(
            matches!(result, Err(SendError::Exchange(_))),
            "{name}: {result:?}"
        );
        assert_eq!(sender.idle_connections(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_not_stored() {
    let peer = Peer::listen().await;
    let (sender, target) = (sender(), peer.target(1));
    let (result, written) = tokio::join!(send(&sender, &target), async {
        let mut stream = peer.answer(b"HTTP/1.1 200 OK\r\na: ").await;
        flood(&mut stream, 1 << 30).await
    });
    assert!(matches!(result, Err(SendError::Exchange(_))), "{result:?}");
    assert!(written < 1 << 30, "the connection stayed open");
}

#[tokio::test]
async fn a_huge_body_is_cut_and_the_connection_closed() {
    for head in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\n\r\n", // until the connection ends
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40000000\r\n",
    ] {
        let (peer, sender) = (Peer::listen().await, sender());
        let target = peer.target(1);
        let (result, written) = tokio::join!(send(&sender, &target), async {
            let mut stream = peer.answer(head).await;
            flood(&mut stream, 1 << 30).await
        });
        let response = result.unwrap();
        assert_eq!(response.status, 200);
        assert_eq!(response.body.len(), STORED_BODY_BYTES);
        // What the kernel's buffers hold is written but was never read.
        assert!(written < 1 << 30, "the connection stayed open");
        assert_eq!(sender.idle_connections(), 0);
    }
}

/// Writes until the other side closes or so many bytes are written.
async fn flood(stream: &mut TcpStream, most: usize) -> usize {
    let piece = vec![b'x'; 64 * 1024];
    let mut written = 0;
    while written < most && stream.write_all(&piece).await.is_ok() {
        written += piece.len();
    }
    written
}

#[tokio::test]
async fn a_body_of_exactly_the_cap_keeps_the_connection() {
    let (peer, sender) = (Peer::listen().await, sender());
    let target = peer.target(1);
    let mut response =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {READ_BODY_BYTES}\r\n\r\n").into_bytes();
    response.extend(vec![b'x'; READ_BODY_BYTES]);
    let (result, _stream) = tokio::join!(send(&sender, &target), peer.answer(&response));
    assert_eq!(result.unwrap().body.len(), STORED_BODY_BYTES);
    assert_eq!(sender.idle_connections(), 1);
}

#[tokio::test]
async fn a_receiver_that_stalls_is_left_at_the_deadline() {
    for beginning in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
    ] {
        let (peer, sender) = (Peer::listen().await, sender());
        let prepared = sender.prepare(&peer.target(1)).await.unwrap();
        let mut hurried = request(b"{}");
        hurried.timeout = SHORT;
        let (result, stream) = tokio::join!(
            prepared.send(hurried, FirstByte::default()),
            peer.answer(beginning)
        );
        assert_eq!(result, Err(SendError::TimedOut(SHORT)));
        assert_eq!(sender.idle_connections(), 0);
        closed(stream).await;
    }
}

#[tokio::test]
async fn a_slow_drip_ends_at_the_deadline() {
    let (peer, sender) = (Peer::listen().await, sender());
    let prepared = sender.prepare(&peer.target(1)).await.unwrap();
    let mut hurried = request(b"{}");
    hurried.timeout = SHORT;
    let (result, ()) = tokio::join!(prepared.send(hurried, FirstByte::default()), async {
        let mut stream = peer.answer(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(b".").await.is_ok() {
            tokio::time::sleep(SHORT / 20).await; // the receiver's slowness
        }
    });
    assert_eq!(result, Err(SendError::TimedOut(SHORT)));
}

#[tokio::test]
async fn a_full_backlog_times_out_in_the_preparation() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
    }
    let mut target = target(1, &format!("http://{address}/"));
    target.timeout = SHORT;
    let error = sender().prepare(&target).await.err();
    assert_eq!(error, Some(SendError::TimedOut(SHORT)));
}

#[tokio::test]
async fn a_dropped_send_closes_the_connection() {
    let (peer, sender) = (Peer::listen().await, sender());
    let prepared = sender.prepare(&peer.target(1)).await.unwrap();
    let mut sending = prepared.send(request(b"{}"), FirstByte::default());
    let stream = tokio::select! {
        biased;
        result = &mut sending => panic!("nothing was answered: {result:?}"),
        stream = peer.answer(b"HTTP/1.1 200 OK\r\n") => stream,
    };
    drop(sending);
    closed(stream).await;
    assert_eq!(sender.idle_connections(), 0);
}

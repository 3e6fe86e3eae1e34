//! Which requests share a connection, and which must not.

use std::time::Duration;

use adapters::http::{HttpOptions, HttpSender};
use domain::ids::Epoch;
use engine::ports::{FirstByte, SendError, Sender};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::peer::{OK, Peer, closed, options, read_request, request, send, sender};

#[tokio::test]
async fn a_destination_reuses_its_connection() {
    let (peer, sender) = (Peer::listen().await, sender());
    let target = peer.target(1);
    let mut later_epoch = target.clone();
    later_epoch.epoch = Epoch(1);
    later_epoch.url.push_str("/elsewhere");
    let (_, mut stream) = tokio::join!(send(&sender, &target), peer.answer(OK));
    for target in [&target, &later_epoch, &target] {
        assert_eq!(sender.idle_connections(), 1);
        let (response, ()) = tokio::join!(send(&sender, target), async {
            // On the same connection: the peer accepts no other.
            read_request(&mut stream).await.unwrap();
            stream.write_all(OK).await.unwrap();
        });
        assert_eq!(response.unwrap().status, 200);
    }
}

#[tokio::test]
async fn two_destinations_do_not_share() {
    let (peer, sender) = (Peer::listen().await, sender());
    for destination in [1, 2] {
        let target = peer.target(destination);
        let (response, _stream) = tokio::join!(send(&sender, &target), peer.answer(OK));
        assert_eq!(response.unwrap().status, 200);
    }
    assert_eq!(sender.idle_connections(), 2);
}

#[tokio::test]
async fn an_unused_preparation_returns_its_connection() {
    let (peer, sender) = (Peer::listen().await, sender());
    drop(sender.prepare(&peer.target(1)).await.unwrap());
    assert_eq!(sender.idle_connections(), 1);
    let target = peer.target(1);
    let (response, _stream) = tokio::join!(send(&sender, &target), peer.answer(OK));
    assert_eq!(response.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_that_died_idle_is_replaced() {
    let (peer, sender) = (Peer::listen().await, sender());
    let target = peer.target(1);
    let (_, stream) = tokio::join!(send(&sender, &target), peer.answer(OK));
    assert_eq!(sender.idle_connections(), 1);
    drop(stream);
    let (response, _stream) = tokio::join!(send(&sender, &target), peer.answer(OK));
    assert_eq!(response.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_with_unasked_bytes_is_replaced() {
    let (peer, sender) = (Peer::listen().await, sender());
    let target = peer.target(1);
    let (_, mut stream) = tokio::join!(send(&sender, &target), peer.answer(OK));
    // An answer without a question must not become the next one's.
    stream.write_all(OK).await.unwrap();
    let (response, _stream) = tokio::join!(
        send(&sender, &target),
        peer.answer(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"),
    );
    assert_eq!(response.unwrap().status, 500);
}

#[tokio::test]
async fn a_receiver_that_does_not_keep_connections_is_believed() {
    for response in [
        &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let (peer, sender) = (Peer::listen().await, sender());
        let target = peer.target(1);
        let (result, stream) = tokio::join!(send(&sender, &target), peer.answer(response));
        result.unwrap();
        assert_eq!(sender.idle_connections(), 0);
        closed(stream).await;
    }
}

#[tokio::test]
async fn nothing_is_sent_twice() {
    let (peer, sender) = (Peer::listen().await, sender());
    let target = peer.target(1);
    let (_, mut stream) = tokio::join!(send(&sender, &target), peer.answer(OK));
    // On the reused connection: where clients like to try again.
    let (result, ()) = tokio::join!(send(&sender, &target), async move {
        read_request(&mut stream).await.unwrap();
    });
    let error = result.unwrap_err();
    assert!(matches!(error, SendError::Exchange(_)), "{error}");
    // And on one that dies between the preparation and the request.
    let prepared = sender.prepare(&target).await.unwrap();
    drop(peer.accept().await);
    let error = prepared
        .send(request(b"{}"), FirstByte::default())
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Exchange(_)), "{error}");
    // Nobody dials again: with the sender gone, the next to arrive is ours.
    drop(sender);
    let ours = TcpStream::connect(peer.address()).await.unwrap();
    let next = peer.accept().await;
    assert_eq!(next.peer_addr().unwrap(), ours.local_addr().unwrap());
}

#[tokio::test]
async fn the_pool_is_bounded() {
    let (peer, sender) = (
        Peer::listen().await,
        HttpSender::new(HttpOptions {
            max_idle_per_destination: 2,
            max_idle: 3,
            ..options()
        }),
    );
    let mut streams = Vec::new();
    for destination in [1, 1, 1, 2, 2, 3] {
        let prepared = sender.prepare(&peer.target(destination)).await.unwrap();
        streams.push((prepared, peer.accept().await));
    }
    let mut kept = Vec::new();
    for (prepared, stream) in streams {
        drop(prepared);
        kept.push(stream);
    }
    assert_eq!(sender.idle_connections(), 3);
    // The oldest of destination 1 for its own bound, the next two for that of
    // all: closed, not merely forgotten.
    for stream in kept.drain(..3) {
        closed(stream).await;
    }
    sender.sweep();
    assert_eq!(sender.idle_connections(), 3);
    drop(sender);
    for stream in kept {
        closed(stream).await;
    }
}

#[tokio::test]
async fn idle_connections_are_swept() {
    let peer = Peer::listen().await;
    let sender = HttpSender::new(HttpOptions {
        max_idle_age: Duration::from_millis(1),
        ..options()
    });
    drop(sender.prepare(&peer.target(1)).await.unwrap());
    let stream = peer.accept().await;
    while sender.idle_connections() > 0 {
        tokio::task::yield_now().await;
        sender.sweep();
    }
    closed(stream).await;
}

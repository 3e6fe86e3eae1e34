//! The question whether anything may be sent, and a receiver that plays every answer.

use std::time::Duration;

use adapters::http::{HttpOptions, HttpSender};
use domain::handshake::{ASK_TIMEOUT, Answer, Reply};
use engine::ports::{Asker, DEFAULT_TENANT, Question, SendError};
use tokio::io::AsyncWriteExt;

use super::peer::{OK, PATIENT, Peer, SHORT, closed, options, read_request, send};

const ORIGIN: &str = "hooks.example.com";

fn asker() -> HttpSender {
    HttpSender::new(HttpOptions {
        origin: ORIGIN.parse().ok(),
        ..options()
    })
}

fn question(peer: &Peer, per_minute: u32) -> Question {
    let target = peer.target(1);
    Question {
        destination: target.destination,
        tenant: DEFAULT_TENANT,
        url: target.url,
        per_minute: per_minute.try_into().ok(),
        identity: None,
    }
}

/// What these bytes as an answer come to.
async fn answered(response: &str) -> Result<Answer, SendError> {
    let (peer, asker) = (Peer::listen().await, asker());
    let question = question(&peer, 600);
    let (reply, _stream) = tokio::join!(asker.ask(&question, PATIENT), async {
        let mut stream = peer.answer(response.as_bytes()).await;
        stream.shutdown().await.unwrap();
        stream
    });
    Ok(reply?.answer(&ORIGIN.parse().unwrap()))
}

fn per_minute(rate: u32) -> Result<Answer, SendError> {
    Ok(Answer::Allowed(rate.try_into().ok()))
}

#[tokio::test]
async fn it_asks_by_options_and_says_nothing_of_the_destination() {
    let (peer, asker) = (Peer::listen().await, asker());
    for (rate, asks) in [(600, "webhook-request-rate: 600\r\n"), (0, "")] {
        let question = question(&peer, rate);
        let (reply, head) = tokio::join!(asker.ask(&question, PATIENT), async {
            let mut stream = peer.accept().await;
            let (head, body) = read_request(&mut stream).await.unwrap();
            assert!(body.is_empty());
            let close = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\
                webhook-allowed-origin: *\r\n\r\n";
            stream.write_all(close.as_bytes()).await.unwrap();
            head
        });
        let expected = format!(
            "OPTIONS /hook HTTP/1.1\r\n\
             host: {}\r\n\
             user-agent: Paceline/{}\r\n\
             webhook-request-origin: {ORIGIN}\r\n{asks}\r\n",
            peer.address(),
            env!("CARGO_PKG_VERSION"),
        );
        assert_eq!(head, expected);
        assert_eq!(reply.unwrap().allowed_origin.as_deref(), Some("*"));
    }
}

#[tokio::test]
async fn a_receiver_plays_every_answer() {
    let ok = |headers: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{headers}\r\n");
    let all = "WebHook-Allowed-Origin: *\r\n";
    let ours = "webhook-allowed-origin: Hooks.Example.com\r\nWEBHOOK-ALLOWED-RATE: 120\r\n";
    assert_eq!(answered(&ok(ours)).await, per_minute(120));
    assert_eq!(answered(&ok(all)).await, per_minute(0));
    let any_rate = format!("{all}WebHook-Allowed-Rate: *\r\n");
    assert_eq!(answered(&ok(&any_rate)).await, per_minute(0));
    let refusals = [
        ok(""),
        ok("Allow: GET, POST, OPTIONS\r\n"),
        ok("WebHook-Allowed-Origin: other.example.com\r\n"),
        ok("WebHook-Allowed-Origin: *\r\nWebHook-Allowed-Rate: soon\r\n"),
        "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n".to_owned(),
        format!("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n{all}\r\n"),
        // Nobody follows it.
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: /x\r\ncontent-length: 0\r\n{all}\r\n"
        ),
    ];
    for refusal in refusals {
        let answer = answered(&refusal).await;
        assert!(
            matches!(answer, Ok(Answer::Refused(_))),
            "{refusal}: {answer:?}"
        );
    }
    let busy = answered("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
    assert!(matches!(busy, Ok(Answer::Unreachable(_))), "{busy:?}");
    let broken = answered("no such protocol\r\n\r\n").await;
    assert!(matches!(broken, Err(SendError::Exchange(_))), "{broken:?}");
}

/// The connection goes on; but not through a body without an end.
#[tokio::test]
async fn the_body_is_bounded_and_not_kept() {
    let (peer, asker) = (Peer::listen().await, asker());
    let question = question(&peer, 600);
    let (reply, ()) = tokio::join!(asker.ask(&question, PATIENT), async {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\
            webhook-allowed-origin: *\r\n\r\n";
        let mut stream = peer.answer(head.as_bytes()).await;
        let chunk = vec![b'x'; 16 * 1024];
        while stream.write_all(&chunk).await.is_ok() {}
        closed(stream).await;
    });
    let reply = reply.unwrap();
    let expected = Reply {
        status: 200,
        allowed_origin: Some("*".to_owned()),
        allowed_rate: None,
    };
    assert_eq!(reply, expected);
    assert_eq!(asker.idle_connections(), 0);
}

#[tokio::test]
async fn it_ends_in_time() {
    let (peer, asker) = (Peer::listen().await, asker());
    let question = question(&peer, 600);
    let (reply, stream) = tokio::join!(asker.ask(&question, SHORT), peer.accept());
    assert_eq!(reply, Err(SendError::TimedOut(SHORT)));
    closed(stream).await;
    assert!(
        ASK_TIMEOUT < Duration::from_secs(30),
        "within the time that nobody else asks"
    );
}

#[tokio::test]
async fn it_goes_where_requests_may_go_and_nowhere_else() {
    let strict = HttpSender::new(HttpOptions::default());
    for url in [
        "http://127.0.0.1:9/",
        "https://127.0.0.1/",
        "https://10.0.0.1/hook",
    ] {
        let question = Question {
            url: url.to_owned(),
            ..question(&Peer::listen().await, 600)
        };
        let refused = strict.ask(&question, PATIENT).await;
        assert!(
            matches!(refused, Err(SendError::Refused(_))),
            "{url}: {refused:?}"
        );
    }
}

/// As the specification says of each delivery after it.
#[tokio::test]
async fn requests_name_the_origin_where_it_was_asked_for() {
    let (peer, asker) = (Peer::listen().await, asker());
    for names_origin in [true, false] {
        let mut target = peer.target(1);
        target.names_origin = names_origin;
        let (sent, head) = tokio::join!(send(&asker, &target), async {
            let mut stream = peer.accept().await;
            let (head, _) = read_request(&mut stream).await.unwrap();
            stream.write_all(OK).await.unwrap();
            stream.shutdown().await.unwrap();
            head
        });
        assert_eq!(sent.unwrap().status, 200);
        let line = format!("webhook-request-origin: {ORIGIN}\r\n");
        assert_eq!(head.contains(&line), names_origin, "{head}");
    }
}

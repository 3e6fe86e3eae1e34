//! Token servers, and requests that are let in by a token.

use adapters::http::HttpSender;
use domain::credentials::{ClientAuth, OAuthClient, OAuthFacts, Token, read_answer};
use engine::ports::{FirstByte, Granter, Request, STORED_BODY_BYTES, SendError, Sender};
use tokio::io::AsyncWriteExt;
use zeroize::Zeroizing;

use super::peer::{OK, PATIENT, Peer, SHORT, closed, read_request, request, sender};

fn client(token_url: &str, client_auth: ClientAuth) -> OAuthClient {
    let facts = OAuthFacts {
        token_url: token_url.to_owned(),
        client_id: "paceline".to_owned(),
        scopes: vec!["hooks".to_owned()],
        audience: None,
        client_auth,
    };
    OAuthClient::new(facts, Zeroizing::new("canary".to_owned())).unwrap()
}

fn of(peer: &Peer, client_auth: ClientAuth) -> OAuthClient {
    client(&format!("http://{}/token", peer.address()), client_auth)
}

async fn ask(
    granter: &HttpSender,
    client: &OAuthClient,
    peer: &Peer,
) -> Result<engine::ports::TokenAnswer, SendError> {
    let destination = peer.target(1).destination;
    granter.ask_for_token(destination, client, PATIENT).await
}

#[tokio::test]
async fn a_token_is_asked_for_by_post_and_the_client_says_who_it_is() {
    let (peer, granter) = (Peer::listen().await, sender());
    // `paceline:canary` in base64.
    let basic = "authorization: Basic cGFjZWxpbmU6Y2FuYXJ5\r\n";
    let form = "grant_type=client_credentials&scope=hooks";
    let in_body = format!("{form}&client_id=paceline&client_secret=canary");
    for (way, header, expected) in [
        (ClientAuth::Basic, basic, form),
        (ClientAuth::Body, "", in_body.as_str()),
    ] {
        let client = of(&peer, way);
        let (answer, (head, body)) = tokio::join!(ask(&granter, &client, &peer), async {
            let mut stream = peer.accept().await;
            let (head, body) = read_request(&mut stream).await.unwrap();
            let json = r#"{"access_token":"abc","expires_in":60}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{json}",
                json.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            (head, body)
        });
        let expected_head = format!(
            "POST /token HTTP/1.1\r\n\
             host: {}\r\n\
             content-type: application/x-www-form-urlencoded\r\n\
             content-length: {}\r\n\
             accept: application/json\r\n\
             user-agent: Paceline/{}\r\n{header}\r\n",
            peer.address(),
            expected.len(),
            env!("CARGO_PKG_VERSION"),
        );
        assert_eq!(head, expected_head);
        assert_eq!(body, expected.as_bytes());
        let answer = answer.ok().unwrap();
        assert!(read_answer(answer.status, &answer.body).is_ok());
    }
}

#[tokio::test]
async fn what_a_token_server_may_do_is_bounded() {
    let (peer, granter) = (Peer::listen().await, sender());
    let client = of(&peer, ClientAuth::Basic);
    // It goes on for ever.
    let (answer, ()) = tokio::join!(ask(&granter, &client, &peer), async {
        let mut stream = peer
            .answer(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n")
            .await;
        let chunk = vec![b'x'; 16 * 1024];
        while stream.write_all(&chunk).await.is_ok() {}
        closed(stream).await;
    });
    assert_eq!(answer.ok().unwrap().body.len(), STORED_BODY_BYTES);
    // It sends elsewhere: nobody follows.
    let moved = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n";
    let (answer, _stream) = tokio::join!(ask(&granter, &client, &peer), peer.answer(moved));
    assert_eq!(answer.ok().unwrap().status, 307);
}

#[tokio::test]
async fn a_token_server_that_hangs_is_left_in_time() {
    let (peer, granter) = (Peer::listen().await, sender());
    let client = of(&peer, ClientAuth::Basic);
    let destination = peer.target(1).destination;
    let (answer, stream) = tokio::join!(
        granter.ask_for_token(destination, &client, SHORT),
        peer.accept()
    );
    assert_eq!(answer.err(), Some(SendError::TimedOut(SHORT)));
    closed(stream).await;
}

#[tokio::test]
async fn tokens_are_asked_for_where_requests_may_go_and_nowhere_else() {
    let strict = HttpSender::new(adapters::http::HttpOptions::default());
    let destination = Peer::listen().await.target(1).destination;
    for url in [
        "http://login.example/token",
        "https://127.0.0.1/token",
        "https://10.0.0.1/token",
        "https://169.254.169.254/token",
    ] {
        let client = client(url, ClientAuth::Basic);
        let refused = strict.ask_for_token(destination, &client, PATIENT).await;
        let refused = refused.err();
        assert!(
            matches!(refused, Some(SendError::Refused(_))),
            "{url}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_request_carries_its_token_and_no_other_authorization() {
    let (peer, sender) = (Peer::listen().await, sender());
    let own = ("authorization".to_owned(), "Basic x".to_owned().into());
    let headers = domain::header::CustomHeaders::new([own]).unwrap();
    let request = Request {
        token: Token::new(Zeroizing::new("abc.def".to_owned())),
        headers: std::sync::Arc::new(headers),
        ..request(b"{}")
    };
    let target = peer.target(1);
    let sent = async {
        let prepared = sender.prepare(&target).await?;
        prepared.send(request, FirstByte::default()).await
    };
    let (sent, head) = tokio::join!(sent, async {
        let mut stream = peer.accept().await;
        let (head, _) = read_request(&mut stream).await.unwrap();
        stream.write_all(OK).await.unwrap();
        head
    });
    assert_eq!(sent.unwrap().status, 200);
    let named: Vec<_> = (head.lines())
        .filter(|line| line.starts_with("authorization:"))
        .collect();
    assert_eq!(named, ["authorization: Bearer abc.def"]);
}

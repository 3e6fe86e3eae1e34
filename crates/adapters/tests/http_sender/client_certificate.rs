//! Receivers that ask for a client certificate.

use std::sync::Arc;

use adapters::http::{HttpOptions, HttpSender};
use domain::credentials::ClientCertificate;
use domain::ids::SecretId;
use engine::ports::{Asker, ClientIdentity, DEFAULT_TENANT, Question, SendError, Sender, Target};
use rustls::HandshakeKind;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::peer::{OK, PATIENT, Peer, options, read_request, send, target};
use super::tls::{CERTIFICATE, KEY, server_of};

const CLIENT: &str = include_str!("pem/client.pem");
const CLIENT_KEY: &str = include_str!("pem/client.key");
const OTHER: &str = include_str!("pem/other.pem");
const OTHER_KEY: &str = include_str!("pem/other.key");

fn identity(secret: u128, chain: &str, key: &str) -> ClientIdentity {
    let key = Zeroizing::new(key.to_owned());
    ClientIdentity {
        secret: SecretId(Uuid::from_u128(secret)),
        certificate: Arc::new(ClientCertificate::new(chain.to_owned(), key)),
    }
}

fn client() -> ClientIdentity {
    identity(1, CLIENT, CLIENT_KEY)
}

/// It lets in who shows one of these certificates, and nobody else.
fn demanding() -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    for one in [CLIENT, OTHER] {
        let one = CertificateDer::from_pem_slice(one.as_bytes()).unwrap();
        roots.add(one).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    server_of(CERTIFICATE, KEY, verifier.build().unwrap())
}

/// One that forgets a connection as soon as it is idle, where it is to dial anew.
fn sender(max_idle: usize) -> HttpSender {
    HttpSender::new(HttpOptions {
        extra_roots: vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()],
        max_idle,
        ..options()
    })
}

fn to(peer: &Peer, destination: u128, identity: Option<ClientIdentity>) -> Target {
    let url = format!("https://localhost:{}/", peer.address().port());
    Target {
        identity,
        ..target(destination, &url)
    }
}

/// Whom a connection shows: its certificate.
fn shows(stream: &TlsStream<TcpStream>) -> Option<Vec<u8>> {
    let certificates = stream.get_ref().1.peer_certificates()?;
    Some(certificates.first()?.to_vec())
}

fn der(pem: &str) -> Option<Vec<u8>> {
    Some(
        CertificateDer::from_pem_slice(pem.as_bytes())
            .unwrap()
            .to_vec(),
    )
}

/// Answers one request of a new connection, and says whom it showed and how.
async fn answer(
    peer: &Peer,
    acceptor: &TlsAcceptor,
) -> (TlsStream<TcpStream>, Option<Vec<u8>>, Option<HandshakeKind>) {
    let mut stream = acceptor.accept(peer.accept().await).await.unwrap();
    read_request(&mut stream).await.unwrap();
    stream.write_all(OK).await.unwrap();
    stream.flush().await.unwrap();
    let (shown, kind) = (shows(&stream), stream.get_ref().1.handshake_kind());
    (stream, shown, kind)
}

#[tokio::test]
async fn it_is_shown_to_a_receiver_that_demands_it() {
    let (peer, acceptor, sender) = (Peer::listen().await, demanding(), sender(8));
    let target = to(&peer, 1, Some(client()));
    let (response, (stream, shown, _)) =
        tokio::join!(send(&sender, &target), answer(&peer, &acceptor));
    assert_eq!(response.unwrap().status, 200);
    assert_eq!(shown, der(CLIENT));
    // The same connection again, and never for who shows something else.
    assert_eq!(sender.idle_connections(), 1);
    let other = to(&peer, 1, Some(identity(2, OTHER, OTHER_KEY)));
    let (response, (_other, shown, _)) =
        tokio::join!(send(&sender, &other), answer(&peer, &acceptor));
    assert_eq!(response.unwrap().status, 200);
    assert_eq!(shown, der(OTHER));
    assert_eq!(sender.idle_connections(), 2);
    drop(stream);
}

#[tokio::test]
async fn without_it_nobody_is_let_in() {
    let (peer, acceptor, sender) = (Peer::listen().await, demanding(), sender(8));
    let target = to(&peer, 1, None);
    let (result, accepted) = tokio::join!(send(&sender, &target), async {
        acceptor.accept(peer.accept().await).await.map(drop)
    });
    assert!(accepted.is_err(), "the handshake fails at the receiver");
    // Of TLS 1.3 the sender hears of it when it reads.
    let told = matches!(result, Err(SendError::Exchange(_) | SendError::Connect(_)));
    assert!(told, "{result:?}");
}

/// A ticket that was given to one certificate is not good for another destination's
/// connections, nor for those that show none.
#[tokio::test]
async fn sessions_are_resumed_under_the_same_certificate_alone() {
    let (peer, acceptor, sender) = (Peer::listen().await, demanding(), sender(0));
    let (full, resumed) = (Some(HandshakeKind::Full), Some(HandshakeKind::Resumed));
    for (destination, identity, shown, kind) in [
        (1, client(), CLIENT, full),
        (1, client(), CLIENT, resumed),
        // Another tenant's, with a certificate of its own.
        (2, identity(2, OTHER, OTHER_KEY), OTHER, full),
        // And one that has set the same certificate: as it says.
        (3, identity(3, CLIENT, CLIENT_KEY), CLIENT, full),
    ] {
        let target = to(&peer, destination, Some(identity));
        let (response, (_stream, showed, how)) =
            tokio::join!(send(&sender, &target), answer(&peer, &acceptor));
        assert_eq!(response.unwrap().status, 200);
        assert_eq!(showed, der(shown), "{destination}");
        assert_eq!(how, kind, "{destination}");
    }
    let target = to(&peer, 4, None);
    let (result, accepted) = tokio::join!(send(&sender, &target), async {
        acceptor.accept(peer.accept().await).await.map(drop)
    });
    assert!(
        accepted.is_err() && result.is_err(),
        "nobody's is not resumed"
    );
}

#[tokio::test]
async fn it_is_never_sent_in_the_clear() {
    let peer = Peer::listen().await;
    let target = Target {
        identity: Some(client()),
        ..peer.target(1)
    };
    let refused = sender(8).prepare(&target).await.err();
    assert!(
        matches!(refused, Some(SendError::Refused(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_receiver_that_is_asked_first_is_shown_it_too() {
    let (peer, acceptor, asker) = (Peer::listen().await, demanding(), sender(8));
    let target = to(&peer, 1, Some(client()));
    let question = Question {
        destination: target.destination,
        tenant: DEFAULT_TENANT,
        url: target.url,
        per_minute: None,
        identity: target.identity,
    };
    let (reply, (_stream, shown, _)) =
        tokio::join!(asker.ask(&question, PATIENT), answer(&peer, &acceptor));
    assert_eq!(reply.unwrap().status, 200);
    assert_eq!(shown, der(CLIENT));
}

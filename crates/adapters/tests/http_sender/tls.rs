//! Who is trusted, and who is not.

use std::sync::Arc;

use adapters::http::{HttpOptions, HttpSender};
use engine::ports::{SendError, Sender};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::TLS12;
use rustls::{HandshakeKind, SupportedProtocolVersion};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

use super::name_server::{NameServer, is};
use super::peer::{OK, Peer, SHORT, closed, options, read_request, send, sender, target};

/// A certificate for `localhost`, valid until 2120, and its key: worth nothing
/// to anybody, no host trusts it.
pub(crate) const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----
MIIBeDCCAR+gAwIBAgIUAoOkbJl9e99/oy8gjar/6hR2Fe4wCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNcGFjZWxpbmUgdGVzdDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIw
MDEwMTAwMDAwMFowGDEWMBQGA1UEAwwNcGFjZWxpbmUgdGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABLdzoxG5BpaIS4FozfSPa6gZtNd3F5a2hO/g1co7ocTj
/dd6bw3d+UmCiXG2x5PRcgLS/BKoX8eSdVemJ279+iKjRTBDMBQGA1UdEQQNMAuC
CWxvY2FsaG9zdDAMBgNVHRMBAf8EAjAAMB0GA1UdDgQWBBSUeIZMntOG7qvodymr
teNCfBPALjAKBggqhkjOPQQDAgNHADBEAiBy0BVLZex0sHl+EcJYoSjKF6ZYib7J
EijFL2+GMOtM1wIgFZ45m3zatGmYFMStfj+af95ziKtHczbxWURa94FMheA=
-----END CERTIFICATE-----";
pub(crate) const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZyBXrbPRFPfLj/+E
xOFYOOt+5icyE06tZLIFqRyHEjChRANCAAS3c6MRuQaWiEuBaM30j2uoGbTXdxeW
toTv4NXKO6HE4/3Xem8N3flJgolxtseT0XIC0vwSqF/HknVXpidu/foi
-----END PRIVATE KEY-----";

/// The same for `*.hooks.test`.
const MANY_NAMES: &[u8] = b"-----BEGIN CERTIFICATE-----
MIIBhTCCASugAwIBAgIBATAKBggqhkjOPQQDAjAmMSQwIgYDVQQDDBtwYWNlbGlu
ZSB0ZXN0IG9mIG1hbnkgbmFtZXMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEw
MDAwMDBaMCYxJDAiBgNVBAMMG3BhY2VsaW5lIHRlc3Qgb2YgbWFueSBuYW1lczBZ
MBMGByqGSM49AgEGCCqGSM49AwEHA0IABNpvpXhUuiAsjI6gytFk7E3KvA4MOOv6
Y2uJF/S+cuNF2nZjyr0jzHgvqXJscfZoiCv4RM2zoysymG/b787HI3CjSDBGMBcG
A1UdEQQQMA6CDCouaG9va3MudGVzdDAMBgNVHRMBAf8EAjAAMB0GA1UdDgQWBBSB
xXNEInhB4Q7ynow4FNTQ7WmQPjAKBggqhkjOPQQDAgNIADBFAiEAgJ5xLm/FddgA
4nNE2/TznBsXsJasJTHqx5Oc43B7ds8CIHPu5iOpeZDmTTjfqouW5O5kLOWZrkPE
3DckT1o1hhgm
-----END CERTIFICATE-----";
const MANY_NAMES_KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgcl6PQNSKe3Bn4+EA
6QUDABB1F+HukHHOZTX8D1m9I8yhRANCAATab6V4VLogLIyOoMrRZOxNyrwODDjr
+mNriRf0vnLjRdp2Y8q9I8x4L6lybHH2aIgr+ETNs6MrMphv2+/OxyNw
-----END PRIVATE KEY-----";

fn acceptor() -> TlsAcceptor {
    server_of(CERTIFICATE, KEY, WebPkiClientVerifier::no_client_auth())
}

/// One that asks who connects as this verifier says.
pub(crate) fn server_of(
    certificate: &[u8],
    key: &[u8],
    clients: Arc<dyn ClientCertVerifier>,
) -> TlsAcceptor {
    server_speaking(rustls::DEFAULT_VERSIONS, (certificate, key), clients)
}

fn server_speaking(
    versions: &[&'static SupportedProtocolVersion],
    certificate: (&[u8], &[u8]),
    clients: Arc<dyn ClientCertVerifier>,
) -> TlsAcceptor {
    let mut config = config(versions, certificate, clients);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// One that has the first certificate, and chooses among these protocols.
pub(crate) fn server_choosing(protocols: &[&[u8]]) -> TlsAcceptor {
    let nobody = WebPkiClientVerifier::no_client_auth();
    let mut config = config(rustls::DEFAULT_VERSIONS, (CERTIFICATE, KEY), nobody);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

fn config(
    versions: &[&'static SupportedProtocolVersion],
    (certificate, key): (&[u8], &[u8]),
    clients: Arc<dyn ClientCertVerifier>,
) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate).unwrap()],
            PrivateKeyDer::from_pem_slice(key).unwrap(),
        )
        .unwrap();
    // What a receiver forgets by itself is not what is asked here.
    config.session_storage = ServerSessionMemoryCache::new(4_096);
    config
}

#[tokio::test]
async fn a_trusted_certificate_is_accepted_and_its_connection_reused() {
    let peer = Peer::listen().await;
    let sender = HttpSender::new(HttpOptions {
        extra_roots: vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()],
        ..options()
    });
    sender.check_tls().unwrap();
    let target = target(1, &format!("https://localhost:{}/", peer.address().port()));
    let twice = async {
        send(&sender, &target).await?;
        send(&sender, &target).await
    };
    let (response, mut stream) = tokio::join!(twice, async {
        let mut stream = acceptor().accept(peer.accept().await).await.unwrap();
        for _ in 0..2 {
            read_request(&mut stream).await.unwrap();
            stream.write_all(OK).await.unwrap();
            stream.flush().await.unwrap();
        }
        stream
    });
    assert_eq!(&response.unwrap().body[..], b"ok");
    let (_, tls) = stream.get_ref();
    assert_eq!(tls.server_name(), Some("localhost"));
    assert_eq!(tls.alpn_protocol(), Some(&b"http/1.1"[..]));
    // A close that is announced is noticed like any other.
    stream.shutdown().await.unwrap();
    let (response, _stream) = tokio::join!(send(&sender, &target), async {
        let mut stream = acceptor().accept(peer.accept().await).await.unwrap();
        read_request(&mut stream).await.unwrap();
        stream.write_all(OK).await.unwrap();
        stream
    });
    assert_eq!(response.unwrap().status, 200);
}

/// Destinations that send so seldom that none of their connections stays open.
#[tokio::test]
async fn sessions_of_many_receivers_are_resumed() {
    resumed(200, rustls::DEFAULT_VERSIONS).await;
}

#[tokio::test]
async fn sessions_of_the_older_tls_are_resumed() {
    resumed(3, &[&TLS12]).await;
}

/// Sends twice to each of so many receivers that speak these versions of TLS.
async fn resumed(receivers: u128, versions: &[&'static SupportedProtocolVersion]) {
    let (peer, names) = (Peer::listen().await, NameServer::listen().await);
    let sender = HttpSender::new(HttpOptions {
        extra_roots: vec![CertificateDer::from_pem_slice(MANY_NAMES).unwrap()],
        name_servers: vec![names.address()],
        max_idle: 0,
        ..options()
    });
    // Its tickets are good for this acceptor alone.
    let nobody = WebPkiClientVerifier::no_client_auth();
    let acceptor = server_speaking(versions, (MANY_NAMES, MANY_NAMES_KEY), nobody);
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        for receiver in 0..receivers {
            let host = format!("r{receiver}.hooks.test");
            names.says(&host, [is(&["127.0.0.1"])]);
            let port = peer.address().port();
            let target = target(receiver, &format!("https://{host}:{port}/"));
            let (response, kind) = tokio::join!(send(&sender, &target), async {
                let mut stream = acceptor.accept(peer.accept().await).await.unwrap();
                read_request(&mut stream).await.unwrap();
                stream.write_all(OK).await.unwrap();
                stream.flush().await.unwrap();
                stream.get_ref().1.handshake_kind()
            });
            assert_eq!(response.unwrap().status, 200);
            assert_eq!(kind, Some(expected), "{host}");
        }
    }
}

#[tokio::test]
async fn certificates_are_verified() {
    let root = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    for (host, extra_roots) in [("localhost", vec![]), ("127.0.0.1", vec![root])] {
        let peer = Peer::listen().await;
        let sender = HttpSender::new(HttpOptions {
            extra_roots,
            ..options()
        });
        let target = target(1, &format!("https://{host}:{}/", peer.address().port()));
        let (result, handshake) = tokio::join!(sender.prepare(&target), async {
            acceptor().accept(peer.accept().await).await
        });
        let error = result.err();
        assert!(
            matches!(error, Some(SendError::Connect(_))),
            "{host}: {error:?}"
        );
        assert!(handshake.is_err(), "{host}");
    }
}

#[tokio::test]
async fn tls_against_a_plain_server_is_a_connect_error() {
    let peer = Peer::listen().await;
    let (sender, target) = (sender(), target(1, &format!("https://{}/", peer.address())));
    let (result, ()) = tokio::join!(sender.prepare(&target), async {
        let mut stream = peer.accept().await;
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        closed(stream).await;
    });
    let error = result.err();
    assert!(matches!(error, Some(SendError::Connect(_))), "{error:?}");
}

#[tokio::test]
async fn a_silent_tls_server_times_out() {
    let peer = Peer::listen().await;
    let (sender, mut target) = (sender(), target(1, &format!("https://{}/", peer.address())));
    target.timeout = SHORT;
    let (result, stream) = tokio::join!(sender.prepare(&target), peer.accept());
    assert_eq!(result.err(), Some(SendError::TimedOut(SHORT)));
    closed(stream).await;
}

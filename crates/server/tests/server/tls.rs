//! The API's own TLS: which files it takes, and their renewal.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use crate::process::{Server, free_port, paceline, poll};

/// A certificate for `localhost`, valid until 2120, and its key: worth nothing
/// to anybody, no host trusts it.
pub(crate) const ONE: [&str; 2] = [
    "-----BEGIN CERTIFICATE-----
MIIBeDCCAR+gAwIBAgIUAoOkbJl9e99/oy8gjar/6hR2Fe4wCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNcGFjZWxpbmUgdGVzdDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIw
MDEwMTAwMDAwMFowGDEWMBQGA1UEAwwNcGFjZWxpbmUgdGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABLdzoxG5BpaIS4FozfSPa6gZtNd3F5a2hO/g1co7ocTj
/dd6bw3d+UmCiXG2x5PRcgLS/BKoX8eSdVemJ279+iKjRTBDMBQGA1UdEQQNMAuC
CWxvY2FsaG9zdDAMBgNVHRMBAf8EAjAAMB0GA1UdDgQWBBSUeIZMntOG7qvodymr
teNCfBPALjAKBggqhkjOPQQDAgNHADBEAiBy0BVLZex0sHl+EcJYoSjKF6ZYib7J
EijFL2+GMOtM1wIgFZ45m3zatGmYFMStfj+af95ziKtHczbxWURa94FMheA=
-----END CERTIFICATE-----",
    "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZyBXrbPRFPfLj/+E
xOFYOOt+5icyE06tZLIFqRyHEjChRANCAAS3c6MRuQaWiEuBaM30j2uoGbTXdxeW
toTv4NXKO6HE4/3Xem8N3flJgolxtseT0XIC0vwSqF/HknVXpidu/foi
-----END PRIVATE KEY-----",
];

/// Another.
const TWO: [&str; 2] = [
    "-----BEGIN CERTIFICATE-----
MIIBajCCARCgAwIBAgIBATAKBggqhkjOPQQDAjAaMRgwFgYDVQQDDA9wYWNlbGlu
ZSB0ZXN0IDIwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBoxGDAW
BgNVBAMMD3BhY2VsaW5lIHRlc3QgMjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BPgmbAXpqKxNcurKdXoCcN+FGGOtw58xr9jggdyWSUqO5tLnkj1MOec9IOkZXQr8
n6rQV+ZubGs96gdFpC7RPxOjRTBDMBQGA1UdEQQNMAuCCWxvY2FsaG9zdDAMBgNV
HRMBAf8EAjAAMB0GA1UdDgQWBBQg5kopEjqgpKHlglQocdISS0SMBDAKBggqhkjO
PQQDAgNIADBFAiEA3QY2hcshnq7j/liZJJB64+z6W+/Y+8HtFGg0Pj/pKnUCIBlI
5y3cOEF5/Xk3ev5MNH+zHcMNeokKzrH4aTKFbj0h
-----END CERTIFICATE-----",
    "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgbBoaL9U8HFyfNoIf
HX4hm0mLA7srXFtP0pRN5Hl/W/ihRANCAAT4JmwF6aisTXLqynV6AnDfhRhjrcOf
Ma/Y4IHclklKjubS55I9TDnnPSDpGV0K/J+q0FfmbmxrPeoHRaQu0T8T
-----END PRIVATE KEY-----",
];

pub(crate) fn write(folder: &Path, [certificate, key]: [&str; 2]) {
    fs::write(folder.join("tls.crt"), certificate).unwrap();
    fs::write(folder.join("tls.key"), key).unwrap();
}

fn serve(folder: &Path, port: u16) -> Server {
    let mut command = paceline(folder);
    let command = command
        .args(["--log", "warn", "serve", "--listen"])
        .arg(format!("127.0.0.1:{port}"))
        .args(["--tls-cert", "tls.crt", "--tls-key", "tls.key"])
        .stdout(Stdio::null());
    Server::of(command)
}

/// What `/livez` answers to somebody who trusts this certificate alone.
async fn asked(port: u16, trusted: &str) -> Option<String> {
    let root = CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap();
    let config = adapters::http::tls_config(vec![root]).unwrap();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .ok()?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.ok()?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[test]
fn it_is_spoken_renewed_and_no_reason_to_stay() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asks = |port, [certificate, _]: [&str; 2]| runtime.block_on(asked(port, certificate));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, ONE);
    let port = free_port();
    let server = serve(folder, port);
    let answer = poll("it answers", || asks(port, ONE));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(asks(port, TWO), None, "it is not that one");

    let listed = paceline(folder)
        .env("SSL_CERT_FILE", folder.join("tls.crt"))
        .args(["destination", "list", "--url"])
        .arg(format!("https://localhost:{port}"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "{error}");

    is_listed_by_its_authority(folder, port);

    // Half of a renewal changes nothing.
    fs::write(folder.join("tls.crt"), TWO[0]).unwrap();
    server.signal(Signal::HUP);
    assert!(asks(port, ONE).is_some());
    fs::write(folder.join("tls.key"), TWO[1]).unwrap();
    poll("it is renewed", || {
        // Again each time: the half may be read after the whole was written.
        server.signal(Signal::HUP);
        asks(port, TWO)
    });
    assert_eq!(asks(port, ONE), None);

    // Somebody who does not get to the end of a handshake.
    let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stranger.write_all(&[0x16, 0x03, 0x01]).unwrap();
    assert_eq!(server.stop(), Some(0), "drained");
}

/// By an authority of one's own, named by the flag or by its variable; by none, and by
/// another, nothing is sent.
fn is_listed_by_its_authority(folder: &Path, port: u16) {
    let list = |ca_file: Option<&str>| {
        let mut command = paceline(folder);
        command.args(["destination", "list", "--url"]);
        command.arg(format!("https://localhost:{port}"));
        command.envs(ca_file.map(|file| ("PACELINE_CA_FILE", file)));
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    fs::write(folder.join("two.crt"), TWO[0]).unwrap();
    assert_eq!(list(Some("tls.crt")), (Some(0), String::new()));
    for other in [None, Some("two.crt")] {
        let (code, error) = list(other);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("by --ca-file (PACELINE_CA_FILE)"), "{error}");
    }
    let by_flag = paceline(folder)
        .args(["destination", "list", "--ca-file", "tls.crt", "--url"])
        .arg(format!("https://localhost:{port}"))
        .output()
        .unwrap();
    assert!(by_flag.status.success(), "{by_flag:?}");
}

#[track_caller]
fn refused(folder: &Path, arguments: &[&str], says: &[&str]) {
    let output = paceline(folder)
        .args(["--log", "off", "serve"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    for word in says {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_at_the_start_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, [ONE[0], TWO[1]]);
    fs::write(folder.join("text"), "no certificate").unwrap();
    let both = |certificate, key| ["--tls-cert", certificate, "--tls-key", key];
    let cert = "--tls-cert (PACELINE_TLS_CERT)";
    let key = "--tls-key (PACELINE_TLS_KEY)";
    refused(folder, &["--tls-cert", "tls.crt"], &[key, "set it too"]);
    refused(folder, &["--tls-key", "tls.key"], &[cert, "set it too"]);
    refused(
        folder,
        &both("none", "tls.key"),
        &[cert, "none: cannot be read"],
    );
    refused(
        folder,
        &both("tls.crt", "none"),
        &[key, "none: cannot be read"],
    );
    refused(
        folder,
        &both("text", "tls.key"),
        &[cert, "has no certificate"],
    );
    refused(
        folder,
        &both("tls.crt", "text"),
        &[key, "has no private key"],
    );
    let mismatch = "is not the key of the certificate in tls.crt";
    refused(folder, &both("tls.crt", "tls.key"), &[key, mismatch]);
}

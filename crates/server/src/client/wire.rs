//! One request and its answer, on a connection of its own: in clear, or over TLS by the
//! roots of this host and those of a file.
//!
//! It knows no API: whoever asks one says what a URL is called, and what an answer means.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{StatusCode, header, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

use crate::config::ConfigError;

/// The largest answer that is read: a full page of attempts with their bodies.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// What the refusal of a URL is told in.
pub(crate) struct Words {
    /// What it is called: its flag, and its variable.
    pub(crate) url: &'static str,
    /// Where the key belongs.
    pub(crate) key: &'static str,
    /// Where the API is on its host.
    pub(crate) place: &'static str,
}

/// Where an API is, and how it is spoken with.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Without a path.
    pub(crate) url: Url,
    /// Authorities to trust besides the host's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether the key may go in clear to another machine.
    pub(crate) insecure_http: bool,
}

/// The way there.
#[derive(Clone)]
pub(crate) struct Wire {
    url: Url,
    /// What the URL is called.
    called: &'static str,
    authority: String,
    /// For `https`.
    tls: Option<TlsConnector>,
}

/// An answer, whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// When it may go better, if that is said.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

impl Wire {
    /// Refuses a URL that no key may be sent to; dials nothing yet.
    pub(crate) fn new(place: Place, words: &Words) -> anyhow::Result<Self> {
        let host = checked(&place, words)?;
        let port = place.url.port_or_known_default().unwrap_or(80);
        Ok(Self {
            tls: match place.url.scheme() {
                "https" => Some(connector(place.ca_file.as_deref())?),
                _ => None,
            },
            authority: format!("{host}:{port}"),
            called: words.url,
            url: place.url,
        })
    }

    /// Where the API is.
    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    /// Opens a connection for one request.
    pub(crate) async fn dial(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(&self.authority).await
    }

    /// Sends one request over it, and waits for the answer.
    pub(crate) async fn exchange(
        &self,
        stream: TcpStream,
        key: &SecretString,
        (request, body): (request::Builder, Bytes),
    ) -> anyhow::Result<Answer> {
        let request = request
            .header(header::HOST, &self.authority)
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", key.expose_secret()),
            )
            .body(Full::new(body))
            .with_context(|| format!("the key or {} cannot be sent as it is", self.called))?;
        match &self.tls {
            Some(tls) => speak(self.over_tls(tls, stream).await?, request).await,
            None => speak(stream, request).await,
        }
    }

    async fn over_tls(
        &self,
        connector: &TlsConnector,
        stream: TcpStream,
    ) -> anyhow::Result<TlsStream<TcpStream>> {
        let host = self.url.host_str().unwrap_or_default();
        let name = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let name =
            ServerName::try_from(name).with_context(|| format!("{}: its host", self.called))?;
        connector.connect(name, stream).await.with_context(|| {
            format!(
                "speak TLS with {}: where its authority is one of your own, name its certificate \
                 by --ca-file (PACELINE_CA_FILE)",
                self.url
            )
        })
    }
}

async fn speak<S>(stream: S, request: http::Request<Full<Bytes>>) -> anyhow::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .context("speak HTTP")?;
    let exchange = async {
        let response = sender
            .send_request(request)
            .await
            .context("send the request")?;
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
        let body = body.collect().await.map_err(anyhow::Error::from_boxed);
        Ok(Answer {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            body: body.context("read the answer")?.to_bytes(),
        })
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        ended = &mut connection => {
            ended.context("the connection broke")?;
            exchange.await
        }
    }
}

/// Its host, if keys may be sent there: refused before anything is dialled.
pub(crate) fn checked<'a>(place: &'a Place, words: &Words) -> Result<&'a str, ConfigError> {
    let url = &place.url;
    let refused = |problem: String| {
        Err(ConfigError {
            name: words.url.to_owned(),
            problem,
        })
    };
    if !matches!(url.scheme(), "http" | "https") {
        return refused("must begin with http:// or https://".to_owned());
    }
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
        return refused("has no host".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() {
        let key = words.key;
        return refused(format!(
            "must have no user and no password: the key goes into {key}"
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refused("must have no query: leave out what follows `?` or `#`".to_owned());
    }
    if url.path() != "/" {
        let (path, place) = (url.path(), words.place);
        return refused(format!("must have no path, leave out {path}: {place}"));
    }
    if url.scheme() == "http" && !is_local(url) && !place.insecure_http {
        return refused(format!(
            "the key would go in clear to {host}: use https://{host}, or say --insecure-http \
             (PACELINE_INSECURE_HTTP) if nobody else is on the network between"
        ));
    }
    Ok(host)
}

fn connector(ca_file: Option<&Path>) -> anyhow::Result<TlsConnector> {
    let roots = match ca_file {
        Some(file) => authorities(file)?,
        None => Vec::new(),
    };
    let tls = adapters::http::tls_config(roots).context("trust this host's roots")?;
    Ok(TlsConnector::from(Arc::new(tls)))
}

pub(crate) fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let refused = |problem: &dyn std::fmt::Display| {
        ConfigError::flag("ca-file", format!("{}: {problem}", file.display()))
    };
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(refused(&"has no certificate in PEM")),
        Ok(found) => Ok(found),
        Err(error) => Err(refused(&error)),
    }
}

pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

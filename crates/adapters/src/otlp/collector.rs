//! The way to the collector: one request on one connection. There is one a
//! second at most, and a connection that is kept is one more thing that breaks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use url::Url;

use super::OtlpError;
use crate::http::tls_config;

/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Where it is.
#[derive(Clone)]
pub(super) struct Collector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
    /// Requests are asked for on a thread without one.
    runtime: Handle,
}

/// Without the host: it may be nobody's business.
impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Collector {
    pub(super) fn new(url: &Url, timeout: Duration) -> Result<Self, OtlpError> {
        let refuse = |problem: &str| OtlpError(problem.to_owned());
        let host = url.host_str().ok_or_else(|| refuse("has no host"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("must have no user or password: use headers"));
        }
        let tls = match url.scheme() {
            "http" => None,
            "https" => {
                let config = tls_config(Vec::new())
                    .map_err(|_detail| refuse("needs root certificates, and there are none"))?;
                let name = ServerName::try_from(host.clone())
                    .map_err(|_invalid| refuse("has no host that a certificate could name"))?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
            _ => return Err(refuse("must be http or https")),
        };
        let port = url.port_or_known_default().unwrap_or(4318);
        let runtime = Handle::try_current().map_err(|_none| refuse("needs a runtime"))?;
        Ok(Self {
            host,
            port,
            tls,
            timeout,
            runtime,
        })
    }

    async fn exchange(self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        match self.tls {
            Some((connector, name)) => over(connector.connect(name, tcp).await?, request).await,
            None => over(tcp, request).await,
        }
    }
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (mut parts, body) = request.into_parts();
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let host = http::HeaderValue::from_str(authority.unwrap_or_default())?;
    parts.headers.insert(header::HOST, host);
    let path = parts.uri.path_and_query().map(|path| path.as_str());
    parts.uri = path.unwrap_or("/").parse()?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let sent = sender.send_request(Request::from_parts(parts, Full::new(body)));
    let answered = async {
        let (parts, body) = sent.await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        // It ends when the answer is there, or breaks.
        _ = connection => answered.await,
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (collector, timeout) = (self.clone(), self.timeout);
        let exchange =
            async move { tokio::time::timeout(timeout, collector.exchange(request)).await };
        let exchange = self.runtime.spawn(exchange).await;
        match exchange {
            Ok(Ok(answer)) => answer,
            Ok(Err(_elapsed)) => Err("timed out".into()),
            Err(_stopped) => Err("the process ends".into()),
        }
    }
}

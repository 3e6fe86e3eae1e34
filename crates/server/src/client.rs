//! A small client of the API, for the command line.
//!
//! One connection per request, over TLS for `https`, by the roots of this host and those
//! of `--ca-file`. A key goes in clear to this machine alone, unless `--insecure-http` is
//! said. What is not said comes from a [`crate::profile`]. Errors say what to do
//! next.

mod settled;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

use crate::api::acting;
use crate::api::problem::Problem;
use crate::api_key;
use crate::config::ConfigError;
use crate::profile;
use crate::service::rules;
use settled::Settled;

/// How long a whole request may take: a little more than the server gives it.
const TIMEOUT: Duration = Duration::from_secs(35);

/// How long a bulk body may take: the API reads it as fast as its tenant may
/// send, and each of its commits waits up to a minute for that.
const BULK_TIMEOUT: Duration = Duration::from_secs(200);

/// The largest answer that is read: a full page of attempts with their bodies.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

const JSON: &str = "application/json";

const NDJSON: &str = "application/x-ndjson";

/// The key that `paceline serve` made at its first start here.
const LOCAL_KEY_FILE: &str = "paceline.db.key";

/// Where the API is, and the key to it.
#[derive(Debug, Clone, Args)]
pub struct ClientConfig {
    /// What `paceline login` has kept under this name: fills in what is not said by the
    /// flags and variables below. Without --url and --api-key it is `default`, if there
    /// is one.
    #[arg(long, env = "PACELINE_PROFILE", value_name = "NAME", value_parser = profile::name)]
    pub profile: Option<String>,

    /// The API to talk to: http:// or https:// and a host [default, without a profile:
    /// http://127.0.0.1:8080]
    #[arg(long, env = "PACELINE_URL", value_name = "URL")]
    pub url: Option<Url>,

    /// The API's key; without one, for an API on this machine, the one that
    /// `paceline serve` keeps in ./paceline.db.key.
    #[arg(
        long,
        env = "PACELINE_API_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub api_key: Option<SecretString>,

    /// The tenant to act for, by its id or its external id: with a key of the scope
    /// `platform`.
    #[arg(
        id = "acting_for",
        long = "tenant",
        env = "PACELINE_TENANT",
        value_name = "TENANT"
    )]
    pub tenant: Option<String>,

    /// Certificates of authorities to trust beside those that this host trusts, in PEM.
    #[arg(long, env = "PACELINE_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Send the key in clear to another machine, to an http:// URL: where nobody else
    /// is on the network between.
    #[arg(long, env = "PACELINE_INSECURE_HTTP", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(value_parser = BoolishValueParser::new())]
    pub insecure_http: bool,
}

/// A client of one API.
pub struct Client {
    /// Without a path.
    url: Url,
    authority: String,
    key: SecretString,
    /// Whom it acts for.
    tenant: Option<String>,
    /// The profile that has the key.
    profile: Option<String>,
    /// For `https`.
    tls: Option<TlsConnector>,
}

/// What the API said no with.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub struct Refused {
    /// The HTTP status.
    pub status: StatusCode,
    said: String,
}

impl Client {
    /// From its configuration; dials nothing yet.
    pub fn new(config: &ClientConfig) -> anyhow::Result<Self> {
        Self::to(Settled::of(config)?)
    }

    fn to(config: Settled) -> anyhow::Result<Self> {
        let host = checked(&config)?;
        let port = config.url.port_or_known_default().unwrap_or(80);
        let key = match &config.api_key {
            Some(key) => Some(key.clone()),
            // Only to this machine: it is this machine's key.
            None if is_local(&config.url) => {
                api_key::read(Path::new(LOCAL_KEY_FILE)).context("read ./paceline.db.key")?
            }
            None => None,
        };
        Ok(Self {
            tls: match config.url.scheme() {
                "https" => Some(connector(&config)?),
                _ => None,
            },
            authority: format!("{host}:{port}"),
            key: key.context(
                "no API key: set PACELINE_API_KEY to the server's, or keep it by `paceline login` \
                 (or run this where `paceline serve` has left its paceline.db.key)",
            )?,
            url: config.url,
            tenant: config.tenant,
            profile: config.profile,
        })
    }

    /// The same for what no tenant is: the header that names one would leave the key
    /// without `admin`.
    pub fn administering(config: &ClientConfig) -> anyhow::Result<Self> {
        Ok(Self {
            tenant: None,
            ..Self::new(config)?
        })
    }

    /// Where the API is.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Whether the key is good: an error if not. It may be one for other things than
    /// to look, which is then said.
    pub async fn try_key(&self) -> anyhow::Result<Option<String>> {
        let (method, nothing) = (Method::GET, Bytes::new());
        match self.request(method, "/v1/events?limit=1", nothing).await {
            Ok(_page) => Ok(None),
            Err(error) => match error.downcast_ref::<Refused>() {
                Some(refused)
                    if refused.status == StatusCode::FORBIDDEN && self.tenant.is_none() =>
                {
                    Ok(Some(
                        "the key is good, but it has not the scope `read`".to_owned(),
                    ))
                }
                _ => Err(error),
            },
        }
    }

    /// POSTs NDJSON and gets NDJSON.
    pub async fn post_lines(&self, path: &str, lines: Bytes) -> anyhow::Result<Bytes> {
        self.request_of((Method::POST, NDJSON), path, lines).await
    }

    /// GETs JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let answer = self.request(Method::GET, path, Bytes::new()).await?;
        parsed(&answer)
    }

    /// Sends JSON and gets JSON.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> anyhow::Result<T> {
        let body = serde_json::to_vec(body).context("write the request as JSON")?;
        let answer = self.request(method, path, Bytes::from(body)).await?;
        parsed(&answer)
    }

    /// POSTs nothing, and gets nothing.
    pub async fn post(&self, path: &str) -> anyhow::Result<()> {
        self.request(Method::POST, path, Bytes::new())
            .await
            .map(drop)
    }

    /// DELETEs.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.request(Method::DELETE, path, Bytes::new())
            .await
            .map(drop)
    }

    async fn request(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        self.request_of((method, JSON), path, body).await
    }

    async fn request_of(
        &self,
        what: (Method, &'static str),
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Bytes> {
        let patience = match what.1 {
            NDJSON => BULK_TIMEOUT,
            _ => TIMEOUT,
        };
        let exchange = self.exchange(what, path, body);
        let (status, answer) = tokio::time::timeout(patience, exchange)
            .await
            .with_context(|| format!("no answer from {} within {patience:?}", self.url))??;
        if status.is_success() {
            return Ok(answer);
        }
        let said = self.refused(status, &answer);
        bail!(Refused { status, said })
    }

    async fn exchange(
        &self,
        (method, content_type): (Method, &'static str),
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(&self.authority).await.with_context(|| {
            format!(
                "cannot reach the API at {}: start it with `paceline serve`, or set PACELINE_URL",
                self.url
            )
        })?;
        if let Some(tls) = &self.tls {
            let stream = self.over_tls(tls, stream).await?;
            return self.speak(stream, (method, content_type), path, body).await;
        }
        self.speak(stream, (method, content_type), path, body).await
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
        let name = ServerName::try_from(name).context("--url (PACELINE_URL): its host")?;
        connector.connect(name, stream).await.with_context(|| {
            format!(
                "speak TLS with {}: where its authority is one of your own, name its certificate \
                 by --ca-file (PACELINE_CA_FILE)",
                self.url
            )
        })
    }

    async fn speak<S>(
        &self,
        stream: S,
        (method, content_type): (Method, &'static str),
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .context("speak HTTP")?;
        let mut request = Request::builder().method(method).uri(path);
        if let Some(tenant) = &self.tenant {
            request = request.header(acting::HEADER, tenant);
        }
        let request = request
            .header(header::HOST, &self.authority)
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", self.key.expose_secret()),
            )
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::new(body))
            .context(
                "--api-key (PACELINE_API_KEY), --tenant or --url cannot be sent as they are",
            )?;
        let exchange = async {
            let response = sender
                .send_request(request)
                .await
                .context("send the request")?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
            let answer = body.collect().await.map_err(anyhow::Error::from_boxed);
            Ok((status, answer.context("read the answer")?.to_bytes()))
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

    fn refused(&self, status: StatusCode, answer: &[u8]) -> String {
        let Ok(problem) = serde_json::from_slice::<Problem>(answer) else {
            return format!(
                "{} answered {status} and is no Paceline API: check PACELINE_URL",
                self.url
            );
        };
        let request =
            (problem.request_id).map_or_else(String::new, |id| format!(" (request {id})"));
        let said = match (status, problem.field) {
            (StatusCode::UNAUTHORIZED, _) if self.profile.is_some() => format!(
                "{} refused the API key of the profile {name}: `paceline login --profile {name}` \
                 keeps another",
                self.url,
                name = self.profile.as_deref().unwrap_or_default(),
            ),
            (StatusCode::UNAUTHORIZED, _) => format!(
                "{} refused the API key: set PACELINE_API_KEY to the one it was started with, or to \
                 one that `paceline key create` printed",
                self.url
            ),
            (StatusCode::TOO_MANY_REQUESTS, _) => {
                let seconds = problem.retry_after_seconds.unwrap_or(1);
                format!(
                    "{}: {}; try again in {seconds} s",
                    problem.title, problem.detail
                )
            }
            (StatusCode::FORBIDDEN, _) => format!(
                "{}: {}; set PACELINE_API_KEY to a key that has it (`paceline key create` makes one){}",
                problem.title,
                problem.detail,
                match self.tenant {
                    Some(_) => ", or leave out --tenant (PACELINE_TENANT)",
                    None => "",
                }
            ),
            (StatusCode::NOT_FOUND, None) => format!(
                "{}: {}; a key sees its own tenant's things, and `list` shows their ids",
                problem.title, problem.detail
            ),
            (_, Some(field)) => {
                let log = match problem.detail.starts_with(rules::NOT_OPEN) && is_local(&self.url) {
                    true => "; the server's log has the flag that opens it",
                    false => "",
                };
                format!("{}: {field}: {}{log}", problem.title, problem.detail)
            }
            (_, None) => format!("{}: {}", problem.title, problem.detail),
        };
        said + &request
    }
}

/// Where it is said that the API is, if keys may be sent there. Profiles do not count.
pub(crate) fn checked_url(config: &ClientConfig) -> Result<Url, ConfigError> {
    let settled = Settled::by(config, None)?;
    checked(&settled)?;
    Ok(settled.url)
}

/// Its host, if keys may be sent there: refused before anything is dialled.
fn checked(config: &Settled) -> Result<&str, ConfigError> {
    let url = &config.url;
    let refused = |problem: String| Err(ConfigError::flag("url", problem));
    if !matches!(url.scheme(), "http" | "https") {
        return refused("must begin with http:// or https://".to_owned());
    }
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
        return refused("has no host".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() {
        let problem = "must have no user and no password: the key goes into PACELINE_API_KEY";
        return refused(problem.to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refused("must have no query: leave out what follows `?` or `#`".to_owned());
    }
    if url.path() != "/" {
        let path = url.path();
        return refused(format!(
            "must have no path, leave out {path}: the API is at /v1 of its host"
        ));
    }
    if url.scheme() == "http" && !is_local(url) && !config.insecure_http {
        return refused(format!(
            "the key would go in clear to {host}: use https://{host}, or say --insecure-http \
             (PACELINE_INSECURE_HTTP) if nobody else is on the network between"
        ));
    }
    Ok(host)
}

fn connector(config: &Settled) -> anyhow::Result<TlsConnector> {
    let roots = match &config.ca_file {
        Some(file) => authorities(file)?,
        None => Vec::new(),
    };
    let tls = adapters::http::tls_config(roots).context("trust this host's roots")?;
    Ok(TlsConnector::from(Arc::new(tls)))
}

fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
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

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn parsed<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(answer)
        .context("the answer is not what this version of paceline expects")
}

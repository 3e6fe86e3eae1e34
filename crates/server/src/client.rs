//! A small client of the API, for the command line.
//!
//! One connection per request, over TLS for `https`, by the roots of this host and those
//! of `--ca-file`. A key goes in clear to this machine alone, unless `--insecure-http` is
//! said. What is not said comes from a [`crate::profile`]. Errors say what to do
//! next.

mod patience;
mod settled;
pub(crate) mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use domain::shard::ShardName;
use http::{Method, Request, StatusCode, header};
use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;
use uuid::Uuid;

use crate::api::acting;
use crate::api::problem::Problem;
use crate::api_key;
use crate::config::ConfigError;
use crate::profile;
use crate::router;
use crate::service::rules;
pub use patience::Refused;
pub(crate) use patience::{absent, patiently, status};
use settled::Settled;
use wire::{Answer, Wire, Words, is_local};

/// How long a whole request may take: a little more than the server gives it.
const TIMEOUT: Duration = Duration::from_secs(35);

/// How long a bulk body may take: the API reads it as fast as its tenant may
/// send, and each of its commits waits up to a minute for that.
const BULK_TIMEOUT: Duration = Duration::from_secs(200);

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

    /// The shard to ask, where `paceline router` stands before several and neither the
    /// key nor a tenant says which.
    #[arg(long, env = "PACELINE_SHARD", value_name = "NAME")]
    pub shard: Option<ShardName>,

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
#[derive(Clone)]
pub struct Client {
    wire: Wire,
    key: SecretString,
    /// Whom it acts for.
    tenant: Option<String>,
    /// Which of several shards it asks.
    shard: Option<ShardName>,
    /// The profile that has the key.
    profile: Option<String>,
}

impl Client {
    /// From its configuration; dials nothing yet.
    pub fn new(config: &ClientConfig) -> anyhow::Result<Self> {
        Self::to(Settled::of(config)?)
    }

    fn to(config: Settled) -> anyhow::Result<Self> {
        let key = match &config.api_key {
            Some(key) => Some(key.clone()),
            // Only to this machine: it is this machine's key.
            None if is_local(&config.url) => {
                api_key::read(Path::new(LOCAL_KEY_FILE)).context("read ./paceline.db.key")?
            }
            None => None,
        };
        Ok(Self {
            wire: Wire::new(config.place(), &API)?,
            key: key.context(
                "no API key: set PACELINE_API_KEY to the server's, or keep it by `paceline login` \
                 (or run this where `paceline serve` has left its paceline.db.key)",
            )?,
            tenant: config.tenant,
            shard: config.shard,
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

    /// The same for what this tenant has, by its id: with a key of the scope `platform`.
    #[must_use]
    pub fn acting_for(&self, tenant: Uuid) -> Self {
        Self {
            tenant: Some(tenant.to_string()),
            ..self.clone()
        }
    }

    /// Where the API is.
    #[must_use]
    pub const fn url(&self) -> &Url {
        self.wire.url()
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

    /// GETs JSON of what may not be there.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        absent(self.get(path).await)
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
        let answer = tokio::time::timeout(patience, exchange)
            .await
            .with_context(|| format!("no answer from {} within {patience:?}", self.url()))??;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let said = self.refused(answer.status, &answer.body);
        bail!(answer.refused(said))
    }

    async fn exchange(
        &self,
        (method, content_type): (Method, &'static str),
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Answer> {
        let url = self.url();
        let stream = self.wire.dial().await.with_context(|| {
            format!(
                "cannot reach the API at {url}: start it with `paceline serve`, or set PACELINE_URL"
            )
        })?;
        let mut request = Request::builder().method(method).uri(path);
        if let Some(tenant) = &self.tenant {
            request = request.header(acting::HEADER, tenant);
        }
        if let Some(shard) = &self.shard {
            request = request.header(router::HEADER, shard.as_str());
        }
        request = request.header(header::CONTENT_TYPE, content_type);
        self.wire.exchange(stream, &self.key, (request, body)).await
    }

    fn refused(&self, status: StatusCode, answer: &[u8]) -> String {
        let Ok(problem) = serde_json::from_slice::<Problem>(answer) else {
            return format!(
                "{} answered {status} and is no Paceline API: check PACELINE_URL",
                self.url()
            );
        };
        let request =
            (problem.request_id).map_or_else(String::new, |id| format!(" (request {id})"));
        let said = match (status, problem.field) {
            (StatusCode::UNAUTHORIZED, _) if self.profile.is_some() => format!(
                "{} refused the API key of the profile {name}: `paceline login --profile {name}` \
                 keeps another",
                self.url(),
                name = self.profile.as_deref().unwrap_or_default(),
            ),
            (StatusCode::UNAUTHORIZED, _) => format!(
                "{} refused the API key: set PACELINE_API_KEY to the one it was started with, or to \
                 one that `paceline key create` printed",
                self.url()
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
                let log = match problem.detail.starts_with(rules::NOT_OPEN) && is_local(self.url())
                {
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
    wire::checked(&settled.place(), &API)?;
    Ok(settled.url)
}

/// What its URL is called, and is told of.
const API: Words = Words {
    url: "--url (PACELINE_URL)",
    key: "PACELINE_API_KEY",
    place: "the API is at /v1 of its host",
};

fn parsed<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(answer)
        .context("the answer is not what this version of paceline expects")
}

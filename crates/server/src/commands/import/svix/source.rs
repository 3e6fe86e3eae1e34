//! Svix's API, as far as it is read: lists page by page, and what is 429 again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::client::wire::{Answer, Place, Wire, Words};
use crate::client::{absent, patiently};
use crate::hidden::Hidden;
use crate::output::shortened;

/// The most rows that it gives at once.
const PAGE: &str = "250";

/// So many pages of a list are read: a quarter of a million things.
const MAX_PAGES: usize = 1_000;

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(35);

/// How much of what it says of an error is repeated.
const MAX_SAID: usize = 200;

const WORDS: Words = Words {
    url: "--svix-url (PACELINE_SVIX_URL)",
    key: "SVIX_AUTH_TOKEN",
    place: "the API is at /api/v1 of its host",
};

/// An application: whose endpoints they are.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Application {
    pub(super) id: String,
    pub(super) uid: Option<String>,
    pub(super) name: String,
    pub(super) throttle_rate: Option<u32>,
    /// What the former was called before.
    pub(super) rate_limit: Option<u32>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, Value>,
}

/// An endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint {
    pub(super) id: String,
    pub(super) uid: Option<String>,
    pub(super) url: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) disabled: Option<bool>,
    /// Without any: all of them.
    pub(super) event_types: Option<Vec<String>>,
    /// What the former was called before.
    pub(super) filter_types: Option<Vec<String>>,
    pub(super) channels: Option<Vec<String>>,
    /// Messages a second.
    pub(super) throttle_rate: Option<u32>,
    /// What the former was called before.
    pub(super) rate_limit: Option<u32>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, Value>,
}

/// The headers that an endpoint adds.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Headers {
    pub(super) headers: BTreeMap<String, Hidden>,
    /// Names of those whose values it gives to nobody.
    #[serde(default)]
    pub(super) sensitive: Vec<String>,
}

/// A type of events.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventType {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) archived: Option<bool>,
    pub(super) deprecated: Option<bool>,
    /// By their versions.
    pub(super) schemas: Option<BTreeMap<String, Value>>,
    pub(super) feature_flag: Option<String>,
}

#[derive(Deserialize)]
struct Page<T> {
    data: Vec<T>,
    done: bool,
    iterator: Option<String>,
}

#[derive(Deserialize)]
struct Secret {
    key: Hidden,
}

#[derive(Deserialize)]
struct Transformation {
    enabled: Option<bool>,
}

/// What it says of an error.
#[derive(Deserialize)]
struct Said {
    code: Option<String>,
    detail: Option<Value>,
}

pub(super) struct Svix {
    wire: Wire,
    token: SecretString,
}

impl Svix {
    /// Dials nothing yet.
    pub(super) fn new(place: Place, token: SecretString) -> anyhow::Result<Self> {
        let wire = Wire::new(place, &WORDS)?;
        Ok(Self { wire, token })
    }

    pub(super) async fn applications(&self) -> anyhow::Result<Vec<Application>> {
        self.all("/api/v1/app/").await
    }

    pub(super) async fn event_types(&self) -> anyhow::Result<Vec<EventType>> {
        let whole = [("include_archived", "true"), ("with_content", "true")];
        self.all_with("/api/v1/event-type/", &whole).await
    }

    pub(super) async fn endpoints(&self, application: &str) -> anyhow::Result<Vec<Endpoint>> {
        self.all(&format!("/api/v1/app/{application}/endpoint/"))
            .await
    }

    /// What an endpoint of an application signs with.
    pub(super) async fn secret(&self, at: (&str, &str)) -> anyhow::Result<Hidden> {
        let found: Secret = self.get(&below(at, "secret")).await?;
        Ok(found.key)
    }

    pub(super) async fn headers(&self, at: (&str, &str)) -> anyhow::Result<Headers> {
        self.get(&below(at, "headers")).await
    }

    /// A server of one's own has no transformations, and does not know what is asked.
    pub(super) async fn is_transformed(&self, at: (&str, &str)) -> anyhow::Result<bool> {
        let found = absent(
            self.get::<Transformation>(&below(at, "transformation"))
                .await,
        )?;
        Ok(found.is_some_and(|found| found.enabled == Some(true)))
    }

    async fn all<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        self.all_with(path, &[]).await
    }

    async fn all_with<T: DeserializeOwned>(
        &self,
        path: &str,
        more: &[(&str, &str)],
    ) -> anyhow::Result<Vec<T>> {
        let (mut all, mut iterator) = (Vec::new(), None::<String>);
        for _page in 0..MAX_PAGES {
            let mut query = Serializer::new(String::new());
            query.extend_pairs(more).append_pair("limit", PAGE);
            if let Some(iterator) = &iterator {
                query.append_pair("iterator", iterator);
            }
            let page: Page<T> = self.get(&format!("{path}?{}", query.finish())).await?;
            all.extend(page.data);
            if page.done {
                return Ok(all);
            }
            if page.iterator.is_none() || page.iterator == iterator {
                bail!("{path} is not done, and says no way to go on");
            }
            iterator = page.iterator;
        }
        bail!("{path} has more than {MAX_PAGES} pages of {PAGE}")
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let body = patiently(async || self.ask(path).await).await?;
        serde_json::from_slice(&body)
            .with_context(|| format!("{path} is not what Svix is known to answer"))
    }

    async fn ask(&self, path: &str) -> anyhow::Result<Bytes> {
        let url = self.wire.url();
        let exchange = async {
            let stream = self.wire.dial().await;
            let stream = stream.with_context(|| format!("cannot reach Svix at {url}"))?;
            let request = Request::builder().method(Method::GET).uri(path);
            let request = request.header(http::header::ACCEPT, "application/json");
            let request = (request, Bytes::new());
            self.wire.exchange(stream, &self.token, request).await
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange)
            .await
            .with_context(|| format!("no answer from {url} within {TIMEOUT:?}"))??;
        match answer.status.is_success() {
            true => Ok(answer.body),
            false => bail!(answer.refused(said(path, &answer))),
        }
    }
}

fn below((application, endpoint): (&str, &str), what: &str) -> String {
    format!("/api/v1/app/{application}/endpoint/{endpoint}/{what}/")
}

/// In words, with what to do where that is known.
fn said(path: &str, answer: &Answer) -> String {
    if answer.status == StatusCode::UNAUTHORIZED {
        return "Svix refused the token: set SVIX_AUTH_TOKEN, or --token-file, and --svix-url to \
                its region"
            .to_owned();
    }
    let said = serde_json::from_slice::<Said>(&answer.body).ok();
    let words = said.map(|said| {
        let detail = said.detail.map(|detail| match detail {
            Value::String(text) => text,
            other => other.to_string(),
        });
        [said.code, detail]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(": ")
    });
    let words = words.filter(|words| !words.is_empty());
    let words = words.map(|words| {
        let plain = words.chars().filter(|letter| !letter.is_control());
        format!(": {}", shortened(&plain.collect::<String>(), MAX_SAID))
    });
    format!(
        "Svix answered {} to GET {path}{}",
        answer.status,
        words.unwrap_or_default()
    )
}

//! The shards, and the way to each: kept connections, a bound on what is under way, and
//! one attempt at everything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use domain::access::Scopes;
use domain::shard::{self, ShardName};
use futures_util::future::join_all;
use http::header::{self, HeaderName};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};
use tower_http::timeout::TimeoutBody;

use super::HEADER;
use super::aim::Named;
use super::browser::PAGES;
use super::room::{Full, Place, Rooms};
use crate::access::key::digest;
use crate::api::acting::{self, SCOPES_HEADER};
use crate::api::bulk;
use crate::api::caller::bearer;
use crate::api::problem::Problem;
use crate::client::wire::{self, Words};
use crate::config::{RouterConfig, ShardAddress};
use crate::listening::{KNOWN, Known};
use crate::pages::held_by;
use crate::request_id;

/// How many questions of the router's own one shard is asked at one time. One that does
/// not answer holds up those about itself alone.
const QUESTIONS_AT_ONCE: usize = 16;

/// How long a connection to a shard may take: it is near.
const CONNECT: Duration = Duration::from_secs(2);

/// How long the head of an answer may take: a little more than the API takes for a whole
/// request.
const HEAD: Duration = Duration::from_secs(35);

/// How long an answer may stop in the middle. A stream of events says something every 15
/// seconds.
const STALLED: Duration = Duration::from_secs(90);

/// How long a connection is kept that nothing is sent over: less than the API keeps it,
/// so that nothing is sent over one that is just being closed.
const KEPT: Duration = Duration::from_secs(60);

/// Connections that are kept for each shard.
const MOST_KEPT: usize = 256;

/// How long what the router itself asks may take.
const OWN_QUESTION: Duration = Duration::from_secs(5);

/// The largest answer to that: a page of a thousand tenants.
const OWN_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Headers that are about one connection, and not about what is sent over it.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];

/// What clients could say of where they come from. Nothing goes by it, and nothing shall:
/// the bounds on addresses are the router's own, by its connections.
const HEARSAY: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

/// A shard, and how it is.
#[derive(Debug)]
pub(super) struct Shard {
    name: ShardName,
    scheme: Scheme,
    /// `None` of a URL without a host, which is refused before.
    authority: Option<Authority>,
    room: Rooms,
    /// Of what the router itself wants to know.
    questions: Semaphore,
    /// As of the last look.
    ready: AtomicBool,
}

/// Why a shard could not be asked, for the log and for whoever runs this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Away(pub(super) String);

/// As whom a request is passed on.
#[derive(Debug, Clone)]
pub(super) enum As {
    /// With its own key.
    Caller,
    /// With a key of this shard that may do so much: no other shard knows it.
    Key(ShardName, Scopes),
}

/// A short answer, whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    content_type: Option<HeaderValue>,
    body: Bytes,
}

/// All of them. The first is asked about what names none.
pub(super) struct Shards {
    first: Shard,
    others: Vec<Shard>,
    /// Those that take new tenants.
    open: Vec<ShardName>,
    /// With the key that all have.
    authorization: HeaderValue,
    /// Its digest.
    shared: [u8; 32],
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

/// What the URL of a shard is called.
const SHARDS: Words = Words {
    url: "--shards (PACELINE_SHARDS)",
    key: "PACELINE_API_KEY",
    place: "the API is at /v1 of its host",
};

impl Shards {
    pub(super) fn new(config: &RouterConfig, key: &SecretString) -> anyhow::Result<Self> {
        for address in &config.shards {
            let place = wire::Place {
                url: address.url.clone(),
                ca_file: None,
                insecure_http: config.insecure_http,
            };
            wire::checked(&place, &SHARDS)?;
        }
        let mut shards = config.shards.iter().map(Shard::at);
        let first = shards.next().context("PACELINE_SHARDS names no shard")?;
        let open = match &config.new_tenants_on[..] {
            [] => config.shards.iter().map(|one| one.name.clone()).collect(),
            open => open.to_vec(),
        };
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", key.expose_secret()))
            .context("PACELINE_API_KEY cannot be sent as it is")?;
        authorization.set_sensitive(true);
        Ok(Self {
            first,
            others: shards.collect(),
            open,
            authorization,
            shared: digest(key.expose_secret()),
            client: client(config)?,
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ShardName> {
        self.all().map(Shard::name)
    }

    pub(super) const fn first(&self) -> &Shard {
        &self.first
    }

    pub(super) fn get(&self, name: &ShardName) -> Option<&Shard> {
        self.all().find(|shard| shard.name == *name)
    }

    /// For what any of them can answer: one that is there.
    pub(super) fn any(&self) -> &Shard {
        self.all()
            .find(|shard| shard.is_ready())
            .unwrap_or(&self.first)
    }

    /// The one that a header names.
    pub(super) fn named(&self, headers: &HeaderMap) -> Named {
        let mut values = headers.get_all(HEADER).iter();
        let name = match (values.next(), values.next()) {
            (None, _) => return Named::None,
            (Some(value), None) => value
                .to_str()
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            (Some(_), Some(_)) => None,
        };
        let ours = name.filter(|name| self.get(name).is_some());
        ours.map_or(Named::Unknown, Named::One)
    }

    /// Where a new tenant goes that is called so.
    pub(super) fn home(&self, tenant: &str) -> Option<&ShardName> {
        let open: Vec<_> = self.open.iter().collect();
        shard::home(&open, tenant)
    }

    /// The same for one that could be anywhere: where somebody is at home.
    pub(super) fn home_for_any(&self, id: &str) -> Option<&ShardName> {
        let is_ready = |name: &&ShardName| self.get(name).is_some_and(Shard::is_ready);
        let ready: Vec<_> = self.open.iter().filter(is_ready).collect();
        shard::home(&ready, id).or_else(|| self.home(id))
    }

    /// Asks a shard itself, by the key that all have. One that was not ready at the last
    /// look is not asked: whoever waits would wait for nothing.
    pub(super) async fn ask(
        &self,
        shard: &Shard,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Answer, Away> {
        match shard.is_ready() {
            true => self.ask_anyway(shard, method, path, body).await,
            false => Err(Away("it was not ready a moment ago".to_owned())),
        }
    }

    async fn ask_anyway(
        &self,
        shard: &Shard,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Answer, Away> {
        let why = |error: String| Away(error);
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = shard.uri(path.parse().map_err(|error| why(format!("{error}")))?);
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if let Some(id) = request_id::current_header() {
            headers.insert(request_id::NAME, id);
        }
        let answered = async {
            let response = self.client.request(request).await;
            let response = response.map_err(|error| why(in_full(&error)))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, OWN_ANSWER_BYTES).collect().await;
            Ok(Answer {
                status: head.status,
                content_type: head.headers.get(header::CONTENT_TYPE).cloned(),
                body: body.map_err(|error| why(error.to_string()))?.to_bytes(),
            })
        };
        let late = |_| Err(why(format!("no answer within {OWN_QUESTION:?}")));
        timeout(OWN_QUESTION, answered).await.unwrap_or_else(late)
    }

    /// Passes a request on, and its answer back.
    pub(super) async fn pass(
        &self,
        shard: &Shard,
        route: &str,
        whose: &As,
        request: Request,
    ) -> Result<Response, Problem> {
        let began = Instant::now();
        let answer = self.passed(shard, route, whose, request).await;
        let status = match &answer {
            Ok(answer) => answer.status().as_u16(),
            Err(problem) => problem.status,
        };
        let labels = [
            ("shard", shard.name.to_string()),
            ("class", format!("{}xx", status / 100)),
        ];
        metrics::histogram!("paceline_router_request_seconds", &labels).record(began.elapsed());
        answer
    }

    async fn passed(
        &self,
        shard: &Shard,
        route: &str,
        whose: &As,
        mut request: Request,
    ) -> Result<Response, Problem> {
        let place = match route {
            PAGES => shard.room.of_pages.take(held_by(request.headers())),
            _ => shard.room.of_api.take(self.who(whose, request.headers())),
        };
        let place = place.map_err(|full| shard.full(full))?;
        self.address(shard, whose, &mut request);
        let patience = match route {
            BULK => bulk::MAX_LENGTH + HEAD,
            _ => HEAD,
        };
        let answer = timeout(patience, self.client.request(request)).await;
        let name = shard.name.as_str();
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.is_connect() => return Err(shard.away(&Away(in_full(&error)))),
            Ok(Err(error)) => {
                tracing::warn!(
                    shard = name,
                    error = in_full(&error),
                    "a shard gave no answer"
                );
                return Err(Problem::shard_silent(name));
            }
            Err(_late) => {
                tracing::warn!(shard = name, ?patience, "a shard gave no answer in time");
                return Err(Problem::shard_silent(name));
            }
        };
        Ok(shard.answered(answer, place))
    }

    /// Whose place a request takes: its key's; of a key that is known to act for tenants
    /// one of that tenant.
    fn who(&self, whose: &As, headers: &HeaderMap) -> (Option<[u8; 32]>, Option<String>) {
        let key = bearer(headers).map(digest);
        let acts = matches!(whose, As::Key(..)) || key == Some(self.shared);
        let tenant = acting::tenant_of(headers).ok().flatten();
        let tenant = tenant.filter(|_| acts).map(|tenant| tenant.to_string());
        (key, tenant)
    }

    fn address(&self, shard: &Shard, whose: &As, request: &mut Request) {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = shard.uri(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        forget_the_hop(headers);
        for name in HEARSAY {
            headers.remove(name);
        }
        headers.remove(HEADER);
        headers.insert(KNOWN, HeaderValue::from_static("true"));
        if let Some(id) = request_id::current_header() {
            headers.insert(request_id::NAME, id);
        }
        if let As::Key(home, scopes) = whose
            && *home != shard.name
        {
            let words: Vec<_> = scopes.iter().map(domain::access::Scope::as_str).collect();
            let words = HeaderValue::try_from(words.join(" "));
            // The words of scopes are in ASCII.
            let words = words.unwrap_or(HeaderValue::from_static(""));
            headers.insert(SCOPES_HEADER, words);
            headers.insert(header::AUTHORIZATION, self.authorization.clone());
        }
    }

    /// Looks at each, and says which have come or gone.
    pub(super) async fn look(&self) {
        join_all(self.all().map(|shard| async move {
            let answer = self
                .ask_anyway(shard, Method::GET, "/readyz", String::new())
                .await;
            let ready = answer.and_then(|answer| match answer.status {
                StatusCode::OK => Ok(()),
                _ => Err(answer.unusable()),
            });
            shard.note(ready);
        }))
        .await;
    }
}

/// The one request that takes as long as its client likes.
const BULK: &str = "/v1/events/bulk";

impl Shard {
    pub(super) fn at(address: &ShardAddress) -> Self {
        let scheme = match address.url.scheme() {
            "https" => Scheme::HTTPS,
            _ => Scheme::HTTP,
        };
        let port = address
            .url
            .port()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        let host = address.url.host_str().unwrap_or_default();
        Self {
            name: address.name.clone(),
            scheme,
            authority: format!("{host}{port}").parse().ok(),
            room: Rooms::default(),
            questions: Semaphore::new(QUESTIONS_AT_ONCE),
            // Until somebody has looked.
            ready: AtomicBool::new(true),
        }
    }

    pub(super) const fn name(&self) -> &ShardName {
        &self.name
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Waits for a turn to ask it something.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.questions.acquire().await.ok()
    }

    /// What is said of it to whoever wanted something of it.
    pub(super) fn away(&self, why: &Away) -> Problem {
        // That it is away was said once, when it was seen.
        tracing::debug!(shard = self.name.as_str(), why = why.0, "a shard is away");
        Problem::shard_away(self.name.as_str())
    }

    fn full(&self, full: Full) -> Problem {
        let name = self.name.as_str();
        match full {
            Full::All => Problem::shard_busy(name),
            Full::One => Problem::busy(format!(
                "too many requests with one key, or of one browser, at the shard {name} at once"
            )),
        }
    }

    fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority.clone_from(&self.authority);
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).unwrap_or_default()
    }

    fn answered(&self, answer: http::Response<hyper::body::Incoming>, place: Place) -> Response {
        let mut answer = answer.map(|body| {
            let body = TimeoutBody::new(STALLED, body);
            // Its place is taken until the end of it.
            Body::new(body.map_frame(move |frame| {
                let _until_the_end = &place;
                frame
            }))
        });
        let headers = answer.headers_mut();
        forget_the_hop(headers);
        headers.insert(HEADER, self.header());
        match headers.remove(KNOWN) {
            Some(_vouched) => Known::told(answer),
            None => answer,
        }
    }

    pub(super) fn header(&self) -> HeaderValue {
        let name = HeaderValue::from_str(self.name.as_str());
        // Names are letters and digits.
        name.unwrap_or(HeaderValue::from_static(""))
    }

    fn note(&self, ready: Result<(), Away>) {
        let name = self.name.as_str();
        let labels = [("shard", name.to_owned())];
        metrics::gauge!("paceline_shard_up", &labels).set(u32::from(ready.is_ok()));
        let was = self.ready.swap(ready.is_ok(), Ordering::Relaxed);
        match ready {
            Ok(()) if !was => tracing::info!(shard = name, "a shard is ready again"),
            Err(why) if was => tracing::warn!(shard = name, why = why.0, "a shard is not ready"),
            _ => {}
        }
    }
}

impl Answer {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Away> {
        serde_json::from_slice(&self.body).map_err(|error| Away(format!("its answer: {error}")))
    }

    /// One that says nothing of what was asked.
    pub(super) fn unusable(&self) -> Away {
        let hint = match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                ": is its PACELINE_API_KEY the router's?"
            }
            _ => "",
        };
        Away(format!("it answered {}{hint}", self.status))
    }

    /// As it came.
    pub(super) fn pass(self, shard: &Shard) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        headers.insert(HEADER, shard.header());
        response
    }
}

fn client(config: &RouterConfig) -> anyhow::Result<Client<HttpsConnector<HttpConnector>, Body>> {
    let roots = match &config.ca_file {
        Some(file) => wire::authorities(file)?,
        None => Vec::new(),
    };
    let mut tls = adapters::http::tls_config(roots).context("trust this host's roots")?;
    // The connector says what it speaks.
    tls.alpn_protocols.clear();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEPT)
        .pool_max_idle_per_host(MOST_KEPT)
        .build(connector))
}

/// Takes what is about one connection off, and what that connection says is its own.
fn forget_the_hop(headers: &mut HeaderMap) {
    let own: Vec<HeaderName> = (headers.get_all(header::CONNECTION).iter())
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let own = own.iter().filter(|name| !is_ours(name));
    for name in own.chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Whether it is what the router goes by, or what the shard needs: nobody's connection
/// takes that away.
fn is_ours(name: &HeaderName) -> bool {
    let needed = [
        header::AUTHORIZATION,
        header::COOKIE,
        header::HOST,
        header::CONTENT_LENGTH,
    ];
    needed.contains(name) || name.as_str().starts_with("paceline-")
}

/// An error and what is behind it.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_a_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-of-the-hop, paceline-tenant, Cookie"),
            ("paceline-tenant", "c1"),
            ("cookie", "a=b"),
            ("x-of-the-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("x-kept", "1"),
            ("host", "hooks.example"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        forget_the_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["cookie", "host", "paceline-tenant", "x-kept"]);
    }

    #[test]
    fn a_shards_address_keeps_its_port_and_takes_any_path() {
        let shard = Shard::at(&"a=http://[::1]:8081".parse().unwrap());
        let uri = shard.uri(PathAndQuery::from_static("/v1/events?limit=1"));
        assert_eq!(uri.to_string(), "http://[::1]:8081/v1/events?limit=1");
        let plain = Shard::at(&"a=https://api.example".parse().unwrap());
        let uri = plain.uri(PathAndQuery::from_static("/"));
        assert_eq!(uri.to_string(), "https://api.example/");
    }
}

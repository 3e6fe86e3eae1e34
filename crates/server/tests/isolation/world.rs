//! Two tenants, neither of them the default one, and the keys to them.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adapters::http::Policy;
use adapters::key_ring::KeyRing;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use domain::access::Scope;
use domain::attempt::OutcomeKind;
use domain::attempt::outcome::{NextTry, Outcome, Speaks};
use domain::backpressure::BacklogBounds;
use domain::health::Signal;
use domain::ids::{DestinationId, WorkerId};
use domain::ingest_limit::IngestLimit;
use domain::permit::Permit;
use domain::response_headers::ResponseHeaders;
use domain::share::Room;
use domain::signature::HeaderPrefix;
use engine::backpressure::Pressure;
use engine::ingest::{Ingest, IngestOptions};
use engine::ports::{
    ClaimAnswer, Heartbeat, Operations, ReapRules, Run, RunResult, Store, WatchRules,
};
use http::{Method, Request, StatusCode, request};
use http_body_util::BodyExt;
use secrecy::SecretString;
use serde_json::{Value, json};
use server::access::Gate;
use server::api::{self, App};
use server::config::{RouterConfig, ShardAddress};
use server::edge::Mint;
use server::listening::{Bounds, Listening};
use server::pages::{self, Pages, PagesOptions};
use server::parts::Parts;
use server::portal::Portal;
use server::router::{self, Routing};
use server::service::rate::{IngestRates, ManageRates};
use server::service::secrets::Signing;
use server::service::{Books, Intake, Registers, Service, Tenancy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;
use uuid::Uuid;

use crate::place::Place;

/// The configured key: the administrator's.
pub(crate) const ADMIN: &str = "an administrator's key";

const WORKER: WorkerId = WorkerId(Uuid::from_u128(7));

/// A type of the catalogue.
pub(crate) const DESCRIBED: &str = "described";

/// Scopes that a tenant's key can have.
pub(crate) const TENANTS_OWN: [Scope; 4] = [
    Scope::Ingest,
    Scope::Manage,
    Scope::Read,
    Scope::ReadPayloads,
];

pub(crate) struct World {
    /// What is asked.
    router: Router,
    pub(crate) ours: Tenant,
    pub(crate) theirs: Tenant,
    /// Where ours is.
    first: Installation,
    place: Place,
    shards: Option<Shards>,
}

/// The two that a router stands before.
pub(crate) struct Shards {
    pub(crate) routing: Routing,
    pub(crate) doors: [Door; 2],
    _second: (Installation, Place),
}

/// Where a router finds one of them.
pub(crate) struct Door {
    address: SocketAddr,
    router: Router,
    open: Mutex<Option<(CancellationToken, JoinHandle<()>)>>,
}

impl Door {
    async fn open(router: &Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let door = Self {
            address: listener.local_addr().unwrap(),
            router: router.clone(),
            open: Mutex::default(),
        };
        door.serve(listener);
        door
    }

    /// Nobody is there any more.
    pub(crate) async fn shut(&self) {
        let open = self.open.lock().unwrap().take();
        let (shutdown, serving) = open.expect("it is open");
        shutdown.cancel();
        serving.await.unwrap();
    }

    pub(crate) async fn open_again(&self) {
        self.serve(TcpListener::bind(self.address).await.unwrap());
    }

    fn serve(&self, listener: TcpListener) {
        let probes = Router::new().route("/readyz", get(async || "ready"));
        let listening = Listening {
            listener,
            router: self.router.clone().merge(probes),
            bounds: Bounds::default(),
            tls: None,
        };
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(listening.serve(shutdown.clone()));
        *self.open.lock().unwrap() = Some((shutdown, serving));
    }

    /// The status of what it answers, and whether it knows whoever asks with this header.
    pub(crate) async fn answers(&self, path: &str, header: &str) -> (u16, bool) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}\r\npaceline-known: ?\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        (
            status.parse().unwrap(),
            head.contains("\r\npaceline-known: true"),
        )
    }

    fn address(&self, name: &str) -> ShardAddress {
        let text = format!("{name}=http://{}", self.address);
        text.parse().unwrap()
    }
}

type Transaction = sqlx::Transaction<'static, sqlx::Postgres>;

/// What works behind the API, step by step.
struct Behind {
    store: Arc<dyn Store>,
    operations: Arc<dyn Operations>,
}

/// Looks at everybody at once.
const WATCH: WatchRules = WatchRules {
    every: Duration::ZERO,
    pace: Duration::ZERO,
    patience: Duration::ZERO,
    dead_letters_every: Duration::ZERO,
    page: 1_000,
    looks: 100,
    counted: 1_000_000,
    tenants_every: Duration::ZERO,
    tenants: 1_000,
};

/// Gives nothing up but what is too old.
const REAP: ReapRules = ReapRules {
    heartbeat_timeout: Duration::from_secs(3_600),
    start_timeout: Duration::from_secs(3_600),
    permit_grace: Duration::from_secs(3_600),
    everything: true,
};

/// A tenant with something of everything that a route can name, or show.
pub(crate) struct Tenant {
    pub(crate) id: String,
    /// With all scopes that it can have.
    pub(crate) key: String,
    pub(crate) destination: String,
    /// One of the two that the destination signs with.
    pub(crate) secret: String,
    pub(crate) event: String,
    pub(crate) api_key: String,
    pub(crate) link: String,
    /// Of that event; it waits.
    pub(crate) attempt: String,
    /// Where an event has died.
    pub(crate) dying: String,
    pub(crate) dead_letter: String,
    pub(crate) replay: String,
    pub(crate) limit_request: String,
    pub(crate) other_limit_request: String,
    pub(crate) notice_address: String,
}

/// What a route may name beside the thing that it is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Things<'a> {
    pub(crate) destination: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) api_key: &'a str,
    /// The text of it.
    pub(crate) key: &'a str,
    pub(crate) link: &'a str,
    pub(crate) dead_letter: &'a str,
    /// A destination where its event was not.
    pub(crate) elsewhere: &'a str,
}

/// So many deliveries may be pending of each tenant.
pub(crate) const TENANT_BACKLOG: NonZeroU64 = NonZeroU64::new(5_000).unwrap();

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) json: Value,
}

/// What a browser is answered.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    /// The one that it sets.
    pub(crate) cookie: String,
    pub(crate) html: String,
}

fn registers(parts: &Parts) -> Registers {
    Registers {
        tenants: parts.stored.clone(),
        keys: parts.stored.clone(),
        sessions: parts.stored.clone(),
        event_types: parts.stored.clone(),
    }
}

/// One installation, which answers by itself.
struct Installation {
    router: Router,
    behind: Behind,
    _ingest: DropGuard,
}

impl Installation {
    async fn over(place: &Place, mint: Mint) -> Self {
        let parts = place.parts().await;
        let all = parts.clone();
        let stop = CancellationToken::new();
        let (ingest, back) = Ingest::new(
            parts.store.clone(),
            parts.schedule.clone(),
            IngestOptions::default(),
        );
        tokio::spawn(back.run(stop.clone()));
        let mint = Arc::new(mint);
        let gate = Arc::new(Gate::new(parts.stored.clone(), &SecretString::from(ADMIN)));
        let tenancy = Tenancy::new(registers(&all), gate.clone(), mint.clone());
        let vault = KeyRing::parse(&server::secret_keys::new_key(&mint)).unwrap();
        let signing = Signing {
            secrets: parts.stored.clone(),
            vault: Arc::new(vault),
            prefix: HeaderPrefix::default(),
        };
        let bounds = BacklogBounds {
            tenant: TENANT_BACKLOG,
            ..BacklogBounds::default()
        };
        let pressure = Arc::new(Pressure::new(bounds));
        let rates = IngestRates::new(IngestLimit::default());
        let service = Service::new(
            Books {
                requests: parts.stored.clone(),
                catalog: parts.stored.clone(),
                backlog: parts.stored.clone(),
                operations: parts.stored.clone(),
                managers: parts.stored.clone(),
                reading: parts.reading,
                tenants: parts.stored.clone(),
            },
            parts.schedule,
            Intake::new(ingest, pressure, parts.stored.clone(), rates),
            mint.clone(),
            Policy::default(),
            signing,
        );
        let rates = ManageRates::new(server::config::MANAGE_PER_SECOND);
        let app = App::new(service, tenancy, gate, rates);
        let looks = PagesOptions {
            portal: Portal::default(),
            shutdown: stop.clone(),
        };
        let dashboard = Pages::new(app.clone(), &all, looks);
        let router = api::router(app).merge(pages::router(dashboard));
        let described = json!({"name": DESCRIBED, "redact": ["/secret"]});
        admin(&router, Method::POST, "/v1/event-types", described).await;
        Self {
            router,
            behind: Behind {
                store: parts.store,
                operations: parts.operations,
            },
            _ingest: stop.drop_guard(),
        }
    }

    async fn tenant(&self, name: &str) -> Tenant {
        Tenant::furnished(&self.router, &self.behind, name).await
    }
}

impl World {
    pub(crate) async fn over(place: Place) -> Self {
        let installation = Installation::over(&place, Mint::from_system().unwrap()).await;
        Self {
            ours: installation.tenant("ours").await,
            theirs: installation.tenant("theirs").await,
            router: installation.router.clone(),
            place,
            shards: None,
            first: installation,
        }
    }

    /// The same tenants on two of them, and what stands before both. The first one's keys
    /// name no shard, as those of one that was there alone.
    pub(crate) async fn of_two(place: Place, other: Place) -> Self {
        let first = Installation::over(&place, Mint::from_system().unwrap()).await;
        let mint = Mint::from_system().unwrap().of_shard("b".parse().ok());
        let second = Installation::over(&other, mint).await;
        // So that what has a number has another one there.
        second.tenant("before").await;
        let (a, b) = (
            Door::open(&first.router).await,
            Door::open(&second.router).await,
        );
        let config = RouterConfig {
            shards: vec![a.address("a"), b.address("b")],
            new_tenants_on: Vec::new(),
            api_key: None,
            ca_file: None,
            insecure_http: false,
        };
        let mint = Mint::from_system().unwrap();
        let routing = Routing::new(&config, &SecretString::from(ADMIN), mint).unwrap();
        Self {
            ours: first.tenant("ours").await,
            theirs: second.tenant("theirs").await,
            router: routing.router(),
            place,
            first,
            shards: Some(Shards {
                routing,
                doors: [a, b],
                _second: (second, other),
            }),
        }
    }

    /// What there is where there are two.
    pub(crate) fn shards(&self) -> &Shards {
        self.shards.as_ref().expect("a world of two")
    }

    /// The same as it is listened to.
    pub(crate) async fn door(&self) -> Door {
        Door::open(&self.router).await
    }

    pub(crate) async fn call(
        &self,
        key: Option<&str>,
        method: &Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        call(&self.router, key, method, path, body).await
    }

    /// What an operator sees of a thing of theirs, which may be on another shard.
    pub(crate) async fn operator_sees_theirs(&self, path: &str) -> Answer {
        let request = Request::builder().uri(path);
        let request = request.header("authorization", format!("Bearer {ADMIN}"));
        answer(&self.router, request.header(router::HEADER, "b"), None).await
    }

    /// The same for a tenant that is named beside the key.
    pub(crate) async fn call_for(
        &self,
        (key, tenant): (&str, &str),
        method: &Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {key}"))
            .header("paceline-tenant", tenant);
        answer(&self.router, request, body).await
    }

    /// A user's own connections to Postgres.
    pub(crate) async fn user(&self) -> sqlx::PgPool {
        sqlx::PgPool::connect(&self.place.url).await.unwrap()
    }

    /// Holds a table of Postgres's, until it is dropped, from whoever wants to read it.
    pub(crate) async fn lock_table(&self, table: &'static str) -> Transaction {
        let mut transaction = self.user().await.begin().await.unwrap();
        let lock = format!("lock table {table} in access exclusive mode");
        let lock = sqlx::query(sqlx::AssertSqlSafe(lock));
        lock.execute(&mut *transaction).await.unwrap();
        transaction
    }

    /// Runs a statement in the store, in the words of whichever it is.
    pub(crate) async fn sql(&self, postgres: &str, sqlite: &str) {
        match self.place.url.strip_prefix("sqlite:") {
            Some(file) => adapters::shell::sqlite3(file.as_ref(), sqlite).unwrap(),
            None => (adapters::shell::psql(&self.place.url, postgres).await).unwrap(),
        }
    }

    /// What the store says to a statement that it refuses.
    pub(crate) async fn refused_sql(&self, sql: &str) -> String {
        let refused = match self.place.url.strip_prefix("sqlite:") {
            Some(file) => adapters::shell::sqlite3(file.as_ref(), sql).map(drop),
            None => adapters::shell::psql(&self.place.url, sql).await,
        };
        format!("{:#}", refused.unwrap_err())
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// A page for whoever has this cookie, or what comes of a form.
    pub(crate) async fn page(&self, cookie: &str, path: &str, form: Option<&str>) -> Page {
        let method = if form.is_some() { "POST" } else { "GET" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("cookie", cookie)
            .header("host", "localhost")
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(form.unwrap_or_default().to_owned()));
        let response = self.router.clone().oneshot(request.unwrap()).await.unwrap();
        let status = response.status();
        let cookie = response.headers().get("set-cookie");
        let cookie = cookie.and_then(|value| value.to_str().ok()?.split(';').next());
        let cookie = cookie.unwrap_or_default().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Page {
            status,
            cookie,
            html: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// Claims all that waits at this destination, as a worker does whose requests reach
    /// nobody: each is a dead letter then, of which it is shown what was to be sent.
    pub(crate) async fn all_fails(&self, destination: &str) {
        let store = &self.first.behind.store;
        let run = Run {
            destination: DestinationId(destination.parse().unwrap()),
            republish: false,
        };
        let beat = Heartbeat {
            worker: WORKER,
            places: 10,
        };
        store.heartbeat(&beat).await.unwrap();
        let mut admitted = store.admit(&[run], &Room::of(10)).await.unwrap();
        let RunResult::Decided { permits, .. } = admitted.results.remove(0) else {
            panic!("it is there, and nobody has it");
        };
        assert!(!permits.is_empty(), "nothing is admitted");
        for permit in permits {
            loop {
                let claims = store.claim_starts(WORKER, &[permit]).await.unwrap();
                match &claims.answers[0] {
                    ClaimAnswer::Started(_) => break,
                    ClaimAnswer::Early(wait) => tokio::time::sleep(*wait).await,
                    other => panic!("{other:?}"),
                }
            }
            let outcome = unreached(&permit);
            store.record_outcomes(WORKER, &[outcome]).await.unwrap();
        }
    }

    /// One more tenant.
    pub(crate) async fn tenant(&self, name: &str) -> Tenant {
        self.first.tenant(name).await
    }

    /// A new key with these scopes: of this tenant, or, where one of them is
    /// the installation's, of the only one that can have it.
    pub(crate) async fn key(&self, tenant: &Tenant, scopes: &[Scope]) -> String {
        let default = engine::ports::DEFAULT_TENANT.to_string();
        let id = match scopes.iter().any(|scope| scope.is_the_installations()) {
            true => &default,
            false => &tenant.id,
        };
        new_key(&self.router, id, scopes).await.0
    }
}

/// It is over, for good.
fn unreached(permit: &Permit) -> Outcome {
    Outcome {
        attempt: permit.attempt,
        number: permit.number,
        destination: permit.destination,
        kind: OutcomeKind::Failed,
        sent_after: Duration::ZERO,
        elapsed: Duration::ZERO,
        status: None,
        error: Some("its name was not found".into()),
        response_body: Bytes::new(),
        response_headers: ResponseHeaders::default(),
        next: NextTry::DeadLetter,
        signal: Signal::default(),
        speaks: Speaks::ForRequest,
        may_arrive: false,
    }
}

const ADDRESSES: &str = "/v1/notice-addresses";

fn mail_of(destination: &str) -> Value {
    json!({"form": "email", "address": format!("{destination}@example.com")})
}

impl Tenant {
    pub(crate) fn things(&self) -> Things<'_> {
        Things {
            destination: &self.destination,
            secret: &self.secret,
            api_key: &self.api_key,
            key: &self.key,
            link: &self.link,
            dead_letter: &self.dead_letter,
            elsewhere: &self.dying,
        }
    }

    async fn furnished(router: &Router, behind: &Behind, name: &str) -> Self {
        let tenant = json!({"name": name, "tier": "free"});
        let created = admin(router, Method::POST, "/v1/tenants", tenant).await;
        let id = text(&created["id"]);
        let (key, api_key) = new_key(router, &id, &TENANTS_OWN).await;
        let links = format!("/v1/tenants/{id}/links");
        let link = admin(router, Method::POST, &links, json!({"name": name})).await;
        let link = text(&link["id"]);
        let as_owner = async |method: Method, path: &str, body: Option<Value>| {
            let answer = call(router, Some(&key), &method, path, body).await;
            assert!(answer.status.is_success(), "{path}: {answer:?}");
            answer.json
        };
        let own = async |path: &str, body: Value| as_owner(Method::POST, path, Some(body)).await;
        let destination = own(
            "/v1/destinations",
            json!({"url": "https://example.com/hooks", "name": name, "event_types": ["*"]}),
        )
        .await;
        let destination = text(&destination["id"]);
        let secrets = format!("/v1/destinations/{destination}/secrets");
        let secret = text(&own(&secrets, json!({})).await["id"]);
        let event = json!({"destination_id": destination, "payload": {"of": name}});
        let waiting = text(&own("/v1/events", event).await["id"]);
        let path = format!("/v1/destinations/{destination}/attempts");
        let attempts = as_owner(Method::GET, &path, None).await;
        let attempt = attempts["attempts"][0]["id"].to_string();

        let dying = json!({"url": "https://example.com/dying", "name": name, "event_types": []});
        let dying = text(&own("/v1/destinations", dying).await["id"]);
        let path = format!("/v1/destinations/{dying}/retries");
        as_owner(Method::PUT, &path, Some(json!({"max_age_ms": 1}))).await;
        let event = json!({"destination_id": dying, "payload": {"of": name}});
        own("/v1/events", event).await;
        let dead_letter = loop {
            behind.store.reap(&REAP, 100).await.unwrap();
            let dead = as_owner(Method::GET, "/v1/dead-letters", None).await;
            match &dead["dead_letters"][0]["id"] {
                Value::Null => tokio::time::sleep(Duration::from_millis(1)).await,
                id => break id.to_string(),
            }
        };
        let path = format!("/v1/operational-destinations/{destination}");
        as_owner(Method::PUT, &path, Some(json!({}))).await;
        behind.operations.watch(&WATCH).await.unwrap();
        let news = as_owner(Method::GET, "/v1/operational-events", None).await;
        assert_eq!(news["operational_events"][0]["destination_id"], dying);
        let replay = own("/v1/replays", json!({"destination_id": dying})).await;
        let asked = async |destination: &str| {
            let path = format!("/v1/destinations/{destination}/limit-requests");
            text(&own(&path, json!({"limits": {"per_second": 3}})).await["id"])
        };
        let limit_request = asked(&destination).await;
        let other_limit_request = asked(&dying).await;
        Self {
            notice_address: text(&own(ADDRESSES, mail_of(&destination)).await["id"]),
            limit_request,
            other_limit_request,
            id,
            key,
            destination,
            secret,
            event: waiting,
            api_key,
            link,
            attempt,
            dying,
            dead_letter,
            replay: text(&replay["replays"][0]["id"]),
        }
    }
}

async fn new_key(router: &Router, tenant: &str, scopes: &[Scope]) -> (String, String) {
    let path = format!("/v1/tenants/{tenant}/keys");
    let created = admin(router, Method::POST, &path, json!({"scopes": scopes})).await;
    (text(&created["key"]), text(&created["id"]))
}

async fn admin(router: &Router, method: Method, path: &str, body: Value) -> Value {
    let answer = call(router, Some(ADMIN), &method, path, Some(body)).await;
    assert!(answer.status.is_success(), "{method} {path}: {answer:?}");
    answer.json
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

async fn call(
    router: &Router,
    key: Option<&str>,
    method: &Method,
    path: &str,
    body: Option<Value>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    // Of several shards one is asked; where there is one, nobody looks at it.
    if is_the_installations(method, path) {
        request = request.header(router::HEADER, "a");
    }
    answer(router, request, body).await
}

/// What names no tenant, and is for administrators.
fn is_the_installations(method: &Method, path: &str) -> bool {
    let decides = path.ends_with("/approve") || path.ends_with("/decline");
    let changes_types = path.starts_with("/v1/event-types") && *method != Method::GET;
    let begins = |with: &&str| path.starts_with(*with);
    decides || changes_types || ["/v1/fleet", "/v1/tiers", "/v1/keys"].iter().any(begins)
}

async fn answer(router: &Router, request: request::Builder, body: Option<Value>) -> Answer {
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let response = router.clone().oneshot(request.body(body).unwrap()).await;
    let response = response.unwrap();
    let status = response.status();
    let media_type = response.headers().get("content-type");
    let is_ndjson = media_type.is_some_and(|value| value == "application/x-ndjson");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let mut json = match (body.is_empty(), is_ndjson) {
        (true, _) => Value::Null,
        (false, false) => serde_json::from_slice(&body).unwrap(),
        (false, true) => {
            let values = serde_json::Deserializer::from_slice(&body).into_iter::<Value>();
            Value::Array(values.map(Result::unwrap).collect())
        }
    };
    // The one thing that tells two answers apart, and says nothing of either.
    if let Some(answer) = json.as_object_mut() {
        answer.remove("request_id");
    }
    Answer { status, json }
}

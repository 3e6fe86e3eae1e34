//! What the operator does through the service, over a real store; and what the API
//! refuses meanwhile.

use std::sync::Arc;

use adapters::http::Policy;
use adapters::in_process::InProcessSchedule;
use adapters::key_ring::KeyRing;
use adapters::sqlite::SqliteStore;
use axum::Router;
use axum::body::Body;
use domain::backpressure::BacklogBounds;
use domain::credentials::{ClientAuth, OAuthFacts};
use domain::destination::DestinationState;
use domain::filter::Filter;
use domain::ids::DestinationId;
use domain::ingest_limit::IngestLimit;
use domain::policy::LimitSettings;
use domain::signature::{HeaderPrefix, SecretKind, SigningSecret};
use engine::backpressure::Pressure;
use engine::ingest::{Ingest, IngestOptions};
use engine::ports::{Catalog, DEFAULT_TENANT, SecretStore};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use operator::destinations::{
    Client, ClientCertificate, Credentials, Destinations, Owner, Refusal, Secrets, Stored, Wanted,
};
use rand::SeedableRng;
use rand::rngs::StdRng;
use secrecy::SecretString;
use serde_json::{Value, json};
use server::access::Gate;
use server::api::{self, App};
use server::edge::Mint;
use server::managed::ManagedDestinations;
use server::parts::Reading;
use server::service::rate::{IngestRates, ManageRates};
use server::service::secrets::{DEFAULT_OVERLAP, Signing};
use server::service::{Books, Intake, Registers, Service, Tenancy};
use tower::ServiceExt;
use zeroize::Zeroizing;

use crate::world::{KEY, NOON};

const CLIENT: &str = include_str!("../../../adapters/tests/http_sender/pem/client.pem");
const CLIENT_KEY: &str = include_str!("../../../adapters/tests/http_sender/pem/client.key");
const OTHER_KEY: &str = include_str!("../../../adapters/tests/http_sender/pem/other.key");

struct World {
    store: Arc<SqliteStore>,
    managed: ManagedDestinations,
    router: Router,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(SqliteStore::in_memory(Arc::new(|| NOON)).unwrap());
        let schedule = Arc::new(InProcessSchedule::new());
        let options = IngestOptions::default();
        let (ingest, _) = Ingest::new(store.clone(), schedule.clone(), options);
        let mint = Arc::new(Mint::new(|| NOON, StdRng::seed_from_u64(7)));
        let pressure = Arc::new(Pressure::new(BacklogBounds::default()));
        let rates = IngestRates::new(IngestLimit::default());
        let signing = Signing {
            secrets: store.clone(),
            vault: Arc::new(
                KeyRing::parse("test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap(),
            ),
            prefix: HeaderPrefix::default(),
        };
        let books = Books {
            requests: store.clone(),
            catalog: store.clone(),
            backlog: store.clone(),
            operations: store.clone(),
            managers: store.clone(),
            tenants: store.clone(),
            reading: Reading {
                at_once: 4,
                store: store.clone(),
                catalog: store.clone(),
                backlog: store.clone(),
                operations_book: store.clone(),
                survey: store.clone(),
                overview: store.clone(),
                tallies: store.clone(),
                event_types: store.clone(),
                managers: store.clone(),
                requests: store.clone(),
                secrets: store.clone(),
            },
        };
        let intake = Intake::new(ingest, pressure, store.clone(), rates);
        let policy = Policy::default();
        let service = Service::new(books, schedule, intake, mint.clone(), policy, signing);
        let gate = Arc::new(Gate::new(store.clone(), &SecretString::from(KEY)));
        let registers = Registers {
            tenants: store.clone(),
            keys: store.clone(),
            sessions: store.clone(),
            event_types: store.clone(),
        };
        let tenancy = Tenancy::new(registers, gate.clone(), mint);
        let router = api::router(App::new(
            service.clone(),
            tenancy,
            gate,
            ManageRates::new(server::config::MANAGE_PER_SECOND),
        ));
        Self {
            store,
            managed: ManagedDestinations::new(service),
            router,
        }
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {KEY}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn look(&self, owner: &Owner, secrets: &Secrets) -> Stored {
        let wanted = wanted(5);
        let looked = self.managed.look(owner, Some((&wanted, secrets))).await;
        looked.unwrap()
    }

    async fn limits(&self, id: DestinationId) -> LimitSettings {
        let found = self.store.destination(DEFAULT_TENANT, id).await.unwrap();
        found.limits
    }
}

fn owner(uid: &str) -> Owner {
    Owner {
        tenant: DEFAULT_TENANT,
        resource: "paceline/shop".to_owned(),
        name: "shop".to_owned(),
        uid: uid.to_owned(),
    }
}

fn wanted(per_second: u32) -> Wanted {
    Wanted {
        name: "shop".to_owned(),
        url: "https://shop.example/hooks".to_owned(),
        event_types: vec!["order.created".to_owned()],
        filter: None,
        limit_group: None,
        limits: LimitSettings {
            per_second: Some(per_second),
            ..LimitSettings::default()
        },
        state: DestinationState::Active,
    }
}

/// Signed with this, and nothing else shown.
fn of(signing: impl Into<SecretString>) -> Secrets {
    Secrets {
        signing: signing.into(),
        credentials: Credentials::default(),
    }
}

fn secret(letter: &str) -> Secrets {
    of(format!("whsec_{}", letter.repeat(32)))
}

/// A certificate with this key, and a client.
fn credentials(key: &str) -> Credentials {
    Credentials {
        client_certificate: Some(ClientCertificate {
            certificate: CLIENT.into(),
            private_key: key.into(),
        }),
        oauth2: Some(Client {
            facts: OAuthFacts {
                token_url: "https://login.example/token".to_owned(),
                client_id: "paceline".to_owned(),
                scopes: vec!["hooks".to_owned()],
                audience: None,
                client_auth: ClientAuth::Body,
            },
            secret: "s3cret".into(),
        }),
    }
}

#[tokio::test]
async fn what_is_made_is_as_wanted_and_signs_with_its_secret() {
    let world = World::new();
    let (owner, secret) = (owner("one"), secret("A"));
    assert_eq!(world.look(&owner, &secret).await, Stored::Absent);
    let id = world
        .managed
        .create(&owner, &wanted(5), &secret)
        .await
        .unwrap();
    let Stored::Ours(row) = world.look(&owner, &secret).await else {
        panic!("it is ours");
    };
    assert_eq!((row.id, row.signs), (id, true));
    assert_eq!(row.limits, wanted(5).limits);
    let seen = world.managed.observe(&owner, id).await.unwrap();
    assert_eq!((seen.backlog, seen.allowed_per_second), (0, Some(5.0)));
    // Made again, as after a crash before it was told: refused, not doubled.
    let again = world.managed.create(&owner, &wanted(5), &secret).await;
    assert!(matches!(again, Err(Refusal::Conflict(_))));
}

/// Set, kept as it is, removed; and refused in the words of the API.
#[tokio::test]
async fn a_filter_is_as_wanted() {
    let world = World::new();
    let (owner, secret) = (owner("one"), secret("A"));
    let with = |filter: Option<Value>| Wanted {
        filter,
        ..wanted(5)
    };
    let wrong = with(Some(json!({"/total": {"gte": null}})));
    let refused = world.managed.create(&owner, &wrong, &secret).await;
    let Err(Refusal::Invalid(message)) = refused else {
        panic!("{refused:?}");
    };
    let says = r#"filter["/total"].gte: must be"#;
    assert!(message.contains(says), "{message}");
    let filter = json!({"/total": {"gte": 100}});
    let first = with(Some(filter.clone()));
    let id = world.managed.create(&owner, &first, &secret).await.unwrap();
    let kept = async || {
        let found = world.store.destination(DEFAULT_TENANT, id).await.unwrap();
        found.filter
    };
    assert_eq!(kept().await, Some(Filter::kept(filter)));
    world.managed.change(&owner, id, &wanted(5)).await.unwrap();
    assert_eq!(kept().await, None);
}

/// Joined, kept, left; one that is not there is refused by the resource's field. What the
/// destination is told to be possible is what both allow.
#[tokio::test]
async fn a_limit_group_is_as_wanted() {
    let world = World::new();
    let (owner, secret) = (owner("one"), secret("A"));
    let member = Wanted {
        limit_group: Some("acme".parse().unwrap()),
        ..wanted(5)
    };
    let refused = world.managed.create(&owner, &member, &secret).await;
    let Err(Refusal::Invalid(message)) = refused else {
        panic!("{refused:?}");
    };
    assert!(message.starts_with("limitGroup: there is no"), "{message}");
    let two = json!({"limits": {"per_second": 2}});
    let path = "/v1/limit-groups/acme";
    assert_eq!(world.call(Method::PUT, path, two).await.0, StatusCode::OK);
    let created = world.managed.create(&owner, &member, &secret).await;
    let id = created.unwrap();
    let seen = async || {
        let seen = world.managed.observe(&owner, id).await.unwrap();
        let group = seen.limit_group.map(|name| name.to_string());
        (group, seen.allowed_per_second.unwrap().round() as u32)
    };
    assert_eq!(seen().await, (Some("acme".to_owned()), 2));
    world.managed.change(&owner, id, &member).await.unwrap();
    assert_eq!(seen().await, (Some("acme".to_owned()), 2));
    world.managed.change(&owner, id, &wanted(5)).await.unwrap();
    assert_eq!(seen().await, (None, 5));
}

/// In the store when it answers, as by the API: schedulers read it there.
#[tokio::test]
async fn a_changed_limit_and_a_pause_hold_when_the_change_answers() {
    let world = World::new();
    let (owner, secret) = (owner("one"), secret("A"));
    let id = world
        .managed
        .create(&owner, &wanted(5), &secret)
        .await
        .unwrap();
    world.managed.change(&owner, id, &wanted(50)).await.unwrap();
    assert_eq!(world.limits(id).await.per_second, Some(50));
    let history = world.store.limit_history(id).await.unwrap();
    assert_eq!(history.last().unwrap().effective.per_second, Some(50));
    // To the tier's limits, and paused.
    let paused = Wanted {
        limits: LimitSettings::default(),
        state: DestinationState::Paused,
        ..wanted(5)
    };
    world.managed.change(&owner, id, &paused).await.unwrap();
    assert!(world.limits(id).await.inherits());
    let found = world.store.destination(DEFAULT_TENANT, id).await.unwrap();
    assert_eq!(found.state, DestinationState::Paused);
}

/// Of a tenant whose tier says nothing of a ceiling, as the tiers that are there from the
/// start: up to what the tier gives, and up to what was granted.
#[tokio::test]
async fn a_resource_sets_no_more_than_the_tier_gives() {
    let world = World::new();
    let post = async |path: &str, body: Value| {
        let (status, made) = world.call(Method::POST, path, body).await;
        assert!(status.is_success(), "{path}: {status} {made}");
        made["id"].as_str().unwrap().to_owned()
    };
    let of_free = json!({"name": "a customer", "tier": "free"});
    let tenant = post("/v1/tenants", of_free).await;
    let owner = Owner {
        tenant: tenant.parse().unwrap(),
        ..owner("one")
    };
    let secret = secret("A");
    let refused = |done: Result<(), Refusal>, most: &str| {
        let Err(Refusal::Invalid(message)) = done else {
            panic!("{done:?}");
        };
        let says = message.starts_with("limits: ") && message.contains(most);
        assert!(says, "{message}");
    };
    let created = world.managed.create(&owner, &wanted(3), &secret).await;
    refused(created.map(drop), "the ceiling of 2 a second");
    let created = world.managed.create(&owner, &wanted(2), &secret).await;
    let id = created.unwrap();
    let set = async |most: u32| world.managed.change(&owner, id, &wanted(most)).await;
    refused(set(3).await, "the ceiling of 2 a second");
    assert_eq!(set(1).await, Ok(()));
    // What a resource holds is set by nobody else: for the grant it lets go.
    world.managed.release(&owner, id).await.unwrap();
    let asks = format!("/v1/destinations/{id}/limit-requests");
    let request = post(&asks, json!({"limits": {"per_second": 40}})).await;
    let approve = format!("/v1/limit-requests/{request}/approve");
    post(&approve, json!({})).await;
    world.managed.take_over(&owner, id).await.unwrap();
    assert_eq!([set(1).await, set(40).await], [Ok(()), Ok(())]);
    refused(set(41).await, "the ceiling of 40 a second");
}

#[tokio::test]
async fn another_secret_signs_once_it_is_rotated_in() {
    let world = World::new();
    let (owner, first) = (owner("one"), secret("A"));
    let id = world
        .managed
        .create(&owner, &wanted(5), &first)
        .await
        .unwrap();
    let signs = async |secret: &Secrets| match world.look(&owner, secret).await {
        Stored::Ours(row) => row.signs,
        other => panic!("{other:?}"),
    };
    assert!(!signs(&secret("B")).await);
    world
        .managed
        .rotate(&owner, id, &secret("B").signing)
        .await
        .unwrap();
    assert!(signs(&secret("B")).await);
    assert!(!signs(&secret("A")).await, "it ends");
    let nonsense = of("hunter2");
    let nonsense = (world.managed)
        .look(&owner, Some((&wanted(5), &nonsense)))
        .await;
    let Err(Refusal::Invalid(message)) = nonsense else {
        panic!("{nonsense:?}");
    };
    assert!(message.starts_with("signingSecretRef: "), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

/// A certificate and a client are those of its Secrets, once they were set; the API's
/// words about them are in the resource's.
#[tokio::test]
async fn what_it_shows_is_as_its_secrets_say() {
    let world = World::new();
    let (owner, plain) = (owner("one"), secret("A"));
    let with = |credentials: Credentials| Secrets {
        credentials,
        ..plain.clone()
    };
    let (both, other) = (with(credentials(CLIENT_KEY)), with(credentials(OTHER_KEY)));
    let id = (world.managed)
        .create(&owner, &wanted(5), &both)
        .await
        .unwrap();
    let shows = async |secrets: &Secrets| match world.look(&owner, secrets).await {
        Stored::Ours(row) => row.shows,
        other => panic!("{other:?}"),
    };
    assert!(shows(&both).await);
    for (secrets, what) in [(&plain, "neither"), (&other, "what the API refuses")] {
        assert!(!shows(secrets).await, "{what}");
    }
    let refused = world.managed.show(&owner, id, &other.credentials).await;
    let Err(Refusal::Invalid(message)) = refused else {
        panic!("{refused:?}");
    };
    assert!(message.starts_with("clientCertificateRef: "), "{message}");
    assert!(shows(&both).await, "as before");
    let mut client = both.clone();
    client.credentials.client_certificate = None;
    let shown = &client.credentials;
    world.managed.show(&owner, id, shown).await.unwrap();
    assert!(shows(&client).await);
    assert!(!shows(&both).await);
    // A change of something else leaves them.
    world.managed.change(&owner, id, &wanted(50)).await.unwrap();
    assert!(shows(&client).await);
    world
        .managed
        .show(&owner, id, &plain.credentials)
        .await
        .unwrap();
    assert!(shows(&plain).await);
}

/// Whoever puts back what `GET` showed cannot name what it does not show.
#[tokio::test]
async fn a_put_leaves_what_is_never_shown_and_null_removes_it() {
    let world = World::new();
    let put = async |mut body: Value| {
        body["url"] = "https://example.com/".into();
        let (status, shown) = world.call(Method::PUT, "/v1/destinations/own", body).await;
        (status.as_u16(), shown)
    };
    let has = async |body: Value| {
        let (status, one) = put(body).await;
        assert!(status < 300, "{status}: {one}");
        let headers = one["headers"].as_array().unwrap().len();
        let [certificate, client] = ["client_certificate", "oauth2"].map(|of| one[of].is_object());
        (headers, certificate, client, one["handshake"].clone())
    };
    let client = json!({
        "token_url": "https://login.example/token", "client_id": "paceline", "client_secret": "s",
    });
    let all = json!({
        "client_certificate": { "certificate": CLIENT, "private_key": CLIENT_KEY },
        "headers": { "x-tenant": "7" }, "oauth2": client, "handshake": "cloud_events",
    });
    assert_eq!(has(all).await, (1, true, true, json!("cloud_events")));
    // What is shown is as it was put.
    assert_eq!(has(json!({})).await, (1, true, true, json!("none")));
    let clear = json!({ "client_certificate": null, "headers": null });
    assert_eq!(has(clear).await, (0, false, true, json!("none")));
    // Beside the client that it has still.
    let (status, problem) = put(json!({ "headers": { "authorization": "Basic x" } })).await;
    assert_eq!(
        (status, &problem["field"]),
        (422, &json!("headers")),
        "{problem}"
    );
    let clear = json!({ "oauth2": null });
    assert_eq!(has(clear).await, (0, false, false, json!("none")));
}

/// Of another kind, too: after a day only the new one signs.
#[tokio::test]
async fn a_secret_of_another_kind_ends_the_one_before_it() {
    let world = World::new();
    let owner = owner("one");
    let key = |number: u8| SigningSecret::new(SecretKind::Ed25519, &Zeroizing::new([number; 32]));
    let ed25519 = SecretString::from(key(7).expose().to_string());
    let id = world
        .managed
        .create(&owner, &wanted(5), &secret("A"))
        .await
        .unwrap();
    for (next, kind) in [
        (&ed25519, SecretKind::Ed25519),
        (&secret("B").signing, SecretKind::Hmac),
    ] {
        world.managed.rotate(&owner, id, next).await.unwrap();
        let secrets = world.store.secrets(DEFAULT_TENANT, id).await.unwrap();
        // The clock stands still, so their order says nothing.
        let (stay, end): (Vec<_>, Vec<_>) = secrets
            .into_iter()
            .partition(|one| one.expires_at.is_none());
        assert_eq!(stay.iter().map(|one| one.kind).collect::<Vec<_>>(), [kind]);
        assert!(!end.is_empty());
        for one in end {
            assert_eq!(one.expires_at, Some(NOON + DEFAULT_OVERLAP), "{one:?}");
        }
    }
}

#[tokio::test]
async fn the_api_refuses_to_change_what_a_resource_manages() {
    let world = World::new();
    let (owner, secret) = (owner("one"), secret("A"));
    let id = world
        .managed
        .create(&owner, &wanted(5), &secret)
        .await
        .unwrap();
    let path = format!("/v1/destinations/{id}");
    let (_, secrets) = world
        .call(Method::GET, &format!("{path}/secrets"), json!(null))
        .await;
    let of = secrets["secrets"][0]["id"]
        .as_str()
        .expect("it has one")
        .to_owned();
    for (method, path, body) in [
        (
            Method::PATCH,
            path.clone(),
            json!({ "limits": { "per_second": 500 } }),
        ),
        (Method::PATCH, path.clone(), json!({ "name": "mine" })),
        (Method::DELETE, path.clone(), json!(null)),
        (Method::POST, format!("{path}/secrets"), json!({})),
        (Method::DELETE, format!("{path}/secrets/{of}"), json!(null)),
    ] {
        let (status, problem) = world.call(method.clone(), &path, body).await;
        assert_eq!(status, StatusCode::CONFLICT, "{method} {path}: {problem}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(
            detail.contains("paceline/shop"),
            "{method} {path}: {detail}"
        );
    }
    assert_eq!(world.limits(id).await.per_second, Some(5));
    let (status, _) = world.call(Method::GET, &path, json!(null)).await;
    assert_eq!(status, StatusCode::OK, "it can be looked at");
    // What the resource let go is the API's again.
    world.managed.release(&owner, id).await.unwrap();
    let patch = json!({ "limits": { "per_second": 500 } });
    let (status, _) = world.call(Method::PATCH, &path, patch).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(world.limits(id).await.per_second, Some(500));
}

/// Neither what the API made nor what another resource holds.
#[tokio::test]
async fn nothing_is_taken_from_anybody() {
    let world = World::new();
    let body = json!({ "url": "https://shop.example/hooks", "name": "shop" });
    let (status, made) = world.call(Method::POST, "/v1/destinations", body).await;
    assert_eq!(status, StatusCode::CREATED);
    let made: DestinationId = made["id"].as_str().unwrap().parse().unwrap();
    let (one, two, secret) = (owner("one"), owner("two"), secret("A"));
    assert_eq!(
        world.look(&one, &secret).await,
        Stored::Unmanaged { id: made }
    );
    let refused = world.managed.change(&one, made, &wanted(5)).await;
    assert!(matches!(refused, Err(Refusal::Conflict(_))), "{refused:?}");
    let refused = world.managed.discard(&one, made).await;
    assert!(matches!(refused, Err(Refusal::Conflict(_))), "{refused:?}");
    let id = world
        .managed
        .create(&one, &wanted(5), &secret)
        .await
        .unwrap();
    let uid = "one".to_owned();
    assert_eq!(world.look(&two, &secret).await, Stored::Held { id, uid });
    for refused in [
        world.managed.change(&two, id, &wanted(50)).await,
        world.managed.take_over(&two, id).await,
        world.managed.discard(&two, id).await,
        world.managed.show(&two, id, &credentials(CLIENT_KEY)).await,
        world.managed.rotate(&two, id, &secret.signing).await,
    ] {
        assert!(matches!(refused, Err(Refusal::Conflict(_))), "{refused:?}");
    }
    world.managed.release(&two, id).await.unwrap();
    let (status, _) = world
        .call(
            Method::DELETE,
            &format!("/v1/destinations/{id}"),
            json!(null),
        )
        .await;
    assert_eq!(status, StatusCode::CONFLICT, "not its to let go");
    world.managed.discard(&one, id).await.unwrap();
    assert_eq!(
        world.look(&two, &secret).await,
        Stored::Unmanaged { id: made }
    );
}

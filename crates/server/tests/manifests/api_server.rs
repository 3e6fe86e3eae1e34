//! An API server in memory, which the real `kubectl` talks to over a real socket.
//!
//! It has as much of Kubernetes as applying, waiting and deleting meet: discovery,
//! namespaces, fields that cannot change, finalizers, what goes with a namespace or
//! a definition, and watches. It also plays those who act on objects: a Deployment
//! is available at once, and our operator lets a deleted Destination go while it has
//! its pods and its rights. There is no kubelet, so nothing runs.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shared};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use operator::FINALIZER;
use prost::Message;

use super::built::list;
use super::kinds::{Kind, discovered, openapi};

/// The largest object of ours is the definition, 12 KB of it.
const MAX_BODY_BYTES: usize = 1 << 20;

/// What a watch may fall behind: more than any build has objects.
const MAX_UNTOLD: usize = 10_000;

/// Between two acts of the operator that is played: it lets one resource go at a
/// time, as slowly as a store makes it.
const ACT: Duration = Duration::from_millis(20);

/// Plural, namespace (empty for none) and name.
type Key = (&'static str, String, String);

/// What is told to watches: its version, the kind's plural and the line.
type Told = (u64, &'static str, Value);

pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

struct State {
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// All that was told so far, for watches that begin at a version.
    history: Vec<Told>,
    told: broadcast::Sender<Told>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl ApiServer {
    pub(crate) async fn start() -> Self {
        let mut state = State {
            objects: BTreeMap::new(),
            version: 0,
            history: Vec::new(),
            told: broadcast::channel(MAX_UNTOLD).0,
        };
        for name in ["default", "kube-system"] {
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            });
            state.store(("namespaces", String::new(), name.to_owned()), object);
        }
        let state = Arc::new(Mutex::new(state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&state));
        let acting = Arc::clone(&state);
        let serving = async move { drop(axum::serve(listener, router).await) };
        let acting = async move {
            loop {
                tokio::time::sleep(ACT).await;
                act(&mut lock(&acting));
            }
        };
        let tasks = [tokio::spawn(serving), tokio::spawn(acting)];
        Self {
            address,
            state,
            tasks,
        }
    }

    /// An object, by its kind's plural; of the namespace `paceline`, if of any.
    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let state = lock(&self.state);
        let mut all = state.objects.iter();
        let is_it =
            |key: &Key| key.0 == plural && key.2 == name && ["", "paceline"].contains(&&*key.1);
        all.find(|(key, _)| is_it(key)).map(|(_, one)| one.clone())
    }

    /// The names of all objects of a kind.
    pub(crate) fn names(&self, plural: &str) -> Vec<String> {
        let state = lock(&self.state);
        let keys = state.objects.keys().filter(|key| key.0 == plural);
        keys.map(|key| key.2.clone()).collect()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nobody panics with it")
}

impl State {
    /// Whether there are resources of this kind.
    fn serves(&self, kind: &Kind) -> bool {
        kind.definition.is_none_or(|name| {
            let key = ("customresourcedefinitions", String::new(), name.to_owned());
            self.objects.contains_key(&key)
        })
    }

    /// Keeps it under a version of its own, or lets it go where nothing holds it any
    /// more, and tells those who watch.
    fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
            object["metadata"]["creationTimestamp"] = json!("2026-11-22T19:00:00Z");
        }
        let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
        let kind = match self.objects.contains_key(&key) {
            _ if is_deleted && !self.is_held(&key, &object) => "DELETED",
            true => "MODIFIED",
            false => "ADDED",
        };
        let plural = key.0;
        match kind {
            "DELETED" => self.objects.remove(&key),
            _ => self.objects.insert(key, object.clone()),
        };
        let line = json!({ "type": kind, "object": object });
        let told = (self.version, plural, line);
        self.history.push(told.clone());
        // Nobody may be listening.
        let _ = self.told.send(told);
        object
    }

    /// By its own finalizers, or by what it holds that is not gone.
    fn is_held(&self, key: &Key, object: &Value) -> bool {
        !list(&object["metadata"]["finalizers"]).is_empty()
            || self.objects.keys().any(|other| is_within(other, key))
    }

    /// As the API server and its controllers would: what is within goes first, all
    /// at once.
    fn delete(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.get(key)?.clone();
        object["metadata"]["deletionTimestamp"] = json!("2026-11-22T19:00:00Z");
        let within = self.objects.keys().filter(|other| is_within(other, key));
        for other in within.cloned().collect::<Vec<_>>() {
            self.delete(&other);
        }
        Some(self.store(key.clone(), object))
    }

    /// Those that are deleted and are not held any more go.
    fn collect(&mut self) {
        let is_over = |(key, object): &(&Key, &Value)| {
            object["metadata"]["deletionTimestamp"].is_string() && !self.is_held(key, object)
        };
        let over = self.objects.iter().filter(is_over);
        let over: Vec<(Key, Value)> = over.map(|(key, one)| (key.clone(), one.clone())).collect();
        for (key, object) in over {
            self.store(key, object);
        }
    }
}

/// Whether one is of the other's namespace, or of the kind that it defines.
fn is_within(one: &Key, other: &Key) -> bool {
    match other.0 {
        "namespaces" => one.1 == other.2,
        "customresourcedefinitions" => other.2.split('.').next() == Some(one.0),
        _ => false,
    }
}

/// What the operator does: one thing at a time, and only while it may.
fn act(state: &mut State) {
    let of = |plural| (plural, "paceline".to_owned(), "operator".to_owned());
    let needs = ["deployments", "roles", "rolebindings", "serviceaccounts"];
    if !needs
        .map(of)
        .iter()
        .all(|key| state.objects.contains_key(key))
    {
        return;
    }
    let is_due = |object: &Value| {
        let metadata = &object["metadata"];
        metadata["deletionTimestamp"].is_string() != metadata["finalizers"].is_null()
    };
    let mut resources = state.objects.iter();
    let found = resources.find(|(key, one)| key.0 == "destinations" && is_due(one));
    let Some((key, object)) = found else { return };
    let (key, mut object) = (key.clone(), object.clone());
    if object["metadata"]["deletionTimestamp"].is_string() {
        object["metadata"]["finalizers"] = Value::Null;
    } else {
        object["metadata"]["finalizers"] = json!([FINALIZER]);
        object["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    }
    state.store(key, object);
    state.collect();
}

/// What is asked, beneath `/api` or `/apis`.
struct Asked {
    method: Method,
    kind: &'static Kind,
    namespace: String,
    name: Option<String>,
    query: BTreeMap<String, String>,
    body: Value,
}

async fn answer(Shared(state): Shared<Arc<Mutex<State>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY_BYTES).await;
    let body = body.expect("a body of kubectl");
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let path = parts.uri.path().trim_start_matches('/');
    let mut state = lock(&state);
    if let Some(of) = path.strip_prefix("openapi/v3") {
        return json_body(&openapi(of.trim_start_matches('/')));
    }
    let served = |kind: &Kind| state.serves(kind);
    let (kinds, rest) = match discovered(path, served) {
        Err(answer) => return json_body(&answer),
        Ok(None) => return refused(StatusCode::NOT_FOUND, "NotFound", "no such path"),
        Ok(Some(found)) => found,
    };
    let rest: Vec<&str> = rest.split('/').collect();
    let (namespace, rest) = match rest[..] {
        ["namespaces", namespace, _, ..] => (namespace, &rest[2..]),
        _ => ("", &rest[..]),
    };
    let Some(kind) = kinds.into_iter().find(|kind| kind.plural == rest[0]) else {
        return refused(StatusCode::NOT_FOUND, "NotFound", "no such kind");
    };
    let asked = Asked {
        method: parts.method,
        kind,
        namespace: namespace.to_owned(),
        name: rest.get(1).map(|name| (*name).to_owned()),
        query: query.into_owned().collect(),
        body: object(&body),
    };
    state.answer(&asked)
}

/// A body: JSON, or nothing; or a Secret by Protocol Buffers, which is what `kubectl
/// create secret` sends.
fn object(body: &[u8]) -> Value {
    let Some(envelope) = body.strip_prefix(b"k8s\0") else {
        return serde_json::from_slice(body).unwrap_or(Value::Null);
    };
    let envelope = Envelope::decode(envelope).expect("an envelope");
    let secret = SentSecret::decode(&*envelope.raw).expect("a Secret");
    let encoded = |bytes: Vec<u8>| Value::from(STANDARD.encode(bytes));
    let data = secret.data.into_iter();
    let data = data.map(|(key, value)| (key, encoded(value)));
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": secret.metadata.unwrap_or_default().name },
        "type": secret.kind,
        "data": data.collect::<serde_json::Map<_, _>>(),
    })
}

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SentSecret {
    #[prost(message, optional, tag = "1")]
    metadata: Option<SentMetadata>,
    #[prost(map = "string, bytes", tag = "2")]
    data: std::collections::HashMap<String, Vec<u8>>,
    #[prost(string, tag = "3")]
    kind: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SentMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Response {
        let name = asked.name.clone().unwrap_or_else(|| {
            let named = asked.body["metadata"]["name"].as_str();
            named.unwrap_or_default().to_owned()
        });
        let key = (asked.kind.plural, asked.namespace.clone(), name);
        let found = self.objects.get(&key).cloned();
        match (asked.method.as_str(), &asked.name, found) {
            ("GET", None, _) if asked.query.contains_key("watch") => self.watched(asked),
            ("GET", None, _) => self.listed(asked),
            ("GET", Some(_), Some(object)) => json_body(&object),
            ("POST", None, Some(_)) => refused(StatusCode::CONFLICT, "AlreadyExists", &key.2),
            ("POST", None, None) => self.created(key, asked.body.clone()),
            ("PATCH", Some(_), Some(before)) => self.patched(key, before, &asked.body),
            ("DELETE", Some(_), Some(_)) => match self.delete(&key) {
                Some(object) => json_body(&object),
                None => refused(StatusCode::NOT_FOUND, "NotFound", &key.2),
            },
            (_, Some(name), None) => {
                let message = format!("{} \"{name}\" not found", asked.kind.plural);
                refused(StatusCode::NOT_FOUND, "NotFound", &message)
            }
            (method, ..) => panic!("{method} {key:?} is not known here"),
        }
    }

    fn created(&mut self, key: Key, mut object: Value) -> Response {
        if !key.1.is_empty() {
            let within = ("namespaces", String::new(), key.1.clone());
            match self.objects.get(&within) {
                None => {
                    let message = format!("namespaces \"{}\" not found", key.1);
                    return refused(StatusCode::NOT_FOUND, "NotFound", &message);
                }
                Some(one) if one["metadata"]["deletionTimestamp"].is_string() => {
                    let message = format!("namespace {} is being terminated", key.1);
                    return refused(StatusCode::FORBIDDEN, "Forbidden", &message);
                }
                Some(_) => object["metadata"]["namespace"] = json!(key.1),
            }
        }
        if key.0 == "secrets" && object["type"].as_str().unwrap_or_default().is_empty() {
            object["type"] = json!("Opaque");
        }
        play_controllers(&key, &mut object);
        let mut answer = json_body(&self.store(key, object));
        *answer.status_mut() = StatusCode::CREATED;
        answer
    }

    /// What `kubectl apply` has applied is in an annotation of its patch, whole, so
    /// nothing has to be merged; other patches have no lists that need merging.
    fn patched(&mut self, key: Key, before: Value, patch: &Value) -> Response {
        let applied = &patch["metadata"]["annotations"][LAST_APPLIED];
        let mut after = before.clone();
        if let Some(applied) = applied.as_str() {
            let whole: Value = serde_json::from_str(applied).expect("kubectl writes JSON");
            for (field, value) in whole.as_object().into_iter().flatten() {
                if field != "metadata" {
                    after[field] = value.clone();
                }
            }
            merge(&mut after["metadata"], &patch["metadata"]);
        } else {
            merge(&mut after, patch);
        }
        if let Some(path) = changed_for_good(key.0, &before, &after) {
            let message = format!(
                "{} \"{}\" is invalid: {path}: field is immutable",
                key.0, key.2
            );
            return refused(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &message);
        }
        play_controllers(&key, &mut after);
        let stored = self.store(key, after);
        self.collect();
        json_body(&stored)
    }

    fn listed(&self, asked: &Asked) -> Response {
        let of_kind = self.objects.iter().filter(|(key, one)| {
            key.0 == asked.kind.plural
                && (asked.namespace.is_empty() || key.1 == asked.namespace)
                && is_selected(one, &asked.query)
        });
        let items: Vec<&Value> = of_kind.map(|(_, object)| object).collect();
        json_body(&json!({
            "apiVersion": asked.kind.api_version(), "kind": format!("{}List", asked.kind.kind),
            "metadata": { "resourceVersion": self.version.to_string() }, "items": items,
        }))
    }

    /// From the version that is asked for: what happened between a list and the watch
    /// after it is told, too.
    fn watched(&self, asked: &Asked) -> Response {
        let (plural, query) = (asked.kind.plural, asked.query.clone());
        let since: Option<u64> = query.get("resourceVersion").and_then(|at| at.parse().ok());
        let since = since.unwrap_or(self.version);
        let missed = self.history.iter().filter(|told| told.0 > since).cloned();
        let missed: VecDeque<Told> = missed.collect();
        let from = (missed, self.told.subscribe());
        let lines = futures_util::stream::unfold(from, move |(mut missed, mut told)| {
            let query = query.clone();
            async move {
                loop {
                    let (_, of, line) = match missed.pop_front() {
                        Some(missed) => missed,
                        None => told.recv().await.ok()?,
                    };
                    if of == plural && is_selected(&line["object"], &query) {
                        let line = Bytes::from(format!("{line}\n"));
                        return Some((Ok::<_, Infallible>(line), (missed, told)));
                    }
                }
            }
        });
        Body::from_stream(lines).into_response()
    }
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A field that has changed and that an API server lets nobody change.
fn changed_for_good(plural: &str, before: &Value, after: &Value) -> Option<String> {
    let mut never = immutable(plural, before).iter();
    if let Some(field) = never.find(|field| before.pointer(field) != after.pointer(field)) {
        return Some(field.trim_start_matches('/').replace('/', "."));
    }
    // Of these kinds all but some fields.
    let may_change: &[&str] = match plural {
        "statefulsets" => &[
            "minReadySeconds",
            "ordinals",
            "persistentVolumeClaimRetentionPolicy",
            "replicas",
            "revisionHistoryLimit",
            "template",
            "updateStrategy",
        ],
        "persistentvolumeclaims" => &["resources", "volumeAttributesClassName"],
        _ => return None,
    };
    let fields = [before, after].map(|object| object["spec"].as_object());
    let fields = fields.into_iter().flatten().flat_map(|spec| spec.keys());
    let mut fields = fields.filter(|field| !may_change.contains(&field.as_str()));
    let changed = fields.find(|field| before["spec"][*field] != after["spec"][*field]);
    changed.map(|field| format!("spec.{field}"))
}

/// What nobody changes, of the kinds that we have or could have.
fn immutable(plural: &str, before: &Value) -> &'static [&'static str] {
    match plural {
        "jobs" => &["/spec/template", "/spec/selector"],
        "deployments" => &["/spec/selector"],
        "rolebindings" => &["/roleRef"],
        "services" => &["/spec/clusterIP"],
        "customresourcedefinitions" => &["/spec/group", "/spec/scope", "/spec/names/plural"],
        "configmaps" | "secrets" if before["immutable"] == true => {
            &["/data", "/binaryData", "/immutable", "/type"]
        }
        "secrets" => &["/type"],
        _ => &[],
    }
}

/// There is nobody to wait for.
fn play_controllers(key: &Key, object: &mut Value) {
    if key.0 == "deployments" {
        let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
        object["metadata"]["generation"] = json!(1);
        object["status"] = json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
            "conditions": [{ "type": "Available", "status": "True" }],
        });
    }
}

fn is_selected(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let terms = |name: &str| {
        let selector = query.get(name).cloned().unwrap_or_default();
        let terms = selector.split(',').filter(|term| !term.is_empty());
        let pair = |term: &str| {
            let (field, value) = term.split_once('=').expect("FIELD=VALUE");
            (field.to_owned(), value.trim_start_matches('=').to_owned())
        };
        terms.map(pair).collect::<Vec<_>>()
    };
    let metadata = &object["metadata"];
    terms("fieldSelector").iter().all(|(field, value)| {
        let at = format!("/{}", field.replace('.', "/"));
        object.pointer(&at).is_some_and(|found| found == value)
    }) && (terms("labelSelector").iter()).all(|(label, value)| metadata["labels"][label] == **value)
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn json_body(value: &Value) -> Response {
    axum::Json(value).into_response()
}

fn refused(code: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, axum::Json(body)).into_response()
}

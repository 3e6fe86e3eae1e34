//! An API server in memory, with as much of Kubernetes as the operator meets:
//! versions, generations, finalizers, server-side apply of a status, and watches.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use operator::permissions::{PERMISSIONS, Permission};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower_test::mock;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) const NAMESPACE: &str = "paceline";

/// The server, and a client of it.
#[derive(Clone)]
pub(crate) struct Cluster {
    state: Arc<Mutex<State>>,
    pub(crate) client: Client,
}

#[derive(Default)]
pub(crate) struct State {
    /// By plural and name.
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    /// All that was asked, in order.
    pub(crate) calls: Vec<Permission>,
    /// Nothing is answered but errors.
    pub(crate) away: bool,
    watches: HashMap<String, Vec<mpsc::Sender<Bytes>>>,
}

struct Asked {
    group: String,
    plural: String,
    name: Option<String>,
    subresource: Option<String>,
    query: String,
    method: Method,
    body: Value,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let (service, handle) = mock::pair::<Request<Body>, Response<Answer>>();
        let state = Arc::new(Mutex::new(State::default()));
        let server = Arc::clone(&state);
        tokio::spawn(async move {
            let mut handle = pin!(handle);
            while let Some((request, respond)) = handle.next_request().await {
                let asked = Asked::read(request).await;
                respond.send_response(answer(&server, &asked));
            }
        });
        Self {
            state,
            client: Client::new(service, NAMESPACE),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// As somebody else's `kubectl` would: a new object, or its new spec.
    pub(crate) fn put(&self, plural: &str, object: Value) {
        self.state().put(plural, object);
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let key = (plural.to_owned(), name.to_owned());
        self.state().objects.get(&key).cloned()
    }

    pub(crate) fn remove(&self, plural: &str, name: &str) {
        let key = (plural.to_owned(), name.to_owned());
        self.state().objects.remove(&key);
    }

    /// `kubectl delete`: marks what has a finalizer.
    pub(crate) fn delete(&self, plural: &str, name: &str) {
        let mut object = self.get(plural, name).expect("it is there");
        object["metadata"]["deletionTimestamp"] = json!("2026-11-22T19:00:00Z");
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = json!(generation + 1);
        self.state().store(plural, object);
    }

    /// How often this was asked.
    pub(crate) fn count(&self, verb: &str, resource: &str) -> usize {
        let calls = &self.state().calls;
        let is_it = |call: &&Permission| call.verb == verb && call.resource == resource;
        calls.iter().filter(is_it).count()
    }

    /// The reasons of the events, in the order in which they were reported.
    pub(crate) fn events(&self) -> Vec<String> {
        let state = self.state();
        let events = state
            .objects
            .iter()
            .filter(|((plural, _), _)| plural == "events");
        let mut events: Vec<_> = events
            .map(|(_, event)| {
                let version: u64 = text(&event["metadata"]["resourceVersion"]).parse().unwrap();
                (version, text(&event["reason"]).to_owned())
            })
            .collect();
        events.sort_unstable();
        events.into_iter().map(|(_, reason)| reason).collect()
    }
}

impl State {
    fn put(&mut self, plural: &str, mut object: Value) {
        let key = (
            plural.to_owned(),
            text(&object["metadata"]["name"]).to_owned(),
        );
        let metadata = &mut object["metadata"];
        match self.objects.get(&key) {
            None => {
                metadata["uid"] = json!(format!("uid-{}", self.version + 1));
                metadata["generation"] = json!(1);
            }
            Some(before) => {
                let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
                let changed = before["spec"] != object["spec"];
                let metadata = &mut object["metadata"];
                *metadata = before["metadata"].clone();
                metadata["generation"] = json!(generation + i64::from(changed));
                object["status"] = before["status"].clone();
            }
        }
        object["metadata"]["namespace"] = json!(NAMESPACE);
        self.store(plural, object);
    }

    fn store(&mut self, plural: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = (
            plural.to_owned(),
            text(&object["metadata"]["name"]).to_owned(),
        );
        let no_finalizers = list(&object["metadata"]["finalizers"]).is_empty();
        let gone = object["metadata"]["deletionTimestamp"].is_string() && no_finalizers;
        let kind = match (gone, self.objects.contains_key(&key)) {
            (true, _) => "DELETED",
            (false, true) => "MODIFIED",
            (false, false) => "ADDED",
        };
        match gone {
            true => self.objects.remove(&key),
            false => self.objects.insert(key, object.clone()),
        };
        let line = format!("{}\n", json!({ "type": kind, "object": object }));
        for watch in self.watches.get(plural).into_iter().flatten() {
            let _ = watch.try_send(Bytes::from(line.clone()));
        }
        object
    }
}

impl Asked {
    async fn read(request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path: Vec<String> = (parts.uri.path().split('/').skip(1))
            .map(str::to_owned)
            .collect();
        // /api/v1/… and /apis/GROUP/VERSION/…
        let (group, rest) = match path[0].as_str() {
            "api" => (String::new(), &path[2..]),
            _ => (path[1].clone(), &path[3..]),
        };
        assert_eq!(
            rest[..2],
            ["namespaces", NAMESPACE],
            "never of another namespace"
        );
        Self {
            group,
            plural: rest[2].clone(),
            name: rest.get(3).cloned(),
            subresource: rest.get(4).cloned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            method: parts.method,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        }
    }

    fn verb(&self) -> &'static str {
        match (&self.method, &self.name) {
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) if self.query.contains("watch=true") => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (method, _) => panic!("{method} is not known here"),
        }
    }

    /// As a Role would have to name it.
    fn permission(&self) -> Permission {
        let resource = match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.plural),
            None => self.plural.clone(),
        };
        let asked = |may: &&Permission| {
            (may.group, may.resource, may.verb) == (&*self.group, &*resource, self.verb())
        };
        let found = PERMISSIONS.iter().find(asked);
        *found.unwrap_or_else(|| panic!("{} {resource} may not be called", self.verb()))
    }
}

fn answer(state: &Mutex<State>, asked: &Asked) -> Response<Answer> {
    let mut state = state.lock().unwrap();
    state.calls.push(asked.permission());
    if state.away {
        return status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    }
    let name = asked.name.clone().unwrap_or_default();
    let key = (asked.plural.clone(), name);
    match asked.verb() {
        "list" => {
            let found = state
                .objects
                .iter()
                .filter(|((plural, _), _)| *plural == asked.plural);
            let items: Vec<Value> = found.map(|(_, object)| object.clone()).collect();
            let version = state.version.to_string();
            json_body(&json!({
                "apiVersion": "v1", "kind": "List",
                "metadata": { "resourceVersion": version }, "items": items,
            }))
        }
        "watch" => {
            let (sender, lines) = mpsc::channel::<Bytes>(100);
            state
                .watches
                .entry(asked.plural.clone())
                .or_default()
                .push(sender);
            let frames = stream::unfold(lines, async |mut lines| {
                let line = lines.recv().await?;
                Some((Ok::<_, Infallible>(http_body::Frame::data(line)), lines))
            });
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
        "create" => {
            let name = text(&asked.body["metadata"]["name"]).to_owned();
            if state.objects.contains_key(&(asked.plural.clone(), name)) {
                return status(StatusCode::CONFLICT, "AlreadyExists");
            }
            json_body(&state.store(&asked.plural, asked.body.clone()))
        }
        verb => {
            let Some(before) = state.objects.get(&key).cloned() else {
                return status(StatusCode::NOT_FOUND, "NotFound");
            };
            match verb {
                "get" => json_body(&before),
                "update" => {
                    let version = &before["metadata"]["resourceVersion"];
                    if asked.body["metadata"]["resourceVersion"] != *version {
                        return status(StatusCode::CONFLICT, "Conflict");
                    }
                    json_body(&state.store(&asked.plural, asked.body.clone()))
                }
                _ => match patched(asked, before) {
                    Some(object) => json_body(&state.store(&asked.plural, object)),
                    None => status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
                },
            }
        }
    }
}

/// A patch of the finalizers, a status that is applied, or a merged event.
fn patched(asked: &Asked, mut object: Value) -> Option<Value> {
    if asked.subresource.as_deref() == Some("status") {
        assert!(
            asked.query.contains("fieldManager=paceline-operator"),
            "{}",
            asked.query
        );
        assert!(asked.query.contains("force=true"), "{}", asked.query);
        object["status"] = asked.body["status"].clone();
        return Some(object);
    }
    let Value::Array(operations) = &asked.body else {
        merge(&mut object, &asked.body);
        return Some(object);
    };
    for operation in operations {
        let path = text(&operation["path"]);
        match text(&operation["op"]) {
            "test" => {
                let is = object.pointer(path).unwrap_or(&Value::Null);
                if *is != operation["value"] {
                    return None;
                }
            }
            "add" => {
                assert_eq!(path, "/metadata/finalizers");
                object["metadata"]["finalizers"] = operation["value"].clone();
            }
            "remove" => {
                let at: usize = path.rsplit('/').next()?.parse().ok()?;
                object["metadata"]["finalizers"].as_array_mut()?.remove(at);
            }
            other => panic!("{other} is not known here"),
        }
    }
    Some(object)
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

fn json_body(value: &Value) -> Response<Answer> {
    Response::new(Full::from(serde_json::to_vec(value).unwrap()).boxed_unsync())
}

fn status(code: StatusCode, reason: &str) -> Response<Answer> {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16(),
    });
    let mut response = json_body(&body);
    *response.status_mut() = code;
    response
}

pub(crate) fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

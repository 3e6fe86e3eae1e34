//! An API server with as much of Kubernetes as `loadtest cluster` meets: the pods
//! of one label, one Deployment with its scale, one autoscaler, and a disruption
//! budget that refuses every eviction.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::pod::Pod;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The most changes that a watch is behind.
const MAX_TOLD: usize = 100;

/// It listens until the test ends.
pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    cluster: Arc<Cluster>,
}

struct Cluster {
    state: Mutex<State>,
    pod: AsyncMutex<Pod>,
}

struct State {
    replicas: i64,
    kills: usize,
    /// Method, path and body of all that was asked.
    asked: Vec<(Method, String, Value)>,
    watches: Vec<mpsc::Sender<Bytes>>,
}

impl ApiServer {
    /// Listens; whoever deletes the pod `worker-0` has this one replaced.
    pub(crate) async fn start(pod: Pod) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cluster = Arc::new(Cluster {
            state: Mutex::new(State {
                replicas: 2,
                kills: 0,
                asked: Vec::new(),
                watches: Vec::new(),
            }),
            pod: AsyncMutex::new(pod),
        });
        let serving = Arc::clone(&cluster);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let cluster = Arc::clone(&serving);
                let service = service_fn(move |request| {
                    let cluster = Arc::clone(&cluster);
                    async move { Ok::<_, Infallible>(cluster.answer(request).await) }
                });
                let io = TokioIo::new(stream);
                tokio::spawn(http1::Builder::new().serve_connection(io, service));
            }
        });
        Self { address, cluster }
    }

    /// How often something that ends so was asked for.
    pub(crate) fn count(&self, method: &str, end: &str) -> usize {
        let state = self.cluster.state();
        let is_it = |(asked, path, _): &&(Method, String, Value)| {
            asked.as_str() == method && path.ends_with(end)
        };
        state.asked.iter().filter(is_it).count()
    }

    /// The bodies of what was asked for below a path.
    pub(crate) fn bodies(&self, method: &str, below: &str) -> Vec<Value> {
        let state = self.cluster.state();
        let asked = state.asked.iter();
        let found = asked.filter(|(asked, path, _)| asked == method && path.contains(below));
        found.map(|(_, _, body)| body.clone()).collect()
    }

    pub(crate) fn kills(&self) -> usize {
        self.cluster.state().kills
    }

    pub(crate) fn replicas(&self) -> i64 {
        self.cluster.state().replicas
    }
}

impl Cluster {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default();
        let asked = (parts.method.clone(), path.clone(), body.clone());
        self.state().asked.push(asked);
        let core = "/api/v1/namespaces/paceline/pods";
        let deployments = "/apis/apps/v1/namespaces/paceline/deployments";
        let autoscalers = "/apis/autoscaling/v2/namespaces/paceline/horizontalpodautoscalers";
        match (parts.method.as_str(), path.as_str()) {
            ("GET", path) if path == core => {
                assert!(query.contains("labelSelector=app%3Dworker"), "{query}");
                listed(&[pod("worker-0", "Running"), pod("worker-1", "Pending")])
            }
            ("POST", path) if path == format!("{core}/worker-0/eviction") => refused(),
            ("DELETE", path) if path == format!("{core}/worker-0") => {
                self.pod.lock().await.replace().await;
                self.state().kills += 1;
                answered(&pod("worker-0", "Running"))
            }
            ("GET", path) if path == deployments || path == autoscalers => {
                let is_deployment = path == deployments;
                if query.contains("watch=true") {
                    return self.watched(is_deployment);
                }
                let replicas = self.state().replicas;
                listed(&[match is_deployment {
                    true => deployment(replicas),
                    false => autoscaler(replicas),
                }])
            }
            (method, path) if path == format!("{deployments}/worker/scale") => {
                if method == "PATCH" {
                    self.scale(body["spec"]["replicas"].as_i64().unwrap());
                }
                answered(&json!({
                    "apiVersion": "autoscaling/v1", "kind": "Scale",
                    "metadata": { "name": "worker" },
                    "spec": { "replicas": self.state().replicas },
                }))
            }
            (method, path) => panic!("{method} {path} is not known here"),
        }
    }

    fn scale(&self, replicas: i64) {
        let mut state = self.state();
        state.replicas = replicas;
        let line = json!({ "type": "MODIFIED", "object": deployment(replicas) });
        let line = Bytes::from(format!("{line}\n"));
        state
            .watches
            .retain(|watch| watch.try_send(line.clone()).is_ok());
    }

    /// Of autoscalers nothing is ever told.
    fn watched(&self, is_told: bool) -> Answer {
        let (sender, lines) = mpsc::channel::<Bytes>(MAX_TOLD);
        let frames = stream::unfold((lines, sender.clone()), async |(mut lines, sender)| {
            let line = lines.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(line)), (lines, sender)))
        });
        if is_told {
            self.state().watches.push(sender);
        }
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

fn pod(name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "paceline", "labels": { "app": "worker" } },
        "status": { "phase": phase },
    })
}

fn deployment(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "worker", "namespace": "paceline", "resourceVersion": "1" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "worker" } },
            "template": {},
        },
        "status": { "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2 },
    })
}

fn autoscaler(replicas: i64) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": "worker", "namespace": "paceline", "resourceVersion": "1" },
        "spec": {
            "maxReplicas": 10,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "worker" },
        },
        "status": { "currentReplicas": replicas, "desiredReplicas": replicas },
    })
}

fn listed(items: &[Value]) -> Answer {
    answered(&json!({
        "apiVersion": "v1", "kind": "List",
        "metadata": { "resourceVersion": "1" }, "items": items,
    }))
}

/// As an API server says it, with the header that a client may wait by.
fn refused() -> Answer {
    let mut answer = answered(&json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests", "code": 429,
    }));
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = answer.headers_mut();
    headers.insert("retry-after", "1".parse().unwrap());
    answer
}

fn answered(value: &Value) -> Answer {
    Response::new(Full::from(serde_json::to_vec(value).unwrap()).boxed_unsync())
}

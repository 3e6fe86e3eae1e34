//! What is done to a cluster: pods are ended, Deployments scaled.
//!
//! Each call is made once. An answer is an entry in the timeline, whatever it is:
//! a refusal by a disruption budget is a finding and no trouble of ours.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::json;

use super::access::Cluster;
use super::fault::{Action, Fault, Manner};
use super::timeline::{Answer, Happening, Timeline};

/// How long one call to the API server may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The most pods of a selector that are looked at.
const MAX_LISTED: u32 = 500;

/// Whoever does it.
pub(super) struct Hands {
    pods: Api<Pod>,
    deployments: Api<Deployment>,
    timeline: Timeline,
    rng: StdRng,
    /// The replicas of what was scaled, as they were before.
    before: BTreeMap<String, i32>,
}

impl Hands {
    pub(super) fn new(cluster: &Cluster, timeline: Timeline, seed: u64) -> Self {
        let (client, namespace) = (&cluster.client, &cluster.namespace);
        Self {
            pods: Api::namespaced(client.clone(), namespace),
            deployments: Api::namespaced(client.clone(), namespace),
            timeline,
            rng: StdRng::seed_from_u64(seed),
            before: BTreeMap::new(),
        }
    }

    /// Does it, and notes what was answered.
    pub(super) async fn strike(&mut self, fault: &Fault) {
        match &fault.action {
            Action::End {
                manner,
                selector,
                count,
            } => match self.choose(selector, *count).await {
                Ok(chosen) if chosen.is_empty() => {
                    let nobody = Err(Said::not_found("no running pod matches"));
                    self.note(manner.as_str(), selector, nobody);
                }
                Ok(chosen) => {
                    for pod in chosen {
                        let said = self.end(*manner, &pod).await;
                        self.note(manner.as_str(), &format!("pod {pod}"), said);
                    }
                }
                Err(said) => self.note(manner.as_str(), selector, Err(said)),
            },
            Action::Scale {
                deployment,
                replicas,
            } => {
                let said = self.scale(deployment, *replicas).await;
                let object = format!("deployment {deployment} to {replicas}");
                self.note("scale", &object, said);
            }
        }
    }

    /// Gives back what was scaled, once.
    pub(super) async fn scale_back(&mut self) {
        for (deployment, replicas) in std::mem::take(&mut self.before) {
            let said = self.set_replicas(&deployment, replicas).await;
            let object = format!("deployment {deployment} to {replicas}");
            self.note("scale back", &object, said);
        }
    }

    /// Pods that run and are not about to end.
    async fn choose(&mut self, selector: &str, count: u32) -> Result<Vec<String>, Said> {
        let matching = ListParams::default().labels(selector).limit(MAX_LISTED);
        let listed = bounded(self.pods.list(&matching)).await?;
        let is_running = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_ref());
            phase.is_some_and(|phase| phase == "Running")
                && pod.metadata.deletion_timestamp.is_none()
        };
        let running = listed.items.iter().filter(|pod| is_running(pod));
        let mut names: Vec<_> = running.map(ResourceExt::name_any).collect();
        names.sort_unstable();
        names.shuffle(&mut self.rng);
        names.truncate(count as usize);
        Ok(names)
    }

    async fn end(&self, manner: Manner, pod: &str) -> Result<(), Said> {
        let at_once = DeleteParams::default().grace_period(0);
        match manner {
            Manner::Evict => {
                let asked = EvictParams::default();
                bounded(self.pods.evict(pod, &asked)).await.map(drop)
            }
            Manner::Delete => {
                let asked = DeleteParams::default();
                bounded(self.pods.delete(pod, &asked)).await.map(drop)
            }
            Manner::Kill => bounded(self.pods.delete(pod, &at_once)).await.map(drop),
        }
    }

    async fn scale(&mut self, deployment: &str, replicas: i32) -> Result<(), Said> {
        let scale = bounded(self.deployments.get_scale(deployment)).await?;
        let was = scale.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        self.set_replicas(deployment, replicas).await?;
        self.before.entry(deployment.to_owned()).or_insert(was);
        Ok(())
    }

    async fn set_replicas(&self, deployment: &str, replicas: i32) -> Result<(), Said> {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let ours = PatchParams::default();
        let patched = self.deployments.patch_scale(deployment, &ours, &patch);
        bounded(patched).await.map(drop)
    }

    fn note(&self, verb: &str, object: &str, said: Result<(), Said>) {
        let (answer, message) = match said {
            Ok(()) => (Answer::Done, None),
            Err(said) => (said.answer, Some(said.message)),
        };
        self.timeline.add(Happening::Fault {
            verb: verb.to_owned(),
            object: object.to_owned(),
            answer,
            message,
        });
    }
}

/// Why it was not done.
struct Said {
    answer: Answer,
    message: String,
}

impl Said {
    fn not_found(message: &str) -> Self {
        Self {
            answer: Answer::NotFound,
            message: message.to_owned(),
        }
    }
}

async fn bounded<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Said> {
    let error = match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error,
        Err(_elapsed) => {
            return Err(Said {
                answer: Answer::Failed,
                message: format!("no answer within {PATIENCE:?}"),
            });
        }
    };
    let answer = match &error {
        kube::Error::Api(status) if status.code == 429 => Answer::Refused,
        kube::Error::Api(status) if status.code == 404 => Answer::NotFound,
        _ => Answer::Failed,
    };
    let message = match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    };
    Err(Said { answer, message })
}

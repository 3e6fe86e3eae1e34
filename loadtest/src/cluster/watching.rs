//! What Deployments and autoscalers do meanwhile.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::access::Cluster;
use super::timeline::{Happening, Timeline};

/// Something that is watched.
trait Watched: Resource + Clone + Debug + DeserializeOwned + Send + 'static {
    const WORD: &'static str;

    /// How it stands.
    fn state(&self) -> Happening;
}

/// Notes every change of state, for ever.
pub(super) async fn watch(cluster: &Cluster, timeline: Timeline) -> Infallible {
    let (client, namespace) = (&cluster.client, &cluster.namespace);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(client.clone(), namespace);
    tokio::join!(
        watch_all(deployments, timeline.clone()),
        watch_all(autoscalers, timeline)
    )
    .0
}

async fn watch_all<K: Watched>(api: Api<K>, timeline: Timeline) -> Infallible
where
    K::DynamicType: Default,
{
    let mut seen: BTreeMap<String, Happening> = BTreeMap::new();
    let mut trouble = String::new();
    loop {
        let mut events = watcher(api.clone(), watcher::Config::default())
            .default_backoff()
            .boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    let state = object.state();
                    if seen.get(&object.name_any()) != Some(&state) {
                        seen.insert(object.name_any(), state.clone());
                        timeline.add(state);
                    }
                }
                Ok(Event::Delete(object)) => {
                    let name = object.name_any();
                    let object = format!("{} {name}", K::WORD);
                    seen.remove(&name);
                    timeline.add(Happening::Gone { object });
                }
                Ok(Event::Init | Event::InitDone) => {}
                // It goes on trying; the same trouble is told once.
                Err(error) => {
                    let message = error.to_string();
                    if message != trouble {
                        trouble.clone_from(&message);
                        let object = format!("{}s", K::WORD);
                        timeline.add(Happening::Unwatched { object, message });
                    }
                }
            }
        }
    }
}

impl Watched for Deployment {
    const WORD: &'static str = "deployment";

    fn state(&self) -> Happening {
        let spec = self.spec.as_ref();
        let status = self.status.clone().unwrap_or_default();
        Happening::Deployment {
            name: self.name_any(),
            wanted: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            updated: status.updated_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
        }
    }
}

impl Watched for HorizontalPodAutoscaler {
    const WORD: &'static str = "autoscaler";

    fn state(&self) -> Happening {
        let status = self.status.clone().unwrap_or_default();
        Happening::Autoscaler {
            name: self.name_any(),
            current: status.current_replicas.unwrap_or(0),
            wanted: status.desired_replicas,
        }
    }
}

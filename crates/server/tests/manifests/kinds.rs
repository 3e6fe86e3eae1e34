//! The kinds that the API server in memory has, as `kubectl` discovers them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A kind, and where its resources are.
pub(crate) struct Kind {
    group: &'static str,
    version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    is_namespaced: bool,
    /// The definition without which it is not there.
    pub(crate) definition: Option<&'static str>,
}

const fn kind(at: (&'static str, &'static str), kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: at.0,
        version: at.1,
        kind,
        plural,
        is_namespaced: true,
        definition: None,
    }
}

const fn of_the_cluster(kind: Kind) -> Kind {
    Kind {
        is_namespaced: false,
        ..kind
    }
}

/// Those of Kubernetes and of operators that have to be there before ours; and ours,
/// once it is defined.
const KINDS: [Kind; 28] = [
    of_the_cluster(kind(("", "v1"), "Namespace", "namespaces")),
    kind(("", "v1"), "ConfigMap", "configmaps"),
    kind(("", "v1"), "Secret", "secrets"),
    kind(("", "v1"), "Service", "services"),
    kind(("", "v1"), "ServiceAccount", "serviceaccounts"),
    kind(("", "v1"), "Event", "events"),
    kind(
        ("", "v1"),
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
    ),
    kind(("apps", "v1"), "Deployment", "deployments"),
    kind(("apps", "v1"), "StatefulSet", "statefulsets"),
    kind(("batch", "v1"), "Job", "jobs"),
    kind(
        ("autoscaling", "v2"),
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    ),
    kind(
        ("networking.k8s.io", "v1"),
        "NetworkPolicy",
        "networkpolicies",
    ),
    kind(("networking.k8s.io", "v1"), "Ingress", "ingresses"),
    kind(("gateway.networking.k8s.io", "v1"), "Gateway", "gateways"),
    kind(
        ("gateway.networking.k8s.io", "v1"),
        "HTTPRoute",
        "httproutes",
    ),
    kind(
        ("policy", "v1"),
        "PodDisruptionBudget",
        "poddisruptionbudgets",
    ),
    kind(("rbac.authorization.k8s.io", "v1"), "Role", "roles"),
    kind(
        ("rbac.authorization.k8s.io", "v1"),
        "RoleBinding",
        "rolebindings",
    ),
    of_the_cluster(kind(
        ("apiextensions.k8s.io", "v1"),
        "CustomResourceDefinition",
        "customresourcedefinitions",
    )),
    kind(
        ("discovery.k8s.io", "v1"),
        "EndpointSlice",
        "endpointslices",
    ),
    kind(("monitoring.coreos.com", "v1"), "PodMonitor", "podmonitors"),
    kind(
        ("monitoring.coreos.com", "v1"),
        "ServiceMonitor",
        "servicemonitors",
    ),
    kind(
        ("monitoring.coreos.com", "v1"),
        "PrometheusRule",
        "prometheusrules",
    ),
    kind(("keda.sh", "v1alpha1"), "ScaledObject", "scaledobjects"),
    kind(
        ("keda.sh", "v1alpha1"),
        "TriggerAuthentication",
        "triggerauthentications",
    ),
    kind(("postgresql.cnpg.io", "v1"), "Cluster", "clusters"),
    kind(
        ("rabbitmq.com", "v1beta1"),
        "RabbitmqCluster",
        "rabbitmqclusters",
    ),
    Kind {
        definition: Some("destinations.paceline.dev"),
        ..kind(("paceline.dev", "v1alpha1"), "Destination", "destinations")
    },
];

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Where its resources begin.
    fn root(&self) -> String {
        match self.group {
            "" => format!("api/{}", self.version),
            group => format!("apis/{group}/{}", self.version),
        }
    }
}

/// The kinds of one group, and the path beneath it.
pub(crate) type Beneath<'a> = (Vec<&'static Kind>, &'a str);

/// What is at a path: an answer of discovery (as an error), or resources.
pub(crate) fn discovered(
    path: &str,
    is_served: impl Fn(&Kind) -> bool,
) -> Result<Option<Beneath<'_>>, Value> {
    match path {
        "version" => return Err(json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.2" })),
        "api" => return Err(json!({ "kind": "APIVersions", "versions": ["v1"] })),
        "apis" => return Err(groups(&is_served)),
        _ => {}
    }
    let served = KINDS.iter().filter(|kind| is_served(kind));
    let beneath = served.filter(|kind| path.starts_with(&kind.root()));
    let kinds: Vec<&Kind> = beneath.collect();
    let Some(first) = kinds.first() else {
        return Ok(None);
    };
    match path[first.root().len()..].trim_start_matches('/') {
        "" => Err(resources(&first.api_version(), &kinds)),
        rest => Ok(Some((kinds, rest))),
    }
}

fn groups(is_served: &impl Fn(&Kind) -> bool) -> Value {
    let served = KINDS.iter().filter(|kind| is_served(kind));
    let named = served.filter(|kind| !kind.group.is_empty());
    let groups: BTreeMap<&str, &Kind> = named.map(|kind| (kind.group, kind)).collect();
    let groups: Vec<Value> = (groups.into_iter())
        .map(|(name, kind)| {
            let version = json!({ "groupVersion": kind.api_version(), "version": kind.version });
            json!({ "name": name, "versions": [version], "preferredVersion": version })
        })
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn resources(version: &str, kinds: &[&Kind]) -> Value {
    let resources: Vec<Value> = (kinds.iter())
        .map(|kind| {
            json!({
                "name": kind.plural, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
                "namespaced": kind.is_namespaced,
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            })
        })
        .collect();
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
        "resources": resources,
    })
}

/// Says of every kind that the server looks for unknown fields itself. (It does not:
/// `scripts/manifests` and the test of types do.)
pub(crate) fn openapi(root: &str) -> Value {
    if root.is_empty() {
        let paths = KINDS.iter().map(|kind| {
            let root = kind.root();
            let url = format!("/openapi/v3/{root}");
            (root, json!({ "serverRelativeURL": url }))
        });
        return json!({ "paths": paths.collect::<serde_json::Map<_, _>>() });
    }
    let of_group = KINDS.iter().filter(|kind| kind.root() == root);
    let paths = of_group.map(|kind| {
        let namespace = if kind.is_namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let path = format!("/{root}/{namespace}{}/{{name}}", kind.plural);
        let patch = json!({
            "parameters": [{ "name": "fieldValidation", "in": "query" }],
            "responses": {}, "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind":
                { "group": kind.group, "version": kind.version, "kind": kind.kind },
        });
        (path, json!({ "patch": patch }))
    });
    json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "1" },
        "paths": paths.collect::<serde_json::Map<_, _>>(), "components": { "schemas": {} },
    })
}

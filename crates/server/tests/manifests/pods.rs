//! The pods that a build's Deployments make.

use std::collections::BTreeMap;

use serde_json::Value;

use super::built::{Build, labels, list, name, text};

/// One pod of a template.
#[derive(Clone)]
pub(crate) struct Pod<'a> {
    /// The Deployment.
    pub(crate) owner: &'a Value,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: &'a Value,
}

/// What every pod of ours is named by.
pub(crate) const ROLES: [&str; 4] = ["api", "scheduler", "worker", "operator"];

impl Build {
    pub(crate) fn pods(&self) -> Vec<Pod<'_>> {
        self.of_kind("Deployment")
            .map(|owner| Pod {
                owner,
                labels: labels(&owner["spec"]["template"]["metadata"]["labels"]),
                spec: &owner["spec"]["template"]["spec"],
            })
            .collect()
    }

    /// The pod of this role, or of the server of this name.
    pub(crate) fn pod(&self, of: &str) -> Option<Pod<'_>> {
        let mut pods = self
            .pods()
            .into_iter()
            .filter(|pod| pod.role() == Some(of) || pod.app() == of);
        let found = pods.next();
        assert!(pods.next().is_none(), "{}: {of} is one pod", self.name);
        found
    }

    /// The labels of the pods that operators make of the servers here.
    pub(crate) fn made(&self) -> Vec<BTreeMap<String, String>> {
        let of = |kind, label: &'static str| {
            self.of_kind(kind)
                .map(move |one| BTreeMap::from([(label.to_owned(), name(one).to_owned())]))
        };
        of("Cluster", "cnpg.io/cluster")
            .chain(of("RabbitmqCluster", "app.kubernetes.io/name"))
            .collect()
    }

    /// The pods that run the program.
    pub(crate) fn roles(&self) -> Vec<(&'static str, Pod<'_>)> {
        let roles = ROLES.map(|role| (role, self.pod(role).expect("each role has a pod")));
        let ours = self
            .pods()
            .iter()
            .filter(|pod| pod.app() == "paceline")
            .count();
        assert_eq!(ours, roles.len(), "{} has pods of no role", self.name);
        roles.into()
    }
}

impl Pod<'_> {
    pub(crate) fn name(&self) -> &str {
        name(self.owner)
    }

    pub(crate) fn app(&self) -> &str {
        &self.labels["app.kubernetes.io/name"]
    }

    pub(crate) fn role(&self) -> Option<&str> {
        self.labels
            .get("app.kubernetes.io/component")
            .map(String::as_str)
    }

    /// Its one container.
    pub(crate) fn container(&self) -> &Value {
        let containers = list(&self.spec["containers"]);
        assert_eq!(containers.len(), 1, "{} has one container", self.name());
        &containers[0]
    }

    /// What runs before it, one after the other.
    pub(crate) fn before(&self) -> &[Value] {
        let before = self.spec["initContainers"].as_array();
        before.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn arguments(&self) -> Vec<&str> {
        list(&self.container()["args"]).iter().map(text).collect()
    }

    /// The number of a port, which is given by name or number.
    pub(crate) fn port(&self, port: &Value) -> Option<u64> {
        let ports = list(&self.container()["ports"]);
        match port.as_u64() {
            Some(number) => Some(number),
            None => (ports.iter().find(|one| one["name"] == *port))
                .and_then(|one| one["containerPort"].as_u64()),
        }
    }

    pub(crate) fn listens(&self, number: u64) -> bool {
        list(&self.container()["ports"])
            .iter()
            .any(|port| port["containerPort"] == number)
    }
}

//! Pods are selected, probed, kept apart and locked down.

use serde_json::{Value, json};

use super::built::{every, labels, list, name, selects, text};
use super::settings::environment;

#[test]
fn every_selector_selects_a_pod() {
    for build in every() {
        let pods = build.pods();
        let made = build.made();
        let selected = |selector: &Value| {
            let labels = pods.iter().map(|pod| &pod.labels).chain(&made);
            labels.filter(|labels| selects(selector, labels)).count()
        };
        for pod in pods.iter().filter(|pod| pod.owner["kind"] == "Deployment") {
            let selector = &pod.owner["spec"]["selector"];
            assert!(selects(selector, &pod.labels), "{}", pod.name());
            assert_eq!(selected(selector), 1, "{} selects only its own", pod.name());
        }
        for service in build.of_kind("Service") {
            let selector = json!({ "matchLabels": service["spec"]["selector"] });
            assert_eq!(
                selected(&selector),
                1,
                "{} Service {}",
                build.name,
                name(service)
            );
        }
        for kind in ["PodDisruptionBudget", "PodMonitor"] {
            for object in build.of_kind(kind) {
                let selector = &object["spec"]["selector"];
                assert!(selected(selector) > 0, "{kind} {}", name(object));
            }
        }
        for policy in build.of_kind("NetworkPolicy") {
            assert!(
                selected(&policy["spec"]["podSelector"]) > 0,
                "{}",
                name(policy)
            );
        }
    }
}

#[test]
fn services_and_probes_name_ports_that_are_there() {
    for build in every() {
        for service in build.of_kind("Service") {
            let selector = json!({ "matchLabels": service["spec"]["selector"] });
            let ports = list(&service["spec"]["ports"]).iter();
            let mut ports = ports.map(|port| &port["targetPort"]);
            assert!(
                ports.all(|port| port != "metrics"),
                "they are not published"
            );
            let pods = build.pods();
            let pod = pods.iter().find(|pod| selects(&selector, &pod.labels));
            let pod = pod.expect("it selects one");
            for port in list(&service["spec"]["ports"]) {
                let number = pod
                    .port(&port["targetPort"])
                    .expect("the pod has that port");
                assert!(pod.listens(number), "{}", name(service));
            }
        }
        for pod in build.pods() {
            let container = pod.container();
            let probes = ["startupProbe", "livenessProbe", "readinessProbe"];
            for probe in probes.map(|probe| &container[probe]) {
                let port = [&probe["httpGet"]["port"], &probe["tcpSocket"]["port"]];
                let port = port.into_iter().find(|port| !port.is_null());
                if let Some(port) = port {
                    let number = pod.port(port).expect("the pod has that port");
                    assert!(pod.listens(number), "{}", pod.name());
                } else {
                    assert!(
                        probe["exec"]["command"].is_array(),
                        "{} is probed",
                        pod.name()
                    );
                }
            }
        }
        for monitor in build.of_kind("PodMonitor") {
            for (role, pod) in build.roles() {
                if selects(&monitor["spec"]["selector"], &pod.labels) {
                    for endpoint in list(&monitor["spec"]["podMetricsEndpoints"]) {
                        let port = pod.port(&endpoint["port"]).expect("it is there");
                        let listens = &environment(build, &pod)["PACELINE_METRICS_LISTEN"];
                        assert!(listens.ends_with(&format!(":{port}")), "{role}: {listens}");
                        assert_eq!(endpoint["path"], "/metrics");
                    }
                }
            }
        }
    }
}

/// A server that is away must restart nothing, so liveness asks nobody.
#[test]
fn roles_are_live_by_livez_and_ready_by_readyz() {
    let routes = server::api::openapi().paths.paths;
    for (role, pod) in every().flat_map(super::built::Build::roles) {
        let path = |probe: &str| text(&pod.container()[probe]["httpGet"]["path"]).to_owned();
        assert_eq!(path("startupProbe"), "/livez", "{role}");
        assert_eq!(path("livenessProbe"), "/livez", "{role}");
        assert_eq!(path("readinessProbe"), "/readyz", "{role}");
        assert!(
            routes.contains_key(&path("livenessProbe"))
                && routes.contains_key(&path("readinessProbe"))
        );
    }
}

#[test]
fn pods_have_no_power() {
    for build in every() {
        for pod in build.pods() {
            let at = format!("{}: {}", build.name, pod.name());
            // It alone calls the API server.
            let has_token = pod.role() == Some("operator");
            assert_eq!(pod.spec["automountServiceAccountToken"], has_token, "{at}");
            assert_eq!(pod.spec["enableServiceLinks"], false, "{at}");
            assert_eq!(pod.spec["securityContext"]["runAsNonRoot"], true, "{at}");
            assert_eq!(
                pod.spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
                "{at}"
            );
            for shared in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod.spec[shared].is_null(), "{at}");
            }
            for container in std::iter::once(pod.container()).chain(pod.before()) {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false, "{at}");
                assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{at}");
                // It writes its own configuration; only in dev.
                assert_eq!(
                    security["readOnlyRootFilesystem"],
                    pod.app() != "rabbitmq",
                    "{at}"
                );
                let resources = &container["resources"];
                for wanted in [
                    &resources["requests"]["cpu"],
                    &resources["requests"]["memory"],
                    &resources["limits"]["memory"],
                ] {
                    assert!(wanted.is_string(), "{at}");
                }
            }
            if pod.app() == "paceline" {
                assert!(pod.spec["volumes"].is_null(), "{at} writes nothing");
                let account = text(&pod.spec["serviceAccountName"]);
                let account = build
                    .find("ServiceAccount", account)
                    .expect("its account is there");
                assert_eq!(account["automountServiceAccountToken"], false, "{at}");
            }
        }
        let namespace = build
            .find("Namespace", "paceline")
            .expect("it has a namespace");
        let levels = labels(&namespace["metadata"]["labels"]);
        assert_eq!(levels["pod-security.kubernetes.io/enforce"], "restricted");
    }
}

#[test]
fn rollouts_and_drains_leave_enough_pods() {
    for build in every() {
        for (role, pod) in build.roles() {
            let update = &pod.owner["spec"]["strategy"]["rollingUpdate"];
            assert_eq!(update["maxUnavailable"], 0, "{role}");
            assert!(
                update["maxSurge"].as_u64() > Some(0),
                "{role} could not be rolled"
            );
            let budget = build
                .find("PodDisruptionBudget", role)
                .expect("it has a budget");
            assert!(selects(&budget["spec"]["selector"], &pod.labels));
            assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
            assert!(
                budget["spec"]["maxUnavailable"].as_u64() > Some(0),
                "{role} could not be drained"
            );
            let spread = list(&pod.spec["topologySpreadConstraints"]);
            let over: Vec<&str> = spread.iter().map(|one| text(&one["topologyKey"])).collect();
            assert_eq!(
                over,
                ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
            );
            assert!(
                spread
                    .iter()
                    .all(|one| selects(&one["labelSelector"], &pod.labels))
            );
        }
    }
}

/// A Job that has changed cannot be applied again.
#[test]
fn nothing_is_a_job() {
    for build in every() {
        assert_eq!(build.of_kind("Job").count(), 0, "{}", build.name);
    }
}

#[test]
fn every_role_runs_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for build in every() {
        for (role, pod) in build.roles() {
            let image = text(&pod.container()["image"]);
            let (_, tag) = image.rsplit_once(':').expect("the image has a tag");
            assert_eq!(tag, version, "{role}");
        }
    }
}

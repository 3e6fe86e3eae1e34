//! The examples that publish the API: with TLS, and nothing but the API.

use k8s_openapi::api::networking::v1::Ingress;
use serde_json::Value;

use super::built::{BUILDS, documents, list, name, read, text};
use super::types::surplus;

/// The port of a Service of ours, by name or number.
fn port<'a>(service: &str, port: &Value) -> &'a Value {
    let service = BUILDS[1].find("Service", service).expect("it is there");
    let mut ports = list(&service["spec"]["ports"]).iter();
    let found = ports.find(|one| one["name"] == *port || one["port"] == *port);
    found.expect("it has that port")
}

#[test]
fn an_ingress_publishes_the_api_with_tls() {
    let ingress = documents(&read("k8s/samples/ingress.yaml")).remove(0);
    assert_eq!(surplus::<Ingress>(&ingress), [""; 0]);
    let spec = &ingress["spec"];
    for rule in list(&spec["rules"]) {
        let mut covered = list(&spec["tls"])
            .iter()
            .flat_map(|tls| list(&tls["hosts"]));
        assert!(covered.any(|host| *host == rule["host"]), "by TLS");
        for path in list(&rule["http"]["paths"]) {
            let service = &path["backend"]["service"];
            assert_eq!(service["name"], "api");
            let port = match &service["port"]["name"] {
                Value::Null => port("api", &service["port"]["number"]),
                name => port("api", name),
            };
            assert_eq!(port["targetPort"], "http");
        }
    }
}

#[test]
fn a_gateway_publishes_the_api_with_tls() {
    let objects = documents(&read("k8s/samples/gateway.yaml"));
    let [gateway, route] = &objects[..] else {
        panic!("a Gateway and its route")
    };
    let listeners = list(&gateway["spec"]["listeners"]);
    for listener in listeners {
        assert_eq!(listener["protocol"], "HTTPS");
        assert_eq!(listener["tls"]["mode"], "Terminate");
        let certificates = list(&listener["tls"]["certificateRefs"]);
        assert!(!certificates.is_empty());
        assert_eq!(route["spec"]["hostnames"][0], listener["hostname"]);
    }
    let parent = &route["spec"]["parentRefs"][0];
    assert_eq!(text(&parent["name"]), name(gateway));
    assert_eq!(parent["sectionName"], listeners[0]["name"]);
    for rule in list(&route["spec"]["rules"]) {
        for backend in list(&rule["backendRefs"]) {
            assert_eq!(backend["name"], "api");
            assert_eq!(port("api", &backend["port"])["targetPort"], "http");
        }
    }
}

//! Who may talk to whom: the NetworkPolicies of each build, judged as a network
//! would, against a table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use adapters::http::Policy;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::built::{BUILDS, Build, EXTRAS, every, list, selects, text};
use super::pods::Pod;

/// One end of a connection.
#[derive(Clone)]
pub(crate) enum End<'a> {
    /// Of the build, in the namespace `paceline`.
    Ours(Pod<'a>),
    /// A pod of another namespace: the labels of that, and its own.
    Other(BTreeMap<String, String>, BTreeMap<String, String>),
    /// Not a pod.
    Address(IpAddr),
}

pub(crate) fn map<const N: usize>(labels: [(&str, &str); N]) -> BTreeMap<String, String> {
    labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

pub(crate) fn namespace(name: &str) -> BTreeMap<String, String> {
    map([("kubernetes.io/metadata.name", name)])
}

/// Whether both ends' policies let a TCP connection through.
pub(crate) fn may_talk(build: &Build, from: &End<'_>, to: &End<'_>, port: u64) -> bool {
    passes(build, from, to, to, port, Way::Out) && passes(build, to, from, to, port, Way::In)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// What the policies of `of` say of `peer`; `listener` has the port.
fn passes(
    build: &Build,
    of: &End<'_>,
    peer: &End<'_>,
    listener: &End<'_>,
    port: u64,
    way: Way,
) -> bool {
    let End::Ours(pod) = of else { return true };
    let (kind, rules, peers) = match way {
        Way::Out => ("Egress", "egress", "to"),
        Way::In => ("Ingress", "ingress", "from"),
    };
    let policies = build.of_kind("NetworkPolicy").map(|policy| &policy["spec"]);
    let mut bound = policies.filter(|spec| {
        let types = list(&spec["policyTypes"]);
        assert!(!types.is_empty(), "policies say what they are about");
        selects(&spec["podSelector"], &pod.labels) && types.iter().any(|one| one == kind)
    });
    let mut judged = false;
    let let_through = bound.any(|spec| {
        judged = true;
        list(&spec[rules]).iter().any(|rule| {
            let ports = list(&rule["ports"]);
            let open = ports.iter().any(|one| opens(one, listener, port));
            let known = list(&rule[peers]).iter().any(|one| is_peer(one, peer));
            // Absent is anybody, or any port.
            (open || rule["ports"].is_null()) && (known || rule[peers].is_null())
        })
    });
    let_through || !judged
}

fn opens(rule: &Value, listener: &End<'_>, port: u64) -> bool {
    assert!(rule["endPort"].is_null(), "not known here");
    let number = match listener {
        End::Ours(pod) => pod.port(&rule["port"]),
        End::Other(..) | End::Address(_) => rule["port"].as_u64(),
    };
    rule["protocol"] == "TCP" && number == Some(port)
}

fn is_peer(rule: &Value, end: &End<'_>) -> bool {
    let (block, pods, namespaces) = (
        &rule["ipBlock"],
        &rule["podSelector"],
        &rule["namespaceSelector"],
    );
    let (in_namespace, own) = match end {
        End::Address(address) => return block.is_object() && contains(block, *address),
        End::Ours(pod) => (namespace("paceline"), &pod.labels),
        End::Other(namespace, labels) => (namespace.clone(), labels),
    };
    let right_namespace = match namespaces {
        Value::Null => matches!(end, End::Ours(_)),
        selector => selects(selector, &in_namespace),
    };
    block.is_null() && right_namespace && selects(pods, own)
}

fn contains(block: &Value, address: IpAddr) -> bool {
    let network = |text: &str| text.parse::<IpNet>().expect("a network");
    let whole = network(text(&block["cidr"]));
    let excepted = list(&block["except"])
        .iter()
        .map(|except| network(text(except)));
    let excepted: Vec<IpNet> = excepted.collect();
    // The API server refuses one that is not within.
    assert!(
        excepted.iter().all(|except| whole.contains(except)),
        "{block}"
    );
    whole.contains(&address) && !excepted.iter().any(|except| except.contains(&address))
}

/// Everybody who could try, by name.
fn ends(build: &Build) -> BTreeMap<&'static str, End<'_>> {
    let mut ends = BTreeMap::new();
    for name in ["api", "scheduler", "worker", "operator", "receiver"] {
        if let Some(pod) = build.pod(name) {
            ends.insert(name, End::Ours(pod));
        }
    }
    for name in ["postgres", "redis", "rabbitmq"] {
        let elsewhere = End::Other(
            namespace("data"),
            map([("app.kubernetes.io/component", name)]),
        );
        ends.insert(name, build.pod(name).map_or(elsewhere, End::Ours));
    }
    let other = |of, label| End::Other(namespace(of), map([label]));
    ends.insert("prometheus", other("monitoring", ("app", "prometheus")));
    ends.insert("keda", other("keda", ("app", "keda-operator")));
    let collector = ("app.kubernetes.io/name", "opentelemetry-collector");
    ends.insert("collector", other("observability", collector));
    ends.insert("dns", other("kube-system", ("k8s-app", "kube-dns")));
    // In the right namespace and yet not meant; and labelled as ours elsewhere.
    ends.insert("stranger", other("data", ("app", "something")));
    ends.insert(
        "impostor",
        other("default", ("app.kubernetes.io/name", "paceline")),
    );
    let mut clients = namespace("ingress");
    clients.insert("paceline-clients".to_owned(), "true".to_owned());
    ends.insert("client", End::Other(clients, map([("app", "nginx")])));
    for (name, address) in [
        ("public", "93.184.215.14"),
        ("public v6", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"),
        ("API server", "10.96.0.1"),
        ("metadata", "169.254.169.254"),
    ] {
        ends.insert(name, End::Address(address.parse().expect("an address")));
    }
    ends
}

const PORTS: [u64; 12] = [
    53, 80, 443, 4318, 5432, 5672, 6379, 6443, 8080, 8443, 9090, 15672,
];

/// All that is allowed: of whom, to whom, at which ports.
fn allowed(build: &Build) -> BTreeSet<(&'static str, &'static str, u64)> {
    let mut table = vec![
        ("api", "postgres", vec![5432]),
        ("scheduler", "postgres", vec![5432]),
        ("worker", "postgres", vec![5432]),
        ("operator", "postgres", vec![5432]),
        ("api", "redis", vec![6379]),
        ("scheduler", "redis", vec![6379]),
        ("worker", "redis", vec![6379]),
        ("operator", "redis", vec![6379]),
        ("operator", "API server", vec![443, 6443]),
        ("scheduler", "rabbitmq", vec![5672]),
        ("worker", "rabbitmq", vec![5672]),
        ("worker", "public", vec![80, 443, 8080, 8443]),
        ("worker", "public v6", vec![80, 443, 8080, 8443]),
        ("api", "dns", vec![53]),
        ("scheduler", "dns", vec![53]),
        ("worker", "dns", vec![53]),
        ("operator", "dns", vec![53]),
        ("client", "api", vec![8080]),
    ];
    match build.name {
        "dev" => table.push(("worker", "receiver", vec![8080])),
        // At the port of the metrics, and not at the API's.
        "prod" | "prod with keda" | "prod with extras" => table.extend([
            ("prometheus", "api", vec![9090]),
            ("prometheus", "scheduler", vec![9090]),
            ("prometheus", "worker", vec![9090]),
            ("prometheus", "operator", vec![9090]),
        ]),
        other => panic!("{other}"),
    }
    match build.name {
        "prod with keda" => table.push(("keda", "scheduler", vec![8080])),
        "prod with extras" => table.extend([
            ("api", "collector", vec![4318]),
            ("scheduler", "collector", vec![4318]),
            ("worker", "collector", vec![4318]),
        ]),
        _ => {}
    }
    table
        .into_iter()
        .flat_map(|(from, to, ports)| ports.into_iter().map(move |port| (from, to, port)))
        .collect()
}

#[test]
fn nobody_talks_to_anybody_but_by_the_table() {
    for build in BUILDS.iter().chain([&*EXTRAS]) {
        let ends = ends(build);
        let ours = |end: &End<'_>| matches!(end, End::Ours(_));
        let mut found = BTreeSet::new();
        for ((from, one), (to, other)) in ends
            .iter()
            .flat_map(|one| ends.iter().map(move |other| (one, other)))
        {
            // Others among themselves are not ours to judge.
            if from != to && (ours(one) || ours(other)) {
                let open = PORTS
                    .iter()
                    .filter(|port| may_talk(build, one, other, **port));
                found.extend(open.map(|port| (*from, *to, *port)));
            }
        }
        let allowed = allowed(build);
        let surplus: Vec<_> = found.difference(&allowed).collect();
        let missing: Vec<_> = allowed.difference(&found).collect();
        assert!(
            surplus.is_empty() && missing.is_empty(),
            "{}: too much {surplus:?}, too little {missing:?}",
            build.name
        );
    }
}

/// Names are asked for over UDP first.
#[test]
fn dns_is_open_over_both_protocols() {
    for build in every() {
        let policy = build.find("NetworkPolicy", "to-dns").expect("it is there");
        let expected =
            json!([{ "protocol": "UDP", "port": 53 }, { "protocol": "TCP", "port": 53 }]);
        assert_eq!(policy["spec"]["egress"][0]["ports"], expected);
    }
}

/// One address in each special range, and beside it.
#[rustfmt::skip] // one to a line is no better
const ADDRESSES: [&str; 77] = [
    "0.1.2.3", "1.1.1.1", "9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0",
    "100.63.255.255", "100.64.0.0", "100.100.100.200", "100.127.255.255", "100.128.0.0",
    "127.0.0.1", "128.0.0.1", "168.63.129.15", "168.63.129.16", "168.63.129.17",
    "169.253.255.255", "169.254.169.254", "169.254.170.2", "169.255.0.0", "172.15.255.255",
    "172.16.0.1", "172.31.255.255", "172.32.0.0", "192.0.0.192", "192.0.1.0", "192.0.2.1",
    "192.0.3.0", "192.31.196.1", "192.31.197.0", "192.52.193.1", "192.52.194.0",
    "192.88.99.1", "192.88.100.0", "192.167.255.255", "192.168.1.1", "192.169.0.0",
    "192.175.48.1", "192.175.49.0", "198.17.255.255", "198.18.0.1", "198.19.255.255",
    "198.20.0.0", "198.51.100.1", "198.51.101.0", "203.0.113.1", "203.0.114.0",
    "223.255.255.255", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::",
    "::1", "::1.2.3.4", "1fff::1", "2000::1", "2001::1", "2001:1ff::1", "2001:200::1",
    "2001:db8::1", "2001:db9::1", "2002::1", "2003::1", "2606:4700::1", "2620:4f:8000::1",
    "2620:4f:8001::1", "3ffe::1", "3fff::1", "3fff:fff::1", "3fff:1000::1", "4000::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
];

/// The network lets through just what the sender does.
#[test]
fn the_network_refuses_what_the_sender_refuses() {
    let sender = Policy::default();
    for build in every() {
        let worker = End::Ours(build.pod("worker").expect("there are workers"));
        for address in ADDRESSES {
            let address: IpAddr = address.parse().expect("an address");
            for port in [443, 80, 8443, 8080, 22, 5432] {
                let sends = sender.vet(address, port).is_ok();
                let open = may_talk(build, &worker, &End::Address(address), port.into());
                assert_eq!(open, sends, "{}: {address} {port}", build.name);
            }
        }
    }
}

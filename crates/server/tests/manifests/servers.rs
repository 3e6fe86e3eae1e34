//! Postgres and RabbitMQ as their operators make them: the roles take their secrets,
//! they keep what they confirm, and the network lets through what they need.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::built::{SERVERS, combined, list, read, text};
use super::network::{End, map, may_talk, namespace};
use super::pods::Pod;
use super::settings::{arguments, check, environment, environment_of};

const DATABASE: &str = "postgresql://paceline:secret@postgres-rw.paceline:5432/paceline";

/// Of workers, which users supply with the role.
const OF_WORKERS: &str = "postgres://paceline_worker:password@host:5432/paceline";

#[test]
fn roles_take_what_the_operators_make() {
    for (role, pod) in SERVERS.roles() {
        check(role, &arguments(&SERVERS, &pod));
        let taken = environment(&SERVERS, &pod);
        let database = match role {
            "worker" => OF_WORKERS,
            _ => DATABASE,
        };
        assert_eq!(taken["PACELINE_DATABASE_URL"], database, "{role}");
        for before in pod.before() {
            let taken = environment_of(&SERVERS, before);
            assert_eq!(taken["PACELINE_DATABASE_URL"], database, "{role}");
        }
        let queue = taken.get("PACELINE_QUEUE_URL").map(String::as_str);
        let expected = matches!(role, "scheduler" | "worker")
            .then_some("amqp://default_user_x:a-b_c@rabbitmq:5672/%2f");
        assert_eq!(queue, expected, "{role}");
    }
}

/// Listed before the operator, `cnpg` left it on a Secret that is not there.
#[test]
fn components_may_be_listed_in_any_order() {
    let orders = [["cnpg", "operator"], ["operator", "cnpg"]];
    for order in orders {
        let build = combined("servers in another order", "base", &order);
        for (role, pod) in build.roles() {
            for container in pod.before().iter().chain([pod.container()]) {
                let variables = list(&container["env"]).iter();
                let urls: Vec<_> = variables
                    .filter(|one| one["name"] == "PACELINE_DATABASE_URL")
                    .map(|one| &one["valueFrom"]["secretKeyRef"])
                    .collect();
                let expected = json!({ "name": "postgres-app", "key": "uri" });
                assert_eq!(urls, [&expected], "{order:?}: {role}");
            }
        }
    }
}

/// Whether it is listed before `cnpg` or after it.
#[test]
fn workers_can_have_a_role_of_their_own() {
    let orders: [&[&str]; 3] = [
        &["operator", "cnpg", "worker-role"],
        &["worker-role", "cnpg", "operator"],
        &["operator", "worker-role"],
    ];
    for order in orders {
        let build = combined("a role for workers", "base", order);
        let owner = match order.contains(&"cnpg") {
            true => json!({ "name": "postgres-app", "key": "uri" }),
            false => json!({ "name": "paceline", "key": "database-url" }),
        };
        let own = json!({ "name": "paceline", "key": "worker-database-url" });
        for (role, pod) in build.roles() {
            for container in pod.before().iter().chain([pod.container()]) {
                let mut variables = list(&container["env"]).iter();
                let url = variables.find(|one| one["name"] == "PACELINE_DATABASE_URL");
                let taken = &url.expect("it has one")["valueFrom"]["secretKeyRef"];
                let expected = if role == "worker" { &own } else { &owner };
                assert_eq!(taken, expected, "{order:?}: {role}");
            }
        }
    }
    let build = combined(
        "rights of the role for workers",
        "base",
        &["operator", "worker-role"],
    );
    for (role, pod) in build.roles() {
        let variables = pod.before().iter().flat_map(|one| list(&one["env"]));
        let given = variables.filter(|one| one["name"] == "PACELINE_WORKER_ROLE");
        let given: Vec<_> = given.map(|one| text(&one["value"])).collect();
        let expected: &[&str] = match role {
            "scheduler" => &["paceline_worker"],
            _ => &[],
        };
        assert_eq!(given, expected, "{role}");
    }
    let page = read("k8s/README.md");
    assert!(page.contains("| `worker-database-url` | worker |"));
}

#[test]
fn what_is_confirmed_is_on_two_nodes() {
    let postgres = SERVERS.find("Cluster", "postgres").expect("it is there");
    let spec = &postgres["spec"];
    assert_eq!(spec["instances"], 3);
    let synchronous = &spec["postgresql"]["synchronous"];
    assert_eq!(synchronous["number"], 1, "one may be away");
    assert_eq!(synchronous["dataDurability"], "required");
    let parameters = &spec["postgresql"]["parameters"];
    let connections = text(&parameters["max_connections"]).parse::<u32>();
    assert!(connections.expect("a number") > 320, "k8s/README.md");

    let rabbitmq = SERVERS.find("RabbitmqCluster", "rabbitmq");
    let spec = &rabbitmq.expect("it is there")["spec"];
    assert_eq!(spec["replicas"], 3);
    let config = text(&spec["rabbitmq"]["additionalConfig"]);
    assert!(config.contains("default_queue_type = quorum\n"), "{config}");
}

/// A pod that an operator makes, by its label.
fn made(key: &str, value: &str) -> End<'static> {
    static POD: LazyLock<Value> = LazyLock::new(|| json!({ "containers": [{}] }));
    End::Ours(Pod {
        owner: &Value::Null,
        labels: map([(key, value)]),
        spec: &POD,
    })
}

const PORTS: [u64; 13] = [
    53, 80, 443, 4369, 5432, 5672, 6379, 6443, 8000, 9187, 15672, 15692, 25672,
];

#[test]
fn the_servers_talk_to_nobody_but_by_the_table() {
    let servers = [
        ("postgres", made("cnpg.io/cluster", "postgres")),
        ("rabbitmq", made("app.kubernetes.io/name", "rabbitmq")),
    ];
    let other = |of| End::Other(namespace(of), map([("app", "something")]));
    let mut others = vec![
        ("cnpg", other("cnpg-system")),
        ("monitoring", other("monitoring")),
        ("keda", other("keda")),
        ("stranger", other("default")),
    ];
    let dns = map([("k8s-app", "kube-dns")]);
    others.push(("dns", End::Other(namespace("kube-system"), dns)));
    for (name, address) in [("public", "93.184.215.14"), ("API server", "10.96.0.1")] {
        others.push((name, End::Address(address.parse().expect("an address"))));
    }
    let roles = SERVERS.roles().into_iter();
    others.extend(roles.map(|(role, pod)| (role, End::Ours(pod))));

    let mut found = BTreeSet::new();
    for (server, one) in &servers {
        for (name, end) in servers.iter().chain(&others) {
            for port in PORTS {
                if may_talk(&SERVERS, end, one, port) {
                    found.insert((*name, *server, port));
                }
                if may_talk(&SERVERS, one, end, port) {
                    found.insert((*server, *name, port));
                }
            }
        }
    }
    let allowed = BTreeSet::from([
        ("api", "postgres", 5432),
        ("scheduler", "postgres", 5432),
        ("worker", "postgres", 5432),
        ("operator", "postgres", 5432),
        ("cnpg", "postgres", 5432),
        ("cnpg", "postgres", 8000),
        ("monitoring", "postgres", 9187),
        ("postgres", "postgres", 5432),
        ("postgres", "postgres", 8000),
        ("postgres", "dns", 53),
        ("postgres", "API server", 443),
        ("postgres", "API server", 6443),
        ("scheduler", "rabbitmq", 5672),
        ("worker", "rabbitmq", 5672),
        ("monitoring", "rabbitmq", 15692),
        ("keda", "rabbitmq", 15672),
        ("rabbitmq", "rabbitmq", 4369),
        ("rabbitmq", "rabbitmq", 25672),
        ("rabbitmq", "dns", 53),
    ]);
    assert_eq!(found, allowed);
}

//! Two shards and the router before them: each an installation that the router finds.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use server::cli::Command;
use server::config::ShardConfig;
use server::edge::Mint;
use server::router::Routing;

use super::built::{Build, combined, labels, list, name, selects, text};
use super::settings::{arguments, check, command, environment};

static SHARDS: LazyLock<[Build; 2]> = LazyLock::new(|| {
    [
        combined("prod shard a", "overlays/shards/a", &[]),
        combined("prod shard b", "overlays/shards/b", &[]),
    ]
});

static ROUTER: LazyLock<Build> =
    LazyLock::new(|| combined("prod router", "overlays/shards/router", &[]));

fn router() -> server::commands::router::Args {
    let pod = ROUTER.pod("router").expect("it is there");
    match command(&arguments(&ROUTER, &pod)) {
        Command::Router(args) => args,
        other => panic!("{other:?}"),
    }
}

/// The one namespace of a build.
fn namespace(build: &Build) -> &str {
    let all = build
        .objects
        .iter()
        .map(|object| &object["metadata"]["namespace"]);
    let named: BTreeSet<&str> = all.filter_map(|namespace| namespace.as_str()).collect();
    let [only] = *named.iter().collect::<Vec<_>>() else {
        panic!("{}: {named:?}", build.name);
    };
    assert!(build.find("Namespace", only).is_some(), "{only} is made");
    only
}

#[test]
fn the_router_finds_the_api_of_each_shard() {
    let args = router();
    let key = args.router.api_key.as_ref().expect("it has the key");
    let mint = Mint::from_system().expect("there is randomness");
    Routing::new(&args.router, key, mint).unwrap_or_else(|refused| panic!("{refused:#}"));
    assert_eq!(args.listen.listen.port(), 8080);
    assert!(
        !args.listen.listen.ip().is_loopback(),
        "probes come from elsewhere"
    );
    assert_eq!(args.router.shards.len(), SHARDS.len());
    for (address, build) in args.router.shards.iter().zip(&*SHARDS) {
        let host = address.url.host_str().expect("it has a host");
        let at = host.split_once('.').expect("a Service and its namespace");
        assert_eq!(at.1, namespace(build));
        let service = build.find("Service", at.0).expect("it is there");
        let port = address.url.port_or_known_default();
        let ports = list(&service["spec"]["ports"]).iter();
        let ports: Vec<_> = ports.map(|port| port["port"].as_u64()).collect();
        assert!(ports.contains(&port.map(u64::from)), "{host}");
        for (role, pod) in build.roles() {
            let environment = environment(build, &pod);
            let shard = &environment["PACELINE_SHARD_NAME"];
            assert_eq!(shard, address.name.as_str(), "{role}");
            check(role, &arguments(build, &pod));
        }
    }
}

/// As far as policies go, which are checked where traffic comes in and where it goes out.
#[test]
fn the_router_is_let_to_each_shard() {
    let out = ROUTER
        .find("NetworkPolicy", "to-shards")
        .expect("it is there");
    let to = &out["spec"]["egress"][0]["to"][0];
    let own = ROUTER
        .find("Namespace", namespace(&ROUTER))
        .expect("it is made");
    let own = labels(&own["metadata"]["labels"]);
    for build in &*SHARDS {
        let name = (
            "kubernetes.io/metadata.name".to_owned(),
            namespace(build).to_owned(),
        );
        assert!(
            selects(&to["namespaceSelector"], &[name].into()),
            "{}",
            build.name
        );
        let api = build.pod("api").expect("it is there");
        assert!(selects(&to["podSelector"], &api.labels), "{}", build.name);
        let policy = build
            .find("NetworkPolicy", "clients-to-api")
            .expect("it is there");
        let from = &policy["spec"]["ingress"][0]["from"][0];
        assert!(selects(&from["namespaceSelector"], &own), "{}", build.name);
    }
}

/// In a RabbitMQ that they may share.
#[test]
fn the_autoscaler_of_each_shard_counts_its_own_queue() {
    for build in &*SHARDS {
        let pod = build.pod("worker").expect("it is there");
        let Command::Worker(args) = command(&arguments(build, &pod)) else {
            panic!("{}", build.name);
        };
        let ShardConfig { shard_name } = &args.shard;
        assert!(shard_name.is_some());
        let queue = args.shard.queue(args.queue.clone()).queue_name;
        let scaler = build
            .find("HorizontalPodAutoscaler", "worker")
            .expect("it is there");
        let metric = &scaler["spec"]["metrics"][0]["external"]["metric"];
        assert_eq!(
            text(&metric["selector"]["matchLabels"]["queue"]),
            queue,
            "{}",
            name(scaler)
        );
    }
}

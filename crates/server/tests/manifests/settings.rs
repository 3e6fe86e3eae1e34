//! The settings and secrets of each pod are there, and the program takes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::CommandFactory;
use engine::roles::Role;
use serde_json::Value;
use server::cli::{Cli, Command, parse};
use server::client::Client;
use server::config::{require_shared, unknown};
use server::edge::Mint;
use server::role::RoleConfig;
use server::{api_key, secret_keys};

use super::built::{BUILDS, Build, SERVERS, every, list, name, read, text, with_components};
use super::pods::Pod;

/// What a kubelet puts in.
const POD_IP: &str = "10.1.2.3";

fn field_of_pod(path: &str) -> &'static str {
    match path {
        "status.podIP" => POD_IP,
        "metadata.name" => "operator-7d9f6c-x2x2x",
        "metadata.namespace" => "paceline",
        other => panic!("{other} is of no use to the program"),
    }
}

/// The rows of the README's table of keys: the key, and whose it is. Without those
/// that are not needed with these components.
fn supplied(components: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let page = read("k8s/README.md");
    let table = page
        .split("| key | of roles | not with |")
        .nth(1)
        .expect("the table is there");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let of_row = |row: &str| {
        let cells: Vec<&str> = row
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        let roles = cells[2].split(", ").map(str::to_owned).collect();
        let is_needed = !components.contains(&cells[3]);
        is_needed.then(|| (cells[1].to_owned(), roles))
    };
    rows.filter_map(of_row).collect()
}

/// A secret of the build; where the user supplies it, one that would do.
fn secret(build: &Build, named: &str, key: &str) -> String {
    if let Some(secret) = build.find("Secret", named) {
        let encoded = text(&secret["data"][key]);
        let decoded = STANDARD.decode(encoded).expect("secrets are base64");
        return String::from_utf8(decoded).expect("of text");
    }
    // What the operators of the servers make of their clusters.
    let made = |kind, of: &str| {
        (build.of_kind(kind)).any(|cluster| named == format!("{}-{of}", name(cluster)))
    };
    match key {
        "uri" if made("Cluster", "app") => {
            return "postgresql://paceline:secret@postgres-rw.paceline:5432/paceline".to_owned();
        }
        "username" if made("RabbitmqCluster", "default-user") => {
            return "default_user_x".to_owned();
        }
        "password" if made("RabbitmqCluster", "default-user") => return "a-b_c".to_owned(),
        _ => {}
    }
    assert_eq!((build.name.starts_with("prod"), named), (true, "paceline"));
    assert!(supplied(&[]).contains_key(key), "{key} is in the table");
    match key {
        "database-url" => "postgres://user:password@host:5432/paceline".to_owned(),
        "worker-database-url" => {
            "postgres://paceline_worker:password@host:5432/paceline".to_owned()
        }
        "schedule-url" => "rediss://user:password@host:6379/".to_owned(),
        "queue-url" => "amqps://user:password@host:5671/%2f".to_owned(),
        "api-key" => "0123456789abcdef".to_owned(),
        "secret-keys" => format!("one:{}", STANDARD.encode([7; 32])),
        other => panic!("{other} is of no use to the program"),
    }
}

/// The environment of a pod's container.
pub(crate) fn environment(build: &Build, pod: &Pod<'_>) -> BTreeMap<String, String> {
    environment_of(build, pod.container())
}

/// As the kubelet would make it.
pub(crate) fn environment_of(build: &Build, container: &Value) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    for from in list(&container["envFrom"]) {
        let named = text(&from["configMapRef"]["name"]);
        let map = build
            .find("ConfigMap", named)
            .expect("the ConfigMap is there");
        for (key, value) in map["data"].as_object().expect("it has data") {
            environment.insert(key.clone(), text(value).to_owned());
        }
    }
    for variable in list(&container["env"]) {
        let from = &variable["valueFrom"];
        let value = if let Some(value) = variable["value"].as_str() {
            // What was set before it, as Kubernetes has it.
            environment
                .iter()
                .fold(value.to_owned(), |value, (name, set)| {
                    value.replace(&format!("$({name})"), set)
                })
        } else if let Some(field) = from["fieldRef"]["fieldPath"].as_str() {
            field_of_pod(field).to_owned()
        } else {
            let (named, key) = (&from["secretKeyRef"]["name"], &from["secretKeyRef"]["key"]);
            secret(build, text(named), text(key))
        };
        assert!(
            !value.contains("$("),
            "{value} names what is not set before it"
        );
        let before = environment.insert(text(&variable["name"]).to_owned(), value);
        assert_eq!(before, None, "{} is set once", variable["name"]);
    }
    environment
}

/// The program's arguments, with each variable as the flag that it stands for.
pub(crate) fn arguments(build: &Build, pod: &Pod<'_>) -> Vec<String> {
    as_flags(&pod.arguments(), &environment(build, pod))
}

pub(crate) fn as_flags(command: &[&str], environment: &BTreeMap<String, String>) -> Vec<String> {
    let cli = Cli::command();
    let role = cli
        .find_subcommand(command[0])
        .expect("there is such a command");
    // The flags of logging are those of every command.
    let own = unknown::arguments(role).into_iter();
    let all = cli.get_arguments().filter_map(|argument| {
        let flag = argument.get_long()?.to_owned();
        let variable = argument.get_env()?.to_str()?.to_owned();
        Some(unknown::Argument { flag, variable })
    });
    let known = own.chain(all);
    let flags = known.filter_map(|argument| {
        let value = environment.get(&argument.variable)?;
        Some(format!("--{}={value}", argument.flag))
    });
    let words = command.iter().map(|word| (*word).to_owned());
    let mut flags: Vec<String> = flags.collect();
    flags.sort();
    flags.dedup();
    std::iter::once("paceline".to_owned())
        .chain(words)
        .chain(flags)
        .collect()
}

/// What the program makes of them.
pub(crate) fn command(arguments: &[String]) -> Command {
    parse(arguments)
        .unwrap_or_else(|refused| panic!("{refused}"))
        .command
}

#[test]
fn the_program_takes_every_setting() {
    for build in every() {
        for (role, pod) in build.roles() {
            let environment = environment(build, &pod);
            let names = environment.keys().cloned();
            unknown::refuse_unknown(&Cli::command(), names).expect("no variable is misspelt");
            let arguments = arguments(build, &pod);
            parse(&arguments).unwrap_or_else(|refused| panic!("{} {role}: {refused}", build.name));
            assert_eq!(pod.arguments(), [role]);
            check(role, &arguments);
        }
    }
}

/// `kubectl exec deploy/api -- paceline …`, which is to reach the API of its own pod.
#[test]
fn the_command_line_works_inside_the_apis_pod() {
    let mut tried = 0;
    for build in every() {
        for (_, pod) in build.roles().into_iter().filter(|(role, _)| *role == "api") {
            let arguments = as_flags(&["top"], &environment(build, &pod));
            let Command::Top(top) = command(&arguments) else {
                panic!("{arguments:?}");
            };
            Client::new(&top.connection.client)
                .unwrap_or_else(|error| panic!("{}: {error}", build.name));
            assert_eq!(
                top.connection
                    .client
                    .url
                    .as_ref()
                    .and_then(url::Url::host_str),
                Some(POD_IP),
                "{}",
                build.name
            );
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// By the same program, so that it knows what it waits for. Schedulers migrate, and
/// the others wait for them.
#[test]
fn each_role_begins_with_its_schema() {
    for build in every() {
        for pod in build.pods() {
            let at = format!("{}: {}", build.name, pod.name());
            if pod.app() != "paceline" {
                assert!(pod.before().is_empty(), "{at}");
                continue;
            }
            let [schema] = pod.before() else {
                panic!("{at} needs one thing before it")
            };
            assert_eq!(schema["image"], pod.container()["image"], "{at}");
            let words: Vec<&str> = list(&schema["args"]).iter().map(text).collect();
            let environment = environment_of(build, schema);
            let names = environment.keys().cloned();
            unknown::refuse_unknown(&Cli::command(), names).expect("no variable is misspelt");
            match command(&as_flags(&words, &environment)) {
                Command::Migrate(args) => assert_eq!(args.wait, pod.role() != Some("scheduler")),
                other => panic!("{at}: {other:?}"),
            }
        }
    }
}

/// What a role refuses before it dials anything.
pub(crate) fn check(role: &str, arguments: &[String]) {
    let (role, config) = match command(arguments) {
        Command::Api(args) => (Role::Api, RoleConfig::from(args)),
        Command::Scheduler(args) => (Role::Scheduler, RoleConfig::from(args)),
        Command::Worker(args) => (Role::Worker, RoleConfig::from(args)),
        Command::Operator(args) => (Role::Operator, RoleConfig::from(args)),
        Command::Migrate(args) => {
            let place = args.store.place().expect("the store has a place");
            assert!(matches!(place, server::config::Database::Postgres(_)));
            return;
        }
        other => panic!("{role} is no role: {other:?}"),
    };
    let queue = config.queue.as_ref();
    require_shared(role.as_str(), &config.store, &config.schedule, queue)
        .expect("servers are shared");
    let mint = Mint::from_system().expect("there is randomness");
    if let Some(api) = &config.api {
        api_key::resolve(role, api, &config.listen, &config.store, &mint).expect("the key will do");
    }
    if let Some(keys) = &config.secret_keys {
        secret_keys::resolve(false, keys, &config.store, &mint).expect("the keys will do");
    }
    assert!(
        !config.listen.listen.ip().is_loopback(),
        "probes come from elsewhere"
    );
    assert_eq!(config.listen.listen.port(), 8080);
    // Whoever publishes the API does not publish metrics.
    let metrics = config.listen.metrics_listen;
    assert!(metrics.is_none_or(|at| at.port() == 9090 && !at.ip().is_loopback()));
}

/// Which keys the roles take of the Secret that users supply, and who takes them.
fn taken(build: &Build) -> BTreeMap<String, BTreeSet<String>> {
    let mut taken: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (role, pod) in build.roles() {
        let containers = std::iter::once(pod.container()).chain(pod.before());
        for variable in containers.flat_map(|one| list(&one["env"])) {
            let from = &variable["valueFrom"]["secretKeyRef"];
            if from["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("paceline"))
            {
                let of = taken.entry(text(&from["key"]).to_owned()).or_default();
                of.insert(role.to_owned());
            }
        }
    }
    taken
}

#[test]
fn the_table_of_keys_is_what_the_pods_take() {
    let cases: [(&Build, &[&str]); 6] = [
        (&BUILDS[0], &[]),
        (&BUILDS[1], &[]),
        (&BUILDS[2], &[]),
        (&with_components("prod with cnpg", &["cnpg"]), &["cnpg"]),
        (
            &with_components("prod with rabbitmq-operator", &["rabbitmq-operator"]),
            &["rabbitmq-operator"],
        ),
        (&SERVERS, &["cnpg", "rabbitmq-operator"]),
    ];
    for (build, components) in cases {
        let mut supplied = supplied(components);
        // Without the component that gives workers a role of their own.
        if build.name == "dev" {
            let workers = supplied.remove("worker-database-url").expect("it is there");
            let all = supplied.get_mut("database-url").expect("it is there");
            all.extend(workers);
        }
        let for_keda = supplied.remove("queue-management-url");
        assert_eq!(for_keda, Some(BTreeSet::from(["KEDA alone".to_owned()])));
        assert_eq!(taken(build), supplied, "{}", build.name);
    }
}

/// A receiver without a certificate, at an address of the cluster, is for dev.
#[test]
fn only_dev_opens_what_is_not_public() {
    for build in every() {
        for role in ["api", "worker"] {
            let pod = build.pod(role).expect("it is there");
            let open = environment(build, &pod)
                .into_keys()
                .filter(|name| name.starts_with("PACELINE_ALLOW"));
            let expected: &[&str] = match build.name {
                "dev" => &["PACELINE_ALLOW_HTTP", "PACELINE_ALLOW_NETWORKS"],
                _ => &[],
            };
            assert!(open.eq(expected.iter().copied()), "{} {role}", build.name);
        }
    }
}

/// What is kept for recording, once the last request has ended.
const FLUSH: Duration = Duration::from_secs(5);

#[test]
fn the_kubelet_waits_for_what_has_started() {
    for build in every() {
        for (role, pod) in build.roles() {
            let shutdown = match command(&arguments(build, &pod)) {
                Command::Api(args) => args.shutdown.shutdown_grace,
                Command::Scheduler(args) => args.shutdown.shutdown_grace,
                Command::Operator(args) => args.shutdown.shutdown_grace,
                Command::Worker(args) => {
                    let longest = args.request.request_timeout;
                    assert!(
                        args.shutdown.shutdown_grace >= longest + FLUSH,
                        "an attempt may end"
                    );
                    args.shutdown.shutdown_grace
                }
                other => panic!("{other:?}"),
            };
            let hook = &pod.container()["lifecycle"]["preStop"];
            let before = seconds(&hook["sleep"]["seconds"]);
            assert_eq!(
                hook.is_null(),
                before.is_zero(),
                "{role}: the image has no shell"
            );
            let waits = seconds(&pod.spec["terminationGracePeriodSeconds"]);
            assert!(waits >= before + shutdown + FLUSH, "{} {role}", build.name);
            // Who is behind a Service is still sent requests for a while.
            assert_eq!(role == "api", !before.is_zero(), "{role}");
        }
    }
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or(0))
}

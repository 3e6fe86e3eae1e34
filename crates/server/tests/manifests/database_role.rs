//! The role of the database is named alike wherever it is named.

use serde_json::Value;

use super::built::{BUILDS, SERVERS, documents, read, text};
use super::settings::environment;

/// As most people would name it: a name that is also a schema of ours, which a search
/// path of `"$user"` finds first.
const ROLE: &str = "paceline";

/// Of workers, where they have one of their own.
const OF_WORKERS: &str = "paceline_worker";

fn role_of(url: &str) -> String {
    url::Url::parse(url).expect("a URL").username().to_owned()
}

#[test]
fn manifests_and_compose_name_one_role() {
    let mut named: Vec<(&str, String)> = Vec::new();
    for build in [&BUILDS[0], &*SERVERS] {
        for (role, pod) in build.roles() {
            let named_here = role_of(&environment(build, &pod)["PACELINE_DATABASE_URL"]);
            match (build.name, role) {
                // Where users are to copy it from.
                ("prod with servers", "worker") => assert_eq!(named_here, OF_WORKERS),
                _ => named.push((role, named_here)),
            }
        }
    }
    let secret = read("k8s/components/dev-deps/kustomization.yaml");
    let user = secret
        .split("- user=")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    named.push(("dev-deps", user.expect("it has one").to_owned()));
    let cluster = SERVERS.find("Cluster", "postgres").expect("it is there");
    let owner = &cluster["spec"]["bootstrap"]["initdb"]["owner"];
    named.push(("cnpg", text(owner).to_owned()));

    let compose = documents(&read("compose.yaml")).remove(0);
    let services = compose["services"].as_object().expect("it has services");
    for (service, spec) in services {
        let settings = &spec["environment"];
        if let Value::String(user) = &settings["POSTGRES_USER"] {
            named.push(("compose: postgres", user.clone()));
        }
        if let Value::String(url) = &settings["PACELINE_DATABASE_URL"] {
            match &**service {
                "worker" => assert_eq!(role_of(url), OF_WORKERS),
                _ => named.push(("compose", role_of(url))),
            }
        } else {
            assert!(!["api", "scheduler", "worker", "migrate"].contains(&&**service));
        }
    }
    assert!(named.len() >= 12, "{named:?}");
    for (place, role) in named {
        assert_eq!(role, ROLE, "{place}");
    }
}

/// It is made, and given its rights, before a worker starts.
#[test]
fn compose_gives_workers_a_role_of_their_own() {
    let compose = documents(&read("compose.yaml")).remove(0);
    let services = &compose["services"];
    let waits = &services["worker"]["depends_on"]["grants"]["condition"];
    assert_eq!(text(waits), "service_completed_successfully");
    let grants = &services["grants"];
    let after = &grants["depends_on"]["migrate"]["condition"];
    assert_eq!(text(after), "service_completed_successfully");
    let command = grants["command"].as_array().expect("a list");
    let says = |part: &str| command.iter().any(|word| text(word).contains(part));
    assert!(says(&format!("create role {OF_WORKERS} ")));
    let mounted = text(&grants["volumes"][0]).split(':').collect::<Vec<_>>();
    let [from, to, "ro"] = mounted[..] else {
        panic!("{mounted:?}");
    };
    assert!(says(&format!("--file={to}")));
    let rights = read(from.trim_start_matches("./"));
    assert!(rights.contains(&format!("to {OF_WORKERS};")));
}

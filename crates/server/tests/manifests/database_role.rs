//! The role of the database is named alike wherever it is named.

use serde_json::Value;

use super::built::{BUILDS, SERVERS, documents, read, text};
use super::settings::environment;

/// As most people would name it: a name that is also a schema of ours, which a search
/// path of `"$user"` finds first.
const ROLE: &str = "paceline";

fn role_of(url: &str) -> String {
    url::Url::parse(url).expect("a URL").username().to_owned()
}

#[test]
fn manifests_and_compose_name_one_role() {
    let mut named: Vec<(&str, String)> = Vec::new();
    for build in [&BUILDS[0], &*SERVERS] {
        for (role, pod) in build.roles() {
            let url = &environment(build, &pod)["PACELINE_DATABASE_URL"];
            named.push((role, role_of(url)));
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
            named.push(("compose", role_of(url)));
        } else {
            assert!(!["api", "scheduler", "worker", "migrate"].contains(&&**service));
        }
    }
    assert!(named.len() >= 14, "{named:?}");
    for (place, role) in named {
        assert_eq!(role, ROLE, "{place}");
    }
}

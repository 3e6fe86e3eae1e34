//! Who may call the API server, and for what; and the resources that are shown as
//! examples.

use std::collections::BTreeSet;

use operator::permissions::PERMISSIONS;
use operator::resource::Destination;
use serde_json::Value;

use super::built::{BUILDS, documents, list, name, read, text};

/// Its Role says what the program calls, which the operator's own scenarios
/// compare: nothing that it does not, and nothing less.
#[test]
fn the_role_is_what_the_operator_calls() {
    for build in &*BUILDS {
        let role = build.find("Role", "operator").expect("it has a role");
        let mut allowed = BTreeSet::new();
        for rule in list(&role["rules"]) {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    for verb in list(&rule["verbs"]) {
                        allowed.insert((text(group), text(resource), text(verb)));
                    }
                }
            }
        }
        let called: BTreeSet<_> = (PERMISSIONS.iter())
            .map(|may| (may.group, may.resource, may.verb))
            .collect();
        assert_eq!(allowed, called, "{}", build.name);
    }
}

/// By a Role, so only within its namespace; and nobody else.
#[test]
fn only_the_operator_is_bound_to_it() {
    for build in &*BUILDS {
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            assert_eq!(build.of_kind(kind).count(), 0, "{}", build.name);
        }
        let bindings: Vec<&Value> = build.of_kind("RoleBinding").collect();
        assert_eq!(bindings.len(), 1);
        assert_eq!(bindings[0]["roleRef"]["name"], "operator");
        let subjects = list(&bindings[0]["subjects"]);
        assert_eq!(subjects.len(), 1);
        assert_eq!(subjects[0]["kind"], "ServiceAccount");
        assert_eq!(subjects[0]["name"], "operator");
        assert_eq!(subjects[0]["namespace"], "paceline");
        let lease = list(&build.find("Role", "operator").expect("it is there")["rules"])
            .iter()
            .find_map(|rule| rule["resourceNames"][0].as_str());
        let pod = build.pod("operator").expect("it is there");
        let arguments = super::settings::arguments(build, &pod);
        let server::cli::Command::Operator(args) = super::settings::command(&arguments) else {
            panic!("it is the operator");
        };
        assert_eq!(lease, Some(&*args.operator.operator_lease));
    }
}

/// What the README applies is what the program reads, field by field.
#[test]
fn the_sample_is_a_destination() {
    let sample = documents(&read("k8s/samples/destination.yaml"));
    let kinds: Vec<&str> = sample.iter().map(|one| text(&one["kind"])).collect();
    assert_eq!(kinds, ["Secret", "Destination"]);
    let mut unused = Vec::new();
    let parsed: Result<Destination, _> =
        serde_ignored::deserialize(&sample[1], |path| unused.push(path.to_string()));
    let parsed = parsed.unwrap_or_else(|problem| panic!("{problem}"));
    // Which kube has read before it.
    assert_eq!(unused, ["apiVersion", "kind"]);
    let reference = &parsed.spec.signing_secret_ref;
    assert_eq!(reference.name, name(&sample[0]), "its secret is beside it");
    let secret = text(&sample[0]["stringData"][&reference.key]);
    domain::signature::SigningSecret::parse(secret).expect("it is a secret");
    assert_eq!(parsed.metadata.namespace.as_deref(), Some("paceline"));
}

//! The manifests applied, changed and applied again, by the real `kubectl`.

use serde_json::{Value, json};

use super::built::{documents, list, read, repository, text};
use super::kubectl::Shell;

/// The names of the ConfigMaps and Secrets that a role's containers take.
fn taken(deployment: &Value) -> Vec<String> {
    let pod = &deployment["spec"]["template"]["spec"];
    let containers = [&pod["initContainers"], &pod["containers"]];
    let containers = containers.into_iter().flat_map(list);
    let named = containers.flat_map(|container| {
        let maps = list(&container["envFrom"]).iter();
        let maps = maps.map(|from| text(&from["configMapRef"]["name"]).to_owned());
        let secrets = list(&container["env"]).iter();
        let secrets = secrets.filter_map(|one| {
            let name = &one["valueFrom"]["secretKeyRef"]["name"];
            name.as_str().map(str::to_owned)
        });
        maps.chain(secrets)
    });
    named.collect()
}

/// Builds that an overlay does not have.
const COMBINED: [(&str, &str); 2] = [
    ("keda", "../../components/keda"),
    (
        "servers",
        "../../components/cnpg, ../../components/rabbitmq-operator",
    ),
];

#[tokio::test]
async fn they_can_be_applied_again_after_anything_has_changed() {
    let overlays = ["dev", "prod", "keda", "servers"];
    for overlay in overlays {
        let shell = Shell::start().await;
        shell.copy_manifests();
        for (name, components) in COMBINED {
            let folder = shell.path().join("k8s/overlays").join(name);
            std::fs::create_dir(&folder).expect("make a folder");
            let text = format!("resources: [../prod]\ncomponents: [{components}]\n");
            std::fs::write(folder.join("kustomization.yaml"), text).expect("write it");
        }
        let apply = format!("kubectl apply -k k8s/overlays/{overlay}");
        shell.done(&apply).await;
        let again = shell.done(&apply).await;
        assert!(!again.contains("created"), "{overlay}: {again}");

        // A setting, the image and, where it is ours, a secret.
        let changes = [
            ("s/LOG=info/LOG=debug/", "base/settings.env"),
            (
                "s/newTag: 0.1.0/newTag: 0.1.1/",
                "overlays/*/kustomization.yaml",
            ),
            (
                "s/^api-key=.*/api-key=another-key-of-a-test/",
                "overlays/dev/secret.env",
            ),
        ];
        for (change, path) in changes {
            shell.done(&format!("sed -i '{change}' k8s/{path}")).await;
            let said = shell.done(&apply).await;
            let is_ours = path != "overlays/dev/secret.env" || overlay == "dev";
            let rolled = said.contains("deployment.apps/scheduler configured");
            assert_eq!(rolled, is_ours, "{overlay} {path}: {said}");
        }
        for role in ["api", "scheduler", "worker", "operator"] {
            let deployment = shell.server.get("deployments", role);
            let deployment = deployment.expect("it was applied");
            let containers = &deployment["spec"]["template"]["spec"]["containers"];
            let image = text(&containers[0]["image"]);
            assert!(image.ends_with(":0.1.1"), "{overlay} {role}: {image}");
            for name in taken(&deployment) {
                let is_there = ["configmaps", "secrets"]
                    .iter()
                    .any(|plural| shell.server.names(plural).contains(&name));
                // Users and operators of servers supply the others.
                let is_supplied = overlay != "dev" && !name.starts_with("paceline-");
                assert!(is_there || is_supplied, "{overlay} {role}: {name}");
            }
        }
    }
}

/// An object, a change of it that any API server refuses, and the field that it names.
type Refused = (Value, [&'static str; 2], &'static str);

fn refused() -> Vec<Refused> {
    let pod = json!({ "restartPolicy": "Never",
        "containers": [{ "name": "paceline", "image": "paceline:0.1.0" }] });
    let template = json!({ "metadata": { "labels": { "app": "one" } }, "spec": pod });
    let selector = json!({ "matchLabels": { "app": "one" } });
    let claim = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
        "resources": { "requests": { "storage": "1Gi" } } });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one" });
    let one = |version: &str, kind: &str, spec: Value| {
        json!({ "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": { "name": "one", "namespace": "default" } })
    };
    let with = |version: &str, kind: &str, field: &str, value: Value| {
        let mut object = one(version, kind, Value::Null);
        object.as_object_mut().expect("an object").remove("spec");
        object[field] = value;
        object
    };
    let mut kept = with("v1", "ConfigMap", "data", json!({ "level": "info" }));
    kept["immutable"] = json!(true);
    let mut sealed = with("v1", "Secret", "data", json!({ "level": "aW5mbw==" }));
    sealed["immutable"] = json!(true);
    let service = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
    let deployment = json!({ "selector": selector, "template": template });
    let set = json!({ "selector": selector, "serviceName": "one", "template": template });
    let rights = "rbac.authorization.k8s.io/v1";
    vec![
        (
            one("batch/v1", "Job", json!({ "template": template })),
            ["0.1.0", "0.1.1"],
            "spec.template",
        ),
        (
            one("apps/v1", "Deployment", deployment),
            ["\"app\":\"one\"", "\"app\":\"two\""],
            "spec.selector",
        ),
        (
            one("apps/v1", "StatefulSet", set),
            ["\"serviceName\":\"one\"", "\"serviceName\":\"two\""],
            "spec.serviceName",
        ),
        (
            one("v1", "PersistentVolumeClaim", claim),
            ["slow", "fast"],
            "spec.storageClassName",
        ),
        (
            one("v1", "Service", service),
            ["None", "10.0.0.9"],
            "spec.clusterIP",
        ),
        (
            with(rights, "RoleBinding", "roleRef", role),
            ["\"kind\":\"Role\"", "\"kind\":\"ClusterRole\""],
            "roleRef",
        ),
        (kept, ["info", "debug"], "data"),
        (sealed, ["aW5mbw==", "ZGVidWc="], "data"),
        (
            with("v1", "Secret", "type", json!("Opaque")),
            ["Opaque", "kubernetes.io/basic-auth"],
            "type",
        ),
    ]
}

/// So that the test above would fail with a Job among them, as it did, and with anything
/// else that a real API server takes once.
#[tokio::test]
async fn what_cannot_be_changed_is_refused() {
    for (object, [from, to], field) in refused() {
        let shell = Shell::start().await;
        let (object, kind) = (object.to_string(), text(&object["kind"]));
        let changed = object.replace(from, to);
        assert_ne!(changed, object, "{kind}");
        shell.write("object.json", &object);
        shell.done("kubectl apply -f object.json").await;
        shell.done("kubectl apply -f object.json").await;
        shell.write("object.json", &changed);
        let output = shell.run("kubectl apply -f object.json").await;
        let problem = String::from_utf8_lossy(&output.stderr);
        let immutable = format!("{field}: field is immutable");
        assert!(
            !output.status.success() && problem.contains(&immutable),
            "{kind}: {problem}"
        );
    }
}

/// Those fields of the same kinds that a real one lets anybody change.
#[tokio::test]
async fn what_can_be_changed_is_taken() {
    let changes = [
        ("StatefulSet", ["0.1.0", "0.1.1"]),
        ("PersistentVolumeClaim", ["1Gi", "2Gi"]),
        ("Service", [":80", ":81"]),
    ];
    for (object, ..) in refused() {
        let kind = text(&object["kind"]);
        let Some((_, [from, to])) = changes.iter().find(|(of, _)| *of == kind) else {
            continue;
        };
        let shell = Shell::start().await;
        shell.write("object.json", &object.to_string());
        shell.done("kubectl apply -f object.json").await;
        let changed = object.to_string().replace(from, to);
        shell.write("object.json", &changed);
        let said = shell.done("kubectl apply -f object.json").await;
        assert!(said.contains("configured"), "{kind}: {said}");
    }
}

/// What they apply is there, and nothing that would have to be forced.
#[test]
fn the_examples_for_git_apply_what_is_there() {
    for (path, at) in [
        ("k8s/samples/argo-cd.yaml", "/spec/source/path"),
        ("k8s/samples/flux.yaml", "/spec/path"),
    ] {
        let page = read(path);
        for word in ["hook", "force: ", "Replace=true"] {
            let said = page.lines().filter(|line| !line.starts_with('#'));
            assert!(
                !said.into_iter().any(|line| line.contains(word)),
                "{path}: {word}"
            );
        }
        let [paceline, destinations] = &documents(&page)[..] else {
            panic!("{path}: Paceline and its destinations")
        };
        let folder = |one: &Value| text(&one.pointer(at).expect("a path").clone()).to_owned();
        assert!(repository().join(folder(paceline)).is_dir(), "{path}");
        assert_ne!(folder(paceline), folder(destinations), "{path}");
    }
}

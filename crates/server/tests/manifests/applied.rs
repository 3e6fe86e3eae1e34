//! The manifests applied, changed and applied again, by the real `kubectl`.

use serde_json::Value;

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

/// So that the test above would fail with a Job among them, as it did.
#[tokio::test]
async fn a_job_cannot_be_changed() {
    let shell = Shell::start().await;
    let job = r#"{"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "migrate", "namespace": "default"},
        "spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "paceline", "image": "paceline:0.1.0"}]}}}}"#;
    shell.write("job.json", job);
    shell.done("kubectl apply -f job.json").await;
    shell.done("kubectl apply -f job.json").await;
    let output = shell
        .run("sed s/0.1.0/0.1.1/ job.json | kubectl apply -f -")
        .await;
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && problem.contains("field is immutable"),
        "{problem}"
    );
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
